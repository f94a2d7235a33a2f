//! The tool server: an agent's tools, documents and prompts over Streamable HTTP (Model Context Protocol, versions
//! 2025-06-18, 2025-11-25 and 2026-07-28 on one address).
//!
//! `rmcp` is the protocol: its messages, its sessions, its lifecycles. What it leaves to a server is here, each in a
//! file of its own, and stands before it:
//!
//! 1. `door`: by which names and from which pages a request may come;
//! 2. `identity`: for whom it works, anew at every request;
//! 3. `sessions`: whose a session is, and which requests are under way in it;
//! 4. `message`: what is no JSON-RPC, and what says so;
//! 5. `gate`: how much of it there may be at once and in a minute;
//! 6. `handler`: time limits and cancellation, `audit`, who has called what, and `report`, which tells the run that a
//!    call is made for;
//! 7. `features`: what is served, which for agents is in `agent`, with `changes` for those who are to be told;
//! 8. `framing`: the shape of the answer.
//!
//! A request without a session is answered on its own, whatever its version, so that a script needs no handshake.
//! Refusals before a message is read are problems like all others ([`crate::error`]); after it they are JSON-RPC
//! errors.

mod agent;
mod audit;
mod changes;
mod door;
mod features;
mod framing;
mod gate;
mod handler;
mod identity;
mod message;
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
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, COOKIE, HeaderName};
use http::{HeaderValue, Method, Request, request};
use http_body_util::Full;
use rmcp::model::RequestId;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

pub use agent::AgentFeatures;
pub use audit::{AuditLog, Call, Calls, Outcome};
pub use changes::Change;
pub use door::Door;
pub use features::Features;
pub use gate::GateLimits;
pub use identity::{Authority, Identities, Identity, LegacyQuery, TOKEN_PARAMETER};

use agent::Announcing;
use changes::Changes;
use framing::Framing;
use gate::Gate;
use handler::{Handler, Shared};
use identity::{Identified, Standing};
use message::Outline;
use refusal::Refusal;
use sessions::Sessions;

use crate::request::{BodyLimits, Handled, Query, read_json_bytes};
use crate::serve::Body;

/// The session's header.
pub const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");

/// The one request whose answer goes on.
const LISTEN: &str = "subscriptions/listen";

/// What a tool server allows its clients.
#[derive(Debug, Clone)]
pub struct McpLimits {
    /// Bounds of a message.
    pub body: BodyLimits,
    /// How deep a message may nest.
    pub json_depth: usize,
    /// Time for one request; a tool that takes longer has failed.
    pub timeout: Duration,
    /// How much may be asked of an agent.
    pub gate: GateLimits,
    /// How often the token of an open stream is looked at. Requests look at theirs each.
    pub recheck: Duration,
}

/// A tool server.
pub struct McpServer {
    door: Door,
    authority: Authority,
    gate: Gate,
    sessions: Arc<Sessions>,
    shared: Arc<Shared>,
    body: BodyLimits,
    json_depth: usize,
    recheck: Duration,
    /// How `rmcp` treats requests of sessions, and those without.
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
        // The door has seen to names and pages, and the body is read when it comes to this.
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
    /// A server of all agents' tools, documents and prompts.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime, where the audit could not be written.
    pub fn of_agents(
        door: Door,
        authority: Authority,
        roles: Arc<dyn RoleStore>,
        records: Arc<dyn Records>,
        tools: Arc<dyn ToolRegistry>,
        limits: McpLimits,
    ) -> Self {
        let changes = Arc::<Changes>::default();
        let features = AgentFeatures::new(roles, records.clone(), tools, changes.clone());
        Self::with_changes(door, authority, Arc::new(features), changes, AuditLog::new(records), limits)
    }

    /// A server of other features.
    pub fn new(
        door: Door,
        authority: Authority,
        features: Arc<dyn Features>,
        audit: AuditLog,
        limits: McpLimits,
    ) -> Self {
        Self::with_changes(door, authority, features, Arc::default(), audit, limits)
    }

    fn with_changes(
        door: Door,
        authority: Authority,
        features: Arc<dyn Features>,
        changes: Arc<Changes>,
        audit: AuditLog,
        limits: McpLimits,
    ) -> Self {
        let McpLimits { body, json_depth, timeout, gate, recheck } = limits;
        Self {
            door,
            authority,
            gate: Gate::new(gate),
            sessions: Sessions::new(),
            shared: Arc::new(Shared { features, changes, audit, timeout }),
            body,
            json_depth,
            recheck,
            transports: Transports::new(),
        }
    }

    /// Answers a request to the server's address, of any method that it takes: GET, POST or DELETE.
    ///
    /// # Errors
    ///
    /// 403 for a foreign `Host` or `Origin`; 400, 401 or 403 for its credential; 406 for what it accepts; and what
    /// [`read_json_bytes`] refuses.
    pub async fn handle(&self, request: Request<Body>) -> Handled {
        let (head, body) = request.into_parts();
        self.door.check(&head.headers)?;
        let identified = self.authority.identify(&head.headers, &Query::of(&head.uri)).await?;
        let Identified { identity, standing } = identified;
        let framing = Framing::negotiate(&head.method, &head.headers)?;
        let session = head.headers.get(SESSION_ID).map(|id| id.to_str().unwrap_or_default().to_owned());
        let exchange = Exchange { server: self, who: Arc::new(identity), standing, framing, session };
        if head.method == Method::POST {
            let body = read_json_bytes(&head.headers, body, &self.body).await?;
            exchange.post(head, body).await
        } else {
            exchange.other(head).await
        }
    }

