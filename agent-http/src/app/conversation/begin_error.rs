//! Error that prevents a run from beginning.

use agent_core::turn::TurnError;
use agent_platform::conversation::{ConversationError, Decision, NewNode, Run};

use crate::error::HttpError;

/// Error that prevents a run from beginning.
pub(super) enum BeginError {
    Store(ConversationError),
    Turn(TurnError),
    Request(HttpError),
    /// The caller has decided about all own calls of a run that waits, and others about theirs not yet. Decisions and results of
    /// the client's calls are those that are not stored.
    OthersDecide {
        run: Box<Run>,
        decisions: Vec<Decision>,
        results: Vec<NewNode>,
    },
}

impl From<ConversationError> for BeginError {
    fn from(error: ConversationError) -> Self {
        Self::Store(error)
    }
}

impl From<BeginError> for HttpError {
    fn from(error: BeginError) -> Self {
        match error {
            BeginError::Store(error) => error.into(),
            BeginError::Turn(error) => error.into(),
            BeginError::Request(error) => error,
            BeginError::OthersDecide { run, .. } => ConversationError::InterruptsOpen { run }.into(),
        }
    }
}
