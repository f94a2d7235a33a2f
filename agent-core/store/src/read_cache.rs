//! In-process cache of reads.

use std::hash::Hash;
use std::sync::Arc;

use agent_platform::records::{Collection, Key, ListQuery, Order, Page, Record, StoreError};
use agent_platform::run_registry::RUN_ID_COLLECTION;
use agent_platform::workspace::SUMMED_COLLECTIONS;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::slots::{Stamp, StampSource};

/// Approximate overhead of an entry beyond its text, in bytes.
const ENTRY_OVERHEAD_BYTES: usize = 256;
/// Typical size of a record or a page in bytes. A wrong estimate only costs memory for a hash table.
const TYPICAL_ENTRY_BYTES: u64 = 2048;

/// Cache of records by key, including absent ones, and of list pages, bounded in bytes. Entries with an
/// invalid stamp are never returned; they stay until they are replaced or evicted.
pub(crate) struct ReadCache<F> {
    freshness: Arc<F>,
    records: Cache<Key, CacheEntry<Option<Record>>, ByteWeighter>,
    pages: Cache<PageKey, CacheEntry<Arc<Page>>, ByteWeighter>,
}

#[derive(Clone)]
struct CacheEntry<T> {
    stamp: Stamp,
    value: T,
}

/// Cache key of one page of a list.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct PageKey {
    collection: Collection,
    prefix: String,
    size: usize,
    cursor: Option<String>,
    is_descending: bool,
}

impl PageKey {
    pub(crate) fn new(collection: &Collection, list: &ListQuery) -> Self {
        Self {
            collection: collection.clone(),
            prefix: list.prefix.clone(),
            size: list.page_size(),
            cursor: list.cursor.clone(),
            is_descending: list.order == Order::Descending,
        }
    }
}

impl<F: StampSource> ReadCache<F> {
    /// Creates a cache of about `max_bytes` bytes.
    pub(crate) fn new(max_bytes: usize, freshness: &Arc<F>) -> Self {
        let max = max_bytes as u64;
        Self { freshness: Arc::clone(freshness), records: cache(max - max / 4), pages: cache(max / 4) }
    }

    /// Returns these records, from the cache if all are cached and unchanged, or else from `read`.
    pub(crate) async fn get_many(
        &self,
        keys: &[Key],
        read: impl Future<Output = Result<Vec<Option<Record>>, StoreError>>,
    ) -> Result<Vec<Option<Record>>, StoreError> {
        if let Some(records) = self.records(keys) {
            return Ok(records);
        }
        // Stamps are taken before the read, so that a result that changes in the meantime is not cached.
        let stamps = self.stamps(keys);
        let records = read.await?;
        self.insert_records(keys, stamps, &records);
        Ok(records)
    }

    /// Returns this page, from the cache if it is cached and unchanged, or else from `read`.
    pub(crate) async fn list(
        &self,
        key: PageKey,
        read: impl Future<Output = Result<Page, StoreError>>,
    ) -> Result<Page, StoreError> {
        if let Some(page) = self.page(&key) {
            return Ok(page);
        }
        let stamp = self.stamp(&key.collection);
        let page = read.await?;
        self.insert_page(key, stamp, &page);
        Ok(page)
    }

    /// Returns all of these records if all are cached and unchanged. The stamps are checked after the last
    /// lookup: if all are valid, all records are from that moment.
    fn records(&self, keys: &[Key]) -> Option<Vec<Option<Record>>> {
        let entries: Vec<_> = keys.iter().map(|key| self.records.get(key)).collect::<Option<_>>()?;
        let current = self.freshness.may_serve(entries.iter().map(|entry| entry.stamp));
        current.then(|| entries.into_iter().map(|entry| entry.value).collect())
    }

    /// Returns this page if it is cached and unchanged.
    fn page(&self, key: &PageKey) -> Option<Page> {
        let entry = self.pages.get(key)?;
        self.freshness.may_serve([entry.stamp]).then(|| Page::clone(&entry.value))
    }

