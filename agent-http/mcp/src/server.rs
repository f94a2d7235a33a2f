//! The MCP server: an agent's tools, documents and prompts over Streamable HTTP (Model Context Protocol, versions
//! 2025-06-18, 2025-11-25 and 2026-07-28 at one URL).
//!
//! `rmcp` implements the protocol: messages, sessions, lifecycles. The parts that it leaves to a server are here, each
//! in a file of its own, in the order of processing:
//!
//! 1. `door`: validation of `Host` and `Origin`;
//! 2. `identity`: authentication, at every request;
//! 3. `sessions`: session ownership, limits and ends, and the requests in flight per session;
//! 4. `message`: pre-validation of the JSON-RPC envelope;
//! 5. `gate`: rate and concurrency limits;
//! 6. `handler`: timeouts and cancellation; `audit`, the log of tool calls; and `report`, which reports a call to the
//!    event stream of its run; `direct`, a short way to it for the most frequent request;
//! 7. `features`: the trait for what is served, implemented for agents in `agent`, with `changes` for change
//!    notifications;
//! 8. `framing`: content negotiation and response framing.
//!
//! A request without a session is answered on its own, whatever its version, so that a script needs no handshake.
//! Errors before a message is read are [`AdmissionError`]s, which the caller answers; after it they are JSON-RPC
//! errors.

mod admission;
mod agent;
mod audit;
mod changes;
mod direct;
mod door;
mod features;
mod framing;
mod gate;
mod handler;
mod identity;
mod message;
mod progress;
mod query;
mod refusal;
mod report;
mod sessions;
mod tokens;

use std::sync::Arc;
use std::time::Duration;

use agent_core::tool::ToolRegistry;
use agent_platform::records::Records;
use agent_platform::roles::RoleStore;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, COOKIE};
use http::{HeaderValue, Method, Request, Response, request};
use http_body_util::Full;
use rmcp::model::RequestId;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

pub use admission::AdmissionError;
pub use agent::AgentFeatures;
pub use audit::{AuditError, AuditLog, AuditOutcome, CallPage, CallRecord};
pub use changes::Change;
pub use door::HostGuard;
pub use features::{CallContext, Features};
pub use gate::AgentLimits;
pub use identity::{Identity, LegacyQuery, McpAuthenticator, TokenResolver};

use agent::ObservedTools;
use changes::ChangeNotifier;
use direct::DirectCall;
use framing::Framing;
use gate::AgentLimiter;
use handler::{HandlerState, McpHandler};
use identity::{AuthenticatedIdentity, RevocableToken};
use message::MessageKind;
use query::QueryParams;
use refusal::RpcErrorResponse;
use sessions::{SessionLimitError, Sessions};

use crate::body::ResponseBody;
use crate::headers::SESSION_ID;

/// Method of a request whose response stays open.
const SUBSCRIPTIONS_LISTEN: &str = "subscriptions/listen";

/// Limits of a tool server.
#[derive(Debug, Clone)]
pub struct McpServerLimits {
    /// Maximum nesting depth of a message.
    pub json_depth: usize,
    /// Timeout of one request; a tool call that takes longer is a tool error.
    pub timeout: Duration,
    /// Rate and concurrency limits per agent.
    pub gate: AgentLimits,
    /// Interval at which the token of an open stream or session is re-validated. Every request validates its own token.
    pub token_recheck_interval: Duration,
}

