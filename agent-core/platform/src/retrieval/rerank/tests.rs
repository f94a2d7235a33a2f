//! Tests of searches whose hits a reranker puts into order.

use agent_core::clock::SystemClock;
use agent_core::testing::ManualClock;
use agent_retrieval::search::{Query, SearchOptions};
use futures_util::future::join;

use super::*;
use crate::memory::MemoryRecords;
use crate::records::Precondition;
use crate::retrieval::{DocumentRetriever, RetrieverConfig};
use crate::workspace::{Document, save_document};

/// Prefers long passages, or fails.
enum Scripted {
    LongestFirst,
    TooFew,
    NotFinite,
    Fails,
    Hangs,
}

#[async_trait]
impl Reranker for Scripted {
    async fn rerank(&self, _: &str, passages: &[&str]) -> Result<Vec<f32>, RerankError> {
        let mut scores: Vec<f32> = passages.iter().map(|passage| passage.len() as f32).collect();
        match self {
            Self::LongestFirst => {}
            Self::TooFew => drop(scores.pop()),
            Self::NotFinite => scores[0] = f32::NAN,
            Self::Fails => return Err(RerankError::Unavailable("it is down".to_owned())),
            Self::Hangs => std::future::pending().await,
        }
        Ok(scores)
    }
}

fn documents(records: &Arc<MemoryRecords>) -> Arc<dyn Retriever> {
    let pool = Arc::new(|work: Box<dyn FnOnce() + Send>| work());
    Arc::new(DocumentRetriever::new(RetrieverConfig::new(records.clone(), pool)))
}

#[tokio::test]
async fn the_platforms_own_search_conforms() {
    crate::conformance::retriever(async || {
        let records = Arc::new(MemoryRecords::default());
        let retriever = documents(&records);
        (records as _, retriever)
    })
    .await;
}

#[tokio::test]
async fn hits_are_put_into_order_or_keep_theirs() {
    let records = Arc::new(MemoryRecords::default());
    let ids: Vec<String> = (0..5).map(|n| format!("d{n}")).collect();
    for (n, id) in ids.iter().enumerate() {
        let text = format!("The zeppelin. {}", "Other words follow. ".repeat(n));
        let document = Document { id: id.clone(), company_id: "c".into(), text, ..Document::default() };
        save_document(&*records, &document, Precondition::Any, &"ada".into()).await.expect("saved");
    }
    let order = async |retriever: &dyn Retriever| -> Vec<String> {
        let company_id = CompanyId::from("c");
        let query = Query { text: "zeppelin", previous: None };
        let options = SearchOptions::default();
        let search = DocumentSearch { company_id: &company_id, documents: &ids, query, options };
        let result = retriever.search(search).await.expect("the store answers");
        result.ranking.hits.iter().map(|hit| hit.document.to_string()).collect()
    };
    let plain = documents(&records);
    let before = order(&*plain).await;
    assert_ne!(before, ["d4", "d3", "d2", "d1", "d0"]);
    let reranked = async |reranker: Scripted| {
        order(&RerankedRetriever::new(plain.clone(), Arc::new(reranker), Arc::new(SystemClock))).await
    };
    assert_eq!(reranked(Scripted::LongestFirst).await, ["d4", "d3", "d2", "d1", "d0"]);
    for reranker in [Scripted::TooFew, Scripted::NotFinite, Scripted::Fails] {
        assert_eq!(reranked(reranker).await, before);
    }
    let clock = ManualClock::new();
    let hanging = RerankedRetriever::new(plain.clone(), Arc::new(Scripted::Hangs), Arc::new(clock.clone()));
    let timeout = async {
        clock.wait_for_sleepers(1).await;
        clock.advance_to_next()
    };
    let (kept, waited) = join(order(&hanging), timeout).await;
    assert_eq!((kept, waited), (before, Some(RERANK_TIMEOUT)));
}
