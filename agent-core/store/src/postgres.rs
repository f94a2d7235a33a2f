//! Stores in a PostgreSQL database that several processes and machines share: [`PostgresRecords`] in the schema `app`,
//! [`PostgresJobs`] in the schema `scheduler`.
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | `address` | parsing of the server's URL, TLS configuration |
//! | `session`, `param` | connection pool, settings, pipelined transactions; types of parameters |
//! | `schema` | tables and migrations |
//! | `record_store`, `records` | records: reads, commits, change feed |
//! | `conversations` | threads, nodes, runs and their logs |
//! | `usage` | the calls of models and tools, and their sums |
//! | `fair_queue`, `owner` | round-robin permits, and the company of an operation |
//! | `job_store`, `jobs`, `listen` | jobs: statements, `LISTEN` connection for notifications from other processes |
//! | `copy` | source and target of a copy of a whole database |
//! | `error` | error types |
//!
//! # Addresses
//!
//! A URL has the form `postgres://USER:PASSWORD@HOST:PORT/DATABASE`. libpq's connection parameters may follow after a
//! `?`, such as `target_session_attrs=read-write` with several hosts. With `sslmode=require` or `verify-full` the
//! connection is encrypted, and the server's certificate and name are verified against the root certificates compiled
//! in, or against those in the PEM file named by `sslrootcert`. With `sslmode=disable`, or without `sslmode`, the
//! connection is not encrypted.
//!
//! # Durability
//!
//! Each operation is one transaction. When it returns, its commit is on the server's disk: the store sets
//! `synchronous_commit` to `on` for each connection, unless the server is configured for more (`remote_apply`), and
//! regardless of the settings of the database or the role.
//!
//! # Records
//!
//! A commit takes advisory locks on its keys, in the order of their hashes, reads the rows, decides in this process, and writes:
//! two network round trips. Locks of keys rather than rows also cover records that do not exist, so that a check of an absent
//! record holds until the commit. Commits of one company that arrive while others are in progress share a transaction, so that a
//! counter that many runs increment costs one flush for many of them. A commit that needs a key or row that another transaction
//! has locked is removed from the transaction after a short time and waits separately. The few commits of several companies that
//! wait for connections share a transaction that waits for no lock. Versions come from a sequence, and are taken under the lock.
//!
//! Reads are cached in the process. Every commit writes the keys that it changed into the table `change`, together with
//! its transaction id, and each process reads every 50 ms the rows that its previous snapshot did not show. A
//! transaction that commits late is therefore not missed, and an open transaction delays no other. Guarantees:
//!
//! - after a write of this process has returned, every later read of it sees the write;
//! - a write of another process is visible at most 100 ms after its commit; if the feed cannot be read that recently,
//!   the cache is bypassed;
//! - collections of the platform itself, such as tokens, and used run ids are never cached.
//!
//! The connections of a pool, of records as of jobs, are granted round-robin to the companies that wait, and no company holds
//! all of them. Records of the platform that are about one company, such as its meters, are counted as the company's; reads
//! of others, such as tokens, are queued by record. A commit that finds a lock held gives its connection back; such commits
//! then wait on half of the connections, one for each company.
//!
//! # Jobs
//!
//! [`Job::step`](agent_jobs::job::Job::step) computes state transitions in this process while the rows are locked; all
//! rows of an operation are written by one statement. Any number of processes can share a database; there is no leader.
//! A claim skips rows that other transactions have locked (`SKIP LOCKED`), so no two claims return the same job and none
//! waits for another. Statements that wait for row locks take them in the order of ids, which prevents deadlocks.
//!
//! `NOTIFY` takes a lock that all databases of a server share until its transaction is committed, so the
//! store notifies only when a job becomes the earliest of all. A listener can miss a notification that is
//! sent while the server restarts, or if the previous earliest job is removed at the same moment; the
//! scheduler therefore also polls.
//!
//! # Errors
//!
//! Every wait of an operation has a timeout: for commits before it, for a connection, for locks, and for each response. On
//! failure it returns [`StoreError::Unavailable`](agent_platform::records::StoreError::Unavailable) with a
//! [`PostgresError`] as its source. The next operation starts afresh: lost connections are replaced as soon as the server
//! is back.
//!
//! # Poolers
//!
//! Connections keep settings and prepared statements, and that of the scheduler's jobs uses `LISTEN`. Behind a pooler
//! that shares the server's connections between transactions, as PgBouncer does with `pool_mode = transaction`, the URL
//! needs `pool_mode=transaction`: each statement then is in a transaction that begins with the settings, statements are
//! unnamed, and there is no `LISTEN`. No feature of a particular version of a pooler is needed. A pooler that is not named
//! is refused when it is noticed. Pooling of statements is not supported.

use std::path::PathBuf;
use std::time::Duration;

use agent_platform::records::MAX_VALUE_BYTES;

mod address;
mod conversations;
#[cfg(feature = "sqlite")]
pub(crate) mod copy;
mod error;
mod fair_queue;
mod job_store;
mod jobs;
mod listen;
mod lock_wait;
mod param;
mod record_store;
mod records;
mod schema;
mod session;
mod usage;

pub use address::check_url;
pub use error::{PostgresError, PostgresErrorKind};
pub use job_store::PostgresJobs;
pub use record_store::PostgresRecords;
pub use schema::{MigrationStatus, migrate, migration_status};

/// Configuration of a store.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// Maximum number of pooled connections, at least one. One more is used for notifications or the change feed.
    /// Default: 8.
    pub connections: usize,
    /// Timeout of connecting, unless the URL sets `connect_timeout`. Default: 5 seconds.
    pub connect_timeout: Duration,
    /// Timeout of waiting for a pooled connection while all are in use. Default: 5 seconds.
    pub wait_timeout: Duration,
    /// Timeout of a statement. Default: 30 seconds.
    pub statement_timeout: Duration,
    /// Timeout of waiting for a lock. Default: 5 seconds.
    pub lock_timeout: Duration,
    /// Approximate size of the read cache of records in bytes; 0 disables it. Default: 32 MiB.
    pub cache_bytes: usize,
    /// Maximum size of one record's value as JSON text, in bytes. Default: [`MAX_VALUE_BYTES`].
    pub max_value_bytes: usize,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            connections: 8,
            connect_timeout: Duration::from_secs(5),
            wait_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(30),
            lock_timeout: Duration::from_secs(5),
            cache_bytes: 32 << 20,
            max_value_bytes: MAX_VALUE_BYTES,
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
    /// The schema contains tables of another program.
    #[error("the schema \"{schema}\" contains tables of another program")]
    OtherProgram {
        /// Name of the schema.
        schema: &'static str,
    },
    /// The schema was written by a newer version of this program that this one is not compatible with.
    #[error(
        "the schema \"{schema}\" has version {found}, and this program knows versions up to {known}: update this program"
    )]
    Newer {
        /// Name of the schema.
        schema: &'static str,
        /// Schema version of the database.
        found: i32,
        /// Newest schema version that this program supports.
        known: i32,
    },
    /// A pooler shares the server's connections between sessions, and the URL does not say so.
    #[error(
        "a connection pooler shares the server's connections between sessions: add pool_mode=transaction to the URL's \
         options, or let the pooler use session mode"
    )]
    SharedConnections,
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
    fn from(error: PostgresError) -> Self {
        match error.kind() {
            PostgresErrorKind::ReadOnly => Self::ReadOnly,
            PostgresErrorKind::Denied => Self::Denied(error),
            PostgresErrorKind::Unreachable => Self::Unreachable(error),
            _ => Self::Failed(error),
        }
    }
}
