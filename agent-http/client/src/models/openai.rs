//! Adapter for servers that speak OpenAI's Chat Completions API, streaming.

mod messages;
mod reasoning;
mod stream;
mod wire;

use std::borrow::Cow;
use std::sync::Arc;

use agent_core::error::AgentError;
use agent_core::message::ContentPart;
use agent_core::model::{Model, ModelInfo, ModelRequest, ModelStream};
use agent_core::payload::{Payload, PayloadBuilder, PromptSection};
use agent_core::prompt::{Dialect, push_tool_json};
use agent_core::secret::Secret;
use agent_core::tool::ToolChoice;
use agent_platform::content_notes::{ContentNotes, supported_request};
use agent_platform::parameters::ReasoningLevel;
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use http::HeaderMap;
use url::Url;

use self::stream::ChatStream;
use super::body::{BODY_HEADROOM, MAX_RESPONSE_BYTES, RESPONSE_BODY_TIMEOUT, push_messages};
use super::optional_member::{OptionalMember, OptionalPart, after_notices, send_with_optional};
use super::prompt_tokens::request_tokens;
use super::sampling::{push_extra, push_sampling};
use super::spec::ModelSpec;
use super::{errors, response_format, vendor_error};
use crate::outbound::{LazyTarget, OutboundClient, OutboundResponse, UrlTrust};

/// Provider name of these models.
pub(super) const PROVIDER: &str = "openai";
/// Hosts of the vendor's own API, whose newer models reject `max_tokens`. Other servers may not know its
/// successor `max_completion_tokens`.
const VENDOR_HOSTS: [&str; 2] = ["openai.com", "openai.azure.com"];

