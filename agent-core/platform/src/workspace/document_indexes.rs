//! Stored indexes of documents: values that are derived from a document's text at one version.
//!
//! An index is a record beside the document, in base64, and longer ones are continued in further records. It is stored
//! only while the document is at the version that it was made from, so that it is gone with the document and never
//! newer. One that is older than its document is left out, and replaced when the document is searched.
//!
//! A process that has vectors in memory does not read them again. So the commit that drops stored vectors also writes a
//! record of the company, whose version each search reads with those of the documents.

use std::time::Duration;

use agent_core::ids::CompanyId;
use agent_retrieval::doc_index::{DocIndex, Vectors};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::collection;
use crate::records::{
    Collection, Key, Precondition, Record, Records, RecordsExt, StoreError, Write, to_json,
};

/// Maximum number of bytes of an index in one record, before their encoding.
const PIECE_BYTES: usize = 384 * 1024;
/// Maximum number of records of an index: 48 MiB, more than the longest text of a document needs.
const MAX_PIECES: usize = 128;
/// Number of indexes that are read at a time.
const READ_BATCH_SIZE: usize = 8;
/// Maximum number of attempts to drop the vectors of a document whose index is being changed.
const DROP_ATTEMPTS: usize = 16;

/// The record of an index, with its first piece.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredIndex {
    /// Version of the document's record that the index was made from.
    version: u64,
    /// Number of further pieces.
    further_pieces: usize,
    /// Account of the index; absent in records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<IndexStatus>,
    data: String,
}

/// Account of a document's index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IndexStatus {
    /// Number of chunks.
    pub chunks: usize,
    /// ISO 639-1 code of the language, or `und`.
    pub language: String,
    /// Identifier of the embedding model that made the vectors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embedder: Option<String>,
    /// Number of chunks with a vector.
    pub embedded: usize,
    /// Last failure to embed the chunks that have no vector; absent once some of them have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embedding_failure: Option<EmbeddingFailure>,
}

/// Failure to embed chunks of a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EmbeddingFailure {
    /// Cause of the failure.
    pub reason: EmbeddingFailureReason,
    /// Number of attempts in a row that have failed in the process that made the last one.
    pub failures: u32,
    /// Earliest time of the next attempt, RFC 3339 in UTC; absent if the document is not tried again until it changes, until it
    /// is embedded again on demand, or until the process starts anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub retry_at: Option<Timestamp>,
}

/// Cause of a failure to embed chunks of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum EmbeddingFailureReason {
    /// The embedding model cannot be reached, is overloaded, or has not answered in time.
    Unavailable,
    /// The embedding model has answered other than one vector for each chunk, all of one length and finite.
    InvalidAnswer,
    /// The embedding model has rejected the chunks.
    Rejected,
    /// The index is too large with its vectors.
    TooLarge,
}

impl IndexStatus {
    pub(crate) fn of(index: &DocIndex) -> Self {
        Self {
            chunks: index.chunk_count(),
            language: index.language().iso_code().to_owned(),
            embedder: index.vectors().map(|vectors| vectors.embedder().to_owned()),
            embedded: index.vectors().map_or(0, Vectors::present),
            embedding_failure: None,
        }
    }
}

/// A document at a version of its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexedDocument {
    pub(crate) id: String,
    pub(crate) version: u64,
}

