//! HTTP errors and their conversion into RFC 9457 problem details.
//!
//! An error has two audiences. The client receives a [`Code`] and a detail in plain words, and nothing else: no
//! source error, stack trace, upstream body or secret. The operator finds the internal cause in the log, under the
//! request id, which the client receives too. So a constructor takes the public detail, and [`HttpError::with_source`]
//! adds the cause for the log.
//!
//! The core library does not depend on HTTP; handlers convert its errors into `HttpError`s with `?`. Handlers return
//! `Result<Response<ResponseBody>, HttpError>`, and `service::service_fn` makes the response from either.

mod code;
mod conversions;
mod openai;
mod policy;
#[cfg(test)]
mod tests;
mod turn;

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use agent_client::problem::PROBLEM_JSON;
use agent_core::prompt::AssembleError;
use agent_platform::compaction::ConversationTooLongError;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE,
};
use http::{HeaderMap, Method, Response};
use serde_json::{Map, Value};

pub use code::Code;
pub(crate) use conversions::unavailable_reason;
pub(crate) use openai::{ErrorFormat, OpenAiError};
pub(crate) use policy::RatePolicy;

use crate::body::{ResponseBody, full};
use crate::request_id::RequestId;

/// The `RateLimit` header of the IETF draft "RateLimit header fields for HTTP".
pub(crate) const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// The `RateLimit-Policy` header of the same draft.
pub(crate) const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Name of the rate limit policy for a limit of an upstream service.
const DEFAULT_POLICY_NAME: &str = "default";

/// `Retry-After` for a rate limit that does not specify one.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(5);

/// `Retry-After` of a response while the store is unavailable.
const STORE_RETRY_AFTER: Duration = Duration::from_secs(2);

/// Error of a request: the code and detail for the client, and the cause for the log.
#[derive(Debug)]
pub struct HttpError {
    code: Code,
    /// Public description, sent to the client.
    detail: Cow<'static, str>,
    /// Internal cause, for the log only.
    internal: Option<Box<dyn Error + Send + Sync>>,
    /// Boxed, since few errors use it and every handler's `Result` has room for it.
    extras: Option<Box<ErrorExtras>>,
}

/// Marker in the extensions of a response that scripts of other origins must not read, although its path is open to
/// any origin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CrossOriginDenied;

#[derive(Debug, Default)]
struct ErrorExtras {
    retry_after: Option<Duration>,
    policy: Option<RatePolicy>,
    is_cross_origin_denied: bool,
    is_invalid_token: bool,
    is_uncacheable: bool,
    is_final: bool,
    format: ErrorFormat,
    /// Path of the invalid field.
    param: Option<String>,
    allow: Vec<Method>,
    location: Option<HeaderValue>,
    members: Map<String, Value>,
}

