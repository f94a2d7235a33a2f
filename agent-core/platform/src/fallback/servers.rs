//! Runs at agent servers, with their fallbacks: [`FallbackServers`].
//!
//! A run at an agent server is one call, in which the runtime calls the agent's tools. A call is repeated only if no
//! tool was called: the run has sent only the initial events of this platform's runtime, and nothing was called with
//! the run token at this process's tool server.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use agent_core::backend::{Backend, BackendCapabilities, PreparedRequest, Turn};
use agent_core::clock::Clock;
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::event::{Audience, Event, EventStream, RunEnd, SourceEvent};
use agent_core::payload::Payload;
use agent_core::role::{AgentServer, RetrySettings, TokenLimits};
use agent_core::select::BackendChoice;
use async_trait::async_trait;

use super::budget::FallbackLimits;
use super::call::RoundCalls;
use super::entries::{CallEntry, CallRoute, Entries, PreparedCall, lazy_entry};
use super::source::FallbackDefaults;
use super::stream::FallbackStream;
use super::target::{AnswerEvents, CallTarget};
use super::{AttemptReport, Circuits, MAX_FALLBACKS, RetryPolicy, UpstreamError};
use crate::catalog::Catalog;
use crate::model_notice::ModelNotice;
use crate::usage::{MeteredServers, server_names};

/// Name of the first step of a run at this platform's runtime: the first round of the tool loop, before the model's answer.
const FIRST_STEP: &str = "round-1";

/// Backend of agent servers that repeats failed calls, and calls the fallbacks of a role's agent server.
pub struct FallbackServers {
    servers: Arc<MeteredServers>,
    defaults: FallbackDefaults,
    circuits: Arc<Circuits>,
    clock: Arc<dyn Clock>,
    catalog: Arc<Catalog>,
}

impl fmt::Debug for FallbackServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FallbackServers").finish_non_exhaustive()
    }
}

impl FallbackServers {
    /// Wraps agent servers. `defaults` has the limits of those that name none; its models are not used.
    pub fn new(
        servers: MeteredServers,
        defaults: FallbackDefaults,
        circuits: Arc<Circuits>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { servers: Arc::new(servers), defaults, circuits, clock, catalog: Catalog::built_in() }
    }

    /// Sets the catalogue in which previews look models up, in place of the built-in one.
    #[must_use]
    pub fn with_catalog(self, catalog: Arc<Catalog>) -> Self {
        Self { catalog, ..self }
    }

    /// Returns the limits on the prompts of the agent servers' fallbacks.
    pub fn limits(&self) -> Arc<dyn FallbackLimits> {
        Arc::new(ServerLimits(self.servers.clone()))
    }

    /// Returns the agent server of a turn with its fallbacks.
    fn entries(&self, settings: &AgentServer, turn: &Arc<Turn>) -> Arc<Entries<ServerTarget>> {
        let entry = |settings: AgentServer, is_fallback: bool| {
            let (servers, turn) = (self.servers.clone(), turn.clone());
            lazy_entry(move || {
                let budget = is_fallback.then(|| fallback_budget(&servers, &settings));
                server_entry(&servers, settings, budget.and_then(Result::err), &turn)
            })
        };
        let fallbacks = server_fallbacks(settings).map(|settings| entry(settings, true));
        Arc::new(Entries {
            entries: std::iter::once(entry(settings.clone(), false)).chain(fallbacks).collect(),
            policy: self.defaults.policy(settings.retry.as_ref()),
            circuits: self.circuits.clone(),
            clock: self.clock.clone(),
            catalog: self.catalog.clone(),
        })
    }
}

