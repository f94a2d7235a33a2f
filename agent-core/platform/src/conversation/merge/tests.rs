//! Tests of merging: the rules one by one, and a model of clients and their dialogues in `model`.

use std::collections::HashMap;

use super::super::{ContentHash, NodeMessage, NodeRole, NodeStatus};
use super::*;

mod model;
mod rules;

/// A stored tree, as a store would keep it.
#[derive(Default)]
struct StoredTree {
    links: Vec<NodeLink>,
    messages: Vec<NodeMessage>,
    head: Option<usize>,
    by_id: HashMap<NodeId, usize>,
    turns: usize,
}

impl StoredTree {
    fn head_id(&self) -> Option<NodeId> {
        self.head.map(|at| self.links[at].id.clone())
    }

    fn add(&mut self, node: NewNode, turn: &str) -> usize {
        let at = self.links.len();
        let parent = node.parent_id.as_ref().map(|id| self.by_id[id]);
        self.links.push(NodeLink {
            seq: at as u32,
            parent: parent.map(|at| at as u32),
            id: node.id.clone(),
            client_id: node.client_id,
            turn_id: turn.into(),
            role: node.message.role(),
            status: node.status,
            origin: node.origin,
            hash: node.message.hash(),
        });
        self.messages.push(node.message);
        self.by_id.insert(node.id, at);
        self.head = Some(at);
        at
    }

    /// Stores the nodes of a merge and an answer below them. Returns the turn and the answer's places.
    fn run(&mut self, merged: MergeResult, answer: Vec<NodeMessage>) -> (String, Vec<usize>) {
        self.turns += 1;
        let turn = format!("turn{}", self.turns);
        let mut parent = merged.parent_id.clone();
        for node in merged.nodes {
            self.add(node, &turn);
        }
        let mut places = Vec::new();
        for message in answer {
            let node = NewNode {
                id: NodeId::from(format!("n{}", self.links.len())),
                parent_id: parent.take(),
                client_id: None,
                status: NodeStatus::Complete,
                origin: NodeOrigin::Run,
                message,
            };
            parent = Some(node.id.clone());
            places.push(self.add(node, &turn));
        }
        (turn, places)
    }

    fn merge(&self, input: MergeInput<'_>) -> MergeResult {
        self.try_merge(input).expect("a place")
    }

    fn try_merge(&self, input: MergeInput<'_>) -> Result<MergeResult, ConversationError> {
        let Self { links, .. } = self;
        let MergeInput { messages, format, parent, pending_calls, is_visitor, .. } = input;
        let head = self.head_id();
        // That of any node: of the same branch or of another one.
        let any = links.len().checked_sub(1).map(|last| last / 2);
        let known_path = &tree::path_positions(links, any, &[]);
        let input =
            MergeInput { messages, format, parent, pending_calls, is_visitor, ..MergeInput::default() };
        merge(MergeInput { links, known_path, head, ..input })
    }

    /// Returns role and text of the prompt's messages.
    fn prompt(&self, merged: &MergeResult) -> Vec<(NodeRole, String)> {
        let stored = merged.path.iter().map(|seq| *seq as usize);
        let stored = stored.filter(|at| self.links[*at].status != NodeStatus::Deleted);
        let stored = stored.filter_map(|at| self.messages[at].as_message());
        let added = merged.nodes.iter().filter_map(|node| node.message.as_message());
        stored.chain(added).map(role_and_text).collect()
    }

    /// Runs one request and returns its prompt.
    fn chat(&mut self, input: MergeInput<'_>, answer: &str) -> Vec<(NodeRole, String)> {
        let merged = self.merge(input);
        let prompt = self.prompt(&merged);
        self.run(merged, vec![Message::assistant(answer).into()]);
        prompt
    }
}

fn role_and_text(message: &Message) -> (NodeRole, String) {
    (message.role.into(), message.content.to_text().into_owned())
}

fn shared(messages: impl IntoIterator<Item = Message>) -> Vec<Arc<Message>> {
    messages.into_iter().map(Arc::new).collect()
}

fn with_id(id: impl Into<String>, message: Message) -> Message {
    Message { id: Some(id.into()), ..message }
}

/// Returns the words of `u:` and `a:` texts as role and text.
fn texts(words: &[&str]) -> Vec<(NodeRole, String)> {
    let role = |word: &str| match word.as_bytes()[0] {
        b'u' => NodeRole::User,
        b't' => NodeRole::Tool,
        _ => NodeRole::Assistant,
    };
    words.iter().map(|word| (role(word), (*word).to_owned())).collect()
}
