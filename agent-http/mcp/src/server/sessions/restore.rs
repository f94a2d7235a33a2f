//! Restoring a session that this process does not have from the state in its id.
//!
//! The `initialize` handshake is replayed on a new session of `rmcp`. The hook of `rmcp` for this (`SessionStore`) is not used
//! for two reasons. It restores a session once per service, and here each request has a separate service, because the handler
//! depends on the request's identity. It also restores after the request was admitted, and the admission needs the session.

use std::sync::Arc;

use rmcp::ServerHandler;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, InitializeRequest, InitializeRequestParams,
    InitializedNotification, RequestId, ServerJsonRpcMessage,
};
use rmcp::service::serve_server_with_ct;
use rmcp::transport::TransportAdapterIdentity;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::session::{SessionId, SessionManager};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::registry::{NewSession, SessionUse};
use super::{SessionLimitError, Sessions, owner_of};
use crate::server::identity::{Identity, RevocableToken};

type Transport = <LocalSessionManager as SessionManager>::Transport;

/// A session to restore.
pub(in crate::server) struct SessionRestore<H> {
    /// Id of the session that the client knows.
    pub(in crate::server) public_id: Arc<str>,
    /// Parameters of the `initialize` request that opened the session.
    pub(in crate::server) params: InitializeRequestParams,
    /// Identity that opened the session.
    pub(in crate::server) identity: Arc<Identity>,
    /// Token whose end closes the session; `None` if its credential is not a revocable token.
    pub(in crate::server) token: Option<Arc<RevocableToken>>,
    /// Handler of the session's requests.
    pub(in crate::server) handler: H,
    /// Ends the session when the server stops.
    pub(in crate::server) stop: CancellationToken,
}

/// Error of restoring a session.
#[derive(Debug)]
pub(in crate::server) enum RestoreError {
    /// A limit of sessions is reached.
    Limit(SessionLimitError),
    /// The session has ended, or this server rejects its handshake.
    Ended,
}

impl Sessions {
    /// Restores a session, unless a concurrent request has restored it, and returns it for use by one request.
    pub(in crate::server) async fn restore<H: ServerHandler>(
        self: &Arc<Self>,
        restore: SessionRestore<H>,
    ) -> Result<SessionUse, RestoreError> {
        let sessions = self.clone();
        // A separate task, so that a client that disconnects does not leave a session with half a handshake.
        let restoring = async move { sessions.restore_once(restore).await };
        tokio::spawn(restoring.in_current_span()).await.unwrap_or(Err(RestoreError::Ended))
    }

    async fn restore_once<H: ServerHandler>(
        self: Arc<Self>,
        restore: SessionRestore<H>,
    ) -> Result<SessionUse, RestoreError> {
        let SessionRestore { public_id, params, identity, token, handler, stop } = restore;
        let _lock = self.restore_locks.lock(&public_id).await;
        if let Some(session_use) = self.find(&public_id, &identity.id) {
            return Ok(session_use);
        }
        self.check_room(&identity).map_err(RestoreError::Limit)?;
        let (id, transport) = self.local.create_session().await.map_err(|_| RestoreError::Ended)?;
        self.spawn_service(id.clone(), handler, transport, stop);
        let result = match self.replay_handshake(&id, params).await {
            Ok(()) => self.open_restored(&id, public_id, &identity).await,
            Err(error) => Err(error),
        };
        match result {
            Ok(session_use) => {
                if let Some(token) = &token {
                    self.watch_token(&owner_of(&identity), token);
                }
                Ok(session_use)
            }
            Err(error) => {
                self.close_removed([id]).await;
                Err(error)
            }
        }
    }

    /// Serves a session until it ends, as `rmcp` does for those that it creates.
    fn spawn_service<H: ServerHandler>(
        self: &Arc<Self>,
        id: SessionId,
        handler: H,
        transport: Transport,
        stop: CancellationToken,
    ) {
        let sessions = self.clone();
        tokio::spawn(async move {
            let serve = serve_server_with_ct::<H, Transport, _, TransportAdapterIdentity>;
            match serve(handler, transport, stop).await {
                Ok(service) => drop(service.waiting().await),
                Err(error) => tracing::debug!(%error, "serving a restored MCP session failed"),
            }
            // In this order, so that a session that ends while it is being opened does not stay registered.
            sessions.close_removed([id.clone()]).await;
            sessions.lock().remove(&id);
        });
    }

    /// Sends the handshake of the client to the session's service.
    async fn replay_handshake(
        &self,
        id: &SessionId,
        params: InitializeRequestParams,
    ) -> Result<(), RestoreError> {
        let request = ClientRequest::InitializeRequest(InitializeRequest::new(params));
        let request = ClientJsonRpcMessage::request(request, RequestId::Number(0));
        match self.local.initialize_session(id, request).await {
            Ok(ServerJsonRpcMessage::Response(_)) => {}
            _ => return Err(RestoreError::Ended),
        }
        let initialized = InitializedNotification::default();
        let initialized = ClientNotification::InitializedNotification(initialized);
        let initialized = ClientJsonRpcMessage::notification(initialized);
        self.local.accept_message(id, initialized).await.map_err(|_| RestoreError::Ended)
    }

    /// Registers a session whose handshake is done, in place of an idle one if need be.
    async fn open_restored(
        self: &Arc<Self>,
        id: &SessionId,
        public_id: Arc<str>,
        identity: &Identity,
    ) -> Result<SessionUse, RestoreError> {
        let (session_use, evicted) = {
            let mut registry = self.lock();
            if registry.has_ended(&public_id, &identity.context.company_id) {
                return Err(RestoreError::Ended);
            }
            let new_session = NewSession { id: id.clone(), public_id: public_id.clone(), is_restored: true };
            let evicted = registry.open(new_session, &owner_of(identity)).map_err(RestoreError::Limit)?;
            (registry.find(&public_id, &identity.id), evicted)
        };
        self.spawn_close(evicted);
        if !self.local.has_session(id).await.unwrap_or(false) {
            self.lock().remove(id);
            return Err(RestoreError::Ended);
        }
        session_use.ok_or(RestoreError::Ended)
    }
}
