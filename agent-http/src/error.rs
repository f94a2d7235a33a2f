//! `HttpError`: everything that a request can fail with, and its one way out, RFC 9457 problem details.
//!
//! A failure has two audiences. The client gets a [`Code`] to act on and a detail in plain words, and nothing else:
//! no source error, stack trace, upstream body or secret. The operator gets the internal cause in the log, under
//! the request's id, which the client has too. So a constructor takes the public words, and
//! [`HttpError::because`] adds what only the log may see.
//!
//! The library below knows nothing of HTTP; its failures become `HttpError`s at the handlers' `?`. Handlers return
//! `Result<Response<ResponseBody>, HttpError>`, and [`crate::request::service`] makes the response from either.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use agent_core::error::Failure;
use agent_core::history::InvalidField;
use agent_core::turn::TurnError;
use agent_platform::records::StoreError;
use http::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, Method, Response, StatusCode};
use serde_json::{Map, Value};

use crate::cors::Withheld;
use crate::request::RequestId;
use crate::serve::{ResponseBody, full};
use crate::stream::NegotiationError;

/// The media type of problem details.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// `RateLimit`, of the IETF draft "RateLimit header fields for HTTP".
pub const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// `RateLimit-Policy`, of the same draft.
pub const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The name of a limit that is not one of ours.
const DEFAULT_POLICY: &str = "default";

/// What a client is told to wait where a limit does not say.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(5);

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $status:ident;)*) => {
        /// The machine words of problems: part of the wire contract, and only ever added to.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// Every code, in the order of their statuses.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The word as it is on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                }
            }

            /// The status of a response with this code.
            #[must_use]
            pub const fn status(self) -> StatusCode {
                match self {
                    $(Self::$name => StatusCode::$status,)*
                }
            }
        }
    };
}

codes! {
    /// The request is malformed, or a field in it is.
    InvalidRequest = "INVALID_REQUEST", BAD_REQUEST;
    /// More than one explicit credential.
    AmbiguousCredentials = "AMBIGUOUS_CREDENTIALS", BAD_REQUEST;
    /// A provider name that nothing knows.
    UnknownProvider = "UNKNOWN_PROVIDER", BAD_REQUEST;
    /// No credential, or none that holds.
    Unauthenticated = "UNAUTHENTICATED", UNAUTHORIZED;
    /// The credential does not reach that far.
    Forbidden = "FORBIDDEN", FORBIDDEN;
    /// The address policy refuses an outbound address.
    OutboundBlocked = "OUTBOUND_BLOCKED", FORBIDDEN;
    /// There is no such thing, or it is another tenant's.
    NotFound = "NOT_FOUND", NOT_FOUND;
    /// The path has no such method.
    MethodNotAllowed = "METHOD_NOT_ALLOWED", METHOD_NOT_ALLOWED;
    /// None of the accepted media types can be made.
    NotAcceptable = "NOT_ACCEPTABLE", NOT_ACCEPTABLE;
    /// The client stopped sending its body.
    RequestTimeout = "REQUEST_TIMEOUT", REQUEST_TIMEOUT;
    /// The request does not fit what there is already.
    Conflict = "CONFLICT", CONFLICT;
    /// It was there, and is wanted no more: whoever still asks for it may stop.
    Gone = "GONE", GONE;
    /// The request's own condition on what is there, such as `If-Match`, does not hold.
    PreconditionFailed = "PRECONDITION_FAILED", PRECONDITION_FAILED;
    /// The body is over its limit.
    PayloadTooLarge = "PAYLOAD_TOO_LARGE", PAYLOAD_TOO_LARGE;
    /// The body's type or encoding is not one that is read.
    UnsupportedMediaType = "UNSUPPORTED_MEDIA_TYPE", UNSUPPORTED_MEDIA_TYPE;
    /// No backend can be chosen for the agent.
    NoConnector = "NO_CONNECTOR", UNPROCESSABLE_ENTITY;
    /// The model does not take a part of the message.
    UnsupportedContent = "UNSUPPORTED_CONTENT", UNPROCESSABLE_ENTITY;
    /// A limit on requests was hit, here or upstream.
    RateLimited = "RATE_LIMITED", TOO_MANY_REQUESTS;
    /// A fault of this server's own.
    Internal = "INTERNAL", INTERNAL_SERVER_ERROR;
    /// A provider that is known, and that nothing here speaks to yet.
    ProviderNotImplemented = "PROVIDER_NOT_IMPLEMENTED", NOT_IMPLEMENTED;
    /// The backend could not be reached.
    BackendUnreachable = "BACKEND_UNREACHABLE", BAD_GATEWAY;
    /// The backend answered with a failure, or with nothing that makes sense.
    BackendFailed = "BACKEND_FAILED", BAD_GATEWAY;
    /// The model kept calling tools up to the limit of rounds. In a stream it is a `RUN_ERROR`.
    ToolLoopLimit = "TOOL_LOOP_LIMIT", BAD_GATEWAY;
    /// The backend's stream ended before its end. In a stream it is a `RUN_ERROR`.
    StreamTruncated = "STREAM_TRUNCATED", BAD_GATEWAY;
    /// A surface whose setting is missing; the detail names it.
    NotConfigured = "NOT_CONFIGURED", SERVICE_UNAVAILABLE;
    /// The scheduler's address or secret is missing.
    PulseNotConfigured = "PULSE_NOT_CONFIGURED", SERVICE_UNAVAILABLE;
    /// The data cannot be read or written now: the disk is full, or the database does not answer. Nothing of the
    /// request was acknowledged.
    StoreUnavailable = "STORE_UNAVAILABLE", SERVICE_UNAVAILABLE;
    /// The backend did not answer in time.
    BackendTimeout = "BACKEND_TIMEOUT", GATEWAY_TIMEOUT;
}

