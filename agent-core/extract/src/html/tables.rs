//! Tables of HTML documents as Markdown, with each cell at its column.
//!
//! A table for layout, without header cells and with whole blocks of text or one column, is read as the blocks in it.

use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};

use htmd::element_handler::{HandlerResult, Handlers};
use htmd::{Element, Node};
use markup5ever_rcdom::NodeData;

use super::placeholders::restore;
use crate::column_names::{filled, is_number};
use crate::escapes::escape_cell;
use crate::rows::{MAX_ROWS_TO_HEADER, first_header};

/// Maximum number of columns or rows over which a cell is merged.
const MAX_COLUMN_SPAN: usize = 64;
const MAX_ROW_SPAN: usize = 65_534;
/// Maximum number of columns in which merged rows are expanded, and to which each row is padded.
const MAX_SPANNED_COLUMNS: usize = 1_000;
const MAX_FILLED_COLUMNS: usize = 16;
/// Size in bytes up to which the value of a merged cell is repeated in each of its rows.
const MAX_REPEATED_BYTES: usize = 200;
/// Maximum size in bytes of the cells that are repeated or left empty beside and below merged ones, in addition to the size of
/// the table itself.
const MAX_REPEATED_BYTES_OF_TABLE: usize = 64 * 1024;
/// Maximum number of header rows that become one.
const MAX_HEADER_ROWS: usize = 4;
/// Size in bytes of an empty cell in Markdown.
const EMPTY_CELL_BYTES: usize = "  |".len();
/// Size in bytes of a cell from which a table without header cells is one for layout.
const MAX_DATA_BYTES: usize = 1_000;
/// Elements that mark a table without header cells as a layout table.
const BLOCKS: [&str; 18] = [
    "article",
    "blockquote",
    "dl",
    "fieldset",
    "form",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "hr",
    "main",
    "ol",
    "pre",
    "section",
    "table",
    "ul",
];

/// A cell of a table.
struct Cell {
    text: String,
    /// Numbers of columns and rows over which it is merged.
    columns: usize,
    rows: usize,
}

/// Converts a table. `depth` is the number of enclosing tables: a table within a cell becomes text of one line.
pub(super) fn convert_table(
    depth: &AtomicUsize,
    handlers: &dyn Handlers,
    element: Element,
) -> Option<HandlerResult> {
    let rows: Vec<Vec<Rc<Node>>> = rows(element.node).iter().map(cells).collect();
    // The library's converter, which the fallback is, reads a table with either as one, too.
    let has_header =
        rows.iter().flatten().any(|cell| tag(cell) == "th") || !children(element.node, &["thead"]).is_empty();
    if depth.load(Ordering::Relaxed) > 0 || (!has_header && !is_data(&rows)) {
        return handlers.fallback(element);
    }
    depth.fetch_add(1, Ordering::Relaxed);
    let line_of = |node: &Rc<Node>| one_line(&handlers.walk_children(node).content);
    let caption: Vec<String> =
        children(element.node, &["caption"]).iter().map(line_of).filter(|line| !line.is_empty()).collect();
    let header_rows = header_rows(&rows, rows_in_head(element.node));
    let mut rows: Vec<Vec<Cell>> = rows
        .iter()
        .map(|row| {
            let cell = |cell: &Rc<Node>| {
                let mut text = line_of(cell);
                escape_cell(&mut text);
                let columns = span(cell, "colspan", MAX_COLUMN_SPAN);
                Cell { text, columns, rows: span(cell, "rowspan", MAX_ROW_SPAN) }
            };
            row.iter().map(cell).collect()
        })
        .collect();
    depth.fetch_sub(1, Ordering::Relaxed);
    if !has_header && rows.iter().flatten().any(|cell| cell.text.len() > MAX_DATA_BYTES) {
        return handlers.fallback(element);
    }
    let mut markdown = String::from("\n\n");
    for line in caption {
        markdown += &line;
        markdown.push('\n');
    }
    // A row without any text is left out of the grid.
    let has_text = |row: &Vec<Cell>| row.iter().any(|cell| !cell.text.is_empty());
    let header_rows = if rows.iter().take(header_rows).all(has_text) { header_rows } else { 0 };
    rows.iter_mut().take(header_rows).for_each(repeat_merged_names);
    let mut rows = grid(rows);
    join_header_rows(&mut rows, header_rows);
    if !has_header {
        move_to_header(&mut rows, &mut markdown);
    }
    push_rows(&mut markdown, &rows);
    markdown.push('\n');
    Some(markdown.into())
}

