//! Adapter for servers that speak Anthropic's Messages API, streaming.
//!
//! A request has four cache breakpoints: the end of the system prompt's stable part, the end of the system prompt, the
//! last message before the latest turn, and the end of the request. The first holds over users, the others over the
//! turns of a conversation and the rounds of a run.
//!
//! The model's thinking is signed, and a later request of the run must repeat it unchanged. So it is kept as
//! [`ProviderItem`](agent_core::message::ProviderItem)s, each at its position in the answer. Another model, which answers a later
//! round in place of the first, does not get it, since the API rejects signatures of other models.

mod answer;
mod counter;
mod messages;
mod request;
mod thinking;
mod wire;

use std::sync::Arc;

use agent_core::budget::TokenCounter;
use agent_core::error::AgentError;
use agent_core::model::{Model, ModelInfo, ModelRequest, ModelStream};
use agent_core::payload::Payload;
use agent_core::secret::Secret;
use agent_platform::messages_model::MessagesModel;
use async_trait::async_trait;
use futures_util::StreamExt;
use http::{HeaderName, HeaderValue};
use url::Url;

use self::answer::{MessageDecoder, RequestTraits};
use self::counter::ClaudeCounter;
pub(super) use self::wire::PROVIDER;
use super::answer_stream::AnswerStream;
use super::body::{MAX_RESPONSE_BYTES, RESPONSE_BODY_TIMEOUT};
use super::spec::ModelSpec;
use super::{errors, vendor_error};
use crate::outbound::{LazyTarget, OutboundClient, UrlTrust};

/// Header with the API key.
const KEY_HEADER: &str = "x-api-key";
/// Header with the version of the API, and the version whose shapes this adapter has.
const VERSION_HEADER: HeaderName = HeaderName::from_static("anthropic-version");
const VERSION: HeaderValue = HeaderValue::from_static("2023-06-01");

/// A model on a Messages server.
pub struct Anthropic {
    endpoint: LazyTarget,
    key: Option<Secret>,
    model: Arc<ModelSpec>,
}

impl std::fmt::Debug for Anthropic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Anthropic").finish_non_exhaustive()
    }
}

impl Anthropic {
    /// Creates an adapter for `model` on the server with the base URL `base`, such as `https://api.anthropic.com`, with or
    /// without the path `/v1`. The model's reasoning level becomes its effort, or a budget of tokens for models without levels.
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
        let is_versioned = base.path().trim_end_matches('/').ends_with("/v1");
        let path: &[&str] = if is_versioned { &["messages"] } else { &["v1", "messages"] };
        let endpoint = crate::outbound::join_path(base, path)?;
        let endpoint = LazyTarget::new(outbound, endpoint, trust);
        Ok(Self { endpoint, key, model: Arc::new(model.into().at(PROVIDER, base.as_str())) })
    }

    async fn send(&self, payload: Payload) -> Result<ModelStream, AgentError> {
        let (traits, prompt_tokens) = (RequestTraits::of(&payload), payload.prompt_tokens());
        let target = self.endpoint.target()?;
        let mut request = target.post_json(None, "text/event-stream", payload.into_bytes())?;
        request = request.header(VERSION_HEADER, VERSION);
        if let Some(key) = &self.key {
            request = request.secret_header(KEY_HEADER, key)?;
        }
        let response = request.send().await?;
        if !response.status.is_success() {
            return Err(vendor_error::refused(response).await.0);
        }
        errors::check_encoding(&response)?;
        let mut answer = MessageDecoder::new(&self.model.name, traits);
        match response.media_type().as_str() {
            // Some gateways report an error with status 200, and some do not stream although a stream was requested.
            "application/json" => {
                let body = response.read_limited(MAX_RESPONSE_BYTES, RESPONSE_BODY_TIMEOUT).await?;
                answer.take_whole(&body)?;
                Ok(futures_util::stream::iter(answer.ready.into_iter().map(Ok)).boxed())
            }
            "text/html" => Err(errors::web_page()),
            _ => {
                let body = response.into_stream();
                Ok(AnswerStream::new(body, answer, Arc::clone(&self.model), prompt_tokens).boxed())
            }
        }
    }
}

#[async_trait]
impl Model for Anthropic {
    fn info(&self) -> ModelInfo {
        self.model.info()
    }

    fn counter(&self) -> Option<Arc<dyn TokenCounter>> {
        let tokenizer = MessagesModel::of(&self.model.name).tokenizer?;
        Some(Arc::new(ClaudeCounter::new(tokenizer, self.model.counter()?)))
    }

    fn prepare(&self, request: &ModelRequest) -> Result<Payload, AgentError> {
        request::prepare(&self.model, request)
    }

    async fn start(&self, payload: Payload) -> Result<ModelStream, AgentError> {
        self.model.learning(payload.prompt_tokens(), self.send(payload)).await
    }
}

#[cfg(test)]
mod tests;
