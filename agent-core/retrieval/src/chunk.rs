//! Splitting of documents into chunks, the units that are ranked.
//!
//! [`StructuralChunker`] splits a text at the strongest boundaries that give pieces short enough: headings and
//! paragraphs, then lines, sentences, words, and characters at last. Adjacent pieces are merged greedily up to the
//! limit. A chunk that begins within a section repeats the last sentences of the chunk before.

mod merge;
mod pieces;

use std::sync::Arc;

use crate::document::Extracted;

/// A part of a document's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Byte offset of the first character.
    pub start: usize,
    /// Byte offset after the last character.
    pub end: usize,
    /// The headings above the chunk's beginning, joined by ` > `, the outermost first.
    pub heading: Option<Arc<str>>,
    /// The page on which the chunk begins, from 1.
    pub page: Option<u32>,
}

/// Splits documents into chunks.
///
/// Implementations are pure: equal documents give equal chunks. Offsets are on boundaries of characters, starts do not
/// descend, and chunks are not empty.
pub trait Chunker: Send + Sync {
    /// Returns the chunks of a document in the order of their starts.
    fn chunk(&self, document: &Extracted) -> Vec<Chunk>;
}

/// The default chunker: splits by structure, see the [module](self).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StructuralChunker {
    max_characters: usize,
    overlap_characters: usize,
}

impl Default for StructuralChunker {
    /// Returns the chunker for at most 900 characters a chunk, of which at most 200 repeat the chunk before.
    fn default() -> Self {
        Self { max_characters: 900, overlap_characters: 200 }
    }
}

impl StructuralChunker {
    /// Returns a chunker with limits in characters. The overlap is at most half a chunk.
    ///
    /// # Panics
    ///
    /// If `max_characters` is 0.
    pub fn new(max_characters: usize, overlap_characters: usize) -> Self {
        assert!(max_characters > 0, "a chunk has at least one character");
        Self { max_characters, overlap_characters: overlap_characters.min(max_characters / 2) }
    }
}

impl Chunker for StructuralChunker {
    fn chunk(&self, document: &Extracted) -> Vec<Chunk> {
        let mut merger = merge::Merger::new(document, self.max_characters, self.overlap_characters);
        pieces::split(&document.text, document.format, self.max_characters, &mut |piece| merger.add(piece));
        merger.finish()
    }
}

#[cfg(test)]
mod tests;
