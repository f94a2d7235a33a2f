//! The [`Conversations`] trait and the types of its interface.

use agent_core::ids::{AgentId, CompanyId, RunId, ThreadId};
use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};

use super::{
    AppendedEvents, BeginRunRequest, BegunRun, ChangeRunRequest, ChangedRun, ConversationError, DueRuns,
    EndRunRequest, EndedRun, Feedback, FeedbackPage, LogPage, NewNode, NewThread, Node, NodeContent, NodeId,
    NodeLink, QueueRunRequest, Run, RunChunk, RunClock, RunFilter, RunKey, RunLease, RunPage, RunSignal,
    Thread, ThreadFilter, ThreadKey, ThreadOwner, ThreadPage, ThreadPatch, ThreadScan, TurnContext,
    WaitingRuns,
};

/// Default number of nodes on a page.
pub const DEFAULT_PAGE_NODES: usize = 200;
/// Maximum number of nodes on a page.
pub const MAX_PAGE_NODES: usize = 500;
/// Maximum number of threads that one call deletes.
pub const MAX_DELETED_THREADS: usize = 1_000;

/// Threads with their message trees and runs. All ids are looked up within a company and an owner; what belongs to
/// others is reported as absent.
///
/// The contract is the suite `conformance::conversations`, which every store runs. Each operation is one commit, except
/// deletion, which may take several and leaves the thread to be deleted again if its process ends meanwhile. Times are
/// kept to the millisecond.
///
/// Each commit that adds, changes or deletes nodes of a thread, or moves its head, increments the thread's version, by which
/// [`ThreadCache`](super::ThreadCache) detects that its copy is current.
#[async_trait]
pub trait Conversations: Send + Sync {
    /// Returns true if operations that arrive together share a commit, which costs less than one each.
    fn has_group_commits(&self) -> bool {
        false
    }

    /// Returns a thread.
    async fn thread(&self, key: &ThreadKey) -> Result<Option<Thread>, ConversationError>;

    /// Returns a thread with the identity of all its nodes, in the order in which they were stored.
    async fn links(&self, key: &ThreadKey) -> Result<Option<ThreadLinks>, ConversationError>;

    /// Returns a thread as [`links`](Self::links) does, with the contents of the nodes from the root to the head, or without
    /// contents if the store would need another query for them: by [`contents`](Self::contents).
    async fn path(&self, key: &ThreadKey) -> Result<Option<ThreadPath>, ConversationError> {
        Ok(self.links(key).await?.map(ThreadPath::from))
    }

    /// Returns a thread with a page of its nodes.
    ///
    /// # Errors
    /// [`ConversationError::NodeNotFound`] for a path to a node that does not exist, [`ConversationError::Invalid`] for
    /// a cursor that no page returned.
    async fn nodes(&self, key: &ThreadKey, query: &NodeQuery) -> Result<Option<NodePage>, ConversationError>;

    /// Returns the contents of a thread's nodes at these positions, which ascend; without those that do not
    /// exist. A position never gets another node.
    async fn contents(&self, key: &ThreadKey, seqs: &[u32]) -> Result<Vec<NodeContent>, ConversationError>;

    /// Returns the contexts that were sent with a thread's user messages from position `from` on in these turns: those of
    /// the newest messages first, until they have [`MAX_CONTEXT_PAGE_BYTES`](super::MAX_CONTEXT_PAGE_BYTES). The cost does not
    /// depend on the messages before that position.
    async fn contexts(
        &self,
        key: &ThreadKey,
        from: u32,
        turns: &[RunId],
    ) -> Result<Vec<TurnContext>, ConversationError>;

