//! Rewrites workbooks without hidden sheets, rows, columns and values, and with formatted numbers.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use quick_xml::escape::{escape, unescape};
use quick_xml::events::{BytesStart, Event};

use super::cell_style::{CellColor, CellFont, CellStyle, MAX_HIDDEN_SIZE, read_styles};
use super::color::are_indistinguishable;
use super::number_format::NumberFormat;
use super::parts::OfficeParts;
use super::theme::ThemeColors;
use super::workbook_xml::{decode_escapes, without_hidden_sheets};
use super::xml::{XmlChanges, XmlEvents, attribute, is_on};
use crate::superscript::raised;

/// Maximum number of columns of a sheet.
const MAX_COLUMNS: usize = 16_384;
/// Maximum number of merged cells that are read.
const MAX_MERGED_CELLS: usize = 1 << 16;
/// Maximum number of columns of merged cells that are examined.
const MAX_MERGED_COLUMNS: usize = 256;
/// Part with the texts of cells.
const SHARED_STRINGS: &str = "xl/sharedStrings.xml";
/// An empty text of that part.
const EMPTY_TEXT: &str = "<si><t></t></si>";
/// Name of the part that lists the sheets.
const WORKBOOK: &str = "xl/workbook.xml";

/// Rewrites the parts of a workbook so that they contain only visible content.
pub(super) fn rewrite_as_shown(parts: &mut OfficeParts<'_>) {
    let mut has_epoch_1904 = false;
    if let Some(workbook) = parts.xml(WORKBOOK)
        && let Some(changed) = without_hidden_sheets(&workbook, &mut has_epoch_1904)
    {
        parts.put(WORKBOOK, changed);
    }
    let styles = parts.xml("xl/styles.xml").unwrap_or_default();
    let has_usual_white = has_usual_white(parts, &styles);
    let styles = read_styles(&styles, has_usual_white);
    for name in parts.names() {
        if !name.ends_with(".xml") || name == WORKBOOK {
            continue;
        }
        let Some(xml) = parts.xml(&name) else { continue };
        let has_texts = name == SHARED_STRINGS;
        let has_cells = xml.contains("<sheetData");
        let changed = if has_cells {
            let editor = SheetEditor::new(&xml, &styles, has_epoch_1904);
            SheetEditor { has_usual_white, ..editor }.edit()
        } else if has_texts || xml.contains("<rPh") || xml.contains("<rPr") {
            let is_on_white = has_texts && xml.contains("<rPr") && is_white(parts, &styles);
            as_shown(&xml, is_on_white, has_usual_white)
        } else {
            None
        };
        let escapes = (has_texts || has_cells).then(|| decode_escapes(changed.as_deref().unwrap_or(&xml)));
        if let Some(changed) = escapes.flatten().or(changed) {
            parts.put(&name, changed);
        }
    }
}

/// Returns true if the numbers of colors that usually mean white do so in this workbook: its theme has no other background, and
/// it has no palette of its own.
fn has_usual_white(parts: &mut OfficeParts<'_>, styles: &str) -> bool {
    let theme = parts.xml("xl/theme/theme1.xml").map(|xml| ThemeColors::read(&xml)).unwrap_or_default();
    let is_white = theme.background().is_none_or(|background| are_indistinguishable(background, [255; 3]));
    is_white && !styles.contains("<indexedColors")
}

/// Returns true if no cell of a workbook can have another background than white.
fn is_white(parts: &mut OfficeParts<'_>, styles: &[CellStyle]) -> bool {
    if !styles.iter().all(|style| style.has_white_fill) {
        return false;
    }
    let mut sheets = parts.names();
    sheets.retain(|name| name.starts_with("xl/worksheets/") && name.ends_with(".xml"));
    sheets.iter().all(|name| parts.xml(name).is_none_or(|sheet| !has_other_colors(&sheet)))
}

/// Returns true if rules or tables give cells of a sheet other colors, or a picture is behind it.
fn has_other_colors(sheet: &str) -> bool {
    // Rules that refer to other sheets are extensions with a prefix.
    ["<tablePart", "<conditionalFormatting", ":conditionalFormatting", "<picture"]
        .iter()
        .any(|sign| sheet.contains(sign))
}

