//! `GET /api/svcchat/debugPrompt` and `GET, POST /api/svcchat/previewPrompt`: the request that the chat endpoint
//! would send.
//!
//! The parameters are those of the chat endpoint, parsed by the same code, except that a message is optional; nothing
//! is sent. Only signed-in users of the agent's company may see its configuration.

use agent_core::request::Principal;
use agent_core::tool::Caller;
use agent_platform::history;
use http::StatusCode;
use serde_json::json;

use super::chat::{self, AuthorizedTurn};
use super::conversation::{ThreadRequest, load_preview_messages};
use super::credential::session_needed;
use super::{App, response};
use crate::auth::{self, Credential, HeadCredential};
use crate::endpoint::{Operation, RequestContext, Schemas, string_schema};
use crate::error::{Code, HttpError};
use crate::request::Query;
use crate::service::HandlerResult;

/// Query parameter with the reason of a proactive turn to preview. It is not read from the body, where the AI SDK
/// uses `trigger` for something else.
const TRIGGER: &str = "trigger";

/// Query parameter with the kind of client to preview a turn for: `legacy` for the path of older clients.
const CLIENT: &str = "client";

/// Query parameter that asks for the requests of all models that the turn may go to: `all`.
const ATTEMPTS: &str = "attempts";

/// Previews a turn with all parameters in the query.
pub(super) async fn get(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let query = Query::from_uri(&context.head.uri);
    let input = history::read_preview(&history::JsonBody::empty(), chat_parameters(&query))?;
    let thread = ThreadRequest::read(&context.state.conversations, &input)?;
    let authorized = chat::authorize_turn(Credential::Session(principal), input)?;
    preview_response(&context.state, authorized, thread, &query).await
}

/// Previews a turn with the body of a chat request.
pub(super) async fn post(context: RequestContext<App>, presented: HeadCredential) -> HandlerResult {
    let RequestContext { state: app, head, body, .. } = context;
    let query = Query::from_uri(&head.uri);
    let read =
        |body: &history::JsonBody<'_>, query: &Query<'_>| history::read_preview(body, chat_parameters(query));
    let (credential, input) = chat::read(&app, &head, &query, presented, body, read).await?;
    let Credential::Session(_) = credential else { return Err(session_needed()) };
    let thread = ThreadRequest::read(&app.conversations, &input)?;
    if thread.is_none() {
        input.reject_invalid_tools()?;
    }
    preview_response(&app, chat::authorize_turn(credential, input)?, thread, &query).await
}

/// Returns the parameters that a preview shares with the chat route, which has another `trigger`.
fn chat_parameters<'q>(query: &'q Query<'_>) -> impl Iterator<Item = (&'q str, &'q str)> {
    query.pairs().filter(|(name, _)| *name != TRIGGER)
}

async fn preview_response(
    app: &App,
    admitted: AuthorizedTurn,
    thread: Option<ThreadRequest>,
    query: &Query<'_>,
) -> HandlerResult {
    let AuthorizedTurn { mut principal, mut turn, .. } = admitted;
    match query.get(CLIENT)? {
        None => {}
        Some("legacy") => principal.caller = Caller::Legacy,
        Some(_) => return Err(HttpError::invalid(CLIENT, "must be `legacy`, or absent")),
    }
    // A user may preview a proactive turn on their own behalf.
    if let Some(reason) = query.get(TRIGGER)? {
        turn.trigger = Some(auth::parse_trigger_reason(reason).ok_or_else(|| {
            HttpError::invalid(TRIGGER, "must be a reason of printable ASCII characters, at most 256 of them")
        })?);
        principal.caller = Caller::Proactive;
    }
    chat::assign_ids(&mut turn);
    load_preview_messages(app, &principal, &mut turn, thread).await?;
    let has_payloads = match query.get(ATTEMPTS)? {
        None => false,
        Some("all") => true,
        Some(_) => return Err(HttpError::invalid(ATTEMPTS, "must be `all`, or absent")),
    };
    let preview = app.preview_turn(&principal, turn).await?;
    let preview = if has_payloads { preview.with_attempt_payloads() } else { preview };
    response::json(StatusCode::OK, &preview)
}

pub(super) fn describe_debug(_: &mut Schemas) -> Operation {
    query_preview("debugPrompt", "Returns the prompt and the request of an agent, with or without a message.")
}

pub(super) fn describe_get(_: &mut Schemas) -> Operation {
    query_preview("previewPrompt", "Returns the request that a message would send.")
}

pub(super) fn describe_post(_: &mut Schemas) -> Operation {
    preview("previewPromptOf", "Returns the request that a chat body would send.").body(chat::body_schema())
}

fn query_preview(id: &str, summary: &str) -> Operation {
    let chat_fields = ["agentId", "message", "threadId", "todoListId", "timezone", "trigger"];
    let preview = preview(id, summary).parameter(
        "query",
        CLIENT,
        "`legacy`: as older clients send it.",
        string_schema(),
    );
    chat_fields.into_iter().fold(preview, |preview, name| {
        preview.parameter("query", name, "Same as in the chat request.", string_schema())
    })
}

fn preview(id: &str, summary: &str) -> Operation {
    let object = json!({"type": "object"});
    let attempts = "`all`: with the request of each model that the turn may go to.";
    Operation::new(id, "previews", summary)
        .parameter("query", ATTEMPTS, attempts, string_schema())
        .json_response(200, "The prompt, its parts, and the request to the backend.", object)
        .problems(&[Code::NotFound, Code::NoConnector])
}
