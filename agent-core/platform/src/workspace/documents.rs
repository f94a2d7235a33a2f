//! Documents of a company.

use schemars::JsonSchema;
use serde::Serialize;

use super::document::{ContentStatus, Document, MAX_DOCUMENT_BYTES, absent, key};
use super::document_change::change_document;
use super::text::{self, MAX_TITLE_BYTES, checked_line, checked_text};
use super::users::{CompanyRole, get_company_role};
use super::view::{ListPage, READ_BATCH_SIZE, list_projected};
use super::{WorkspaceError, check_version, collection};
use crate::records::{
    Collection, CountQuota, CountQuotaError, Key, ListQuery, Precondition, Record, Records, RecordsExt,
    StoreError, Write, put_within, to_json,
};
use agent_core::ids::{CompanyId, UserId};

/// Maximum number of documents created by a company's agents.
pub(crate) const MAX_DOCUMENTS_PER_COMPANY: usize = 10_000;

/// User who changes documents, and the user's role in the company.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentEditor {
    /// The user.
    pub user_id: UserId,
    /// The user's role.
    pub role: CompanyRole,
}

impl DocumentEditor {
    /// Reads the user's role.
    pub async fn load(
        records: &dyn Records,
        company_id: &CompanyId,
        user_id: &UserId,
    ) -> Result<Self, StoreError> {
        let role = get_company_role(records, company_id, user_id).await?;
        Ok(Self { user_id: user_id.clone(), role })
    }

    /// Returns true if the user may create documents.
    pub fn may_create(&self) -> bool {
        self.role != CompanyRole::Viewer
    }

    /// Returns true if the user may change and delete a document. One without an owner is every editor's.
    pub fn may_change(&self, document: &Document) -> bool {
        self.role.may_change(document.owner_id.as_ref().is_none_or(|owner| *owner == self.user_id))
    }
}

/// Returns the document, if the company has it, with the record version under which derived forms can be cached.
pub async fn get_document(
    records: &dyn Records,
    company_id: &CompanyId,
    id: &str,
) -> Result<Option<Record<Document>>, StoreError> {
    records.get_as(&Key::new(company_id, collection::DOCUMENTS, id)?).await
}

/// Returns the document.
///
/// # Errors
/// [`WorkspaceError::NotFound`] if the company does not have it; errors of the store.
pub(crate) async fn require_document(
    records: &dyn Records,
    company_id: &CompanyId,
    id: &str,
) -> Result<Record<Document>, WorkspaceError> {
    records.get_as(&key(company_id, id)?).await?.ok_or_else(|| absent(id))
}

/// Returns the documents with these identifiers, in their order. Documents that the company does not have are left out.
pub async fn get_documents(
    records: &dyn Records,
    company_id: &CompanyId,
    ids: &[String],
) -> Result<Vec<Record<Document>>, StoreError> {
    let key = |id: &String| Key::new(company_id, collection::DOCUMENTS, id);
    let keys = ids.iter().map(key).collect::<Result<Vec<_>, _>>()?;
    Ok(records.get_many_as(&keys).await?.into_iter().flatten().collect())
}

/// Summary of a document in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DocumentSummary {
    /// Identifier of the document.
    pub id: String,
    /// Title of the document.
    pub title: String,
    /// Size of the text in bytes.
    pub bytes: usize,
    /// Version of the document.
    pub version: u64,
    /// State of the extraction of an upload's text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<ContentStatus>,
}

impl DocumentSummary {
    /// Summarizes a document at this version.
    pub fn new(document: Document, version: u64) -> Self {
        let (bytes, status) =
            (document.text_bytes(), document.content.as_ref().map(|content| content.status));
        let Document { id, title, .. } = document;
        Self { id, title, bytes, version, status }
    }

    fn of(record: Record<Document>) -> Self {
        Self::new(record.value, record.version)
    }
}

/// Returns one page of the summaries of the company's documents.
pub async fn list_document_summaries(
    records: &dyn Records,
    company_id: &CompanyId,
    list: &ListQuery,
) -> Result<ListPage<DocumentSummary>, StoreError> {
    let documents = Collection::new(company_id, collection::DOCUMENTS)?;
    list_projected(records, &documents, list, |record| Some(DocumentSummary::of(record))).await
}

