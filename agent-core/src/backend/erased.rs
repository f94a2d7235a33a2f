//! Backends of any kind behind one object-safe trait.

use std::sync::Arc;

use async_trait::async_trait;

use super::{Backend, BackendCapabilities, BackendSettings, PreparedRequest, Turn};
use crate::error::{AgentError, AgentErrorKind};
use crate::event::EventStream;
use crate::select::BackendChoice;

/// A [`Backend`] whose settings' type is erased. A platform registers it by that type, so a turn's settings fit.
#[async_trait]
pub(crate) trait ErasedBackend: Send + Sync + 'static {
    /// Calls [`Backend::capabilities`] with the selected settings.
    fn capabilities_of(&self, choice: &BackendChoice) -> Result<BackendCapabilities, AgentError>;

    /// Calls [`Backend::prepare`] with the turn's settings.
    fn prepare_turn(&self, turn: Arc<Turn>) -> Result<PreparedRequest, AgentError>;

    /// Calls [`Backend::start`] with the turn's settings.
    async fn start_turn(&self, prepared: PreparedRequest) -> Result<EventStream, AgentError>;
}

#[async_trait]
impl<B: Backend> ErasedBackend for B {
    fn capabilities_of(&self, choice: &BackendChoice) -> Result<BackendCapabilities, AgentError> {
        self.capabilities(settings(choice)?)
    }

    fn prepare_turn(&self, turn: Arc<Turn>) -> Result<PreparedRequest, AgentError> {
        self.prepare(settings(&turn.clone().choice)?, turn)
    }

    async fn start_turn(&self, prepared: PreparedRequest) -> Result<EventStream, AgentError> {
        let turn = prepared.turn.clone();
        self.start(settings(&turn.choice)?, prepared).await
    }
}

fn settings<S: BackendSettings>(choice: &BackendChoice) -> Result<&S, AgentError> {
    let mismatch =
        || AgentError::new(AgentErrorKind::Internal, "the settings belong to another kind of backend");
    S::from_choice(choice).ok_or_else(mismatch)
}
