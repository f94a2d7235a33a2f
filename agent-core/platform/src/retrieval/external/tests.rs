//! Tests of searches in an external index: it conforms, and its wrong answers have no effect.

use std::sync::Mutex;

use agent_core::clock::SystemClock;
use agent_retrieval::document::ExtractedText;
use agent_retrieval::memory_index::MemoryIndex;
use agent_retrieval::search::{Query, SearchOptions};

use super::*;
use crate::memory::MemoryRecords;
use crate::records::Precondition;
use crate::workspace::{Document, save_document};

fn retriever(records: &Arc<MemoryRecords>, index: Arc<dyn SearchIndex>) -> IndexRetriever {
    IndexRetriever::new(index, records.clone(), Arc::new(SystemClock))
}

#[tokio::test]
async fn the_search_by_an_index_conforms() {
    crate::conformance::retriever(async || {
        let records = Arc::new(MemoryRecords::default());
        let retriever = retriever(&records, Arc::new(MemoryIndex::new()));
        (records as _, Arc::new(retriever) as _)
    })
    .await;
}

/// An index with scripted answers.
struct Scripted(Mutex<Option<Result<IndexResponse, IndexError>>>);

impl Scripted {
    fn new(answer: Option<Result<IndexResponse, IndexError>>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(answer)))
    }
}

#[async_trait]
impl SearchIndex for Scripted {
    async fn put(&self, _: &str, _: &DocumentId, _: u64, _: &ExtractedText) -> Result<(), IndexError> {
        Ok(())
    }

    async fn remove(&self, _: &str, _: &DocumentId) -> Result<(), IndexError> {
        Ok(())
    }

    async fn search(&self, _: &IndexQuery<'_>) -> Result<IndexResponse, IndexError> {
        let answer = self.0.lock().expect("no panic").clone();
        match answer {
            Some(answer) => answer,
            None => std::future::pending().await,
        }
    }
}

async fn saved() -> (Arc<MemoryRecords>, u64) {
    let records = Arc::new(MemoryRecords::default());
    let document =
        Document { id: "a".into(), company_id: "c".into(), text: "Wörter".into(), ..Document::default() };
    let version = save_document(&*records, &document, Precondition::Any, &"ada".into()).await.expect("saved");
    (records, version)
}

async fn search(retriever: &IndexRetriever) -> SearchResult {
    let (company_id, documents) = (CompanyId::from("c"), ["a".to_owned()]);
    let query = Query { text: "words", previous: None };
    let options = SearchOptions::default();
    let search = DocumentSearch { company_id: &company_id, documents: &documents, query, options };
    retriever.search(search).await.expect("the store answers")
}

#[tokio::test]
async fn hits_of_an_external_index_are_checked() {
    let (records, version) = saved().await;
    let hit = IndexHit {
        document: "a".into(),
        version,
        chunk: 0,
        range: 0..7,
        heading: None,
        page: None,
        score: 1.0,
        relevance: 0.5,
    };
    let lies = [
        IndexHit { document: "secret".into(), ..hit.clone() },
        IndexHit { version: version + 1, ..hit.clone() },
        IndexHit { version: version - 1, ..hit.clone() },
        IndexHit { range: 0..8, ..hit.clone() },
        // Within a character.
        IndexHit { range: 0..2, ..hit.clone() },
        IndexHit { range: 3..3, ..hit.clone() },
        IndexHit { score: f32::NAN, ..hit.clone() },
        hit.clone(),
        IndexHit { relevance: f32::INFINITY, ..hit.clone() },
    ];
    let missing = vec![DocumentId::from("secret")];
    let retriever =
        retriever(&records, Scripted::new(Some(Ok(IndexResponse { hits: lies.to_vec(), missing }))));
    let result = search(&retriever).await;
    let found: Vec<_> =
        result.ranking.hits.iter().map(|hit| (hit.document.as_str(), hit.is_relevant)).collect();
    assert_eq!(found, [("a", true), ("a", false)]);
    assert!(
        result.skipped.is_empty(),
        "a document that was not asked for is not named: {:?}",
        result.skipped
    );
}

#[tokio::test]
async fn documents_beyond_the_limit_of_hits_are_not_read() {
    let (records, mut versions, ids) = (Arc::new(MemoryRecords::default()), Vec::new(), ["a", "b", "c"]);
    for id in ids {
        let document =
            Document { id: id.into(), company_id: "c".into(), text: "words".into(), ..Document::default() };
        let saved = save_document(&*records, &document, Precondition::Any, &"ada".into()).await;
        versions.push(saved.expect("saved"));
    }
    let hits =
        ids.into_iter().zip(versions).map(|(id, version)| IndexHit::new(id.into(), version, 0..5, 1.0));
    let answer = IndexResponse { hits: hits.collect(), missing: Vec::new() };
    let retriever = retriever(&records, Scripted::new(Some(Ok(answer))));
    let (company_id, documents) = (CompanyId::from("c"), ids.map(str::to_owned));
    let options = SearchOptions { limit: 2, ..SearchOptions::default() };
    let search = DocumentSearch { options, ..DocumentSearch::new(&company_id, &documents, "words") };
    let result = retriever.search(search).await.expect("the store answers");
    assert_eq!(result.ranking.hits.len(), 2);
    let mut read: Vec<&str> = result.documents.keys().map(DocumentId::as_str).collect();
    read.sort_unstable();
    assert_eq!(read, ["a", "b"]);
}

#[tokio::test]
async fn a_failed_index_finds_nothing_and_is_reported() {
    let (records, _) = saved().await;
    let failing = Scripted::new(Some(Err(IndexError::Unavailable("it is down".to_owned()))));
    for index in [failing, Scripted::new(None)] {
        let result = search(&retriever(&records, index)).await;
        assert!(result.ranking.hits.is_empty() && result.scope.is_empty());
        assert_eq!(result.skipped.len(), 1);
        assert_eq!((&*result.skipped[0].id, result.skipped[0].reason), ("a", SkipReason::Unavailable));
    }
}
