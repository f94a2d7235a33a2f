//! Cache of the indexes of documents that are being embedded, for their next slice.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use agent_core::ids::CompanyId;

use crate::workspace::StoredDocIndex;

/// Divisor of the limit: the share of one company's documents.
const COMPANY_SHARE_DIVISOR: usize = 2;
/// Maximum time for which an index is kept that was not taken.
const MAX_AGE: Duration = Duration::from_secs(600);

/// The stored index of a document, with the text that it was made from.
pub(super) struct IndexedText {
    pub(super) stored: StoredDocIndex,
    pub(super) text: String,
}

impl IndexedText {
    fn memory_bytes(&self) -> usize {
        self.stored.index.memory_bytes() + self.text.capacity()
    }
}

/// Cache of the indexes that lack some of their vectors, limited in bytes.
///
/// Documents alternate, so the one that was used last is needed last. Kept documents therefore stay until their next slice, and a
/// document for which there is no room is read again.
pub(super) struct PartialIndexCache {
    max_bytes: usize,
    documents: Mutex<HashMap<(CompanyId, String), (IndexedText, Instant)>>,
}

impl PartialIndexCache {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { max_bytes, documents: Mutex::default() }
    }

    /// Keeps a document, if there is room.
    pub(super) fn keep(&self, company_id: &CompanyId, id: &str, document: IndexedText, now: Instant) {
        let mut documents = self.lock();
        documents.retain(|_, (_, kept_at)| now.saturating_duration_since(*kept_at) < MAX_AGE);
        let bytes = document.memory_bytes();
        let (mut total_bytes, mut company_bytes) = (bytes, bytes);
        for ((stored_company_id, _), (stored, _)) in &*documents {
            let stored_bytes = stored.memory_bytes();
            total_bytes += stored_bytes;
            if stored_company_id == company_id {
                company_bytes += stored_bytes;
            }
        }
        if total_bytes <= self.max_bytes && company_bytes <= self.max_bytes / COMPANY_SHARE_DIVISOR {
            documents.insert((company_id.clone(), id.to_owned()), (document, now));
        }
    }

    /// Removes and returns a document.
    pub(super) fn take(&self, company_id: &CompanyId, id: &str) -> Option<IndexedText> {
        let entry = self.lock().remove(&(company_id.clone(), id.to_owned()));
        entry.map(|(document, _)| document)
    }

    /// Locks the documents. No code panics while holding the lock, so the data behind a poisoned one is intact.
    fn lock(&self) -> MutexGuard<'_, HashMap<(CompanyId, String), (IndexedText, Instant)>> {
        self.documents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use agent_retrieval::chunk::StructuralChunker;
    use agent_retrieval::doc_index::DocIndex;
    use agent_retrieval::document::ExtractedText;

    use super::*;
    use crate::workspace::StoredSlices;

    fn document() -> IndexedText {
        let text = "Each automobile is washed on Mondays.".to_owned();
        let extracted = ExtractedText { text: text.clone(), ..ExtractedText::default() };
        let index = DocIndex::build(&extracted, &StructuralChunker::default()).expect("a short text");
        let slices = StoredSlices::default();
        let (version, record_version, source_digest) = (1, 2, None);
        let stored = StoredDocIndex { index, version, record_version, source_digest, slices };
        IndexedText { stored, text }
    }

    #[test]
    fn documents_are_kept_within_the_limits_of_their_companies_and_of_all() {
        // Room for three documents; a company has one of them.
        let kept = PartialIndexCache::new(3 * document().memory_bytes());
        let began = Instant::now();
        for (company, id) in [("a", "1"), ("a", "2"), ("b", "1"), ("c", "1"), ("d", "1")] {
            kept.keep(&company.into(), id, document(), began);
        }
        let taken = |company: &str, id: &str| kept.take(&company.into(), id).is_some();
        assert!(taken("a", "1") && !taken("a", "2") && taken("b", "1") && !taken("d", "1"));
        assert!(!taken("a", "1"), "it was taken");
        // A document that was never taken makes room.
        for company in ["e", "f"] {
            kept.keep(&company.into(), "1", document(), began);
        }
        kept.keep(&"g".into(), "1", document(), began + MAX_AGE);
        assert!(taken("g", "1") && !taken("c", "1") && !taken("e", "1"));
    }
}
