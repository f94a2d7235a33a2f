//! Text in vertical columns, as Japanese is set: the columns of a page are read from right to left. The library reads them as parts of
//! lines from left to right.

use unpdf::parser::TextSpan;

/// Maximum width of a column, and maximum distance between the centers of its parts, in sizes of its font.
const MAX_COLUMN_WIDTH: f32 = 1.5;
const MAX_CENTER_DISTANCE: f32 = 0.5;
/// Minimum distance of a column's end from the end of the longest one behind which a paragraph ends, in sizes of its font.
const MIN_FREE_LENGTH: f32 = 2.0;
/// Minimum distance of columns from the columns above them, which are read first, in multiples of the font size.
const MIN_TIER_DISTANCE: f32 = 0.8;

/// A column of text.
struct Column {
    center: f32,
    size: f32,
    parts: Vec<TextSpan>,
}

impl Column {
    /// Returns the distance of the column's end from the lower edge of the page.
    fn end(&self) -> f32 {
        self.parts.iter().map(end).fold(f32::MAX, f32::min)
    }
}

/// Returns the distance of the end of a part of a column from the lower edge of the page. Characters are as high as the font is
/// large.
fn end(part: &TextSpan) -> f32 {
    part.y - part.text.trim_end().chars().count() as f32 * part.font_size
}

/// Returns the text of a page by its columns, above that of its lines; `None` if most of it is in lines.
pub(super) fn text_of_columns(spans: Vec<TextSpan>) -> Option<String> {
    let spans = spans.into_iter().filter(|span| !span.text.trim().is_empty());
    let (in_columns, mut in_lines): (Vec<TextSpan>, Vec<TextSpan>) = spans.partition(is_column);
    let length = |spans: &[TextSpan]| spans.iter().map(|span| span.text.chars().count()).sum::<usize>();
    if length(&in_columns) <= length(&in_lines) {
        return None;
    }
    let mut text = String::new();
    for columns in tiers(in_columns).into_iter().map(columns) {
        let last_end = columns.iter().map(Column::end).fold(f32::MAX, f32::min);
        for column in &columns {
            column.parts.iter().for_each(|part| text.push_str(part.text.trim_end()));
            if column.end() > last_end + MIN_FREE_LENGTH * column.size {
                text.push_str("\n\n");
            }
        }
    }
    in_lines.sort_by(|left, right| right.y.total_cmp(&left.y).then(left.x.total_cmp(&right.x)));
    for line in in_lines {
        text.push_str("\n\n");
        text.push_str(&line.text);
    }
    Some(text)
}

/// Returns true for a text that cannot be a line: it is as wide as one character.
fn is_column(span: &TextSpan) -> bool {
    !span.is_rotated() && span.width_measured && span.width <= span.font_size * MAX_COLUMN_WIDTH
}

/// Returns the parts of columns in tiers, the upper first: between two, no column has text at some height.
fn tiers(mut parts: Vec<TextSpan>) -> Vec<Vec<TextSpan>> {
    parts.sort_by(|upper, lower| lower.y.total_cmp(&upper.y));
    let mut tiers: Vec<Vec<TextSpan>> = Vec::new();
    let mut lowest_end = f32::MAX;
    for part in parts {
        let is_below = part.y < lowest_end - MIN_TIER_DISTANCE * part.font_size;
        lowest_end = if is_below { end(&part) } else { lowest_end.min(end(&part)) };
        match tiers.last_mut() {
            Some(tier) if !is_below => tier.push(part),
            _ => tiers.push(vec![part]),
        }
    }
    tiers
}

/// Returns the columns of the parts, from right to left.
fn columns(mut parts: Vec<TextSpan>) -> Vec<Column> {
    let center = |part: &TextSpan| part.x + part.width / 2.0;
    parts.sort_by(|left, right| center(right).total_cmp(&center(left)));
    let mut columns: Vec<Column> = Vec::new();
    for part in parts {
        let center = center(&part);
        match columns.last_mut() {
            Some(column) if column.center - center <= column.size * MAX_CENTER_DISTANCE => {
                column.parts.push(part);
            }
            _ => columns.push(Column { center, size: part.font_size, parts: vec![part] }),
        }
    }
    for column in &mut columns {
        column.parts.sort_by(|upper, lower| lower.y.total_cmp(&upper.y));
    }
    columns
}
