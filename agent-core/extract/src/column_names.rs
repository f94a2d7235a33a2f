//! Names of the columns of a table by its header rows.
//!
//! In a header of several rows, a cell of the first one is above several columns, whose own names are in the last one. It is merged over
//! them, or repeated, as in files of separated values. Programs for statistics write one more row, with the names of the first columns
//! alone, and the names of the header rows themselves in the column before the values.

use std::collections::BTreeSet;

use agent_retrieval::analysis::is_hidden;

/// Maximum length of the name of a column, in bytes. Each row repeats it.
const MAX_NAME_BYTES: usize = 1_000;
/// Maximum number of rows that together name the columns.
const MAX_HEADER_ROWS: usize = 4;
/// Maximum number of digits of a whole number that can be the name of a column, such as a year or a month.
const MAX_DIGITS_OF_NAME: usize = 4;

/// The header of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    /// The names of the columns.
    pub(crate) names: Vec<String>,
    /// The number of rows that the header has.
    pub(crate) rows: usize,
    /// The names of the header rows themselves, such as `year` beside 2023 and 2024.
    pub(crate) row_names: Vec<String>,
}

/// Returns the header that a table begins with, if its first row is one. `width` is the number of cells of its longest row.
pub(crate) fn header_of(rows: &[Vec<String>], width: usize) -> Option<Header> {
    let mut cells: Vec<Vec<String>> =
        rows.iter().take(MAX_HEADER_ROWS + 1).map(|row| column_names(row)).collect();
    let first = cells.first()?;
    if filled(first) == 0 {
        return None;
    }
    if can_begin_header(first) {
        let several = header_with_index(&cells, rows).or_else(|| {
            (2..=MAX_HEADER_ROWS.min(cells.len())).find_map(|count| {
                let (header, below) = cells.split_at(count);
                grouped_header(header, below.iter().find(|row| filled(row) > 0))
            })
        });
        if several.is_some() {
            return several;
        }
    }
    is_single_header(&cells, width).then(|| Header {
        names: cells.swap_remove(0),
        rows: 1,
        row_names: Vec::new(),
    })
}

/// Returns the names of columns by two header rows, in the first of which cells are above several columns; `None` if the second one
/// has values.
pub(crate) fn names_in_groups(header: &[String], row: &[String]) -> Option<Vec<String>> {
    let header = grouped_header(&[column_names(header), column_names(row)], None)?;
    Some(header.names)
}

/// Returns the number of cells with text.
pub(crate) fn filled(row: &[String]) -> usize {
    row.iter().filter(|cell| !cell.trim().is_empty()).count()
}

pub(crate) fn is_number(cell: &str) -> bool {
    cell.contains(|character: char| character.is_ascii_digit())
        && cell.chars().all(|character| character.is_ascii_digit() || "+-.,:/%€$ ".contains(character))
}

/// Returns the names of columns by the cells of their header.
fn column_names(header: &[String]) -> Vec<String> {
    let name = |cell: &String| {
        let visible: String = cell.chars().filter(|&character| !is_hidden(character)).collect();
        let words: Vec<&str> = visible.split_whitespace().collect();
        cut(words.join(" "))
    };
    header.iter().map(name).collect()
}

fn cut(mut name: String) -> String {
    name.truncate(name.floor_char_boundary(MAX_NAME_BYTES));
    name
}

