//! Error responses in JSON-RPC form: the server's own errors, and errors that `rmcp` returns as plain text.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use rmcp::model::{ErrorCode, ErrorData, JsonRpcError, RequestId};
use serde_json::json;

use crate::body::{ResponseBody, full};

/// Error code for an exceeded limit. JSON-RPC reserves -32000 to -32099 for servers.
const LIMIT_EXCEEDED_CODE: ErrorCode = ErrorCode(-32000);

/// `Retry-After` for limits that do not determine a wait.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// An HTTP status and its JSON-RPC error. Boxed, because refusals are rare and every function that returns one would
/// otherwise reserve space for it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RpcErrorResponse(Box<Parts>);

#[derive(Debug, Clone, PartialEq)]
struct Parts {
    status: StatusCode,
    error: ErrorData,
    id: Option<RequestId>,
    retry_after: Option<Duration>,
    allow: Option<HeaderValue>,
}

impl RpcErrorResponse {
    fn new(status: StatusCode, id: Option<RequestId>, error: ErrorData) -> Self {
        Self(Box::new(Parts { status, error, id, retry_after: None, allow: None }))
    }

    /// Creates a 400 for an invalid message.
    pub(super) fn bad_request(id: Option<RequestId>, error: ErrorData) -> Self {
        Self::new(StatusCode::BAD_REQUEST, id, error)
    }

    /// Creates the answer to a request with invalid parameters, which is not an HTTP error.
    pub(super) fn invalid_params(id: Option<RequestId>, message: &'static str) -> Self {
        Self::new(StatusCode::OK, id, ErrorData::invalid_params(message, None))
    }

    /// Creates a 404 for a session that does not exist or belongs to another credential. The specification requires
    /// clients to initialize a new session then.
    pub(super) fn no_session(id: Option<RequestId>) -> Self {
        // The error code that the reference server uses.
        let error = ErrorData::new(ErrorCode(-32001), "session not found: initialize a new one", None);
        Self::new(StatusCode::NOT_FOUND, id, error)
    }

    /// Creates a 400 for a request whose id is already in flight.
    pub(super) fn duplicate(id: RequestId) -> Self {
        let error = ErrorData::invalid_request("a request with this id is in progress", None);
        Self::bad_request(Some(id), error)
    }

    /// Creates a 429 for an exceeded limit.
    pub(super) fn limit_exceeded(
        id: Option<RequestId>,
        message: &'static str,
        retry_after: Option<Duration>,
    ) -> Self {
        let wait = retry_after.unwrap_or(DEFAULT_RETRY_AFTER);
        let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let data = json!({"code": "RATE_LIMITED", "retryAfterMs": millis});
        let mut response = Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            id,
            ErrorData::new(LIMIT_EXCEEDED_CODE, message, Some(data)),
        );
        response.0.retry_after = Some(wait);
        response
    }

    /// Converts a plain-text error response of `rmcp`. Its texts are meant for developers and contain nothing of the
    /// request. Internal errors become a generic message; `rmcp` has logged them itself.
    pub(super) fn from_rmcp_text(id: Option<RequestId>, response: &Response<()>, text: &Bytes) -> Self {
        let status = response.status();
        if status == StatusCode::NOT_FOUND {
            return Self::no_session(id);
        }
        // Every body is passed on as JSON, so it is the message that `rmcp` cannot read, and not its media type.
        if status == StatusCode::UNSUPPORTED_MEDIA_TYPE {
            let message = "the body is not a message of the protocol: params and _meta must be objects";
            return Self::bad_request(id, ErrorData::invalid_request(message, None));
        }
        let error = if status.is_server_error() {
            ErrorData::internal_error("the server failed", None)
        } else {
            let text = String::from_utf8_lossy(text);
            let message = text.split_once(": ").map_or(&*text, |(_, message)| message);
            ErrorData::invalid_request(message.to_owned(), None)
        };
        let mut error_response = Self::new(status, id, error);
        error_response.0.allow = response.headers().get(ALLOW).cloned();
        error_response
    }

    #[cfg(test)]
    pub(super) fn code(&self) -> i32 {
        self.0.error.code.0
    }

    /// Builds the response, in the media type of a single message.
    pub(super) fn respond(self, content_type: &'static str) -> Response<ResponseBody> {
        let Parts { status, error, id, retry_after, allow } = *self.0;
        let mut body = serde_json::to_vec(&JsonRpcError::new(id, error)).expect("an error serialises");
        body.push(b'\n');
        let mut response = Response::new(full(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        if let Some(wait) = retry_after {
            headers.insert(RETRY_AFTER, wait.as_millis().div_ceil(1000).to_string().parse().expect("digits"));
        }
        if let Some(allow) = allow {
            headers.insert(ALLOW, allow);
        }
        response
    }
}
