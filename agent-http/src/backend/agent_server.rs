//! Backend for remote agent runtimes: sends a turn as a ten-field request, and decodes this platform's own event
//! stream.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use agent_core::backend::{Backend, Prepared, Turn};
use agent_core::budget::TokenBudget;
use agent_core::error::{Failure, FailureKind};
use agent_core::event::{Event, EventStream};
use agent_core::payload::{Payload, PayloadBuilder, Section};
use agent_core::prompt::{Dialect, push_tool_json};
use agent_core::role::AgentServer;
use agent_core::secret::Secret;
use agent_core::select::Choice;
use async_trait::async_trait;
use futures_util::{Stream, StreamExt};
use serde::Deserialize;
use url::Url;

use super::{ASSUMED_BUDGET, below, misrouted, optional, push_mcp_server_url, supplied_url};
use crate::lines::LineSplitter;
use crate::outbound::{BodyStream, Outbound, OutboundResponse, Trust, status_failure};
use crate::secret::origin_of;
use crate::stream::Decoder;

/// Limits of an error response, which is read for its problem code: size and read time.
const MAX_PROBLEM_BYTES: usize = 16 * 1024;
const PROBLEM_TIMEOUT: Duration = Duration::from_secs(5);

/// Backend that sends turns to agent runtimes.
pub struct AgentServerBackend {
    /// The guarded HTTP client.
    pub outbound: Outbound,
    /// The operator's own runtime and its shared secret, which is sent only to that origin.
    pub own_runtime: Option<(Url, Option<Secret>)>,
    /// The application's public base URL, which the tool server's URL is derived from.
    pub public_url: Url,
    /// Maximum duration of a run, and so lifetime of its run token for the tool server.
    pub run_token_ttl: Duration,
}

#[async_trait]
impl Backend for AgentServerBackend {
    fn budget(&self, _: &Choice) -> Result<TokenBudget, Failure> {
        Ok(ASSUMED_BUDGET)
    }

    fn run_token_ttl(&self) -> Option<Duration> {
        Some(self.run_token_ttl)
    }

    fn prepare(&self, turn: Arc<Turn>) -> Result<Prepared, Failure> {
        let payload = self.payload(&turn, settings(&turn)?)?;
        Ok(Prepared { payload, turn })
    }

    async fn start(&self, prepared: Prepared) -> Result<EventStream, Failure> {
        let Prepared { payload, turn } = prepared;
        let address = settings(&turn)?.agent_server_url.as_deref().unwrap_or_default();
        let base = supplied_url("agentServerUrl", address)?;
        let (trust, secret) = match &self.own_runtime {
            Some((own, secret)) if origin_of(own) == origin_of(&base) => (Trust::Operator, secret.as_ref()),
            _ => (Trust::Supplied, None),
        };
        let (url, body) = (below(&base, &["chat"])?, payload.into_bytes());
        let request = self.outbound.post_json(&url, trust, secret, "application/x-ndjson", body)?;
        let response = request.send().await?;
        if !response.status.is_success() {
            return Err(refusal(response).await);
        }
        Ok(EventStream::new(turn.run.clone(), RuntimeEvents::new(response.into_stream())))
    }
}

