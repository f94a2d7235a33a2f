//! A registry of tools whose calls are refused once another process has ended their run.

use std::sync::Arc;

use agent_core::tool::{ExecutionContext, Progress, ToolError, ToolOutput, ToolRegistry, ToolSpec};
use agent_platform::conversation::{CancelReason, ConversationError, Conversations, RunKey, ThreadOwner};
use async_trait::async_trait;
use serde_json::Value;

use super::ConversationService;
use super::live::{LiveRun, RunStop};

/// Tool registry that checks the lease of this process before each call of a stored run. If the lease has expired, for example
/// because the process was suspended, the run is read from the store, and the call is refused if the run has ended.
pub struct LeasedTools {
    tools: Arc<dyn ToolRegistry>,
    conversations: Arc<ConversationService>,
}

impl LeasedTools {
    /// Creates a registry over `tools`.
    pub fn new(tools: Arc<dyn ToolRegistry>, conversations: Arc<ConversationService>) -> Self {
        Self { tools, conversations }
    }
}

#[async_trait]
impl ToolRegistry for LeasedTools {
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
        self.conversations.check_lease(context).await?;
        self.tools.call(context, name, arguments, progress).await
    }
}

impl ConversationService {
    /// Checks that no other process has ended the run of a call. Costs no access to the store while the lease holds.
    async fn check_lease(&self, context: &ExecutionContext) -> Result<(), ToolError> {
        let owner = ThreadOwner::new(context.company_id.clone(), context.user_id.clone());
        let key = RunKey { owner, id: context.run_id.clone() };
        let (Some(store), Some(run)) = (&self.store, self.runs.get(&key)) else { return Ok(()) };
        if run.has_lease(&*self.clock) {
            return Ok(());
        }
        match self.is_own(&**store, &run).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(ToolError::Conflict("the call was not made: its run has ended".to_owned())),
            Err(error) => {
                tracing::warn!(run_id = %key.id, %error, "a tool call was not made: its run cannot be read");
                Err(ToolError::Unavailable("the call was not made: its run cannot be read".to_owned()))
            }
        }
    }

    /// Reads a run of this process whose lease had expired. Returns false for a run that another process has ended, and
    /// stops it.
    pub(in crate::app) async fn is_own(
        &self,
        store: &dyn Conversations,
        run: &LiveRun,
    ) -> Result<bool, ConversationError> {
        let stored_run = store.run(&run.key().owner, &run.key().id).await?;
        let stop = match stored_run {
            Some(stored_run) if !stored_run.state.is_final() => return Ok(true),
            Some(_) => RunStop::Lost,
            None => RunStop::Cancelled(CancelReason::Deleted),
        };
        run.stop(stop);
        Ok(false)
    }
}
