//! Stored indexes of documents: values that are derived from a document's text at one version.
//!
//! An index is a record beside the document, in base64, and longer ones are continued in further records. Vectors that a long
//! one gets slice by slice follow it in separate records until all are there. It is stored
//! only while the document is at the version that it was made from, so that it is gone with the document and never
//! newer. One that is older than its document is left out, and replaced when the document is searched. If only other parts of
//! the document have changed than its text and title, such as the state of its upload, the index stays and gets the new version.
//!
//! A process that has vectors in memory does not read them again. So the commit that drops stored vectors also writes a
//! record of the company, whose version each search reads with those of the documents.

use std::sync::Arc;

use agent_core::ids::CompanyId;
use agent_retrieval::doc_index::{DocIndex, Vectors};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::{Deserialize, Serialize};

use super::collection;
use super::index_status::{EmbeddingFailure, IndexStatus};
use crate::records::{
    Collection, Key, Precondition, Record, Records, RecordsExt, StoreError, Write, to_json,
};

/// Maximum number of bytes of an index in one record, before their encoding.
const PIECE_BYTES: usize = 384 * 1024;
/// Maximum number of records of an index: 48 MiB, more than the longest text of a document needs.
const MAX_PIECES: usize = 128;
/// Number of indexes that are read at a time.
const READ_BATCH_SIZE: usize = 8;

/// The record of an index, with the index itself if it is one piece. It is read for each account of the document and written
/// with each slice of vectors, so that of a longer index has no piece. Versions before have stored the first piece there.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredIndex {
    /// Version of the document's record that the index was made from.
    version: u64,
    /// Number of further pieces.
    further_pieces: usize,
    /// Number of records at the end that contain slices of vectors, which were stored after the index.
    #[serde(default, skip_serializing_if = "is_zero")]
    slice_pieces: usize,
    /// Account of the index; absent in records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<IndexStatus>,
    /// Digest of the text and of the other analyzed fields; absent in records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source_digest: Option<String>,
    data: String,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// A document at a version of its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexedDocument {
    pub(crate) id: String,
    pub(crate) version: u64,
    /// Digest of the inputs of the index; `None` if it is not known.
    pub(crate) source_digest: Option<String>,
}

/// An index as it was stored.
pub(crate) struct StoredDocIndex {
    pub(crate) index: DocIndex,
    /// Version of the document's record that the index was made from.
    pub(crate) version: u64,
    /// Version of the index's own record, which grows when the document gets vectors.
    pub(crate) record_version: u64,
    /// Digest of the inputs of the index; `None` if it is not known.
    pub(crate) source_digest: Option<String>,
    pub(crate) slices: StoredSlices,
}

/// Position of the next slice of vectors in a stored index.
#[derive(Default, PartialEq, Eq)]
pub(crate) struct StoredSlices {
    /// Checksum of the index without its slices.
    pub(crate) index_checksum: u64,
    further_pieces: usize,
    /// The last piece of slices, which has room for more.
    last_piece: Vec<u8>,
}

impl StoredSlices {
    /// Returns true if the index is so large that it is not written again for each slice, and there is room for a slice of this
    /// size.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let more = (self.last_piece.len() + bytes).div_ceil(PIECE_BYTES);
        self.further_pieces > 0 && self.further_pieces + more <= MAX_PIECES
    }

    /// Returns the position of the first slice behind an encoded index. One that is none is written again as a whole.
    pub(crate) fn behind_index(encoded: &[u8]) -> Self {
        let checksum = DocIndex::checksum_of(encoded);
        let pieces = encoded.len().div_ceil(PIECE_BYTES);
        let further_pieces = if pieces > 1 { pieces } else { 0 };
        let of = |index_checksum| Self { index_checksum, further_pieces, last_piece: Vec::new() };
        checksum.map(of).unwrap_or_default()
    }

    /// Returns the position behind a slice that was appended.
    pub(crate) fn behind_slice(mut self, slice: &[u8]) -> Self {
        let kept_pieces = self.kept_pieces();
        self.last_piece.extend_from_slice(slice);
        self.further_pieces = kept_pieces + self.last_piece.len().div_ceil(PIECE_BYTES);
        let full_bytes = self.last_piece.len() / PIECE_BYTES * PIECE_BYTES;
        self.last_piece.drain(..full_bytes);
        self
    }

    /// Returns the number of further pieces that are not written again with the next slice.
    fn kept_pieces(&self) -> usize {
        // The last piece is filled up before others follow.
        self.further_pieces - usize::from(!self.last_piece.is_empty())
    }
}

