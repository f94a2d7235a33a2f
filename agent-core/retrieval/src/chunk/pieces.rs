//! Pieces of a text between its strongest boundaries.

use unicode_segmentation::UnicodeSegmentation;

use super::blocks::{Heading, MarkdownBlocks};
use crate::document::TextFormat;

/// A range of the text that is short enough for a chunk, with the white space after it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece<'a> {
    pub(super) start: usize,
    pub(super) end: usize,
    /// Characters of the range.
    pub(super) characters: usize,
    /// The heading that the piece begins with.
    pub(super) heading: Option<Heading<'a>>,
}

/// The boundaries at which a text that is too long is split, the strongest first.
#[derive(Debug, Clone, Copy)]
enum Level {
    Line,
    Sentence,
    Word,
    Character,
}

/// Calls `emit` for the pieces of a text, in order. They cover the text, except for what is white space alone.
pub(super) fn split<'a>(text: &'a str, format: TextFormat, limit: usize, emit: &mut impl FnMut(Piece<'a>)) {
    let mut splitter = Splitter { text, limit, emit };
    let mut paragraph = 0;
    let mut heading = None;
    let mut after_blank = false;
    let mut blocks = MarkdownBlocks::default();
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        let line_heading = match format {
            TextFormat::Markdown => blocks.heading(line),
            TextFormat::Plain => None,
        };
        let is_blank = line.trim().is_empty();
        if line_heading.is_some() || (after_blank && !is_blank) {
            splitter.paragraph(paragraph, offset, heading);
            paragraph = offset;
            heading = line_heading;
        }
        after_blank = is_blank;
        offset += line.len();
    }
    splitter.paragraph(paragraph, offset, heading);
}

struct Splitter<'a, 'e, E> {
    text: &'a str,
    limit: usize,
    emit: &'e mut E,
}

impl<'a, E: FnMut(Piece<'a>)> Splitter<'a, '_, E> {
    fn paragraph(&mut self, start: usize, end: usize, heading: Option<Heading<'a>>) {
        self.split(start, end, heading, Level::Line);
    }

    /// Emits a range as one piece if it is short enough, and its parts at the given level otherwise.
    fn split(&mut self, start: usize, end: usize, mut heading: Option<Heading<'a>>, level: Level) {
        let range = &self.text[start..end];
        if range.trim().is_empty() {
            return;
        }
        // Trailing white space does not count: it is not part of a chunk that ends here.
        let content = range.trim_end();
        let characters = characters_up_to(content, self.limit);
        if characters <= self.limit {
            let blanks = range[content.len()..].chars().take(self.limit).count();
            (self.emit)(Piece { start, end, characters: characters + blanks, heading });
            return;
        }
        let mut part = |splitter: &mut Self, offset: usize, length: usize, next: Level| {
            splitter.split(start + offset, start + offset + length, heading.take(), next);
        };
        match level {
            Level::Line => {
                let mut offset = 0;
                for line in range.split_inclusive('\n') {
                    part(self, offset, line.len(), Level::Sentence);
                    offset += line.len();
                }
            }
            Level::Sentence => {
                for (offset, sentence) in range.split_sentence_bound_indices() {
                    part(self, offset, sentence.len(), Level::Word);
                }
            }
            Level::Word => {
                for (offset, word) in range.split_word_bound_indices() {
                    part(self, offset, word.len(), Level::Character);
                }
            }
            Level::Character => {
                let mut offset = 0;
                while offset < range.len() {
                    let rest = &range[offset..];
                    let length = rest.char_indices().nth(self.limit).map_or(rest.len(), |(end, _)| end);
                    part(self, offset, length, Level::Character);
                    offset += length;
                }
            }
        }
    }
}

/// Counts the characters of a text, but not beyond one more than the limit.
fn characters_up_to(text: &str, limit: usize) -> usize {
    if text.len() <= limit { text.chars().count() } else { text.chars().take(limit + 1).count() }
}
