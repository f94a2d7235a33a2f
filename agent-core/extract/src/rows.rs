//! Tables as text in which each row names its columns.
//!
//! A chunk that holds a part of a long table has no header, so each row is a line `header: value; header: value`.

use agent_retrieval::analysis::is_hidden;
use agent_retrieval::extract::ExtractError;

use crate::text_builder::TextBuilder;

/// Maximum number of rows at the beginning of a table that are searched for the header.
const MAX_ROWS_TO_HEADER: usize = 10;
/// Maximum length of the name of a column, in bytes. Each row repeats it.
const MAX_NAME_BYTES: usize = 1_000;

/// Appends a table. Rows before the header, and all rows of a table without a header, become lines of their cells.
pub(crate) fn push_rows(
    builder: &mut TextBuilder,
    rows: impl IntoIterator<Item = Result<Vec<String>, ExtractError>>,
) -> Result<(), ExtractError> {
    let mut rows = rows.into_iter();
    let first: Vec<Vec<String>> = rows.by_ref().take(MAX_ROWS_TO_HEADER).collect::<Result<_, _>>()?;
    let width = first.iter().map(|row| filled(row)).max().unwrap_or_default();
    let header_index = first.iter().position(|row| is_header(row, width));
    let has_data = header_index.is_some_and(|index| index + 1 < first.len());
    let header_index = header_index.filter(|_| has_data).unwrap_or(first.len());
    let mut header = Vec::new();
    for (index, row) in first.iter().enumerate() {
        let is_below_header = index > 0 && index - 1 == header_index;
        if index == header_index {
            header = column_names(row);
        } else if let Some(names) = names_in_groups(&header, row).filter(|_| is_below_header) {
            header = names;
        } else {
            builder.push(&line(&header, row))?;
        }
    }
    for row in rows {
        builder.push(&line(&header, &row?))?;
    }
    Ok(())
}

fn filled(row: &[String]) -> usize {
    row.iter().filter(|cell| !cell.trim().is_empty()).count()
}

/// Returns true for a row with at least two and at least half of the columns, whose first cell is not a number.
fn is_header(row: &[String], width: usize) -> bool {
    let first = row.iter().map(|cell| cell.trim()).find(|cell| !cell.is_empty());
    filled(row) >= 2.max(width.div_ceil(2)) && first.is_some_and(|cell| !is_number(cell))
}

fn is_number(cell: &str) -> bool {
    cell.contains(|character: char| character.is_ascii_digit())
        && cell.chars().all(|character| character.is_ascii_digit() || "+-.,:/%€$ ".contains(character))
}

/// Returns the names of columns by the cells of their header.
pub(crate) fn column_names(header: &[String]) -> Vec<String> {
    let name = |cell: &String| {
        let visible: String = cell.chars().filter(|&character| !is_hidden(character)).collect();
        let mut name = single_line(&visible);
        name.truncate(name.floor_char_boundary(MAX_NAME_BYTES));
        name
    };
    header.iter().map(name).collect()
}

/// Returns the names of columns by the header, some cells of which are above several columns, and the row below it with the names of
/// these columns; `None` if the row has values. It has nothing below the other cells, unless they are merged with it.
pub(crate) fn names_in_groups(header: &[String], row: &[String]) -> Option<Vec<String>> {
    let below = column_names(row);
    let width = header.len().max(below.len());
    let cell = |cells: &[String], column: usize| cells.get(column).cloned().unwrap_or_default();
    let mut names = Vec::with_capacity(width);
    let mut group = String::new();
    let (mut has_group, mut has_number, mut is_merged) = (false, false, false);
    for column in 0..width {
        let (own, name) = (cell(header, column), cell(&below, column));
        let begins_group = !own.is_empty() && column + 1 < width && cell(header, column + 1).is_empty();
        if !own.is_empty() {
            group.clone_from(&own);
        }
        if begins_group || (own.is_empty() && !group.is_empty()) {
            if name.is_empty() {
                return None;
            }
            has_group = true;
            has_number |= is_number(&name);
            let mut joined = format!("{group} {name}");
            joined.truncate(joined.floor_char_boundary(MAX_NAME_BYTES));
            names.push(joined);
        } else if own.is_empty() || name.is_empty() || own == name {
            is_merged |= !own.is_empty() && own == name;
            names.push(if own.is_empty() { name } else { own });
        } else {
            return None;
        }
    }
    // Years may be names, and values of a row without a name of its own are no years.
    (has_group && (is_merged || !has_number)).then_some(names)
}

