//! Models whose answers' ends are recorded with the run.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use agent_core::backend::ModelSource;
use agent_core::error::AgentError;
use agent_core::model::{Model, ModelEvent, ModelStream};
use agent_core::payload::Payload;
use agent_core::tool::ExecutionContext;
use async_trait::async_trait;
use futures_util::{Stream, StreamExt};

use super::{RoundRecord, RunObserver, RunObservers};
use crate::conversation::MAX_TIMED_ROUNDS;
use crate::fallback::prepared_entry;
use crate::forward_model::forward_model;

/// A [`ModelSource`] that records the answers in the runs that have a [`RunObserver`].
pub struct ObservedModels<S> {
    source: S,
    observers: Arc<RunObservers>,
}

impl<S> std::fmt::Debug for ObservedModels<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObservedModels").finish_non_exhaustive()
    }
}

impl<S> ObservedModels<S> {
    /// Wraps a source.
    pub fn new(source: S, observers: Arc<RunObservers>) -> Self {
        Self { source, observers }
    }
}

impl<C, S: ModelSource<C>> ModelSource<C> for ObservedModels<S> {
    fn model(&self, settings: &C) -> Result<Arc<dyn Model>, AgentError> {
        self.source.model(settings)
    }

    fn model_for_run(&self, settings: &C, context: &ExecutionContext) -> Result<Arc<dyn Model>, AgentError> {
        let model = self.source.model_for_run(settings, context)?;
        Ok(match self.observers.find_for(context) {
            Some(observer) => Arc::new(ObservedModel { model, observer }),
            None => model,
        })
    }
}

/// A model in one run.
struct ObservedModel {
    model: Arc<dyn Model>,
    observer: Arc<RunObserver>,
}

#[async_trait]
impl Model for ObservedModel {
    forward_model!();

    async fn start(&self, payload: Payload) -> Result<ModelStream, AgentError> {
        self.observer.state().attempts += 1;
        let request_sha256 = self.observer.keeps_inputs.then(|| payload.sha256());
        let entry = prepared_entry(&payload);
        let events = self.model.start(payload).await?;
        let round = self.observer.begin_answer(entry, request_sha256);
        Ok(ObservedAnswer { events, observer: self.observer.clone(), round }.boxed())
    }
}

impl RunObserver {
    /// Begins an answer of the model and returns its index; `None` if the run has too many.
    fn begin_answer(&self, entry: usize, request_sha256: Option<String>) -> Option<usize> {
        let mut state = self.state();
        let attempts = std::mem::take(&mut state.attempts);
        let index = state.rounds.len();
        (index < MAX_TIMED_ROUNDS).then(|| {
            state.rounds.push(RoundRecord { attempts, entry, request_sha256, ..RoundRecord::default() });
            index
        })
    }

    fn answer_mut(&self, index: Option<usize>, change: impl FnOnce(&mut RoundRecord)) {
        let mut state = self.state();
        if let Some(round) = index.and_then(|index| state.rounds.get_mut(index)) {
            change(round);
        }
    }
}

/// An answer that is being streamed.
struct ObservedAnswer {
    events: ModelStream,
    observer: Arc<RunObserver>,
    round: Option<usize>,
}

impl Stream for ObservedAnswer {
    type Item = Result<ModelEvent, AgentError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let event = ready!(self.events.poll_next_unpin(cx));
        match &event {
            Some(Ok(ModelEvent::Usage(usage))) => {
                self.observer.answer_mut(self.round, |round| round.usage = Some(usage.clone()));
            }
            Some(Ok(ModelEvent::Draft(text))) if self.observer.keeps_inputs => {
                self.observer.answer_mut(self.round, |round| round.draft.push_str(text));
            }
            Some(Ok(ModelEvent::Rejected(correction))) if self.observer.keeps_inputs => {
                self.observer.answer_mut(self.round, |round| round.correction = Some(correction.clone()));
            }
            Some(Ok(ModelEvent::Finish(reason))) => {
                self.observer.answer_mut(self.round, |round| round.finish_reason = Some(*reason));
            }
            Some(Ok(ModelEvent::Notice(report))) if report["kind"] == "modelAttempt" => {
                let attempt = report.get("attempt").and_then(|attempt| attempt.as_u64()?.try_into().ok());
                if let Some(attempts) = attempt {
                    self.observer.answer_mut(self.round, |round| round.attempts = attempts);
                }
            }
            Some(Ok(ModelEvent::ProviderItem(item))) if self.observer.keeps_inputs => {
                self.observer.answer_mut(self.round, |round| round.provider_items.push(item.into()));
            }
            _ => {}
        }
        Poll::Ready(event)
    }
}
