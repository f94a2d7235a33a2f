//! Backends with the settings that a turn contains.

use std::sync::Arc;

use crate::backend::{Backend, ErasedBackend as _, PreparedRequest, Turn};
use crate::error::AgentError;
use crate::event::EventStream;

/// Prepares a turn with its own settings. Fails as [`Backend::prepare`] does, and for settings of another kind of backend.
pub fn prepare_turn(backend: &impl Backend, turn: Arc<Turn>) -> Result<PreparedRequest, AgentError> {
    backend.prepare_turn(turn)
}

/// Starts a turn with its own settings. Fails as [`Backend::start`] does.
pub async fn start_turn(
    backend: &impl Backend,
    prepared: PreparedRequest,
) -> Result<EventStream, AgentError> {
    backend.start_turn(prepared).await
}
