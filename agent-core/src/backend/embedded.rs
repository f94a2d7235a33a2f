//! The embedded backend, which runs the tool loop in the application's process.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;

use super::{Backend, BackendCapabilities, BackendSettings, PreparedRequest, Turn};
use crate::budget::TokenBudget;
use crate::clock::{Clock, SystemClock};
use crate::error::{AgentError, AgentErrorKind};
use crate::event::EventStream;
use crate::model::{Model, ModelRequest};
use crate::role::EmbeddedAi;
use crate::tool::{ExecutionContext, LocalToolRegistry, ToolRegistry};
use crate::tool_loop::{LoopLimits, ToolLoop};

/// Creates the model for a role's container, by default `EmbeddedAI`.
pub trait ModelSource<S = EmbeddedAi>: Send + Sync + 'static {
    /// Returns the model for these settings.
    ///
    /// # Errors
    /// `UnknownProvider`, naming the choices; `NotConfigured`, naming the setting; `Blocked`.
    fn model(&self, settings: &S) -> Result<Arc<dyn Model>, AgentError>;

    /// Returns the model for one run, such as a model that records the run's answers. Fails as [`model`](Self::model) does.
    fn model_for_run(&self, settings: &S, _: &ExecutionContext) -> Result<Arc<dyn Model>, AgentError> {
        self.model(settings)
    }
}

/// Returns the same model for every role and ignores the settings.
impl<M: Model> ModelSource for Arc<M> {
    fn model(&self, _: &EmbeddedAi) -> Result<Arc<dyn Model>, AgentError> {
        Ok(self.clone())
    }
}

/// Answers turns with a [`Model`] and local tools. The role's container with the settings `S` selects the model.
pub struct EmbeddedBackend<S = EmbeddedAi> {
    models: Arc<dyn ModelSource<S>>,
    tools: Arc<dyn ToolRegistry>,
    clock: Arc<dyn Clock>,
    limits: LoopLimits,
}

impl<S: BackendSettings> EmbeddedBackend<S> {
    /// Creates a backend without tools, with the system clock and the default limits. An `Arc` of a model is a
    /// source that returns this model for every role.
    pub fn new(models: impl ModelSource<S>) -> Self {
        let (tools, clock) = (Arc::new(LocalToolRegistry::new()), Arc::new(SystemClock));
        Self { models: Arc::new(models), tools, clock, limits: LoopLimits::default() }
    }

    /// Sets the tools that the loop may call: the registry of [`Platform::with_tools`](crate::Platform::with_tools), which offers them.
    pub fn with_tools(self, tools: Arc<dyn ToolRegistry>) -> Self {
        Self { tools, ..self }
    }

    /// Sets the clock that measures the timeouts of tool calls.
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Sets the limits of the tool loop.
    pub fn with_limits(self, limits: LoopLimits) -> Self {
        Self { limits, ..self }
    }
}

#[async_trait]
impl<S: BackendSettings> Backend for EmbeddedBackend<S> {
    type Settings = S;

    fn capabilities(&self, settings: &S) -> Result<BackendCapabilities, AgentError> {
        let model = self.models.model(settings)?;
        let info = model.info();
        let max_prompt_tokens = info.context_window.saturating_sub(info.max_output_tokens);
        let budget = TokenBudget { max_prompt_tokens };
        Ok(BackendCapabilities { counter: model.counter(), ..BackendCapabilities::new(budget) })
    }

    fn prepare(&self, settings: &S, turn: Arc<Turn>) -> Result<PreparedRequest, AgentError> {
        let model = self.models.model_for_run(settings, &turn.context)?;
        if turn.prompt.has_media() && !model.info().supports_media {
            let message = "this agent's model supports text input only, no images or files";
            return Err(AgentError::new(AgentErrorKind::UnsupportedContent, message));
        }
        let payload = model.prepare(&model_request(&turn, &*model))?;
        Ok(PreparedRequest { payload: payload.with_attachment(RunModel(Mutex::new(Some(model)))), turn })
    }

    async fn start(&self, settings: &S, prepared: PreparedRequest) -> Result<EventStream, AgentError> {
        let PreparedRequest { payload, turn } = prepared;
        let model = payload.attachment::<RunModel>().and_then(|model| model.0.lock().ok()?.take());
        let model = model.map_or_else(|| self.models.model_for_run(settings, &turn.context), Ok)?;
        let request = model_request(&turn, &*model);
        let tool_loop =
            ToolLoop { model, tools: self.tools.clone(), clock: self.clock.clone(), limits: self.limits };
        tool_loop.start(payload, request, turn.context.clone(), turn.run.clone()).await
    }
}

/// The model that has built a request, until the request is started. One that is started again gets a separate model.
struct RunModel(Mutex<Option<Arc<dyn Model>>>);

fn model_request(turn: &Turn, model: &dyn Model) -> ModelRequest {
    ModelRequest {
        prompt: turn.prompt.clone(),
        appended_messages: Vec::new(),
        tools: if model.info().supports_tools { turn.tools.clone() } else { Arc::new([]) },
        tool_choice: turn.tool_choice.clone(),
        thinking: turn.thinking,
        response_format: turn.response_format.clone(),
    }
}

#[cfg(test)]
mod tests;
