//! Records: the one door to stored data, with the tenant in every key.
//!
//! [`Records`] is small on purpose: JSON values under keys, a version for each, lists in the order of
//! ids. Typed access is sugar in [`RecordsExt`]; what the data means is [`crate::workspace`]'s
//! business. A [`Key`] cannot be made without a company, so no query can forget the tenant, and it
//! cannot be made with parts that some database would refuse, so no store needs checks of its own.
//!
//! The contract is a suite, `conformance::records`, which every store runs:
//!
//! - another company's record is as absent as one that never was;
//! - a write with a [`Precondition`] that does not hold changes nothing and says what is there;
//! - versions grow with every write and never come back, not even when a record is made anew;
//! - a value is given back as the JSON text that was put;
//! - lists are ordered by the bytes of the ids, and a page that is read while others write neither
//!   repeats a record nor leaves out one that was there all the time;
//! - a write that has returned is seen by every later read.

use std::error::Error;
use std::fmt;
use std::time::SystemTime;

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::to_raw_value;

use crate::message::SharedJson;
use crate::payload::hex;

/// The most bytes that a company's or a thing's identifier has.
pub const MAX_ID_BYTES: usize = 128;
/// The most bytes that a key's id has: room for keys that are made from an identifier and a suffix.
pub const MAX_KEY_ID_BYTES: usize = 256;
/// The most bytes that a collection's path has.
pub const MAX_COLLECTION_BYTES: usize = 1024;
/// The most bytes that a value has as JSON text, unless a store is told otherwise.
pub const MAX_VALUE_BYTES: usize = 1024 * 1024;
/// How many records a page has where nothing else is asked for.
pub const DEFAULT_PAGE: usize = 50;
/// How many records a page has at most.
pub const MAX_PAGE: usize = 200;

/// How often [`RecordsExt::update`] tries again when others write to the same record.
const UPDATE_ATTEMPTS: usize = 32;

/// Why a store did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The record is not as the caller believed: changed, created or removed meanwhile.
    #[error("the record has changed: expected {}, found {}", Version(*expected), Version(*found))]
    Conflict {
        /// The version that the caller named; absent for a record that should not be there yet.
        expected: Option<u64>,
        /// The version that is there.
        found: Option<u64>,
    },
    /// The identifier belongs to another company, where it must be unique among all.
    #[error("the id {0:?} is taken")]
    Taken(String),
    /// A key, cursor or value that the store cannot take; the text names it.
    #[error("{0}")]
    Invalid(String),
    /// A value that is larger than the store takes.
    #[error("the value has {bytes} bytes, and at most {limit} are taken")]
    TooLarge {
        /// The value's size as JSON text.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// What is stored is not what the caller's type expects.
    #[error("the record {id:?} in {collection:?} is not of the expected shape")]
    Malformed {
        /// The collection's path.
        collection: String,
        /// The record's id.
        id: String,
        /// What does not fit.
        #[source]
        source: serde_json::Error,
    },
    /// The store cannot answer now.
    #[error("the store is not available")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
}

impl StoreError {
    /// Wraps what keeps a store from answering.
    pub fn unavailable(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Unavailable(source.into())
    }
}

/// A version in words, for messages.
struct Version(Option<u64>);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(version) => write!(f, "version {version}"),
            None => f.write_str("none"),
        }
    }
}

/// A set of records of one company, by a path such as `documents` or `memories/agent-7/notes`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Collection {
    company: String,
    path: String,
}

impl Collection {
    /// The collection `name` of `company`. Fails with [`StoreError::Invalid`] on an empty or overlong
    /// part and on control characters, which not every database can hold.
    pub fn new(company: impl Into<String>, name: &str) -> Result<Self, StoreError> {
        let company = company.into();
        check("the company id", &company, MAX_ID_BYTES)?;
        let path = escape(name);
        check("the collection", &path, MAX_COLLECTION_BYTES)?;
        Ok(Self { company, path })
    }

    /// The collection `part` below this one. Two different sequences of parts are two different
    /// collections, whatever characters the parts contain.
    pub fn within(mut self, part: &str) -> Result<Self, StoreError> {
        check("a part of the collection", part, MAX_KEY_ID_BYTES)?;
        self.path.push('/');
        self.path.push_str(&escape(part));
        check("the collection", &self.path, MAX_COLLECTION_BYTES)?;
        Ok(self)
    }

