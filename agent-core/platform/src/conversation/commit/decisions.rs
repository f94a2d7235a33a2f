//! Decisions about tool calls in commits: the calls that a run asks about, their results, and changes of a run that waits.

use agent_core::event::RunOutcome;
use agent_core::message::{Message, ToolCall};
use jiff::Timestamp;

use super::super::time::whole_millis;
use super::super::{
    Approval, ApprovalState, BeginRunRequest, CallExecution, CancelReason, ChangeRunRequest,
    ConversationError, NewNode, NodeId, NodeOrigin, ReissueInterruptsRequest, Run, RunChange, RunState,
    RunStep, StoredNode, Thread, ThreadStatus, check_conversation_id,
};
use super::queue::set_idle;
use super::{KnownNodes, Placement, StoredRun, apply_nodes};

/// Applies the decisions of a run that begins to the run that it continues.
pub(super) fn continue_run(
    mut run: Run,
    begin: &BeginRunRequest,
    now: Timestamp,
) -> Result<Run, ConversationError> {
    if run.continued_by.is_some() {
        return Err(ConversationError::RunEnded { run: Box::new(run) });
    }
    for decision in &begin.decisions {
        approval_mut(&mut run, &decision.approval)?.decide(decision, now)?;
    }
    if run.state == RunState::Waiting {
        run = run.at(now);
        if run.is_undecided() {
            return Err(ConversationError::InterruptsOpen { run: Box::new(run) });
        }
        run = run
            .step(RunStep::Continue, now)
            .map_err(|error| ConversationError::Invalid(error.to_string()))?;
    }
    run.continued_by = Some(begin.run_id.clone());
    Ok(run)
}

fn approval_mut<'r>(run: &'r mut Run, id: &str) -> Result<&'r mut Approval, ConversationError> {
    run.approvals.iter_mut().find(|approval| approval.id == id).ok_or(ConversationError::ApprovalNotFound)
}

/// Returns the approvals that a run asks for at its end.
pub(super) fn approvals(run: &Run, nodes: &[NewNode], now: Timestamp) -> Vec<Approval> {
    let Some(RunOutcome::Interrupt { interrupts, .. }) = &run.outcome else { return Vec::new() };
    let calls: Vec<&ToolCall> = nodes
        .iter()
        .filter_map(|node| node.message.as_message())
        .flat_map(|message| &message.tool_calls)
        .collect();
    interrupts.iter().filter_map(|interrupt| Approval::from_interrupt(interrupt, run, &calls, now)).collect()
}

/// Records which calls of the continued run have results, and adds results for the others.
pub(super) fn complete_calls(continued: &mut Run, run: &Run, nodes: &mut Vec<NewNode>) {
    for approval in &mut continued.approvals {
        let is_result = |message: &Message| message.tool_call_id.as_deref() == Some(&*approval.tool_call_id);
        if nodes.iter().filter_map(|node| node.message.as_message()).any(is_result) {
            if approval.executed == CallExecution::Begun {
                approval.executed = CallExecution::Done;
            }
            continue;
        }
        let parent_id = nodes.last().map(|node| node.id.clone()).or_else(|| run.parent_id.clone());
        let result = Message::tool_result(&*approval.tool_call_id, approval.refusal());
        nodes.push(NewNode { origin: NodeOrigin::Run, ..NewNode::user(parent_id, result) });
    }
}

/// Rows that a change of a run reads.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangeRows {
    /// The run.
    pub run: Run,
    /// The run that continues it.
    pub continuing: Option<StoredRun>,
    /// Thread of the run.
    pub thread: Thread,
    /// Node of [`last_node`].
    pub known: KnownNodes,
    /// The owner's run of the id of [`added_run`].
    pub used_run: Option<Run>,
}

/// Returns the run that a change adds; `None` for a change that adds none.
pub fn added_run(change: &ChangeRunRequest) -> Option<&ReissueInterruptsRequest> {
    match &change.change {
        RunChange::ReissueInterrupts(reissue) => Some(&**reissue),
        _ => None,
    }
}