/// Returns true for a number that can be the name of a column.
fn is_numbered_name(cell: &str) -> bool {
    (1..=MAX_DIGITS_OF_NAME).contains(&cell.len()) && cell.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_year(cell: &str) -> bool {
    cell.len() == 4 && matches!(cell.parse::<u16>(), Ok(1900..=2100))
}

fn cell(row: &[String], column: usize) -> &str {
    row.get(column).map_or("", String::as_str)
}

/// Returns true for a row that begins with a name, or with nothing above numbers that can be names.
fn can_begin_header(row: &[String]) -> bool {
    let mut texts = row.iter().filter(|cell| !cell.is_empty());
    texts.clone().next().is_some_and(|cell| !is_number(cell))
        || (cell(row, 0).is_empty() && texts.all(|cell| is_numbered_name(cell)))
}

/// Returns true if the first row is a header of one row: it has at least two and at least half of the columns, and not values alone
/// beside its first cell. Numbers name columns if nothing is above the names of the rows.
fn is_single_header(rows: &[Vec<String>], width: usize) -> bool {
    let [row, below @ ..] = rows else { return false };
    let texts: Vec<&str> = row.iter().map(String::as_str).filter(|text| !text.is_empty()).collect();
    if texts.len() < 2.max(width.div_ceil(2)) {
        return false;
    }
    if is_number(texts[0]) {
        let distinct: BTreeSet<&str> = texts.iter().copied().collect();
        let names_rows = below.first().is_some_and(|next| !cell(next, 0).is_empty());
        return can_begin_header(row) && distinct.len() == texts.len() && names_rows;
    }
    let next: Vec<&str> = below.first().into_iter().flatten().skip(1).map(String::as_str).collect();
    let next: Vec<&str> = next.into_iter().filter(|text| !text.is_empty()).collect();
    !texts[1..].iter().all(|text| is_number(text)) || can_name_columns(&texts[1..], &next)
}

/// Returns true for numbers that name columns: those from 0 or 1 on, and years or several dates unless the row below has such values
/// too.
fn can_name_columns(numbers: &[&str], below: &[&str]) -> bool {
    let are_years = |texts: &[&str]| !texts.is_empty() && texts.iter().all(|text| is_year(text));
    let are_dates = |texts: &[&str]| texts.len() > 1 && texts.iter().all(|text| is_date(text));
    let first = numbers.first().and_then(|number| number.parse::<usize>().ok());
    let counts_up = first.is_some_and(|first| {
        first <= 1 && numbers.iter().zip(first..).all(|(number, expected)| number.parse() == Ok(expected))
    });
    counts_up || (are_years(numbers) && !are_years(below)) || (are_dates(numbers) && !are_dates(below))
}

/// Returns true for a date in digits, such as 2024-03-01 or 1/22/20.
fn is_date(text: &str) -> bool {
    let is_part =
        |part: &str| matches!(part.len(), 1 | 2 | 4) && part.bytes().all(|byte| byte.is_ascii_digit());
    ['-', '/', '.']
        .into_iter()
        .any(|separator| text.split(separator).count() == 3 && text.split(separator).all(is_part))
}

/// Header rows with each text above the columns that it names.
struct HeaderRows<'r> {
    rows: &'r [Vec<String>],
    /// The texts of the rows by columns: those of cells above several columns are repeated.
    texts: Vec<Vec<&'r str>>,
    /// True for the columns below a cell that is above several ones.
    is_grouped: Vec<bool>,
    /// True if such a cell is repeated and not merged.
    has_repetition: bool,
}

impl<'r> HeaderRows<'r> {
    /// Spreads cells over the columns that they are above: those up to the next text of their row or of one above.
    fn new(rows: &'r [Vec<String>]) -> Self {
        let width = rows.iter().map(Vec::len).max().unwrap_or_default();
        let mut begins = vec![false; width];
        let mut header = Self { rows, texts: Vec::new(), is_grouped: Vec::new(), has_repetition: false };
        for row in rows {
            let mut text = "";
            let mut texts = Vec::with_capacity(width);
            for (column, begins) in begins.iter_mut().enumerate() {
                let own = cell(row, column);
                let is_single = header.is_grouped.get(column) == Some(&false);
                if *begins || is_single {
                    text = "";
                }
                header.has_repetition |= header.texts.is_empty() && !own.is_empty() && own == text;
                *begins |= !own.is_empty() && own != text;
                if !own.is_empty() {
                    text = own;
                }
                texts.push(text);
            }
            if header.texts.is_empty() {
                let goes_on = |column: usize| column < width && !begins[column] && !texts[column].is_empty();
                header.is_grouped = (0..width).map(|column| goes_on(column) || goes_on(column + 1)).collect();
            }
            header.texts.push(texts);
        }
        header
    }

    fn width(&self) -> usize {
        self.is_grouped.len()
    }

    /// Returns the text of the last row in a column.
    fn last(&self, column: usize) -> &'r str {
        self.rows.last().map_or("", |row| cell(row, column))
    }

    /// Returns the texts above the values of a column, without repetitions.
    fn above(&self, column: usize) -> Vec<&'r str> {
        let mut texts: Vec<&str> =
            self.texts.iter().map(|row| row[column]).filter(|text| !text.is_empty()).collect();
        texts.dedup();
        texts
    }

    fn name(&self, column: usize) -> String {
        cut(self.above(column).join(" "))
    }

    /// Returns the number of different texts of the first row from a column on.
    fn groups(&self, column: usize) -> usize {
        let texts = self.texts.first().and_then(|row| row.get(column..)).unwrap_or_default();
        texts.iter().filter(|text| !text.is_empty()).collect::<BTreeSet<_>>().len()
    }

    /// Returns true if the names of the columns from `first` on, of those that have groups if `grouped`, differ from each other and
    /// the last row has a text in each.
    fn are_distinct(&self, first: usize, grouped: bool) -> bool {
        let mut names = BTreeSet::new();
        let is_name = |column: usize| !self.last(column).is_empty() && names.insert(self.name(column));
        (first..self.width()).filter(|&column| !grouped || self.is_grouped[column]).all(is_name)
    }

    /// Returns true if the row below has numbers in all columns of groups, which have none in the last row.
    fn is_above_numbers(&self, below: Option<&Vec<String>>) -> bool {
        let is_above = |column: usize| {
            let value = below.map_or("", |row| cell(row, column));
            is_number(value) && !is_number(self.last(column))
        };
        (0..self.width()).filter(|&column| self.is_grouped[column]).all(is_above)
    }
}

