//! Parts of the message format that are specific to Ollama's `/api/chat`.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use super::{Dialect, media_placeholder, push};
use crate::message::{ContentPart, MediaSource, Message, ToolCall};

/// Returns true if Ollama can represent the part: text, and images with inline data.
pub(super) fn supports(part: &ContentPart) -> bool {
    matches!(part, ContentPart::Text { .. }) || inline_image(part).is_some()
}

fn inline_image(part: &ContentPart) -> Option<&str> {
    match part {
        ContentPart::Image { source: MediaSource::Data { value, .. } } => Some(value),
        _ => None,
    }
}

/// Returns the part's share of the message text: its own text, nothing for an image, a note for the rest.
fn part_text(part: &ContentPart) -> Option<Cow<'_, str>> {
    match part {
        ContentPart::Text { text } => Some(Cow::Borrowed(text.as_str())),
        part if supports(part) => None,
        part => Some(Cow::Owned(media_placeholder(part))),
    }
}

/// Appends the texts of the parts as one JSON string, joined by newlines.
pub(super) fn push_text(parts: &[ContentPart], out: &mut Vec<u8>) {
    let texts: Vec<Cow<'_, str>> =
        parts.iter().filter_map(part_text).filter(|text| !text.is_empty()).collect();
    push(&texts.join("\n"), out);
}

/// Appends the `images` member, if there are any images.
pub(super) fn push_images(parts: &[ContentPart], out: &mut Vec<u8>) {
    let pictures: Vec<&str> = parts.iter().filter_map(inline_image).collect();
    if !pictures.is_empty() {
        out.extend_from_slice(b",\"images\":");
        push(&pictures, out);
    }
}

/// Appends the tool calls. Current servers match results by `id`; older ones ignore it and match by the tool's name.
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
        let function = Function { name: &function.name, arguments: arguments_object(&function.arguments) };
        push(&Call { id, function }, out);
    }
    out.push(b']');
}

/// Returns the arguments as a JSON object, because the server rejects a conversation with anything else. Arguments that
/// are no object become `{}`; the call's result reports the error to the model.
fn arguments_object(arguments: &str) -> &RawValue {
    let value = serde_json::from_str::<&RawValue>(arguments);
    let object = value.ok().filter(|value| value.get().starts_with('{'));
    object.unwrap_or_else(|| serde_json::from_str("{}").expect("a constant of JSON"))
}

/// Adds the tool's name to each tool result, taken from the call that it answers. A result must follow the message with
/// its call, as the repair of histories and the tool loop ensure; any other result stays unnamed.
pub(in crate::prompt) struct ToolResultNames<'a> {
    dialect: Dialect,
    calls: &'a [ToolCall],
}

impl<'a> ToolResultNames<'a> {
    /// Creates the tracker for a dialect; it is a no-op unless the dialect is [`Dialect::Ollama`].
    pub(in crate::prompt) fn new(dialect: Dialect) -> Self {
        Self { dialect, calls: &[] }
    }

    /// Records the message's calls, or completes a tool result, which must be the end of `out`.
    pub(in crate::prompt) fn append_tool_name(&mut self, message: &'a Message, out: &mut Vec<u8>) {
        if self.dialect != Dialect::Ollama {
            return;
        }
        if !message.tool_calls.is_empty() {
            self.calls = &message.tool_calls;
        }
        let Some(id) = &message.tool_call_id else { return };
        let Some(call) = self.calls.iter().find(|call| call.id == *id) else { return };
        // Removes the object's closing brace.
        out.pop();
        out.extend_from_slice(b",\"tool_name\":");
        push(&call.function.name, out);
        out.push(b'}');
    }
}
