//! Writes of a run: its position in the queue, its beginning and its end.

use agent_core::ids::{AgentId, RunId};
use jiff::{SignedDuration, Timestamp};

use super::{
    Decision, LogEnd, NewNode, NewThread, Node, NodeId, NodeLink, OnDisconnect, Run, RunContext, RunEnding,
    RunRecord, RunTrigger, SentContext, Thread, ThreadKey, ThreadOwner,
};

/// Maximum number of queued runs of a thread.
pub const MAX_QUEUED_RUNS: usize = 8;

/// Lease of a process on all its runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunLease {
    /// Id of the process, another at every start.
    pub process: String,
    /// Time until which the process counts as alive, unless it renews the lease.
    pub until: Timestamp,
}

/// Request to queue a run.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueRunRequest {
    /// Key of the thread.
    pub key: ThreadKey,
    /// The agent, which must be the thread's.
    pub agent_id: AgentId,
    /// Id of the run.
    pub run_id: RunId,
    /// Cause.
    pub trigger: RunTrigger,
    /// Effect of a client's disconnect.
    pub on_disconnect: OnDisconnect,
    /// Time without a client after which the run is cancelled.
    pub grace_ms: Option<u32>,
    /// Process of the run and its lease, which is stored if it has none or an earlier one.
    pub lease: RunLease,
    /// Current time.
    pub now: Timestamp,
}

/// Relation of a run that begins to the queue of its thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BeginOrder {
    /// The thread must have no queue.
    #[default]
    AfterQueue,
    /// The run is queued, and must be the first.
    FromQueue,
    /// The run precedes the queued ones, like a run that continues another one after decisions.
    BeforeQueue,
}

impl BeginOrder {
    /// Returns the order of a run that continues one with decisions.
    #[must_use]
    pub fn continuing(self) -> Self {
        match self {
            Self::AfterQueue => Self::BeforeQueue,
            order => order,
        }
    }

    /// Returns the run for which the run `id` of a thread has to wait.
    pub fn blocking_run<'t>(self, thread: &'t Thread, id: &RunId) -> Option<&'t RunId> {
        let first = thread.queued_run_ids.first();
        let before = match self {
            Self::AfterQueue => first,
            Self::FromQueue => first.filter(|first| *first != id),
            Self::BeforeQueue => None,
        };
        thread.active_run_id.as_ref().or(before)
    }
}

/// Request to begin a run.
#[derive(Debug, Clone, PartialEq)]
pub struct BeginRunRequest {
    /// Key of the thread.
    pub key: ThreadKey,
    /// The agent, which must be the thread's.
    pub agent_id: AgentId,
    /// Id of the run.
    pub run_id: RunId,
    /// Run that this one continues, and whose turn it belongs to.
    pub continues: Option<RunId>,
    /// Decisions about tool calls of the continued run, which has no others open.
    pub decisions: Vec<Decision>,
    /// Cause.
    pub trigger: RunTrigger,
    /// Nodes to add, parents first.
    pub nodes: Vec<NewNode>,
    /// Node below which the answer goes: in the thread or in `nodes`.
    pub parent_id: Option<NodeId>,
    /// Attributes of the thread, if this call makes it.
    pub new_thread: NewThread,
    /// Time after its last activity at which retention deletes the thread.
    pub retention: Option<SignedDuration>,
    /// Relation to the thread's queue.
    pub order: BeginOrder,
    /// Version that the thread must have; 0 for a thread that must not exist. `None` for any.
    pub expected_version: Option<u64>,
    /// Effect of a client's disconnect.
    pub on_disconnect: OnDisconnect,
    /// Time without a client after which the run is cancelled.
    pub grace_ms: Option<u32>,
    /// Context of the run's tools.
    pub context: RunContext,
    /// Backend that runs it.
    pub backend: Option<String>,
    /// Hash of the request to the backend.
    pub request_sha256: Option<String>,
    /// Process of the run and its lease, which is stored if it has none or an earlier one.
    pub lease: RunLease,
    /// Current time.
    pub now: Timestamp,
}

/// A run that has started.
#[derive(Debug, Clone, PartialEq)]
pub struct BegunRun {
    /// The thread.
    pub thread: Thread,
    /// The run.
    pub run: Run,
    /// Nodes that were added.
    pub nodes: Vec<Node>,
    /// Positions and identity of these nodes.
    pub links: Vec<NodeLink>,
}

/// Request to end a run.
#[derive(Debug, Clone, PartialEq)]
pub struct EndRunRequest {
    /// The owner.
    pub owner: ThreadOwner,
    /// Id of the run.
    pub run_id: RunId,
    /// Process that started it.
    pub process: String,
    /// Nodes of the answer, parents first.
    pub nodes: Vec<NewNode>,
    /// State and outcome.
    pub ending: RunEnding,
    /// End of the log.
    pub log: LogEnd,
    /// Context that was sent with the user message, stored with the run's turn. An earlier one of the turn stays; one of
    /// more than [`MAX_CONTEXT_BYTES`](super::MAX_CONTEXT_BYTES), or of a node that is erased or no user message, is left out.
    pub context: Option<SentContext>,
    /// Hash of the request to the backend, if it was not known before.
    pub request_sha256: Option<String>,
    /// Backend, if it was not known before.
    pub backend: Option<String>,
    /// Record of the run.
    pub record: RunRecord,
    /// Current time.
    pub now: Timestamp,
}

/// A run that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct EndedRun {
    /// The thread.
    pub thread: Thread,
    /// The run.
    pub run: Run,
    /// Nodes that were added.
    pub nodes: Vec<Node>,
    /// Positions and identity of these nodes.
    pub links: Vec<NodeLink>,
    /// Context that was stored with the turn; `None` if none was sent, or it was left out.
    pub context: Option<SentContext>,
}
