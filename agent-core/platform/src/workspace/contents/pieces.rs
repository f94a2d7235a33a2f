//! Pieces of originals and of long texts.
//!
//! A piece is a record `documentContents/{document}`, `{generation}-{number}`. The sizes below are part of the stored
//! format: the number of a generation's pieces follows from its size.

use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::records::{
    Collection, Key, Precondition, Quota, Records, RecordsExt, StoreError, Write, commit_put, put_within,
    to_json,
};
use crate::workspace::{DocumentContent, WorkspaceError};
use agent_core::ids::CompanyId;

/// Collection of the pieces that no document names yet, a record per generation.
pub const PENDING_COLLECTION: &str = "documentUploads";

/// Collection of the pieces, in one collection per document below this one.
const CONTENT_COLLECTION: &str = "documentContents";
/// Size of a piece of an original, in bytes. As base64 it has two thirds of the limit of a record.
const ORIGINAL_PIECE_BYTES: usize = 512 * 1024;
/// Maximum size of a piece of a text, in bytes. As JSON, it at most doubles, since texts have no control characters.
pub(super) const TEXT_PIECE_BYTES: usize = 256 * 1024;
/// Number of pieces that are written in one commit.
const PIECES_PER_COMMIT: usize = 2;
/// Time after which pieces that no document names are deleted: far longer than their writing takes.
const PENDING_TIMEOUT: SignedDuration = SignedDuration::from_mins(15);

/// Piece of a text.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TextPiece {
    /// Position of the piece in the text, in bytes.
    pub(super) start: usize,
    /// The text.
    pub(super) text: String,
}

/// Pieces of a generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PieceSet {
    pub(super) document_id: String,
    pub(super) generation: String,
    pub(super) pieces: usize,
}

impl PieceSet {
    pub(crate) fn of_original(document_id: &str, generation: &str, bytes: usize) -> Self {
        let pieces = bytes.div_ceil(ORIGINAL_PIECE_BYTES);
        Self { document_id: document_id.to_owned(), generation: generation.to_owned(), pieces }
    }

    fn of_text(document_id: &str, generation: &str, bytes: usize) -> Self {
        let pieces = bytes.div_ceil(TEXT_PIECE_BYTES);
        Self { document_id: document_id.to_owned(), generation: generation.to_owned(), pieces }
    }

    /// Returns the sets of a content.
    pub(super) fn of_content(document_id: &str, content: &DocumentContent) -> Vec<Self> {
        let bytes = usize::try_from(content.bytes).unwrap_or_default();
        let original = Self::of_original(document_id, &content.generation, bytes);
        [original].into_iter().chain(Self::of_text_content(document_id, content)).collect()
    }

    /// Returns the set of the text of a content, which is empty for a text that the document's record has.
    pub(super) fn of_text_content(document_id: &str, content: &DocumentContent) -> Option<Self> {
        let generation = content.text_generation.as_ref()?;
        Some(Self::of_text(document_id, generation, content.long_text_bytes().unwrap_or_default()))
    }

    pub(super) fn collection(&self, company_id: &CompanyId) -> Result<Collection, StoreError> {
        Collection::new(company_id, CONTENT_COLLECTION)?.within(&self.document_id)
    }

    /// Returns the keys of some of the pieces.
    pub(super) fn keys(&self, company_id: &CompanyId, pieces: Range<usize>) -> Result<Vec<Key>, StoreError> {
        let collection = self.collection(company_id)?;
        pieces.map(|piece| collection.key(format!("{}-{piece:05}", self.generation))).collect()
    }

    /// Returns the writes that delete the pieces and the positions of the pages.
    pub(crate) fn delete_writes(&self, company_id: &CompanyId) -> Result<Vec<Write>, StoreError> {
        let mut keys = self.keys(company_id, 0..self.pieces)?;
        keys.push(self.collection(company_id)?.key(page_starts_id(&self.generation))?);
        let delete = |key| Write::Delete { key, precondition: Precondition::Any };
        Ok(keys.into_iter().map(delete).collect())
    }
}

/// Pieces that no document names yet.
#[derive(Debug, Clone)]
pub(crate) struct PendingPieces {
    pub(in crate::workspace) company_id: CompanyId,
    pub(super) set: PieceSet,
    /// Version of the record of pending pieces.
    version: u64,
}

