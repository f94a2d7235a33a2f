//! Refusals as JSON-RPC errors, ours and those that `rmcp` words as bare text.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use rmcp::model::{ErrorCode, ErrorData, JsonRpcError, RequestId};
use serde_json::json;

use super::framing::Framing;
use crate::serve::{ResponseBody, full};

/// The server does not take more just now. JSON-RPC leaves the codes from -32000 on to servers.
const BUSY: ErrorCode = ErrorCode(-32000);

/// What a client is told to wait where a limit does not say.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// An HTTP status and the JSON-RPC error that goes with it.
/// Boxed, since few messages are refused and every function on their way has room for it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Refusal(Box<Parts>);

#[derive(Debug, Clone, PartialEq)]
struct Parts {
    status: StatusCode,
    error: ErrorData,
    id: Option<RequestId>,
    retry_after: Option<Duration>,
    allow: Option<HeaderValue>,
}

impl Refusal {
    fn new(status: StatusCode, id: Option<RequestId>, error: ErrorData) -> Self {
        Self(Box::new(Parts { status, error, id, retry_after: None, allow: None }))
    }

    /// 400, for a message that is none.
    pub(super) fn bad_request(id: Option<RequestId>, error: ErrorData) -> Self {
        Self::new(StatusCode::BAD_REQUEST, id, error)
    }

    /// 404, for a session that is not there or is somebody else's. The specification has clients begin anew then.
    pub(super) fn no_session(id: Option<RequestId>) -> Self {
        // The code that the reference server gives.
        let error = ErrorData::new(ErrorCode(-32001), "there is no such session: initialize a new one", None);
        Self::new(StatusCode::NOT_FOUND, id, error)
    }

    /// 400, for a request whose identifier another one has that is under way.
    pub(super) fn duplicate(id: RequestId) -> Self {
        let error = ErrorData::invalid_request("a request of this id is under way", None);
        Self::bad_request(Some(id), error)
    }

    /// 429, for a limit that is reached.
    pub(super) fn busy(id: Option<RequestId>, message: &'static str, retry_after: Option<Duration>) -> Self {
        let wait = retry_after.unwrap_or(DEFAULT_RETRY_AFTER);
        let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let data = json!({"code": "RATE_LIMITED", "retryAfterMs": millis});
        let mut refusal =
            Self::new(StatusCode::TOO_MANY_REQUESTS, id, ErrorData::new(BUSY, message, Some(data)));
        refusal.0.retry_after = Some(wait);
        refusal
    }

    /// What `rmcp` has refused in words of its own, which are for developers and hold nothing of the request. Of its
    /// faults only that there was one is said; it has logged them itself.
    pub(super) fn of_text(id: Option<RequestId>, response: &Response<()>, text: &Bytes) -> Self {
        let status = response.status();
        if status == StatusCode::NOT_FOUND {
            return Self::no_session(id);
        }
        let error = if status.is_server_error() {
            ErrorData::internal_error("the server failed", None)
        } else {
            let text = String::from_utf8_lossy(text);
            let words = text.split_once(": ").map_or(&*text, |(_, words)| words);
            ErrorData::invalid_request(words.to_owned(), None)
        };
        let mut refusal = Self::new(status, id, error);
        refusal.0.allow = response.headers().get(ALLOW).cloned();
        refusal
    }

    #[cfg(test)]
    pub(super) fn code(&self) -> i32 {
        self.0.error.code.0
    }

    pub(super) fn respond(self, framing: Framing) -> Response<ResponseBody> {
        let Parts { status, error, id, retry_after, allow } = *self.0;
        let mut body = serde_json::to_vec(&JsonRpcError::new(id, error)).expect("an error serialises");
        body.push(b'\n');
        let mut response = Response::new(full(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(framing.content_type_of_one()));
        if let Some(wait) = retry_after {
            headers.insert(RETRY_AFTER, wait.as_millis().div_ceil(1000).to_string().parse().expect("digits"));
        }
        if let Some(allow) = allow {
            headers.insert(ALLOW, allow);
        }
        response
    }
}
