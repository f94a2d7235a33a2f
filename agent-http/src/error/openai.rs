//! Errors in the format of OpenAI's API, with the hint of its packages about retries.

use agent_core::error::AgentError;
use agent_platform::fallback::FailureClass;
use http::{HeaderName, StatusCode};
use serde::Serialize;

use super::Code;

/// Header that tells OpenAI's packages whether to retry the request. Without it they repeat requests
/// that are answered with 408, 409, 429 or a server error.
pub(super) const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// Format of error responses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ErrorFormat {
    /// Problem details of RFC 9457.
    #[default]
    Problem,
    /// `{"error": {"message", "type", "param", "code"}}`, as in OpenAI's API.
    OpenAi,
}

/// Body of an error, or data of an event that ends a stream.
#[derive(Debug, Serialize)]
pub(crate) struct OpenAiError<'a> {
    error: ErrorObject<'a>,
}

#[derive(Debug, Serialize)]
struct ErrorObject<'a> {
    message: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    param: Option<&'a str>,
    code: String,
}

impl<'a> OpenAiError<'a> {
    /// Creates an error. `param` is the path of the invalid field.
    pub(crate) fn new(code: Code, message: &'a str, param: Option<&'a str>) -> Self {
        let param = match (param, code) {
            // The turn names the field as the chat endpoint has it.
            (Some("toolChoice"), _) => Some("tool_choice"),
            (None, Code::ContextLengthExceeded) => Some("messages"),
            (param, _) => param,
        };
        let kind = error_type(status(code));
        Self { error: ErrorObject { message, kind, param, code: wire_code(code, param) } }
    }
}

/// Returns the HTTP status. A prompt that is too long is the client's error here.
pub(super) fn status(code: Code) -> StatusCode {
    match code {
        Code::ContextLengthExceeded => StatusCode::BAD_REQUEST,
        code => code.status(),
    }
}

/// Returns true if a request that failed with this error had no effect and may succeed when it is repeated. `cause` is the
/// error of the run: a provider that has refused the request or the account will do so again.
pub(super) fn is_retryable(code: Code, cause: Option<&AgentError>) -> bool {
    let is_refused = |cause: &AgentError| {
        !matches!(FailureClass::of(cause), FailureClass::Transient | FailureClass::RateLimit)
    };
    if code == Code::BackendFailed && cause.is_some_and(is_refused) {
        return false;
    }
    matches!(
        code,
        Code::RateLimited
            | Code::RequestTimeout
            | Code::ThreadBusy
            | Code::QueueFull
            | Code::BackendUnreachable
            | Code::BackendFailed
            | Code::BackendTimeout
            | Code::StoreUnavailable
            | Code::ServerShuttingDown
    )
}

fn error_type(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::PAYMENT_REQUIRED => "insufficient_quota",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        status if status.is_server_error() => "server_error",
        _ => "invalid_request_error",
    }
}

/// Returns the corresponding code of OpenAI, or else the platform's code in lower case.
fn wire_code(code: Code, param: Option<&str>) -> String {
    match (code, param) {
        (Code::Unauthenticated, _) => "invalid_api_key".to_owned(),
        (Code::RateLimited, _) => "rate_limit_exceeded".to_owned(),
        (Code::NotFound, Some("model")) => "model_not_found".to_owned(),
        (code, _) => code.as_str().to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn errors_have_the_shape_and_the_words_of_the_api() {
        for (code, param, expected) in [
            (Code::InvalidRequest, Some("n"), json!(["invalid_request_error", "n", "invalid_request"])),
            (
                Code::UnsupportedParameter,
                Some("n"),
                json!(["invalid_request_error", "n", "unsupported_parameter"]),
            ),
            (Code::Unauthenticated, None, json!(["authentication_error", null, "invalid_api_key"])),
            (Code::Forbidden, None, json!(["permission_error", null, "forbidden"])),
            (Code::NotFound, Some("model"), json!(["invalid_request_error", "model", "model_not_found"])),
            (Code::NotFound, None, json!(["invalid_request_error", null, "not_found"])),
            (Code::RateLimited, None, json!(["rate_limit_error", null, "rate_limit_exceeded"])),
            (
                Code::ContextLengthExceeded,
                None,
                json!(["invalid_request_error", "messages", "context_length_exceeded"]),
            ),
            (Code::BackendFailed, None, json!(["server_error", null, "backend_failed"])),
            (
                Code::InvalidRequest,
                Some("toolChoice"),
                json!(["invalid_request_error", "tool_choice", "invalid_request"]),
            ),
        ] {
            let error = json!(OpenAiError::new(code, "words", param))["error"].clone();
            assert_eq!(json!([error["type"], error["param"], error["code"]]), expected, "{code}");
            assert_eq!(error["message"], "words");
        }
    }
}
