//! Tool registry for callers outside of MCP that notifies MCP clients of document changes.

use std::sync::Arc;

use agent_core::tool::{ExecutionContext, Progress, ToolError, ToolOutput, ToolRegistry, ToolSpec};
use async_trait::async_trait;
use serde_json::Value;

use super::super::changes::ChangeNotifier;
use super::documents;

/// A tool registry that announces the document changes that its calls make.
pub(in super::super) struct AnnouncingTools {
    pub(in super::super) tools: Arc<dyn ToolRegistry>,
    pub(in super::super) changes: Arc<ChangeNotifier>,
}

#[async_trait]
impl ToolRegistry for AnnouncingTools {
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
        let output = self.tools.call(context, name, arguments, progress).await?;
        if let Some(change) = documents::document_change(name, context, &output) {
            self.changes.announce(&change);
        }
        Ok(output)
    }
}
