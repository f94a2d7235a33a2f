//! Processing of one request whose head was accepted: its session, its limits, and the way to `rmcp`.

use std::sync::Arc;

use agent_core::tool::ExecutionContext;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, COOKIE};
use http::{HeaderValue, Method, Request, Response, request};
use http_body_util::Full;
use rmcp::model::{InitializeRequestParams, RequestId};
use rmcp::transport::streamable_http_server::StreamableHttpService;

use super::admission::AdmissionError;
use super::agent_limits;
use super::direct::{CALL_METHOD, DirectCall};
use super::framing::{self, Framing};
use super::handler::McpHandler;
use super::identity::{AuthenticatedIdentity, Identity, RevocableToken};
use super::mcp_server::McpServer;
use super::message::MessageKind;
use super::permits::{ArgumentsText, RequestPermits};
use super::query::QueryParams;
use super::rpc_error::RpcErrorResponse;
use super::sessions::{RestoreError, SessionLimitError, SessionRestore, SessionUse, has_initialize_params};
use crate::body::ResponseBody;
use crate::headers::SESSION_ID;

/// Method of a request whose response stays open.
const SUBSCRIPTIONS_LISTEN: &str = "subscriptions/listen";

/// A request whose head was accepted.
pub struct AuthorizedRequest<'s> {
    pub(super) server: &'s McpServer,
    pub(super) identity: Arc<Identity>,
    /// `None` if the identity is not based on a revocable token.
    pub(super) revocable_token: Option<Arc<RevocableToken>>,
    pub(super) framing: Framing,
    /// Session id in the request's head, which the client may have made up.
    pub(super) session: Option<String>,
}

impl std::fmt::Debug for AuthorizedRequest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuthorizedRequest").finish_non_exhaustive()
    }
}

/// Beginning of the names of methods that return the results of calls which have become tasks.
const TASK_METHODS: &str = "tasks/";

/// The session that a request names, if it is the caller's.
enum NamedSession {
    /// A session in this process.
    Open(SessionUse),
    /// A session that can be restored from its id.
    Sealed(Box<InitializeRequestParams>),
}

/// The parts of a request that decide how `rmcp` processes it.
#[derive(Default)]
struct Forwarding {
    id: Option<RequestId>,
    in_session: bool,
    /// True if the response ends when the credential is revoked.
    ends_with_token: bool,
    /// True if the response may have the result of a tool call.
    may_have_tool_result: bool,
    /// Public id of the session that the request opens; `None` if it is the session's local id.
    new_session: Option<Arc<str>>,
}

impl McpServer {
    /// Checks the head of a request to the server's URL, whose method must be GET, POST or DELETE: `Host`, `Origin`,
    /// the credential and `Accept`.
    ///
    /// # Errors
    ///
    /// The request must not be answered by the server, and its body should not be read.
    pub async fn authorize(&self, head: &request::Parts) -> Result<AuthorizedRequest<'_>, AdmissionError> {
        self.host_guard.check(&head.headers)?;
        let authenticated = self.authority.identify(&head.headers, &QueryParams::from_uri(&head.uri)).await?;
        let AuthenticatedIdentity { identity, revocable_token } = authenticated;
        let framing = Framing::negotiate(&head.method, &head.headers)?;
        let session = head.headers.get(SESSION_ID).map(|id| id.to_str().unwrap_or_default().to_owned());
        Ok(AuthorizedRequest {
            server: self,
            identity: Arc::new(identity),
            revocable_token,
            framing,
            session,
        })
    }
}

