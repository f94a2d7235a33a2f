//! The in-memory stores: the reference that other stores are measured by, and enough for tests and
//! for applications that keep nothing.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;

use crate::clock::{Clock, SystemClock};
use crate::message::SharedJson;
use crate::records::{
    Collection, Key, List, MAX_VALUE_BYTES, Order, Page, Precondition, Record, Records, StoreError,
};
use crate::role::{RoleBlock, RoleStore};

/// The most bytes that a [`MemoryRecords`] holds, unless told otherwise.
pub const MAX_MEMORY_BYTES: usize = 256 * 1024 * 1024;
/// The most roles that a [`MemoryRoles`] holds.
pub const MAX_ROLES: usize = 100_000;

/// [`Records`] in memory.
pub struct MemoryRecords {
    clock: Arc<dyn Clock>,
    max_value_bytes: usize,
    max_total_bytes: usize,
    state: RwLock<State>,
}

#[derive(Default)]
struct State {
    collections: HashMap<Collection, BTreeMap<String, Record>>,
    /// One counter for the whole store: a record that is made anew cannot repeat a version.
    last_version: u64,
    total_bytes: usize,
}

impl Default for MemoryRecords {
    fn default() -> Self {
        Self::new(Arc::new(SystemClock))
    }
}

impl MemoryRecords {
    /// An empty store that tells the time by `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            max_value_bytes: MAX_VALUE_BYTES,
            max_total_bytes: MAX_MEMORY_BYTES,
            state: RwLock::default(),
        }
    }

    /// Sets how many bytes one value and all keys and values together may have.
    pub fn with_limits(self, max_value_bytes: usize, max_total_bytes: usize) -> Self {
        Self { max_value_bytes, max_total_bytes, ..self }
    }

    /// No code panics while it holds the lock, so a poisoned one is as whole as any.
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn find(&self, key: &Key) -> Option<&Record> {
        self.collections.get(key.collection())?.get(key.id())
    }

    fn check(&self, key: &Key, precondition: Precondition) -> Result<(), StoreError> {
        precondition.check(self.find(key).map(|record| record.version))
    }

    fn insert(&mut self, key: &Key, value: SharedJson, updated: SystemTime) -> u64 {
        self.last_version += 1;
        let record = Record { id: key.id().to_owned(), version: self.last_version, updated, value };
        self.total_bytes += cost(&record);
        let records = self.collections.entry(key.collection().clone()).or_default();
        if let Some(replaced) = records.insert(record.id.clone(), record) {
            self.total_bytes -= cost(&replaced);
        }
        self.last_version
    }

    fn remove(&mut self, key: &Key) -> bool {
        let Some(records) = self.collections.get_mut(key.collection()) else { return false };
        let Some(removed) = records.remove(key.id()) else { return false };
        if records.is_empty() {
            self.collections.remove(key.collection());
        }
        self.total_bytes -= cost(&removed);
        true
    }
}

/// What a record counts towards the limit: its id and its value.
fn cost(record: &Record) -> usize {
    record.id.len() + record.value.get().len()
}

#[async_trait]
impl Records for MemoryRecords {
    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        Ok(self.read().find(key).cloned())
    }

    async fn put(&self, key: &Key, value: SharedJson, precondition: Precondition) -> Result<u64, StoreError> {
        let bytes = value.get().len();
        if bytes > self.max_value_bytes {
            return Err(StoreError::TooLarge { bytes, limit: self.max_value_bytes });
        }
        let now = to_millis(self.clock.now());
        let mut state = self.write();
        state.check(key, precondition)?;
        let freed = state.find(key).map_or(0, cost);
        if state.total_bytes - freed + key.id().len() + bytes > self.max_total_bytes {
            return Err(StoreError::unavailable("the store in memory is full"));
        }
        Ok(state.insert(key, value, now))
    }

    async fn delete(&self, key: &Key, precondition: Precondition) -> Result<bool, StoreError> {
        let mut state = self.write();
        state.check(key, precondition)?;
        Ok(state.remove(key))
    }

    async fn list(&self, collection: &Collection, list: &List) -> Result<Page, StoreError> {
        let after = list.after()?;
        let state = self.read();
        let Some(records) = state.collections.get(collection) else {
            return Ok(Page::cut(Vec::new(), list));
        };
        let wanted = |(id, _): &(&String, &Record)| id.starts_with(&list.prefix);
        let count = list.page_size() + 1;
        let found: Vec<Record> = match list.order {
            Order::Ascending => {
                let lower = match &after {
                    Some(after) if *after >= list.prefix => Bound::Excluded(after),
                    _ => Bound::Included(&list.prefix),
                };
                let range = records.range::<String, _>((lower, Bound::Unbounded));
                range.take_while(wanted).take(count).map(|(_, record)| record.clone()).collect()
            }
            Order::Descending => {
                let upper = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
                let range = records.range::<String, _>((Bound::Unbounded, upper));
                range.rev().filter(wanted).take(count).map(|(_, record)| record.clone()).collect()
            }
        };
        Ok(Page::cut(found, list))
    }
}

/// Cuts a time to the precision that every store keeps.
fn to_millis(time: SystemTime) -> SystemTime {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    UNIX_EPOCH + Duration::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// [`RoleStore`] in memory, for at most [`MAX_ROLES`] roles.
#[derive(Default)]
pub struct MemoryRoles {
    roles: RwLock<HashMap<String, Arc<RoleBlock>>>,
}

impl MemoryRoles {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl RoleStore for MemoryRoles {
    async fn role(&self, company_id: &str, agent_id: &str) -> Result<Option<Arc<RoleBlock>>, StoreError> {
        let roles = self.roles.read().unwrap_or_else(PoisonError::into_inner);
        Ok(roles.get(agent_id).filter(|role| role.company_id == company_id).cloned())
    }

    async fn put_role(&self, role: RoleBlock) -> Result<(), StoreError> {
        // Making the key checks the identifiers as every other store does.
        Key::new(role.company_id.as_str(), "roles", role.id.as_str())?;
        let mut roles = self.roles.write().unwrap_or_else(PoisonError::into_inner);
        match roles.get(&role.id) {
            Some(held) if held.company_id != role.company_id => {
                return Err(StoreError::Taken(role.id));
            }
            None if roles.len() >= MAX_ROLES => {
                return Err(StoreError::unavailable("the store in memory is full"));
            }
            _ => {}
        }
        roles.insert(role.id.clone(), Arc::new(role));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::records::RecordsExt;
    use crate::testing::ManualClock;

    #[test]
    fn a_full_store_takes_again_what_fits_when_something_is_gone() {
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
        put("a", "87654321").expect("what is replaced makes room");
        put("a", "1").expect("less is taken");
        put("c", "1234").expect("what was freed is room");
        let deleted = records.delete(&key("b"), Precondition::Any).now_or_never().expect("no wait");
        assert!(deleted.expect("deleted"));
        put("d", "12345678").expect("what was deleted is room");
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
