//! Fake responses of the three upstream protocols behind one interface.

use serde_json::json;

use crate::support::vendor::{self, Step, Vendor, chunk, n8n, ollama};

/// The protocol of the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// A Chat Completions server, which streams server-sent events.
    OpenAi,
    /// Ollama, which streams lines of JSON.
    Ollama,
    /// An n8n workflow, which streams lines of JSON or responds with one body.
    Workflow,
}

impl Provider {
    /// Returns the `provider` value in roles and requests.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Ollama => "ollama",
            Self::Workflow => panic!("a role names no provider of a workflow"),
        }
    }

    /// Returns the vendor's address for this protocol.
    pub fn base_url(self, vendor: &Vendor) -> String {
        match self {
            Self::OpenAi => vendor.base_url(),
            Self::Ollama => vendor.ollama_url(),
            Self::Workflow => vendor.webhook_url(),
        }
    }

    pub fn stream_head(self) -> Step {
        match self {
            Self::OpenAi => vendor::stream_head(),
            Self::Ollama => ollama::stream_head(),
            Self::Workflow => n8n::stream_head(),
        }
    }

    /// Returns the media type of a streamed response.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::OpenAi => "text/event-stream",
            Self::Ollama => "application/x-ndjson",
            Self::Workflow => "application/json",
        }
    }

    pub fn text(self, text: &str) -> Step {
        match self {
            Self::OpenAi => vendor::delta(json!({"content": text})),
            Self::Ollama => ollama::text(text),
            Self::Workflow => n8n::text(text),
        }
    }

    /// Returns the bytes of an event without content.
    pub fn empty_event(self) -> &'static str {
        match self {
            Self::OpenAi => "data: {}\n\n",
            Self::Ollama => "{}\n",
            Self::Workflow => "{\"type\":\"keepalive\"}\n",
        }
    }

    /// Returns one event with arbitrary data.
    pub fn event(self, data: impl AsRef<[u8]>) -> Step {
        match self {
            Self::OpenAi => chunk([b"data: ", data.as_ref(), b"\n\n"].concat()),
            Self::Ollama | Self::Workflow => chunk([data.as_ref(), b"\n"].concat()),
        }
    }

    /// Returns the beginning of a text event, cut off within the text.
    pub fn partial_event(self) -> &'static str {
        match self {
            Self::OpenAi => r#"data: {"choices":[{"index":0,"delta":{"content":"ti"#,
            Self::Ollama => r#"{"model":"fake-1","message":{"role":"assistant","content":"ti"#,
            Self::Workflow => r#"{"type":"item","content":"ti"#,
        }
    }

    /// Returns the rest of the event begun by [`partial_event`](Self::partial_event).
    pub fn rest_of_event(self) -> &'static str {
        match self {
            Self::OpenAi => "\"}}]}\n\n",
            Self::Ollama => "\"}}\n",
            Self::Workflow => "\"}\n",
        }
    }

    /// Returns a complete text response.
    pub fn answer(self, texts: &[&str]) -> Vec<Step> {
        match self {
            Self::OpenAi => vendor::answer(texts),
            Self::Ollama => ollama::answer(texts),
            Self::Workflow => n8n::answer(texts),
        }
    }

    /// Returns a complete response that calls tools.
    pub fn tool_calls(self, calls: &[(&str, &str, &str)]) -> Vec<Step> {
        match self {
            Self::OpenAi => vendor::tool_calls(calls),
            Self::Ollama => ollama::tool_calls(calls),
            Self::Workflow => panic!("a workflow calls tools by itself, {calls:?} too"),
        }
    }

    /// Returns true if a response with a `content-length` is read whole before the run begins.
    pub fn is_buffered(self) -> bool {
        self == Self::Workflow
    }
}
