//! The chunker by structure.

use super::merge::Merger;
use super::pieces::split;
use super::{Chunk, Chunker};
use crate::document::ExtractedText;

/// The default chunker: splits by structure, see the [module](super).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StructuralChunker {
    max_characters: usize,
    overlap_characters: usize,
}

impl Default for StructuralChunker {
    /// Returns the chunker for at most 900 characters a chunk, at most 200 of which repeat the chunk before.
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
    fn id(&self) -> String {
        format!("structural/{}/{}", self.max_characters, self.overlap_characters)
    }

    fn chunk(&self, document: &ExtractedText) -> Vec<Chunk> {
        let mut merger = Merger::new(document, self.max_characters, self.overlap_characters);
        split(&document.text, document.format, self.max_characters, &mut |piece| merger.add(piece));
        merger.finish()
    }
}
