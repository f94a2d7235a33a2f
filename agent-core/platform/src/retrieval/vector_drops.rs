//! Removal of the stored vectors of a document, so that all of them are made again.

use agent_core::ids::CompanyId;

use super::blocking::run_blocking;
use super::document_retriever::DocumentRetriever;
use super::new_index::encode_without_vectors;
use crate::records::StoreError;
use crate::workspace::{self, DecodedDocIndex, IndexReplacement, IndexedDocument, StoredDocIndex};

/// Maximum number of attempts to drop the vectors of a document whose index is being changed.
const MAX_ATTEMPTS: usize = 16;

impl DocumentRetriever {
    /// Drops the stored vectors of a document; see [`Retriever::drop_vectors`](super::Retriever::drop_vectors).
    pub(super) async fn drop_stored_vectors(
        &self,
        company_id: &CompanyId,
        id: &str,
    ) -> Result<bool, StoreError> {
        let ids = [id.to_owned()];
        for attempt in 0..MAX_ATTEMPTS {
            let stored = match self.read_indexes(company_id, &ids).await?.pop().flatten() {
                Some(DecodedDocIndex::Current(stored)) if stored.index.vectors().is_some() => stored,
                // The new index takes the vectors over.
                Some(DecodedDocIndex::Vectors(..)) if attempt == 0 => {
                    self.index(company_id, id).await?;
                    continue;
                }
                _ => return Ok(false),
            };
            let StoredDocIndex { index, version, record_version, source_digest, .. } = *stored;
            let encoded = run_blocking(&self.config.pool, move || encode_without_vectors(index)).await;
            let Some((status, encoded)) = encoded else {
                return Err(StoreError::unavailable("the encoding of an index was interrupted"));
            };
            let document = IndexedDocument { id: id.to_owned(), version, source_digest };
            let index = (&status, &encoded[..]);
            let records = &*self.config.records;
            let dropped =
                workspace::drop_index_vectors(records, company_id, &document, index, record_version).await?;
            match dropped {
                IndexReplacement::Stored(_) => return Ok(true),
                IndexReplacement::Changed => {}
                IndexReplacement::TooLarge => return Ok(false),
            }
        }
        Err(StoreError::unavailable("the index of the document is changed again and again"))
    }
}
