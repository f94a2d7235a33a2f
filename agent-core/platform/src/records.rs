//! Records: the only interface to stored data, with the tenant in every key.
//!
//! [`Records`] is deliberately small: JSON values under keys, each with a version, lists ordered by id, and atomic
//! commits. A store implements three operations; the others are built from them. [`RecordsExt`] adds typed access; the
//! meaning of the data is defined in [`crate::workspace`]. A [`Key`] cannot be built without its company, so no query
//! can omit the tenant. A key cannot contain characters that a database would reject, so stores need no further checks.
//!
//! The contract is the suite `conformance::records`, which every store runs:
//!
//! - another company's record is reported as absent;
//! - a write whose [`Precondition`] does not hold changes nothing and reports the version found;
//! - writes that are committed together are atomic, and no reader sees some of them;
//! - versions grow with every write and are never reused, even if a record is deleted and created again;
//! - a value is returned as the JSON text that was put;
//! - a check changes nothing, and concurrent increments do not conflict;
//! - lists are ordered by the bytes of the ids, and pages read during writes neither repeat a record nor omit one that
//!   existed all the time;
//! - a completed write is visible to every later read.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::to_raw_value;

use agent_core::message::SharedJson;

pub use agent_core::store_error::StoreError;

mod key;
mod list;
mod nested_cursor;
mod quota;
mod record;
mod wrapper;
mod writer_queues;

pub use key::{Collection, Key, MAX_COLLECTION_BYTES, MAX_ID_BYTES, MAX_KEY_ID_BYTES};
pub use list::{DEFAULT_PAGE_RECORDS, ListQuery, MAX_PAGE_RECORDS, Order, Page};
pub use nested_cursor::NestedCollectionCursor;
pub use record::Record;
pub use wrapper::{InventoryWrapper, RecordsWrapper};
pub use writer_queues::{WriterPermit, WriterQueues};

pub(crate) use nested_cursor::delete_unchanged;
#[cfg(feature = "conformance")]
pub(crate) use quota::QUOTAS;
pub(crate) use quota::{CountQuota, CountQuotaError, Quota, put_within, quota_key};

/// Default limit of a value's JSON text, in bytes. A store may be configured with another.
pub const MAX_VALUE_BYTES: usize = 1024 * 1024;
/// Maximum number of writes in one commit. A store may accept more.
pub const MAX_WRITES: usize = 100_000;

/// Maximum number of attempts of [`RecordsExt::update`] and similar loops if other writers
/// change the same records.
pub(crate) const UPDATE_ATTEMPTS: usize = 512;

/// Condition on a record that must hold for a write to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precondition {
    /// No condition: an existing record is replaced.
    Any,
    /// The record does not exist.
    Absent,
    /// The record exists at this version.
    Version(u64),
}

impl Precondition {
    /// Returns the condition that a record is unchanged since it was read at `version`; `None` stands for no record.
    pub fn unchanged_since(version: Option<u64>) -> Self {
        version.map_or(Self::Absent, Self::Version)
    }

    /// Checks the condition against the version found, `None` if there is no record.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if it does not hold.
    pub fn check(self, found: Option<u64>) -> Result<(), StoreError> {
        let expected = match self {
            Self::Any => return Ok(()),
            Self::Absent => None,
            Self::Version(version) => Some(version),
        };
        if expected == found { Ok(()) } else { Err(StoreError::Conflict { expected, found }) }
    }
}

/// One of the writes of a commit.
#[derive(Debug, Clone)]
pub enum Write {
    /// Puts a value under a key.
    Put {
        /// Key of the record.
        key: Key,
        /// The value.
        value: SharedJson,
        /// Condition that must hold for the record.
        precondition: Precondition,
    },
    /// Deletes a record.
    Delete {
        /// Key of the record.
        key: Key,
        /// Condition that must hold for the record.
        precondition: Precondition,
    },
    /// Checks a record without changing it.
    Check {
        /// Key of the record.
        key: Key,
        /// Condition that must hold for the record.
        precondition: Precondition,
    },
    /// Adds 1 to the counter in a record, `{"count": n}`; an absent record counts as 0. Concurrent additions do not
    /// conflict, in contrast to a put of a count that was read. At the limit the write fails as if its precondition
    /// did not hold.
    Increment {
        /// Key of the record.
        key: Key,
        /// Highest count.
        limit: u64,
    },
}

