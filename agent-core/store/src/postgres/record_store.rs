//! [`PostgresRecords`]: the [`Records`] over PostgreSQL.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use agent_platform::records::{
    Collection, Inventory, Key, ListQuery, Page, Record, Records, StoreError, Write, WriterPermit,
    WriterQueues, check_writes,
};
use async_trait::async_trait;
use tokio::task::AbortHandle;

use super::error::{OperationError, PostgresErrorKind};
use super::fair_queue::{FairQueue, Permit};
use super::lock_wait::LockQueues;
use super::records::{ChangeTracker, CommitQueue, Committer, Poller, rows};
use super::schema;
use super::session::{Session, SessionPool};
use super::{PostgresOpenError, PostgresOptions};
use crate::counters::{AtomicCounters, StoreCounters};
use crate::owner::{owner_of_collection, owner_of_keys};
use crate::read_cache::{PageKey, ReadCache};

/// [`Records`] in the schema `app` of a PostgreSQL database. See the [module documentation](super) for its guarantees.
pub struct PostgresRecords {
    pub(super) sessions: SessionPool,
    pub(super) permits: Arc<FairQueue>,
    /// Permits of the commits that wait for locks that are known to be held.
    pub(super) blocked: Arc<FairQueue>,
    /// Permits of the writes of an owner's conversations, which hold no connection while they wait for one another.
    pub(super) owners: FairQueue,
    /// Permits of reads of the platform's own records, such as tokens, by record: as many as its share of `permits`.
    lookups: FairQueue,
    commits: CommitQueue,
    queues: WriterQueues,
    cache: Option<ReadCache<ChangeTracker>>,
    max_value_bytes: usize,
    pub(super) wait_timeout: Duration,
    pub(super) lock_timeout: Duration,
    counts: Arc<AtomicCounters>,
    poller: Option<AbortHandle>,
}

impl PostgresRecords {
    /// Connects to the server at `url` and creates the tables in the schema `app`, or migrates them from an older
    /// version. Concurrent migrations by several processes wait for one another. See the [module
    /// documentation](super#addresses) for the URL.
    ///
    /// Must be called within a tokio runtime that lives as long as the store; the other methods may be called from any
    /// runtime.
    ///
    /// # Errors
    /// See [`PostgresOpenError`].
    pub async fn open(url: &str, options: PostgresOptions) -> Result<Self, PostgresOpenError> {
        let sessions = schema::APP.open(url, &options).await?;
        let tracker = Arc::new(ChangeTracker::new());
        let origin = uuid::Uuid::new_v4().to_string();
        let permits = Arc::new(FairQueue::new(options.connections));
        let blocked = Arc::new(FairQueue::with_share(options.connections / 2, 1));
        let counts = Arc::new(AtomicCounters::default());
        let committer = Committer {
            sessions: sessions.clone(),
            tracker: tracker.clone(),
            origin: origin.clone(),
            counts: counts.clone(),
        };
        let cache = (options.cache_bytes > 0).then(|| ReadCache::new(options.cache_bytes, &tracker));
        let poller = match &cache {
            Some(_) => {
                let poller_options = PostgresOptions { connections: 1, ..options.clone() };
                // A process without requests notices by its polls that the server is away.
                let polls = SessionPool::connect(schema::APP.name, url, &poller_options)?
                    .count_failures_with(&sessions);
                Some(tokio::spawn(Poller::new(tracker, polls, origin).run()).abort_handle())
            }
            None => None,
        };
        Ok(Self {
            commits: CommitQueue::new(
                committer,
                (permits.clone(), blocked.clone()),
                (options.wait_timeout, options.lock_timeout),
            ),
            queues: WriterQueues::default(),
            sessions,
            permits,
            blocked,
            owners: FairQueue::with_share(usize::MAX, 1),
            lookups: FairQueue::new(options.connections * 3 / 4),
            cache,
            max_value_bytes: options.max_value_bytes,
            wait_timeout: options.wait_timeout,
            lock_timeout: options.lock_timeout,
            counts,
            poller,
        })
    }

    /// Returns the counters since the store was opened.
    pub fn counters(&self) -> StoreCounters {
        self.counts.read()
    }

