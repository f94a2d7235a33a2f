//! Merging of a request's messages into a thread's tree.
//!
//! Clients resend their history with each request: with the ids that they were given, with new ids, or without any. The
//! stored tree wins: elements of the list are recognized, and only new user messages and results of pending client-side
//! calls become nodes. The cost is linear in nodes and messages.
//!
//! - An element is *known* if its id is a node's, a client's or a turn's, or if its role and content equal those of a
//!   node at the position that the walk has reached. The walk begins at the root and prefers the path to the head.
//! - An unknown assistant or tool message stands for the answer that is stored at its position.
//! - User messages before the first known element are ignored; those after the last one are new.
//! - A known user message with other content is an edit: a sibling of the newest node with that id.
//! - If the list ends with a known user message, its answer is made again.
//! - If nothing is known, a list that is a whole conversation becomes a new root; one message alone, in the formats that
//!   send the next message only, is appended to the head.

use std::sync::Arc;

use agent_core::message::{Message, Role};

use super::tree;
use super::{ConversationError, NewNode, NodeId, NodeIds, NodeLink, NodeOrigin, NodeRole, RunTriggerKind};

mod choice;
mod request_format;
mod walk;

pub use request_format::{RequestFormat, UiTrigger};

use choice::Choice;
use walk::Walk;

/// Position of the new message, as the field `parentId` gives it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ParentChoice {
    /// No field: the position that the messages have in the tree.
    #[default]
    Unspecified,
    /// `null`: a new root.
    Root,
    /// Below this node.
    Node(NodeId),
}

/// A request's messages and the tree into which they are merged.
#[derive(Debug, Clone, Default)]
pub struct MergeInput<'l> {
    /// The thread's nodes, in the order in which they were stored; empty for a new thread.
    pub links: &'l [NodeLink],
    /// Positions of the nodes of any path of the thread, root first. The path of the prompt is found with less work if it has
    /// the same beginning.
    pub known_path: &'l [u32],
    /// Ids of the nodes. With them, an id that no node has is found out with less work.
    pub ids: Option<&'l NodeIds>,
    /// The thread's head.
    pub head: Option<NodeId>,
    /// The request's messages. Those that become nodes are copied.
    pub messages: Vec<Arc<Message>>,
    /// Format of the request.
    pub format: RequestFormat,
    /// Field `parentId`.
    pub parent: ParentChoice,
    /// Calls of client-side tools at the head that have no result.
    pub pending_calls: Vec<String>,
    /// True for a visitor of a widget, of whose unknown history only user messages are stored.
    pub is_visitor: bool,
}

/// Result of a merge.
#[derive(Debug, Clone, PartialEq)]
pub struct MergeResult {
    /// Messages with the role `system` or `developer`, which precede the path in this run's prompt and are not stored.
    pub instructions: Vec<Arc<Message>>,
    /// Positions of the stored nodes of the prompt, root first.
    pub path: Vec<u32>,
    /// Nodes to add, each below the one before; the first below the end of `path`.
    pub nodes: Vec<NewNode>,
    /// Node below which the answer goes: the last of `nodes`, or the end of `path`.
    pub parent_id: Option<NodeId>,
    /// Kind of the run.
    pub trigger: RunTriggerKind,
}

impl MergeResult {
    /// Returns the messages of the new nodes, as the prompt has them.
    pub(super) fn new_messages(&self) -> impl Iterator<Item = Arc<Message>> {
        self.nodes.iter().filter_map(|node| node.message.as_message()).cloned().map(Arc::new)
    }

    /// Returns the prompt's messages in a separate list: the plain form of [`LoadedThread::prompt`], with which tests
    /// compare it. `stored` has those of `path`.
    ///
    /// [`LoadedThread::prompt`]: super::LoadedThread::prompt
    #[cfg(test)]
    pub(super) fn prompt(&self, stored: impl IntoIterator<Item = Arc<Message>>) -> Vec<Arc<Message>> {
        self.instructions.iter().cloned().chain(stored).chain(self.new_messages()).collect()
    }
}

/// Merges a request's messages into a tree.
///
/// # Errors
/// [`ConversationError::NodeNotFound`] if `parent` names a node that does not exist, [`ConversationError::Invalid`] for
/// a new root without a message.
pub fn merge(input: MergeInput<'_>) -> Result<MergeResult, ConversationError> {
    let MergeInput { links, known_path, ids, head, messages, format, parent, pending_calls, is_visitor } =
        input;
    let is_instruction = |message: &Arc<Message>| matches!(message.role, Role::System | Role::Developer);
    let (instructions, messages): (Vec<_>, Vec<_>) = messages.into_iter().partition(is_instruction);
    let choice = if is_next_alone(links, ids, &messages, &format, &parent) {
        let head = head.and_then(|head| tree::find(links, &head));
        Choice::new(head, messages, RunTriggerKind::Chat)
    } else {
        let walk = Walk::new(links, head.as_ref(), pending_calls);
        match parent {
            ParentChoice::Unspecified => walk.place(messages, &format, is_visitor),
            ParentChoice::Root => walk.below(None, messages)?,
            ParentChoice::Node(id) => {
                let at =
                    walk.tree.find(&id).ok_or_else(|| ConversationError::NodeNotFound(id.to_string()))?;
                walk.below(Some(at), messages)?
            }
        }
    };
    let Choice { below, messages, origins, trigger } = choice;
    let end = below.map(|at| links[at].id.clone());
    let nodes = chain(end.clone(), messages.into_iter().map(Arc::unwrap_or_clone).zip(origins));
    let parent_id = nodes.last().map(|node| node.id.clone()).or(end);
    let path = tree::path_positions(links, below, known_path);
    Ok(MergeResult { instructions, path, nodes, parent_id, trigger })
}

