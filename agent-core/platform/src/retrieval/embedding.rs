//! Indexing and embedding of documents in the background, ahead of the searches.
//!
//! A document that was written is indexed at once, and its chunks are embedded a slice at a time, by round-robin over the
//! companies. Vectors are stored in the document's index, so that a search finds by words what has none yet. Nothing of the
//! work is recorded elsewhere: what is missing is seen from the index, so that a process that was killed loses a slice at
//! most, and documents that were left without vectors are announced by the next search of them. That holds for vectors that
//! an admin drops to have them made anew, and for an index that could not be stored, too. A lease for each company keeps
//! several processes from embedding the same chunks.
//!
//! An attempt that failed is repeated after a pause: see [`EmbeddingQueue`](super::embedding_queue::EmbeddingQueue). The last
//! failure stands in the account of the document's index, for its readers. It decides nothing: a process that begins tries
//! every document.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use agent_core::ids::CompanyId;
use agent_retrieval::doc_index::DocIndex;
use agent_retrieval::document::DocumentId;
use agent_retrieval::embed::{EmbedError, EmbedRole, Embedder, EmbedderId, Embeddings};
use futures_util::future::{Either, join, select};
use jiff::Timestamp;

use super::blocking::run_blocking;
use super::cache::DocumentState;
use super::document_retriever::DocumentRetriever;
use super::embedding_queue::{FailureCause, Lane};
use super::load::put_vectors;
use crate::records::StoreError;
use crate::workspace::{
    self, EmbeddingFailure, EmbeddingFailureReason, IndexReplacement, IndexStatus, IndexedDocument,
    StoredDocIndex,
};

/// Maximum duration of a slice before its last call of the embedder, and maximum number of its chunks.
const MAX_SLICE_DURATION: Duration = Duration::from_secs(5);
const MAX_SLICE_CHUNKS: usize = 1_024;
/// Maximum duration of one call of the embedder.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Validity of a company's lease: longer than a slice with a slow call.
const LEASE: Duration = Duration::from_secs(90);
/// Pause before the next attempt to take the lease that another process has.
const LEASE_RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// State of a document after a slice.
enum Progress {
    /// All chunks have vectors now.
    Done,
    /// The embedder was not called: all chunks have vectors already, or the document is gone or has no index.
    Skipped,
    /// Some chunks have no vector yet.
    Unfinished,
    /// Another process embeds the company's documents.
    Leased,
}

/// Error of embedding a slice of a document.
#[derive(Debug, thiserror::Error)]
enum SliceError {
    /// The embedder failed.
    #[error(transparent)]
    Embed(#[from] EmbedError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The index is too large with its vectors.
    #[error("the index is too large with its vectors")]
    TooLarge,
}

impl SliceError {
    fn cause(&self) -> FailureCause {
        match self {
            Self::Embed(EmbedError::InvalidAnswer(_)) => FailureCause::InvalidAnswer,
            Self::Embed(EmbedError::Unavailable { retry_after, .. }) => {
                FailureCause::Unavailable(*retry_after)
            }
            Self::Store(StoreError::Invalid(_) | StoreError::TooLarge { .. })
            | Self::Embed(EmbedError::Rejected(_))
            | Self::TooLarge => FailureCause::Permanent,
            Self::Embed(_) | Self::Store(_) => FailureCause::Unavailable(None),
        }
    }