/// Returns the header of rows that name the columns together; `None` if the last one has values. `below` is the first row of values.
fn grouped_header(rows: &[Vec<String>], below: Option<&Vec<String>>) -> Option<Header> {
    let header = HeaderRows::new(rows);
    let is_corner = |row: &Vec<String>| cell(row, 0).is_empty();
    let has_corner = rows.iter().all(is_corner) && below.is_none_or(|row| !is_corner(row));
    if rows.iter().any(|row| filled(row) == 0)
        || !header.is_grouped.contains(&true)
        || !header.are_distinct(0, true)
        || (header.groups(0) < 2 && !has_corner)
    {
        return None;
    }
    let singles: Vec<usize> = (0..header.width()).filter(|&column| !header.is_grouped[column]).collect();
    let (last, above) = rows.split_last()?;
    let is_repeated = |column: usize| above.iter().any(|row| cell(row, column) == cell(last, column));
    let is_merged = singles.iter().any(|&column| !cell(last, column).is_empty() && is_repeated(column));
    let has_value = last.iter().any(|text| is_number(text) && !is_year(text));
    let conflicts: Vec<usize> =
        singles.iter().copied().filter(|&column| header.above(column).len() > 1).collect();
    let is_above_numbers = header.is_above_numbers(below);
    // The first column may have names of the header rows if all others have numbers below the names of theirs.
    let has_row_names = conflicts == [0] && singles.len() == 1 && is_above_numbers && header.groups(1) > 1;
    let is_certain = !header.has_repetition || singles.len() > conflicts.len() || is_above_numbers;
    // Of three rows and more, the last one rather is one of values if it has more than the names of groups.
    let is_new = |column: usize| !cell(last, column).is_empty() && !is_repeated(column);
    let has_own_names = rows.len() > 2 && singles.iter().any(|&column| is_new(column));
    // Years may be names, and values of a row without a separate name are not years.
    let has_values = (has_value && !is_merged) || (has_own_names && !has_corner);
    let is_named = conflicts.is_empty() || has_corner || has_row_names;
    if has_values || !is_certain || !is_named {
        return None;
    }
    let mut names: Vec<String> = (0..header.width()).map(|column| header.name(column)).collect();
    let mut row_names = Vec::new();
    if has_row_names && !has_corner {
        names[0].clear();
        row_names = rows.iter().map(|row| cell(row, 0).to_owned()).collect();
    }
    Some(Header { names, rows: rows.len(), row_names })
}

