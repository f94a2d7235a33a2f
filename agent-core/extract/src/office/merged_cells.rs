//! Values of cells that are merged over several rows.

use undoc::{Cell, Table};

/// Maximum number of merged cells whose value is repeated in each of their rows.
const MAX_REPEATED_CELLS: usize = 256;
/// Maximum length of a merged cell's value that is repeated, in bytes.
const MAX_REPEATED_BYTES: usize = 200;

/// The merged cells above a row, each with the value that it has in the row.
pub(super) struct MergedCells<T> {
    /// Columns and values, with the number of rows that are left.
    repeated: Vec<(usize, T, u32)>,
}

impl<T: Clone> MergedCells<T> {
    pub(super) fn new() -> Self {
        Self { repeated: Vec::new() }
    }

    /// Returns the columns and values of the merged cells that continue in the next row.
    pub(super) fn continue_row(&mut self) -> Vec<(usize, T)> {
        let continued = self.repeated.iter().map(|(column, value, _)| (*column, value.clone())).collect();
        self.repeated.retain_mut(|(_, _, rows)| {
            *rows -= 1;
            *rows > 0
        });
        continued
    }

    /// Repeats the value of a cell in the rows below the present one that it is merged over. Returns false if it is merged over
    /// none, empty or long, or if there are too many others.
    pub(super) fn add(&mut self, cell: &Cell, column: usize, value: impl FnOnce() -> T) -> bool {
        let is_repeated = cell.row_span > 1 && self.repeated.len() < MAX_REPEATED_CELLS && is_short(cell);
        if is_repeated {
            self.repeated.push((column, value(), cell.row_span - 1));
        }
        is_repeated
    }
}

fn is_short(cell: &Cell) -> bool {
    cell.nested_tables.is_empty() && (1..=MAX_REPEATED_BYTES).contains(&cell.plain_text().trim().len())
}

/// Gives each row of a table a separate cell in place of a merged one with a short value.
pub(super) fn split_merged_rows(table: &mut Table) {
    let columns = table.cell_columns();
    let mut merged = MergedCells::new();
    for (row, columns) in table.rows.iter_mut().zip(columns) {
        let mut cells = merged.continue_row();
        for (column, mut cell) in columns.into_iter().zip(std::mem::take(&mut row.cells)) {
            if merged.add(&cell, column, || Cell { row_span: 1, ..cell.clone() }) {
                cell.row_span = 1;
            }
            cells.push((column, cell));
        }
        cells.sort_by_key(|(column, _)| *column);
        row.cells = cells.into_iter().map(|(_, cell)| cell).collect();
    }
}
