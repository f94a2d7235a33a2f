//! In-memory record store: the reference implementation for other stores, sufficient for tests and for applications
//! without persistence.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::SystemTime;

use async_trait::async_trait;

use crate::records::{
    Collection, Inventory, Key, ListQuery, MAX_PAGE_RECORDS, MAX_VALUE_BYTES, Order, Page, Precondition,
    Record, RecordCounter, Records, StoreError, Write, WriterPermit, WriterQueues, check_writes, to_millis,
};
use agent_core::clock::{Clock, SystemClock};

/// Default maximum size of a [`MemoryRecords`], in bytes.
pub(crate) const MAX_MEMORY_BYTES: usize = 256 * 1024 * 1024;

/// [`Records`] in memory.
pub struct MemoryRecords {
    clock: Arc<dyn Clock>,
    max_value_bytes: usize,
    max_total_bytes: usize,
    state: RwLock<MemoryState>,
    queues: WriterQueues,
}

#[derive(Default)]
struct MemoryState {
    collections: HashMap<Collection, BTreeMap<String, Record>>,
    /// Version counter of the whole store, so that a record created again cannot repeat a version.
    last_version: u64,
    total_bytes: usize,
}

impl Default for MemoryRecords {
    fn default() -> Self {
        Self::new(Arc::new(SystemClock))
    }
}

impl std::fmt::Debug for MemoryRecords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryRecords")
            .field("max_total_bytes", &self.max_total_bytes)
            .finish_non_exhaustive()
    }
}

impl MemoryRecords {
    /// Creates an empty store that takes write times from `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            max_value_bytes: MAX_VALUE_BYTES,
            max_total_bytes: MAX_MEMORY_BYTES,
            state: RwLock::default(),
            queues: WriterQueues::default(),
        }
    }

    /// Sets the maximum size of one value and of all ids and values together, in bytes.
    pub fn with_limits(self, max_value_bytes: usize, max_total_bytes: usize) -> Self {
        Self { max_value_bytes, max_total_bytes, ..self }
    }

    /// Locks the state for reading. No code panics while holding the lock, so the data behind a poisoned one is intact.
    fn read(&self) -> RwLockReadGuard<'_, MemoryState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, MemoryState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An applied write and the previous record, which reverts it.
struct AppliedWrite {
    key: Key,
    before: Option<Record>,
    version: Option<u64>,
}

impl MemoryState {
    fn apply(
        &mut self,
        write: Write,
        now: SystemTime,
        max_total_bytes: usize,
    ) -> Result<AppliedWrite, StoreError> {
        let before = self.find(write.key()).cloned();
        let found = before.as_ref().map(|record| record.version);
        write.precondition().check(found)?;
        match write {
            Write::Put { key, value, .. } => {
                let freed = before.as_ref().map_or(0, record_bytes);
                if self.total_bytes - freed + key.id().len() + value.get().len() > max_total_bytes {
                    return Err(StoreError::unavailable("the in-memory store is full"));
                }
                self.last_version += 1;
                let record =
                    Record { id: key.id().to_owned(), version: self.last_version, updated: now, value };
                self.insert(&key, record);
                Ok(AppliedWrite { key, before, version: Some(self.last_version) })
            }
            Write::Delete { key, .. } => {
                self.remove(&key);
                Ok(AppliedWrite { key, before, version: found })
            }
            Write::Check { key, .. } => Ok(AppliedWrite { key, before, version: found }),
            Write::Increment { key, limit } => {
                let value = RecordCounter::incremented(&key, limit, before.as_ref())?;
                self.apply(Write::Put { key, value, precondition: Precondition::Any }, now, max_total_bytes)
            }
        }
    }

    fn revert(&mut self, change: AppliedWrite) {
        match change.before {
            Some(record) => self.insert(&change.key, record),
            None => self.remove(&change.key),
        }
    }

    fn find(&self, key: &Key) -> Option<&Record> {
        self.collections.get(key.collection())?.get(key.id())
    }

    fn insert(&mut self, key: &Key, record: Record) {
        self.total_bytes += record_bytes(&record);
        let records = self.collections.entry(key.collection().clone()).or_default();
        if let Some(replaced) = records.insert(record.id.clone(), record) {
            self.total_bytes -= record_bytes(&replaced);
        }
    }

    fn remove(&mut self, key: &Key) {
        let Some(records) = self.collections.get_mut(key.collection()) else { return };
        if let Some(removed) = records.remove(key.id()) {
            self.total_bytes -= record_bytes(&removed);
        }
        if records.is_empty() {
            self.collections.remove(key.collection());
        }
    }
}

/// Returns the bytes that a record counts against the capacity: its id and its value.
fn record_bytes(record: &Record) -> usize {
    record.id.len() + record.value.get().len()
}

