//! `/api/assistants/…`: routes of a system that is gone, answered so that its clients do not fail.
//!
//! An agent's context is put together anew for each turn, so there is none to ask about, to set or to clear. The
//! answers say so, in the body and by `Deprecation` (RFC 9745); `Link` names what came instead (RFC 8288, RFC 5829).

use http::header::{HeaderName, HeaderValue, LINK};
use http::{Request, StatusCode};
use serde_json::json;

use super::{App, answer, debug};
use crate::request::{Handled, Query};
use crate::serve::Body;

pub(super) const STATUS_PATH: &str = "/api/assistants/context-status";
pub(super) const ACTION_PATH: &str = "/api/assistants/context/{*action}";

const DEPRECATION: HeaderName = HeaderName::from_static("deprecation");

/// Since 1 January 2026, as a date of RFC 9651.
const SINCE: HeaderValue = HeaderValue::from_static("@1767225600");

/// The chat entry takes the context along.
const INSTEAD: HeaderValue = HeaderValue::from_static("</api/agent/chat>; rel=\"successor-version\"");

/// Does nothing, and says so.
pub(super) async fn answer(app: &App, request: Request<Body>) -> Handled {
    let (head, _) = request.into_parts();
    debug::signed_in(app.auth.authenticate(&head, &Query::of(&head.uri)).await?)?;
    let said = json!({
        "status": "deprecated",
        "active": false,
        "detail": "nothing was done: pageContext and blocksContext come with each message to /api/agent/chat",
    });
    let mut response = answer::json(StatusCode::OK, &said)?;
    response.headers_mut().insert(DEPRECATION, SINCE);
    response.headers_mut().insert(LINK, INSTEAD);
    Ok(response)
}
