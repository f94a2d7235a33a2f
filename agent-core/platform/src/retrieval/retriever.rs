//! Trait of the search over documents, in the platform's index or in an external one.

use agent_core::ids::CompanyId;
use agent_retrieval::embed::EmbedderId;
use async_trait::async_trait;
use futures_util::future::join;

use super::document_reader::present_versions;
use super::document_retriever::DocumentRetriever;
use super::search::DocumentSearch;
use super::search_result::SearchResult;
use crate::records::StoreError;

/// Searches the documents of companies. [`DocumentRetriever`] is the platform's own, and
/// [`IndexRetriever`](super::IndexRetriever) that of an index elsewhere.
///
/// A search sees the documents of its company that it names, at their present versions, and no others. The documents may be
/// stored anywhere: only the retriever reads those that are searched. The contract is the suite
/// `conformance::retriever`.
#[async_trait]
pub trait Retriever: Send + Sync + 'static {
    /// Searches documents. Documents that the company does not have, or that are not indexed in time, are skipped.
    ///
    /// # Errors
    /// Errors of the store of the documents. An index that fails finds nothing, and its documents are skipped.
    async fn search(&self, search: DocumentSearch<'_>) -> Result<SearchResult, StoreError>;

    /// Returns the present versions of documents, in their order; `None` for one that the company does not have. Text that was
    /// found at another version is not quoted.
    ///
    /// # Errors
    /// Errors of the store of the documents.
    async fn versions(&self, company_id: &CompanyId, ids: &[&str]) -> Result<Vec<Option<u64>>, StoreError>;

    /// Announces that a document was written or deleted, so that [`run`](Self::run) indexes it ahead of the
    /// searches. Has no effect until `run` is polled; searches index the documents that they need.
    fn announce(&self, company_id: &CompanyId, id: &str);

    /// Indexes documents in the background until the future is dropped.
    async fn run(&self);

    /// Returns the identifier of the embedding model, if there is one that the platform calls.
    fn embedder_id(&self) -> Option<&EmbedderId> {
        None
    }

    /// Queues a document at once for the vectors that it lacks, also if an attempt has failed before.
    fn embed_again(&self, company_id: &CompanyId, id: &str) {
        self.announce(company_id, id);
    }

    /// Drops the stored vectors of a document, so that [`embed_again`](Self::embed_again) lets all of them be made again. Every
    /// process sees it with its next search. Returns false if the document has none.
    ///
    /// # Errors
    /// Errors of the store.
    async fn drop_vectors(&self, _company_id: &CompanyId, _id: &str) -> Result<bool, StoreError> {
        Ok(false)
    }
}

#[async_trait]
impl Retriever for DocumentRetriever {
    async fn search(&self, search: DocumentSearch<'_>) -> Result<SearchResult, StoreError> {
        self.search_documents(search).await
    }

    async fn versions(&self, company_id: &CompanyId, ids: &[&str]) -> Result<Vec<Option<u64>>, StoreError> {
        present_versions(&*self.config.records, company_id, ids).await
    }

    fn announce(&self, company_id: &CompanyId, id: &str) {
        self.unembedded.forget(company_id, id);
        self.written.push(company_id, id);
    }

    async fn run(&self) {
        join(self.index_written(), self.embed_waiting()).await;
    }

    fn embedder_id(&self) -> Option<&EmbedderId> {
        self.embedder()
    }

    fn embed_again(&self, company_id: &CompanyId, id: &str) {
        self.unembedded.push_again(company_id, id);
    }

    async fn drop_vectors(&self, company_id: &CompanyId, id: &str) -> Result<bool, StoreError> {
        self.drop_stored_vectors(company_id, id).await
    }
}