/// Returns the number of rows that together name the columns: 0 unless several rows above the values have header cells alone, or are in
/// the table's head, which has `in_head`.
fn header_rows(rows: &[Vec<Rc<Node>>], in_head: usize) -> usize {
    let is_header = |row: &&Vec<Rc<Node>>| !row.is_empty() && row.iter().all(|cell| tag(cell) == "th");
    let count = rows.iter().take_while(is_header).count().max(in_head);
    if (2..=MAX_HEADER_ROWS).contains(&count) && count < rows.len() { count } else { 0 }
}

/// Returns the number of rows of the head that a table begins with.
fn rows_in_head(table: &Rc<Node>) -> usize {
    let first = children(table, &["tr", "thead", "tbody", "tfoot"]).into_iter().next();
    first.filter(|part| tag(part) == "thead").map_or(0, |head| children(&head, &["tr"]).len())
}

/// Replaces the short cells of a header row that are merged over several columns by a cell for each column.
fn repeat_merged_names(row: &mut Vec<Cell>) {
    let mut repeated_bytes = 0;
    let repeat = |cell: Cell| {
        let added_bytes = cell.text.len() * (cell.columns - 1);
        if cell.text.len() > MAX_REPEATED_BYTES || repeated_bytes + added_bytes > MAX_REPEATED_BYTES_OF_TABLE
        {
            return vec![cell];
        }
        repeated_bytes += added_bytes;
        let copy = |_| Cell { text: cell.text.clone(), columns: 1, rows: cell.rows };
        (0..cell.columns).map(copy).collect()
    };
    *row = std::mem::take(row).into_iter().flat_map(repeat).collect();
}

/// Joins the header rows into the first one, which names each column by the texts above it.
fn join_header_rows(rows: &mut Vec<Vec<String>>, header_rows: usize) {
    if header_rows < 2 || header_rows >= rows.len() {
        return;
    }
    let header: Vec<Vec<String>> = rows.drain(..header_rows).collect();
    let width = header.iter().map(Vec::len).max().unwrap_or_default();
    let name = |column: usize| {
        let mut texts: Vec<&str> =
            header.iter().filter_map(|row| row.get(column)).map(String::as_str).collect();
        texts.retain(|text| !text.is_empty());
        texts.dedup();
        texts.join(" ")
    };
    let names = (0..width).map(name).collect();
    rows.insert(0, names);
}

/// Makes the header of a table without header cells its first row. Titles and facts above it become lines above the table.
fn move_to_header(rows: &mut Vec<Vec<String>>, markdown: &mut String) {
    let restored = |text: &String| text.chars().map(restore).collect::<String>();
    let first: Vec<Vec<String>> =
        rows.iter().take(MAX_ROWS_TO_HEADER).map(|row| row.iter().map(restored).collect()).collect();
    let Some((above, header)) = first_header(&first) else { return };
    let is_fact = |row: &Vec<String>| {
        let name = row.iter().find(|text| !text.is_empty());
        filled(row) <= 2 && name.is_some_and(|name| !is_number(name))
    };
    if !first[..above].iter().all(is_fact) || header.row_names.iter().any(|name| !name.is_empty()) {
        return;
    }
    for row in rows.drain(..above) {
        let texts: Vec<&str> = row.iter().map(String::as_str).filter(|text| !text.is_empty()).collect();
        markdown.push_str(&texts.join("; "));
        markdown.push('\n');
    }
    if header.rows > 1 {
        rows.drain(..header.rows);
        rows.insert(0, header.names);
    }
}

/// Returns true for a table without header cells that has rows of values.
fn is_data(rows: &[Vec<Rc<Node>>]) -> bool {
    rows.iter().filter(|row| row.len() > 1).count() > 1 && !rows.iter().flatten().any(has_block)
}

/// Returns true for a cell that contains a block of text or a table.
fn has_block(cell: &Rc<Node>) -> bool {
    let mut pending = vec![cell.clone()];
    while let Some(node) = pending.pop() {
        for child in node.children.borrow().iter() {
            if BLOCKS.contains(&tag(child)) {
                return true;
            }
            pending.push(child.clone());
        }
    }
    false
}

/// Returns the rows of a table, without those of tables in its cells.
fn rows(table: &Rc<Node>) -> Vec<Rc<Node>> {
    let parts = children(table, &["tr", "thead", "tbody", "tfoot"]);
    parts
        .into_iter()
        .flat_map(|part| if tag(&part) == "tr" { vec![part] } else { children(&part, &["tr"]) })
        .collect()
}

