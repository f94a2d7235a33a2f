//! Messages as content blocks of the Messages API.
//!
//! The API has two roles, which alternate: the results of calls, and instructions within a conversation, are blocks of the
//! user. Adjacent messages of one role become one message.

use agent_core::message::{Content, ContentPart, MediaSource, Message, Role, ToolCall};
use agent_core::payload::PayloadBuilder;
use agent_core::prompt::PromptMessage;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::models::answer_parts::{AnswerPart, ItemMaker, answer_parts};
use crate::models::body::arguments_object;
use crate::models::names::{wire_call_id, wire_tool_name};

/// Member of a block up to which the server may cache the prompt.
pub(super) const CACHE_BREAKPOINT: &str = r#","cache_control":{"type":"ephemeral"}"#;

/// Media types of the images that the API reads.
const IMAGE_TYPES: [&str; 4] = ["image/gif", "image/jpeg", "image/png", "image/webp"];
/// Media type of the documents that the API reads.
const DOCUMENT_TYPE: &str = "application/pdf";

/// Beginning of a conversation whose first message is the model's, such as a greeting: the API requires one of the
/// user in front of it.
const OPENING_USER_MESSAGE: &str = concat!(
    r#"{"role":"user","content":[{"type":"text","text":"(The conversation begins with your message.)"}]},"#,
    r#"{"role":"assistant","content":["#
);

/// Returns true if the part of the message has a form in the API.
pub(super) fn is_supported(message: &Message, part: &ContentPart) -> bool {
    match part {
        ContentPart::Text { .. } => true,
        ContentPart::Image { source } => message.role != Role::Assistant && is_image(source),
        ContentPart::Document { source } => message.role != Role::Assistant && is_pdf(source),
        _ => false,
    }
}

fn is_image(source: &MediaSource) -> bool {
    match source {
        MediaSource::Data { mime_type, .. } => IMAGE_TYPES.contains(&mime_type.as_str()),
        MediaSource::Url { .. } => true,
    }
}

fn is_pdf(source: &MediaSource) -> bool {
    match source {
        MediaSource::Data { mime_type, .. } => mime_type == DOCUMENT_TYPE,
        MediaSource::Url { mime_type, .. } => mime_type.as_deref().is_none_or(|kind| kind == DOCUMENT_TYPE),
    }
}

/// Writer of the member `messages`.
pub(super) struct MessagesWriter<'a> {
    body: &'a mut PayloadBuilder,
    /// Name of the model, which gets its own thinking alone.
    model: &'a str,
    /// Role of the message whose blocks are being written.
    open: Option<WireRole>,
    /// True if the last block may have a breakpoint.
    can_mark: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WireRole {
    User,
    Assistant,
}

impl<'a> MessagesWriter<'a> {
    /// Begins the member.
    pub(super) fn new(model: &'a str, body: &'a mut PayloadBuilder) -> Self {
        body.raw(r#","messages":["#);
        Self { body, model, open: None, can_mark: false }
    }

    /// Appends a message of the prompt. The blocks of one that are the same for all models are encoded once.
    pub(super) fn push_prepared(&mut self, message: &PromptMessage) {
        if message.original().provider_items.is_empty() {
            self.push_blocks(&message.derived(|message| Blocks::encode(message, "")));
        } else {
            self.push_blocks(&Blocks::encode(message.message(), self.model));
        }
    }

    /// Appends a message of the run.
    pub(super) fn push(&mut self, message: &Message) {
        self.push_blocks(&Blocks::encode(message, self.model));
    }

    fn push_blocks(&mut self, blocks: &Blocks) {
        if blocks.json.is_empty() {
            return;
        }
        if self.open == Some(blocks.role) {
            self.body.raw(",");
        } else {
            self.body.raw(match (self.open, blocks.role) {
                (None, WireRole::User) => r#"{"role":"user","content":["#,
                (None, WireRole::Assistant) => OPENING_USER_MESSAGE,
                (Some(_), WireRole::User) => r#"]},{"role":"user","content":["#,
                (Some(_), WireRole::Assistant) => r#"]},{"role":"assistant","content":["#,
            });
            self.open = Some(blocks.role);
        }
        self.body.buffer().extend_from_slice(&blocks.json);
        self.can_mark = blocks.can_mark;
    }

    /// Lets the server cache the prompt up to the last block.
    pub(super) fn mark(&mut self) {
        if std::mem::take(&mut self.can_mark) {
            let buffer = self.body.buffer();
            let end = buffer.pop();
            debug_assert_eq!(end, Some(b'}'), "a block is an object");
            self.body.raw(CACHE_BREAKPOINT).raw("}");
        }
    }

    /// Ends the member.
    pub(super) fn finish(self) {
        self.body.raw(if self.open.is_some() { "]}]" } else { "]" });
    }
}

/// Blocks of a message, separated by commas.
struct Blocks {
    role: WireRole,
    json: Box<[u8]>,
    can_mark: bool,
}

impl Blocks {
    fn encode(message: &Message, model: &str) -> Self {
        let mut writer = BlockWriter { json: Vec::new(), can_mark: false };
        let role = match message.role {
            Role::Assistant => {
                writer.push_answer(message, model);
                WireRole::Assistant
            }
            Role::Tool => {
                writer.push_result(message);
                WireRole::User
            }
            Role::System | Role::Developer | Role::User => {
                parts(&message.content).iter().for_each(|block| writer.push(block));
                WireRole::User
            }
        };
        Self { role, json: writer.json.into(), can_mark: writer.can_mark }
    }
}

struct BlockWriter {
    json: Vec<u8>,
    can_mark: bool,
}

impl BlockWriter {
    /// Returns the buffer for the next block.
    fn next(&mut self) -> &mut Vec<u8> {
        if !self.json.is_empty() {
            self.json.push(b',');
        }
        &mut self.json
    }

