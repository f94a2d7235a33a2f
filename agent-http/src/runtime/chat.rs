//! `POST /chat`: runs a model with its tool loop and streams the events.

use agent_platform::history::{self, RuntimeRequest};
use std::sync::Arc;

use agent_client::models::{HostedSettings, TenantModel};
use agent_client::outbound::COMPANY_HEADER;
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::event::{EventStream, RunIds};
use agent_core::ids::UserId;
use agent_core::message::Message;
use agent_core::model::{Model, ModelRequest};
use agent_core::prompt::{Fragment, Part, Prompt, PromptMessage, Stability};
use agent_core::tool::ToolChoice;
use agent_core::tool_loop::ToolLoop;
use http::HeaderMap;
use serde_json::json;

use super::state::{RuntimeState, TAG};
use super::tools;
use crate::endpoint::{Operation, RequestContext, Schemas, string_schema};
use crate::error::{Code, HttpError};
use crate::request::Query;
use crate::request_trace::RequestTrace;
use crate::service::HandlerResult;
use crate::stream::{self, negotiate};

/// Supported providers.
pub const PROVIDERS: &[&str] = &["openai", "ollama"];
/// Known providers that are not implemented.
const PLANNED_PROVIDERS: &[&str] = &["anthropic"];

pub(super) async fn post(context: RequestContext<RuntimeState>, (): ()) -> HandlerResult {
    let RequestContext { state: runtime, head, body, .. } = context;
    let runtime = &*runtime;
    let query = Query::from_uri(&head.uri);
    let framing = negotiate(&head.headers, query.get("format")?)?;
    let bytes = body.read_json_bytes(&head.headers).await?;
    let parsed = history::JsonBody::parse(&bytes, runtime.base.json_depth)?;
    let mut request = RuntimeRequest::read(&parsed)?;
    request.context.trace = Some(RequestTrace::of(&head).context());
    let model = model(runtime, &request)?;
    drop(bytes);
    let tenant = tenant(&head.headers, &request.context.user_id).to_owned();
    let events = start(runtime, model, request, &tenant).await?;
    stream::run_response(framing, events, None, &runtime.stream).await
}

/// Returns the tenant whose share of the process a run uses: the company that the application names, or the user of a caller
/// that names none.
fn tenant<'r>(headers: &'r HeaderMap, user_id: &'r UserId) -> &'r str {
    let company = headers.get(COMPANY_HEADER).and_then(|value| value.to_str().ok());
    company.filter(|company| !company.is_empty()).unwrap_or(user_id.as_str())
}

fn model(runtime: &RuntimeState, request: &RuntimeRequest) -> Result<Arc<dyn Model>, HttpError> {
    let settings = HostedSettings {
        model: Some(&request.model),
        base_url: request.base_url.as_deref(),
        api_key: request.api_key.as_ref(),
        parameters: Some(&request.parameters),
        ..HostedSettings::default()
    };
    match request.provider.as_str() {
        "openai" => Ok(Arc::new(runtime.hosted.model(settings)?)),
        "ollama" if settings.base_url.is_none_or(|url| url.trim().is_empty()) => {
            let message = "baseUrl is missing: it is required for the provider ollama";
            Err(AgentError::new(AgentErrorKind::InvalidRequest, message).into())
        }
        "ollama" => Ok(Arc::new(runtime.ollama.model(settings)?)),
        planned if PLANNED_PROVIDERS.contains(&planned) => {
            let message = format!("provider {planned} is not implemented yet");
            Err(AgentError::new(AgentErrorKind::ProviderNotImplemented, message).into())
        }
        _ => {
            let names: Vec<&str> = PROVIDERS.iter().chain(PLANNED_PROVIDERS).copied().collect();
            let message = format!("provider is unknown; expected one of {}", names.join(", "));
            Err(AgentError::new(AgentErrorKind::UnknownProvider, message).into())
        }
    }
}

