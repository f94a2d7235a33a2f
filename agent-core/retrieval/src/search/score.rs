//! BM25 scores of chunks.

use std::cmp::Ordering;

use super::bm25::{contribution, norm};
use super::terms::WeightedTerm;
use crate::part::Corpus;

/// A chunk with its score; `part` is the position in the corpus.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) score: f32,
    pub(super) part: usize,
    pub(super) chunk: u32,
}

impl Candidate {
    /// Compares by score, the greatest first; ties by document and position.
    pub(super) fn compare(&self, other: &Self, corpus: &Corpus<'_>) -> Ordering {
        other.score.total_cmp(&self.score).then_with(|| self.key(corpus).cmp(&other.key(corpus)))
    }

    fn key<'a>(&self, corpus: &Corpus<'a>) -> (&'a str, u32) {
        let document = corpus.parts[self.part].part.document_of(self.chunk);
        (document.id.as_str(), self.chunk - document.chunks.start)
    }
}

/// The scores of all chunks of a corpus.
pub(super) struct Scores {
    /// Scores by part and chunk.
    scores: Vec<Vec<f32>>,
    /// Addend of the denominator, by the length of a chunk.
    norms: Vec<f32>,
}

impl Scores {
    pub(super) fn new(corpus: &Corpus<'_>) -> Self {
        let mean = corpus.totals.length as f32 / (corpus.totals.chunks.max(1)) as f32;
        let longest = corpus.parts.iter().flat_map(|part| part.part.lengths).max().copied().unwrap_or(0);
        Self {
            scores: corpus.parts.iter().map(|part| vec![0.0; part.part.locations.len()]).collect(),
            norms: (0..=longest).map(|length| norm(length, mean)).collect(),
        }
    }

    /// Adds the contributions of terms, in their order. Equal terms in equal order give equal scores to a chunk,
    /// whatever part it is in.
    pub(super) fn add(&mut self, corpus: &Corpus<'_>, terms: &[WeightedTerm]) {
        let all_languages = corpus.totals.language_bits();
        for (part, scores) in corpus.parts.iter().zip(&mut self.scores) {
            let lengths = part.part.lengths;
            for term in terms {
                let Some(term_position) = part.part.postings.find(term.hash) else { continue };
                let best = term.weight * term.best_score();
                let is_for_all = term.languages & all_languages == all_languages;
                part.for_each_run(term_position, |entries| {
                    for (&chunk, &count) in entries.chunks.iter().zip(entries.counts) {
                        if !is_for_all && !term.is_for(part.part.document_of(chunk).language) {
                            continue;
                        }
                        let norm = self.norms[lengths[chunk as usize] as usize];
                        scores[chunk as usize] += contribution(best, count, norm);
                    }
                });
            }
        }
    }

    /// Returns the contribution of a term to the score of a chunk.
    pub(super) fn contribution(&self, term: &WeightedTerm, count: u8, length: u16) -> f32 {
        contribution(term.weight * term.best_score(), count, self.norms[length as usize])
    }

    /// Returns the chunks with the greatest scores above 0, sorted.
    pub(super) fn best(&self, corpus: &Corpus<'_>, limit: usize) -> Vec<Candidate> {
        let mut best = BestCandidates::new(corpus, limit);
        for (part, scores) in self.scores.iter().enumerate() {
            for (chunk, &score) in (0..).zip(scores) {
                if score > 0.0 {
                    best.add(Candidate { score, part, chunk });
                }
            }
        }
        best.finish()
    }
}

/// Collects the chunks with the greatest scores.
pub(super) struct BestCandidates<'c> {
    corpus: &'c Corpus<'c>,
    limit: usize,
    best: Vec<Candidate>,
    /// Least score that can be among the best.
    threshold: f32,
}

impl<'c> BestCandidates<'c> {
    pub(super) fn new(corpus: &'c Corpus<'c>, limit: usize) -> Self {
        Self { corpus, limit, best: Vec::new(), threshold: f32::NEG_INFINITY }
    }

    /// Adds a chunk, unless enough others have greater scores. A score that is NaN is left out.
    #[inline]
    pub(super) fn add(&mut self, candidate: Candidate) {
        if candidate.score >= self.threshold && self.limit > 0 {
            self.best.push(candidate);
            if self.best.len() >= (2 * self.limit).max(64) {
                self.shrink();
            }
        }
    }

    fn shrink(&mut self) {
        let Self { corpus, limit, best, threshold } = self;
        best.select_nth_unstable_by(*limit - 1, |left, right| left.compare(right, corpus));
        best.truncate(*limit);
        *threshold = best[*limit - 1].score;
    }

    /// Returns the chunks, sorted.
    pub(super) fn finish(mut self) -> Vec<Candidate> {
        self.best.sort_unstable_by(|left, right| left.compare(right, self.corpus));
        self.best.truncate(self.limit);
        self.best
    }
}
