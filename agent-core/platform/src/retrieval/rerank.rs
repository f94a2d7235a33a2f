//! Reranking of the best hits of searches.

use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::Clock;
use agent_core::ids::CompanyId;
use agent_retrieval::embed::EmbedderId;
use agent_retrieval::rerank::{RerankError, Reranker};
use async_trait::async_trait;
use futures_util::future::{Either, select};

use super::retriever::Retriever;
use super::search::DocumentSearch;
use super::search_result::SearchResult;
use crate::records::StoreError;

/// Maximum number of hits that are put into order; those behind them stay.
const MAX_PASSAGES: usize = 50;
/// Maximum time for which a search waits for the reranker.
const RERANK_TIMEOUT: Duration = Duration::from_millis(800);

/// A retriever whose best hits a [`Reranker`] puts into order. Without its answer in time, they keep their order.
pub struct RerankedRetriever {
    retriever: Arc<dyn Retriever>,
    reranker: Arc<dyn Reranker>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for RerankedRetriever {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RerankedRetriever").finish_non_exhaustive()
    }
}

impl RerankedRetriever {
    /// Creates a retriever over another one.
    pub fn new(retriever: Arc<dyn Retriever>, reranker: Arc<dyn Reranker>, clock: Arc<dyn Clock>) -> Self {
        Self { retriever, reranker, clock }
    }

    async fn scores(&self, query: &str, result: &SearchResult) -> Result<Vec<f32>, RerankError> {
        let hits = result.ranking.hits.iter().take(MAX_PASSAGES);
        let text = |hit: &agent_retrieval::search::Hit| {
            let found = result.documents.get(&hit.document)?;
            found.text.get(hit.range.clone()).map(str::to_owned)
        };
        let passages: Vec<String> = hits.map(|hit| text(hit).unwrap_or_default()).collect();
        let passages: Vec<&str> = passages.iter().map(String::as_str).collect();
        let call = self.reranker.rerank(query, &passages);
        match select(call, self.clock.sleep(RERANK_TIMEOUT)).await {
            Either::Left((scores, _)) => RerankError::check(passages.len(), scores?),
            Either::Right(_) => Err(RerankError::Unavailable("no answer within 800 ms".to_owned())),
        }
    }
}

#[async_trait]
impl Retriever for RerankedRetriever {
    async fn search(&self, search: DocumentSearch<'_>) -> Result<SearchResult, StoreError> {
        let query = search.query.text.to_owned();
        let mut result = self.retriever.search(search).await?;
        if result.ranking.hits.len() < 2 {
            return Ok(result);
        }
        match self.scores(&query, &result).await {
            Ok(scores) => {
                let mut best: Vec<_> = result.ranking.hits.drain(..scores.len()).zip(scores).collect();
                best.sort_by(|(_, left), (_, right)| right.total_cmp(left));
                result.ranking.hits.splice(0..0, best.into_iter().map(|(hit, _)| hit));
            }
            Err(error) => tracing::warn!(%error, "the reranker failed; the hits keep their order"),
        }
        Ok(result)
    }

    async fn versions(&self, company_id: &CompanyId, ids: &[&str]) -> Result<Vec<Option<u64>>, StoreError> {
        self.retriever.versions(company_id, ids).await
    }

    fn announce(&self, company_id: &CompanyId, id: &str) {
        self.retriever.announce(company_id, id);
    }

    async fn run(&self) {
        self.retriever.run().await;
    }

    fn embedder_id(&self) -> Option<&EmbedderId> {
        self.retriever.embedder_id()
    }

    fn embed_again(&self, company_id: &CompanyId, id: &str) {
        self.retriever.embed_again(company_id, id);
    }

    async fn drop_vectors(&self, company_id: &CompanyId, id: &str) -> Result<bool, StoreError> {
        self.retriever.drop_vectors(company_id, id).await
    }
}

#[cfg(test)]
mod tests;
