//! Vectors of queries, within a time limit. If the embedder fails, a search does not use them.

use std::collections::HashMap;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use agent_core::clock::Clock;
use agent_core::ids::CompanyId;
use agent_retrieval::embed::{EmbedError, EmbedRole, Embedder, EmbedderId, Embeddings};
use agent_retrieval::search::Query;
use futures_util::future::{Either, select};
use serde::Serialize;

use crate::company_permits::CompanyPermits;

/// Maximum time for which a search waits for its vector.
const QUERY_TIMEOUT: Duration = Duration::from_millis(800);
/// Time after a failure in which the embedder is not called, so that a broken one does not delay every message.
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
    /// Similarity from which a hit is relevant regardless of its words.
    pub min_similarity: f32,
}

/// Use of the embedding model in a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbedderUse {
    /// The model.
    pub embedder: EmbedderId,
    /// The reason why the search went without it.
    pub skipped: Option<EmbedderSkip>,
}

/// Reason why a search went without vectors.
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
    /// The model cannot be reached, or as many calls wait for it as it takes, of all companies or of this one.
    Unavailable,
    /// The model rejected the query.
    Rejected,
    /// The model's answer is not a vector, or cannot be compared with the stored ones.
    InvalidAnswer,
    /// The model was not called, because it failed less than five seconds ago in a search of the company, or in searches of two
    /// other companies.
    Paused,
}

/// Embeds queries. Does not call the embedder for some seconds after a failure.
pub(super) struct QueryEmbedder {
    pub(super) settings: RetrievalEmbedder,
    clock: Arc<dyn Clock>,
    pauses: Mutex<QueryPauses>,
    /// Permits of the calls; a company gets at most half of them.
    permits: Arc<CompanyPermits>,
}

/// Times until which the embedder is not called. A question may be the cause of a failure, so that it pauses the searches of
/// its company; only failures of two companies pause all.
#[derive(Default)]
struct QueryPauses {
    by_company: HashMap<CompanyId, Instant>,
    all_until: Option<Instant>,
}

impl QueryPauses {
    fn is_paused(&self, company_id: &CompanyId, now: Instant) -> bool {
        let company_until = self.by_company.get(company_id).copied();
        company_until.into_iter().chain(self.all_until).any(|until| now < until)
    }

    fn record(&mut self, company_id: &CompanyId, skip: Option<EmbedderSkip>, now: Instant) {
        let Some(skip) = skip else {
            self.by_company.remove(company_id);
            self.all_until = None;
            return;
        };
        self.by_company.retain(|_, until| now < *until);
        // A rejection or an invalid answer concerns this question only.
        let is_unavailable = matches!(skip, EmbedderSkip::Timeout | EmbedderSkip::Unavailable);
        let until = now + FAILURE_PAUSE;
        if is_unavailable && self.by_company.keys().any(|other| other != company_id) {
            self.all_until = Some(until);
        }
        self.by_company.insert(company_id.clone(), until);
    }
}

impl QueryEmbedder {
    pub(super) fn new(settings: RetrievalEmbedder, clock: Arc<dyn Clock>) -> Self {
        let max_waiting = settings.embedder.max_waiting_queries();
        let permits = CompanyPermits::new(max_waiting, max_waiting.div_ceil(2));
        Self { settings, clock, pauses: Mutex::default(), permits }
    }

    pub(super) fn id(&self) -> &EmbedderId {
        self.settings.embedder.id()
    }

    /// Returns the vector of a query of a company: that of its text, and with less weight that of the text before.
    pub(super) async fn embed(
        &self,
        company_id: &CompanyId,
        query: &Query<'_>,
    ) -> Result<Vec<f32>, EmbedderSkip> {
        if self.pauses().is_paused(company_id, self.clock.monotonic()) {
            return Err(EmbedderSkip::Paused);
        }
        // The company's other calls use up its share, so this is not a failure of the embedder.
        let Some(_permit) = self.permits.try_acquire(company_id) else {
            return Err(EmbedderSkip::Unavailable);
        };
        let embedding = pin!(self.embed_texts(query));
        let answered = match select(embedding, self.clock.sleep(QUERY_TIMEOUT)).await {
            Either::Left((answered, _)) => answered.map_err(|error| {
                tracing::warn!(%error, "the embedding model failed; searching without vectors");
                skip_of(&error)
            }),
            Either::Right(_) => {
                tracing::warn!("the embedding model did not answer within 800 ms; searching without vectors");
                Err(EmbedderSkip::Timeout)
            }
        };
        let skip = answered.as_ref().err().copied();
        self.pauses().record(company_id, skip, self.clock.monotonic());
        let embeddings = answered?;
        let mut vectors = embeddings.iter();
        let mut vector = vectors.next().ok_or(EmbedderSkip::InvalidAnswer)?.to_vec();
        for (component, previous) in vector.iter_mut().zip(vectors.next().into_iter().flatten()) {
            *component += PREVIOUS_WEIGHT * previous;
        }
        Ok(vector)
    }

    /// Returns the vector of a query's text, and that of the text before if the model takes both.
    async fn embed_texts(&self, query: &Query<'_>) -> Result<Embeddings, EmbedError> {
        let embedder = &*self.settings.embedder;
        if let Some(previous) = query.previous.filter(|_| embedder.max_batch() > 1) {
            match embedder.embed(&[query.text, previous], EmbedRole::Query).await {
                // Perhaps the text before is too long for the model, and the question is not.
                Err(EmbedError::Rejected(_)) => {}
                answered => return answered,
            }
        }
        embedder.embed(&[query.text], EmbedRole::Query).await
    }

