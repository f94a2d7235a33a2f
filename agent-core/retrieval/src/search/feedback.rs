//! Relevance feedback: terms that distinguish the best chunks of a first ranking (RM3).

use super::bm25::idf;
use super::query::TermOrigin;
use super::score::Candidate;
use super::terms::WeightedTerm;
use crate::part::Corpus;

/// Share of the terms from feedback in the total weight of a query's terms.
pub(super) const SHARE: f32 = 0.2;
/// Number of best chunks from which terms are taken.
pub(super) const BEST_CHUNKS: usize = 5;
/// Maximum number of terms.
const MAX_TERMS: usize = 10;
/// Maximum number of the most frequent terms from which they are chosen: the document frequency of each is counted in the
/// scope.
const MAX_CANDIDATES: usize = 64;

/// Exponent of a chunk's score in the chunk's share of the feedback.
const SCORE_EXPONENT: i32 = 4;

/// A term of the best chunks, with the position at which it was found first.
struct FeedbackTerm {
    hash: u64,
    frequency: f64,
    /// Position of the part in the corpus, and of the term in the part.
    part: usize,
    term: usize,
}

/// Returns the terms of the best chunks, sorted by their hash; their weights add up to [`SHARE`].
///
/// A term is weighed by its frequency in each chunk, the chunk's share by [`SCORE_EXPONENT`], and its inverse document frequency.
pub(super) fn terms(corpus: &Corpus<'_>, best: &[Candidate]) -> Vec<WeightedTerm> {
    // The best chunk dominates: what is far below it is less likely to be about the same.
    let likelihood = |candidate: &Candidate| f64::from(candidate.score).powi(SCORE_EXPONENT);
    let total: f64 = best.iter().map(likelihood).sum();
    let mut occurrences: Vec<FeedbackTerm> = Vec::new();
    for candidate in best {
        let part = &corpus.parts[candidate.part].part;
        let length = f64::from(part.lengths[candidate.chunk as usize].max(1));
        let share = likelihood(candidate) / total / length;
        part.for_each_term_of(candidate.chunk, |term, count| {
            let (hash, frequency) = (part.postings.hash(term), share * f64::from(count));
            occurrences.push(FeedbackTerm { hash, frequency, part: candidate.part, term });
        });
    }
    // The terms of each chunk are sorted already. Equal ones stay in the order of the chunks, in which they are added up.
    occurrences.sort_by_key(|occurrence| occurrence.hash);
    occurrences.dedup_by(|next, first| {
        let is_same = next.hash == first.hash;
        if is_same {
            first.frequency += next.frequency;
        }
        is_same
    });
    occurrences
        .sort_by(|left, right| right.frequency.total_cmp(&left.frequency).then(left.hash.cmp(&right.hash)));
    let name = |occurrence: &FeedbackTerm| corpus.parts[occurrence.part].part.postings.name(occurrence.term);
    let is_stop_term = |term: &str| corpus.languages.iter().any(|language| language.is_stop_term(term));
    let candidates =
        occurrences.into_iter().filter(|occurrence| !is_stop_term(name(occurrence))).take(MAX_CANDIDATES);
    let mut weights: Vec<(f32, f32, FeedbackTerm)> = candidates
        .map(|occurrence| {
            let idf = idf(
                corpus.chunks_with_found(occurrence.hash, (occurrence.part, occurrence.term)),
                corpus.totals.chunks,
            );
            ((occurrence.frequency * f64::from(idf)) as f32, idf, occurrence)
        })
        .collect();
    weights.sort_by(|left, right| right.0.total_cmp(&left.0).then(left.2.hash.cmp(&right.2.hash)));
    weights.truncate(MAX_TERMS);
    let weighted = weights.into_iter().map(|(weight, idf, occurrence)| WeightedTerm {
        hash: occurrence.hash,
        term: name(&occurrence).to_owned(),
        idf,
        weight,
        origin: TermOrigin::Feedback,
        languages: u32::MAX,
    });
    let mut terms: Vec<WeightedTerm> = weighted.collect();
    let total: f64 = terms.iter().map(|term| f64::from(term.weight)).sum();
    for term in &mut terms {
        term.weight = (f64::from(term.weight) / total * f64::from(SHARE)) as f32;
    }
    terms.sort_unstable_by_key(|term| term.hash);
    terms
}
