//! A figure beside its reference in the same run, and the table that shows both.

use std::fmt::Write;
use std::fs;

use crate::table::median;

/// Limit of the figure of a [`Comparison`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Lower limit of the ratio to the reference.
    AtLeast(f64),
    /// Upper limit of the ratio to the reference.
    AtMost(f64),
    /// Upper limit of the figure itself, in its unit.
    FigureAtMost(f64),
    /// No limit; the figure is reported only.
    Unbounded,
}

/// One row of a result table: a figure beside its reference, each with one value per repeat.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Text of the first column, or columns.
    pub what: String,
    /// Unit of figure and reference.
    pub unit: &'static str,
    /// Limit of the figure.
    pub bound: Bound,
    /// Values of the reference, in the order of the repeats.
    pub reference: Vec<f64>,
    /// Values of the figure, in the order of the repeats.
    pub figures: Vec<f64>,
}

impl Comparison {
    /// Creates a row.
    pub fn new(
        what: impl Into<String>,
        unit: &'static str,
        bound: Bound,
        reference: &[f64],
        figures: &[f64],
    ) -> Self {
        Self { what: what.into(), unit, bound, reference: reference.to_vec(), figures: figures.to_vec() }
    }

    /// Returns the ratio of the figure's median to the reference's, which are the values that the row shows.
    pub fn ratio(&self) -> f64 {
        median(self.figures.clone()) / median(self.reference.clone())
    }

    /// Returns true if the medians are within the limit.
    pub fn is_within_bound(&self) -> bool {
        self.admits(self.ratio(), median(self.figures.clone()))
    }

    fn admits(&self, ratio: f64, figure: f64) -> bool {
        match self.bound {
            Bound::AtLeast(least) => ratio >= least,
            Bound::AtMost(most) => ratio <= most,
            Bound::FigureAtMost(most) => figure <= most,
            Bound::Unbounded => true,
        }
    }

    /// Returns the ratio and the figure of each repeat.
    fn repeats(&self) -> impl Iterator<Item = (f64, f64)> {
        self.figures.iter().zip(&self.reference).map(|(figure, reference)| (figure / reference, *figure))
    }

    /// Returns the verdict on the limit. A median within the limit counts as met only if every repeat is within it
    /// too: otherwise the noise decides.
    fn verdict(&self) -> &'static str {
        if self.bound == Bound::Unbounded {
            "–"
        } else if !self.is_within_bound() {
            "**missed**"
        } else if self.repeats().all(|(ratio, figure)| self.admits(ratio, figure)) {
            "met"
        } else {
            "within noise"
        }
    }

    fn spread(&self) -> String {
        let ratios = || self.repeats().map(|(ratio, _)| ratio);
        if self.figures.len() < 2 {
            return "–".to_owned();
        }
        format!(
            "{} – {}",
            number(ratios().fold(f64::INFINITY, f64::min)),
            number(ratios().fold(f64::NEG_INFINITY, f64::max))
        )
    }

    fn line(&self) -> String {
        let Self { what, unit, .. } = self;
        let bound = match self.bound {
            Bound::AtLeast(least) => format!("≥ {least} ×"),
            Bound::AtMost(most) => format!("≤ {most} ×"),
            Bound::FigureAtMost(most) => format!("≤ {most} {unit}"),
            Bound::Unbounded => "–".to_owned(),
        };
        format!(
            "| {what} | {} {unit} | {} {unit} | {} × | {} | {bound} | {} |",
            number(median(self.reference.clone())),
            number(median(self.figures.clone())),
            number(self.ratio()),
            self.spread(),
            self.verdict(),
        )
    }
}

/// Formats `rows` as a Markdown table whose first columns are named `heads`, as in `"what"` or `"what | who"`.
pub fn markdown(heads: &str, rows: &[Comparison]) -> String {
    let mut table = format!("| {heads} | reference | figure | ratio | of the repeats | limit | |\n");
    table.push_str(&"|---".repeat(heads.split('|').count()));
    table.push_str("|--:|--:|--:|--:|--:|---|\n");
    for row in rows {
        // Writing to a `String` cannot fail.
        let _ = writeln!(table, "{}", row.line());
    }
    table
}

/// Returns true if a row is not within its limit.
pub fn any_missed(rows: &[Comparison]) -> bool {
    !rows.iter().all(Comparison::is_within_bound)
}

/// Returns a line with the date, the machine, its load, and the number of repeats.
pub fn environment_line(repeats: usize) -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!(
        "{}, {cores} cores of {}, Linux {}, load average {} at the start; medians of {repeats} interleaved repeats.",
        jiff::Timestamp::now().strftime("%Y-%m-%d"),
        model.unwrap_or("an unnamed processor"),
        kernel.split(['-', '\n']).next().unwrap_or_default(),
        load.split(' ').next().unwrap_or_default(),
    )
}

/// Formats a value with about three significant digits.
fn number(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value if value >= 0.1 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(bound: Bound, reference: &[f64], figures: &[f64]) -> Comparison {
        Comparison::new("s", "ms", bound, reference, figures)
    }

    #[test]
    fn one_repeat_that_was_disturbed_does_not_move_the_ratio_but_the_verdict() {
        let disturbed = row(Bound::AtMost(0.5), &[2.0, 2.0, 9.0], &[7.0, 1.0, 1.0]);
        assert_eq!(disturbed.ratio(), 0.5);
        assert!(disturbed.is_within_bound());
        assert_eq!(disturbed.verdict(), "within noise");
        assert_eq!(row(Bound::AtMost(0.5), &[2.0, 2.0], &[1.0, 0.9]).verdict(), "met");
        assert_eq!(row(Bound::AtMost(0.49), &[1.0], &[0.5]).verdict(), "**missed**");
        assert_eq!(row(Bound::AtLeast(0.5), &[1.0], &[0.4]).verdict(), "**missed**");
    }

    #[test]
    fn limits_of_figures_ignore_the_reference_and_nothing_measured_meets_none() {
        assert!(row(Bound::FigureAtMost(32.0), &[1.0], &[30.0]).is_within_bound());
        assert!(!row(Bound::FigureAtMost(32.0), &[100.0], &[33.0]).is_within_bound());
        assert!(any_missed(&[row(Bound::AtMost(1.0), &[], &[])]));
    }

    #[test]
    fn a_table_has_the_spread_of_the_repeats() {
        assert_eq!(
            markdown("what | who", &[row(Bound::AtMost(0.5), &[4.0, 4.0], &[4.4, 4.0])]),
            "| what | who | reference | figure | ratio | of the repeats | limit | |\n\
             |---|---|--:|--:|--:|--:|--:|---|\n\
             | s | 4.00 ms | 4.40 ms | 1.10 × | 1.00 – 1.10 | ≤ 0.5 × | **missed** |\n"
        );
    }
}
