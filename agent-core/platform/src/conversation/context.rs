//! Contexts that were sent with user messages, so that later prompts repeat them byte by byte.
//!
//! A context belongs to a user message and the turn that answers it: each answer to the same message keeps the context
//! that it was made with.

use std::collections::HashMap;
use std::sync::Arc;

use agent_core::ids::RunId;
use agent_core::message::{Message, Role};

use super::{ContentHash, NodeId, NodeLink, NodeRole, NodeStatus};

/// Limit on a stored context, in bytes. A longer one is not stored.
pub const MAX_CONTEXT_BYTES: usize = 32 << 10;
/// Maximum total size of the contexts that [`Conversations::contexts`](super::Conversations::contexts) returns, in bytes: once
/// it is reached, no further one is returned. More than the largest context windows hold.
pub const MAX_CONTEXT_PAGE_BYTES: usize = 4 << 20;

/// Approximate size of a turn without its id and contexts, in bytes.
const TURN_BYTES: usize = 104;

/// Context that a run has sent with a user message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentContext {
    /// The user message.
    pub node: NodeId,
    /// The text as it was sent, without the tags around it.
    pub text: Arc<str>,
}

/// Stored context of a user message in a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnContext {
    /// The turn that answers the message.
    pub turn_id: RunId,
    /// The message and its context.
    pub sent: SentContext,
}

/// Stored contexts of a thread's turns, as far as they were read.
#[derive(Debug, Default)]
pub(super) struct ThreadContexts {
    by_turn: HashMap<RunId, ReadContexts>,
    /// Approximate size in bytes.
    bytes: usize,
}

/// Contexts of a turn as they were read; none for a turn without any.
#[derive(Debug, Default)]
struct ReadContexts {
    /// Position of the message from which on they were read.
    from: u32,
    contexts: Vec<SentContext>,
}

/// Contexts of a path that were not read: those of messages from a position on, in these turns.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct MissingContexts {
    pub(super) from: u32,
    pub(super) turns: Vec<RunId>,
}

impl ThreadContexts {
    /// Returns the contexts of a path that were not read.
    pub(super) fn missing(&self, path: &PathContexts) -> MissingContexts {
        let is_missing = |context: &&PathContext| {
            self.by_turn.get(&context.turn_id).is_none_or(|read| read.from > context.seq)
        };
        let mut missing = path.0.iter().filter(is_missing).peekable();
        // The messages of a path are in the order of their positions.
        let from = missing.peek().map_or(0, |first| first.seq);
        MissingContexts { from, turns: missing.map(|context| context.turn_id.clone()).collect() }
    }

    /// Adds the contexts that were missing, as the store has returned them.
    pub(super) fn add(&mut self, missing: MissingContexts, stored: Vec<TurnContext>) {
        let MissingContexts { from, turns } = missing;
        self.by_turn.reserve(turns.len());
        for turn in turns {
            // Contexts that were read earlier, from a later position on, are among the stored ones.
            self.remove(&turn);
            self.bytes += TURN_BYTES + turn.len();
            self.by_turn.insert(turn, ReadContexts { from, contexts: Vec::new() });
        }
        for TurnContext { turn_id, sent } in stored {
            if let Some(read) = self.by_turn.get_mut(&turn_id) {
                self.bytes += context_bytes(&sent);
                read.contexts.push(sent);
            }
        }
    }

    /// Sets the only context that a turn has from a position on, or none.
    pub(super) fn set(&mut self, turn: &RunId, from: u32, context: Option<SentContext>) {
        let stored = context.map(|sent| TurnContext { turn_id: turn.clone(), sent });
        self.add(MissingContexts { from, turns: vec![turn.clone()] }, stored.into_iter().collect());
    }

    /// Removes a turn to which a commit may have added a context. Returns false if it was not read.
    pub(super) fn remove(&mut self, turn: &RunId) -> bool {
        let Some(removed) = self.by_turn.remove(turn) else { return false };
        let bytes = TURN_BYTES + turn.len() + removed.contexts.iter().map(context_bytes).sum::<usize>();
        self.bytes = self.bytes.saturating_sub(bytes);
        true
    }

    /// Returns the approximate size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn text(&self, turn: &RunId, node: &NodeId) -> Option<&Arc<str>> {
        let contexts = &self.by_turn.get(turn)?.contexts;
        contexts.iter().find(|sent| sent.node == *node).map(|sent| &sent.text)
    }
}

fn context_bytes(sent: &SentContext) -> usize {
    size_of::<SentContext>() + sent.node.as_str().len() + sent.text.len()
}