impl AgentServerBackend {
    fn payload(&self, turn: &Turn, settings: &AgentServer) -> Result<Payload, Failure> {
        let mut body = Payload::builder(turn.prompt.json_len(Dialect::AgUi) + 4096);
        body.section(Section::System).raw(r#"{"systemPrompt":"#);
        turn.prompt.push_system_json(body.buffer());
        body.raw(r#","messages":["#);
        turn.prompt.push_messages_json(Dialect::AgUi, body.buffer());
        body.raw(r#"],"tools":["#).section(Section::Tools);
        for (i, tool) in turn.tools.iter().enumerate() {
            body.raw(if i > 0 { "," } else { "" });
            push_tool_json(tool, Dialect::AgUi, body.buffer());
        }
        body.raw("]");
        optional(&mut body, "provider", settings.agent_server_provider.as_ref());
        optional(&mut body, "model", settings.agent_server_model.as_ref());
        optional(&mut body, "enableThinking", settings.agent_server_enable_thinking.as_ref());
        optional(&mut body, "baseUrl", settings.agent_server_local_url.as_ref());
        if let Some(key) = settings.agent_server_api_key.as_ref().filter(|key| !key.expose().is_empty()) {
            body.raw(r#","apiKey":"#).masked(key.expose());
        }
        body.raw(r#","mcpServerUrl":"#);
        push_mcp_server_url(&self.public_url, turn, &mut body)?;
        body.raw(r#","context":"#);
        push_context(turn, &mut body);
        body.raw("}");
        Ok(body.finish())
    }
}

fn settings(turn: &Turn) -> Result<&AgentServer, Failure> {
    match &turn.choice {
        Choice::AgentServer(settings) => Ok(settings),
        _ => Err(misrouted()),
    }
}

/// Appends the execution context. Thread and run identifiers differ in each run, so they are masked for display.
fn push_context(turn: &Turn, body: &mut PayloadBuilder) {
    let context = &turn.context;
    body.raw(r#"{"userId":"#).json(&context.user_id).raw(r#","agentId":"#).json(&context.agent_id);
    optional(body, "agentName", context.agent_name.as_ref());
    optional(body, "todoListId", context.todo_list_id.as_ref());
    optional(body, "timezone", context.timezone.as_ref());
    body.raw(r#","threadId":"#).masked(&context.thread_id);
    body.raw(r#","runId":"#).masked(&context.run_id);
    body.raw(r#","caller":"#).json(&context.caller).raw("}");
}

/// Maps an error response to a failure by its problem code, for codes that concern the role's settings; its text is not
/// repeated.
async fn refusal(response: OutboundResponse) -> Failure {
    #[derive(Deserialize)]
    struct Problem {
        code: String,
    }
    let by_status = status_failure(response.status, &response.headers);
    let Ok(body) = response.read_limited(MAX_PROBLEM_BYTES, PROBLEM_TIMEOUT).await else { return by_status };
    let Ok(problem) = serde_json::from_slice::<Problem>(&body) else { return by_status };
    let message = match FailureKind::from_code(&problem.code) {
        Some(FailureKind::ProviderNotImplemented) => {
            "the agent runtime has not implemented this provider yet"
        }
        Some(FailureKind::UnknownProvider) => "the agent runtime does not know this provider",
        Some(FailureKind::UnsupportedContent) => "this agent's model takes text only, no images or files",
        Some(FailureKind::Blocked) => "the agent runtime's address policy refuses the model's address",
        Some(FailureKind::Timeout) => "the agent runtime's model did not answer in time",
        Some(FailureKind::Unreachable) => "the agent runtime could not reach its model",
        _ => return by_status,
    };
    let kind = FailureKind::from_code(&problem.code).unwrap_or(FailureKind::Failed);
    Failure::new(kind, message).with_source(format!("the runtime answered {}", problem.code))
}

/// Stream of events decoded from a runtime's response.
struct RuntimeEvents {
    body: BodyStream,
    lines: LineSplitter,
    decoder: Decoder,
    over: bool,
}

impl RuntimeEvents {
    fn new(body: BodyStream) -> Self {
        Self { body, lines: LineSplitter::default(), decoder: Decoder::default(), over: false }
    }

    fn next_event(&mut self) -> Result<Option<Event>, Failure> {
        while let Some(line) = self.lines.next_line()? {
            if let Some(event) = self.decoder.decode(line)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    fn last_event(&mut self) -> Result<Option<Event>, Failure> {
        match self.lines.last_line() {
            Some(line) => self.decoder.decode(line),
            None => Ok(None),
        }
    }
}

impl Stream for RuntimeEvents {
    type Item = Result<Event, Failure>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if this.over {
                return Poll::Ready(None);
            }
            if let Some(event) = this.next_event().transpose() {
                return Poll::Ready(Some(event));
            }
            match ready!(this.body.poll_next_unpin(cx)) {
                Some(Ok(chunk)) => this.lines.push(chunk),
                Some(Err(failure)) => {
                    this.over = true;
                    return Poll::Ready(Some(Err(failure)));
                }
                None => {
                    this.over = true;
                    // A last line without a newline may be complete.
                    return Poll::Ready(this.last_event().ok().flatten().map(Ok));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