impl HttpError {
    /// Creates an error with `detail` for the client. `detail` must contain no secret and nothing from upstream.
    pub fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { code, detail: detail.into(), internal: None, extras: None }
    }

    /// Creates a 400 `INVALID_REQUEST`. `field` is a path such as `messages[2].role`, a header or a parameter;
    /// `fault` continues the sentence that starts with it, such as "is missing".
    pub fn invalid(field: &str, fault: impl fmt::Display) -> Self {
        Self::new(Code::InvalidRequest, format!("{field} {fault}")).with_param(field)
    }

    /// Creates a 401 `UNAUTHENTICATED`. `detail` names the required credential, not the fault of the given one.
    pub fn unauthenticated(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::Unauthenticated, detail)
    }

    /// Creates a 401 `UNAUTHENTICATED` for a bearer token that is not valid. `WWW-Authenticate` says so (RFC 6750,
    /// section 3.1), since some clients start an OAuth flow otherwise.
    pub(crate) fn invalid_token(detail: impl Into<Cow<'static, str>>) -> Self {
        let mut error = Self::unauthenticated(detail);
        error.extras_mut().is_invalid_token = true;
        error
    }

    /// Creates a 403 `FORBIDDEN`.
    pub fn forbidden(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::Forbidden, detail)
    }

    /// Creates a 404 `NOT_FOUND`, the same for a resource that does not exist and for another tenant's.
    #[must_use]
    pub fn not_found() -> Self {
        Self::new(Code::NotFound, "not found")
    }

    /// Creates a 404 `NOT_FOUND` for the identifier in a field of the request; `field` is a path as in [`Self::invalid`].
    #[must_use]
    pub(crate) fn field_not_found(field: &str) -> Self {
        Self::new(Code::NotFound, format!("{field} not found")).with_param(field)
    }

    /// Names the field of the request with the identifier that a 404 is about. Other errors are returned unchanged.
    #[must_use]
    pub(crate) fn with_missing_field(self, field: &str) -> Self {
        if self.code == Code::NotFound { Self::field_not_found(field) } else { self }
    }

    /// Creates a 405 `METHOD_NOT_ALLOWED` with `allow` in the `Allow` header.
    #[must_use]
    pub fn method_not_allowed(allow: Vec<Method>) -> Self {
        let mut error = Self::new(Code::MethodNotAllowed, "the path does not support this method");
        error.extras_mut().allow = allow;
        error
    }

    /// Creates a 409 `CONFLICT`.
    pub fn conflict(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::Conflict, detail)
    }

    /// Creates a 410 `GONE`.
    pub(crate) fn gone(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::Gone, detail)
    }

    /// Creates a 413 `PAYLOAD_TOO_LARGE` for a body over `limit` bytes.
    #[must_use]
    pub fn too_large(limit: usize) -> Self {
        Self::new(Code::PayloadTooLarge, format!("the body exceeds {limit} bytes"))
    }

    /// Creates a 429 `RATE_LIMITED`. Without `retry_after` the client receives a default of 5 s.
    #[must_use]
    pub fn rate_limited(retry_after: Option<Duration>) -> Self {
        let error = Self::new(Code::RateLimited, "too many requests");
        retry_after.into_iter().fold(error, Self::with_retry_after)
    }

    /// Creates a 429 `RATE_LIMITED` for one of the service's own limits. The response carries the policy and `Retry-After`.
    #[must_use]
    pub(crate) fn with_limit(policy: RatePolicy, retry_after: Duration) -> Self {
        Self::rate_limited(Some(retry_after)).with_policy(policy)
    }

    /// Adds the policy that the request violates.
    fn with_policy(mut self, policy: RatePolicy) -> Self {
        self.extras_mut().policy = Some(policy);
        self
    }

    /// Creates a 500 `INTERNAL`. The cause goes to the log only.
    pub fn internal(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(
            Code::Internal,
            "internal server error; the server's log has the cause under the request id",
        )
        .with_source(cause)
    }

    /// Creates a 503 `NOT_CONFIGURED` for a missing `setting`, by the name under which an operator sets it.
    #[must_use]
    pub fn not_configured(setting: &str) -> Self {
        Self::new(Code::NotConfigured, format!("{setting} is not configured"))
    }

    /// Creates a 503 `STORE_UNAVAILABLE`. The cause goes to the log only.
    fn store_unavailable(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let detail = "the store is unavailable; the server's log has the cause under the request id";
        Self::new(Code::StoreUnavailable, detail).with_source(cause).with_retry_after(STORE_RETRY_AFTER)
    }

    /// Replaces the detail.
    pub(crate) fn with_detail(self, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { detail: detail.into(), ..self }
    }

    /// Adds the cause for the log.
    #[must_use]
    pub fn with_source(mut self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.internal = Some(cause.into());
        self
    }

    /// Adds a `Retry-After`, rounded up to whole seconds.
    #[must_use]
    pub fn with_retry_after(mut self, delay: Duration) -> Self {
        self.extras_mut().retry_after = Some(delay);
        self
    }

    /// Prevents scripts of other origins from reading the response, by a marker for the CORS layer.
    #[must_use]
    pub(crate) fn deny_cross_origin(mut self) -> Self {
        self.extras_mut().is_cross_origin_denied = true;
        self
    }

    /// Adds `Cache-Control: no-store`, as RFC 6749 requires of the answers of a token endpoint.
    #[must_use]
    pub(crate) fn prevent_caching(mut self) -> Self {
        self.extras_mut().is_uncacheable = true;
        self
    }

    /// Sets the path of the invalid field, for the formats that have a place for it.
    #[must_use]
    pub(crate) fn with_param(mut self, path: impl Into<String>) -> Self {
        self.extras_mut().param = Some(path.into());
        self
    }

    /// Sets the format of the response.
    #[must_use]
    pub(crate) fn with_format(mut self, format: ErrorFormat) -> Self {
        if format != ErrorFormat::default() {
            self.extras_mut().format = format;
        }
        self
    }

    /// Marks the error of a request that must not be sent again, since it was carried out in part.
    #[must_use]
    pub(crate) fn prevent_retry(mut self) -> Self {
        self.extras_mut().is_final = true;
        self
    }

    /// Adds a `Location`: the path of the conflicting resource.
    #[must_use]
    pub(crate) fn with_location(mut self, path: &str) -> Self {
        self.extras_mut().location = HeaderValue::from_str(path).ok();
        self
    }

    /// Adds an extension member to the problem, such as `selection`. Members with a reserved name (those of RFC 9457,
    /// `code` and `requestId`) are overwritten.
    #[must_use]
    pub(crate) fn with_member(mut self, name: &str, value: Value) -> Self {
        self.extras_mut().members.insert(name.to_owned(), value);
        self
    }

    /// Returns the code.
    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }

    /// Returns the delay after which the request may be sent again, if it is known.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.extras.as_deref().and_then(|extras| extras.retry_after)
    }

    /// Returns the public description.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Logs the error and creates the response: status, headers and problem body.
    ///
    /// Server errors (5xx) are logged at level error with their causes, client errors at level debug.
    #[must_use]
    pub fn into_response(self, id: &RequestId) -> Response<ResponseBody> {
        self.log();
        let (status, body) = match self.format() {
            ErrorFormat::Problem => (self.code.status(), self.problem(id)),
            ErrorFormat::OpenAi => (openai::status(self.code), self.openai_error()),
        };
        let mut response = Response::new(full(body));
        *response.status_mut() = status;
        self.write_headers(response.headers_mut());
        response.headers_mut().insert(RequestId::HEADER, id.clone().into());
        if self.extras.is_some_and(|extras| extras.is_cross_origin_denied) {
            response.extensions_mut().insert(CrossOriginDenied);
        }
        response
    }

    fn extras_mut(&mut self) -> &mut ErrorExtras {
        self.extras.get_or_insert_default()
    }

    fn log(&self) {
        let code = self.code.as_str();
        let cause = self.internal.as_deref().map(|cause| ErrorChain(cause).to_string());
        if self.code.status().is_server_error() {
            tracing::error!(code, detail = %self.detail, cause, "request failed");
        } else {
            tracing::debug!(code, detail = %self.detail, cause, "request rejected");
        }
    }

    fn problem(&self, id: &RequestId) -> Vec<u8> {
        let mut problem = self.extras.as_deref().map_or_else(Map::new, |extras| extras.members.clone());
        let policy = self.policy();
        if let Some(policy) = policy {
            problem.insert("violated-policies".to_owned(), [policy.name.as_ref()].into_iter().collect());
        }
        for (name, value) in [
            ("type", policy.map_or("about:blank", |_| policy::QUOTA_EXCEEDED).into()),
            ("title", self.code.title().into()),
            ("status", self.code.status().as_u16().into()),
            ("detail", self.detail.as_ref().into()),
            ("code", self.code.as_str().into()),
            ("requestId", id.as_str().into()),
        ] {
            problem.insert(name.to_owned(), value);
        }
        Value::Object(problem).to_string().into_bytes()
    }

    fn policy(&self) -> Option<&RatePolicy> {
        self.extras.as_deref().and_then(|extras| extras.policy.as_ref())
    }

    fn format(&self) -> ErrorFormat {
        self.extras.as_deref().map_or(ErrorFormat::default(), |extras| extras.format)
    }

    /// Returns true if the prompt exceeds the context window by the platform's own count.
    fn is_over_budget(&self) -> bool {
        let mut causes = std::iter::successors(self.source(), |&cause| cause.source());
        causes.any(|cause| cause.is::<AssembleError>() || cause.is::<ConversationTooLongError>())
    }

    fn openai_error(&self) -> Vec<u8> {
        let param = self.extras.as_deref().and_then(|extras| extras.param.as_deref());
        let code = if self.is_over_budget() { Code::ContextLengthExceeded } else { self.code };
        let error = OpenAiError::new(code, &self.detail, param);
        serde_json::to_vec(&error).expect("strings serialise")
    }

    fn write_content_headers(&self, headers: &mut HeaderMap) {
        let content_type = match self.format() {
            ErrorFormat::Problem => PROBLEM_JSON,
            ErrorFormat::OpenAi => "application/json",
        };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        let is_final = self.extras.as_ref().is_some_and(|extras| extras.is_final);
        let cause = self.source().and_then(|cause| cause.downcast_ref());
        if self.format() == ErrorFormat::OpenAi && (is_final || !openai::is_retryable(self.code, cause)) {
            headers.insert(openai::SHOULD_RETRY, HeaderValue::from_static("false"));
        }
    }

    fn write_headers(&self, headers: &mut HeaderMap) {
        self.write_content_headers(headers);
        if self.extras.as_ref().is_some_and(|extras| extras.is_uncacheable) {
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        }
        if self.code == Code::Unauthenticated {
            let is_invalid_token = self.extras.as_ref().is_some_and(|extras| extras.is_invalid_token);
            let challenge = if is_invalid_token { r#"Bearer error="invalid_token""# } else { "Bearer" };
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        if self.code == Code::MethodNotAllowed {
            let allow = self.extras.iter().flat_map(|extras| &extras.allow).map(Method::as_str);
            let allow = HeaderValue::try_from(allow.collect::<Vec<_>>().join(", "));
            headers.extend(allow.ok().map(|allow| (ALLOW, allow)));
        }
        let location = self.extras.as_deref().and_then(|extras| extras.location.clone());
        headers.extend(location.map(|location| (LOCATION, location)));
        let is_limit = self.code == Code::RateLimited;
        let Some(delay) = self.retry_after().or(is_limit.then_some(DEFAULT_RETRY_AFTER)) else { return };
        let seconds = delay.as_secs() + u64::from(delay.subsec_nanos() > 0);
        headers.insert(RETRY_AFTER, seconds.into());
        if is_limit {
            let policy = self.policy();
            let name = policy.map_or(DEFAULT_POLICY_NAME, |policy| &policy.name);
            let limit = HeaderValue::try_from(format!("\"{name}\";r=0;t={seconds}"));
            headers.extend(limit.ok().map(|limit| (RATE_LIMIT, limit)));
            let policy = policy.map(|policy| HeaderValue::try_from(policy.to_string()));
            headers.extend(policy.and_then(Result::ok).map(|policy| (RATE_LIMIT_POLICY, policy)));
        }
    }
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.detail)
    }
}

impl Error for HttpError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.internal.as_deref().map(|cause| cause as _)
    }
}

/// Formats an error followed by its sources, outermost first.
struct ErrorChain<'a>(&'a (dyn Error + 'static));

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(cause) = source {
            write!(f, ": {cause}")?;
            source = cause.source();
        }
        Ok(())
    }
}
