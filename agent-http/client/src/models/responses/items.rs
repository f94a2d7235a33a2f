//! Messages as items of the Responses API.

use std::borrow::Cow;

use agent_core::message::{Content, ContentPart, MediaSource, Message, Role, ToolCall};
use serde::{Serialize, Serializer};

use crate::models::answer_parts::{AnswerPart, ItemMaker, answer_parts};
use crate::models::names::{wire_call_id, wire_tool_name};

/// Returns true if the API supports the part of the message: text, and images except for images of an answer.
pub(super) fn is_supported(message: &Message, part: &ContentPart) -> bool {
    match part {
        ContentPart::Text { .. } => true,
        ContentPart::Image { .. } => message.role != Role::Assistant,
        _ => false,
    }
}

/// Appends the items of a message for `maker`, at least one, separated by commas.
pub(super) fn push_items(message: &Message, maker: ItemMaker<'_>, out: &mut Vec<u8>) {
    match message.role {
        // The API has no system messages.
        Role::System | Role::Developer => push_message("developer", input_parts(&message.content), out),
        Role::User => push_message("user", input_parts(&message.content), out),
        Role::Assistant => push_answer(message, maker, out),
        Role::Tool => {
            let call_id = wire_call_id(message.tool_call_id.as_deref().unwrap_or_default());
            let output = match message.content.has_media() {
                true => ToolResult::Parts(input_parts(&message.content)),
                false => ToolResult::Text(message.content.to_text()),
            };
            push(&Item::FunctionCallOutput { call_id, output }, out);
        }
    }
}

/// Appends an answer: its text, its calls and the items of `maker`, each of these at its position among the others.
fn push_answer(message: &Message, maker: ItemMaker<'_>, out: &mut Vec<u8>) {
    let text = message.content.to_text();
    let mut items = AnswerItems { start: out.len(), out };
    for part in answer_parts(message, &text, maker) {
        match part {
            AnswerPart::Text(text) => items.push_text(text),
            AnswerPart::Calls(calls) => items.push_calls(calls),
            AnswerPart::Item(item) => items.next().extend_from_slice(item.get().as_bytes()),
        }
    }
    if items.out.len() == items.start {
        push_message("assistant", vec![Part::OutputText { text: "" }], items.out);
    }
}

/// Writer of the items of one answer.
struct AnswerItems<'a> {
    out: &'a mut Vec<u8>,
    /// Length of the buffer in front of the first item.
    start: usize,
}

impl AnswerItems<'_> {
    /// Returns the buffer for the next item.
    fn next(&mut self) -> &mut Vec<u8> {
        if self.out.len() > self.start {
            self.out.push(b',');
        }
        self.out
    }

    fn push_text(&mut self, text: &str) {
        if !text.is_empty() {
            push_message("assistant", vec![Part::OutputText { text }], self.next());
        }
    }

    fn push_calls(&mut self, calls: &[ToolCall]) {
        for ToolCall { id, function, .. } in calls {
            let arguments = if function.arguments.trim().is_empty() { "{}" } else { &function.arguments };
            let (call_id, name) = (wire_call_id(id), wire_tool_name(&function.name));
            push(&Item::FunctionCall { call_id, name, arguments }, self.next());
        }
    }
}

/// Converts content to the parts of an input message, at least one.
fn input_parts(content: &Content) -> Vec<Part<'_>> {
    fn part(part: &ContentPart) -> Option<Part<'_>> {
        match part {
            ContentPart::Text { text } => Some(Part::InputText { text }),
            ContentPart::Image { source } => Some(Part::InputImage { image_url: source, detail: "auto" }),
            // Refused, or replaced by a note: see `is_supported`.
            _ => None,
        }
    }
    match content {
        Content::Text(text) => vec![Part::InputText { text }],
        Content::Parts(parts) if parts.is_empty() => vec![Part::InputText { text: "" }],
        Content::Parts(parts) => parts.iter().filter_map(part).collect(),
    }
}

fn push_message(role: &'static str, content: Vec<Part<'_>>, out: &mut Vec<u8>) {
    push(&Item::Message { role, content }, out);
}

fn push(item: &Item<'_>, out: &mut Vec<u8>) {
    serde_json::to_writer(out, item).expect("plain data serialises into memory");
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Item<'a> {
    Message { role: &'static str, content: Vec<Part<'a>> },
    FunctionCall { call_id: Cow<'a, str>, name: Cow<'a, str>, arguments: &'a str },
    FunctionCallOutput { call_id: Cow<'a, str>, output: ToolResult<'a> },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    InputText {
        text: &'a str,
    },
    InputImage {
        #[serde(serialize_with = "serialize_url")]
        image_url: &'a MediaSource,
        detail: &'static str,
    },
    OutputText {
        text: &'a str,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
enum ToolResult<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<Part<'a>>),
}

/// Serializes a source as one URL: its own, or a `data:` URL (RFC 2397).
fn serialize_url<S: Serializer>(source: &MediaSource, serializer: S) -> Result<S::Ok, S::Error> {
    match source {
        MediaSource::Data { value, mime_type } => {
            serializer.collect_str(&format_args!("data:{mime_type};base64,{value}"))
        }
        MediaSource::Url { value, .. } => serializer.serialize_str(value),
    }
}
