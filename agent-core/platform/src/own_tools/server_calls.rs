//! Calls of tools at tool servers: one connection for each run and server, whose list is compared with the pins before the
//! run's first call.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use agent_core::clock::Clock;
use agent_core::ids::{AgentId, CompanyId, RunId, TraceContext, UserId};
use agent_core::secret::Secret;
use agent_core::tool::{Caller, ExecutionContext, Progress, ToolError, ToolOutput};
use async_trait::async_trait;
use futures_util::lock::Mutex as AsyncMutex;
use serde_json::{Map, Value};
use url::Url;

use super::answer::{OUTCOME_UNKNOWN, cut};
use super::changes::ToolChanges;
use super::credential::IDENTITY_SECONDS;
use super::pins::{AgentPins, PinStore, ToolStatus};
use super::redact::Redactor;
use super::tool_server::{ServerTool, ToolDefinition, ToolServer};
use crate::company_cache::CompanyCache;
use crate::exact_json::exact_arguments;
use crate::trace::trace_headers;

/// Maximum number of connections of runs.
const MAX_CONNECTIONS: usize = 512;
/// Time after which another identity is signed: half of its lifetime.
const IDENTITY_REUSE: Duration = Duration::from_secs(IDENTITY_SECONDS / 2);
/// Maximum age of a comparison of the list in a run; after it, the list is compared again.
const MAX_COMPARISON_AGE: Duration = Duration::from_secs(600);
/// Maximum length of an error's text in a result, in bytes.
const MAX_ERROR_BYTES: usize = 1024;

/// A tool server as a client reaches it.
#[derive(Clone)]
pub struct ToolServerAddress {
    /// Company on whose behalf the server is called.
    pub company_id: CompanyId,
    /// Address from the role.
    pub url: Url,
    /// Time limit of a request and its response together.
    pub timeout: Duration,
    /// Returns the headers of a request, whose values may be secret.
    pub headers: Arc<dyn Fn() -> Vec<(String, Secret)> + Send + Sync>,
}

impl std::fmt::Debug for ToolServerAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolServerAddress")
            .field("company_id", &self.company_id)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Client of the Model Context Protocol, which applies the operator's address policy and follows no redirect.
pub trait ToolServerClient: Send + Sync + 'static {
    /// Returns a connection. Nothing is sent before its first request.
    ///
    /// # Errors
    /// The address is refused.
    fn connect(&self, address: ToolServerAddress) -> Result<Arc<dyn ToolServerConnection>, ToolError>;
}

/// Members of the `_meta` of a call.
#[derive(Debug, Clone, Copy, Default)]
pub struct CallMeta<'a> {
    /// Idempotency key of the call.
    pub idempotency_key: Option<&'a str>,
    /// Trace that the call continues.
    pub trace: Option<&'a TraceContext>,
}

/// A connection to a tool server, which is closed when it is dropped, and opened again after it was idle.
#[async_trait]
pub trait ToolServerConnection: Send + Sync + 'static {
    /// Lists all tools of the server.
    ///
    /// # Errors
    /// [`ToolError::Unavailable`] without a list, or for one that exceeds the client's limits.
    async fn list(&self) -> Result<Vec<ToolDefinition>, ToolError>;

    /// Calls a tool by its name at the server.
    ///
    /// # Errors
    /// [`ToolError::OutcomeUnknown`] if the server may have run the call, and there is no result that can be read.
    async fn call(
        &self,
        name: &str,
        arguments: Map<String, Value>,
        meta: CallMeta<'_>,
        progress: &dyn Progress,
    ) -> Result<ToolOutput, ToolError>;

    /// Returns the number of times that the server has said that its list has changed.
    fn list_changes(&self) -> u64 {
        0
    }
}

