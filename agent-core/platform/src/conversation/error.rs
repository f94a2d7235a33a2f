//! Errors of conversations.

use agent_core::ids::{AgentId, RunId};
use agent_core::store_error::StoreError;

use super::{ApprovalState, Run, ThreadLimit};

/// Error of an operation on conversations. Nothing was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConversationError {
    /// The owner has no such thread.
    #[error("the thread does not exist")]
    ThreadNotFound,
    /// The thread has no such message.
    #[error("the message {0:?} does not exist in this thread")]
    NodeNotFound(String),
    /// The owner has no such run.
    #[error("the run does not exist")]
    RunNotFound,
    /// The owner has a thread of this id already.
    #[error("a thread with this id already exists")]
    ThreadExists,
    /// The thread belongs to another agent.
    #[error("the thread belongs to another agent")]
    AgentMismatch {
        /// The thread's agent.
        agent: AgentId,
    },
    /// Another run of the thread has not ended.
    #[error("another run of the thread has not ended")]
    ThreadBusy {
        /// The run that has not ended, or the first queued one.
        active_run: RunId,
    },
    /// The thread has [`MAX_QUEUED_RUNS`](super::MAX_QUEUED_RUNS) queued runs.
    #[error("too many runs wait for the thread")]
    QueueFull,
    /// The owner has used the run's id.
    #[error("the run id has been used")]
    RunIdUsed {
        /// The run of this id.
        run: Box<Run>,
    },
    /// The run has ended, possibly by another process after its lease had expired.
    #[error("the run has ended as {}", .run.state.as_str())]
    RunEnded {
        /// The run.
        run: Box<Run>,
    },
    /// Tool calls of the run wait for decisions.
    #[error("the thread waits for decisions about tool calls")]
    InterruptsOpen {
        /// The run.
        run: Box<Run>,
    },
    /// The run has no such approval.
    #[error("the approval does not exist")]
    ApprovalNotFound,
    /// The approval was decided otherwise.
    #[error("the approval is already {}", .state.as_str())]
    ApprovalDecided {
        /// State of the approval.
        state: ApprovalState,
    },
    /// The decision came too late.
    #[error("the time for the decision is over")]
    ApprovalExpired,
    /// An approved call cannot be made: it was started before, or its run no longer belongs to this process.
    #[error("the call must not be made")]
    CallRefused,
    /// A limit on the number of nodes or threads.
    #[error("{0}")]
    ThreadFull(ThreadLimit),
    /// The thread was changed since it was read.
    #[error("the thread has version {found}")]
    VersionConflict {
        /// The version found; 0 if there is no thread.
        found: u64,
    },
    /// An invalid field or cursor; the text names it.
    #[error("{0}")]
    Invalid(String),
    /// Error of the store.
    #[error(transparent)]
    Store(#[from] StoreError),
}
