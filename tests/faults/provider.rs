//! What the answers of vendors and workflows have in common, each in its own framing.

use serde_json::json;

use crate::support::vendor::{self, Step, Vendor, chunk, n8n, ollama};

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// A server of Chat Completions: server-sent events.
    OpenAi,
    /// Ollama: lines of JSON.
    Ollama,
    /// A workflow of n8n: lines of JSON, or an answer of one piece.
    Workflow,
}

impl Provider {
    /// Its name in roles and requests.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Ollama => "ollama",
            Self::Workflow => panic!("a role names no provider of a workflow"),
        }
    }

    /// Where the vendor is one of these.
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

    /// The media type of a streamed answer.
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

    /// An event that says nothing, as bytes.
    pub fn nothing(self) -> &'static str {
        match self {
            Self::OpenAi => "data: {}\n\n",
            Self::Ollama => "{}\n",
            Self::Workflow => "{\"type\":\"keepalive\"}\n",
        }
    }

    /// The data of one event, whatever they are.
    pub fn event(self, data: impl AsRef<[u8]>) -> Step {
        match self {
            Self::OpenAi => chunk([b"data: ", data.as_ref(), b"\n\n"].concat()),
            Self::Ollama | Self::Workflow => chunk([data.as_ref(), b"\n"].concat()),
        }
    }

    /// The beginning of an event that says something, up to within its text.
    pub fn half_an_event(self) -> &'static str {
        match self {
            Self::OpenAi => r#"data: {"choices":[{"index":0,"delta":{"content":"ti"#,
            Self::Ollama => r#"{"model":"fake-1","message":{"role":"assistant","content":"ti"#,
            Self::Workflow => r#"{"type":"item","content":"ti"#,
        }
    }

    /// What closes that event.
    pub fn other_half(self) -> &'static str {
        match self {
            Self::OpenAi => "\"}}]}\n\n",
            Self::Ollama => "\"}}\n",
            Self::Workflow => "\"}\n",
        }
    }

    /// A whole answer of text.
    pub fn answer(self, texts: &[&str]) -> Vec<Step> {
        match self {
            Self::OpenAi => vendor::answer(texts),
            Self::Ollama => ollama::answer(texts),
            Self::Workflow => n8n::answer(texts),
        }
    }

    /// A whole answer that calls tools.
    pub fn tool_calls(self, calls: &[(&str, &str, &str)]) -> Vec<Step> {
        match self {
            Self::OpenAi => vendor::tool_calls(calls),
            Self::Ollama => ollama::tool_calls(calls),
            Self::Workflow => panic!("a workflow calls tools by itself, {calls:?} too"),
        }
    }

    /// Whether an answer that says how long it is is read before the run begins.
    pub fn is_read_ahead(self) -> bool {
        self == Self::Workflow
    }
}
