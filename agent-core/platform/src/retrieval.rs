//! Retrieval over the company's documents: the merged index in memory, the search within a scope, and its report in previews
//! and runs.
//!
//! A document's index is derived from its text at the version of its record. A search reads the versions of the
//! documents in its scope, brings the merged index in memory up to them, and ranks. So a change is found, and a deleted
//! document is not, from the next search on, in every process, without messages between them. A caller that quotes the
//! results reads the versions once more, since a search may wait. Indexes are stored beside
//! the documents, so that a starting process does not have to analyze all texts again.

mod blocking;
mod boundary;
mod cache;
mod citation_marks;
mod citations;
mod document_reader;
mod document_retriever;
mod document_text;
mod embedding;
mod embedding_queue;
mod external;
mod load;
mod new_index;
mod outdated;
mod partial_indexes;
mod query_vector;
mod queue;
mod report;
mod rerank;
mod retriever;
mod search;
mod search_result;
mod source_digest;
mod vector_checks;
mod vector_drops;

pub use blocking::BlockingPool;
pub use boundary::BoundaryKey;
pub(crate) use document_reader::present_versions;
pub use document_retriever::{DEFAULT_CACHE_BYTES, DocumentRetriever, RetrieverConfig};
pub use document_text::DocumentText;
pub use external::IndexRetriever;
pub(crate) use outdated::{RoleDocumentIds, find_outdated};
pub use query_vector::{EmbedderSkip, EmbedderUse, RetrievalEmbedder};
pub use report::RetrievalReport;
pub use rerank::RerankedRetriever;
pub use retriever::Retriever;
pub use search::DocumentSearch;
pub use search_result::{FoundDocument, SearchResult, SkipReason, SkippedDocument};

#[cfg(test)]
mod tests;
