//! Feedback on an agent's messages, for the agent's owner.

use std::fmt;

use serde::Serialize;

use super::{ConversationError, Feedback, NodeMessage};

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

/// Content of a rated message that its owner has shared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RatedMessage {
    /// Role of the message.
    pub role: &'static str,
    /// Text of the message.
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

/// Position in an agent's feedback, which is in descending order of time and id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FeedbackCursor {
    /// Time of the rating, in milliseconds since 1970.
    pub at_ms: i64,
    /// Id of the feedback.
    pub id: String,
}

impl FeedbackCursor {
    /// Returns the position before the first feedback.
    pub fn start() -> Self {
        Self { at_ms: i64::MAX, id: String::new() }
    }

    /// Returns the position of a feedback.
    pub fn of(feedback: &Feedback) -> Self {
        Self { at_ms: feedback.created_at.as_millisecond(), id: feedback.id.clone() }
    }

    /// Parses the cursor of a page; without one, returns the [`start`](Self::start).
    ///
    /// # Errors
    /// [`ConversationError::Invalid`] if no page returned it.
    pub fn parse(cursor: Option<&str>) -> Result<Self, ConversationError> {
        let Some(cursor) = cursor else { return Ok(Self::start()) };
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
