//! Adapter for Ollama's native streaming API, `/api/chat`.
//!
//! Ollama also offers Chat Completions, but that API has no parameter for the context size, and Ollama silently
//! truncates prompts longer than its default window. The native API takes `num_ctx` with each call; this adapter
//! budgets for it, and compares the tokens read with the tokens sent.
//!
//! The API has no `tool_choice`. `None` is expressed by offering no tools, and a named tool by offering only that tool.
//! `Required` cannot be expressed, so in both of these cases the model may still answer with text.

mod listing;
mod messages;
mod stream;
mod window;
mod wire;

use std::borrow::Cow;
use std::sync::Arc;

use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::model::{Model, ModelInfo, ModelRequest, ModelStream};
use agent_core::payload::{Payload, PayloadBuilder, PromptSection};
use agent_core::prompt::{Dialect, PromptTokens, push_tool_json};
use agent_core::secret::Secret;
use agent_core::tool::ToolSpec;
use agent_platform::content_notes::{ContentNotes, supported_request};
use agent_platform::parameters::ReasoningLevel;
use async_trait::async_trait;
use futures_util::StreamExt;
use http::StatusCode;
use http::header::CONTENT_LENGTH;
use url::Url;

pub use self::listing::{ListedModel, choose_chat_model, list_models};
use self::messages::{is_supported, push_messages};
use self::stream::{ChatStream, PromptEstimate};
pub(super) use self::wire::PROVIDER;
use super::body::{BODY_HEADROOM, MAX_RESPONSE_BYTES, RESPONSE_BODY_TIMEOUT};
use super::limits::ResolvedLimits;
use super::prompt_tokens::base_tokens;
use super::sampling::{SEED, push_extra, push_sampling};
use super::spec::ModelSpec;
use super::{errors, response_format, vendor_error};
use crate::outbound::{LazyTarget, OutboundClient, OutboundResponse, UrlTrust};

/// Part of the names of the models whose `think` is a level.
const MODELS_WITH_LEVELS: &str = "gpt-oss";

/// A model on an Ollama server.
pub struct Ollama {
    endpoint: LazyTarget,
    key: Option<Secret>,
    model: ModelSpec,
}

impl std::fmt::Debug for Ollama {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ollama").finish_non_exhaustive()
    }
}

impl Ollama {
    /// Creates an adapter for `model` on the server with the base URL `base`, such as `http://127.0.0.1:11434`. Each call
    /// requests the context window of the model's limits; its reasoning level is sent as `think`. The key is for servers
    /// behind an authenticating proxy.
    ///
    /// # Errors
    /// `InvalidRequest` for a URL that cannot have path segments.
    pub fn new(
        outbound: OutboundClient,
        base: &Url,
        trust: UrlTrust,
        key: Option<Secret>,
        model: impl Into<ModelSpec>,
    ) -> Result<Self, AgentError> {
        let endpoint = crate::outbound::join_path(base, &["api", "chat"])?;
        let endpoint = LazyTarget::new(outbound, endpoint, trust);
        Ok(Self { endpoint, key, model: model.into().at(PROVIDER, base.as_str()) })
    }

    async fn send(&self, payload: Payload) -> Result<ModelStream, AgentError> {
        let num_ctx = self.model.limits().context_window;
        let expected = PromptEstimate { tokens: payload.prompt_tokens(), num_ctx };
        let (key, body) = (self.key.as_ref(), payload.into_bytes());
        let request = self.endpoint.target()?.post_json(key, "application/x-ndjson", body)?;
        let response = request.send().await?;
        if !response.status.is_success() {
            return Err(error_response(response).await);
        }
        errors::check_encoding(&response)?;
        match response.media_type().as_str() {
            // A streamed response has no length, whatever its media type; a response with a length is one answer or an
            // error.
            "application/json" if response.headers.contains_key(CONTENT_LENGTH) => {
                let body = response.read_limited(MAX_RESPONSE_BYTES, RESPONSE_BODY_TIMEOUT).await?;
                let events = stream::decode_response(&body, expected)?;
                Ok(futures_util::stream::iter(events.into_iter().map(Ok)).boxed())
            }
            "text/html" => Err(errors::web_page()),
            _ => Ok(ChatStream::new(response, expected).boxed()),
        }
    }
}