    /// Returns the reason that the readers of the document see; `None` if the store failed, which cannot keep it.
    fn reason(&self) -> Option<EmbeddingFailureReason> {
        match self {
            Self::Embed(EmbedError::Rejected(_)) => Some(EmbeddingFailureReason::Rejected),
            Self::Embed(EmbedError::InvalidAnswer(_)) => Some(EmbeddingFailureReason::InvalidAnswer),
            Self::Embed(_) => Some(EmbeddingFailureReason::Unavailable),
            Self::TooLarge | Self::Store(StoreError::TooLarge { .. }) => {
                Some(EmbeddingFailureReason::TooLarge)
            }
            Self::Store(_) => None,
        }
    }
}

/// A failed attempt at a slice.
#[derive(Debug)]
struct FailedSlice {
    error: SliceError,
    /// Versions of the document and of its index's record; 0 if they are not known.
    version: u64,
    record_version: u64,
}

impl From<StoreError> for FailedSlice {
    fn from(error: StoreError) -> Self {
        Self { error: error.into(), version: 0, record_version: 0 }
    }
}

/// Vectors of some chunks of a document.
#[derive(Default)]
struct Slice {
    chunks: Vec<usize>,
    embeddings: Embeddings,
    /// The failure that ended the slice early.
    failure: Option<EmbedError>,
}

impl DocumentRetriever {
    /// Indexes the documents that were written, until the future is dropped.
    pub(super) async fn index_written(&self) {
        loop {
            let (company_id, id) = self.written.next().await;
            if let Err(error) = self.index(&company_id, &id).await {
                // A search indexes the document.
                tracing::warn!(%error, document = id, "a document was not indexed ahead");
            }
        }
    }

    /// Embeds the documents that lack vectors, until the future is dropped. Returns at once without an embedder.
    pub(super) async fn embed_waiting(&self) {
        let Some(embedder) = self.query_embedder.as_ref().map(|query| query.settings.embedder.clone()) else {
            return;
        };
        join(self.embed_lane(&*embedder, Lane::Main), self.embed_lane(&*embedder, Lane::Retries)).await;
    }

    /// Embeds the documents of a lane, one slice after the other.
    async fn embed_lane(&self, embedder: &dyn Embedder, lane: Lane) {
        let clock = &*self.config.clock;
        loop {
            let (company_id, id) = self.unembedded.next(lane, clock).await;
            match self.embed_slice(embedder, &company_id, &id).await {
                Ok(Progress::Done) => self.unembedded.record_success(&company_id, &id, false),
                Ok(Progress::Unfinished) => {
                    self.unembedded.record_success(&company_id, &id, true);
                    // Lets other tasks run if the embedder answers at once.
                    clock.sleep(Duration::ZERO).await;
                }
                Ok(Progress::Leased) => {
                    self.unembedded.defer(&company_id, &id, clock.monotonic() + LEASE_RETRY_INTERVAL);
                }
                Ok(Progress::Skipped) => self.unembedded.abandon(&company_id, &id),
                Err(failed) => self.record_failure(&company_id, &id, failed).await,
            }
        }
    }

    /// Lets a document wait for the next attempt, and records the failure in the account of its index.
    async fn record_failure(&self, company_id: &CompanyId, id: &str, failed: FailedSlice) {
        let FailedSlice { error, version, record_version } = failed;
        let now = self.config.clock.monotonic();
        let attempt = self.unembedded.record_failure(company_id, (id, version), error.cause(), now);
        match attempt.pause {
            Some(pause) => {
                tracing::warn!(%error, document = id, ?pause, "the embedding of a document is repeated");
            }
            None => tracing::warn!(%error, document = id, "a document stays without vectors"),
        }
        let Some(reason) = error.reason().filter(|_| record_version > 0) else { return };
        let now = Timestamp::try_from(self.config.clock.now()).unwrap_or_default();
        let retry_at = attempt.pause.map(|pause| now.saturating_add(pause).unwrap_or(Timestamp::MAX));
        let failure = EmbeddingFailure { reason, failures: attempt.failures, retry_at };
        let records = &*self.config.records;
        match workspace::record_embedding_failure(records, company_id, id, (record_version, failure)).await {
            Ok(Some(record_version)) => {
                let entry = self.cache.entry(company_id);
                let _guard = entry.loading.lock().await;
                entry.write().set_record_version(&DocumentId::from(id), version, record_version);
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, document = id, "the failure of a document was not recorded"),
        }
    }

