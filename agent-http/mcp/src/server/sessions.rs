//! Session ownership and in-flight requests, for the protocol versions that have sessions.
//!
//! `rmcp` keeps the sessions themselves, open to any client that knows an id. Here each session belongs to the
//! credential that opened it and ends with it, their number is bounded per credential, company and process, and two
//! concurrent requests of a session cannot share an id: `rmcp` would send both answers to the second.
//!
//! With a sealing key, the id that a client knows contains the session's sealed state ([`SessionSealer`]). A process that does
//! not have the session, because another one has opened it, or because it was evicted or idle for too long, restores it from its
//! id at its next request ([`SessionRestore`]). Nothing is stored. A session carries no rights: every request is authorized by
//! its own credential, which must be the credential that opened the session.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::Stream;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError,
};
use rmcp::transport::streamable_http_server::session::{ServerSseMessage, SessionId, SessionManager};

mod registry;
mod restore;
mod restore_locks;
mod sealed_id;
#[cfg(test)]
mod tests;

use registry::{NewSession, Registry, SessionLimits, SessionOwner};
pub(super) use registry::{SessionLimitError, SessionUse};
pub(super) use restore::{RestoreError, SessionRestore};
use restore_locks::RestoreLocks;
pub(super) use sealed_id::{SessionSealer, has_initialize_params};

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
    restore_locks: RestoreLocks,
    /// Interval at which the token of a session is re-validated.
    token_recheck_interval: Duration,
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
        Arc::new(Self {
            local,
            registry: Mutex::new(Registry::new(limits)),
            restore_locks: RestoreLocks::default(),
            token_recheck_interval,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the session with this public id for use by a request of `owner`; `None` if it is not in this process, or
    /// belongs to another credential.
    pub(super) fn find(&self, public_id: &str, owner: &str) -> Option<SessionUse> {
        self.lock().find(public_id, owner)
    }

    /// Returns true if the client has ended a session of `identity` by a request to this process.
    pub(super) fn has_ended(&self, public_id: &str, identity: &Identity) -> bool {
        self.lock().has_ended(public_id, &identity.context.company_id)
    }

    /// Ends a session of `identity` permanently: it is closed, and not restored in this process.
    pub(super) fn end(self: &Arc<Self>, public_id: &str, identity: &Identity) {
        let open = self.lock().end(public_id, &identity.context.company_id);
        self.spawn_close(open);
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
        OwnerSessionManager { sessions: self.clone(), owner: owner_of(identity), token, public_id: None }
    }

    /// Closes all sessions of a credential. May be called outside of a Tokio runtime.
    pub(super) fn close_owner(self: &Arc<Self>, owner: &str) {
        let Some((ids, runtime)) = self.lock().remove_owner(owner) else { return };
        let sessions = self.clone();
        // A separate task, because the caller may be a destructor, or the watch that ended with the last session.
        runtime.spawn(async move { sessions.close_removed(ids).await });
    }

    /// Closes sessions that were removed from the registry.
    async fn close_removed(&self, ids: impl IntoIterator<Item = SessionId>) {
        for id in ids {
            if let Err(error) = self.local.close_session(&id).await {
                tracing::debug!(%error, "closing an MCP session failed");
            }
        }
    }

    /// Closes a session that was removed from the registry, in a task: the request that has removed it may be cancelled,
    /// and a session whose client does not read closes late.
    fn spawn_close(self: &Arc<Self>, removed: Option<SessionId>) {
        let Some(removed) = removed else { return };
        let sessions = self.clone();
        tokio::spawn(async move { sessions.close_removed([removed]).await });
    }

    /// Closes the owner's sessions when `token` is no longer valid.
    fn watch_token(self: &Arc<Self>, owner: &SessionOwner, token: &Arc<RevocableToken>) {
        let (sessions, token, check_interval) =
            (Arc::downgrade(self), token.clone(), self.token_recheck_interval);
        let id = owner.id.clone();
        let watch = async move {
            token.wait_until_revoked(check_interval).await;
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
    /// Id that the client knows the next session by; `None` if it is the session's local id.
    public_id: Option<Arc<str>>,
}

impl OwnerSessionManager {
    /// Sets the id of the created session as the client sees it.
    pub(super) fn with_public_id(self, public_id: Option<Arc<str>>) -> Self {
        Self { public_id, ..self }
    }
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
        let public_id = self.public_id.as_ref().unwrap_or(&id).clone();
        let new_session = NewSession { id: id.clone(), public_id, is_restored: false };
        let result = self.sessions.lock().open(new_session, &self.owner);
        let evicted = match result {
            Ok(evicted) => evicted,
            Err(limit) => {
                self.sessions.local.close_session(&id).await?;
                return Err(SessionError::Limit(limit));
            }
        };
        if let Some(token) = &self.token {
            self.sessions.watch_token(&self.owner, token);
        }
        self.sessions.spawn_close(evicted);
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
        Ok(self.sessions.lock().touch_if_owned(id, &self.owner.id)
            && self.sessions.local.has_session(id).await?)
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
