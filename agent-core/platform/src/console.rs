//! Sign-in to the console: one-time codes, and the sessions for which they are exchanged.
//!
//! Codes and session texts are 256 random bits. Only the SHA-256 of each is stored, as the record's id. So neither can
//! be read from the store, and a lookup compares no secrets. The records are the platform's, since the company is not
//! known before; an entry per user in the company's own records lists the user's sessions, so that they can be revoked
//! together. Stores do not cache, so a revocation counts from the next request on.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::ids::{IdError, WIDGET_USER_PREFIX, check_id};
use crate::known_companies::KnownCompanies;
use crate::records::{
    Collection, Key, ListQuery, MAX_ID_BYTES, Precondition, Record, Records, RecordsExt, StoreError, Write,
    to_json,
};
use crate::time::saturating_after;
use agent_core::clock::Clock;
use agent_core::ids::{CompanyId, UserId};
use agent_core::secret::Secret;

#[cfg(test)]
mod tests;

/// Platform's collection of codes, by the hash of the code.
const CODES: &str = "consoleCodes";
/// Platform's collection of sessions, by the hash of the session's text.
const SESSIONS: &str = "consoleSessions";
/// Collection of a company with the ids of each user's sessions, by user.
const USER_SESSIONS: &str = "consoleUserSessions";

/// Prefix of a session's text.
const SESSION_PREFIX: &str = "ags_";
const SECRET_BYTES: usize = 32;

/// Default lifetime of a code.
pub const DEFAULT_CODE_TTL: Duration = Duration::from_secs(10 * 60);
/// Maximum lifetime of a code.
pub const MAX_CODE_TTL: Duration = Duration::from_secs(60 * 60);
/// Time without a request after which a session ends, by default.
pub const DEFAULT_SESSION_IDLE: Duration = Duration::from_secs(12 * 60 * 60);
/// Maximum lifetime of a session, with requests or without.
pub const MAX_SESSION_TTL: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Maximum number of a user's sessions; a further one ends the oldest.
pub const MAX_SESSIONS_PER_USER: usize = 20;

/// Part of the idle time after which a request extends the session, so that most requests write nothing.
const REFRESH_DIVISOR: u32 = 24;
/// Number of codes that are examined for expired ones when a code is created.
const EXPIRED_CODE_SCAN_LIMIT: usize = 100;
/// Number of attempts if other processes change a user's sessions.
const ATTEMPTS: usize = 32;

/// Parameters of a code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewConsoleCode {
    /// The company of the user.
    pub company_id: CompanyId,
    /// The user whom the code signs in.
    pub user_id: UserId,
    /// Lifetime of the code, at most [`MAX_CODE_TTL`].
    pub ttl: Duration,
    /// Time without a request after which the session ends, at most [`MAX_SESSION_TTL`].
    pub session_idle: Duration,
}

impl NewConsoleCode {
    /// Creates the parameters of a code with the default times.
    pub fn new(company_id: impl Into<CompanyId>, user_id: impl Into<UserId>) -> Self {
        Self {
            company_id: company_id.into(),
            user_id: user_id.into(),
            ttl: DEFAULT_CODE_TTL,
            session_idle: DEFAULT_SESSION_IDLE,
        }
    }

    fn check(&self) -> Result<(), ConsoleError> {
        check_id(&self.user_id, MAX_ID_BYTES).map_err(ConsoleError::User)?;
        check_id(&self.company_id, MAX_ID_BYTES).map_err(ConsoleError::Company)?;
        if self.user_id.starts_with(WIDGET_USER_PREFIX) {
            return Err(ConsoleError::Visitor);
        }
        let is_within = |time: Duration, max| time >= Duration::from_secs(1) && time <= max;
        match is_within(self.ttl, MAX_CODE_TTL) && is_within(self.session_idle, MAX_SESSION_TTL) {
            true => Ok(()),
            false => Err(ConsoleError::Lifetime),
        }
    }
}

/// A created code.
#[derive(Debug, Clone)]
pub struct ConsoleCode {
    /// Text of the code, available only here.
    pub text: Secret,
    /// Expiry, to the millisecond.
    pub expires_at: Timestamp,
}

