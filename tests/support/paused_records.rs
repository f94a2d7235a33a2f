//! A store that pauses a search of documents between its read of the documents' versions and its answer, or a read of the link of
//! an assignment.

use std::sync::Arc;

use agent_platform::assignment::SYNC_COLLECTION;
use agent_platform::records::{
    Inventory, InventoryWrapper, Key, Record, Records, RecordsWrapper, StoreError,
};
use async_trait::async_trait;
use tokio::sync::watch;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pause {
    Off,
    /// The next read of documents' versions or of a link is held.
    Armed,
    /// A read is held.
    Holding,
}

/// A store over another one.
pub struct PausedRecords {
    records: Arc<dyn Inventory>,
    pause: watch::Sender<Pause>,
}

impl PausedRecords {
    /// Creates a store that pauses nothing.
    pub fn new(records: Arc<dyn Inventory>) -> Arc<Self> {
        Arc::new(Self { records, pause: watch::Sender::new(Pause::Off) })
    }

    /// Holds the next read of documents' versions once it has been made, or of a link before.
    pub fn arm(&self) {
        self.pause.send_replace(Pause::Armed);
    }

    /// Waits until a read is held.
    pub async fn held(&self) {
        let mut pause = self.pause.subscribe();
        pause.wait_for(|pause| *pause == Pause::Holding).await.expect("the store is there");
    }

    /// Lets the read continue.
    pub fn release(&self) {
        self.pause.send_replace(Pause::Off);
    }

    /// Holds the caller if the pause is armed.
    async fn hold(&self) {
        let begin = |pause: &mut Pause| {
            let is_armed = *pause == Pause::Armed;
            if is_armed {
                *pause = Pause::Holding;
            }
            is_armed
        };
        if self.pause.send_if_modified(begin) {
            let mut pause = self.pause.subscribe();
            pause.wait_for(|pause| *pause != Pause::Holding).await.expect("the store is there");
        }
    }
}

#[async_trait]
impl RecordsWrapper for PausedRecords {
    fn inner(&self) -> &dyn Records {
        &*self.records
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        if keys.iter().any(|key| key.collection().path() == SYNC_COLLECTION) {
            self.hold().await;
        }
        self.records.get_many(keys).await
    }

    async fn versions(&self, keys: &[Key]) -> Result<Vec<Option<u64>>, StoreError> {
        let versions = self.records.versions(keys).await;
        if keys.iter().any(|key| key.collection().path() == "documents") {
            self.hold().await;
        }
        versions
    }
}

impl InventoryWrapper for PausedRecords {
    fn inventory(&self) -> &dyn Inventory {
        &*self.records
    }
}
