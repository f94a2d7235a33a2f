//! Tables of Markdown, whose header row is context of each chunk that begins below it.
//!
//! A table is one of [GitHub Flavored Markdown](https://github.github.com/gfm/#tables-extension-): a header row, a delimiter row
//! with as many cells, and the lines with a `|` that follow.

use std::ops::Range;

use super::blocks::{MarkdownBlocks, line_at};
use crate::document::{ExtractedText, TextFormat};

/// Maximum size of a header row as context, in bytes. A longer one ends with the last cell that fits.
const MAX_HEADER_BYTES: usize = 500;

/// A table of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Table {
    /// The header row as one line.
    header: String,
    /// Byte offset of the delimiter row.
    delimiter: usize,
    /// Byte range of the rows below the delimiter row.
    rows: Range<usize>,
}

/// The tables of a text, in its order.
#[derive(Debug, Default)]
pub(super) struct Tables(Vec<Table>);

impl Tables {
    /// Finds the tables of a document, which are none in a text without markup.
    pub(super) fn find(document: &ExtractedText) -> Self {
        let text = document.text.as_str();
        if document.format != TextFormat::Markdown
            || !text.lines().any(|line| delimiter_cells(line).is_some())
        {
            return Self::default();
        }
        let mut tables: Vec<Table> = Vec::new();
        let mut blocks = MarkdownBlocks::default();
        // The line above, if it can be a header row, and the table that the line before belongs to.
        let (mut above, mut is_open): (Option<&str>, bool) = (None, false);
        let mut offset = 0;
        for line in text.split_inclusive('\n') {
            let end = offset + line.len();
            let is_heading = blocks.heading(line, line_at(text, end)).is_some();
            let is_text = !is_heading && !blocks.is_in_code() && line.contains('|');
            let is_delimiter = |header: &&str| delimiter_cells(line) == Some(cells(header).count());
            let header = above.take().filter(|header| is_text && is_delimiter(header));
            match tables.last_mut() {
                Some(table) if is_open && is_text => table.rows.end = end,
                _ => {
                    is_open = header.is_some();
                    above = Some(line).filter(|_| is_text && !is_open);
                    tables.extend(header.map(|row| Table {
                        header: header_line(row),
                        delimiter: offset,
                        rows: end..end,
                    }));
                }
            }
            offset = end;
        }
        Self(tables)
    }

    /// Returns the header row of the table that an offset is in, if it is below that row, as one line.
    pub(super) fn header_at(&self, offset: usize) -> Option<&str> {
        let table = self.0.partition_point(|table| table.rows.end <= offset);
        let table = self.0.get(table).filter(|table| table.delimiter <= offset)?;
        Some(&*table.header).filter(|header| !header.is_empty())
    }
}

/// Returns a header row as one line; an empty text if no cell fits.
fn header_line(row: &str) -> String {
    let mut header = String::new();
    for cell in cells(row) {
        // Tables whose columns are aligned have blanks up to the width of their longest cells.
        let cell = cell.split_whitespace().collect::<Vec<_>>().join(" ");
        if header.len() + cell.len() + "|  |".len() > MAX_HEADER_BYTES {
            break;
        }
        header.push_str(if header.is_empty() { "| " } else { " " });
        header.push_str(&cell);
        header.push_str(" |");
    }
    header
}

/// Returns the number of cells of a delimiter row, such as `| --- | :-: |`; `None` for another line.
fn delimiter_cells(line: &str) -> Option<usize> {
    let is_delimiter = |cell: &str| {
        let cell = cell.trim();
        let dashes = cell.strip_prefix(':').unwrap_or(cell);
        let dashes = dashes.strip_suffix(':').unwrap_or(dashes);
        !dashes.is_empty() && dashes.bytes().all(|byte| byte == b'-')
    };
    let begins_as_one = line.trim_start().starts_with(['|', ':', '-']) && line.contains('|');
    (begins_as_one && cells(line).all(is_delimiter)).then(|| cells(line).count())
}