impl Write {
    /// Returns the key of the record.
    pub fn key(&self) -> &Key {
        match self {
            Self::Put { key, .. }
            | Self::Delete { key, .. }
            | Self::Check { key, .. }
            | Self::Increment { key, .. } => key,
        }
    }

    /// Returns the condition that must hold for the record.
    pub fn precondition(&self) -> Precondition {
        match self {
            Self::Put { precondition, .. }
            | Self::Delete { precondition, .. }
            | Self::Check { precondition, .. } => *precondition,
            Self::Increment { .. } => Precondition::Any,
        }
    }
}

/// Value of a record that [`Write::Increment`] changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordCounter {
    /// The count.
    pub count: u64,
}

impl RecordCounter {
    /// Returns the value that an increment puts in place of `found`, the record under `key`. For stores.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] at the limit, [`StoreError::Malformed`] if the record has no counter.
    pub fn incremented(key: &Key, limit: u64, found: Option<&Record>) -> Result<SharedJson, StoreError> {
        let counter: Option<Record<Self>> =
            found.map(|record| record.clone().parse(key.collection())).transpose()?;
        let version = counter.as_ref().map(|record| record.version);
        let count = counter.map_or(0, |record| record.value.count);
        if count >= limit {
            return Err(StoreError::Conflict { expected: None, found: version });
        }
        to_json(&Self { count: count + 1 })
    }
}

/// Checks the number and the sizes of writes, for stores before they begin a transaction.
///
/// # Errors
/// [`StoreError::Invalid`] for more than [`MAX_WRITES`], [`StoreError::TooLarge`] for the first value of more than
/// `max_value_bytes`.
pub fn check_writes(writes: &[Write], max_value_bytes: usize) -> Result<(), StoreError> {
    if writes.len() > MAX_WRITES {
        let fault = format!("the commit has {} writes; the limit is {MAX_WRITES}", writes.len());
        return Err(StoreError::Invalid(fault));
    }
    for write in writes {
        if let Write::Put { value, .. } = write
            && value.get().len() > max_value_bytes
        {
            return Err(StoreError::TooLarge { bytes: value.get().len(), limit: max_value_bytes });
        }
    }
    Ok(())
}

