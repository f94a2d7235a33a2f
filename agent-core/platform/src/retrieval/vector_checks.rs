//! Cache of the results of checks of vectors, by the state of the documents that were searched.

use std::collections::VecDeque;

use agent_retrieval::search::VectorQuality;

/// Maximum number of results that are kept for a company.
const MAX_RESULTS: usize = 64;

/// The results by a digest of the documents and their vectors, the oldest first.
#[derive(Default)]
pub(super) struct VectorChecks(VecDeque<(u64, VectorQuality)>);

impl VectorChecks {
    /// Returns the result for a state.
    pub(super) fn get(&self, digest: u64) -> Option<VectorQuality> {
        self.0.iter().find(|(known, _)| *known == digest).map(|(_, quality)| *quality)
    }

    /// Keeps the result for a state in place of the oldest one.
    pub(super) fn insert(&mut self, digest: u64, quality: VectorQuality) {
        if self.0.len() >= MAX_RESULTS {
            self.0.pop_front();
        }
        self.0.push_back((digest, quality));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_results_are_kept() {
        let mut checks = VectorChecks::default();
        for digest in 0..MAX_RESULTS as u64 + 1 {
            checks.insert(digest, VectorQuality::Informative);
        }
        assert_eq!(checks.get(0), None);
        assert_eq!(checks.get(1), Some(VectorQuality::Informative));
        assert_eq!(checks.get(MAX_RESULTS as u64), Some(VectorQuality::Informative));
        assert_eq!(checks.0.len(), MAX_RESULTS);
    }
}
