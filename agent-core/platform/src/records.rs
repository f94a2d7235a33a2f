//! Records: the one door to stored data, with the tenant in every key.
//!
//! [`Records`] is small on purpose: JSON values under keys, a version for each, lists in the order of
//! ids, and writes that happen together or not at all. Three operations are a store's own; all else is
//! made of them. Typed access is sugar in [`RecordsExt`]; what the data means is [`crate::workspace`]'s
//! business. A [`Key`] cannot be made without saying whose record it is, so no query can forget the
//! tenant, and it cannot be made with parts that some database would refuse, so no store needs checks of
//! its own.
//!
//! The contract is a suite, `conformance::records`, which every store runs:
//!
//! - another company's record is as absent as one that never was;
//! - a write with a [`Precondition`] that does not hold changes nothing and says what is there;
//! - of writes that are committed together all happen or none, and no reader sees some of them;
//! - versions grow with every write and never come back, not even when a record is made anew;
//! - a value is given back as the JSON text that was put;
//! - lists are ordered by the bytes of the ids, and a page that is read while others write neither
//!   repeats a record nor leaves out one that was there all the time;
//! - a write that has returned is seen by every later read.

use std::time::SystemTime;

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::to_raw_value;

use agent_core::message::SharedJson;

pub use agent_core::store_error::StoreError;

mod key;
mod list;

pub use key::{Collection, Key, MAX_COLLECTION_BYTES, MAX_ID_BYTES, MAX_KEY_ID_BYTES};
pub use list::{DEFAULT_PAGE, List, MAX_PAGE, Order, Page};

/// The most bytes that a value has as JSON text, unless a store is told otherwise.
pub const MAX_VALUE_BYTES: usize = 1024 * 1024;
/// How many writes are committed together at most, unless a store takes more.
pub const MAX_WRITES: usize = 100_000;

/// How often [`RecordsExt::update`] and its like try when others write to the same records.
pub(crate) const UPDATE_ATTEMPTS: usize = 32;

/// What must be true of a record for a write to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precondition {
    /// Nothing: whatever is there is replaced.
    Any,
    /// There is no record.
    Absent,
    /// The record is there at this version.
    Version(u64),
}

impl Precondition {
    /// Compares with the version that is there.
    pub fn check(self, found: Option<u64>) -> Result<(), StoreError> {
        let expected = match self {
            Self::Any => return Ok(()),
            Self::Absent => None,
            Self::Version(version) => Some(version),
        };
        if expected == found { Ok(()) } else { Err(StoreError::Conflict { expected, found }) }
    }
}

/// A stored value with what the store knows about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record<T = SharedJson> {
    /// The id within the collection.
    pub id: String,
    /// Grows with every write; at most 2^53, so that every JSON reader holds it exactly.
    pub version: u64,
    /// When it was last written, to the millisecond.
    pub updated: SystemTime,
    /// What was put.
    pub value: T,
}

impl Record {
    /// Reads the value as a `T`.
    pub fn parse<T: DeserializeOwned>(self, collection: &Collection) -> Result<Record<T>, StoreError> {
        let Self { id, version, updated, value } = self;
        match serde_json::from_str(value.get()) {
            Ok(value) => Ok(Record { id, version, updated, value }),
            Err(source) => {
                Err(StoreError::Malformed { collection: collection.path().to_owned(), id, source })
            }
        }
    }
}

/// One of the writes that are committed together.
#[derive(Debug, Clone)]
pub enum Write {
    /// Puts a value under a key.
    Put {
        /// Where.
        key: Key,
        /// What.
        value: SharedJson,
        /// What must be true of the record before.
        precondition: Precondition,
    },
    /// Removes a record.
    Delete {
        /// Which.
        key: Key,
        /// What must be true of the record before.
        precondition: Precondition,
    },
}

impl Write {
    /// The record that is written.
    pub fn key(&self) -> &Key {
        match self {
            Self::Put { key, .. } | Self::Delete { key, .. } => key,
        }
    }

    /// What must be true of the record before.
    pub fn precondition(&self) -> Precondition {
        match self {
            Self::Put { precondition, .. } | Self::Delete { precondition, .. } => *precondition,
        }
    }
}