/// A session of the console.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConsoleSession {
    /// The company of the user.
    pub company_id: CompanyId,
    /// The signed-in user.
    pub user_id: UserId,
    /// Time of the sign-in.
    pub created_at: Timestamp,
    /// Time at which the session ends, unless a request extends it.
    pub expires_at: Timestamp,
    /// Time without a request after which the session ends, in seconds.
    idle_seconds: u64,
}

impl ConsoleSession {
    fn new(code: StoredCode, now: Timestamp) -> Self {
        let StoredCode { company_id, user_id, idle_seconds, .. } = code;
        let session = Self { company_id, user_id, created_at: now, expires_at: now, idle_seconds };
        session.with_extended_expiry(now)
    }

    fn idle(&self) -> Duration {
        Duration::from_secs(self.idle_seconds)
    }

    fn with_extended_expiry(mut self, now: Timestamp) -> Self {
        self.expires_at =
            saturating_after(now, self.idle()).min(saturating_after(self.created_at, MAX_SESSION_TTL));
        self
    }
}

/// A session that a code was exchanged for.
#[derive(Debug, Clone)]
pub struct OpenedConsoleSession {
    /// The session.
    pub session: ConsoleSession,
    /// Text of the session for the cookie, available only here: `ags_` and 43 characters of base64url.
    pub text: Secret,
}

/// Error of a sign-in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConsoleError {
    /// The code or the session is malformed, unknown, used, revoked or expired: all of them look alike to the sender.
    #[error("the code is unknown, used or expired")]
    Unknown,
    /// The user's id is not an identifier.
    #[error("userId {0}")]
    User(#[source] IdError),
    /// The company's id is not an identifier.
    #[error("companyId {0}")]
    Company(#[source] IdError),
    /// The user is a visitor of a widget.
    #[error("userId is that of a widget's visitor")]
    Visitor,
    /// A lifetime is shorter than a second or longer than its maximum.
    #[error("a code is valid for 1 second to 1 hour, and an idle session for 1 second to 7 days")]
    Lifetime,
    /// The operating system provides no random bytes.
    #[error("the operating system provides no random numbers")]
    Random(#[source] getrandom::Error),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredCode {
    company_id: CompanyId,
    user_id: UserId,
    expires_at: Timestamp,
    idle_seconds: u64,
}

/// The ids of a user's sessions, the oldest first. Ended sessions are removed when another session is opened.
#[derive(Default, Serialize, Deserialize)]
struct UserSessions {
    ids: Vec<String>,
}

/// The codes and sessions of a store.
pub struct ConsoleSessions {
    records: Arc<dyn Records>,
    clock: Arc<dyn Clock>,
    companies: KnownCompanies<String>,
}

impl std::fmt::Debug for ConsoleSessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConsoleSessions").finish_non_exhaustive()
    }
}

impl ConsoleSessions {
    /// Creates the service over `records`, with times from `clock`.
    pub fn new(records: Arc<dyn Records>, clock: Arc<dyn Clock>) -> Self {
        Self { records, clock, companies: KnownCompanies::default() }
    }

    /// Creates a code that signs a user in once.
    ///
    /// # Errors
    /// Every [`ConsoleError`] but [`ConsoleError::Unknown`].
    pub async fn create_code(&self, new: NewConsoleCode) -> Result<ConsoleCode, ConsoleError> {
        new.check()?;
        let now = self.now();
        let (secret, id) = random_secret()?;
        let NewConsoleCode { company_id, user_id, ttl, session_idle } = new;
        let expires_at = saturating_after(now, ttl);
        let stored = StoredCode { company_id, user_id, expires_at, idle_seconds: session_idle.as_secs() };
        let mut writes = self.expired_codes(&stored.company_id, now).await?;
        let key = key(CODES, id)?.counted_for(&stored.company_id);
        writes.push(put(key, &stored, Precondition::Absent)?);
        self.records.commit(writes).await?;
        Ok(ConsoleCode { text: Secret::new(secret), expires_at })
    }

