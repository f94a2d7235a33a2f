//! A document of a company, with the state of its upload.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{WorkspaceError, collection};
use crate::records::Key;
use agent_core::ids::{CompanyId, UserId};

/// Maximum size, in bytes, of the text of a document after creation or an append. As JSON, with the other fields, it
/// fits into a record.
pub const MAX_DOCUMENT_BYTES: usize = 400 * 1024;

/// Text with a title.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Document {
    /// Identifier of the document, unique in its company.
    pub id: String,
    /// Company of the document.
    pub company_id: CompanyId,
    /// User who owns the document. Absent in documents that every editor of the company may change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner_id: Option<UserId>,
    /// Title of the document.
    #[serde(default)]
    pub title: String,
    /// Text of the document, usually Markdown. Empty for an upload whose text is longer than 400 KiB or is not extracted
    /// yet.
    #[serde(default)]
    pub text: String,
    /// Number of changes since the document was created; set by the server.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub revision: u64,
    /// User who has made the latest change, if one has; set by the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_by: Option<UserId>,
    /// Uploaded original from which the text is extracted, if there is one; set by the server. A change of the text
    /// replaces it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<DocumentContent>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// State of the extraction of an upload's text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ContentStatus {
    /// Stored, and waiting for its extraction. Entered by an upload, a re-index, and an attempt that is to be repeated.
    #[default]
    Pending,
    /// Claimed by a process that extracts the text, or that was interrupted and whose lease has not expired.
    Extracting,
    /// Extracted: the text is that of the original.
    Ready,
    /// Not extracted; `error` has the reason.
    Failed,
}

impl ContentStatus {
    /// Returns true if the extraction has ended.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Ready | Self::Failed)
    }
}

/// Markup of an extracted text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ContentFormat {
    /// No markup.
    #[default]
    Plain,
    /// Markdown.
    Markdown,
}

/// Uploaded original of a document and the state of the extraction of its text; set by the server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DocumentContent {
    /// Media type of the original.
    pub media_type: String,
    /// Size of the original, in bytes.
    pub bytes: u64,
    /// SHA-256 of the original, in hexadecimal.
    pub sha256: String,
    /// Identifier of the upload, under which the original is stored.
    pub generation: String,
    /// State of the extraction.
    pub status: ContentStatus,
    /// Number of pages, sheets or slides; absent for a format without them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pages: Option<u32>,
    /// Pages, from 1, that are pictures without text; at most the first 1,000.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub needs_ocr: Vec<u32>,
    /// Reason of a failed extraction, or for which an extraction gave no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Size of the extracted text, in bytes. A text of more than 400 KiB is not in the document's `text`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_bytes: Option<u64>,
    /// Markup of the extracted text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_format: Option<ContentFormat>,
    /// Identifier of the extraction, under which the positions of pages and a long text are stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_generation: Option<String>,
    /// Extractor of the text and its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extractor: Option<String>,
}

impl DocumentContent {
    /// Returns the size of the text that is stored in pieces; `None` if the document's record has the text.
    pub(super) fn long_text_bytes(&self) -> Option<usize> {
        let bytes = usize::try_from(self.text_bytes?).ok()?;
        (bytes > MAX_DOCUMENT_BYTES).then_some(bytes)
    }
}

impl Document {
    /// Returns the size of the text in bytes, wherever it is stored.
    pub fn text_bytes(&self) -> usize {
        self.content.as_ref().and_then(DocumentContent::long_text_bytes).unwrap_or(self.text.len())
    }

    /// Returns true if the text is stored in pieces, and `text` is empty.
    pub fn has_long_text(&self) -> bool {
        self.content.as_ref().is_some_and(|content| content.long_text_bytes().is_some())
    }

    /// Returns true if the document has no upload, or one whose text has been extracted.
    pub fn is_ready(&self) -> bool {
        self.content.as_ref().is_none_or(|content| content.status == ContentStatus::Ready)
    }

    /// Returns the identifier of the upload.
    pub(crate) fn generation(&self) -> Option<&str> {
        self.content.as_ref().map(|content| content.generation.as_str())
    }

    /// Returns the document as it replaces `stored`: with the upload of that one if it names the same upload and has the
    /// same text, or none, as it was read before the extraction. Any other document replaces the upload.
    pub(super) fn with_upload_of(&self, stored: &Self) -> Self {
        let is_same = self.content.is_some() && self.generation() == stored.generation();
        if is_same && (self.text.is_empty() || self.text == stored.text) {
            return Self { text: stored.text.clone(), content: stored.content.clone(), ..self.clone() };
        }
        Self { content: None, ..self.clone() }
    }
}

/// Returns the record key of a document; an invalid identifier is reported as absent.
pub(super) fn key(company_id: &CompanyId, id: &str) -> Result<Key, WorkspaceError> {
    Key::new(company_id, collection::DOCUMENTS, id).map_err(|_| absent(id))
}

pub(super) fn absent(id: &str) -> WorkspaceError {
    WorkspaceError::NotFound { what: "document", id: id.to_owned() }
}
