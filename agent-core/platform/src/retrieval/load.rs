//! Update of the index in memory to the versions of the documents.

use std::collections::HashSet;
use std::sync::Arc;

use agent_core::ids::CompanyId;
use agent_retrieval::chunk::Chunker;
use agent_retrieval::company::DocumentChange;
use agent_retrieval::document::{DocumentId, ExtractedText};
use agent_retrieval::embed::EmbedderId;

use super::blocking::run_blocking;
use super::cache::{CompanyEntry, DocumentState, IndexState, UnembeddedDocument};
use super::document_retriever::DocumentRetriever;
use super::embedding_queue::FailureCause;
use super::new_index::{NewIndex, index_text, only_by_chunker};
use super::search_result::SkipReason;
use crate::error_text::with_sources;
use crate::records::StoreError;
use crate::workspace::{self, DecodedDocIndex, EncodedDocIndex, IndexReplacement, StoredDocIndex};

/// Size of the texts that are analyzed in one piece of work, in bytes.
const BATCH_BYTES: usize = 2 << 20;
/// Size from which a text is analyzed separately, after all others, in bytes.
const LONG_TEXT_BYTES: usize = 512 << 10;
/// Maximum size of stored indexes that are decoded in place instead of in the pool, in bytes.
const MAX_INLINE_BYTES: usize = 64 << 10;
/// Number of documents whose stored indexes are read at a time.
const BATCH_DOCUMENTS: usize = 32;

/// The documents that a search needs.
pub(super) struct RequestedDocuments {
    /// The documents with the versions of their records.
    pub(super) present: Vec<(DocumentId, u64)>,
    /// Documents that do not exist.
    pub(super) absent: Vec<DocumentId>,
    /// Documents, with the versions of their records, of which the index had a newer version before: the store has lost a write,
    /// as a database does that takes over without the latest ones.
    pub(super) reverted: Vec<(DocumentId, u64)>,
    /// Versions of the stored indexes of documents that lack vectors in memory.
    pub(super) index_versions: Vec<(DocumentId, u64)>,
    /// Version of the company's record of dropped vectors.
    pub(super) vector_drops: Option<u64>,
}

impl RequestedDocuments {
    /// Returns the identifiers of the documents that exist.
    pub(super) fn ids(&self) -> HashSet<DocumentId> {
        self.present.iter().map(|(id, _)| id.clone()).collect()
    }

    /// Returns the documents whose indexed version the store has lost.
    pub(super) fn lost<'w>(&'w self, state: &IndexState) -> impl Iterator<Item = &'w DocumentId> {
        let is_newer = move |(id, version): &&(DocumentId, u64)| state.known_version(id) > Some(*version);
        self.reverted.iter().filter(is_newer).map(|(id, _)| id)
    }

    /// Returns the documents, with their versions, whose stored index differs from the index in memory or is not verified yet.
    fn with_new_vectors(
        &self,
        entry: &CompanyEntry,
        unverified: &HashSet<DocumentId>,
    ) -> Vec<(DocumentId, u64)> {
        let known = |state: &IndexState| {
            let is_new = |(id, version): &&(DocumentId, u64)| state.has_new_vectors(id, *version);
            self.index_versions.iter().filter(is_new).map(|(id, _)| id.clone()).collect::<HashSet<_>>()
        };
        let changed = entry.try_read(known).unwrap_or_default();
        let is_read = |(id, _): &&(DocumentId, u64)| changed.contains(id) || unverified.contains(id);
        self.present.iter().filter(is_read).cloned().collect()
    }
}

/// An index, or the document to make it from.
enum IndexSource {
    Stored(Box<StoredDocIndex>),
    Text {
        document: Box<ExtractedText>,
        /// The stored index of an earlier version of the document or of the format.
        earlier: Option<DecodedDocIndex>,
    },
}

/// A document that is put into the index.
struct LoadedDocument {
    id: DocumentId,
    version: u64,
    source: IndexSource,
}

/// Result of an update of the index to some documents.
pub(super) struct LoadedBatch {
    /// Documents that were left out because their texts are long.
    long: Vec<(DocumentId, u64)>,
    /// First error of storing a new index. Memory has the index nevertheless.
    pub(super) store_error: Option<StoreError>,
}