/// Removes the phonetic readings beside texts in East Asian scripts, which would be read as a part of them, and runs of text that
/// are not seen. Writes superscripts as characters. An empty text gets a separate element, since the reader would count none
/// otherwise.
fn as_shown(xml: &str, is_on_white: bool, has_usual_white: bool) -> Option<String> {
    let mut changes = XmlChanges::new(xml);
    let mut events = XmlEvents::new(xml);
    while let Some((event, range)) = events.next() {
        let element = match event {
            Event::Start(element) => element,
            Event::Empty(element) if element.name().into_inner() == "si" => {
                changes.replace(range, EMPTY_TEXT.to_owned());
                continue;
            }
            _ => continue,
        };
        match element.name().into_inner() {
            "rPh" => changes.remove(range.start..events.skip(&element)),
            "r" => {
                let run = range.start..events.skip(&element);
                change_run(&mut changes, xml, run, (is_on_white, has_usual_white));
            }
            _ => {}
        }
    }
    changes.finish()
}

/// Removes a run of text of a point or less, or of white text on white. Writes the superscripts of another one as characters.
fn change_run(
    changes: &mut XmlChanges<'_>,
    xml: &str,
    run: Range<usize>,
    (is_on_white, has_usual_white): (bool, bool),
) {
    let (mut font, mut texts) = (CellFont::default(), Vec::new());
    let mut events = XmlEvents::new(&xml[run.clone()]);
    while let Some((event, place)) = events.next() {
        match event {
            Event::Start(element) | Event::Empty(element) => font.apply(&element, has_usual_white),
            Event::Text(_) => texts.push(run.start + place.start..run.start + place.end),
            _ => {}
        }
    }
    if font.size <= MAX_HIDDEN_SIZE
        || (is_on_white && font.color.is_indistinguishable_from(&CellColor::WHITE))
    {
        changes.remove(run);
    } else if font.is_raised {
        for text in texts {
            if let Some(raised) = raised(&xml[text.clone()]) {
                changes.replace(text, raised);
            }
        }
    }
}

/// Returns the last columns of the merged cells of a sheet by the references of their first cells.
fn merged_columns(xml: &str) -> HashMap<String, usize> {
    let mut merged = HashMap::new();
    // They follow the cells.
    let Some(start) = xml.rfind("<mergeCells") else { return merged };
    let mut events = XmlEvents::new(&xml[start..]);
    while let Some((event, _)) = events.next().filter(|_| merged.len() < MAX_MERGED_CELLS) {
        let (Event::Start(element) | Event::Empty(element)) = event else { continue };
        let range = attribute(&element, "ref").filter(|_| element.name().into_inner() == "mergeCell");
        if let Some((first, last)) = range.as_deref().and_then(|range| range.split_once(':')) {
            merged.insert(first.to_owned(), next_column(0, Some(last)));
        }
    }
    merged
}

/// The cell that is read.
#[derive(Default)]
struct OpenCell {
    start: usize,
    reference: Option<String>,
    style: CellStyle,
    is_number: bool,
    is_error: bool,
    is_hidden: bool,
    value: String,
    /// The position of the formula's text.
    formula: Option<Range<usize>>,
}

/// Changes a sheet.
struct SheetEditor<'x> {
    xml: &'x str,
    styles: &'x [CellStyle],
    has_epoch_1904: bool,
    /// True if rows are hidden by a filter, which a reader can remove.
    has_filter: bool,
    /// True if rules or tables give cells other colors, or a picture is behind the sheet.
    has_other_colors: bool,
    /// True if the numbers that usually stand for white do so.
    has_usual_white: bool,
    hidden_columns: Vec<bool>,
    /// Number of the last row that was started.
    last_row: usize,
    /// The last columns of merged cells by the references of their first ones.
    merged: HashMap<String, usize>,
    changes: XmlChanges<'x>,
}

