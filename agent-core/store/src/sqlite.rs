//! [`SqliteStore`]: records and jobs in one SQLite file.
//!
//! # The map
//!
//! | module | what |
//! |---|---|
//! | `file` | opening: the file, its connections, and every way in which that fails |
//! | `schema` | the tables, and the steps from one version of them to the next |
//! | `rows` | the statements that read and write records |
//! | `jobs` | the statements that read and write jobs, and which of them are claimed |
//! | `act` | what the writer does for one caller, as a whole or not at all |
//! | `writer` | the one thread that writes, and the commits that it takes together |
//! | `readers` | the threads that read |
//! | `cache` | what was read, kept in the process |
//! | `freshness` | what the process knows of changes, its own and other processes' |
//! | `backup` | copies while it runs, and the check of the whole file |
//!
//! # Writing
//!
//! SQLite has one writer at a time, so the store has one thread that writes; more would only wait for one
//! another's locks. Commits queue for it, and it takes all that wait into one transaction. The dear part of
//! a transaction is that the disk confirms it: commits that arrive together share that. A commit that is
//! refused, such as by a precondition that does not hold, undoes itself and no other: where it has written
//! something already, those before it and those after it are taken into transactions of their own.
//!
//! The journal is a write-ahead log with `synchronous=FULL`: a commit is answered after the log has been
//! flushed to the disk, so what was acknowledged survives the end of the process and a loss of power, as
//! far as the disk does what it says.
//!
//! # Reading
//!
//! A few threads read, each from a snapshot that no write disturbs and that keeps no writer waiting. In
//! front of them is a cache; a read that it answers runs no statement and changes no thread. Its promise:
//!
//! - a write of this process that has returned is seen by every later read, as if there were no cache;
//! - what is read together is of one moment, as if there were no cache;
//! - a write of another process to the same file is seen at most [`MAX_STALENESS`] after it was
//!   committed, and at once by a read that the cache cannot answer. The other process must write by this
//!   store, which counts every change; whoever edits the file by other means restarts the processes;
//! - collections of the platform itself, such as tokens and the index of agents, are never cached, so that
//!   a revocation holds everywhere from the moment of its commit.
//!
//! # Closing
//!
//! Dropping the store ends its threads once they are done with what is under way, and closes the file, which
//! blocks the caller for that long. A commit whose caller has gone happens as a whole or not at all.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agent_core::clock::{Clock, SystemClock};
use agent_core::job::WakeSignal;
use agent_platform::records::{
    Collection, Inventory, Key, List, MAX_VALUE_BYTES, Page, Record, Records, StoreError, Write, check_writes,
};
use async_trait::async_trait;

use self::cache::{PageKey, ReadCache};
use self::freshness::Freshness;
use self::readers::Readers;
use self::writer::Writers;

mod act;
mod backup;
mod cache;
mod fault;
mod file;
mod freshness;
mod jobs;
mod readers;
mod rows;
mod schema;
mod writer;

pub use backup::BackupError;
pub use fault::{Fault, FaultKind};
pub use file::OpenError;
pub use freshness::MAX_STALENESS;

/// How a [`SqliteStore`] runs.
#[derive(Clone)]
pub struct SqliteOptions {
    /// The bytes of memory that the cache of reads takes, about; 0 is no cache. 32 MiB unless told
    /// otherwise.
    pub cache_bytes: usize,
    /// How many threads read, at least one. 4 unless told otherwise.
    pub readers: usize,
    /// How many commits, and how many reads, queue before callers wait to queue, at least one. 1,024
    /// unless told otherwise.
    pub queue: usize,
    /// How long another process's lock is waited for. 5 seconds unless told otherwise.
    pub busy_timeout: Duration,
    /// The most bytes of one value as JSON text. [`MAX_VALUE_BYTES`] unless told otherwise.
    pub max_value_bytes: usize,
    /// The most bytes that the file grows to, to the page of 4 KiB; more is refused as a full disk is. No
    /// limit unless told otherwise.
    pub max_file_bytes: Option<u64>,
    /// The time that records show, and by which the cache ages.
    pub clock: Arc<dyn Clock>,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 32 << 20,
            readers: 4,
            queue: 1024,
            busy_timeout: Duration::from_secs(5),
            max_value_bytes: MAX_VALUE_BYTES,
            max_file_bytes: None,
            clock: Arc::new(SystemClock),
        }
    }
}

impl fmt::Debug for SqliteOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteOptions")
            .field("cache_bytes", &self.cache_bytes)
            .field("readers", &self.readers)
            .field("queue", &self.queue)
            .field("busy_timeout", &self.busy_timeout)
            .field("max_value_bytes", &self.max_value_bytes)
            .field("max_file_bytes", &self.max_file_bytes)
            .finish_non_exhaustive()
    }
}

