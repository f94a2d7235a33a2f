//! Documents of a company.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tally::create_counted;
use super::text::{self, MAX_TITLE_BYTES, checked_line, checked_text};
use super::view::{ListPage, READ_BATCH_SIZE, list_projected};
use super::{WorkspaceError, check_version, collection};
use crate::records::{Collection, Key, ListQuery, Record, Records, RecordsExt, StoreError, to_json};
use agent_core::ids::CompanyId;

/// Maximum size, in bytes, of the text of a document after creation or an append. As JSON, with the other fields, it
/// fits into a record.
pub const MAX_DOCUMENT_BYTES: usize = 400 * 1024;
/// Maximum number of documents created by a company's agents.
pub(crate) const MAX_DOCUMENTS_PER_COMPANY: usize = 10_000;

/// Text with a title.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Document {
    /// Identifier of the document, unique in its company.
    pub id: String,
    /// Company of the document.
    pub company_id: CompanyId,
    /// Title of the document.
    #[serde(default)]
    pub title: String,
    /// Text of the document, usually Markdown.
    #[serde(default)]
    pub text: String,
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

/// Returns the documents with these identifiers, in their order. Those that the company does not have are left out.
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
}

impl DocumentSummary {
    /// Summarizes a document at this version.
    pub fn new(document: Document, version: u64) -> Self {
        let Document { id, title, text, .. } = document;
        Self { id, title, bytes: text.len(), version }
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

/// Returns the summaries of the documents with these identifiers, in their order. Those that the company does not
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

/// Creates a document and returns it with its version.
pub async fn create_document(
    records: &dyn Records,
    company_id: &CompanyId,
    title: &str,
    text: &str,
) -> Result<(Document, u64), WorkspaceError> {
    let title = checked_line(title, MAX_TITLE_BYTES).map_err(text::invalid_field("title"))?.to_owned();
    let text = checked_text(text, MAX_DOCUMENT_BYTES).map_err(text::invalid_field("text"))?.to_owned();
    let document = Document { id: agent_core::new_id(), company_id: company_id.to_owned(), title, text };
    let key = Key::new(company_id, collection::DOCUMENTS, document.id.as_str())?;
    let limit = ("collection of created documents", MAX_DOCUMENTS_PER_COMPANY);
    let version = create_counted(records, (&key, to_json(&document)?), collection::DOCUMENTS, limit).await?;
    Ok((document, version))
}

/// Appends text to a document, on a new line, and returns the document with its version. If `version` is given, the
/// document must be at it.
pub async fn append_document(
    records: &dyn Records,
    company_id: &CompanyId,
    id: &str,
    text: &str,
    version: Option<u64>,
) -> Result<(Document, u64), WorkspaceError> {
    let text = checked_text(text, MAX_DOCUMENT_BYTES).map_err(text::invalid_field("text"))?;
    let append = |found: Option<Record<Document>>| {
        let found = found.ok_or_else(|| absent(id))?;
        check_version("document", &found, version)?;
        let mut document = found.value;
        if !document.text.is_empty() && !document.text.ends_with('\n') {
            document.text.push('\n');
        }
        document.text.push_str(text);
        let bytes = document.text.len();
        if bytes > MAX_DOCUMENT_BYTES {
            let fault =
                format!("would make the document {bytes} bytes long; the limit is {MAX_DOCUMENT_BYTES}");
            return Err(text::invalid_field("text")(fault));
        }
        Ok(document)
    };
    records.update(&key(company_id, id)?, append).await
}

/// Returns the record key of a document; an invalid identifier is reported as absent.
fn key(company_id: &CompanyId, id: &str) -> Result<Key, WorkspaceError> {
    Key::new(company_id, collection::DOCUMENTS, id).map_err(|_| absent(id))
}

fn absent(id: &str) -> WorkspaceError {
    WorkspaceError::NotFound { what: "document", id: id.to_owned() }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::memory::MemoryRecords;
    use crate::records::Precondition;

    #[test]
    fn documents_come_in_the_order_asked_without_those_of_others() {
        let records = MemoryRecords::default();
        for (company, id) in [("c", "a"), ("c", "b"), ("d", "x")] {
            let document = Document {
                id: id.into(),
                company_id: company.into(),
                title: String::new(),
                text: format!("text of {id}"),
            };
            let key = Key::new(company, collection::DOCUMENTS, id).expect("a key");
            records
                .put_as(&key, &document, Precondition::Absent)
                .now_or_never()
                .expect("no wait")
                .expect("put");
        }
        let ids: Vec<String> = ["b", "x", "none", "a"].map(String::from).into();
        let found =
            get_documents(&records, &"c".into(), &ids).now_or_never().expect("no wait").expect("read");
        assert_eq!(found.iter().map(|record| record.id.as_str()).collect::<Vec<_>>(), ["b", "a"]);
        assert_eq!(found[0].value.text, "text of b");
    }

    #[test]
    fn what_is_created_is_listed_and_appended_to() {
        let records = MemoryRecords::default();
        let (made, version) = create_document(&records, &"c".into(), " Log ", " one\n")
            .now_or_never()
            .expect("no wait")
            .expect("made");
        assert_eq!((made.title.as_str(), made.text.as_str(), made.company_id.as_str()), ("Log", "one", "c"));
        let append = |company: &str, id: &str, text: &str, version| {
            append_document(&records, &company.into(), id, text, version).now_or_never().expect("no wait")
        };
        let (longer, newer) = append("c", &made.id, "two", Some(version)).expect("appended");
        assert_eq!(longer.text, "one\ntwo");
        let list = |company: &str| {
            let list = ListQuery::default();
            list_document_summaries(&records, &company.into(), &list)
                .now_or_never()
                .expect("no wait")
                .expect("listed")
                .items
        };
        let head = DocumentSummary { id: made.id.clone(), title: "Log".into(), bytes: 7, version: newer };
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
