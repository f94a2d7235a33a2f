//! Text of a PDF page that an opaque rectangle covers after it was drawn.

use super::canvas::Bounds;

/// Maximum number of text operations that are compared with later paint.
const MAX_TEXTS: usize = 20_000;
/// Maximum number of comparisons of text with later paint.
const MAX_COMPARISONS: usize = 4_000_000;

/// Position of a content stream of a page, and of an operation in it.
pub(super) type OperationPosition = (usize, usize);

/// The text of a page that is seen unless something covers it. Beyond its limits, all text is seen.
#[derive(Debug, Default)]
pub(super) struct CoveredText {
    texts: Vec<DrawnText>,
    comparisons: usize,
}

/// Text of an operation.
#[derive(Debug)]
struct DrawnText {
    position: OperationPosition,
    bounds: Bounds,
    is_covered: bool,
}

impl CoveredText {
    /// Adds text that is drawn. Returns false if there is no room for it.
    pub(super) fn add(&mut self, position: OperationPosition, bounds: Bounds) -> bool {
        let has_room = self.texts.len() < MAX_TEXTS;
        if has_room {
            self.texts.push(DrawnText { position, bounds, is_covered: false });
        }
        has_room
    }

    /// Covers the text within an area.
    pub(super) fn cover(&mut self, area: Bounds) {
        if self.count_comparisons() {
            self.texts.iter_mut().for_each(|text| text.is_covered |= area.contains(text.bounds));
        }
    }

    /// Records that something is painted in an area that may show the text that was covered there, such as its picture.
    pub(super) fn uncover(&mut self, area: Bounds) {
        if self.count_comparisons() {
            self.texts.iter_mut().for_each(|text| text.is_covered &= !area.overlaps(text.bounds));
        }
    }

    /// Returns true if some text is covered.
    pub(super) fn has_covered(&self) -> bool {
        self.texts.iter().any(|text| text.is_covered)
    }

    /// Returns the positions of the text, each with true if it is covered.
    pub(super) fn into_positions(self) -> impl Iterator<Item = (OperationPosition, bool)> {
        self.texts.into_iter().map(|text| (text.position, text.is_covered))
    }

    /// Counts one more comparison of all text. Returns false beyond the limit, from which on no text counts as covered.
    fn count_comparisons(&mut self) -> bool {
        self.comparisons = self.comparisons.saturating_add(self.texts.len());
        let is_within_limit = self.comparisons <= MAX_COMPARISONS;
        if !is_within_limit {
            self.texts.iter_mut().for_each(|text| text.is_covered = false);
        }
        is_within_limit
    }
}

#[cfg(test)]
mod tests {
    use super::super::canvas::Matrix;
    use super::*;

    fn rectangle(left: f32, right: f32) -> Bounds {
        Bounds::of_rectangle((left, 0.0), (right, 10.0), Matrix::IDENTITY)
    }

    fn covered(text: CoveredText) -> Vec<usize> {
        let covered = text.into_positions().filter(|(_, is_covered)| *is_covered);
        covered.map(|((_, position), _)| position).collect()
    }

    #[test]
    fn text_is_covered_by_later_paint() {
        let mut text = CoveredText::default();
        for (number, left) in [0.0, 100.0, 200.0].into_iter().enumerate() {
            assert!(text.add((0, number), rectangle(left, left + 50.0)));
        }
        text.cover(rectangle(120.0, 300.0));
        assert!(text.add((0, 3), rectangle(210.0, 220.0)));
        text.uncover(rectangle(0.0, 60.0));
        assert!(text.has_covered());
        assert_eq!(covered(text), [2]);
    }

    #[test]
    fn nothing_is_covered_beyond_the_limits() {
        let mut text = CoveredText::default();
        for number in 0..=MAX_TEXTS {
            assert_eq!(text.add((0, number), rectangle(0.0, 10.0)), number < MAX_TEXTS);
        }
        text.cover(rectangle(0.0, 10.0));
        assert!(text.has_covered());
        for _ in 0..MAX_COMPARISONS / MAX_TEXTS {
            text.cover(rectangle(0.0, 10.0));
        }
        assert!(!text.has_covered());
    }
}
