//! Queue of a thread in commits: its runs are named by the thread, in order.

use agent_core::ids::RunId;

use super::super::time::whole_millis;
use super::super::{
    ConversationError, MAX_QUEUED_RUNS, QueueRunRequest, Run, Thread, ThreadStatus, check_conversation_id,
};

/// Rows that the queueing of a run reads.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueueRows {
    /// The thread.
    pub thread: Option<Thread>,
    /// The owner's run of the same id.
    pub used_run: Option<Run>,
}

/// Rows that the queueing of a run writes.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueCommit {
    /// The thread.
    pub thread: Thread,
    /// The run.
    pub run: Run,
}

/// Queues a run; `None` if it need not wait.
///
/// # Errors
/// See [`Conversations::queue_run`](super::super::Conversations::queue_run).
pub fn queue_run(queue: &QueueRunRequest, rows: QueueRows) -> Result<Option<QueueCommit>, ConversationError> {
    queue.key.check()?;
    check_conversation_id("runId", &queue.run_id)?;
    if let Some(run) = rows.used_run {
        return Err(ConversationError::RunIdUsed { run: Box::new(run) });
    }
    let is_busy = |thread: &Thread| thread.active_run_id.is_some() || !thread.queued_run_ids.is_empty();
    let Some(mut thread) = rows.thread.filter(is_busy) else { return Ok(None) };
    if thread.agent_id != queue.agent_id {
        return Err(ConversationError::AgentMismatch { agent: thread.agent_id });
    }
    if thread.queued_run_ids.len() >= MAX_QUEUED_RUNS {
        return Err(ConversationError::QueueFull);
    }
    thread.queued_run_ids.push(queue.run_id.clone());
    thread.version += 1;
    let run = Run {
        trigger: queue.trigger.clone(),
        on_disconnect: queue.on_disconnect,
        grace_ms: queue.grace_ms,
        ..Run::queued(&queue.key, &queue.agent_id, &queue.run_id, whole_millis(queue.now))
    };
    Ok(Some(QueueCommit { thread, run }))
}

/// Removes a run from the queue of its thread.
pub(super) fn leave_queue(thread: &mut Thread, run: &RunId) {
    thread.queued_run_ids.retain(|queued| queued != run);
    if thread.active_run_id.is_none() && thread.status == ThreadStatus::Running {
        set_idle(thread);
    }
}

/// Sets the state of a thread without a run in progress and without open calls.
pub(super) fn set_idle(thread: &mut Thread) {
    thread.status = match thread.queued_run_ids.is_empty() {
        true => ThreadStatus::Idle,
        false => ThreadStatus::Running,
    };
}
