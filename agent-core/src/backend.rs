//! Backends, which answer turns.
//!
//! A backend works in two steps, like a [model](crate::model): [`Backend::prepare`] is pure and builds the request
//! bytes; [`Backend::start`] sends them. The debug routes stop after the first step.

mod embedded;
mod erased;
mod settings;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::budget::{TokenBudget, TokenCounter};
use crate::error::AgentError;
use crate::event::{EventStream, RunIds};
use crate::payload::Payload;
use crate::prompt::Prompt;
use crate::role::{ResponseFormat, RoleBlock};
use crate::run_token::RunToken;
use crate::select::BackendChoice;
use crate::tool::{ExecutionContext, ToolChoice, ToolSpec};

pub use crate::select::CustomContainer;
pub use embedded::{EmbeddedBackend, ModelSource};
pub use settings::{BackendSettings, BuiltinSettings};

pub(crate) use erased::ErasedBackend;

/// Source of the answers to turns, such as a model with its tools or a remote service.
///
/// The contract, checked by `conformance::backend`: `prepare` returns the same bytes for the same turn and has no
/// side effects; `start` returns `Err` for every error that is known before the backend has accepted the turn;
/// dropping the stream cancels the work below it.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Settings of a role for this kind of backend: one of the platform's containers, or a [`CustomContainer`].
    type Settings: BackendSettings;

    /// Returns the capabilities of the backend with these settings.
    ///
    /// # Errors
    /// `UnknownProvider` and `NotConfigured`, naming the choices or the setting.
    fn capabilities(&self, settings: &Self::Settings) -> Result<BackendCapabilities, AgentError>;

    /// Builds the request, which differs if the turn's texts differ. Pure. An error prevents the turn.
    fn prepare(&self, settings: &Self::Settings, turn: Arc<Turn>) -> Result<PreparedRequest, AgentError>;

    /// Sends the request and returns the run's events as they arrive. Limits its own waits, since the library sets no time limit.
    ///
    /// # Errors
    /// After `ContextExceeded`, the turn is prepared and sent once more if `capabilities` has a smaller budget by then.
    async fn start(
        &self,
        settings: &Self::Settings,
        prepared: PreparedRequest,
    ) -> Result<EventStream, AgentError>;
}

/// Properties of a backend with given settings, on which the preparation of a turn depends.
#[derive(Debug, Clone)]
pub struct BackendCapabilities {
    /// Token budget of the prompt.
    pub budget: TokenBudget,
    /// Exact token counter of the model; `None` if only the platform's counter is available, which may estimate.
    pub counter: Option<Arc<dyn TokenCounter>>,
    /// Longest time for which a remote runtime calls the tools with the run token; `None` for a backend that calls them itself.
    pub run_token_ttl: Option<Duration>,
    /// True if the backend's events contain the tool calls made with the run token; otherwise the platform adds them.
    pub reports_tool_calls: bool,
}

impl BackendCapabilities {
    /// Creates the capabilities of a backend that calls the tools itself and has no token counter.
    pub fn new(budget: TokenBudget) -> Self {
        Self { budget, counter: None, run_token_ttl: None, reports_tool_calls: true }
    }
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
    /// JSON format of the answer, sent to models; `None` for text.
    pub response_format: Option<Arc<ResponseFormat>>,
    /// Token with which a remote runtime calls the agent's tools, if one was issued; revoked at the run's end.
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