impl DocumentRetriever {
    /// Updates the index of a company to the requested documents. If the future is dropped, the changes that it has made stay.
    pub(super) async fn load(
        &self,
        company_id: &CompanyId,
        entry: &Arc<CompanyEntry>,
        requested: &RequestedDocuments,
    ) -> Result<(), StoreError> {
        let _updates = entry.updates.lock().await;
        let unverified = {
            let _guard = entry.loading.lock().await;
            entry.write().set_vector_drops(requested.vector_drops)
        };
        let scope = Arc::new(requested.ids());
        self.remove(entry, &scope, requested).await;
        let outdated = outdated(entry, requested).await;
        let max_text_bytes = if outdated.len() == 1 { usize::MAX } else { LONG_TEXT_BYTES };
        let mut long = Vec::new();
        for batch in outdated.chunks(BATCH_DOCUMENTS) {
            long.extend(self.load_batch(company_id, entry, (&scope, batch), max_text_bytes).await?.long);
        }
        // Documents beside a long one must not wait for its analysis.
        for document in long.chunks(1) {
            self.load_batch(company_id, entry, (&scope, document), usize::MAX).await?;
        }
        self.load_vectors(company_id, entry, &requested.with_new_vectors(entry, &unverified)).await?;
        self.cache.update_size(company_id, entry);
        Ok(())
    }

    /// Updates the index of a company to some documents, but those whose texts are longer than `max_text_bytes`. New indexes
    /// are stored, also that of a document that memory has already. The caller holds [`updates`](CompanyEntry::updates).
    pub(super) async fn load_batch(
        &self,
        company_id: &CompanyId,
        entry: &Arc<CompanyEntry>,
        (scope, batch): (&Arc<HashSet<DocumentId>>, &[(DocumentId, u64)]),
        max_text_bytes: usize,
    ) -> Result<LoadedBatch, StoreError> {
        let ids: Vec<String> = batch.iter().map(|(id, _)| id.as_str().to_owned()).collect();
        let stored = self.read_indexes(company_id, &ids).await?;
        let (mut loaded, mut bytes, mut long) = (Vec::new(), 0, Vec::new());
        let mut store_error = None;
        for ((id, version), stored) in batch.iter().zip(stored) {
            let earlier = match stored {
                Some(DecodedDocIndex::Current(stored)) if stored.version == *version => {
                    let (id, version) = (id.clone(), *version);
                    loaded.push(LoadedDocument { id, version, source: IndexSource::Stored(stored) });
                    continue;
                }
                stored => stored,
            };
            let Some(found) = self.texts.read_document(company_id, id, *version).await? else { continue };
            let version = found.version;
            if found.value.text_bytes() > max_text_bytes {
                long.push((id.clone(), version));
                continue;
            }
            let Some(document) = self.texts.read_extracted(company_id, found.value).await? else { continue };
            bytes += document.text.len();
            let source = IndexSource::Text { document: Box::new(document), earlier };
            loaded.push(LoadedDocument { id: id.clone(), version, source });
            if bytes >= BATCH_BYTES {
                let put = self.put(company_id, entry, scope, std::mem::take(&mut loaded)).await;
                store_error = store_error.or(put.err());
                bytes = 0;
            }
        }
        let put = self.put(company_id, entry, scope, loaded).await;
        Ok(LoadedBatch { long, store_error: store_error.or(put.err()) })
    }

    /// Reads and decodes the stored indexes of documents, in their order. Large ones are decoded in the pool.
    pub(super) async fn read_indexes(
        &self,
        company_id: &CompanyId,
        ids: &[String],
    ) -> Result<Vec<Option<DecodedDocIndex>>, StoreError> {
        let encoded = workspace::load_document_indexes(&*self.config.records, company_id, ids).await?;
        let bytes: usize = encoded.iter().flatten().map(EncodedDocIndex::stored_bytes).sum();
        let chunker_id = self.chunker.id();
        let decode = move || {
            let decode = |encoded: EncodedDocIndex| only_by_chunker(encoded.decode(), &chunker_id);
            encoded.into_iter().map(|encoded| encoded.map(decode)).collect()
        };
        if bytes <= MAX_INLINE_BYTES {
            return Ok(decode());
        }
        let decoded = run_blocking(&self.config.pool, decode).await;
        decoded.ok_or_else(|| StoreError::unavailable("the decoding of indexes was interrupted"))
    }

