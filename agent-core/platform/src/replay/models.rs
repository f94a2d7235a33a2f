//! Models that answer from the record.

use std::sync::Arc;

use agent_core::backend::ModelSource;
use agent_core::budget::TokenCounter;
use agent_core::error::AgentError;
use agent_core::model::{Model, ModelInfo, ModelRequest, ModelStream};
use agent_core::payload::Payload;
use async_trait::async_trait;
use futures_util::{StreamExt, stream};

use super::Replay;
use super::progress::ReplayedCall;

/// A [`ModelSource`] whose models build their requests with the models of another source, and answer from the record.
pub struct ReplayModels<S, C> {
    source: S,
    replay: Arc<Replay>,
    fallbacks: FallbackSettings<C>,
    live: Option<LiveModels<C>>,
}

impl<S, C> std::fmt::Debug for ReplayModels<S, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplayModels").finish_non_exhaustive()
    }
}

/// Returns the settings of a container's fallbacks.
type FallbackSettings<C> = Box<dyn Fn(&C) -> Vec<C> + Send + Sync>;

/// Returns the model of a container that can be called live; `None` if it cannot be.
type LiveModels<C> = Box<dyn Fn(&C) -> Option<Arc<dyn Model>> + Send + Sync>;

impl<S, C> ReplayModels<S, C> {
    /// Wraps a source.
    pub fn new(source: S, replay: Arc<Replay>) -> Self {
        Self { source, replay, fallbacks: Box::new(|_| Vec::new()), live: None }
    }

    /// Sets the function that returns the settings of a container's fallbacks. A round whose recorded request was built for a
    /// fallback builds it for the same fallback.
    pub fn with_fallbacks(self, fallbacks: impl Fn(&C) -> Vec<C> + Send + Sync + 'static) -> Self {
        Self { fallbacks: Box::new(fallbacks), ..self }
    }

    /// Sets the function that returns the models for [`Replay::call_models`]; `None` for a model that cannot be called.
    pub fn with_live_models(
        self,
        models: impl Fn(&C) -> Option<Arc<dyn Model>> + Send + Sync + 'static,
    ) -> Self {
        Self { live: Some(Box::new(models)), ..self }
    }
}

impl<C: 'static, S: ModelSource<C>> ModelSource<C> for ReplayModels<S, C> {
    fn model(&self, settings: &C) -> Result<Arc<dyn Model>, AgentError> {
        let (model, replay) = (self.source.model(settings)?, self.replay.clone());
        let fallbacks = (self.fallbacks)(settings);
        let live = self.live.as_ref();
        let live = live.map(|models| std::iter::once(settings).chain(&fallbacks).map(models).collect());
        let fallbacks = fallbacks.iter().map(|settings| self.source.model(settings).ok()).collect();
        Ok(Arc::new(ReplayModel { model, fallbacks, live, replay }))
    }
}

struct ReplayModel {
    model: Arc<dyn Model>,
    /// The fallbacks; `None` for one that cannot be created.
    fallbacks: Vec<Option<Arc<dyn Model>>>,
    /// The models that can be called live: the first one and the fallbacks.
    live: Option<Vec<Option<Arc<dyn Model>>>>,
    replay: Arc<Replay>,
}

impl ReplayModel {
    /// Returns the index of the model for which a round's request was built.
    fn entry(&self, round: usize) -> usize {
        self.replay.inputs.rounds.get(round).map_or(0, |round| round.entry)
    }

    /// Returns the model for which a round's request was built.
    fn recorded(&self, round: usize) -> &Arc<dyn Model> {
        let fallback = self.entry(round).checked_sub(1).and_then(|index| self.fallbacks.get(index)?.as_ref());
        fallback.unwrap_or(&self.model)
    }
}

#[async_trait]
impl Model for ReplayModel {
    /// Returns the information on the model, with the budget that the recorded prompt had.
    fn info(&self) -> ModelInfo {
        let info = self.model.info();
        let budget = self.replay.inputs.max_prompt_tokens;
        ModelInfo { context_window: budget.saturating_add(info.max_output_tokens), ..info }
    }

    fn counter(&self) -> Option<Arc<dyn TokenCounter>> {
        self.model.counter()
    }

    fn prepare(&self, request: &ModelRequest) -> Result<Payload, AgentError> {
        let round = self.replay.progress().requests.len();
        self.recorded(round).prepare(request)
    }

    async fn start(&self, payload: Payload) -> Result<ModelStream, AgentError> {
        let round = {
            let mut progress = self.replay.progress();
            progress.requests.push(payload.sha256());
            progress.requests.len() - 1
        };
        let script = &self.replay.script;
        if let Some(live) = &self.live {
            let call = ReplayedCall {
                model: live.get(self.entry(round)).cloned().flatten(),
                info: self.recorded(round).info(),
                payload,
                recorded: script.rounds.get(round).map(|round| round.answer.clone()).unwrap_or_default(),
            };
            self.replay.progress().calls.push(call);
        }
        let Some(answered) = script.rounds.get(round) else {
            return match script.failure() {
                Some(failure) => Err(failure),
                // The answer has started, and the run was cut before its first event.
                None if self.replay.inputs.rounds.len() > round => Ok(stream::pending().boxed()),
                None => std::future::pending().await,
            };
        };
        let answer = stream::iter(answered.answer.clone()).map(Ok);
        Ok(match (answered.is_complete, script.failure()) {
            (true, _) => answer.boxed(),
            (false, Some(failure)) => answer.chain(stream::iter([Err(failure)])).boxed(),
            (false, None) => answer.chain(stream::pending()).boxed(),
        })
    }
}
