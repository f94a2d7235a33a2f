//! The error of a store.

use std::error::Error;

/// Error of a record store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The record is not in the expected state: it was changed, created or deleted meanwhile.
    #[error("the record has changed: expected {}, found {}", version_text(*expected), version_text(*found))]
    Conflict {
        /// The version that the caller expected; `None` for a record that should not exist.
        expected: Option<u64>,
        /// The version found.
        found: Option<u64>,
    },
    /// A key, cursor or value that the store cannot accept; the text names it.
    #[error("{0}")]
    Invalid(String),
    /// A value larger than the store accepts.
    #[error("the value has {bytes} bytes; the limit is {limit}")]
    TooLarge {
        /// The value's size as JSON text, in bytes.
        bytes: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// The stored value does not deserialize into the caller's type.
    #[error("the record {id:?} in {collection:?} does not have the expected structure")]
    Malformed {
        /// Path of the collection.
        collection: String,
        /// Id of the record.
        id: String,
        /// The error of the deserializer.
        #[source]
        source: serde_json::Error,
    },
    /// The operation needs a setting that is missing; the text is its name.
    #[error("{0} is not set")]
    NotConfigured(&'static str),
    /// A stored secret cannot be opened: it was encrypted with another key, or is damaged.
    #[error("the secret {field} of {owner:?} cannot be decrypted")]
    UnreadableSecret {
        /// Identifier of the secret's owner, such as an agent's id.
        owner: String,
        /// The field that holds the secret.
        field: String,
        /// The reason.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The store is unavailable. The source's own text, without the texts of its own sources, is sent to trusted
    /// services: it describes the fault, such as a full disk, and contains no values or passwords.
    #[error("the store is unavailable")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
}

impl StoreError {
    /// Wraps the error that makes a store unavailable.
    pub fn unavailable(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Unavailable(source.into())
    }
}

/// Formats a version for messages.
fn version_text(version: Option<u64>) -> String {
    version.map_or("none".to_owned(), |version| format!("version {version}"))
}