impl AuthorizedRequest<'_> {
    /// Answers the request, whose head is the authorized one; `body` is empty for GET and DELETE. Errors are JSON-RPC
    /// errors in the response.
    pub async fn respond(self, head: request::Parts, body: Bytes) -> Response<ResponseBody> {
        let content_type = self.framing.single_message_content_type();
        let result = match head.method {
            Method::POST => self.post(head, body).await,
            Method::DELETE => self.delete(head).await,
            _ => self.get(head).await,
        };
        result.unwrap_or_else(|error| error.respond(content_type))
    }

    /// Returns true unless the identity is from a query without a token.
    pub fn is_authenticated(&self) -> bool {
        self.identity.is_authenticated()
    }

    /// Returns the execution context of the request's tools, with the company of the credential.
    pub fn context(&self) -> &ExecutionContext {
        &self.identity.context
    }

    async fn post(
        self,
        mut head: request::Parts,
        body: Bytes,
    ) -> Result<Response<ResponseBody>, RpcErrorResponse> {
        let message_kind = MessageKind::parse(&body, self.server.json_depth)?;
        let (id, opens_session) = match &message_kind {
            MessageKind::Request { id, method } => (Some(id.clone()), method == "initialize"),
            MessageKind::Notification | MessageKind::Response => (None, false),
        };
        // `rmcp` would take it for a request of another method, which needs a session. The header comes with every later
        // request of a session, and with all requests of the version without sessions, which has no such method.
        let may_initialize = !head.headers.contains_key("mcp-protocol-version");
        if opens_session && may_initialize && !has_initialize_params(&body) {
            let message = "initialize needs the parameters protocolVersion, capabilities and clientInfo";
            return Err(RpcErrorResponse::invalid_params(id, message));
        }
        let permits = self.admit(&message_kind, id.as_ref(), opens_session).await?;
        if let (None, Some(id)) = (&self.session, &id)
            && let Some(call) = DirectCall::parse(&head.headers, &body, &*self.server.shared.features)
        {
            return Ok(self.call_directly(call, id.clone(), permits).await);
        }
        if let Some(session) = &permits.session {
            session.write_local_id(&mut head.headers);
        }
        head.extensions.insert(Arc::new(permits));
        let method = match &message_kind {
            MessageKind::Request { method, .. } => method.as_str(),
            MessageKind::Notification | MessageKind::Response => "",
        };
        if method == CALL_METHOD
            && let Some(arguments) = ArgumentsText::read(&body)
        {
            head.extensions.insert(arguments);
        }
        let sealer = self.server.session_sealer.as_ref().filter(|_| opens_session && self.session.is_none());
        let forwarding = Forwarding {
            id,
            in_session: opens_session || self.session.is_some(),
            ends_with_token: method == SUBSCRIPTIONS_LISTEN,
            may_have_tool_result: method == CALL_METHOD || method.starts_with(TASK_METHODS),
            new_session: sealer.and_then(|sealer| sealer.seal(&self.identity, &body)),
        };
        Ok(self.forward(head, body, forwarding).await)
    }

    /// Handles GET, the session's standalone stream. A session may have many of them.
    async fn get(self, mut head: request::Parts) -> Result<Response<ResponseBody>, RpcErrorResponse> {
        let mut permit = None;
        let session = match &self.session {
            Some(session) => {
                let named_session =
                    self.find_session(session).ok_or_else(|| RpcErrorResponse::no_session(None))?;
                if let NamedSession::Sealed(_) = named_session {
                    // Restoring does the work of `initialize`, which is a message.
                    self.check_rate(None)?;
                }
                let acquired = self.server.limiter.acquire_stream(&self.identity);
                permit = Some(acquired.map_err(|error| limit_response(None, error))?);
                Some(self.open_session(session, named_session, None).await?)
            }
            None => None,
        };
        if let Some(session) = &session {
            session.write_local_id(&mut head.headers);
        }
        // The use ends with this function: an open stream does not keep its session from being evicted.
        // A stream that is resumed has the messages that the client has missed.
        let forwarding = Forwarding {
            in_session: true,
            ends_with_token: true,
            may_have_tool_result: true,
            ..Forwarding::default()
        };
        let response = self.forward(head, Bytes::new(), forwarding).await;
        Ok(match permit {
            Some(permit) if response.status().is_success() => framing::hold_permit(response, permit),
            _ => response,
        })
    }

    /// Handles DELETE, the end of the session. A session that is not in this process is not restored for it.
    async fn delete(self, mut head: request::Parts) -> Result<Response<ResponseBody>, RpcErrorResponse> {
        if let Some(session) = &self.session {
            let named_session =
                self.find_session(session).ok_or_else(|| RpcErrorResponse::no_session(None))?;
            if let NamedSession::Open(session) = named_session {
                session.write_local_id(&mut head.headers);
            }
        }
        let (server, identity, session) = (self.server, self.identity.clone(), self.session.clone());
        let forwarding = Forwarding { in_session: true, ..Forwarding::default() };
        let response = self.forward(head, Bytes::new(), forwarding).await;
        if let (Some(session), Some(_), true) =
            (session, &server.session_sealer, response.status().is_success())
        {
            server.sessions.end(&session, &identity);
        }
        Ok(response)
    }

    /// Returns the session that the request names; `None` if it does not exist, has ended or is another credential's.
    fn find_session(&self, public_id: &str) -> Option<NamedSession> {
        let Self { server, identity, .. } = self;
        if let Some(session) = server.sessions.find(public_id, &identity.id) {
            return Some(NamedSession::Open(session));
        }
        let sealer = server.session_sealer.as_ref()?;
        if server.sessions.has_ended(public_id, identity) {
            return None;
        }
        sealer.open(identity, public_id).map(|params| NamedSession::Sealed(Box::new(params)))
    }

    /// Returns the session for use by the request, restored if need be.
    async fn open_session(
        &self,
        public_id: &str,
        named_session: NamedSession,
        id: Option<&RequestId>,
    ) -> Result<SessionUse, RpcErrorResponse> {
        let Self { server, identity, revocable_token, .. } = self;
        let params = match named_session {
            NamedSession::Open(session) => return Ok(session),
            NamedSession::Sealed(params) => params,
        };
        let restored = server.sessions.restore(SessionRestore {
            public_id: public_id.into(),
            params: *params,
            identity: identity.clone(),
            token: revocable_token.clone(),
            handler: McpHandler::new(server.shared.clone(), identity.clone()),
            stop: server.transports.stop.child_token(),
        });
        restored.await.map_err(|error| match error {
            RestoreError::Limit(limit) => {
                RpcErrorResponse::limit_exceeded(id.cloned(), limit.message(), None)
            }
            RestoreError::Ended => RpcErrorResponse::no_session(id.cloned()),
        })
    }

    fn check_rate(&self, id: Option<&RequestId>) -> Result<(), RpcErrorResponse> {
        self.server.limiter.check_rate(&self.identity).map_err(|error| limit_response(id, error))
    }

    async fn admit(
        &self,
        message_kind: &MessageKind,
        id: Option<&RequestId>,
        opens_session: bool,
    ) -> Result<RequestPermits, RpcErrorResponse> {
        let Self { server, identity, session, .. } = self;
        let named_session = match session {
            Some(session) => {
                let named_session = self.find_session(session);
                Some((session, named_session.ok_or_else(|| RpcErrorResponse::no_session(id.cloned()))?))
            }
            None => None,
        };
        self.check_rate(id)?;
        if opens_session {
            let session_limit_response = |limit: SessionLimitError| {
                RpcErrorResponse::limit_exceeded(id.cloned(), limit.message(), None)
            };
            server.sessions.check_room(identity).map_err(session_limit_response)?;
        }
        let mut session = match named_session {
            Some((public_id, named_session)) => Some(self.open_session(public_id, named_session, id).await?),
            None => None,
        };
        if let (Some(session), Some(id)) = (&mut session, id)
            && !session.begin_request(id)
        {
            return Err(RpcErrorResponse::duplicate(id.clone()));
        }
        let to_response = |error| limit_response(id, error);
        let permit = match message_kind {
            MessageKind::Request { method, .. } if method == SUBSCRIPTIONS_LISTEN => {
                Some(server.limiter.acquire_subscription(identity).map_err(to_response)?)
            }
            // A ping does no work, so it is answered even at full load.
            MessageKind::Request { method, .. } if method == "ping" => None,
            MessageKind::Request { .. } => Some(server.limiter.acquire(identity).await.map_err(to_response)?),
            MessageKind::Notification | MessageKind::Response => None,
        };
        Ok(RequestPermits { _permit: permit, session })
    }

    /// Calls a tool without `rmcp`'s service.
    async fn call_directly(
        self,
        call: DirectCall,
        id: RequestId,
        permits: RequestPermits,
    ) -> Response<ResponseBody> {
        let Self { server, identity, framing, .. } = self;
        let (shared, stop) = (server.shared.clone(), server.transports.stop.clone());
        let response = call.run(id.clone(), shared, identity, stop, permits).await;
        let response = response.map(framing::with_exact_numbers);
        framing.apply(&Method::POST, Some(id), response).await
    }

    /// Passes the request to `rmcp` without its credential.
    async fn forward(
        self,
        mut head: request::Parts,
        body: Bytes,
        forwarding: Forwarding,
    ) -> Response<ResponseBody> {
        let Self { server, identity, revocable_token, framing, .. } = self;
        let Forwarding { id, in_session, ends_with_token, may_have_tool_result, new_session } = forwarding;
        let method = head.method.clone();
        head.uri = head.uri.path().parse().unwrap_or_default();
        head.headers.remove(AUTHORIZATION);
        head.headers.remove(COOKIE);
        head.headers.insert(ACCEPT, framing::accept_all());
        head.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let transports = &server.transports;
        let config = if in_session { &transports.with_sessions } else { &transports.without };
        let sessions =
            server.sessions.for_owner(&identity, revocable_token.clone()).with_public_id(new_session.clone());
        let shared = server.shared.clone();
        let service = StreamableHttpService::new(
            move || Ok(McpHandler::new(shared.clone(), identity.clone())),
            Arc::new(sessions),
            config.clone(),
        );
        // Boxed, because this is by far the largest future here, and every enclosing future would contain it.
        let response = Box::pin(service.handle(Request::from_parts(head, Full::new(body)))).await;
        let response = match may_have_tool_result {
            true => response.map(framing::with_exact_numbers),
            false => response,
        };
        let mut response = framing.apply(&method, id, response).await;
        if let Some(public_id) = new_session.and_then(|id| HeaderValue::from_str(&id).ok())
            && let Some(session) = response.headers_mut().get_mut(SESSION_ID)
        {
            *session = public_id;
        }
        match revocable_token {
            Some(revocable_token) if ends_with_token => {
                let check_interval = server.token_recheck_interval;
                framing::end_stream_when(response, async move {
                    revocable_token.wait_until_revoked(check_interval).await
                })
            }
            _ => response,
        }
    }
}

fn limit_response(id: Option<&RequestId>, error: agent_limits::LimitExceededError) -> RpcErrorResponse {
    RpcErrorResponse::limit_exceeded(id.cloned(), error.message, error.retry_after)
}
