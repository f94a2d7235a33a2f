//! The index of one document: a value that is made by pure code, stored as bytes and merged in memory.
//!
//! It contains the locations of the chunks, their headings, and the terms of each chunk; the text itself stays in the
//! store. A value may have vectors of the chunks, with the identifier of the embedder that made them.

mod build;
mod codec;
mod dot_product;
mod embedding;
mod slices;
mod vectors;

use std::sync::Arc;

use thiserror::Error;

pub use codec::{DecodeError, FORMAT_VERSION};
pub use dot_product::DotProducts;
pub(crate) use vectors::{QuantizedQuery, VectorRow, cosines};
pub use vectors::{Vectors, VectorsError};

use crate::analysis::Language;
use crate::postings::Postings;

/// Longest text of a document that can be indexed, in bytes.
pub const MAX_TEXT_BYTES: usize = 1 << 30;

/// The location of a chunk in its document: a byte range, a heading and a page. `heading` and `page` are 0 if
/// there is none; headings are numbered from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ChunkLocation {
    pub(crate) start: u32,
    pub(crate) end: u32,
    pub(crate) heading: u32,
    pub(crate) page: u32,
}

/// The names of a document and its headings, shared by the indexes that contain it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Labels {
    pub(crate) title: Arc<str>,
    pub(crate) headings: Arc<[Arc<str>]>,
}

/// The index of one document. See the [module](self).
#[derive(Debug, Clone, PartialEq)]
pub struct DocIndex {
    pub(crate) labels: Labels,
    pub(crate) language: Language,
    pub(crate) locations: Vec<ChunkLocation>,
    /// Terms of each chunk without function words, counted with repetitions, at most 65,535.
    pub(crate) lengths: Vec<u16>,
    pub(crate) postings: Postings,
    /// Shared with the merged indexes that contain the document.
    pub(crate) vectors: Option<Arc<Vectors>>,
}

/// Error of building the index of a document.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The text is longer than [`MAX_TEXT_BYTES`].
    #[error("the text has {0} bytes, more than {MAX_TEXT_BYTES}")]
    TextTooLong(usize),
    /// The chunker returned a chunk that is not a part of the text, or chunks that are not in order.
    #[error("the chunker returned the range {0}..{1}, which is empty, out of order or no part of the text")]
    InvalidChunk(usize, usize),
}

impl DocIndex {
    /// Returns the number of chunks.
    pub fn chunk_count(&self) -> usize {
        self.locations.len()
    }

    /// Returns the byte ranges of the chunks in the document's text.
    pub fn chunk_ranges(&self) -> impl ExactSizeIterator<Item = std::ops::Range<usize>> {
        self.locations.iter().map(|location| location.start as usize..location.end as usize)
    }

    /// Returns the language of the document's analysis.
    pub fn language(&self) -> Language {
        self.language
    }

    /// Returns the vectors of the chunks, if an embedder made them.
    pub fn vectors(&self) -> Option<&Vectors> {
        self.vectors.as_deref()
    }

    /// Returns the bytes of heap memory, including the vectors, which may be shared.
    pub fn memory_bytes(&self) -> usize {
        let headings: usize = self.labels.headings.iter().map(|heading| heading.len()).sum();
        let locations = self.locations.capacity() * size_of::<ChunkLocation>();
        let lengths = self.lengths.capacity() * size_of::<u16>();
        let vectors = self.vectors().map_or(0, Vectors::memory_bytes);
        self.labels.title.len() + headings + locations + lengths + self.postings.memory_bytes() + vectors
    }

    /// Returns the index with vectors in place of those it had.
    ///
    /// Fails if they are not as many as the chunks.
    pub fn with_vectors(self, vectors: Option<Vectors>) -> Result<Self, VectorsError> {
        match &vectors {
            Some(vectors) if vectors.len() != self.chunk_count() => {
                Err(VectorsError::Count { expected: self.chunk_count(), found: vectors.len() })
            }
            _ => Ok(Self { vectors: vectors.map(Arc::new), ..self }),
        }
    }
}

#[cfg(test)]
mod tests;
