//! Backends in other services, whose events are taken from the record.

use std::sync::Arc;

use agent_core::backend::{Backend, BackendCapabilities, PreparedRequest, Turn};
use agent_core::budget::TokenBudget;
use agent_core::error::AgentError;
use agent_core::event::{EventStream, SourceEvent};
use async_trait::async_trait;
use futures_util::{StreamExt, stream};

use super::Replay;

/// A [`Backend`] that builds its requests with another backend and yields the recorded events.
pub struct ReplayBackend<B> {
    backend: B,
    replay: Arc<Replay>,
}

impl<B> std::fmt::Debug for ReplayBackend<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplayBackend").finish_non_exhaustive()
    }
}

impl<B: Backend> ReplayBackend<B> {
    /// Wraps a backend.
    pub fn new(backend: B, replay: Arc<Replay>) -> Self {
        Self { backend, replay }
    }
}

#[async_trait]
impl<B: Backend> Backend for ReplayBackend<B> {
    type Settings = B::Settings;

    fn capabilities(&self, settings: &B::Settings) -> Result<BackendCapabilities, AgentError> {
        let budget = TokenBudget { max_prompt_tokens: self.replay.inputs.max_prompt_tokens };
        Ok(BackendCapabilities { budget, ..self.backend.capabilities(settings)? })
    }

    fn prepare(&self, settings: &B::Settings, turn: Arc<Turn>) -> Result<PreparedRequest, AgentError> {
        self.backend.prepare(settings, turn)
    }

    async fn start(&self, _: &B::Settings, prepared: PreparedRequest) -> Result<EventStream, AgentError> {
        let script = &self.replay.script;
        self.replay.progress().requests.push(prepared.payload.sha256());
        if script.source.is_empty()
            && let Some(failure) = script.failure()
        {
            return Err(failure);
        }
        let events = stream::iter(script.source.clone()).map(|event| Ok(SourceEvent::Event(event)));
        let run = prepared.turn.run.clone();
        Ok(match script.end.clone() {
            Some(end) => EventStream::new(run, events.chain(stream::iter([Ok(SourceEvent::End(end))]))),
            None => EventStream::new(run, events.chain(stream::pending())),
        })
    }
}
