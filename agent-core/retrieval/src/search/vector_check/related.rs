//! Pairs of chunks that have rare words in common.

use super::sample::SampledChunk;
use crate::search::bm25::idf;

/// Minimum share of the weights of two chunks' terms that they have in common, as the cosine of the weights.
const MIN_OVERLAP: f32 = 0.1;
/// Part of a sample, as a divisor, beyond which a term is not rare; in a small sample, a number of chunks.
const RARE_DIVISOR: usize = 8;
const MIN_RARE_CHUNKS: usize = 32;

/// Returns pairs of a sample's chunks, those with the most in common first, each chunk in one pair.
///
/// Terms are weighed by their inverse document frequency in the sample; only rare ones count as common.
pub(super) fn pairs(sample: &[SampledChunk<'_>], limit: usize) -> Vec<(usize, usize)> {
    let mut overlaps = overlaps(sample);
    // Equal overlaps keep the order of the sample.
    overlaps.sort_by(|left, right| right.0.total_cmp(&left.0));
    let mut is_paired = vec![false; sample.len()];
    let mut pairs = Vec::new();
    for (_, first, second) in overlaps {
        if pairs.len() == limit {
            break;
        }
        if !is_paired[first] && !is_paired[second] {
            (is_paired[first], is_paired[second]) = (true, true);
            pairs.push((first, second));
        }
    }
    pairs
}

/// Returns the chunks that have enough in common, in the order of the sample.
fn overlaps(sample: &[SampledChunk<'_>]) -> Vec<(f32, usize, usize)> {
    let size = sample.len();
    let mut occurrences: Vec<(u64, usize)> = Vec::new();
    for (number, chunk) in sample.iter().enumerate() {
        occurrences.extend(chunk.terms.iter().map(|&term| (term, number)));
    }
    occurrences.sort_unstable();
    let max_rare_chunks = (size / RARE_DIVISOR).max(MIN_RARE_CHUNKS);
    let mut squares = vec![0.0_f32; size];
    let mut products = vec![0.0_f32; size * size];
    for chunks in occurrences.chunk_by(|left, right| left.0 == right.0) {
        let weight = idf(chunks.len() as u64, size as u64).powi(2);
        for &(_, chunk) in chunks {
            squares[chunk] += weight;
        }
        if chunks.len() > max_rare_chunks {
            continue;
        }
        for (position, &(_, first)) in chunks.iter().enumerate() {
            for &(_, second) in &chunks[position + 1..] {
                products[first * size + second] += weight;
            }
        }
    }
    let mut overlaps = Vec::new();
    for first in 0..size {
        for second in first + 1..size {
            let product = products[first * size + second];
            let overlap = product / (squares[first] * squares[second]).sqrt();
            if product > 0.0 && overlap >= MIN_OVERLAP {
                overlaps.push((overlap, first, second));
            }
        }
    }
    overlaps
}