async fn start(
    runtime: &RuntimeState,
    model: Arc<dyn Model>,
    request: RuntimeRequest,
    tenant: &str,
) -> Result<EventStream, HttpError> {
    let mut context = request.context;
    if context.thread_id.is_empty() {
        context.thread_id = agent_core::new_id().into();
    }
    if context.run_id.is_empty() {
        context.run_id = agent_core::new_id().into();
    }
    let run = RunIds { thread_id: context.thread_id.clone(), run_id: context.run_id.clone() };
    let mut specs: Vec<_> = request.tools.into_iter().map(Arc::new).collect();
    specs.sort_by(|a, b| a.name.cmp(&b.name));
    let model: Arc<dyn Model> = Arc::new(TenantModel::new(model, tenant));
    let caller = (tenant, context.trace.clone());
    let tools = tools::tool_registry(runtime, request.mcp_server_url.as_ref(), &specs, caller)?;
    let request = ModelRequest {
        prompt: Arc::new(prompt(request.system_prompt, request.messages)),
        appended_messages: Vec::new(),
        tools: specs.into(),
        tool_choice: ToolChoice::Auto,
        thinking: request.enable_thinking,
        response_format: None,
    };
    let payload = model.prepare(&request)?;
    let tool_loop = ToolLoop { model, tools, clock: runtime.clock.clone(), limits: runtime.limits };
    let events = tool_loop.start(payload, request, context, run).await?;
    Ok(events.with_output_limits(runtime.output))
}

/// Builds the prompt without reordering or trimming, which the caller has done.
fn prompt(system: String, messages: Vec<Arc<Message>>) -> Prompt {
    let system = (!system.is_empty())
        .then(|| Fragment::new("system-prompt", "request", Stability::Role, Part::new(system)));
    Prompt::new(system.into_iter().collect(), messages.into_iter().map(PromptMessage::new).collect())
}

pub(super) fn describe(_: &mut Schemas) -> Operation {
    let text = string_schema;
    let parameters = json!({
        "temperature": {"type": "number", "minimum": 0, "maximum": 2},
        "maxOutputTokens": {"type": "integer", "minimum": 1},
        "topP": {"type": "number", "minimum": 0, "maximum": 1},
        "topK": {"type": "integer", "minimum": 1, "maximum": 1000},
        "presencePenalty": {"type": "number", "minimum": -2, "maximum": 2},
        "frequencyPenalty": {"type": "number", "minimum": -2, "maximum": 2},
        "stopSequences": {"type": "array", "maxItems": 4, "items": {"type": "string"}},
        "seed": {"type": "integer", "minimum": 0},
        "reasoning": {"enum": ["default", "none", "minimal", "low", "medium", "high", "xhigh"]},
        "extraBody": {"type": "object"},
    });
    let body = json!({
        "type": "object",
        "required": ["provider", "model", "messages"],
        "properties": {
            "provider": {"type": "string", "examples": PROVIDERS}, "model": text(), "systemPrompt": text(),
            "messages": {"type": "array", "items": {"type": "object"}, "description": "The conversation, oldest first."},
            "tools": {"type": "array"}, "mcpServerUrl": text(), "enableThinking": {"type": "boolean"},
            "apiKey": text(), "baseUrl": text(), "toolChoice": {},
            "parameters": {"type": "object", "properties": parameters, "description": "Parameters of the model's calls."},
        },
    });
    Operation::new("runtimeChat", TAG, "Runs a turn with a model and the request's tools.")
        .run_responses()
        .body(body)
        .problems(&[Code::UnknownProvider])
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn users_of_a_company_are_one_tenant() {
        let of = |company: Option<&'static str>, user: &str| {
            let headers = company.map(|company| (COMPANY_HEADER, HeaderValue::from_static(company)));
            tenant(&headers.into_iter().collect(), &user.into()).to_owned()
        };
        assert_eq!(of(Some("acme"), "ada"), of(Some("acme"), "bob"));
        assert_ne!(of(Some("acme"), "ada"), of(Some("other"), "ada"));
        for unnamed in [None, Some("")] {
            assert_eq!(of(unnamed, "ada"), "ada");
        }
    }
}
