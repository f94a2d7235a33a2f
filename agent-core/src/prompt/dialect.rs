//! The spellings of messages on the wire.

use serde::Serialize;

use crate::message::{Content, ContentPart, MediaSource, Message, Role};

mod chat_completions;
mod ollama;

use chat_completions::ChatPart;
pub(super) use ollama::ToolNames;

/// The spellings of messages on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// AG-UI: `toolCalls`, `toolCallId`, AG-UI parts.
    AgUi,
    /// OpenAI Chat Completions: `tool_calls`, `tool_call_id`, `image_url`, `input_audio` and `file`
    /// parts; no message ids.
    ChatCompletions,
    /// Ollama's `/api/chat`: content is one text, pictures stand beside it as base64, a call's arguments
    /// are an object, and a result names its tool; no message ids.
    Ollama,
}

impl Dialect {
    /// How many there are; each message caches its bytes for every one.
    pub(super) const COUNT: usize = 3;

    /// The dialect's place in such a cache.
    pub(super) fn index(self) -> usize {
        self as usize
    }

    /// Whether the dialect can say this part. What it cannot say is written as a note in words, so that
    /// nothing vanishes; a model that wants to refuse instead asks here first.
    pub fn takes(self, part: &ContentPart) -> bool {
        match self {
            Self::AgUi => true,
            Self::ChatCompletions => ChatPart::of(part).is_some(),
            Self::Ollama => ollama::takes(part),
        }
    }
}

/// Appends a message as JSON in a dialect.
///
/// Content is left out only where an assistant's message has none and calls tools; elsewhere empty
/// content is the empty string, for readers of every dialect ask for it. A tool's result for
/// [`Dialect::Ollama`] lacks its tool's name, which is known to the call alone: [`push_messages_json`]
/// has both.
pub fn push_message_json(message: &Message, dialect: Dialect, out: &mut Vec<u8>) {
    encode(message, dialect, out);
}

/// Appends messages as JSON values separated by commas, without brackets.
pub fn push_messages_json(messages: &[Message], dialect: Dialect, out: &mut Vec<u8>) {
    let mut names = ToolNames::of(dialect);
    for (i, message) in messages.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        push_message_json(message, dialect, out);
        names.follow(message, out);
    }
}

/// Appends the message and gives the place in `out` where its content begins: behind the opening quote
/// of a text, behind the opening bracket of parts.
pub(super) fn encode(message: &Message, dialect: Dialect, out: &mut Vec<u8>) -> usize {
    out.push(b'{');
    if let (Dialect::AgUi, Some(id)) = (dialect, &message.id) {
        out.extend_from_slice(b"\"id\":");
        push(id, out);
        out.push(b',');
    }
    out.extend_from_slice(b"\"role\":");
    push(&role(message.role, dialect), out);
    let mut content_at = out.len();
    let calls_only = message.role == Role::Assistant && !message.tool_calls.is_empty();
    if !(calls_only && message.content.is_empty()) {
        out.extend_from_slice(b",\"content\":");
        content_at = out.len() + 1;
        push_content(&message.content, dialect, out);
    }
    if let (Dialect::Ollama, Content::Parts(parts)) = (dialect, &message.content) {
        ollama::push_images(parts, out);
    }
    let (calls, call_id): (&[u8], &[u8]) = match dialect {
        Dialect::AgUi => (b",\"toolCalls\":", b",\"toolCallId\":"),
        Dialect::ChatCompletions | Dialect::Ollama => (b",\"tool_calls\":", b",\"tool_call_id\":"),
    };
    if !message.tool_calls.is_empty() {
        out.extend_from_slice(calls);
        match dialect {
            Dialect::Ollama => ollama::push_calls(&message.tool_calls, out),
            _ => push(&message.tool_calls, out),
        }
    }
    if let Some(id) = &message.tool_call_id {
        out.extend_from_slice(call_id);
        push(id, out);
    }
    out.push(b'}');
    content_at
}

/// Ollama knows no instructions but the system's.
fn role(role: Role, dialect: Dialect) -> Role {
    match (dialect, role) {
        (Dialect::Ollama, Role::Developer) => Role::System,
        _ => role,
    }
}

fn push_content(content: &Content, dialect: Dialect, out: &mut Vec<u8>) {
    match (content, dialect) {
        (Content::Text(text), _) => push(text, out),
        (Content::Parts(parts), _) if parts.is_empty() => out.extend_from_slice(b"\"\""),
        (Content::Parts(parts), Dialect::AgUi) => push(parts, out),
        (Content::Parts(parts), Dialect::Ollama) => ollama::push_text(parts, out),
        (Content::Parts(parts), Dialect::ChatCompletions) => {
            out.push(b'[');
            for (i, part) in parts.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                push(&ChatPart::of(part).unwrap_or_else(|| ChatPart::note(part)), out);
            }
            out.push(b']');
        }
    }
}

fn push(value: &(impl Serialize + ?Sized), out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("plain data serialises into memory");
}

/// A note that stands for a part without a spelling. It never holds the medium's bytes.
fn note(part: &ContentPart) -> String {
    let (kind, source) = match part {
        ContentPart::Text { text } => return text.clone(),
        ContentPart::Image { source } => ("image", source),
        ContentPart::Audio { source } => ("audio", source),
        ContentPart::Video { source } => ("video", source),
        ContentPart::Document { source } => ("document", source),
    };
    match source {
        MediaSource::Data { mime_type, .. } => format!("[{kind} of type {mime_type}, not shown]"),
        MediaSource::Url { value, .. } => format!("[{kind} at {value}]"),
    }
}
