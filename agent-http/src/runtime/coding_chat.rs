//! `POST /coding-chat`: proxies one request to the model API of a coding subscription, with the caller's tokens.
//!
//! The body is sent as it was received, and the response is streamed back byte by byte. Of the headers only those of a
//! closed list pass, in both directions.

mod headers;
mod relay;

use std::time::Duration;

use agent_client::device_auth::{MAX_ACCOUNT_BYTES, MAX_TOKEN_BYTES};
use agent_client::outbound::{OutboundRequest, OutboundResponse, UrlTrust};
use agent_client::problem::PROBLEM_JSON;
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::secret::Secret;
use agent_platform::media_type::is_json;
use bytes::Bytes;
use http::Response;
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue};
use http_body_util::BodyExt;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use self::relay::RelayBody;
use super::coding_api::CodingApi;
use super::proxy::{check_secret, mark_untrusted, printable_value};
use super::state::{RuntimeState, TAG};
use crate::body::{EntersSpan, ResponseBody, full};
use crate::endpoint::{Operation, RequestContext, Schemas, string_schema};
use crate::error::{Code, HttpError};
use crate::request::parse_json;
use crate::service::HandlerResult;

/// Maximum size in bytes of a response that is not streamed.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// Maximum length of a prompt cache key in bytes; a longer one is not sent as a header.
const MAX_SESSION_BYTES: usize = 128;
/// Time after which a request that was turned away before it reached the API may be repeated.
const BLOCKED_RETRY_AFTER: Duration = Duration::from_secs(60);

const ACCOUNT_ID: HeaderName = HeaderName::from_static("chatgpt-account-id");
const ORIGINATOR: HeaderName = HeaderName::from_static("originator");
const SESSION_ID: HeaderName = HeaderName::from_static("session_id");
/// Asks proxies not to buffer the stream.
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Request body.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CodingCall<'a> {
    access_token: Option<Secret>,
    account_id: Option<Secret>,
    /// JSON object, passed on unparsed.
    #[serde(borrow)]
    body: Option<&'a RawValue>,
}

/// Members of the API's request body that are checked.
#[derive(Deserialize)]
struct ForwardedBody<'a> {
    #[serde(borrow)]
    stream: Option<&'a RawValue>,
    #[serde(borrow)]
    store: Option<&'a RawValue>,
    #[serde(borrow)]
    prompt_cache_key: Option<&'a RawValue>,
}

pub(super) async fn post(context: RequestContext<RuntimeState>, (): ()) -> HandlerResult {
    proxy(context).await.map_err(HttpError::prevent_caching)
}

async fn proxy(context: RequestContext<RuntimeState>) -> HandlerResult {
    let RequestContext { state: runtime, head, body, .. } = context;
    let Some(api) = &runtime.coding_api else { return Err(HttpError::not_configured("CODING_API_URL")) };
    let bytes = body.read_json_bytes(&head.headers).await?;
    // The request alone holds the bytes, so that they are freed once they are sent.
    let request = api.request(bytes, runtime.base.json_depth)?;
    api.respond(request.send().await?).await
}

impl CodingApi {
    /// Returns the limit on the body of a request to the proxy.
    pub(super) fn body_limit(runtime: &RuntimeState) -> usize {
        runtime.coding_api.as_ref().map_or(runtime.base.body.bytes, |api| api.max_body_bytes)
    }

    /// Parses and validates a call, and returns the request to the API.
    fn request(&self, bytes: Bytes, json_depth: usize) -> Result<OutboundRequest, HttpError> {
        let call: CodingCall<'_> = parse_json(&bytes, json_depth)?;
        let (token, _) = check_secret("accessToken", call.access_token.as_ref(), MAX_TOKEN_BYTES)?;
        let account = call.account_id.as_ref().filter(|id| !id.expose().is_empty());
        let body = call.body.map_or("", RawValue::get);
        let session = check_body(body)?;
        let (body, accept) = (bytes.slice_ref(body.as_bytes()), "text/event-stream");
        let mut request = self
            .outbound
            .post_json(&self.url, UrlTrust::Operator, Some(token), accept, body)?
            .header(ACCEPT_ENCODING, HeaderValue::from_static("identity"))
            .header(ORIGINATOR, self.originator.clone());
        if let Some(account) = account {
            let (_, value) = check_secret("accountId", Some(account), MAX_ACCOUNT_BYTES)?;
            request = request.header(ACCOUNT_ID, value);
        }
        if let Some(session) = session {
            request = request.header(SESSION_ID, session);
        }
        Ok(request)
    }