/// Returns the summaries of the documents with these identifiers, in their order. Documents that the company does not
/// have are left out.
pub(crate) async fn get_document_summaries(
    records: &dyn Records,
    company_id: &CompanyId,
    ids: &[String],
) -> Result<Vec<DocumentSummary>, StoreError> {
    // Invalid identifiers name no document.
    let keys: Vec<Key> = ids.iter().filter_map(|id| key(company_id, id).ok()).collect();
    let mut heads = Vec::with_capacity(keys.len());
    for keys in keys.chunks(READ_BATCH_SIZE) {
        let found = records.get_many_as::<Document>(keys).await?;
        heads.extend(found.into_iter().flatten().map(DocumentSummary::of));
    }
    Ok(heads)
}

/// Returns the quota of a company's documents.
pub(super) fn document_quota(company_id: &CompanyId, limit: u64) -> CountQuota<'_> {
    CountQuota { company_id, collection: collection::DOCUMENTS, limit }
}

/// Creates a document with this title and text, and returns it with its version.
///
/// # Errors
/// [`WorkspaceError::Full`] if the company has 10,000 documents; those of the arguments and the store.
pub async fn create_document(
    records: &dyn Records,
    company_id: &CompanyId,
    owner_id: &UserId,
    (title, text): (&str, &str),
) -> Result<(Document, u64), WorkspaceError> {
    let title = checked_line(title, MAX_TITLE_BYTES).map_err(text::invalid_field("title"))?.to_owned();
    let text = checked_text(text, MAX_DOCUMENT_BYTES).map_err(text::invalid_field("text"))?.to_owned();
    let owner_id = Some(owner_id.clone()).filter(|owner_id| !owner_id.is_empty());
    let updated_by = owner_id.clone();
    let (id, company_id) = (agent_core::new_id(), company_id.to_owned());
    let document = Document {
        id,
        company_id: company_id.clone(),
        owner_id,
        title,
        text,
        updated_by,
        ..Document::default()
    };
    let key = Key::new(&company_id, collection::DOCUMENTS, document.id.as_str())?;
    let put = Write::Put { key, value: to_json(&document)?, precondition: Precondition::Absent };
    let limit = MAX_DOCUMENTS_PER_COMPANY;
    match put_within(records, &document_quota(&company_id, limit as u64), &[put]).await {
        Ok(version) => Ok((document, version)),
        Err(CountQuotaError::Exceeded) => {
            Err(WorkspaceError::Full { what: "collection of documents", limit })
        }
        Err(CountQuotaError::Store(error)) => Err(error.into()),
    }
}

/// Appends text to a document, on a new line, and returns the document with its version. If `version` is given, the
/// document must be at it. `editor` is the user who makes the change, and the test of a document that may be changed.
///
/// # Errors
/// [`WorkspaceError::Uploaded`] for a document whose text is that of an upload; those of the arguments and the store.
pub async fn append_document(
    records: &dyn Records,
    company_id: &CompanyId,
    id: &str,
    (text, version): (&str, Option<u64>),
    editor: (&UserId, impl Fn(&Document) -> bool + Send),
) -> Result<(Document, u64), WorkspaceError> {
    let text = checked_text(text, MAX_DOCUMENT_BYTES).map_err(text::invalid_field("text"))?;
    change_document(records, company_id, id, editor, |found| {
        check_version("document", found, version)?;
        if found.value.content.is_some() {
            return Err(WorkspaceError::Uploaded { id: id.to_owned() });
        }
        Ok(Document { text: appended(&found.value.text, text)?, ..found.value.clone() })
    })
    .await
}

