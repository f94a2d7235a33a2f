//! Limits on the expansion of a document.

/// Limits of one extraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtractionLimits {
    /// Maximum size of the extracted text in bytes.
    pub max_text_bytes: usize,
    /// Maximum number of pages, slides or sheets.
    pub max_pages: u32,
    /// Maximum number of entries of an Office document's archive.
    pub max_archive_entries: usize,
    /// Maximum size of an archive's entries in bytes, uncompressed and in total.
    pub max_unpacked_bytes: u64,
    /// Maximum ratio of the uncompressed entries to the archive, applied from 1 MiB of uncompressed entries on.
    pub max_archive_ratio: u64,
    /// Maximum nesting of JSON values and HTML elements.
    pub max_depth: usize,
}

impl Default for ExtractionLimits {
    /// Returns the limits: 20 MB of text, 20,000 pages, archives of 2,000 entries, 256 MiB and a ratio of 100, and a
    /// nesting of 256.
    fn default() -> Self {
        Self {
            max_text_bytes: 20_000_000,
            max_pages: 20_000,
            max_archive_entries: 2_000,
            max_unpacked_bytes: 256 * 1024 * 1024,
            max_archive_ratio: 100,
            max_depth: 256,
        }
    }
}
