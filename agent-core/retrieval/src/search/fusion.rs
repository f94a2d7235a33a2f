//! Combination of lexical scores with similarities by vectors.

use std::collections::{BTreeMap, BTreeSet};

use super::score::Candidate;
use crate::document::DocumentId;
use crate::part::Corpus;

/// Number of best chunks of each kind that are combined if there are vectors.
pub(super) const FUSION_CANDIDATES: usize = 200;

/// A chunk that was found by its vector, by [`CompanyIndex::nearest`](crate::company::CompanyIndex::nearest) or by an index
/// outside.
#[derive(Debug, Clone, PartialEq)]
pub struct DenseHit {
    /// The document.
    pub document: DocumentId,
    /// The number of the chunk within the document, from 0.
    pub chunk: u32,
    /// The similarity.
    pub similarity: f32,
}

/// Ranking of chunks by the similarity of their vectors, and its weight in the combined ranking.
#[derive(Debug, Clone, Copy)]
pub struct DenseRanking<'a> {
    /// The chunks. Those outside of the scope, and similarities that are not finite, are ignored.
    pub hits: &'a [DenseHit],
    /// Share of the similarity in a hit's score, between 0 and 1: 0.5 for a good model, 0.2 for a weak one.
    pub weight: f32,
    /// Similarity from which a hit is relevant regardless of its words.
    pub min_similarity: f32,
}

/// A chunk with its scores. `chunk.score` is the lexical one.
#[derive(Debug, Clone, Copy)]
pub(super) struct FusedHit {
    pub(super) chunk: Candidate,
    pub(super) dense: Option<f32>,
    pub(super) score: f32,
}

impl FusedHit {
    pub(super) fn lexical(chunk: Candidate) -> Self {
        Self { chunk, dense: None, score: chunk.score }
    }
}

/// Ranks the union of both lists by the weighted sum of their scores, each scaled to 0..1 over its list. A chunk that is
/// not in a list scores 0 in it.
pub(super) fn fuse(
    corpus: &Corpus<'_>,
    lexical: Vec<FusedHit>,
    dense: &DenseRanking<'_>,
    limit: usize,
) -> Vec<FusedHit> {
    let mut union: BTreeMap<(usize, u32), FusedHit> =
        lexical.into_iter().map(|fused| ((fused.chunk.part, fused.chunk.chunk), fused)).collect();
    for (part, chunk, similarity) in locate(corpus, dense.hits) {
        let fused = union
            .entry((part, chunk))
            .or_insert_with(|| FusedHit::lexical(Candidate { score: 0.0, part, chunk }));
        fused.dense = Some(fused.dense.map_or(similarity, |greatest| greatest.max(similarity)));
    }
    let lexical_scale = Scale::of(union.values().map(|fused| fused.chunk.score).filter(|&score| score > 0.0));
    let dense_scale = Scale::of(union.values().filter_map(|fused| fused.dense));
    let weight = dense.weight.clamp(0.0, 1.0);
    let mut fused: Vec<FusedHit> = union
        .into_values()
        .map(|fused| {
            let lexical = if fused.chunk.score > 0.0 { lexical_scale.apply(fused.chunk.score) } else { 0.0 };
            let similarity = fused.dense.map_or(0.0, |similarity| dense_scale.apply(similarity));
            FusedHit { score: (1.0 - weight) * lexical + weight * similarity, ..fused }
        })
        .collect();
    fused.sort_by(|left, right| {
        let by_score = |fused: &FusedHit| Candidate { score: fused.score, ..fused.chunk };
        by_score(left).compare(&by_score(right), corpus)
    });
    fused.truncate(limit);
    fused
}

/// The least and the greatest score of a list.
#[derive(Clone, Copy)]
struct Scale {
    least: f32,
    greatest: f32,
}

impl Scale {
    fn of(values: impl Iterator<Item = f32>) -> Self {
        let start = Self { least: f32::INFINITY, greatest: f32::NEG_INFINITY };
        values.fold(start, |scale, value| Self {
            least: scale.least.min(value),
            greatest: scale.greatest.max(value),
        })
    }

    /// Maps the least score to 0 and the greatest to 1; equal scores to 1.
    fn apply(self, value: f32) -> f32 {
        if self.greatest > self.least { (value - self.least) / (self.greatest - self.least) } else { 1.0 }
    }
}

/// Returns the part and chunk of each hit in the scope.
fn locate(corpus: &Corpus<'_>, hits: &[DenseHit]) -> Vec<(usize, u32, f32)> {
    let ids: BTreeSet<&DocumentId> = hits.iter().map(|hit| &hit.document).collect();
    let mut documents = BTreeMap::new();
    for (number, part) in corpus.parts.iter().enumerate() {
        for document in part.documents().filter(|document| ids.contains(&document.id)) {
            documents.insert(&document.id, (number, document.chunks.clone()));
        }
    }
    hits.iter()
        .filter(|hit| hit.similarity.is_finite())
        .filter_map(|hit| {
            let (part, chunks) = documents.get(&hit.document)?;
            let chunk = chunks.start.checked_add(hit.chunk).filter(|chunk| chunks.contains(chunk))?;
            Some((*part, chunk, hit.similarity))
        })
        .collect()
}