    /// Returns a page of an owner's threads, at most [`MAX_PAGE_THREADS`](super::MAX_PAGE_THREADS). Threads of the same
    /// activity are in descending order of their ids.
    ///
    /// # Errors
    /// [`ConversationError::Invalid`] for a cursor that no page returned.
    async fn threads(
        &self,
        owner: &ThreadOwner,
        filter: &ThreadFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<ThreadPage, ConversationError>;

    /// Creates a thread, possibly with imported nodes.
    ///
    /// # Errors
    /// [`ConversationError::ThreadExists`], [`ConversationError::ThreadFull`].
    async fn create(&self, create: CreateThreadRequest) -> Result<Thread, ConversationError>;

    /// Changes a thread. Its version grows only if something changes.
    ///
    /// # Errors
    /// [`ConversationError::ThreadNotFound`], [`ConversationError::NodeNotFound`],
    /// [`ConversationError::VersionConflict`].
    async fn patch(
        &self,
        key: &ThreadKey,
        patch: ThreadPatch,
        now: Timestamp,
    ) -> Result<Thread, ConversationError>;

    /// Adds nodes without a run to a thread, which must have the version `expected_version` if one is given. The head becomes the
    /// last of them. A thread that awaits results of its client's calls is idle if they are below its head.
    ///
    /// # Errors
    /// [`ConversationError::ThreadNotFound`], [`ConversationError::VersionConflict`], [`ConversationError::NodeNotFound`] for
    /// a parent, [`ConversationError::ThreadFull`], in this order.
    async fn append(
        &self,
        key: &ThreadKey,
        expected_version: Option<u64>,
        nodes: Vec<NewNode>,
        now: Timestamp,
    ) -> Result<AppendedNodes, ConversationError>;

    /// Copies the path to a node into a new thread of the same owner, with the contexts of its messages if the agent is
    /// the same.
    ///
    /// # Errors
    /// [`ConversationError::ThreadNotFound`], [`ConversationError::NodeNotFound`], [`ConversationError::ThreadExists`],
    /// [`ConversationError::ThreadFull`].
    async fn fork(&self, fork: ForkThreadRequest) -> Result<Thread, ConversationError>;

    /// Deletes a thread with its nodes and runs; `None` if there is none.
    async fn delete(&self, key: &ThreadKey) -> Result<Option<DeletedThreads>, ConversationError>;

    /// Deletes threads of an owner, at most [`MAX_DELETED_THREADS`]; without conditions, everything that the owner has.
    async fn delete_many(
        &self,
        owner: &ThreadOwner,
        filter: &DeleteFilter,
    ) -> Result<DeletedThreads, ConversationError>;

    /// Returns a page of all owners' threads, at most [`MAX_SCANNED_THREADS`](super::MAX_SCANNED_THREADS), in an order that
    /// activity does not change.
    ///
    /// # Errors
    /// [`ConversationError::Invalid`] for a cursor that no page returned.
    async fn scan_threads(&self, cursor: Option<&str>) -> Result<ThreadScan, ConversationError>;

    /// Erases the content of a node, its contexts, the log of its run if that has ended, and the inputs of all runs of its
    /// thread, since later ones have sent it; it stays as `deleted`. Again, it changes nothing.
    ///
    /// # Errors
    /// [`ConversationError::ThreadNotFound`], [`ConversationError::NodeNotFound`].
    async fn erase_node(&self, key: &ThreadKey, node: &NodeId) -> Result<Thread, ConversationError>;

    /// Queues a run for a thread with an unfinished run or queued runs: stores it as `queued`, behind the others.
    /// Returns it; `None` if the run need not wait, and nothing is stored.
    ///
    /// # Errors
    /// [`ConversationError::RunIdUsed`], [`ConversationError::AgentMismatch`], [`ConversationError::QueueFull`], in this order.
    async fn queue_run(&self, queue: QueueRunRequest) -> Result<Option<Run>, ConversationError>;

    /// Begins a run: makes the thread or checks that it is free, adds the nodes, and stores the run as `running`.
    ///
    /// # Errors
    /// For a queued run [`ConversationError::RunNotFound`] if its thread was deleted, and [`ConversationError::RunEnded`] if it is
    /// not queued any more or is another process's.
    /// [`ConversationError::RunIdUsed`], [`ConversationError::ThreadBusy`], [`ConversationError::AgentMismatch`],
    /// [`ConversationError::VersionConflict`], [`ConversationError::NodeNotFound`] for a parent,
    /// [`ConversationError::ThreadFull`], in this order. Those of the decisions, [`ConversationError::InterruptsOpen`] if
    /// the continued run waits for others, and [`ConversationError::RunEnded`] if it was continued before.
    async fn begin_run(&self, begin: BeginRunRequest) -> Result<BegunRun, ConversationError>;

    /// Ends a run: adds the nodes of its answer, moves the head to the last of them, frees the thread, and completes the
    /// log. A queued run leaves the queue, and can only fail, be cancelled or be interrupted. A run that would wait for decisions
    /// is cancelled instead if its process has a signal to cancel it. The signals for the run are deleted.
    ///
    /// # Errors
    /// [`ConversationError::RunNotFound`], also after the thread was deleted; [`ConversationError::RunEnded`] if the run
    /// has ended or is another process's.
    async fn end_run(&self, end: EndRunRequest) -> Result<EndedRun, ConversationError>;

    /// Returns a run.
    async fn run(&self, owner: &ThreadOwner, id: &RunId) -> Result<Option<Run>, ConversationError>;

    /// Returns a page of an owner's runs, newest first, at most [`MAX_PAGE_THREADS`](super::MAX_PAGE_THREADS).
    ///
    /// # Errors
    /// [`ConversationError::Invalid`] for a cursor that no page returned.
    async fn runs(
        &self,
        owner: &ThreadOwner,
        filter: &RunFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<RunPage, ConversationError>;

    /// Changes a run that waits or has waited for decisions. Of several callers that change the same, one has changed it.
    ///
    /// # Errors
    /// [`ConversationError::RunNotFound`]; those of [`RunChange`](super::RunChange).
    async fn change_run(&self, change: ChangeRunRequest) -> Result<ChangedRun, ConversationError>;

    /// Returns a page of a company's runs that wait for decisions, at most [`MAX_PAGE_THREADS`](super::MAX_PAGE_THREADS), the
    /// newest first.
    ///
    /// # Errors
    /// [`ConversationError::Invalid`] for a cursor that no page returned.
    async fn waiting_runs(
        &self,
        company: &CompanyId,
        cursor: Option<&str>,
    ) -> Result<WaitingRuns, ConversationError>;

    /// Returns a page of all companies' runs that are [due](super::Run::due_at) at `now`, at most
    /// [`MAX_REAPED_RUNS`](super::MAX_REAPED_RUNS), in the order of the times at which they became due, and the cursor
    /// of the next page. Runs that wait for decisions cost nothing. Runs that the store cannot read are left out, so that a page
    /// with a cursor may have fewer runs, or none.
    ///
    /// # Errors
    /// [`ConversationError::Invalid`] for a cursor that no page returned.
    async fn due_runs(&self, now: Timestamp, cursor: Option<&str>) -> Result<DueRuns, ConversationError>;

    /// Extends the lease of a process. The runs of a process whose lease has expired count as interrupted.
    async fn renew_lease(&self, lease: &RunLease) -> Result<(), ConversationError>;

    /// Interrupts a run if its process's lease has expired: completes its log, adds the nodes of its answer so far, and
    /// frees the thread. Returns the run as it is then; `None` if there is none.
    async fn interrupt_expired(
        &self,
        owner: &ThreadOwner,
        id: &RunId,
        now: RunClock,
    ) -> Result<Option<Run>, ConversationError>;

    /// Interrupts runs whose process's lease has expired, as [`interrupt_expired`](Self::interrupt_expired) does. Returns their
    /// number; if it is [`MAX_REAPED_RUNS`](super::MAX_REAPED_RUNS) or more, there may be others.
    ///
    /// # Errors
    /// Those of the store. Runs that cannot be interrupted hinder no others, however many they are.
    async fn reap(&self, now: RunClock) -> Result<usize, ConversationError>;

    /// Appends chunks to the logs of a process's runs, in one commit. A chunk that the log has is left out. Nothing is
    /// appended to the logs of runs that no longer belong to the process, or that another transaction has locked. The
    /// commit waits for none of them, since the runs of all companies share it.
    ///
    /// # Errors
    /// Errors of the store. Nothing is appended, or everything if the store's answer was lost.
    async fn append_events(
        &self,
        process: &str,
        chunks: Vec<RunChunk>,
    ) -> Result<AppendedEvents, ConversationError>;

    /// Returns a run with the chunks of its log that have events from number `from` on: whole ones, in order, until they
    /// have [`MAX_LOG_PAGE_BYTES`](super::MAX_LOG_PAGE_BYTES). `None` if there is no run.
    async fn events(
        &self,
        owner: &ThreadOwner,
        id: &RunId,
        from: u64,
    ) -> Result<Option<LogPage>, ConversationError>;

    /// Returns the inputs of a run as they were stored with the end of its log. They are deleted with the log.
    async fn run_inputs(&self, owner: &ThreadOwner, id: &RunId)
    -> Result<Option<Vec<u8>>, ConversationError>;

    /// Stores a signal for the process of a run, which may take it until `until`. Returns the run; `None` if there is none. A
    /// run that is not live has no process and gets no signal.
    async fn signal(
        &self,
        run: &RunKey,
        signal: RunSignal,
        until: Timestamp,
    ) -> Result<Option<Run>, ConversationError>;

    /// Returns the signals for the runs of a process. Those to start are returned once, and again if the store could not delete
    /// them; the others until they expire or the run ends.
    async fn take_signals(
        &self,
        process: &str,
        now: Timestamp,
    ) -> Result<Vec<(RunKey, RunSignal)>, ConversationError>;

    /// Deletes the logs of runs whose time is over. Returns the number of the runs; if it is
    /// [`MAX_TRIMMED_LOGS`](super::MAX_TRIMMED_LOGS) or more, there may be others.
    ///
    /// # Errors
    /// Those of the store. Runs whose logs cannot be deleted hinder no others, however many they are.
    async fn trim_logs(&self, now: Timestamp) -> Result<usize, ConversationError>;

    /// Stores the owner's feedback on a node in place of an earlier one, or removes it. It is gone with the node's content
    /// and with the thread, and a fork has none.
    ///
    /// # Errors
    /// [`ConversationError::ThreadNotFound`], [`ConversationError::NodeNotFound`] also for a deleted node and for one that
    /// a visitor does not see, [`ConversationError::Invalid`] beyond a limit.
    async fn set_feedback(
        &self,
        key: &ThreadKey,
        node: &NodeId,
        feedback: Option<Feedback>,
    ) -> Result<(), ConversationError>;

    /// Returns a page of the feedback on an agent's messages, newest first, at most
    /// [`MAX_PAGE_THREADS`](super::MAX_PAGE_THREADS).
    ///
    /// # Errors
    /// [`ConversationError::Invalid`] for a cursor that no page returned.
    async fn agent_feedback(
        &self,
        company: &CompanyId,
        agent: &AgentId,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<FeedbackPage, ConversationError>;

    /// Returns a page of the threads that visitors have with an agent, with their owners: latest activity first, then in
    /// descending order of owner and id, at most [`MAX_PAGE_THREADS`](super::MAX_PAGE_THREADS).
    ///
    /// # Errors
    /// [`ConversationError::Invalid`] for a cursor that no page returned.
    async fn visitor_threads(
        &self,
        company: &CompanyId,
        agent: &AgentId,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<ThreadPage, ConversationError>;
}

/// A thread and the identity of its nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadLinks {
    /// The thread.
    pub thread: Thread,
    /// All nodes, in the order in which they were stored.
    pub links: Vec<NodeLink>,
}

/// A thread with the identity of its nodes, and the contents of those from the root to the head.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadPath {
    /// The thread.
    pub thread: Thread,
    /// All nodes, in the order in which they were stored.
    pub links: Vec<NodeLink>,
    /// Contents of the path, root first; empty if they were not read.
    pub contents: Vec<NodeContent>,
}

impl From<ThreadLinks> for ThreadPath {
    fn from(found: ThreadLinks) -> Self {
        let ThreadLinks { thread, links } = found;
        Self { thread, links, contents: Vec::new() }
    }
}

/// Query of a thread's nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeQuery {
    /// Nodes to return.
    pub select: NodeSelection,
    /// Cursor returned with the previous page of the same selection.
    pub cursor: Option<String>,
    /// Maximum number of nodes; [`DEFAULT_PAGE_NODES`] if absent, capped at [`MAX_PAGE_NODES`].
    pub limit: Option<usize>,
}

impl NodeQuery {
    /// Returns the maximum number of nodes on the page.
    pub fn page_size(&self) -> usize {
        self.limit.unwrap_or(DEFAULT_PAGE_NODES).clamp(1, MAX_PAGE_NODES)
    }
}

/// Nodes that a query selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeSelection {
    /// The nodes from the root to a node, or to the head; root first.
    Path {
        /// Last node of the path.
        at: Option<NodeId>,
    },
    /// All nodes, in the order in which they were stored.
    Tree,
    /// The nodes at these positions, which ascend; without those that do not exist.
    Positions(Vec<u32>),
}

