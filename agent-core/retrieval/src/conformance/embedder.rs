//! Conformance suite for [`Embedder`].

use std::sync::Arc;

use agent_core::conformance::{OpenWorkCounter, Scenario, drop_in_progress, wait_until_idle, with_timeout};
use futures_util::future::join;

use crate::embed::{EmbedError, EmbedRole, Embedder, Embeddings};

/// Maximum length of an identifier in bytes, which a document's index can store.
const MAX_ID_BYTES: usize = 512;
/// Least cosine of the vectors of equal texts. Batches of other shapes may be added up in another order.
const SAME: f32 = 0.999;
/// Texts that no model maps to the same vector.
const TEXTS: [&str; 4] = [
    "Receipts are kept for ten years.",
    "The lighthouse stands on a rock in the harbour.",
    "fn main() { println!(\"{}\", 42); }",
    "Die Rechnung wird am Monatsende verschickt.",
];

/// An embedder under test and a counter of the work below it.
pub struct EmbedderSubject {
    /// The embedder.
    pub embedder: Arc<dyn Embedder>,
    /// Counter of the work in progress, if it can be counted.
    pub open: Option<OpenWorkCounter>,
}

impl EmbedderSubject {
    /// Creates a subject without a counter.
    pub fn new(embedder: Arc<dyn Embedder>) -> Self {
        Self { embedder, open: None }
    }
}

/// Runs the conformance suite of [`Embedder`] against embedders whose remote end behaves as the scenario says. The factory
/// must provide the first scenario, [`Scenario::Completes`].
///
/// # Panics
/// If the contract is violated, with a message that describes the violation.
pub async fn embedder(make: impl AsyncFn(Scenario) -> Option<EmbedderSubject>) {
    let subject = make(Scenario::Completes).await.expect("the factory provides Scenario::Completes");
    let embedder = &*subject.embedder;
    the_identifier_is_stable_and_bounded(embedder);
    vectors_belong_to_their_texts(embedder).await;
    batches_are_bounded(embedder).await;
    roles_have_the_same_dimensions(embedder).await;
    long_texts_are_not_dropped(embedder).await;
    concurrent_calls_are_independent(embedder).await;
    if let Some(open) = &subject.open {
        wait_until_idle("the work of a finished call", open).await;
    }
    if let Some(subject) = make(Scenario::Hangs).await {
        let call = subject.embedder.embed(&TEXTS, EmbedRole::Document);
        drop_in_progress("a call that is dropped", call, subject.open.as_ref()).await;
    }
    if let Some(subject) = make(Scenario::Truncates).await {
        let result = embed(&*subject.embedder, &TEXTS, EmbedRole::Document).await;
        assert!(result.is_err(), "an answer that is cut off is an error: {result:?}");
    }
    if let Some(subject) = make(Scenario::Rejects).await {
        let result = embed(&*subject.embedder, &TEXTS, EmbedRole::Document).await;
        assert!(matches!(result, Err(EmbedError::Rejected(_))), "a refusal is Rejected: {result:?}");
        let message = result.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(TEXTS.iter().all(|text| !message.contains(text)), "an error contains no text: {message}");
    }
}

async fn embed(embedder: &dyn Embedder, texts: &[&str], role: EmbedRole) -> Result<Embeddings, EmbedError> {
    with_timeout("the end of a call", embedder.embed(texts, role)).await
}

async fn embedded(embedder: &dyn Embedder, texts: &[&str], role: EmbedRole) -> Embeddings {
    let result = embed(embedder, texts, role).await;
    let embeddings = result.unwrap_or_else(|error| panic!("embedding plain texts failed: {error}"));
    assert_eq!(embeddings.len(), texts.len(), "there are as many vectors as texts");
    for vector in embeddings.iter() {
        assert!((cosine(vector, vector) - 1.0).abs() < 1e-3, "vectors are normalized");
    }
    embeddings
}

