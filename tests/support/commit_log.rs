//! A store that lists its commits.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use agent_platform::records::{Inventory, InventoryWrapper, Records, RecordsWrapper, StoreError, Write};
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
impl RecordsWrapper for CommitLog {
    fn inner(&self) -> &dyn Records {
        &*self.records
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError> {
        let names: BTreeSet<String> =
            writes.iter().filter_map(|write| write.key().collection().parts().next()).collect();
        if names.iter().any(|name| self.names.contains(&name.as_str())) {
            self.commits.lock().expect("whole").push(names);
        }
        self.records.commit(writes).await
    }
}

impl InventoryWrapper for CommitLog {
    fn inventory(&self) -> &dyn Inventory {
        &*self.records
    }
}
