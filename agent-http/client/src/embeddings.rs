//! Embedding models reached over HTTP: servers of OpenAI's Embeddings API, and Ollama.
//!
//! Both clients share [`endpoint`](self), which splits calls into requests of bounded size, bounds the answer and the
//! time, and maps failures to [`EmbedError`](agent_retrieval::embed::EmbedError). The vectors are checked and normalized by
//! [`Embeddings`](agent_retrieval::embed::Embeddings). Neither texts nor keys reach an error or the log.

mod endpoint;
mod ollama;
mod openai;

use std::time::Duration;

use agent_core::error::AgentError;
use url::Url;

pub use self::ollama::OllamaEmbedder;
pub use self::openai::OpenAiEmbedder;

use crate::outbound::OutboundClient;
use crate::secret::BoundSecret;

/// Time that a call may take if none is set.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// An embedding model on a server that the operator has configured.
#[derive(Clone)]
pub struct EmbeddingServer {
    /// HTTP client for the calls.
    pub outbound: OutboundClient,
    /// The server's base URL, such as `https://api.openai.com/v1` or `http://127.0.0.1:11434`.
    pub base_url: Url,
    /// The key, sent only to the base URL and below it.
    pub key: Option<BoundSecret>,
    /// Name of the model at the server.
    pub model: String,
    /// Number of components to ask for, if it is not the model's own.
    pub dimensions: Option<usize>,
    /// Time that a call may take, all of its requests together. Default: [`EmbeddingServer::new`].
    pub timeout: Duration,
}

impl EmbeddingServer {
    /// Creates the settings of a model without a key, with its own number of components and a timeout of 60 s.
    pub fn new(outbound: OutboundClient, base_url: Url, model: impl Into<String>) -> Self {
        Self {
            outbound,
            base_url,
            key: None,
            model: model.into(),
            dimensions: None,
            timeout: DEFAULT_TIMEOUT,
        }
    }

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
