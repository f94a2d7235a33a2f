//! `/api/assistants/…`: deprecated endpoints of an earlier system, kept so that its clients do not fail.
//!
//! An agent's context is assembled for each turn, so there is no context to query, set or clear. The responses say so
//! in the body and with `Deprecation` (RFC 9745); `Link` names the successor (RFC 8288, RFC 5829).

use agent_core::request::Principal;
use http::StatusCode;
use http::header::{HeaderName, HeaderValue, LINK};
use serde_json::json;

use super::{App, response};
use crate::endpoint::{Operation, RequestContext, Schemas};
use crate::service::HandlerResult;

const DEPRECATION: HeaderName = HeaderName::from_static("deprecation");

/// Date of deprecation, 1 January 2026, as an RFC 9651 date.
const DEPRECATED_SINCE: HeaderValue = HeaderValue::from_static("@1767225600");

/// `Link` to the chat endpoint, which takes the context with each message.
const SUCCESSOR_LINK: HeaderValue = HeaderValue::from_static("</api/agent/chat>; rel=\"successor-version\"");

/// Responds with the deprecation notice and does nothing.
pub(super) async fn respond(_: RequestContext<App>, _: Principal) -> HandlerResult {
    let body = json!({
        "status": "deprecated",
        "active": false,
        "detail": "deprecated, no operation: send pageContext and blocksContext with each message to /api/agent/chat",
    });
    let mut response = response::json(StatusCode::OK, &body)?;
    response.headers_mut().insert(DEPRECATION, DEPRECATED_SINCE);
    response.headers_mut().insert(LINK, SUCCESSOR_LINK);
    Ok(response)
}

pub(super) fn describe_status(_: &mut Schemas) -> Operation {
    describe("contextStatus")
}

pub(super) fn describe_get(_: &mut Schemas) -> Operation {
    describe("contextAction")
}

pub(super) fn describe_post(_: &mut Schemas) -> Operation {
    describe("contextActionOf")
}

fn describe(id: &str) -> Operation {
    let operation = Operation::new(id, "deprecated", "Deprecated; does nothing.");
    operation.json_response(200, "The replacement.", json!({"type": "object"}))
}
