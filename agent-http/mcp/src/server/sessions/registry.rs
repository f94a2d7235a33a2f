//! Accounting of open sessions: shares of credentials and companies, and the choice of the session to evict.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_core::ids::CompanyId;
use agent_platform::company_permits::subtract_one;
use agent_platform::company_table::{CompanyTable, CompanyTableLimits};
use http::{HeaderMap, HeaderValue};
use rmcp::model::RequestId;
use rmcp::transport::streamable_http_server::session::SessionId;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::headers::{LAST_EVENT_ID, SESSION_ID};

/// Maximum numbers of remembered ids of ended sessions.
const ENDED_LIMITS: CompanyTableLimits = CompanyTableLimits { total: 4096, per_company: 1024 };

/// Maximum numbers of sessions.
#[derive(Debug, Clone, Copy)]
pub(super) struct SessionLimits {
    pub(super) process: usize,
    pub(super) company: usize,
    pub(super) credential: usize,
}

/// The credential that a session belongs to, and its company.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SessionOwner {
    pub(super) id: Arc<str>,
    pub(super) company: CompanyId,
}

/// Error for a limit at which every session that could be evicted is processing a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum SessionLimitError {
    /// The limit per credential.
    Credential,
    /// The limit per company.
    Company,
    /// The limit of the process.
    Process,
}

impl SessionLimitError {
    pub(in crate::server) fn message(self) -> &'static str {
        match self {
            Self::Credential => "this token's limit of sessions is reached, and all of them are in use",
            Self::Company => "the company's limit of sessions is reached, and all of them are in use",
            Self::Process => "the limit of sessions is reached, and all of them are in use",
        }
    }
}

/// Uses of a session by requests.
#[derive(Default)]
struct SessionActivity(Mutex<Activity>);

#[derive(Default)]
struct Activity {
    uses: usize,
    /// Ids of the requests that the session is processing.
    request_ids: HashSet<RequestId>,
}

impl SessionActivity {
    fn lock(&self) -> MutexGuard<'_, Activity> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_idle(&self) -> bool {
        self.lock().uses == 0
    }
}

/// Use of a session by one request; the session is not evicted before it is dropped.
pub(in crate::server) struct SessionUse {
    id: SessionId,
    is_restored: bool,
    activity: Arc<SessionActivity>,
    request_id: Option<RequestId>,
}

impl SessionUse {
    fn new(id: &SessionId, session: &Session) -> Self {
        session.activity.lock().uses += 1;
        let activity = session.activity.clone();
        Self { id: id.clone(), is_restored: session.is_restored, activity, request_id: None }
    }

    /// Registers the id of the request; returns false if a request with this id is in flight in the session.
    pub(in crate::server) fn begin_request(&mut self, id: &RequestId) -> bool {
        let is_new = self.activity.lock().request_ids.insert(id.clone());
        if is_new {
            self.request_id = Some(id.clone());
        }
        is_new
    }

    /// Replaces the public id in the head of a request by the local one, which `rmcp` looks up.
    pub(in crate::server) fn write_local_id(&self, headers: &mut HeaderMap) {
        if let Ok(id) = HeaderValue::from_str(&self.id) {
            headers.insert(SESSION_ID, id);
        }
        if self.is_restored {
            // The event may be of another process, where its number stands for another stream.
            headers.remove(LAST_EVENT_ID);
        }
    }

    #[cfg(test)]
    pub(super) fn local_id(&self) -> &SessionId {
        &self.id
    }
}

impl Drop for SessionUse {
    fn drop(&mut self) {
        let mut activity = self.activity.lock();
        activity.uses -= 1;
        if let Some(id) = &self.request_id {
            activity.request_ids.remove(id);
        }
    }
}

/// A session to register.
pub(super) struct NewSession {
    /// Id of the session in `rmcp`'s session manager. Each restoring of a session has a new one, so that the late end of
    /// the evicted session does not close its successor.
    pub(super) id: SessionId,
    /// Id of the session that the client knows.
    pub(super) public_id: Arc<str>,
    /// True if the session was restored from its public id.
    pub(super) is_restored: bool,
}

