//! Uploads: the storage of an original, and the commit that links a document to it.

use bytes::Bytes;
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use super::contents::{
    PendingPieces, UploadQuota, discard_pieces, stored_head_write, task_write, unchanged_write,
    write_original,
};
use super::document::{ContentStatus, Document, DocumentContent};
use super::document_change::change_writes;
use super::documents::document_quota;
use super::{WorkspaceError, collection};
use crate::records::{
    CountQuotaError, Key, Precondition, Record, Records, RecordsExt, StoreError, Write, commit_put,
    put_within, to_json,
};
use agent_core::ids::{CompanyId, UserId};

/// Limits on the data that a company stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UploadQuotas {
    /// Maximum number of documents.
    pub documents: u64,
    /// Maximum total size in bytes of originals and users' files.
    pub bytes: u64,
}

/// Original that a user uploads.
#[derive(Debug, Clone)]
pub struct NewUpload {
    /// Document that gets the original; created if it does not exist.
    pub document_id: String,
    /// Title of the document; `None` keeps the title of an existing document, and takes the original's title for a new one.
    pub title: Option<String>,
    /// Media type of the original.
    pub media_type: String,
    /// The original.
    pub bytes: Bytes,
    /// SHA-256 of the original, in hexadecimal.
    sha256: String,
    quotas: Option<UploadQuotas>,
}

impl NewUpload {
    /// Creates an upload. Hashes the original, which takes some milliseconds for each megabyte.
    pub fn new(document_id: String, title: Option<String>, media_type: String, bytes: Bytes) -> Self {
        let sha256 = hex::encode(Sha256::digest(&bytes));
        Self { document_id, title, media_type, bytes, sha256, quotas: None }
    }

    /// Limits the upload by the company's quotas, which concurrent uploads do not exceed together. The original that it
    /// replaces does not count.
    pub fn with_quotas(self, quotas: UploadQuotas) -> Self {
        Self { quotas: Some(quotas), ..self }
    }

    /// Returns true if a document has the same original, and its text by the same extractor.
    pub fn is_extracted_in(&self, document: &Document, extractor: &str) -> bool {
        document.content.as_ref().is_some_and(|content| {
            content.status == ContentStatus::Ready
                && content.sha256 == self.sha256
                && content.media_type == self.media_type
                && content.extractor.as_deref() == Some(extractor)
        })
    }

    /// Returns true if a document has the same original, whose extraction has not ended.
    pub fn is_waiting_in(&self, document: &Document) -> bool {
        document.content.as_ref().is_some_and(|content| {
            !content.status.is_final()
                && content.sha256 == self.sha256
                && content.media_type == self.media_type
        })
    }

    /// Stores the original in pieces that no document names yet.
    ///
    /// # Errors
    /// [`WorkspaceError::UploadsExceeded`] if the quota does not permit it; errors of the store, after which what was written
    /// is deleted, or left to the sweep.
    pub async fn stage(
        self,
        records: &dyn Records,
        company_id: &CompanyId,
        now: Timestamp,
    ) -> Result<StagedUpload, WorkspaceError> {
        let document_id = self.document_id.as_str();
        let quota = self.quotas.map(|quotas| UploadQuota {
            company_id,
            document_id: Some(document_id),
            bytes: self.bytes.len() as u64,
            limit: quotas.bytes,
        });
        let original = (&self.bytes, quota.as_ref());
        let pieces = write_original(records, company_id, document_id, original, now).await?;
        let content = DocumentContent {
            media_type: self.media_type,
            bytes: self.bytes.len() as u64,
            sha256: self.sha256,
            generation: pieces.generation().to_owned(),
            ..DocumentContent::default()
        };
        let (document_id, title, quotas) = (self.document_id, self.title, self.quotas);
        Ok(StagedUpload { document_id, title, content, pieces, quotas })
    }
}

/// Original that is stored and that no document names yet.
#[derive(Debug, Clone)]
pub struct StagedUpload {
    document_id: String,
    title: Option<String>,
    content: DocumentContent,
    pieces: PendingPieces,
    quotas: Option<UploadQuotas>,
}