#[async_trait]
impl Records for MemoryRecords {
    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        Ok(self.read().find(key).cloned())
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        let state = self.read();
        Ok(keys.iter().map(|key| state.find(key).cloned()).collect())
    }

    async fn versions(&self, keys: &[Key]) -> Result<Vec<Option<u64>>, StoreError> {
        let state = self.read();
        Ok(keys.iter().map(|key| state.find(key).map(|record| record.version)).collect())
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError> {
        check_writes(&writes, self.max_value_bytes)?;
        let now = to_millis(self.clock.now());
        let mut state = self.write();
        let mut applied = Vec::with_capacity(writes.len());
        for write in writes {
            match state.apply(write, now, self.max_total_bytes) {
                Ok(change) => applied.push(change),
                Err(error) => {
                    // Reverts the writes already applied, latest first.
                    applied.into_iter().rev().for_each(|change| state.revert(change));
                    return Err(error);
                }
            }
        }
        Ok(applied.into_iter().map(|change| change.version).collect())
    }

    async fn acquire_writer_permit(&self, key: &Key) -> WriterPermit {
        self.queues.acquire(key).await
    }

    async fn count(&self, collection: &Collection) -> Result<u64, StoreError> {
        Ok(self.read().collections.get(collection).map_or(0, |records| records.len() as u64))
    }

    async fn list(&self, collection: &Collection, list: &ListQuery) -> Result<Page, StoreError> {
        let after = list.after()?;
        let state = self.read();
        let Some(records) = state.collections.get(collection) else {
            return Ok(Page::from_overfetch(Vec::new(), list));
        };
        let has_prefix = |(id, _): &(&String, &Record)| id.starts_with(&list.prefix);
        let count = list.page_size() + 1;
        let found: Vec<Record> = match list.order {
            Order::Ascending => {
                let lower = match &after {
                    Some(after) if *after >= list.prefix => Bound::Excluded(after),
                    _ => Bound::Included(&list.prefix),
                };
                let range = records.range::<String, _>((lower, Bound::Unbounded));
                range.take_while(has_prefix).take(count).map(|(_, record)| record.clone()).collect()
            }
            Order::Descending => {
                let upper = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
                let range = records.range::<String, _>((Bound::Unbounded, upper));
                range.rev().filter(has_prefix).take(count).map(|(_, record)| record.clone()).collect()
            }
        };
        Ok(Page::from_overfetch(found, list))
    }
}

#[async_trait]
impl Inventory for MemoryRecords {
    async fn companies(&self, after: Option<&str>) -> Result<Vec<String>, StoreError> {
        let state = self.read();
        let all: BTreeSet<&str> = state.collections.keys().map(Collection::company).collect();
        let following = all.into_iter().filter(|company| *company > after.unwrap_or_default());
        Ok(following.take(MAX_PAGE_RECORDS).map(str::to_owned).collect())
    }

    async fn collections(&self, company: &str, after: Option<&str>) -> Result<Vec<Collection>, StoreError> {
        let state = self.read();
        let own = state.collections.keys().filter(|collection| collection.company() == company);
        let mut following: Vec<&Collection> =
            own.filter(|collection| collection.path() > after.unwrap_or_default()).collect();
        following.sort_unstable();
        Ok(following.into_iter().take(MAX_PAGE_RECORDS).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use futures_util::FutureExt;

    use super::*;
    use crate::records::RecordsExt;
    use agent_core::testing::ManualClock;

    #[test]
    fn a_full_store_accepts_writes_after_a_deletion() {
        // Each record counts an id of one byte and a string of eight with its quotes.
        let records = MemoryRecords::default().with_limits(100, 22);
        let key = |id: &str| Key::new("c", "things", id).expect("a key");
        let put = |id: &str, text: &str| {
            let key = key(id);
            let put = records.put_as(&key, &text, Precondition::Any);
            put.now_or_never().expect("no wait")
        };
        put("a", "12345678").expect("there is room");
        put("b", "12345678").expect("there is room");
        assert!(matches!(put("c", "1"), Err(StoreError::Unavailable(_))));
        assert!(matches!(put("a", "123456789"), Err(StoreError::Unavailable(_))));
        put("a", "87654321").expect("a replaced value frees its memory");
        put("a", "1").expect("less is taken");
        put("c", "1234").expect("freed memory can be used");
        let deleted = records.delete(&key("b"), Precondition::Any).now_or_never().expect("no wait");
        assert!(deleted.expect("deleted"));
        put("d", "12345678").expect("the memory of deleted records can be used");
    }

    #[test]
    fn a_record_shows_the_clocks_time_to_the_millisecond() {
        let time = UNIX_EPOCH + Duration::from_nanos(1_234_567_891);
        let records = MemoryRecords::new(Arc::new(ManualClock::at(time)));
        let key = Key::new("c", "things", "a").expect("a key");
        records.put_as(&key, &1, Precondition::Any).now_or_never().expect("no wait").expect("put");
        let record = records.get(&key).now_or_never().expect("no wait").expect("read").expect("there");
        assert_eq!(record.updated, UNIX_EPOCH + Duration::from_millis(1_234));
    }
}