    /// Returns the permits of transactions that wait for locks.
    pub(super) fn lock_queues(&self) -> LockQueues<'_> {
        let Self { permits, blocked, wait_timeout, lock_timeout, .. } = self;
        LockQueues { all: permits, blocked, wait_timeout: *wait_timeout, lock_timeout: *lock_timeout }
    }

    /// Runs a read for a company, which releases the session. Repeats it on another connection if the connection was
    /// lost, as all idle ones are by a restart of the server.
    pub(super) async fn read<T, F: Future<Output = Result<T, OperationError>>>(
        &self,
        company: &str,
        read: impl Fn(Session) -> F,
    ) -> Result<T, StoreError> {
        self.counts.reads.fetch_add(1, Ordering::Relaxed);
        Ok(self.read_with_retry(company, read).await?)
    }

    async fn read_with_retry<T, F: Future<Output = Result<T, OperationError>>>(
        &self,
        company: &str,
        read: impl Fn(Session) -> F,
    ) -> Result<T, OperationError> {
        let _permit = self.permits.acquire(company, self.wait_timeout).await?;
        for _ in 0..self.sessions.max_size() {
            match read(self.sessions.get().await?).await {
                Err(OperationError::Failed(error)) if error.kind() == PostgresErrorKind::Unreachable => {}
                done => return done,
            }
        }
        read(self.sessions.get().await?).await
    }

    /// Waits for the permit of a read of records, if their owner is the platform. A token is looked up before its company is
    /// known. In a single queue, many lookups of one token would delay the lookups of all other tokens.
    async fn wait_lookup(&self, owner: &str, keys: &[Key]) -> Result<Option<Permit>, StoreError> {
        let Some(key) = keys.first().filter(|_| owner.is_empty()) else { return Ok(None) };
        let record = [key.collection().path(), key.id()].join("/");
        let permit = self.lookups.acquire(&record, self.wait_timeout).await;
        Ok(Some(permit.map_err(OperationError::from)?))
    }

    async fn read_records(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        let owner = owner_of_keys(keys);
        let _lookup = self.wait_lookup(&owner, keys).await?;
        self.read(&owner, |session| async move {
            let result = rows::get_many(&session, keys).await;
            session.release(result).await
        })
        .await
    }
}

impl Drop for PostgresRecords {
    fn drop(&mut self) {
        if let Some(poller) = &self.poller {
            poller.abort();
        }
    }
}

impl fmt::Debug for PostgresRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresRecords").finish_non_exhaustive()
    }
}

#[async_trait]
impl Records for PostgresRecords {
    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        match &self.cache {
            Some(cache) => cache.get_many(keys, self.read_records(keys)).await,
            None => self.read_records(keys).await,
        }
    }

    async fn versions(&self, keys: &[Key]) -> Result<Vec<Option<u64>>, StoreError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let owner = owner_of_keys(keys);
        let _lookup = self.wait_lookup(&owner, keys).await?;
        self.read(&owner, |session| async move {
            let result = rows::versions(&session, keys).await;
            session.release(result).await
        })
        .await
    }

    async fn acquire_writer_permit(&self, key: &Key) -> WriterPermit {
        self.queues.acquire(key).await
    }

    async fn list(&self, collection: &Collection, list: &ListQuery) -> Result<Page, StoreError> {
        let after = list.after()?;
        let read = async {
            let owner = owner_of_collection(collection);
            self.read(&owner, |session| async {
                let session = session;
                let result = rows::list(&session, collection, list, after.as_deref()).await;
                session.release(result).await
            })
            .await
        };
        match &self.cache {
            Some(cache) => cache.list(PageKey::new(collection, list), read).await,
            None => read.await,
        }
    }

    async fn count(&self, collection: &Collection) -> Result<u64, StoreError> {
        self.read(&owner_of_collection(collection), |session| async move {
            let result = rows::count(&session, collection).await;
            session.release(result).await
        })
        .await
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError> {
        check_writes(&writes, self.max_value_bytes)?;
        if writes.is_empty() {
            return Ok(Vec::new());
        }
        self.commits.commit(writes).await
    }

    async fn check_writable(&self) -> Result<(), StoreError> {
        self.sessions.check_writable().await.map_err(StoreError::unavailable)
    }
}

#[async_trait]
impl Inventory for PostgresRecords {
    async fn companies(&self, after: Option<&str>) -> Result<Vec<String>, StoreError> {
        self.read("", |session| async move {
            let result = rows::companies(&session, after.unwrap_or_default()).await;
            session.release(result).await
        })
        .await
    }

    async fn collections(&self, company: &str, after: Option<&str>) -> Result<Vec<Collection>, StoreError> {
        let after = after.unwrap_or_default();
        self.read(company, |session| async move {
            let result = rows::collections(&session, company, after).await;
            session.release(result).await
        })
        .await
    }
}
