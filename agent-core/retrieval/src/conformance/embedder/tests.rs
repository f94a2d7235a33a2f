//! The suite accepts an embedder that keeps the contract, and finds each violation.

use std::panic::AssertUnwindSafe;

use async_trait::async_trait;
use futures_util::FutureExt;

use super::*;
use crate::embed::EmbedderId;

/// Violation of the contract.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    None,
    Reversed,
    Constant,
    Unbounded,
    OtherDimensions,
    DropsLong,
    CallsForNothing,
    EmptyId,
    AnswersRefusal,
}

struct Scripted {
    id: EmbedderId,
    fault: Fault,
    scenario: Scenario,
}

/// Returns a vector of a text: counts of letters by their place in the alphabet.
fn vector(text: &str, dimensions: usize) -> Vec<f32> {
    let mut vector = vec![0.01; dimensions];
    for byte in text.bytes() {
        vector[byte as usize % dimensions] += 1.0;
    }
    vector
}

#[async_trait]
impl Embedder for Scripted {
    fn id(&self) -> &EmbedderId {
        &self.id
    }

    fn max_batch(&self) -> usize {
        8
    }

    async fn embed(&self, texts: &[&str], role: EmbedRole) -> Result<Embeddings, EmbedError> {
        match self.scenario {
            Scenario::Hangs => std::future::pending().await,
            Scenario::Truncates => return Err(EmbedError::InvalidAnswer("it ends early".into())),
            Scenario::Rejects if self.fault != Fault::AnswersRefusal => {
                return Err(EmbedError::Rejected("no".into()));
            }
            _ => {}
        }
        if texts.len() > self.max_batch() && self.fault != Fault::Unbounded {
            return Err(EmbedError::batch_too_large(texts.len(), self.max_batch()));
        }
        if texts.is_empty() && self.fault == Fault::CallsForNothing {
            return Err(EmbedError::unavailable("no texts"));
        }
        let is_query = role == EmbedRole::Query;
        let dimensions = if is_query && self.fault == Fault::OtherDimensions { 31 } else { 32 };
        let of = |text: &&str| vector(if self.fault == Fault::Constant { "" } else { text }, dimensions);
        let mut vectors: Vec<Vec<f32>> = texts.iter().map(of).collect();
        if self.fault == Fault::Reversed {
            vectors.reverse();
        }
        if self.fault == Fault::DropsLong && texts.iter().any(|text| text.len() > 100_000) {
            return Embeddings::new(1, vectors.drain(..1));
        }
        Embeddings::new(texts.len(), vectors)
    }
}

async fn run(fault: Fault) -> Result<(), String> {
    let suite = embedder(async |scenario| {
        let id = EmbedderId::new(if fault == Fault::EmptyId { "" } else { "scripted" });
        Some(EmbedderSubject::new(Arc::new(Scripted { id, fault, scenario })))
    });
    let text = |panic: Box<dyn std::any::Any + Send>| match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast_ref::<&str>().map(ToString::to_string).unwrap_or_default(),
    };
    AssertUnwindSafe(suite).catch_unwind().await.map_err(text)
}

#[tokio::test]
async fn an_embedder_that_keeps_the_contract_passes() {
    assert_eq!(run(Fault::None).await, Ok(()));
}

#[tokio::test]
async fn each_violation_is_found() {
    let cases = [
        (Fault::Reversed, "does not depend on the others"),
        (Fault::Constant, "different texts have different vectors"),
        (Fault::Unbounded, "more than the batch is rejected"),
        (Fault::OtherDimensions, "questions and documents can be compared"),
        (Fault::DropsLong, "a long text is cut, not dropped"),
        (Fault::CallsForNothing, "no text gives no vector"),
        (Fault::EmptyId, "an identifier can be stored"),
        (Fault::AnswersRefusal, "a refusal is Rejected"),
    ];
    for (fault, expected) in cases {
        let message = run(fault).await.expect_err("a violation");
        assert!(message.contains(expected), "{fault:?}: {message}");
    }
}
