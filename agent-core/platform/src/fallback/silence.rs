//! Limit on the silence of a model's answer, in runs whose answer is delivered whole.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use agent_core::backend::ModelSource;
use agent_core::clock::Clock;
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::model::{Model, ModelStream};
use agent_core::payload::Payload;
use agent_core::role::EmbeddedAi;
use agent_core::tool::ExecutionContext;
use async_trait::async_trait;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream, StreamExt, stream};

use super::target::{CallTarget, ModelTarget};
use crate::forward_model::forward_model;

/// A [`ModelSource`] whose models fail if an answer has no content for too long, in runs whose answer is delivered whole.
///
/// A round that is held back has no events, so that the reader of such a run cannot limit the time between two of them. The
/// limit of these models takes its place, and a call that has failed by it may be repeated. Wrap with it what is metered: the
/// call is booked with the outcome `BACKEND_TIMEOUT`.
pub struct SilenceLimitedModels<S> {
    source: S,
    limit: Duration,
    clock: Arc<dyn Clock>,
}

impl<S> std::fmt::Debug for SilenceLimitedModels<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SilenceLimitedModels").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl<S> SilenceLimitedModels<S> {
    /// Wraps a source. `limit` is the maximum time between two pieces of content, and before the first.
    pub fn new(source: S, limit: Duration, clock: Arc<dyn Clock>) -> Self {
        Self { source, limit, clock }
    }
}

impl<S: ModelSource> ModelSource for SilenceLimitedModels<S> {
    fn model(&self, settings: &EmbeddedAi) -> Result<Arc<dyn Model>, AgentError> {
        self.source.model(settings)
    }

    fn model_for_run(
        &self,
        settings: &EmbeddedAi,
        context: &ExecutionContext,
    ) -> Result<Arc<dyn Model>, AgentError> {
        let model = self.source.model_for_run(settings, context)?;
        let Some(delivery) = &context.whole_delivery else { return Ok(model) };
        delivery.set_silence_limited();
        Ok(Arc::new(SilenceLimitedModel { model, limit: self.limit, clock: self.clock.clone() }))
    }
}

/// A model of one run, whose answer is delivered whole.
struct SilenceLimitedModel {
    model: Arc<dyn Model>,
    limit: Duration,
    clock: Arc<dyn Clock>,
}

#[async_trait]
impl Model for SilenceLimitedModel {
    forward_model!();

    async fn start(&self, payload: Payload) -> Result<ModelStream, AgentError> {
        let events = self.model.start(payload).await?;
        let (limit, clock) = (self.limit, self.clock.clone());
        let (timer, silent_since) = (clock.sleep(limit), clock.monotonic());
        Ok(SilenceLimitedStream { events, timer, silent_since, has_new_content: false, limit, clock }.boxed())
    }
}

/// Events of an answer, with the timer of its silence. The time counts only while the stream is polled and pending.
struct SilenceLimitedStream {
    events: ModelStream,
    /// Fires no later than the limit is reached. It is renewed when it has fired, not for each event.
    timer: BoxFuture<'static, ()>,
    silent_since: Instant,
    /// True if there was content since the stream was last pending.
    has_new_content: bool,
    limit: Duration,
    clock: Arc<dyn Clock>,
}

impl SilenceLimitedStream {
    /// Polls the silence of a stream that is pending. `Ready` means that it has lasted for too long.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let now = self.clock.monotonic();
        if std::mem::take(&mut self.has_new_content) {
            self.silent_since = now;
        }
        let silence = now.saturating_duration_since(self.silent_since);
        if silence >= self.limit {
            return Poll::Ready(());
        }
        // The timer only wakes the task: a stream that is pending for a moment at a time is polled in any case.
        while self.timer.poll_unpin(cx).is_ready() {
            self.timer = self.clock.sleep(self.limit - silence);
        }
        Poll::Pending
    }
}

impl Stream for SilenceLimitedStream {
    type Item = <ModelStream as Stream>::Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = self.events.poll_next_unpin(cx);
        match &polled {
            Poll::Ready(Some(Ok(event))) => self.has_new_content |= ModelTarget::is_content(event),
            Poll::Ready(_) => {}
            Poll::Pending if self.poll_silence(cx).is_ready() => {
                self.events = stream::empty().boxed();
                let message = format!("the model sent no content for {} seconds", self.limit.as_secs_f64());
                return Poll::Ready(Some(Err(AgentError::new(AgentErrorKind::Timeout, message))));
            }
            Poll::Pending => {}
        }
        polled
    }
}
