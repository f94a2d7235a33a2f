//! Replaced versions of documents: the last [`MAX_DOCUMENT_VERSIONS`] of each, with who made them and when.
//!
//! The versions of a document are records in a separate collection, one per slot. The slot of a replaced version is
//! the document's revision modulo the number of slots. The commit that replaces the document overwrites the oldest
//! version. Texts of uploads that are too long for a record are not kept.

use schemars::JsonSchema;
use serde::Serialize;

use super::contents::release_writes;
use super::document::key;
use super::document_archive::{DocumentVersion, MAX_DOCUMENT_VERSIONS, slot_id, slot_key, versions};
use super::document_change::{change_document, commit_change};
use super::document_indexes::index_deletions;
use super::documents::document_quota;
use super::{Document, WorkspaceError, collection};
use crate::records::{
    CountQuotaError, Key, ListQuery, MAX_PAGE_RECORDS, Precondition, Record, Records, RecordsExt, StoreError,
    UpdateAttempts, Write, put_within, to_json,
};
use agent_core::ids::{CompanyId, UserId};

/// Replaced version of a document in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DocumentVersionSummary {
    /// Revision of the document.
    pub revision: u64,
    /// Time at which this version was written.
    pub updated_at: String,
    /// User who wrote this version, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated_by: Option<UserId>,
    /// Title of this version.
    pub title: String,
    /// Size of the text in bytes.
    pub bytes: usize,
}

/// Creates a document, or replaces the title and text of an existing one on behalf of a user, and returns its version.
/// The owner of an existing document stays; one without an owner gets that of `document`. An upload of an existing document
/// stays if `document` names its generation and has the same text or none, and is deleted otherwise.
///
/// # Errors
/// [`StoreError::Conflict`] if the precondition does not hold.
pub async fn save_document(
    records: &dyn Records,
    document: &Document,
    precondition: Precondition,
    user_id: &UserId,
) -> Result<u64, StoreError> {
    let key = Key::new(&document.company_id, collection::DOCUMENTS, document.id.as_str())?;
    let found = records.get_as::<Document>(&key).await?;
    precondition.check(found.as_ref().map(|record| record.version))?;
    match found {
        None => records.put_as(&key, &new_document(document, user_id), Precondition::Absent).await,
        Some(found) => {
            let owner_id = found.value.owner_id.clone().or_else(|| document.owner_id.clone());
            let changed = Document { owner_id, ..document.with_upload_of(&found.value) };
            commit_change(records, &key, &found, changed, user_id).await.map(|(_, version)| version)
        }
    }
}

/// Creates a document on behalf of a user, and returns its version. Concurrent additions do not make the company's
/// documents more than `max_documents` together.
///
/// # Errors
/// [`StoreError::Conflict`] if the document exists, or if the company has `max_documents` documents.
pub async fn save_new_document(
    records: &dyn Records,
    document: &Document,
    max_documents: u64,
    user_id: &UserId,
) -> Result<u64, StoreError> {
    let key = Key::new(&document.company_id, collection::DOCUMENTS, document.id.as_str())?;
    let value = to_json(&new_document(document, user_id))?;
    let put = Write::Put { key, value, precondition: Precondition::Absent };
    let quota = document_quota(&document.company_id, max_documents);
    put_within(records, &quota, &[put]).await.map_err(CountQuotaError::into_conflict)
}

/// Returns a document as it is stored first.
fn new_document(document: &Document, user_id: &UserId) -> Document {
    let updated_by = Some(user_id.clone());
    Document { revision: 0, updated_by, content: None, ..document.clone() }
}

