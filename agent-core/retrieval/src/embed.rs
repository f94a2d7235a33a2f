//! Embedding of texts as vectors, for search by meaning.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use thiserror::Error;

/// A model that maps texts to vectors, of which those with similar meanings have a large cosine.
#[async_trait]
pub trait Embedder: Send + Sync + 'static {
    /// Returns the identifier of the model. Vectors of different identifiers are never compared.
    fn id(&self) -> &EmbedderId;

    /// Returns the number of components of each vector.
    fn dimensions(&self) -> usize;

    /// Returns the greatest number of texts of one call.
    fn max_batch(&self) -> usize;

    /// Returns a vector for each text, in the order of the texts. Longer texts than the model reads are cut or refused,
    /// never dropped. Dropping the future cancels the call.
    async fn embed(&self, texts: &[&str], role: EmbedRole) -> Result<Vec<Vec<f32>>, EmbedError>;
}

/// Identifier of an embedding model: provider, name, revision, number of components and prefixes, as far as they
/// determine the vectors.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EmbedderId(Arc<str>);

impl EmbedderId {
    /// Creates an identifier.
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self(id.into())
    }

    /// Returns the identifier as a string.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EmbedderId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Use of a text. Some models have a prefix for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmbedRole {
    /// A question.
    Query,
    /// A chunk of a document.
    Document,
}

/// Texts could not be embedded. The messages are shown to operators and contain neither texts nor keys.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EmbedError {
    /// The call was rejected: a wrong key, an unknown model, or a text that is too long. A repetition fails too.
    #[error("the embedder rejected the request: {0}")]
    Rejected(String),
    /// The embedder cannot be reached, is overloaded or did not answer in time.
    #[error("the embedder is unavailable: {0}")]
    Unavailable(String),
    /// The answer is not as many vectors as texts, or has vectors of other dimensions, or components that are not finite.
    #[error("the embedder's answer is invalid: {0}")]
    InvalidAnswer(String),
}
