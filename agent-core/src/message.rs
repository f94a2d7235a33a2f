//! Messages, tool calls and usage: plain data in the shapes of AG-UI 1.0.
//!
//! These types serialize to the format that browsers, agent runtimes and previews read. Untrusted input in other
//! formats is parsed by the `history` module of `agent-platform`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Role of a message's author.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The operator's instructions.
    System,
    /// Instructions of the embedding application, with lower precedence than the system's.
    Developer,
    /// The human user.
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
    /// Identifier assigned by the sender, at most 128 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Role of the author.
    pub role: Role,
    /// The content. It is empty in an assistant message that only calls tools.
    #[serde(default, skip_serializing_if = "Content::is_empty")]
    pub content: Content,
    /// Tool calls of an assistant message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// In a tool message, the identifier of the call to which the result belongs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Items of an assistant message in the provider's own format, in order. No client sends or receives them.
    #[serde(skip)]
    pub provider_items: Vec<ProviderItem>,
    /// Context that a user message had in an earlier prompt; empty if none, `None` if unknown. No client sends or gets it.
    #[serde(skip)]
    pub sent_context: Option<Arc<str>>,
}

impl Message {
    /// Creates a message of plain text.
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self {
            id: None,
            role,
            content: Content::Text(text.into()),
            tool_calls: Vec::new(),
            tool_call_id: None,
            provider_items: Vec::new(),
            sent_context: None,
        }
    }

    /// Creates a user message.
    pub fn user(text: impl Into<String>) -> Self {
        Self::text(Role::User, text)
    }

    /// Creates an assistant message.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::text(Role::Assistant, text)
    }

    /// Creates an assistant message with tool calls.
    pub fn with_tool_calls(text: impl Into<String>, tool_calls: Vec<ToolCall>) -> Self {
        Self { tool_calls, ..Self::text(Role::Assistant, text) }
    }

    /// Creates the result of a tool call.
    pub fn tool_result(call_id: impl Into<String>, content: impl Into<String>) -> Self {
        Self { tool_call_id: Some(call_id.into()), ..Self::text(Role::Tool, content) }
    }
}

/// Item of an answer in the provider's own format, such as encrypted reasoning, which the adapter sends back at the same position.
#[derive(Debug, Clone)]
pub struct ProviderItem {
    /// The item in the adapter's form, from which the adapter builds the item of a later request.
    pub json: SharedJson,
    /// Length of the answer's text in front of the item, in bytes.
    pub text_before: usize,
    /// Number of the answer's tool calls in front of the item.
    pub calls_before: usize,
}

impl PartialEq for ProviderItem {
    fn eq(&self, other: &Self) -> bool {
        let form = |item: &Self| (item.text_before, item.calls_before);
        form(self) == form(other) && self.json.get() == other.json.get()
    }
}

/// Content of a message: text, or parts of several media types.
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
    /// Returns true if there is no text and there are no parts.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::Parts(parts) => parts.is_empty(),
        }
    }

    /// Returns true if there are parts other than text, which some models do not accept.
    pub fn has_media(&self) -> bool {
        matches!(self, Self::Parts(parts) if part_texts(parts).count() < parts.len())
    }

    /// Returns the text parts, joined by newlines.
    pub fn to_text(&self) -> std::borrow::Cow<'_, str> {
        match self {
            Self::Text(text) => text.as_str().into(),
            Self::Parts(parts) => part_texts(parts).collect::<Vec<_>>().join("\n").into(),
        }
    }
}

/// Returns the texts among the parts of a message.
pub(crate) fn part_texts(parts: &[ContentPart]) -> impl Iterator<Item = &str> {
    parts.iter().filter_map(|part| match part {
        ContentPart::Text { text } => Some(text.as_str()),
        _ => None,
    })
}

/// One part of a message, in the shape of AG-UI 1.0.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum ContentPart {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// An image.
    Image {
        /// The image data or its address.
        source: MediaSource,
    },
    /// An audio recording.
    Audio {
        /// The audio data or its address.
        source: MediaSource,
    },
    /// A video.
    Video {
        /// The video data or its address.
        source: MediaSource,
    },
    /// A file.
    Document {
        /// The file's data or its address.
        source: MediaSource,
    },
}

