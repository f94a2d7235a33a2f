//! Errors of embedders.

use std::time::Duration;

use thiserror::Error;

/// Error of an embedder. The messages are shown to operators and contain neither texts nor keys.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EmbedError {
    /// The texts were rejected: there are too many, or one is too long or malformed. A repetition fails too, and a call with
    /// other texts may succeed.
    #[error("the embedder rejected the request: {0}")]
    Rejected(String),
    /// The embedder cannot be reached, is overloaded, did not answer in time, or rejected the key or the model.
    #[error("the embedder is unavailable: {message}")]
    Unavailable {
        /// Description of the cause.
        message: String,
        /// Delay that the embedder requested before a retry.
        retry_after: Option<Duration>,
    },
    /// The answer is not as many vectors as texts, or has vectors of other dimensions, or components that are not finite.
    #[error("the embedder's answer is invalid: {0}")]
    InvalidAnswer(String),
}

impl EmbedError {
    /// Creates the error of an embedder that is unavailable and names no delay.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::Unavailable { message: message.into(), retry_after: None }
    }

    /// Creates the error of a call with more texts than [`Embedder::max_batch`](super::Embedder::max_batch).
    pub fn batch_too_large(texts: usize, max_batch: usize) -> Self {
        Self::Rejected(format!("{texts} texts in one call, of which {max_batch} are allowed"))
    }
}
