//! `/v1`: agents as models of OpenAI's API, for its clients. A chat completion is a run of the same pipeline as
//! `POST /api/agent/chat`, in another format.
//!
//! The API has no place for some properties of a run, which are in headers instead: `X-Agent-Run-Id`, `X-Thread-Id` of a
//! run that is stored, and `X-Agent-Run-State: waiting` of an answer that waits for a person's approval.

use std::time::{SystemTime, UNIX_EPOCH};

use agent_core::ids::AgentId;
use agent_core::request::TurnRequest;
use agent_core::role::RoleBlock;
use agent_core::tool::WholeDelivery;
use agent_platform::history::{CompletionError, CompletionRequest, JsonBody, read_completion};
use agent_platform::records::Record;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;

use super::conversation::ThreadRequest;
use super::{App, chat, response};
use crate::auth::ApiClient;
use crate::body::ResponseBody;
use crate::cors::ProtocolHeaders;
use crate::endpoint::RequestContext;
use crate::error::{Code, ErrorFormat, HttpError};
use crate::request_trace::RequestTrace;
use crate::service::HandlerResult;
use crate::stream::{self, ChatCompletion};

/// Header that names the thread in which a run is stored.
pub(super) const THREAD_HEADER: HeaderName = HeaderName::from_static("x-thread-id");
/// Response header with the id of the run.
pub(super) const RUN_HEADER: HeaderName = HeaderName::from_static("x-agent-run-id");
/// Response header of an answer that waits for a person's approval.
pub(super) const STATE_HEADER: HeaderName = HeaderName::from_static("x-agent-run-state");

/// Header names of the API's packages in browsers, for the CORS layer.
pub(super) const CORS_HEADERS: ProtocolHeaders = ProtocolHeaders {
    request: &[
        "x-thread-id",
        "openai-organization",
        "openai-project",
        "x-stainless-arch",
        "x-stainless-async",
        "x-stainless-helper-method",
        "x-stainless-lang",
        "x-stainless-os",
        "x-stainless-package-version",
        "x-stainless-retry-count",
        "x-stainless-runtime",
        "x-stainless-runtime-version",
        "x-stainless-timeout",
    ],
    response: &["x-thread-id", "x-agent-run-id", "x-agent-run-state", "x-should-retry"],
};

/// Returns the format of errors at a path of the application.
pub(super) fn error_format(path: &str) -> ErrorFormat {
    match path.starts_with("/v1/") {
        true => ErrorFormat::OpenAi,
        false => ErrorFormat::Problem,
    }
}

/// An agent, as a model of the API.
#[derive(Serialize, JsonSchema)]
pub(super) struct ModelObject {
    /// The agent's id.
    id: String,
    /// Always `model`.
    object: &'static str,
    /// Time of the agent's last change, in seconds since 1970-01-01.
    created: u64,
    /// The agent's company.
    owned_by: String,
}

/// The agents of a token.
#[derive(Serialize, JsonSchema)]
pub(super) struct ModelList {
    /// Always `list`.
    object: &'static str,
    /// The agents, in the order of the token.
    data: Vec<ModelObject>,
}

impl From<Record<RoleBlock>> for ModelObject {
    fn from(record: Record<RoleBlock>) -> Self {
        let created = record.updated.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let RoleBlock { id, company_id, .. } = record.value;
        Self { id: id.to_string(), object: "model", created, owned_by: company_id.to_string() }
    }
}

/// Handles `GET /v1/models`.
pub(super) async fn list_models(context: RequestContext<App>, client: ApiClient) -> HandlerResult {
    let mut data = Vec::with_capacity(client.agents.len());
    for agent in &client.agents {
        data.extend(load_model(&context.state, &client, agent).await?);
    }
    response::json(StatusCode::OK, &ModelList { object: "list", data })
}

/// Handles `GET /v1/models/{id}`.
pub(super) async fn get_model(context: RequestContext<App>, client: ApiClient) -> HandlerResult {
    let agent = AgentId::from(context.params.get("id")?);
    if client.principal(&agent).is_none() {
        return Err(model_not_found());
    }
    let model = load_model(&context.state, &client, &agent).await?.ok_or_else(model_not_found)?;
    response::json(StatusCode::OK, &model)
}

async fn load_model(
    app: &App,
    client: &ApiClient,
    agent: &AgentId,
) -> Result<Option<ModelObject>, HttpError> {
    Ok(app.roles.masked_role(&client.company_id, agent).await?.map(ModelObject::from))
}