/// An index as it was read, to be decoded. That takes a while for a large one.
pub(crate) struct EncodedDocIndex {
    version: u64,
    record_version: u64,
    source_digest: Option<String>,
    slice_pieces: usize,
    pieces: Vec<String>,
}

/// A decoded index.
pub(crate) enum DecodedDocIndex {
    /// An index of the present format.
    Current(Box<StoredDocIndex>),
    /// Vectors of an index of the format before or by another chunker, whose record has this version.
    Vectors(Arc<Vectors>, u64),
    /// An index that is damaged, of an old format or by another chunker, whose record has this version.
    Unusable(u64),
}

impl DecodedDocIndex {
    /// Returns the index, if it is of the present format.
    pub(crate) fn into_current(self) -> Option<StoredDocIndex> {
        match self {
            Self::Current(stored) => Some(*stored),
            Self::Vectors(..) | Self::Unusable(_) => None,
        }
    }

    /// Returns the version of the index's own record.
    pub(crate) fn record_version(&self) -> u64 {
        match self {
            Self::Current(stored) => stored.record_version,
            Self::Vectors(_, record_version) | Self::Unusable(record_version) => *record_version,
        }
    }
}

impl EncodedDocIndex {
    /// Returns the size in bytes, as it was stored.
    pub(crate) fn stored_bytes(&self) -> usize {
        self.pieces.iter().map(String::len).sum()
    }

    /// Decodes the index.
    pub(crate) fn decode(self) -> DecodedDocIndex {
        let Self { version, record_version, source_digest, slice_pieces, pieces } = self;
        let (index_pieces, slices) = pieces.split_at(pieces.len().saturating_sub(slice_pieces));
        let bytes = decode_pieces(index_pieces);
        // A value that was replaced between the reads has a wrong checksum.
        let index = DocIndex::decode_with_slices(&bytes, &decode_pieces(slices)).ok();
        let Some((index, index_checksum)) = index.zip(DocIndex::checksum_of(&bytes)) else {
            return match DocIndex::decode_vectors(&bytes) {
                Some(vectors) => DecodedDocIndex::Vectors(vectors, record_version),
                None => DecodedDocIndex::Unusable(record_version),
            };
        };
        let last_piece = decode_pieces(&slices[slices.len().saturating_sub(1)..]);
        let slices = StoredSlices {
            index_checksum,
            further_pieces: pieces.len() - 1,
            last_piece: if last_piece.len() < PIECE_BYTES { last_piece } else { Vec::new() },
        };
        let stored = StoredDocIndex { index, version, record_version, source_digest, slices };
        DecodedDocIndex::Current(Box::new(stored))
    }
}

/// Result of a write in place of a stored index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IndexReplacement {
    /// The index is stored, and its record has this version.
    Stored(u64),
    /// The document or its stored index has changed.
    Changed,
    /// The index is too large.
    TooLarge,
}

/// Decodes the pieces of a value; a damaged one is left out, which its checksum shows.
fn decode_pieces(pieces: &[String]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in pieces {
        bytes.extend(STANDARD_NO_PAD.decode(piece).unwrap_or_default());
    }
    bytes
}

/// Returns the key of the record of a document's index.
pub(crate) fn index_key(company_id: &CompanyId, id: &str) -> Result<Key, StoreError> {
    Key::new(company_id, collection::DOCUMENT_INDEXES, id)
}

fn pieces(company_id: &CompanyId, id: &str) -> Result<Collection, StoreError> {
    Collection::new(company_id, collection::DOCUMENT_INDEXES)?.within(id)
}

