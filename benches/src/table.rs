//! Medians, limits and the result table.

use std::fmt::Write;

use crate::measure::Measurement;

/// Upper limit of a figure.
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
}

/// One row of the table: the figures of all repeats.
#[derive(Debug)]
pub struct Row {
    /// The measurement.
    pub measurement: Measurement,
    /// Name of the subject.
    pub subject: &'static str,
    /// Upper limit of the figure.
    pub limit: Limit,
    /// Name of the reference.
    pub reference_name: &'static str,
    /// The reference's figure in each repeat.
    pub reference: Vec<f64>,
    /// The subject's figure in each repeat.
    pub figures: Vec<f64>,
}

impl Row {
    /// Returns the ratio of the subject's median to the reference's, which are the figures that the row shows.
    pub fn ratio(&self) -> f64 {
        median(self.figures.clone()) / median(self.reference.clone())
    }

    /// Returns true if the figure is within the limit.
    pub fn is_within_limit(&self) -> bool {
        match self.limit {
            Limit::Ratio(most) | Limit::RatioTo { most, .. } => self.ratio() <= most,
            Limit::Figure(most) => median(self.figures.clone()) <= most,
            Limit::None => true,
        }
    }

    fn line(&self) -> String {
        let unit = self.measurement.unit();
        let limit = match self.limit {
            Limit::Ratio(most) | Limit::RatioTo { most, .. } => format!("≤ {most} ×"),
            Limit::Figure(most) => format!("≤ {most} {unit}"),
            Limit::None => "–".to_owned(),
        };
        let subject = match self.limit.reference() {
            None => self.subject.to_owned(),
            Some(_) => format!("{}, beside {}", self.subject, self.reference_name),
        };
        let verdict = match (self.limit, self.is_within_limit()) {
            (Limit::None, _) => "–",
            (_, true) => "met",
            (_, false) => "**missed**",
        };
        format!(
            "| {} | {} | {} {unit} | {} {unit} | {:.2} × | {limit} | {verdict} |",
            self.measurement,
            subject,
            figure(median(self.reference.clone())),
            figure(median(self.figures.clone())),
            self.ratio(),
        )
    }
}

/// Formats `rows` as a Markdown table.
pub fn markdown(rows: &[Row]) -> String {
    let mut table = String::from(
        "| measurement | subject | reference | subject's figure | ratio | limit | |\n\
         |---|---|--:|--:|--:|--:|---|\n",
    );
    for row in rows {
        // Writing to a `String` cannot fail.
        let _ = writeln!(table, "{}", row.line());
    }
    table
}

/// Returns the median of `figures`, the upper one of two middle values; NaN if empty.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Formats a figure with about three significant digits.
fn figure(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value if value >= 1.0 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(limit: Limit, reference: &[f64], figures: &[f64]) -> Row {
        let measurement = Measurement::Paced;
        Row {
            measurement,
            subject: "s",
            limit,
            reference_name: limit.reference().unwrap_or("proxy"),
            reference: reference.to_vec(),
            figures: figures.to_vec(),
        }
    }

    #[test]
    fn one_repeat_that_was_disturbed_does_not_move_the_ratio() {
        let disturbed = row(Limit::Ratio(0.5), &[2.0, 2.0, 9.0], &[7.0, 1.0, 1.0]);
        assert_eq!(disturbed.ratio(), 0.5);
        assert!(disturbed.is_within_limit());
        assert!(!row(Limit::Ratio(0.49), &[1.0], &[0.5]).is_within_limit());
    }

    #[test]
    fn limits_of_figures_ignore_the_reference_and_nothing_measured_meets_none() {
        assert!(row(Limit::Figure(32.0), &[1.0], &[30.0]).is_within_limit());
        assert!(!row(Limit::Figure(32.0), &[100.0], &[33.0]).is_within_limit());
        assert!(!row(Limit::Ratio(1.0), &[], &[]).is_within_limit());
    }

    #[test]
    fn a_line_names_a_missed_limit() {
        let line = row(Limit::Ratio(0.5), &[4.0], &[4.4]).line();
        assert_eq!(
            line,
            "| paced: CPU per 1,000 chunks | s | 4.00 ms | 4.40 ms | 1.10 × | ≤ 0.5 × | **missed** |"
        );
    }

    #[test]
    fn a_line_names_another_subject_that_it_is_compared_with() {
        let limit = Limit::RatioTo { subject: "other", most: 1.8 };
        let line = row(limit, &[2.0], &[3.0]).line();
        assert!(line.contains("| s, beside other | 2.00 ms | 3.00 ms | 1.50 × | ≤ 1.8 × | met |"), "{line}");
        assert!(!row(limit, &[2.0], &[4.0]).is_within_limit());
    }
}
