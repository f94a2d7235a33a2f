//! Conformance suite for [`SearchIndex`].

use std::sync::Arc;

use agent_core::conformance::with_timeout;

use crate::document::{DocumentId, ExtractedText, TextFormat};
use crate::index::{IndexError, IndexHit, IndexQuery, IndexResponse, SearchIndex};
use crate::search::Query;

/// Runs the conformance suite of [`SearchIndex`] against indexes from `make`, which must return an empty one at every call. An
/// index finds a chunk by a word that it contains and others do not.
///
/// # Panics
/// If the contract is violated, with a message that describes the violation.
pub async fn index(make: impl AsyncFn() -> Arc<dyn SearchIndex>) {
    chunks_of_the_scope_are_found(&*make().await).await;
    companies_are_isolated(&*make().await).await;
    documents_have_versions(&*make().await).await;
    hits_are_bounded_and_in_order(&*make().await).await;
    any_query_is_answered(&*make().await).await;
}

fn content(text: &str) -> ExtractedText {
    ExtractedText {
        title: "Title".to_owned(),
        text: text.to_owned(),
        format: TextFormat::Markdown,
        page_starts: vec![],
    }
}

async fn put(index: &dyn SearchIndex, company: &str, id: &str, version: u64, text: &str) {
    let put = async { index.put(company, &id.into(), version, &content(text)).await };
    with_timeout("a document that is put", put).await.expect("a document is put");
}

async fn search(
    index: &dyn SearchIndex,
    company: &str,
    documents: &[(&str, u64)],
    text: &str,
) -> IndexResponse {
    let documents: Vec<(DocumentId, u64)> =
        documents.iter().map(|(id, version)| (DocumentId::from(*id), *version)).collect();
    let query = Query { text, previous: None };
    let search = IndexQuery { company, documents: &documents, query, limit: 10 };
    with_timeout("a search", index.search(&search)).await.expect("a search is answered")
}

fn found(answer: &IndexResponse) -> Vec<&str> {
    let mut documents: Vec<&str> = answer.hits.iter().map(|hit| hit.document.as_str()).collect();
    documents.dedup();
    documents
}

async fn chunks_of_the_scope_are_found(index: &dyn SearchIndex) {
    let text = "# Zeppelins\n\nThe zeppelin is moored at the northern mast. 領収書";
    put(index, "c", "a", 1, text).await;
    put(index, "c", "b", 1, "A zeppelin of another document.").await;
    let answer = search(index, "c", &[("a", 1)], "zeppelin").await;
    assert!(!answer.hits.is_empty(), "a word of the document finds it");
    for hit in &answer.hits {
        assert_eq!(hit.document.as_str(), "a", "documents out of the scope are not found");
        assert_eq!(hit.version, 1, "a hit has the version that was put");
        assert!(
            text.get(hit.range.clone()).is_some_and(|part| !part.is_empty()),
            "a range of the text: {hit:?}"
        );
        assert!(hit.score.is_finite() && (0.0..=1.0).contains(&hit.relevance), "{hit:?}");
    }
    assert_eq!(answer.missing, [] as [DocumentId; 0], "no document is missing");
    let empty = search(index, "c", &[], "zeppelin").await;
    assert_eq!(empty, IndexResponse::default(), "an empty scope has no hits");
    let with_unknown = search(index, "c", &[("a", 1), ("none", 1)], "zeppelin").await;
    assert_eq!(with_unknown.missing, [DocumentId::from("none")], "a document that was never put is missing");
}

async fn companies_are_isolated(index: &dyn SearchIndex) {
    let other_text = "The steamer.";
    put(index, "c", "a", 1, &format!("{}The zeppelin.", "Nothing of interest here. ".repeat(200))).await;
    put(index, "d", "a", 1, other_text).await;
    let answer = search(index, "d", &[("a", 1)], "zeppelin").await;
    let is_own = |hit: &IndexHit| hit.range.end <= other_text.len();
    assert!(answer.hits.iter().all(is_own), "a company's search finds only its own documents: {answer:?}");
    let unknown = search(index, "e", &[("a", 1)], "zeppelin").await;
    assert_eq!((found(&unknown), &*unknown.missing), (vec![], &[DocumentId::from("a")][..]));
    index.remove("d", &"a".into()).await.expect("a document is removed");
    assert_eq!(
        found(&search(index, "c", &[("a", 1)], "zeppelin").await),
        ["a"],
        "a document of another company is not removed"
    );
}

async fn documents_have_versions(index: &dyn SearchIndex) {
    put(index, "c", "a", 1, "The zeppelin is moored.").await;
    let newer = search(index, "c", &[("a", 2)], "zeppelin").await;
    assert_eq!(newer.missing, [DocumentId::from("a")], "a newer version is missing");
    assert!(newer.hits.iter().all(|hit| hit.version == 1), "a hit has the version that was put");
    put(index, "c", "a", 2, "The steamer is moored.").await;
    let replaced = search(index, "c", &[("a", 2)], "steamer").await;
    assert_eq!((found(&replaced), replaced.missing.len()), (vec!["a"], 0), "the new version is found");
    put(index, "c", "a", 2, "The steamer is moored.").await;
    assert_eq!(
        found(&search(index, "c", &[("a", 2)], "steamer").await),
        ["a"],
        "a repetition changes nothing"
    );
    index.remove("c", &"a".into()).await.expect("a document is removed");
    index.remove("c", &"a".into()).await.expect("a removal can be repeated");
    let removed = search(index, "c", &[("a", 2)], "steamer").await;
    assert_eq!((found(&removed), removed.missing.len()), (vec![], 1), "a removed document is not found");
}

async fn hits_are_bounded_and_in_order(index: &dyn SearchIndex) {
    let ids: Vec<String> = (0..30).map(|n| format!("d{n:02}")).collect();
    for (n, id) in ids.iter().enumerate() {
        put(index, "c", id, 1, &format!("The zeppelin. {}", "Some other words. ".repeat(n))).await;
    }
    let scope: Vec<(&str, u64)> = ids.iter().map(|id| (id.as_str(), 1)).collect();
    let answer = search(index, "c", &scope, "zeppelin").await;
    assert_eq!(answer.hits.len(), 10, "the limit is reached and not exceeded");
    assert!(answer.hits.is_sorted_by(|left, right| left.score >= right.score), "scores do not ascend");
    assert_eq!(search(index, "c", &scope, "zeppelin").await, answer, "a repeated search gives the same hits");
}

async fn any_query_is_answered(index: &dyn SearchIndex) {
    put(index, "c", "a", 1, "The zeppelin is moored.").await;
    let long = "zeppelin ".repeat(100_000);
    for text in ["", " ", "\0", "?*\"' OR 1=1; --", "領収書", long.as_str()] {
        let documents = [(DocumentId::from("a"), 1)];
        let query = Query { text, previous: Some(text) };
        let search = IndexQuery { company: "c", documents: &documents, query, limit: 10 };
        match with_timeout("a search", index.search(&search)).await {
            Ok(answer) => assert!(answer.hits.len() <= 10, "the limit is not exceeded"),
            Err(error) => assert!(matches!(error, IndexError::Rejected(_)), "a refusal is Rejected: {error}"),
        }
    }
}

#[cfg(test)]
mod tests;