/// What can be said of writes without looking at what is there: for stores, before they do anything.
///
/// # Errors
/// [`StoreError::Invalid`] for more than [`MAX_WRITES`], [`StoreError::TooLarge`] for the first value of more
/// than `max_value_bytes`.
pub fn check_writes(writes: &[Write], max_value_bytes: usize) -> Result<(), StoreError> {
    if writes.len() > MAX_WRITES {
        let fault = format!("there are {} writes, and at most {MAX_WRITES} are taken", writes.len());
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

/// Stored data, by tenant, collection and id. The [module](self) states the contract.
#[async_trait]
pub trait Records: Send + Sync + 'static {
    /// The records of these keys, in their order and as of one moment; absent ones are `None`.
    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError>;

    /// One page of a collection. Records of the collections below it are not among them.
    async fn list(&self, collection: &Collection, list: &List) -> Result<Page, StoreError>;

    /// Does all these writes, in their order, or none of them. For each, the version that was put, or
    /// the one that was removed; `None` where there was nothing to remove. Two writes to one record are
    /// as one after the other.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] where a precondition does not hold, [`StoreError::TooLarge`] for a value
    /// that is, [`StoreError::Invalid`] for more than [`MAX_WRITES`] writes.
    async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError>;

    /// The record, if it is there.
    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        Ok(self.get_many(std::slice::from_ref(key)).await?.pop().flatten())
    }

    /// Writes a value and gives its version. Fails as [`commit`](Self::commit) does.
    async fn put(&self, key: &Key, value: SharedJson, precondition: Precondition) -> Result<u64, StoreError> {
        let written = self.commit(vec![Write::Put { key: key.clone(), value, precondition }]).await?;
        // A store that gives no version for what it has put does not hold the contract.
        written.into_iter().next().flatten().ok_or_else(|| StoreError::unavailable("a version is missing"))
    }

    /// Removes a record and says whether there was one. Fails as [`commit`](Self::commit) does.
    async fn delete(&self, key: &Key, precondition: Precondition) -> Result<bool, StoreError> {
        let removed = self.commit(vec![Write::Delete { key: key.clone(), precondition }]).await?;
        Ok(removed.into_iter().flatten().next().is_some())
    }

    /// Adds a record under a fresh id, which sorts after those of earlier calls, and gives the id.
    /// Between processes the order is that of their clocks, to the millisecond.
    async fn append(&self, collection: &Collection, value: SharedJson) -> Result<String, StoreError> {
        let key = collection.key(agent_core::new_id())?;
        self.put(&key, value, Precondition::Absent).await?;
        Ok(key.id().to_owned())
    }
}

/// What there is at all: for an operator's own tools, such as an export. No tenant's request leads here.
#[async_trait]
pub trait Inventory: Records {
    /// The companies that have records, by the bytes of their ids, beginning after `after`, at most
    /// [`MAX_PAGE`] of them.
    async fn companies(&self, after: Option<&str>) -> Result<Vec<String>, StoreError>;

    /// The collections of a company that have records, by the bytes of their paths, beginning after the
    /// path `after`, at most [`MAX_PAGE`] of them.
    async fn collections(&self, company: &str, after: Option<&str>) -> Result<Vec<Collection>, StoreError>;
}

/// Typed access to [`Records`], for every store alike.
pub trait RecordsExt: Records {
    /// The records of these keys, each as a `T`, in their order and as of one moment.
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

    /// The record as a `T`, if it is there.
    fn get_as<T: DeserializeOwned + Send>(
        &self,
        key: &Key,
    ) -> impl Future<Output = Result<Option<Record<T>>, StoreError>> + Send {
        async move { self.get(key).await?.map(|record| record.parse(key.collection())).transpose() }
    }

    /// Writes a value and gives its version.
    fn put_as<T: Serialize + Sync>(
        &self,
        key: &Key,
        value: &T,
        precondition: Precondition,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send {
        async move { self.put(key, to_json(value)?, precondition).await }
    }

    /// Adds a record under a fresh id and gives the id.
    fn append_as<T: Serialize + Sync>(
        &self,
        collection: &Collection,
        value: &T,
    ) -> impl Future<Output = Result<String, StoreError>> + Send {
        async move { self.append(collection, to_json(value)?).await }
    }

    /// One page of a collection, each record as a `T`.
    fn list_as<T: DeserializeOwned + Send>(
        &self,
        collection: &Collection,
        list: &List,
    ) -> impl Future<Output = Result<Page<T>, StoreError>> + Send {
        async move {
            let Page { records, next_cursor } = self.list(collection, list).await?;
            let records =
                records.into_iter().map(|record| record.parse(collection)).collect::<Result<_, _>>()?;
            Ok(Page { records, next_cursor })
        }
    }

    /// Reads a record, changes it and writes it back, again from the start where somebody else wrote
    /// meanwhile. `change` is given what is there and says what shall be there; it may run several
    /// times. Gives what is there now, and its version. Fails with [`StoreError::Conflict`] only after
    /// many rounds that others won.
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
            let mut attempt = 1;
            loop {
                let found = self.get_as::<T>(key).await?;
                let precondition = found
                    .as_ref()
                    .map_or(Precondition::Absent, |record| Precondition::Version(record.version));
                let value = change(found)?;
                match self.put_as(key, &value, precondition).await {
                    Ok(version) => return Ok((value, version)),
                    Err(StoreError::Conflict { .. }) if attempt < UPDATE_ATTEMPTS => attempt += 1,
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }
}

impl<R: Records + ?Sized> RecordsExt for R {}

/// A value as JSON text.
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
