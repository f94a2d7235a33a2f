//! Backend for remote agent runtimes: sends a turn as a ten-field request, and decodes this platform's own event
//! stream. The parameters of the model's calls are an eleventh field, which is absent if none is set.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use agent_core::backend::{Backend, BackendCapabilities, PreparedRequest, Turn};
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::event::{Event, EventStream, SourceEvent};
use agent_core::payload::{Payload, PayloadBuilder, PromptSection};
use agent_core::prompt::{Dialect, push_tool_json};
use agent_core::role::{AgentServer, TokenLimits};
use agent_core::secret::Secret;
use agent_platform::fallback::UpstreamError;
use agent_platform::parameters::{ModelParameters, ParameterError};
use async_trait::async_trait;
use futures_util::{Stream, StreamExt};
use url::Url;

use super::{push_mcp_server_url, push_optional_member};
use crate::context_size::ContextSize;
use crate::events::EventDecoder;
use crate::lines::LineSplitter;
use crate::models::{ModelLimits, invalid_parameters, window_key};
use crate::outbound::{
    BodyStream, OutboundClient, OutboundResponse, UrlTrust, for_tenant, in_tenant, join_path,
    parse_supplied_url, status_failure,
};
use crate::problem::ProblemDetails;
use crate::secret::is_within;

/// Backend that sends turns to agent runtimes.
pub struct AgentServerBackend {
    /// The guarded HTTP client.
    pub outbound: OutboundClient,
    /// The operator's own runtime and its shared secret, which is sent only to that URL and below it, as is the company's id.
    pub own_runtime: Option<(Url, Option<Secret>)>,
    /// The application's public base URL, which the tool server's URL is derived from.
    pub public_url: Url,
    /// Maximum duration of a run, and so lifetime of its run token for the tool server.
    pub run_token_ttl: Duration,
    /// Limits on the models' tokens. Without a limit of the role, a runtime applies its own limit on an answer.
    pub limits: ModelLimits,
}

impl std::fmt::Debug for AgentServerBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentServerBackend").finish_non_exhaustive()
    }
}

#[async_trait]
impl Backend for AgentServerBackend {
    type Settings = AgentServer;

    fn capabilities(&self, settings: &AgentServer) -> Result<BackendCapabilities, AgentError> {
        let limits = self.limits.with_role(token_limits(settings).map_err(invalid_parameters)?);
        let limits = limits.resolve(provider_name(settings), model_name(settings), &window_key_of(settings));
        Ok(BackendCapabilities {
            run_token_ttl: Some(self.run_token_ttl),
            ..BackendCapabilities::new(limits.prompt_budget())
        })
    }

    fn prepare(&self, settings: &AgentServer, turn: Arc<Turn>) -> Result<PreparedRequest, AgentError> {
        let payload = self.payload(&turn, settings)?;
        Ok(PreparedRequest { payload, turn })
    }

    async fn start(
        &self,
        settings: &AgentServer,
        prepared: PreparedRequest,
    ) -> Result<EventStream, AgentError> {
        let estimated_tokens = prepared.payload.prompt_tokens();
        let company: Arc<str> = prepared.turn.context.company_id.as_str().into();
        let result = self.send(settings, prepared).await;
        if let Err(error) = &result {
            let limits = self.limits.with_role(token_limits(settings).unwrap_or_default());
            let names = (provider_name(settings), model_name(settings));
            let learn = || limits.learn(names, &window_key_of(settings), error, estimated_tokens);
            in_tenant(company, learn);
        }
        result
    }
}

/// Returns the name of the provider that the runtime calls; empty for its default.
fn provider_name(settings: &AgentServer) -> &str {
    settings.agent_server_provider.as_deref().unwrap_or_default()
}

/// Returns the name of the model that the runtime calls.
fn model_name(settings: &AgentServer) -> &str {
    settings.agent_server_model.as_deref().unwrap_or_default()
}

/// Returns the model's key in the learned windows: its address is the runtime's and its server's.
fn window_key_of(settings: &AgentServer) -> String {
    let runtime = settings.agent_server_url.as_deref().unwrap_or_default();
    let server = settings.agent_server_local_url.as_deref().unwrap_or_default();
    window_key(&format!("{runtime}\n{server}"), model_name(settings))
}

