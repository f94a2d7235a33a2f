//! Indexes of documents that are not stored at the documents' versions: made from their texts, or kept from an earlier version
//! with the same text, and then stored.

use std::sync::Arc;

use agent_core::ids::CompanyId;
use agent_retrieval::chunk::Chunker;
use agent_retrieval::doc_index::{BuildError, DocIndex, Vectors};
use agent_retrieval::document::{DocumentId, ExtractedText};

use super::blocking::run_blocking;
use super::document_retriever::DocumentRetriever;
use super::source_digest::{is_by_chunker, source_digest};
use crate::records::StoreError;
use crate::workspace::{
    self, DecodedDocIndex, IndexReplacement, IndexStatus, IndexedDocument, StoredDocIndex,
};

/// The index of a document that is not stored at the document's version.
pub(super) struct NewIndex {
    pub(super) document: IndexedDocument,
    /// True if the index has vectors of the stored one.
    pub(super) has_earlier_vectors: bool,
    source: NewIndexSource,
}

/// Origin of an index that is not stored at the document's version.
enum NewIndexSource {
    /// The text was analyzed. The index replaces the one whose record has the version `replaced`.
    Analyzed { status: IndexStatus, encoded: Vec<u8>, replaced: Option<u64> },
    /// The stored index, whose record has this version, was made from the same text.
    Stored(u64),
}

/// Returns the index of a text with its digest: the stored one if that was made from the same text, or one by a new analysis.
pub(super) fn index_text(
    (id, version): (&DocumentId, u64),
    document: &ExtractedText,
    earlier: Option<DecodedDocIndex>,
    chunker: &dyn Chunker,
) -> Result<(DocIndex, NewIndex), BuildError> {
    let digest = source_digest(document, chunker);
    let is_same = |stored: &StoredDocIndex| stored.source_digest.as_ref() == Some(&digest);
    let replaced = earlier.as_ref().map(DecodedDocIndex::record_version);
    let (index, source) = match earlier {
        Some(DecodedDocIndex::Current(stored)) if is_same(&stored) => {
            (stored.index, NewIndexSource::Stored(stored.record_version))
        }
        earlier => {
            let index = DocIndex::build(document, chunker)?;
            let index = match earlier.and_then(earlier_vectors) {
                Some(vectors) => index.with_vectors_of(&document.text, &vectors),
                None => index,
            };
            let (status, encoded) = (IndexStatus::of(&index), index.encode());
            (index, NewIndexSource::Analyzed { status, encoded, replaced })
        }
    };
    let has_earlier_vectors = index.vectors().is_some();
    let document = IndexedDocument { id: id.to_string(), version, source_digest: Some(digest) };
    Ok((index, NewIndex { document, has_earlier_vectors, source }))
}

/// Returns an index as it is, if it was made by the chunker with this identifier. Of any other one, the vectors are kept, as of one
/// of an earlier format.
pub(super) fn only_by_chunker(decoded: DecodedDocIndex, chunker_id: &str) -> DecodedDocIndex {
    let DecodedDocIndex::Current(stored) = decoded else { return decoded };
    if is_by_chunker(stored.source_digest.as_deref(), chunker_id) {
        return DecodedDocIndex::Current(stored);
    }
    match stored.index.shared_vectors() {
        Some(vectors) => DecodedDocIndex::Vectors(vectors, stored.record_version),
        None => DecodedDocIndex::Unusable(stored.record_version),
    }
}

/// Returns the vectors of a stored index of an earlier version of a document or of the format.
fn earlier_vectors(decoded: DecodedDocIndex) -> Option<Arc<Vectors>> {
    match decoded {
        DecodedDocIndex::Current(stored) => stored.index.shared_vectors(),
        DecodedDocIndex::Vectors(vectors, _) => Some(vectors),
        DecodedDocIndex::Unusable(_) => None,
    }
}

/// Encodes an index without its vectors.
pub(super) fn encode_without_vectors(index: DocIndex) -> (IndexStatus, Vec<u8>) {
    let index = index.without_vectors();
    (IndexStatus::of(&index), index.encode())
}

impl DocumentRetriever {
    /// Replaces the index of a document that was read by a new one, or gives it the document's version. If that is
    /// another by now, one of the same version stays; any other is replaced by a new index without the vectors that it has taken
    /// over, which may have been dropped.
    pub(super) async fn store_new_index(
        &self,
        company_id: &CompanyId,
        new_index: &NewIndex,
    ) -> Result<IndexReplacement, StoreError> {
        let records = &*self.config.records;
        let NewIndex { document, has_earlier_vectors, source } = new_index;
        let (status, encoded, replaced) = match source {
            NewIndexSource::Analyzed { status, encoded, replaced } => (status, encoded, replaced),
            NewIndexSource::Stored(record_version) => {
                return self.keep_stored_index(company_id, document, *record_version).await;
            }
        };
        let index = (status, &encoded[..]);
        let stored =
            workspace::replace_document_index(records, company_id, document, index, *replaced).await?;
        if stored != IndexReplacement::Changed {
            return Ok(stored);
        }
        let found = self.read_indexes(company_id, std::slice::from_ref(&document.id)).await?.pop().flatten();
        let replaced = found.as_ref().map(DecodedDocIndex::record_version);
        let found = found.and_then(DecodedDocIndex::into_current);
        if found.is_some_and(|found| found.version == document.version) {
            return Ok(stored);
        }
        if !has_earlier_vectors {
            return workspace::replace_document_index(records, company_id, document, index, replaced).await;
        }
        let with_vectors = encoded.clone();
        let encode = move || DocIndex::decode(&with_vectors).ok().map(encode_without_vectors);
        if let Some((status, encoded)) = run_blocking(&self.config.pool, encode).await.flatten() {
            let index = (&status, &encoded[..]);
            workspace::replace_document_index(records, company_id, document, index, replaced).await?;
        }
        Ok(stored)
    }

    /// Sets the version of a document's stored index to that of the document, if the index is still at the expected version. If the stored index has
    /// changed since, for example its vectors, it gets the version and differs from the index in memory.
    async fn keep_stored_index(
        &self,
        company_id: &CompanyId,
        document: &IndexedDocument,
        record_version: u64,
    ) -> Result<IndexReplacement, StoreError> {
        let records = &*self.config.records;
        let outcome = workspace::keep_document_index(records, company_id, document, record_version).await?;
        if outcome != IndexReplacement::Changed {
            return Ok(outcome);
        }
        let found = self.read_indexes(company_id, std::slice::from_ref(&document.id)).await?.pop().flatten();
        let is_same = |found: &StoredDocIndex| {
            found.version != document.version && found.source_digest == document.source_digest
        };
        if let Some(found) = found.and_then(DecodedDocIndex::into_current).filter(is_same) {
            workspace::keep_document_index(records, company_id, document, found.record_version).await?;
        }
        Ok(outcome)
    }
}
