//! Observer of a turn.

use super::{PrefixReuse, PreparedTurn};
use crate::context::TurnInput;
use crate::prompt::AssemblyInput;

/// Receiver of what a turn is made of, such as a recorder of runs.
pub trait TurnObserver: Send + Sync {
    /// Receives the inputs before they are assembled; again if the turn is prepared once more.
    fn on_inputs(&self, _: &TurnInput, _: &AssemblyInput<'_>) {}

    /// Receives the request while the backend processes it, and what of its prompt was sent before.
    fn on_request(&self, _: &PreparedTurn, _: Option<&PrefixReuse>) {}
}

impl TurnObserver for () {}
