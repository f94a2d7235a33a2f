//! Embedding models reached over HTTP: servers of OpenAI's Embeddings API, and Ollama.
//!
//! Both clients share [`endpoint`](self), which splits calls into requests of bounded size, bounds the answer and the
//! time, and maps failures to [`EmbedError`](agent_retrieval::embed::EmbedError). The vectors are checked and normalized by
//! [`Embeddings`](agent_retrieval::embed::Embeddings). Neither texts nor keys reach an error or the log.

mod dimensions;
mod endpoint;
mod ollama;
mod openai;
mod server;

use agent_core::error::AgentError;

pub use self::ollama::OllamaEmbedder;
pub use self::openai::OpenAiEmbedder;
pub use self::server::EmbeddingServer;

impl EmbeddingServer {
    /// Returns the client of a server of OpenAI's Embeddings API.
    ///
    /// # Errors
    /// `InvalidRequest` for a URL that cannot have path segments.
    pub fn openai(self) -> Result<OpenAiEmbedder, AgentError> {
        OpenAiEmbedder::new(self)
    }

    /// Returns the client of an Ollama server.
    ///
    /// # Errors
    /// `InvalidRequest` for a URL that cannot have path segments.
    pub fn ollama(self) -> Result<OllamaEmbedder, AgentError> {
        OllamaEmbedder::new(self)
    }
}

#[cfg(test)]
mod tests;