impl<'x> SheetEditor<'x> {
    fn new(xml: &'x str, styles: &'x [CellStyle], has_epoch_1904: bool) -> Self {
        let has_table = xml.contains("<tablePart");
        Self {
            xml,
            styles,
            has_epoch_1904,
            has_filter: has_table
                || ["<filterColumn", "filterMode=\"1\"", "filterMode=\"true\""]
                    .iter()
                    .any(|sign| xml.contains(sign)),
            has_other_colors: has_other_colors(xml),
            has_usual_white: true,
            hidden_columns: Vec::new(),
            last_row: 0,
            merged: merged_columns(xml),
            changes: XmlChanges::new(xml),
        }
    }

    fn edit(mut self) -> Option<String> {
        let mut events = XmlEvents::new(self.xml);
        let mut cell: Option<OpenCell> = None;
        let mut column = 0;
        let mut in_value = false;
        while let Some((event, range)) = events.next() {
            match event {
                Event::Empty(element) if element.name().into_inner() == "col" => self.hide_columns(&element),
                Event::Empty(element) if element.name().into_inner() == "c" => {
                    column = next_column(column, attribute(&element, "r").as_deref());
                }
                Event::Start(element) => match element.name().into_inner() {
                    "row" if self.begin_row(&element, range.start) => {
                        let end = events.skip(&element);
                        self.changes.remove(range.start..end);
                    }
                    "row" => column = 0,
                    "c" => {
                        let open = self.open_cell(&element, range.start);
                        column = next_column(column, open.reference.as_deref());
                        let is_hidden = self.hides_column(column, open.reference.as_deref());
                        cell = Some(OpenCell { is_hidden: open.is_hidden || is_hidden, ..open });
                    }
                    "r" => {
                        let run = range.start..events.skip(&element);
                        let has_white_fill = cell.as_ref().is_some_and(|cell| cell.style.has_white_fill);
                        let colors = (has_white_fill && !self.has_other_colors, self.has_usual_white);
                        change_run(&mut self.changes, self.xml, run, colors);
                    }
                    "f" => {
                        let end = events.skip(&element);
                        if let Some(cell) = &mut cell {
                            cell.formula =
                                self.xml[range.end..end].rfind("</").map(|text| range.end..range.end + text);
                        }
                    }
                    name => in_value = name == "v",
                },
                Event::Text(text) if in_value => {
                    if let Some(cell) = &mut cell {
                        cell.value.push_str(&text);
                    }
                }
                Event::End(element) => match element.name().into_inner() {
                    "c" => {
                        if let Some(cell) = cell.take() {
                            self.close_cell(&cell, range.end);
                        }
                    }
                    _ => in_value = false,
                },
                _ => {}
            }
        }
        self.changes.finish()
    }

    /// Records the hidden columns, except for columns of a closed group.
    fn hide_columns(&mut self, columns: &BytesStart<'_>) {
        if !is_hidden(columns) {
            return;
        }
        let number = |name: &str| attribute(columns, name).and_then(|value| value.parse::<usize>().ok());
        let (Some(first), Some(last)) = (number("min"), number("max")) else { return };
        self.hidden_columns.resize(MAX_COLUMNS + 1, false);
        if let Some(hidden) = self.hidden_columns.get_mut(first..=last.min(MAX_COLUMNS)) {
            hidden.fill(true);
        }
    }

    /// Returns true for a cell in a hidden column, unless it is merged with a visible one, which shows its value.
    fn hides_column(&self, column: usize, reference: Option<&str>) -> bool {
        let is_hidden = |column: usize| self.hidden_columns.get(column).is_some_and(|&is_hidden| is_hidden);
        if !is_hidden(column) {
            return false;
        }
        let last = reference.and_then(|reference| self.merged.get(reference)).copied().unwrap_or(column);
        (column..=last).take(MAX_MERGED_COLUMNS).all(is_hidden)
    }

    /// Puts an empty row where the sheet has rows that it does not write, since another table may begin below. Returns true for a
    /// hidden row.
    fn begin_row(&mut self, row: &BytesStart<'_>, start: usize) -> bool {
        let number = attribute(row, "r").and_then(|number| number.parse::<usize>().ok());
        let next = self.last_row.saturating_add(1);
        if number.is_some_and(|number| number > next) && self.last_row > 0 {
            self.changes.replace(start..start, format!("<row r=\"{next}\"></row>"));
        }
        self.last_row = number.unwrap_or(next);
        !self.has_filter && is_hidden(row)
    }

