//! Calls of HTTP tools that roles define, through the guarded client.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use agent_core::error::{AgentError, AgentErrorKind};
use agent_platform::own_tools::{HttpToolClient, HttpToolError, HttpToolRequest, HttpToolResponse};
use async_trait::async_trait;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Method};
use tokio::time::Instant;
use url::Url;

use crate::outbound::{OutboundClient, OutboundResponse, UrlTrust, for_tenant, retry_after, was_sent};

/// Media types that are accepted, unless the tool names others. No range covers the types that end with `+json`.
const ACCEPTED: &str = "application/json, application/*;q=0.8, text/*;q=0.5";

/// [`HttpToolClient`] over the guarded client: URLs come from roles and reach public or allowed addresses only.
#[derive(Debug, Clone)]
pub struct OutboundHttpTools {
    /// The guarded client.
    pub outbound: OutboundClient,
}

#[async_trait]
impl HttpToolClient for OutboundHttpTools {
    async fn send(&self, request: &HttpToolRequest) -> Result<HttpToolResponse, HttpToolError> {
        self.exchange(request).await.map_err(|error| tool_error(&error))
    }
}

impl OutboundHttpTools {
    async fn exchange(&self, request: &HttpToolRequest) -> Result<HttpToolResponse, AgentError> {
        let deadline = Instant::now() + request.timeout;
        let method = Method::from_bytes(request.method.as_bytes());
        let method = method.map_err(|_| AgentError::new(AgentErrorKind::InvalidRequest, "invalid method"))?;
        let mut outbound = self.outbound.request(method, &address(request), UrlTrust::Supplied)?;
        outbound = outbound.header(ACCEPT, HeaderValue::from_static(ACCEPTED));
        for (name, value) in &request.headers {
            outbound = outbound.secret_header(name, value)?;
        }
        if let Some(body) = &request.body {
            let content_type = HeaderValue::from_str(&request.content_type);
            let content_type = content_type
                .map_err(|_| AgentError::new(AgentErrorKind::InvalidRequest, "invalid media type"))?;
            outbound = outbound.header(CONTENT_TYPE, content_type).body(Bytes::from(body.clone()));
        }
        let response =
            for_tenant(&request.company_id, outbound.header_timeout(request.timeout).send()).await?;
        let (status, media_type) = (response.status, response.media_type());
        let has_retry_after = retry_after(&response.headers, SystemTime::now()).is_some();
        let remaining = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let body = match read(response, request.max_response_bytes, remaining).await {
            // The status tells the outcome of the request, the body only the reason.
            Err(_) if !status.is_success() => Bytes::new(),
            body => body?,
        };
        Ok(HttpToolResponse { status: status.as_u16(), has_retry_after, media_type, body: body.into() })
    }
}

/// Returns the address with the secret parameter of the query.
fn address(request: &HttpToolRequest) -> Cow<'_, Url> {
    let Some((name, value)) = &request.secret_query else { return Cow::Borrowed(&request.url) };
    let mut url = request.url.clone();
    url.query_pairs_mut().append_pair(name, value.expose());
    Cow::Owned(url)
}

/// Reads the body of a response.
async fn read(
    response: OutboundResponse,
    max_bytes: usize,
    remaining: Duration,
) -> Result<Bytes, AgentError> {
    if response.is_encoded() {
        let text = "the upstream service compressed its response, which no request allows";
        return Err(AgentError::new(AgentErrorKind::Failed, text));
    }
    response.read_limited(max_bytes, remaining).await
}

fn tool_error(error: &AgentError) -> HttpToolError {
    HttpToolError {
        message: error.to_string(),
        was_sent: was_sent(error),
        is_transient: matches!(error.kind(), AgentErrorKind::Unreachable | AgentErrorKind::Truncated),
    }
}
