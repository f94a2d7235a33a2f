//! Wire formats of messages.

use serde::Serialize;

use crate::message::{Content, ContentPart, Message, Role};

mod chat_completions;

use chat_completions::ChatPart;

/// A wire format of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// AG-UI: `toolCalls`, `toolCallId`, AG-UI content parts.
    AgUi,
    /// OpenAI Chat Completions: `tool_calls`, `tool_call_id`, `image_url`, `input_audio`, `file`; no message ids.
    ChatCompletions,
}

impl Dialect {
    /// Number of dialects; each message caches its bytes for every one.
    pub(super) const COUNT: usize = 2;

    /// Returns the dialect's index into such a cache.
    pub(super) fn index(self) -> usize {
        self as usize
    }

    /// Returns true if the dialect can represent this part. Any other part is written as a note in text, so that
    /// nothing is dropped silently; a model that rejects such parts instead checks here first.
    pub fn supports(self, part: &ContentPart) -> bool {
        match self {
            Self::AgUi => true,
            Self::ChatCompletions => ChatPart::from_part(part).is_some(),
        }
    }
}

/// Appends a message as JSON in a dialect.
///
/// Content is omitted only for an assistant message with tool calls and no content; elsewhere empty content is the
/// empty string, which readers of every dialect require.
pub(crate) fn push_message_json(message: &Message, dialect: Dialect, out: &mut Vec<u8>) {
    encode(message, dialect, out);
}

/// Appends messages as JSON values separated by commas, without brackets.
pub fn push_messages_json(messages: &[Message], dialect: Dialect, out: &mut Vec<u8>) {
    push_list(messages, out, |message, out| push_message_json(message, dialect, out));
}

/// Appends items separated by commas.
pub(super) fn push_list<T>(
    items: impl IntoIterator<Item = T>,
    out: &mut Vec<u8>,
    push_item: impl Fn(T, &mut Vec<u8>),
) {
    for (i, item) in items.into_iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        push_item(item, out);
    }
}

/// Appends the message; returns the offset in `out` of its content: after a text's opening quote or the parts' bracket.
pub(super) fn encode(message: &Message, dialect: Dialect, out: &mut Vec<u8>) -> usize {
    out.push(b'{');
    if let (Dialect::AgUi, Some(id)) = (dialect, &message.id) {
        out.extend_from_slice(b"\"id\":");
        push(id, out);
        out.push(b',');
    }
    out.extend_from_slice(b"\"role\":");
    push(&message.role, out);
    let mut content_at = out.len();
    let calls_only = message.role == Role::Assistant && !message.tool_calls.is_empty();
    if !(calls_only && message.content.is_empty()) {
        out.extend_from_slice(b",\"content\":");
        content_at = out.len() + 1;
        push_content(&message.content, dialect, out);
    }
    let (calls, call_id): (&[u8], &[u8]) = match dialect {
        Dialect::AgUi => (b",\"toolCalls\":", b",\"toolCallId\":"),
        Dialect::ChatCompletions => (b",\"tool_calls\":", b",\"tool_call_id\":"),
    };
    if !message.tool_calls.is_empty() {
        out.extend_from_slice(calls);
        push(&message.tool_calls, out);
    }
    if let Some(id) = &message.tool_call_id {
        out.extend_from_slice(call_id);
        push(id, out);
    }
    out.push(b'}');
    content_at
}

fn push_content(content: &Content, dialect: Dialect, out: &mut Vec<u8>) {
    match (content, dialect) {
        (Content::Text(text), _) => push(text, out),
        (Content::Parts(parts), _) if parts.is_empty() => out.extend_from_slice(b"\"\""),
        (Content::Parts(parts), Dialect::AgUi) => push(parts, out),
        (Content::Parts(parts), Dialect::ChatCompletions) => {
            out.push(b'[');
            push_list(parts, out, |part, out| {
                push(&ChatPart::from_part(part).unwrap_or_else(|| ChatPart::placeholder(part)), out);
            });
            out.push(b']');
        }
    }
}

fn push(value: &(impl Serialize + ?Sized), out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("plain data serialises into memory");
}
