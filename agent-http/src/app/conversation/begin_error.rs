//! Error that prevents a run from beginning.

use agent_core::turn::TurnError;
use agent_platform::conversation::ConversationError;

use crate::error::HttpError;

/// Error that prevents a run from beginning.
pub(super) enum BeginError {
    Store(ConversationError),
    Turn(TurnError),
    Request(HttpError),
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
        }
    }
}