/// Returns the limits on the model's tokens. The parameters' limit on an answer comes before the role's.
///
/// # Errors
/// The faults of the parameters, which roles that were stored before they were checked may have.
fn token_limits(settings: &AgentServer) -> Result<TokenLimits, Vec<ParameterError>> {
    let parameters = ModelParameters::read(&settings.parameters)?;
    let max_output_tokens = parameters.max_output_tokens.or(settings.token_limits.max_output_tokens);
    Ok(TokenLimits { max_output_tokens, ..settings.token_limits })
}

impl AgentServerBackend {
    async fn send(
        &self,
        settings: &AgentServer,
        prepared: PreparedRequest,
    ) -> Result<EventStream, AgentError> {
        let PreparedRequest { payload, turn } = prepared;
        let address = settings.agent_server_url.as_deref().unwrap_or_default();
        let base = parse_supplied_url("agentServerUrl", address)?;
        let (trust, secret) = match &self.own_runtime {
            Some((own_url, secret)) if is_within(own_url, &base) => (UrlTrust::Operator, secret.as_ref()),
            _ => (UrlTrust::Supplied, None),
        };
        let (url, body) = (join_path(&base, &["chat"])?, payload.into_bytes());
        let request = self.outbound.post_json(&url, trust, secret, "application/x-ndjson", body)?;
        let company = &turn.context.company_id;
        let request = match trust {
            UrlTrust::Operator => request.company(company),
            UrlTrust::Supplied => request,
        };
        let request = request.continue_trace(turn.context.trace.as_ref());
        let response = for_tenant(company, request.send()).await?;
        if !response.status.is_success() {
            return Err(response_error(response).await);
        }
        Ok(EventStream::new(turn.run.clone(), RuntimeEvents::new(response.into_stream())))
    }

