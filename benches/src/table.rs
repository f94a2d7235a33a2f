//! Medians and percentiles, and the rows of the relay's table.

use crate::comparison::{Bound, Comparison};
use crate::measure::Measurement;

/// Upper limit of a subject's figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// Limit of the ratio to the reference in the same run.
    Ratio(f64),
    /// Limit of the ratio to another subject in the same run.
    RatioTo {
        /// Name of the other subject.
        subject: &'static str,
        /// The limit.
        most: f64,
    },
    /// Limit of the figure itself, in its measurement's unit.
    Figure(f64),
    /// No limit; the figure is reported only.
    None,
}

impl Limit {
    /// Returns the name of the subject that the row is compared with, if it is not the reference.
    pub fn reference(self) -> Option<&'static str> {
        match self {
            Self::RatioTo { subject, .. } => Some(subject),
            Self::Ratio(_) | Self::Figure(_) | Self::None => None,
        }
    }

    fn bound(self) -> Bound {
        match self {
            Self::Ratio(most) | Self::RatioTo { most, .. } => Bound::AtMost(most),
            Self::Figure(most) => Bound::FigureAtMost(most),
            Self::None => Bound::Unbounded,
        }
    }

    /// Returns the row of a subject's `figures` in `measurement`, each with one value per repeat.
    pub fn row(
        self,
        measurement: Measurement,
        subject: &str,
        reference: &[f64],
        figures: &[f64],
    ) -> Comparison {
        let subject = match self.reference() {
            None => subject.to_owned(),
            Some(other) => format!("{subject}, beside {other}"),
        };
        let description = format!("{measurement} | {subject}");
        Comparison::new(description, measurement.unit(), self.bound(), reference, figures)
    }
}

/// Returns the median of `figures`, the upper one of two middle values; NaN if empty.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns the smallest of `figures` that at least `percent` of 100 do not exceed; NaN if empty.
pub fn percentile(mut figures: Vec<f64>, percent: usize) -> f64 {
    figures.sort_by(f64::total_cmp);
    let rank = (figures.len() * percent).div_ceil(100);
    figures.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_names_another_subject_that_it_is_compared_with() {
        let limit = Limit::RatioTo { subject: "other", most: 1.8 };
        let row = limit.row(Measurement::Paced, "s", &[2.0], &[3.0]);
        assert!(row.what.ends_with("| s, beside other"), "{}", row.what);
        assert!(row.is_within_bound());
        assert!(!limit.row(Measurement::Paced, "s", &[2.0], &[4.0]).is_within_bound());
    }
}
