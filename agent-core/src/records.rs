//! Records: the one door to stored data, with the tenant in every key.

use std::error::Error;

use async_trait::async_trait;

/// Why a store did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The record is not as the caller believed: changed, created or removed meanwhile.
    #[error("the record has changed: expected {expected:?}, found {found:?}")]
    Conflict {
        /// The version that the caller named; absent for a record that should not be there yet.
        expected: Option<u64>,
        /// The version that is there.
        found: Option<u64>,
    },
    /// A key, cursor or value that the store cannot take; the text names it.
    #[error("{0}")]
    Invalid(String),
    /// The store cannot answer now.
    #[error("the store is not available")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
}

/// Stored data, by tenant, collection and id.
#[async_trait]
pub trait Records: Send + Sync + 'static {}
