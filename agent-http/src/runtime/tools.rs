//! Tools of a run: their definitions are in the request, and an MCP server runs them.

use std::sync::Arc;
use std::time::Duration;

use agent_client::outbound::{UrlTrust, parse_supplied_url};
use agent_core::error::AgentError;
use agent_core::ids::TraceContext;
use agent_core::secret::Secret;
use agent_core::tool::{ExecutionContext, Progress, ToolError, ToolOutput, ToolRegistry, ToolSpec};
use agent_mcp::client::{McpClientLimits, McpTools};
use async_trait::async_trait;
use serde_json::Value;

use super::state::RuntimeState;
use crate::tool_servers::OutboundTransport;

/// Time that the MCP client's timeout exceeds the tool timeout. The tool loop's timeout fires first, so that its
/// error message is reported; with equal timeouts either could be first.
const MCP_TIMEOUT_MARGIN: Duration = Duration::from_secs(5);

/// Creates the registry of a run's tools, whose calls are made on behalf of the tenant and continue the run's trace.
///
/// # Errors
/// Returns an error if there are tools and the address of their server is invalid or blocked by the address policy.
pub(super) fn tool_registry(
    runtime: &RuntimeState,
    server: Option<&Secret>,
    tools: &[Arc<ToolSpec>],
    (tenant, trace): (&str, Option<TraceContext>),
) -> Result<Arc<dyn ToolRegistry>, AgentError> {
    let Some(server) = server.filter(|_| !tools.is_empty()) else { return Ok(Arc::new(NoToolServer)) };
    let limits = McpClientLimits {
        call_timeout: runtime.limits.tool_timeout + MCP_TIMEOUT_MARGIN,
        max_calls: runtime.limits.max_calls_per_round,
    };
    let url = parse_supplied_url("mcpServerUrl", server.expose())?;
    let target = runtime.hosted.outbound.target(&url, UrlTrust::Supplied)?;
    let discovery = runtime.discoveries.entry(&url);
    let transport = Arc::new(OutboundTransport::new(target, tenant, trace));
    Ok(Arc::new(McpTools::new(transport, tools.to_vec(), limits, discovery)))
}

/// Registry without a tool server: every call returns an error that says so, so that the model can tell the user
/// instead of inventing a result.
struct NoToolServer;

#[async_trait]
impl ToolRegistry for NoToolServer {
    async fn list(&self, _: &ExecutionContext) -> Result<Vec<Arc<ToolSpec>>, ToolError> {
        Ok(Vec::new())
    }

    async fn call(
        &self,
        _: &ExecutionContext,
        name: &str,
        _: Value,
        _: &dyn Progress,
    ) -> Result<ToolOutput, ToolError> {
        Err(ToolError::Unavailable(format!("{name} cannot be called: the request has no tool server")))
    }
}
