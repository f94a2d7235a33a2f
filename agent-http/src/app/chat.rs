//! `POST /api/agent/chat`: the chat endpoint, and its alias `POST /api/svcchat/private` for older clients.
//!
//! The older field names (`chatInput`, `sessionId`) are accepted at both paths, and clients that cannot read a stream
//! request a single object with `format=json` or `Accept`.

use std::sync::Arc;

use agent_core::event::EventStream;
use agent_core::request::{Principal, TurnRequest};
use agent_core::tool::{Caller, WholeDelivery};
use agent_core::turn::TurnError;
use agent_platform::conversation::RunState;
use agent_platform::history::{self, ChatInput, FieldError, MAX_GRACE_MS};
use agent_platform::response_format::MAX_REPAIRS;
use http::request;
use serde_json::{Value, json};

use super::conversation::{StoredTurn, ThreadRequest};
use super::credential::ChatHead;
use super::services::{ChosenRunId, UnstartedRunId};
use super::{App, runs};
use crate::auth::{Credential, HeadCredential, Visitor};
use crate::connection_permit::ConnectionPermit;
use crate::endpoint::{LimitedBody, Operation, RequestContext, Schemas, string_schema};
use crate::error::{Code, HttpError};
use crate::exchange_permit::ExchangePermit;
use crate::request::Query;
use crate::request_trace::RequestTrace;
use crate::service::HandlerResult;
use crate::state::RequestSender;
use crate::stream::{self, Framing, RunRecorder, RunSource};

/// Tag of the chat operations.
const TAG: &str = "chat";

pub(super) async fn post(context: RequestContext<App>, chat_head: ChatHead) -> HandlerResult {
    post_as(context, chat_head, Caller::Session).await
}

/// Handles the path of older clients. The prompt names it as the caller.
pub(super) async fn post_legacy(context: RequestContext<App>, chat_head: ChatHead) -> HandlerResult {
    post_as(context, chat_head, Caller::Legacy).await
}

/// Runs a turn. A session counts as a caller of the kind `session`.
async fn post_as(context: RequestContext<App>, chat_head: ChatHead, session: Caller) -> HandlerResult {
    let RequestContext { state: app, head, body, .. } = context;
    let query = Query::from_uri(&head.uri);
    let ChatHead { framing, credential: presented } = chat_head;
    let is_counted = presented.sender().is_some();
    let read_turn = |body: &history::JsonBody<'_>, query: &Query<'_>| history::read(body, query.pairs());
    let (credential, input) = read(&app, &head, &query, presented, body, read_turn).await?;
    let thread = match &credential {
        // A visitor without a key has no threads.
        Credential::Widget(visitor) if visitor.key_hash.is_none() => None,
        _ => ThreadRequest::read(&app.conversations, &input)?,
    };
    if thread.is_none() {
        input.reject_missing_message()?;
        // Most roles ignore the tools of visitors.
        if !matches!(credential, Credential::Widget(_)) {
            input.reject_invalid_tools()?;
        }
    }
    let AuthorizedTurn { mut principal, mut turn, visitor } = authorize_turn(credential, input)?;
    // A visitor whose token is in the body, and the company of a proactive call, are known from here on.
    let permit = match is_counted {
        true => None,
        false => admit_late(&app, &head, &principal)?,
    };
    let chosen_id = match &visitor {
        Some(visitor) => app.rate_limiter.count_visitor_run(visitor, &turn.run_id).await?,
        None if principal.caller == Caller::Session => {
            let chosen_id = app.rate_limiter.count_session_run(&principal, &turn.run_id).await?;
            principal.caller = session;
            chosen_id
        }
        // The operator's own proactive calls are not limited.
        None => ChosenRunId::unclaimed(&turn.run_id),
    };
    let trace = RequestTrace::of(&head);
    trace.continue_headers_of(principal.caller, &head.headers);
    turn.trace = Some(trace.context());
    let (thread, chosen_id) = open(&app, &principal, &turn, (thread, chosen_id)).await?;
    let is_background = thread.as_ref().is_some_and(StoredTurn::is_background);
    // The log of a run in the background is read while it runs.
    turn.whole_delivery = (framing == Framing::Json && !is_background).then(WholeDelivery::default);
    let whole_delivery = turn.whole_delivery.clone();
    let (events, recorder) = start(&app, &principal, turn, (thread, chosen_id)).await?;
    let response = match recorder {
        Some(recorder) if is_background => {
            let state = if events.is_queued() { RunState::Queued } else { RunState::Running };
            let response = runs::accepted(events.run(), state);
            stream::run_detached(events, recorder, &app.stream);
            response
        }
        recorder => {
            let events = events.with_whole_delivery(whole_delivery);
            stream::run_response(framing, events, recorder, &app.stream).await
        }
    }?;
    match permit {
        Some(permit) => permit.hold(response),
        None => Ok(response),
    }
}