impl Default for NodeSelection {
    fn default() -> Self {
        Self::Path { at: None }
    }
}

/// A thread and a page of its nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct NodePage {
    /// The thread.
    pub thread: Thread,
    /// Nodes of this page.
    pub nodes: Vec<Node>,
    /// Cursor of the next page; absent on the last page.
    pub next_cursor: Option<String>,
}

/// Request to create a thread.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateThreadRequest {
    /// Key.
    pub key: ThreadKey,
    /// The agent.
    pub agent_id: AgentId,
    /// Attributes.
    pub new: NewThread,
    /// Time after its last activity at which retention deletes the thread.
    pub retention: Option<SignedDuration>,
    /// Nodes, parents first.
    pub nodes: Vec<NewNode>,
    /// Current time.
    pub now: Timestamp,
}

/// Nodes that were added, and the thread after it.
#[derive(Debug, Clone, PartialEq)]
pub struct AppendedNodes {
    /// The thread.
    pub thread: Thread,
    /// The nodes.
    pub nodes: Vec<Node>,
}

/// Request to copy the path to a node of a thread into a new thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkThreadRequest {
    /// The thread to copy from.
    pub key: ThreadKey,
    /// Last node of the path; the head if absent.
    pub at: Option<NodeId>,
    /// Id of the copy.
    pub id: ThreadId,
    /// Agent of the copy; the same if absent.
    pub agent_id: Option<AgentId>,
    /// Title of the copy; the same if absent.
    pub title: Option<String>,
    /// Current time.
    pub now: Timestamp,
}