/// Returns an entry. The request names the user, so that refusals say nothing about other companies: the circuit of all
/// companies is of one as well.
fn server_entry(
    servers: &Arc<MeteredServers>,
    settings: AgentServer,
    refusal: Option<AgentErrorKind>,
    turn: &Arc<Turn>,
) -> CallEntry<ServerTarget> {
    let (provider, name) = server_names(&settings);
    let (provider, name) = (provider.trim().to_owned(), name.trim().to_owned());
    let url = settings.agent_server_url.as_deref().unwrap_or_default().trim();
    let local_url = settings.agent_server_local_url.as_deref().unwrap_or_default().trim();
    let model = [&*turn.context.company_id, url, &provider, local_url, &name].join("\n");
    let route = CallRoute::new(
        url,
        "",
        model,
        settings.agent_server_api_key.clone(),
        turn.context.company_id.clone(),
    );
    let parameters = settings.parameters.clone();
    let thinking = settings.agent_server_enable_thinking;
    let own_price = servers.own_price(&settings);
    let has_own_window = settings.token_limits.context_window.is_some();
    let target = match refusal {
        Some(kind) => Err(kind),
        None => Ok(ServerTarget { servers: servers.clone(), settings, turn: turn.clone() }),
    };
    CallEntry {
        target,
        provider,
        provider_type: None,
        name,
        has_own_window,
        has_company_price: false,
        route,
        parameters,
        thinking,
        own_price,
    }
}

/// Returns the settings of the fallbacks of an agent server. Their tools, and the limits on their tokens, are the role's.
fn server_fallbacks(settings: &AgentServer) -> impl Iterator<Item = AgentServer> + '_ {
    let first_content_ms = settings.retry.as_ref().and_then(|retry| retry.first_content_ms);
    settings.fallbacks.iter().take(MAX_FALLBACKS).map(move |fallback| {
        let first_content_ms = fallback.first_content_ms.or(first_content_ms);
        AgentServer {
            retry: Some(RetrySettings { first_content_ms, ..RetrySettings::default() }),
            fallbacks: Vec::new(),
            // The window is that of the first model.
            token_limits: TokenLimits { context_window: None, ..settings.token_limits },
            ..fallback.clone()
        }
    })
}

/// Returns the limit on the prompt of a fallback in tokens, or the reason why it cannot be called.
fn fallback_budget(servers: &MeteredServers, settings: &AgentServer) -> Result<usize, AgentErrorKind> {
    if settings.agent_server_url.as_deref().is_none_or(|url| url.trim().is_empty()) {
        return Err(AgentErrorKind::NotConfigured);
    }
    let capabilities = servers.backend().capabilities(settings).map_err(|error| error.kind())?;
    Ok(capabilities.budget.max_prompt_tokens)
}

/// Limits on the prompts of the fallbacks of agent servers.
struct ServerLimits(Arc<MeteredServers>);

impl FallbackLimits for ServerLimits {
    fn max_prompt_tokens(&self, choice: &BackendChoice) -> Option<usize> {
        let BackendChoice::AgentServer(settings) = choice else { return None };
        server_fallbacks(settings).filter_map(|settings| fallback_budget(&self.0, &settings).ok()).max()
    }
}

#[async_trait]
impl Backend for FallbackServers {
    type Settings = AgentServer;

    fn capabilities(&self, settings: &AgentServer) -> Result<BackendCapabilities, AgentError> {
        self.servers.backend().capabilities(settings)
    }

    fn prepare(&self, settings: &AgentServer, turn: Arc<Turn>) -> Result<PreparedRequest, AgentError> {
        let entries = self.entries(settings, &turn);
        let (entry, payload) = entries.prepare_first(0, &())?;
        let call = PreparedCall { entries, entry, payload: payload.clone(), request: Some(Arc::new(())) };
        Ok(PreparedRequest { payload: payload.with_attachment(call), turn })
    }

