//! Splitting of documents into chunks, the units that are ranked.
//!
//! [`StructuralChunker`] splits a text at the strongest boundaries that give pieces short enough: headings and
//! paragraphs, then lines, sentences, words, and characters at last. Adjacent pieces are merged greedily up to the
//! limit. A chunk that begins within a section repeats the last sentences of the chunk before. One that begins within the rows
//! of a table has the table's header row below its headings.

mod blocks;
mod merge;
mod pieces;
mod structural;
mod tables;

use std::sync::Arc;

pub use structural::StructuralChunker;

use crate::document::ExtractedText;

/// A part of a document's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Byte offset of the first character.
    pub start: usize,
    /// Byte offset after the last character.
    pub end: usize,
    /// The headings above the chunk's beginning, joined by ` > `, the outermost first. Below them is the header row of the table
    /// within whose rows the chunk begins.
    pub heading: Option<Arc<str>>,
    /// The page on which the chunk begins, from 1.
    pub page: Option<u32>,
}

/// Splits documents into chunks.
///
/// Implementations are pure: equal documents give equal chunks. Offsets are on boundaries of characters, starts do not
/// descend, and chunks are not empty. Chunks may overlap; together they contain every letter and digit of the text, of
/// any text. The contract is the suite `conformance::chunker`.
pub trait Chunker: Send + Sync {
    /// Returns an identifier of the chunker with its version and its settings, of at most 512 bytes. A stored index is used only by
    /// the chunker that it was made with.
    fn id(&self) -> String;

    /// Returns the chunks of a document in the order of their starts. May block: it is called on a thread for blocking work.
    fn chunk(&self, document: &ExtractedText) -> Vec<Chunk>;
}

#[cfg(test)]
mod tests;
