//! Composition of the retrieval over documents.

use std::sync::Arc;

use agent_client::clock::TokioClock;
use agent_client::outbound::OutboundClient;
use agent_core::prompt::PartCache;
use agent_platform::layers::{DocumentsLayer, RetrievalSettings};
use agent_platform::retrieval::{
    BoundaryKey, DocumentRetriever, RetrievalEmbedder, Retriever, RetrieverConfig,
};
use tokio::runtime::Handle;

use crate::StartError;
use crate::config::AppConfig;
use crate::embedder::embedder;
use crate::stores::Stores;

/// Share of the similarity by vectors in a hit's score.
const VECTOR_WEIGHT: f32 = 0.5;

/// Creates the search over documents. Texts are analyzed in the process's blocking threads.
pub(super) fn retriever(
    config: &AppConfig,
    stores: &Stores,
    outbound: &OutboundClient,
) -> Result<Arc<dyn Retriever>, StartError> {
    let process = Handle::current();
    let pool = move |work: Box<dyn FnOnce() + Send>| drop(process.spawn_blocking(work));
    let embedder = embedder(config, outbound)?.map(|embedder| RetrievalEmbedder {
        embedder,
        weight: VECTOR_WEIGHT,
        min_similarity: config.rag.min_similarity,
    });
    Ok(Arc::new(DocumentRetriever::new(RetrieverConfig {
        records: stores.records.clone(),
        pool: Arc::new(pool),
        clock: Arc::new(TokioClock),
        cache_bytes: config.rag.cache_bytes,
        embedder,
    })))
}

/// Creates the context layer of documents. With `DATA_SECRET`, every process quotes equal texts equally.
pub(super) fn documents_layer(
    config: &AppConfig,
    stores: &Stores,
    retriever: Arc<dyn Retriever>,
) -> (DocumentsLayer, Arc<PartCache>) {
    let boundary_key = config.data_secret.as_ref().map_or_else(BoundaryKey::random, BoundaryKey::from_secret);
    let settings = RetrievalSettings {
        retriever,
        roles: stores.roles.clone(),
        boundary_key: Arc::new(boundary_key),
        max_tokens: config.rag.max_tokens,
        min_relevance: config.rag.min_relevance,
    };
    let parts = Arc::new(PartCache::default());
    (DocumentsLayer::new(stores.records.clone(), parts.clone()).with_retrieval(settings), parts)
}
