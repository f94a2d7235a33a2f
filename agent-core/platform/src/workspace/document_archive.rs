//! Slots of the replaced versions of documents.

use std::time::SystemTime;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Document, collection, utc_time};
use crate::records::{Collection, Key, Precondition, Record, StoreError, Write, to_json};
use agent_core::ids::{CompanyId, UserId};

/// Maximum number of replaced versions kept of a document.
pub const MAX_DOCUMENT_VERSIONS: u64 = 20;

/// Replaced version of a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DocumentVersion {
    /// Revision of the document.
    pub revision: u64,
    /// Time at which this version was written.
    pub updated_at: String,
    /// User who wrote this version, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_by: Option<UserId>,
    /// Title of this version.
    #[serde(default)]
    pub title: String,
    /// Text of this version.
    #[serde(default)]
    pub text: String,
}

pub(super) fn versions(company_id: &CompanyId, id: &str) -> Result<Collection, StoreError> {
    Collection::new(company_id, collection::DOCUMENT_VERSIONS)?.within(id)
}

pub(super) fn slot_id(slot: u64) -> String {
    format!("{slot:02}")
}

pub(super) fn slot_key(company_id: &CompanyId, id: &str, revision: u64) -> Result<Key, StoreError> {
    versions(company_id, id)?.key(slot_id(revision % MAX_DOCUMENT_VERSIONS))
}

/// Returns the write that keeps a document as a replaced version; `None` if its record does not have its text. An upload that is
/// extracted again has the text of the extraction before.
pub(super) fn archive_write(found: &Record<Document>) -> Result<Option<Write>, StoreError> {
    let is_without_text = !found.value.is_ready() && found.value.text.is_empty();
    if found.value.has_long_text() || is_without_text {
        return Ok(None);
    }
    let Document { id, company_id, title, text, revision, updated_by, .. } = found.value.clone();
    let version = DocumentVersion { revision, updated_at: time_text(found.updated), updated_by, title, text };
    let key = slot_key(&company_id, &id, revision)?;
    Ok(Some(Write::Put { key, value: to_json(&version)?, precondition: Precondition::Any }))
}

fn time_text(time: SystemTime) -> String {
    utc_time(Timestamp::try_from(time).unwrap_or_default())
}
