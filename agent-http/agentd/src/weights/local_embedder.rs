//! A local embedding model as an embedder of documents.

use agent_embedded::catalog::KnownModel;
use agent_embedded::{EmbeddingModelError, EmbeddingPriority, LocalEmbedder};
use agent_retrieval::embed::{EmbedError, EmbedRole, Embedder, EmbedderId, Embeddings, Prefixes};
use async_trait::async_trait;

/// Provider in the identifier of local models.
const PROVIDER: &str = "local";

/// An embedding model that runs in this process.
pub(crate) struct InProcessEmbedder {
    model: LocalEmbedder,
    id: EmbedderId,
    prefixes: Prefixes,
}

impl InProcessEmbedder {
    pub(crate) fn new(known: &KnownModel, model: LocalEmbedder) -> Self {
        let prefixes = Prefixes::of_model(known.name);
        let name = format!("{}@{}", known.name, known.revision());
        Self { model, id: EmbedderId::of_model(PROVIDER, &name, None, &prefixes), prefixes }
    }
}

#[async_trait]
impl Embedder for InProcessEmbedder {
    fn id(&self) -> &EmbedderId {
        &self.id
    }

    fn max_batch(&self) -> usize {
        LocalEmbedder::MAX_BATCH
    }

    fn max_waiting_queries(&self) -> usize {
        LocalEmbedder::MAX_WAITING
    }

    async fn embed(&self, texts: &[&str], role: EmbedRole) -> Result<Embeddings, EmbedError> {
        let prefixed: Vec<_> = texts.iter().map(|text| self.prefixes.apply(text, role)).collect();
        let texts: Vec<&str> = prefixed.iter().map(AsRef::as_ref).collect();
        let priority = match role {
            EmbedRole::Query => EmbeddingPriority::Query,
            EmbedRole::Document => EmbeddingPriority::Document,
        };
        let vectors = self.model.embed(&texts, priority).await.map_err(|error| match error {
            EmbeddingModelError::Busy => EmbedError::unavailable(error.to_string()),
            error => EmbedError::Rejected(error.to_string()),
        })?;
        let embeddings = Embeddings::new(texts.len(), vectors)?;
        embeddings.check_dimensions(self.model.dimensions())?;
        Ok(embeddings)
    }
}
