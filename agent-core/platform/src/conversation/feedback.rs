//! Feedback: a thread owner's ratings of its messages.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::time;
use super::{ConversationError, NodeMessage, NodeRole, StoredNode, check_conversation_id};

/// Limit on the comment of a feedback, in bytes.
pub const MAX_COMMENT_BYTES: usize = 2 * 1024;
/// Maximum number of tags of a feedback.
pub const MAX_FEEDBACK_TAGS: usize = 16;
/// Limit on a tag of a feedback, in bytes.
pub const MAX_TAG_BYTES: usize = 64;

/// Feedback on a node, in its JSON form on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Feedback {
    /// Id, another at every change.
    pub id: String,
    /// The rating.
    pub rating: Rating,
    /// Tags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Comment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// True if the agent's owner may read the rated words.
    pub share: bool,
    /// Time of the rating.
    #[serde(with = "time")]
    pub created_at: Timestamp,
}

/// Rating of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Rating {
    /// The message was good.
    Up,
    /// The message was bad.
    Down,
}

impl Feedback {
    /// Checks the limits.
    ///
    /// # Errors
    /// [`ConversationError::Invalid`] names the field.
    pub fn check(&self) -> Result<(), ConversationError> {
        check_conversation_id("the id", &self.id)?;
        let fault = if self.comment.as_ref().is_some_and(|comment| comment.len() > MAX_COMMENT_BYTES) {
            "comment has more than 2048 bytes"
        } else if self.tags.len() > MAX_FEEDBACK_TAGS {
            "tags has more than 16 elements"
        } else if self.tags.iter().any(|tag| tag.is_empty() || tag.len() > MAX_TAG_BYTES) {
            "tags has an element that is empty or has more than 64 bytes"
        } else {
            return Ok(());
        };
        Err(ConversationError::Invalid(fault.to_owned()))
    }
}

/// Feedback as the agent's owner sees it: without the person and the thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentFeedback {
    /// The feedback.
    #[serde(flatten)]
    pub feedback: Feedback,
    /// Rated words, if they are shared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<RatedMessage>,
}

impl AgentFeedback {
    /// Creates the owner's view. The message is left out unless it is shared.
    pub fn new(feedback: Feedback, message: Option<&NodeMessage>) -> Self {
        let message = message.filter(|_| feedback.share).map(RatedMessage::of);
        Self { feedback, message }
    }
}

/// Words that were rated and shared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RatedMessage {
    /// Role of the message.
    pub role: &'static str,
    /// Its text.
    pub content: String,
}

impl RatedMessage {
    fn of(message: &NodeMessage) -> Self {
        let content = match message {
            NodeMessage::Reasoning(reasoning) => reasoning.content.clone(),
            NodeMessage::Message(message) => message.content.to_text().into_owned(),
        };
        Self { role: message.role().as_str(), content }
    }
}

/// Page of an agent's feedback, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FeedbackPage {
    /// Feedback of this page.
    pub feedback: Vec<AgentFeedback>,
    /// Cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

impl FeedbackPage {
    /// Builds a page from feedback in order. A store reads one more than `limit` to detect whether another page follows.
    pub fn from_overfetch(mut feedback: Vec<AgentFeedback>, limit: usize) -> Self {
        let has_more = feedback.len() > limit;
        feedback.truncate(limit);
        let next = feedback.last().filter(|_| has_more).map(|last| FeedbackCursor::of(&last.feedback));
        Self { feedback, next_cursor: next.map(|cursor| cursor.to_string()) }
    }
}

/// Place in an agent's feedback, which is in descending order of time and id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FeedbackCursor {
    /// Time of the rating, in milliseconds since 1970.
    pub at_ms: i64,
    /// Id of the feedback.
    pub id: String,
}

impl FeedbackCursor {
    /// Returns the place before the first feedback.
    pub fn start() -> Self {
        Self { at_ms: i64::MAX, id: String::new() }
    }

    /// Returns the place of a feedback.
    pub fn of(feedback: &Feedback) -> Self {
        Self { at_ms: feedback.created_at.as_millisecond(), id: feedback.id.clone() }
    }

    /// Parses a cursor of a page.
    ///
    /// # Errors
    /// [`ConversationError::Invalid`] if no page has given it.
    pub fn parse(cursor: &str) -> Result<Self, ConversationError> {
        let parse = || {
            let (time, id) = cursor.split_once('-')?;
            let id = String::from_utf8(hex::decode(id).ok()?).ok()?;
            Some(Self { at_ms: i64::from_str_radix(time, 16).ok()?, id })
        };
        parse().ok_or_else(|| ConversationError::Invalid("the cursor is invalid".to_owned()))
    }
}

impl fmt::Display for FeedbackCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{}", self.at_ms, hex::encode(&self.id))
    }
}

impl StoredNode {
    /// Returns true if a visitor sees the node in an own thread.
    pub fn is_shown_to_visitors(&self) -> bool {
        self.link.role.is_shown_to_visitors(self.origin)
    }
}

impl NodeRole {
    /// Returns true if a visitor sees a node of this role and origin in an own thread: the conversation itself, without
    /// reasoning, results of tools, and what a client has added.
    pub fn is_shown_to_visitors(self, origin: super::NodeOrigin) -> bool {
        matches!(self, Self::User | Self::Assistant) && origin != super::NodeOrigin::Client
    }
}
