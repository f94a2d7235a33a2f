//! The path of a thread's latest prompt, whose beginning the prompts of later turns have in common with it.

use std::sync::Arc;

use agent_core::ids::RunId;
use agent_core::message::Message;

use super::super::{NodeLink, NodeRole};

/// Size of a node on the path, in bytes.
pub(super) const PATH_NODE_BYTES: usize = size_of::<u32>() + size_of::<Option<Arc<Message>>>();

/// The path of the latest prompt, root first, with the messages as the prompt had them.
#[derive(Debug, Default)]
pub(super) struct PromptPath {
    /// Positions of the nodes.
    seqs: Vec<u32>,
    /// Messages of the nodes, with their contexts; `None` for a node that no prompt has.
    messages: Vec<Option<Arc<Message>>>,
}

impl PromptPath {
    /// Returns the positions of the nodes.
    pub(super) fn seqs(&self) -> &[u32] {
        &self.seqs
    }

    /// Returns the messages.
    pub(super) fn messages(&self) -> impl Iterator<Item = Arc<Message>> {
        self.messages.iter().flatten().cloned()
    }

    /// Adds the next node.
    pub(super) fn push(&mut self, seq: u32, message: Option<Arc<Message>>) {
        self.seqs.push(seq);
        self.messages.push(message);
    }

    /// Keeps the nodes that another path of the thread begins with and whose messages are the same in its prompt. Returns their
    /// number.
    pub(super) fn keep_common(&mut self, other: &[u32], links: &[NodeLink]) -> usize {
        // Most paths continue the one before, and comparing the slices is faster than node by node.
        let common = match other.starts_with(&self.seqs) {
            true => self.seqs.len(),
            false => self.seqs.iter().zip(other).take_while(|(own, other)| own == other).count(),
        };
        self.truncate(common, links);
        self.seqs.len()
    }

    /// Removes the nodes whose messages may have got another context by a commit of this turn.
    pub(super) fn remove_turn(&mut self, turn: &RunId, links: &[NodeLink]) {
        let is_of_turn = |seq: &u32| NodeLink::find(links, *seq).is_some_and(|link| link.turn_id == *turn);
        if let Some(at) = self.seqs.iter().position(is_of_turn) {
            self.truncate(at, links);
        }
    }

    /// Keeps at most the first `count` nodes. User messages at the end are removed too, since their contexts depend on the node
    /// that comes next.
    fn truncate(&mut self, count: usize, links: &[NodeLink]) {
        let is_user = |seq: &u32| NodeLink::find(links, *seq).is_none_or(|link| link.role == NodeRole::User);
        let kept_len = self.seqs[..count].iter().rposition(|seq| !is_user(seq)).map_or(0, |last| last + 1);
        self.seqs.truncate(kept_len);
        self.messages.truncate(kept_len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{ContentHash, NodeStatus};

    /// Returns the links of a chain of two turns, a message without an answer and one turn more: u0 a1 u2 a3 u4 u5 a6.
    fn links() -> Vec<NodeLink> {
        let roles =
            "uauauua".chars().map(|role| if role == 'u' { NodeRole::User } else { NodeRole::Assistant });
        let turns = ["r0", "r0", "r2", "r2", "r4", "r5", "r5"];
        let link = |(seq, (role, turn)): (u32, (NodeRole, &str))| NodeLink {
            seq,
            parent: seq.checked_sub(1),
            id: seq.to_string().into(),
            client_id: None,
            turn_id: turn.into(),
            role,
            status: NodeStatus::Complete,
            hash: ContentHash::default(),
        };
        (0..).zip(roles.zip(turns)).map(link).collect()
    }

    fn path(seqs: impl IntoIterator<Item = u32>) -> PromptPath {
        let mut path = PromptPath::default();
        seqs.into_iter().for_each(|seq| path.push(seq, Some(Arc::new(Message::user(seq.to_string())))));
        path
    }

    #[test]
    fn the_common_beginning_ends_with_an_answer() {
        let links = links();
        // Paths before and after, and the number of nodes that stay.
        for (before, after, kept) in [
            (vec![0, 1, 2, 3], vec![0, 1, 2, 3, 4], 4),
            (vec![0, 1, 2], vec![0, 1, 2, 3], 2),
            (vec![0, 1, 2, 3, 4, 5], vec![0, 1, 2, 3, 4, 5, 6], 4),
            (vec![0, 1, 2, 3], vec![0, 1, 5], 2),
            (vec![0, 1, 2, 3], vec![0, 1], 2),
            (vec![0, 1, 2, 3], vec![4], 0),
            (vec![0], vec![0, 1], 0),
            (vec![], vec![0, 1], 0),
        ] {
            let mut path = path(before.clone());
            assert_eq!(path.keep_common(&after, &links), kept, "{before:?} {after:?}");
            assert_eq!((path.seqs(), path.messages().count()), (&after[..kept], kept));
        }
    }

    #[test]
    fn a_turn_is_removed_with_the_messages_that_it_answers() {
        for (turn, kept) in [("r0", 0), ("r2", 2), ("r4", 4), ("r5", 4), ("none", 7)] {
            let mut path = path(0..7);
            path.remove_turn(&turn.into(), &links());
            assert_eq!(path.seqs().len(), kept, "{turn}");
        }
    }
}