    fn push(&mut self, block: &Block<'_>) {
        serde_json::to_writer(self.next(), block).expect("plain data serialises into memory");
        self.can_mark = true;
    }

    fn push_result(&mut self, message: &Message) {
        let id = wire_call_id(message.tool_call_id.as_deref().unwrap_or_default());
        self.push(&Block::ToolResult { tool_use_id: &id, content: parts(&message.content) });
    }

    /// Appends an answer: its text, its calls and the thinking of `model`, in the order in which they were made.
    fn push_answer(&mut self, message: &Message, model: &str) {
        let text = message.content.to_text();
        for part in answer_parts(message, &text, ItemMaker::thinking(model)) {
            match part {
                AnswerPart::Text(text) => self.push_text(text),
                AnswerPart::Calls(calls) => self.push_calls(calls),
                AnswerPart::Item(item) => {
                    self.next().extend_from_slice(item.get().as_bytes());
                    // The API rejects a breakpoint at thinking.
                    self.can_mark = false;
                }
            }
        }
    }

    fn push_text(&mut self, text: &str) {
        if has_words(text) {
            self.push(&Block::Text { text });
        }
    }

    fn push_calls(&mut self, calls: &[ToolCall]) {
        for ToolCall { id, function, .. } in calls {
            let input = arguments_object(&function.arguments);
            let (id, name) = (wire_call_id(id), wire_tool_name(&function.name));
            self.push(&Block::ToolUse { id: &id, name: &name, input });
        }
    }
}

/// Returns true if the API accepts the text: it rejects blocks without any.
fn has_words(text: &str) -> bool {
    !text.trim().is_empty()
}

/// Converts content to blocks. Content without text has no blocks.
fn parts(content: &Content) -> Vec<Block<'_>> {
    match content {
        Content::Text(text) => has_words(text).then_some(Block::Text { text }).into_iter().collect(),
        Content::Parts(parts) => parts.iter().filter_map(block).collect(),
    }
}

fn block(part: &ContentPart) -> Option<Block<'_>> {
    match part {
        ContentPart::Text { text } => has_words(text).then_some(Block::Text { text }),
        ContentPart::Image { source } => Some(Block::Image { source: Source::of(source) }),
        ContentPart::Document { source } => Some(Block::Document { source: Source::of(source) }),
        // Refused, or replaced by a note: see `is_supported`.
        _ => None,
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text {
        text: &'a str,
    },
    Image {
        source: Source<'a>,
    },
    Document {
        source: Source<'a>,
    },
    ToolUse {
        id: &'a str,
        name: &'a str,
        input: &'a RawValue,
    },
    ToolResult {
        tool_use_id: &'a str,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        content: Vec<Block<'a>>,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Source<'a> {
    Base64 { media_type: &'a str, data: &'a str },
    Url { url: &'a str },
}

impl<'a> Source<'a> {
    fn of(source: &'a MediaSource) -> Self {
        match source {
            MediaSource::Data { value, mime_type } => Self::Base64 { media_type: mime_type, data: value },
            MediaSource::Url { value, .. } => Self::Url { url: value },
        }
    }
}
