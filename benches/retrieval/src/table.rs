//! The table of results, in Markdown.

/// Rows of results.
#[derive(Default)]
pub(crate) struct Table {
    rows: Vec<[String; 4]>,
}

impl Table {
    /// Adds a figure without a limit.
    pub(crate) fn figure(&mut self, name: &str, value: String) {
        self.push(name, value, "–".to_owned(), "–");
    }

    /// Adds a figure that must not be below a limit.
    pub(crate) fn at_least(&mut self, name: &str, value: f64, limit: f64) {
        self.push(
            name,
            display(value),
            format!("≥ {limit}"),
            if value >= limit { "met" } else { "**missed**" },
        );
    }

    /// Adds a figure that must not be above a limit.
    pub(crate) fn at_most(&mut self, name: &str, value: f64, limit: f64) {
        self.push(
            name,
            display(value),
            format!("≤ {limit}"),
            if value <= limit { "met" } else { "**missed**" },
        );
    }

    fn push(&mut self, name: &str, value: String, limit: String, verdict: &str) {
        let row = [name.to_owned(), value, limit, verdict.to_owned()];
        report_progress(&row.join("  "));
        self.rows.push(row);
    }

    /// Returns the table in Markdown.
    pub(crate) fn markdown(&self) -> String {
        let mut text = String::from("| measurement | figure | limit | |\n|---|--:|--:|---|\n");
        for row in &self.rows {
            text.push_str(&format!("| {} |\n", row.join(" | ")));
        }
        text
    }
}

/// Prints a line on standard error.
#[expect(clippy::print_stderr, reason = "progress of a long measurement")]
pub(crate) fn report_progress(line: &str) {
    eprintln!("{line}");
}

fn display(value: f64) -> String {
    if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.4}") }
}
