//! Marks such as `[1]` and `[1, 2]` in a text that comes in pieces, outside of code.
//!
//! Code spans and fenced code blocks are those of CommonMark. Marks in a span whose end has not come yet are held back: they count
//! if the paragraph or the text ends before the span.

use std::ops::Range;

/// Maximum number of digits of a number in a mark.
const MAX_DIGITS: usize = 3;
/// Maximum number of numbers in the brackets of one mark.
const MAX_NUMBERS: usize = 32;
/// Maximum number of marks that are held back.
const MAX_HELD_MARKS: usize = 1_000;
/// Minimum length of a fence, and maximum number of spaces before it.
const MIN_FENCE: usize = 3;
const MAX_FENCE_INDENT: usize = 3;

/// A mark: a number in brackets, and its position in characters. Each of several numbers in the same brackets is a separate mark,
/// the first with the opening bracket and the last with the closing one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) number: usize,
    pub(super) at: Range<usize>,
    /// True if a letter, a digit or `_` is before the mark, which may be an index then, as in `array[1]`.
    pub(super) follows_word: bool,
}

/// Finds the marks in the pieces of a text.
#[derive(Debug)]
pub(super) struct MarkScanner {
    /// Number of characters before the next piece.
    position: usize,
    /// The last two characters.
    previous: [char; 2],
    /// The bracket whose number is being read.
    open: Option<OpenMark>,
    /// Number of spaces since the beginning of the line, while it has nothing else.
    indent: Option<usize>,
    run: Option<MarkerRun>,
    code: Code,
}

/// The beginning of a mark.
#[derive(Debug)]
struct OpenMark {
    start: usize,
    follows_word: bool,
    digits: String,
    /// The marks before the last comma, and the places of their numbers.
    earlier: Vec<Mark>,
}

impl OpenMark {
    /// Ends the number that was read, whose mark ends at a position.
    fn end_number(&mut self, end: usize) {
        if let Ok(number) = self.digits.parse() {
            self.earlier.push(Mark { number, at: self.start..end, follows_word: self.follows_word });
        }
        self.digits.clear();
    }
}

/// Equal characters in a row that may begin or end code.
#[derive(Debug, Clone, Copy)]
struct MarkerRun {
    marker: char,
    length: usize,
    /// True if nothing but a few spaces is before them on their line.
    may_be_fence: bool,
}

/// The code around the current position.
#[derive(Debug)]
enum Code {
    None,
    Span { length: usize, inner: Vec<Mark> },
    Fence { marker: char, length: usize, is_first_line: bool },
}

impl Default for MarkScanner {
    fn default() -> Self {
        Self { position: 0, previous: ['\n'; 2], open: None, indent: Some(0), run: None, code: Code::None }
    }
}

impl MarkScanner {
    /// Reads the next piece of a text.
    pub(super) fn scan(&mut self, text: &str, found: &mut Vec<Mark>) {
        for character in text.chars() {
            let is_marker = matches!(character, '`' | '~');
            match &mut self.run {
                Some(run) if run.marker == character => run.length += 1,
                _ => {
                    self.end_run();
                    let may_be_fence = self.indent.is_some_and(|indent| indent <= MAX_FENCE_INDENT);
                    self.run = is_marker.then_some(MarkerRun { marker: character, length: 1, may_be_fence });
                }
            }
            self.scan_mark(character, found);
            self.scan_line(character, found);
            self.previous = [self.previous[1], character];
            self.position += 1;
        }
    }

    /// Ends the text. The marks that were held back are not part of code.
    pub(super) fn finish(&mut self, found: &mut Vec<Mark>) {
        self.end_run();
        if let Code::Span { inner, .. } = std::mem::replace(&mut self.code, Code::None) {
            found.extend(inner);
        }
    }

    fn scan_mark(&mut self, character: char, found: &mut Vec<Mark>) {
        match (character, &mut self.open) {
            ('[', open) => {
                let [before, last] = self.previous;
                // A variable of one letter, as in `x[1]`: no sentence has such a word.
                let is_variable = last.is_ascii_lowercase() && (before.is_whitespace() || before == '(');
                let follows_word = last.is_ascii_alphanumeric() || last == '_';
                let start = self.position;
                let mark = OpenMark { start, follows_word, digits: String::new(), earlier: Vec::new() };
                *open = (!is_variable).then_some(mark);
            }
            ('0'..='9', Some(open)) if open.digits.len() < MAX_DIGITS => {
                if open.digits.is_empty() && !open.earlier.is_empty() {
                    open.start = self.position;
                }
                open.digits.push(character);
            }
            (',' | ';', Some(open)) if !open.digits.is_empty() && open.earlier.len() + 1 < MAX_NUMBERS => {
                open.end_number(self.position);
            }
            (' ', Some(open)) if open.digits.is_empty() && !open.earlier.is_empty() => {}
            (']', Some(open)) => {
                let is_whole = !open.digits.is_empty();
                open.end_number(self.position + 1);
                let marks = std::mem::take(&mut open.earlier);
                self.open = None;
                // Sources are numbered from 1, so that brackets with 0 among others are an interval or a list.
                let is_list = marks.len() > 1 && marks.iter().any(|mark| mark.number == 0);
                if !is_whole || is_list {
                    return;
                }
                match &mut self.code {
                    Code::None => found.extend(marks),
                    Code::Span { inner, .. } if inner.len() < MAX_HELD_MARKS => inner.extend(marks),
                    _ => {}
                }
            }
            (_, open) => *open = None,
        }
    }

