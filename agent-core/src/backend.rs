//! Backends: whoever answers a turn.
//!
//! A backend works in two steps, like a [model](crate::model): [`Backend::prepare`] is pure and makes
//! the bytes; [`Backend::start`] sends them. The debug routes stop in between.

mod embedded;
mod kept;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::budget::{TokenBudget, TokenCounter};
use crate::error::Failure;
use crate::event::{EventStream, RunIds};
use crate::payload::Payload;
use crate::prompt::Prompt;
use crate::role::RoleBlock;
use crate::run_token::RunToken;
use crate::select::Choice;
use crate::tool::ToolChoice;
use crate::tool::{ExecutionContext, ToolSpec};

pub use embedded::{EmbeddedBackend, ModelSource};
pub use kept::KeptModels;

/// Answers turns.
///
/// The contract, held by `conformance::backend`: `prepare` gives the same bytes for the same turn and
/// touches nothing outside; `start` gives `Err` for whatever is known before the backend has accepted
/// the turn; dropping the stream ends the work below it.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// How many tokens the prompt may have with these settings.
    fn budget(&self, choice: &Choice) -> Result<TokenBudget, Failure>;

    /// Counts tokens as the model behind these settings does, where it can say; else the platform's
    /// counter estimates.
    fn counter(&self, _choice: &Choice) -> Option<Arc<dyn TokenCounter>> {
        None
    }

    /// How long whoever answers may call the agent's tools, at most: so long lives the token that the turn
    /// brings along for it. `None` for a backend that calls them itself.
    fn run_token_ttl(&self) -> Option<Duration> {
        None
    }

    /// Whether the events of a run tell of the tool calls that whoever answers makes by the turn's token. Where
    /// they do not, the platform adds those that reach its own tool server.
    fn reports_tool_calls(&self) -> bool {
        true
    }

    /// Makes the request. Pure.
    fn prepare(&self, turn: Arc<Turn>) -> Result<Prepared, Failure>;

    /// Sends the request and gives the run's events as they come.
    async fn start(&self, prepared: Prepared) -> Result<EventStream, Failure>;
}

/// Everything that a request is made from.
#[derive(Debug)]
pub struct Turn {
    /// The run's identifiers.
    pub run: RunIds,
    /// The agent's role.
    pub role: Arc<RoleBlock>,
    /// The backend's settings.
    pub choice: Choice,
    /// System prompt, history and latest turn.
    pub prompt: Arc<Prompt>,
    /// The tools that the agent may use, sorted by name.
    pub tools: Arc<[Arc<ToolSpec>]>,
    /// For whom and about what the tools work.
    pub context: ExecutionContext,
    /// Whether a tool must be called.
    pub tool_choice: ToolChoice,
    /// Whether the model should think aloud, where it can.
    pub thinking: Option<bool>,
    /// With what whoever answers calls the agent's tools, where the platform gives it out. It dies with the
    /// run.
    pub run_token: Option<Arc<dyn RunToken>>,
}

/// A request that is ready to be sent.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The bytes.
    pub payload: Payload,
    /// What they were made from.
    pub turn: Arc<Turn>,
}
