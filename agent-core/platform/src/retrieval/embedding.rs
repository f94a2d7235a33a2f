//! Indexing and embedding of documents in the background, ahead of the searches.
//!
//! A written document is indexed at once. Its chunks are embedded in slices, by round-robin over the companies. Vectors are
//! stored in the document's index; a search finds chunks without vectors by their words.
//!
//! The index is the only record of the work. A process that is killed loses at most one slice. A search announces the
//! documents that lack vectors, also if an admin has dropped the vectors or if an index could not be stored. A lease for
//! each company prevents several processes from embedding the same chunks.
//!
//! A failed chunk does not stop the chunks behind it: an attempt goes through the whole document, over several slices if it
//! is long. A failed attempt is repeated after a pause; see [`EmbeddingQueue`](super::embedding_queue::EmbeddingQueue). The
//! status of the index reports the last failure, which has no other effect: a new process tries every document.

mod slice;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use agent_core::ids::CompanyId;
use agent_retrieval::document::DocumentId;
use agent_retrieval::embed::{EmbedError, Embedder, EmbedderId, Embeddings};
use futures_util::future::join;
use jiff::Timestamp;

use self::slice::Slice;
use super::blocking::run_blocking;
use super::cache::DocumentState;
use super::document_retriever::DocumentRetriever;
use super::embedding_queue::{EmbeddingAttempt, FailureCause, Lane};
use super::load::put_vectors;
use super::partial_indexes::IndexedText;
use crate::records::StoreError;
use crate::time::saturating_after;
use crate::workspace::{
    self, DecodedDocIndex, EmbeddingFailure, EmbeddingFailureReason, IndexReplacement, IndexStatus,
    IndexedDocument, StoredDocIndex, StoredSlices,
};

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
    /// Some chunks have no vector yet, and others have got one.
    Unfinished,
    /// Only chunks that have failed were attempted so far; those behind them follow in the next slice.
    Continued,
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

impl DocumentRetriever {
    /// Indexes the documents that were written, until the future is dropped.
    pub(super) async fn index_written(&self) {
        loop {
            let (company_id, id) = self.written.next().await;
            if let Err(error) = self.index(&company_id, &id).await {
                // A search indexes the document.
                tracing::warn!(%error, document = id, "failed to index a document; the next search indexes it");
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
                Ok(Progress::Continued) => self.unembedded.resume(&company_id, &id),
                Ok(Progress::Leased) => {
                    self.unembedded.defer(&company_id, &id, clock.monotonic() + LEASE_RETRY_INTERVAL);
                }
                Ok(Progress::Skipped) => self.unembedded.abandon(&company_id, &id),
                Err(failed) => self.record_failure(&company_id, &id, failed).await,
            }
        }
    }

    /// Schedules the next attempt for a document, and records the failure in the status of its index.
    async fn record_failure(&self, company_id: &CompanyId, id: &str, failed: FailedSlice) {
        let FailedSlice { error, version, record_version } = failed;
        self.partial_indexes.take(company_id, id);
        let now = self.config.clock.monotonic();
        let attempt = self.unembedded.record_failure(company_id, (id, version), error.cause(), now);
        match attempt.pause {
            Some(pause) => {
                tracing::warn!(%error, document = id, ?pause, "failed to embed a document; trying again later");
            }
            None => {
                tracing::warn!(%error, document = id, "failed to embed a document; it stays without vectors")
            }
        }
        let Some(reason) = error.reason().filter(|_| record_version > 0) else { return };
        let now = Timestamp::try_from(self.config.clock.now()).unwrap_or_default();
        let retry_at = attempt.pause.map(|pause| saturating_after(now, pause));
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
        let attempt = self.unembedded.take_attempt(company_id, id);
        let Some(version) = self.version_of(company_id, id).await? else { return Ok(Progress::Skipped) };
        let attempt = attempt.filter(|attempt| attempt.version == version).unwrap_or_default();
        let progress = self.embed_slice_of(embedder, company_id, (id, version), attempt).await;
        progress.map_err(|failed| FailedSlice { version, ..failed })
    }

