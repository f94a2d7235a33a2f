//! The suite accepts a reranker that keeps the contract, and finds each violation.

use std::panic::AssertUnwindSafe;

use async_trait::async_trait;
use futures_util::FutureExt;

use super::*;

/// Scores passages by the words that they share with the question, and then changes the scores.
struct Overlap(fn(Vec<f32>) -> Vec<f32>);

#[async_trait]
impl Reranker for Overlap {
    async fn rerank(&self, query: &str, passages: &[&str]) -> Result<Vec<f32>, RerankError> {
        let words: Vec<String> = query.split_whitespace().map(str::to_lowercase).collect();
        let score = |passage: &&str| {
            let passage = passage.to_lowercase();
            words.iter().filter(|word| passage.contains(*word)).count() as f32
        };
        Ok((self.0)(passages.iter().map(score).collect()))
    }
}

#[tokio::test]
async fn a_reranker_conforms() {
    reranker(&Overlap(|scores| scores)).await;
}

#[tokio::test]
async fn violations_are_found() {
    let violations: [fn(Vec<f32>) -> Vec<f32>; 4] = [
        |scores| scores.into_iter().skip(1).collect(),
        |scores| scores.into_iter().map(|_| f32::NAN).collect(),
        |scores| scores.into_iter().map(|score| -score).collect(),
        |mut scores| {
            scores.sort_by(|left, right| right.total_cmp(left));
            scores
        },
    ];
    for (number, violation) in violations.into_iter().enumerate() {
        let subject = Overlap(violation);
        let result = AssertUnwindSafe(reranker(&subject)).catch_unwind().await;
        assert!(result.is_err(), "violation {number} is found");
    }
}
