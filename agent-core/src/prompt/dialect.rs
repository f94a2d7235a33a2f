//! The spellings of messages on the wire.

use serde::{Serialize, Serializer};

use crate::message::{Content, ContentPart, MediaSource, Message, Role};

/// The spellings of messages on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// AG-UI: `toolCalls`, `toolCallId`, AG-UI parts.
    AgUi,
    /// OpenAI Chat Completions: `tool_calls`, `tool_call_id`, `image_url`, `input_audio` and `file`
    /// parts; no message ids.
    ChatCompletions,
}

impl Dialect {
    /// How many there are; each message caches its bytes for every one.
    pub(super) const COUNT: usize = 2;

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
        }
    }
}

/// Appends a message as JSON in a dialect.
///
/// Content is left out only where an assistant's message has none and calls tools; elsewhere empty
/// content is the empty string, for readers of both dialects ask for it.
pub fn push_message_json(message: &Message, dialect: Dialect, out: &mut Vec<u8>) {
    encode(message, dialect, out);
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

/// A content part of Chat Completions.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ChatPart<'a> {
    Text { text: std::borrow::Cow<'a, str> },
    ImageUrl { image_url: ImageUrl<'a> },
    InputAudio { input_audio: InputAudio<'a> },
    File { file: File<'a> },
}

#[derive(Serialize)]
struct ImageUrl<'a> {
    url: Address<'a>,
}

#[derive(Serialize)]
struct InputAudio<'a> {
    data: &'a str,
    format: &'static str,
}

#[derive(Serialize)]
struct File<'a> {
    filename: &'static str,
    file_data: Address<'a>,
}

impl<'a> ChatPart<'a> {
    /// The part, where Chat Completions has words for it.
    fn of(part: &'a ContentPart) -> Option<Self> {
        match part {
            ContentPart::Text { text } => Some(Self::Text { text: text.as_str().into() }),
            ContentPart::Image { source } => {
                Some(Self::ImageUrl { image_url: ImageUrl { url: Address(source) } })
            }
            ContentPart::Audio { source: MediaSource::Data { value, mime_type } } => {
                let format = match mime_type.as_str() {
                    "audio/wav" | "audio/x-wav" | "audio/wave" => "wav",
                    "audio/mpeg" | "audio/mp3" => "mp3",
                    _ => return None,
                };
                Some(Self::InputAudio { input_audio: InputAudio { data: value, format } })
            }
            ContentPart::Document { source: source @ MediaSource::Data { mime_type, .. } } => {
                let file = File { filename: file_name(mime_type), file_data: Address(source) };
                Some(Self::File { file })
            }
            _ => None,
        }
    }

    /// A note that stands for a part without a spelling. It never holds the medium's bytes.
    fn note(part: &ContentPart) -> Self {
        let (kind, source) = match part {
            ContentPart::Text { text } => return Self::Text { text: text.clone().into() },
            ContentPart::Image { source } => ("image", source),
            ContentPart::Audio { source } => ("audio", source),
            ContentPart::Video { source } => ("video", source),
            ContentPart::Document { source } => ("document", source),
        };
        let text = match source {
            MediaSource::Data { mime_type, .. } => format!("[{kind} of type {mime_type}, not shown]"),
            MediaSource::Url { value, .. } => format!("[{kind} at {value}]"),
        };
        Self::Text { text: text.into() }
    }
}

/// Chat Completions asks for a file's name and goes by its ending.
fn file_name(mime_type: &str) -> &'static str {
    match mime_type {
        "application/pdf" => "document.pdf",
        "text/plain" => "document.txt",
        "text/markdown" => "document.md",
        "text/csv" => "document.csv",
        "text/html" => "document.html",
        "application/json" => "document.json",
        _ => "document",
    }
}

/// Where a medium is, as one address: its own, or a `data:` URL (RFC 2397) written without a copy.
struct Address<'a>(&'a MediaSource);

impl Serialize for Address<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            MediaSource::Data { value, mime_type } => {
                serializer.collect_str(&format_args!("data:{mime_type};base64,{value}"))
            }
            MediaSource::Url { value, .. } => serializer.serialize_str(value),
        }
    }
}
