//! Embedding of texts as vectors, for search by meaning.

mod answer;
mod error;
mod prefixes;
mod role;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

pub use answer::Embeddings;
pub(crate) use answer::MAX_DIMENSIONS;
pub use error::EmbedError;
pub use prefixes::Prefixes;
pub use role::EmbedRole;

/// A model that maps texts to vectors, of which those with similar meanings have a large cosine.
///
/// [`Embeddings`] checks and normalizes what a model answers, so that an implementation cannot pass on vectors of
/// different lengths or components that are not finite. The contract is the suite `conformance::embedder`.
#[async_trait]
pub trait Embedder: Send + Sync + 'static {
    /// Returns the identifier of the model. Vectors of different identifiers are never compared.
    fn id(&self) -> &EmbedderId;

    /// Returns the maximum number of texts of one call. A call with more is rejected.
    fn max_batch(&self) -> usize;

    /// Returns the maximum number of calls with queries that wait at once. A call with more fails. By default, there is no
    /// limit.
    fn max_waiting_queries(&self) -> usize {
        usize::MAX
    }

    /// Returns a vector for each text, in the order of the texts; none for no text, without a call of the model. Longer
    /// texts than the model reads are cut or rejected, never dropped. Dropping the future cancels the call, as the platform does
    /// after 800 ms for a query and after a minute for documents.
    ///
    /// # Errors
    /// [`EmbedError::Rejected`] for more texts than [`max_batch`](Self::max_batch) and for texts that the model refuses. For documents,
    /// the platform waits after [`EmbedError::Unavailable`], and tries half of the texts after other errors.
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
