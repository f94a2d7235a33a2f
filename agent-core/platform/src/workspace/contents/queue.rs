//! Rows of a document's upload besides its pieces: its stored content, and the task of its extraction.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::pieces::PieceSet;
use super::sweep::{StoredContent, stored_key};
use crate::records::{Collection, Key, Precondition, StoreError, Write, to_json};
use crate::workspace::{Document, DocumentContent};
use agent_core::ids::CompanyId;

/// Collection of the platform with the tasks, in one collection per company below this one.
pub(crate) const INGESTION_COLLECTION: &str = "documentIngestions";

/// Task to extract the text of an upload. It exists from the upload to the end of its extraction.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct IngestionTask {
    /// Identifier of the upload.
    pub(crate) generation: String,
    /// Number of attempts that have started.
    #[serde(default)]
    pub(crate) attempts: u32,
    /// Earliest time of the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) not_before: Option<Timestamp>,
    /// Claim of a process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lease: Option<TaskLease>,
}

/// Claim of a task. The version of the task's record is its fencing token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaskLease {
    /// Identity of the process.
    pub(crate) owner: String,
    /// Expiry of the claim.
    pub(crate) until: Timestamp,
}

impl IngestionTask {
    /// Returns true if a process may claim the task.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        self.not_before.is_none_or(|time| time <= now)
            && self.lease.as_ref().is_none_or(|lease| lease.until <= now)
    }
}

/// Returns the tasks of a company.
pub(crate) fn tasks_of(company_id: &CompanyId) -> Result<Collection, StoreError> {
    Collection::of_platform(INGESTION_COLLECTION)?.within(company_id)
}

pub(crate) fn task_key(company_id: &CompanyId, document_id: &str) -> Result<Key, StoreError> {
    tasks_of(company_id)?.key(document_id)
}

/// Returns the write that creates the task of an upload, or begins it again.
pub(in crate::workspace) fn task_write(
    document: &Document,
    content: &DocumentContent,
) -> Result<Write, StoreError> {
    let task = IngestionTask { generation: content.generation.clone(), ..IngestionTask::default() };
    let key = task_key(&document.company_id, &document.id)?;
    Ok(Write::Put { key, value: to_json(&task)?, precondition: Precondition::Any })
}

/// Returns the write that records the stored content of a document's upload.
pub(crate) fn stored_head_write(document: &Document) -> Result<Option<Write>, StoreError> {
    let Some(content) = &document.content else { return Ok(None) };
    let stored = StoredContent {
        generation: content.generation.clone(),
        bytes: content.bytes,
        sets: PieceSet::of_content(&document.id, content),
    };
    let key = stored_key(&document.company_id, &document.id)?;
    Ok(Some(Write::Put { key, value: to_json(&stored)?, precondition: Precondition::Any }))
}

/// Returns the writes that delete everything that belongs to a document's upload, for the commit that replaces or
/// deletes the document.
pub(in crate::workspace) fn release_writes(document: &Document) -> Result<Vec<Write>, StoreError> {
    let Some(content) = &document.content else { return Ok(Vec::new()) };
    let company_id = &document.company_id;
    let delete = |key| Write::Delete { key, precondition: Precondition::Any };
    let mut writes =
        vec![delete(stored_key(company_id, &document.id)?), delete(task_key(company_id, &document.id)?)];
    for set in PieceSet::of_content(&document.id, content) {
        writes.extend(set.delete_writes(company_id)?);
    }
    Ok(writes)
}

/// Returns the writes that delete the text that an extraction has stored outside of the document's record.
pub(crate) fn text_release_writes(document: &Document) -> Result<Vec<Write>, StoreError> {
    let Some(content) = &document.content else { return Ok(Vec::new()) };
    match PieceSet::of_text_content(&document.id, content) {
        Some(set) => set.delete_writes(&document.company_id),
        None => Ok(Vec::new()),
    }
}