/// Returns the header of several rows below which one names the first columns alone. If more rows have nothing else, they are the names
/// of sections.
fn header_with_index(cells: &[Vec<String>], rows: &[Vec<String>]) -> Option<Header> {
    (2..cells.len()).find_map(|count| {
        let index = &cells[count];
        let width = 1 + index.iter().rposition(|text| !text.is_empty())?;
        let header = HeaderRows::new(&cells[..count]);
        let values = |row: &Vec<String>| filled(row.get(width..).unwrap_or_default());
        let mut others = rows[count + 1..].iter().filter(|row| filled(row) > 0).peekable();
        let has_others = others.peek().is_some() && others.all(|row| values(row) > 0);
        let has_names =
            (width..header.width()).all(|column| header.texts.iter().all(|row| !row[column].is_empty()));
        if !has_others
            || !has_names
            || header.width() <= width
            || !header.are_distinct(width, false)
            || index.iter().any(|text| is_number(text))
            || cells[..count].iter().any(|row| filled(row.get(..width - 1).unwrap_or_default()) > 0)
        {
            return None;
        }
        let row_names: Vec<String> = header.rows.iter().map(|row| cell(row, width - 1).to_owned()).collect();
        let has_groups = header.has_repetition || header.groups(width) > 1;
        let is_grouped = header.is_grouped[width..].contains(&true) && has_groups;
        let row_names = if filled(&row_names) > 0 { row_names } else { Vec::new() };
        if !row_names.is_empty() && !is_grouped {
            return None;
        }
        let name =
            |column: usize| if column < width { cell(index, column).to_owned() } else { header.name(column) };
        Some(Header { names: (0..header.width()).map(name).collect(), rows: count + 1, row_names })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the names of the columns, joined by `|`, with the number of header rows and the names of these.
    fn header(rows: &[&str]) -> Option<(String, usize, String)> {
        let rows: Vec<Vec<String>> =
            rows.iter().map(|row| row.split('|').map(str::to_owned).collect()).collect();
        let width = rows.iter().map(|row| filled(row)).max().unwrap_or_default();
        let header = header_of(&rows, width)?;
        Some((header.names.join("|"), header.rows, header.row_names.join("|")))
    }

    #[test]
    fn groups_of_columns_are_a_part_of_their_names() {
        for (rows, names, count, row_names) in [
            // Merged and repeated cells, without a name of the rows.
            (
                &["|2023||2024|", "|Q1|Q2|Q1|Q2", "North|1|2|3|4"][..],
                "|2023 Q1|2023 Q2|2024 Q1|2024 Q2",
                2,
                "",
            ),
            (&["|2023|2023|2024", "|Q1|Q2|Q1", "North|1|2|3"], "|2023 Q1|2023 Q2|2024 Q1", 2, ""),
            (&["|Sold|Sold", "|new|used", "North|1|2"], "|Sold new|Sold used", 2, ""),
            (
                &["Sold|Sold|Lost|Lost", "new|used|new|used", "1|2|3|4"],
                "Sold new|Sold used|Lost new|Lost used",
                2,
                "",
            ),
            // The names of sections below.
            (
                &["|Sold|Sold", "|new|used", "Europe||", "Italy|1|2", "Asia||", "Japan|3|4"],
                "|Sold new|Sold used",
                2,
                "",
            ),
            // With a row that names the first columns, and names of the header rows.
            (
                &["|Sold|Sold|Lost", "|2023|2024|2024", "Region|||", "North|1|2|3"],
                "Region|Sold 2023|Sold 2024|Lost 2024",
                3,
                "",
            ),
            (&["|price|count", "|mean|sum", "Region||", "North|1|2"], "Region|price mean|count sum", 3, ""),
            (
                &["kind|Sold||Lost", "state|new|used|new", "Region|||", "North|1|2|3"],
                "Region|Sold new|Sold used|Lost new",
                3,
                "kind|state",
            ),
            (
                &["|kind|Sold|Sold", "|state|new|used", "Area|Region||", "EU|North|1|2", "|South|3|4"],
                "Area|Region|Sold new|Sold used",
                3,
                "kind|state",
            ),
            (
                &["kind|Sold|Sold|Lost|Lost", "state|new|used|new|used", "North|1|2|3|4"],
                "|Sold new|Sold used|Lost new|Lost used",
                2,
                "kind|state",
            ),
            // Three levels.
            (
                &["|mean||sum|", "|price||price|", "|2023|2024|2023|2024", "North|1|2|3|4"],
                "|mean price 2023|mean price 2024|sum price 2023|sum price 2024",
                3,
                "",
            ),
            (
                &["|mean|mean|sum|sum", "|a|a|a|a", "year|1|2|1|2", "Region||||", "North|1|2|3|4"],
                "Region|mean a 1|mean a 2|sum a 1|sum a 2",
                4,
                "||year",
            ),
        ] {
            assert_eq!(header(rows), Some((names.to_owned(), count, row_names.to_owned())), "{rows:?}");
        }
    }

    #[test]
    fn values_are_no_names() {
        for (rows, names) in [
            // Values below names that are repeated, above a column without a name, and in a row with a missing value.
            (&["Name|Phone|Phone", "Ada|1|2", "Bob|3|4"][..], Some("Name|Phone|Phone")),
            (&["Name|Phone|Phone", "Ada|x|y", "Bob|z|"], Some("Name|Phone|Phone")),
            (&["Name|Contact|", "Ada|x|y", "Bob||", "Eve|z|w"], Some("Name|Contact|")),
            (&["Name|Team|City", "Ada|IT|Bonn", "Bob||", "Eve|HR|Rome"], Some("Name|Team|City")),
            (&["|Sold|Sold", "|10|20", "North|4|5"], Some("|Sold|Sold")),
            // Numbers name columns beside the names of rows.
            (&["|2023|2024", "North|1|2"], Some("|2023|2024")),
            (&["|10|10", "North|1|2"], None),
            (&["10|20", "1|2"], None),
            // A name and its value.
            (&["valid from|2024-03-01", "Name|City"], None),
            (&["Region|2023", "North|5"], Some("Region|2023")),
            (&["Name|1|2|3", "Ada|4|5|6"], Some("Name|1|2|3")),
            (&["Country|1/22/20|1/23/20", "Italy|2|3"], Some("Country|1/22/20|1/23/20")),
            // Rows of a table without a header.
            (&["Berlin|3645|891.7", "Bonn|330|141"], None),
            (&["Berlin|3.645.000|1.234.567", "Bonn|1|2"], None),
            (&["Ada|1990|2005", "Bob|1985|2010"], None),
            (&["Ada|2024-01-01|2024-02-01", "Bob|2024-03-01|2024-04-01"], None),
        ] {
            let expected = names.map(|names| (names.to_owned(), 1, String::new()));
            assert_eq!(header(rows), expected, "{rows:?}");
        }
    }
}
