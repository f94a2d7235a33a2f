//! Embedding models reached over HTTP: servers of OpenAI's Embeddings API, and Ollama.
//!
//! The APIs differ in the JSON of a request and its answer alone. The client of both splits calls into requests of bounded
//! size, bounds the answer and the time, and maps failures to [`EmbedError`]. The vectors are checked and normalized by
//! [`Embeddings`]. Neither texts nor keys reach an error or the log.

mod dimensions;
mod endpoint;
mod ollama;
mod openai;
mod server;

use agent_core::error::AgentError;
use agent_retrieval::embed::{EmbedError, EmbedRole, Embedder, EmbedderId, Embeddings};
use async_trait::async_trait;

use self::endpoint::{Endpoint, Protocol};
use self::ollama::OllamaEmbedApi;
use self::openai::OpenAiEmbeddingsApi;
pub use self::server::EmbeddingServer;

impl EmbeddingServer {
    /// Returns the client of a server of OpenAI's Embeddings API.
    ///
    /// # Errors
    /// `InvalidRequest` for a URL that cannot have path segments.
    pub fn openai(self) -> Result<HttpEmbedder, AgentError> {
        let endpoint = Endpoint::new(&self, "openai", &["embeddings"], openai::MAX_BATCH)?;
        let Self { model, dimensions, .. } = self;
        Ok(HttpEmbedder { endpoint, protocol: Box::new(OpenAiEmbeddingsApi { model, dimensions }) })
    }

    /// Returns the client of an Ollama server. Texts that are longer than the model's context are rejected by the server, which
    /// would otherwise cut them silently.
    ///
    /// # Errors
    /// `InvalidRequest` for a URL that cannot have path segments.
    pub fn ollama(self) -> Result<HttpEmbedder, AgentError> {
        let endpoint = Endpoint::new(&self, "ollama", &["api", "embed"], ollama::MAX_BATCH)?;
        let Self { model, dimensions, .. } = self;
        Ok(HttpEmbedder { endpoint, protocol: Box::new(OllamaEmbedApi { model, dimensions }) })
    }
}

/// An embedding model on an [`EmbeddingServer`].
pub struct HttpEmbedder {
    endpoint: Endpoint,
    protocol: Box<dyn Protocol>,
}

impl std::fmt::Debug for HttpEmbedder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpEmbedder").finish_non_exhaustive()
    }
}

#[async_trait]
impl Embedder for HttpEmbedder {
    fn id(&self) -> &EmbedderId {
        self.endpoint.id()
    }

    fn max_batch(&self) -> usize {
        self.endpoint.max_batch()
    }

    async fn embed(&self, texts: &[&str], role: EmbedRole) -> Result<Embeddings, EmbedError> {
        self.endpoint.embed(&*self.protocol, texts, role).await
    }
}

#[cfg(test)]
mod tests;
