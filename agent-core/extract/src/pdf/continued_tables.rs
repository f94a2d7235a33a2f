//! Tables that continue on the next page. The library takes the first row of a table on each page for its header row, which it is not
//! where the document does not repeat the header.

use unpdf::{Block, Page, Table, TableCell, TableRow};

/// Maximum number of blocks above and below a table that are compared with those of another page.
const MAX_RUNNING_BLOCKS: usize = 4;
/// Maximum length of a page number in characters.
const MAX_PAGE_NUMBER_CHARACTERS: usize = 16;
/// Maximum difference of the widths of a column on two pages, in points: numbers that are aligned to the right begin at different
/// places.
const MAX_WIDTH_DIFFERENCE: f32 = 12.0;

/// The table at the end of a page.
pub(super) struct LastTable {
    header: TableRow,
    column_widths: Vec<f32>,
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
        let header = table.rows.first()?;
        if feet.len() > MAX_RUNNING_BLOCKS || header.cells.iter().all(|cell| text_of(cell).is_empty()) {
            return None;
        }
        Some(Self {
            header: header.clone(),
            column_widths: table.column_widths.clone()?,
            heads: running_texts(&page.elements).take(MAX_RUNNING_BLOCKS).collect(),
            feet,
        })
    }

    /// Puts the header row above the rows with which the table goes on at the top of the next page, unless they have one.
    pub(super) fn continue_on(&self, page: &mut Page) {
        let Some(position) = page.elements.iter().position(|block| matches!(block, Block::Table(_))) else {
            return;
        };
        let (above, rest) = page.elements.split_at(position);
        let heads: Vec<RunningText> = running_texts(above).collect();
        let below: Vec<RunningText> = running_texts(rest).collect();
        let are_heads = are_running(heads.iter(), self.heads.iter());
        let are_feet = are_running(self.feet.iter().rev(), below.iter().rev());
        if let Block::Table(table) = &mut page.elements[position]
            && are_heads
            && are_feet
            && self.has_columns_of(table)
            && self.may_go_on_with(table)
        {
            let mut header = self.header.clone();
            header.cells.iter_mut().for_each(|cell| cell.rowspan = 1);
            table.rows.insert(0, header);
            table.header_rows = 1;
        }
    }

    /// Returns true for a table with the same columns. The last one is as wide as its longest text.
    fn has_columns_of(&self, table: &Table) -> bool {
        let widths = table.column_widths.as_deref().unwrap_or_default();
        let is_equal = |(width, other): (&f32, &f32)| (width - other).abs() <= MAX_WIDTH_DIFFERENCE;
        let inner = widths.len().saturating_sub(1);
        inner > 0
            && widths.len() == self.column_widths.len()
            && widths[..inner].iter().zip(&self.column_widths).all(is_equal)
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
