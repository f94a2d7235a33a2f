//! Tables as text in which each row names its columns.
//!
//! A chunk that holds a part of a long table has no header, so each row is a line `header: value; header: value`.

use std::collections::VecDeque;

use agent_retrieval::extract::ExtractError;

use crate::column_names::{Header, filled, header_of, is_number};
use crate::text_builder::TextBuilder;

/// Maximum number of rows at the beginning of a table that are searched for the header.
pub(crate) const MAX_ROWS_TO_HEADER: usize = 10;
/// Maximum length of a column's name that tells another table below an empty row, in bytes.
const MAX_NAME_BYTES_OF_NEXT: usize = 60;

/// Appends a table. Rows before the header, and all rows of a table without a header, become lines of their cells. Rows below an empty
/// one can be another table with a separate header.
pub(crate) fn push_rows(
    builder: &mut TextBuilder,
    rows: impl IntoIterator<Item = Result<Vec<String>, ExtractError>>,
) -> Result<(), ExtractError> {
    let mut rows = rows.into_iter().fuse();
    let mut ahead: VecDeque<Vec<String>> =
        rows.by_ref().take(MAX_ROWS_TO_HEADER).collect::<Result<_, _>>()?;
    // The next header, and the number of rows before it.
    let mut next = first_header(ahead.make_contiguous());
    let mut names: Vec<String> = Vec::new();
    // True until a row has the names.
    let mut is_unused = false;
    let mut is_below_empty = false;
    while !ahead.is_empty() {
        if is_below_empty && next.is_none() {
            next = next_header(ahead.make_contiguous(), &names).map(|header| (0, header));
        }
        match next.take() {
            Some((0, header)) => {
                if is_unused {
                    builder.push(&line(&[], &names))?;
                }
                builder.push(&line(&[], &header.row_names))?;
                ahead.drain(..header.rows);
                names = header.names;
                (is_unused, is_below_empty) = (true, false);
            }
            later => {
                next = later.map(|(distance, header)| (distance - 1, header));
                let row = ahead.pop_front().unwrap_or_default();
                is_below_empty = filled(&row) == 0;
                is_unused &= is_below_empty;
                builder.push(&line(&names, &row))?;
            }
        }
        while ahead.len() < MAX_ROWS_TO_HEADER
            && let Some(row) = rows.next()
        {
            ahead.push_back(row?);
        }
    }
    if is_unused {
        builder.push(&line(&[], &names))?;
    }
    Ok(())
}

/// Returns the header of a table by its first rows, and the number of rows before it: titles, and facts of a name and a value.
pub(crate) fn first_header(rows: &[Vec<String>]) -> Option<(usize, Header)> {
    let width = rows.iter().map(|row| filled(row)).max().unwrap_or_default();
    let is_full = |row: &Vec<String>| width > 2 && filled(row) == width;
    for (index, row) in rows.iter().enumerate() {
        match header_of(&rows[index..], width) {
            Some(header) if index + header.rows < rows.len() => return Some((index, header)),
            None if is_full(row) => return None,
            _ => {}
        }
    }
    None
}

/// Returns the header of the rows below an empty one, if they are another table than the rows above, whose columns have `names`. Its
/// header has words alone, in all of its columns, and either numbers below one of them, or another number of columns.
fn next_header(rows: &[Vec<String>], names: &[String]) -> Option<Header> {
    let table: Vec<&Vec<String>> = rows.iter().take_while(|row| filled(row) > 0).collect();
    let width = table.iter().map(|row| filled(row)).max()?;
    let header = header_of(&rows[..table.len()], width)?;
    let values = table.get(header.rows..).filter(|values| !values.is_empty())?;
    let is_word = |name: &String| {
        name.len() <= MAX_NAME_BYTES_OF_NEXT
            && name.contains(char::is_alphabetic)
            && !name.contains(|character: char| character.is_ascii_digit() || character == '@')
    };
    let own_names = || header.names.iter().filter(|name| !name.is_empty());
    if own_names().count() < width || !own_names().all(is_word) {
        return None;
    }
    let has_numbers =
        |column: usize| values.iter().all(|row| row.get(column).is_some_and(|cell| is_number(cell.trim())));
    let is_above_numbers = (0..header.names.len()).any(has_numbers);
    let has_other_columns = !names.is_empty() && columns(&header.names) != columns(names);
    (is_above_numbers || has_other_columns).then_some(header)
}