    /// Embeds some chunks of a document at a version, behind those that the attempt has tried, and stores their vectors.
    async fn embed_slice_of(
        &self,
        embedder: &dyn Embedder,
        company_id: &CompanyId,
        (id, version): (&str, u64),
        attempt: EmbeddingAttempt,
    ) -> Result<Progress, FailedSlice> {
        let document = self.document_to_embed(company_id, (id, version), embedder.id()).await?;
        let Some(document) = document else { return Ok(Progress::Skipped) };
        let missing = document.stored.index.unembedded_chunks(embedder.id());
        let missing = &missing[missing.partition_point(|&chunk| chunk < attempt.next_chunk)..];
        let now = Timestamp::try_from(self.config.clock.now()).unwrap_or_default();
        let records = &*self.config.records;
        let claim = workspace::claim_embedding(records, company_id, &self.owner, now, LEASE).await?;
        let Some(claim) = claim else { return Ok(Progress::Leased) };
        let slice = Slice::continued(attempt.failure, attempt.failures_in_a_row);
        let caller = (embedder, &*self.config.clock);
        let mut slice = slice.embed(caller, (&document.stored.index, &document.text), missing).await;
        let mut record_version = document.stored.record_version;
        let vectors = (std::mem::take(&mut slice.chunks), std::mem::take(&mut slice.embeddings));
        let has_vectors = !vectors.0.is_empty();
        let replacement = match has_vectors {
            true => self.store_slice(company_id, embedder.id(), id, document, vectors).await,
            false => {
                self.partial_indexes.keep(company_id, id, document, self.config.clock.monotonic());
                Ok(IndexReplacement::Stored(record_version))
            }
        };
        workspace::release_embedding(records, claim).await?;
        match replacement {
            Err(error) => return Err(FailedSlice { error, version, record_version }),
            Ok(IndexReplacement::TooLarge) => {
                return Err(FailedSlice { error: SliceError::TooLarge, version, record_version });
            }
            // The next attempt begins with the first chunk without a vector, as the index is now.
            Ok(IndexReplacement::Changed) if !slice.is_stopped => return Ok(Progress::Unfinished),
            Ok(IndexReplacement::Changed) => {}
            Ok(IndexReplacement::Stored(stored_version)) => record_version = stored_version,
        }
        self.progress_of(company_id, (id, version, record_version), (slice, missing, has_vectors))
    }

    /// Returns the state of a document after a slice, and keeps the attempt if it continues behind chunks that have failed.
    fn progress_of(
        &self,
        company_id: &CompanyId,
        (id, version, record_version): (&str, u64, u64),
        (slice, missing, has_vectors): (Slice, &[usize], bool),
    ) -> Result<Progress, FailedSlice> {
        let Slice { tried, failure, failures_in_a_row, is_stopped, .. } = slice;
        let next_chunk = missing.get(tried).copied().filter(|_| !is_stopped);
        let error = match (failure, next_chunk) {
            (None, None) => return Ok(Progress::Done),
            (None, Some(_)) => return Ok(Progress::Unfinished),
            (Some(failure), None) => failure,
            (failure @ Some(_), Some(next_chunk)) => {
                let attempt = EmbeddingAttempt { version, next_chunk, failure, failures_in_a_row };
                self.unembedded.keep_attempt(company_id, id, attempt);
                return Ok(if has_vectors { Progress::Unfinished } else { Progress::Continued });
            }
        };
        Err(FailedSlice { error: error.into(), version, record_version })
    }

