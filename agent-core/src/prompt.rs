//! The prompt of a turn: fragments, history and tools under a budget, assembled purely.

use std::sync::{Arc, OnceLock};

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::context::Fragment;
use crate::message::{Message, Role};
use crate::payload::hex;

/// An immutable text whose derived forms are made once: its JSON string, its hash, its token count.
#[derive(Debug)]
pub struct Part {
    text: String,
    json: OnceLock<Box<str>>,
    sha256: OnceLock<String>,
}

impl Part {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Arc<Self> {
        Arc::new(Self { text: text.into(), json: OnceLock::new(), sha256: OnceLock::new() })
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text escaped for the inside of a JSON string, without the quotes.
    pub fn json(&self) -> &str {
        self.json.get_or_init(|| {
            let quoted = serde_json::to_string(&self.text).expect("a string serialises");
            quoted[1..quoted.len() - 1].into()
        })
    }

    /// SHA-256 of the text, in lower-case hexadecimal.
    pub fn sha256(&self) -> &str {
        self.sha256.get_or_init(|| hex(&Sha256::digest(&self.text)))
    }
}

/// The spellings of messages on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// AG-UI: `toolCalls`, `toolCallId`, AG-UI parts.
    AgUi,
    /// OpenAI Chat Completions: `tool_calls`, `tool_call_id`, `image_url` parts.
    ChatCompletions,
}

/// A message with its derived forms.
#[derive(Debug)]
pub struct PromptMessage {
    message: Message,
}

impl PromptMessage {
    /// Wraps a message.
    pub fn new(message: Message) -> Arc<Self> {
        Arc::new(Self { message })
    }

    /// The message.
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// Appends the message as JSON.
    pub fn push_json(&self, dialect: Dialect, out: &mut Vec<u8>) {
        push_message_json(&self.message, dialect, out);
    }
}

/// Appends a message as JSON in a dialect.
pub fn push_message_json(message: &Message, dialect: Dialect, out: &mut Vec<u8>) {
    let mut value = serde_json::to_value(message).unwrap_or(Value::Null);
    if let (Dialect::ChatCompletions, Some(object)) = (dialect, value.as_object_mut()) {
        object.remove("id");
        for (ours, theirs) in [("toolCalls", "tool_calls"), ("toolCallId", "tool_call_id")] {
            if let Some(value) = object.remove(ours) {
                object.insert(theirs.to_owned(), value);
            }
        }
    }
    out.extend_from_slice(value.to_string().as_bytes());
}

/// A turn's prompt.
#[derive(Debug)]
pub struct Prompt {
    system: Vec<Fragment>,
    messages: Vec<Arc<PromptMessage>>,
}

impl Prompt {
    /// Puts fragments and messages together.
    pub fn new(system: Vec<Fragment>, messages: Vec<Arc<PromptMessage>>) -> Self {
        Self { system, messages }
    }

    /// The final system prompt.
    pub fn system_text(&self) -> String {
        self.system.iter().map(|fragment| fragment.part.text()).collect::<Vec<_>>().join("\n\n")
    }

    /// Whether there is no system prompt.
    pub fn system_is_empty(&self) -> bool {
        self.system.is_empty()
    }

    /// Appends the system prompt as a JSON string, quotes included.
    pub fn push_system_json(&self, out: &mut Vec<u8>) {
        out.push(b'"');
        for (i, fragment) in self.system.iter().enumerate() {
            if i > 0 {
                out.extend_from_slice(b"\\n\\n");
            }
            out.extend_from_slice(fragment.part.json().as_bytes());
        }
        out.push(b'"');
    }

    /// History and latest turn, after trimming.
    pub fn messages(&self) -> &[Arc<PromptMessage>] {
        &self.messages
    }

    /// Appends the messages as JSON values separated by commas, without brackets.
    pub fn push_messages_json(&self, dialect: Dialect, out: &mut Vec<u8>) {
        for (i, message) in self.messages.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            message.push_json(dialect, out);
        }
    }

    /// Whether any message has pictures or files, which not every model takes.
    pub fn has_media(&self) -> bool {
        self.messages.iter().any(|message| message.message.content.has_media())
    }

    /// The latest message of the person.
    pub fn latest_user_text(&self) -> Option<std::borrow::Cow<'_, str>> {
        let latest = self.messages.iter().rev().find(|m| m.message.role == Role::User)?;
        Some(latest.message.content.to_text())
    }
}