/// Calls the tools of tool servers.
pub(super) struct ServerCalls {
    client: Arc<dyn ToolServerClient>,
    pub(super) pins: PinStore,
    pub(super) changes: ToolChanges,
    clock: Arc<dyn Clock>,
    connections: CompanyCache<ConnectionKey, Arc<RunConnection>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct ConnectionKey {
    agent_id: AgentId,
    user_id: UserId,
    run_id: RunId,
    caller: Caller,
    server_id: String,
}

/// Fingerprints by the tools' names at their server.
type SharedFingerprints = Arc<BTreeMap<String, String>>;

/// A connection of a run.
pub(super) struct RunConnection {
    server: Arc<ToolServer>,
    credential: Arc<RunCredential>,
    connection: Arc<dyn ToolServerConnection>,
    /// The server's list, once it is read.
    listed: AsyncMutex<Option<ReadList>>,
}

/// A server's list as it was read.
struct ReadList {
    at: SystemTime,
    /// Number of changes that the server had reported before.
    list_changes: u64,
    fingerprints: SharedFingerprints,
}

/// The credential of a connection, and the identity of its user.
struct RunCredential {
    server: Arc<ToolServer>,
    context: ExecutionContext,
    clock: Arc<dyn Clock>,
    identities: Mutex<SignedIdentities>,
}

/// Signed identities that the server may have.
#[derive(Default)]
struct SignedIdentities {
    /// The latest one, with the time of its signature.
    latest: Option<(SystemTime, Secret)>,
    /// The previous one, which the server may still have.
    earlier: Option<Secret>,
}

impl RunCredential {
    /// Returns the headers of a request.
    ///
    /// # Errors
    /// The secret is missing.
    fn headers(&self) -> Result<Vec<(String, Secret)>, ToolError> {
        let mut headers: Vec<_> =
            self.server.credential.header(&mut Redactor::default())?.into_iter().collect();
        if self.server.is_signed {
            headers.push(self.identity()?);
        }
        if let Some(trace) = &self.context.trace {
            let trace = trace_headers(Some(trace));
            headers.extend(trace.map(|(name, value)| (name.to_owned(), Secret::new(value))));
        }
        Ok(headers)
    }

    fn identity(&self) -> Result<(String, Secret), ToolError> {
        let now = self.clock.now();
        let mut identities = self.identities.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fresh = |at: SystemTime| now.duration_since(at).is_ok_and(|age| age < IDENTITY_REUSE);
        if let Some((_, token)) = identities.latest.as_ref().filter(|(at, _)| is_fresh(*at)) {
            return Ok((super::credential::IDENTITY_HEADER.to_owned(), token.clone()));
        }
        let audience = &self.server.id;
        let signed = self.server.credential.identity(
            audience,
            (&self.context, None),
            now,
            &mut Redactor::default(),
        )?;
        identities.earlier = identities.latest.replace((now, signed.1.clone())).map(|(_, token)| token);
        Ok(signed)
    }

    /// Returns the masking of all secrets that the server has received.
    fn redactor(&self) -> Redactor {
        let mut redactor = Redactor::default();
        // The secret was there when the connection was made.
        let _ = self.server.credential.header(&mut redactor);
        let identities = self.identities.lock().unwrap_or_else(PoisonError::into_inner);
        let tokens = identities.latest.iter().map(|(_, token)| token).chain(&identities.earlier);
        tokens.for_each(|token| redactor.add(token.clone()));
        redactor
    }
}

impl ServerCalls {
    pub(super) fn new(client: Arc<dyn ToolServerClient>, pins: PinStore, clock: Arc<dyn Clock>) -> Self {
        let (changes, connections) = (ToolChanges::default(), CompanyCache::new(MAX_CONNECTIONS));
        Self { client, pins, changes, clock, connections }
    }

