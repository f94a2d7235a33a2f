//! Counts by rule of thumb.
use super::TokenCounter;

/// Estimates.
#[derive(Debug, Clone, Copy, Default)]
pub struct EstimateCounter;

impl TokenCounter for EstimateCounter {
    fn id(&self) -> &'static str {
        "estimate"
    }

    fn count(&self, text: &str) -> usize {
        text.len().div_ceil(4)
    }
}
