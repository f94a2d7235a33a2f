//! Vectors of queries, within a time limit. A search goes without them if the embedder fails.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use agent_core::clock::Clock;
use agent_retrieval::embed::{EmbedError, EmbedRole, Embedder, EmbedderId};
use agent_retrieval::search::Query;
use futures_util::future::{Either, select};
use serde::Serialize;

/// Maximum time for which a search waits for its vector.
const QUERY_TIMEOUT: Duration = Duration::from_millis(800);
/// Time after a failure in which the embedder is not called for the same company, so that a broken one does not delay every
/// message, and a query that it rejects costs no other company its vectors.
const FAILURE_PAUSE: Duration = Duration::from_secs(5);
/// Weight of the vector of the message before, as that of its terms.
const PREVIOUS_WEIGHT: f32 = 0.2;

/// The embedding model of a [`DocumentRetriever`](super::DocumentRetriever).
#[derive(Clone)]
pub struct RetrievalEmbedder {
    /// The model.
    pub embedder: Arc<dyn Embedder>,
    /// Share of the similarity in a hit's score, between 0 and 1: 0.5 for a good model, 0.2 for a weak one.
    pub weight: f32,
    /// Similarity from which a hit is relevant, whatever its words.
    pub min_similarity: f32,
}

/// Use of the embedding model in a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbedderUse {
    /// The model.
    pub embedder: EmbedderId,
    /// The reason for which the search went without it.
    pub skipped: Option<EmbedderSkip>,
}

/// Reason for which a search went without vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum EmbedderSkip {
    /// None of the documents that were searched has vectors of the model yet.
    NoVectors,
    /// The vectors of the documents have no relation to their texts.
    MeaninglessVectors,
    /// The model did not answer in time.
    Timeout,
    /// The model cannot be reached.
    Unavailable,
    /// The model rejected the query.
    Rejected,
    /// The model's answer is no vector, or none that can be compared.
    InvalidAnswer,
    /// The model failed for the company less than five seconds ago and was not called.
    Paused,
}

/// Embeds queries. Does not call the embedder for a company for some seconds after a failure.
pub(super) struct QueryEmbedder {
    pub(super) settings: RetrievalEmbedder,
    clock: Arc<dyn Clock>,
}

impl QueryEmbedder {
    pub(super) fn new(settings: RetrievalEmbedder, clock: Arc<dyn Clock>) -> Self {
        Self { settings, clock }
    }

    pub(super) fn id(&self) -> &EmbedderId {
        self.settings.embedder.id()
    }

    /// Returns the vector of a query: that of its text, and with less weight that of the text before. `paused_until` is the
    /// company's.
    pub(super) async fn embed(
        &self,
        query: &Query<'_>,
        paused_until: &Mutex<Option<Instant>>,
    ) -> Result<Vec<f32>, EmbedderSkip> {
        let now = self.clock.monotonic();
        if lock(paused_until).is_some_and(|until| now < until) {
            return Err(EmbedderSkip::Paused);
        }
        let texts: Vec<&str> = [Some(query.text), query.previous].into_iter().flatten().collect();
        let embedding = self.settings.embedder.embed(&texts, EmbedRole::Query);
        let answered = match select(embedding, self.clock.sleep(QUERY_TIMEOUT)).await {
            Either::Left((answered, _)) => answered.map_err(|error| {
                tracing::warn!(%error, "a search goes without vectors");
                skip_of(&error)
            }),
            Either::Right(_) => {
                tracing::warn!("a search goes without vectors: the embedder took more than 800 ms");
                Err(EmbedderSkip::Timeout)
            }
        };
        *lock(paused_until) = answered.is_err().then(|| self.clock.monotonic() + FAILURE_PAUSE);
        let embeddings = answered?;
        let mut vectors = embeddings.iter();
        let mut vector = vectors.next().ok_or(EmbedderSkip::InvalidAnswer)?.to_vec();
        for (component, previous) in vector.iter_mut().zip(vectors.next().into_iter().flatten()) {
            *component += PREVIOUS_WEIGHT * previous;
        }
        Ok(vector)
    }
}

fn lock(paused_until: &Mutex<Option<Instant>>) -> MutexGuard<'_, Option<Instant>> {
    paused_until.lock().unwrap_or_else(PoisonError::into_inner)
}

fn skip_of(error: &EmbedError) -> EmbedderSkip {
    match error {
        EmbedError::Rejected(_) => EmbedderSkip::Rejected,
        EmbedError::InvalidAnswer(_) => EmbedderSkip::InvalidAnswer,
        _ => EmbedderSkip::Unavailable,
    }
}

impl fmt::Debug for RetrievalEmbedder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetrievalEmbedder")
            .field("embedder", self.embedder.id())
            .field("weight", &self.weight)
            .field("min_similarity", &self.min_similarity)
            .finish()
    }
}
