//! Check of vectors against the words of their chunks: detects an embedder whose vectors have no relation to the texts.
//!
//! 1. A sample of the chunks with vectors is drawn by the hashes of their positions (module `sample`).
//! 2. Those that have the most rare words in common are paired, each chunk once (module `related`).
//! 3. If vectors do not depend on the texts, the second chunks could as well be assigned to the first ones in any other way.
//!    The similarities of the pairs are compared with those under all assignments (module `permutation`).
//!
//! The result depends on the documents alone, as a ranking does. It is about vectors of documents: a model that embeds
//! only queries without meaning is not found.

mod permutation;
mod related;
mod sample;

use crate::doc_index::cosines;
use crate::embed::EmbedderId;
use crate::part::Corpus;

/// Minimum number of pairs from which vectors are judged.
const MIN_PAIRS: usize = 32;
/// Maximum number of pairs.
const MAX_PAIRS: usize = 64;
/// Minimum standard score of vectors with a meaning. Vectors without a meaning reach it in one of about 700 collections.
const MIN_STANDARD_SCORE: f64 = 3.0;
/// Minimum number of different texts whose vectors show by being all equal that they have no meaning.
const MIN_EQUAL_VECTORS: usize = 8;

/// Result of [`CompanyIndex::check_vectors`](crate::company::CompanyIndex::check_vectors).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VectorCheck {
    /// The verdict.
    pub quality: VectorQuality,
    /// Number of pairs of related chunks that were compared.
    pub pairs: usize,
    /// Number of standard deviations by which related chunks have more similar vectors than others; 0 if it was not
    /// computed.
    pub standard_score: f64,
}

/// Relation of the vectors of chunks to their texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VectorQuality {
    /// Too few chunks with vectors have rare words in common for a verdict.
    Undecided,
    /// Chunks with rare words in common have more similar vectors than others.
    Informative,
    /// Chunks with rare words in common have no more similar vectors than others, or all vectors are equal.
    Uninformative,
}

/// Checks the vectors of an embedder in a corpus.
pub(crate) fn check_vectors(corpus: &Corpus<'_>, embedder: &EmbedderId) -> VectorCheck {
    let sample = sample::draw(corpus, embedder);
    let is_equal = |pair: &[sample::SampledChunk<'_>]| pair[0].vector.components == pair[1].vector.components;
    if sample.len() >= MIN_EQUAL_VECTORS && sample.windows(2).all(is_equal) {
        return VectorCheck { quality: VectorQuality::Uninformative, pairs: 0, standard_score: 0.0 };
    }
    let pairs = related::pairs(&sample, MAX_PAIRS);
    if pairs.len() < MIN_PAIRS {
        return VectorCheck { quality: VectorQuality::Undecided, pairs: pairs.len(), standard_score: 0.0 };
    }
    let first: Vec<_> = pairs.iter().map(|&(first, _)| sample[first].vector).collect();
    let second: Vec<_> = pairs.iter().map(|&(_, second)| sample[second].vector).collect();
    let standard_score = permutation::standard_score(&cosines(&first, &second), pairs.len());
    let quality = match standard_score >= MIN_STANDARD_SCORE {
        true => VectorQuality::Informative,
        false => VectorQuality::Uninformative,
    };
    VectorCheck { quality, pairs: pairs.len(), standard_score }
}

#[cfg(test)]
mod tests;
