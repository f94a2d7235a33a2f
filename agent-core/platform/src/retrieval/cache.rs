//! Merged indexes of companies in memory, within a limit on their bytes.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard, TryLockError};

use agent_core::ids::CompanyId;
use agent_retrieval::company::{CompanyIndex, DocumentChange};
use agent_retrieval::doc_index::{DocIndex, Vectors};
use agent_retrieval::document::DocumentId;
use agent_retrieval::embed::EmbedderId;
use futures_util::lock::Mutex as AsyncMutex;

use super::search_result::{FoundDocument, SkipReason};
use super::vector_checks::VectorChecks;

/// Assumed size of an entry without documents, in bytes.
const ENTRY_BYTES: usize = 4 * 1024;
/// Divisor of the limit: the share of one company's index.
const COMPANY_SHARE_DIVISOR: usize = 2;
/// Divisor of a company's share: the additional share of its texts.
const TEXT_SHARE_DIVISOR: usize = 4;

/// Cache of the companies' indexes. The least recently used ones are evicted.
pub(super) struct IndexCache {
    max_bytes: usize,
    companies: Mutex<CompanySlots>,
}

#[derive(Default)]
struct CompanySlots {
    slots: HashMap<CompanyId, Slot>,
    total_bytes: usize,
    uses: u64,
}

struct Slot {
    entry: Arc<CompanyEntry>,
    bytes: usize,
    last_use: u64,
}

/// The index of one company and texts of its documents.
pub(super) struct CompanyEntry {
    /// Held by the search that brings the index up to date; the others wait for its work instead of repeating it.
    pub(super) updates: AsyncMutex<()>,
    /// Held while the state is changed, by the work in the pool, which continues after its search was dropped.
    pub(super) loading: Arc<AsyncMutex<()>>,
    /// Held by the search that checks vectors; the others wait for its result instead of repeating it.
    pub(super) vector_checks: AsyncMutex<VectorChecks>,
    state: RwLock<IndexState>,
    texts: Mutex<TextCache>,
}

/// The merged index, and the versions that it has of the documents.
#[derive(Default)]
pub(super) struct IndexState {
    pub(super) index: CompanyIndex,
    pub(super) versions: HashMap<DocumentId, u64>,
    /// Documents that cannot be searched at a version.
    unusable: HashMap<DocumentId, (u64, SkipReason)>,
    /// Documents that lack vectors of some chunks. Empty without an embedder.
    unembedded: HashMap<DocumentId, UnembeddedDocument>,
    /// Version of the record of dropped vectors that the vectors in memory were compared with.
    vector_drops: Option<u64>,
    index_bytes: usize,
}

/// A document that lacks vectors of some chunks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct UnembeddedDocument {
    /// Version of the stored index's record that is in memory; 0 if it is not known.
    pub(super) record_version: u64,
    /// True if other chunks have vectors.
    pub(super) is_partial: bool,
    /// True if memory has no room for its vectors.
    pub(super) is_left_out: bool,
}

impl UnembeddedDocument {
    /// Returns the state of a document's index in memory; `None` if all chunks have vectors.
    pub(super) fn of(index: &DocIndex, record_version: u64, embedder: &EmbedderId) -> Option<Self> {
        let missing = index.unembedded_chunks(embedder).len();
        let is_partial = missing < index.chunk_count();
        (missing > 0).then_some(Self { record_version, is_partial, is_left_out: false })
    }
}

/// State of a document in an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DocumentState {
    /// The index has this version or a newer one.
    Current,
    /// The index has an older version or none.
    Outdated,
    /// The version of the document cannot be searched.
    Unusable(SkipReason),
}

/// Texts of documents; the oldest are evicted.
#[derive(Default)]
struct TextCache {
    texts: HashMap<DocumentId, FoundDocument>,
    order: VecDeque<DocumentId>,
    bytes: usize,
}

