//! The MCP server: an agent's tools, documents and prompts over Streamable HTTP (Model Context Protocol, versions
//! 2025-06-18, 2025-11-25 and 2026-07-28 at one URL).
//!
//! `rmcp` implements the protocol: messages, sessions, lifecycles. The parts that it leaves to a server are here, each
//! in a file of its own, in the order of processing:
//!
//! 1. `host_guard`: validation of `Host` and `Origin`;
//! 2. `identity`: authentication, at every request;
//! 3. `sessions`: session ownership, limits and ends, and the requests in flight per session;
//! 4. `message`: pre-validation of the JSON-RPC envelope;
//! 5. `agent_limits`: rate and concurrency limits;
//! 6. `handler`: timeouts and cancellation; `audit`, the log of tool calls; and `report`, which reports a call to the
//!    event stream of its run; `direct`, a short way to it for the most frequent request;
//! 7. `features`: the trait for what is served, implemented for agents in `agent`, with `changes` for change
//!    notifications;
//! 8. `framing`: content negotiation and response framing.
//!
//! `request` leads a request through these steps.
//!
//! A request without a session is answered on its own, whatever its version, so that a script needs no handshake.
//! Errors before a message is read are [`AdmissionError`]s, which the caller answers; after it they are JSON-RPC
//! errors.

mod admission;
mod agent;
mod agent_limits;
mod audit;
mod changes;
mod direct;
mod features;
mod framing;
mod handler;
mod host_guard;
mod identity;
mod message;
mod permits;
mod progress;
mod query;
mod refusal;
mod report;
mod request;
mod sessions;
mod tokens;

use std::sync::Arc;
use std::time::Duration;

use agent_core::tool::ToolRegistry;
use agent_platform::records::Records;
use agent_platform::roles::RoleStore;
use agent_platform::seal::Sealer;
use http::request::Parts;
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use tokio_util::sync::CancellationToken;

pub use admission::AdmissionError;
pub use agent::AgentFeatures;
pub use agent_limits::AgentLimits;
pub use audit::{AuditDecision, AuditError, AuditLog, AuditOutcome, CallPage, CallRecord, DecidedCall};
pub use changes::Change;
pub use features::{CallContext, Features};
pub use host_guard::HostGuard;
pub use identity::{Identity, LegacyQuery, McpAuthenticator, TokenResolver};
pub use request::AuthorizedRequest;

use agent::ObservedTools;
use agent_limits::AgentLimiter;
use changes::ChangeNotifier;
use framing::Framing;
use handler::HandlerState;
use identity::AuthenticatedIdentity;
use query::QueryParams;
use sessions::{SessionSealer, Sessions};

use crate::headers::SESSION_ID;

/// Limits of a tool server.
#[derive(Debug, Clone)]
pub struct McpServerLimits {
    /// Maximum nesting depth of a message.
    pub json_depth: usize,
    /// Timeout of one request; a tool call that takes longer is a tool error.
    pub timeout: Duration,
    /// Rate and concurrency limits per agent.
    pub per_agent: AgentLimits,
    /// Interval at which the token of an open stream or session is re-validated. Every request validates its own token.
    pub token_recheck_interval: Duration,
}

/// An MCP server.
pub struct McpServer {
    host_guard: HostGuard,
    authority: McpAuthenticator,
    limiter: AgentLimiter,
    sessions: Arc<Sessions>,
    /// `None` if sessions stay in this process.
    session_sealer: Option<SessionSealer>,
    shared: Arc<HandlerState>,
    json_depth: usize,
    token_recheck_interval: Duration,
    /// `rmcp` settings for requests with and without a session.
    transports: Transports,
}

struct Transports {
    with_sessions: StreamableHttpServerConfig,
    without: StreamableHttpServerConfig,
    stop: CancellationToken,
}

impl Transports {
    fn new() -> Self {
        let stop = CancellationToken::new();
        // `Host` and `Origin` are checked by [`HostGuard`], and the body is read within its limits before it gets here.
        let mut without = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_cancellation_token(stop.clone());
        without.sse_retry = None;
        without.max_request_body_bytes = usize::MAX;
        let with_sessions = without.clone().with_legacy_session_mode(true);
        Self { with_sessions, without, stop }
    }
}

