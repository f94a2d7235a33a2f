//! `POST /messenger/call`: proxies one call to a messenger's bot API.
//!
//! The API has the bot token in the URL's path, so the URL is a secret: this module does not log it, and errors of
//! the outbound client do not contain it.

use std::time::Duration;

use agent_client::messenger::IDEMPOTENCY_KEY;
use agent_client::outbound::{OutboundResponse, UrlTrust, join_path};
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::secret::Secret;
use agent_platform::messenger::{is_bot_token, is_method_name};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::proxy::mark_untrusted;
use super::state::{RuntimeState, TAG};
use crate::body::{ResponseBody, full};
use crate::endpoint::{Operation, RequestContext, Schemas};
use crate::error::{Code, HttpError};
use crate::request::parse_json;
use crate::service::HandlerResult;

/// Maximum size of a response in bytes. The largest are pages of a hundred updates.
const MAX_RESPONSE_BYTES: usize = 4 << 20;

/// Request body.
#[derive(Deserialize)]
struct BotCall<'a> {
    token: Secret,
    method: String,
    /// JSON object, passed on unparsed: chat ids are numbers that not every parser preserves.
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

pub(super) async fn post(context: RequestContext<RuntimeState>, (): ()) -> HandlerResult {
    let RequestContext { state: runtime, head, body, .. } = context;
    let Some(api) = &runtime.bot_api else { return Err(HttpError::not_configured("MESSENGER_API_URL")) };
    let bytes = body.read_json_bytes(&head.headers).await?;
    let call: BotCall<'_> = parse_json(&bytes, runtime.base.json_depth)?;
    let params = validate_call(&call)?;
    let bot = format!("bot{}", call.token.expose());
    let url = join_path(&api.base_url, &[&bot, &call.method])?;
    let mut request = api.outbound.post_json(&url, UrlTrust::Operator, None, "application/json", params)?;
    if let Some(key) = head.headers.get(IDEMPOTENCY_KEY) {
        request = request.header(IDEMPOTENCY_KEY, key.clone());
    }
    Ok(into_response(request.send().await?, api.answer_timeout).await?)
}

/// Validates a call and returns the body for the API. The token and the method are restricted so that the URL stays
/// below the API's base URL.
fn validate_call(call: &BotCall<'_>) -> Result<Bytes, HttpError> {
    if !is_bot_token(call.token.expose()) {
        return Err(HttpError::invalid("token", "must be 1 to 128 letters, digits, `:`, `_` and `-`"));
    }
    if !is_method_name(&call.method) {
        return Err(HttpError::invalid("method", "must be 3 to 64 letters"));
    }
    let params = call.params.map_or("{}", RawValue::get);
    if !params.starts_with('{') {
        return Err(HttpError::invalid("params", "must be an object"));
    }
    Ok(Bytes::copy_from_slice(params.as_bytes()))
}

/// Converts the API's response: its status, body and content type are passed on, its other headers are not.
async fn into_response(
    upstream: OutboundResponse,
    timeout: Duration,
) -> Result<Response<ResponseBody>, AgentError> {
    let (status, content_type) = (upstream.status, upstream.headers.get(CONTENT_TYPE).cloned());
    if upstream.is_encoded() {
        let message = "the messenger's response is compressed, although the request did not allow it";
        return Err(AgentError::new(AgentErrorKind::Failed, message));
    }
    let body = upstream.read_limited(MAX_RESPONSE_BYTES, timeout).await?;
    let retry_after = retry_after(status, &body);
    let mut response = Response::new(full(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.extend(content_type.map(|value| (CONTENT_TYPE, value)));
    headers.extend(retry_after.map(|seconds| (RETRY_AFTER, HeaderValue::from(seconds))));
    mark_untrusted(headers);
    Ok(response)
}

/// Returns the seconds in `parameters.retry_after` of an error response.
fn retry_after(status: StatusCode, body: &[u8]) -> Option<u32> {
    #[derive(Deserialize)]
    struct ErrorBody {
        parameters: Parameters,
    }
    #[derive(Deserialize)]
    struct Parameters {
        retry_after: u32,
    }
    if status.is_success() {
        return None;
    }
    serde_json::from_slice::<ErrorBody>(body).ok().map(|error| error.parameters.retry_after)
}

pub(super) fn describe(_: &mut Schemas) -> Operation {
    let body = json!({
        "type": "object",
        "required": ["token", "method"],
        "properties": {
            "token": {"type": "string", "pattern": "^[A-Za-z0-9:_-]{1,128}$", "description": "The bot's token. It is never logged."},
            "method": {"type": "string", "pattern": "^[A-Za-z]{3,64}$", "examples": ["sendMessage"]},
            "params": {"type": "object", "description": "The method's parameters, as in the bot API."},
        },
    });
    let response = json!({
        "description": "The bot API's response, with its status, body and content type.",
        "headers": {"Retry-After": {"description": "`parameters.retry_after` of an error response.", "schema": {"type": "integer"}}},
    });
    let key = json!({"type": "string"});
    Operation::new("messengerCall", TAG, "Calls a method of the messenger's bot API.")
        .parameter("header", "Idempotency-Key", "Passed on to the API.", key)
        .body(body)
        .response("default", response)
        .problems(&[Code::BackendUnreachable, Code::BackendTimeout])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_read_from_error_responses() {
        let retry_after_of = |status, body: &str| {
            retry_after(StatusCode::from_u16(status).expect("a status"), body.as_bytes())
        };
        let body_with_delay =
            r#"{"ok":false,"error_code":429,"description":"x","parameters":{"retry_after":35,"x":1}}"#;
        assert_eq!(retry_after_of(429, body_with_delay), Some(35));
        assert_eq!(retry_after_of(503, body_with_delay), Some(35));
        assert_eq!(retry_after_of(200, body_with_delay), None);
        for body in [
            "",
            "soon",
            "[]",
            "{}",
            r#"{"parameters":{}}"#,
            r#"{"parameters":{"retry_after":-1}}"#,
            r#"{"parameters":{"retry_after":1.5}}"#,
            r#"{"parameters":{"retry_after":"35"}}"#,
            r#"{"parameters":{"retry_after":99999999999}}"#,
            r#"{"parameters":35}"#,
        ] {
            assert_eq!(retry_after_of(429, body), None, "{body}");
        }
    }
}
