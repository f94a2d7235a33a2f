//! Stores over other stores: everything that is not overridden is forwarded.

use async_trait::async_trait;

use super::{Collection, Inventory, Key, ListQuery, Page, Record, Records, StoreError, Write, WriterPermit};

/// A store over another one. Each operation is forwarded to the inner store unless the implementation overrides it, and
/// [`Records`] is implemented for all wrappers.
///
/// [`Records::get`], [`put`](Records::put), [`delete`](Records::delete) and [`append`](Records::append) of a wrapper call its
/// `get_many` and `commit`, so a wrapper that overrides these two sees every read of a record and every write. `count` and
/// `versions` are forwarded like the others: a wrapper that changes what is read overrides them too.
#[async_trait]
pub trait RecordsWrapper: Send + Sync + 'static {
    /// Returns the store below.
    fn inner(&self) -> &dyn Records;

    /// Overrides [`Records::get_many`].
    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        self.inner().get_many(keys).await
    }

    /// Overrides [`Records::list`].
    async fn list(&self, collection: &Collection, list: &ListQuery) -> Result<Page, StoreError> {
        self.inner().list(collection, list).await
    }

    /// Overrides [`Records::count`].
    async fn count(&self, collection: &Collection) -> Result<u64, StoreError> {
        self.inner().count(collection).await
    }

    /// Overrides [`Records::commit`].
    async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError> {
        self.inner().commit(writes).await
    }

    /// Overrides [`Records::versions`].
    async fn versions(&self, keys: &[Key]) -> Result<Vec<Option<u64>>, StoreError> {
        self.inner().versions(keys).await
    }

    /// Overrides [`Records::acquire_writer_permit`].
    async fn acquire_writer_permit(&self, key: &Key) -> WriterPermit {
        self.inner().acquire_writer_permit(key).await
    }

    /// Overrides [`Records::check_writable`].
    async fn check_writable(&self) -> Result<(), StoreError> {
        self.inner().check_writable().await
    }
}

#[async_trait]
impl<W: RecordsWrapper> Records for W {
    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        RecordsWrapper::get_many(self, keys).await
    }

    async fn list(&self, collection: &Collection, list: &ListQuery) -> Result<Page, StoreError> {
        RecordsWrapper::list(self, collection, list).await
    }

    async fn count(&self, collection: &Collection) -> Result<u64, StoreError> {
        RecordsWrapper::count(self, collection).await
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError> {
        RecordsWrapper::commit(self, writes).await
    }

    async fn versions(&self, keys: &[Key]) -> Result<Vec<Option<u64>>, StoreError> {
        RecordsWrapper::versions(self, keys).await
    }

    async fn acquire_writer_permit(&self, key: &Key) -> WriterPermit {
        RecordsWrapper::acquire_writer_permit(self, key).await
    }

    async fn check_writable(&self) -> Result<(), StoreError> {
        RecordsWrapper::check_writable(self).await
    }
}

/// A [`RecordsWrapper`] over a store with an [`Inventory`], which is forwarded.
pub trait InventoryWrapper: RecordsWrapper {
    /// Returns the store below.
    fn inventory(&self) -> &dyn Inventory;
}

#[async_trait]
impl<W: InventoryWrapper> Inventory for W {
    async fn companies(&self, after: Option<&str>) -> Result<Vec<String>, StoreError> {
        self.inventory().companies(after).await
    }

    async fn collections(&self, company: &str, after: Option<&str>) -> Result<Vec<Collection>, StoreError> {
        self.inventory().collections(company, after).await
    }
}