impl McpServer {
    /// Creates a server of all agents' tools, documents and prompts.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime, because the audit log spawns a writer task.
    pub fn for_agents(
        host_guard: HostGuard,
        authority: McpAuthenticator,
        roles: Arc<dyn RoleStore>,
        records: Arc<dyn Records>,
        tools: Arc<dyn ToolRegistry>,
        limits: McpServerLimits,
    ) -> Self {
        let changes = Arc::<ChangeNotifier>::default();
        let features = AgentFeatures::new(roles, records.clone(), tools, changes.clone());
        Self::with_changes(host_guard, authority, Arc::new(features), changes, AuditLog::new(records), limits)
    }

    /// Creates a server of other features.
    pub fn new(
        host_guard: HostGuard,
        authority: McpAuthenticator,
        features: Arc<dyn Features>,
        audit: AuditLog,
        limits: McpServerLimits,
    ) -> Self {
        Self::with_changes(host_guard, authority, features, Arc::default(), audit, limits)
    }

    fn with_changes(
        host_guard: HostGuard,
        authority: McpAuthenticator,
        features: Arc<dyn Features>,
        changes: Arc<ChangeNotifier>,
        audit: AuditLog,
        limits: McpServerLimits,
    ) -> Self {
        let McpServerLimits { json_depth, timeout, per_agent, token_recheck_interval: recheck } = limits;
        let sessions = Sessions::new(recheck);
        let closing = Arc::downgrade(&sessions);
        authority.subscribe_ended(Arc::new(move |id| {
            if let Some(sessions) = closing.upgrade() {
                sessions.close_owner(id);
            }
        }));
        Self {
            host_guard,
            authority,
            limiter: AgentLimiter::new(per_agent),
            sessions,
            session_sealer: None,
            shared: Arc::new(HandlerState { features, changes, audit, timeout }),
            json_depth,
            token_recheck_interval: recheck,
            transports: Transports::new(),
        }
    }

    /// Seals the state of sessions into their ids, so that every process with the key of `sealer` can answer their
    /// requests. Without a key, or without this call, a session exists only in the process that has opened it.
    #[must_use]
    pub fn with_sealed_sessions(self, sealer: Arc<Sealer>) -> Self {
        Self { session_sealer: SessionSealer::new(sealer), ..self }
    }

    /// Checks the head of a request to the server's URL, whose method must be GET, POST or DELETE: `Host`, `Origin`,
    /// the credential and `Accept`.
    ///
    /// # Errors
    ///
    /// The request must not be answered by the server, and its body should not be read.
    pub async fn authorize(&self, head: &Parts) -> Result<AuthorizedRequest<'_>, AdmissionError> {
        self.host_guard.check(&head.headers)?;
        let identified = self.authority.identify(&head.headers, &QueryParams::from_uri(&head.uri)).await?;
        let AuthenticatedIdentity { identity, standing } = identified;
        let framing = Framing::negotiate(&head.method, &head.headers)?;
        let session = head.headers.get(SESSION_ID).map(|id| id.to_str().unwrap_or_default().to_owned());
        Ok(AuthorizedRequest { server: self, who: Arc::new(identity), standing, framing, session })
    }

    /// Notifies connected clients of a change that was made elsewhere in this process.
    pub fn announce(&self, change: &Change) {
        self.shared.changes.announce(change);
    }

    /// Returns a function that notifies connected clients of a change, for tasks that outlive a reference to the server.
    pub fn announcer(&self) -> impl Fn(&Change) + Send + Sync + 'static {
        let shared = self.shared.clone();
        move |change| shared.changes.announce(change)
    }

    /// Wraps a registry for callers outside of MCP, so that their calls are in the audit log, and connected clients are
    /// notified of changes that the tools make.
    pub fn wrap_tools(&self, tools: Arc<dyn ToolRegistry>) -> Arc<dyn ToolRegistry> {
        let HandlerState { changes, audit, .. } = &*self.shared;
        Arc::new(ObservedTools { tools, changes: changes.clone(), audit: audit.clone() })
    }

    /// Returns the audit log of tool calls.
    pub fn audit(&self) -> &AuditLog {
        &self.shared.audit
    }

    /// Ends all sessions and streams, which would otherwise delay a shutdown until its timeout.
    pub fn stop(&self) {
        self.transports.stop.cancel();
    }
}
