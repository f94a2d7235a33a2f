//! Interface of a search index outside of the platform, such as a vector database or a search service.

use std::ops::Range;

use async_trait::async_trait;
use thiserror::Error;

use crate::document::{DocumentId, ExtractedText};
use crate::search::Query;

/// A search index over the documents of companies that the platform does not keep itself.
///
/// The platform keeps the documents and their rights. It adds documents that were written or are missing, passes the ids of the
/// documents that a search may see, and drops hits in other documents or in older versions. The contract is the suite
/// `conformance::index`.
#[async_trait]
pub trait SearchIndex: Send + Sync + 'static {
    /// Puts a document at a version into the index, in place of an earlier version. The platform drops the future after a
    /// minute. Puts may be repeated.
    ///
    /// # Errors
    /// After [`IndexError::Rejected`], the document is not tried again until it changes or a search lacks it; after other
    /// errors, it is tried again every few seconds.
    async fn put(
        &self,
        company: &str,
        document: &DocumentId,
        version: u64,
        content: &ExtractedText,
    ) -> Result<(), IndexError>;

    /// Removes a document; does nothing if the index does not have it. Bounded and repeated as [`put`](Self::put) is.
    async fn remove(&self, company: &str, document: &DocumentId) -> Result<(), IndexError>;

    /// Returns the best chunks of the documents of a search, by descending scores. The platform drops the future after two
    /// seconds.
    ///
    /// # Errors
    /// After an error, the search has no hits and names the documents as skipped.
    async fn search(&self, search: &IndexQuery<'_>) -> Result<IndexResponse, IndexError>;
}

/// Query for the documents of one company.
#[derive(Debug, Clone, Copy)]
pub struct IndexQuery<'a> {
    /// Identifier of the company. Equal identifiers of documents in different companies name different documents.
    pub company: &'a str,
    /// The documents that the search may see, with their present versions.
    pub documents: &'a [(DocumentId, u64)],
    /// The texts to search for.
    pub query: Query<'a>,
    /// Maximum number of hits.
    pub limit: usize,
}

/// Response to an [`IndexQuery`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct IndexResponse {
    /// The chunks that were found, by descending scores.
    pub hits: Vec<IndexHit>,
    /// Documents of the search that the index does not have at their versions. They are put into it.
    pub missing: Vec<DocumentId>,
}

/// A chunk that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexHit {
    /// The document.
    pub document: DocumentId,
    /// Version of the document that the index has.
    pub version: u64,
    /// The number of the chunk within the document, from 0. Consecutive chunks are merged in a prompt.
    pub chunk: u32,
    /// Byte range in the document's text.
    pub range: Range<usize>,
    /// The headings above the chunk.
    pub heading: Option<String>,
    /// The page on which the chunk begins, from 1.
    pub page: Option<u32>,
    /// The score, which is finite.
    pub score: f32,
    /// Relevance for the query, between 0 and 1. A hit below the minimum of relevance is not shown to a model.
    pub relevance: f32,
}

impl IndexHit {
    /// Returns a hit of a document's only chunk, which is relevant. Set other fields with the struct update syntax.
    pub fn new(document: DocumentId, version: u64, range: Range<usize>, score: f32) -> Self {
        Self { document, version, chunk: 0, range, heading: None, page: None, score, relevance: 1.0 }
    }
}

/// Error of an index. The messages are shown to operators and contain neither texts nor keys.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum IndexError {
    /// The index cannot be reached or did not answer in time; a repetition may succeed.
    #[error("the index is unavailable: {0}")]
    Unavailable(String),
    /// The index rejected a document or a query; a repetition fails too.
    #[error("the index rejected the request: {0}")]
    Rejected(String),
}
