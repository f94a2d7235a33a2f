//! The embedded backend: the tool loop runs where the application runs.

use std::sync::Arc;

use async_trait::async_trait;

use super::{Backend, Prepared, Turn};
use crate::budget::TokenBudget;
use crate::clock::Clock;
use crate::error::{Failure, FailureKind};
use crate::event::EventStream;
use crate::model::{Model, ModelRequest};
use crate::role::EmbeddedAi;
use crate::select::Choice;
use crate::tool::ToolRegistry;
use crate::tool_loop::{LoopLimits, ToolLoop};

/// Gives the model that a role's `EmbeddedAI` container asks for.
pub trait ModelSource: Send + Sync + 'static {
    /// The model for these settings.
    ///
    /// # Errors
    /// `UnknownProvider`, naming the choices; `NotConfigured`, naming the setting; `Blocked`.
    fn model(&self, settings: &EmbeddedAi) -> Result<Arc<dyn Model>, Failure>;
}

/// One model for every role, whatever its settings say.
impl<M: Model> ModelSource for Arc<M> {
    fn model(&self, _: &EmbeddedAi) -> Result<Arc<dyn Model>, Failure> {
        Ok(self.clone())
    }
}

/// Answers turns by a [`Model`] and the tools at hand.
pub struct EmbeddedBackend {
    /// Gives the models.
    pub models: Arc<dyn ModelSource>,
    /// The tools that the loop may call.
    pub tools: Arc<dyn ToolRegistry>,
    /// Measures the calls' time-outs.
    pub clock: Arc<dyn Clock>,
    /// The loop's bounds.
    pub limits: LoopLimits,
}

impl EmbeddedBackend {
    fn model(&self, choice: &Choice) -> Result<Arc<dyn Model>, Failure> {
        match choice {
            Choice::Embedded(settings) => self.models.model(settings),
            _ => Err(Failure::new(FailureKind::Internal, "the turn was meant for another backend")),
        }
    }
}

#[async_trait]
impl Backend for EmbeddedBackend {
    fn budget(&self, choice: &Choice) -> Result<TokenBudget, Failure> {
        Ok(TokenBudget::for_model(&self.model(choice)?.info()))
    }

    fn prepare(&self, turn: Arc<Turn>) -> Result<Prepared, Failure> {
        let model = self.model(&turn.choice)?;
        if turn.prompt.has_media() && !model.info().takes_media {
            return Err(Failure::new(
                FailureKind::UnsupportedContent,
                "this agent's model takes text only, no images or files",
            ));
        }
        let payload = model.prepare(&request(&turn))?;
        Ok(Prepared { payload, turn })
    }

    async fn start(&self, prepared: Prepared) -> Result<EventStream, Failure> {
        let Prepared { payload, turn } = prepared;
        let tool_loop = ToolLoop {
            model: self.model(&turn.choice)?,
            tools: self.tools.clone(),
            clock: self.clock.clone(),
            limits: self.limits,
        };
        tool_loop.start(payload, request(&turn), turn.context.clone(), turn.run.clone()).await
    }
}

fn request(turn: &Turn) -> ModelRequest {
    ModelRequest {
        prompt: turn.prompt.clone(),
        appended: Vec::new(),
        tools: turn.tools.clone(),
        tool_choice: turn.tool_choice.clone(),
        thinking: turn.thinking,
    }
}