    /// Returns the stamps of records. Must be called before the records are read.
    fn stamps(&self, keys: &[Key]) -> Vec<Option<Stamp>> {
        let stamp = |key: &Key| self.freshness.stamp(key).filter(|_| is_cacheable(key.collection()));
        keys.iter().map(stamp).collect()
    }

    /// Returns the stamp of a collection. Must be called before a page of it is read.
    fn stamp(&self, collection: &Collection) -> Option<Stamp> {
        self.freshness.stamp(collection).filter(|_| has_cacheable_pages(collection))
    }

    /// Caches the records that were read under these stamps, if the stamps are still valid.
    fn insert_records(&self, keys: &[Key], stamps: Vec<Option<Stamp>>, records: &[Option<Record>]) {
        for ((key, stamp), record) in keys.iter().zip(stamps).zip(records) {
            if let Some(stamp) = stamp.filter(|stamp| self.freshness.is_valid(*stamp)) {
                self.records.insert(key.clone(), CacheEntry { stamp, value: record.clone() });
            }
        }
    }

    /// Caches the page that was read under this stamp, if the stamp is still valid.
    fn insert_page(&self, key: PageKey, stamp: Option<Stamp>, page: &Page) {
        if let Some(stamp) = stamp.filter(|stamp| self.freshness.is_valid(*stamp)) {
            self.pages.insert(key, CacheEntry { stamp, value: Arc::new(page.clone()) });
        }
    }
}

/// Returns true if a collection may be cached. Collections of the platform itself are always read from the
/// database, so that a revoked token is not served from the cache. Used run ids are written with each run, and only read
/// to delete them, so that processes need not tell each other of them.
pub(crate) fn is_cacheable(collection: &Collection) -> bool {
    !collection.company().is_empty() && collection.path().split('/').next() != Some(RUN_ID_COLLECTION)
}

/// Returns true if the pages of a collection may be cached. Records that a quota sums up are read from the database: a sum
/// must include the additions of other processes.
fn has_cacheable_pages(collection: &Collection) -> bool {
    is_cacheable(collection) && !SUMMED_COLLECTIONS.contains(&collection.path())
}

fn cache<K: Eq + Hash, V: Clone>(max_bytes: u64) -> Cache<K, V, ByteWeighter>
where
    ByteWeighter: Weighter<K, V>,
{
    let items = usize::try_from(max_bytes / TYPICAL_ENTRY_BYTES).unwrap_or(usize::MAX).max(1);
    Cache::with_weighter(items, max_bytes, ByteWeighter)
}

#[derive(Clone)]
struct ByteWeighter;

impl Weighter<Key, CacheEntry<Option<Record>>> for ByteWeighter {
    fn weight(&self, key: &Key, entry: &CacheEntry<Option<Record>>) -> u64 {
        let key = key.id().len() + collection_bytes(key.collection());
        (ENTRY_OVERHEAD_BYTES + key + entry.value.as_ref().map_or(0, record_bytes)) as u64
    }
}

impl Weighter<PageKey, CacheEntry<Arc<Page>>> for ByteWeighter {
    fn weight(&self, key: &PageKey, entry: &CacheEntry<Arc<Page>>) -> u64 {
        let cursor = key.cursor.as_ref().map_or(0, String::len);
        let key = collection_bytes(&key.collection) + key.prefix.len() + cursor;
        let records: usize =
            entry.value.records.iter().map(|record| ENTRY_OVERHEAD_BYTES + record_bytes(record)).sum();
        (ENTRY_OVERHEAD_BYTES + key + records) as u64
    }
}

fn collection_bytes(collection: &Collection) -> usize {
    collection.company().len() + collection.path().len()
}

fn record_bytes(record: &Record) -> usize {
    record.id.len() + record.value.get().len()
}
