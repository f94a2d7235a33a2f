//! Ollama's own `/api/chat`, streaming.
//!
//! Ollama speaks Chat Completions too, but has no words there for the size of the window, and cuts what is
//! longer than a window of its own choosing. Here the window is asked for with each call, our side budgets
//! for it, and what was read is compared with what was sent.
//!
//! There is no `tool_choice`. A call that is forbidden is one for which no tools are offered; of a
//! tool that is asked for by name, that one alone is. That any tool must be called cannot be said, so in both
//! cases the model may still answer in words.

mod listing;
mod stream;
mod window;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use agent_core::error::{Failure, FailureKind};
use agent_core::model::{Model, ModelInfo, ModelRequest, ModelStream};
use agent_core::payload::{Payload, PayloadBuilder, Section};
use agent_core::prompt::{Dialect, push_tool_json};
use agent_core::secret::Secret;
use agent_core::tool::ToolChoice;
use agent_core::tool::ToolSpec;
use async_trait::async_trait;
use futures_util::StreamExt;
use http::StatusCode;
use http::header::CONTENT_LENGTH;
use url::Url;

pub use self::listing::{ListedModel, choose, list};
use self::stream::{ChatStream, Expected};
use super::body::{BODY_HEADROOM, MAX_WHOLE_BYTES, WHOLE_TIMEOUT, is_spelt, media_type, push_messages};
use super::failure;
use crate::outbound::{Endpoint, Outbound, OutboundResponse, Trust, status_failure};

/// The provider's name of models at Ollama.
const PROVIDER: &str = "ollama";
/// The share of the window that our side leaves for the answer: one part of so many.
const ANSWER_SHARE: usize = 4;
/// What is read of a refusal, and how long that may take.
const MAX_REFUSAL_BYTES: usize = 8 << 10;
const REFUSAL_TIMEOUT: Duration = Duration::from_millis(250);

/// A model at an Ollama server.
pub struct Ollama {
    endpoint: Endpoint,
    key: Option<Secret>,
    model: String,
    num_ctx: usize,
}

impl Ollama {
    /// `model` at the server whose base address is `base`, such as `http://127.0.0.1:11434`, with a window
    /// of `num_ctx` tokens for prompt and answer together. The key is for servers behind a gate.
    ///
    /// # Errors
    /// `InvalidRequest` for an address that nothing can be appended to.
    pub fn new(
        outbound: Outbound,
        base: &Url,
        trust: Trust,
        key: Option<Secret>,
        model: impl Into<String>,
        num_ctx: usize,
    ) -> Result<Self, Failure> {
        let endpoint = crate::backend::below(base, &["api", "chat"])?;
        Ok(Self { endpoint: Endpoint::new(outbound, endpoint, trust), key, model: model.into(), num_ctx })
    }
}

#[async_trait]
impl Model for Ollama {
    fn info(&self) -> ModelInfo {
        ModelInfo {
            provider: PROVIDER.into(),
            model: self.model.clone(),
            context_window: self.num_ctx,
            max_output_tokens: self.num_ctx / ANSWER_SHARE,
            takes_media: true,
            takes_tools: true,
        }
    }

    fn prepare(&self, request: &ModelRequest) -> Result<Payload, Failure> {
        if !is_spelt(request, Dialect::Ollama) {
            let message = "the model takes inline images, and nothing else of what was sent";
            return Err(Failure::new(FailureKind::UnsupportedContent, message));
        }
        let tools = offered(request);
        let mut body = Payload::builder(request.prompt.json_len(Dialect::Ollama) + BODY_HEADROOM);
        body.raw(r#"{"model":"#).json(&self.model).raw(r#","stream":true"#);
        if let Some(think) = request.thinking {
            body.raw(r#","think":"#).json(&think);
        }
        body.raw(r#","options":{"num_ctx":"#).json(&self.num_ctx).raw("}");
        push_tools(tools, &mut body);
        push_messages(request, Dialect::Ollama, &mut body);
        body.raw("}");
        body.prompt_tokens((!request.has_media()).then(|| request.estimated_tokens(tools)));
        Ok(body.finish())
    }

    async fn start(&self, payload: Payload) -> Result<ModelStream, Failure> {
        let expected = Expected { tokens: payload.prompt_tokens(), num_ctx: self.num_ctx };
        let (key, body) = (self.key.as_ref(), payload.into_bytes());
        let request = self.endpoint.target()?.post_json(key, "application/x-ndjson", body)?;
        let response = request.send().await?;
        if !response.status.is_success() {
            return Err(refusal(response).await);
        }
        match media_type(&response.headers).as_str() {
            // A stream has no length, whatever it is called; what has one is an answer or an error.
            "application/json" if response.headers.contains_key(CONTENT_LENGTH) => {
                let body = response.read_limited(MAX_WHOLE_BYTES, WHOLE_TIMEOUT).await?;
                let events = stream::whole(&body, expected)?;
                Ok(futures_util::stream::iter(events.into_iter().map(Ok)).boxed())
            }
            "text/html" => Err(failure::web_page()),
            _ => Ok(ChatStream::new(response, expected).boxed()),
        }
    }
}

/// The tools that the model is told of; see the [module](self) on the choice among them.
fn offered(request: &ModelRequest) -> &[Arc<ToolSpec>] {
    let tools = &*request.tools;
    match &request.tool_choice {
        ToolChoice::None => &[],
        ToolChoice::Tool(name) => {
            tools.iter().position(|tool| tool.name == *name).map_or(&[], |at| &tools[at..=at])
        }
        _ => tools,
    }
}

/// Tools stand before the messages, for they change less often.
fn push_tools(tools: &[Arc<ToolSpec>], body: &mut PayloadBuilder) {
    if !tools.is_empty() {
        body.section(Section::Tools);
    }
    for (i, tool) in tools.iter().enumerate() {
        body.raw(if i == 0 { r#","tools":["# } else { "," });
        push_tool_json(tool, Dialect::Ollama, body.buffer());
    }
    if !tools.is_empty() {
        body.raw("]");
    }
}

/// The failure that a refusal stands for. What a model cannot do, Ollama says in words alone; those that
/// people meet are known here and said again in ours.
async fn refusal(response: OutboundResponse) -> Failure {
    let (status, failure) = (response.status, status_failure(response.status, &response.headers));
    if status == StatusCode::NOT_FOUND {
        return Failure::new(
            FailureKind::Failed,
            "Ollama does not have the model, or is not at this address",
        );
    }
    if status != StatusCode::BAD_REQUEST {
        return failure;
    }
    let Ok(body) = response.read_limited(MAX_REFUSAL_BYTES, REFUSAL_TIMEOUT).await else { return failure };
    let words = String::from_utf8_lossy(&body);
    let known = [
        ("does not support tools", "the model at Ollama takes no tools, and the agent has some"),
        ("does not support thinking", "the model at Ollama cannot think aloud, and was asked to"),
    ];
    match known.into_iter().find(|(theirs, _)| words.contains(theirs)) {
        Some((_, ours)) => Failure::new(FailureKind::Failed, ours),
        None => failure,
    }
}

#[cfg(test)]
mod tests;
