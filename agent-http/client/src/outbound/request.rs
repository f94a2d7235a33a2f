//! Outbound request builder and body.

use std::fmt;
use std::time::Duration;

use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::ids::TraceContext;
use agent_core::secret::Secret;
use agent_platform::trace::trace_headers;
use http::header::{self, HeaderName, HeaderValue};
use http::{Method, Request};
use tokio::time::Instant;

use super::agent_error;
use super::body::{OutboundBody, Segments};
use super::response::OutboundResponse;
use super::target::Target;
use super::tenant::COMPANY_HEADER;
use super::timeout::timeout;

/// A request that has passed the address policy, to be completed and sent.
///
/// Its `Debug` output shows neither URL nor headers.
pub struct OutboundRequest {
    target: Target,
    request: Request<Segments>,
    header_timeout: Duration,
    /// Time after which the request is not sent.
    send_by: Option<Instant>,
}

impl OutboundRequest {
    /// Creates a request with the headers common to all requests.
    pub(super) fn new(target: Target, method: Method) -> Self {
        let address = target.parts();
        let mut request = Request::new(Segments::new(Vec::new()));
        *request.method_mut() = method;
        *request.uri_mut() = address.path.clone();
        let headers = request.headers_mut();
        headers.insert(header::HOST, address.host.clone());
        headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
        headers.insert(header::USER_AGENT, address.user_agent.clone());
        let header_timeout = address.header_timeout;
        Self { target, request, header_timeout, send_by: None }
    }

    /// Sets a header chosen by this program, replacing an earlier one of that name.
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.request.headers_mut().insert(name, value);
        self
    }

    /// Sets `Authorization: Bearer …` (RFC 6750).
    ///
    /// `InvalidRequest` if the secret contains characters that are invalid in a header.
    pub fn bearer(self, token: &Secret) -> Result<Self, AgentError> {
        let value = secret_value(&Secret::new(format!("Bearer {}", token.expose())))?;
        Ok(self.header(header::AUTHORIZATION, value))
    }

    /// Sets a header whose name and secret value come from a role.
    ///
    /// `InvalidRequest` if name or value is not valid in a header, or if the name is one of the headers that frame and
    /// route HTTP/1.1 messages, which only this client sets.
    pub fn secret_header(self, name: &str, value: &Secret) -> Result<Self, AgentError> {
        let name = HeaderName::try_from(name)
            .ok()
            .filter(|name| !RESERVED_HEADERS.contains(name))
            .ok_or_else(|| AgentError::new(AgentErrorKind::InvalidRequest, "the header name is invalid"))?;
        let value = secret_value(value)?;
        Ok(self.header(name, value))
    }

    /// Names the company on whose behalf the request is sent, for a service of the operator; see [`COMPANY_HEADER`].
    pub fn company(self, company_id: &str) -> Self {
        let encoded: String = url::form_urlencoded::byte_serialize(company_id.as_bytes()).collect();
        match HeaderValue::try_from(encoded) {
            Ok(value) => self.header(COMPANY_HEADER, value),
            Err(_) => self,
        }
    }

    /// Sets the headers of a request that continues a trace (W3C Trace Context), or that begins a new trace.
    pub fn continue_trace(self, trace: Option<&TraceContext>) -> Self {
        trace_headers(trace).fold(self, |request, (name, value)| match HeaderValue::try_from(value) {
            Ok(value) => request.header(HeaderName::from_static(name), value),
            Err(_) => request,
        })
    }

    /// Sets the body: one [`Bytes`](bytes::Bytes), or a `Vec<Bytes>` that is sent as its concatenation without copying. Either is
    /// sent with a `Content-Length`.
    pub fn body(mut self, body: impl Into<OutboundBody>) -> Self {
        *self.request.body_mut() = body.into().0;
        self
    }

    /// Sets the timeout for the response head, overriding the client's.
    pub fn header_timeout(mut self, timeout: Duration) -> Self {
        self.header_timeout = timeout;
        self
    }

    /// Sets the time after which the request is not sent; `None` if only the timeout of the response head applies.
    pub fn send_by(mut self, time: Option<std::time::Instant>) -> Self {
        self.send_by = time.map(Instant::from_std);
        self
    }

    /// Sends the request and waits for the response head.
    ///
    /// Every status except 1xx and 3xx is `Ok`; [`status_failure`] maps unsuccessful statuses to failures for callers
    /// that need it. Dropping the future cancels the request. Fails with `Blocked` (the name resolves to a refused
    /// address), `Unreachable` (no connection, or it ended before the head), `Timeout`, or `Failed`.
    ///
    /// [`status_failure`]: super::status_failure
    pub async fn send(self) -> Result<OutboundResponse, AgentError> {
        // Boxed, because the connect state is large and not needed once the head has arrived.
        let address = self.target.parts();
        let head_by = Instant::now().checked_add(self.header_timeout);
        let deadline = head_by.into_iter().chain(self.send_by).min();
        let sent = Box::pin(address.connector.send((&address.uri, &address.origin), self.request, deadline));
        let sent = timeout(self.header_timeout, sent).await;
        let (connection, response) = sent.unwrap_or_else(|| Err(agent_error::head_timeout()))?;
        let status = response.status();
        if status.is_informational() || status.is_redirection() {
            return Err(agent_error::status_failure(status, response.headers()));
        }
        Ok(OutboundResponse::new(connection, response))
    }
}

impl Target {
    /// Creates a request. Nothing is sent before [`OutboundRequest::send`].
    pub fn request(&self, method: Method) -> OutboundRequest {
        OutboundRequest::new(self.clone(), method)
    }

    /// Creates a `POST` request with a JSON body, an optional bearer token and the `Accept` header `accept`.
    ///
    /// # Errors
    /// See [`OutboundRequest::bearer`].
    pub fn post_json(
        &self,
        bearer: Option<&Secret>,
        accept: &'static str,
        body: impl Into<OutboundBody>,
    ) -> Result<OutboundRequest, AgentError> {
        let request = self
            .request(Method::POST)
            .header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .header(header::ACCEPT, HeaderValue::from_static(accept))
            .body(body);
        match bearer {
            Some(secret) => request.bearer(secret),
            None => Ok(request),
        }
    }
}

impl fmt::Debug for OutboundRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboundRequest").field("method", self.request.method()).finish_non_exhaustive()
    }
}

/// Header names that frame and route a message, which callers cannot set.
const RESERVED_HEADERS: [HeaderName; 9] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::HOST,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

fn secret_value(secret: &Secret) -> Result<HeaderValue, AgentError> {
    let mut value = HeaderValue::from_str(secret.expose()).map_err(|_| {
        AgentError::new(
            AgentErrorKind::InvalidRequest,
            "the credential has characters that are not allowed in a header",
        )
    })?;
    value.set_sensitive(true);
    Ok(value)
}
