//! Extraction of text from the bytes of documents.
//!
//! ```text
//! bytes ──sniff──► MediaType ──extract──► ExtractedDocument: title, text, pages, pages without text
//! ```
//!
//! [`sniff`] determines the media type by the content, because the name or type that a client declares may be wrong.
//! [`extract`] is a pure function: equal bytes give equal texts. The libraries for PDF, Office and HTML documents are
//! behind the feature `documents`.
//!
//! Documents are untrusted. `sniff` is safe in any process. `extract` keeps its output within [`ExtractionLimits`]. The
//! libraries below it allocate what a document demands, and may panic or exhaust the stack. Run it in a separate
//! process with limits on memory and time.

#![cfg_attr(
    not(feature = "documents"),
    allow(dead_code, reason = "pages and archives are those of documents")
)]

#[cfg(feature = "documents")]
mod archive;
mod column_names;
mod csv_rows;
mod encoding;
#[cfg(feature = "documents")]
mod escapes;
#[cfg(any(all(test, feature = "documents"), feature = "fixtures"))]
pub mod fixtures;
#[cfg(feature = "documents")]
mod html;
mod json;
mod json_lines;
mod limits;
mod media_type;
#[cfg(feature = "documents")]
mod numerals;
#[cfg(feature = "documents")]
mod office;
#[cfg(feature = "documents")]
mod pdf;
mod plain;
mod rows;
mod sniff;
#[cfg(feature = "documents")]
mod superscript;
#[cfg(all(test, feature = "documents"))]
mod tests;
mod text_builder;
mod title;

use agent_retrieval::extract::{ExtractError, ExtractedDocument};

pub use limits::ExtractionLimits;
pub use media_type::MediaType;
pub use sniff::sniff;

/// Identifier of this extractor. Its number rises with each change of the texts that equal documents give.
pub const EXTRACTOR_ID: &str = "agent-extract/11";

/// Extracts the text of a document. The bytes are read as `media_type` and not checked against it; see [`sniff`].
///
/// # Errors
///
/// [`ExtractError::Unsupported`] if the crate was built without the media type's library, and errors for documents that
/// are malformed, encrypted or exceed a limit.
pub fn extract(
    media_type: MediaType,
    bytes: &[u8],
    limits: &ExtractionLimits,
) -> Result<ExtractedDocument, ExtractError> {
    match media_type {
        MediaType::Plain => plain::extract_plain(bytes, limits),
        MediaType::Markdown => plain::extract_markdown(bytes, limits),
        MediaType::Csv => csv_rows::extract(bytes, limits),
        MediaType::Json => json::extract(bytes, limits),
        #[cfg(feature = "documents")]
        MediaType::Html => html::extract(bytes, limits),
        #[cfg(feature = "documents")]
        MediaType::Pdf => pdf::extract(bytes, limits),
        #[cfg(feature = "documents")]
        MediaType::Docx | MediaType::Xlsx | MediaType::Pptx => office::extract(media_type, bytes, limits),
        #[cfg(not(feature = "documents"))]
        _ => {
            let reason = format!("{media_type}: its reader is not part of this build");
            Err(ExtractError::Unsupported(reason))
        }
    }
}