#[async_trait]
impl Model for Ollama {
    fn info(&self) -> ModelInfo {
        self.model.info()
    }

    fn prepare(&self, request: &ModelRequest) -> Result<Payload, AgentError> {
        let refusal = "the model supports inline images only, not the other content that was sent";
        let supported = supported_request(request, refusal, |_, part| is_supported(part))?;
        let request = &*supported;
        let tools = request.tool_choice.offered(&request.tools);
        let ResolvedLimits { context_window, max_output_tokens } = self.model.limits();
        let mut body = Payload::builder(request.prompt.text_len() * 9 / 8 + BODY_HEADROOM);
        body.raw(r#"{"model":"#).json(&self.model.name).raw(r#","stream":true"#);
        let level = thinking_level(&self.model.name, self.model.parameters.reasoning);
        match (self.model.reasoning_effort.as_deref().or(level), self.model.thinking(request)) {
            (Some(effort), _) => {
                body.raw(r#","think":"#).json(&effort);
            }
            (None, Some(think)) => {
                body.raw(r#","think":"#).json(&think);
            }
            (None, None) => {}
        }
        push_extra(&self.model.parameters, &mut body);
        response_format::push_ollama(request, &mut body);
        body.raw(r#","options":{"num_ctx":"#).json(&context_window);
        body.raw(r#","num_predict":"#).output_limit(max_output_tokens);
        push_sampling(&self.model.parameters, SEED, &mut body);
        body.raw("}");
        push_tools(tools, &mut body);
        push_messages(request, &mut body);
        body.raw("}");
        body.prompt_tokens((!request.has_media()).then(|| estimated_tokens(request, tools)));
        if matches!(supported, Cow::Owned(_)) {
            body.attach(ContentNotes);
        }
        Ok(body.finish())
    }

    async fn start(&self, payload: Payload) -> Result<ModelStream, AgentError> {
        self.model.learning(payload.prompt_tokens(), self.send(payload)).await
    }
}

/// Estimates the tokens of a request with these tools.
fn estimated_tokens(request: &ModelRequest, tools: &[Arc<ToolSpec>]) -> usize {
    let PromptTokens { system, messages, .. } = request.prompt.tokens();
    let counted = system + messages;
    base_tokens(request, counted) + request.estimated_tokens(tools).saturating_sub(counted)
}

/// Returns the level of a model whose reasoning has levels; the reasoning of other models is on or off.
fn thinking_level(model: &str, level: Option<ReasoningLevel>) -> Option<&'static str> {
    level.filter(|_| model.contains(MODELS_WITH_LEVELS))?.as_low_medium_high()
}

/// Appends `tools` before the messages, because they change less often.
fn push_tools(tools: &[Arc<ToolSpec>], body: &mut PayloadBuilder) {
    if !tools.is_empty() {
        body.section(PromptSection::Tools);
    }
    for (i, tool) in tools.iter().enumerate() {
        body.raw(if i == 0 { r#","tools":["# } else { "," });
        // A tool is defined as in Chat Completions.
        push_tool_json(tool, Dialect::ChatCompletions, body.buffer());
    }
    if !tools.is_empty() {
        body.raw("]");
    }
}

/// Maps an unsuccessful response to an error. Ollama reports missing model capabilities only as text; the common messages are
/// recognized here and replaced with our own.
async fn error_response(response: OutboundResponse) -> AgentError {
    let status = response.status;
    let (error, body) = vendor_error::refused(response).await;
    if status == StatusCode::NOT_FOUND {
        let message = "Ollama does not have the model, or is not at this address";
        return AgentError::new(AgentErrorKind::Failed, message).with_source(error);
    }
    if status != StatusCode::BAD_REQUEST {
        return error;
    }
    let words = String::from_utf8_lossy(&body);
    let known = [
        ("does not support tools", "the Ollama model does not support tools, but the agent has tools"),
        (
            "does not support thinking",
            "the Ollama model does not support thinking, but the request enables it",
        ),
    ];
    match known.into_iter().find(|(theirs, _)| words.contains(theirs)) {
        Some((_, ours)) => AgentError::new(AgentErrorKind::Failed, ours).with_source(error),
        None => error,
    }
}

#[cfg(test)]
mod tests;