    /// Tells clients of a change that was made elsewhere in this process.
    pub fn announce(&self, change: &Change) {
        self.shared.changes.announce(change);
    }

    /// The same tools, for callers that do not come this way: clients are told of what they change.
    pub fn announcing(&self, tools: Arc<dyn ToolRegistry>) -> Arc<dyn ToolRegistry> {
        Arc::new(Announcing { tools, changes: self.shared.changes.clone() })
    }

    /// The audit of tool calls.
    pub fn audit(&self) -> &AuditLog {
        &self.shared.audit
    }

    /// Ends all sessions and streams, which would otherwise hold up a shutdown until they are cut.
    pub fn stop(&self) {
        self.transports.stop.cancel();
    }
}

/// One request and its answer.
struct Exchange<'s> {
    server: &'s McpServer,
    who: Arc<Identity>,
    standing: Option<Standing>,
    framing: Framing,
    session: Option<String>,
}

/// What a request holds while it is worked on. It travels in the request's extensions to its handler, and is given
/// back when that is done, also where nobody waits for the answer any more.
struct Admission {
    _place: Option<gate::Place>,
    _in_flight: Option<sessions::InFlight>,
}

impl Exchange<'_> {
    async fn post(self, mut head: request::Parts, body: Bytes) -> Handled {
        let outline = match Outline::read(&body, self.server.json_depth) {
            Ok(outline) => outline,
            Err(refusal) => return Ok(refusal.respond(self.framing)),
        };
        let (id, opens_session) = match &outline {
            Outline::Request { id, method } => (Some(id.clone()), method == "initialize"),
            Outline::Notification | Outline::Answer => (None, false),
        };
        match self.admit(&outline, id.as_ref(), opens_session).await {
            Ok(admission) => head.extensions.insert(Arc::new(admission)),
            Err(refusal) => return Ok(refusal.respond(self.framing)),
        };
        let in_session = opens_session || self.session.is_some();
        let lasts = matches!(&outline, Outline::Request { method, .. } if method == LISTEN);
        self.forward(head, body, id, in_session, lasts).await
    }

    /// GET is a session's own stream, and DELETE its end.
    async fn other(self, head: request::Parts) -> Handled {
        if self.is_foreign_session() {
            return Ok(Refusal::no_session(None).respond(self.framing));
        }
        self.forward(head, Bytes::new(), None, true, true).await
    }

    fn is_foreign_session(&self) -> bool {
        self.session.as_ref().is_some_and(|session| !self.server.sessions.touch(session, &self.who.id))
    }

    async fn admit(
        &self,
        outline: &Outline,
        id: Option<&RequestId>,
        opens_session: bool,
    ) -> Result<Admission, Refusal> {
        let Self { server, who, session, .. } = self;
        if self.is_foreign_session() {
            return Err(Refusal::no_session(id.cloned()));
        }
        let busy = |busy: gate::Busy| Refusal::busy(id.cloned(), busy.why, busy.retry_after);
        server.gate.count(who).map_err(busy)?;
        if opens_session && !server.sessions.has_room() {
            return Err(Refusal::busy(id.cloned(), "there are too many sessions", None));
        }
        let in_flight = match (session, id) {
            (Some(session), Some(id)) => {
                let begun = server.sessions.begin(session, id);
                Some(begun.ok_or_else(|| Refusal::duplicate(id.clone()))?)
            }
            _ => None,
        };
        let place = match outline {
            Outline::Request { method, .. } if method == LISTEN => {
                Some(server.gate.subscribe(who).map_err(busy)?)
            }
            // What asks for no work shall be answered also when there is much.
            Outline::Request { method, .. } if method == "ping" => None,
            Outline::Request { .. } => Some(server.gate.enter(who).await.map_err(busy)?),
            Outline::Notification | Outline::Answer => None,
        };
        Ok(Admission { _place: place, _in_flight: in_flight })
    }

    /// Hands the request to `rmcp` without its credential. An answer that `lasts` ends with the credential.
    async fn forward(
        self,
        mut head: request::Parts,
        body: Bytes,
        id: Option<RequestId>,
        in_session: bool,
        lasts: bool,
    ) -> Handled {
        let Self { server, who, standing, framing, .. } = self;
        let method = head.method.clone();
        head.uri = head.uri.path().parse().unwrap_or_default();
        head.headers.remove(AUTHORIZATION);
        head.headers.remove(COOKIE);
        head.headers.insert(ACCEPT, framing::accept_all());
        head.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let transports = &server.transports;
        let config = if in_session { &transports.with_sessions } else { &transports.without };
        let sessions = Arc::new(server.sessions.of(&who.id));
        let shared = server.shared.clone();
        let service = StreamableHttpService::new(
            move || Ok(Handler::new(shared.clone(), who.clone())),
            sessions,
            config.clone(),
        );
        // It is by far the largest future here, and would be copied into each of those around it.
        let response = Box::pin(service.handle(Request::from_parts(head, Full::new(body)))).await;
        let response = framing.apply(&method, id, response).await;
        Ok(match standing {
            Some(standing) if lasts => framing::until(response, standing.ended(server.recheck)),
            _ => response,
        })
    }
}