impl Code {
    /// The code of a word on the wire.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == word)
    }

    /// The problem's title: the status's phrase, as RFC 9457 asks of problems of type `about:blank`.
    #[must_use]
    pub fn title(self) -> &'static str {
        self.status().canonical_reason().unwrap_or("Error")
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A failed request: what the client is told, and what only the log is.
#[derive(Debug)]
pub struct HttpError {
    code: Code,
    /// For the client.
    detail: Cow<'static, str>,
    /// For the log.
    internal: Option<Box<dyn Error + Send + Sync>>,
    /// Boxed, since few errors have any of it and every handler's `Result` has room for it.
    more: Option<Box<More>>,
}

/// A limit on how often something may be asked, as the draft on rate limit headers describes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RatePolicy {
    /// The limit's name: a lower-case word.
    pub name: &'static str,
    /// How often in each window.
    pub quota: u32,
    /// The window.
    pub window: Duration,
}

#[derive(Debug, Default)]
struct More {
    retry_after: Option<Duration>,
    policy: Option<RatePolicy>,
    withheld: bool,
    allow: Vec<Method>,
    members: Map<String, Value>,
}

impl HttpError {
    /// An error of `code` whose `detail` the client reads. It must hold no secret and nothing from upstream.
    pub fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { code, detail: detail.into(), internal: None, more: None }
    }

    /// 400 `INVALID_REQUEST`: `field` (a path such as `messages[2].role`, a header or a parameter) has a `fault`
    /// that reads on from its name, such as "is missing".
    pub fn invalid(field: &str, fault: impl fmt::Display) -> Self {
        Self::new(Code::InvalidRequest, format!("{field} {fault}"))
    }

    /// 401 `UNAUTHENTICATED`. `detail` says which credential is asked for, not what was wrong with the given one.
    pub fn unauthenticated(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::Unauthenticated, detail)
    }

    /// 403 `FORBIDDEN`.
    pub fn forbidden(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::Forbidden, detail)
    }

    /// 404 `NOT_FOUND`, the same for what does not exist and for what is another tenant's.
    #[must_use]
    pub fn not_found() -> Self {
        Self::new(Code::NotFound, "there is nothing here under that name")
    }

    /// 405 `METHOD_NOT_ALLOWED` with `allow` in the `Allow` header.
    #[must_use]
    pub fn method_not_allowed(allow: Vec<Method>) -> Self {
        let mut error = Self::new(Code::MethodNotAllowed, "the path does not take this method");
        error.more().allow = allow;
        error
    }

    /// 409 `CONFLICT`.
    pub fn conflict(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::Conflict, detail)
    }

    /// 413 `PAYLOAD_TOO_LARGE` for a body over `limit` bytes.
    #[must_use]
    pub fn too_large(limit: usize) -> Self {
        Self::new(Code::PayloadTooLarge, format!("the body is larger than {limit} bytes"))
    }

    /// 429 `RATE_LIMITED`. Without a known `retry_after` the client is told a few seconds.
    #[must_use]
    pub fn rate_limited(retry_after: Option<Duration>) -> Self {
        let error = Self::new(Code::RateLimited, "too many requests");
        retry_after.into_iter().fold(error, Self::retry_after)
    }

    /// 429 `RATE_LIMITED` for a limit of ours, which the client is told, as it is when the next try is worth it.
    #[must_use]
    pub fn over(policy: RatePolicy, retry_after: Duration) -> Self {
        let mut error = Self::rate_limited(Some(retry_after));
        error.more().policy = Some(policy);
        error
    }

    /// 500 `INTERNAL`. The client learns no more than that.
    pub fn internal(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(Code::Internal, "the server failed; its log has the cause under the request id")
            .because(cause)
    }

    /// 503 `NOT_CONFIGURED` for a missing `setting`, by the name under which an operator sets it.
    #[must_use]
    pub fn not_configured(setting: &str) -> Self {
        Self::new(Code::NotConfigured, format!("{setting} is not configured"))
    }

    /// With another detail.
    pub(crate) fn detailed(self, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { detail: detail.into(), ..self }
    }

    /// Adds the cause for the log.
    #[must_use]
    pub fn because(mut self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.internal = Some(cause.into());
        self
    }

    /// Adds a `Retry-After`, rounded up to whole seconds.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.more().retry_after = Some(delay);
        self
    }

    /// Keeps scripts of other origins from reading the response, see [`crate::cors::Withheld`].
    #[must_use]
    pub fn withhold(mut self) -> Self {
        self.more().withheld = true;
        self
    }

    /// Adds an extension member to the problem, such as `selection`. The names of RFC 9457, `code` and `requestId`
    /// are taken: a member of such a name is left out.
    #[must_use]
    pub fn with(mut self, name: &str, value: Value) -> Self {
        self.more().members.insert(name.to_owned(), value);
        self
    }

    /// The code.
    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }

    /// The words for the client.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Logs the error and makes the response: status, headers and problem body.
    ///
    /// A server's error is logged as one, with its causes; a client's only for those who look closer.
    #[must_use]
    pub fn into_response(self, id: &RequestId) -> Response<ResponseBody> {
        self.log();
        let mut response = Response::new(full(self.problem(id)));
        *response.status_mut() = self.code.status();
        self.write_headers(response.headers_mut());
        response.headers_mut().insert(RequestId::HEADER, id.clone().into());
        if self.more.is_some_and(|more| more.withheld) {
            response.extensions_mut().insert(Withheld);
        }
        response
    }

    fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }

    fn log(&self) {
        let code = self.code.as_str();
        let cause = self.internal.as_deref().map(|cause| Causes(cause).to_string());
        if self.code.status().is_server_error() {
            tracing::error!(code, detail = %self.detail, cause, "request failed");
        } else {
            tracing::debug!(code, detail = %self.detail, cause, "request refused");
        }
    }

    fn problem(&self, id: &RequestId) -> Vec<u8> {
        let mut problem = self.more.as_deref().map_or_else(Map::new, |more| more.members.clone());
        for (name, value) in [
            ("type", "about:blank".into()),
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

    fn write_headers(&self, headers: &mut HeaderMap) {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if self.code == Code::Unauthenticated {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.code == Code::MethodNotAllowed {
            let allow = self.more.iter().flat_map(|more| &more.allow).map(Method::as_str);
            let allow = HeaderValue::try_from(allow.collect::<Vec<_>>().join(", "));
            headers.extend(allow.ok().map(|allow| (ALLOW, allow)));
        }
        let is_limit = self.code == Code::RateLimited;
        let retry_after = self.more.as_deref().and_then(|more| more.retry_after);
        let Some(delay) = retry_after.or(is_limit.then_some(DEFAULT_RETRY_AFTER)) else { return };
        let seconds = delay.as_secs() + u64::from(delay.subsec_nanos() > 0);
        headers.insert(RETRY_AFTER, seconds.into());
        if is_limit {
            let policy = self.more.as_deref().and_then(|more| more.policy);
            let name = policy.map_or(DEFAULT_POLICY, |policy| policy.name);
            let limit = HeaderValue::try_from(format!("\"{name}\";r=0;t={seconds}"));
            headers.extend(limit.ok().map(|limit| (RATE_LIMIT, limit)));
            let policy = policy.map(|RatePolicy { name, quota, window }| {
                HeaderValue::try_from(format!("\"{name}\";q={quota};w={}", window.as_secs()))
            });
            headers.extend(policy.and_then(Result::ok).map(|policy| (RATE_LIMIT_POLICY, policy)));
        }
    }
}

/// A run that failed before its stream began. Its message is public already; its source goes to the log.
impl From<Failure> for HttpError {
    fn from(failure: Failure) -> Self {
        let code = Code::from_word(failure.kind().code()).unwrap_or(Code::Internal);
        let error = Self::new(code, failure.message().to_owned());
        let error = failure.retry_after().into_iter().fold(error, Self::retry_after);
        if failure.source().is_some() { error.because(failure) } else { error }
    }
}

impl From<TurnError> for HttpError {
    fn from(error: TurnError) -> Self {
        match error {
            TurnError::AgentNotFound => Self::new(Code::NotFound, error.to_string()),
            TurnError::WrongAgent => Self::forbidden(error.to_string()),
            TurnError::InvalidField { field, problem } => Self::invalid(field, problem),
            TurnError::NoConnector(report) => {
                let selection = serde_json::to_value(&report).unwrap_or_default();
                Self::new(Code::NoConnector, "no backend is configured for this agent")
                    .with("selection", selection)
            }
            TurnError::NoBackend(_) => Self::new(Code::NotConfigured, error.to_string()),
            TurnError::Store(error) => error.into(),
            TurnError::Backend(failure) => failure.into(),
            error => Self::internal(error),
        }
    }
}

/// What a client may have caused is told; all else is the server's own trouble.
impl From<StoreError> for HttpError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Conflict { .. } => Self::conflict("it has changed meanwhile").because(error),
            StoreError::Taken(_) => Self::conflict("this id is taken").because(error),
            StoreError::Invalid(fault) => Self::new(Code::InvalidRequest, fault),
            StoreError::TooLarge { .. } => Self::new(Code::PayloadTooLarge, error.to_string()),
            StoreError::NotConfigured(_) => Self::new(Code::NotConfigured, error.to_string()),
            StoreError::Unavailable(_) => {
                let detail = "the store is not available; the log has the cause under the request id";
                Self::new(Code::StoreUnavailable, detail).because(error)
            }
            error => Self::internal(error),
        }
    }
}

