//! Rows of the result table.

use benches::table::median;

/// Limit of a ratio.
#[derive(Clone, Copy)]
pub(crate) enum Limit {
    AtLeast(f64),
    AtMost(f64),
}

/// One row: a figure beside its reference, each the median of the repeats.
pub(crate) struct ResultRow {
    pub(crate) what: String,
    pub(crate) unit: &'static str,
    pub(crate) reference: f64,
    pub(crate) figure: f64,
    pub(crate) limit: Limit,
}

impl ResultRow {
    pub(crate) fn of(
        what: impl Into<String>,
        unit: &'static str,
        limit: Limit,
        reference: &[f64],
        figure: &[f64],
    ) -> Self {
        let (reference, figure) = (median(reference.to_vec()), median(figure.to_vec()));
        Self { what: what.into(), unit, reference, figure, limit }
    }

    pub(crate) fn is_met(&self) -> bool {
        let ratio = self.figure / self.reference;
        match self.limit {
            Limit::AtLeast(least) => ratio >= least,
            Limit::AtMost(most) => ratio <= most,
        }
    }

    pub(crate) fn markdown(&self) -> String {
        let Self { what, unit, reference, figure, .. } = self;
        let limit = match self.limit {
            Limit::AtLeast(least) => format!("≥ {least} ×"),
            Limit::AtMost(most) => format!("≤ {most} ×"),
        };
        let verdict = if self.is_met() { "met" } else { "**missed**" };
        let (reference_text, figure_text) = (number(*reference), number(*figure));
        format!(
            "| {what} | {reference_text} {unit} | {figure_text} {unit} | {:.2} × | {limit} | {verdict} |",
            figure / reference
        )
    }
}

/// Formats a figure with two decimals below 100 and none above.
fn number(value: f64) -> String {
    if value < 100.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}
