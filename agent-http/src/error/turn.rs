//! Errors of turns as HTTP errors.

use agent_core::context::LayerError;
use agent_core::tool::{Caller, ToolError};
use agent_core::turn::TurnError;
use agent_platform::preview::SelectionReport;
use agent_platform::records::StoreError;

use super::{Code, HttpError};

impl HttpError {
    /// Converts the error of a caller's turn, without details of the agent's configuration for visitors.
    pub(crate) fn from_turn(error: TurnError, caller: Caller) -> Self {
        match error {
            TurnError::NoConnector(_) if caller == Caller::Widget => {
                Self::new(Code::NoConnector, error.to_string())
            }
            error => error.into(),
        }
    }

    /// Converts the error of listing an agent's tools, which is unavailable if the store is.
    pub(crate) fn from_tool_list(error: ToolError) -> Self {
        match error {
            ToolError::Unavailable(_) | ToolError::StoreUnavailable(_) => Self::store_unavailable(error),
            error => Self::internal(error),
        }
    }
}

impl From<TurnError> for HttpError {
    fn from(error: TurnError) -> Self {
        match error {
            TurnError::AgentNotFound => Self::new(Code::NotFound, error.to_string()),
            TurnError::WrongAgent => Self::forbidden(error.to_string()),
            TurnError::InvalidField { field, problem } => Self::invalid(field, problem),
            TurnError::NoConnector(selection) => {
                let report = SelectionReport::from(&*selection);
                let selection = serde_json::to_value(report).unwrap_or_default();
                Self::new(Code::NoConnector, "no backend is configured for this agent")
                    .with_member("selection", selection)
            }
            TurnError::NoBackend(_) => Self::new(Code::NotConfigured, error.to_string()),
            TurnError::Store(error) => error.into(),
            // No other error of a layer's store is the client's.
            TurnError::Layer(LayerError::Store(error @ StoreError::Unavailable(_))) => error.into(),
            TurnError::Tools(error) => Self::from_tool_list(error),
            TurnError::Backend(failure) => failure.into(),
            error => Self::internal(error),
        }
    }
}