    async fn start(
        &self,
        settings: &AgentServer,
        prepared: PreparedRequest,
    ) -> Result<EventStream, AgentError> {
        let PreparedRequest { payload, turn } = prepared;
        let call = match payload.attachment::<PreparedCall<ServerTarget>>() {
            Some(call) => call.clone(),
            // The request was built by another backend.
            None => PreparedCall { entries: self.entries(settings, &turn), entry: 0, payload, request: None },
        };
        let is_trusted = turn.context.caller.audience() == Audience::Trusted;
        let tool_calls = turn.run_token.as_ref().map(|token| token.report_calls());
        let calls = RoundCalls::new(call, (1, Arc::default()), is_trusted).with_tool_calls(tool_calls);
        let (calls, started) = Box::new(calls).advance().await;
        Ok(EventStream::new(turn.run.clone(), FallbackStream::new(started?, calls)))
    }
}

/// The agent server of a run, or a fallback of it.
pub(super) struct ServerTarget {
    servers: Arc<MeteredServers>,
    settings: AgentServer,
    turn: Arc<Turn>,
}

#[async_trait]
impl CallTarget for ServerTarget {
    /// The turn is the target's own.
    type Request = ();
    type Event = SourceEvent;

    const TRUNCATED: &'static str = "the backend's response ended before it was complete";
    const NO_CONTENT: &'static str = "the agent runtime sent no content in time";

    fn max_prompt_tokens(&self) -> usize {
        let capabilities = self.servers.backend().capabilities(&self.settings);
        capabilities.map_or(0, |capabilities| capabilities.budget.max_prompt_tokens)
    }

    fn assembled_tokens(&self, _request: &()) -> usize {
        self.turn.prompt.tokens().total()
    }

    fn prepare(&self, _request: &()) -> Result<Payload, AgentError> {
        Ok(self.servers.backend().prepare(&self.settings, self.turn.clone())?.payload)
    }

    async fn start(&self, payload: Payload, attempt: u32) -> Result<AnswerEvents<Self>, AgentError> {
        let prepared = PreparedRequest { payload, turn: self.turn.clone() };
        self.servers.start(&self.settings, prepared, attempt).await
    }

    fn is_content(event: &SourceEvent) -> bool {
        match event {
            SourceEvent::Event(Event::RunStarted { .. }) => false,
            SourceEvent::Event(Event::StepStarted { step_name }) => **step_name != *FIRST_STEP,
            SourceEvent::Event(Event::Custom { name, value }) => {
                name != "agent.debug" || !ModelNotice::is_notice(value)
            }
            _ => true,
        }
    }

    fn failure(event: &SourceEvent, _: (u32, bool), _policy: &RetryPolicy) -> Option<AgentError> {
        let SourceEvent::End(end) = event else { return None };
        let RunEnd::Failed { message, code, usage } = end else { return None };
        let kind = AgentErrorKind::from_code(code);
        let known_code = kind.map(AgentErrorKind::code);
        let description = format!("the run ended with {}", known_code.unwrap_or("an unknown code"));
        let source =
            RunEndError { end: end.clone(), cause: UpstreamError::new(None, known_code, description) };
        let error = AgentError::new(kind.unwrap_or(AgentErrorKind::Failed), message.clone());
        Some(error.with_usage(usage.clone()).with_source(source))
    }

    fn attempt_event(report: &AttemptReport) -> Option<SourceEvent> {
        let value = serde_json::to_value(report.notice()?).ok()?;
        Some(SourceEvent::Event(Event::Custom { name: "agent.debug".to_owned(), value }))
    }

    /// Returns the end as the runtime reported it, if the error is one.
    fn last_event(error: AgentError) -> Result<SourceEvent, AgentError> {
        let reported = error.source().and_then(|source| source.downcast_ref::<RunEndError>());
        match reported.map(|reported| reported.end.clone()) {
            Some(end) => Ok(end.into()),
            None => Err(error),
        }
    }
}

/// End of a run, as the runtime reported it. It is the source of an [`AgentError`].
#[derive(Debug)]
struct RunEndError {
    end: RunEnd,
    cause: UpstreamError,
}

impl fmt::Display for RunEndError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)
    }
}

impl Error for RunEndError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.cause)
    }
}

#[cfg(test)]
mod tests;
