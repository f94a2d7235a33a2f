//! Tool registry for callers outside of MCP: writes the audit log, and notifies MCP clients of document changes.

use std::sync::Arc;

use agent_core::tool::{ExecutionContext, Progress, ToolError, ToolOutput, ToolRegistry, ToolSpec};
use async_trait::async_trait;
use serde_json::Value;

use super::super::audit::{AuditLog, AuditOutcome, NO_CREDENTIAL};
use super::super::changes::ChangeNotifier;
use super::documents;

/// A tool registry that records its calls, and announces the document changes that they make.
pub(in super::super) struct ObservedTools {
    pub(in super::super) tools: Arc<dyn ToolRegistry>,
    pub(in super::super) changes: Arc<ChangeNotifier>,
    pub(in super::super) audit: AuditLog,
}

#[async_trait]
impl ToolRegistry for ObservedTools {
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
        let entry = self.audit.start_entry(context, NO_CREDENTIAL, name);
        let result = self.tools.call(context, name, arguments, progress).await;
        entry.record_outcome(outcome(&result));
        let output = result?;
        if let Some(change) = documents::document_change(name, context, &output) {
            self.changes.announce(&change);
        }
        Ok(output)
    }
}

fn outcome(result: &Result<ToolOutput, ToolError>) -> AuditOutcome {
    match result {
        Ok(output) if output.is_error => AuditOutcome::ToolError,
        Ok(_) => AuditOutcome::Ok,
        Err(ToolError::Unknown(_)) => AuditOutcome::Refused,
        Err(ToolError::Internal(_)) => AuditOutcome::Failed,
        Err(_) => AuditOutcome::ToolError,
    }
}