fn the_identifier_is_stable_and_bounded(embedder: &dyn Embedder) {
    let id = embedder.id();
    assert!(
        !id.as_str().is_empty() && id.as_str().len() <= MAX_ID_BYTES,
        "an identifier can be stored: {id}"
    );
    assert_eq!(id, embedder.id(), "an embedder has one identifier");
    assert!(embedder.max_batch() > 0, "an embedder embeds at least one text");
}

async fn vectors_belong_to_their_texts(embedder: &dyn Embedder) {
    let empty = embed(embedder, &[], EmbedRole::Document).await;
    assert_eq!(empty.map(|vectors| vectors.len()), Ok(0), "no text gives no vector");
    let mut single = Vec::new();
    for text in TEXTS {
        single.push(embedded(embedder, &[text], EmbedRole::Document).await);
    }
    let vector_of = |text: usize| single[text].iter().next().expect("a vector of each text");
    for left in 0..TEXTS.len() {
        for right in 0..left {
            assert!(
                cosine(vector_of(left), vector_of(right)) < SAME,
                "different texts have different vectors"
            );
        }
    }
    // More than one text in a call, as far as the batch allows.
    let order = [2, 0, 2, 3, 1];
    for positions in order.chunks(embedder.max_batch().min(order.len())) {
        let texts: Vec<&str> = positions.iter().map(|&position| TEXTS[position]).collect();
        let batch = embedded(embedder, &texts, EmbedRole::Document).await;
        for (vector, &position) in batch.iter().zip(positions) {
            let similarity = cosine(vector, vector_of(position));
            assert!(
                similarity > SAME,
                "the vector of {:?} does not depend on the others: {similarity}",
                TEXTS[position]
            );
        }
    }
}

async fn batches_are_bounded(embedder: &dyn Embedder) {
    let limit = embedder.max_batch();
    let texts: Vec<String> = (0..=limit).map(|number| format!("Number {number}.")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    embedded(embedder, &texts[..limit], EmbedRole::Document).await;
    let result = embed(embedder, &texts, EmbedRole::Document).await;
    assert!(matches!(result, Err(EmbedError::Rejected(_))), "more than the batch is rejected: {result:?}");
}

async fn roles_have_the_same_dimensions(embedder: &dyn Embedder) {
    let query = embedded(embedder, &["How long are receipts kept?"], EmbedRole::Query).await;
    let document = embedded(embedder, &TEXTS[..1], EmbedRole::Document).await;
    assert_eq!(query.dimensions(), document.dimensions(), "questions and documents can be compared");
}

async fn long_texts_are_not_dropped(embedder: &dyn Embedder) {
    let long = TEXTS[1].repeat(4_000);
    match embed(embedder, &[TEXTS[0], &long], EmbedRole::Document).await {
        Ok(embeddings) => assert_eq!(embeddings.len(), 2, "a long text is cut, not dropped"),
        Err(EmbedError::Rejected(_)) => {}
        Err(error) => panic!("a long text is cut or rejected: {error}"),
    }
}

async fn concurrent_calls_are_independent(embedder: &dyn Embedder) {
    let (first, second) = join(
        embedded(embedder, &TEXTS[..1], EmbedRole::Document),
        embedded(embedder, &TEXTS[1..2], EmbedRole::Document),
    )
    .await;
    let alone = embedded(embedder, &TEXTS[1..2], EmbedRole::Document).await;
    let single_vector = |embeddings: &Embeddings| embeddings.iter().next().expect("one vector").to_vec();
    assert!(
        cosine(&single_vector(&second), &single_vector(&alone)) > SAME,
        "concurrent calls are answered independently"
    );
    assert!(
        cosine(&single_vector(&first), &single_vector(&alone)) < SAME,
        "concurrent calls are answered independently"
    );
}

fn cosine(left: &[f32], right: &[f32]) -> f32 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

#[cfg(test)]
mod tests;
