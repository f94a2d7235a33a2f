//! The message tree of a thread: paths, siblings and branches. All functions are linear in the number of nodes and use
//! no recursion: parents are stored before their children.

use std::collections::HashMap;

use super::{NodeId, NodeLink, Siblings};

#[cfg(test)]
thread_local! {
    /// Number of nodes whose parent this thread has looked up.
    pub(super) static FOLLOWED_PARENTS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Returns the index of the node with this id. Ids that are looked up are mostly those of the newest nodes.
pub(super) fn find(links: &[NodeLink], id: &NodeId) -> Option<usize> {
    links.iter().rposition(|link| link.id == *id)
}

/// Returns the index of the parent of the node at an index.
fn parent(links: &[NodeLink], at: usize) -> Option<usize> {
    #[cfg(test)]
    FOLLOWED_PARENTS.set(FOLLOWED_PARENTS.get() + 1);
    NodeLink::index(&links[..at], links[at].parent?)
}

/// Returns the positions in the thread of the nodes from the root to the one at an index. `known` has those of another path of
/// the thread; what both have in common is copied instead of followed. Builds no [`Tree`].
pub(super) fn path_positions(links: &[NodeLink], at: Option<usize>, known: &[u32]) -> Vec<u32> {
    let (mut next, mut known, mut own) = (at, known, Vec::new());
    while let Some(at) = next {
        let seq = links[at].seq;
        // The positions of a path ascend.
        while known.last().is_some_and(|last| *last > seq) {
            known = &known[..known.len() - 1];
        }
        if known.last() == Some(&seq) {
            break;
        }
        own.push(seq);
        next = parent(links, at);
    }
    if next.is_none() {
        known = &[];
    }
    let mut path = Vec::with_capacity(known.len() + own.len());
    path.extend_from_slice(known);
    path.extend(own.into_iter().rev());
    path
}

/// Returns the newest leaf of the branch of a node, or the node itself; `None` if the node does not exist.
pub(super) fn branch_leaf(links: &[NodeLink], id: &NodeId) -> Option<NodeId> {
    let tree = Tree::new(links);
    tree.find(id).map(|at| links[tree.newest_leaf(at)].id.clone())
}

/// Index of a thread's tree. Nodes are named by their index in the list of links.
#[derive(Debug)]
pub(super) struct Tree<'l> {
    links: &'l [NodeLink],
    /// Index of the parent.
    parents: Vec<Option<usize>>,
    /// Child on the way to the newest leaf.
    newest_child: Vec<Option<usize>>,
    newest_root: Option<usize>,
}

impl<'l> Tree<'l> {
    /// Builds the index of links in the order in which they were stored.
    pub(super) fn new(links: &'l [NodeLink]) -> Self {
        let parents: Vec<Option<usize>> = (0..links.len()).map(|at| parent(links, at)).collect();
        let mut newest: Vec<usize> = (0..links.len()).collect();
        let (mut newest_child, mut newest_root) = (vec![None; links.len()], None);
        for at in (0..links.len()).rev() {
            match parents[at] {
                Some(parent) if newest_child[parent].is_none() || newest[at] > newest[parent] => {
                    newest_child[parent] = Some(at);
                    newest[parent] = newest[at];
                }
                None if newest_root.is_none_or(|root: usize| newest[at] > newest[root]) => {
                    newest_root = Some(at)
                }
                _ => {}
            }
        }
        Self { links, parents, newest_child, newest_root }
    }

