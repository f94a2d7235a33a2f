//! Nodes that a visitor sees in an own thread.

use std::collections::HashMap;

use super::{Node, NodeId, NodeLink, Siblings};

/// The nodes that a visitor sees in an own thread, at the places that they would have if there were no others.
#[derive(Debug, Default)]
pub struct VisitorNodes {
    places: HashMap<NodeId, VisitorPlace>,
}

/// Place of a node in the tree of the shown nodes.
#[derive(Debug, Default, PartialEq, Eq)]
struct VisitorPlace {
    /// Closest ancestor that is shown.
    parent_id: Option<NodeId>,
    /// Position among the nodes with the same closest ancestor.
    siblings: Siblings,
}

impl VisitorNodes {
    /// Selects the nodes of a thread that are shown. `links` has all its nodes, in the order in which they were stored.
    pub fn new(links: &[NodeLink]) -> Self {
        // Index of the closest shown node from each node to the root, itself included.
        let mut closest: Vec<Option<usize>> = Vec::with_capacity(links.len());
        let mut counts: HashMap<Option<usize>, u32> = HashMap::new();
        let mut shown = Vec::new();
        for (at, link) in links.iter().enumerate() {
            let parent = link.parent.and_then(|seq| NodeLink::index(&links[..at], seq));
            let ancestor = parent.and_then(|parent| closest[parent]);
            let is_shown = link.role.is_shown_to_visitors(link.origin);
            closest.push(if is_shown { Some(at) } else { ancestor });
            if is_shown {
                let count = counts.entry(ancestor).or_default();
                shown.push((at, ancestor, *count));
                *count += 1;
            }
        }
        let place = |(at, ancestor, index): (usize, Option<usize>, u32)| {
            let parent_id = ancestor.map(|ancestor| links[ancestor].id.clone());
            let siblings = Siblings { index, count: counts[&ancestor] };
            (links[at].id.clone(), VisitorPlace { parent_id, siblings })
        };
        Self { places: shown.into_iter().map(place).collect() }
    }

    /// Returns a node of the thread at its place; `None` if it is hidden.
    pub fn show(&self, node: Node) -> Option<Node> {
        let VisitorPlace { parent_id, siblings } = self.places.get(&node.id)?;
        Some(Node { parent_id: parent_id.clone(), siblings: *siblings, ..node })
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
            let place = nodes.places.get(&links[at].id)?;
            let parent = place.parent_id.as_ref().map(|id| id.as_str());
            Some((parent, place.siblings.index, place.siblings.count))
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