/// Returns the node below which a change adds others; `None` for a change that adds none.
pub fn last_node<'r>(change: &ChangeRunRequest, run: &'r Run) -> Option<&'r NodeId> {
    match &change.change {
        RunChange::Expire => run.node_ids.last().filter(|_| run.has_expired(whole_millis(change.now))),
        RunChange::AddResults(_) => run.node_ids.last().filter(|_| run.state == RunState::Waiting),
        _ => None,
    }
}

/// Rows that a change of a run writes.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangeCommit {
    /// The thread.
    pub thread: Thread,
    /// The run.
    pub run: Run,
    /// New nodes.
    pub nodes: Vec<StoredNode>,
    /// The run of [`added_run`].
    pub added: Option<StoredRun>,
    /// True if the run differs from the one that was read.
    pub is_changed: bool,
}

/// Changes a run that waits or has waited for decisions.
///
/// # Errors
/// See [`Conversations::change_run`](super::super::Conversations::change_run).
pub fn change_run(change: &ChangeRunRequest, rows: ChangeRows) -> Result<ChangeCommit, ConversationError> {
    let ChangeRows { mut run, continuing, mut thread, known, used_run } = rows;
    let (now, before) = (whole_millis(change.now), run.clone());
    let (mut nodes, mut added) = (Vec::new(), None);
    match &change.change {
        RunChange::Decide(decision) => approval_mut(&mut run, &decision.approval)?.decide(decision, now)?,
        RunChange::BeginCall { approval, by, process } => {
            let has_run = |found: &StoredRun| {
                found.run.id == *by && found.run.state == RunState::Running && found.process == *process
            };
            let approval = approval_mut(&mut run, approval)?;
            let is_due = approval.state == ApprovalState::Approved && approval.executed == CallExecution::No;
            if !is_due || !continuing.as_ref().is_some_and(has_run) {
                return Err(ConversationError::CallRefused);
            }
            approval.executed = CallExecution::Begun;
        }
        RunChange::AddResults(_) if run.state != RunState::Waiting => {}
        RunChange::AddResults(results) => {
            (thread, run, nodes) = add_results(thread, run, known, results, now)?;
        }
        RunChange::CancelWaiting(_) if run.state != RunState::Waiting => {}
        RunChange::CancelWaiting(reason) => {
            run = cancel_waiting(run, *reason, now)?;
            if thread.open_run_id.as_ref() == Some(&run.id) {
                thread.open_run_id = None;
                set_idle(&mut thread);
                thread.version += 1;
            }
        }
        RunChange::Expire if !run.has_expired(now) => {}
        RunChange::Expire => (thread, run, nodes) = expire(thread, run, known, now)?,
        RunChange::ReissueInterrupts(reissue) => {
            added = Some(reissue_interrupts(change, &run, reissue, used_run, now)?);
        }
    }
    let is_changed = run != before;
    Ok(ChangeCommit { thread, run, nodes, added, is_changed })
}

/// Cancels a run that waits, and its open questions.
pub(super) fn cancel_waiting(
    mut run: Run,
    reason: CancelReason,
    now: Timestamp,
) -> Result<Run, ConversationError> {
    for approval in run.approvals.iter_mut().filter(|approval| approval.state == ApprovalState::Open) {
        approval.state = ApprovalState::Cancelled;
    }
    let step = run.step(RunStep::Cancel(reason), now);
    step.map_err(|error| ConversationError::Invalid(error.to_string()))
}

