//! Search over documents in an external index.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::Clock;
use agent_core::ids::CompanyId;
use agent_retrieval::document::DocumentId;
use agent_retrieval::index::{IndexError, IndexHit, IndexQuery, IndexResponse, SearchIndex};
use agent_retrieval::search::{Hit, MAX_HITS, Ranking};
use async_trait::async_trait;
use futures_util::future::{Either, select};

use super::document_reader::{DocumentReader, Versions, present_versions, upload_media_type};
use super::queue::DocumentQueue;
use super::retriever::Retriever;
use super::search::DocumentSearch;
use super::search_result::{FoundDocument, SearchResult, SkipReason, SkippedDocument};
use crate::records::{Record, Records, StoreError};

/// Maximum time for which a search waits for the index.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum time for which a document is put.
const PUT_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause before a document that could not be put is put again.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// Searches documents by a [`SearchIndex`], which is fed from the store.
///
/// Hits of the index are checked: those out of the scope, of other versions than the present ones, or outside of the text
/// are dropped. The texts of fragments are those of the store.
pub struct IndexRetriever {
    index: Arc<dyn SearchIndex>,
    texts: DocumentReader,
    written: DocumentQueue,
}

impl std::fmt::Debug for IndexRetriever {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IndexRetriever").finish_non_exhaustive()
    }
}

impl IndexRetriever {
    /// Creates a retriever over an index, for documents in `records`.
    pub fn new(index: Arc<dyn SearchIndex>, records: Arc<dyn Records>, clock: Arc<dyn Clock>) -> Self {
        Self { index, texts: DocumentReader { records, clock }, written: DocumentQueue::default() }
    }

    /// Searches the index within a time.
    async fn search_index(
        &self,
        search: &DocumentSearch<'_>,
        present: &Versions,
    ) -> Result<IndexResponse, IndexError> {
        let limit = search.options.limit.min(MAX_HITS);
        let company = search.company_id.as_str();
        let search = IndexQuery { company, documents: present, query: search.query, limit };
        match select(self.index.search(&search), self.texts.clock.sleep(SEARCH_TIMEOUT)).await {
            Either::Left((answer, _)) => answer,
            Either::Right(_) => Err(IndexError::Unavailable("no answer within 2 s".to_owned())),
        }
    }

    /// Reads the documents of hits at the versions that were searched.
    async fn read(
        &self,
        company_id: &CompanyId,
        (hits, present): (&[IndexHit], &Versions),
    ) -> Result<HashMap<DocumentId, (FoundDocument, Arc<str>)>, StoreError> {
        let present: HashMap<&DocumentId, u64> = present.iter().map(|(id, version)| (id, *version)).collect();
        let mut found = HashMap::new();
        for hit in hits.iter().filter(|hit| present.get(&hit.document) == Some(&hit.version)) {
            if found.contains_key(&hit.document) {
                continue;
            }
            let read = self.texts.read_document(company_id, &hit.document, hit.version).await?;
            let Some(read) = read.filter(|read| read.version == hit.version) else { continue };
            let title: Arc<str> = read.value.title.as_str().into();
            let media_type = upload_media_type(&read.value);
            let Some(text) = self.texts.read_text(company_id, read.value).await? else { continue };
            let document = FoundDocument { version: hit.version, text: text.into(), media_type };
            found.insert(hit.document.clone(), (document, title));
        }
        Ok(found)
    }

    /// Updates the index to the stored version of a document, or removes the document if it was deleted.
    ///
    /// # Errors
    /// Errors of the index; [`IndexError::Unavailable`] if the store fails, or if it takes more than a minute.
    pub async fn index(&self, company_id: &CompanyId, id: &str) -> Result<(), IndexError> {
        let put = pin!(self.index_document(company_id, id));
        match select(put, self.texts.clock.sleep(PUT_TIMEOUT)).await {
            Either::Left((put, _)) => put,
            Either::Right(_) => Err(IndexError::Unavailable("a put took more than a minute".to_owned())),
        }
    }

