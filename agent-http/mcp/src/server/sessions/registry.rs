//! Accounting of open sessions: shares of credentials and companies, and the choice of the session to evict.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_core::ids::CompanyId;
use rmcp::model::RequestId;
use rmcp::transport::streamable_http_server::session::SessionId;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::Instant;

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

/// Ids of the requests that a session is processing.
#[derive(Default)]
pub(super) struct InFlightIds(Mutex<HashSet<RequestId>>);

impl InFlightIds {
    pub(super) fn lock(&self) -> MutexGuard<'_, HashSet<RequestId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Session {
    owner: SessionOwner,
    used: Instant,
    in_flight: Arc<InFlightIds>,
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
    owners: HashMap<Arc<str>, OwnerState>,
    companies: HashMap<CompanyId, usize>,
}

impl Registry {
    pub(super) fn new(limits: SessionLimits) -> Self {
        Self { limits, open: HashMap::new(), owners: HashMap::new(), companies: HashMap::new() }
    }

    /// Returns true if `owner` owns the session, and marks the session as used.
    pub(super) fn touch_if_owned(&mut self, session: &str, owner: &str) -> bool {
        let found = self.open.get_mut(session).filter(|session| &*session.owner.id == owner);
        found.map(|session| session.used = Instant::now()).is_some()
    }

    /// Returns the ids of the requests that a session is processing.
    pub(super) fn in_flight(&self, session: &str) -> Option<Arc<InFlightIds>> {
        Some(self.open.get(session)?.in_flight.clone())
    }

    /// Returns the session to evict before `owner` opens another one; `None` if there is room.
    ///
    /// Evicted is the session that has been idle for the longest: of the credential or the company, if it has reached
    /// its share. If the process is full, it is one of the company that holds the most sessions, which is the owner's
    /// own unless another one holds more.
    pub(super) fn session_to_evict(
        &self,
        owner: &SessionOwner,
    ) -> Result<Option<SessionId>, SessionLimitError> {
        let SessionLimits { process, company, credential } = self.limits;
        let of_company = self.company_sessions(&owner.company);
        let victim = if self.owners.get(&owner.id).map_or(0, |owned| owned.sessions.len()) >= credential {
            self.longest_idle(|session| session.owner == *owner).ok_or(SessionLimitError::Credential)?
        } else if of_company >= company {
            let victim = self.longest_idle(|session| session.owner.company == owner.company);
            victim.ok_or(SessionLimitError::Company)?
        } else if self.open.len() >= process {
            self.longest_idle_of_largest(&owner.company).ok_or(SessionLimitError::Process)?
        } else {
            return Ok(None);
        };
        Ok(Some(victim))
    }

    /// Returns the longest idle session of the company that holds the most, among `company` and those that hold more.
    fn longest_idle_of_largest(&self, company: &CompanyId) -> Option<SessionId> {
        let own = self.company_sessions(company);
        let rank = |session: &Session| {
            let held = self.company_sessions(&session.owner.company);
            (held > own || session.owner.company == *company).then_some(held)
        };
        let idle = self.open.iter().filter(|(_, session)| session.in_flight.lock().is_empty());
        idle.filter_map(|(id, session)| Some((rank(session)?, std::cmp::Reverse(session.used), id)))
            .max_by_key(|(held, used, _)| (*held, *used))
            .map(|(.., id)| id.clone())
    }

    fn longest_idle(&self, of: impl Fn(&Session) -> bool) -> Option<SessionId> {
        let idle = self.open.iter().filter(|(_, session)| of(session) && session.in_flight.lock().is_empty());
        idle.min_by_key(|(_, session)| session.used).map(|(id, _)| id.clone())
    }

    fn company_sessions(&self, company: &CompanyId) -> usize {
        self.companies.get(company).copied().unwrap_or_default()
    }

    /// Registers a session and returns the one that was evicted for it.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub(super) fn open(
        &mut self,
        id: &SessionId,
        owner: &SessionOwner,
    ) -> Result<Option<SessionId>, SessionLimitError> {
        let evicted = self.session_to_evict(owner)?;
        if let Some(evicted) = &evicted {
            self.remove(evicted);
        }
        let session = Session { owner: owner.clone(), used: Instant::now(), in_flight: Arc::default() };
        self.open.insert(id.clone(), session);
        *self.companies.entry(owner.company.clone()).or_default() += 1;
        let owned = self.owners.entry(owner.id.clone()).or_insert_with(|| OwnerState {
            sessions: HashSet::new(),
            runtime: Handle::current(),
            watch: None,
        });
        owned.sessions.insert(id.clone());
        Ok(evicted)
    }

    /// Starts a watch of the owner's token with `spawn`, unless there is one or the owner has no session.
    pub(super) fn watch_token(&mut self, owner: &str, spawn: impl FnOnce() -> AbortHandle) {
        if let Some(owned) = self.owners.get_mut(owner)
            && owned.watch.is_none()
        {
            owned.watch = Some(TokenWatch(spawn()));
        }
    }

    /// Removes a session. With the last session of a credential, the watch of its token ends.
    pub(super) fn remove(&mut self, id: &SessionId) {
        let Some(Session { owner, .. }) = self.open.remove(id) else { return };
        if let Some(held) = self.companies.get_mut(&owner.company) {
            *held -= 1;
            if *held == 0 {
                self.companies.remove(&owner.company);
            }
        }
        if let Some(owned) = self.owners.get_mut(&owner.id) {
            owned.sessions.remove(id);
            if owned.sessions.is_empty() {
                self.owners.remove(&owner.id);
            }
        }
    }

    /// Removes all sessions of a credential; returns them and the runtime on which to close them.
    pub(super) fn remove_owner(&mut self, owner: &str) -> Option<(Vec<SessionId>, Handle)> {
        let owned = self.owners.get(owner)?;
        let (ids, runtime) = (owned.sessions.iter().cloned().collect::<Vec<_>>(), owned.runtime.clone());
        for id in &ids {
            self.remove(id);
        }
        Some((ids, runtime))
    }

    #[cfg(test)]
    pub(super) fn sizes(&self) -> [usize; 3] {
        [self.open.len(), self.owners.len(), self.companies.len()]
    }
}
