//! Stored indexes of documents: values that are derived from a document's text at one version.
//!
//! An index is a record beside the document, in base64, and longer ones are continued in further records. It is stored
//! only while the document is at the version that it was made from, so that it is gone with the document and never
//! newer. One that is older than its document is left out, and replaced when the document is searched.

use agent_core::ids::CompanyId;
use agent_retrieval::doc_index::DocIndex;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::{Deserialize, Serialize};

use super::collection;
use crate::records::{Collection, Key, Precondition, Records, RecordsExt, StoreError, Write, to_json};

/// Maximum number of bytes of an index in one record, before their encoding.
const PIECE_BYTES: usize = 384 * 1024;
/// Maximum number of records of an index: 48 MiB, more than the longest text of a document needs.
const MAX_PIECES: usize = 128;
/// Number of indexes that are read at a time.
const READ_BATCH_SIZE: usize = 8;

/// The record of an index, with its first piece.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredIndex {
    /// Version of the document's record that the index was made from.
    version: u64,
    /// Number of further pieces.
    further_pieces: usize,
    data: String,
}

fn head_key(company_id: &CompanyId, id: &str) -> Result<Key, StoreError> {
    Key::new(company_id, collection::DOCUMENT_INDEXES, id)
}

fn pieces(company_id: &CompanyId, id: &str) -> Result<Collection, StoreError> {
    Collection::new(company_id, collection::DOCUMENT_INDEXES)?.within(id)
}

fn piece_key(company_id: &CompanyId, id: &str, number: usize) -> Result<Key, StoreError> {
    pieces(company_id, id)?.key(format!("{number:03}"))
}

/// Returns the stored indexes of documents at these versions, in their order; `None` for one that is absent, of another
/// version, of another format, or damaged.
pub(crate) async fn load_document_indexes(
    records: &dyn Records,
    company_id: &CompanyId,
    documents: &[(String, u64)],
) -> Result<Vec<Option<DocIndex>>, StoreError> {
    let mut indexes = Vec::with_capacity(documents.len());
    for batch in documents.chunks(READ_BATCH_SIZE) {
        let keys = batch.iter().map(|(id, _)| head_key(company_id, id)).collect::<Result<Vec<_>, _>>()?;
        let heads = records.get_many_as::<StoredIndex>(&keys).await?;
        for ((id, version), head) in batch.iter().zip(heads) {
            let head = head.map(|record| record.value).filter(|head| head.version == *version);
            indexes.push(match head {
                Some(head) => decode(records, company_id, id, head).await?,
                None => None,
            });
        }
    }
    Ok(indexes)
}

async fn decode(
    records: &dyn Records,
    company_id: &CompanyId,
    id: &str,
    head: StoredIndex,
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

/// Stores the index of a document that is still at `version`. Returns false if it is not, or if the index is too large
/// to be stored.
pub(crate) async fn store_document_index(
    records: &dyn Records,
    company_id: &CompanyId,
    (id, version): (&str, u64),
    index: &[u8],
) -> Result<bool, StoreError> {
    let encoded: Vec<String> = index.chunks(PIECE_BYTES).map(|piece| STANDARD_NO_PAD.encode(piece)).collect();
    let Some((data, further)) = encoded.split_first() else { return Ok(false) };
    if further.len() > MAX_PIECES {
        return Ok(false);
    }
    let document = Key::new(company_id, collection::DOCUMENTS, id)?;
    let mut writes = vec![Write::Check { key: document, precondition: Precondition::Version(version) }];
    let head = StoredIndex { version, further_pieces: further.len(), data: data.clone() };
    let key = head_key(company_id, id)?;
    let found = records.get_as::<StoredIndex>(&key).await?;
    writes.push(Write::Put { key, value: to_json(&head)?, precondition: Precondition::Any });
    for (number, piece) in (1..).zip(further) {
        let key = piece_key(company_id, id, number)?;
        writes.push(Write::Put { key, value: to_json(piece)?, precondition: Precondition::Any });
    }
    let found_pieces = found.map_or(0, |found| found.value.further_pieces).min(MAX_PIECES);
    writes.extend(piece_deletions(company_id, id, further.len() + 1..=found_pieces)?);
    match records.commit(writes).await {
        Ok(_) => Ok(true),
        Err(StoreError::Conflict { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the writes that delete the index of a document, under the condition that it stays as it is.
pub(super) async fn index_deletions(
    records: &dyn Records,
    company_id: &CompanyId,
    id: &str,
) -> Result<Vec<Write>, StoreError> {
    let key = head_key(company_id, id)?;
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
