//! [`SqliteStore`]: records and jobs in one SQLite file.
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | `file` | opening of the file and its connections, errors of opening |
//! | `schema` | tables and migrations |
//! | `rows` | statements that read and write records |
//! | `jobs` | statements that read, write and claim jobs |
//! | `conversations` | statements that read and write threads, nodes, runs and their logs |
//! | `usage` | statements that book and sum up the calls of models and tools |
//! | `write_op` | write operations, each applied as a whole or not at all |
//! | `writer` | the writer thread and its group commit |
//! | `readers` | the reader threads |
//! | `operation_queue` | queues of both, round-robin by company |
//! | `spin` | brief polling of queues before a thread or task sleeps |
//! | `change_tracker` | cache invalidation by writes of this process and of other processes |
//! | `backup` | online backup and integrity check |
//! | `copy` | source and target of a copy of a whole database |
//!
//! # Writes
//!
//! SQLite allows one writer at a time, so the store has a single writer thread; more would only wait for one
//! another's locks. Commits are queued, and the thread runs all queued commits in one transaction (group
//! commit), because the expensive part of a transaction is the disk flush. A commit that is rejected, such as
//! by a failed precondition, undoes itself only: if it has already written something, the commits before and
//! after it run in separate transactions. A transaction takes the commits of all companies round-robin, each
//! company's in the order of their arrival, so that a company with many commits does not delay those of other companies.
//!
//! The journal is a write-ahead log with `synchronous=FULL`: a commit returns after the log has been flushed
//! to disk. Acknowledged commits survive a crash of the process and a power failure, provided that the disk
//! honours flushes.
//!
//! # Reads
//!
//! A few reader threads each read from a snapshot, which neither blocks the writer nor is affected by it. A
//! cache precedes them; a cache hit runs no statement and switches no thread. Companies alternate, and the reads
//! of one company use three quarters of the threads at most. Guarantees:
//!
//! - after a write of this process has returned, every later read sees it, as without a cache;
//! - records read together are from one snapshot, as without a cache;
//! - a write of another process to the same file is visible at most [`MAX_STALENESS`] after its commit, and
//!   at once to a read that misses the cache. The other process must write through this store, which counts
//!   every change; after an edit of the file by other means, all processes must be restarted;
//! - collections of the platform itself, such as tokens and the index of agents, are never cached, so that a
//!   revocation takes effect in every process at its commit; nor are used run ids, and pages of the
//!   collections that quotas sum up.
//!
//! # Closing
//!
//! Dropping the store finishes the queued work, ends its threads and closes the file; the drop blocks for
//! that long. A commit whose caller was cancelled is applied as a whole or not at all.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use agent_jobs::job::WakeSignal;
use agent_platform::records::{
    Collection, Inventory, Key, ListQuery, Page, Precondition, Record, Records, StoreError, Write,
    WriterPermit, WriterQueues, check_writes,
};
use async_trait::async_trait;
use serde_json::value::RawValue;

use self::change_tracker::ChangeTracker;
use self::readers::Readers;
use self::version_cache::VersionCache;
use self::writer::WriterHandle;
use crate::counters::AtomicCounters;
pub use crate::counters::StoreCounters;
use crate::job_row::UnreadableJobs;
use crate::owner::{owner_of_collection, owner_of_keys};
use crate::read_cache::{PageKey, ReadCache};

mod backup;
mod change_tracker;
mod claimed_jobs;
mod conversations;
#[cfg(feature = "postgres")]
pub(crate) mod copy;
#[cfg(feature = "postgres")]
mod copy_folder;
mod error;
mod file;
mod jobs;
mod open_error;
mod operation_queue;
mod options;
mod readers;
mod rows;
mod schema;
mod spin;
mod usage;
mod version_cache;
mod write_op;
mod writer;

pub use backup::BackupError;
pub use change_tracker::MAX_STALENESS;
pub use error::{SqliteError, SqliteErrorKind};
pub use open_error::SqliteOpenError;
pub use options::SqliteOptions;
pub use schema::schema_versions;
pub use spin::SpinOptions;

/// Name of the platform's collection of records that are written to find out if the file can be.
const PROBES: &str = "probes";

/// [`Records`] and [`JobStore`](agent_jobs::job::JobStore) in one SQLite file. See the [module
/// documentation](self) for its guarantees.
pub struct SqliteStore {
    path: PathBuf,
    max_value_bytes: usize,
    counts: Arc<AtomicCounters>,
    cache: Option<ReadCache<ChangeTracker>>,
    /// Signal for subscribers of [`wakes`](agent_jobs::job::JobStore::wakes), given when another job becomes
    /// the earliest.
    signal: WakeSignal,
    unreadable: UnreadableJobs,
    versions: Arc<VersionCache>,
    queues: WriterQueues,
    // Fields are dropped in this order: the writer closes the file last, which checkpoints and removes the
    // write-ahead log.
    readers: Readers,
    writers: WriterHandle,
}

