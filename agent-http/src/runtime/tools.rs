//! The tools of a run: their definitions come with the request, and a tool server runs them.

use std::sync::Arc;

use agent_core::tool::{ExecutionContext, Progress, ToolError, ToolOutput, ToolRegistry, ToolSpec};
use async_trait::async_trait;
use serde_json::Value;

/// A run whose tool server cannot be reached: every call's result says so, so that the model can
/// tell the person instead of inventing an answer.
pub(super) struct NoToolServer;

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
        Err(ToolError::Unavailable(format!(
            "{name} could not be run: this runtime has no connection to a tool server"
        )))
    }
}
