//! [`PostgresJobs`]: job store in a PostgreSQL database that several machines share.
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | `address` | parsing of the server's URL, TLS configuration |
//! | `session` | connection pool, session settings, pipelined transactions |
//! | `schema` | tables and migrations |
//! | `listen` | `LISTEN` connection for notifications from other processes |
//! | `jobs` | statements that read, write and claim jobs |
//! | `fault` | error types |
//!
//! # Writes
//!
//! Each operation is one transaction. When it returns, its commit is on the server's disk: the store sets
//! `synchronous_commit` to `on` for each connection, unless the server is configured for more
//! (`remote_apply`), and regardless of the settings of the database or the role. [`Job::step`] computes state
//! transitions in this process while the rows are locked; all rows of an operation are written by one
//! statement.
//!
//! Any number of processes can share a database; there is no leader. A claim skips rows that other
//! transactions have locked (`SKIP LOCKED`), so no two claims return the same job and none waits for another.
//! Statements that wait for row locks take them in the order of ids, which prevents deadlocks.
//!
//! # Notifications
//!
//! `NOTIFY` takes a lock that all databases of a server share until its transaction is committed, so the
//! store notifies only when a job becomes the earliest of all. A listener can miss a notification that is
//! sent while the server restarts, or if the previous earliest job is removed at the same moment; the
//! scheduler therefore also polls.
//!
//! # Errors
//!
//! Every wait of an operation has a timeout: for a connection, for row locks, and for each response. On
//! failure it returns [`StoreError::Unavailable`] with a [`PostgresError`] as its source. The next operation starts
//! afresh: lost connections are replaced as soon as the server is back.
//!
//! Connections keep session settings and prepared statements, and one uses `LISTEN`, so a proxy in between
//! must not share server connections between sessions: of PgBouncer's pool modes, only `session` works.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use agent_core::ids::JobId;
use agent_jobs::job::{
    ClaimRequest, InsertOutcome, Job, JobCounts, JobFilter, JobOrder, JobPage, JobScope, JobStore, Step,
    StepOutcome, WakeSignal,
};
use agent_platform::records::StoreError;
use async_trait::async_trait;
use futures_util::stream::BoxStream;
use jiff::Timestamp;

use self::address::Address;
use self::fault::JobStoreError;
use self::listen::Listener;
use self::session::SessionPool;
use crate::job_row::UnreadableJobs;

mod address;
mod fault;
mod jobs;
mod listen;
mod schema;
mod session;

pub use fault::{PostgresError, PostgresErrorKind};

/// Configuration of [`PostgresJobs`].
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// Maximum number of pooled connections, at least one. One more connection is used for `LISTEN`. Default:
    /// 8.
    pub connections: usize,
    /// Timeout of connecting, unless the URL sets `connect_timeout`. Default: 5 seconds.
    pub connect_timeout: Duration,
    /// Timeout of waiting for a pooled connection while all are in use. Default: 5 seconds.
    pub wait_timeout: Duration,
    /// Timeout of a statement. Default: 30 seconds.
    pub statement_timeout: Duration,
    /// Timeout of waiting for a row lock. Default: 5 seconds.
    pub lock_timeout: Duration,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            connections: 8,
            connect_timeout: Duration::from_secs(5),
            wait_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(30),
            lock_timeout: Duration::from_secs(5),
        }
    }
}

