//! An MCP server: its parts and their composition.

use std::sync::Arc;
use std::time::Duration;

use agent_core::tool::ToolRegistry;
use agent_platform::records::Records;
use agent_platform::roles::RoleStore;
use agent_platform::seal::Sealer;
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use tokio_util::sync::CancellationToken;

use super::agent::{AgentFeatures, ObservedTools};
use super::agent_limits::{AgentLimiter, AgentLimits};
use super::audit::AuditLog;
use super::changes::{Change, ChangeNotifier};
use super::features::Features;
use super::handler::HandlerState;
use super::host_guard::HostGuard;
use super::identity::McpAuthenticator;
use super::sessions::{SessionSealer, Sessions};

/// Limits of a tool server.
#[derive(Debug, Clone)]
pub struct McpServerLimits {
    /// Maximum nesting depth of a message.
    pub json_depth: usize,
    /// Timeout of one request; a tool call that takes longer is a tool error.
    pub timeout: Duration,
    /// Rate and concurrency limits per agent.
    pub per_agent: AgentLimits,
    /// Maximum number of the process's connections. The requests of each company have a share of them.
    pub connections: u32,
    /// Interval at which the token of an open stream or session is re-validated. Every request validates its own token.
    pub token_recheck_interval: Duration,
}

/// An MCP server.
pub struct McpServer {
    pub(super) host_guard: HostGuard,
    pub(super) authority: McpAuthenticator,
    pub(super) limiter: AgentLimiter,
    pub(super) sessions: Arc<Sessions>,
    /// `None` if sessions stay in this process.
    pub(super) session_sealer: Option<SessionSealer>,
    pub(super) shared: Arc<HandlerState>,
    pub(super) json_depth: usize,
    pub(super) token_recheck_interval: Duration,
    /// `rmcp` settings for requests with and without a session.
    pub(super) transports: Transports,
}

impl std::fmt::Debug for McpServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpServer").finish_non_exhaustive()
    }
}

/// Settings of `rmcp`, and the end of all its streams.
pub(super) struct Transports {
    pub(super) with_sessions: StreamableHttpServerConfig,
    pub(super) without: StreamableHttpServerConfig,
    pub(super) stop: CancellationToken,
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
        let McpServerLimits { json_depth, timeout, per_agent, connections, token_recheck_interval } = limits;
        let sessions = Sessions::new(token_recheck_interval);
        let weak_sessions = Arc::downgrade(&sessions);
        authority.subscribe_ended(Arc::new(move |id| {
            if let Some(sessions) = weak_sessions.upgrade() {
                sessions.close_owner(id);
            }
        }));
        Self {
            host_guard,
            authority,
            limiter: AgentLimiter::new(per_agent, connections),
            sessions,
            session_sealer: None,
            shared: Arc::new(HandlerState { features, changes, audit, timeout }),
            json_depth,
            token_recheck_interval,
            transports: Transports::new(),
        }
    }

    /// Seals the state of sessions into their ids, so that every process with the key of `sealer` can answer their
    /// requests. Without a key, or without this call, a session exists only in the process that has opened it.
    #[must_use]
    pub fn with_sealed_sessions(self, sealer: Arc<Sealer>) -> Self {
        Self { session_sealer: SessionSealer::new(sealer), ..self }
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