    /// Returns a document that lacks vectors: the index that the previous slice has kept, if it is still the stored one,
    /// otherwise the stored index. Returns `None` if no vectors are missing, if it cannot be indexed, or if it has changed.
    async fn document_to_embed(
        &self,
        company_id: &CompanyId,
        (id, version): (&str, u64),
        embedder: &EmbedderId,
    ) -> Result<Option<IndexedText>, StoreError> {
        if let Some(kept_index) = self.partial_indexes.take(company_id, id) {
            let key = workspace::index_key(company_id, id)?;
            let record_version = self.config.records.versions(&[key]).await?.pop().flatten();
            if (kept_index.stored.version, Some(kept_index.stored.record_version))
                == (version, record_version)
            {
                return Ok(Some(kept_index));
            }
        }
        let Some(stored) = self.stored_index(company_id, id, version).await? else { return Ok(None) };
        let document_id = DocumentId::from(id);
        if stored.index.unembedded_chunks(embedder).is_empty() {
            // Perhaps another process has embedded it.
            let entry = self.cache.entry(company_id);
            self.load_vectors(company_id, &entry, &[(document_id, version)]).await?;
            return Ok(None);
        }
        let read = self.texts.read_document(company_id, &document_id, version).await?;
        let Some(read) = read.filter(|read| read.version == version) else { return Ok(None) };
        let text = self.texts.read_text(company_id, read.value).await?;
        Ok(text.map(|text| IndexedText { stored, text }))
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
            let found = self.read_indexes(company_id, &ids).await?.into_iter().next().flatten();
            match (found.and_then(DecodedDocIndex::into_current), attempt) {
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

    /// Adds vectors to a document's stored index, stores it, if the document and the index are as they were, and puts them
    /// into the index in memory. A document that still lacks vectors is kept for its next slice.
    async fn store_slice(
        &self,
        company_id: &CompanyId,
        embedder: &EmbedderId,
        id: &str,
        document: IndexedText,
        (chunks, embeddings): (Vec<usize>, Embeddings),
    ) -> Result<IndexReplacement, SliceError> {
        let IndexedText { stored, text } = document;
        let StoredDocIndex { index, version, record_version: replaced, source_digest, slices } = stored;
        let embedder_id = embedder.clone();
        let work = move || {
            let index = index.with_embeddings(&embedder_id, &text, &chunks, &embeddings)?;
            let slice = index.encode_slice(slices.index_checksum, &chunks);
            // The last slice leaves an index in one piece.
            let is_slice = !index.unembedded_chunks(&embedder_id).is_empty() && slices.has_room(slice.len());
            let encoded = if is_slice { slice } else { index.encode() };
            Ok((index, text, encoded, is_slice.then_some(slices)))
        };
        let built = run_blocking(&self.config.pool, work).await;
        let built = built.ok_or_else(|| EmbedError::unavailable("the work was interrupted"))?;
        let (index, text, encoded, slices) =
            built.map_err(|error: agent_retrieval::doc_index::VectorsError| {
                EmbedError::InvalidAnswer(error.to_string())
            })?;
        let status = IndexStatus::of(&index);
        let records = &*self.config.records;
        let document = IndexedDocument { id: id.to_owned(), version, source_digest };
        let stored = match &slices {
            Some(slices) => {
                let slice = (&status, &encoded[..], slices);
                workspace::append_vector_slice(records, company_id, &document, slice, replaced).await?
            }
            None => {
                let replacement = (&status, &encoded[..]);
                workspace::replace_document_index(records, company_id, &document, replacement, Some(replaced))
                    .await?
            }
        };
        let IndexReplacement::Stored(record_version) = stored else { return Ok(stored) };
        let entry = self.cache.entry(company_id);
        let slices = match slices {
            Some(slices) => slices.behind_slice(&encoded),
            None => StoredSlices::behind_index(&encoded),
        };
        let source_digest = document.source_digest;
        let replacement = StoredDocIndex { index, version, record_version, source_digest, slices };
        {
            let _guard = entry.loading.lock().await;
            let share = self.cache.company_share();
            put_vectors(&mut entry.write(), &DocumentId::from(id), &replacement, (share, embedder));
        }
        self.cache.update_size(company_id, &entry);
        if status.embedded < status.chunks {
            let document = IndexedText { stored: replacement, text };
            self.partial_indexes.keep(company_id, id, document, self.config.clock.monotonic());
        }
        Ok(stored)
    }
}

#[cfg(test)]
mod tests;