/// Stored data by tenant, collection and id. The [module](self) states the contract.
#[async_trait]
pub trait Records: Send + Sync + 'static {
    /// Returns the records of these keys, in their order and from one snapshot; absent ones are `None`.
    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError>;

    /// Returns one page of a collection. Nested collections are not included.
    async fn list(&self, collection: &Collection, list: &ListQuery) -> Result<Page, StoreError>;

    /// Returns the number of records of a collection, without those of nested collections. The default implementation
    /// reads the whole collection, so a store should count by an index.
    async fn count(&self, collection: &Collection) -> Result<u64, StoreError> {
        let mut list = ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() };
        let mut count = 0;
        loop {
            let page = self.list(collection, &list).await?;
            count += page.records.len() as u64;
            list.cursor = page.next_cursor;
            if list.cursor.is_none() {
                return Ok(count);
            }
        }
    }

    /// Applies all writes in order and atomically. Returns for each the version that was put, deleted or checked; `None`
    /// if there was no record to delete or check. Several writes to one record take effect one after the other.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if a precondition does not hold, [`StoreError::TooLarge`] for a value that exceeds the
    /// limit, [`StoreError::Invalid`] for more than [`MAX_WRITES`] writes.
    async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError>;

    /// Returns the versions of these records, in their order and from one snapshot; `None` for one that does not exist.
    /// Sees every write that has completed, in any process. The default implementation reads the records, so a store
    /// should read the versions alone, and not from a cache.
    async fn versions(&self, keys: &[Key]) -> Result<Vec<Option<u64>>, StoreError> {
        Ok(self.get_many(keys).await?.into_iter().map(|found| found.map(|record| record.version)).collect())
    }

    /// Waits until a writer may repeat its change of a record after a conflict, so that the writers of a process do not
    /// conflict again and again. A store does this by [`WriterQueues`]; the default implementation does not wait. The next
    /// writer continues when the permit is dropped, so the future that holds it must be polled to the end.
    async fn acquire_writer_permit(&self, _key: &Key) -> WriterPermit {
        WriterPermit::default()
    }

    /// Checks that the store can be written, for a service's readiness. A store that has no failed write behind it
    /// answers at once; the default implementation always does.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] with the reason.
    async fn check_writable(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Returns the record, if it exists.
    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        Ok(self.get_many(std::slice::from_ref(key)).await?.pop().flatten())
    }

    /// Writes a value and returns its version. Fails as [`commit`](Self::commit) does.
    async fn put(&self, key: &Key, value: SharedJson, precondition: Precondition) -> Result<u64, StoreError> {
        commit_put(self, vec![Write::Put { key: key.clone(), value, precondition }]).await
    }

    /// Deletes a record and returns true if it existed. Fails as [`commit`](Self::commit) does.
    async fn delete(&self, key: &Key, precondition: Precondition) -> Result<bool, StoreError> {
        let removed = self.commit(vec![Write::Delete { key: key.clone(), precondition }]).await?;
        Ok(removed.into_iter().flatten().next().is_some())
    }

    /// Adds a record under a new id, which sorts after the ids of earlier calls, and returns the id. Between processes
    /// the order is that of their clocks, to the millisecond.
    async fn append(&self, collection: &Collection, value: SharedJson) -> Result<String, StoreError> {
        let key = collection.key(agent_core::new_id())?;
        self.put(&key, value, Precondition::Absent).await?;
        Ok(key.id().to_owned())
    }
}

/// Enumeration of companies and collections, for an operator's tools such as an export. No tenant's request uses it.
#[async_trait]
pub trait Inventory: Records {
    /// Returns the companies that have records, ordered by the bytes of their ids, starting after `after`, at most
    /// [`MAX_PAGE_RECORDS`] of them. The records [of the platform](Collection::of_platform) belong to no company.
    async fn companies(&self, after: Option<&str>) -> Result<Vec<String>, StoreError>;

    /// Returns the collections of a company that have records, ordered by the bytes of their paths, starting after the
    /// path `after`, at most [`MAX_PAGE_RECORDS`] of them. Those of the platform are the ones of the company `""`.
    async fn collections(&self, company: &str, after: Option<&str>) -> Result<Vec<Collection>, StoreError>;
}

/// Typed access to [`Records`], implemented for every store.
pub trait RecordsExt: Records {
    /// Returns the records of these keys, each as a `T`, in their order and from one snapshot.
    fn get_many_as<T: DeserializeOwned + Send>(
        &self,
        keys: &[Key],
    ) -> impl Future<Output = Result<Vec<Option<Record<T>>>, StoreError>> + Send {
        async move {
            let found = self.get_many(keys).await?.into_iter().zip(keys);
            found
                .map(|(record, key)| record.map(|record| record.parse(key.collection())).transpose())
                .collect()
        }
    }

    /// Returns the record as a `T`, if it exists.
    fn get_as<T: DeserializeOwned + Send>(
        &self,
        key: &Key,
    ) -> impl Future<Output = Result<Option<Record<T>>, StoreError>> + Send {
        async move { self.get(key).await?.map(|record| record.parse(key.collection())).transpose() }
    }

