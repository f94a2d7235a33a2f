//! Changes of documents: the new text, the replaced version and the upload that is given up, in one commit.

use super::contents::release_writes;
use super::document::{absent, key};
use super::document_archive::archive_write;
use super::{Document, WorkspaceError};
use crate::records::{
    Key, Precondition, Record, Records, RecordsExt, StoreError, UpdateAttempts, Write, to_json,
};
use agent_core::ids::{CompanyId, UserId};

/// Changes a document on behalf of a user, and returns it with its version. `change` runs again whenever another
/// writer changed the document meanwhile; `may_change` tests the document.
pub(super) async fn change_document(
    records: &dyn Records,
    company_id: &CompanyId,
    id: &str,
    (user_id, may_change): (&UserId, impl Fn(&Document) -> bool + Send),
    change: impl Fn(&Record<Document>) -> Result<Document, WorkspaceError> + Send,
) -> Result<(Document, u64), WorkspaceError> {
    let key = key(company_id, id)?;
    let mut attempts = UpdateAttempts::new(records, &key);
    loop {
        let found = records.get_as::<Document>(&key).await?.ok_or_else(|| absent(id))?;
        if !may_change(&found.value) {
            return Err(WorkspaceError::Forbidden { what: "document", id: id.to_owned() });
        }
        match commit_change(records, &key, &found, change(&found)?, user_id).await {
            Ok(changed) => return Ok(changed),
            Err(error) => attempts.retry(error).await?,
        }
    }
}

/// Returns the document after a change by a user, and the writes that store it, keep the replaced version, and delete an
/// upload that the document no longer names. The first write is that of the document.
pub(super) fn change_writes(
    key: &Key,
    found: &Record<Document>,
    changed: Document,
    user_id: &UserId,
) -> Result<(Document, Vec<Write>), StoreError> {
    let changed = Document {
        revision: found.value.revision + 1,
        updated_by: Some(user_id.clone()).filter(|user_id| !user_id.is_empty()),
        ..changed
    };
    let precondition = Precondition::Version(found.version);
    let mut writes = vec![Write::Put { key: key.clone(), value: to_json(&changed)?, precondition }];
    writes.extend(archive_write(found)?);
    if changed.generation() != found.value.generation() {
        writes.extend(release_writes(&found.value)?);
    }
    Ok((changed, writes))
}

/// Replaces the document `found` by `changed` on behalf of a user and keeps the replaced version, in one commit.
/// Returns the document as it is stored and its version.
pub(super) async fn commit_change(
    records: &dyn Records,
    key: &Key,
    found: &Record<Document>,
    changed: Document,
    user_id: &UserId,
) -> Result<(Document, u64), StoreError> {
    let (changed, writes) = change_writes(key, found, changed, user_id)?;
    let versions = records.commit(writes).await?;
    let version = versions.into_iter().next().flatten();
    Ok((changed, version.ok_or_else(|| StoreError::unavailable("a version is missing"))?))
}
