//! Run tokens, in memory: created when a run begins, revoked when it ends.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use uuid::Uuid;

mod table;

pub(super) use table::RunTokenLimits;
use table::{LiveToken, LiveTokenTable};

use super::end::TokenEndListeners;
use super::text::TokenText;
use super::{Grant, McpGrant, NewToken, Token, TokenError, TokenMintError, Tokens};
use agent_core::clock::Clock;
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::event::{ReportedToolCalls, ToolCallReporter, tool_call_channel};
use agent_core::run_token::{RunToken, RunTokens};
use agent_core::secret::Secret;
use agent_core::tool::{ExecutionContext, ToolSpec};

/// Maximum number of run tokens in a process.
pub(crate) const MAX_RUN_TOKENS: usize = 50_000;
/// Maximum number of run tokens of one company in a process.
pub(crate) const MAX_RUN_TOKENS_PER_COMPANY: usize = MAX_RUN_TOKENS / 4;

/// The run tokens of this process that are valid.
pub(super) struct RunTokenTable {
    clock: Arc<dyn Clock>,
    live: Arc<LiveTokens>,
}

struct LiveTokens {
    table: Mutex<LiveTokenTable>,
    ended: Arc<TokenEndListeners>,
}

impl LiveTokens {
    /// Locks the table. No code panics while holding the lock, so the data behind a poisoned one is intact.
    fn lock(&self) -> MutexGuard<'_, LiveTokenTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunTokenTable {
    /// Creates a table with times from `clock`, which reports the tokens that end to `ended`.
    pub(super) fn new(clock: Arc<dyn Clock>, limits: RunTokenLimits, ended: Arc<TokenEndListeners>) -> Self {
        let table = Mutex::new(LiveTokenTable::new(limits));
        Self { clock, live: Arc::new(LiveTokens { table, ended }) }
    }

    /// Creates a token that is revoked when the returned value is dropped, and at its `ttl` at the latest.
    ///
    /// # Errors
    /// [`TokenMintError::TooManyRunTokens`] if a limit is reached and no token that outlives its run can be evicted,
    /// [`TokenMintError::Invalid`] also for a token without `ttl`.
    pub(super) fn mint(&self, new: NewToken) -> Result<IssuedRunToken, TokenMintError> {
        let now = self.clock.now();
        let (token, text) = new.create(now)?;
        let expires_at = token.expires_at.ok_or_else(|| TokenMintError::invalid("ttl", "is missing"))?;
        let live = LiveToken { token, digest: text.digest(), calls: None, expires_at };
        let (removed, inserted) = self.live.lock().insert(text.id, live, now);
        removed.into_iter().for_each(|id| self.live.ended.notify(id));
        inserted?;
        Ok(IssuedRunToken {
            id: text.id,
            text: text.to_secret(),
            live: self.live.clone(),
            keep_until_expiry: AtomicBool::new(false),
        })
    }

    /// Returns the token of a text, or `None` if its id is not that of a run token.
    pub(super) fn find(&self, text: &TokenText) -> Option<Result<Token, TokenError>> {
        let live = self.live.lock();
        let LiveToken { token, digest, .. } = live.get(text.id)?;
        if !(text.matches_kind(&token.grant) && text.matches(digest)) {
            return Some(Err(TokenError::WrongSecret));
        }
        Some(token.check(self.clock.now()).map(|()| token.clone()))
    }

    /// Returns the sink for reports of calls made with a token, if its run has asked for them.
    pub(super) fn call_reports(&self, id: Uuid) -> Option<ToolCallReporter> {
        self.live.lock().get(id)?.calls.clone()
    }

    #[cfg(test)]
    pub(super) fn sizes(&self) -> [usize; 4] {
        self.live.lock().sizes()
    }
}

/// A run's token that this process issued; revoked on drop.
pub struct IssuedRunToken {
    id: Uuid,
    text: Secret,
    live: Arc<LiveTokens>,
    keep_until_expiry: AtomicBool,
}

impl RunToken for IssuedRunToken {
    fn text(&self) -> &Secret {
        &self.text
    }

    fn report_calls(&self) -> ReportedToolCalls {
        let (reports, calls) = tool_call_channel();
        if let Some(live) = self.live.lock().get_mut(self.id) {
            live.calls = Some(reports);
        }
        calls
    }

    fn keep_until_expiry(&self) {
        self.keep_until_expiry.store(true, Ordering::Relaxed);
    }
}

impl Drop for IssuedRunToken {
    fn drop(&mut self) {
        if *self.keep_until_expiry.get_mut() {
            self.live.lock().detach(self.id);
            return;
        }
        let removed = self.live.lock().remove(self.id);
        if removed {
            self.live.ended.notify(self.id);
        }
    }
}

impl fmt::Debug for IssuedRunToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssuedRunToken").field("id", &self.id).finish_non_exhaustive()
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
