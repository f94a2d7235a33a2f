//! Superscripts of PDF pages: runs in smaller type above the baseline of their line, as the library finds them. The library's
//! Markdown writes them as ordinary text, so that `10⁶` becomes `106` and a footnote mark becomes part of its word.

use unpdf::parser::{BlockType, TextBlock, TextLine};
use unpdf::{Block, InlineContent, Page, Paragraph};

use crate::superscript::raised;

/// Maximum size of a superscript as a share of the size of its line, and the least and the greatest rise: those of the library,
/// which keeps them to itself.
const MAX_SIZE: f32 = 0.9;
const MIN_RISE: f32 = 1.0 / 7.0;
const MAX_RISE: f32 = 0.6;

/// Writes the superscripts of a page as characters.
pub(super) fn raise_in_page(page: &mut Page) {
    for block in &mut page.elements {
        match block {
            Block::Paragraph(paragraph) => raise_in_paragraph(paragraph),
            Block::Table(table) => {
                let cells = table.rows.iter_mut().flat_map(|row| &mut row.cells);
                cells.flat_map(|cell| &mut cell.content).for_each(raise_in_paragraph);
            }
            _ => {}
        }
    }
}

fn raise_in_paragraph(paragraph: &mut Paragraph) {
    for content in &mut paragraph.content {
        if let InlineContent::Text(run) = content
            && run.style.superscript
            && let Some(text) = raised(&run.text)
        {
            run.text = text;
        }
    }
}

/// Writes the superscripts of a block of lines as characters. Those in the marker of a list item stay, since the block has the
/// length of the marker.
pub(super) fn raise_in_block(block: &mut TextBlock) {
    let mut may_be_marker = block.block_type == BlockType::ListItem;
    for line in &mut block.lines {
        raise_in_line(line, &mut may_be_marker);
    }
}

fn raise_in_line(line: &mut TextLine, may_be_marker: &mut bool) {
    let size = line.font_size;
    let largest = line.spans.iter().filter(|span| span.font_size > size * MAX_SIZE);
    let baseline = largest.max_by_key(|span| span.text.trim().chars().count()).map_or(line.y, |span| span.y);
    let rises = size * MIN_RISE..=size * MAX_RISE;
    for span in &mut line.spans {
        if !*may_be_marker
            && span.font_size <= size * MAX_SIZE
            && rises.contains(&(span.y - baseline))
            && let Some(text) = raised(&span.text)
        {
            span.text = text;
        }
        *may_be_marker &= !span.text.contains(char::is_alphabetic);
    }
}
