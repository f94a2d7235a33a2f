//! Messages in the format of `/api/chat`: content is one text, images are a separate member, the arguments of calls are
//! objects, and a result names its tool.

use agent_core::message::{Content, ContentPart, MediaSource, Message, Role, ToolCall};
use agent_core::model::ModelRequest;
use agent_core::payload::{PayloadBuilder, PromptSection};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::models::body::arguments_object;

/// Returns true if the part has a form in the API.
pub(super) fn is_supported(part: &ContentPart) -> bool {
    matches!(part, ContentPart::Text { .. }) || inline_image(part).is_some()
}

fn inline_image(part: &ContentPart) -> Option<&str> {
    match part {
        ContentPart::Image { source: MediaSource::Data { value, .. } } => Some(value),
        _ => None,
    }
}

/// Appends the member `messages`: system prompt, history, and the messages appended during the run.
pub(super) fn push_messages(request: &ModelRequest, body: &mut PayloadBuilder) {
    let prompt = &request.prompt;
    body.raw(r#","messages":["#);
    let start = body.buffer().len();
    if !prompt.system_is_empty() {
        body.section(PromptSection::System).raw(r#"{"role":"system","content":"#);
        prompt.push_system_json(body.buffer());
        body.raw("}");
    }
    let out = body.buffer();
    let mut names = ToolResultNames::default();
    for message in prompt.messages() {
        if out.len() > start {
            out.push(b',');
        }
        out.extend_from_slice(&message.derived(EncodedMessage::new).0);
        names.append_tool_name(message.original(), out);
    }
    for message in &request.appended_messages {
        if out.len() > start {
            out.push(b',');
        }
        push_message(message, out);
        names.append_tool_name(message, out);
    }
    body.raw("]");
}

/// A message of the prompt, encoded once. A result lacks the name of its tool, which another message has.
struct EncodedMessage(Box<[u8]>);

impl EncodedMessage {
    fn new(message: &Message) -> Self {
        let mut json = Vec::new();
        push_message(message, &mut json);
        Self(json.into())
    }
}

/// Appends a message. Content is left out of an assistant message that only calls tools.
fn push_message(message: &Message, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"role\":");
    // The API has no developer messages.
    push(if message.role == Role::Developer { &Role::System } else { &message.role }, out);
    let only_calls = message.role == Role::Assistant && !message.tool_calls.is_empty();
    if !(only_calls && message.content.is_empty()) {
        out.extend_from_slice(b",\"content\":");
        match &message.content {
            Content::Text(text) => push(text, out),
            Content::Parts(parts) => push_text(parts, out),
        }
    }
    if let Content::Parts(parts) = &message.content {
        let images: Vec<&str> = parts.iter().filter_map(inline_image).collect();
        if !images.is_empty() {
            out.extend_from_slice(b",\"images\":");
            push(&images, out);
        }
    }
    if !message.tool_calls.is_empty() {
        push_calls(&message.tool_calls, out);
    }
    if let Some(id) = &message.tool_call_id {
        out.extend_from_slice(b",\"tool_call_id\":");
        push(id, out);
    }
    out.push(b'}');
}

/// Appends the texts of the parts as one JSON string, joined by newlines.
fn push_text(parts: &[ContentPart], out: &mut Vec<u8>) {
    let texts = parts.iter().filter_map(|part| match part {
        ContentPart::Text { text } if !text.is_empty() => Some(text.as_str()),
        _ => None,
    });
    push(&texts.collect::<Vec<_>>().join("\n"), out);
}

/// Appends the tool calls. Current servers match results by `id`; older ones ignore it and match by the tool's name.
fn push_calls(calls: &[ToolCall], out: &mut Vec<u8>) {
    #[derive(Serialize)]
    struct WireCall<'a> {
        id: &'a str,
        function: WireFunction<'a>,
    }
    #[derive(Serialize)]
    struct WireFunction<'a> {
        name: &'a str,
        arguments: &'a RawValue,
    }
    let calls = calls.iter().map(|ToolCall { id, function, .. }| {
        let arguments = arguments_object(&function.arguments);
        WireCall { id, function: WireFunction { name: &function.name, arguments } }
    });
    out.extend_from_slice(b",\"tool_calls\":");
    push(&calls.collect::<Vec<_>>(), out);
}

/// Adds the tool's name to each result, taken from the call that it answers. A result must follow the message with its
/// call, as the repair of histories and the tool loop ensure; any other result stays unnamed.
#[derive(Default)]
struct ToolResultNames<'a> {
    calls: &'a [ToolCall],
}

impl<'a> ToolResultNames<'a> {
    /// Records the message's calls, or completes a result, which must be the end of `out`.
    fn append_tool_name(&mut self, message: &'a Message, out: &mut Vec<u8>) {
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

fn push(value: &(impl Serialize + ?Sized), out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("plain data serialises into memory");
}
