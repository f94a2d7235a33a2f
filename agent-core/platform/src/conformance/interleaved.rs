//! A store whose operations yield to other tasks first, so that concurrent operations interleave over any store.

use std::sync::Arc;
use std::task::Poll;

use async_trait::async_trait;

use crate::records::{
    Collection, Inventory, Key, ListQuery, Page, Record, Records, RecordsWrapper, StoreError, Write,
};

/// Store that yields before each operation.
pub(super) struct InterleavedRecords(pub(super) Arc<dyn Inventory>);

#[async_trait]
impl RecordsWrapper for InterleavedRecords {
    fn inner(&self) -> &dyn Records {
        &*self.0
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        yield_once().await;
        self.0.get_many(keys).await
    }

    async fn list(&self, collection: &Collection, list: &ListQuery) -> Result<Page, StoreError> {
        yield_once().await;
        self.0.list(collection, list).await
    }

    async fn count(&self, collection: &Collection) -> Result<u64, StoreError> {
        yield_once().await;
        self.0.count(collection).await
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError> {
        yield_once().await;
        self.0.commit(writes).await
    }

    async fn versions(&self, keys: &[Key]) -> Result<Vec<Option<u64>>, StoreError> {
        yield_once().await;
        self.0.versions(keys).await
    }
}

/// Returns control to the executor once.
async fn yield_once() {
    let mut has_yielded = false;
    let poll = |context: &mut std::task::Context<'_>| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    };
    std::future::poll_fn(poll).await;
}
