//! Adapter for servers that speak OpenAI's Chat Completions API, streaming.

mod reasoning;
mod stream;
mod wire;

use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::model::{Model, ModelInfo, ModelRequest, ModelStream};
use agent_core::payload::{Payload, PayloadBuilder, PromptSection};
use agent_core::prompt::{Dialect, push_tool_json};
use agent_core::secret::Secret;
use agent_core::tool::ToolChoice;
use async_trait::async_trait;
use futures_util::StreamExt;
use serde_json::json;
use url::Url;

use self::stream::ChatStream;
use super::body::{BODY_HEADROOM, MAX_RESPONSE_BYTES, RESPONSE_BODY_TIMEOUT, can_encode, push_messages};
use super::failure;
use crate::outbound::{LazyTarget, OutboundClient, UrlTrust, status_failure};

/// Limits assumed of a hosted model, in tokens.
const CONTEXT_WINDOW: usize = 128_000;
const MAX_OUTPUT_TOKENS: usize = 16_000;

/// A model on a Chat Completions server.
pub struct OpenAi {
    endpoint: LazyTarget,
    key: Option<Secret>,
    model: String,
    reasoning_effort: Option<String>,
}

impl OpenAi {
    /// Creates an adapter for `model` on the server with the base URL `base`, such as `https://api.openai.com/v1`.
    ///
    /// # Errors
    /// `InvalidRequest` for a URL that cannot have path segments.
    pub fn new(
        outbound: OutboundClient,
        base: &Url,
        trust: UrlTrust,
        key: Option<Secret>,
        model: impl Into<String>,
    ) -> Result<Self, AgentError> {
        let endpoint = crate::outbound::join_path(base, &["chat", "completions"])?;
        Ok(Self {
            endpoint: LazyTarget::new(outbound, endpoint, trust),
            key,
            model: model.into(),
            reasoning_effort: None,
        })
    }

    /// Sets the level of the model's reasoning, sent as `reasoning_effort` whatever a request's switch says.
    pub fn with_reasoning_effort(self, effort: Option<&str>) -> Self {
        Self { reasoning_effort: effort.map(str::to_owned), ..self }
    }
}

#[async_trait]
impl Model for OpenAi {
    fn info(&self) -> ModelInfo {
        ModelInfo {
            provider: "openai".into(),
            model: self.model.clone(),
            context_window: CONTEXT_WINDOW,
            max_output_tokens: MAX_OUTPUT_TOKENS,
            supports_media: true,
            supports_tools: true,
        }
    }

    fn prepare(&self, request: &ModelRequest) -> Result<Payload, AgentError> {
        if !can_encode(request, Dialect::ChatCompletions) {
            let message = "the model supports images, WAV and MP3 audio and inline files only, not the other content that was sent";
            return Err(AgentError::new(AgentErrorKind::UnsupportedContent, message));
        }
        let mut body = Payload::builder(request.prompt.json_len(Dialect::ChatCompletions) + BODY_HEADROOM);
        body.raw(r#"{"model":"#).json(&self.model);
        body.raw(r#","stream":true,"stream_options":{"include_usage":true}"#);
        let effort = self.reasoning_effort.as_deref();
        if let Some(effort) = effort.or_else(|| reasoning::effort(&self.model, request.thinking?)) {
            body.raw(r#","reasoning_effort":"#).json(&effort);
        }
        push_tools(request, &mut body);
        push_messages(request, Dialect::ChatCompletions, &mut body);
        body.raw("}");
        Ok(body.finish())
    }

    async fn start(&self, payload: Payload) -> Result<ModelStream, AgentError> {
        let (key, body) = (self.key.as_ref(), payload.into_bytes());
        let request = self.endpoint.target()?.post_json(key, "text/event-stream", body)?;
        let response = request.send().await?;
        if !response.status.is_success() {
            return Err(status_failure(response.status, &response.headers));
        }
        match response.media_type().as_str() {
            // Some servers report an error with status 200, and some do not stream although a stream was requested.
            "application/json" => {
                let body = response.read_limited(MAX_RESPONSE_BYTES, RESPONSE_BODY_TIMEOUT).await?;
                let events = stream::decode_response(&body)?;
                Ok(futures_util::stream::iter(events.into_iter().map(Ok)).boxed())
            }
            "text/html" => Err(failure::web_page()),
            // Compatible servers send streams with various media types.
            _ => Ok(ChatStream::new(response).boxed()),
        }
    }
}

/// Appends `tools` before the messages, because they change less often and providers cache by prefix.
fn push_tools(request: &ModelRequest, body: &mut PayloadBuilder) {
    if request.tools.is_empty() {
        return;
    }
    body.section(PromptSection::Tools);
    for (i, tool) in request.tools.iter().enumerate() {
        body.raw(if i == 0 { r#","tools":["# } else { "," });
        push_tool_json(tool, Dialect::ChatCompletions, body.buffer());
    }
    body.raw(r#"],"tool_choice":"#);
    match &request.tool_choice {
        ToolChoice::None => body.json(&"none"),
        ToolChoice::Required => body.json(&"required"),
        ToolChoice::Tool(name) => body.json(&json!({"type": "function", "function": {"name": name}})),
        _ => body.json(&"auto"),
    };
}

#[cfg(test)]
mod tests;
