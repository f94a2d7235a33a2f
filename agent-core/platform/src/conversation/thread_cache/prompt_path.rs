//! The path of a thread's latest prompt, whose beginning later prompts share.

use std::sync::Arc;

use agent_core::ids::RunId;
use agent_core::message::Message;

use super::super::pairing::{PairedPrefix, is_paired};
use super::super::{NodeLink, NodeRole};

/// Size of a node on the path, in bytes.
pub(super) const PATH_NODE_BYTES: usize = size_of::<u32>() + size_of::<usize>() + size_of::<Arc<Message>>();

/// The path of the latest prompt, root first, with the messages as the prompt had them.
///
/// The prompt has the same list of messages, not a copy. The next one takes it over: what both paths have in common stays
/// where it is, so that a turn costs as much as it has new nodes. Only if a prompt is still in use, the list is copied.
#[derive(Debug, Default)]
pub(super) struct PromptPath {
    /// Positions of the nodes.
    seqs: Vec<u32>,
    /// Numbers of messages up to each node, its own included: a node that no prompt has adds none.
    message_counts: Vec<usize>,
    /// Messages of the nodes, with their contexts, and after them those that the latest prompt had in addition.
    messages: Arc<Vec<Arc<Message>>>,
    /// Beginning of these messages that is known to be paired.
    paired: PairedPrefix,
}

impl PromptPath {
    /// Returns the positions of the nodes.
    pub(super) fn seqs(&self) -> &[u32] {
        &self.seqs
    }

    /// Returns the messages of the nodes.
    pub(super) fn messages(&self) -> &[Arc<Message>] {
        &self.messages[..self.message_count()]
    }

    /// Returns the messages that the latest prompt had after those of the nodes.
    pub(super) fn added_messages(&self) -> &[Arc<Message>] {
        &self.messages[self.message_count()..]
    }

    /// Returns the messages of a prompt: instructions, those of the nodes, and new ones.
    pub(super) fn prompt(
        &mut self,
        instructions: &[Arc<Message>],
        new: impl Iterator<Item = Arc<Message>>,
    ) -> Arc<Vec<Arc<Message>>> {
        if instructions.is_empty() {
            self.own_messages().extend(new);
            return Arc::clone(&self.messages);
        }
        Arc::new(instructions.iter().chain(self.messages()).cloned().chain(new).collect())
    }

    /// Adds the next node. `message` is `None` if no prompt has it.
    pub(super) fn push(&mut self, seq: u32, message: Option<Arc<Message>>) {
        let messages = self.own_messages();
        messages.extend(message);
        let count = messages.len();
        self.seqs.push(seq);
        self.message_counts.push(count);
    }

    /// Returns true if the calls and results of a prompt are paired. Of the messages of the latest prompt, only those are looked
    /// at that no prompt before had.
    pub(super) fn is_paired(&mut self, messages: &Arc<Vec<Arc<Message>>>) -> bool {
        let count = self.message_count();
        match Arc::ptr_eq(messages, &self.messages) {
            true => self.paired.extend(messages, count),
            false => is_paired(messages),
        }
    }

    /// Returns the approximate size of the pairing's state, in bytes.
    pub(super) fn paired_bytes(&self) -> usize {
        self.paired.bytes()
    }

    fn message_count(&self) -> usize {
        self.message_counts.last().copied().unwrap_or_default()
    }

    /// Returns the list with the messages of the nodes alone.
    fn own_messages(&mut self) -> &mut Vec<Arc<Message>> {
        let count = self.message_count();
        let messages = Arc::make_mut(&mut self.messages);
        messages.truncate(count);
        messages
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
    /// that comes next. The messages leave the list at once, or with its next change while a prompt is in use.
    fn truncate(&mut self, count: usize, links: &[NodeLink]) {
        let is_user = |seq: &u32| NodeLink::find(links, *seq).is_none_or(|link| link.role == NodeRole::User);
        let kept_len = self.seqs[..count].iter().rposition(|seq| !is_user(seq)).map_or(0, |last| last + 1);
        self.seqs.truncate(kept_len);
        self.message_counts.truncate(kept_len);
        let message_count = self.message_count();
        self.paired.truncate(message_count);
        if let Some(messages) = Arc::get_mut(&mut self.messages) {
            messages.truncate(message_count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{ContentHash, NodeOrigin, NodeStatus};

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
            origin: NodeOrigin::default(),
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
            assert_eq!((path.seqs(), path.messages().len()), (&after[..kept], kept));
        }
    }

    /// Returns the texts of messages.
    fn texts(messages: &[Arc<Message>]) -> String {
        messages.iter().map(|message| message.content.to_text().into_owned()).collect()
    }

    fn new(text: &str) -> impl Iterator<Item = Arc<Message>> {
        std::iter::once(Arc::new(Message::user(text)))
    }

    #[test]
    fn prompts_take_over_the_list_of_the_one_before_and_leave_one_in_use_as_it_is() {
        let links = links();
        let mut path = path([0, 1]);
        let list = Arc::as_ptr(&path.messages);
        let first = path.prompt(&[], new("n"));
        let shown = [texts(&first), texts(path.messages()), texts(path.added_messages())];
        assert_eq!(shown, ["01n", "01", "n"]);
        assert_eq!(Arc::as_ptr(&first), list, "the list of the path");
        // The prompt is in use: the next one has a separate list.
        path.push(2, Some(Arc::new(Message::user("2"))));
        path.push(3, None);
        let second = path.prompt(&[], new("m"));
        assert_eq!([texts(&first), texts(&second)], ["01n", "012m"]);
        assert!(first.iter().zip(second.iter()).take(2).all(|(one, other)| Arc::ptr_eq(one, other)));
        let list = Arc::as_ptr(&second);
        drop(second);
        assert_eq!(path.keep_common(&[0, 1, 2, 3, 4], &links), 4);
        let third = path.prompt(&[], new("o"));
        assert_eq!(texts(&third), "012o");
        assert_eq!(Arc::as_ptr(&third), list, "nothing is copied");
        drop(third);
        assert_eq!(path.keep_common(&[0, 1, 5], &links), 2);
        assert_eq!(texts(&path.prompt(&[], new("p"))), "01p", "another branch");
        let instructions = [Arc::new(Message::text(agent_core::message::Role::System, "s"))];
        assert_eq!(texts(&path.prompt(&instructions, new("q"))), "s01q");
        assert_eq!(texts(path.messages()), "01");
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
