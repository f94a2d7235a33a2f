//! Erasure of messages and deletion of threads: the remainders of a node, its thread and its run.

use agent_core::event::RunOutcome;
use agent_core::message::ToolCall;

use super::super::{
    Approval, ContentHash, NodeMessage, NodeStatus, Run, RunLogState, StoredNode, Thread, ThreadStatus,
    TitleSource, title,
};
use super::queue::set_idle;

/// Rows that the erasure of a node writes.
#[derive(Debug)]
pub struct EraseCommit {
    /// The thread.
    pub thread: Thread,
    /// The node without its content.
    pub node: StoredNode,
    /// The node's run without its log, if it has ended.
    pub run: Option<Run>,
}

/// Returns a run without its log, and without data of its messages.
fn erase_run(mut run: Run) -> Run {
    run.events = RunLogState::default();
    // It has hashes of short texts.
    run.prompt = None;
    run.approvals.iter_mut().for_each(Approval::erase);
    run
}

/// Removes calls from the run's pending calls of the client.
fn drop_pending_calls(run: &mut Run, calls: &[ToolCall]) {
    if let Some(
        RunOutcome::Success { pending_tool_call_ids } | RunOutcome::Interrupt { pending_tool_call_ids, .. },
    ) = &mut run.outcome
    {
        pending_tool_call_ids.retain(|id| !calls.iter().any(|call| call.id == **id));
    }
}

/// Erases a node's content. `others` are the thread's other user messages, oldest first, from which the title is derived again;
/// `run` is the node's run. The run no longer waits for the client if the client has no other calls of the run to execute. Returns `None`
/// if the node is erased already.
pub fn erase_node<'m>(
    mut thread: Thread,
    mut node: StoredNode,
    others: impl IntoIterator<Item = &'m NodeMessage>,
    run: Option<Run>,
) -> Option<EraseCommit> {
    if node.link.status == NodeStatus::Deleted {
        return None;
    }
    // The log of a live run has nothing of its user's messages, and continues.
    let mut run = run.filter(|run| !run.state.is_live());
    if let Some((run, message)) = run.as_mut().zip(node.message.as_message()) {
        drop_pending_calls(run, &message.tool_calls);
        let is_open = thread.open_run_id.as_ref() == Some(&run.id);
        if is_open && thread.status == ThreadStatus::AwaitingTools && run.pending_calls().is_empty() {
            thread.open_run_id = None;
            set_idle(&mut thread);
        }
    }
    node.message = node.message.erased();
    node.link.status = NodeStatus::Deleted;
    node.feedback = None;
    // An attacker could find a short text by hashing all candidates.
    node.link.hash = ContentHash::default();
    if thread.title_from == TitleSource::Message {
        thread.title = title(others);
    }
    thread.version += 1;
    Some(EraseCommit { thread, node, run: run.map(erase_run) })
}

/// Returns the thread after a commit of its deletion that is not the last one.
pub fn delete_part(mut thread: Thread) -> Thread {
    thread.version += 1;
    thread
}
