//! Status of documents' indexes, as the readers of the documents see it.

use agent_retrieval::doc_index::{DocIndex, Vectors};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use super::time::utc_time;

/// Status of a document's index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IndexStatus {
    /// Number of chunks.
    pub chunks: usize,
    /// ISO 639-1 code of the language, or `und`.
    pub language: String,
    /// Identifier of the embedding model that made the vectors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embedder: Option<String>,
    /// Number of chunks with a vector.
    pub embedded: usize,
    /// Last failure to embed the chunks that have no vector; absent once some of them have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embedding_failure: Option<EmbeddingFailure>,
}

/// Failure to embed chunks of a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EmbeddingFailure {
    /// Cause of the failure.
    pub reason: EmbeddingFailureReason,
    /// Number of attempts in a row that have failed in the process that made the last one.
    pub failures: u32,
    /// Earliest time of the next attempt, RFC 3339 in UTC; absent if the document is not tried again until it changes, until it
    /// is embedded again on demand, or until the process restarts.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "serialize_time")]
    #[schemars(with = "Option<String>")]
    pub retry_at: Option<Timestamp>,
}

fn serialize_time<S: Serializer>(time: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(utc_time).serialize(serializer)
}

/// Cause of a failure to embed chunks of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum EmbeddingFailureReason {
    /// The embedding model cannot be reached, is overloaded, or has not answered in time.
    Unavailable,
    /// The embedding model's answer was not one vector for each chunk, all finite and of the same length.
    InvalidAnswer,
    /// The embedding model has rejected the chunks.
    Rejected,
    /// The index is too large with its vectors.
    TooLarge,
}

impl IndexStatus {
    pub(crate) fn of(index: &DocIndex) -> Self {
        Self {
            chunks: index.chunk_count(),
            language: index.language().iso_code().to_owned(),
            embedder: index.vectors().map(|vectors| vectors.embedder().to_owned()),
            embedded: index.vectors().map_or(0, Vectors::present),
            embedding_failure: None,
        }
    }
}