/// An index as it was stored.
pub(crate) struct StoredDocIndex {
    pub(crate) index: DocIndex,
    /// Version of the document's record that the index was made from.
    pub(crate) version: u64,
    /// Version of the index's own record, which grows when the document gets vectors.
    pub(crate) record_version: u64,
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

/// Returns the stored indexes of documents, in their order; `None` for one that is absent, of another format, or
/// damaged. They may be older than the documents.
pub(crate) async fn load_document_indexes(
    records: &dyn Records,
    company_id: &CompanyId,
    ids: &[String],
) -> Result<Vec<Option<StoredDocIndex>>, StoreError> {
    let mut indexes = Vec::with_capacity(ids.len());
    for batch in ids.chunks(READ_BATCH_SIZE) {
        let keys = batch.iter().map(|id| index_key(company_id, id)).collect::<Result<Vec<_>, _>>()?;
        let heads = records.get_many_as::<StoredIndex>(&keys).await?;
        for (id, head) in batch.iter().zip(heads) {
            let Some(head) = head else {
                indexes.push(None);
                continue;
            };
            let (version, record_version) = (head.value.version, head.version);
            let index = decode(records, company_id, id, &head.value).await?;
            indexes.push(index.map(|index| StoredDocIndex { index, version, record_version }));
        }
    }
    Ok(indexes)
}

/// Returns the key of the record that is written whenever vectors of a company's documents are dropped.
pub(crate) fn vector_drops_key(company_id: &CompanyId) -> Result<Key, StoreError> {
    Key::new(company_id, collection::VECTOR_DROPS, "company")
}

/// Drops the stored vectors of a document, so that it is embedded anew. Returns false if it has none.
///
/// Every process sees it with its next search. The document lacks vectors then, and nothing else records that it waits for
/// them.
///
/// # Errors
/// Those of the store.
pub async fn drop_document_vectors(
    records: &dyn Records,
    company_id: &CompanyId,
    id: &str,
) -> Result<bool, StoreError> {
    let ids = [id.to_owned()];
    for _ in 0..DROP_ATTEMPTS {
        let found = load_document_indexes(records, company_id, &ids).await?.pop().flatten();
        let Some(StoredDocIndex { index, version, record_version }) = found else { return Ok(false) };
        if index.vectors().is_none() {
            return Ok(false);
        }
        let index = index.without_vectors();
        let (status, encoded) = (IndexStatus::of(&index), index.encode());
        let Some(head) = get_index_head(records, company_id, id, record_version).await? else { continue };
        // The index may be older than its document, whose next index would take the vectors over.
        let document = IndexedDocument { id: id.to_owned(), version };
        let writes = index_writes(company_id, &document, (&status, &encoded), Some(&head))?;
        let Some(mut writes) = writes else { return Ok(false) };
        let (key, value) = (vector_drops_key(company_id)?, to_json(&id)?);
        writes.push(Write::Put { key, value, precondition: Precondition::Any });
        if commit_index(records, writes).await?.is_some() {
            return Ok(true);
        }
    }
    Err(StoreError::unavailable("the index of the document is changed again and again"))
}

/// Returns the account of a document's index; `None` if the document is not indexed at this version.
///
/// # Errors
/// Those of the store.
pub async fn document_index_status(
    records: &dyn Records,
    company_id: &CompanyId,
    id: &str,
    version: u64,
) -> Result<Option<IndexStatus>, StoreError> {
    let head = records.get_as::<StoredIndex>(&index_key(company_id, id)?).await?;
    Ok(head.filter(|head| head.value.version == version).and_then(|head| head.value.status))
}

/// Lease on the embedding of a company's documents.
#[derive(Serialize, Deserialize)]
struct EmbeddingLease {
    /// The process.
    owner: String,
    until: Timestamp,
}

/// A lease that this process has taken.
pub(crate) struct EmbeddingClaim {
    key: Key,
    version: u64,
}

/// Takes the lease on the embedding of a company's documents; `None` if another process has it.
pub(crate) async fn claim_embedding(
    records: &dyn Records,
    company_id: &CompanyId,
    owner: &str,
    now: Timestamp,
    lease: Duration,
) -> Result<Option<EmbeddingClaim>, StoreError> {
    let key = Key::new(company_id, collection::EMBEDDING_LEASES, "company")?;
    let found = records.get_as::<EmbeddingLease>(&key).await?;
    if found.as_ref().is_some_and(|found| found.value.owner != owner && found.value.until > now) {
        return Ok(None);
    }
    let precondition = found.map_or(Precondition::Absent, |found| Precondition::Version(found.version));
    let until = now.saturating_add(lease).unwrap_or(Timestamp::MAX);
    let value = to_json(&EmbeddingLease { owner: owner.to_owned(), until })?;
    match records.put(&key, value, precondition).await {
        Ok(version) => Ok(Some(EmbeddingClaim { key, version })),
        Err(StoreError::Conflict { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Ends a lease, unless another process has taken it.
pub(crate) async fn release_embedding(
    records: &dyn Records,
    claim: EmbeddingClaim,
) -> Result<(), StoreError> {
    match records.delete(&claim.key, Precondition::Version(claim.version)).await {
        Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

async fn decode(
    records: &dyn Records,
    company_id: &CompanyId,
    id: &str,
    head: &StoredIndex,
) -> Result<Option<DocIndex>, StoreError> {
    let mut bytes = STANDARD_NO_PAD.decode(&head.data).unwrap_or_default();
    if head.further_pieces > 0 {
        let numbers = 1..=head.further_pieces.min(MAX_PIECES);
        let keys = numbers.map(|number| piece_key(company_id, id, number)).collect::<Result<Vec<_>, _>>()?;
        for piece in records.get_many_as::<String>(&keys).await?.into_iter().flatten() {
            bytes.extend(STANDARD_NO_PAD.decode(&piece.value).unwrap_or_default());
        }
    }
    // A value that was replaced between the reads has a wrong checksum.
    Ok(DocIndex::decode(&bytes).ok())
}

/// Stores the index of a document that is still at its version. An index without vectors does not replace one of the same
/// version, which another process has stored, perhaps with vectors; it replaces one that cannot be decoded, such as that of
/// another format.
pub(crate) async fn store_document_index(
    records: &dyn Records,
    company_id: &CompanyId,
    document: &IndexedDocument,
    (status, encoded): (&IndexStatus, &[u8]),
) -> Result<IndexReplacement, StoreError> {
    let found = records.get_as::<StoredIndex>(&index_key(company_id, &document.id)?).await?;
    let is_same_version = |head: &&StoredIndex| head.version == document.version && head.status.is_some();
    if status.embedder.is_none()
        && let Some(head) = found.as_ref().map(|found| &found.value).filter(is_same_version)
        && decode(records, company_id, &document.id, head).await?.is_some()
    {
        return Ok(IndexReplacement::Changed);
    }
    commit_replacement(records, company_id, document, (status, encoded), found.as_ref()).await
}

/// Stores the index of a document in place of the one whose record has the version `replaced`, if the document and that
/// record are still at their versions.
pub(crate) async fn replace_document_index(
    records: &dyn Records,
    company_id: &CompanyId,
    document: &IndexedDocument,
    (status, encoded): (&IndexStatus, &[u8]),
    replaced: u64,
) -> Result<IndexReplacement, StoreError> {
    let Some(head) = get_index_head(records, company_id, &document.id, replaced).await? else {
        return Ok(IndexReplacement::Changed);
    };
    commit_replacement(records, company_id, document, (status, encoded), Some(&head)).await
}

/// Records a failure in the account of the index whose record has the version `replaced`. Returns the record's new version;
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

/// Commits an index in place of the one that was found, if both it and the document are still at their versions.
async fn commit_replacement(
    records: &dyn Records,
    company_id: &CompanyId,
    document: &IndexedDocument,
    (status, encoded): (&IndexStatus, &[u8]),
    found: Option<&Record<StoredIndex>>,
) -> Result<IndexReplacement, StoreError> {
    let writes = index_writes(company_id, document, (status, encoded), found)?;
    let Some(mut writes) = writes else { return Ok(IndexReplacement::TooLarge) };
    writes.push(document_check(company_id, document)?);
    let stored = commit_index(records, writes).await?;
    Ok(stored.map_or(IndexReplacement::Changed, IndexReplacement::Stored))
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
    let IndexedDocument { id, version } = document;
    let pieces: Vec<String> =
        encoded.chunks(PIECE_BYTES).map(|piece| STANDARD_NO_PAD.encode(piece)).collect();
    let Some((data, further)) = pieces.split_first() else { return Ok(None) };
    if further.len() > MAX_PIECES {
        return Ok(None);
    }
    let status = Some(status.clone());
    let head = StoredIndex { version: *version, further_pieces: further.len(), status, data: data.clone() };
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
