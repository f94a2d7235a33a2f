//! Number of components of a model's vectors.

use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_retrieval::embed::{EmbedError, Embeddings};

/// Number of answers in a row with another number of components, after which that number is the model's.
const ADOPTION_THRESHOLD: u32 = 3;

/// The number of components that was requested of a model, or that its answers have.
///
/// The first answer determines the number, and answers with another number are invalid. If the first one was wrong, or the
/// server has another model by now, the answers agree on another number, which is adopted then.
pub(super) struct Dimensions {
    requested: Option<usize>,
    learned: Mutex<LearnedDimensions>,
}

#[derive(Default)]
struct LearnedDimensions {
    dimensions: Option<usize>,
    /// A different number of dimensions, and the number of answers in a row that had it.
    other: Option<(usize, u32)>,
}

impl Dimensions {
    pub(super) fn new(requested: Option<usize>) -> Self {
        Self { requested, learned: Mutex::default() }
    }

    /// Returns the number, if it is known.
    pub(super) fn known(&self) -> Option<usize> {
        self.requested.or_else(|| self.lock().dimensions)
    }

    /// Checks the number of components of an answer.
    ///
    /// # Errors
    /// [`EmbedError::InvalidAnswer`] for another number than the known one.
    pub(super) fn check(&self, embeddings: &Embeddings) -> Result<(), EmbedError> {
        if let Some(requested) = self.requested {
            return embeddings.check_dimensions(requested);
        }
        let found = embeddings.dimensions();
        let mut learned = self.lock();
        let known = *learned.dimensions.get_or_insert(found);
        if found == known {
            learned.other = None;
            return Ok(());
        }
        let in_a_row = learned.other.filter(|(other, _)| *other == found).map_or(1, |(_, count)| count + 1);
        if in_a_row < ADOPTION_THRESHOLD {
            learned.other = Some((found, in_a_row));
            return embeddings.check_dimensions(known);
        }
        tracing::warn!(known, found, "the embedding model's vectors have another number of components now");
        *learned = LearnedDimensions { dimensions: Some(found), other: None };
        Ok(())
    }

    /// Forgets the number, after an answer that was too long for it; the next answer sets it.
    pub(super) fn forget(&self) {
        *self.lock() = LearnedDimensions::default();
    }

    /// Locks the number. No code panics while holding the lock, so the data behind a poisoned one is intact.
    fn lock(&self) -> MutexGuard<'_, LearnedDimensions> {
        self.learned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(dimensions: &Dimensions, found: usize) -> bool {
        let answer = Embeddings::new(1, [vec![1.0_f32; found]]).expect("a vector");
        dimensions.check(&answer).is_ok()
    }

    #[test]
    fn another_number_is_adopted_once_answers_agree_on_it() {
        let dimensions = Dimensions::new(None);
        assert_eq!(dimensions.known(), None);
        let answers = [
            (4, true),
            (8, false),
            (8, false),
            (4, true),
            (8, false),
            (9, false),
            (8, false),
            (8, false),
            (8, true),
            (4, false),
        ];
        for (number, (found, is_valid)) in answers.into_iter().enumerate() {
            assert_eq!(check(&dimensions, found), is_valid, "answer {number}");
        }
        assert_eq!(dimensions.known(), Some(8));
        dimensions.forget();
        assert!(check(&dimensions, 4));
    }

    #[test]
    fn requested_dimensions_are_never_replaced() {
        let dimensions = Dimensions::new(Some(4));
        for _ in 0..2 * ADOPTION_THRESHOLD {
            assert!(!check(&dimensions, 8));
        }
        dimensions.forget();
        assert_eq!(dimensions.known(), Some(4));
        assert!(check(&dimensions, 4));
    }
}
