//! Extractor of documents that are text as they are.

use agent_retrieval::document::{Extracted, TextFormat};
use agent_retrieval::extract::{ExtractError, Extraction, Extractor};
use async_trait::async_trait;
use bytes::Bytes;

/// Media type of Markdown (RFC 7763).
const MARKDOWN: &str = "text/markdown";
/// Media types of text in UTF-8.
const MEDIA_TYPES: [&str; 4] = ["text/plain", MARKDOWN, "text/csv", "application/json"];

/// Extractor of plain text, Markdown, CSV and JSON in UTF-8.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PlainTextExtractor;

#[async_trait]
impl Extractor for PlainTextExtractor {
    fn id(&self) -> &str {
        "plain-text/1"
    }

    fn supports(&self, media_type: &str) -> bool {
        MEDIA_TYPES.contains(&media_type)
    }

    async fn extract(&self, media_type: &str, bytes: Bytes) -> Result<Extraction, ExtractError> {
        if !self.supports(media_type) {
            return Err(ExtractError::Unsupported(media_type.to_owned()));
        }
        let text = std::str::from_utf8(&bytes)
            .map_err(|error| ExtractError::Malformed(format!("byte {} is not UTF-8", error.valid_up_to())))?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text).to_owned();
        let format = if media_type == MARKDOWN { TextFormat::Markdown } else { TextFormat::Plain };
        let document = Extracted { text, format, ..Extracted::default() };
        Ok(Extraction { document, ..Extraction::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn extract(media_type: &str, bytes: &'static [u8]) -> Result<Extracted, String> {
        let extracted = PlainTextExtractor.extract(media_type, Bytes::from_static(bytes)).await;
        extracted.map(|extraction| extraction.document).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn text_is_taken_as_it_is_and_must_be_utf8() {
        let plain = extract("text/plain", b"\xef\xbb\xbf# one\n").await.expect("text");
        assert_eq!((plain.text.as_str(), plain.format), ("# one\n", TextFormat::Plain));
        assert_eq!(extract("text/markdown", b"# one").await.expect("text").format, TextFormat::Markdown);
        let latin = extract("text/csv", b"caf\xe9").await.expect_err("refused");
        assert_eq!(latin, "the document cannot be read: byte 3 is not UTF-8");
        let pdf = extract("application/pdf", b"%PDF").await.expect_err("refused");
        assert_eq!(pdf, "the media type \"application/pdf\" is not supported");
    }
}
