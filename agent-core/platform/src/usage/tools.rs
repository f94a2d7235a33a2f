//! Tools whose calls are counted.

use std::sync::Arc;

use agent_core::tool::{ExecutionContext, Progress, ToolError, ToolOutput, ToolRegistry, ToolSpec};
use async_trait::async_trait;
use serde_json::Value;

use super::UsageRecorder;

/// A [`ToolRegistry`] that counts its calls.
pub struct MeteredTools {
    tools: Arc<dyn ToolRegistry>,
    recorder: UsageRecorder,
}

impl std::fmt::Debug for MeteredTools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MeteredTools").finish_non_exhaustive()
    }
}

impl MeteredTools {
    /// Wraps tools.
    pub fn new(tools: Arc<dyn ToolRegistry>, recorder: UsageRecorder) -> Self {
        Self { tools, recorder }
    }
}

#[async_trait]
impl ToolRegistry for MeteredTools {
    async fn list(&self, context: &ExecutionContext) -> Result<Vec<Arc<ToolSpec>>, ToolError> {
        self.tools.list(context).await
    }

    async fn call(
        &self,
        context: &ExecutionContext,
        name: &str,
        arguments: Value,
        progress: &dyn Progress,
    ) -> Result<ToolOutput, ToolError> {
        if let Some(budgets) = self.recorder.budgets()
            && let Err(error) = budgets.admit_tool_call(&context.into()).await
        {
            return Err(ToolError::Unavailable(error.to_string()));
        }
        let mut count =
            ToolCount { recorder: &self.recorder, context, tool: Some(name), outcome: "cancelled" };
        let result = self.tools.call(context, name, arguments, progress).await;
        match &result {
            Ok(output) if output.suspension.is_some() => count.outcome = "suspended",
            Ok(output) if !output.is_error => count.outcome = "ok",
            Ok(_) => count.outcome = "error",
            Err(error) => {
                count.outcome = "error";
                // The number of unknown names is not bounded, so they are not counted by name.
                count.tool = Some(name).filter(|_| !matches!(error, ToolError::Unknown(_)));
            }
        }
        result
    }
}

/// A call in progress, which is counted when it ends or is dropped.
struct ToolCount<'a> {
    recorder: &'a UsageRecorder,
    context: &'a ExecutionContext,
    tool: Option<&'a str>,
    outcome: &'static str,
}

impl Drop for ToolCount<'_> {
    fn drop(&mut self) {
        self.recorder.book_tool_call(self.context.into(), self.tool, self.outcome);
    }
}
