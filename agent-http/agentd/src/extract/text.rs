//! Extraction of texts that no parser reads, without a process.

use agent_extract::{ExtractionLimits, MediaType, extract};
use agent_retrieval::extract::{ExtractError, ExtractedDocument, Extractor};
use async_trait::async_trait;
use bytes::Bytes;
use tokio::task::spawn_blocking;

use super::ProcessExtractor;

/// Reads plain text and Markdown in this process, as no parser runs for them, and all other formats by a
/// [`ProcessExtractor`]: the values of a JSON document and the cells of a CSV file may take twenty times its size.
#[derive(Debug)]
pub struct DocumentExtractor {
    others: ProcessExtractor,
}

impl DocumentExtractor {
    /// Creates an extractor that passes documents of other formats to the extractor `others`.
    pub fn new(others: ProcessExtractor) -> Self {
        Self { others }
    }
}

#[async_trait]
impl Extractor for DocumentExtractor {
    fn id(&self) -> &str {
        self.others.id()
    }

    fn supports(&self, media_type: &str) -> bool {
        self.others.supports(media_type)
    }

    fn detect(&self, declared_media_type: &str, bytes: &[u8]) -> Option<String> {
        self.others.detect(declared_media_type, bytes)
    }

    async fn extract(&self, media_type: &str, bytes: Bytes) -> Result<ExtractedDocument, ExtractError> {
        let Some(text @ (MediaType::Plain | MediaType::Markdown)) = MediaType::parse(media_type) else {
            return self.others.extract(media_type, bytes).await;
        };
        let extracted = spawn_blocking(move || extract(text, &bytes, &ExtractionLimits::default())).await;
        extracted.unwrap_or_else(|_| Err(ExtractError::Malformed("its text cannot be read".to_owned())))
    }
}
