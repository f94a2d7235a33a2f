//! Erasure of messages and deletion of threads: what is left of a node, its thread and its run.

use super::super::{
    Approval, ContentHash, NodeMessage, NodeStatus, Run, RunEvents, StoredNode, Thread, TitleSource, title,
};

/// Returns a run without its log, and without data of its messages.
pub fn erase_run(mut run: Run) -> Run {
    run.events = RunEvents::default();
    // It has hashes of short texts.
    run.prompt = None;
    run.approvals.iter_mut().for_each(Approval::erase);
    run
}

/// Erases a node's content. `others` are the thread's other user messages in the order in which they were stored, from
/// which a title is made again. Returns the thread and the node, or `None` if it is erased already.
pub fn erase_node<'m>(
    mut thread: Thread,
    mut node: StoredNode,
    others: impl IntoIterator<Item = &'m NodeMessage>,
) -> Option<(Thread, StoredNode)> {
    if node.link.status == NodeStatus::Deleted {
        return None;
    }
    node.message = node.message.erased();
    node.link.status = NodeStatus::Deleted;
    node.feedback = None;
    // The hash would tell a short text to an attacker who tries all of them.
    node.link.hash = ContentHash::default();
    if thread.title_from == TitleSource::Message {
        thread.title = title(others);
    }
    thread.version += 1;
    Some((thread, node))
}

/// Returns a thread whose nodes or logs are deleted in several commits, after one of them that is not the last.
pub fn delete_part(mut thread: Thread) -> Thread {
    thread.version += 1;
    thread
}
