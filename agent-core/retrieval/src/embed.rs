//! Embedding of texts as vectors, for search by meaning.

mod answer;
mod prefixes;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use thiserror::Error;

pub use answer::Embeddings;
pub(crate) use answer::MAX_DIMENSIONS;
pub use prefixes::Prefixes;

/// A model that maps texts to vectors, of which those with similar meanings have a large cosine.
///
/// [`Embeddings`] checks and normalizes what a model answers, so that an implementation cannot pass on vectors of
/// different lengths or components that are not finite.
#[async_trait]
pub trait Embedder: Send + Sync + 'static {
    /// Returns the identifier of the model. Vectors of different identifiers are never compared.
    fn id(&self) -> &EmbedderId;

    /// Returns the greatest number of texts of one call. A call with more is rejected.
    fn max_batch(&self) -> usize;

    /// Returns a vector for each text, in the order of the texts; none for no text, without a call of the model. Longer
    /// texts than the model reads are cut or rejected, never dropped. Dropping the future cancels the call.
    async fn embed(&self, texts: &[&str], role: EmbedRole) -> Result<Embeddings, EmbedError>;
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

    /// Creates the identifier of a model at a provider. `dimensions` is the number of components if it was chosen, and not
    /// the model's own.
    ///
    /// ```
    /// use agent_retrieval::embed::{EmbedderId, Prefixes};
    ///
    /// let id = EmbedderId::of_model("openai", "text-embedding-3-small", Some(512), &Prefixes::default());
    /// assert_eq!(id.as_str(), "openai/text-embedding-3-small;dimensions=512");
    /// ```
    pub fn of_model(provider: &str, model: &str, dimensions: Option<usize>, prefixes: &Prefixes) -> Self {
        let mut id = format!("{provider}/{model}");
        if let Some(dimensions) = dimensions {
            id.push_str(&format!(";dimensions={dimensions}"));
        }
        for (name, prefix) in [("query", prefixes.query()), ("document", prefixes.document())] {
            if !prefix.is_empty() {
                id.push_str(&format!(";{name}={prefix:?}"));
            }
        }
        Self::new(id)
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
    /// The call was rejected: a wrong key, an unknown model, too many texts, or a text that is too long. A repetition fails
    /// too.
    #[error("the embedder rejected the request: {0}")]
    Rejected(String),
    /// The embedder cannot be reached, is overloaded or did not answer in time.
    #[error("the embedder is unavailable: {message}")]
    Unavailable {
        /// Description of the cause.
        message: String,
        /// Delay that the embedder asked for before a repetition.
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

    /// Creates the error of a call with more texts than [`Embedder::max_batch`].
    pub fn batch_too_large(texts: usize, max_batch: usize) -> Self {
        Self::Rejected(format!("{texts} texts in one call, of which {max_batch} are allowed"))
    }
}