/// Returns a row as a line; an empty row gives an empty text.
fn line(header: &[String], row: &[String]) -> String {
    let mut line = String::new();
    for (index, cell) in row.iter().enumerate() {
        let value = single_line(cell);
        if value.is_empty() {
            continue;
        }
        if !line.is_empty() {
            line.push_str("; ");
        }
        let name = header.get(index).map(String::as_str).unwrap_or_default();
        if !name.is_empty() {
            line.push_str(name);
            line.push_str(": ");
        }
        line.push_str(&value);
    }
    if !line.is_empty() {
        line.push('\n');
    }
    line
}

fn single_line(cell: &str) -> String {
    cell.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::ExtractionLimits;
    use agent_retrieval::document::TextFormat;

    #[test]
    fn names_of_columns_are_bounded_and_visible() {
        let cells = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let long = "é".repeat(5_000);
        let hidden = format!("A{}", "\u{200b}".repeat(5_000));
        let header = column_names(&cells([&hidden, &long]));
        assert_eq!(header, cells(["A", &long[..MAX_NAME_BYTES]]));
        let mut builder = TextBuilder::new(&ExtractionLimits::default());
        let rows = [cells([&hidden, &long]), cells(["1", "2"])];
        push_rows(&mut builder, rows.map(Ok)).unwrap();
        let expected = format!("A: 1; {}: 2", &long[..MAX_NAME_BYTES]);
        assert_eq!(builder.finish(None, TextFormat::Plain).document.text, expected);
    }

    #[test]
    fn rows_name_their_columns() {
        for (rows, expected) in [
            (&["Name|City", "Ada|London", "Bob|"][..], "Name: Ada; City: London\nName: Bob"),
            (
                &["Report 2024||", "", "Region|2023|2024", "North|1|2\n3"],
                "Report 2024\nRegion: North; 2023: 1; 2024: 2 3",
            ),
            (&["1|2", "3|4"], "1; 2\n3; 4"),
            (&["Name|City"], "Name; City"),
            (&["one", "two"], "one\ntwo"),
            (&["A|B", "1|2|3"], "A: 1; B: 2; 3"),
            (
                &["Region|2023||2024|", "|Q1|Q2|Q1|Q2", "North|1|2|3|4"],
                "Region: North; 2023 Q1: 1; 2023 Q2: 2; 2024 Q1: 3; 2024 Q2: 4",
            ),
            (
                &["Region|Sold||Note", "Region|2023|2024|Note", "North|1|2|new"],
                "Region: North; Sold 2023: 1; Sold 2024: 2; Note: new",
            ),
            (
                &["Region|Sold||Note", "|1|2|", "North|1|2|new"],
                "Sold: 1; 2\nRegion: North; Sold: 1; 2; Note: new",
            ),
            (&["Name|Value|", "Ada|x|", "Bob|y|z"], "Name: Ada; Value: x\nName: Bob; Value: y; z"),
            (&["A|B|", "Ada|x|y"], "A: Ada; B: x; y"),
            (&[], ""),
        ] {
            let mut builder = TextBuilder::new(&ExtractionLimits::default());
            let cells = |row: &&str| Ok(row.split('|').map(str::to_owned).collect());
            push_rows(&mut builder, rows.iter().map(cells)).unwrap();
            assert_eq!(builder.finish(None, TextFormat::Plain).document.text, expected);
        }
    }
}
