//! [`PostgresJobs`]: jobs in a PostgreSQL database, for several machines.
//!
//! # The map
//!
//! | module | what |
//! |---|---|
//! | `address` | the server's address, and whether the way to it is encrypted |
//! | `session` | connections, what holds for each, and transactions in as few round trips as can be |
//! | `schema` | the tables, and the steps from one version of them to the next |
//! | `listen` | hearing from other processes that a job has become the earliest |
//! | `jobs` | the statements that read and write jobs, and which of them are claimed |
//! | `fault` | every way in which that fails |
//!
//! # Writing
//!
//! Each operation is one transaction, and what it has acknowledged is on the server's disk:
//! `synchronous_commit` is `on` for every connection of the store, unless the server asks for more
//! (`remote_apply`), whatever the database or the role is set to. What becomes of jobs is decided here, by
//! [`Job::step`], while their rows are locked; all rows of an operation are written by one statement.
//!
//! Any number of processes share a database, without a leader. A claim passes the rows that others have locked
//! (`SKIP LOCKED`), so no two get the same job and none waits for another. Who waits for rows, waits for them in
//! the order of their ids, so that no two wait for one another.
//!
//! # Waking
//!
//! A notification takes a lock that all databases of a server share until its transaction is committed, so one is sent
//! only where a job becomes the earliest of all. Who waits may miss one that is sent while the server restarts, or where the
//! job that was the earliest goes away at the same moment; so it looks by itself from time to time.
//!
//! # Failing
//!
//! An operation waits for a bounded time only: for a connection, for rows, and for each answer. Whatever happens,
//! it gives [`StoreError::Unavailable`] with a [`Fault`] as its source, and the next one begins anew: connections
//! that were lost are replaced as soon as the server is back.
//!
//! Connections keep their settings and prepared statements, and one listens, so a proxy in between must leave a
//! session its connection: of PgBouncer's modes, `session` alone.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use agent_core::job::{
    Claim, Inserted, Job, JobCounts, JobFilter, JobPage, JobStore, Refusal, Scope, Step, Stepped, WakeSignal,
};
use agent_platform::records::StoreError;
use async_trait::async_trait;
use futures_util::stream::BoxStream;
use jiff::Timestamp;

use self::address::Address;
use self::fault::Halt;
use self::listen::Listener;
use self::session::Sessions;

mod address;
mod fault;
mod jobs;
mod listen;
mod schema;
mod session;

pub use fault::{Fault, FaultKind};

/// How a [`PostgresJobs`] runs.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// How many connections are kept at most, at least one; one more listens. 8 unless told otherwise.
    pub connections: usize,
    /// How long making a connection may take, unless the address has a `connect_timeout`. 5 seconds unless told
    /// otherwise.
    pub connect_timeout: Duration,
    /// How long a caller waits for a connection while all are in use. 5 seconds unless told otherwise.
    pub wait_timeout: Duration,
    /// How long a statement may take. 30 seconds unless told otherwise.
    pub statement_timeout: Duration,
    /// How long a row is waited for that others have locked. 5 seconds unless told otherwise.
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

