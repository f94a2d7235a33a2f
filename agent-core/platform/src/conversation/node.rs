//! Message nodes: stored messages in a tree.

use agent_core::ids::RunId;
use agent_core::message::{Content, ContentPart, Message, Role};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::time;
use super::{Feedback, NodeId};

/// A message node, in its JSON form on the wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Id, unique within the thread.
    pub id: NodeId,
    /// Parent; absent for a root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<NodeId>,
    /// The turn: the id of its first run. A node without a run is a separate turn, with the node's id.
    pub turn_id: RunId,
    /// The run that wrote the node, or for which it was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// State of the content.
    pub status: NodeStatus,
    /// Author of the node.
    pub origin: NodeOrigin,
    /// Time at which the node was stored.
    #[serde(with = "time")]
    pub created_at: Timestamp,
    /// Place among the nodes of the same parent.
    pub siblings: Siblings,
    /// Rating by the person who reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feedback: Option<Feedback>,
    /// The message, with the node's id.
    pub message: NodeMessage,
}

/// State of a node's content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NodeStatus {
    /// The message is complete.
    #[default]
    Complete,
    /// The run failed or its process ended.
    Incomplete,
    /// The run was stopped.
    Cancelled,
    /// The content was erased.
    Deleted,
}

impl NodeStatus {
    const ALL: [Self; 4] = [Self::Complete, Self::Incomplete, Self::Cancelled, Self::Deleted];

    /// Returns the name used on the wire and in stores.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Incomplete => "incomplete",
            Self::Cancelled => "cancelled",
            Self::Deleted => "deleted",
        }
    }

    /// Parses a name returned by [`as_str`](Self::as_str).
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }
}

/// Author of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NodeOrigin {
    /// A run of an agent.
    Run,
    /// The owner, in a request.
    #[default]
    User,
    /// The client's own history, which no run has produced here.
    Client,
}

impl NodeOrigin {
    const ALL: [Self; 3] = [Self::Run, Self::User, Self::Client];

    /// Returns the name used on the wire and in stores.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::User => "user",
            Self::Client => "client",
        }
    }

    /// Parses a name returned by [`as_str`](Self::as_str).
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|origin| origin.as_str() == name)
    }
}

/// Position of a node among the nodes of the same parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Siblings {
    /// Index, from 0, oldest first.
    pub index: u32,
    /// Number of siblings, with this one.
    pub count: u32,
}

impl Default for Siblings {
    fn default() -> Self {
        Self { index: 0, count: 1 }
    }
}

/// Message of a node: a message of the conversation, or a model's reasoning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum NodeMessage {
    /// A model's reasoning, which no prompt contains.
    Reasoning(ReasoningMessage),
    /// A user's or assistant's message, or a tool's result.
    Message(Message),
}

impl From<Message> for NodeMessage {
    fn from(message: Message) -> Self {
        Self::Message(message)
    }
}

impl NodeMessage {
    /// Creates a reasoning message.
    pub fn reasoning(content: impl Into<String>) -> Self {
        Self::Reasoning(ReasoningMessage {
            id: None,
            role: ReasoningMessageRole::Reasoning,
            content: content.into(),
        })
    }

    /// Returns the role.
    pub fn role(&self) -> NodeRole {
        match self {
            Self::Reasoning(_) => NodeRole::Reasoning,
            Self::Message(message) => message.role.into(),
        }
    }

    /// Returns the message that a prompt may contain; `None` for reasoning.
    pub fn as_message(&self) -> Option<&Message> {
        match self {
            Self::Reasoning(_) => None,
            Self::Message(message) => Some(message),
        }
    }

    /// Returns the message under another id.
    pub fn with_id(mut self, id: &NodeId) -> Self {
        let id = Some(id.as_str().to_owned());
        match &mut self {
            Self::Reasoning(reasoning) => reasoning.id = id,
            Self::Message(message) => message.id = id,
        }
        self
    }