/// Stored form of [`PendingPieces`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PendingRecord {
    #[serde(flatten)]
    pub(super) set: PieceSet,
    /// Size of an original, in bytes, which counts for the company's quota.
    #[serde(default)]
    original_bytes: u64,
    /// Time after which the pieces are deleted.
    pub(super) until: Timestamp,
}

impl PendingPieces {
    /// Returns the write that records that the pieces of an original of `original_bytes`, or those of a text, are being stored.
    fn begin_write(
        company_id: &CompanyId,
        set: &PieceSet,
        original_bytes: u64,
        now: Timestamp,
    ) -> Result<Write, StoreError> {
        let until = now.saturating_add(PENDING_TIMEOUT).unwrap_or(Timestamp::MAX);
        let record = PendingRecord { set: set.clone(), original_bytes, until };
        let key = pending_key(company_id, &set.generation)?;
        Ok(Write::Put { key, value: to_json(&record)?, precondition: Precondition::Absent })
    }

    /// Writes the pieces in several commits.
    async fn write(
        &self,
        records: &dyn Records,
        values: impl Iterator<Item = Result<agent_core::message::SharedJson, StoreError>>,
    ) -> Result<(), StoreError> {
        let keys = self.set.keys(&self.company_id, 0..self.set.pieces)?;
        let mut pieces = keys.into_iter().zip(values);
        loop {
            let mut writes = Vec::with_capacity(PIECES_PER_COMMIT);
            for (key, value) in pieces.by_ref().take(PIECES_PER_COMMIT) {
                writes.push(Write::Put { key, value: value?, precondition: Precondition::Absent });
            }
            if writes.is_empty() {
                return Ok(());
            }
            records.commit(writes).await?;
        }
    }

    pub(crate) fn generation(&self) -> &str {
        &self.set.generation
    }

    /// Returns the write that ends the pending state, in the commit by which a document names the pieces. It fails if
    /// the pieces have been deleted meanwhile.
    pub(crate) fn attach_write(&self) -> Result<Write, StoreError> {
        let key = pending_key(&self.company_id, &self.set.generation)?;
        Ok(Write::Delete { key, precondition: Precondition::Version(self.version) })
    }
}

/// Stores an original in pieces that no document names yet, as far as the quota permits.
pub(in crate::workspace) async fn write_original<Q: Quota<Error = WorkspaceError>>(
    records: &dyn Records,
    company_id: &CompanyId,
    document_id: &str,
    (bytes, quota): (&Bytes, Option<&Q>),
    now: Timestamp,
) -> Result<PendingPieces, WorkspaceError> {
    let set = PieceSet::of_original(document_id, &agent_core::new_id(), bytes.len());
    let begin = PendingPieces::begin_write(company_id, &set, bytes.len() as u64, now)?;
    let version = match quota {
        Some(quota) => put_within(records, quota, &[begin]).await?,
        None => commit_put(records, vec![begin]).await?,
    };
    let pending = PendingPieces { company_id: company_id.clone(), set, version };
    let pieces = bytes.chunks(ORIGINAL_PIECE_BYTES).map(|piece| to_json(&STANDARD.encode(piece)));
    Ok(written(records, pending, pieces).await?)
}

/// Stores a text in pieces that no document names yet, or none of them if `is_short`.
pub(crate) async fn write_text_pieces(
    records: &dyn Records,
    company_id: &CompanyId,
    document_id: &str,
    (text, is_short): (&str, bool),
    now: Timestamp,
) -> Result<PendingPieces, StoreError> {
    let bytes = if is_short { 0 } else { text.len() };
    let set = PieceSet::of_text(document_id, &agent_core::new_id(), bytes);
    let count = set.pieces;
    let begin = PendingPieces::begin_write(company_id, &set, 0, now)?;
    let version = commit_put(records, vec![begin]).await?;
    let pending = PendingPieces { company_id: company_id.clone(), set, version };
    let boundary = |piece: usize| text.floor_char_boundary(piece * TEXT_PIECE_BYTES);
    let pieces = (0..count).map(|piece| {
        let (start, end) = (boundary(piece), boundary(piece + 1));
        to_json(&TextPiece { start, text: text[start..end].to_owned() })
    });
    written(records, pending, pieces).await
}