/// Returns the number of columns up to the last one with a name.
fn columns(names: &[String]) -> usize {
    names.iter().rposition(|name| !name.is_empty()).map_or(0, |last| last + 1)
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

    fn text_of(rows: &[&str]) -> String {
        let mut builder = TextBuilder::new(&ExtractionLimits::default());
        let cells = |row: &&str| Ok(row.split('|').map(str::to_owned).collect());
        push_rows(&mut builder, rows.iter().map(cells)).unwrap();
        builder.finish(None, TextFormat::Plain).document.text
    }

    #[test]
    fn names_of_columns_are_bounded_and_visible() {
        let long = "é".repeat(5_000);
        let hidden = format!("A{}", "\u{200b}".repeat(5_000));
        let header = format!("{hidden}|{long}");
        let text = text_of(&[header.as_str(), "1|2"]);
        assert_eq!(text, format!("A: 1; {}: 2", &long[..1_000]));
    }

    #[test]
    fn tables_below_each_other_have_their_own_headers() {
        for (rows, expected) in [
            // Another number of columns, and numbers below words.
            (
                &["Article|Price|Stock", "Chair|49.9|3", "", "Region|Manager", "North|Ada", "South|Bob"][..],
                "Article: Chair; Price: 49.9; Stock: 3\nRegion: North; Manager: Ada\nRegion: South; Manager: Bob",
            ),
            (
                &["Name|Age", "Ada|36", "", "City|People", "Bonn|330000", "Rome|2800000"],
                "Name: Ada; Age: 36\nCity: Bonn; People: 330000\nCity: Rome; People: 2800000",
            ),
            // Facts about the document above a table.
            (
                &["Prices 2024||", "Author|Ada|", "||", "Article|Price|Stock", "Chair|49.9|3"],
                "Prices 2024\nAuthor; Ada\nArticle: Chair; Price: 49.9; Stock: 3",
            ),
            // Groups of rows.
            (
                &["Name|City", "Ada|London", "", "Bob|Paris", "Eve|Rome"],
                "Name: Ada; City: London\nName: Bob; City: Paris\nName: Eve; City: Rome",
            ),
            (
                &["Name|Mail|Note", "Ada|a@x|new", "", "Bob|b@x|", "Eve|e@x|"],
                "Name: Ada; Mail: a@x; Note: new\nName: Bob; Mail: b@x\nName: Eve; Mail: e@x",
            ),
            (
                &["Name|Age", "Ada|36", "", "Bob|40", "Eve|41"],
                "Name: Ada; Age: 36\nName: Bob; Age: 40\nName: Eve; Age: 41",
            ),
        ] {
            assert_eq!(text_of(rows), expected, "{rows:?}");
        }
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
            (
                &["Berlin|3645|891.7", "Bonn|n/a|141", "Ulm|1|2"],
                "Berlin; 3645; 891.7\nBonn; n/a; 141\nUlm; 1; 2",
            ),
            (&["Name|City"], "Name; City"),
            (&["Name|City", "|"], "Name; City"),
            (
                &["valid from|2024-03-01", "Name|City", "Ada|Rome"],
                "valid from; 2024-03-01\nName: Ada; City: Rome",
            ),
            (&["|2023|2023", "|Q1|Q2", "Region||", "North|1|2"], "Region: North; 2023 Q1: 1; 2023 Q2: 2"),
            (
                &["kind|Sold||Lost", "state|new|used|new", "Region|||", "A|1|2|3"],
                "kind; state\nRegion: A; Sold new: 1; Sold used: 2; Lost new: 3",
            ),
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
            assert_eq!(text_of(rows), expected, "{rows:?}");
        }
    }
}
