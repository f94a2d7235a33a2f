//! Header rows of tables in text documents and slides.

use undoc::{Cell, Paragraph, Row, Table};

use crate::column_names::names_in_groups;

/// Maximum length of a cell of a header row, in bytes.
const MAX_CELL_BYTES: usize = 200;

/// Removes the title of a table, a cell that is merged over all columns in the first row, and returns it: it names no column.
pub(super) fn take_title(table: &mut Table) -> Option<Paragraph> {
    let [title, header, _, ..] = table.rows.as_slice() else { return None };
    let [cell] = title.cells.as_slice() else { return None };
    let is_title = header.cells.len() > 1
        && title.effective_columns() >= header.effective_columns()
        && cell.content.len() == 1
        && is_name(cell, 1)
        && !cell.is_empty();
    if !is_title {
        return None;
    }
    table.rows.remove(0).cells.pop()?.content.pop()
}

/// Joins the first two rows of a table into one if they name its columns together. Short merged cells are split by rows already.
pub(super) fn join_header_rows(table: &mut Table) {
    let [groups, names, _, ..] = table.rows.as_slice() else { return };
    let is_group = |cell: &Cell| cell.has_col_span() && !cell.is_empty();
    let filled = groups.cells.iter().filter(|cell| !cell.is_empty()).count();
    let are_names =
        groups.cells.iter().all(|cell| is_name(cell, 2)) && names.cells.iter().all(|cell| is_name(cell, 1));
    if filled < 2 || !are_names || !groups.cells.iter().any(is_group) {
        return;
    }
    let columns = table.cell_columns();
    let [group_columns, name_columns, ..] = columns.as_slice() else { return };
    if let Some(names) = names_in_groups(&texts(groups, group_columns), &texts(names, name_columns)) {
        table.rows.remove(1);
        table.rows[0].cells = names.into_iter().map(Cell::with_text).collect();
    }
}

/// Returns true for a cell with a short text that is merged over no more than a number of rows.
fn is_name(cell: &Cell, max_rows: u32) -> bool {
    cell.nested_tables.is_empty() && cell.row_span <= max_rows && cell.plain_text().len() <= MAX_CELL_BYTES
}

/// Returns the texts of a row by columns.
fn texts(row: &Row, columns: &[usize]) -> Vec<String> {
    let mut texts = Vec::new();
    for (cell, &column) in row.cells.iter().zip(columns) {
        texts.resize(texts.len().max(column), String::new());
        texts.push(cell.plain_text());
    }
    texts
}
