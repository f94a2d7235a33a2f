//! Nodes that a visitor sees in the visitor's thread.

use std::collections::HashMap;

use agent_core::ids::RunId;

use super::{
    ConversationError, Node, NodeId, NodeLink, NodeQuery, NodeRole, NodeSelection, Siblings, Thread,
    parse_number_cursor,
};

/// The nodes that a visitor sees in the visitor's thread, with their positions among each other.
#[derive(Debug, Default)]
pub struct VisitorNodes {
    /// The shown nodes, in the order in which they were stored.
    shown: Vec<ShownNode>,
    /// Index in `shown` of the closest shown node from each node to the root, itself included.
    closest: HashMap<NodeId, Option<usize>>,
    /// Number of shown nodes by their closest shown ancestor.
    counts: HashMap<Option<usize>, u32>,
}

/// A node that is shown.
#[derive(Debug)]
struct ShownNode {
    id: NodeId,
    /// Position in the thread.
    seq: u32,
    turn_id: RunId,
    is_user: bool,
    /// Index of the closest shown ancestor.
    ancestor: Option<usize>,
    /// Index among the nodes of the same ancestor.
    index: u32,
}

impl VisitorNodes {
    /// Selects the nodes of a thread that are shown. `links` has all its nodes, in the order in which they were stored.
    pub fn new(links: &[NodeLink]) -> Self {
        let mut nodes = Self::default();
        let mut closest: Vec<Option<usize>> = Vec::with_capacity(links.len());
        for (at, link) in links.iter().enumerate() {
            let parent = link.parent.and_then(|seq| NodeLink::index(&links[..at], seq));
            let ancestor = parent.and_then(|parent| closest[parent]);
            let is_shown = link.role.is_shown_to_visitors(link.origin);
            closest.push(if is_shown { Some(nodes.shown.len()) } else { ancestor });
            if is_shown {
                nodes.add(link, ancestor);
            }
        }
        nodes.closest = links.iter().map(|link| link.id.clone()).zip(closest).collect();
        nodes
    }

    fn add(&mut self, link: &NodeLink, ancestor: Option<usize>) {
        let count = self.counts.entry(ancestor).or_default();
        self.shown.push(ShownNode {
            id: link.id.clone(),
            seq: link.seq,
            turn_id: link.turn_id.clone(),
            is_user: link.role == NodeRole::User,
            ancestor,
            index: *count,
        });
        *count += 1;
    }

    /// Returns the positions in the thread of the nodes of a page, and the cursor of the next one. Sizes and cursors count the
    /// shown nodes alone. With `whole_turns`, a page ends with a whole turn and may be longer than the query asks for.
    ///
    /// # Errors
    /// See [`Conversations::nodes`](super::Conversations::nodes).
    pub fn page(
        &self,
        thread: &Thread,
        query: &NodeQuery,
        whole_turns: bool,
    ) -> Result<(Vec<u32>, Option<String>), ConversationError> {
        let last = |id: &NodeId| self.closest.get(id).copied().flatten();
        let selected: Vec<usize> = match &query.select {
            NodeSelection::Tree => (0..self.shown.len()).collect(),
            NodeSelection::Path { at: None } => self.path(thread.head.as_ref().and_then(last)),
            NodeSelection::Path { at: Some(id) } if self.closest.contains_key(id) => self.path(last(id)),
            NodeSelection::Path { at: Some(id) } => {
                return Err(ConversationError::NodeNotFound(id.to_string()));
            }
            NodeSelection::Positions(seqs) => {
                (0..self.shown.len()).filter(|at| seqs.binary_search(&self.shown[*at].seq).is_ok()).collect()
            }
        };
        let after = query.cursor.as_deref().map(parse_number_cursor).transpose()?;
        let is_before =
            |at: &usize| after.is_some_and(|after| i64::try_from(*at).is_ok_and(|at| at <= after));
        let start = selected.partition_point(is_before);
        let mut end = selected.len().min(start + query.page_size());
        while whole_turns && end > start && end < selected.len() {
            if !self.is_same_turn(selected[end - 1], selected[end]) {
                break;
            }
            end += 1;
        }
        let page = &selected[start..end];
        let last = page.last().filter(|_| end < selected.len());
        let seqs = page.iter().map(|at| self.shown[*at].seq).collect();
        Ok((seqs, last.map(|at| format!("{at:x}"))))
    }

    /// Returns the indices from the root to a shown node.
    fn path(&self, at: Option<usize>) -> Vec<usize> {
        let mut path: Vec<usize> = std::iter::successors(at, |at| self.shown[*at].ancestor).collect();
        path.reverse();
        path
    }

    /// Returns true if a shown node belongs to the answer of the one before it.
    fn is_same_turn(&self, before: usize, at: usize) -> bool {
        let (before, node) = (&self.shown[before], &self.shown[at]);
        !before.is_user && !node.is_user && before.turn_id == node.turn_id
    }

    /// Returns a node of the thread at its place; `None` if it is hidden.
    pub fn show(&self, node: Node) -> Option<Node> {
        let shown = &self.shown[(*self.closest.get(&node.id)?)?];
        if shown.id != node.id {
            return None;
        }
        let parent_id = shown.ancestor.map(|ancestor| self.shown[ancestor].id.clone());
        let siblings = Siblings { index: shown.index, count: self.counts[&shown.ancestor] };
        Some(Node { parent_id, siblings, ..node })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::tests::links;
    use super::super::{NodeOrigin, NodeRole};
    use super::*;

    #[test]
    fn shown_nodes_have_places_among_one_another() {
        // A question with three answers: the first by way of reasoning and a call, the second at once, the third as the client
        // has imported it. Then a conversation of the client as a root, whose last message is the visitor's.
        let mut links = links(&[None, Some(0), Some(1), Some(2), Some(3), Some(0), Some(0), None, Some(7)]);
        for (at, role, origin) in [
            (0, NodeRole::User, NodeOrigin::User),
            (1, NodeRole::Reasoning, NodeOrigin::Run),
            (2, NodeRole::Assistant, NodeOrigin::Run),
            (3, NodeRole::Tool, NodeOrigin::Run),
            (4, NodeRole::Assistant, NodeOrigin::Run),
            (5, NodeRole::Assistant, NodeOrigin::Run),
            (6, NodeRole::Assistant, NodeOrigin::Client),
            (7, NodeRole::User, NodeOrigin::Client),
            (8, NodeRole::User, NodeOrigin::User),
        ] {
            (links[at].role, links[at].origin) = (role, origin);
        }
        let nodes = VisitorNodes::new(&links);
        let place = |at: usize| {
            let shown = nodes.shown.iter().find(|shown| shown.seq as usize == at)?;
            let parent = shown.ancestor.map(|ancestor| nodes.shown[ancestor].id.as_str());
            Some((parent, shown.index, nodes.counts[&shown.ancestor]))
        };
        let expected = [
            Some((None, 0, 2)),
            None,
            Some((Some("0"), 0, 2)),
            None,
            Some((Some("2"), 0, 1)),
            Some((Some("0"), 1, 2)),
            None,
            None,
            Some((None, 1, 2)),
        ];
        for (at, expected) in expected.into_iter().enumerate() {
            assert_eq!(place(at), expected, "{at}");
        }
    }
}