/// Conditions on the threads to be deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteFilter {
    /// Filters by agent.
    pub agent: Option<AgentId>,
    /// Restricts to threads whose last activity was before this time.
    pub before: Option<Timestamp>,
}

impl DeleteFilter {
    /// Returns true if the thread matches all conditions.
    pub fn matches(&self, thread: &Thread) -> bool {
        self.agent.as_ref().is_none_or(|agent| *agent == thread.agent_id)
            && self
                .before
                .is_none_or(|before| thread.last_activity_at.as_millisecond() < before.as_millisecond())
    }
}

/// Outcome of a deletion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeletedThreads {
    /// Number of deleted threads.
    pub deleted: usize,
    /// True if more threads match.
    pub has_more: bool,
    /// Runs of the threads that had not ended.
    pub active_runs: Vec<RunId>,
}

impl DeletedThreads {
    /// Adds a thread that was deleted.
    pub fn add_thread(&mut self, thread: Thread) {
        self.deleted += 1;
        self.active_runs.extend(thread.active_run_id);
        self.active_runs.extend(thread.queued_run_ids);
    }

    /// Adds the threads of another commit of the same deletion.
    pub fn add_batch(&mut self, batch: Self) {
        self.deleted += batch.deleted;
        self.active_runs.extend(batch.active_runs);
    }
}
