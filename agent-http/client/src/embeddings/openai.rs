//! Client of OpenAI's Embeddings API, `POST /embeddings`.

use std::borrow::Cow;

use agent_retrieval::embed::{EmbedError, Embeddings};
use serde::{Deserialize, Serialize};

use super::endpoint::{Protocol, parse_json};

/// Maximum number of texts of a call. The vendor allows 2,048; answers to as many would be too long to be held in memory as JSON.
pub(super) const MAX_BATCH: usize = 128;

/// OpenAI's Embeddings API.
pub(super) struct OpenAiEmbeddingsApi {
    pub(super) model: String,
    pub(super) dimensions: Option<usize>,
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

impl Protocol for OpenAiEmbeddingsApi {
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