    /// Embeds some chunks of a document and stores their vectors.
    async fn embed_slice(
        &self,
        embedder: &dyn Embedder,
        company_id: &CompanyId,
        id: &str,
    ) -> Result<Progress, FailedSlice> {
        let Some(version) = self.version_of(company_id, id).await? else { return Ok(Progress::Skipped) };
        let progress = self.embed_slice_of(embedder, company_id, (id, version)).await;
        progress.map_err(|failed| FailedSlice { version, ..failed })
    }

    /// Embeds some chunks of a document at a version and stores their vectors.
    async fn embed_slice_of(
        &self,
        embedder: &dyn Embedder,
        company_id: &CompanyId,
        (id, version): (&str, u64),
    ) -> Result<Progress, FailedSlice> {
        let document_id = DocumentId::from(id);
        let Some(stored) = self.stored_index(company_id, id, version).await? else {
            return Ok(Progress::Skipped);
        };
        let missing = stored.index.unembedded_chunks(embedder.id());
        if missing.is_empty() {
            // Perhaps another process has embedded it.
            let entry = self.cache.entry(company_id);
            self.load_vectors(company_id, &entry, &[(document_id, version)]).await?;
            return Ok(Progress::Skipped);
        }
        let read = self.texts.read_document(company_id, &document_id, version).await?;
        let read = read.filter(|read| read.version == version).map(|read| read.value);
        let text = match read {
            Some(document) => self.texts.read_text(company_id, document).await?,
            None => None,
        };
        let Some(text) = text else { return Ok(Progress::Skipped) };
        let now = Timestamp::try_from(self.config.clock.now()).unwrap_or_default();
        let records = &*self.config.records;
        let claim = workspace::claim_embedding(records, company_id, &self.owner, now, LEASE).await?;
        let Some(claim) = claim else { return Ok(Progress::Leased) };
        let slice = self.embed_chunks(embedder, &stored.index, &text, &missing).await;
        let is_complete = slice.chunks.len() == missing.len();
        let Slice { chunks, embeddings, failure } = slice;
        let mut record_version = stored.record_version;
        let replacement = match chunks.is_empty() {
            true => Ok(None),
            false => self
                .store_slice(company_id, embedder.id(), id, (stored, text), (chunks, embeddings))
                .await
                .map(Some),
        };
        workspace::release_embedding(records, claim).await?;
        let error = match replacement {
            Err(error) => Some(error),
            Ok(Some(IndexReplacement::TooLarge)) => Some(SliceError::TooLarge),
            Ok(Some(IndexReplacement::Changed)) if failure.is_none() => return Ok(Progress::Unfinished),
            Ok(Some(IndexReplacement::Stored(stored_version))) => {
                record_version = stored_version;
                failure.map(SliceError::from)
            }
            Ok(_) => failure.map(SliceError::from),
        };
        match error {
            Some(error) => Err(FailedSlice { error, version, record_version }),
            None if is_complete => Ok(Progress::Done),
            None => Ok(Progress::Unfinished),
        }
    }

    /// Returns the stored index of a document at a version, after indexing it if there is none; `None` if it cannot be
    /// indexed, or if the document has changed.
    async fn stored_index(
        &self,
        company_id: &CompanyId,
        id: &str,
        version: u64,
    ) -> Result<Option<StoredDocIndex>, StoreError> {
        let ids = [id.to_owned()];
        for attempt in 0..3 {
            let found = workspace::load_document_indexes(&*self.config.records, company_id, &ids).await?;
            match (found.into_iter().next().flatten(), attempt) {
                (Some(found), _) if found.version == version => return Ok(Some(found)),
                (_, 0) => self.index(company_id, id).await?,
                (_, 1) => self.store_index_again(company_id, (DocumentId::from(id), version)).await?,
                _ => {}
            }
        }
        Ok(None)
    }

