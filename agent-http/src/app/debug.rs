//! `GET /api/svcchat/debugPrompt` and `GET, POST /api/svcchat/previewPrompt`: the request that the chat endpoint
//! would send.
//!
//! The parameters are those of the chat endpoint, parsed by the same code, except that a message is optional; nothing
//! is sent. Only signed-in users of the agent's company may see its configuration.

use agent_core::history;
use agent_core::preview::preview_turn;
use agent_core::tool::Caller;
use http::{Request, StatusCode};

use super::chat::{self, AuthorizedTurn};
use super::{App, answer};
use crate::auth::{self, Credential};
use crate::body::Body;
use crate::error::HttpError;
use crate::request::Query;
use crate::service::HandlerResult;

pub(super) const DEBUG_PATH: &str = "/api/svcchat/debugPrompt";
pub(super) const PREVIEW_PATH: &str = "/api/svcchat/previewPrompt";

/// Query parameter with the reason of a proactive turn to preview. It is not read from the body, where the AI SDK
/// uses `trigger` for something else.
const TRIGGER: &str = "trigger";

/// Previews a turn with all parameters in the query.
pub(super) async fn get(app: &App, request: Request<Body>) -> HandlerResult {
    let (head, _) = request.into_parts();
    let query = Query::from_uri(&head.uri);
    let credential = require_session(app.auth.authenticate(&head, &query).await?)?;
    let input = history::read_preview(&history::JsonBody::empty(), query.pairs())?;
    preview_response(app, chat::authorize_turn(credential, input)?, &query).await
}

/// Previews a turn with the body of a chat request.
pub(super) async fn post(app: &App, request: Request<Body>) -> HandlerResult {
    let (head, body) = request.into_parts();
    let query = Query::from_uri(&head.uri);
    let presented = app.auth.authenticate_head(&head, &query).await?;
    let read = |body: &history::JsonBody<'_>, query: &Query<'_>| history::read_preview(body, query.pairs());
    let (credential, input) = chat::read(app, &head, &query, presented, body, read).await?;
    preview_response(app, chat::authorize_turn(require_session(credential)?, input)?, &query).await
}

pub(super) fn require_session(credential: Credential) -> Result<Credential, HttpError> {
    match credential {
        Credential::Session(_) => Ok(credential),
        _ => Err(HttpError::forbidden("a session is needed here")),
    }
}

async fn preview_response(app: &App, admitted: AuthorizedTurn, query: &Query<'_>) -> HandlerResult {
    let AuthorizedTurn { mut principal, mut turn, .. } = admitted;
    // A user may preview a proactive turn on their own behalf.
    if let Some(reason) = query.get(TRIGGER)? {
        turn.trigger = Some(auth::parse_trigger_reason(reason).ok_or_else(|| {
            HttpError::invalid(TRIGGER, "must be a reason of printable ASCII characters, at most 256 of them")
        })?);
        principal.caller = Caller::Proactive;
    }
    chat::assign_ids(&mut turn);
    let preview = preview_turn(&app.platform, &principal, turn).await?;
    Ok(answer::json_bytes(StatusCode::OK, preview.to_json()))
}