    fn open_cell(&self, cell: &BytesStart<'_>, start: usize) -> OpenCell {
        let style = attribute(cell, "s").and_then(|style| style.parse::<usize>().ok()).unwrap_or_default();
        let style = self.styles.get(style).copied().unwrap_or_default();
        let kind = attribute(cell, "t");
        OpenCell {
            start,
            reference: attribute(cell, "r"),
            style,
            is_number: kind.as_deref().is_none_or(|kind| kind == "n"),
            // A picture within a cell is an error with metadata, in which the reader finds it.
            is_error: kind.as_deref() == Some("e") && attribute(cell, "vm").is_none(),
            is_hidden: style.format == NumberFormat::Hidden
                || style.is_tiny
                || (style.has_color_of_fill && !self.has_other_colors),
            value: String::new(),
            formula: None,
        }
    }

    /// Replaces a cell that is hidden, or whose number is shown in another way than it is stored.
    fn close_cell(&mut self, cell: &OpenCell, end: usize) {
        let format = cell.style.format;
        let formula = cell.formula.clone().map(|place| &self.xml[place]);
        let formatted = if cell.is_hidden {
            String::new()
        } else if let Some(formula) = formula.filter(|text| {
            // Programs that write workbooks without calculating them store no values.
            cell.is_number && cell.value.is_empty() && !text.trim().is_empty()
        }) {
            let formula = unescape(formula).unwrap_or(Cow::Borrowed(formula));
            format!("={}", formula.trim())
        } else if cell.is_error {
            cell.value.clone()
        } else if !cell.is_number {
            return;
        } else if let Some(formatted) = format.format(&cell.value, self.has_epoch_1904) {
            formatted
        } else if format == NumberFormat::General && !cell.style.has_code {
            return;
        } else {
            // Also a number that the format cannot show; the reader would look for its year.
            cell.value.clone()
        };
        let reference = cell.reference.as_deref().map(|reference| format!(" r=\"{}\"", escape(reference)));
        let replacement =
            format!("<c{} t=\"str\"><v>{}</v></c>", reference.unwrap_or_default(), escape(&formatted));
        self.changes.replace(cell.start..end, replacement);
    }
}

/// Returns true for a row or columns without a size, unless they are of a group that is closed.
fn is_hidden(element: &BytesStart<'_>) -> bool {
    let is_grouped = attribute(element, "outlineLevel").is_some_and(|level| level != "0");
    let is_zero = |name: &str| {
        attribute(element, name).is_some_and(|size| size.parse::<f64>().is_ok_and(|size| size <= 0.0))
    };
    let is_hidden = attribute(element, "hidden").is_some_and(|value| is_on(&value));
    (is_hidden || is_zero("ht") || is_zero("width")) && !is_grouped
}

/// Returns the number of a cell's column, from 1, by its reference, or that behind the cell before.
fn next_column(last: usize, reference: Option<&str>) -> usize {
    let letters = reference.unwrap_or_default().bytes().map_while(|byte| {
        let letter = byte.to_ascii_uppercase();
        letter.is_ascii_uppercase().then(|| usize::from(letter - b'A') + 1)
    });
    match letters.take(4).fold(0, |column, letter| column * 26 + letter) {
        0 => last + 1,
        column => column,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_read_without_their_mark_unless_they_stand_for_a_picture() {
        let sheet = |attributes: &str| {
            format!("<sheetData><row><c t=\"e\"{attributes}><v>#VALUE!</v></c></row></sheetData>")
        };
        let changed = |attributes: &str| SheetEditor::new(&sheet(attributes), &[], false).edit();
        let expected = "<sheetData><row><c t=\"str\"><v>#VALUE!</v></c></row></sheetData>";
        assert_eq!(changed("").as_deref(), Some(expected));
        assert_eq!(changed(" vm=\"1\""), None);
    }
}