/// [`Records`] and [jobs](agent_core::job::JobStore) in one SQLite file. The [module](self) says what it promises.
pub struct SqliteStore {
    path: PathBuf,
    max_value_bytes: usize,
    counts: Arc<Counts>,
    cache: Option<ReadCache>,
    /// Given where another job has become the earliest.
    signal: WakeSignal,
    // The order of these two is that of their ends: the writer closes the file last, and so leaves
    // everything in it and no log beside it.
    readers: Readers,
    writers: Writers,
}

/// What a store has done since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Activity {
    /// Commits that changed something and were acknowledged.
    pub commits: u64,
    /// Transactions that they took.
    pub transactions: u64,
    /// Reads that ran statements; the others were answered by the cache.
    pub reads: u64,
}

#[derive(Default)]
struct Counts {
    commits: AtomicU64,
    transactions: AtomicU64,
    reads: AtomicU64,
}

impl SqliteStore {
    /// Opens the file at `path`, and makes it if it is not there, for its owner alone. A file of an older
    /// version of this program is brought up to date. This blocks, and may be called where there is no
    /// async runtime.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, OpenError> {
        let path = file::absolute(path.as_ref())?;
        let (writer, version) = file::open(&path, &options)?;
        let counts = Arc::new(Counts::default());
        let freshness = Arc::new(Freshness::new(Arc::clone(&options.clock), version));
        let readers = Readers::start(&path, &options, &freshness, &counts)?;
        let cache = (options.cache_bytes > 0).then(|| ReadCache::new(options.cache_bytes, &freshness));
        let signal = WakeSignal::default();
        let writers = Writers::start(writer, &options, freshness, Arc::clone(&counts), signal.clone())
            .map_err(|error| OpenError::failed(&path, error))?;
        Ok(Self { path, max_value_bytes: options.max_value_bytes, counts, cache, signal, readers, writers })
    }

    /// The file, as an absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the store has done since it was opened.
    pub fn activity(&self) -> Activity {
        Activity {
            commits: self.counts.commits.load(Ordering::Relaxed),
            transactions: self.counts.transactions.load(Ordering::Relaxed),
            reads: self.counts.reads.load(Ordering::Relaxed),
        }
    }

    /// Copies everything, as of one moment, into a new file at `to`, while the store goes on. The file is
    /// there once it is whole and on the disk, and not before. It has its owner's permissions alone.
    ///
    /// # Errors
    /// See [`BackupError`]; a file that is there is not overwritten.
    pub async fn backup(&self, to: impl AsRef<Path>) -> Result<(), BackupError> {
        backup::copy(self.path.clone(), to.as_ref().to_owned()).await
    }

    /// Reads the whole file and says what is wrong with it, in SQLite's words and at most a hundred times;
    /// nothing where all is well.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] where the file cannot be read at all.
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
        let Some(cache) = &self.cache else {
            let keys = keys.to_vec();
            return self.readers.read(move |rows| rows.get_many(&keys)).await;
        };
        if let Some(records) = cache.records(keys) {
            return Ok(records);
        }
        // Before the read begins: what changes from here on must not be kept as if it were new.
        let stamps = cache.stamps(keys);
        let wanted = keys.to_vec();
        let records = self.readers.read(move |rows| rows.get_many(&wanted)).await?;
        cache.keep_records(keys, stamps, &records);
        Ok(records)
    }

    async fn list(&self, collection: &Collection, list: &List) -> Result<Page, StoreError> {
        let after = list.after()?;
        let read = |collection: Collection, list: List| {
            self.readers.read(move |rows| rows.list(&collection, &list, after.as_deref()))
        };
        let Some(cache) = &self.cache else {
            return read(collection.clone(), list.clone()).await;
        };
        let key = PageKey::new(collection, list);
        if let Some(page) = cache.page(&key) {
            return Ok(page);
        }
        let stamp = cache.stamp(collection);
        let page = read(collection.clone(), list.clone()).await?;
        cache.keep_page(key, stamp, &page);
        Ok(page)
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError> {
        check_writes(&writes, self.max_value_bytes)?;
        if writes.is_empty() {
            return Ok(Vec::new());
        }
        self.writers.commit(writes).await
    }
}

#[async_trait]
impl Inventory for SqliteStore {
    async fn companies(&self, after: Option<&str>) -> Result<Vec<String>, StoreError> {
        let after = after.unwrap_or_default().to_owned();
        self.readers.read(move |rows| rows.companies(&after)).await
    }

    async fn collections(&self, company: &str, after: Option<&str>) -> Result<Vec<Collection>, StoreError> {
        let (company, after) = (company.to_owned(), after.unwrap_or_default().to_owned());
        self.readers.read(move |rows| rows.collections(&company, &after)).await
    }
}