struct Session {
    owner: SessionOwner,
    public_id: Arc<str>,
    is_restored: bool,
    used: Instant,
    activity: Arc<SessionActivity>,
}

/// The sessions of one credential.
struct OwnerState {
    sessions: HashSet<SessionId>,
    /// Runtime on which the sessions are closed.
    runtime: Handle,
    watch: Option<TokenWatch>,
}

/// A task that waits for the end of a token; aborted when dropped.
struct TokenWatch(AbortHandle);

impl Drop for TokenWatch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The open sessions.
pub(super) struct Registry {
    limits: SessionLimits,
    open: HashMap<SessionId, Session>,
    /// The open sessions' ids by public id.
    by_public_id: HashMap<Arc<str>, SessionId>,
    /// Public ids of sessions that their clients have ended, which are not restored in this process.
    ended: CompanyTable<Arc<str>, ()>,
    owners: HashMap<Arc<str>, OwnerState>,
    companies: HashMap<CompanyId, usize>,
}

impl Registry {
    pub(super) fn new(limits: SessionLimits) -> Self {
        Self {
            limits,
            open: HashMap::new(),
            by_public_id: HashMap::new(),
            ended: CompanyTable::new(ENDED_LIMITS),
            owners: HashMap::new(),
            companies: HashMap::new(),
        }
    }

    /// Returns the open session with this public id for use by a request of `owner`, and marks it as used; `None` if
    /// there is no such session, or it belongs to another credential.
    pub(super) fn find(&mut self, public_id: &str, owner: &str) -> Option<SessionUse> {
        let id = self.by_public_id.get(public_id)?;
        let session = self.open.get_mut(id).filter(|session| &*session.owner.id == owner)?;
        session.used = Instant::now();
        Some(SessionUse::new(id, session))
    }

    /// Returns true if a client of `company` has ended the session, and its id is still remembered.
    pub(super) fn has_ended(&self, public_id: &str, company: &CompanyId) -> bool {
        self.ended.get(company, public_id).is_some()
    }

    /// Records that the client of `company` has ended the session, and removes it. Returns the removed session.
    pub(super) fn end(&mut self, public_id: &str, company: &CompanyId) -> Option<SessionId> {
        self.ended.insert(company, public_id.into(), ());
        let id = self.by_public_id.get(public_id).cloned()?;
        self.remove(&id);
        Some(id)
    }

    /// Returns true if `owner` owns the session with this local id, and marks the session as used.
    pub(super) fn touch_if_owned(&mut self, id: &str, owner: &str) -> bool {
        let session = self.open.get_mut(id).filter(|session| &*session.owner.id == owner);
        session.map(|session| session.used = Instant::now()).is_some()
    }

    /// Returns the session to evict before `owner` opens another one; `None` if there is room.
    ///
    /// Evicted is the session that has been idle for the longest: of the credential or the company, if it has reached its share.
    /// If the process is full, it is a session of the company with the most sessions; on a tie, of the owner's company.
    pub(super) fn session_to_evict(
        &self,
        owner: &SessionOwner,
    ) -> Result<Option<SessionId>, SessionLimitError> {
        let SessionLimits { process, company, credential } = self.limits;
        let company_count = self.company_sessions(&owner.company);
        let evicted = if self.owners.get(&owner.id).map_or(0, |state| state.sessions.len()) >= credential {
            self.longest_idle(|session| session.owner == *owner).ok_or(SessionLimitError::Credential)?
        } else if company_count >= company {
            let evicted = self.longest_idle(|session| session.owner.company == owner.company);
            evicted.ok_or(SessionLimitError::Company)?
        } else if self.open.len() >= process {
            self.longest_idle_of_largest(&owner.company).ok_or(SessionLimitError::Process)?
        } else {
            return Ok(None);
        };
        Ok(Some(evicted))
    }