    /// The key of the record `id` in this collection.
    pub fn key(&self, id: impl Into<String>) -> Result<Key, StoreError> {
        let id = id.into();
        check("the id", &id, MAX_KEY_ID_BYTES)?;
        Ok(Key { collection: self.clone(), id })
    }

    /// The tenant.
    pub fn company(&self) -> &str {
        &self.company
    }

    /// The path below the tenant, its parts escaped and joined by `/`.
    pub fn path(&self) -> &str {
        &self.path
    }
}

/// Where a record is: tenant, collection and id.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    collection: Collection,
    id: String,
}

impl Key {
    /// The key of `id` in the collection `name` of `company`; see [`Collection::new`] for what fails.
    pub fn new(company: impl Into<String>, name: &str, id: impl Into<String>) -> Result<Self, StoreError> {
        Collection::new(company, name)?.key(id)
    }

    /// The tenant and the collection.
    pub fn collection(&self) -> &Collection {
        &self.collection
    }

    /// The tenant.
    pub fn company(&self) -> &str {
        self.collection.company()
    }

    /// The record's id within its collection.
    pub fn id(&self) -> &str {
        &self.id
    }
}

fn check(what: &str, text: &str, limit: usize) -> Result<(), StoreError> {
    let fault = if text.is_empty() {
        "is empty".to_owned()
    } else if text.len() > limit {
        format!("has {} bytes, and at most {limit} are taken", text.len())
    } else if text.chars().any(char::is_control) {
        "has a control character".to_owned()
    } else {
        return Ok(());
    };
    Err(StoreError::Invalid(format!("{what} {fault}")))
}

/// Keeps `/` for what joins the parts of a path.
fn escape(part: &str) -> String {
    part.replace('%', "%25").replace('/', "%2F")
}

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
            Err(source) => Err(StoreError::Malformed { collection: collection.path.clone(), id, source }),
        }
    }
}

/// Which records to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct List {
    /// Only ids that begin with this; empty is all.
    pub prefix: String,
    /// How many records at most; absent is [`DEFAULT_PAGE`], and more than [`MAX_PAGE`] are not given.
    pub limit: Option<usize>,
    /// Where an earlier page of the same list ended.
    pub cursor: Option<String>,
    /// In which order.
    pub order: Order,
}

/// The order of a list, by the bytes of the ids.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    /// Smallest id first; of appended records, the oldest.
    #[default]
    Ascending,
    /// Largest id first; of appended records, the newest.
    Descending,
}

impl List {
    /// How many records the page has at most, between 1 and [`MAX_PAGE`].
    pub fn page_size(&self) -> usize {
        self.limit.unwrap_or(DEFAULT_PAGE).clamp(1, MAX_PAGE)
    }

    /// The id after which, in the list's order, the page begins; [`StoreError::Invalid`] where the
    /// cursor is none of ours.
    pub fn after(&self) -> Result<Option<String>, StoreError> {
        self.cursor.as_deref().map(open_cursor).transpose()
    }
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T = SharedJson> {
    /// The records, in the list's order.
    pub records: Vec<Record<T>>,
    /// Where the next page begins; absent on the last one.
    pub next_cursor: Option<String>,
}

impl Page {
    /// Makes a page for `list` of records in its order, of which a store reads one more than
    /// [`List::page_size`] to know whether there is another page.
    pub fn cut(mut records: Vec<Record>, list: &List) -> Self {
        let more = records.len() > list.page_size();
        records.truncate(list.page_size());
        let next_cursor = records.last().filter(|_| more).map(|last| seal_cursor(&last.id));
        Self { records, next_cursor }
    }
}

/// A cursor is hexadecimal so that it needs no escaping in an address and nobody reads an id in it.
fn seal_cursor(id: &str) -> String {
    hex(id.as_bytes())
}

fn open_cursor(cursor: &str) -> Result<String, StoreError> {
    let invalid = || StoreError::Invalid("the cursor is not one that a list gave".to_owned());
    if cursor.is_empty() || cursor.len() > 2 * MAX_KEY_ID_BYTES || !cursor.len().is_multiple_of(2) {
        return Err(invalid());
    }
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let bytes: Option<Vec<u8>> =
        cursor.as_bytes().chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect();
    String::from_utf8(bytes.ok_or_else(invalid)?).map_err(|_| invalid())
}

/// Stored data, by tenant, collection and id. The [module](self) states the contract.
#[async_trait]
pub trait Records: Send + Sync + 'static {
    /// The record, if it is there.
    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError>;

