//! Result of a search, with the documents that were not searched.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use agent_core::budget::TokenCounter;
use agent_retrieval::document::DocumentId;
use agent_retrieval::pack::{PackedFragments, pack};
use agent_retrieval::search::Ranking;
use serde::Serialize;

use super::document_text::DocumentText;
use super::query_vector::EmbedderUse;

/// Result of a search.
pub struct SearchResult {
    /// The ranking of the chunks.
    pub ranking: Ranking,
    /// Identifiers of the documents that were searched, in their order.
    pub scope: Vec<String>,
    /// The documents that were not searched.
    pub skipped: Vec<SkippedDocument>,
    /// The documents of the hits.
    pub documents: HashMap<DocumentId, FoundDocument>,
    /// Use of the embedding model; `None` if there is none.
    pub embedder: Option<EmbedderUse>,
    /// Duration of the search.
    pub duration: Duration,
}

impl std::fmt::Debug for SearchResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SearchResult")
            .field("scope", &self.scope)
            .field("duration", &self.duration)
            .finish_non_exhaustive()
    }
}

impl SearchResult {
    /// Chooses fragments of the hits: at most `max_tokens` in all.
    pub fn pack(&self, max_tokens: usize, counter: &dyn TokenCounter) -> PackedFragments {
        let text_of =
            |id: &DocumentId, range: Range<usize>| self.documents.get(id)?.text.get(range).map(str::to_owned);
        pack(&self.ranking, max_tokens, text_of, |text| counter.count(text))
    }
}

/// A document with hits.
#[derive(Clone)]
pub struct FoundDocument {
    /// Version of the document's record.
    pub version: u64,
    /// The text, to which the positions of the hits refer.
    pub text: DocumentText,
    /// Media type of the document's upload; `None` for a text that was written.
    pub media_type: Option<Arc<str>>,
}

impl std::fmt::Debug for FoundDocument {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FoundDocument")
            .field("version", &self.version)
            .field("media_type", &self.media_type)
            .finish_non_exhaustive()
    }
}

/// A document that was not searched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SkippedDocument {
    /// Identifier of the document.
    pub id: String,
    /// The reason.
    #[serde(rename = "why")]
    pub reason: SkipReason,
}

/// Reason why a document was not searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum SkipReason {
    /// The company does not have the document.
    NotFound,
    /// The document is being indexed.
    Indexing,
    /// The company's documents together need more memory than a company may take.
    TooLarge,
    /// The document cannot be indexed.
    Failed,
    /// The external index did not answer.
    Unavailable,
    /// The whole document is part of the prompt.
    InPrompt,
    /// The document was changed while it was searched.
    Changed,
    /// The role ceased to name the document while it was searched.
    NotNamed,
}