    async fn index_document(&self, company_id: &CompanyId, id: &str) -> Result<(), IndexError> {
        let unavailable = |error: StoreError| IndexError::Unavailable(error.to_string());
        let (present, _) = self.texts.versions(company_id, &[id.to_owned()]).await.map_err(unavailable)?;
        let document_id = DocumentId::from(id);
        let Some((_, version)) = present.first() else {
            return self.index.remove(company_id.as_str(), &document_id).await;
        };
        let read = self.texts.read_document(company_id, &document_id, *version).await.map_err(unavailable)?;
        let Some(Record { version, value, .. }) = read else { return Ok(()) };
        let content = self.texts.read_extracted(company_id, value).await.map_err(unavailable)?;
        match content {
            Some(content) => self.index.put(company_id.as_str(), &document_id, version, &content).await,
            // It was replaced or deleted meanwhile, which is announced too.
            None => Ok(()),
        }
    }
}

#[async_trait]
impl Retriever for IndexRetriever {
    async fn search(&self, search: DocumentSearch<'_>) -> Result<SearchResult, StoreError> {
        let began = self.texts.clock.monotonic();
        let company_id = search.company_id;
        let (present, absent) = self.texts.versions(company_id, search.documents).await?;
        let skip = |reason| move |id: &DocumentId| SkippedDocument { id: id.to_string(), reason };
        let mut skipped: Vec<_> = absent.iter().map(skip(SkipReason::NotFound)).collect();
        let mut answer = self.search_index(&search, &present).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the search index failed; the search has no results");
            skipped.extend(present.iter().map(|(id, _)| id).map(skip(SkipReason::Unavailable)));
            IndexResponse::default()
        });
        for id in answer.missing.iter().filter(|id| present.iter().any(|(known, _)| known == *id)) {
            skipped.push(skip(SkipReason::Indexing)(id));
            self.announce(company_id, id.as_str());
        }
        // The texts of all documents with hits are read.
        answer.hits.truncate(search.options.limit.min(MAX_HITS));
        let found = self.read(company_id, (&answer.hits, &present)).await?;
        let check = |hit| checked(hit, &found, search.options.min_relevance);
        let hits: Vec<Hit> = answer.hits.into_iter().filter_map(check).collect();
        let is_searched = |id: &DocumentId| !skipped.iter().any(|skipped| skipped.id == id.as_str());
        let scope: Vec<String> =
            present.iter().filter(|(id, _)| is_searched(id)).map(|(id, _)| id.to_string()).collect();
        let relevance = hits.iter().map(|hit| hit.relevance).fold(0.0, f32::max);
        let ranking = Ranking { terms: Vec::new(), hits, relevance, documents: scope.len() };
        let documents = found.into_iter().map(|(id, (document, _))| (id, document)).collect();
        let duration = self.texts.clock.monotonic().saturating_duration_since(began);
        Ok(SearchResult { ranking, scope, skipped, documents, embedder: None, duration })
    }

    async fn versions(&self, company_id: &CompanyId, ids: &[&str]) -> Result<Vec<Option<u64>>, StoreError> {
        present_versions(&*self.texts.records, company_id, ids).await
    }

    fn announce(&self, company_id: &CompanyId, id: &str) {
        self.written.push(company_id, id);
    }

    async fn run(&self) {
        loop {
            let (company_id, id) = self.written.next().await;
            match self.index(&company_id, &id).await {
                Ok(()) => {}
                Err(error @ IndexError::Rejected(_)) => {
                    tracing::warn!(%error, document = id, "the search index rejected a document; searches do not find it");
                }
                Err(error) => {
                    tracing::warn!(%error, document = id, "failed to put a document into its index; trying again");
                    self.written.push(&company_id, &id);
                    self.texts.clock.sleep(RETRY_PAUSE).await;
                }
            }
        }
    }
}

/// Returns a hit of an index as one of a ranking; `None` if it is not of the document that was searched.
fn checked(
    hit: IndexHit,
    found: &HashMap<DocumentId, (FoundDocument, Arc<str>)>,
    min_relevance: f32,
) -> Option<Hit> {
    let (document, title) = found.get(&hit.document).filter(|(found, _)| found.version == hit.version)?;
    document.text.get(hit.range.clone()).filter(|text| !text.is_empty())?;
    let relevance = if hit.relevance.is_finite() { hit.relevance.clamp(0.0, 1.0) } else { 0.0 };
    hit.score.is_finite().then(|| Hit {
        title: title.clone(),
        document: hit.document,
        chunk: hit.chunk,
        range: hit.range,
        heading: hit.heading.map(Into::into),
        page: hit.page,
        score: hit.score,
        lexical: 0.0,
        dense: None,
        relevance,
        is_relevant: relevance >= min_relevance,
        matched: Vec::new(),
    })
}

#[cfg(test)]
mod tests;
