//! Deletion of pieces that no document names: pieces of interrupted uploads and extractions, and of documents that a
//! process of an older version has replaced.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::pieces::{PENDING_COLLECTION, PendingRecord, PieceSet};
use crate::records::{
    Collection, Key, ListQuery, MAX_PAGE_RECORDS, Precondition, Records, RecordsExt, StoreError, Write,
};
use crate::workspace::{Document, collection};
use agent_core::ids::CompanyId;

/// Collection of the records of documents' uploads, one per document.
pub const STORED_COLLECTION: &str = "documentOriginals";

/// Stored pieces of a document's upload.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StoredContent {
    /// Identifier of the upload.
    pub(super) generation: String,
    /// Size of the original, in bytes.
    pub(super) bytes: u64,
    /// The pieces.
    pub(super) sets: Vec<PieceSet>,
}

pub(super) fn stored_key(company_id: &CompanyId, document_id: &str) -> Result<Key, StoreError> {
    Key::new(company_id, STORED_COLLECTION, document_id)
}

/// Deletes the pieces on one page of a company's pending ones that have expired, and returns the cursor of the next
/// page.
///
/// # Errors
/// Errors of the store.
pub async fn sweep_pending_pieces(
    records: &dyn Records,
    company_id: &CompanyId,
    cursor: Option<String>,
    now: Timestamp,
) -> Result<Option<String>, StoreError> {
    let pending = Collection::new(company_id, PENDING_COLLECTION)?;
    let list = ListQuery { limit: Some(MAX_PAGE_RECORDS), cursor, ..ListQuery::default() };
    let page = records.list_as::<PendingRecord>(&pending, &list).await?;
    for record in page.records.into_iter().filter(|record| record.value.until < now) {
        let (key, precondition) = (pending.key(record.id)?, Precondition::Version(record.version));
        let writes = vec![Write::Delete { key, precondition }];
        delete_sets(records, company_id, writes, &[record.value.set]).await?;
    }
    Ok(page.next_cursor)
}

/// Deletes the pieces on one page of a company's stored contents that their document does not name, and returns the
/// cursor of the next page.
///
/// # Errors
/// Errors of the store.
pub async fn sweep_stored_contents(
    records: &dyn Records,
    company_id: &CompanyId,
    cursor: Option<String>,
) -> Result<Option<String>, StoreError> {
    let stored = Collection::new(company_id, STORED_COLLECTION)?;
    let list = ListQuery { limit: Some(MAX_PAGE_RECORDS), cursor, ..ListQuery::default() };
    let page = records.list_as::<StoredContent>(&stored, &list).await?;
    for record in page.records {
        let key = Key::new(company_id, collection::DOCUMENTS, record.id.as_str())?;
        let document = records.get_as::<Document>(&key).await?;
        let generation = document.as_ref().and_then(|document| document.value.generation());
        if generation == Some(&record.value.generation) {
            continue;
        }
        let check = unchanged_write(company_id, &record.id, document.map(|document| document.version))?;
        let (key, precondition) = (stored.key(record.id)?, Precondition::Version(record.version));
        let writes = vec![Write::Delete { key, precondition }, check];
        delete_sets(records, company_id, writes, &record.value.sets).await?;
    }
    Ok(page.next_cursor)
}

/// Returns the write that fails if a document is not at the version that was read; `None` stands for no document. A
/// decision that depends on the document needs it, since a cached read may be older than what it is compared with.
pub(crate) fn unchanged_write(
    company_id: &CompanyId,
    document_id: &str,
    version: Option<u64>,
) -> Result<Write, StoreError> {
    let key = Key::new(company_id, collection::DOCUMENTS, document_id)?;
    Ok(Write::Check { key, precondition: Precondition::unchanged_since(version) })
}

/// Deletes pieces in one commit with other writes; nothing is deleted if one of the writes fails.
async fn delete_sets(
    records: &dyn Records,
    company_id: &CompanyId,
    mut writes: Vec<Write>,
    sets: &[PieceSet],
) -> Result<(), StoreError> {
    for set in sets {
        writes.extend(set.delete_writes(company_id)?);
    }
    match records.commit(writes).await {
        Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
