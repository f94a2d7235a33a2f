//! Vectors of a document's chunks: the inputs of an embedder, and the chunks that have none yet.

use std::hash::Hasher;
use std::sync::Arc;

use siphasher::sip::SipHasher13;

use super::{DocIndex, Vectors, VectorsError};
use crate::embed::{EmbedderId, Embeddings};

impl DocIndex {
    /// Returns the text of a chunk as embedders take it: below the title and the headings, so that it is understood alone.
    /// `text` is that of the document; `None` if there is no such chunk in it.
    pub fn embedding_input(&self, text: &str, chunk: usize) -> Option<String> {
        let location = self.locations.get(chunk)?;
        let content = text.get(location.start as usize..location.end as usize)?;
        let heading =
            (location.heading as usize).checked_sub(1).map(|heading| &*self.labels.headings[heading]);
        let lines = [Some(&*self.labels.title), heading, Some(content)];
        let lines: Vec<&str> = lines.into_iter().flatten().filter(|line| !line.is_empty()).collect();
        Some(lines.join("\n"))
    }

    /// Returns the numbers of the chunks without a vector of this embedder, in ascending order.
    pub fn unembedded_chunks(&self, embedder: &EmbedderId) -> Vec<usize> {
        match self.vectors().filter(|vectors| vectors.embedder() == embedder.as_str()) {
            Some(vectors) => (0..)
                .zip(vectors.presence())
                .filter(|(_, present)| !present)
                .map(|(chunk, _)| chunk)
                .collect(),
            None => (0..self.chunk_count()).collect(),
        }
    }

    /// Returns the index with vectors of further chunks, in addition to earlier vectors of this embedder. Vectors of
    /// other embedders, and those with another number of components, are dropped.
    ///
    /// # Errors
    /// The numbers of the chunks do not ascend, there are not as many chunks as vectors, or a chunk is not one of the document
    /// with this text.
    pub fn with_embeddings(
        self,
        embedder: &EmbedderId,
        text: &str,
        chunks: &[usize],
        embeddings: &Embeddings,
    ) -> Result<Self, VectorsError> {
        if chunks.len() != embeddings.len() || !chunks.is_sorted_by(|left, right| left < right) {
            return Err(VectorsError::Count { expected: chunks.len(), found: embeddings.len() });
        }
        let inputs: Option<Vec<u64>> = chunks.iter().map(|&chunk| self.input_hash(text, chunk)).collect();
        let inputs =
            inputs.ok_or(VectorsError::Count { expected: self.chunk_count(), found: chunks.len() })?;
        if chunks.is_empty() {
            return Ok(self);
        }
        let dimensions = embeddings.dimensions();
        let is_comparable = |vectors: &&Vectors| {
            (vectors.embedder(), vectors.dimensions()) == (embedder.as_str(), dimensions)
        };
        let rows = chunks.iter().copied().zip(inputs).zip(embeddings.iter());
        let new_rows = rows.map(|((chunk, input), vector)| (chunk, input, vector));
        let vectors = match self.vectors().filter(is_comparable) {
            Some(vectors) => vectors.with(new_rows)?,
            None => Vectors::absent(embedder.as_str(), dimensions, self.chunk_count())?.with(new_rows)?,
        };
        self.with_vectors(Some(vectors))
    }

    /// Returns the index with the vectors that an earlier version of the document has for equal inputs, so that a change
    /// embeds again only the chunks that it changes.
    pub fn with_vectors_of(self, text: &str, earlier: &Vectors) -> Self {
        let inputs = (0..self.chunk_count()).map(|chunk| self.input_hash(text, chunk).unwrap_or(0));
        let vectors = earlier.for_inputs(inputs);
        Self { vectors: (vectors.present() > 0).then(|| Arc::new(vectors)), ..self }
    }

    /// Returns the index without vectors.
    pub fn without_vectors(self) -> Self {
        Self { vectors: None, ..self }
    }

    /// Returns the vectors, to be shared.
    pub fn shared_vectors(&self) -> Option<Arc<Vectors>> {
        self.vectors.clone()
    }

    /// Returns the hash of a chunk's input, which is not 0.
    fn input_hash(&self, text: &str, chunk: usize) -> Option<u64> {
        let mut hasher = SipHasher13::new();
        hasher.write(self.embedding_input(text, chunk)?.as_bytes());
        Some(hasher.finish().max(1))
    }
}
