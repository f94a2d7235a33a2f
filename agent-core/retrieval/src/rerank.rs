//! Reranking: a model that compares a question with each of the best passages.

use async_trait::async_trait;
use thiserror::Error;

/// Scores passages for a question, such as a cross-encoder behind a `/rerank` endpoint. The contract is the suite
/// `conformance::reranker`.
#[async_trait]
pub trait Reranker: Send + Sync + 'static {
    /// Returns a score for each passage, in the order of the passages: finite, and greater for better ones. Dropping the
    /// future cancels the call, as the platform does after 800 ms. A call is not repeated.
    ///
    /// # Errors
    /// After an error, the hits of the search keep their order.
    async fn rerank(&self, query: &str, passages: &[&str]) -> Result<Vec<f32>, RerankError>;
}

/// Error of a reranker. The messages are shown to operators and contain neither texts nor keys.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RerankError {
    /// The model cannot be reached or did not answer in time.
    #[error("the reranker is unavailable: {0}")]
    Unavailable(String),
    /// The model rejected the passages or the question.
    #[error("the reranker rejected the request: {0}")]
    Rejected(String),
    /// The answer is not a finite score for each passage.
    #[error("the reranker's answer is invalid: {0}")]
    InvalidAnswer(String),
}

impl RerankError {
    /// Checks the scores of `passages` passages.
    ///
    /// # Errors
    /// [`RerankError::InvalidAnswer`] if there are more or fewer, or if one is not finite.
    pub fn check(passages: usize, scores: Vec<f32>) -> Result<Vec<f32>, Self> {
        if scores.len() != passages {
            return Err(Self::InvalidAnswer(format!("{} scores for {passages} passages", scores.len())));
        }
        match scores.iter().all(|score| score.is_finite()) {
            true => Ok(scores),
            false => Err(Self::InvalidAnswer("a score is not finite".to_owned())),
        }
    }
}