    /// Writes a value and gives its version. Fails with [`StoreError::Conflict`] where the
    /// precondition does not hold and with [`StoreError::TooLarge`] where the value is.
    async fn put(&self, key: &Key, value: SharedJson, precondition: Precondition) -> Result<u64, StoreError>;

    /// Removes a record and says whether there was one.
    async fn delete(&self, key: &Key, precondition: Precondition) -> Result<bool, StoreError>;

    /// One page of a collection. Records of the collections below it are not among them.
    async fn list(&self, collection: &Collection, list: &List) -> Result<Page, StoreError>;

    /// Adds a record under a fresh id, which sorts after those of earlier calls, and gives the id.
    /// Between processes the order is that of their clocks, to the millisecond.
    async fn append(&self, collection: &Collection, value: SharedJson) -> Result<String, StoreError> {
        let key = collection.key(crate::new_id())?;
        self.put(&key, value, Precondition::Absent).await?;
        Ok(key.id)
    }
}

/// Typed access to [`Records`], for every store alike.
pub trait RecordsExt: Records {
    /// The record as a `T`, if it is there.
    fn get_as<T: DeserializeOwned + Send>(
        &self,
        key: &Key,
    ) -> impl Future<Output = Result<Option<Record<T>>, StoreError>> + Send {
        async move { self.get(key).await?.map(|record| record.parse(&key.collection)).transpose() }
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
    /// times. Fails with [`StoreError::Conflict`] only after many rounds that others won.
    fn update<T, E>(
        &self,
        key: &Key,
        mut change: impl FnMut(Option<T>) -> Result<T, E> + Send,
    ) -> impl Future<Output = Result<T, E>> + Send
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
                let value = change(found.map(|record| record.value))?;
                match self.put_as(key, &value, precondition).await {
                    Ok(_) => return Ok(value),
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
    fn a_key_has_no_part_that_some_database_would_refuse() {
        let long = "x".repeat(MAX_KEY_ID_BYTES + 1);
        for (company, collection, id, fault) in [
            ("", "docs", "1", "the company id is empty"),
            ("c", "", "1", "the collection is empty"),
            ("c", "docs", "", "the id is empty"),
            ("c", "docs", "a\0b", "the id has a control character"),
            ("c", "docs", long.as_str(), "the id has 257 bytes, and at most 256 are taken"),
        ] {
            let error = Key::new(company, collection, id).expect_err(fault);
            assert_eq!(error.to_string(), fault);
        }
        assert!(Key::new("c", "docs", "ü/%\u{1F600}").is_ok());
    }

    #[test]
    fn different_parts_are_different_collections() {
        let path = |parts: &[&str]| {
            let base = Collection::new("c", "m").expect("a name");
            parts.iter().try_fold(base, |collection, part| collection.within(part)).expect("parts").path
        };
        assert_eq!(path(&["a", "b"]), "m/a/b");
        assert_ne!(path(&["a/b"]), path(&["a", "b"]));
        assert_ne!(path(&["a%2Fb"]), path(&["a/b"]));
    }

    #[test]
    fn a_cursor_comes_back_and_a_made_up_one_is_refused() {
        let id = "ü/1";
        assert_eq!(open_cursor(&seal_cursor(id)).expect("ours"), id);
        for cursor in ["", "1", "zz", "ff", &"00".repeat(300)] {
            assert!(matches!(open_cursor(cursor), Err(StoreError::Invalid(_))), "{cursor}");
        }
    }

    #[test]
    fn a_conflict_reads_as_a_sentence() {
        let error = Precondition::Version(3).check(None).expect_err("nothing there");
        assert_eq!(error.to_string(), "the record has changed: expected version 3, found none");
    }

    #[test]
    fn ids_sort_by_age() {
        let ids: Vec<String> = (0..1000).map(|_| crate::new_id()).collect();
        assert!(ids.is_sorted());
    }
}
