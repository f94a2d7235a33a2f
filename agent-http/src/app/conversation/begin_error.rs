//! Error that prevents a run from beginning.

use agent_core::turn::TurnError;
use agent_platform::conversation::{ConversationError, Decision, NewNode, NodeId, Run};

use super::error::events_path;
use crate::error::HttpError;

/// Error that prevents a run from beginning.
pub(super) enum BeginError {
    Store(ConversationError),
    Turn(TurnError),
    Request(HttpError),
    /// A limit on runs refuses the run. Only its place in a queue is stored.
    NotAdmitted {
        error: HttpError,
        /// True if as many runs as permitted are in progress.
        is_full: bool,
    },
    /// A run waits for further decisions: the caller has decided about all own calls and others about theirs not yet, or has sent
    /// results of the client's calls alone. Decisions and results are the ones that are not yet stored.
    StillWaiting {
        run: Box<Run>,
        decisions: Vec<Decision>,
        results: Vec<NewNode>,
    },
    /// The results of the request are stored already, and this run answers them.
    Repeated {
        run: Box<Run>,
    },
    /// The results of the request are stored already, and their answer below this node was not completed.
    Unanswered {
        below: NodeId,
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
            BeginError::Request(error) | BeginError::NotAdmitted { error, .. } => error,
            BeginError::StillWaiting { run, .. } => ConversationError::InterruptsOpen { run }.into(),
            BeginError::Repeated { run } => {
                HttpError::conflict("the results of the tool calls were already sent")
                    .with_location(&events_path(&run.id))
            }
            BeginError::Unanswered { .. } => {
                HttpError::conflict("the results of the tool calls were already sent")
            }
        }
    }
}
