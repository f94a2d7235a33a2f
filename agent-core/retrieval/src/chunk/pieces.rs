//! Pieces of a text between its strongest boundaries.

use unicode_normalization::char::is_combining_mark;
use unicode_segmentation::UnicodeSegmentation;

use super::blocks::{Heading, MarkdownBlocks, line_at};
use crate::document::{TextFormat, front_matter};

/// Maximum number of characters in a row without a letter, a digit or the end of a sentence. A longer run is split, and the
/// segmentation into sentences begins again within it.
const MAX_RUN_CHARACTERS: usize = 32;

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
enum Boundary {
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
    let body = match format {
        TextFormat::Markdown => front_matter(text).len(),
        TextFormat::Plain => 0,
    };
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        let line_heading = match format {
            // Comments of front matter are no headings.
            _ if offset < body => None,
            TextFormat::Markdown => blocks.heading(line, line_at(text, offset + line.len())),
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
        self.split(start, end, heading, Boundary::Line);
    }

    /// Emits a range as one piece if it is short enough, and otherwise its parts between boundaries of a kind.
    fn split(&mut self, start: usize, end: usize, mut heading: Option<Heading<'a>>, boundary: Boundary) {
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
        let mut part = |splitter: &mut Self, offset: usize, length: usize, next: Boundary| {
            splitter.split(start + offset, start + offset + length, heading.take(), next);
        };
        match boundary {
            Boundary::Line => {
                let mut offset = 0;
                for line in range.split_inclusive('\n') {
                    part(self, offset, line.len(), Boundary::Sentence);
                    offset += line.len();
                }
            }
            Boundary::Sentence => {
                for (segment_start, segment) in segments(range) {
                    for (offset, sentence) in segment.split_sentence_bound_indices() {
                        part(self, segment_start + offset, sentence.len(), Boundary::Word);
                    }
                }
            }
            Boundary::Word => {
                for (offset, word) in range.split_word_bound_indices() {
                    part(self, offset, word.len(), Boundary::Character);
                }
            }
            Boundary::Character => {
                let mut offset = 0;
                while offset < range.len() {
                    let rest = &range[offset..];
                    let length = rest.char_indices().nth(self.limit).map_or(rest.len(), |(end, _)| end);
                    part(self, offset, length, Boundary::Character);
                    offset += length;
                }
            }
        }
    }
}

/// Splits a line within long runs of brackets, spaces and similar characters. After a full stop, the library searches from each
/// of them for the next letter (UAX 29, SB8), which takes time that is quadratic in the length of a run.
fn segments(line: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut run = 0;
    let is_start = move |&(_, character): &(usize, char)| {
        run = if ends_run(character) { 0 } else { run + 1 };
        let is_long = run > MAX_RUN_CHARACTERS;
        if is_long {
            run = 0;
        }
        is_long
    };
    let starts = line.char_indices().filter(is_start).map(|(offset, _)| offset);
    let mut start = 0;
    starts.chain([line.len()]).map(move |end| {
        let segment = (start, &line[start..end]);
        start = end;
        segment
    })
}

/// Returns true for letters, digits and the ends of sentences. Marks, of which some are letters, are part of the run before
/// them.
fn ends_run(character: char) -> bool {
    let is_mark = is_combining_mark(character) || matches!(character, '\u{ff9e}' | '\u{ff9f}');
    matches!(character, '.' | '!' | '?') || (character.is_alphanumeric() && !is_mark)
}

/// Counts the characters of a text, but not beyond one more than the limit.
fn characters_up_to(text: &str, limit: usize) -> usize {
    if text.len() <= limit { text.chars().count() } else { text.chars().take(limit + 1).count() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_runs_divide_a_line() {
        let brackets = "(".repeat(MAX_RUN_CHARACTERS);
        let line = format!("a.{brackets}b.{brackets}((é)");
        let end = 4 + 2 * MAX_RUN_CHARACTERS;
        assert_eq!(segments(&line).collect::<Vec<_>>(), [(0, &line[..end]), (end, &line[end..])]);
        let sentences = "One sentence (in brackets). Another one?";
        assert_eq!(segments(sentences).collect::<Vec<_>>(), [(0, sentences)]);
        // A vowel sign is a letter and a mark.
        let marks = "\u{93f} ".repeat(MAX_RUN_CHARACTERS);
        assert_eq!(segments(&marks).count(), 2);
    }
}
