//! How Ollama's `/api/chat` spells what other dialects spell otherwise.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use super::{Dialect, note, push};
use crate::message::{ContentPart, MediaSource, Message, ToolCall};

/// Whether there are words for the part: text, and pictures whose bytes are at hand.
pub(super) fn takes(part: &ContentPart) -> bool {
    matches!(part, ContentPart::Text { .. }) || picture(part).is_some()
}

fn picture(part: &ContentPart) -> Option<&str> {
    match part {
        ContentPart::Image { source: MediaSource::Data { value, .. } } => Some(value),
        _ => None,
    }
}

/// What stands for the part in the text: its own, nothing for a picture, a note for the rest.
fn words(part: &ContentPart) -> Option<Cow<'_, str>> {
    match part {
        ContentPart::Text { text } => Some(Cow::Borrowed(text.as_str())),
        part if takes(part) => None,
        part => Some(Cow::Owned(note(part))),
    }
}

/// Appends the parts' texts as one string, a line break between any two.
pub(super) fn push_text(parts: &[ContentPart], out: &mut Vec<u8>) {
    let texts: Vec<Cow<'_, str>> = parts.iter().filter_map(words).filter(|text| !text.is_empty()).collect();
    push(&texts.join("\n"), out);
}

/// Appends the member that holds the pictures, if there are any.
pub(super) fn push_images(parts: &[ContentPart], out: &mut Vec<u8>) {
    let pictures: Vec<&str> = parts.iter().filter_map(picture).collect();
    if !pictures.is_empty() {
        out.extend_from_slice(b",\"images\":");
        push(&pictures, out);
    }
}

/// Appends the calls. Servers of today tell results apart by `id`; older ones pass it over and go by
/// the tool's name.
pub(super) fn push_calls(calls: &[ToolCall], out: &mut Vec<u8>) {
    #[derive(Serialize)]
    struct Call<'a> {
        id: &'a str,
        function: Function<'a>,
    }
    #[derive(Serialize)]
    struct Function<'a> {
        name: &'a str,
        arguments: &'a RawValue,
    }
    out.push(b'[');
    for (i, ToolCall { id, function, .. }) in calls.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        let function = Function { name: &function.name, arguments: object(&function.arguments) };
        push(&Call { id, function }, out);
    }
    out.push(b']');
}

/// The arguments as an object, for the server refuses a conversation with any other; broken ones are
/// told to the model by the call's result.
fn object(arguments: &str) -> &RawValue {
    let value = serde_json::from_str::<&RawValue>(arguments);
    let object = value.ok().filter(|value| value.get().starts_with('{'));
    object.unwrap_or_else(|| serde_json::from_str("{}").expect("a constant of JSON"))
}

/// Names the tool in each result, after the call that it answers. A result stands behind the message that
/// calls, as [`crate::history::repair`] and the tool loop have it; one that does not stays unnamed.
pub(in crate::prompt) struct ToolNames<'a> {
    dialect: Dialect,
    calls: &'a [ToolCall],
}

impl<'a> ToolNames<'a> {
    /// Only [`Dialect::Ollama`] asks for names.
    pub(in crate::prompt) fn of(dialect: Dialect) -> Self {
        Self { dialect, calls: &[] }
    }

    /// Takes note of the message's calls; completes a result, which must be what `out` ends with.
    pub(in crate::prompt) fn follow(&mut self, message: &'a Message, out: &mut Vec<u8>) {
        if self.dialect != Dialect::Ollama {
            return;
        }
        if !message.tool_calls.is_empty() {
            self.calls = &message.tool_calls;
        }
        let Some(id) = &message.tool_call_id else { return };
        let Some(call) = self.calls.iter().find(|call| call.id == *id) else { return };
        // The object's closing brace.
        out.pop();
        out.extend_from_slice(b",\"tool_name\":");
        push(&call.function.name, out);
        out.push(b'}');
    }
}
