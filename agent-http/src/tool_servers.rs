//! Connections to tool servers (MCP) over the guarded HTTP client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use agent_client::outbound::{
    OutboundClient, OutboundResponse, Target, UrlTrust, for_tenant, status_failure, was_sent,
};
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::ids::TraceContext;
use agent_core::secret::Secret;
use agent_core::tool::ToolError;
use agent_mcp::client::{
    DiscoveryCache, McpClientLimits, ToolServerSession, ToolServerTransport, TransportResponse,
};
use agent_platform::own_tools::{ToolServerAddress, ToolServerClient, ToolServerConnection};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use http::Request;

/// Maximum number of concurrent calls of one run at one server; further calls wait.
const MAX_CALLS: usize = 16;

/// [`ToolServerClient`] over the guarded HTTP client: addresses come from roles, and reach public or allowed targets only.
#[derive(Debug, Clone)]
pub struct OutboundToolServers {
    /// The guarded client.
    pub outbound: OutboundClient,
    /// Servers whose revision of the protocol is known.
    pub discoveries: DiscoveryCache,
}

impl ToolServerClient for OutboundToolServers {
    fn connect(&self, address: ToolServerAddress) -> Result<Arc<dyn ToolServerConnection>, ToolError> {
        let ToolServerAddress { company_id, url, timeout, headers } = address;
        let target = self.outbound.target(&url, UrlTrust::Supplied);
        let target = target.map_err(|error| ToolError::Unavailable(error.to_string()))?;
        let transport =
            OutboundTransport { headers: Some(headers), ..OutboundTransport::new(target, &company_id, None) };
        let limits = McpClientLimits { call_timeout: timeout, max_calls: MAX_CALLS };
        let discovery = self.discoveries.entry(&url);
        Ok(Arc::new(ToolServerSession::new(Arc::new(transport), limits, discovery)))
    }
}

type SecretHeaders = Arc<dyn Fn() -> Vec<(String, Secret)> + Send + Sync>;

/// Transport of the MCP client over the guarded HTTP client.
pub struct OutboundTransport {
    target: Target,
    tenant: Arc<str>,
    /// Headers with the credential, if the address contains no credential.
    headers: Option<SecretHeaders>,
    /// Trace that the requests continue, if the headers do not.
    trace: Option<TraceContext>,
}

impl OutboundTransport {
    /// Creates a transport to a target whose address has the credential. Its requests are sent on behalf of the tenant
    /// ([`for_tenant`]), and continue the trace.
    pub fn new(target: Target, tenant: &str, trace: Option<TraceContext>) -> Self {
        Self { target, tenant: tenant.into(), headers: None, trace }
    }
}

impl fmt::Debug for OutboundTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboundTransport").finish_non_exhaustive()
    }
}

#[async_trait]
impl ToolServerTransport for OutboundTransport {
    async fn send(
        &self,
        request: Request<Bytes>,
        timeout: Duration,
    ) -> Result<TransportResponse, AgentError> {
        let (head, body) = request.into_parts();
        let mut outbound = self.target.request(head.method).header_timeout(timeout).body(body);
        if self.trace.is_some() {
            outbound = outbound.continue_trace(self.trace.as_ref());
        }
        for (name, value) in &head.headers {
            outbound = outbound.header(name.clone(), value.clone());
        }
        for (name, value) in self.headers.iter().flat_map(|headers| headers()) {
            outbound = outbound.secret_header(&name, &value)?;
        }
        let response = for_tenant(&self.tenant, outbound.send()).await?;
        // An unsuccessful status determines the outcome, regardless of the body.
        if response.is_encoded() && response.status.is_success() {
            let text = "the tool server compressed its response, which no request allows";
            return Err(AgentError::new(AgentErrorKind::Failed, text));
        }
        let OutboundResponse { status, headers, body } = response;
        let status_error = (!status.is_success()).then(|| status_failure(status, &headers));
        Ok(TransportResponse { status, headers, body: body.boxed(), status_error })
    }

    fn was_sent(&self, failure: &AgentError) -> bool {
        was_sent(failure)
    }
}