/// An MCP server.
pub struct McpServer {
    door: HostGuard,
    authority: McpAuthenticator,
    gate: AgentLimiter,
    sessions: Arc<Sessions>,
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
        door: HostGuard,
        authority: McpAuthenticator,
        roles: Arc<dyn RoleStore>,
        records: Arc<dyn Records>,
        tools: Arc<dyn ToolRegistry>,
        limits: McpServerLimits,
    ) -> Self {
        let changes = Arc::<ChangeNotifier>::default();
        let features = AgentFeatures::new(roles, records.clone(), tools, changes.clone());
        Self::with_changes(door, authority, Arc::new(features), changes, AuditLog::new(records), limits)
    }

    /// Creates a server of other features.
    pub fn new(
        door: HostGuard,
        authority: McpAuthenticator,
        features: Arc<dyn Features>,
        audit: AuditLog,
        limits: McpServerLimits,
    ) -> Self {
        Self::with_changes(door, authority, features, Arc::default(), audit, limits)
    }

    fn with_changes(
        door: HostGuard,
        authority: McpAuthenticator,
        features: Arc<dyn Features>,
        changes: Arc<ChangeNotifier>,
        audit: AuditLog,
        limits: McpServerLimits,
    ) -> Self {
        let McpServerLimits { json_depth, timeout, gate, token_recheck_interval: recheck } = limits;
        let sessions = Sessions::new(recheck);
        let closing = Arc::downgrade(&sessions);
        authority.subscribe_ended(Arc::new(move |id| {
            if let Some(sessions) = closing.upgrade() {
                sessions.close_owner(id);
            }
        }));
        Self {
            door,
            authority,
            gate: AgentLimiter::new(gate),
            sessions,
            shared: Arc::new(HandlerState { features, changes, audit, timeout }),
            json_depth,
            token_recheck_interval: recheck,
            transports: Transports::new(),
        }
    }

    /// Checks the head of a request to the server's URL, whose method must be GET, POST or DELETE: `Host`, `Origin`,
    /// the credential and `Accept`.
    ///
    /// # Errors
    ///
    /// The request must not be answered by the server, and its body should not be read.
    pub async fn authorize(&self, head: &request::Parts) -> Result<AuthorizedRequest<'_>, AdmissionError> {
        self.door.check(&head.headers)?;
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

/// A request whose head was accepted.
pub struct AuthorizedRequest<'s> {
    server: &'s McpServer,
    who: Arc<Identity>,
    standing: Option<Arc<RevocableToken>>,
    framing: Framing,
    session: Option<String>,
}

/// Permits that a request holds while it is processed. They travel in the request's extensions to its handler and are
/// released when the handler is done, even if the client has disconnected.
struct RequestPermits {
    _place: Option<gate::Permit>,
    _in_flight: Option<sessions::InFlightRequest>,
}

