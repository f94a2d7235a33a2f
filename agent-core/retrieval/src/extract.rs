//! Extraction of text from the bytes of a document.
//!
//! The platform's own extractor runs in a separate process with limits; an integrator may call a service in its place.

use async_trait::async_trait;
use bytes::Bytes;
use thiserror::Error;

use crate::document::ExtractedText;

/// Extracts the text of documents. The contract is the suite `conformance::extractor`.
#[async_trait]
pub trait Extractor: Send + Sync + 'static {
    /// Returns an identifier of the extractor and its version. Texts of different extractors may differ.
    fn id(&self) -> &str;

    /// Returns true if the extractor can read a media type, such as `application/pdf`. Uploads of other types are refused, so it
    /// is false for a type that the extractor does not know.
    fn supports(&self, media_type: &str) -> bool;

    /// Returns the media type of a document by its content, or `None` if the extractor does not read it. The
    /// declared media type is at most a hint. By default, it is taken as correct.
    fn detect(&self, declared_media_type: &str, bytes: &[u8]) -> Option<String> {
        let _ = bytes;
        self.supports(declared_media_type).then(|| declared_media_type.to_owned())
    }

    /// Extracts the text of a document. Equal documents have equal texts. Dropping the future stops the extraction, as the platform
    /// does after five minutes by default. Run blocking work on another thread.
    ///
    /// # Errors
    /// [`ExtractError::Unsupported`] for a media type that [`supports`](Self::supports) denies. The platform repeats an attempt
    /// after [`ExtractError::Unavailable`], eight in all by default, and after no other error.
    async fn extract(&self, media_type: &str, bytes: Bytes) -> Result<ExtractedDocument, ExtractError>;
}

/// A document as an extractor has read it: its text, the number of its pages and those without text.
#[derive(Debug, Clone, Default)]
pub struct ExtractedDocument {
    /// The text, with the title if the document states one.
    pub document: ExtractedText,
    /// Number of pages, sheets or slides; `None` for a format without them.
    pub pages: Option<u32>,
    /// The pages, from 1, that are pictures without text: an optical character recognition would have to read them.
    pub needs_ocr: Vec<u32>,
}

/// Error of an extraction. The messages are shown to users and contain no text of the document.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ExtractError {
    /// The extractor does not read the media type.
    #[error("the media type {0:?} is not supported")]
    Unsupported(String),
    /// The bytes are not a document of their media type.
    #[error("the document cannot be read: {0}")]
    Malformed(String),
    /// The document is encrypted.
    #[error("the document is protected by a password")]
    Encrypted,
    /// The extraction exceeded a limit on time, memory, output or compression, which the text names.
    #[error("the document exceeds a limit: {0}")]
    LimitExceeded(String),
    /// The extractor failed for a reason that is not in the document; a later attempt may succeed.
    #[error("the extractor is unavailable: {0}")]
    Unavailable(String),
}
