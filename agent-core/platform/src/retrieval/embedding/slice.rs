//! Calls of the embedder for the chunks of a document that lack vectors.
//!
//! A batch that fails does not stop those behind it. A batch that is rejected, or whose answer is invalid, is halved until only
//! the texts that cause the failure are left. An attempt ends early where calls fail in a row: then it is the embedder that
//! fails.

use std::time::Duration;

use agent_core::clock::Clock;
use agent_retrieval::doc_index::DocIndex;
use agent_retrieval::embed::{EmbedError, EmbedRole, Embedder, Embeddings};
use futures_util::future::{Either, select};

/// Maximum duration and number of chunks of a slice; beyond one of them, it does not call the embedder again.
const MAX_SLICE_DURATION: Duration = Duration::from_secs(5);
const MAX_SLICE_CHUNKS: usize = 1_024;
/// Maximum duration of one call of the embedder.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of calls in a row to an embedder that is unavailable; the last one ends the attempt.
const MAX_UNAVAILABLE_IN_A_ROW: u32 = 2;
/// Maximum number of failed calls in a row; the last one ends the attempt. Larger than the number of halvings of a large batch
/// down to one text.
const MAX_FAILURES_IN_A_ROW: u32 = 32;

/// Vectors of some chunks of a document.
#[derive(Default)]
pub(super) struct Slice {
    pub(super) chunks: Vec<usize>,
    pub(super) embeddings: Embeddings,
    /// Number of chunks that were tried, counted from the first chunk without a vector.
    pub(super) tried: usize,
    /// The failure of some of them. One that is worth a repetition comes before one that is not.
    pub(super) failure: Option<EmbedError>,
    /// Number of failed calls since the last one that succeeded, in earlier slices of the attempt too.
    pub(super) failures_in_a_row: u32,
    /// True if the limit of consecutive failed calls is reached, which ends the attempt.
    pub(super) is_stopped: bool,
}

impl Slice {
    /// Returns a slice that continues with an attempt.
    pub(super) fn continued(failure: Option<EmbedError>, failures_in_a_row: u32) -> Self {
        Self { failure, failures_in_a_row, ..Self::default() }
    }

    /// Calls the embedder for the chunks that lack vectors, until the slice or the attempt is over.
    pub(super) async fn embed(
        mut self,
        (embedder, clock): (&dyn Embedder, &dyn Clock),
        (index, text): (&DocIndex, &str),
        missing: &[usize],
    ) -> Self {
        let began = clock.monotonic();
        let mut batches: Vec<&[usize]> = missing.chunks(embedder.max_batch().max(1)).rev().collect();
        while let Some(batch) = batches.pop() {
            let embedded = embed_batch((embedder, clock), (index, text), batch).await;
            match embedded.and_then(|embeddings| self.embeddings.append(embeddings)) {
                Ok(()) => {
                    self.chunks.extend(batch);
                    self.tried += batch.len();
                    self.failures_in_a_row = 0;
                }
                Err(error) => {
                    self.record_failed_call(&error);
                    let is_unavailable = matches!(error, EmbedError::Unavailable { .. });
                    if batch.len() > 1 && !is_unavailable && !self.is_stopped {
                        let (first, second) = batch.split_at(batch.len() / 2);
                        batches.extend([second, first]);
                    } else {
                        self.tried += batch.len();
                        self.record_failure(error);
                    }
                }
            }
            let elapsed = clock.monotonic().saturating_duration_since(began);
            let is_over = elapsed >= MAX_SLICE_DURATION || self.chunks.len() >= MAX_SLICE_CHUNKS;
            // A slice that has tried no chunk to the end would begin with the same batch again.
            if self.is_stopped || (is_over && self.tried > 0) {
                break;
            }
        }
        self
    }

    fn record_failed_call(&mut self, error: &EmbedError) {
        self.failures_in_a_row += 1;
        let limit = match error {
            EmbedError::Unavailable { retry_after: Some(_), .. } => 1,
            EmbedError::Unavailable { .. } => MAX_UNAVAILABLE_IN_A_ROW,
            _ => MAX_FAILURES_IN_A_ROW,
        };
        self.is_stopped = self.failures_in_a_row >= limit;
    }

    fn record_failure(&mut self, error: EmbedError) {
        if self.failure.as_ref().is_none_or(|failure| matches!(failure, EmbedError::Rejected(_))) {
            self.failure = Some(error);
        }
    }
}

/// Calls the embedder for some chunks.
async fn embed_batch(
    (embedder, clock): (&dyn Embedder, &dyn Clock),
    (index, text): (&DocIndex, &str),
    batch: &[usize],
) -> Result<Embeddings, EmbedError> {
    let inputs: Vec<String> = batch.iter().filter_map(|&chunk| index.embedding_input(text, chunk)).collect();
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let call = embedder.embed(&inputs, EmbedRole::Document);
    let embeddings = match select(call, clock.sleep(CALL_TIMEOUT)).await {
        Either::Left((answered, _)) => answered?,
        Either::Right(_) => return Err(EmbedError::unavailable("the embedder took more than a minute")),
    };
    match embeddings.len() == batch.len() {
        true => Ok(embeddings),
        false => Err(EmbedError::InvalidAnswer("vectors are missing".to_owned())),
    }
}