impl StagedUpload {
    /// Attaches the original to the document, on behalf of a user, and begins its extraction; the document is created if
    /// it does not exist. In the same commit the previous text is kept as a version, and a previous upload is deleted.
    /// Returns the document and its version.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the precondition does not hold, if the original has been deleted because it was staged
    /// long ago, and for a new document if the company has as many documents as its quota permits.
    pub async fn attach(
        &self,
        records: &dyn Records,
        precondition: Precondition,
        user_id: &UserId,
    ) -> Result<(Document, u64), StoreError> {
        let company_id = &self.pieces.company_id;
        let key = Key::new(company_id, collection::DOCUMENTS, self.document_id.as_str())?;
        let found = records.get_as::<Document>(&key).await?;
        precondition.check(found.as_ref().map(|record| record.version))?;
        let (document, mut writes) = self.document_writes(&key, found.as_ref(), user_id)?;
        writes.push(self.pieces.attach_write()?);
        writes.push(task_write(&document, &self.content)?);
        writes.extend(stored_head_write(&document)?);
        let version = match self.quotas.filter(|_| found.is_none()) {
            None => commit_put(records, writes).await?,
            Some(quotas) => {
                let quota = document_quota(company_id, quotas.documents);
                put_within(records, &quota, &writes).await.map_err(CountQuotaError::into_conflict)?
            }
        };
        Ok((document, version))
    }

    /// Returns the changed document and the writes that put it, beginning with the document's own.
    fn document_writes(
        &self,
        key: &Key,
        found: Option<&Record<Document>>,
        user_id: &UserId,
    ) -> Result<(Document, Vec<Write>), StoreError> {
        let content = Some(self.content.clone());
        if let Some(found) = found {
            let title = self.title.clone().unwrap_or_else(|| found.value.title.clone());
            let changed = Document { title, text: String::new(), content, ..found.value.clone() };
            return change_writes(key, found, changed, user_id);
        }
        let user_id = Some(user_id.clone()).filter(|user_id| !user_id.is_empty());
        let document = Document {
            id: self.document_id.clone(),
            company_id: self.pieces.company_id.clone(),
            owner_id: user_id.clone(),
            title: self.title.clone().unwrap_or_default(),
            updated_by: user_id,
            content,
            ..Document::default()
        };
        let put =
            Write::Put { key: key.clone(), value: to_json(&document)?, precondition: Precondition::Absent };
        Ok((document, vec![put]))
    }

    /// Deletes the original. A failure leaves it to the sweep.
    pub async fn discard(&self, records: &dyn Records) {
        discard_pieces(records, &self.pieces).await;
    }
}

/// Extracts the text of a document's upload again, and returns the document with its version. The current text is
/// used until the new one is extracted. An extraction that has not ended continues.
///
/// # Errors
/// [`StoreError::Conflict`] if the precondition does not hold or the document is changed meanwhile;
/// [`StoreError::Invalid`] for a document without an upload.
pub async fn reindex_document(
    records: &dyn Records,
    found: Record<Document>,
    precondition: Precondition,
) -> Result<(Document, u64), StoreError> {
    precondition.check(Some(found.version))?;
    let Record { version, value: mut document, .. } = found;
    let Some(mut content) = document.content.clone() else {
        return Err(StoreError::Invalid("the document has no uploaded original".to_owned()));
    };
    if !content.status.is_final() {
        return Ok((document, version));
    }
    content.status = ContentStatus::Pending;
    content.error = None;
    let task = task_write(&document, &content)?;
    document.content = Some(content);
    let key = Key::new(&document.company_id, collection::DOCUMENTS, document.id.as_str())?;
    let put = Write::Put { key, value: to_json(&document)?, precondition: Precondition::Version(version) };
    Ok((document, commit_put(records, vec![put, task]).await?))
}

/// Renames a document with an upload, on behalf of a user, and returns it with its version. Its replaced
/// version is kept if its text fits. Without another title, the document is checked and not changed.
///
/// # Errors
/// [`StoreError::Conflict`] if the precondition does not hold or the document is changed meanwhile.
pub async fn rename_upload(
    records: &dyn Records,
    found: &Record<Document>,
    (title, precondition): (Option<&str>, Precondition),
    user_id: &UserId,
) -> Result<(Document, u64), StoreError> {
    precondition.check(Some(found.version))?;
    let Some(title) = title.filter(|title| *title != found.value.title) else {
        let check = unchanged_write(&found.value.company_id, &found.value.id, Some(found.version))?;
        records.commit(vec![check]).await?;
        return Ok((found.value.clone(), found.version));
    };
    let key = Key::new(&found.value.company_id, collection::DOCUMENTS, found.value.id.as_str())?;
    let renamed = Document { title: title.to_owned(), ..found.value.clone() };
    let (document, writes) = change_writes(&key, found, renamed, user_id)?;
    Ok((document, commit_put(records, writes).await?))
}
