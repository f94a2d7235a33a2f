//! Escapes of characters that Markdown would read as markup.

/// Escapes the characters of a cell's text that would end the cell: of a row with more cells than the others, the values are not
/// those of their columns, and of a header row the table is none.
pub(crate) fn escape_cell(text: &mut String) {
    if text.contains('|') {
        *text = text.replace('|', "\\|");
    }
}

/// Escapes a line of text that would be a heading.
pub(crate) fn escape_line(text: &mut String) {
    let content = text.trim_start_matches(' ');
    let start = text.len() - content.len();
    let after = content.trim_start_matches('#');
    if after.len() < content.len() && after.starts_with(char::is_whitespace) {
        text.insert(start, '\\');
    }
}
