//! Reading of documents and their texts for the search.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::Clock;
use agent_core::ids::CompanyId;
use agent_retrieval::document::{DocumentId, ExtractedText, TextFormat};

use crate::records::{Collection, Key, Record, Records, StoreError};
use crate::workspace::{self, ContentFormat, Document, collection};

/// Number of attempts to read a document at a version that is known, and the time between them. A store's cache may
/// return an older version for a moment.
const READ_ATTEMPTS: usize = 20;
const READ_INTERVAL: Duration = Duration::from_millis(25);

/// Reader of documents and their texts in a store.
#[derive(Clone)]
pub(super) struct DocumentReader {
    pub(super) records: Arc<dyn Records>,
    pub(super) clock: Arc<dyn Clock>,
}

/// Keys of the documents with valid identifiers, and the invalid identifiers.
pub(super) struct NamedDocuments {
    pub(super) keys: Vec<Key>,
    /// Invalid identifiers, which name no document.
    pub(super) invalid: Vec<DocumentId>,
}

impl NamedDocuments {
    /// Returns the keys of documents of a company. Identifiers that occur several times count once.
    pub(super) fn new(company_id: &CompanyId, ids: &[String]) -> Self {
        let mut seen = HashSet::with_capacity(ids.len());
        let (mut keys, mut invalid) = (Vec::with_capacity(ids.len()), Vec::new());
        let documents = Collection::new(company_id, collection::DOCUMENTS).ok();
        for id in ids.iter().filter(|id| seen.insert(id.as_str())) {
            match documents.as_ref().and_then(|documents| documents.key(id.as_str()).ok()) {
                Some(key) => keys.push(key),
                None => invalid.push(DocumentId::from(id.as_str())),
            }
        }
        Self { keys, invalid }
    }

    /// Returns the documents that exist, and those that do not, by the versions of the records with these keys.
    pub(super) fn split(self, versions: &[Option<u64>]) -> (Versions, Vec<DocumentId>) {
        let (mut present, mut absent) = (Vec::with_capacity(self.keys.len()), self.invalid);
        for (key, version) in self.keys.iter().zip(versions) {
            match version {
                Some(version) => present.push((DocumentId::from(key.id()), *version)),
                None => absent.push(DocumentId::from(key.id())),
            }
        }
        (present, absent)
    }
}

/// Returns the present versions of documents of a company, in their order; `None` for one that it does not have.
pub(crate) async fn present_versions(
    records: &dyn Records,
    company_id: &CompanyId,
    ids: &[&str],
) -> Result<Vec<Option<u64>>, StoreError> {
    // An invalid identifier names no document.
    let key = |id: &&str| Key::new(company_id, collection::DOCUMENTS, *id).ok();
    let keys: Vec<Option<Key>> = ids.iter().map(key).collect();
    let valid: Vec<Key> = keys.iter().flatten().cloned().collect();
    if valid.is_empty() {
        return Ok(vec![None; ids.len()]);
    }
    let mut versions = records.versions(&valid).await?.into_iter();
    Ok(keys.iter().map(|key| key.as_ref().and_then(|_| versions.next().flatten())).collect())
}

/// Returns the media type of a document's upload; `None` for a text that was written.
pub(super) fn upload_media_type(document: &Document) -> Option<Arc<str>> {
    document.content.as_ref().map(|content| content.media_type.as_str().into())
}

/// Identifiers of documents with the versions of their records.
pub(super) type Versions = Vec<(DocumentId, u64)>;

impl DocumentReader {
    /// Returns the documents that exist, with their versions, and those that do not.
    pub(super) async fn versions(
        &self,
        company_id: &CompanyId,
        ids: &[String],
    ) -> Result<(Versions, Vec<DocumentId>), StoreError> {
        let named = NamedDocuments::new(company_id, ids);
        let versions = self.records.versions(&named.keys).await?;
        Ok(named.split(&versions))
    }

    /// Reads the text of a document as the chunker takes it; `None` if it was replaced or deleted meanwhile.
    pub(super) async fn read_extracted(
        &self,
        company_id: &CompanyId,
        document: Document,
    ) -> Result<Option<ExtractedText>, StoreError> {
        let format = match document.content.as_ref().and_then(|content| content.text_format) {
            Some(ContentFormat::Plain) => TextFormat::Plain,
            Some(ContentFormat::Markdown) | None => TextFormat::Markdown,
        };
        let page_starts = workspace::read_page_starts(&*self.records, company_id, &document).await?;
        let title = document.title.clone();
        let text = self.read_text(company_id, document).await?;
        Ok(text.map(|text| ExtractedText { title, text, format, page_starts }))
    }

    /// Reads the whole text of a document, wherever it is stored; `None` if it was replaced or deleted meanwhile.
    pub(super) async fn read_text(
        &self,
        company_id: &CompanyId,
        document: Document,
    ) -> Result<Option<String>, StoreError> {
        if !document.has_long_text() {
            return Ok(Some(document.text));
        }
        let range = 0..document.text_bytes();
        match workspace::read_document_text(&*self.records, company_id, &document, range).await {
            Ok(read) => Ok(Some(read.text)),
            Err(StoreError::Conflict { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads a document at a version or a newer one; `None` if it was deleted.
    pub(super) async fn read_document(
        &self,
        company_id: &CompanyId,
        id: &DocumentId,
        version: u64,
    ) -> Result<Option<Record<Document>>, StoreError> {
        for _ in 0..READ_ATTEMPTS {
            let found = workspace::get_document(&*self.records, company_id, id.as_str()).await?;
            match found {
                Some(found) if found.version < version => self.clock.sleep(READ_INTERVAL).await,
                found => return Ok(found),
            }
        }
        Ok(None)
    }
}
