//! The formula of BM25.

/// Saturation of repeated terms.
pub(super) const K1: f32 = 1.2;

/// Share of a chunk's length in the normalization.
pub(super) const B: f32 = 0.75;

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