    /// Exchanges a code for a session. Of several exchanges of one code, one succeeds.
    ///
    /// # Errors
    /// [`ConsoleError::Unknown`], [`ConsoleError::Random`] and [`ConsoleError::Store`].
    pub async fn open(&self, code: &str) -> Result<OpenedConsoleSession, ConsoleError> {
        let code_key = key(CODES, secret_id(code).ok_or(ConsoleError::Unknown)?)?;
        let (secret, id) = random_secret()?;
        let mut attempt = 1;
        loop {
            let now = self.now();
            let stored_code =
                self.records.get_as::<StoredCode>(&code_key).await?.ok_or(ConsoleError::Unknown)?;
            if stored_code.value.expires_at <= now {
                return Err(ConsoleError::Unknown);
            }
            let session = ConsoleSession::new(stored_code.value, now);
            let mut writes = vec![Write::Delete {
                key: code_key.clone(),
                precondition: Precondition::Version(stored_code.version),
            }];
            writes.extend(self.session_list_writes(&session, &id, now).await?);
            writes.push(put(key(SESSIONS, id.clone())?, &session, Precondition::Absent)?);
            match self.records.commit(writes).await {
                Ok(_) => {
                    let text = Secret::new(format!("{SESSION_PREFIX}{secret}"));
                    return Ok(OpenedConsoleSession { session, text });
                }
                Err(StoreError::Conflict { .. }) if attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns the session of a text, if it is valid now, and extends it.
    ///
    /// # Errors
    /// [`ConsoleError::Unknown`] and [`ConsoleError::Store`].
    pub async fn find(&self, text: &str) -> Result<ConsoleSession, ConsoleError> {
        let key = self.session_key(text)?;
        let now = self.now();
        let session_record =
            self.records.get_as::<ConsoleSession>(&key).await?.ok_or(ConsoleError::Unknown)?;
        let Record { value: session, version, .. } = session_record;
        self.companies.record(key.id().to_owned(), &session.company_id);
        let key = key.counted_for(&session.company_id);
        if session.expires_at <= now {
            return Err(ConsoleError::Unknown);
        }
        let extended = session.clone().with_extended_expiry(now);
        let gained =
            Duration::try_from(extended.expires_at.duration_since(session.expires_at)).unwrap_or_default();
        if gained < (session.idle() / REFRESH_DIVISOR).max(Duration::from_secs(1)) {
            return Ok(session);
        }
        match self.records.put_as(&key, &extended, Precondition::Version(version)).await {
            Ok(_) => Ok(extended),
            // Another request has extended it, or the session was revoked meanwhile.
            Err(StoreError::Conflict { found: Some(_), .. }) => Ok(session),
            Err(StoreError::Conflict { .. }) => Err(ConsoleError::Unknown),
            // A store that can be read and not written still answers reads.
            Err(StoreError::Unavailable(_)) => Ok(session),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends the session of a text. Returns true if it existed.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn revoke(&self, text: &str) -> Result<bool, StoreError> {
        match self.session_key(text) {
            Ok(key) => self.records.delete(&key, Precondition::Any).await,
            Err(ConsoleError::Store(error)) => Err(error),
            Err(_) => Ok(false),
        }
    }

    /// Ends all sessions of a user and returns their number.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn revoke_all(&self, company_id: &CompanyId, user_id: &UserId) -> Result<usize, StoreError> {
        let index = Key::new(company_id, USER_SESSIONS, user_id.as_str())?;
        let mut attempt = 1;
        loop {
            let Some(session_index) = self.records.get_as::<UserSessions>(&index).await? else {
                return Ok(0);
            };
            let precondition = Precondition::Version(session_index.version);
            let mut writes = vec![Write::Delete { key: index.clone(), precondition }];
            for id in session_index.value.ids {
                writes.push(Write::Delete { key: key(SESSIONS, id)?, precondition: Precondition::Any });
            }
            match self.records.commit(writes).await {
                Ok(versions) => return Ok(versions.into_iter().flatten().count().saturating_sub(1)),
                Err(StoreError::Conflict { .. }) if attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the writes that add a session to the user's list, and delete the sessions that it replaces.
    async fn session_list_writes(
        &self,
        session: &ConsoleSession,
        id: &str,
        now: Timestamp,
    ) -> Result<Vec<Write>, StoreError> {
        let index = Key::new(&session.company_id, USER_SESSIONS, session.user_id.as_str())?;
        let (list, precondition) = match self.records.get_as::<UserSessions>(&index).await? {
            Some(Record { value, version, .. }) => (value, Precondition::Version(version)),
            None => (UserSessions::default(), Precondition::Absent),
        };
        let sessions = Collection::of_platform(SESSIONS)?.counted_for(&session.company_id);
        let keys: Vec<Key> = list.ids.iter().map(|id| sessions.key(id.clone())).collect::<Result<_, _>>()?;
        let session_records = self.records.get_many_as::<ConsoleSession>(&keys).await?;
        let is_open = |record: &Option<Record<ConsoleSession>>| {
            record.as_ref().is_some_and(|record| record.value.expires_at > now)
        };
        let (mut open_keys, mut ended_keys): (Vec<Key>, Vec<Key>) = (Vec::new(), Vec::new());
        for (key, record) in keys.into_iter().zip(&session_records) {
            if is_open(record) { open_keys.push(key) } else { ended_keys.push(key) }
        }
        let surplus = (open_keys.len() + 1).saturating_sub(MAX_SESSIONS_PER_USER);
        ended_keys.extend(open_keys.drain(..surplus));
        let mut ids: Vec<String> = open_keys.iter().map(|key| key.id().to_owned()).collect();
        ids.push(id.to_owned());
        let mut writes = vec![put(index, &UserSessions { ids }, precondition)?];
        writes
            .extend(ended_keys.into_iter().map(|key| Write::Delete { key, precondition: Precondition::Any }));
        Ok(writes)
    }

    /// Returns the deletions of some expired codes; a company that creates a code performs them.
    async fn expired_codes(&self, company_id: &CompanyId, now: Timestamp) -> Result<Vec<Write>, StoreError> {
        let codes = Collection::of_platform(CODES)?.counted_for(company_id);
        let list = ListQuery { limit: Some(EXPIRED_CODE_SCAN_LIMIT), ..ListQuery::default() };
        let mut expired = Vec::new();
        for record in self.records.list(&codes, &list).await?.records {
            let record = record.parse::<StoredCode>(&codes)?;
            if record.value.expires_at <= now {
                expired.push(Write::Delete { key: codes.key(record.id)?, precondition: Precondition::Any });
            }
        }
        Ok(expired)
    }

    /// Returns the key of the session of a text.
    fn session_key(&self, text: &str) -> Result<Key, ConsoleError> {
        let id = text.strip_prefix(SESSION_PREFIX).and_then(secret_id).ok_or(ConsoleError::Unknown)?;
        Ok(self.companies.counted(&id, key(SESSIONS, id.clone())?))
    }

    fn now(&self) -> Timestamp {
        to_millis(self.clock.now())
    }
}

/// Returns a random secret in base64url, and the id under which it is stored.
fn random_secret() -> Result<(String, String), ConsoleError> {
    let mut bytes = [0; SECRET_BYTES];
    getrandom::fill(&mut bytes).map_err(ConsoleError::Random)?;
    Ok((URL_SAFE_NO_PAD.encode(bytes), digest(&bytes)))
}

/// Returns the id under which a secret is stored; `None` if the text is not a secret's.
fn secret_id(text: &str) -> Option<String> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    (bytes.len() == SECRET_BYTES).then(|| digest(&bytes))
}

fn digest(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(bytes))
}

fn key(collection: &str, id: String) -> Result<Key, StoreError> {
    Collection::of_platform(collection)?.key(id)
}

fn put(key: Key, value: &impl Serialize, precondition: Precondition) -> Result<Write, StoreError> {
    Ok(Write::Put { key, value: to_json(value)?, precondition })
}

/// Truncates a time to the precision that is shown.
fn to_millis(time: SystemTime) -> Timestamp {
    let time = Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH);
    Timestamp::from_millisecond(time.as_millisecond()).unwrap_or(time)
}