    /// Builds the index of a document again and stores it. Does nothing if memory does not have the document at the version, so
    /// that what cannot be indexed is not analyzed again and again.
    async fn store_index_again(
        &self,
        company_id: &CompanyId,
        document: (DocumentId, u64),
    ) -> Result<(), StoreError> {
        let entry = self.cache.entry(company_id);
        let _updates = entry.updates.lock().await;
        let state = {
            let _guard = entry.loading.lock().await;
            entry.read(|state| state.state_of(&document.0, document.1))
        };
        if state != DocumentState::Current {
            return Ok(());
        }
        let scope = Arc::new(HashSet::from([document.0.clone()]));
        let batch = self.load_batch(company_id, &entry, (&scope, &[document]), usize::MAX).await?;
        batch.store_error.map_or(Ok(()), Err)
    }

    /// Returns the version of a document's record; `None` if there is no such document.
    async fn version_of(&self, company_id: &CompanyId, id: &str) -> Result<Option<u64>, StoreError> {
        let (present, _) = self.texts.versions(company_id, &[id.to_owned()]).await?;
        Ok(present.first().map(|(_, version)| *version))
    }

    /// Calls the embedder until the slice is over, or until it fails.
    async fn embed_chunks(
        &self,
        embedder: &dyn Embedder,
        index: &DocIndex,
        text: &str,
        missing: &[usize],
    ) -> Slice {
        let began = self.config.clock.monotonic();
        let mut slice = Slice::default();
        for batch in missing.chunks(embedder.max_batch().max(1)) {
            let inputs: Vec<String> =
                batch.iter().filter_map(|&chunk| index.embedding_input(text, chunk)).collect();
            let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
            let call = embedder.embed(&inputs, EmbedRole::Document);
            let answered = match select(call, self.config.clock.sleep(CALL_TIMEOUT)).await {
                Either::Left((answered, _)) => answered,
                Either::Right(_) => Err(EmbedError::unavailable("the embedder took more than a minute")),
            };
            let appended = answered.and_then(|embeddings| match embeddings.len() == batch.len() {
                true => slice.embeddings.append(embeddings),
                false => Err(EmbedError::InvalidAnswer("vectors are missing".to_owned())),
            });
            if let Err(error) = appended {
                slice.failure = Some(error);
                break;
            }
            slice.chunks.extend(batch);
            let elapsed = self.config.clock.monotonic().saturating_duration_since(began);
            if elapsed >= MAX_SLICE_DURATION || slice.chunks.len() >= MAX_SLICE_CHUNKS {
                break;
            }
        }
        slice
    }

    /// Adds vectors to a document's stored index, stores it, if the document and the index are as they were, and puts them
    /// into the index in memory.
    async fn store_slice(
        &self,
        company_id: &CompanyId,
        embedder: &EmbedderId,
        id: &str,
        (stored, text): (StoredDocIndex, String),
        (chunks, embeddings): (Vec<usize>, Embeddings),
    ) -> Result<IndexReplacement, SliceError> {
        let StoredDocIndex { index, version, record_version: replaced } = stored;
        let embedder_id = embedder.clone();
        let work = move || {
            let index = index.with_embeddings(&embedder_id, &text, &chunks, &embeddings)?;
            Ok((index.encode(), index))
        };
        let done = run_blocking(&self.config.pool, work).await;
        let done = done.ok_or_else(|| EmbedError::unavailable("the work was interrupted"))?;
        let (encoded, index) = done.map_err(|error: agent_retrieval::doc_index::VectorsError| {
            EmbedError::InvalidAnswer(error.to_string())
        })?;
        let status = IndexStatus::of(&index);
        let records = &*self.config.records;
        let document = IndexedDocument { id: id.to_owned(), version };
        let replacement = (&status, &encoded[..]);
        let stored =
            workspace::replace_document_index(records, company_id, &document, replacement, replaced).await?;
        let IndexReplacement::Stored(record_version) = stored else { return Ok(stored) };
        let entry = self.cache.entry(company_id);
        let replacement = StoredDocIndex { index, version, record_version };
        {
            let _guard = entry.loading.lock().await;
            let share = self.cache.company_share();
            put_vectors(&mut entry.write(), &DocumentId::from(id), &replacement, (share, embedder));
        }
        self.cache.update_size(company_id, &entry);
        Ok(stored)
    }
}

#[cfg(test)]
mod tests;
