//! Conformance suite of [`Retriever`].

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::{Clock as _, SystemClock};
use agent_core::ids::CompanyId;
use agent_retrieval::search::{Query, SearchOptions};
use futures_util::future::{Either, select};

use super::records::SharedRecords;
use crate::records::{Precondition, Records};
use crate::retrieval::{DocumentSearch, Retriever, SearchResult, SkipReason};
use crate::workspace::{Document, delete_document, save_document};

/// Maximum time for a document to be indexed.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Runs the conformance suite of [`Retriever`] against retrievers from `make`, which must return one over an empty store at
/// every call.
///
/// # Panics
/// If the contract is violated, with a message that describes the violation.
pub async fn retriever(make: impl AsyncFn() -> (SharedRecords, Arc<dyn Retriever>)) {
    let (records, retriever) = make().await;
    documents_of_the_scope_are_found(&*records, &*retriever).await;
    let (records, retriever) = make().await;
    companies_are_apart(&*records, &*retriever).await;
    let (records, retriever) = make().await;
    changes_are_followed(&*records, &*retriever).await;
}

async fn save(records: &dyn Records, company: &str, id: &str, text: &str) {
    let document = Document {
        id: id.to_owned(),
        company_id: company.into(),
        title: "Title".to_owned(),
        text: text.to_owned(),
        ..Document::default()
    };
    save_document(records, &document, Precondition::Any, &"ada".into()).await.expect("saved");
}

async fn search(retriever: &dyn Retriever, company: &str, ids: &[&str], text: &str) -> SearchResult {
    let company_id = CompanyId::from(company);
    let ids: Vec<String> = ids.iter().copied().map(str::to_owned).collect();
    let query = Query { text, previous: None };
    let options = SearchOptions { limit: 5, ..SearchOptions::default() };
    let search = DocumentSearch { company_id: &company_id, documents: &ids, query, options };
    retriever.search(search).await.expect("the store answers")
}

/// Searches until no document is being indexed.
async fn search_indexed(retriever: &dyn Retriever, company: &str, ids: &[&str], text: &str) -> SearchResult {
    let indexed = async {
        loop {
            let found = search(retriever, company, ids, text).await;
            if !found.skipped.iter().any(|skipped| skipped.reason == SkipReason::Indexing) {
                return found;
            }
            SystemClock.sleep(Duration::from_millis(5)).await;
        }
    };
    let working = select(retriever.run(), SystemClock.sleep(TIMEOUT));
    match select(pin!(indexed), working).await {
        Either::Left((found, _)) => found,
        Either::Right(_) => panic!("a document is indexed in time"),
    }
}

fn found(result: &SearchResult) -> Vec<&str> {
    for hit in &result.ranking.hits {
        let text = result.documents.get(&hit.document).map(|found| &*found.text);
        let part = text.and_then(|text| text.get(hit.range.clone()));
        assert!(part.is_some_and(|part| !part.is_empty()), "a hit is a part of its document's text");
    }
    let mut ids: Vec<&str> = result.ranking.hits.iter().map(|hit| hit.document.as_str()).collect();
    ids.dedup();
    ids
}

async fn documents_of_the_scope_are_found(records: &dyn Records, retriever: &dyn Retriever) {
    save(records, "c", "a", "The zeppelin is moored at the northern mast. 領収書").await;
    save(records, "c", "b", "A zeppelin of another document.").await;
    let answer = search_indexed(retriever, "c", &["a", "none", "not/valid\0"], "zeppelin").await;
    assert_eq!(found(&answer), ["a"], "documents out of the scope are not found");
    assert_eq!(answer.scope, ["a"]);
    let mut skipped: Vec<_> = answer.skipped.iter().map(|skipped| (&*skipped.id, skipped.reason)).collect();
    skipped.sort_unstable_by_key(|(id, _)| *id);
    let not_found = SkipReason::NotFound;
    assert_eq!(skipped, [("none", not_found), ("not/valid\0", not_found)], "others do not exist");
    let twice = search_indexed(retriever, "c", &["a", "a"], "zeppelin").await;
    assert_eq!(twice.scope, ["a"], "a document that is named twice counts once");
    assert!(found(&search_indexed(retriever, "c", &[], "zeppelin").await).is_empty());
    for n in 0..9 {
        save(records, "c", &format!("d{n}"), "One more zeppelin.").await;
    }
    let ids: Vec<String> = (0..9).map(|n| format!("d{n}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let answer = search_indexed(retriever, "c", &ids, "zeppelin").await;
    assert_eq!(answer.ranking.hits.len(), 5, "the limit is reached and not exceeded");
}

async fn companies_are_apart(records: &dyn Records, retriever: &dyn Retriever) {
    save(records, "c", "a", "The zeppelin of one company.").await;
    save(records, "d", "a", "The steamer of another company.").await;
    assert_eq!(found(&search_indexed(retriever, "c", &["a"], "zeppelin").await), ["a"]);
    let theirs = search_indexed(retriever, "d", &["a"], "zeppelin").await;
    let texts = theirs.documents.values().map(|found| &*found.text);
    assert!(
        texts.into_iter().all(|text| !text.contains("zeppelin")),
        "a company finds its own documents alone"
    );
    let nobody = search_indexed(retriever, "e", &["a"], "zeppelin").await;
    assert!(found(&nobody).is_empty() && nobody.skipped[0].reason == SkipReason::NotFound);
}

async fn changes_are_followed(records: &dyn Records, retriever: &dyn Retriever) {
    save(records, "c", "a", "The zeppelin is moored.").await;
    assert_eq!(found(&search_indexed(retriever, "c", &["a"], "zeppelin").await), ["a"]);
    save(records, "c", "a", "The steamer is moored.").await;
    // Without waiting, a search has the present text or none.
    let at_once = search(retriever, "c", &["a"], "moored").await;
    assert!(at_once.documents.values().all(|found| found.text.contains("steamer")), "old texts are gone");
    assert_eq!(found(&search_indexed(retriever, "c", &["a"], "steamer").await), ["a"]);
    delete_document(records, &"c".into(), "a", Precondition::Any).await.expect("deleted");
    let deleted = search(retriever, "c", &["a"], "steamer").await;
    assert!(found(&deleted).is_empty() && deleted.documents.is_empty(), "a deleted document is not found");
}