/// Request for the usage of a stream. Some servers send it in any case and do not have the member.
static STREAM_OPTIONS: OptionalMember = OptionalMember {
    name: "stream_options",
    before: r#","stream":true"#,
    text: Cow::Borrowed(r#","stream_options":{"include_usage":true}"#),
};

/// A model on a Chat Completions server.
pub struct OpenAi {
    endpoint: LazyTarget,
    key: Option<Secret>,
    model: Arc<ModelSpec>,
}

impl OpenAi {
    /// Creates an adapter for `model` on the server with the base URL `base`, such as `https://api.openai.com/v1`. The
    /// model's reasoning level is sent as `reasoning_effort`.
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
        let endpoint = crate::outbound::join_path(base, &["chat", "completions"])?;
        let endpoint = LazyTarget::new(outbound, endpoint, trust);
        Ok(Self { endpoint, key, model: Arc::new(model.into().at(PROVIDER, base.as_str())) })
    }

    /// Returns the name of the field that limits the answer.
    fn output_limit_field(&self) -> &'static str {
        let host = self.endpoint.url.host_str().unwrap_or_default();
        let of_vendor = |domain: &&str| {
            host.strip_suffix(*domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        if VENDOR_HOSTS.iter().any(of_vendor) { "max_completion_tokens" } else { "max_tokens" }
    }

    async fn send(&self, payload: Payload) -> Result<ModelStream, AgentError> {
        let prompt_tokens = payload.prompt_tokens();
        let post = |body| self.post(body);
        let refusal =
            |status, headers: HeaderMap, body: Bytes| vendor_error::refusal(status, &headers, &body);
        let parts: [&dyn OptionalPart; 2] = [&STREAM_OPTIONS, &messages::SentReasoning];
        let (response, notices) = send_with_optional(&payload, &parts, &self.model, post, refusal).await?;
        if !response.status.is_success() {
            return Err(vendor_error::refused(response).await.0);
        }
        errors::check_encoding(&response)?;
        let events = match response.media_type().as_str() {
            // Some servers report an error with status 200, and some do not stream although a stream was requested.
            "application/json" => {
                let body = response.read_limited(MAX_RESPONSE_BYTES, RESPONSE_BODY_TIMEOUT).await?;
                let events = stream::decode_response(&body, &self.model)?;
                futures_util::stream::iter(events.into_iter().map(Ok)).boxed()
            }
            "text/html" => return Err(errors::web_page()),
            // Compatible servers send streams with various media types.
            _ => ChatStream::new(response, Arc::clone(&self.model), prompt_tokens).boxed(),
        };
        Ok(after_notices(notices, events))
    }

    /// Returns true if messages with tool calls are sent with the reasoning before the calls.
    fn sends_reasoning(&self) -> bool {
        self.model.echoes_reasoning() && !self.model.refuses(messages::REASONING_MEMBER)
    }

    async fn post(&self, body: Bytes) -> Result<OutboundResponse, AgentError> {
        let request = self.endpoint.target()?.post_json(self.key.as_ref(), "text/event-stream", body)?;
        request.send().await
    }
}

#[async_trait]
impl Model for OpenAi {
    fn info(&self) -> ModelInfo {
        self.model.info()
    }

    fn prepare(&self, request: &ModelRequest) -> Result<Payload, AgentError> {
        let refusal = "the model supports images, WAV and MP3 audio and inline files only, not the other content that was sent";
        let is_supported = |part: &ContentPart| Dialect::ChatCompletions.supports(part);
        let supported = supported_request(request, refusal, |_, part| is_supported(part))?;
        let request = &*supported;
        let mut body = Payload::builder(request.prompt.json_len(Dialect::ChatCompletions) + BODY_HEADROOM);
        body.raw(r#"{"model":"#).json(&self.model.name);
        body.raw(STREAM_OPTIONS.before);
        if !self.model.refuses(STREAM_OPTIONS.name) {
            body.raw(&STREAM_OPTIONS.text);
        }
        body.raw(",").json(&self.output_limit_field()).raw(":");
        body.output_limit(self.model.limits().max_output_tokens);
        let switched = || {
            let thinking = self.model.thinking(request)?;
            let level = reasoning::effort(&self.model.name, thinking)?;
            let lowest = self.model.known_levels().into_iter().min().filter(|_| !thinking);
            Some(lowest.map_or(level, ReasoningLevel::as_str))
        };
        if let Some(effort) = self.model.effort().or_else(switched) {
            body.raw(r#","reasoning_effort":"#).json(&effort);
        }
        push_sampling(&self.model.parameters, &mut body);
        push_extra(&self.model.parameters, &mut body);
        response_format::push_chat_completions(request, &mut body);
        push_tools(request, &mut body);
        match self.sends_reasoning() {
            true => messages::push_with_reasoning(request, &self.model.name, &mut body),
            false => push_messages(request, Dialect::ChatCompletions, &mut body),
        }
        body.raw("}");
        let offered = request.tool_choice.offered(&request.tools);
        body.prompt_tokens(Some(request_tokens(request, offered)));
        if matches!(supported, Cow::Owned(_)) {
            body.attach(ContentNotes);
        }
        Ok(body.finish())
    }

    async fn start(&self, payload: Payload) -> Result<ModelStream, AgentError> {
        self.model.learning(payload.prompt_tokens(), self.send(payload)).await
    }
}

/// Appends `tools` before the messages, because they change less often and providers cache by prefix.
///
/// Some servers ignore the name in a choice of one tool, or reject it, and some ignore `none`. So a named tool is offered
/// alone and required, and without a choice of tools none is offered.
fn push_tools(request: &ModelRequest, body: &mut PayloadBuilder) {
    let tools = request.tool_choice.offered(&request.tools);
    if tools.is_empty() {
        return;
    }
    body.section(PromptSection::Tools);
    for (i, tool) in tools.iter().enumerate() {
        body.raw(if i == 0 { r#","tools":["# } else { "," });
        push_tool_json(tool, Dialect::ChatCompletions, body.buffer());
    }
    body.raw(r#"],"tool_choice":"#).json(match &request.tool_choice {
        ToolChoice::Required | ToolChoice::Tool(_) => &"required",
        _ => &"auto",
    });
}

#[cfg(test)]
mod tests;
