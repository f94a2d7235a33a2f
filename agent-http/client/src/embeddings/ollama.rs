//! Client of Ollama's embedding API, `POST /api/embed`.

use std::borrow::Cow;

use agent_retrieval::embed::{EmbedError, Embeddings};
use serde::{Deserialize, Serialize};

use super::endpoint::{Protocol, parse_json};

/// Maximum number of texts of a call. The server embeds them one after the other.
pub(super) const MAX_BATCH: usize = 32;

/// Ollama's embedding API. Texts that are too long are rejected, not cut.
pub(super) struct OllamaEmbedApi {
    pub(super) model: String,
    pub(super) dimensions: Option<usize>,
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

impl Protocol for OllamaEmbedApi {
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
