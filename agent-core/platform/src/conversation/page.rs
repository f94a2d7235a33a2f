//! Selection of the nodes of a page, shared by all stores.

use super::tree::{self, Tree};
use super::{
    ConversationError, ForkThreadRequest, NodeLink, NodePage, NodeQuery, NodeSelection, Siblings, StoredNode,
    Thread, parse_number_cursor,
};

/// Nodes that a page has: their positions in the thread, and their positions among their siblings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SelectedNodes {
    /// Positions in the order in which the thread's nodes were stored, ascending: parents come before their children.
    pub seqs: Vec<u32>,
    siblings: Vec<Siblings>,
    next_cursor: Option<String>,
}

/// Selects the nodes of a page from the identity of all nodes.
///
/// # Errors
/// See [`Conversations::nodes`](super::Conversations::nodes).
pub fn select_nodes(
    thread: &Thread,
    links: &[NodeLink],
    query: &NodeQuery,
) -> Result<SelectedNodes, ConversationError> {
    let tree = Tree::new(links);
    let selected: Vec<usize> = match &query.select {
        NodeSelection::Tree => (0..links.len()).collect(),
        NodeSelection::Path { at: None } => tree.path(thread.head.as_ref().and_then(|head| tree.find(head))),
        NodeSelection::Path { at: Some(id) } => {
            let at = tree.find(id).ok_or_else(|| ConversationError::NodeNotFound(id.to_string()))?;
            tree.path(Some(at))
        }
        NodeSelection::Positions(seqs) => {
            seqs.iter().filter_map(|seq| NodeLink::index(links, *seq)).collect()
        }
    };
    let after = query.cursor.as_deref().map(parse_number_cursor).transpose()?;
    let start = selected.partition_point(|at| after.is_some_and(|after| i64::from(links[*at].seq) <= after));
    let end = selected.len().min(start + query.page_size());
    let page = &selected[start..end];
    let siblings = tree.siblings();
    let last = page.last().filter(|_| end < selected.len());
    Ok(SelectedNodes {
        seqs: page.iter().map(|at| links[*at].seq).collect(),
        siblings: page.iter().map(|at| siblings[*at]).collect(),
        next_cursor: last.map(|at| format!("{:x}", links[*at].seq)),
    })
}

/// Returns the positions of the nodes that a copy of a thread has, root first.
///
/// # Errors
/// [`ConversationError::NodeNotFound`] if the last node does not exist.
pub fn path_to_fork(
    fork: &ForkThreadRequest,
    source: &Thread,
    links: &[NodeLink],
) -> Result<Vec<u32>, ConversationError> {
    let find = |id| tree::find(links, id);
    let at = match &fork.at {
        Some(id) => Some(find(id).ok_or_else(|| ConversationError::NodeNotFound(id.to_string()))?),
        None => source.head.as_ref().and_then(find),
    };
    Ok(tree::path_positions(links, at, &[]))
}

impl SelectedNodes {
    /// Builds the page. `nodes` are those of [`seqs`](Self::seqs), in their order.
    pub fn into_page(self, thread: Thread, nodes: Vec<StoredNode>) -> NodePage {
        let nodes = nodes.into_iter().zip(self.siblings).map(|(node, siblings)| node.into_node(siblings));
        NodePage { thread, nodes: nodes.collect(), next_cursor: self.next_cursor }
    }
}
