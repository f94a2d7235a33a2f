//! The tools of a run: their definitions come with the request, and a tool server runs them.

use std::sync::Arc;
use std::time::Duration;

use agent_core::error::Failure;
use agent_core::secret::Secret;
use agent_core::tool::{ExecutionContext, Progress, ToolError, ToolOutput, ToolRegistry, ToolSpec};
use async_trait::async_trait;
use serde_json::Value;

use super::Runtime;
use crate::mcp::client::{McpLimits, McpTools};

/// How much longer than a call may take its answer is waited for. The tool loop ends what takes too long, and says
/// so in its words; of two time-outs of the same length either could be the first.
const GRACE: Duration = Duration::from_secs(5);

/// Where a run's tools are called.
///
/// # Errors
/// There are tools, and the address of their server is none or is refused by the address policy.
pub(super) fn registry(
    runtime: &Runtime,
    server: Option<&Secret>,
    tools: &[Arc<ToolSpec>],
) -> Result<Arc<dyn ToolRegistry>, Failure> {
    let Some(server) = server.filter(|_| !tools.is_empty()) else { return Ok(Arc::new(NoToolServer)) };
    let limits = McpLimits {
        call_timeout: runtime.limits.tool_timeout + GRACE,
        max_calls: runtime.limits.max_calls_per_round,
    };
    Ok(Arc::new(McpTools::new(runtime.hosted.outbound.clone(), server, tools.to_vec(), limits)?))
}

/// A run whose request names no tool server: every call's result says so, so that the model can tell the
/// person instead of inventing an answer.
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
        Err(ToolError::Unavailable(format!("{name} could not be run: the request names no tool server")))
    }
}