    /// Returns the message without its content, as a deleted node keeps it. A tool's result keeps the id of its
    /// call.
    #[must_use]
    pub fn erased(&self) -> Self {
        match self {
            Self::Reasoning(reasoning) => {
                Self::Reasoning(ReasoningMessage { content: String::new(), ..reasoning.clone() })
            }
            Self::Message(message) => Self::Message(Message {
                id: message.id.clone(),
                tool_call_id: message.tool_call_id.clone(),
                ..Message::text(message.role, "")
            }),
        }
    }

    /// Returns the hash of role and content.
    pub fn hash(&self) -> ContentHash {
        match self {
            Self::Reasoning(reasoning) => ContentHash::new("reasoning", &reasoning.content, &[]),
            Self::Message(message) => ContentHash::of(message),
        }
    }
}

/// A model's reasoning, as AG-UI's message of that role.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReasoningMessage {
    /// Identifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Always `reasoning`.
    pub role: ReasoningMessageRole,
    /// The text.
    #[serde(default)]
    pub content: String,
}

/// The role of a reasoning message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReasoningMessageRole {
    /// The only value.
    Reasoning,
}

/// Role of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NodeRole {
    /// The system or the embedding application, in imported messages only.
    Instructions,
    /// The human user.
    User,
    /// The model.
    Assistant,
    /// The result of a tool call.
    Tool,
    /// The model's reasoning.
    Reasoning,
}

impl NodeRole {
    const ALL: [Self; 5] = [Self::Instructions, Self::User, Self::Assistant, Self::Tool, Self::Reasoning];

    /// Returns the name used in stores.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Instructions => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
            Self::Reasoning => "reasoning",
        }
    }

    /// Parses a name returned by [`as_str`](Self::as_str).
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == name)
    }
}

impl From<Role> for NodeRole {
    fn from(role: Role) -> Self {
        match role {
            Role::System | Role::Developer => Self::Instructions,
            Role::User => Self::User,
            Role::Assistant => Self::Assistant,
            Role::Tool => Self::Tool,
        }
    }
}

/// Hash of a message's role, text and media, for comparing messages without known ids.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ContentHash([u8; 16]);

impl ContentHash {
    /// Hashes a message. Texts in one part and as plain text are equal.
    pub fn of(message: &Message) -> Self {
        let media: Vec<&ContentPart> = match &message.content {
            Content::Text(_) => Vec::new(),
            Content::Parts(parts) => {
                parts.iter().filter(|part| !matches!(part, ContentPart::Text { .. })).collect()
            }
        };
        Self::new(NodeRole::from(message.role).as_str(), &message.content.to_text(), &media)
    }

    fn new(role: &str, text: &str, media: &[&ContentPart]) -> Self {
        let mut hash = Sha256::new_with_prefix(role).chain_update([0]).chain_update(text);
        if !media.is_empty() {
            hash.update([0]);
            hash.update(serde_json::to_vec(media).unwrap_or_default());
        }
        let digest: [u8; 32] = hash.finalize().into();
        let mut half = [0; 16];
        half.copy_from_slice(&digest[..16]);
        Self(half)
    }

    /// Returns the hash in hexadecimal, as stores keep it.
    pub fn to_hex(self) -> String {
        hex::encode(self.0)
    }

    /// Parses a hash in hexadecimal. Invalid text gives a hash that no message has.
    pub fn from_hex(text: &str) -> Self {
        let mut bytes = [0; 16];
        match hex::decode_to_slice(text, &mut bytes) {
            Ok(()) => Self(bytes),
            Err(_) => Self::default(),
        }
    }
}

/// A node to be stored.
#[derive(Debug, Clone, PartialEq)]
pub struct NewNode {
    /// Id; a store changes one that the thread has already.
    pub id: NodeId,
    /// Parent, in the thread or earlier in the same list; `None` for a root.
    pub parent_id: Option<NodeId>,
    /// Id that the client gave to the message.
    pub client_id: Option<String>,
    /// State of the content.
    pub status: NodeStatus,
    /// Author.
    pub origin: NodeOrigin,
    /// The message.
    pub message: NodeMessage,
}