/// Admits a request whose sender is known by its body. A proactive call is the operator's, and holds its connection alone.
fn admit_late(
    app: &App,
    head: &request::Parts,
    principal: &Principal,
) -> Result<Option<ExchangePermit>, HttpError> {
    let sender = RequestSender::of(principal);
    app.bounds.admit_client(&ConnectionPermit::of(head), sender)?;
    if !sender.is_visitor {
        return Ok(None);
    }
    let (_, of_response) = app.bounds.admit_exchange(sender, false)?.split_around_work();
    Ok(Some(of_response))
}

/// Reads the body and completes authentication, since a widget token may be in the body.
pub(super) async fn read(
    app: &App,
    head: &request::Parts,
    query: &Query<'_>,
    presented: HeadCredential,
    body: LimitedBody,
    read_turn: fn(&history::JsonBody<'_>, &Query<'_>) -> Result<ChatInput, FieldError>,
) -> Result<(Credential, ChatInput), HttpError> {
    let bytes = match &presented {
        HeadCredential::Cookie(Err(_)) => {
            let (body, _permit) = app.bounds.anonymous_bodies.admit(head, body)?;
            body.read_json_bytes(&head.headers).await
        }
        _ => body.read_json_bytes(&head.headers).await,
    };
    let (bytes, presented) = or_unauthenticated(bytes, presented)?;
    let parsed = history::JsonBody::parse(&bytes, app.base.json_depth);
    let parsed = parsed.and_then(|body| Ok((history::widget_tokens(&body)?, body)));
    let ((body_tokens, body), presented) = or_unauthenticated(parsed.map_err(HttpError::from), presented)?;
    let credential = app.auth.resolve_with_body(presented, head, &body_tokens).await?;
    ConnectionPermit::of(head).mark_authenticated();
    Ok((credential, read_turn(&body, query)?))
}

/// Returns the result of reading the body, with 401 in place of a 400 or 415 for a request without a credential. A
/// body that cannot be parsed cannot carry a widget token, so an unauthenticated client gets no details.
fn or_unauthenticated<T>(
    result: Result<T, HttpError>,
    presented: HeadCredential,
) -> Result<(T, HeadCredential), HttpError> {
    match (result, presented) {
        (Ok(result), presented) => Ok((result, presented)),
        (Err(error), HeadCredential::Cookie(Err(auth_error)))
            if matches!(error.code(), Code::InvalidRequest | Code::UnsupportedMediaType) =>
        {
            Err(auth_error.into())
        }
        (Err(error), _) => Err(error),
    }
}

/// A request that the credential permits.
pub(super) struct AuthorizedTurn {
    /// The authenticated principal.
    pub(super) principal: Principal,
    /// The turn to run.
    pub(super) turn: TurnRequest,
    /// The widget visitor whose rate limits the run counts towards.
    visitor: Option<Visitor>,
}