impl IndexCache {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { max_bytes, companies: Mutex::default() }
    }

    /// Returns the largest size of a company's index, in bytes.
    pub(super) fn company_share(&self) -> usize {
        self.max_bytes / COMPANY_SHARE_DIVISOR
    }

    fn text_share(&self) -> usize {
        self.company_share() / TEXT_SHARE_DIVISOR
    }

    /// Returns the entry of a company, which is empty if it is new.
    pub(super) fn entry(&self, company_id: &CompanyId) -> Arc<CompanyEntry> {
        let mut companies = self.lock();
        companies.uses += 1;
        let last_use = companies.uses;
        if let Some(slot) = companies.slots.get_mut(company_id) {
            slot.last_use = last_use;
            return slot.entry.clone();
        }
        let entry = Arc::new(CompanyEntry {
            updates: AsyncMutex::default(),
            loading: Arc::default(),
            vector_checks: AsyncMutex::default(),
            state: RwLock::default(),
            texts: Mutex::default(),
        });
        let slot = Slot { entry: entry.clone(), bytes: ENTRY_BYTES, last_use };
        companies.slots.insert(company_id.clone(), slot);
        companies.total_bytes += ENTRY_BYTES;
        companies.evict(self.max_bytes, company_id);
        entry
    }

    /// Records the size of a company's entry after a change, and evicts others until all fit.
    pub(super) fn update_size(&self, company_id: &CompanyId, entry: &Arc<CompanyEntry>) {
        let bytes = ENTRY_BYTES + entry.read(|state| state.index_bytes) + entry.texts().bytes;
        let mut companies = self.lock();
        // The entry may have been evicted, and another one made, while this one was changed.
        let Some(slot) = companies.slots.get_mut(company_id).filter(|slot| Arc::ptr_eq(&slot.entry, entry))
        else {
            return;
        };
        let before = std::mem::replace(&mut slot.bytes, bytes);
        companies.total_bytes = companies.total_bytes - before + bytes;
        companies.evict(self.max_bytes, company_id);
    }

    /// Keeps the text of a document for later searches, unless it is too large.
    pub(super) fn keep_text(
        &self,
        company_id: &CompanyId,
        entry: &Arc<CompanyEntry>,
        id: &DocumentId,
        document: &FoundDocument,
    ) {
        entry.texts().insert(id, document, self.text_share());
        self.update_size(company_id, entry);
    }

    fn lock(&self) -> MutexGuard<'_, CompanySlots> {
        self.companies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CompanySlots {
    /// Evicts the entries that were not used for the longest time, but that of `used`, until all fit.
    fn evict(&mut self, max_bytes: usize, used: &CompanyId) {
        while self.total_bytes > max_bytes {
            let others = self.slots.iter().filter(|(company, _)| *company != used);
            let Some(oldest) =
                others.min_by_key(|(_, slot)| slot.last_use).map(|(company, _)| company.clone())
            else {
                return;
            };
            let slot = self.slots.remove(&oldest);
            self.total_bytes -= slot.map_or(0, |slot| slot.bytes);
        }
    }
}

