//! Client of Ollama's embedding API, `POST /api/embed`.

use std::borrow::Cow;

use agent_core::error::AgentError;
use agent_retrieval::embed::{EmbedError, EmbedRole, Embedder, EmbedderId, Embeddings};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::EmbeddingServer;
use super::endpoint::{Endpoint, Protocol, parse_json};

/// Most texts of a call. The server embeds them one after the other.
const MAX_BATCH: usize = 32;

/// An embedding model on an Ollama server.
///
/// Texts that are longer than the model's context are rejected by the server, which would otherwise cut them silently.
pub struct OllamaEmbedder {
    endpoint: Endpoint,
    protocol: EmbedApi,
}

impl OllamaEmbedder {
    pub(super) fn new(server: EmbeddingServer) -> Result<Self, AgentError> {
        let endpoint = Endpoint::new(&server, "ollama", &["api", "embed"], MAX_BATCH)?;
        let EmbeddingServer { model, dimensions, .. } = server;
        Ok(Self { endpoint, protocol: EmbedApi { model, dimensions } })
    }
}

#[async_trait]
impl Embedder for OllamaEmbedder {
    fn id(&self) -> &EmbedderId {
        self.endpoint.id()
    }

    fn max_batch(&self) -> usize {
        self.endpoint.max_batch()
    }

    async fn embed(&self, texts: &[&str], role: EmbedRole) -> Result<Embeddings, EmbedError> {
        self.endpoint.embed(&self.protocol, texts, role).await
    }
}

struct EmbedApi {
    model: String,
    dimensions: Option<usize>,
}

#[derive(Serialize)]
struct EmbedRequest<'a> {
    model: &'a str,
    input: &'a [Cow<'a, str>],
    truncate: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    dimensions: Option<usize>,
}

#[derive(Deserialize)]
struct EmbedResponse {
    embeddings: Vec<Vec<f32>>,
}

impl Protocol for EmbedApi {
    fn body(&self, texts: &[Cow<'_, str>]) -> Vec<u8> {
        let Self { model, dimensions } = self;
        let request = EmbedRequest { model, input: texts, truncate: false, dimensions: *dimensions };
        serde_json::to_vec(&request).expect("strings and numbers are JSON")
    }

    fn parse(&self, answer: &[u8], texts: usize) -> Result<Embeddings, EmbedError> {
        let answer: EmbedResponse = parse_json(answer)?;
        Embeddings::new(texts, answer.embeddings)
    }
}
