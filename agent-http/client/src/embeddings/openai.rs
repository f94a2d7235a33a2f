//! Client of OpenAI's Embeddings API, `POST /embeddings`.

use std::borrow::Cow;

use agent_core::error::AgentError;
use agent_retrieval::embed::{EmbedError, EmbedRole, Embedder, EmbedderId, Embeddings};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::EmbeddingServer;
use super::endpoint::{Endpoint, Protocol, parse_json};

/// Most texts of a call. The vendor allows 2,048; answers to as many would be too long to be held in memory as JSON.
const MAX_BATCH: usize = 128;

/// An embedding model on a server of OpenAI's Embeddings API.
pub struct OpenAiEmbedder {
    endpoint: Endpoint,
    protocol: EmbeddingsApi,
}

impl OpenAiEmbedder {
    pub(super) fn new(server: EmbeddingServer) -> Result<Self, AgentError> {
        let endpoint = Endpoint::new(&server, "openai", &["embeddings"], MAX_BATCH)?;
        let EmbeddingServer { model, dimensions, .. } = server;
        Ok(Self { endpoint, protocol: EmbeddingsApi { model, dimensions } })
    }
}

#[async_trait]
impl Embedder for OpenAiEmbedder {
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

struct EmbeddingsApi {
    model: String,
    dimensions: Option<usize>,
}

#[derive(Serialize)]
struct EmbeddingsRequest<'a> {
    model: &'a str,
    input: &'a [Cow<'a, str>],
    encoding_format: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    dimensions: Option<usize>,
}

#[derive(Deserialize)]
struct EmbeddingsResponse {
    data: Vec<IndexedEmbedding>,
}

#[derive(Deserialize)]
struct IndexedEmbedding {
    index: usize,
    embedding: Vec<f32>,
}

impl Protocol for EmbeddingsApi {
    fn body(&self, texts: &[Cow<'_, str>]) -> Vec<u8> {
        let Self { model, dimensions } = self;
        let request =
            EmbeddingsRequest { model, input: texts, encoding_format: "float", dimensions: *dimensions };
        serde_json::to_vec(&request).expect("strings and numbers are JSON")
    }

    fn parse(&self, answer: &[u8], texts: usize) -> Result<Embeddings, EmbedError> {
        let answer: EmbeddingsResponse = parse_json(answer)?;
        Embeddings::from_indexed(texts, answer.data.into_iter().map(|entry| (entry.index, entry.embedding)))
    }
}