/// Returns true for the next message alone, whose id is new: it goes below the head, and the walk that finds this out needs
/// tables of all nodes.
fn is_next_alone(
    links: &[NodeLink],
    ids: Option<&NodeIds>,
    messages: &[Arc<Message>],
    format: &RequestFormat,
    parent: &ParentChoice,
) -> bool {
    let [message] = messages else { return false };
    let edited = match format {
        RequestFormat::Message | RequestFormat::Messages => None,
        RequestFormat::UiMessages { trigger: UiTrigger::Submit, message_id } => message_id.as_deref(),
        RequestFormat::AgUi | RequestFormat::UiMessages { .. } => return false,
    };
    message.role == Role::User
        && *parent == ParentChoice::Unspecified
        && [message.id.as_deref(), edited].into_iter().flatten().all(|id| !is_known(links, ids, id))
}

/// Returns true if a node has this id, or had it at the client.
fn is_known(links: &[NodeLink], ids: Option<&NodeIds>, id: &str) -> bool {
    ids.is_none_or(|ids| ids.may_have(links, id))
        && links.iter().any(|link| link.id.as_str() == id || link.client_id.as_deref() == Some(id))
}

/// Continues the path to a node with new messages of the owner, for a run whose tool calls have waited for decisions.
/// `known_path` is that of [`MergeInput`].
///
/// # Errors
/// [`ConversationError::NodeNotFound`] if there is no such node.
pub fn continue_head(
    links: &[NodeLink],
    known_path: &[u32],
    head: &NodeId,
    messages: Vec<Arc<Message>>,
) -> Result<MergeResult, ConversationError> {
    let at = tree::find(links, head).ok_or_else(|| ConversationError::NodeNotFound(head.to_string()))?;
    let is_new = |message: &Arc<Message>| message.id.as_deref().is_none_or(|id| !is_known(links, None, id));
    let new: Vec<Arc<Message>> = messages.into_iter().filter(is_new).collect();
    let Choice { messages, origins, .. } = Choice::new(Some(at), new, RunTriggerKind::Resume);
    let nodes = chain(Some(head.clone()), messages.into_iter().map(Arc::unwrap_or_clone).zip(origins));
    let parent_id = nodes.last().map_or_else(|| head.clone(), |node| node.id.clone());
    Ok(MergeResult {
        instructions: Vec::new(),
        path: tree::path_positions(links, Some(at), known_path),
        nodes,
        parent_id: Some(parent_id),
        trigger: RunTriggerKind::Resume,
    })
}

/// Appends the new messages of a request that was queued to the head. `queued` is the merge of the request when it was queued,
/// whose messages were new below the head of then. Messages that were stored meanwhile by the runs before are left out, except
/// for the last one. `None` if the head of then is not on the path to the head any more: another branch is shown. `known_path`
/// is that of [`MergeInput`].
pub fn append_queued(
    links: &[NodeLink],
    known_path: &[u32],
    head: Option<&NodeId>,
    queued: &MergeResult,
) -> Option<MergeResult> {
    let at = match head {
        Some(head) => Some(tree::find(links, head)?),
        None => None,
    };
    let path = tree::path_positions(links, at, known_path);
    let before = match queued.path.last() {
        Some(last) => path.binary_search(last).ok()? + 1,
        None => 0,
    };
    let user_links = path[before..].iter().filter_map(|seq| NodeLink::find(links, *seq));
    let user_links = user_links.filter(|link| link.role == NodeRole::User);
    let is_stored = |node: &NewNode, link: &NodeLink| {
        link.id == node.id
            || (link.client_id.is_some() && link.client_id == node.client_id)
            || link.hash == node.message.hash()
    };
    let mut nodes = queued.nodes.clone();
    for link in user_links {
        if nodes.len() > 1 && is_stored(&nodes[0], link) {
            nodes.remove(0);
        }
    }
    if let Some(first) = nodes.first_mut() {
        first.parent_id = head.cloned();
    }
    let parent_id = nodes.last().map(|node| node.id.clone()).or_else(|| head.cloned());
    let (instructions, trigger) = (queued.instructions.clone(), queued.trigger);
    Some(MergeResult { instructions, path, nodes, parent_id, trigger })
}

/// Returns nodes for messages that the client imports, each below the one before. Instructions are left out.
pub fn import_nodes(parent: Option<NodeId>, messages: Vec<Message>) -> Vec<NewNode> {
    let imported =
        messages.into_iter().filter(|message| !matches!(message.role, Role::System | Role::Developer));
    chain(parent, imported.map(|message| (message, NodeOrigin::Client)))
}

fn chain(parent: Option<NodeId>, messages: impl IntoIterator<Item = (Message, NodeOrigin)>) -> Vec<NewNode> {
    let mut parent = parent;
    let node = |(message, origin)| {
        let node = NewNode { origin, ..NewNode::user(parent.take(), message) };
        parent = Some(node.id.clone());
        node
    };
    messages.into_iter().map(node).collect()
}

#[cfg(test)]
mod tests;