fn cells(row: &Rc<Node>) -> Vec<Rc<Node>> {
    children(row, &["td", "th"])
}

/// Returns the children of a node that are elements with one of these tags.
fn children(node: &Rc<Node>, tags: &[&str]) -> Vec<Rc<Node>> {
    node.children.borrow().iter().filter(|child| tags.contains(&tag(child))).cloned().collect()
}

/// Returns the tag of an element, and an empty text for another node.
fn tag(node: &Node) -> &str {
    match &node.data {
        NodeData::Element { name, .. } => &name.local,
        _ => "",
    }
}

/// Returns the number of columns or rows over which a cell is merged.
fn span(cell: &Node, name: &str, limit: usize) -> usize {
    let NodeData::Element { attrs, .. } = &cell.data else { return 1 };
    let attributes = attrs.borrow();
    let attribute = attributes.iter().find(|attribute| &*attribute.name.local == name);
    let number = attribute.and_then(|attribute| attribute.value.trim().parse::<usize>().ok());
    number.unwrap_or(1).clamp(1, limit)
}

/// Joins the lines of a text.
pub(super) fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join(" ")
}

/// Returns the texts of each row by columns. A short value that is merged over several rows is that of each.
fn grid(rows: Vec<Vec<Cell>>) -> Vec<Vec<String>> {
    // The number of further rows over which the cells of the columns are merged, and the values of these rows.
    let mut spans: Vec<(usize, String)> = Vec::new();
    // Bytes of the table's own and bytes that are repeated or left empty.
    let (mut own_bytes, mut added_bytes) = (0, 0);
    let mut grid = Vec::with_capacity(rows.len());
    for row in rows {
        let mut texts: Vec<String> = Vec::new();
        let mut cells = row.into_iter();
        loop {
            if let Some((rows, value)) = spans.get_mut(texts.len()).filter(|(rows, _)| *rows > 0) {
                *rows -= 1;
                added_bytes += value.len() + EMPTY_CELL_BYTES;
                texts.push(value.clone());
                continue;
            }
            let Some(mut cell) = cells.next() else {
                if texts.len() >= spans.len() {
                    break;
                }
                added_bytes += EMPTY_CELL_BYTES;
                texts.push(String::new());
                continue;
            };
            own_bytes += cell.text.len();
            let merged_bytes = (cell.columns - 1) * EMPTY_CELL_BYTES;
            if added_bytes + merged_bytes > own_bytes + MAX_REPEATED_BYTES_OF_TABLE {
                cell.columns = 1;
            } else {
                added_bytes += merged_bytes;
            }
            place(cell, &mut texts, &mut spans);
        }
        while spans.pop_if(|(rows, _)| *rows == 0).is_some() {}
        if added_bytes > own_bytes + MAX_REPEATED_BYTES_OF_TABLE {
            spans.clear();
        }
        if texts.iter().any(|text| !text.is_empty()) {
            grid.push(texts);
        }
    }
    grid
}

/// Appends a cell to its row, and records the rows below over which it is merged.
fn place(cell: Cell, texts: &mut Vec<String>, spans: &mut Vec<(usize, String)>) {
    let first = texts.len();
    let end = first + cell.columns;
    if cell.rows > 1 && end <= MAX_SPANNED_COLUMNS {
        let value = if cell.text.len() <= MAX_REPEATED_BYTES { cell.text.clone() } else { String::new() };
        spans.resize(spans.len().max(end), (0, String::new()));
        for (offset, span) in spans[first..end].iter_mut().enumerate() {
            *span = (cell.rows - 1, if offset == 0 { value.clone() } else { String::new() });
        }
    }
    texts.push(cell.text);
    texts.resize(end, String::new());
}

/// Appends rows. The first one has the names of the columns.
fn push_rows(markdown: &mut String, rows: &[Vec<String>]) {
    let width = rows.iter().map(Vec::len).max().unwrap_or_default().min(MAX_FILLED_COLUMNS);
    for (number, row) in rows.iter().enumerate() {
        markdown.push('|');
        let filled = row.iter().rposition(|text| !text.is_empty()).map_or(0, |last| last + 1);
        for column in 0..filled.max(width) {
            markdown.push(' ');
            markdown.push_str(row.get(column).map_or("", String::as_str));
            markdown.push_str(" |");
        }
        markdown.push('\n');
        if number == 0 {
            markdown.push('|');
            markdown.push_str(&" --- |".repeat(filled.max(width)));
            markdown.push('\n');
        }
    }
}
