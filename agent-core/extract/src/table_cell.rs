//! Text in the cells of Markdown tables.

/// Escapes the characters of a cell's text that would end the cell: of a row with more cells than the others, the values are not
/// those of their columns, and of a header row the table is none.
pub(crate) fn escape_cell(text: &mut String) {
    if text.contains('|') {
        *text = text.replace('|', "\\|");
    }
}