impl SqliteStore {
    /// Opens the file at `path`, migrating it from an older version if needed. Creates the file if it does
    /// not exist, accessible to its owner only. Blocking; needs no async runtime.
    ///
    /// # Errors
    /// See [`SqliteOpenError`].
    pub fn open(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, SqliteOpenError> {
        let path = file::absolute(path.as_ref())?;
        let (writer, version) = file::open(&path, &options)?;
        let counts = Arc::new(AtomicCounters::default());
        let freshness = Arc::new(ChangeTracker::new(Arc::clone(&options.clock), version));
        let readers = Readers::start(&path, &options, &freshness, &counts)?;
        let cache = (options.cache_bytes > 0).then(|| ReadCache::new(options.cache_bytes, &freshness));
        let signal = WakeSignal::default();
        let writers = WriterHandle::start(writer, &options, freshness, Arc::clone(&counts), signal.clone())
            .map_err(|error| SqliteOpenError::failed(&path, error))?;
        let (max_value_bytes, unreadable) = (options.max_value_bytes, UnreadableJobs::default());
        let (versions, queues) = (Arc::default(), WriterQueues::default());
        Ok(Self {
            path,
            max_value_bytes,
            counts,
            cache,
            signal,
            unreadable,
            versions,
            queues,
            readers,
            writers,
        })
    }

    /// Returns the absolute path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the counters since the store was opened.
    pub fn counters(&self) -> StoreCounters {
        self.counts.read()
    }

    /// Copies a consistent snapshot into a new file at `to`, while the store is in use. The file appears when
    /// it is complete and flushed to disk. It is accessible to its owner only.
    ///
    /// # Errors
    /// See [`BackupError`]. An existing file is not overwritten.
    pub async fn backup(&self, to: impl AsRef<Path>) -> Result<(), BackupError> {
        backup::copy(self.path.clone(), to.as_ref().to_owned()).await
    }

    /// Checks that the file can be written: by a write if the last one failed.
    async fn probe_writes(&self) -> Result<(), StoreError> {
        if !self.counts.is_failing.load(Ordering::Relaxed) {
            return Ok(());
        }
        let key = Collection::of_platform(PROBES)?.key("write")?;
        let value = RawValue::TRUE.to_owned().into();
        self.writers.commit("", vec![Write::Put { key, value, precondition: Precondition::Any }]).await?;
        Ok(())
    }

    /// Checks the integrity of the whole file. Returns SQLite's findings, at most a hundred; empty if there
    /// are none.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if the file cannot be read.
    pub async fn check_integrity(&self) -> Result<Vec<String>, StoreError> {
        backup::check(self.path.clone()).await.map_err(StoreError::unavailable)
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.path).finish_non_exhaustive()
    }
}

#[async_trait]
impl Records for SqliteStore {
    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let read = async {
            let (company, keys) = (owner_of_keys(keys), keys.to_vec());
            self.readers.read(&company, move |rows| rows.get_many(&keys)).await
        };
        match &self.cache {
            Some(cache) => cache.get_many(keys, read).await,
            None => read.await,
        }
    }

    async fn versions(&self, keys: &[Key]) -> Result<Vec<Option<u64>>, StoreError> {
        let company = owner_of_keys(keys);
        let (keys, memo) = (keys.to_vec(), Arc::clone(&self.versions));
        let read =
            self.readers.read_with_counter(&company, move |rows, counter| memo.versions(rows, counter, keys));
        read.await
    }

    async fn acquire_writer_permit(&self, key: &Key) -> WriterPermit {
        self.queues.acquire(key).await
    }

    async fn list(&self, collection: &Collection, list: &ListQuery) -> Result<Page, StoreError> {
        let after = list.after()?;
        let read = async {
            let (company, collection, list) =
                (owner_of_collection(collection), collection.clone(), list.clone());
            self.readers.read(&company, move |rows| rows.list(&collection, &list, after.as_deref())).await
        };
        match &self.cache {
            Some(cache) => cache.list(PageKey::new(collection, list), read).await,
            None => read.await,
        }
    }

    async fn check_writable(&self) -> Result<(), StoreError> {
        self.probe_writes().await
    }

    async fn count(&self, collection: &Collection) -> Result<u64, StoreError> {
        let (company, collection) = (owner_of_collection(collection), collection.clone());
        self.readers.read(&company, move |rows| rows.count(&collection)).await
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError> {
        check_writes(&writes, self.max_value_bytes)?;
        if writes.is_empty() {
            return Ok(Vec::new());
        }
        self.writers.commit(&owner_of_keys(writes.iter().map(Write::key)), writes).await
    }
}

#[async_trait]
impl Inventory for SqliteStore {
    async fn companies(&self, after: Option<&str>) -> Result<Vec<String>, StoreError> {
        let after = after.unwrap_or_default().to_owned();
        self.readers.read("", move |rows| rows.companies(&after)).await
    }

    async fn collections(&self, company: &str, after: Option<&str>) -> Result<Vec<Collection>, StoreError> {
        let (owner, after) = (company.to_owned(), after.unwrap_or_default().to_owned());
        self.readers.read(company, move |rows| rows.collections(&owner, &after)).await
    }
}