/// Why a database cannot be opened as a store. No variant shows the address, which may have a password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The address cannot be read; the text says what is wrong with it.
    #[error("the PostgreSQL address cannot be used: {0}")]
    Address(&'static str),
    /// The file that `sslrootcert` names cannot be used.
    #[error("the authorities in {} cannot be used: {why}", .path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The server is too old.
    #[error("the server is PostgreSQL {found}, and 13 or newer is needed")]
    Server {
        /// Its major version.
        found: i32,
    },
    /// The database cannot keep every text.
    #[error("the database is encoded as {found}, and UTF8 is needed")]
    Encoding {
        /// Its encoding.
        found: String,
    },
    /// The database takes no writes: it is a standby, or was made read-only.
    #[error("the database takes no writes")]
    ReadOnly,
    /// The schema `scheduler` belongs to another program.
    #[error("the schema \"scheduler\" has tables of another program")]
    OtherProgram,
    /// A newer version of this program has written the database.
    #[error("the schema \"scheduler\" has version {found}, and this program knows versions up to {known}")]
    Newer {
        /// The database's version.
        found: i32,
        /// The newest version that this program knows.
        known: i32,
    },
    /// The server does not let this user in, or does not let him make the tables.
    #[error("the database server does not permit it")]
    Denied(#[source] Fault),
    /// No connection can be had.
    #[error("the database server cannot be reached")]
    Unreachable(#[source] Fault),
    /// Anything else; the source says what.
    #[error("the database cannot be opened")]
    Failed(#[source] Fault),
}

impl From<Fault> for OpenError {
    fn from(fault: Fault) -> Self {
        match fault.kind() {
            FaultKind::ReadOnly => Self::ReadOnly,
            FaultKind::Denied => Self::Denied(fault),
            FaultKind::Unreachable => Self::Unreachable(fault),
            _ => Self::Failed(fault),
        }
    }
}

/// [Jobs](JobStore) in the schema `scheduler` of a PostgreSQL database. The [module](self) says what it promises.
pub struct PostgresJobs {
    sessions: Sessions,
    /// Who this is to those who listen, so that none hears itself.
    name: String,
    /// Given where another job has become the earliest.
    signal: WakeSignal,
    _listener: Listener,
}

impl PostgresJobs {
    /// Connects to the server at `url`, `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, and makes the tables if they
    /// are not there; those of an older version of this program are brought up to date. Processes that do so
    /// at the same time wait for one another.
    ///
    /// The options of libpq's addresses may follow after a `?`, such as `target_session_attrs=read-write` after
    /// several hosts. With `sslmode=require` or `verify-full` the connection is encrypted, and the
    /// server's certificate and name are verified by the authorities that are compiled in, or by those in the PEM
    /// file that `sslrootcert` names; without, or with `disable`, it is not.
    ///
    /// Belongs into a tokio runtime, as does every later use.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn open(url: &str, options: PostgresOptions) -> Result<Self, OpenError> {
        let address = Address::parse(url, options.connect_timeout)?;
        let sessions = Sessions::new(&address, &options)?;
        let mut session = sessions.get().await?;
        // What is refused halfway is undone when the connection is closed.
        schema::bring_up(&mut session).await?;
        drop(session);
        let name = uuid::Uuid::new_v4().to_string();
        let signal = WakeSignal::default();
        let limit = options.connect_timeout * 4;
        let listener = Listener::start(address, limit, name.clone(), signal.clone()).await?;
        Ok(Self { sessions, name, signal, _listener: listener })
    }

    /// What has come of a transaction; gives the signal where it says that a job has become the earliest.
    fn told<T>(&self, done: Result<(T, bool), Halt>) -> Result<T, StoreError> {
        let (done, is_earliest) = done?;
        if is_earliest {
            self.signal.give();
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
    async fn insert(&self, jobs: Vec<Job>) -> Result<Vec<Inserted>, StoreError> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let session = self.sessions.get().await.map_err(Halt::from)?;
        let done = jobs::insert(&session, jobs, &self.name).await;
        self.told(session.end(done).await)
    }

    async fn get(&self, scope: &Scope, id: &str) -> Result<Option<Job>, StoreError> {
        let session = self.sessions.get().await.map_err(Halt::from)?;
        let done = jobs::get(&session, scope, id).await;
        Ok(session.end(done).await?)
    }

    async fn list(
        &self,
        filter: &JobFilter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<JobPage, StoreError> {
        let session = self.sessions.get().await.map_err(Halt::from)?;
        let done = jobs::list(&session, filter, after, limit).await;
        Ok(session.end(done).await?)
    }

    async fn step(
        &self,
        scope: &Scope,
        id: &str,
        step: Step,
        now: Timestamp,
    ) -> Result<Option<Result<Stepped, Refusal>>, StoreError> {
        let session = self.sessions.get().await.map_err(Halt::from)?;
        let done = jobs::steps(&session, scope, vec![(id.to_owned(), step)], now, &self.name).await;
        Ok(self.told(session.end(done).await)?.pop().flatten())
    }

    async fn steps(
        &self,
        steps: Vec<(String, Step)>,
        now: Timestamp,
    ) -> Result<Vec<Option<Result<Stepped, Refusal>>>, StoreError> {
        if steps.is_empty() {
            return Ok(Vec::new());
        }
        let session = self.sessions.get().await.map_err(Halt::from)?;
        let done = jobs::steps(&session, &Scope::default(), steps, now, &self.name).await;
        self.told(session.end(done).await)
    }

    async fn cancel_all(&self, filter: &JobFilter, now: Timestamp) -> Result<u64, StoreError> {
        let session = self.sessions.get().await.map_err(Halt::from)?;
        let done = jobs::cancel_all(&session, filter, now).await;
        Ok(session.end(done).await?)
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<Job>, StoreError> {
        let session = self.sessions.get().await.map_err(Halt::from)?;
        let done = jobs::claim(&session, claim).await;
        Ok(session.end(done).await?)
    }

    async fn earliest(&self) -> Result<Option<Timestamp>, StoreError> {
        let session = self.sessions.get().await.map_err(Halt::from)?;
        let done = jobs::earliest(&session).await;
        Ok(session.end(done).await?)
    }

    async fn counts(&self, now: Timestamp) -> Result<JobCounts, StoreError> {
        let session = self.sessions.get().await.map_err(Halt::from)?;
        let done = jobs::counts(&session, now).await;
        Ok(session.end(done).await?)
    }

    async fn purge(&self, ended_before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let session = self.sessions.get().await.map_err(Halt::from)?;
        let done = jobs::purge(&session, ended_before, limit).await;
        Ok(session.end(done).await?)
    }

    fn wakes(&self) -> BoxStream<'static, ()> {
        self.signal.given()
    }
}