/// Handles `POST /v1/chat/completions`.
pub(super) async fn post_completion(context: RequestContext<App>, client: ApiClient) -> HandlerResult {
    let RequestContext { state: app, head, body, .. } = context;
    let thread_id = thread_header(&head.headers)?;
    let bytes = body.read_json_bytes(&head.headers).await?;
    let json_body = JsonBody::parse(&bytes, app.base.json_depth)?;
    let CompletionRequest { input, is_streamed, includes_usage, calls_in_parallel } =
        read_completion(&json_body, thread_id)?;
    let principal = client.principal(&input.turn.agent_id).ok_or_else(model_not_found)?;
    let thread = ThreadRequest::read(&app.conversations, &input)?;
    if thread.is_none() {
        input.reject_missing_message()?;
    }
    app.rate_limiter.count_api_run(&client).await?;
    let whole_delivery = (!is_streamed).then(WholeDelivery::default);
    let trace = Some(RequestTrace::of(&head).context());
    let turn = TurnRequest { trace, whole_delivery: whole_delivery.clone(), ..input.turn };
    // Clients choose no ids of runs.
    let (thread, no_id) = chat::open(&app, &principal, &turn, (thread, None)).await?;
    let (model, client_tools) = (turn.agent_id.clone(), &turn.client_tools);
    let client_tools = client_tools.iter().map(|tool| tool.name.clone()).collect();
    let (events, recorder) =
        chat::start(&app, &principal, turn, (thread, no_id)).await.map_err(without_agent)?;
    let run = events.run().clone();
    let is_kept = recorder.is_some();
    let id = format!("chatcmpl-{}", run.run_id);
    // The calls of a run that is stored are those of its thread.
    let calls_in_parallel = calls_in_parallel || is_kept;
    let created = SystemTime::now();
    let completion = ChatCompletion { id, created, model, includes_usage, client_tools, calls_in_parallel };
    let mut response = match is_streamed {
        true => stream::completion_response(completion, events, recorder, &app.stream),
        false => {
            let limit = app.stream.max_collected_bytes;
            let events = events.with_whole_delivery(whole_delivery);
            let collected = stream::collect_run(events, recorder, &app.stream, limit).await;
            // The tools of the run may have had effects, which a second request would repeat.
            let collected = collected.map_err(HttpError::prevent_retry)?;
            let json = completion.to_json(&collected).map_err(HttpError::prevent_retry)?;
            let is_waiting = !collected.interrupts.is_empty();
            with_state(response::json_bytes(StatusCode::OK, json), is_waiting)
        }
    };
    let headers = response.headers_mut();
    headers.extend(HeaderValue::try_from(&*run.run_id).ok().map(|id| (RUN_HEADER, id)));
    if is_kept {
        headers.extend(HeaderValue::try_from(&*run.thread_id).ok().map(|id| (THREAD_HEADER, id)));
    }
    Ok(response)
}

fn with_state(mut response: Response<ResponseBody>, is_waiting: bool) -> Response<ResponseBody> {
    if is_waiting {
        response.headers_mut().insert(STATE_HEADER, HeaderValue::from_static("waiting"));
    }
    response
}

/// Returns the thread that the request names, if any.
fn thread_header(headers: &HeaderMap) -> Result<Option<&str>, HttpError> {
    let mut values = headers.get_all(&THREAD_HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let invalid = || HttpError::invalid(THREAD_HEADER.as_str(), "must be one identifier");
    if values.next().is_some() {
        return Err(invalid());
    }
    value.to_str().map(Some).map_err(|_| invalid())
}

fn model_not_found() -> HttpError {
    let detail = "the model does not exist, or the token is not valid for it: a model is the id of an agent";
    HttpError::new(Code::NotFound, detail).with_param("model")
}

/// Names the model in the error of a run whose agent has been deleted.
fn without_agent(error: HttpError) -> HttpError {
    if error.code() == Code::NotFound { model_not_found() } else { error }
}

impl From<CompletionError> for HttpError {
    fn from(error: CompletionError) -> Self {
        match error {
            CompletionError::Invalid(fault) => fault.into(),
            CompletionError::Unsupported(fault) => {
                Self::new(Code::UnsupportedParameter, fault.to_string()).with_param(fault.path)
            }
        }
    }
}