fn piece_key(company_id: &CompanyId, id: &str, number: usize) -> Result<Key, StoreError> {
    pieces(company_id, id)?.key(format!("{number:03}"))
}

/// Returns the stored indexes of documents, in their order; `None` for one that is absent. They may be older than the
/// documents.
pub(crate) async fn load_document_indexes(
    records: &dyn Records,
    company_id: &CompanyId,
    ids: &[String],
) -> Result<Vec<Option<EncodedDocIndex>>, StoreError> {
    let mut indexes = Vec::with_capacity(ids.len());
    for batch in ids.chunks(READ_BATCH_SIZE) {
        let keys = batch.iter().map(|id| index_key(company_id, id)).collect::<Result<Vec<_>, _>>()?;
        let heads = records.get_many_as::<StoredIndex>(&keys).await?;
        for (id, head) in batch.iter().zip(heads) {
            indexes.push(match head {
                Some(head) => Some(read_index(records, company_id, id, head).await?),
                None => None,
            });
        }
    }
    Ok(indexes)
}

/// Returns the key of the record that is written whenever vectors of a company's documents are dropped.
pub(crate) fn vector_drops_key(company_id: &CompanyId) -> Result<Key, StoreError> {
    Key::new(company_id, collection::VECTOR_DROPS, "company")
}

/// Replaces the stored index of a document by the index without vectors, if its record still has the version `replaced`.
///
/// Every process sees it with its next search. The document lacks vectors then, and nothing else records that it waits for
/// them.
pub(crate) async fn drop_index_vectors(
    records: &dyn Records,
    company_id: &CompanyId,
    document: &IndexedDocument,
    (status, encoded): (&IndexStatus, &[u8]),
    replaced: u64,
) -> Result<IndexReplacement, StoreError> {
    let Some(head) = get_index_head(records, company_id, &document.id, replaced).await? else {
        return Ok(IndexReplacement::Changed);
    };
    // The index may be older than its document, whose next index would take the vectors over.
    let writes = index_writes(company_id, document, (status, encoded), Some(&head))?;
    let Some(mut writes) = writes else { return Ok(IndexReplacement::TooLarge) };
    let (key, value) = (vector_drops_key(company_id)?, to_json(&document.id)?);
    writes.push(Write::Put { key, value, precondition: Precondition::Any });
    let stored = commit_index(records, writes).await?;
    Ok(stored.map_or(IndexReplacement::Changed, IndexReplacement::Stored))
}

/// Returns the status of a document's index; `None` if the document is not indexed at this version.
///
/// # Errors
/// Errors of the store.
pub async fn document_index_status(
    records: &dyn Records,
    company_id: &CompanyId,
    id: &str,
    version: u64,
) -> Result<Option<IndexStatus>, StoreError> {
    let head = records.get_as::<StoredIndex>(&index_key(company_id, id)?).await?;
    Ok(head.filter(|head| head.value.version == version).and_then(|head| head.value.status))
}

/// Reads the further pieces of an index.
async fn read_index(
    records: &dyn Records,
    company_id: &CompanyId,
    id: &str,
    head: Record<StoredIndex>,
) -> Result<EncodedDocIndex, StoreError> {
    let StoredIndex { version, further_pieces, slice_pieces, source_digest, data, .. } = head.value;
    let mut pieces = vec![data];
    let numbers = 1..=further_pieces.min(MAX_PIECES);
    let keys = numbers.map(|number| piece_key(company_id, id, number)).collect::<Result<Vec<_>, _>>()?;
    if !keys.is_empty() {
        let further = records.get_many_as::<String>(&keys).await?;
        pieces.extend(further.into_iter().flatten().map(|piece| piece.value));
    }
    let record_version = head.version;
    Ok(EncodedDocIndex { version, record_version, source_digest, slice_pieces, pieces })
}

