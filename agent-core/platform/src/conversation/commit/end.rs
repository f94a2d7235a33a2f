//! Ends of runs in commits.

use super::super::time::whole_millis;
use super::super::{
    CancelReason, ConversationError, EndRunRequest, Run, RunRecord, RunState, RunStep, StoredNode, Thread,
    ThreadStatus,
};
use super::decisions::{approvals, cancel_waiting, complete_calls};
use super::queue::{leave_queue, set_idle};
use super::{KnownNodes, Placement, StoredRun, apply_nodes};

/// Rows that the end of a run reads.
#[derive(Debug, Clone, PartialEq)]
pub struct EndRows {
    /// The run.
    pub run: StoredRun,
    /// The run that it continues.
    pub continued: Option<Run>,
    /// Thread of the run.
    pub thread: Thread,
    /// Nodes of [`referenced_ids`](super::referenced_ids).
    pub known: KnownNodes,
    /// Reason of the signal that the process of the run has to cancel it. Read for a run that may come to wait for decisions.
    pub cancel: Option<CancelReason>,
}

/// Rows that the end of a run writes.
#[derive(Debug, Clone, PartialEq)]
pub struct EndCommit {
    /// The thread.
    pub thread: Thread,
    /// New nodes.
    pub nodes: Vec<StoredNode>,
    /// The run.
    pub run: Run,
    /// The run that it continues.
    pub continued: Option<Run>,
}

/// Ends a run. The answer is stored even if it exceeds the thread's limits.
///
/// # Errors
/// See [`Conversations::end_run`](super::super::Conversations::end_run).
pub fn end_run(end: &EndRunRequest, rows: EndRows) -> Result<EndCommit, ConversationError> {
    let EndRows { run: StoredRun { run, process }, mut continued, mut thread, known, cancel } = rows;
    let now = whole_millis(end.now);
    if process != end.process {
        return Err(ConversationError::RunEnded { run: Box::new(run) });
    }
    let mut run = match run.clone().step(RunStep::End(end.ending.clone()), now) {
        Ok(ended) => ended,
        Err(_) => return Err(ConversationError::RunEnded { run: Box::new(run) }),
    };
    let mut placement = Placement::new(&thread, known, now);
    placement.run = Some((run.turn_id.clone(), run.id.clone()));
    let mut nodes = end.nodes.clone();
    if let Some(continued) = &mut continued {
        complete_calls(continued, &run, &mut nodes);
    }
    run.approvals = approvals(&run, &nodes, now);
    // The request was accepted while the run was live, so the run must not wait.
    if let Some(reason) = cancel.filter(|_| run.state == RunState::Waiting) {
        run = cancel_waiting(run, reason, now)?;
    }
    let nodes = placement.add_all(nodes, false)?;
    run.node_ids.extend(nodes.iter().map(|node| node.link.id.clone()));
    run.request_sha256 = end.request_sha256.clone().or(run.request_sha256);
    run.backend = end.backend.clone().or(run.backend);
    RunRecord { timing: run.timing, selection: run.selection, prompt: run.prompt, attempts: run.attempts } =
        end.record.clone();
    run.events = end.log.log_state();
    thread.version += 1;
    apply_nodes(&mut thread, &nodes, now);
    free(&mut thread, &run);
    Ok(EndCommit { thread, nodes, run, continued })
}

/// Frees the thread of a run that has ended.
fn free(thread: &mut Thread, run: &Run) {
    leave_queue(thread, &run.id);
    if thread.active_run_id.as_ref() != Some(&run.id) {
        return;
    }
    thread.active_run_id = None;
    thread.open_run_id = None;
    match (run.state, run.pending_calls().is_empty()) {
        (RunState::Waiting, _) => thread.status = ThreadStatus::Waiting,
        (RunState::Completed, false) => thread.status = ThreadStatus::AwaitingTools,
        _ => return set_idle(thread),
    }
    thread.open_run_id = Some(run.id.clone());
}