/// User messages of a path, with the turns that answer them and the contexts that were sent with them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PathContexts(Vec<PathContext>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct PathContext {
    /// Position of the message.
    seq: u32,
    node: NodeId,
    turn_id: RunId,
    hash: ContentHash,
    /// Empty if the message was sent without one.
    text: Arc<str>,
}

impl PathContexts {
    /// Finds the turns of a path's user messages, root first. `is_continued` is false if the last node's answer is made
    /// again, by a turn that sends a separate context.
    pub fn new(path: &[&NodeLink], is_continued: bool) -> Self {
        let turn = |at: usize, link: &NodeLink| match path.get(at + 1) {
            Some(next) if next.role != NodeRole::User => Some(next.turn_id.clone()),
            // A message without an answer, since its run failed.
            Some(_) => Some(link.turn_id.clone()),
            None => is_continued.then(|| link.turn_id.clone()),
        };
        let users = path.iter().enumerate().filter(|(_, link)| link.role == NodeRole::User);
        let known = users.filter(|(_, link)| link.status != NodeStatus::Deleted);
        let found = known.filter_map(|(at, link)| {
            let (node, hash) = (link.id.clone(), link.hash);
            Some(PathContext { seq: link.seq, node, turn_id: turn(at, link)?, hash, text: Arc::default() })
        });
        Self(found.collect())
    }

    /// Returns the turns.
    #[cfg(test)]
    fn turns(&self) -> impl Iterator<Item = &RunId> {
        self.0.iter().map(|context| &context.turn_id)
    }

    /// Adds the contexts of the turns.
    #[must_use]
    pub(super) fn with_texts(mut self, contexts: &ThreadContexts) -> Self {
        for context in &mut self.0 {
            if let Some(text) = contexts.text(&context.turn_id, &context.node) {
                context.text = Arc::clone(text);
            }
        }
        self
    }

    /// Returns a function that returns the context of the path's own message at a position. The positions ascend from
    /// call to call.
    pub fn texts(&self) -> impl FnMut(u32) -> Option<Arc<str>> {
        // Parents are stored before their children.
        let mut rest = self.0.iter().peekable();
        move |seq| {
            while rest.next_if(|context| context.seq < seq).is_some() {}
            rest.next_if(|context| context.seq == seq).map(|context| Arc::clone(&context.text))
        }
    }

