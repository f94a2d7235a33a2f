//! Limit on the time until the first content of an answer of a model or an agent server.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use agent_core::backend::{Backend, BackendCapabilities, ModelSource, PreparedRequest, Turn};
use agent_core::clock::Clock;
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::event::EventStream;
use agent_core::model::{Model, ModelStream};
use agent_core::payload::Payload;
use agent_core::role::{AgentServer, EmbeddedAi, RetrySettings};
use async_trait::async_trait;
use futures_util::future::{BoxFuture, Either, select};
use futures_util::{FutureExt, Stream, StreamExt};

use super::servers::ServerTarget;
use super::target::{AnswerEvents, CallTarget, ModelTarget};
use crate::forward_model::forward_model;

/// A [`ModelSource`] whose models fail if an answer's first content does not arrive in time. Comments and empty deltas are
/// no content.
pub struct FirstContentModels<S> {
    source: S,
    limit: Duration,
    clock: Arc<dyn Clock>,
}

impl<S> std::fmt::Debug for FirstContentModels<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FirstContentModels").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl<S> FirstContentModels<S> {
    /// Wraps a source. `limit` is the time for settings that name none.
    pub fn new(source: S, limit: Duration, clock: Arc<dyn Clock>) -> Self {
        Self { source, limit, clock }
    }
}

impl<S: ModelSource> ModelSource for FirstContentModels<S> {
    fn model(&self, settings: &EmbeddedAi) -> Result<Arc<dyn Model>, AgentError> {
        let limit = own_limit(settings.retry.as_ref()).unwrap_or(self.limit);
        let model = self.source.model(settings)?;
        Ok(Arc::new(FirstContentModel { model, limit, clock: self.clock.clone() }))
    }
}

struct FirstContentModel {
    model: Arc<dyn Model>,
    limit: Duration,
    clock: Arc<dyn Clock>,
}

#[async_trait]
impl Model for FirstContentModel {
    forward_model!();

    async fn start(&self, payload: Payload) -> Result<ModelStream, AgentError> {
        match select(self.model.start(payload), self.clock.sleep(self.limit)).await {
            Either::Left((events, timer)) => {
                Ok(FirstContentStream::<ModelTarget> { events: events?, timer: Some(timer) }.boxed())
            }
            Either::Right(_) => Err(no_content::<ModelTarget>()),
        }
    }
}

/// Returns the time that a role's settings name.
fn own_limit(retry: Option<&RetrySettings>) -> Option<Duration> {
    retry?.first_content_ms.map(|limit| Duration::from_millis(limit.get().into()))
}

fn no_content<T: CallTarget>() -> AgentError {
    AgentError::new(AgentErrorKind::Timeout, T::NO_CONTENT)
}

/// A [`Backend`] of agent servers whose runs fail if their first content does not arrive in time. The events with which a
/// run begins are not content.
pub struct FirstContentServers<B> {
    servers: B,
    limit: Duration,
    clock: Arc<dyn Clock>,
}

impl<B> std::fmt::Debug for FirstContentServers<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FirstContentServers").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl<B> FirstContentServers<B> {
    /// Wraps a backend. `limit` is the time for settings that name none.
    pub fn new(servers: B, limit: Duration, clock: Arc<dyn Clock>) -> Self {
        Self { servers, limit, clock }
    }
}

#[async_trait]
impl<B: Backend<Settings = AgentServer>> Backend for FirstContentServers<B> {
    type Settings = AgentServer;

    fn capabilities(&self, settings: &AgentServer) -> Result<BackendCapabilities, AgentError> {
        self.servers.capabilities(settings)
    }

    fn prepare(&self, settings: &AgentServer, turn: Arc<Turn>) -> Result<PreparedRequest, AgentError> {
        self.servers.prepare(settings, turn)
    }

    async fn start(
        &self,
        settings: &AgentServer,
        prepared: PreparedRequest,
    ) -> Result<EventStream, AgentError> {
        let limit = own_limit(settings.retry.as_ref()).unwrap_or(self.limit);
        let run = prepared.turn.run.clone();
        match select(self.servers.start(settings, prepared), self.clock.sleep(limit)).await {
            Either::Left((events, timer)) => {
                let events = events?.into_source();
                Ok(EventStream::new(run, FirstContentStream::<ServerTarget> { events, timer: Some(timer) }))
            }
            Either::Right(_) => Err(no_content::<ServerTarget>()),
        }
    }
}

/// Events of an answer, with the timer until its first content.
struct FirstContentStream<T: CallTarget> {
    events: AnswerEvents<T>,
    timer: Option<BoxFuture<'static, ()>>,
}

impl<T: CallTarget> Stream for FirstContentStream<T> {
    type Item = Result<T::Event, AgentError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let event = self.events.poll_next_unpin(cx);
        let Some(timer) = &mut self.timer else { return event };
        match &event {
            Poll::Ready(Some(Ok(event))) if !T::is_content(event) => {}
            Poll::Ready(_) => self.timer = None,
            Poll::Pending if timer.poll_unpin(cx).is_ready() => {
                self.timer = None;
                self.events = futures_util::stream::empty().boxed();
                return Poll::Ready(Some(Err(no_content::<T>())));
            }
            Poll::Pending => {}
        }
        event
    }
}
