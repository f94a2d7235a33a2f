//! Feedback: a thread owner's ratings of its messages.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::time;
use super::{ConversationError, check_conversation_id};

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