/// Checks the body's ids and fields against the credential.
pub(super) fn authorize_turn(credential: Credential, input: ChatInput) -> Result<AuthorizedTurn, HttpError> {
    let (principal, trigger, visitor) = match credential {
        Credential::Session(principal) => (principal, None, None),
        Credential::Widget(visitor) => {
            input.reject_instructions()?;
            (visitor.principal(), None, Some(visitor))
        }
        Credential::Proactive { reason } => (proactive_principal(&input)?, Some(reason), None),
    };
    let other_user = input.user_id.as_ref().is_some_and(|user| *user != principal.user_id);
    let other_company = input.company_id.as_ref().is_some_and(|company| *company != principal.company_id);
    if other_user || other_company {
        return Err(HttpError::forbidden("userId and companyId must be those of the credential"));
    }
    let mut turn = TurnRequest { trigger, ..input.turn };
    match &principal.agent_id {
        Some(bound) if turn.agent_id.is_empty() => turn.agent_id.clone_from(bound),
        // Checked before the turn does, so that a rejected request does not count towards a rate limit.
        Some(bound) if turn.agent_id != *bound => return Err(TurnError::WrongAgent.into()),
        None if turn.agent_id.is_empty() => return Err(HttpError::invalid("agentId", "is missing")),
        _ => {}
    }
    Ok(AuthorizedTurn { principal, turn, visitor })
}

/// Returns the principal that a proactive call acts for. The caller is trusted and must name it in the body.
fn proactive_principal(input: &ChatInput) -> Result<Principal, HttpError> {
    let missing = |name| HttpError::invalid(name, "is missing");
    let user_id = input.user_id.as_ref().ok_or_else(|| missing("userId"))?;
    let company_id = input.company_id.as_ref().ok_or_else(|| missing("companyId"))?;
    Ok(Principal::new(user_id, company_id, Caller::Proactive))
}

/// Checks the files of a turn, and opens it if its run is stored. Releases the run's id if that fails or is cancelled.
pub(super) async fn open(
    app: &App,
    principal: &Principal,
    turn: &TurnRequest,
    (request, chosen_id): (Option<ThreadRequest>, Option<ChosenRunId>),
) -> Result<(Option<StoredTurn>, Option<ChosenRunId>), HttpError> {
    let run_id = UnstartedRunId::new(chosen_id, &*app.conversations.spawner);
    let opened = async {
        app.check_files(principal, &turn.messages).await?;
        match request {
            Some(request) => StoredTurn::open(app, principal, turn, request).await,
            None => Ok(None),
        }
    };
    match opened.await {
        Ok(thread) => Ok((thread, run_id.into_started())),
        Err(error) => {
            run_id.release().await;
            Err(error)
        }
    }
}

/// Assigns missing ids and starts the run, in a thread if it is stored. `chosen_id` is the run's id if the client has chosen it.
pub(super) async fn start(
    app: &Arc<App>,
    principal: &Principal,
    mut turn: TurnRequest,
    (thread, chosen_id): (Option<StoredTurn>, Option<ChosenRunId>),
) -> Result<(RunSource, Option<Box<dyn RunRecorder>>), HttpError> {
    let is_new_thread = turn.thread_id.is_empty();
    assign_ids(&mut turn);
    match thread.map(|thread| thread.with_new_thread(is_new_thread)) {
        Some(thread) => {
            let (events, recorder) = thread.start_for_client(app, principal, turn, chosen_id).await?;
            Ok((events, Some(recorder)))
        }
        None => Ok((start_unstored(app, principal, turn, chosen_id).await?.into(), None)),
    }
}

