//! A turn that is ready to send, or the error that prevents it.

use crate::backend::{BackendCapabilities, PreparedRequest};
use crate::context::LayerError;
use crate::error::AgentError;
use crate::select::{BackendKind, Selection};
use crate::store_error::StoreError;
use crate::tool::ToolError;

/// A turn that is ready to send, with its selection and the capabilities of its backend.
#[derive(Debug)]
pub struct PreparedTurn {
    /// The selected backend, with the results of all rules.
    pub selection: Selection,
    /// Capabilities of the selected backend: prompt budget, token counter, and its use of a run token.
    pub capabilities: BackendCapabilities,
    /// The prepared request.
    pub request: PreparedRequest,
}

/// Error that prevents a turn from starting.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TurnError {
    /// The agent does not exist or is not accessible to the caller; both have the same message.
    #[error("agent not found")]
    AgentNotFound,
    /// The credential is valid for another agent only.
    #[error("this credential is not valid for this agent")]
    WrongAgent,
    /// An invalid field of the request, detected by the turn.
    #[error("{field}: {problem}")]
    InvalidField {
        /// The field's path.
        field: &'static str,
        /// Description of the problem.
        problem: String,
    },
    /// The role has no container that selects a backend, built-in or registered; the selection has the result of each rule.
    #[error("no backend is configured for this agent")]
    NoConnector(Box<Selection>),
    /// The role selects a kind of backend that this platform does not have.
    #[error("this server has no {0} backend")]
    NoBackend(BackendKind),
    /// A store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A context layer failed.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// The tool registry failed to list the tools.
    #[error("the agent's tools could not be listed")]
    Tools(#[source] ToolError),
    /// The backend or model returned an error.
    #[error(transparent)]
    Backend(#[from] AgentError),
}
