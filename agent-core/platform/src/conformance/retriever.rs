//! Conformance suite of [`Retriever`].

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::{Clock as _, SystemClock};
use agent_core::ids::CompanyId;
use agent_retrieval::search::{Query, SearchOptions};
use async_trait::async_trait;
use futures_util::future::{Either, select};

use crate::records::{Precondition, Records};
use crate::retrieval::{DocumentSearch, Retriever, SearchResult, SkipReason};
use crate::workspace::{Document, delete_document, save_document};

/// Maximum time for a document to be indexed.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Changes the documents that a retriever searches. The platform's documents are in [`Records`].
#[async_trait]
pub trait DocumentWriter: Send + Sync {
    /// Stores a text with the title `Title` as a document of a company, replacing a document with this identifier.
    async fn save(&self, company_id: &CompanyId, id: &str, text: &str);

    /// Deletes a document of a company.
    async fn delete(&self, company_id: &CompanyId, id: &str);
}

#[async_trait]
impl<R: Records> DocumentWriter for R {
    async fn save(&self, company_id: &CompanyId, id: &str, text: &str) {
        let document = Document {
            id: id.to_owned(),
            company_id: company_id.clone(),
            title: "Title".to_owned(),
            text: text.to_owned(),
            ..Document::default()
        };
        save_document(self, &document, Precondition::Any, &"ada".into()).await.expect("saved");
    }

    async fn delete(&self, company_id: &CompanyId, id: &str) {
        delete_document(self, company_id, id, Precondition::Any).await.expect("deleted");
    }
}

/// Runs the conformance suite of [`Retriever`] against retrievers from `make`, which must return one over an empty store of
/// documents at every call.
///
/// # Panics
/// If the contract is violated, with a message that describes the violation.
pub async fn retriever(make: impl AsyncFn() -> (Arc<dyn DocumentWriter>, Arc<dyn Retriever>)) {
    let (documents, retriever) = make().await;
    documents_of_the_scope_are_found(&*documents, &*retriever).await;
    let (documents, retriever) = make().await;
    companies_are_isolated(&*documents, &*retriever).await;
    let (documents, retriever) = make().await;
    searches_reflect_changes(&*documents, &*retriever).await;
}

async fn save(documents: &dyn DocumentWriter, company: &str, id: &str, text: &str) {
    documents.save(&company.into(), id, text).await;
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

async fn documents_of_the_scope_are_found(documents: &dyn DocumentWriter, retriever: &dyn Retriever) {
    save(documents, "c", "a", "The zeppelin is moored at the northern mast. 領収書").await;
    save(documents, "c", "b", "A zeppelin of another document.").await;
    let answer = search_indexed(retriever, "c", &["a", "none", "not/valid\0"], "zeppelin").await;
    assert_eq!(found(&answer), ["a"], "documents out of the scope are not found");
    assert_eq!(answer.scope, ["a"]);
    let mut skipped: Vec<_> = answer.skipped.iter().map(|skipped| (&*skipped.id, skipped.reason)).collect();
    skipped.sort_unstable_by_key(|(id, _)| *id);
    let not_found = SkipReason::NotFound;
    assert_eq!(
        skipped,
        [("none", not_found), ("not/valid\0", not_found)],
        "documents that do not exist are skipped as not found"
    );
    let twice = search_indexed(retriever, "c", &["a", "a"], "zeppelin").await;
    assert_eq!(twice.scope, ["a"], "a document that is requested twice counts once");
    assert!(found(&search_indexed(retriever, "c", &[], "zeppelin").await).is_empty());
    for n in 0..9 {
        save(documents, "c", &format!("d{n}"), "One more zeppelin.").await;
    }
    let ids: Vec<String> = (0..9).map(|n| format!("d{n}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let answer = search_indexed(retriever, "c", &ids, "zeppelin").await;
    assert_eq!(answer.ranking.hits.len(), 5, "the limit is reached and not exceeded");
}

async fn companies_are_isolated(documents: &dyn DocumentWriter, retriever: &dyn Retriever) {
    save(documents, "c", "a", "The zeppelin of one company.").await;
    save(documents, "d", "a", "The steamer of another company.").await;
    assert_eq!(found(&search_indexed(retriever, "c", &["a"], "zeppelin").await), ["a"]);
    let theirs = search_indexed(retriever, "d", &["a"], "zeppelin").await;
    let texts = theirs.documents.values().map(|found| &*found.text);
    assert!(
        texts.into_iter().all(|text| !text.contains("zeppelin")),
        "a company finds only its own documents"
    );
    let nobody = search_indexed(retriever, "e", &["a"], "zeppelin").await;
    assert!(found(&nobody).is_empty() && nobody.skipped[0].reason == SkipReason::NotFound);
}

async fn searches_reflect_changes(documents: &dyn DocumentWriter, retriever: &dyn Retriever) {
    save(documents, "c", "a", "The zeppelin is moored.").await;
    let first = search_indexed(retriever, "c", &["a"], "zeppelin").await;
    assert_eq!(found(&first), ["a"]);
    let version = first.documents.values().next().map(|found| found.version);
    let present = versions(retriever, &["none", "a", "not/valid\0"]).await;
    assert_eq!(present, [None, version, None], "a hit has the document's version");
    save(documents, "c", "a", "The steamer is moored.").await;
    let changed = versions(retriever, &["a"]).await;
    assert!(changed[0].is_some() && changed[0] != version, "a changed document has another version");
    // Without waiting, a search returns the current text or none.
    let at_once = search(retriever, "c", &["a"], "moored").await;
    assert!(
        at_once.documents.values().all(|found| found.text.contains("steamer")),
        "a search returns no outdated text"
    );
    assert_eq!(found(&search_indexed(retriever, "c", &["a"], "steamer").await), ["a"]);
    documents.delete(&"c".into(), "a").await;
    assert_eq!(versions(retriever, &["a"]).await, [None], "a deleted document has no version");
    let deleted = search(retriever, "c", &["a"], "steamer").await;
    assert!(found(&deleted).is_empty() && deleted.documents.is_empty(), "a deleted document is not found");
}

async fn versions(retriever: &dyn Retriever, ids: &[&str]) -> Vec<Option<u64>> {
    retriever.versions(&"c".into(), ids).await.expect("the store answers")
}