    fn scan_line(&mut self, character: char, found: &mut Vec<Mark>) {
        match (character, self.indent) {
            ('\n', indent) => {
                // A blank line ends the paragraph.
                if indent.is_some() && matches!(self.code, Code::Span { .. }) {
                    self.finish(found);
                }
                if let Code::Fence { is_first_line, .. } = &mut self.code {
                    *is_first_line = false;
                }
                self.indent = Some(0);
            }
            (' ', Some(spaces)) => self.indent = Some(spaces + 1),
            ('\r' | '\t', Some(_)) => {}
            _ => self.indent = None,
        }
    }

    /// Begins or ends code with the characters that came in a row.
    fn end_run(&mut self) {
        let Some(MarkerRun { marker, length, may_be_fence }) = self.run.take() else { return };
        let is_fence = may_be_fence && length >= MIN_FENCE;
        let code = match &self.code {
            Code::None if is_fence => Code::Fence { marker, length, is_first_line: true },
            Code::None if marker == '`' => Code::Span { length, inner: Vec::new() },
            Code::Span { length: opening, .. } if marker == '`' && length == *opening => Code::None,
            // Three characters and more are a code span, too, if others follow on their line.
            Code::Fence { marker: '`', length: opening, is_first_line: true } if marker == '`' => {
                match length == *opening {
                    true => Code::None,
                    false => Code::Span { length: *opening, inner: Vec::new() },
                }
            }
            Code::Fence { marker: fence, length: opening, is_first_line: false }
                if is_fence && marker == *fence && length >= *opening =>
            {
                Code::None
            }
            _ => return,
        };
        self.code = code;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(pieces: &[&str]) -> Vec<(usize, Range<usize>)> {
        let (mut scanner, mut found) = (MarkScanner::default(), Vec::new());
        for piece in pieces {
            scanner.scan(piece, &mut found);
        }
        scanner.finish(&mut found);
        found.into_iter().map(|mark| (mark.number, mark.at)).collect()
    }

    /// Asserts the marks of a text, in these pieces and in single characters.
    fn assert_marks(pieces: &[&str], expected: &[(usize, Range<usize>)]) {
        assert_eq!(marks(pieces), expected, "{pieces:?}");
        let characters: Vec<String> = pieces.concat().chars().map(String::from).collect();
        let characters: Vec<&str> = characters.iter().map(String::as_str).collect();
        assert_eq!(marks(&characters), expected, "{pieces:?}");
    }

    #[test]
    fn marks_are_found_whatever_the_pieces() {
        assert_marks(&["Ten years [1]."], &[(1, 10..13)]);
        assert_marks(&["ü [", "1", "2", "] and [3]"], &[(12, 2..6), (3, 11..14)]);
        assert_marks(&["[[1]]", "[]", "[x1]", "[1", " ]", "[1234]"], &[(1, 1..4)]);
        assert_marks(&["[1][2]"], &[(1, 0..3), (2, 3..6)]);
        assert_marks(&["[0]"], &[(0, 0..3)]);
        assert_marks(&["十年[1]。"], &[(1, 2..5)]);
    }

    #[test]
    fn several_numbers_in_brackets_are_marks_of_their_own() {
        assert_marks(&["Ten years [1", ", 2;12]."], &[(1, 10..12), (2, 14..15), (12, 16..19)]);
        assert_marks(&["[1,2] [3"], &[(1, 0..2), (2, 3..5)]);
        // An interval, a list that does not end with a number, and other separators.
        assert_marks(&["in [0, 1]; [1, ] [, 1] [1 2] [1, x] [1.2] [1-2]"], &[]);
        assert_marks(&["`[1, 2]` [3]"], &[(3, 9..12)]);
        let many = format!("[{}1]", "1,".repeat(MAX_NUMBERS));
        assert_marks(&[&many], &[]);
    }

    #[test]
    fn marks_follow_words_but_no_variables() {
        assert_marks(
            &["Ten years", "[1], _kept_[2] since 2024[3]."],
            &[(1, 9..12), (2, 20..23), (3, 34..37)],
        );
        assert_marks(&["The vitamin C[1] of apples[2]"], &[(1, 13..16), (2, 26..29)]);
        assert_marks(&["x[1] and x", "[2] (i[3])"], &[]);
        assert_marks(&["f(x)[1]"], &[(1, 4..7)]);
    }

    #[test]
    fn marks_after_words_are_recognized() {
        let (mut scanner, mut found) = (MarkScanner::default(), Vec::new());
        scanner.scan("array[1], array [2]", &mut found);
        assert_eq!(found.iter().map(|mark| mark.follows_word).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn marks_in_code_spans_are_none() {
        assert_marks(&["`a [1]` [2]"], &[(2, 8..11)]);
        assert_marks(&["`array[1]` or\n```\narray[2]\n```\n"], &[]);
        assert_marks(&["``a ` [1]`", "` [2]"], &[(2, 12..15)]);
        assert_marks(&["```a [1]``` [2]"], &[(2, 12..15)]);
        assert_marks(&["a\n`b\n[1]`"], &[]);
    }

    #[test]
    fn a_span_without_an_end_is_not_code() {
        assert_marks(&["It's ` [1]"], &[(1, 7..10)]);
        assert_marks(&["` [1]\n \n`[2]`"], &[(1, 2..5)]);
        assert_marks(&["`` [1] `"], &[(1, 3..6)]);
    }

    #[test]
    fn marks_in_fenced_blocks_are_none() {
        assert_marks(&["```rust\n [1]\n\n [2]\n```\n[3]"], &[(3, 23..26)]);
        assert_marks(&["  ~~~~\n[1]\n```\n[2]\n~~~\n[3]\n~~~~~\n[4]"], &[(4, 33..36)]);
        assert_marks(&["a\n```\n[1]"], &[]);
    }
}
