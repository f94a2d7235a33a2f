//! Adapter for servers that speak OpenAI's Chat Completions API, streaming.

mod messages;
mod optional_parts;
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

use self::messages::MessageRules;
use self::optional_parts::{
    EFFORT_MEMBER, EffortWithTools, LIMIT_MEMBER, OLD_LIMIT_MEMBER, OldLimitName, SENT_REASONING,
    SENT_SIGNATURES,
};
use self::stream::ChatStream;
use super::body::{BODY_HEADROOM, MAX_RESPONSE_BYTES, RESPONSE_BODY_TIMEOUT};
use super::optional_member::{OptionalMember, OptionalPart, after_notices, send_with_optional};
use super::prompt_tokens::request_tokens;
use super::sampling::{SEED, push_extra, push_sampling};
use super::spec::ModelSpec;
use super::{errors, response_format, vendor_error};
use crate::outbound::{LazyTarget, OutboundClient, OutboundResponse, UrlTrust};

/// Provider name of these models.
pub(super) const PROVIDER: &str = "openai";
/// Hosts of the vendor's own API, whose newer models reject `max_tokens`. Other servers may not know its
/// successor `max_completion_tokens`.
const VENDOR_HOSTS: [&str; 2] = ["openai.com", "openai.azure.com"];

/// Domain of Mistral's API, and the name that the seed has there; it refuses other members.
const MISTRAL_DOMAIN: &str = "mistral.ai";
const MISTRAL_SEED: &str = "random_seed";

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

impl std::fmt::Debug for OpenAi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenAi").finish_non_exhaustive()
    }
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
        let is_of_vendor = VENDOR_HOSTS.iter().any(|domain| is_below(self.host(), domain));
        let is_new = is_of_vendor || self.model.refuses(OLD_LIMIT_MEMBER);
        if is_new { LIMIT_MEMBER } else { OLD_LIMIT_MEMBER }
    }

    async fn send(&self, payload: Payload) -> Result<ModelStream, AgentError> {
        let prompt_tokens = payload.prompt_tokens();
        let post = |body| self.post(body);
        let refusal =
            |status, headers: HeaderMap, body: Bytes| vendor_error::refusal(status, &headers, &body);
        let parts: [&dyn OptionalPart; 5] =
            [&STREAM_OPTIONS, &SENT_REASONING, &SENT_SIGNATURES, &OldLimitName, &EffortWithTools];
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

    fn host(&self) -> &str {
        self.endpoint.url.host_str().unwrap_or_default()
    }

    /// Returns the level of reasoning that is sent, if there is one.
    fn effort(&self, request: &ModelRequest) -> Option<&str> {
        let has_tools = !request.tool_choice.offered(&request.tools).is_empty();
        if has_tools && self.model.refuses(EFFORT_MEMBER) {
            return Some(ReasoningLevel::None.as_str());
        }
        let switched = || {
            let thinking = self.model.thinking(request)?;
            let level = reasoning::effort(&self.model.name, thinking)?;
            let lowest = self.model.known_levels().into_iter().min().filter(|_| !thinking);
            Some(lowest.map_or(level, ReasoningLevel::as_str))
        };
        self.model.effort().or_else(switched)
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
        if let Some(effort) = self.effort(request) {
            body.raw(r#","reasoning_effort":"#).json(&effort);
        }
        let seed = if is_below(self.host(), MISTRAL_DOMAIN) { MISTRAL_SEED } else { SEED };
        push_sampling(&self.model.parameters, seed, &mut body);
        push_extra(&self.model.parameters, &mut body);
        response_format::push_chat_completions(request, &mut body);
        push_tools(request, &mut body);
        MessageRules::new(&self.model, self.host()).push(request, &mut body);
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

/// Returns true for a domain and the hosts below it.
fn is_below(host: &str, domain: &str) -> bool {
    host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
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
