//! Observer of a turn, and the step that shortens its history.

use async_trait::async_trait;

use super::prepared::PreparedTurn;
use super::reuse::PrefixReuse;
use crate::context::TurnInput;
use crate::error::AgentError;
use crate::prompt::AssemblyInput;

/// Receiver of a turn's inputs and its request, such as a recorder of runs.
pub trait TurnObserver: Send + Sync {
    /// Receives the inputs before they are assembled; again if the turn is prepared once more.
    fn on_inputs(&self, _: &TurnInput, _: &AssemblyInput<'_>) {}

    /// Receives the request while the backend processes it, and the part of its prompt that was sent before.
    fn on_request(&self, _: &PreparedTurn, _: Option<&PrefixReuse>) {}
}

impl TurnObserver for () {}

/// Step between the collection of a prompt's parts and their assembly, such as a summary of the history's beginning.
#[async_trait]
pub trait HistoryStep: Send + Sync + 'static {
    /// Changes the history, whose latest user message stays the last one. An error prevents the turn.
    async fn apply(&self, turn: &TurnInput, assembly: &mut AssemblyInput<'_>) -> Result<(), AgentError>;
}
