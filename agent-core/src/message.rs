//! Messages, tool calls and usage: plain data in the shapes of AG-UI 1.0.
//!
//! These types serialise to what a browser, an agent runtime or a preview reads. Reading what
//! strangers send, in its several spellings, is [`crate::history`]'s business.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The operator's standing instructions.
    System,
    /// Instructions by the embedding application, below the system's.
    Developer,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// The result of a tool call.
    Tool,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    /// The sender's identifier, at most 128 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Who speaks.
    pub role: Role,
    /// What is said. An assistant message that only calls tools has empty content.
    #[serde(default, skip_serializing_if = "Content::is_empty")]
    pub content: Content,
    /// The calls that an assistant message makes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// The call that a tool message answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

impl Message {
    /// A message of plain text.
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self {
            id: None,
            role,
            content: Content::Text(text.into()),
            tool_calls: Vec::new(),
            tool_call_id: None,
        }
    }

    /// The person's message.
    pub fn user(text: impl Into<String>) -> Self {
        Self::text(Role::User, text)
    }

    /// The model's message.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::text(Role::Assistant, text)
    }

    /// The model's message when it calls tools.
    pub fn calls(text: impl Into<String>, tool_calls: Vec<ToolCall>) -> Self {
        Self { tool_calls, ..Self::text(Role::Assistant, text) }
    }

    /// The result of a tool call.
    pub fn tool_result(call_id: impl Into<String>, content: impl Into<String>) -> Self {
        Self { tool_call_id: Some(call_id.into()), ..Self::text(Role::Tool, content) }
    }
}

/// What a message says: text, or parts of several media.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Content {
    /// Plain text.
    Text(String),
    /// Parts in order.
    Parts(Vec<ContentPart>),
}

impl Default for Content {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

impl Content {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::Parts(parts) => parts.is_empty(),
        }
    }

    /// Whether there is anything but text, which not every model takes.
    pub fn has_media(&self) -> bool {
        match self {
            Self::Text(_) => false,
            Self::Parts(parts) => parts.iter().any(|part| !matches!(part, ContentPart::Text { .. })),
        }
    }

    /// The text alone, parts joined by newlines.
    pub fn to_text(&self) -> std::borrow::Cow<'_, str> {
        match self {
            Self::Text(text) => text.as_str().into(),
            Self::Parts(parts) => {
                let texts: Vec<&str> = parts
                    .iter()
                    .filter_map(|part| match part {
                        ContentPart::Text { text } => Some(text.as_str()),
                        _ => None,
                    })
                    .collect();
                texts.join("\n").into()
            }
        }
    }
}

/// One part of a message, as AG-UI 1.0 shapes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum ContentPart {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// A picture.
    Image {
        /// Where it is.
        source: MediaSource,
    },
    /// Sound.
    Audio {
        /// Where it is.
        source: MediaSource,
    },
    /// A film.
    Video {
        /// Where it is.
        source: MediaSource,
    },
    /// A file.
    Document {
        /// Where it is.
        source: MediaSource,
    },
}

/// Where a media part's bytes are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum MediaSource {
    /// Inline.
    Data {
        /// Base64.
        value: String,
        /// The media type, such as `image/png`.
        #[serde(rename = "mimeType")]
        mime_type: String,
    },
    /// At an address that the model's vendor fetches.
    Url {
        /// The address.
        value: String,
        /// The media type, where it is known.
        #[serde(rename = "mimeType", default, skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
    },
}

/// A model's wish to have a tool called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The call's identifier, which its result names.
    pub id: String,
    /// Always `function`.
    #[serde(rename = "type", default)]
    pub kind: FunctionKind,
    /// What to call.
    pub function: FunctionCall,
}

impl ToolCall {
    /// A call of `name` with `arguments` as JSON text.
    pub fn new(id: impl Into<String>, name: impl Into<String>, arguments: impl Into<String>) -> Self {
        let function = FunctionCall { name: name.into(), arguments: arguments.into() };
        Self { id: id.into(), kind: FunctionKind::Function, function }
    }
}

/// The one kind of tool call there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FunctionKind {
    /// A function.
    #[default]
    Function,
}

/// A function's name and arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// The tool's name.
    pub name: String,
    /// JSON text as the model wrote it; it may be broken.
    pub arguments: String,
}

/// What a run has used of one model, in tokens; the names are AG-UI's and OpenTelemetry's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    /// The model that answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Who runs the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Tokens read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    /// Tokens written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    /// Tokens written in thought; part of `output_tokens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_tokens: Option<u64>,
    /// Tokens read from the provider's prompt cache; part of `input_tokens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_input_tokens: Option<u64>,
}