impl From<NegotiationError> for HttpError {
    fn from(error: NegotiationError) -> Self {
        let code = match error {
            NegotiationError::NotAcceptable => Code::NotAcceptable,
            NegotiationError::UnknownFormat => Code::InvalidRequest,
        };
        Self::new(code, error.to_string())
    }
}

impl From<InvalidField> for HttpError {
    fn from(error: InvalidField) -> Self {
        Self::new(Code::InvalidRequest, error.to_string())
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

/// An error with its sources, outermost first.
struct Causes<'a>(&'a (dyn Error + 'static));

impl fmt::Display for Causes<'_> {
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

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use serde_json::json;

    use super::*;

    fn id() -> RequestId {
        RequestId::of(&HeaderMap::from_iter([(RequestId::HEADER, HeaderValue::from_static("req-1"))]))
    }

    async fn problem(error: HttpError) -> (HeaderMap, Value) {
        let (head, body) = error.into_response(&id()).into_parts();
        let body = body.collect().await.expect("a full body does not fail").to_bytes();
        (head.headers, serde_json::from_slice(&body).expect("JSON"))
    }

    #[test]
    fn every_code_is_an_error_with_a_word_of_its_own() {
        let mut words: Vec<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Code::ALL.len());
        for code in Code::ALL {
            assert!(code.status().is_client_error() || code.status().is_server_error(), "{code}");
            assert!(code.as_str().bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_'), "{code}");
            assert_ne!(code.title(), "Error", "{code}");
        }
    }

    #[tokio::test]
    async fn a_problem_has_the_members_of_the_standard_and_ours() {
        let (headers, body) = problem(
            HttpError::new(Code::NoConnector, "no rule matches")
                .with("selection", json!([1, 2]))
                .with("status", json!(200)),
        )
        .await;
        assert_eq!(headers[CONTENT_TYPE], PROBLEM_JSON);
        assert_eq!(headers[RequestId::HEADER], "req-1");
        assert_eq!(
            body,
            json!({
                "type": "about:blank", "title": "Unprocessable Entity", "status": 422, "detail": "no rule matches",
                "code": "NO_CONNECTOR", "requestId": "req-1", "selection": [1, 2],
            })
        );
    }

    #[tokio::test]
    async fn the_internal_cause_is_not_in_the_response() {
        let (headers, body) = problem(HttpError::internal(std::io::Error::other("db at 10.0.0.7"))).await;
        assert!(!format!("{headers:?}{body}").contains("10.0.0.7"));
    }

    #[tokio::test]
    async fn headers_follow_the_code() {
        let cases: Vec<(HttpError, &[(&str, &str)])> = vec![
            (HttpError::method_not_allowed(vec![Method::GET, Method::POST]), &[("allow", "GET, POST")]),
            (HttpError::method_not_allowed(vec![]), &[("allow", "")]),
            (HttpError::unauthenticated("a session is needed"), &[("www-authenticate", "Bearer")]),
            (
                HttpError::rate_limited(Some(Duration::from_millis(2500))),
                &[("retry-after", "3"), ("ratelimit", "\"default\";r=0;t=3")],
            ),
            (HttpError::rate_limited(None), &[("retry-after", "5"), ("ratelimit", "\"default\";r=0;t=5")]),
            (
                HttpError::over(
                    RatePolicy { name: "minute", quota: 20, window: Duration::from_secs(60) },
                    Duration::from_millis(2100),
                ),
                &[
                    ("retry-after", "3"),
                    ("ratelimit", "\"minute\";r=0;t=3"),
                    ("ratelimit-policy", "\"minute\";q=20;w=60"),
                ],
            ),
            (HttpError::conflict("in progress").retry_after(Duration::from_secs(1)), &[("retry-after", "1")]),
        ];
        for (error, expected) in cases {
            let name = error.to_string();
            let (headers, _) = problem(error).await;
            for (header, value) in expected {
                assert_eq!(headers.get(*header).map(HeaderValue::as_bytes), Some(value.as_bytes()), "{name}");
            }
        }
    }

    #[tokio::test]
    async fn a_failed_run_keeps_its_kind_and_its_words() {
        use agent_core::error::FailureKind::*;
        let cases = [
            (Unreachable, 502),
            (Failed, 502),
            (Timeout, 504),
            (RateLimited, 429),
            (Truncated, 502),
            (ToolLoopLimit, 502),
            (Blocked, 403),
            (UnsupportedContent, 422),
            (NotConfigured, 503),
            (ProviderNotImplemented, 501),
            (UnknownProvider, 400),
            (InvalidRequest, 400),
            (Internal, 500),
        ];
        for (kind, status) in cases {
            let failure = Failure::new(kind, "in public").with_source("in private");
            let (headers, body) = problem(failure.with_retry_after(Duration::from_secs(7)).into()).await;
            assert_eq!(body["status"], status);
            assert_eq!(body["code"], kind.code());
            assert_eq!(body["detail"], "in public");
            assert_eq!(headers[RETRY_AFTER], "7");
            assert!(!body.to_string().contains("private"));
        }
    }

    #[tokio::test]
    async fn a_store_without_its_setting_names_it_and_any_other_trouble_is_ours() {
        for (error, status, detail) in [
            (StoreError::NotConfigured("DATA_SECRET"), 503, Some("DATA_SECRET is not set")),
            (StoreError::unavailable("db at 10.0.0.7"), 503, None),
        ] {
            let (_, body) = problem(TurnError::from(error).into()).await;
            assert_eq!(body["status"], status);
            assert!(detail.is_none_or(|detail| body["detail"] == detail), "{body}");
            assert!(!body.to_string().contains("10.0.0.7"));
        }
    }

    #[test]
    fn causes_are_told_to_the_last() {
        let error = HttpError::not_found().because(std::io::Error::other("inner"));
        let outer = HttpError::internal(error);
        assert_eq!(
            Causes(outer.source().expect("a cause")).to_string(),
            "NOT_FOUND: there is nothing here under that name: inner"
        );
    }

    #[test]
    fn a_result_stays_small() {
        assert!(size_of::<HttpError>() <= 64);
    }
}
