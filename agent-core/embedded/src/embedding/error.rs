//! Errors of embedding models.

use std::path::PathBuf;
use std::sync::Arc;

use super::call::MAX_TEXTS_PER_CALL;
use crate::catalog::ChecksumError;

/// Error of an embedding model within the process. None contains a text.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum EmbeddingModelError {
    /// The catalogue's entry is not an embedding model.
    #[error("{0} is not an embedding model")]
    NotAnEmbedder(&'static str),
    /// A file is missing.
    #[error("{} is missing: run `agentd model pull {model}`", path.display())]
    Missing {
        /// Expected path.
        path: PathBuf,
        /// Catalogue name of the model.
        model: &'static str,
    },
    /// A file has another length than the catalogue says.
    #[error("{} has {found} bytes; {expected} were expected: run `agentd model pull {model}`", path.display())]
    Length {
        /// File path.
        path: PathBuf,
        /// Catalogue name of the model.
        model: &'static str,
        /// Length in the catalogue.
        expected: u64,
        /// Actual length.
        found: u64,
    },
    /// A file cannot be read, or has a wrong checksum.
    #[error(transparent)]
    Checksum(Arc<ChecksumError>),
    /// The configuration, the tokenizer or the weights cannot be used.
    #[error("the embedding model cannot be used: {0}")]
    Unusable(String),
    /// More texts than one call may have.
    #[error("{0} texts in one call, of which {max} are allowed", max = MAX_TEXTS_PER_CALL)]
    BatchTooLarge(usize),
    /// Too many calls are waiting.
    #[error("the embedding model is busy")]
    Busy,
    /// The worker thread could not be started, or has stopped.
    #[error("the embedding model's thread has stopped")]
    Stopped,
    /// The model failed at a text.
    #[error("the embedding model failed: {0}")]
    Failed(String),
}

impl EmbeddingModelError {
    /// Returns the error of a model that cannot be used.
    pub(super) fn unusable(detail: impl ToString) -> Self {
        Self::Unusable(detail.to_string())
    }
}
