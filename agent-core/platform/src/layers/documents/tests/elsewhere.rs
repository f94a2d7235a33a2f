//! Documents that are not among the platform's records: their store is known to the retriever alone.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;
use std::time::Duration;

use agent_retrieval::chunk::StructuralChunker;
use agent_retrieval::doc_index::DocIndex;
use agent_retrieval::document::{DocumentId, ExtractedText};
use agent_retrieval::search::search_documents;

use super::*;
use crate::conformance::DocumentWriter;
use crate::retrieval::FoundDocument;

/// A store of documents of an application, which searches them too.
#[derive(Default)]
struct OwnDocuments {
    /// Texts with their versions, by company and identifier.
    texts: Mutex<BTreeMap<(CompanyId, String), (u64, String)>>,
    writes: AtomicUsize,
}

impl OwnDocuments {
    fn get(&self, company_id: &CompanyId, id: &str) -> Option<(u64, String)> {
        self.texts.lock().expect("no panic").get(&(company_id.clone(), id.to_owned())).cloned()
    }
}

#[async_trait]
impl DocumentWriter for OwnDocuments {
    async fn save(&self, company_id: &CompanyId, id: &str, text: &str) {
        let version = self.writes.fetch_add(1, SeqCst) as u64 + 1;
        let key = (company_id.clone(), id.to_owned());
        self.texts.lock().expect("no panic").insert(key, (version, text.to_owned()));
    }

    async fn delete(&self, company_id: &CompanyId, id: &str) {
        self.texts.lock().expect("no panic").remove(&(company_id.clone(), id.to_owned()));
    }
}

#[async_trait]
impl Retriever for OwnDocuments {
    async fn search(&self, search: DocumentSearch<'_>) -> Result<SearchResult, StoreError> {
        let (mut documents, mut scope, mut skipped) = (HashMap::new(), Vec::new(), Vec::new());
        let mut indexes = Vec::new();
        for id in search.documents.iter().cloned().collect::<BTreeSet<_>>() {
            let document_id = DocumentId::from(id.as_str());
            let Some((version, text)) = self.get(search.company_id, &id) else {
                skipped.push(SkippedDocument { id, reason: SkipReason::NotFound });
                continue;
            };
            let content = ExtractedText { title: "Title".to_owned(), text, ..ExtractedText::default() };
            let index = DocIndex::build(&content, &StructuralChunker::default()).expect("a short text");
            let found = FoundDocument { version, text: content.text.into(), media_type: None };
            documents.insert(document_id.clone(), found);
            indexes.push((document_id, index));
            scope.push(id);
        }
        let indexes = indexes.iter().map(|(id, index)| (id.clone(), index));
        let ranking = search_documents(indexes, &search.query, &search.options);
        Ok(SearchResult { ranking, scope, skipped, documents, embedder: None, duration: Duration::ZERO })
    }

    async fn versions(&self, company_id: &CompanyId, ids: &[&str]) -> Result<Vec<Option<u64>>, StoreError> {
        Ok(ids.iter().map(|id| Some(self.get(company_id, id)?.0)).collect())
    }

    fn announce(&self, _: &CompanyId, _: &str) {}

    async fn run(&self) {
        std::future::pending().await
    }
}

#[tokio::test]
async fn the_search_of_an_applications_own_documents_conforms() {
    crate::conformance::retriever(async || {
        let documents = Arc::<OwnDocuments>::default();
        (documents.clone() as _, documents as _)
    })
    .await;
}

#[tokio::test]
async fn documents_of_the_application_are_quoted_beside_those_of_the_platform() {
    let own = Arc::<OwnDocuments>::default();
    own.save(&"c1".into(), "wiki", "The printer stands on the second floor.").await;
    let documents = [("hours", "Hours", "The office opens at eight.".to_owned())];
    let (_, mut layer) = retrieving_by(&documents, |_, _| own.clone()).await;
    let settings = layer.retrieval.as_mut().expect("it retrieves");
    settings.roles = Arc::new(naming(["hours", "wiki"].into_iter()));
    let content = json!({"enableAutoRag": true, "documentIds": ["hours"], "ragDocumentIds": ["wiki"]});
    let turn = asked(content, &["Where is the printer?"]);
    let fragments = layer.collect(&turn).await.expect("collects");
    assert_eq!(ids(&fragments), ["doc:hours", "retrieval", "retrieval:1"]);
    assert!(fragments[2].part.text().contains("second floor"));
    own.delete(&"c1".into(), "wiki").await;
    let fragments = layer.collect(&turn).await.expect("collects");
    assert_eq!(ids(&fragments), ["doc:hours", "retrieval"], "a deleted document is not quoted");
}