    /// Loads the stored vectors of documents at these versions into the index in memory.
    pub(super) async fn load_vectors(
        &self,
        company_id: &CompanyId,
        entry: &Arc<CompanyEntry>,
        documents: &[(DocumentId, u64)],
    ) -> Result<(), StoreError> {
        let Some(embedder) = self.embedder() else { return Ok(()) };
        for batch in documents.chunks(BATCH_DOCUMENTS) {
            let ids: Vec<String> = batch.iter().map(|(id, _)| id.as_str().to_owned()).collect();
            let stored = self.read_indexes(company_id, &ids).await?;
            let _guard = entry.loading.lock().await;
            let mut state = entry.write();
            for ((id, version), stored) in batch.iter().zip(stored) {
                let stored = stored.and_then(DecodedDocIndex::into_current);
                if let Some(stored) = stored.filter(|stored| stored.version == *version) {
                    put_vectors(&mut state, id, &stored, (self.cache.company_share(), embedder));
                }
            }
        }
        self.cache.update_size(company_id, entry);
        Ok(())
    }

    /// Removes documents that do not exist, or whose indexed version the store has lost. Makes room for requested documents
    /// that did not fit beside others.
    async fn remove(
        &self,
        entry: &Arc<CompanyEntry>,
        scope: &Arc<HashSet<DocumentId>>,
        requested: &RequestedDocuments,
    ) {
        let guard = entry.loading.clone().lock_owned().await;
        let (removed, may_retry) = entry.read(|state| {
            let deleted = requested.absent.iter().filter(|id| state.versions.contains_key(*id));
            let removed: Vec<DocumentId> = deleted.chain(requested.lost(state)).cloned().collect();
            (removed, state.may_retry(scope))
        });
        if removed.is_empty() && !may_retry {
            return;
        }
        let (entry, scope) = (entry.clone(), scope.clone());
        let work = move || {
            let _guard = guard;
            let mut state = entry.write();
            state.apply(removed.into_iter().map(|id| (DocumentChange::Remove(id), 0)).collect());
            if may_retry {
                state.prepare_retry(&scope);
            }
        };
        run_blocking(&self.config.pool, work).await;
    }