impl NewNode {
    /// Creates a complete node of the owner below `parent`, with a new id. The message's own id becomes the client's.
    pub fn user(parent_id: Option<NodeId>, message: Message) -> Self {
        Self {
            id: NodeId::generate(),
            parent_id,
            client_id: message.id.clone(),
            status: NodeStatus::Complete,
            origin: NodeOrigin::User,
            message: message.into(),
        }
    }
}

/// Position and identity of a node, without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeLink {
    /// Position in the order in which the thread's nodes were stored, from 0. Children come after their parent.
    pub seq: u32,
    /// Position of the parent.
    pub parent: Option<u32>,
    /// Id.
    pub id: NodeId,
    /// Id that the client gave to the message.
    pub client_id: Option<String>,
    /// The turn.
    pub turn_id: RunId,
    /// The role.
    pub role: NodeRole,
    /// State of the content.
    pub status: NodeStatus,
    /// Author.
    pub origin: NodeOrigin,
    /// Hash of role and content.
    pub hash: ContentHash,
}

impl NodeLink {
    /// Finds the node at a position in a thread's links, which are in the order in which they were stored.
    pub fn find(links: &[Self], seq: u32) -> Option<&Self> {
        links.get(Self::index(links, seq)?)
    }

    /// Returns the index of the node at a position in links in the order in which they were stored.
    pub(super) fn index(links: &[Self], seq: u32) -> Option<usize> {
        // A thread with all its nodes has no gaps.
        match links.get(seq as usize) {
            Some(link) if link.seq == seq => Some(seq as usize),
            _ => links.binary_search_by_key(&seq, |link| link.seq).ok(),
        }
    }
}

/// Content of a node, as a prompt needs it.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeContent {
    /// Position of the node.
    pub seq: u32,
    /// State of the content.
    pub status: NodeStatus,
    /// Author.
    pub origin: NodeOrigin,
    /// The message, with the node's id.
    pub message: NodeMessage,
}

impl NodeContent {
    /// Returns the message that a prompt has; `None` for a deleted node and for reasoning.
    pub fn into_prompt_message(self) -> Option<Message> {
        match self.message {
            NodeMessage::Message(message) if self.status != NodeStatus::Deleted => Some(message),
            _ => None,
        }
    }
}

/// A node as stores keep it.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredNode {
    /// Position and identity.
    pub link: NodeLink,
    /// Id of the parent.
    pub parent_id: Option<NodeId>,
    /// The run that wrote the node, or for which it was sent.
    pub run_id: Option<RunId>,
    /// Author.
    pub origin: NodeOrigin,
    /// Time at which the node was stored.
    pub created_at: Timestamp,
    /// Rating by the owner.
    pub feedback: Option<Feedback>,
    /// The message, with the node's id.
    pub message: NodeMessage,
}

impl StoredNode {
    /// Returns the content of the node.
    pub fn content(&self) -> NodeContent {
        NodeContent {
            seq: self.link.seq,
            status: self.link.status,
            origin: self.origin,
            message: self.message.clone(),
        }
    }

    /// Returns the node in its form on the wire.
    pub fn into_node(self, siblings: Siblings) -> Node {
        Node {
            id: self.link.id,
            parent_id: self.parent_id,
            turn_id: self.link.turn_id,
            run_id: self.run_id,
            status: self.link.status,
            origin: self.origin,
            created_at: self.created_at,
            siblings,
            feedback: self.feedback,
            message: self.message,
        }
    }
}

impl StoredNode {
    /// Returns true if a visitor sees the node in the visitor's thread.
    pub(crate) fn is_shown_to_visitors(&self) -> bool {
        self.link.role.is_shown_to_visitors(self.origin)
    }
}

impl NodeRole {
    /// Returns true if a visitor sees a node of this role and origin in the visitor's thread: the conversation itself, without
    /// reasoning, results of tools, and what a client has added.
    pub(crate) fn is_shown_to_visitors(self, origin: NodeOrigin) -> bool {
        matches!(self, Self::User | Self::Assistant) && origin != NodeOrigin::Client
    }
}