async fn written(
    records: &dyn Records,
    pending: PendingPieces,
    values: impl Iterator<Item = Result<agent_core::message::SharedJson, StoreError>>,
) -> Result<PendingPieces, StoreError> {
    match pending.write(records, values).await {
        Ok(()) => Ok(pending),
        Err(error) => {
            discard_pieces(records, &pending).await;
            Err(error)
        }
    }
}

/// Deletes pending pieces, if they are still pending. A failure leaves them to the sweep.
pub(crate) async fn discard_pieces(records: &dyn Records, pending: &PendingPieces) {
    let discard = async {
        let mut writes = vec![pending.attach_write()?];
        writes.extend(pending.set.delete_writes(&pending.company_id)?);
        records.commit(writes).await
    };
    match discard.await {
        Ok(_) | Err(StoreError::Conflict { .. }) => {}
        Err(error) => {
            tracing::warn!(%error, "failed to delete pieces of a document; the next sweep deletes them")
        }
    }
}

/// Returns a piece of an original, by its number from 0; `None` after the last one. One after the other, the pieces are
/// the original.
///
/// # Errors
/// [`StoreError::Conflict`] if the original has been replaced or deleted since the document was read.
pub async fn read_original_piece(
    records: &dyn Records,
    company_id: &CompanyId,
    document_id: &str,
    content: &DocumentContent,
    piece: usize,
) -> Result<Option<Bytes>, StoreError> {
    let bytes = usize::try_from(content.bytes).unwrap_or_default();
    read_piece(records, company_id, &PieceSet::of_original(document_id, &content.generation, bytes), piece)
        .await
}

/// Returns a piece of a set of an original, by its number from 0; `None` after the last one.
///
/// # Errors
/// [`StoreError::Conflict`] if the set has been deleted.
pub(crate) async fn read_piece(
    records: &dyn Records,
    company_id: &CompanyId,
    set: &PieceSet,
    piece: usize,
) -> Result<Option<Bytes>, StoreError> {
    if piece >= set.pieces {
        return Ok(None);
    }
    let Some(key) = set.keys(company_id, piece..piece + 1)?.pop() else { return Ok(None) };
    let text = records.get_as::<String>(&key).await?.ok_or_else(replaced)?.value;
    let decoded = STANDARD.decode(text);
    decoded
        .map(|bytes| Some(bytes.into()))
        .map_err(|_| StoreError::unavailable("a piece of a document is damaged"))
}

/// Returns an original as a whole.
///
/// # Errors
/// [`StoreError::Conflict`] if it has been replaced or deleted since the document was read.
pub async fn read_original(
    records: &dyn Records,
    company_id: &CompanyId,
    document_id: &str,
    content: &DocumentContent,
) -> Result<Bytes, StoreError> {
    let bytes = usize::try_from(content.bytes).unwrap_or_default();
    let set = PieceSet::of_original(document_id, &content.generation, bytes);
    read_pieces(records, company_id, &set, bytes).await
}

/// Returns all pieces of a set of an original, which has `bytes` bytes.
///
/// # Errors
/// [`StoreError::Conflict`] if the set has been deleted.
pub(crate) async fn read_pieces(
    records: &dyn Records,
    company_id: &CompanyId,
    set: &PieceSet,
    bytes: usize,
) -> Result<Bytes, StoreError> {
    let mut content = BytesMut::with_capacity(bytes);
    for piece in 0..set.pieces {
        if let Some(bytes) = read_piece(records, company_id, set, piece).await? {
            content.extend_from_slice(&bytes);
        }
    }
    Ok(content.freeze())
}

/// Returns the error of pieces that have been deleted since the document was read.
pub(super) fn replaced() -> StoreError {
    StoreError::Conflict { expected: None, found: None }
}

pub(super) fn page_starts_id(generation: &str) -> String {
    format!("{generation}-pages")
}

pub(super) fn pending_key(company_id: &CompanyId, generation: &str) -> Result<Key, StoreError> {
    Key::new(company_id, PENDING_COLLECTION, generation)
}
