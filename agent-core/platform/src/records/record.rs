//! Stored records.

use std::time::SystemTime;

use serde::de::DeserializeOwned;

use agent_core::message::SharedJson;
use agent_core::store_error::StoreError;

use super::key::Collection;

/// A stored value with its id, version and time of the last write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record<T = SharedJson> {
    /// Id within the collection.
    pub id: String,
    /// Version, which grows with every write; at most 2^53, so that every JSON reader represents it exactly.
    pub version: u64,
    /// Time of the last write, with a precision of a millisecond or better.
    pub updated: SystemTime,
    /// The value that was put.
    pub value: T,
}

impl Record {
    /// Deserializes the value as a `T`.
    ///
    /// # Errors
    /// [`StoreError::Malformed`], which names `collection`.
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
