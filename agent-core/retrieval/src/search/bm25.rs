//! The formula of BM25.

/// Saturation of repeated terms.
const K1: f32 = 1.2;

/// Share of a chunk's length in the normalization.
const B: f32 = 0.75;

/// Maximum length of a chunk in the normalization, in mean lengths. The mean says little about a chunk if the chunks of one
/// document have one term each, as those of encoded data have, or if others are in a script with a term for each character.
/// Without the maximum, no score of a longer chunk would reach the minimum of relevance then.
const MAX_RELATIVE_LENGTH: f32 = 4.0;

/// Returns the addend of the denominator for a chunk of this length.
pub(super) fn norm(length: u16, mean: f32) -> f32 {
    let relative_length = f32::from(length) / mean.max(1.0);
    K1 * (1.0 - B + B * relative_length.min(MAX_RELATIVE_LENGTH))
}

pub(super) fn contribution(best: f32, count: u8, norm: f32) -> f32 {
    let count = f32::from(count);
    best * count / (count + norm)
}

/// Returns the inverse document frequency of a term in `matching` of `total` chunks.
pub(super) fn idf(matching: u64, total: u64) -> f32 {
    let (matching, total) = (matching as f64, total as f64);
    (1.0 + (total - matching + 0.5) / (matching + 0.5)).ln() as f32
}

/// Returns the score that a term approaches in a chunk that repeats it.
pub(super) fn best_score(idf: f32) -> f32 {
    idf * (K1 + 1.0)
}