    /// Sets the contexts of messages that a client has sent. A user message is the next one of the path with the same
    /// content.
    pub fn attach_to_messages(&self, messages: &mut [Arc<Message>]) {
        let mut rest = self.0.as_slice();
        for message in messages.iter_mut().filter(|message| message.role == Role::User) {
            let hash = ContentHash::of(message);
            if let Some(at) = rest.iter().position(|context| context.hash == hash) {
                Arc::make_mut(message).sent_context = Some(Arc::clone(&rest[at].text));
                rest = &rest[at + 1..];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::NodeOrigin;
    use super::*;

    fn link(seq: u32, message: &Message, turn: &str) -> NodeLink {
        NodeLink {
            seq,
            parent: seq.checked_sub(1),
            id: format!("n{seq}").as_str().into(),
            client_id: None,
            turn_id: turn.into(),
            role: message.role.into(),
            status: NodeStatus::Complete,
            origin: NodeOrigin::default(),
            hash: ContentHash::of(message),
        }
    }

    fn stored(node: &str, turn: &str, text: &str) -> TurnContext {
        TurnContext { turn_id: turn.into(), sent: SentContext { node: node.into(), text: text.into() } }
    }

    fn read(stored: Vec<TurnContext>) -> ThreadContexts {
        let mut contexts = ThreadContexts::default();
        let turns = stored.iter().map(|context| context.turn_id.clone()).collect();
        contexts.add(MissingContexts { from: 0, turns }, stored);
        contexts
    }

    /// Two answered messages, the first of them by a second turn, and one whose run failed.
    fn path() -> (Vec<Arc<Message>>, Vec<NodeLink>) {
        let messages = [
            Message::user("one"),
            Message::assistant("1"),
            Message::user("two"),
            Message::assistant("2"),
            Message::user("failed"),
            Message::user("one"),
        ]
        .map(Arc::new);
        let turns = ["r1", "r2", "r3", "r3", "r4", "r5"];
        let links = (0..).zip(&messages).zip(turns).map(|((seq, message), turn)| link(seq, message, turn));
        (messages.to_vec(), links.collect())
    }

    #[test]
    fn a_context_is_that_of_the_turn_which_the_path_has() {
        let (_, links) = path();
        let all: Vec<&NodeLink> = links.iter().collect();
        let turns = |path: &[&NodeLink], is_continued| {
            let contexts = PathContexts::new(path, is_continued);
            contexts.turns().map(|turn| turn.as_str().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(turns(&all, true), ["r2", "r3", "r4", "r5"]);
        assert_eq!(turns(&all, false), ["r2", "r3", "r4"], "the last one is answered anew");
        assert_eq!(turns(&all[..4], false), ["r2", "r3"]);
        let mut erased = links.clone();
        erased[2].status = NodeStatus::Deleted;
        assert_eq!(turns(&erased.iter().collect::<Vec<_>>(), false), ["r2", "r4"]);
    }

    #[test]
    fn a_client_s_messages_are_found_by_their_content_in_order() {
        let (mut messages, links) = path();
        let contexts = PathContexts::new(&links.iter().collect::<Vec<_>>(), true).with_texts(&read(vec![
            stored("n0", "r2", "first"),
            stored("n0", "r1", "of the other answer"),
            stored("n4", "r4", "of the failed run"),
            stored("n5", "r5", "last"),
        ]));
        let attached = |messages: &mut [Arc<Message>]| {
            contexts.attach_to_messages(messages);
            messages
                .iter()
                .map(|message| message.sent_context.as_deref().map(str::to_owned))
                .collect::<Vec<_>>()
        };
        let some = |text: &str| Some(text.to_owned());
        let expected = [some("first"), None, some(""), None, some("of the failed run"), some("last")];
        assert_eq!(attached(&mut messages), expected);
        let mut cut = ["two", "changed", "one"].map(|text| Arc::new(Message::user(text)));
        assert_eq!(
            attached(&mut cut),
            [some(""), None, some("last")],
            "the client has cut off the beginning"
        );
    }

    #[test]
    fn nodes_get_the_contexts_of_their_places() {
        let (_, links) = path();
        let contexts = PathContexts::new(&links.iter().collect::<Vec<_>>(), true);
        let contexts = contexts.with_texts(&read(vec![stored("n2", "r3", "second")]));
        let found: Vec<_> = (0..7_u32).map(contexts.texts()).collect();
        let expected = [Some(""), None, Some("second"), None, Some(""), Some(""), None];
        assert_eq!(found, expected.map(|text| text.map(Arc::<str>::from)));
        let message = Message { sent_context: contexts.texts()(2), ..Message::user("two") };
        let wire = serde_json::to_string(&message).expect("JSON");
        assert!(!wire.contains("second"), "clients do not see it: {wire}");
    }

    #[test]
    fn turns_are_read_once_until_they_are_removed() {
        let (_, links) = path();
        let path = PathContexts::new(&links.iter().collect::<Vec<_>>(), true);
        let mut contexts = ThreadContexts::default();
        let missing = contexts.missing(&path);
        assert_eq!(missing.turns, path.turns().cloned().collect::<Vec<_>>());
        contexts.add(missing, vec![stored("n2", "r3", "second")]);
        assert!(contexts.missing(&path).turns.is_empty(), "also those without a context");
        let all = contexts.bytes();
        assert!(contexts.remove(&"r3".into()));
        assert!(!contexts.remove(&"r3".into()), "it is not there any more");
        let missing = contexts.missing(&path);
        assert_eq!(missing, MissingContexts { from: 2, turns: vec!["r3".into()] });
        contexts.add(missing, vec![stored("n2", "r3", "second")]);
        assert_eq!(contexts.bytes(), all);
    }

    #[test]
    fn the_contexts_of_earlier_messages_of_a_turn_are_read_too() {
        let message = Message::user("one");
        // Of the same turn: a message that the path begins with, and the next one.
        let links = [link(0, &message, "r"), link(1, &message, "r")];
        let path = |links: &[NodeLink]| PathContexts::new(&links.iter().collect::<Vec<_>>(), true);
        let mut contexts = ThreadContexts::default();
        let missing = contexts.missing(&path(&links[1..]));
        assert_eq!(missing, MissingContexts { from: 1, turns: vec!["r".into()] });
        contexts.add(missing, vec![stored("n1", "r", "late")]);
        let missing = contexts.missing(&path(&links));
        assert_eq!(missing, MissingContexts { from: 0, turns: vec!["r".into()] });
        contexts.add(missing, vec![stored("n1", "r", "late"), stored("n0", "r", "early")]);
        assert!(contexts.missing(&path(&links)).turns.is_empty());
        let found: Vec<_> = (0..2_u32).map(path(&links).with_texts(&contexts).texts()).collect();
        assert_eq!(found, ["early", "late"].map(|text| Some(Arc::<str>::from(text))));
        let anew = read(vec![stored("n1", "r", "late"), stored("n0", "r", "early")]);
        assert_eq!(contexts.bytes(), anew.bytes());
    }
}