    fn payload(&self, turn: &Turn, settings: &AgentServer) -> Result<Payload, AgentError> {
        let mut body = Payload::builder(turn.prompt.json_len(Dialect::AgUi) + 4096);
        body.section(PromptSection::System).raw(r#"{"systemPrompt":"#);
        turn.prompt.push_system_json(body.buffer());
        body.raw(r#","messages":["#);
        turn.prompt.push_messages_json(Dialect::AgUi, body.buffer());
        body.raw(r#"],"tools":["#).section(PromptSection::Tools);
        for (i, tool) in turn.tools.iter().enumerate() {
            body.raw(if i > 0 { "," } else { "" });
            push_tool_json(tool, Dialect::AgUi, body.buffer());
        }
        body.raw("]");
        push_optional_member(&mut body, "provider", settings.agent_server_provider.as_ref());
        push_optional_member(&mut body, "model", settings.agent_server_model.as_ref());
        push_optional_member(&mut body, "enableThinking", settings.agent_server_enable_thinking.as_ref());
        push_parameters(settings, &mut body);
        push_optional_member(&mut body, "baseUrl", settings.agent_server_local_url.as_ref());
        if let Some(key) = settings.agent_server_api_key.as_ref().filter(|key| !key.expose().is_empty()) {
            body.raw(r#","apiKey":"#).secret(key.expose());
        }
        body.raw(r#","mcpServerUrl":"#);
        push_mcp_server_url(&self.public_url, turn, &mut body)?;
        body.raw(r#","context":"#);
        push_context(turn, &mut body);
        body.raw("}");
        body.prompt_tokens(Some(turn.prompt.tokens().total()));
        Ok(body.finish())
    }
}

/// Appends the parameters of the model's calls, if one is set; the role's limit on an answer is one of them. The
/// capabilities have refused those with a fault.
fn push_parameters(settings: &AgentServer, body: &mut PayloadBuilder) {
    let mut parameters = settings.parameters.clone();
    parameters.retain(|_, value| !value.is_null());
    if let Some(limit) = settings.token_limits.max_output_tokens {
        parameters.entry("maxOutputTokens").or_insert(limit.get().into());
    }
    if !parameters.is_empty() {
        body.raw(r#","parameters":"#).json(&parameters);
    }
}

/// Appends the execution context. Thread and run identifiers differ in each run, so they are masked for display.
fn push_context(turn: &Turn, body: &mut PayloadBuilder) {
    let context = &turn.context;
    body.raw(r#"{"userId":"#).json(&context.user_id).raw(r#","agentId":"#).json(&context.agent_id);
    push_optional_member(body, "agentName", context.agent_name.as_ref());
    push_optional_member(body, "todoListId", context.todo_list_id.as_ref());
    push_optional_member(body, "timezone", context.timezone.as_ref());
    body.raw(r#","threadId":"#).secret(&context.thread_id);
    body.raw(r#","runId":"#).secret(&context.run_id);
    body.raw(r#","caller":"#).json(&context.caller).raw("}");
}

/// Maps an error response to an error by its problem code, for codes that concern the role's settings; its text is
/// not repeated. The cause has the status, and the code if it is one of this platform's.
async fn response_error(response: OutboundResponse) -> AgentError {
    let status_error = status_failure(response.status, &response.headers);
    let status = response.status.as_u16();
    let Some(ProblemDetails { code: Some(code), context_window, prompt_tokens, .. }) =
        ProblemDetails::read(response).await
    else {
        return status_error;
    };
    let kind = AgentErrorKind::from_code(&code);
    let known_code = kind.map(AgentErrorKind::code);
    let description =
        format!("HTTP {status}: the agent runtime returned {}", known_code.unwrap_or("an unknown code"));
    let cause = UpstreamError::new(Some(status), known_code, description);
    let message = match kind {
        Some(AgentErrorKind::ProviderNotImplemented) => {
            "the agent runtime has not implemented this provider yet"
        }
        Some(AgentErrorKind::UnknownProvider) => "the agent runtime does not know this provider",
        Some(AgentErrorKind::UnsupportedContent) => {
            "this agent's model supports text input only, no images or files"
        }
        Some(AgentErrorKind::Blocked) => {
            "the agent runtime's address policy (OUTBOUND_ALLOW) blocks the model's address"
        }
        Some(AgentErrorKind::Timeout) => "the agent runtime's model did not respond in time",
        Some(AgentErrorKind::Unreachable) => "the agent runtime could not reach its model",
        Some(AgentErrorKind::ContextExceeded) => {
            "the conversation exceeds the context window of the agent runtime's model"
        }
        Some(AgentErrorKind::AccountRefused) => {
            "the provider of the agent runtime's model refuses the account: its quota is spent, or it is not paid for"
        }
        Some(AgentErrorKind::ShuttingDown) => "the agent runtime is shutting down; try again",
        _ => return status_error.with_source(cause),
    };
    let error = AgentError::new(kind.unwrap_or(AgentErrorKind::Failed), message).with_source(cause);
    let error = ContextSize { window: context_window, prompt: prompt_tokens }.add_to(error);
    match status_error.retry_after() {
        Some(delay) => error.with_retry_after(delay),
        None => error,
    }
}

/// Stream of events decoded from a runtime's response.
struct RuntimeEvents {
    body: BodyStream,
    lines: LineSplitter,
    decoder: EventDecoder,
    is_finished: bool,
}

impl RuntimeEvents {
    fn new(body: BodyStream) -> Self {
        Self { body, lines: LineSplitter::default(), decoder: EventDecoder::default(), is_finished: false }
    }

    fn next_event(&mut self) -> Result<Option<Event>, AgentError> {
        while let Some(line) = self.lines.next_line()? {
            if let Some(event) = self.decoder.decode(line)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    fn last_event(&mut self) -> Result<Option<Event>, AgentError> {
        match self.lines.last_line() {
            Some(line) => self.decoder.decode(line),
            None => Ok(None),
        }
    }
}

impl Stream for RuntimeEvents {
    type Item = Result<SourceEvent, AgentError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if this.is_finished {
                return Poll::Ready(None);
            }
            if let Some(event) = this.next_event().transpose() {
                return Poll::Ready(Some(event.map(SourceEvent::from)));
            }
            match ready!(this.body.poll_next_unpin(cx)) {
                Some(Ok(chunk)) => this.lines.push(chunk),
                Some(Err(error)) => {
                    this.is_finished = true;
                    return Poll::Ready(Some(Err(error)));
                }
                None => {
                    this.is_finished = true;
                    // A last line without a newline may be complete.
                    return Poll::Ready(this.last_event().ok().flatten().map(|event| Ok(event.into())));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