    /// Writes a value and returns its version.
    fn put_as<T: Serialize + Sync>(
        &self,
        key: &Key,
        value: &T,
        precondition: Precondition,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send {
        async move { self.put(key, to_json(value)?, precondition).await }
    }

    /// Adds a record under a new id and returns the id.
    fn append_as<T: Serialize + Sync>(
        &self,
        collection: &Collection,
        value: &T,
    ) -> impl Future<Output = Result<String, StoreError>> + Send {
        async move { self.append(collection, to_json(value)?).await }
    }

    /// Returns one page of a collection, each record as a `T`.
    fn list_as<T: DeserializeOwned + Send>(
        &self,
        collection: &Collection,
        list: &ListQuery,
    ) -> impl Future<Output = Result<Page<T>, StoreError>> + Send {
        async move {
            let Page { records, next_cursor } = self.list(collection, list).await?;
            let records =
                records.into_iter().map(|record| record.parse(collection)).collect::<Result<_, _>>()?;
            Ok(Page { records, next_cursor })
        }
    }

    /// Reads a record, changes it and writes it back (optimistic concurrency). `change` maps the current record to the
    /// new value; it runs again whenever another writer changed the record meanwhile. Returns the new value and its
    /// version. Fails with [`StoreError::Conflict`] after 512 attempts.
    fn update<T, E>(
        &self,
        key: &Key,
        mut change: impl FnMut(Option<Record<T>>) -> Result<T, E> + Send,
    ) -> impl Future<Output = Result<(T, u64), E>> + Send
    where
        T: Serialize + DeserializeOwned + Send + Sync,
        E: From<StoreError> + Send,
    {
        async move {
            let mut attempts = UpdateAttempts::new(self, key);
            loop {
                let found = self.get_as::<T>(key).await?;
                let precondition = Precondition::unchanged_since(found.as_ref().map(|record| record.version));
                let value = change(found)?;
                match self.put_as(key, &value, precondition).await {
                    Ok(version) => return Ok((value, version)),
                    Err(error) => attempts.retry(error).await?,
                }
            }
        }
    }
}

impl<R: Records + ?Sized> RecordsExt for R {}

/// Attempts at a change of a record that other writers may change concurrently.
pub(crate) struct UpdateAttempts<'r, R: ?Sized> {
    records: &'r R,
    key: &'r Key,
    /// Number of attempts that met a conflict.
    conflicts: usize,
    permit: Option<WriterPermit>,
}

impl<'r, R: Records + ?Sized> UpdateAttempts<'r, R> {
    /// Begins the first attempt at a change of the record under `key`.
    pub(crate) fn new(records: &'r R, key: &'r Key) -> Self {
        Self { records, key, conflicts: 0, permit: None }
    }

    /// Begins another attempt after one that ended with `error`: waits for the writer's permit, which is held until this
    /// value is dropped.
    ///
    /// # Errors
    /// `error` if it is not a conflict, or after [`UPDATE_ATTEMPTS`] attempts.
    pub(crate) async fn retry(&mut self, error: StoreError) -> Result<(), StoreError> {
        self.conflicts += 1;
        if !matches!(error, StoreError::Conflict { .. }) || self.conflicts >= UPDATE_ATTEMPTS {
            return Err(error);
        }
        if self.permit.is_none() {
            self.permit = Some(self.records.acquire_writer_permit(self.key).await);
        }
        Ok(())
    }
}

/// Commits writes and returns the version of the first one, which is a put.
pub(crate) async fn commit_put<R: Records + ?Sized>(
    records: &R,
    writes: Vec<Write>,
) -> Result<u64, StoreError> {
    let version = records.commit(writes).await?.into_iter().next().flatten();
    // A store that returns no version for a put violates the contract.
    version.ok_or_else(|| StoreError::unavailable("a version is missing"))
}

/// Truncates a time to the precision that every store keeps.
pub(crate) fn to_millis(time: SystemTime) -> SystemTime {
    let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    UNIX_EPOCH + Duration::from_millis(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}

/// Serializes a value as JSON text.
pub(crate) fn to_json(value: &impl Serialize) -> Result<SharedJson, StoreError> {
    match to_raw_value(value) {
        Ok(json) => Ok(json.into()),
        Err(error) => Err(StoreError::Invalid(format!("the value is not JSON: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conflict_reads_as_a_sentence() {
        let error = Precondition::Version(3).check(None).expect_err("nothing there");
        assert_eq!(error.to_string(), "the record has changed: expected version 3, found none");
    }

    #[test]
    fn ids_sort_by_age() {
        let ids: Vec<String> = (0..1000).map(|_| agent_core::new_id()).collect();
        assert!(ids.is_sorted());
    }
}
