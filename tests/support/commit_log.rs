//! A store that lists its commits.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use agent_platform::records::{
    Collection, Inventory, Key, ListQuery, Page, Record, Records, StoreError, Write, WriterTurn,
};
use async_trait::async_trait;

/// A store over another one that lists the collections of each commit.
pub struct CommitLog {
    records: Arc<dyn Inventory>,
    /// Names of the collections whose commits are listed.
    names: &'static [&'static str],
    commits: Mutex<Vec<BTreeSet<String>>>,
}

impl CommitLog {
    /// Creates a store that lists the commits with records of some collections.
    pub fn new(records: Arc<dyn Inventory>, names: &'static [&'static str]) -> Arc<Self> {
        Arc::new(Self { records, names, commits: Mutex::default() })
    }

    /// Returns the collections of each commit since the last call, whether it succeeded or not.
    pub fn take(&self) -> Vec<BTreeSet<String>> {
        std::mem::take(&mut *self.commits.lock().expect("whole"))
    }
}

#[async_trait]
impl Records for CommitLog {
    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        self.records.get_many(keys).await
    }

    async fn list(&self, collection: &Collection, list: &ListQuery) -> Result<Page, StoreError> {
        self.records.list(collection, list).await
    }

    async fn count(&self, collection: &Collection) -> Result<u64, StoreError> {
        self.records.count(collection).await
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError> {
        let names: BTreeSet<String> =
            writes.iter().filter_map(|write| write.key().collection().parts().next()).collect();
        if names.iter().any(|name| self.names.contains(&name.as_str())) {
            self.commits.lock().expect("whole").push(names);
        }
        self.records.commit(writes).await
    }

    async fn versions(&self, keys: &[Key]) -> Result<Vec<Option<u64>>, StoreError> {
        self.records.versions(keys).await
    }

    async fn wait_turn(&self, key: &Key) -> WriterTurn {
        self.records.wait_turn(key).await
    }

    async fn check_writable(&self) -> Result<(), StoreError> {
        self.records.check_writable().await
    }
}

#[async_trait]
impl Inventory for CommitLog {
    async fn companies(&self, after: Option<&str>) -> Result<Vec<String>, StoreError> {
        self.records.companies(after).await
    }

    async fn collections(&self, company: &str, after: Option<&str>) -> Result<Vec<Collection>, StoreError> {
        self.records.collections(company, after).await
    }
}
