//! Session ownership and in-flight requests, for the protocol versions that have sessions.
//!
//! `rmcp` keeps the sessions themselves, open to any client that knows an id. Here each session belongs to the
//! credential that opened it and ends with it, their number is bounded per credential, company and process, and two
//! concurrent requests of a session cannot share an id: `rmcp` would send both answers to the second.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::Stream;
use rmcp::model::{ClientJsonRpcMessage, RequestId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError,
};
use rmcp::transport::streamable_http_server::session::{ServerSseMessage, SessionId, SessionManager};

mod registry;
#[cfg(test)]
mod tests;

pub(super) use registry::SessionLimitError;
use registry::{InFlightIds, Registry, SessionLimits, SessionOwner};

use super::identity::{Identity, RevocableToken};

/// Maximum number of sessions in this process.
const MAX_SESSIONS: usize = 4096;
/// Maximum number of sessions per company.
const MAX_SESSIONS_PER_COMPANY: usize = MAX_SESSIONS / 4;
/// Maximum number of sessions per credential.
const MAX_SESSIONS_PER_TOKEN: usize = 64;
/// Idle timeout of a session: a working day, because many clients do not open a new session by themselves.
const SESSION_IDLE_TIMEOUT: Duration = Duration::from_secs(8 * 60 * 60);
/// Capacity of a session's message channels.
const SESSION_CHANNEL_CAPACITY: usize = 4;

/// All sessions. At each limit, a new session closes the one of the same scope that has been idle for the longest; see
/// [`Registry::session_to_evict`].
pub(super) struct Sessions {
    local: LocalSessionManager,
    registry: Mutex<Registry>,
    /// Interval at which the token of a session is re-validated.
    token_recheck_interval: Duration,
}

/// Registration of an in-flight request; dropping it releases the request's id.
pub(super) struct InFlightRequest {
    requests: Arc<InFlightIds>,
    id: RequestId,
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        self.requests.lock().remove(&self.id);
    }
}

impl Sessions {
    pub(super) fn new(token_recheck_interval: Duration) -> Arc<Self> {
        let limits = SessionLimits {
            process: MAX_SESSIONS,
            company: MAX_SESSIONS_PER_COMPANY,
            credential: MAX_SESSIONS_PER_TOKEN,
        };
        Self::bounded(limits, token_recheck_interval)
    }

    fn bounded(limits: SessionLimits, token_recheck_interval: Duration) -> Arc<Self> {
        let mut local = LocalSessionManager::default();
        local.session_config.keep_alive = Some(SESSION_IDLE_TIMEOUT);
        local.session_config.channel_capacity = SESSION_CHANNEL_CAPACITY;
        // A retry event would turn every response into an event stream.
        local.session_config.sse_retry = None;
        Arc::new(Self { local, registry: Mutex::new(Registry::new(limits)), token_recheck_interval })
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if `owner` owns the session, and marks the session as used.
    pub(super) fn touch_if_owned(&self, session: &str, owner: &str) -> bool {
        self.lock().touch_if_owned(session, owner)
    }

    /// Registers a request in a session; returns `None` if a request with this id is in flight.
    pub(super) fn begin_request(&self, session: &str, id: &RequestId) -> Option<InFlightRequest> {
        let requests = self.lock().in_flight(session)?;
        let is_new = requests.lock().insert(id.clone());
        is_new.then(|| InFlightRequest { requests, id: id.clone() })
    }

    /// Checks that `identity` can open another session, if need be in place of an idle one.
    pub(super) fn check_room(&self, identity: &Identity) -> Result<(), SessionLimitError> {
        self.lock().session_to_evict(&owner_of(identity)).map(drop)
    }

    /// Returns a session manager for the owner of `identity`, whose sessions end with `token`.
    pub(super) fn for_owner(
        self: &Arc<Self>,
        identity: &Identity,
        token: Option<Arc<RevocableToken>>,
    ) -> OwnerSessionManager {
        OwnerSessionManager { sessions: self.clone(), owner: owner_of(identity), token }
    }

    /// Closes all sessions of a credential. May be called outside of a Tokio runtime.
    pub(super) fn close_owner(self: &Arc<Self>, owner: &str) {
        let Some((ids, runtime)) = self.lock().remove_owner(owner) else { return };
        let sessions = self.clone();
        // A task of its own, because the caller may be a destructor, or the watch that ended with the last session.
        runtime.spawn(async move { sessions.close_removed(ids).await });
    }

    /// Closes sessions that were removed from the registry.
    async fn close_removed(&self, ids: impl IntoIterator<Item = SessionId>) {
        for id in ids {
            if let Err(error) = self.local.close_session(&id).await {
                tracing::debug!(%error, "an MCP session was not closed in order");
            }
        }
    }

    /// Closes the owner's sessions when `token` is no longer valid.
    fn watch_token(self: &Arc<Self>, owner: &SessionOwner, token: &Arc<RevocableToken>) {
        let (sessions, token, often) = (Arc::downgrade(self), token.clone(), self.token_recheck_interval);
        let id = owner.id.clone();
        let watch = async move {
            token.revoked(often).await;
            if let Some(sessions) = sessions.upgrade() {
                sessions.close_owner(&id);
            }
        };
        self.lock().watch_token(&owner.id, || tokio::spawn(watch).abort_handle());
    }
}

fn owner_of(identity: &Identity) -> SessionOwner {
    SessionOwner { id: identity.id.as_str().into(), company: identity.context.company_id.clone() }
}

/// Session manager of one credential.
pub(super) struct OwnerSessionManager {
    sessions: Arc<Sessions>,
    owner: SessionOwner,
    /// `None` if the sessions' credential is not a revocable token.
    token: Option<Arc<RevocableToken>>,
}

/// Error of a session operation.
#[derive(Debug)]
pub(super) enum SessionError {
    /// A limit of sessions is reached.
    Limit(SessionLimitError),
    /// An error of `rmcp`.
    Local(LocalSessionManagerError),
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit(limit) => f.write_str(limit.message()),
            Self::Local(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SessionError {}

impl From<LocalSessionManagerError> for SessionError {
    fn from(error: LocalSessionManagerError) -> Self {
        Self::Local(error)
    }
}

impl SessionManager for OwnerSessionManager {
    type Error = SessionError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), SessionError> {
        let (id, transport) = self.sessions.local.create_session().await?;
        let opened = self.sessions.lock().open(&id, &self.owner);
        let evicted = match opened {
            Ok(evicted) => evicted,
            Err(limit) => {
                self.sessions.local.close_session(&id).await?;
                return Err(SessionError::Limit(limit));
            }
        };
        if let Some(token) = &self.token {
            self.sessions.watch_token(&self.owner, token);
        }
        if let Some(evicted) = evicted {
            let sessions = self.sessions.clone();
            // A task of its own, so that it is closed even if this request is cancelled.
            tokio::spawn(async move { sessions.close_removed([evicted]).await });
        }
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, SessionError> {
        Ok(self.sessions.local.initialize_session(id, message).await?)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, SessionError> {
        Ok(self.sessions.touch_if_owned(id, &self.owner.id) && self.sessions.local.has_session(id).await?)
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), SessionError> {
        self.sessions.lock().remove(id);
        Ok(self.sessions.local.close_session(id).await?)
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        Ok(self.sessions.local.create_stream(id, message).await?)
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), SessionError> {
        Ok(self.sessions.local.accept_message(id, message).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        Ok(self.sessions.local.create_standalone_stream(id).await?)
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        Ok(self.sessions.local.resume(id, last_event_id).await?)
    }
}
