//! A document as retrieval sees it: an identifier, and the text that was extracted from its bytes.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// The identifier of a document, unique within a company.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentId(Arc<str>);

impl DocumentId {
    /// Returns the identifier as a string.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<T: Into<Arc<str>>> From<T> for DocumentId {
    fn from(id: T) -> Self {
        Self(id.into())
    }
}

impl Borrow<str> for DocumentId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DocumentId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The markup of a text, from which the chunker knows where sections begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TextFormat {
    /// No markup.
    #[default]
    Plain,
    /// Markdown: lines that begin with `#` outside of code are headings.
    Markdown,
}

/// The text that was extracted from a document, with its title, its markup and the positions of its pages.
#[derive(Debug, Clone, Default)]
pub struct ExtractedText {
    /// The title, indexed with every chunk; may be empty.
    pub title: String,
    /// The text, to which all offsets refer.
    pub text: String,
    /// The markup of the text.
    pub format: TextFormat,
    /// The byte offsets at which pages begin, ascending; empty for a document without pages.
    pub page_starts: Vec<u32>,
}

impl ExtractedText {
    /// Returns the number of the page, from 1, that has the byte at an offset.
    pub(crate) fn page_at(&self, offset: usize) -> Option<u32> {
        let page = self.page_starts.partition_point(|&start| start as usize <= offset);
        u32::try_from(page).ok().filter(|&page| page > 0)
    }
}