    /// Returns the longest idle session of the company that holds the most, among `company` and those that hold more.
    fn longest_idle_of_largest(&self, company: &CompanyId) -> Option<SessionId> {
        let own_count = self.company_sessions(company);
        let rank = |session: &Session| {
            let count = self.company_sessions(&session.owner.company);
            (count > own_count || session.owner.company == *company).then_some(count)
        };
        let idle = self.open.iter().filter(|(_, session)| session.activity.is_idle());
        idle.filter_map(|(id, session)| Some((rank(session)?, std::cmp::Reverse(session.used), id)))
            .max_by_key(|(count, used, _)| (*count, *used))
            .map(|(.., id)| id.clone())
    }

    fn longest_idle(&self, is_candidate: impl Fn(&Session) -> bool) -> Option<SessionId> {
        let idle =
            self.open.iter().filter(|(_, session)| is_candidate(session) && session.activity.is_idle());
        idle.min_by_key(|(_, session)| session.used).map(|(id, _)| id.clone())
    }

    fn company_sessions(&self, company: &CompanyId) -> usize {
        self.companies.get(company).copied().unwrap_or_default()
    }

    /// Registers a session, whose public id must not be registered, and returns the one that was evicted for it.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub(super) fn open(
        &mut self,
        new_session: NewSession,
        owner: &SessionOwner,
    ) -> Result<Option<SessionId>, SessionLimitError> {
        let NewSession { id, public_id, is_restored } = new_session;
        let evicted = self.session_to_evict(owner)?;
        if let Some(evicted) = &evicted {
            self.remove(evicted);
        }
        self.by_public_id.insert(public_id.clone(), id.clone());
        let session = Session {
            owner: owner.clone(),
            public_id,
            is_restored,
            used: Instant::now(),
            activity: Arc::default(),
        };
        self.open.insert(id.clone(), session);
        *self.companies.entry(owner.company.clone()).or_default() += 1;
        let state = self.owners.entry(owner.id.clone()).or_insert_with(|| OwnerState {
            sessions: HashSet::new(),
            runtime: Handle::current(),
            watch: None,
        });
        state.sessions.insert(id);
        Ok(evicted)
    }

    /// Starts a watch of the owner's token with `spawn`, unless there is one or the owner has no session.
    pub(super) fn watch_token(&mut self, owner: &str, spawn: impl FnOnce() -> AbortHandle) {
        if let Some(state) = self.owners.get_mut(owner)
            && state.watch.is_none()
        {
            state.watch = Some(TokenWatch(spawn()));
        }
    }

    /// Removes a session. With the last session of a credential, the watch of its token ends.
    pub(super) fn remove(&mut self, id: &SessionId) {
        let Some(Session { owner, public_id, .. }) = self.open.remove(id) else { return };
        self.by_public_id.remove(&public_id);
        subtract_one(&mut self.companies, &owner.company);
        if let Some(state) = self.owners.get_mut(&owner.id) {
            state.sessions.remove(id);
            if state.sessions.is_empty() {
                self.owners.remove(&owner.id);
            }
        }
    }

    /// Removes all sessions of a credential; returns them and the runtime on which to close them.
    pub(super) fn remove_owner(&mut self, owner: &str) -> Option<(Vec<SessionId>, Handle)> {
        let state = self.owners.get(owner)?;
        let (ids, runtime) = (state.sessions.iter().cloned().collect::<Vec<_>>(), state.runtime.clone());
        for id in &ids {
            self.remove(id);
        }
        Some((ids, runtime))
    }

    #[cfg(test)]
    pub(super) fn is_open(&self, public_id: &str) -> bool {
        self.by_public_id.contains_key(public_id)
    }

    #[cfg(test)]
    pub(super) fn sizes(&self) -> [usize; 3] {
        assert_eq!(self.open.len(), self.by_public_id.len());
        [self.open.len(), self.owners.len(), self.companies.len()]
    }
}
