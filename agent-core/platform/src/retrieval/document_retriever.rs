//! State of the retriever over the company's documents.

use std::fmt;
use std::sync::Arc;

use agent_core::clock::{Clock, SystemClock};
use agent_retrieval::chunk::{Chunker, StructuralChunker};
use agent_retrieval::embed::EmbedderId;
use futures_util::lock::Mutex as AsyncMutex;

use super::blocking::BlockingPool;
use super::cache::IndexCache;
use super::document_reader::DocumentReader;
use super::embedding_queue::EmbeddingQueue;
use super::partial_indexes::PartialIndexCache;
use super::query_vector::{QueryEmbedder, RetrievalEmbedder};
use super::queue::DocumentQueue;
use crate::records::Records;

/// Default limit on the indexes in memory, in bytes.
pub const DEFAULT_CACHE_BYTES: usize = 256 << 20;

/// Divisor of the limit on the indexes in memory: the additional share of documents that are being embedded.
const PARTIAL_INDEXES_DIVISOR: usize = 4;

/// Configuration of a [`DocumentRetriever`].
pub struct RetrieverConfig {
    /// Store of the documents and of their indexes.
    pub records: Arc<dyn Records>,
    /// Pool in which texts are analyzed.
    pub pool: Arc<dyn BlockingPool>,
    /// Clock of the deadlines.
    pub clock: Arc<dyn Clock>,
    /// Limit on the indexes in memory, in bytes. A company gets half of it, of which a quarter is for texts. A quarter more is
    /// for the documents that are being embedded.
    pub cache_bytes: usize,
    /// Embedding model for searches by meaning, in addition to the search by words.
    pub embedder: Option<RetrievalEmbedder>,
}

impl fmt::Debug for RetrieverConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetrieverConfig").field("cache_bytes", &self.cache_bytes).finish_non_exhaustive()
    }
}

impl RetrieverConfig {
    /// Creates a configuration without embedding model, with the system clock and the default limit on memory. Set other fields
    /// with the struct update syntax.
    pub fn new(records: Arc<dyn Records>, pool: Arc<dyn BlockingPool>) -> Self {
        Self { records, pool, clock: Arc::new(SystemClock), cache_bytes: DEFAULT_CACHE_BYTES, embedder: None }
    }
}

/// Searches the documents of companies; see the [module](super).
pub struct DocumentRetriever {
    pub(super) config: RetrieverConfig,
    pub(super) cache: IndexCache,
    pub(super) texts: DocumentReader,
    /// Splits texts for their analysis.
    pub(super) chunker: Arc<dyn Chunker>,
    /// Held while documents are analyzed.
    pub(super) analysis: Arc<AsyncMutex<()>>,
    pub(super) query_embedder: Option<QueryEmbedder>,
    /// Documents to index in the background.
    pub(super) written: DocumentQueue,
    /// Documents to embed in the background.
    pub(super) unembedded: EmbeddingQueue,
    /// Documents that are being embedded.
    pub(super) partial_indexes: PartialIndexCache,
    /// Identity of this process in leases.
    pub(super) owner: String,
}

impl DocumentRetriever {
    /// Creates a retriever without indexes in memory.
    pub fn new(config: RetrieverConfig) -> Self {
        Self {
            cache: IndexCache::new(config.cache_bytes),
            texts: DocumentReader { records: config.records.clone(), clock: config.clock.clone() },
            chunker: Arc::new(StructuralChunker::default()),
            analysis: Arc::default(),
            query_embedder: config
                .embedder
                .clone()
                .map(|embedder| QueryEmbedder::new(embedder, config.clock.clone())),
            written: DocumentQueue::default(),
            unembedded: EmbeddingQueue::default(),
            partial_indexes: PartialIndexCache::new(config.cache_bytes / PARTIAL_INDEXES_DIVISOR),
            owner: agent_core::new_id(),
            config,
        }
    }

    /// Splits texts by another chunker than the default one. Documents whose stored index is by another chunker are indexed again by
    /// the next search of them; equal chunks keep their vectors.
    pub fn with_chunker(self, chunker: Arc<dyn Chunker>) -> Self {
        Self { chunker, ..self }
    }

    /// Returns the identifier of the embedding model.
    pub(super) fn embedder(&self) -> Option<&EmbedderId> {
        self.query_embedder.as_ref().map(QueryEmbedder::id)
    }
}

impl fmt::Debug for DocumentRetriever {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DocumentRetriever")
            .field("cache_bytes", &self.config.cache_bytes)
            .finish_non_exhaustive()
    }
}
