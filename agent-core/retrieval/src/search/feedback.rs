//! Relevance feedback: terms that distinguish the best chunks of a first ranking (RM3).

use std::collections::BTreeMap;

use super::bm25::idf;
use super::query::TermOrigin;
use super::score::Candidate;
use super::terms::WeightedTerm;
use crate::part::Corpus;

/// Share of the feedback's terms in the weights of a query.
pub(super) const SHARE: f32 = 0.2;
/// Number of best chunks that give terms.
pub(super) const CHUNKS: usize = 5;
/// Number of terms.
const TERMS: usize = 10;
/// Number of most frequent terms from which they are chosen: the document frequency of each is counted in the scope.
const MAX_CANDIDATES: usize = 64;

/// Exponent of a chunk's score in its share of the feedback.
const SHARPNESS: i32 = 4;

/// Returns the terms of the best chunks, sorted by their hash; their weights add up to [`SHARE`].
///
/// A term is weighed by its frequency in each chunk, the chunk's share by [`SHARPNESS`], and its inverse document frequency.
pub(super) fn terms(corpus: &Corpus<'_>, best: &[Candidate]) -> Vec<WeightedTerm> {
    // The best chunk dominates: what is far below it is less likely to be about the same.
    let likelihood = |candidate: &Candidate| f64::from(candidate.score).powi(SHARPNESS);
    let total: f64 = best.iter().map(likelihood).sum();
    let mut frequencies: BTreeMap<u64, (f64, &str)> = BTreeMap::new();
    for candidate in best {
        let part = &corpus.parts[candidate.part].part;
        let length = f64::from(part.lengths[candidate.chunk as usize].max(1));
        let share = likelihood(candidate) / total / length;
        part.for_each_term_of(candidate.chunk, |term, count| {
            let entry = frequencies
                .entry(part.postings.hash(term))
                .or_insert_with(|| (0.0, part.postings.name(term)));
            entry.0 += share * f64::from(count);
        });
    }
    let is_stop_term = |term: &str| corpus.languages.iter().any(|language| language.is_stop_term(term));
    let mut frequencies: Vec<(u64, (f64, &str))> =
        frequencies.into_iter().filter(|(_, (_, term))| !is_stop_term(term)).collect();
    frequencies.sort_by(|left, right| right.1.0.total_cmp(&left.1.0).then(left.0.cmp(&right.0)));
    frequencies.truncate(MAX_CANDIDATES);
    let mut terms: Vec<WeightedTerm> = frequencies
        .into_iter()
        .map(|(hash, (frequency, name))| {
            let idf = idf(corpus.chunks_with(hash), corpus.totals.chunks);
            let weight = (frequency * f64::from(idf)) as f32;
            WeightedTerm {
                hash,
                term: name.to_owned(),
                idf,
                weight,
                origin: TermOrigin::Feedback,
                languages: u32::MAX,
            }
        })
        .collect();
    terms.sort_by(|left, right| right.weight.total_cmp(&left.weight).then(left.hash.cmp(&right.hash)));
    terms.truncate(TERMS);
    let total: f64 = terms.iter().map(|term| f64::from(term.weight)).sum();
    for term in &mut terms {
        term.weight = (f64::from(term.weight) / total * f64::from(SHARE)) as f32;
    }
    terms.sort_unstable_by_key(|term| term.hash);
    terms
}