    /// Returns the links.
    pub(super) fn links(&self) -> &'l [NodeLink] {
        self.links
    }

    /// Returns the index of the node with this id.
    pub(super) fn find(&self, id: &NodeId) -> Option<usize> {
        find(self.links, id)
    }

    /// Returns the parent's index.
    pub(super) fn parent(&self, at: usize) -> Option<usize> {
        self.parents[at]
    }

    /// Returns the child of a node, or the root, on the way to the newest leaf.
    pub(super) fn newest_child(&self, of: Option<usize>) -> Option<usize> {
        of.map_or(self.newest_root, |at| self.newest_child[at])
    }

    /// Returns the newest leaf below a node, or the node itself.
    pub(super) fn newest_leaf(&self, mut at: usize) -> usize {
        while let Some(child) = self.newest_child[at] {
            at = child;
        }
        at
    }

    /// Returns the indices from the root to a node.
    pub(super) fn path(&self, at: Option<usize>) -> Vec<usize> {
        let mut path: Vec<usize> = std::iter::successors(at, |at| self.parents[*at]).collect();
        path.reverse();
        path
    }

    /// Returns the position of each node among its siblings.
    pub(super) fn siblings(&self) -> Vec<Siblings> {
        let mut counts: HashMap<Option<usize>, u32> = HashMap::with_capacity(self.links.len());
        let index = |at: usize| {
            let count = counts.entry(self.parents[at]).or_default();
            *count += 1;
            *count - 1
        };
        let indices: Vec<u32> = (0..self.links.len()).map(index).collect();
        let siblings = |(at, index)| Siblings { index, count: counts[&self.parents[at]] };
        indices.into_iter().enumerate().map(siblings).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use crate::conversation::{ContentHash, NodeOrigin, NodeRole, NodeStatus};

    use super::*;

    /// Returns links of nodes with these parents, named by their positions.
    pub(in super::super) fn links(parents: &[Option<u32>]) -> Vec<NodeLink> {
        let link = |(seq, parent): (usize, &Option<u32>)| NodeLink {
            seq: seq as u32,
            parent: *parent,
            id: seq.to_string().into(),
            client_id: None,
            turn_id: seq.to_string().into(),
            role: NodeRole::User,
            status: NodeStatus::Complete,
            origin: NodeOrigin::default(),
            hash: ContentHash::default(),
        };
        parents.iter().enumerate().map(link).collect()
    }

    #[test]
    fn paths_leaves_and_siblings_follow_the_parents() {
        // 0 ─ 1 ─ 2, 0 ─ 3 ─ 5, 4 is a second root; 6 is below 2.
        let links = links(&[None, Some(0), Some(1), Some(0), None, Some(3), Some(2)]);
        let tree = Tree::new(&links);
        assert_eq!(tree.path(Some(6)), [0, 1, 2, 6]);
        assert_eq!(tree.path(None), [0; 0]);
        for at in (0..links.len()).map(Some).chain([None]) {
            let path: Vec<u32> = tree.path(at).into_iter().map(|at| links[at].seq).collect();
            for known in (0..links.len()).map(Some).chain([None]) {
                let known: Vec<u32> = tree.path(known).into_iter().map(|at| links[at].seq).collect();
                assert_eq!(path_positions(&links, at, &known), path, "{known:?} without the index");
            }
        }
        assert_eq!(tree.newest_leaf(0), 6, "the leaf that was stored last");
        assert_eq!(tree.newest_leaf(3), 5);
        assert_eq!(branch_leaf(&links, &"1".into()), Some("6".into()));
        assert_eq!(branch_leaf(&links, &"7".into()), None);
        assert_eq!(tree.newest_child(None), Some(0), "the root of the newest leaf");
        let siblings: Vec<(u32, u32)> =
            tree.siblings().iter().map(|siblings| (siblings.index, siblings.count)).collect();
        assert_eq!(siblings, [(0, 2), (0, 2), (0, 1), (1, 2), (1, 2), (0, 1), (0, 1)]);
        assert_eq!(tree.find(&"4".into()), Some(4));
        assert_eq!(tree.find(&"7".into()), None);
    }

    #[test]
    fn nodes_are_found_by_their_positions_in_a_part_of_a_thread_too() {
        let links = links(&[None, Some(0), Some(1), Some(2)]);
        for from in 0..3 {
            let found = |seq| NodeLink::find(&links[from..], seq).map(|link| link.seq as usize);
            let expected = |seq: u32| Some(seq as usize).filter(|seq| (from..4).contains(seq));
            assert_eq!([0, 1, 2, 3, 4].map(found), [0, 1, 2, 3, 4].map(expected), "from {from}");
        }
    }

    #[test]
    fn a_chain_of_ten_thousand_nodes_needs_no_stack() {
        let parents: Vec<Option<u32>> = (0..10_000).map(|seq: u32| seq.checked_sub(1)).collect();
        let links = links(&parents);
        let tree = Tree::new(&links);
        assert_eq!(tree.newest_leaf(0), 9_999);
        assert_eq!(tree.path(Some(9_999)).len(), 10_000);
        let known = path_positions(&links[..9_998], Some(9_997), &[]);
        FOLLOWED_PARENTS.set(0);
        assert_eq!(path_positions(&links, Some(9_999), &known).len(), 10_000);
        assert_eq!(FOLLOWED_PARENTS.get(), 2, "the nodes that the known path lacks");
        assert_eq!(tree.siblings().len(), 10_000);
    }
}