impl CompanyEntry {
    /// Reads the state. Waits for a change that is being made, so call it while none is: see [`loading`](Self::loading).
    pub(super) fn read<T>(&self, read: impl FnOnce(&IndexState) -> T) -> T {
        read(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Locks the state for a change. The caller holds [`loading`](Self::loading).
    pub(super) fn write(&self) -> RwLockWriteGuard<'_, IndexState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the state, unless it is being changed.
    pub(super) fn try_read<T>(&self, read: impl FnOnce(&IndexState) -> T) -> Option<T> {
        match self.state.try_read() {
            Ok(state) => Some(read(&state)),
            Err(TryLockError::Poisoned(state)) => Some(read(&state.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Returns a document with its text at a version, if it was kept.
    pub(super) fn document(&self, id: &DocumentId, version: u64) -> Option<FoundDocument> {
        self.texts().texts.get(id).filter(|document| document.version == version).cloned()
    }

    fn texts(&self) -> MutexGuard<'_, TextCache> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl IndexState {
    /// Returns the state of a document at a version.
    pub(super) fn state_of(&self, id: &DocumentId, version: u64) -> DocumentState {
        match (self.unusable.get(id), self.versions.get(id)) {
            (Some((at, reason)), _) if *at >= version => DocumentState::Unusable(*reason),
            (_, Some(indexed)) if *indexed >= version => DocumentState::Current,
            _ => DocumentState::Outdated,
        }
    }

    /// Returns the newest version of a document that the index has or cannot have.
    pub(super) fn known_version(&self, id: &DocumentId) -> Option<u64> {
        let unusable = self.unusable.get(id).map(|(version, _)| *version);
        self.versions.get(id).copied().max(unusable)
    }

    /// Records that a document cannot be searched at a version.
    pub(super) fn mark_unusable(&mut self, id: DocumentId, version: u64, reason: SkipReason) {
        self.versions.remove(&id);
        self.unembedded.remove(&id);
        self.unusable.insert(id, (version, reason));
    }

    /// Applies changes of documents, each with its version unless it is removed.
    pub(super) fn apply(&mut self, changes: Vec<(DocumentChange, u64)>) {
        for (change, version) in &changes {
            match change {
                DocumentChange::Put(id, _) => {
                    self.unusable.remove(id);
                    self.unembedded.remove(id);
                    self.versions.insert(id.clone(), *version);
                }
                DocumentChange::Remove(id) => {
                    self.unusable.remove(id);
                    self.unembedded.remove(id);
                    self.versions.remove(id);
                }
            }
        }
        self.index.apply(changes.into_iter().map(|(change, _)| change));
        self.index_bytes = self.index.memory_bytes();
    }

    /// Returns the documents of a scope that lack vectors.
    pub(super) fn unembedded<'i>(
        &self,
        ids: impl IntoIterator<Item = &'i DocumentId>,
    ) -> impl Iterator<Item = (&'i DocumentId, UnembeddedDocument)> {
        ids.into_iter().filter_map(|id| Some((id, *self.unembedded.get(id)?)))
    }

    /// Returns true if a document lacks vectors, and its stored index has another version than that in memory.
    pub(super) fn has_new_vectors(&self, id: &DocumentId, record_version: u64) -> bool {
        self.unembedded.get(id).is_some_and(|unembedded| unembedded.record_version != record_version)
    }

    /// Returns true if vectors were dropped since those in memory were read, by the version of the record of dropped vectors.
    pub(super) fn has_dropped_vectors(&self, vector_drops: Option<u64>) -> bool {
        vector_drops > self.vector_drops
    }

    /// Records a version of the record of dropped vectors. If it is new, returns the documents with vectors, all of which are
    /// to be compared with their stored indexes.
    pub(super) fn set_vector_drops(&mut self, vector_drops: Option<u64>) -> HashSet<DocumentId> {
        if !self.has_dropped_vectors(vector_drops) {
            return HashSet::new();
        }
        self.vector_drops = vector_drops;
        let with_vectors = self.versions.keys().filter(|id| self.index.vectors(id).is_some());
        let unverified: HashSet<DocumentId> = with_vectors.cloned().collect();
        unverified.iter().for_each(|id| self.mark_unverified(id));
        unverified
    }

    /// Makes the next search compare the vectors of a document with its stored index.
    pub(super) fn mark_unverified(&mut self, id: &DocumentId) {
        let unknown = UnembeddedDocument { is_partial: true, ..UnembeddedDocument::default() };
        if self.versions.contains_key(id) {
            self.unembedded.entry(id.clone()).or_insert(unknown).record_version = 0;
        }
    }

    /// Returns true if some document of a scope has vectors.
    pub(super) fn has_vectors<'a>(&self, ids: impl IntoIterator<Item = &'a DocumentId>) -> bool {
        let mut indexed = ids.into_iter().filter(|id| self.versions.contains_key(*id));
        indexed.any(|id| self.unembedded.get(id).is_none_or(|unembedded| unembedded.is_partial))
    }

    /// Returns the documents of a search that the index has.
    pub(super) fn current<'w>(
        &self,
        requested: &'w [(DocumentId, u64)],
    ) -> impl Iterator<Item = &'w DocumentId> {
        let is_current =
            |(id, version): &&(DocumentId, u64)| self.state_of(id, *version) == DocumentState::Current;
        requested.iter().filter(is_current).map(|(id, _)| id)
    }

    /// Returns a digest of the documents of a search that the index has, with their versions and the state of their vectors. Equal
    /// digests mean equal vectors.
    pub(super) fn vector_digest(&self, requested: &[(DocumentId, u64)]) -> u64 {
        let mut digest = DefaultHasher::new();
        self.vector_drops.hash(&mut digest);
        for id in self.current(requested) {
            let unembedded = self.unembedded.get(id);
            let vectors = unembedded.map(|unembedded| (unembedded.record_version, unembedded.is_partial));
            (id, self.versions.get(id), vectors).hash(&mut digest);
        }
        digest.finish()
    }

    /// Replaces the vectors of a document, if the new ones fit into `max_bytes`, and records which chunks have no vector.
    pub(super) fn set_vectors(
        &mut self,
        id: &DocumentId,
        vectors: Option<Arc<Vectors>>,
        unembedded: Option<UnembeddedDocument>,
        max_bytes: usize,
    ) {
        let size = |vectors: Option<&Arc<Vectors>>| vectors.map_or(0, |vectors| vectors.memory_bytes());
        let without = self.index_bytes.saturating_sub(size(self.index.vectors(id)));
        let fits = without + size(vectors.as_ref()) <= max_bytes;
        // Without room for its vectors, a document is found by its words.
        self.index.set_vectors(id, vectors.filter(|_| fits));
        self.index_bytes = without + size(self.index.vectors(id));
        let unembedded = match fits {
            true => unembedded,
            false => Some(UnembeddedDocument {
                is_left_out: true,
                is_partial: false,
                ..unembedded.unwrap_or_default()
            }),
        };
        match unembedded.filter(|_| self.versions.contains_key(id)) {
            Some(unembedded) => drop(self.unembedded.insert(id.clone(), unembedded)),
            None => drop(self.unembedded.remove(id)),
        }
    }

    /// Records the version of a document's index that was stored from memory.
    pub(super) fn set_record_version(&mut self, id: &DocumentId, document_version: u64, record_version: u64) {
        if self.versions.get(id) == Some(&document_version)
            && let Some(unembedded) = self.unembedded.get_mut(id)
        {
            unembedded.record_version = record_version;
        }
    }

    /// Returns true if a document was too large for the remaining room.
    pub(super) fn has_too_large(&self) -> bool {
        self.unusable.values().any(|(_, reason)| *reason == SkipReason::TooLarge)
    }

    /// Returns true if documents that were too large may be searched now: the index has other documents that are not
    /// `requested` and can be removed.
    pub(super) fn may_retry(&self, requested: &HashSet<DocumentId>) -> bool {
        let is_too_large = |id: &DocumentId| {
            self.unusable.get(id).is_some_and(|(_, reason)| *reason == SkipReason::TooLarge)
        };
        requested.iter().any(is_too_large) && self.versions.keys().any(|id| !requested.contains(id))
    }

    /// Removes the documents that are not `requested`; documents that were too large can be indexed again.
    pub(super) fn prepare_retry(&mut self, requested: &HashSet<DocumentId>) {
        self.unusable.retain(|id, (_, reason)| *reason != SkipReason::TooLarge || !requested.contains(id));
        self.remove_others(requested);
    }

    fn remove_others(&mut self, requested: &HashSet<DocumentId>) {
        let others = self.versions.keys().filter(|id| !requested.contains(*id)).cloned();
        let removals: Vec<_> = others.map(|id| (DocumentChange::Remove(id), 0)).collect();
        self.apply(removals);
    }

    /// Makes room if the index exceeds `max_bytes`: removes the documents that are not `requested`, then the ones that were `added`
    /// last, which then cannot be searched.
    pub(super) fn shrink(
        &mut self,
        max_bytes: usize,
        requested: &HashSet<DocumentId>,
        added: &[(DocumentId, u64)],
    ) {
        if self.index_bytes <= max_bytes {
            return;
        }
        self.remove_others(requested);
        if self.index_bytes > max_bytes {
            self.apply(added.iter().map(|(id, _)| (DocumentChange::Remove(id.clone()), 0)).collect());
            for (id, version) in added {
                self.mark_unusable(id.clone(), *version, SkipReason::TooLarge);
            }
        }
    }
}

impl TextCache {
    fn insert(&mut self, id: &DocumentId, document: &FoundDocument, max_bytes: usize) {
        if document.text.len() > max_bytes {
            return;
        }
        match self.texts.insert(id.clone(), document.clone()) {
            Some(replaced) => self.bytes -= replaced.text.len(),
            None => self.order.push_back(id.clone()),
        }
        self.bytes += document.text.len();
        while self.bytes > max_bytes {
            let Some(oldest) = self.order.pop_front() else { return };
            if let Some(evicted) = self.texts.remove(&oldest) {
                self.bytes -= evicted.text.len();
            }
        }
    }
}