impl Usage {
    /// Adds another call's figures, so that a run of several rounds reports their sum.
    pub fn add(&mut self, other: &Usage) {
        fn sum(into: &mut Option<u64>, from: Option<u64>) {
            if let Some(from) = from {
                *into = Some(into.unwrap_or(0).saturating_add(from));
            }
        }
        self.model = other.model.clone().or(self.model.take());
        self.provider = other.provider.clone().or(self.provider.take());
        sum(&mut self.input_tokens, other.input_tokens);
        sum(&mut self.output_tokens, other.output_tokens);
        sum(&mut self.reasoning_tokens, other.reasoning_tokens);
        sum(&mut self.cached_input_tokens, other.cached_input_tokens);
    }
}

/// Why a model stopped; OpenAI's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// It had said what it wanted to.
    Stop,
    /// It reached its token limit.
    Length,
    /// It wants tools called.
    ToolCalls,
    /// A filter stopped it.
    ContentFilter,
}

/// JSON that is kept as it was written and is cheap to clone.
pub type SharedJson = Arc<RawValue>;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The message as it reads back from what it is written as.
    fn written(message: &Message) -> Value {
        let value = serde_json::to_value(message).expect("messages serialise");
        assert_eq!(&serde_json::from_value::<Message>(value.clone()).expect("it reads back"), message);
        value
    }

    #[test]
    fn messages_are_written_as_ag_ui_shapes_them() {
        let call = ToolCall::new("1", "readTodos", "{}");
        let parts = vec![
            ContentPart::Text { text: "What is this?".into() },
            ContentPart::Image {
                source: MediaSource::Url { value: "https://example.com/a.png".into(), mime_type: None },
            },
            ContentPart::Document {
                source: MediaSource::Data { value: "aGk=".into(), mime_type: "text/plain".into() },
            },
        ];
        let in_parts = Message { content: Content::Parts(parts), ..Message::user("") };
        let function = json!({"name": "readTodos", "arguments": "{}"});
        let cases = [
            (Message::user("hi"), json!({"role": "user", "content": "hi"})),
            (
                Message::calls("", vec![call]),
                json!({"role": "assistant", "toolCalls": [{"id": "1", "type": "function", "function": function}]}),
            ),
            (
                Message::tool_result("1", "none"),
                json!({"role": "tool", "content": "none", "toolCallId": "1"}),
            ),
            (
                in_parts,
                json!({"role": "user", "content": [
                    {"type": "text", "text": "What is this?"},
                    {"type": "image", "source": {"type": "url", "value": "https://example.com/a.png"}},
                    {"type": "document", "source": {"type": "data", "value": "aGk=", "mimeType": "text/plain"}},
                ]}),
            ),
        ];
        for (message, expected) in cases {
            assert_eq!(written(&message), expected);
        }
    }

    #[test]
    fn content_knows_its_text_and_whether_there_is_more() {
        let text = |text: &str| ContentPart::Text { text: text.into() };
        let sound = ContentPart::Audio {
            source: MediaSource::Url { value: "https://example.com/a".into(), mime_type: None },
        };
        let cases = [
            (Content::default(), "", true, false),
            (Content::Text("a".into()), "a", false, false),
            (Content::Parts(vec![]), "", true, false),
            (Content::Parts(vec![text("a"), text("b")]), "a\nb", false, false),
            (Content::Parts(vec![text("a"), sound.clone(), text("b")]), "a\nb", false, true),
            (Content::Parts(vec![sound]), "", false, true),
        ];
        for (content, expected, empty, media) in cases {
            assert_eq!(
                (&*content.to_text(), content.is_empty(), content.has_media()),
                (expected, empty, media)
            );
        }
    }

    #[test]
    fn usage_adds_up_and_what_nobody_has_counted_stays_unknown() {
        let usage = |model: Option<&str>, input, cached| Usage {
            model: model.map(str::to_owned),
            input_tokens: input,
            cached_input_tokens: cached,
            ..Usage::default()
        };
        let mut sum = usage(Some("a"), Some(u64::MAX - 1), None);
        sum.add(&usage(None, Some(1), None));
        assert_eq!(sum, usage(Some("a"), Some(u64::MAX), None));
        sum.add(&usage(Some("b"), Some(1), Some(2)));
        assert_eq!(sum, usage(Some("b"), Some(u64::MAX), Some(2)));
        assert_eq!(serde_json::to_value(Usage::default()).expect("usage serialises"), json!({}));
    }
}