    /// Converts the API's response.
    async fn respond(&self, upstream: OutboundResponse) -> HandlerResult {
        let (status, upstream_request_id) = (upstream.status.as_u16(), upstream.request_id());
        tracing::debug!(status, upstream_request_id, "the model API responded");
        if upstream.is_encoded() {
            return Err(failed("the response is compressed, although the request did not allow it").into());
        }
        if upstream.is_page() {
            return Err(failed("the request was turned away before it reached the model")
                .with_retry_after(BLOCKED_RETRY_AFTER)
                .into());
        }
        match upstream.status.is_success() {
            true => Ok(self.stream(upstream)),
            false => self.pass_error(upstream).await,
        }
    }

    /// Passes on a success: status, content type and body, as it arrives.
    fn stream(&self, upstream: OutboundResponse) -> Response<ResponseBody> {
        let (status, passed_headers) = (upstream.status, headers::forwarded_headers(&upstream.headers));
        let content_type = foreign_content_type(&upstream);
        let body = RelayBody::new(upstream.into_stream(), &self.stream);
        let mut response = Response::new(body.boxed_unsync());
        *response.status_mut() = status;
        if self.stream.relay.lazy_span {
            response.extensions_mut().insert(EntersSpan);
        }
        let headers = response.headers_mut();
        *headers = passed_headers;
        headers.extend(content_type.map(|value| (CONTENT_TYPE, value)));
        headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
        mark_untrusted(headers);
        response
    }

    /// Passes on an error with a JSON body, which tells the caller the limits of the subscription.
    async fn pass_error(&self, upstream: OutboundResponse) -> HandlerResult {
        let (status, passed_headers) = (upstream.status, headers::forwarded_headers(&upstream.headers));
        if !is_json(&upstream.media_type()) {
            let message = format!("the response is not JSON (HTTP {})", status.as_u16());
            return Err(AgentError::new(AgentErrorKind::Failed, message).into());
        }
        let body = upstream.read_limited(MAX_ERROR_BYTES, self.answer_timeout).await.map_err(as_failed)?;
        let mut response = Response::new(full(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        *headers = passed_headers;
        // Problem details are this runtime's own, so that callers can distinguish its errors from the API's.
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        mark_untrusted(headers);
        Ok(response)
    }
}

/// Checks the body for the API and returns its prompt cache key as a header value, if it is short printable ASCII.
fn check_body(body: &str) -> Result<Option<HeaderValue>, HttpError> {
    if !body.starts_with('{') {
        return Err(HttpError::invalid("body", "must be an object"));
    }
    let members: ForwardedBody<'_> = serde_json::from_str(body).map_err(HttpError::internal)?;
    for (field, value, required) in
        [("body.stream", members.stream, "true"), ("body.store", members.store, "false")]
    {
        if value.is_none_or(|value| value.get() != required) {
            return Err(HttpError::invalid(field, format_args!("must be {required}")));
        }
    }
    let key = members.prompt_cache_key.and_then(|key| serde_json::from_str::<Secret>(key.get()).ok());
    Ok(key.and_then(|key| printable_value(&key, MAX_SESSION_BYTES)))
}

/// Returns the content type of a successful response. Problem details are the platform's own errors, so that type is replaced by
/// JSON.
fn foreign_content_type(upstream: &OutboundResponse) -> Option<HeaderValue> {
    if upstream.media_type() == PROBLEM_JSON {
        return Some(HeaderValue::from_static("application/json"));
    }
    upstream.headers.get(CONTENT_TYPE).filter(|value| headers::is_plain_value(value)).cloned()
}

fn failed(message: &'static str) -> AgentError {
    AgentError::new(AgentErrorKind::Failed, message)
}

/// Maps a body that is too large or ends early to `Failed`.
fn as_failed(error: AgentError) -> AgentError {
    match error.kind() {
        AgentErrorKind::OutputTooLarge | AgentErrorKind::Truncated => {
            failed("the response is incomplete or too large").with_source(error)
        }
        _ => error,
    }
}

pub(super) fn describe(_: &mut Schemas) -> Operation {
    let body = json!({
        "type": "object",
        "required": ["accessToken", "body"],
        "properties": {
            "accessToken": {"type": "string", "minLength": 1, "maxLength": MAX_TOKEN_BYTES,
                "description": "The user's access token. It is never logged."},
            "accountId": {"type": "string", "maxLength": MAX_ACCOUNT_BYTES, "description": "The user's account at the vendor."},
            "body": {"type": "object", "required": ["stream", "store"],
                "properties": {"stream": {"const": true}, "store": {"const": false}, "prompt_cache_key": string_schema()},
                "description": "The API's request, which is sent unchanged."},
        },
    });
    let response = json!({
        "description": "The API's response: a stream of server-sent events, or its error as JSON.",
        "content": {"text/event-stream": {"schema": string_schema()}, "application/json": {}},
    });
    Operation::new("codingChat", TAG, "Sends a request to the model API of a coding subscription.")
        .body(body)
        .response("default", response)
        .problems(&[Code::BackendUnreachable, Code::BackendTimeout])
}