    /// Analyzes documents, puts them into the index, and stores the indexes that are new. Returns the first error of storing one,
    /// which keeps none out of memory.
    async fn put(
        &self,
        company_id: &CompanyId,
        entry: &Arc<CompanyEntry>,
        scope: &Arc<HashSet<DocumentId>>,
        loaded: Vec<LoadedDocument>,
    ) -> Result<(), StoreError> {
        if loaded.is_empty() {
            return Ok(());
        }
        // One at a time in this process: analysis takes one core at most, and companies alternate.
        let analysis = self.analysis.clone().lock_owned().await;
        let guard = entry.loading.clone().lock_owned().await;
        let (changed, scope, share) = (entry.clone(), scope.clone(), self.cache.company_share());
        let (embedder, chunker) = (self.embedder().cloned(), self.chunker.clone());
        let work = move || {
            let _guards = (guard, analysis);
            put_into_index(&changed, &scope, (share, embedder.as_ref()), &*chunker, loaded)
        };
        let Some(new_indexes) = run_blocking(&self.config.pool, work).await else {
            tracing::error!("the analysis of documents was interrupted");
            return Ok(());
        };
        self.cache.update_size(company_id, entry);
        let mut first_error = None;
        for new_index in new_indexes {
            let (id, version) =
                (DocumentId::from(new_index.document.id.as_str()), new_index.document.version);
            match self.store_new_index(company_id, &new_index).await {
                Ok(IndexReplacement::Stored(record_version)) => {
                    let _guard = entry.loading.lock().await;
                    entry.write().set_record_version(&id, version, record_version);
                }
                Ok(IndexReplacement::Changed) => self.mark_unverified(entry, &new_index).await,
                Ok(IndexReplacement::TooLarge) => {
                    let (document, now) = ((id.as_str(), version), self.config.clock.monotonic());
                    self.unembedded.record_failure(company_id, document, FailureCause::Permanent, now);
                }
                // The embedding in the background stores it again: the document lacks vectors, or they are not verified.
                Err(error) => {
                    let cause = with_sources(&error);
                    tracing::warn!(document = %id, error = cause, "the index of a document was not stored");
                    self.mark_unverified(entry, &new_index).await;
                    first_error.get_or_insert(error);
                }
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// Lets the next search compare the vectors that an index has taken over with the stored ones, which may have been dropped.
    async fn mark_unverified(&self, entry: &CompanyEntry, new_index: &NewIndex) {
        if new_index.has_earlier_vectors && self.embedder().is_some() {
            let _guard = entry.loading.lock().await;
            entry.write().mark_unverified(&DocumentId::from(new_index.document.id.as_str()));
        }
    }
}

/// Copies the vectors of a stored document to that of the index, if both have the same version.
pub(super) fn put_vectors(
    state: &mut IndexState,
    id: &DocumentId,
    stored: &StoredDocIndex,
    (share, embedder): (usize, &EmbedderId),
) {
    if state.versions.get(id) == Some(&stored.version) {
        let unembedded = UnembeddedDocument::of(&stored.index, stored.record_version, embedder);
        state.set_vectors(id, stored.index.shared_vectors(), unembedded, share);
    }
}

/// Returns the requested documents that the index lacks or has in an older version, once no other task changes the index.
async fn outdated(entry: &Arc<CompanyEntry>, requested: &RequestedDocuments) -> Vec<(DocumentId, u64)> {
    let _guard = entry.loading.lock().await;
    entry.read(|state| {
        let is_outdated = |document: &&(DocumentId, u64)| {
            state.state_of(&document.0, document.1) == DocumentState::Outdated
        };
        requested.present.iter().filter(is_outdated).cloned().collect()
    })
}

/// Analyzes documents and puts them into the index. Vectors of the embedder are put where there is room beside the words.
/// Returns the indexes that were not stored before.
fn put_into_index(
    entry: &CompanyEntry,
    scope: &HashSet<DocumentId>,
    (share, embedder): (usize, Option<&EmbedderId>),
    chunker: &dyn Chunker,
    loaded: Vec<LoadedDocument>,
) -> Vec<NewIndex> {
    let (mut changes, mut added, mut new_indexes, mut failed) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut vectors = Vec::new();
    for LoadedDocument { id, version, source } in loaded {
        let (index, record_version) = match source {
            IndexSource::Stored(stored) => (stored.index, stored.record_version),
            IndexSource::Text { document, earlier } => {
                match index_text((&id, version), &document, earlier, chunker) {
                    Ok((index, new_index)) => {
                        new_indexes.push(new_index);
                        (index, 0)
                    }
                    Err(error) => {
                        tracing::warn!(document = %id, error = %error, "a document cannot be indexed");
                        failed.push((id, version));
                        continue;
                    }
                }
            }
        };
        if let Some(embedder) = embedder {
            let unembedded = UnembeddedDocument::of(&index, record_version, embedder);
            vectors.push((id.clone(), version, index.shared_vectors(), unembedded));
        }
        added.push((id.clone(), version));
        changes.push((DocumentChange::Put(id, Arc::new(index.without_vectors())), version));
    }
    let mut state = entry.write();
    // Another search may have put a newer version meanwhile.
    changes.retain(|(change, version)| match change {
        DocumentChange::Put(id, _) => state.state_of(id, *version) == DocumentState::Outdated,
        DocumentChange::Remove(_) => true,
    });
    state.apply(changes);
    for (id, version) in failed {
        state.apply(vec![(DocumentChange::Remove(id.clone()), 0)]);
        state.mark_unusable(id, version, SkipReason::Failed);
    }
    state.shrink(share, scope, &added);
    for (id, version, vectors, unembedded) in vectors {
        if state.versions.get(&id) == Some(&version) {
            state.set_vectors(&id, vectors, unembedded, share);
        }
    }
    new_indexes
}
