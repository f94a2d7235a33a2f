//! Credentials for a remote backend's calls of the agent's tools during one run.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::AgentError;
use crate::event::ReportedToolCalls;
use crate::secret::Secret;
use crate::tool::{ExecutionContext, ToolSpec};

/// Issues run tokens.
pub trait RunTokens: Send + Sync + 'static {
    /// Issues a token that allows calls of `tools` in `context` for at most `ttl`. A run without tools gets no token.
    ///
    /// # Errors
    /// [`AgentErrorKind::RateLimited`](crate::error::AgentErrorKind::RateLimited) if none can be issued now.
    fn issue(
        &self,
        context: &ExecutionContext,
        tools: &[Arc<ToolSpec>],
        ttl: Duration,
    ) -> Result<Arc<dyn RunToken>, AgentError>;
}

/// A run's token. Dropping the last reference revokes it.
pub trait RunToken: fmt::Debug + Send + Sync + 'static {
    /// Returns the token's text, which a remote runtime receives in `mcpServerUrl`.
    fn text(&self) -> &Secret;

    /// Starts reporting the tool calls that are made with the token, for the run's event stream.
    fn report_calls(&self) -> Box<dyn ReportedToolCalls>;

    /// Keeps the token valid until its `ttl` has passed, for a backend that continues after the run's stream has ended. The
    /// issuer may revoke it earlier if it needs the slot for another run.
    fn keep_until_expiry(&self);
}
