//! The error of a store.

use std::error::Error;
use std::fmt;

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
    /// A setting is missing without which this cannot be done; the text is its name.
    #[error("{0} is not set")]
    NotConfigured(&'static str),
    /// A secret that is stored cannot be opened: it was sealed under another key, or is damaged.
    #[error("the secret {field} of {owner:?} cannot be opened")]
    Sealed {
        /// Whose secret it is, such as an agent's id.
        owner: String,
        /// The field that it stands in.
        field: String,
        /// Why it cannot be opened.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The store cannot answer now. The source's own text, without those of its own sources, is told to trusted
    /// services: it says what is wrong, such as that the disk is full, and nothing of values or passwords.
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