    /// Calls a tool, unless the server's definition is not the pinned one.
    pub(super) async fn call(
        &self,
        tool: &ServerTool,
        (context, key): (&ExecutionContext, &str),
        arguments: Value,
        progress: &dyn Progress,
    ) -> Result<ToolOutput, ToolError> {
        let arguments = tool.schema.check(arguments).map_err(ToolError::InvalidArguments)?;
        let arguments = exact_arguments(arguments, context);
        let run = self.connection(&tool.server, context)?;
        let fingerprints = match run.fingerprints().await {
            Ok((fingerprints, is_new)) => {
                if is_new {
                    self.observe(context, &tool.server, Some(&fingerprints)).await;
                }
                fingerprints
            }
            Err(error) => {
                self.observe(context, &tool.server, None).await;
                return Err(run.masked(error));
            }
        };
        let (status, refusal) = match fingerprints.get(&tool.name) {
            Some(live) if *live == tool.fingerprint => {
                let meta = CallMeta { idempotency_key: Some(key), trace: context.trace.as_ref() };
                let progress = MaskedProgress { credential: &run.credential, progress };
                let called = run.connection.call(&tool.name, arguments, meta, &progress).await;
                return called.map(|output| run.result(output)).map_err(|error| run.call_error(tool, error));
            }
            Some(_) => (
                ToolStatus::Changed,
                "its definition has changed, and the agent's owner has not accepted the new one",
            ),
            None => (ToolStatus::Gone, "its server does not have it any more"),
        };
        tracing::warn!(
            tool = tool.spec.name,
            ?status,
            "a tool is not called: its definition is not the pinned one"
        );
        self.changes.report(context, tool, status);
        Ok(ToolOutput::error(format!("the tool was not called: {refusal}")))
    }

    /// Lists the tools of a server over a new connection.
    pub(super) async fn list(
        &self,
        server: &Arc<ToolServer>,
        context: &ExecutionContext,
    ) -> Result<Vec<ToolDefinition>, ToolError> {
        let run = self.open(server, context)?;
        run.connection.list().await.map_err(|error| run.masked(error))
    }

    /// Returns the connection of the context's run. A role that was saved meanwhile has another definition.
    fn connection(
        &self,
        server: &Arc<ToolServer>,
        context: &ExecutionContext,
    ) -> Result<Arc<RunConnection>, ToolError> {
        if context.run_id.is_empty() {
            return self.open(server, context);
        }
        let key = ConnectionKey {
            agent_id: context.agent_id.clone(),
            user_id: context.user_id.clone(),
            run_id: context.run_id.clone(),
            caller: context.caller,
            server_id: server.id.clone(),
        };
        if let Some(run) =
            self.connections.get(&context.company_id, &key).filter(|run| Arc::ptr_eq(&run.server, server))
        {
            return Ok(run);
        }
        let run = self.open(server, context)?;
        self.connections.insert(&context.company_id, key, run.clone(), 1);
        Ok(run)
    }

    fn open(
        &self,
        server: &Arc<ToolServer>,
        context: &ExecutionContext,
    ) -> Result<Arc<RunConnection>, ToolError> {
        let credential = Arc::new(RunCredential {
            server: server.clone(),
            context: context.clone(),
            clock: self.clock.clone(),
            identities: Mutex::default(),
        });
        credential.headers()?;
        let headers = {
            let credential = credential.clone();
            Arc::new(move || credential.headers().unwrap_or_default())
        };
        let address = ToolServerAddress {
            company_id: context.company_id.clone(),
            url: server.url.clone(),
            timeout: server.timeout,
            headers,
        };
        let connection = self.client.connect(address)?;
        Ok(Arc::new(RunConnection {
            server: server.clone(),
            credential,
            connection,
            listed: AsyncMutex::default(),
        }))
    }