/// Replaces the index of a document, if the document is still at its version and the record of the index at the version
/// `replaced`; `None` stands for no record.
pub(crate) async fn replace_document_index(
    records: &dyn Records,
    company_id: &CompanyId,
    document: &IndexedDocument,
    (status, encoded): (&IndexStatus, &[u8]),
    replaced: Option<u64>,
) -> Result<IndexReplacement, StoreError> {
    let found = records.get_as::<StoredIndex>(&index_key(company_id, &document.id)?).await?;
    if found.as_ref().map(|found| found.version) != replaced {
        return Ok(IndexReplacement::Changed);
    }
    let writes = index_writes(company_id, document, (status, encoded), found.as_ref())?;
    let Some(mut writes) = writes else { return Ok(IndexReplacement::TooLarge) };
    writes.push(document_check(company_id, document)?);
    let stored = commit_index(records, writes).await?;
    Ok(stored.map_or(IndexReplacement::Changed, IndexReplacement::Stored))
}

/// Sets the version of a document's stored index, whose record has the version `kept`, to that of the document, if both are
/// still at their versions. The document must have the text that the index was made from.
pub(crate) async fn keep_document_index(
    records: &dyn Records,
    company_id: &CompanyId,
    document: &IndexedDocument,
    record_version: u64,
) -> Result<IndexReplacement, StoreError> {
    let Some(head) = get_index_head(records, company_id, &document.id, record_version).await? else {
        return Ok(IndexReplacement::Changed);
    };
    let index = StoredIndex { version: document.version, ..head.value };
    let (key, value) = (index_key(company_id, &document.id)?, to_json(&index)?);
    let precondition = Precondition::Version(record_version);
    let writes = vec![Write::Put { key, value, precondition }, document_check(company_id, document)?];
    let stored = commit_index(records, writes).await?;
    Ok(stored.map_or(IndexReplacement::Changed, IndexReplacement::Stored))
}

/// Appends a slice of vectors to the stored index of a document, if the document is still at its version and the index's record
/// at the version `replaced`. The writes are as large as the slice, and one piece at most beside it.
pub(crate) async fn append_vector_slice(
    records: &dyn Records,
    company_id: &CompanyId,
    document: &IndexedDocument,
    (status, slice, slices): (&IndexStatus, &[u8], &StoredSlices),
    replaced: u64,
) -> Result<IndexReplacement, StoreError> {
    let IndexedDocument { id, .. } = document;
    let Some(head) = get_index_head(records, company_id, id, replaced).await? else {
        return Ok(IndexReplacement::Changed);
    };
    let mut head = head.value;
    let kept_pieces = slices.kept_pieces();
    let bytes = [&slices.last_piece[..], slice].concat();
    let mut writes = Vec::new();
    for (number, piece) in (kept_pieces + 1..).zip(bytes.chunks(PIECE_BYTES)) {
        let (key, piece) = (piece_key(company_id, id, number)?, STANDARD_NO_PAD.encode(piece));
        writes.push(Write::Put { key, value: to_json(&piece)?, precondition: Precondition::Any });
    }
    let further_pieces = kept_pieces + writes.len();
    head.slice_pieces += further_pieces - head.further_pieces;
    head.further_pieces = further_pieces;
    head.status = Some(status.clone());
    let precondition = Precondition::Version(replaced);
    writes.insert(0, Write::Put { key: index_key(company_id, id)?, value: to_json(&head)?, precondition });
    writes.push(document_check(company_id, document)?);
    let stored = commit_index(records, writes).await?;
    Ok(stored.map_or(IndexReplacement::Changed, IndexReplacement::Stored))
}