/// Deletes a document with its versions and its upload, in one commit, and returns true if it existed.
///
/// # Errors
/// [`StoreError::Conflict`] if the precondition does not hold.
pub async fn delete_document(
    records: &dyn Records,
    company_id: &CompanyId,
    id: &str,
    precondition: Precondition,
) -> Result<bool, StoreError> {
    let key = Key::new(company_id, collection::DOCUMENTS, id)?;
    let mut attempts = UpdateAttempts::new(records, &key);
    loop {
        let found = records.get_as::<Document>(&key).await?;
        precondition.check(found.as_ref().map(|record| record.version))?;
        let Some(found) = found else { return Ok(false) };
        // The pieces to delete are those of the upload that was read.
        let unchanged = Precondition::Version(found.version);
        let mut writes = vec![Write::Delete { key: key.clone(), precondition: unchanged }];
        for slot in 0..MAX_DOCUMENT_VERSIONS {
            let key = versions(company_id, id)?.key(slot_id(slot))?;
            writes.push(Write::Delete { key, precondition: Precondition::Any });
        }
        writes.extend(release_writes(&found.value)?);
        writes.extend(index_deletions(records, company_id, id).await?);
        match records.commit(writes).await {
            Ok(deleted) => return Ok(deleted.into_iter().next().flatten().is_some()),
            Err(error) => attempts.retry(error).await?,
        }
    }
}

/// Returns the summaries of a document's replaced versions, newest first.
pub async fn list_document_versions(
    records: &dyn Records,
    company_id: &CompanyId,
    id: &str,
) -> Result<Vec<DocumentVersionSummary>, StoreError> {
    let list = ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() };
    let page = records.list_as::<DocumentVersion>(&versions(company_id, id)?, &list).await?;
    let summary = |record: Record<DocumentVersion>| {
        let DocumentVersion { revision, updated_at, updated_by, title, text } = record.value;
        DocumentVersionSummary { revision, updated_at, updated_by, title, bytes: text.len() }
    };
    let mut found: Vec<_> = page.records.into_iter().map(summary).collect();
    found.sort_by_key(|version| std::cmp::Reverse(version.revision));
    Ok(found)
}

/// Returns a replaced version of a document, if it is still kept.
pub async fn get_document_version(
    records: &dyn Records,
    company_id: &CompanyId,
    id: &str,
    revision: u64,
) -> Result<Option<DocumentVersion>, StoreError> {
    let found = records.get_as::<DocumentVersion>(&slot_key(company_id, id, revision)?).await?;
    Ok(found.map(|record| record.value).filter(|version| version.revision == revision))
}