/// Error of opening a database as a store. No variant contains the URL, which may contain a password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostgresOpenError {
    /// The URL is invalid. The text describes the error.
    #[error("the PostgreSQL URL is invalid: {0}")]
    Address(&'static str),
    /// The certificate file named by `sslrootcert` cannot be used.
    #[error("the certificate authorities in {} cannot be loaded: {why}", .path.display())]
    RootCertificates {
        /// File path.
        path: PathBuf,
        /// Description of the error.
        why: String,
    },
    /// The server version is not supported.
    #[error("the server is PostgreSQL {found}; 13 or newer is required")]
    Server {
        /// Major version of the server.
        found: i32,
    },
    /// The encoding of the database is not UTF-8, so it cannot store every text.
    #[error("the database encoding is {found}; UTF8 is required")]
    Encoding {
        /// Encoding of the database.
        found: String,
    },
    /// The database is read-only: it is a standby, or is configured as read-only.
    #[error("the database is read-only")]
    ReadOnly,
    /// The schema `scheduler` contains tables of another program.
    #[error("the schema \"scheduler\" contains tables of another program")]
    OtherProgram,
    /// The schema was written by a newer version of this program.
    #[error("the schema \"scheduler\" has version {found}, and this program knows versions up to {known}")]
    Newer {
        /// Schema version of the database.
        found: i32,
        /// Newest schema version that this program supports.
        known: i32,
    },
    /// The server denied access to the user, or the right to create the tables.
    #[error("the database server denied permission")]
    Denied(#[source] PostgresError),
    /// The server cannot be reached.
    #[error("the database server cannot be reached")]
    Unreachable(#[source] PostgresError),
    /// Any other error, given by the source.
    #[error("the database cannot be opened")]
    Failed(#[source] PostgresError),
}

impl From<PostgresError> for PostgresOpenError {
    fn from(fault: PostgresError) -> Self {
        match fault.kind() {
            PostgresErrorKind::ReadOnly => Self::ReadOnly,
            PostgresErrorKind::Denied => Self::Denied(fault),
            PostgresErrorKind::Unreachable => Self::Unreachable(fault),
            _ => Self::Failed(fault),
        }
    }
}

/// [`JobStore`] in the schema `scheduler` of a PostgreSQL database. See the [module documentation](self) for
/// its guarantees.
pub struct PostgresJobs {
    sessions: SessionPool,
    /// Unique name of this store in notifications, so that its listener ignores its own.
    sender_id: String,
    /// Signal for subscribers of [`wakes`](JobStore::wakes), given when another job becomes the earliest.
    signal: WakeSignal,
    unreadable: UnreadableJobs,
    _listener: Listener,
}

impl PostgresJobs {
    /// Connects to the server at `url`, `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, and creates the tables
    /// or migrates them from an older version. Concurrent migrations by several processes wait for one
    /// another.
    ///
    /// libpq's connection parameters may follow after a `?`, such as `target_session_attrs=read-write` with
    /// several hosts. With `sslmode=require` or `verify-full` the connection is encrypted, and the server's
    /// certificate and name are verified against the root certificates compiled in, or against those in the
    /// PEM file named by `sslrootcert`. With `sslmode=disable`, or without `sslmode`, the connection is not
    /// encrypted.
    ///
    /// This and all other methods must be called within a tokio runtime.
    ///
    /// # Errors
    /// See [`PostgresOpenError`].
    pub async fn open(url: &str, options: PostgresOptions) -> Result<Self, PostgresOpenError> {
        let address = Address::parse(url, options.connect_timeout)?;
        let sessions = SessionPool::new(&address, &options)?;
        let mut session = sessions.get().await?;
        // On an error, the session is dropped, which closes the connection and rolls back an open migration.
        schema::ensure_schema(&mut session).await?;
        drop(session);
        let name = uuid::Uuid::new_v4().to_string();
        let signal = WakeSignal::default();
        let limit = options.connect_timeout * 4;
        let listener = Listener::start(address, limit, name.clone(), signal.clone()).await?;
        let unreadable = UnreadableJobs::default();
        Ok(Self { sessions, sender_id: name, signal, unreadable, _listener: listener })
    }

    async fn commit_steps(
        &self,
        scope: &JobScope,
        steps: Vec<(JobId, Step)>,
        now: Timestamp,
    ) -> Result<Vec<StepOutcome>, StoreError> {
        let ids: Vec<JobId> = steps.iter().map(|(id, _)| id.clone()).collect();
        let session = self.sessions.get().await.map_err(JobStoreError::from)?;
        let done = jobs::apply_steps(&session, scope, steps, now, &self.sender_id).await;
        let outcomes = self.signal_if_earliest(session.release(done).await)?;
        self.unreadable.record_outcomes(ids.iter(), &outcomes);
        Ok(outcomes)
    }

    /// Unwraps the result of a transaction and gives the signal if another job has become the earliest.
    fn signal_if_earliest<T>(&self, done: Result<(T, bool), JobStoreError>) -> Result<T, StoreError> {
        let (done, is_earliest) = done?;
        if is_earliest {
            self.signal.notify();
        }
        Ok(done)
    }
}

impl fmt::Debug for PostgresJobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresJobs").finish_non_exhaustive()
    }
}

#[async_trait]
impl JobStore for PostgresJobs {
    async fn insert(&self, jobs: Vec<Job>) -> Result<Vec<InsertOutcome>, StoreError> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let session = self.sessions.get().await.map_err(JobStoreError::from)?;
        let done = jobs::insert(&session, jobs, &self.sender_id).await;
        self.signal_if_earliest(session.release(done).await)
    }

    async fn get(&self, scope: &JobScope, id: &JobId) -> Result<Option<Job>, StoreError> {
        let session = self.sessions.get().await.map_err(JobStoreError::from)?;
        let done = jobs::get(&session, scope, id).await;
        let found = session.release(done).await.map_err(StoreError::from);
        found.inspect_err(|error| self.unreadable.record_error(error))
    }

    async fn list(
        &self,
        filter: &JobFilter,
        order: JobOrder,
        after: Option<&JobId>,
        limit: usize,
    ) -> Result<JobPage, StoreError> {
        let session = self.sessions.get().await.map_err(JobStoreError::from)?;
        let done = jobs::list(&session, filter, order, after.map(JobId::as_str), limit).await;
        let page = session.release(done).await?;
        page.unreadable.iter().for_each(|id| self.unreadable.record(id));
        Ok(page)
    }

    async fn count(&self, filter: &JobFilter) -> Result<u64, StoreError> {
        let session = self.sessions.get().await.map_err(JobStoreError::from)?;
        let done = jobs::count(&session, filter).await;
        Ok(session.release(done).await?)
    }

    async fn apply_step(
        &self,
        scope: &JobScope,
        id: &JobId,
        step: Step,
        now: Timestamp,
    ) -> Result<StepOutcome, StoreError> {
        let outcome = self.commit_steps(scope, vec![(id.to_owned(), step)], now).await?.pop();
        Ok(outcome.unwrap_or(StepOutcome::NotFound))
    }

    async fn apply_steps(
        &self,
        steps: Vec<(JobId, Step)>,
        now: Timestamp,
    ) -> Result<Vec<StepOutcome>, StoreError> {
        if steps.is_empty() {
            return Ok(Vec::new());
        }
        self.commit_steps(&JobScope::default(), steps, now).await
    }

    async fn claim_due(&self, claim: ClaimRequest) -> Result<Vec<Job>, StoreError> {
        let session = self.sessions.get().await.map_err(JobStoreError::from)?;
        let done = jobs::claim(&session, claim).await;
        let claimed = session.release(done).await?;
        claimed.unreadable.iter().for_each(|id| self.unreadable.record(id));
        Ok(claimed.jobs)
    }

    async fn next_run_at(&self) -> Result<Option<Timestamp>, StoreError> {
        let session = self.sessions.get().await.map_err(JobStoreError::from)?;
        let done = jobs::earliest(&session).await;
        Ok(session.release(done).await?)
    }

    async fn count_by_state(&self, now: Timestamp) -> Result<JobCounts, StoreError> {
        let session = self.sessions.get().await.map_err(JobStoreError::from)?;
        let done = jobs::counts(&session, now).await;
        Ok(JobCounts { unreadable: self.unreadable.count(), ..session.release(done).await? })
    }

    async fn purge(&self, ended_before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let session = self.sessions.get().await.map_err(JobStoreError::from)?;
        let done = jobs::purge(&session, ended_before, limit).await;
        Ok(session.release(done).await?)
    }

    fn notifications(&self) -> BoxStream<'static, ()> {
        self.signal.subscribe()
    }
}
