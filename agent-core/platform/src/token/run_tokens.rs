//! Run tokens of the service [`Tokens`]: issued for runs, and shared with the other processes of the store.

use std::sync::Arc;
use std::time::Duration;

use super::Tokens;
use super::error::TokenMintError;
use super::grant::{Grant, McpGrant};
use super::new_token::NewToken;
use super::run::{self, RUN_TOKEN_LIMITS, RunTokenTable, TokenSharing};
use crate::records::StoreError;
use crate::seal::Sealer;
use crate::spawner::Spawner;
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::run_token::{RunToken, RunTokens};
use agent_core::tool::{ExecutionContext, ToolSpec};

impl Tokens {
    /// Makes the run tokens valid at every process with the same store and the same key, with which `sealer` seals their
    /// texts. `spawner` runs the task that notifies the other processes of tokens that end before their expiry. Without a
    /// key nothing changes. Must be called before the first token is issued.
    #[must_use]
    pub fn with_shared_run_tokens(mut self, sealer: Arc<Sealer>, spawner: Arc<dyn Spawner>) -> Self {
        if sealer.has_key() {
            let sharing = TokenSharing::new(sealer, self.records.clone(), self.clock.clone(), spawner);
            let (clock, ended) = (self.clock.clone(), self.ended.clone());
            self.runs = RunTokenTable::new(clock, RUN_TOKEN_LIMITS, ended, Some(sharing));
        }
        self
    }

    /// Waits until the ends of this process's run tokens are known to the other processes, before it exits.
    pub async fn flush_ended_run_tokens(&self) {
        self.runs.flush_ended().await;
    }

    /// Deletes the records of ended run tokens that have expired, a bounded number of them.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn delete_expired_ended_run_tokens(&self) -> Result<(), StoreError> {
        run::delete_expired(&*self.records, self.clock.now()).await
    }
}

impl RunTokens for Tokens {
    fn issue(
        &self,
        context: &ExecutionContext,
        tools: &[Arc<ToolSpec>],
        ttl: Duration,
    ) -> Result<Arc<dyn RunToken>, AgentError> {
        let grant = McpGrant {
            user_id: context.user_id.clone(),
            todo_list_id: context.todo_list_id.clone(),
            tools: Some(tools.iter().map(|tool| tool.name.clone()).collect()),
            timezone: context.timezone.clone(),
            run_id: Some(context.run_id.clone()),
            token_id: context.token_id.clone(),
            can_suspend: context.can_suspend,
        };
        let new = NewToken::new(&*context.company_id, &*context.agent_id, Grant::Mcp(grant));
        let token = self.mint_run(NewToken { ttl: Some(ttl), ..new }).map_err(|error| {
            let kind = match error {
                TokenMintError::TooManyRunTokens => AgentErrorKind::RateLimited,
                _ => AgentErrorKind::Internal,
            };
            AgentError::new(kind, "the run token cannot be issued").with_source(error)
        })?;
        Ok(Arc::new(token))
    }
}