/// Records a failure in the status of the index whose record has the version `replaced`. Returns the record's new version;
/// `None` if the index has changed, or has no account.
pub(crate) async fn record_embedding_failure(
    records: &dyn Records,
    company_id: &CompanyId,
    id: &str,
    (replaced, failure): (u64, EmbeddingFailure),
) -> Result<Option<u64>, StoreError> {
    let Some(head) = get_index_head(records, company_id, id, replaced).await? else { return Ok(None) };
    let mut index = head.value;
    let Some(status) = &mut index.status else { return Ok(None) };
    status.embedding_failure = Some(failure);
    let (key, value) = (index_key(company_id, id)?, to_json(&index)?);
    match records.put(&key, value, Precondition::Version(replaced)).await {
        Ok(version) => Ok(Some(version)),
        Err(StoreError::Conflict { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the record of a document's index, if it is at this version.
async fn get_index_head(
    records: &dyn Records,
    company_id: &CompanyId,
    id: &str,
    record_version: u64,
) -> Result<Option<Record<StoredIndex>>, StoreError> {
    let found = records.get_as::<StoredIndex>(&index_key(company_id, id)?).await?;
    Ok(found.filter(|found| found.version == record_version))
}

/// Returns the writes that store an index in place of the one that was found, that of the index's record first; `None` if
/// it is too large.
fn index_writes(
    company_id: &CompanyId,
    document: &IndexedDocument,
    (status, encoded): (&IndexStatus, &[u8]),
    found: Option<&Record<StoredIndex>>,
) -> Result<Option<Vec<Write>>, StoreError> {
    let IndexedDocument { id, version, source_digest } = document;
    let pieces: Vec<String> =
        encoded.chunks(PIECE_BYTES).map(|piece| STANDARD_NO_PAD.encode(piece)).collect();
    let (data, further) = match &pieces[..] {
        [data] => (data.clone(), &pieces[1..]),
        further => (String::new(), further),
    };
    if pieces.is_empty() || further.len() > MAX_PIECES {
        return Ok(None);
    }
    let head = StoredIndex {
        version: *version,
        further_pieces: further.len(),
        slice_pieces: 0,
        status: Some(status.clone()),
        source_digest: source_digest.clone(),
        data,
    };
    let key = index_key(company_id, id)?;
    let precondition = found.map_or(Precondition::Absent, |found| Precondition::Version(found.version));
    let mut writes = vec![Write::Put { key, value: to_json(&head)?, precondition }];
    for (number, piece) in (1..).zip(further) {
        let key = piece_key(company_id, id, number)?;
        writes.push(Write::Put { key, value: to_json(piece)?, precondition: Precondition::Any });
    }
    let found_pieces = found.map_or(0, |found| found.value.further_pieces).min(MAX_PIECES);
    writes.extend(piece_deletions(company_id, id, further.len() + 1..=found_pieces)?);
    Ok(Some(writes))
}

/// Returns the write that fails if a document is not at its version.
fn document_check(company_id: &CompanyId, document: &IndexedDocument) -> Result<Write, StoreError> {
    let key = Key::new(company_id, collection::DOCUMENTS, document.id.as_str())?;
    Ok(Write::Check { key, precondition: Precondition::Version(document.version) })
}

/// Commits the writes of an index and returns the version of the first; `None` if a precondition does not hold.
async fn commit_index(records: &dyn Records, writes: Vec<Write>) -> Result<Option<u64>, StoreError> {
    match records.commit(writes).await {
        Ok(versions) => Ok(versions.into_iter().next().flatten()),
        Err(StoreError::Conflict { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the writes that delete the index of a document, under the condition that it stays as it is.
pub(super) async fn index_deletions(
    records: &dyn Records,
    company_id: &CompanyId,
    id: &str,
) -> Result<Vec<Write>, StoreError> {
    let key = index_key(company_id, id)?;
    let Some(found) = records.get_as::<StoredIndex>(&key).await? else {
        return Ok(vec![Write::Check { key, precondition: Precondition::Absent }]);
    };
    let mut writes = piece_deletions(company_id, id, 1..=found.value.further_pieces.min(MAX_PIECES))?;
    writes.push(Write::Delete { key, precondition: Precondition::Version(found.version) });
    Ok(writes)
}

fn piece_deletions(
    company_id: &CompanyId,
    id: &str,
    numbers: impl Iterator<Item = usize>,
) -> Result<Vec<Write>, StoreError> {
    let deletion = |number| {
        Ok(Write::Delete { key: piece_key(company_id, id, number)?, precondition: Precondition::Any })
    };
    numbers.map(deletion).collect()
}

#[cfg(test)]
mod tests;
