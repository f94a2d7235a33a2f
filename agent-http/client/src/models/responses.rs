//! Adapter for servers that speak OpenAI's Responses API, streaming and without storage on the server.
//!
//! [`ResponsesProtocol`] builds the requests and reads the answers; [`Responses`] sends them with an API key. A backend
//! with another transport, such as one that wraps the body, uses the protocol alone: it appends the body with
//! [`push_body`](ResponsesProtocol::push_body), sends it, and passes the response to
//! [`decode`](ResponsesProtocol::decode).
//!
//! The server keeps nothing between the rounds of a run. So its reasoning, in encrypted form, and items of types that
//! the adapter does not know are [`ProviderItem`](agent_core::message::ProviderItem)s, which the next request repeats in
//! their place. Another model, server or account, which answers a later round in place of the first, does not get them.

mod answer;
mod answer_item;
mod items;
mod protocol;
mod request;
mod server_error;
mod wire;

use std::time::SystemTime;

use agent_core::error::AgentError;
use agent_core::model::{Model, ModelInfo, ModelRequest, ModelStream};
use agent_core::payload::{Payload, PayloadBuilder};
use agent_core::secret::Secret;
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use http::{HeaderMap, StatusCode};
use url::Url;

use self::answer::AnswerReader;
pub use self::protocol::{AnswerContext, ResponsesProtocol};
use self::request::limit_member;
pub use self::server_error::Account;
pub(crate) use self::server_error::blocked_by_proxy;
use self::server_error::{RESET_HEADER, ServerError};
use super::answer_stream::AnswerStream;
use super::body::{BODY_HEADROOM, MAX_RESPONSE_BYTES, RESPONSE_BODY_TIMEOUT};
use super::names::wire_tool_name;
use super::optional_member::{OptionalPart, after_notices, send_with_optional};
use super::prompt_tokens::request_tokens;
use super::vendor_error;
use crate::outbound::{LazyTarget, OutboundClient, OutboundResponse, UrlTrust};

impl ResponsesProtocol {
    /// Appends the body of a request, with the data that [`AnswerContext::of`] takes from the finished payload. Pure.
    ///
    /// # Errors
    /// `UnsupportedContent` for content of the latest user message other than text and images.
    pub fn push_body(&self, request: &ModelRequest, body: &mut PayloadBuilder) -> Result<(), AgentError> {
        request::push_body(self, request, body)?;
        body.prompt_tokens(Some(request_tokens(request, &request.tools)));
        let names = request.tools.iter().map(|tool| (wire_tool_name(&tool.name), &tool.name));
        let aliases = names.filter(|(alias, name)| alias != *name);
        body.attach(AnswerContext {
            aliases: aliases.map(|(alias, name)| (alias.into_owned(), name.clone())).collect(),
            hides_reasoning: self.model.thinking(request) == Some(false),
            prompt_tokens: None,
        });
        Ok(())
    }

    /// Reads the response to a request: maps an unsuccessful one to an error, and any other to the events of the answer.
    /// Learns the model's context window from either.
    ///
    /// # Errors
    /// Those that the response reports in its head or, if it is not a stream, in its body.
    pub async fn decode(
        &self,
        response: OutboundResponse,
        context: AnswerContext,
    ) -> Result<ModelStream, AgentError> {
        self.model.learning(context.prompt_tokens, self.read(response, context.clone())).await
    }

    async fn read(
        &self,
        response: OutboundResponse,
        context: AnswerContext,
    ) -> Result<ModelStream, AgentError> {
        if !response.status.is_success() {
            let OutboundResponse { status, headers, body } = response;
            let body = vendor_error::read_body(body).await;
            return Err(self.server_error(status, headers, &body));
        }
        super::errors::check_encoding(&response)?;
        let prompt_tokens = context.prompt_tokens;
        let mut answer = AnswerReader::new(self, context);
        answer.reset_time = response.headers.get(RESET_HEADER).cloned();
        match response.media_type().as_str() {
            // Some servers report an error with status 200, and some do not stream although a stream was requested.
            "application/json" => {
                let body = response.read_limited(MAX_RESPONSE_BYTES, RESPONSE_BODY_TIMEOUT).await?;
                answer.take_whole(&body)?;
                Ok(futures_util::stream::iter(answer.ready.into_iter().map(Ok)).boxed())
            }
            "text/html" => Err(blocked_by_proxy()),
            // Compatible servers send streams with various media types.
            _ => {
                let body = response.into_stream();
                Ok(AnswerStream::new(body, answer, self.model.clone(), prompt_tokens).boxed())
            }
        }
    }

    /// Returns the error of an unsuccessful response.
    fn server_error(&self, status: StatusCode, headers: HeaderMap, body: &[u8]) -> AgentError {
        let error = ServerError::from_response(status, headers, body);
        error.into_agent_error(self.account, SystemTime::now())
    }
}

/// A model on a Responses server, called with an API key.
pub struct Responses {
    endpoint: LazyTarget,
    key: Option<Secret>,
    protocol: ResponsesProtocol,
}

impl std::fmt::Debug for Responses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Responses").finish_non_exhaustive()
    }
}

impl Responses {
    /// Creates an adapter for the server with the base URL `base`, such as `https://api.openai.com/v1`.
    ///
    /// # Errors
    /// `InvalidRequest` for a URL that cannot have path segments.
    pub fn new(
        outbound: OutboundClient,
        base: &Url,
        trust: UrlTrust,
        key: Option<Secret>,
        protocol: ResponsesProtocol,
    ) -> Result<Self, AgentError> {
        let endpoint = crate::outbound::join_path(base, &["responses"])?;
        let protocol = protocol.with_key(key.as_ref());
        Ok(Self { endpoint: LazyTarget::new(outbound, endpoint, trust), key, protocol })
    }

    async fn post(&self, body: Bytes) -> Result<OutboundResponse, AgentError> {
        let request = self.endpoint.target()?.post_json(self.key.as_ref(), "text/event-stream", body)?;
        request.send().await
    }
}

#[async_trait]
impl Model for Responses {
    fn info(&self) -> ModelInfo {
        self.protocol.info()
    }

    fn prepare(&self, request: &ModelRequest) -> Result<Payload, AgentError> {
        let mut body = Payload::builder(request.prompt.text_len() * 9 / 8 + BODY_HEADROOM);
        self.protocol.push_body(request, &mut body)?;
        Ok(body.finish())
    }

    async fn start(&self, payload: Payload) -> Result<ModelStream, AgentError> {
        let (context, protocol) = (AnswerContext::of(&payload), &self.protocol);
        let (member, model, prompt_tokens) = (limit_member(protocol), &protocol.model, context.prompt_tokens);
        let post = |body| self.post(body);
        let refusal = |status, headers, body: Bytes| {
            let error = protocol.server_error(status, headers, &body);
            model.learn(&error, prompt_tokens);
            error
        };
        let parts: [&dyn OptionalPart; 1] = [&member];
        let (response, notices) = send_with_optional(&payload, &parts, model, post, refusal).await?;
        Ok(after_notices(notices, protocol.decode(response, context).await?))
    }
}

#[cfg(test)]
mod tests;
