//! Beginning of runs in commits.

use jiff::Timestamp;

use super::super::thread::expiry;
use super::super::time::whole_millis;
use super::super::{
    BeginOrder, BeginRunRequest, ConversationError, Run, RunState, RunStep, StoredNode, Thread, ThreadStatus,
    check_conversation_id,
};
use super::decisions::continue_run;
use super::queue::leave_queue;
use super::{KnownNodes, Placement, StoredRun, apply_nodes, check_thread_count, new_thread};

/// Rows that the beginning of a run reads.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BeginRows {
    /// The thread.
    pub thread: Option<Thread>,
    /// Number of the owner's threads, if the thread does not exist.
    pub thread_count: u64,
    /// The owner's run of the same id.
    pub used_run: Option<StoredRun>,
    /// The run that this one continues.
    pub continued: Option<Run>,
    /// Nodes of the identifiers that the request names.
    pub known: KnownNodes,
}

/// Rows that the beginning of a run writes.
#[derive(Debug, Clone, PartialEq)]
pub struct BeginCommit {
    /// The thread.
    pub thread: Thread,
    /// New nodes.
    pub nodes: Vec<StoredNode>,
    /// The new run.
    pub run: Run,
    /// The run that is continued.
    pub continued: Option<Run>,
}

/// Begins a run.
///
/// # Errors
/// See [`Conversations::begin_run`](crate::conversation::Conversations::begin_run).
pub fn begin_run(begin: &BeginRunRequest, rows: BeginRows) -> Result<BeginCommit, ConversationError> {
    begin.key.check()?;
    check_conversation_id("runId", &begin.run_id)?;
    check_conversation_id("agentId", &begin.agent_id)?;
    let queued = check_run_id(begin, rows.used_run, rows.thread.is_some())?;
    let now = whole_millis(begin.now);
    let blocking = rows.thread.as_ref().and_then(|thread| begin.order.blocking_run(thread, &begin.run_id));
    if let Some(active_run) = blocking.cloned() {
        return Err(ConversationError::ThreadBusy { active_run });
    }
    let current_version = rows.thread.as_ref().map_or(0, |thread| thread.version);
    if begin.expected_version.is_some_and(|expected| expected != current_version) {
        return Err(ConversationError::VersionConflict { found: current_version });
    }
    let mut thread = thread_to_continue(begin, rows.thread, rows.thread_count, now)?;
    let continued = rows.continued.map(|run| continue_run(run, begin, now)).transpose()?;
    let turn_id = continued.as_ref().map_or_else(|| begin.run_id.clone(), |run| run.turn_id.clone());
    let mut placement = Placement::new(&thread, rows.known, now);
    placement.run = Some((turn_id.clone(), begin.run_id.clone()));
    let nodes = placement.add_all(begin.nodes.clone(), true)?;
    let parent_id = begin.parent_id.as_ref().map(|id| placement.resolve(id)).transpose()?;
    apply_nodes(&mut thread, &nodes, now);
    thread.expires_at = expiry(thread.last_activity_at, begin.retention);
    leave_queue(&mut thread, &begin.run_id);
    thread.active_run_id = Some(begin.run_id.clone());
    thread.open_run_id = None;
    thread.status = ThreadStatus::Running;
    let run = match queued {
        Some(run) => {
            run.step(RunStep::Start, now).map_err(|error| ConversationError::Invalid(error.to_string()))?
        }
        None => Run { started_at: Some(now), ..Run::queued(&begin.key, &begin.agent_id, &begin.run_id, now) },
    };
    let run = Run {
        turn_id,
        state: RunState::Running,
        trigger: begin.trigger.clone(),
        parent_id,
        node_ids: nodes.iter().map(|node| node.link.id.clone()).collect(),
        continues: begin.continues.clone(),
        on_disconnect: begin.on_disconnect,
        grace_ms: begin.grace_ms,
        context: begin.context.clone(),
        backend: begin.backend.clone(),
        request_sha256: begin.request_sha256.clone(),
        ..run
    };
    Ok(BeginCommit { thread, nodes, run, continued })
}

/// Returns the thread of a run that begins: the stored one, or a new one.
fn thread_to_continue(
    begin: &BeginRunRequest,
    stored_thread: Option<Thread>,
    thread_count: u64,
    now: Timestamp,
) -> Result<Thread, ConversationError> {
    match stored_thread {
        Some(thread) if thread.agent_id != begin.agent_id => {
            Err(ConversationError::AgentMismatch { agent: thread.agent_id })
        }
        Some(thread) => Ok(Thread { version: thread.version + 1, ..thread }),
        None => {
            check_thread_count(&begin.key, thread_count)?;
            new_thread(&begin.key, begin.agent_id.clone(), &begin.new_thread, now)
        }
    }
}

/// Checks that the run's id is new, or that the run is queued in its process. Returns the queued run.
fn check_run_id(
    begin: &BeginRunRequest,
    used: Option<StoredRun>,
    has_thread: bool,
) -> Result<Option<Run>, ConversationError> {
    match (begin.order, used) {
        (BeginOrder::FromQueue, None) => Err(ConversationError::RunNotFound),
        (BeginOrder::FromQueue, Some(_)) if !has_thread => Err(ConversationError::RunNotFound),
        (BeginOrder::FromQueue, Some(StoredRun { run, process })) => {
            match run.state == RunState::Queued && process == begin.lease.process {
                true => Ok(Some(run)),
                false => Err(ConversationError::RunEnded { run: Box::new(run) }),
            }
        }
        (_, Some(used)) => Err(ConversationError::RunIdUsed { run: Box::new(used.run) }),
        (_, None) => Ok(None),
    }
}
