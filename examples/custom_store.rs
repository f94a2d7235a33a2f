//! A custom store of records, in one map. The platform's agents, documents, tokens and budgets are records.
//!
//! `cargo run -p examples --example custom_store`

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use agent_core::message::SharedJson;
use agent_platform::records::{
    Collection, Key, ListQuery, MAX_VALUE_BYTES, Order, Page, Precondition, Record, RecordCounter, Records,
    RecordsExt as _, StoreError, Write, check_writes,
};
use async_trait::async_trait;

/// Records by their keys, in one map. A real store writes to a database.
#[derive(Debug, Default)]
pub(crate) struct MapRecords(Mutex<Rows>);

#[derive(Debug, Default, Clone)]
struct Rows {
    by_key: BTreeMap<Key, Record>,
    last_version: u64,
}

impl MapRecords {
    /// Locks the rows. A commit replaces them as a whole, so those behind a poisoned lock are intact.
    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rows {
    /// Writes a value under a version that no record of the store has had.
    fn put(&mut self, key: &Key, value: SharedJson) -> u64 {
        self.last_version += 1;
        let (id, version, updated) = (key.id().to_owned(), self.last_version, SystemTime::now());
        self.by_key.insert(key.clone(), Record { id, version, updated, value });
        version
    }

    fn apply(&mut self, write: &Write) -> Result<Option<u64>, StoreError> {
        let found = self.by_key.get(write.key());
        let version = found.map(|record| record.version);
        write.precondition().check(version)?;
        Ok(match write {
            Write::Put { key, value, .. } => Some(self.put(key, value.clone())),
            Write::Increment { key, limit } => {
                let value = RecordCounter::incremented(key, *limit, found)?;
                Some(self.put(key, value))
            }
            Write::Check { .. } => version,
            Write::Delete { key, .. } => {
                self.by_key.remove(key);
                version
            }
        })
    }
}

#[async_trait]
impl Records for MapRecords {
    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        let rows = self.rows();
        Ok(keys.iter().map(|key| rows.by_key.get(key).cloned()).collect())
    }

    async fn list(&self, collection: &Collection, list: &ListQuery) -> Result<Page, StoreError> {
        let after = list.after()?;
        let is_after = |id: &str| match (&after, list.order) {
            (None, _) => true,
            (Some(after), Order::Ascending) => id > after.as_str(),
            (Some(after), Order::Descending) => id < after.as_str(),
        };
        let rows = self.rows();
        let found = rows.by_key.iter().filter(|(key, _)| key.collection() == collection);
        let found = found.filter(|(key, _)| key.id().starts_with(&list.prefix) && is_after(key.id()));
        let found = found.map(|(_, record)| record.clone());
        // One record more than the page has shows that another page follows.
        let records = match list.order {
            Order::Ascending => found.take(list.page_size() + 1).collect(),
            Order::Descending => found.rev().take(list.page_size() + 1).collect(),
        };
        Ok(Page::from_overfetch(records, list))
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError> {
        check_writes(&writes, MAX_VALUE_BYTES)?;
        let mut rows = self.rows();
        // All writes take effect or none. A database has transactions for this.
        let mut changed = rows.clone();
        let versions = writes.iter().map(|write| changed.apply(write)).collect::<Result<_, _>>()?;
        *rows = changed;
        Ok(versions)
    }
}

#[expect(clippy::print_stdout, reason = "it is what an example is for")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    futures_executor::block_on(async {
        let records: Arc<dyn Records> = Arc::<MapRecords>::default();
        let key = Key::new("acme", "lists", "garden")?;
        records.put_as(&key, &["Buy soil"], Precondition::Absent).await?;
        let found = records.get_as::<Vec<String>>(&key).await?.ok_or("the record was written")?;
        println!("{:?} at version {}", found.value, found.version);
        Ok(())
    })
}
