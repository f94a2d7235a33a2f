//! Session ownership and in-flight requests, for the protocol versions that have sessions.
//!
//! `rmcp` keeps the sessions themselves, open to any client that knows an id. Here each session belongs to the
//! credential that opened it, their number is bounded, and two concurrent requests of a session cannot share an id:
//! `rmcp` would send both answers to the second.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::Stream;
use rmcp::model::{ClientJsonRpcMessage, RequestId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError,
};
use rmcp::transport::streamable_http_server::session::{ServerSseMessage, SessionId, SessionManager};
use tokio::time::Instant;

/// Maximum number of sessions in this process.
const MAX_SESSIONS: usize = 4096;
/// Maximum number of sessions per credential. Opening another one closes the session that has been idle for the
/// longest.
const MAX_SESSIONS_PER_TOKEN: usize = 64;
/// Idle timeout of a session: a working day, because many clients do not open a new session by themselves.
const SESSION_IDLE_TIMEOUT: Duration = Duration::from_secs(8 * 60 * 60);
/// Capacity of a session's message channels.
const SESSION_CHANNEL_CAPACITY: usize = 4;

/// Registry of all sessions.
pub(super) struct Sessions {
    local: LocalSessionManager,
    open: Mutex<HashMap<SessionId, Session>>,
    max_sessions: usize,
    max_sessions_per_token: usize,
}

struct Session {
    owner: Arc<str>,
    used: Instant,
    under_way: Arc<InFlightIds>,
}

/// Ids of the requests that a session is processing.
#[derive(Default)]
struct InFlightIds(Mutex<HashSet<RequestId>>);

impl InFlightIds {
    fn lock(&self) -> MutexGuard<'_, HashSet<RequestId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
    pub(super) fn new() -> Arc<Self> {
        Self::bounded(MAX_SESSIONS, MAX_SESSIONS_PER_TOKEN)
    }

    fn bounded(most: usize, most_of_one: usize) -> Arc<Self> {
        let mut local = LocalSessionManager::default();
        local.session_config.keep_alive = Some(SESSION_IDLE_TIMEOUT);
        local.session_config.channel_capacity = SESSION_CHANNEL_CAPACITY;
        // A retry event would turn every response into an event stream.
        local.session_config.sse_retry = None;
        Arc::new(Self {
            local,
            open: Mutex::default(),
            max_sessions: most,
            max_sessions_per_token: most_of_one,
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Session>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if `owner` owns the session, and marks the session as used.
    pub(super) fn touch_if_owned(&self, session: &str, owner: &str) -> bool {
        let mut open = self.lock();
        let found = open.get_mut(session).filter(|session| &*session.owner == owner);
        found.map(|session| session.used = Instant::now()).is_some()
    }

    /// Registers a request in a session; returns `None` if a request with this id is in flight.
    pub(super) fn begin_request(&self, session: &str, id: &RequestId) -> Option<InFlightRequest> {
        let requests = self.lock().get(session)?.under_way.clone();
        let is_new = requests.lock().insert(id.clone());
        is_new.then(|| InFlightRequest { requests, id: id.clone() })
    }

    /// Returns true if another session can be opened.
    pub(super) fn has_room(&self) -> bool {
        self.lock().len() < self.max_sessions
    }

    /// Returns a session manager for `owner`.
    pub(super) fn for_owner(self: &Arc<Self>, owner: &str) -> OwnerSessionManager {
        OwnerSessionManager { sessions: self.clone(), owner: owner.into() }
    }

    /// Returns the session to close before `owner` opens another one, if `owner` has reached its limit.
    fn session_to_evict(&self, owner: &str) -> Option<SessionId> {
        let open = self.lock();
        let own = open.iter().filter(|(_, session)| &*session.owner == owner);
        let surplus = own.clone().count() >= self.max_sessions_per_token;
        let idle = own.filter(|(_, session)| session.under_way.lock().is_empty());
        idle.min_by_key(|(_, session)| session.used).filter(|_| surplus).map(|(id, _)| id.clone())
    }
}

/// Session manager of one credential.
pub(super) struct OwnerSessionManager {
    sessions: Arc<Sessions>,
    owner: Arc<str>,
}

/// Error of a session operation.
#[derive(Debug)]
pub(super) enum SessionError {
    /// The limit of sessions in this process is reached.
    Full,
    /// An error of `rmcp`.
    Local(LocalSessionManagerError),
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("the limit of sessions is reached"),
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
        while let Some(id) = self.sessions.session_to_evict(&self.owner) {
            self.close_session(&id).await?;
        }
        let (id, transport) = self.sessions.local.create_session().await?;
        let session = Session { owner: self.owner.clone(), used: Instant::now(), under_way: Arc::default() };
        let full = {
            let mut open = self.sessions.lock();
            let full = open.len() >= self.sessions.max_sessions;
            if !full {
                open.insert(id.clone(), session);
            }
            full
        };
        if full {
            self.sessions.local.close_session(&id).await?;
            return Err(SessionError::Full);
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
        Ok(self.sessions.touch_if_owned(id, &self.owner) && self.sessions.local.has_session(id).await?)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_session_is_its_owners_and_one_of_so_many() {
        let sessions = Sessions::bounded(3, 2);
        let (ada, bob) = (sessions.for_owner("ada"), sessions.for_owner("bob"));
        let mut of_ada = Vec::new();
        for _ in 0..2 {
            of_ada.push(ada.create_session().await.expect("there is room"));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let ids: Vec<_> = of_ada.iter().map(|(id, _)| id.clone()).collect();
        assert!(sessions.touch_if_owned(&ids[0], "ada") && !sessions.touch_if_owned(&ids[0], "bob"));
        assert!(!bob.has_session(&ids[0]).await.expect("an answer"));
        assert!(!sessions.touch_if_owned("none", "ada"));

        // The second session has not been used since it was opened.
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(sessions.touch_if_owned(&ids[0], "ada"));
        let third = ada.create_session().await.expect("another gives way");
        assert!(sessions.touch_if_owned(&ids[0], "ada") && sessions.touch_if_owned(&third.0, "ada"));
        assert!(!sessions.touch_if_owned(&ids[1], "ada"));

        let fourth = bob.create_session().await.expect("there is room");
        assert!(!sessions.has_room());
        assert!(matches!(sessions.for_owner("eve").create_session().await, Err(SessionError::Full)));
        bob.close_session(&fourth.0).await.expect("closed");
        assert!(sessions.has_room() && !sessions.touch_if_owned(&fourth.0, "bob"));
    }

    #[tokio::test]
    async fn an_identifier_is_under_way_once() {
        let sessions = Sessions::bounded(2, 2);
        let (one, _transport) = sessions.for_owner("ada").create_session().await.expect("there is room");
        let (other, _other) = sessions.for_owner("ada").create_session().await.expect("there is room");
        let id = RequestId::Number(1);
        let first = sessions.begin_request(&one, &id).expect("it is new");
        assert!(sessions.begin_request(&one, &id).is_none());
        assert!(sessions.begin_request(&one, &RequestId::String("1".into())).is_some());
        assert!(sessions.begin_request(&other, &id).is_some(), "another session's");
        drop(first);
        assert!(sessions.begin_request(&one, &id).is_some(), "it is over");
        assert!(sessions.begin_request("none", &id).is_none());
    }
}
