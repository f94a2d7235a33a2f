//! Conversion of the store's errors into HTTP errors.

use std::time::Duration;

use agent_core::ids::RunId;
use agent_platform::conversation::{ConversationError, Run};
use agent_platform::ids::encode_segment;
use serde_json::json;

use crate::error::{Code, HttpError};

/// `Retry-After` of a request to a thread with a run in progress.
const BUSY_RETRY_AFTER: Duration = Duration::from_secs(2);

/// `Retry-After` of a request to a thread whose queue is full.
const QUEUE_RETRY_AFTER: Duration = Duration::from_secs(10);

impl From<ConversationError> for HttpError {
    fn from(error: ConversationError) -> Self {
        match error {
            ConversationError::ThreadNotFound
            | ConversationError::NodeNotFound(_)
            | ConversationError::RunNotFound => Self::not_found(),
            ConversationError::ThreadBusy { active_run } => {
                Self::new(Code::ThreadBusy, "another run of the thread has not ended")
                    .with_member("activeRunId", json!(active_run))
                    .with_retry_after(BUSY_RETRY_AFTER)
            }
            ConversationError::QueueFull => {
                Self::new(Code::QueueFull, error.to_string()).with_retry_after(QUEUE_RETRY_AFTER)
            }
            ConversationError::InterruptsOpen { run } => interrupts_open(&run),
            ConversationError::ApprovalNotFound => Self::not_found(),
            ConversationError::ApprovalExpired => Self::new(Code::InterruptExpired, error.to_string()),
            ConversationError::ApprovalDecided { .. } | ConversationError::CallRefused => {
                Self::conflict(error.to_string())
            }
            ConversationError::RunIdUsed { run } => used_run_id(&run),
            ConversationError::AgentMismatch { ref agent } => {
                let agent = json!(agent);
                Self::conflict(error.to_string()).with_member("agentId", agent)
            }
            ConversationError::ThreadFull(limit) => Self::new(Code::ThreadFull, limit.to_string()),
            ConversationError::VersionConflict { .. } => {
                Self::conflict("concurrent modification of the same thread; retry").with_source(error)
            }
            ConversationError::ThreadExists | ConversationError::RunEnded { .. } => {
                Self::conflict(error.to_string())
            }
            ConversationError::Invalid(fault) => Self::new(Code::InvalidRequest, fault),
            ConversationError::Store(error) => error.into(),
            error => Self::internal(error),
        }
    }
}

impl HttpError {
    /// Converts the error of an operation on the message that `field` of the request's body names.
    pub(crate) fn from_node_error(error: ConversationError, field: &str) -> Self {
        match error {
            ConversationError::NodeNotFound(_) => Self::field_not_found(field),
            error => error.into(),
        }
    }
}

/// Returns the error of a message to a thread that waits for decisions.
fn interrupts_open(run: &Run) -> HttpError {
    HttpError::new(Code::InterruptsOpen, "the thread waits for decisions about tool calls")
        .with_member("runId", json!(run.id))
        .with_member("interrupts", json!(run.open_interrupts()))
}

/// Returns the error of a request with the id of this run.
fn used_run_id(run: &Run) -> HttpError {
    HttpError::conflict("this runId was already used")
        .with_location(&events_path(&run.id))
        .with_member("run", json!({"id": run.id, "state": run.state}))
}

/// Returns the path of a run's log.
pub(in super::super) fn events_path(id: &RunId) -> String {
    let id = encode_segment(id);
    format!("/api/runs/{id}/events")
}