/// Source of a media part: inline data or an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum MediaSource {
    /// Inline data.
    Data {
        /// The data in Base64.
        value: String,
        /// The media type, such as `image/png`.
        #[serde(rename = "mimeType")]
        mime_type: String,
    },
    /// An address from which the model's provider fetches the data.
    Url {
        /// The address.
        value: String,
        /// The media type, if known.
        #[serde(rename = "mimeType", default, skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
    },
}

/// A tool call requested by the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Identifier of the call, repeated in its result.
    pub id: String,
    /// Always `function`.
    #[serde(rename = "type", default)]
    pub kind: FunctionKind,
    /// The function and its arguments.
    pub function: FunctionCall,
}

impl ToolCall {
    /// Creates a call of the tool `name` with `arguments` as JSON text.
    pub fn new(id: impl Into<String>, name: impl Into<String>, arguments: impl Into<String>) -> Self {
        let function = FunctionCall { name: name.into(), arguments: arguments.into() };
        Self { id: id.into(), kind: FunctionKind::Function, function }
    }
}

/// Kind of a tool call; `function` is the only one.
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
    /// JSON text as the model wrote it, possibly invalid.
    pub arguments: String,
}

/// Token usage of a run with one model; field names follow AG-UI and OpenTelemetry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    /// Name of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Provider of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Input tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    /// Output tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    /// Reasoning tokens; part of `output_tokens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_tokens: Option<u64>,
    /// Input tokens read from the provider's prompt cache; part of `input_tokens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_input_tokens: Option<u64>,
    /// Input tokens written to the provider's prompt cache; part of `input_tokens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write_tokens: Option<u64>,
}

impl Usage {
    /// Adds the usage of a call to that of its run, which has an entry for each provider and model.
    pub fn add_to(self, run: &mut Vec<Usage>) {
        let matches = |a: &Option<String>, b: &Option<String>| a.is_none() || b.is_none() || a == b;
        let is_same = |u: &&mut Usage| matches(&u.model, &self.model) && matches(&u.provider, &self.provider);
        match run.iter_mut().find(is_same) {
            Some(usage) => usage.add(&self),
            None if self != Usage::default() => run.push(self),
            None => {}
        }
    }

    fn add(&mut self, other: &Usage) {
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
        sum(&mut self.cache_write_tokens, other.cache_write_tokens);
    }
}

/// Reason why a model stopped; values follow OpenAI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The answer is complete.
    Stop,
    /// The token limit was reached.
    Length,
    /// The model requests tool calls.
    ToolCalls,
    /// A content filter stopped the answer.
    ContentFilter,
}

/// JSON text that keeps its original form and is cheap to clone.
pub type SharedJson = Arc<RawValue>;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Serializes the message, and checks that it deserializes to the same message.
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
                Message::with_tool_calls("", vec![call]),
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
    fn usage_adds_up_and_missing_counts_stay_unknown() {
        let usage = |model: Option<&str>, input, cached| Usage {
            model: model.map(str::to_owned),
            input_tokens: input,
            cached_input_tokens: cached,
            ..Usage::default()
        };
        let mut run = Vec::new();
        usage(Some("a"), Some(u64::MAX - 1), None).add_to(&mut run);
        usage(None, Some(2), None).add_to(&mut run);
        Usage::default().add_to(&mut run);
        assert_eq!(run, [usage(Some("a"), Some(u64::MAX), None)]);
        usage(Some("b"), Some(1), Some(2)).add_to(&mut run);
        usage(Some("a"), None, Some(3)).add_to(&mut run);
        let expected = [usage(Some("a"), Some(u64::MAX), Some(3)), usage(Some("b"), Some(1), Some(2))];
        assert_eq!(run, expected, "models are not mixed");
        let other = Usage { provider: Some("p".into()), ..usage(Some("b"), Some(5), None) };
        other.clone().add_to(&mut run);
        Usage { provider: Some("q".into()), ..other }.add_to(&mut run);
        assert_eq!(run.len(), 3, "a provider that was not named joins, another one does not");
        assert_eq!(serde_json::to_value(Usage::default()).expect("usage serialises"), json!({}));
    }
}