impl AuthorizedRequest<'_> {
    /// Answers the request, whose head is the authorized one; `body` is empty for GET and DELETE. Errors are JSON-RPC
    /// errors in the response.
    pub async fn respond(self, head: request::Parts, body: Bytes) -> Response<ResponseBody> {
        if head.method == Method::POST { self.post(head, body).await } else { self.get_or_delete(head).await }
    }

    async fn post(self, mut head: request::Parts, body: Bytes) -> Response<ResponseBody> {
        let content_type = self.framing.single_message_content_type();
        let outline = match MessageKind::parse(&body, self.server.json_depth) {
            Ok(outline) => outline,
            Err(refusal) => return refusal.respond(content_type),
        };
        let (id, opens_session) = match &outline {
            MessageKind::Request { id, method } => (Some(id.clone()), method == "initialize"),
            MessageKind::Notification | MessageKind::Response => (None, false),
        };
        let permits = match self.admit(&outline, id.as_ref(), opens_session).await {
            Ok(permits) => permits,
            Err(refusal) => return refusal.respond(content_type),
        };
        if let (None, Some(id)) = (&self.session, &id)
            && let Some(call) = DirectCall::parse(&head.headers, &body, &*self.server.shared.features)
        {
            return self.call_directly(call, id.clone(), permits).await;
        }
        head.extensions.insert(Arc::new(permits));
        let in_session = opens_session || self.session.is_some();
        let lasts = matches!(&outline, MessageKind::Request { method, .. } if method == SUBSCRIPTIONS_LISTEN);
        self.forward(head, body, id, in_session, lasts).await
    }

    /// Handles GET, the session's standalone stream, and DELETE, the end of the session.
    async fn get_or_delete(self, head: request::Parts) -> Response<ResponseBody> {
        if self.is_foreign_session() {
            let content_type = self.framing.single_message_content_type();
            return RpcErrorResponse::no_session(None).respond(content_type);
        }
        self.forward(head, Bytes::new(), None, true, true).await
    }

    fn is_foreign_session(&self) -> bool {
        self.session
            .as_ref()
            .is_some_and(|session| !self.server.sessions.touch_if_owned(session, &self.who.id))
    }

    async fn admit(
        &self,
        outline: &MessageKind,
        id: Option<&RequestId>,
        opens_session: bool,
    ) -> Result<RequestPermits, RpcErrorResponse> {
        let Self { server, who, session, .. } = self;
        if self.is_foreign_session() {
            return Err(RpcErrorResponse::no_session(id.cloned()));
        }
        let busy = |busy: gate::LimitExceededError| {
            RpcErrorResponse::limit_exceeded(id.cloned(), busy.why, busy.retry_after)
        };
        server.gate.check_rate(who).map_err(busy)?;
        if opens_session {
            let full = |limit: SessionLimitError| {
                RpcErrorResponse::limit_exceeded(id.cloned(), limit.message(), None)
            };
            server.sessions.check_room(who).map_err(full)?;
        }
        let in_flight = match (session, id) {
            (Some(session), Some(id)) => {
                let begun = server.sessions.begin_request(session, id);
                Some(begun.ok_or_else(|| RpcErrorResponse::duplicate(id.clone()))?)
            }
            _ => None,
        };
        let place = match outline {
            MessageKind::Request { method, .. } if method == SUBSCRIPTIONS_LISTEN => {
                Some(server.gate.acquire_subscription(who).map_err(busy)?)
            }
            // A ping does no work, so it is answered even at full load.
            MessageKind::Request { method, .. } if method == "ping" => None,
            MessageKind::Request { .. } => Some(server.gate.acquire(who).await.map_err(busy)?),
            MessageKind::Notification | MessageKind::Response => None,
        };
        Ok(RequestPermits { _place: place, _in_flight: in_flight })
    }

    /// Calls a tool without `rmcp`'s service.
    async fn call_directly(
        self,
        call: DirectCall,
        id: RequestId,
        permits: RequestPermits,
    ) -> Response<ResponseBody> {
        let Self { server, who, framing, .. } = self;
        let (shared, stop) = (server.shared.clone(), server.transports.stop.clone());
        let response = call.run(id.clone(), shared, who, stop, permits).await;
        framing.apply(&Method::POST, Some(id), response).await
    }

    /// Passes the request to `rmcp` without its credential. If `lasts` is set, the response ends when the credential is
    /// revoked.
    async fn forward(
        self,
        mut head: request::Parts,
        body: Bytes,
        id: Option<RequestId>,
        in_session: bool,
        lasts: bool,
    ) -> Response<ResponseBody> {
        let Self { server, who, standing, framing, .. } = self;
        let method = head.method.clone();
        head.uri = head.uri.path().parse().unwrap_or_default();
        head.headers.remove(AUTHORIZATION);
        head.headers.remove(COOKIE);
        head.headers.insert(ACCEPT, framing::accept_all());
        head.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let transports = &server.transports;
        let config = if in_session { &transports.with_sessions } else { &transports.without };
        let sessions = Arc::new(server.sessions.for_owner(&who, standing.clone()));
        let shared = server.shared.clone();
        let service = StreamableHttpService::new(
            move || Ok(McpHandler::new(shared.clone(), who.clone())),
            sessions,
            config.clone(),
        );
        // Boxed, because this is by far the largest future here, and every enclosing future would contain it.
        let response = Box::pin(service.handle(Request::from_parts(head, Full::new(body)))).await;
        let response = framing.apply(&method, id, response).await;
        match standing {
            Some(standing) if lasts => {
                let often = server.token_recheck_interval;
                framing::end_stream_when(response, async move { standing.revoked(often).await })
            }
            _ => response,
        }
    }
}