/// Restores the title and text of a replaced version, on behalf of a user, and returns the document with its version. The
/// text that this replaces is kept as a version as well, and an upload is deleted. `may_change` tests the document.
///
/// # Errors
/// [`WorkspaceError::NotFound`] for a document or a version that does not exist, and [`WorkspaceError::Forbidden`].
pub async fn restore_document(
    records: &dyn Records,
    company_id: &CompanyId,
    (id, revision): (&str, u64),
    user_id: &UserId,
    may_change: impl Fn(&Document) -> bool + Send,
) -> Result<(Document, u64), WorkspaceError> {
    // An invalid id is reported as absent.
    key(company_id, id)?;
    let version = get_document_version(records, company_id, id, revision).await?;
    change_document(records, company_id, id, (user_id, may_change), |found| {
        let DocumentVersion { title, text, .. } = version.clone().ok_or_else(|| {
            WorkspaceError::NotFound { what: "version of the document", id: revision.to_string() }
        })?;
        Ok(Document { title, text, content: None, ..found.value.clone() })
    })
    .await
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::memory::MemoryRecords;

    fn ready<T, E: std::fmt::Debug>(future: impl Future<Output = Result<T, E>>) -> T {
        future.now_or_never().expect("no wait").expect("the store in memory answers")
    }

    fn document(text: &str) -> Document {
        Document {
            id: "d".to_owned(),
            company_id: "c".into(),
            owner_id: Some("ada".into()),
            title: "T".to_owned(),
            text: text.to_owned(),
            ..Document::default()
        }
    }

    fn save(records: &MemoryRecords, text: &str, user: &str) -> u64 {
        ready(save_document(records, &document(text), Precondition::Any, &user.into()))
    }

    fn stored(records: &MemoryRecords) -> Document {
        ready(super::super::get_document(records, &"c".into(), "d")).expect("there").value
    }

    #[test]
    fn the_last_twenty_versions_are_kept_with_who_wrote_them() {
        let records = MemoryRecords::default();
        let list = || ready(list_document_versions(&records, &"c".into(), "d"));
        save(&records, "0", "ada");
        assert_eq!(list(), []);
        for n in 1..=25 {
            save(&records, &n.to_string(), if n % 2 == 0 { "ada" } else { "bob" });
        }
        assert_eq!((stored(&records).revision, stored(&records).updated_by), (25, Some("bob".into())));
        let revisions: Vec<u64> = list().iter().map(|version| version.revision).collect();
        assert_eq!(revisions, (5..25).rev().collect::<Vec<_>>());
        assert_eq!(list()[0].updated_by, Some("ada".into()));
        let get = |revision| ready(get_document_version(&records, &"c".into(), "d", revision));
        assert_eq!(get(5).map(|version| version.text), Some("5".to_owned()));
        for gone in [4, 25, 26] {
            assert_eq!(get(gone), None, "{gone}");
        }
        for (company, id) in [("d", "d"), ("c", "e")] {
            assert_eq!(ready(list_document_versions(&records, &company.into(), id)), []);
        }
    }

    #[test]
    fn a_version_is_restored_by_those_who_may_change_the_document() {
        let records = MemoryRecords::default();
        save(&records, "one", "ada");
        save(&records, "two", "bob");
        let restore = |id: &str, revision, allowed: bool| {
            let (company, user) = ("c".into(), "eve".into());
            let restored = restore_document(&records, &company, (id, revision), &user, move |_| allowed);
            restored.now_or_never().expect("no wait").map_err(|error| error.to_string())
        };
        let refused = r#"only the owner of the document "d" or an admin of the company may change it"#;
        assert_eq!(restore("d", 0, false), Err(refused.to_owned()));
        assert_eq!(restore("e", 0, true), Err(r#"there is no document "e""#.to_owned()));
        assert_eq!(restore("d", 7, true), Err(r#"there is no version of the document "7""#.to_owned()));
        let (restored, version) = restore("d", 0, true).expect("restored");
        assert_eq!((restored.text.as_str(), restored.revision), ("one", 2));
        assert_eq!(
            (restored.owner_id.as_deref(), restored.updated_by.as_deref()),
            (Some("ada"), Some("eve"))
        );
        assert_eq!(stored(&records), restored);
        let kept = ready(get_document_version(&records, &"c".into(), "d", 1)).expect("kept");
        assert_eq!((kept.text.as_str(), kept.updated_by.as_deref()), ("two", Some("bob")));
        assert!(version > 2);
    }

    #[test]
    fn a_save_checks_its_condition_and_keeps_the_owner() {
        let records = MemoryRecords::default();
        let version = save(&records, "one", "ada");
        let put = |precondition| {
            let theirs = Document { owner_id: Some("bob".into()), ..document("two") };
            save_document(&records, &theirs, precondition, &"bob".into()).now_or_never().expect("no wait")
        };
        for wrong in [Precondition::Absent, Precondition::Version(version + 1)] {
            assert!(matches!(put(wrong), Err(StoreError::Conflict { .. })));
        }
        assert_eq!(stored(&records).text, "one");
        put(Precondition::Version(version)).expect("put");
        assert_eq!(
            (stored(&records).text.as_str(), stored(&records).owner_id.as_deref()),
            ("two", Some("ada"))
        );

        let delete = |precondition| {
            delete_document(&records, &"c".into(), "d", precondition).now_or_never().expect("no wait")
        };
        assert!(matches!(delete(Precondition::Version(version)), Err(StoreError::Conflict { .. })));
        assert!(delete(Precondition::Any).expect("deleted"));
        assert_eq!(ready(list_document_versions(&records, &"c".into(), "d")), []);
        assert!(!delete(Precondition::Any).expect("nothing is there"));
    }
}