/// Returns a run that has ended with the questions of `run`. They stay those of `run`, which waits.
fn reissue_interrupts(
    change: &ChangeRunRequest,
    run: &Run,
    reissue: &ReissueInterruptsRequest,
    used: Option<Run>,
    now: Timestamp,
) -> Result<StoredRun, ConversationError> {
    check_conversation_id("runId", &reissue.run_id)?;
    if let Some(used) = used {
        return Err(ConversationError::RunIdUsed { run: Box::new(used) });
    }
    let key = change.run.owner.thread(run.thread_id.clone());
    let reissued = Run {
        turn_id: run.turn_id.clone(),
        state: RunState::Completed,
        trigger: reissue.trigger.clone(),
        parent_id: run.node_ids.last().cloned(),
        continues: Some(run.id.clone()),
        events: reissue.log.log_state(),
        outcome: Some(reissue.outcome.clone()),
        started_at: Some(now),
        ended_at: Some(now),
        ..Run::queued(&key, &run.agent_id, &reissue.run_id, now)
    };
    Ok(StoredRun { run: reissued, process: reissue.process.clone() })
}

/// Adds results of the client's calls to a run that waits for decisions. The first result of a call counts.
fn add_results(
    mut thread: Thread,
    mut run: Run,
    known: KnownNodes,
    results: &[NewNode],
    now: Timestamp,
) -> Result<(Thread, Run, Vec<StoredNode>), ConversationError> {
    let mut parent = run.node_ids.last().cloned();
    let mut new = Vec::new();
    for result in results {
        let message = result.message.as_message();
        let call = message.and_then(|message| message.tool_call_id.as_deref());
        if call.is_some_and(|call| run.complete_client_call(call)) {
            let parent_id = parent.replace(result.id.clone());
            new.push(NewNode { parent_id, ..result.clone() });
        }
    }
    if new.is_empty() {
        return Ok((thread, run, Vec::new()));
    }
    let mut placement = Placement::new(&thread, known, now);
    placement.run = Some((run.turn_id.clone(), run.id.clone()));
    let nodes = placement.add_all(new, true)?;
    add_below(&mut thread, &mut run, &nodes, now);
    thread.version += 1;
    Ok((thread, run, nodes))
}

/// Records nodes that were added below the messages of a run. Another branch that is shown stays so.
fn add_below(thread: &mut Thread, run: &mut Run, nodes: &[StoredNode], last_activity: Timestamp) {
    let (head, last) = (thread.head.clone(), run.node_ids.last().cloned());
    run.node_ids.extend(nodes.iter().map(|node| node.link.id.clone()));
    apply_nodes(thread, nodes, last_activity);
    if head != last {
        thread.head = head;
    }
}

/// Ends a run whose decisions were not made in time. The thread's last activity stays.
fn expire(
    mut thread: Thread,
    run: Run,
    known: KnownNodes,
    now: Timestamp,
) -> Result<(Thread, Run, Vec<StoredNode>), ConversationError> {
    let run = run.at(now).step(RunStep::Continue, now);
    let mut run = run.map_err(|error| ConversationError::Invalid(error.to_string()))?;
    let mut parent = run.node_ids.last().cloned();
    let result = |approval: &Approval| {
        let message = Message::tool_result(&*approval.tool_call_id, approval.refusal());
        let node = NewNode { origin: NodeOrigin::Run, ..NewNode::user(parent.take(), message) };
        parent = Some(node.id.clone());
        node
    };
    let results = run.approvals.iter().map(result).collect();
    let mut placement = Placement::new(&thread, known, now);
    placement.run = Some((run.turn_id.clone(), run.id.clone()));
    let nodes = placement.add_all(results, false)?;
    let last_activity = thread.last_activity_at;
    add_below(&mut thread, &mut run, &nodes, last_activity);
    if thread.open_run_id.as_ref() == Some(&run.id) {
        let awaits_client = !run.pending_calls().is_empty();
        thread.open_run_id = awaits_client.then(|| run.id.clone());
        match awaits_client {
            true => thread.status = ThreadStatus::AwaitingTools,
            false => set_idle(&mut thread),
        }
    }
    thread.version += 1;
    Ok((thread, run, nodes))
}
