//! Ratings of messages.

use super::super::time::whole_millis;
use super::super::{ConversationError, Feedback, NodeStatus, StoredNode, Thread, ThreadOwner};

/// Sets or removes the feedback on a node. Returns the thread and the node, or `None` if nothing changes.
///
/// # Errors
/// See [`Conversations::set_feedback`](super::super::Conversations::set_feedback).
pub fn rate_node(
    owner: &ThreadOwner,
    mut thread: Thread,
    mut node: StoredNode,
    feedback: Option<Feedback>,
) -> Result<Option<(Thread, StoredNode)>, ConversationError> {
    let is_hidden = owner.is_visitor() && !node.is_shown_to_visitors();
    if is_hidden || node.link.status == NodeStatus::Deleted {
        return Err(ConversationError::NodeNotFound(node.link.id.to_string()));
    }
    let whole = |feedback: Feedback| Feedback { created_at: whole_millis(feedback.created_at), ..feedback };
    let feedback = feedback.map(whole);
    if let Some(feedback) = &feedback {
        feedback.check()?;
    }
    if node.feedback == feedback {
        return Ok(None);
    }
    node.feedback = feedback;
    thread.version += 1;
    Ok(Some((thread, node)))
}