/// Returns the cells of a row. A `|` behind a backslash is part of its cell.
fn cells(row: &str) -> impl Iterator<Item = &str> {
    let row = row.trim();
    let row = row.strip_prefix('|').unwrap_or(row);
    let mut is_escaped = false;
    let mut cells = row.split(move |character| {
        let is_end = character == '|' && !is_escaped;
        is_escaped = character == '\\' && !is_escaped;
        is_end
    });
    let mut next = cells.next();
    // Text after a `|` at the end of a row is not a cell.
    std::iter::from_fn(move || {
        let cell = next.take()?;
        next = cells.next();
        let is_behind_the_end = next.is_none() && cell.is_empty();
        (!is_behind_the_end).then_some(cell)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(text: &str) -> ExtractedText {
        ExtractedText { text: text.to_owned(), format: TextFormat::Markdown, ..ExtractedText::default() }
    }

    /// Returns the rows of the tables of a text, with their headers.
    fn tables(text: &str) -> Vec<(String, &str)> {
        let found = document(text);
        let tables = Tables::find(&found);
        let rows = tables.0.iter().map(|table| table.rows.clone());
        let header = |rows: &Range<usize>| tables.header_at(rows.start).unwrap_or_default().to_owned();
        rows.map(|rows| (header(&rows), &text[rows])).collect()
    }

    #[test]
    fn rows_belong_to_the_header_above_them() {
        for (text, expected) in [
            (
                "| A | B |\n| --- | --- |\n| 1 | 2 |\n| 3 | 4 |\n\nText | more\n",
                &[("| A | B |", "| 1 | 2 |\n| 3 | 4 |\n")][..],
            ),
            ("Text.\nA | B\n:-- | --:\n1 | 2", &[("| A | B |", "1 | 2")]),
            ("|  A   name  | |\n|-|-|\n|1|2|", &[("| A name |  |", "|1|2|")]),
            ("| A \\| B | C |\n|---|---|\n| 1 | 2 |\n# H\n| 3 | 4 |", &[("| A \\| B | C |", "| 1 | 2 |\n")]),
            ("| A |\n|---|\n| 1 |\n\n| B |\n|---|\n| 2 |\n", &[("| A |", "| 1 |\n"), ("| B |", "| 2 |\n")]),
            ("- item\n\n  | A | B |\n  |---|---|\n  | 1 | 2 |\n", &[("| A | B |", "  | 1 | 2 |\n")]),
            // Another number of cells, headings below a line, code, and a delimiter row without a header.
            ("| A | B |\n|---|\n| 1 | 2 |\n", &[]),
            ("A | B\n---\n1 | 2\n", &[]),
            ("```\n| A | B |\n|---|---|\n| 1 | 2 |\n```\n", &[]),
            ("|---|---|\n| 1 | 2 |\n", &[]),
            ("\n|---|\n", &[]),
        ] {
            let found = tables(text);
            let found: Vec<_> = found.iter().map(|(header, rows)| (header.as_str(), *rows)).collect();
            assert_eq!(found, expected, "{text:?}");
        }
    }

    #[test]
    fn an_offset_outside_of_the_rows_has_no_header() {
        let found = document("Text.\n\n| A |\n|---|\n| 1 |\n\nText.\n\n| B |\n|---|\n| 2 |");
        let tables = Tables::find(&found);
        let header = |part: &str| tables.header_at(found.text.find(part).expect("a part"));
        assert_eq!(header("| 1 |"), Some("| A |"));
        assert_eq!(header("1"), Some("| A |"));
        assert_eq!(header("|---|"), Some("| A |"), "a chunk may begin between the header and the rows");
        assert_eq!(header("| 2 |"), Some("| B |"));
        for part in ["Text.", "| A |", "\nText.", "| B |"] {
            assert_eq!(header(part), None, "{part:?}");
        }
        let plain = ExtractedText { format: TextFormat::Plain, ..found };
        assert!(Tables::find(&plain).0.is_empty());
    }

    #[test]
    fn a_long_header_ends_with_a_cell() {
        let names: Vec<String> = (0..200).map(|n| format!("Größe {n}")).collect();
        let text = format!("| {} |\n|{}\n| 1 |\n", names.join(" | "), "---|".repeat(200));
        let (header, _) = tables(&text).remove(0);
        assert!(header.len() <= MAX_HEADER_BYTES && header.len() > MAX_HEADER_BYTES - 20, "{}", header.len());
        assert!(header.starts_with("| Größe 0 | Größe 1 |") && header.ends_with(" |"), "{header}");
        let aligned = format!("| A{} | B |\n|---|---|\n| 1 | 2 |\n", " ".repeat(MAX_HEADER_BYTES));
        assert_eq!(tables(&aligned)[0].0, "| A | B |", "blanks do not count");
        let long = format!("| {} | B |\n|---|---|\n| 1 | 2 |\n", "x".repeat(MAX_HEADER_BYTES));
        assert_eq!(tables(&long)[0].0, "", "a name that does not fit is left out");
    }
}
