//! Tables that continue on the next page. The library takes the first row of a table on each page for its header row, which it is not
//! where the document does not repeat the header.

use std::collections::BTreeSet;

use unpdf::{Block, Page, Table, TableCell, TableRow};

/// Maximum number of blocks above and below a table that are compared with those of another page.
const MAX_RUNNING_BLOCKS: usize = 4;
/// Maximum length of a page number in characters.
const MAX_PAGE_NUMBER_CHARACTERS: usize = 16;
/// Maximum difference of the left edges of a column on two pages, in points.
const MAX_EDGE_DIFFERENCE: f32 = 12.0;
/// The same for a column of numbers, which begin at different places if they are aligned to the right.
const MAX_EDGE_DIFFERENCE_OF_NUMBERS: f32 = 40.0;

/// The table at the end of a page.
pub(super) struct LastTable {
    header: TableRow,
    column_widths: Vec<f32>,
    /// True for the columns that have numbers alone below the header.
    has_numbers: Vec<bool>,
    /// The blocks at the top of the page.
    heads: Vec<RunningText>,
    /// The blocks below the table.
    feet: Vec<RunningText>,
}

impl LastTable {
    /// Returns the table at the end of a page, which may have running feet below it.
    pub(super) fn of(page: &Page) -> Option<Self> {
        let position = page.elements.iter().rposition(|block| matches!(block, Block::Table(_)))?;
        let Block::Table(table) = &page.elements[position] else { return None };
        let feet: Vec<RunningText> = running_texts(&page.elements[position + 1..]).collect();
        let (header, below) = table.rows.split_first()?;
        let column_widths = table.column_widths.clone()?;
        if feet.len() > MAX_RUNNING_BLOCKS || header.cells.iter().all(|cell| text_of(cell).is_empty()) {
            return None;
        }
        Some(Self {
            header: header.clone(),
            has_numbers: (0..column_widths.len()).map(|column| are_numbers(column, below)).collect(),
            column_widths,
            heads: running_texts(&page.elements).take(MAX_RUNNING_BLOCKS).collect(),
            feet,
        })
    }

    /// Returns the place of the table at the top of the next page that may be this one, which goes on.
    pub(super) fn place_on(&self, page: &Page) -> Option<usize> {
        let position = page.elements.iter().position(|block| matches!(block, Block::Table(_)))?;
        let (above, rest) = page.elements.split_at(position);
        let Block::Table(table) = rest.first()? else { return None };
        let heads: Vec<RunningText> = running_texts(above).collect();
        let below: Vec<RunningText> = running_texts(rest).collect();
        let goes_on = are_running(heads.iter(), self.heads.iter())
            && are_running(self.feet.iter().rev(), below.iter().rev())
            && self.has_columns_of(table)
            && self.may_go_on_with(table);
        goes_on.then_some(position)
    }

    /// Puts the header row above the rows with which the table goes on at a place of the next page, unless these begin with a header
    /// row, which has only words of `bold_words`, as the rows below do not.
    pub(super) fn continue_at(&self, position: usize, page: &mut Page, bold_words: &BTreeSet<String>) {
        let Some(Block::Table(table)) = page.elements.get_mut(position) else { return };
        let is_bold = |row: &TableRow| {
            let texts: Vec<String> = row.cells.iter().map(text_of).collect();
            let mut words = texts.iter().flat_map(|text| text.split_whitespace()).peekable();
            words.peek().is_some() && words.all(|word| bold_words.contains(word))
        };
        if let Some((first, below)) = table.rows.split_first()
            && is_bold(first)
            && !below.iter().all(is_bold)
        {
            return;
        }
        let mut header = self.header.clone();
        header.cells.iter_mut().for_each(|cell| cell.rowspan = 1);
        table.rows.insert(0, header);
        table.header_rows = 1;
    }

    /// Returns true for a table with the same columns. The last one is as wide as its longest text.
    fn has_columns_of(&self, table: &Table) -> bool {
        let widths = table.column_widths.as_deref().unwrap_or_default();
        let below = table.rows.get(1..).unwrap_or_default();
        let is_equal = |(index, (edge, own)): (usize, (f32, f32))| {
            let column = index + 1;
            let has_numbers = self.has_numbers[column] && are_numbers(column, below);
            let limit = if has_numbers { MAX_EDGE_DIFFERENCE_OF_NUMBERS } else { MAX_EDGE_DIFFERENCE };
            (edge - own).abs() <= limit
        };
        widths.len() > 1
            && widths.len() == self.column_widths.len()
            && inner_edges(widths).zip(inner_edges(&self.column_widths)).enumerate().all(is_equal)
    }

    /// Returns false for a table whose first row is a header row: it repeats a cell of the header, or has a word above numbers.
    fn may_go_on_with(&self, table: &Table) -> bool {
        let Some((first, below)) = table.rows.split_first() else { return false };
        let is_header_cell = |(column, (cell, name)): (usize, (&TableCell, &TableCell))| {
            let (text, name) = (text_of(cell), text_of(name));
            !text.is_empty() && (text == name || !has_digit(&text) && are_numbers(column, below))
        };
        !first.cells.iter().zip(&self.header.cells).enumerate().any(is_header_cell)
    }
}

/// Returns the left edges of the columns but the first, from that of the first.
fn inner_edges(widths: &[f32]) -> impl Iterator<Item = f32> {
    let inner = &widths[..widths.len().saturating_sub(1)];
    inner.iter().scan(0.0_f32, |edge, width| {
        *edge += *width;
        Some(*edge)
    })
}

/// Returns true if each of these rows has a digit in a column.
fn are_numbers(column: usize, rows: &[TableRow]) -> bool {
    !rows.is_empty()
        && rows.iter().all(|row| row.cells.get(column).is_some_and(|cell| has_digit(&text_of(cell))))
}

fn has_digit(text: &str) -> bool {
    text.contains(char::is_numeric)
}

/// The text of a block without digits and white space, in which running heads and feet with page numbers are equal: empty for a
/// page number, and `None` for a block that is not a paragraph.
type RunningText = Option<String>;

fn running_texts(blocks: &[Block]) -> impl Iterator<Item = RunningText> {
    blocks.iter().filter_map(|block| match block {
        Block::Table(_) | Block::Code { .. } | Block::Raw { .. } => Some(None),
        Block::Paragraph(paragraph) => {
            let text = paragraph.plain_text();
            let is_number = !text.contains(char::is_alphabetic)
                && !paragraph.is_heading()
                && text.trim().chars().count() <= MAX_PAGE_NUMBER_CHARACTERS;
            let is_kept =
                |character: &char| !is_number && !character.is_numeric() && !character.is_whitespace();
            (!text.trim().is_empty()).then(|| Some(text.chars().filter(is_kept).collect()))
        }
        _ => None,
    })
}

/// Returns true for texts that are page numbers, or begin as those of another page at the same places. The library appends the text
/// below a table to a running head above it.
fn are_running<'t>(
    mut texts: impl Iterator<Item = &'t RunningText>,
    mut others: impl Iterator<Item = &'t RunningText>,
) -> bool {
    texts.all(|text| {
        let other = others.next();
        let Some(words) = text else { return false };
        let other = other.and_then(|other| other.as_deref()).filter(|other| !other.is_empty());
        words.is_empty() || other.is_some_and(|other| words.starts_with(other))
    })
}

fn text_of(cell: &TableCell) -> String {
    cell.plain_text().trim().to_owned()
}

#[cfg(test)]
mod tests;
