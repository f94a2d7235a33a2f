//! Backends, which answer turns.
//!
//! A backend works in two steps, like a [model](crate::model): [`Backend::prepare`] is pure and builds the request
//! bytes; [`Backend::start`] sends them. The debug routes stop after the first step.

mod embedded;
mod kept;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::budget::{TokenBudget, TokenCounter};
use crate::error::AgentError;
use crate::event::{EventStream, RunIds};
use crate::payload::Payload;
use crate::prompt::Prompt;
use crate::role::RoleBlock;
use crate::run_token::RunToken;
use crate::select::BackendChoice;
use crate::tool::ToolChoice;
use crate::tool::{ExecutionContext, ToolSpec};

pub use embedded::{EmbeddedBackend, ModelSource};
pub use kept::ModelCache;

/// Answers turns.
///
/// The contract, checked by `conformance::backend`: `prepare` returns the same bytes for the same turn and has no
/// side effects; `start` returns `Err` for every error that is known before the backend has accepted the turn;
/// dropping the stream cancels the work below it.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Returns the token budget of the prompt with these settings.
    fn budget(&self, choice: &BackendChoice) -> Result<TokenBudget, AgentError>;

    /// Returns the exact token counter of the model behind these settings, or `None` if only the platform's counter
    /// is available, which may estimate.
    fn counter(&self, _choice: &BackendChoice) -> Option<Arc<dyn TokenCounter>> {
        None
    }

    /// Returns the lifetime of the run token with which a remote runtime calls the agent's tools: the longest time
    /// for which the runtime may call them. `None` for a backend that calls the tools itself.
    fn run_token_ttl(&self) -> Option<Duration> {
        None
    }

    /// Returns true if the backend's own event stream contains the tool calls made with the run token; if false, the
    /// platform adds the calls that reach its own tool server.
    fn reports_tool_calls(&self) -> bool {
        true
    }

    /// Builds the request. Pure.
    fn prepare(&self, turn: Arc<Turn>) -> Result<PreparedRequest, AgentError>;

    /// Sends the request and returns the run's events as they arrive.
    async fn start(&self, prepared: PreparedRequest) -> Result<EventStream, AgentError>;
}

/// Input from which a backend builds its request.
#[derive(Debug)]
pub struct Turn {
    /// The run's identifiers.
    pub run: RunIds,
    /// The agent's role.
    pub role: Arc<RoleBlock>,
    /// The selected backend with its settings.
    pub choice: BackendChoice,
    /// System prompt, history and latest turn.
    pub prompt: Arc<Prompt>,
    /// The tools that the agent may use, sorted by name.
    pub tools: Arc<[Arc<ToolSpec>]>,
    /// Identity, conversation and run on whose behalf the tools are called.
    pub context: ExecutionContext,
    /// Constraint on tool calls.
    pub tool_choice: ToolChoice,
    /// Enables or disables the model's reasoning output, where supported; `None` leaves the model's default.
    pub thinking: Option<bool>,
    /// Token with which a remote runtime calls the agent's tools, where the platform issues one. It is revoked at the
    /// end of the run.
    pub run_token: Option<Arc<dyn RunToken>>,
}

/// A request that is ready to send.
#[derive(Debug, Clone)]
pub struct PreparedRequest {
    /// The request bytes.
    pub payload: Payload,
    /// The turn from which the bytes were built.
    pub turn: Arc<Turn>,
}