    fn pauses(&self) -> MutexGuard<'_, QueryPauses> {
        self.pauses.lock().unwrap_or_else(PoisonError::into_inner)
    }
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

#[cfg(test)]
mod tests {
    use agent_core::clock::SystemClock;
    use async_trait::async_trait;
    use futures_util::FutureExt;

    use super::*;

    /// An embedder with room for four queries that never answers.
    struct SilentEmbedder(EmbedderId);

    #[async_trait]
    impl Embedder for SilentEmbedder {
        fn id(&self) -> &EmbedderId {
            &self.0
        }

        fn max_batch(&self) -> usize {
            2
        }

        fn max_waiting_queries(&self) -> usize {
            4
        }

        async fn embed(&self, _: &[&str], _: EmbedRole) -> Result<Embeddings, EmbedError> {
            std::future::pending().await
        }
    }

    /// An embedder that accepts this many texts of at most 20 bytes.
    struct ShortTextEmbedder(EmbedderId, usize);

    #[async_trait]
    impl Embedder for ShortTextEmbedder {
        fn id(&self) -> &EmbedderId {
            &self.0
        }

        fn max_batch(&self) -> usize {
            self.1
        }

        async fn embed(&self, texts: &[&str], _: EmbedRole) -> Result<Embeddings, EmbedError> {
            if texts.len() > self.1 || texts.iter().any(|text| text.len() > 20) {
                return Err(EmbedError::Rejected("it is too long".to_owned()));
            }
            Embeddings::new(texts.len(), texts.iter().map(|_| [1.0_f32, 0.0]))
        }
    }

    #[test]
    fn a_rejected_previous_query_does_not_prevent_the_vector() {
        let long = "a text of more than twenty bytes";
        for (max_batch, text, previous, expected) in [
            (2, "a question", Some("one before"), Ok(vec![1.2, 0.0])),
            (1, "a question", Some("one before"), Ok(vec![1.0, 0.0])),
            (2, "a question", Some(long), Ok(vec![1.0, 0.0])),
            (2, long, Some("one before"), Err(EmbedderSkip::Rejected)),
        ] {
            let embedder = Arc::new(ShortTextEmbedder(EmbedderId::new("short"), max_batch));
            let settings = RetrievalEmbedder { embedder, weight: 0.5, min_similarity: 0.5 };
            let embedder = QueryEmbedder::new(settings, Arc::new(SystemClock));
            let query = Query { text, previous };
            let vector = embedder.embed(&CompanyId::from("c"), &query).now_or_never();
            assert_eq!(vector, Some(expected), "{max_batch}, {text:?}, {previous:?}");
        }
    }

    #[test]
    fn a_company_has_half_of_the_calls_that_wait() {
        let embedder = Arc::new(SilentEmbedder(EmbedderId::new("silent")));
        let settings = RetrievalEmbedder { embedder, weight: 0.5, min_similarity: 0.5 };
        let embedder = QueryEmbedder::new(settings, Arc::new(SystemClock));
        let [first, second] = ["a", "b"].map(CompanyId::from);
        let query = Query { text: "a question", previous: None };
        let call = |company_id| Box::pin(embedder.embed(company_id, &query));
        let mut waiting = [call(&first), call(&first), call(&second)];
        assert!(waiting.iter_mut().all(|call| call.now_or_never().is_none()));
        for _ in 0..2 {
            let refused = call(&first).now_or_never();
            assert_eq!(refused, Some(Err(EmbedderSkip::Unavailable)), "and the company is not paused");
        }
        assert!(call(&second).now_or_never().is_none());
        drop(waiting);
        assert!(call(&first).now_or_never().is_none());
    }

    #[test]
    fn a_failure_pauses_its_company_and_the_failures_of_two_pause_all() {
        let (mut pauses, now) = (QueryPauses::default(), Instant::now());
        let [first, second, third] = ["a", "b", "c"].map(CompanyId::from);
        for skip in [EmbedderSkip::Rejected, EmbedderSkip::InvalidAnswer] {
            pauses.record(&first, Some(skip), now);
            pauses.record(&second, Some(skip), now);
            assert!(pauses.is_paused(&first, now) && pauses.is_paused(&second, now));
            assert!(!pauses.is_paused(&third, now), "it is the question: {skip:?}");
        }
        pauses.record(&first, None, now);
        pauses.record(&second, None, now);
        pauses.record(&first, Some(EmbedderSkip::Timeout), now);
        pauses.record(&first, Some(EmbedderSkip::Timeout), now);
        assert!(pauses.is_paused(&first, now) && !pauses.is_paused(&third, now));
        pauses.record(&second, Some(EmbedderSkip::Unavailable), now);
        assert!(pauses.is_paused(&third, now), "it is the server");
        let later = now + FAILURE_PAUSE;
        assert!(!pauses.is_paused(&first, later) && !pauses.is_paused(&third, later));
        pauses.record(&second, Some(EmbedderSkip::Timeout), later);
        assert!(!pauses.is_paused(&third, later), "the other failure is long ago");
        assert_eq!(pauses.by_company.len(), 1, "ended pauses are forgotten");
        pauses.record(&first, Some(EmbedderSkip::Timeout), later);
        pauses.record(&second, None, later);
        assert!(!pauses.is_paused(&third, later), "it works again");
    }
}
