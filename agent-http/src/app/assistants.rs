//! `/api/assistants/…`: deprecated endpoints of an earlier system, kept so that its clients do not fail.
//!
//! An agent's context is assembled for each turn, so there is no context to query, set or clear. The responses say so
//! in the body and with `Deprecation` (RFC 9745); `AssignmentSync` names the successor (RFC 8288, RFC 5829).

use http::header::{HeaderName, HeaderValue, LINK};
use http::{Request, StatusCode};
use serde_json::json;

use super::{App, answer, debug};
use crate::body::Body;
use crate::request::Query;
use crate::service::HandlerResult;

pub(super) const STATUS_PATH: &str = "/api/assistants/context-status";
pub(super) const ACTION_PATH: &str = "/api/assistants/context/{*action}";

const DEPRECATION: HeaderName = HeaderName::from_static("deprecation");

/// Date of deprecation, 1 January 2026, as an RFC 9651 date.
const DEPRECATED_SINCE: HeaderValue = HeaderValue::from_static("@1767225600");

/// `AssignmentSync` to the chat endpoint, which takes the context with each message.
const SUCCESSOR_LINK: HeaderValue = HeaderValue::from_static("</api/agent/chat>; rel=\"successor-version\"");

/// Responds with the deprecation notice and does nothing.
pub(super) async fn answer(app: &App, request: Request<Body>) -> HandlerResult {
    let (head, _) = request.into_parts();
    debug::require_session(app.auth.authenticate(&head, &Query::from_uri(&head.uri)).await?)?;
    let said = json!({
        "status": "deprecated",
        "active": false,
        "detail": "nothing was done: pageContext and blocksContext come with each message to /api/agent/chat",
    });
    let mut response = answer::json(StatusCode::OK, &said)?;
    response.headers_mut().insert(DEPRECATION, DEPRECATED_SINCE);
    response.headers_mut().insert(LINK, SUCCESSOR_LINK);
    Ok(response)
}
