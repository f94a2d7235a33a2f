//! Search by vectors: compares the query's vector with that of every chunk in the scope.

use super::fusion::{DenseHit, FUSION_CANDIDATES};
use super::score::{BestCandidates, Candidate};
use crate::doc_index::{DotProducts, QuantizedQuery, VectorsError};
use crate::embed::EmbedderId;
use crate::part::Corpus;

/// The vector of a query.
#[derive(Debug, Clone, Copy)]
pub struct VectorQuery<'a> {
    /// The embedder of the vector. Vectors of other embedders are not compared with it.
    pub embedder: &'a EmbedderId,
    /// The vector, of any length.
    pub vector: &'a [f32],
    /// Method for comparing vectors.
    pub method: DotProducts,
}

impl<'a> VectorQuery<'a> {
    /// Creates a query that is compared in the fastest way.
    pub fn new(embedder: &'a EmbedderId, vector: &'a [f32]) -> Self {
        Self { embedder, vector, method: DotProducts::default() }
    }
}

/// Returns the chunks with the greatest similarities, at most as many as a search combines; ties by document and position.
pub(crate) fn nearest(corpus: &Corpus<'_>, query: &VectorQuery<'_>) -> Result<Vec<DenseHit>, VectorsError> {
    let quantized = QuantizedQuery::new(query.embedder.as_str(), query.vector, query.method)?;
    let mut best = BestCandidates::new(corpus, FUSION_CANDIDATES);
    let mut products = Vec::new();
    for (number, part) in corpus.parts.iter().enumerate() {
        for document in part.documents() {
            let Some(vectors) = &document.vectors else { continue };
            let first = document.chunks.start;
            vectors.for_each_similarity(&quantized, &mut products, |chunk, similarity| {
                best.add(Candidate { score: similarity, part: number, chunk: first + chunk });
            });
        }
    }
    let hit = |candidate: Candidate| {
        let document = corpus.parts[candidate.part].part.document_of(candidate.chunk);
        let chunk = candidate.chunk - document.chunks.start;
        DenseHit { document: document.id.clone(), chunk, similarity: candidate.score }
    };
    Ok(best.finish().into_iter().map(hit).collect())
}