fn appended(before: &str, text: &str) -> Result<String, WorkspaceError> {
    let break_line = if before.is_empty() || before.ends_with('\n') { "" } else { "\n" };
    let longer = [before, break_line, text].concat();
    if longer.len() > MAX_DOCUMENT_BYTES {
        let bytes = longer.len();
        let fault = format!("would make the document {bytes} bytes long; the limit is {MAX_DOCUMENT_BYTES}");
        return Err(text::invalid_field("text")(fault));
    }
    Ok(longer)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::memory::MemoryRecords;

    #[test]
    fn documents_come_in_the_order_asked_without_those_of_others() {
        let records = MemoryRecords::default();
        for (company, id) in [("c", "a"), ("c", "b"), ("d", "x")] {
            let document = Document {
                id: id.into(),
                company_id: company.into(),
                text: format!("text of {id}"),
                ..Document::default()
            };
            let key = Key::new(company, collection::DOCUMENTS, id).expect("a key");
            records
                .put_as(&key, &document, Precondition::Absent)
                .now_or_never()
                .expect("no wait")
                .expect("put");
        }
        let ids: Vec<String> = ["b", "x", "none", "a"].map(String::from).into();
        let ordered_documents =
            get_documents(&records, &"c".into(), &ids).now_or_never().expect("no wait").expect("read");
        assert_eq!(ordered_documents.iter().map(|record| record.id.as_str()).collect::<Vec<_>>(), ["b", "a"]);
        assert_eq!(ordered_documents[0].value.text, "text of b");
    }

    #[test]
    fn a_created_document_is_listed_and_appended_to() {
        let records = MemoryRecords::default();
        let (made, version) = create_document(&records, &"c".into(), &"ada".into(), (" Log ", " one\n"))
            .now_or_never()
            .expect("no wait")
            .expect("made");
        assert_eq!((made.title.as_str(), made.text.as_str(), made.company_id.as_str()), ("Log", "one", "c"));
        let append = |company: &str, id: &str, text: &str, version| {
            let editor = (&"ada".into(), |document: &Document| document.owner_id.as_deref() == Some("ada"));
            append_document(&records, &company.into(), id, (text, version), editor)
                .now_or_never()
                .expect("no wait")
        };
        let (longer, newer) = append("c", &made.id, "two", Some(version)).expect("appended");
        assert_eq!((longer.text.as_str(), longer.revision), ("one\ntwo", 1));
        let stranger =
            append_document(&records, &"c".into(), &made.id, ("x", None), (&"bob".into(), |_| false))
                .now_or_never()
                .expect("no wait");
        assert_eq!(
            stranger.expect_err("refused").to_string(),
            format!("only the owner of the document {:?} or an admin of the company may change it", made.id)
        );
        let list = |company: &str| {
            let list = ListQuery::default();
            list_document_summaries(&records, &company.into(), &list)
                .now_or_never()
                .expect("no wait")
                .expect("listed")
                .items
        };
        let head = DocumentSummary {
            id: made.id.clone(),
            title: "Log".into(),
            bytes: 7,
            version: newer,
            status: None,
        };
        assert_eq!((list("c"), list("d")), (vec![head.clone()], vec![]));
        let named = ["none".to_owned(), made.id.clone(), String::new()];
        let named = get_document_summaries(&records, &"c".into(), &named).now_or_never().expect("no wait");
        assert_eq!(named.expect("read"), [head]);

        let long = "x".repeat(MAX_DOCUMENT_BYTES - 7);
        for (company, id, text, version, expected) in [
            ("d", made.id.as_str(), "x", None, format!("there is no document {:?}", made.id)),
            ("c", "none", "x", None, r#"there is no document "none""#.to_owned()),
            ("c", "", "x", None, r#"there is no document """#.to_owned()),
            ("c", &made.id, " ", None, "text: is blank".to_owned()),
            (
                "c",
                &made.id,
                "x",
                Some(version),
                format!(
                    "the document {:?} has changed since it was read and is now at version {newer}: read it again",
                    made.id
                ),
            ),
            (
                "c",
                &made.id,
                &long,
                None,
                format!(
                    "text: would make the document {} bytes long; the limit is {MAX_DOCUMENT_BYTES}",
                    MAX_DOCUMENT_BYTES + 1
                ),
            ),
        ] {
            assert_eq!(append(company, id, text, version).expect_err("refused").to_string(), expected);
        }
        let quotes = "\"".repeat(MAX_DOCUMENT_BYTES - 8);
        append("c", &made.id, &quotes, None).expect("the longest document fits into a record");
    }
}
