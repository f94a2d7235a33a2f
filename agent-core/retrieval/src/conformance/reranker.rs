//! Conformance suite for [`Reranker`].

use agent_core::conformance::with_timeout;

use crate::rerank::{RerankError, Reranker};

/// Passages; the second one answers the question.
const PASSAGES: [&str; 4] = [
    "The lighthouse stands on a rock.",
    "Receipts are kept for ten years in the cellar.",
    "Trains are booked by the office.",
    "領収書は十年間保管します。",
];

/// Runs the conformance suite of [`Reranker`].
///
/// # Panics
/// If the contract is violated, with a message that describes the violation.
pub async fn reranker(reranker: &dyn Reranker) {
    let query = "How long are receipts kept?";
    let scores = rerank(reranker, query, &PASSAGES).await.expect("passages are scored");
    let best = (0..PASSAGES.len()).max_by(|&left, &right| scores[left].total_cmp(&scores[right]));
    assert_eq!(best, Some(1), "the passage that answers is the best: {scores:?}");
    let again = rerank(reranker, query, &PASSAGES).await.expect("passages are scored again");
    let order = |scores: &[f32]| {
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|&left, &right| scores[right].total_cmp(&scores[left]));
        order
    };
    assert_eq!(order(&scores), order(&again), "a repetition gives the same order");
    let reversed: Vec<&str> = PASSAGES.into_iter().rev().collect();
    let reversed = rerank(reranker, query, &reversed).await.expect("passages are scored in another order");
    assert!(order(&reversed).first() == Some(&2), "scores are in the order of the passages: {reversed:?}");
    let none = rerank(reranker, query, &[]).await.expect("no passages have no scores");
    assert!(none.is_empty());
}

async fn rerank(reranker: &dyn Reranker, query: &str, passages: &[&str]) -> Result<Vec<f32>, RerankError> {
    let scores = with_timeout("the end of a call", reranker.rerank(query, passages)).await?;
    RerankError::check(passages.len(), scores)
}

#[cfg(test)]
mod tests;