    /// Stores the states of a server's pinned tools for the agent's owner.
    pub(super) async fn observe(
        &self,
        context: &ExecutionContext,
        server: &ToolServer,
        live: Option<&BTreeMap<String, String>>,
    ) {
        let agent = (&context.company_id, &context.agent_id);
        let stored = async {
            let loaded_pins = self.pins.load(agent.0, agent.1).await?;
            let pins: AgentPins = loaded_pins.map(|record| record.value).unwrap_or_default();
            match pins.of(server) {
                Some(pins) => self.pins.observe(agent, &server.id, pins, pins.compare(live)).await,
                None => Ok(()),
            }
        };
        if let Err(error) = stored.await {
            tracing::warn!(%error, "the states of a tool server's tools were not stored");
        }
    }
}

impl RunConnection {
    /// Returns the fingerprints of the server's tools, and true if they were read now. Concurrent calls wait for one list.
    async fn fingerprints(&self) -> Result<(SharedFingerprints, bool), ToolError> {
        let mut listed = self.listed.lock().await;
        let now = self.credential.clock.now();
        let list_changes = self.connection.list_changes();
        let is_current = |list: &&ReadList| {
            let is_fresh = now.duration_since(list.at).is_ok_and(|age| age < MAX_COMPARISON_AGE);
            is_fresh && list.list_changes == list_changes
        };
        if let Some(list) = listed.as_ref().filter(is_current) {
            return Ok((list.fingerprints.clone(), false));
        }
        let all = Arc::new(fingerprints(&self.connection.list().await?));
        *listed = Some(ReadList { at: now, list_changes, fingerprints: all.clone() });
        Ok((all, true))
    }

    /// Returns a result without secrets, within its limit, and without the requests that only this platform's own tools may make.
    fn result(&self, output: ToolOutput) -> ToolOutput {
        let ToolOutput { text, structured, is_error, follow_up: _, suspension: _ } = output;
        let redactor = self.credential.redactor();
        let structured_text = structured.as_ref().map(Value::to_string);
        let is_structured_alone = structured_text.is_some_and(|structured_text| structured_text == text);
        let structured = structured.map(|value| redactor.value(value));
        let text = match &structured {
            Some(value) if is_structured_alone => value.to_string(),
            _ => redactor.text(text),
        };
        let max_bytes = self.server.max_result_bytes;
        let fits = |value: &Value| text.len() <= max_bytes && value.to_string().len() <= max_bytes;
        let structured = structured.filter(|value| value.is_object() && fits(value));
        ToolOutput { text: cut(text, max_bytes), structured, is_error, ..ToolOutput::default() }
    }

    /// Returns the error of a call without secrets. Whether a call has taken effect does not matter if it may be repeated.
    fn call_error(&self, tool: &ServerTool, error: ToolError) -> ToolError {
        let hints = tool.spec.annotations.unwrap_or_default();
        match self.masked(error) {
            ToolError::OutcomeUnknown(message) if hints.read_only_hint || hints.idempotent_hint => {
                ToolError::Unavailable(message)
            }
            ToolError::OutcomeUnknown(message) => {
                ToolError::OutcomeUnknown(format!("{message}; {OUTCOME_UNKNOWN}"))
            }
            error => error,
        }
    }

    fn masked(&self, error: ToolError) -> ToolError {
        let redactor = self.credential.redactor();
        let text = |text: String| cut(redactor.text(text), MAX_ERROR_BYTES);
        match error {
            ToolError::Unavailable(message) => ToolError::Unavailable(text(message)),
            ToolError::OutcomeUnknown(message) => ToolError::OutcomeUnknown(text(message)),
            ToolError::InvalidArguments(message) => ToolError::InvalidArguments(text(message)),
            error => error,
        }
    }
}

/// Reports a server's progress without the secrets that it has received.
struct MaskedProgress<'a> {
    credential: &'a RunCredential,
    progress: &'a dyn Progress,
}

impl Progress for MaskedProgress<'_> {
    fn report(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        let message = message.map(|text| self.credential.redactor().text(text.to_owned()));
        self.progress.report(progress, total, message.as_deref());
    }
}

/// Returns the fingerprints of tools by their names. A name that occurs twice has none, so that its tool is not called.
pub(super) fn fingerprints(tools: &[ToolDefinition]) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for tool in tools {
        let fingerprint = tool.fingerprint();
        all.entry(tool.name.clone())
            .and_modify(|first| *first = "ambiguous".to_owned())
            .or_insert(fingerprint);
    }
    all
}
