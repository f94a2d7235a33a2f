//! Contexts with which user messages were sent, so that later prompts repeat them byte by byte.
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
/// Size of contexts from which on [`Conversations::contexts`](super::Conversations::contexts) returns no further one, in
/// bytes: more than the largest context windows hold.
pub const MAX_CONTEXT_PAGE_BYTES: usize = 4 << 20;

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

/// User messages of a path, with the turns that answer them and the contexts with which they were sent.
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
    /// anew, by a turn that sends a context of its own.
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
    pub fn turns(&self) -> Vec<RunId> {
        self.0.iter().map(|context| context.turn_id.clone()).collect()
    }

    /// Adds the contexts that a store has of the turns.
    #[must_use]
    pub fn with_stored(mut self, stored: Vec<TurnContext>) -> Self {
        let mut texts: HashMap<(NodeId, RunId), Arc<str>> = HashMap::with_capacity(stored.len());
        for TurnContext { turn_id, sent } in stored {
            texts.insert((sent.node, turn_id), sent.text);
        }
        for context in &mut self.0 {
            if let Some(text) = texts.remove(&(context.node.clone(), context.turn_id.clone())) {
                context.text = text;
            }
        }
        self
    }

    /// Returns the context of the path's own message at a place.
    pub fn at(&self, seq: u32) -> Option<Arc<str>> {
        // Parents are stored before their children.
        let at = self.0.binary_search_by_key(&seq, |context| context.seq).ok()?;
        Some(Arc::clone(&self.0[at].text))
    }

    /// Sets the contexts of messages that a client has sent. A user message is the next one of the path with the same
    /// content.
    pub fn attach_to_messages(&self, messages: &mut [Message]) {
        let mut rest = self.0.as_slice();
        for message in messages.iter_mut().filter(|message| message.role == Role::User) {
            let hash = ContentHash::of(message);
            if let Some(at) = rest.iter().position(|context| context.hash == hash) {
                message.sent_context = Some(Arc::clone(&rest[at].text));
                rest = &rest[at + 1..];
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
            hash: ContentHash::of(message),
        }
    }

    fn stored(node: &str, turn: &str, text: &str) -> TurnContext {
        TurnContext { turn_id: turn.into(), sent: SentContext { node: node.into(), text: text.into() } }
    }

    /// Two answered messages, the first of them by a second turn, and one whose run failed.
    fn path() -> (Vec<Message>, Vec<NodeLink>) {
        let messages = vec![
            Message::user("one"),
            Message::assistant("1"),
            Message::user("two"),
            Message::assistant("2"),
            Message::user("failed"),
            Message::user("one"),
        ];
        let turns = ["r1", "r2", "r3", "r3", "r4", "r5"];
        let links = (0..).zip(&messages).zip(turns).map(|((seq, message), turn)| link(seq, message, turn));
        (messages.clone(), links.collect())
    }

    #[test]
    fn a_context_is_that_of_the_turn_which_the_path_has() {
        let (_, links) = path();
        let all: Vec<&NodeLink> = links.iter().collect();
        let turns = |path: &[&NodeLink], is_continued| {
            let turns = PathContexts::new(path, is_continued).turns();
            turns.iter().map(|turn| turn.as_str().to_owned()).collect::<Vec<_>>()
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
        let contexts = PathContexts::new(&links.iter().collect::<Vec<_>>(), true).with_stored(vec![
            stored("n0", "r2", "first"),
            stored("n0", "r1", "of the other answer"),
            stored("n4", "r4", "of the failed run"),
            stored("n5", "r5", "last"),
        ]);
        let attached = |messages: &mut [Message]| {
            contexts.attach_to_messages(messages);
            messages
                .iter()
                .map(|message| message.sent_context.as_deref().map(str::to_owned))
                .collect::<Vec<_>>()
        };
        let some = |text: &str| Some(text.to_owned());
        let expected = [some("first"), None, some(""), None, some("of the failed run"), some("last")];
        assert_eq!(attached(&mut messages), expected);
        let mut cut = [Message::user("two"), Message::user("changed"), Message::user("one")];
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
        let contexts = contexts.with_stored(vec![stored("n2", "r3", "second")]);
        let found: Vec<_> = (0..7).map(|seq| contexts.at(seq)).collect();
        let expected = [Some(""), None, Some("second"), None, Some(""), Some(""), None];
        assert_eq!(found, expected.map(|text| text.map(Arc::<str>::from)));
        let message = Message { sent_context: contexts.at(2), ..Message::user("two") };
        let wire = serde_json::to_string(&message).expect("JSON");
        assert!(!wire.contains("second"), "clients do not see it: {wire}");
    }
}