/// Starts a run that is not stored. A run id chosen by the client is used up once the backend has accepted the run, or if
/// the request is cancelled before.
async fn start_unstored(
    app: &App,
    principal: &Principal,
    turn: TurnRequest,
    chosen_id: Option<ChosenRunId>,
) -> Result<EventStream, HttpError> {
    let to_http_error = |error| HttpError::from_turn(error, principal.caller);
    let Some(chosen_id) = chosen_id else {
        return app.run_turn(principal, turn).await.map_err(to_http_error);
    };
    let claim = chosen_id.claim(&app.runs, principal, &turn.run_id).await?;
    let claim = claim.ok_or_else(|| HttpError::conflict("this runId was already used"))?;
    match app.run_turn(principal, turn).await {
        Ok(events) => Ok(events),
        Err(error) => {
            claim.release().await;
            Err(to_http_error(error))
        }
    }
}

/// Generates the thread id and the run id if the client has not set them.
pub(super) fn assign_ids(turn: &mut TurnRequest) {
    if turn.thread_id.is_empty() {
        turn.thread_id = agent_core::new_id().into();
    }
    if turn.run_id.is_empty() {
        turn.run_id = agent_core::new_id().into();
    }
}

pub(super) fn describe(_: &mut Schemas) -> Operation {
    let trigger = "Marks a proactive call and gives its reason.";
    let visitor = "The key of a widget's visitor. A visitor with a key has threads.";
    Operation::new("chat", TAG, "Sends a message to an agent and returns the events of the run.")
        .parameter("header", "X-Proactive-Trigger", trigger, string_schema())
        .parameter("header", "X-Visitor-Key", visitor, string_schema())
        .run_responses()
        .body(body_schema())
        .problems(&[Code::NotFound, Code::Conflict, Code::RateLimited])
}

pub(super) fn describe_alias(_: &mut Schemas) -> Operation {
    let summary = "Alias of `/api/agent/chat` for older clients; also accepts `chatInput` and `sessionId`.";
    Operation::new("privateChat", TAG, summary).run_responses().body(body_schema()).problems(&[
        Code::NotFound,
        Code::Conflict,
        Code::RateLimited,
    ])
}

/// Returns the schema of a request's format of the answer.
fn response_format_schema() -> Value {
    json!({
        "type": "object", "required": ["type"], "description": "Format of the answer.",
        "properties": {
            "type": {"type": "string", "enum": ["text", "json"]}, "name": string_schema(),
            "schema": {"type": "object", "description": "JSON Schema of the answer."},
            "strict": {"type": "boolean"},
            "repairs": {"type": "integer", "minimum": 0, "maximum": MAX_REPAIRS},
        },
    })
}

/// Returns the schema of a chat request.
pub(super) fn body_schema() -> Value {
    let text = string_schema;
    json!({
        "type": "object",
        "description": "A message with the fields below, AG-UI's RunAgentInput, UI messages of the AI SDK, or messages of the Chat Completions API.",
        "properties": {
            "agentId": text(), "message": {"description": "Text, or a user message."},
            "messages": {"type": "array", "items": {"type": "object"}, "description": "The conversation, oldest first."},
            "threadId": text(), "runId": text(), "tabId": text(), "todoListId": text(), "timezone": text(),
            "widgetToken": text(), "userId": text(), "companyId": text(),
            "store": {"type": "boolean", "description": "True stores the run, false does not; by default, a run with a `threadId` is stored."},
            "history": {"type": "string", "enum": ["server", "client"]},
            "onDisconnect": {"type": "string", "enum": ["cancel", "continue"], "description": "Effect of a disconnect on a stored run."},
            "graceMs": {"type": "integer", "minimum": 0, "maximum": MAX_GRACE_MS, "description": "Time without a client after which the run is cancelled."},
            "onBusy": {"type": "string", "enum": ["reject", "interrupt", "queue"], "description": "Behaviour if another run of the thread has not ended."},
            "background": {"type": "boolean", "description": "Answers 202 at once; the run continues without a client."},
            "parentId": {"type": ["string", "null"]}, "trigger": text(), "messageId": text(), "title": text(),
            "metadata": {"type": "object"},
            "pageContext": {}, "blocksContext": {"type": "array"}, "toolChoice": {},
            "responseFormat": response_format_schema(),
        },
    })
}
