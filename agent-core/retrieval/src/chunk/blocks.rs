//! Headings, code blocks and list items of Markdown, line by line.
//!
//! Of [CommonMark](https://spec.commonmark.org/0.31.2/), this follows what decides on whether a line is a heading: fenced
//! code blocks, indented code blocks, list items, whose content is indented itself, and the line below an underlined (setext)
//! heading. Only a short line that is a paragraph by itself is an underlined heading, since a line of dashes often is a rule.

/// Maximum number of bytes of a heading that are kept.
const MAX_HEADING_BYTES: usize = 200;
/// Columns of indentation from which a line is code, or continues a paragraph.
const CODE_INDENTATION: usize = 4;
/// Maximum number of markers of nested list items that are followed within one line.
const MAX_MARKERS: usize = 16;
/// Minimum length of the line below an underlined heading. A single character rather is the marker of an empty list item.
const MIN_UNDERLINE_BYTES: usize = 2;

/// A heading of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Heading<'a> {
    /// From 1, the outermost.
    pub(super) level: usize,
    pub(super) text: &'a str,
}

/// The blocks of a Markdown text that are open before a line.
#[derive(Debug, Default)]
pub(super) struct MarkdownBlocks {
    /// The columns at which the contents of the open list items begin, the outermost first.
    items: Vec<usize>,
    fence: Option<Fence>,
    above: LineAbove,
}

/// The line above a line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum LineAbove {
    /// A blank line, a heading, code, or the end of an underlined heading.
    #[default]
    NoText,
    /// Text, which the line may continue.
    Text,
    /// A heading of which the line is the underline.
    UnderlinedHeading,
}

/// The fence that opened a code block.
#[derive(Debug, Clone, Copy)]
struct Fence {
    character: char,
    length: usize,
    /// Number of list items that contain the code block.
    depth: usize,
}

impl MarkdownBlocks {
    /// Returns true within a block of code between fences.
    pub(super) fn is_in_code(&self) -> bool {
        self.fence.is_some()
    }

    /// Returns the heading of the next line, if it is one outside of code. `below` is the line after it.
    pub(super) fn heading<'a>(&mut self, line: &'a str, below: &str) -> Option<Heading<'a>> {
        let above = std::mem::take(&mut self.above);
        let (mut column, mut rest) = indentation(line.trim_end(), 0);
        if rest.is_empty() || above == LineAbove::UnderlinedHeading {
            return None;
        }
        while self.items.last().is_some_and(|&content| column < content) {
            self.items.pop();
        }
        // A code block ends with the list item that contains it.
        self.fence = self.fence.filter(|fence| fence.depth <= self.items.len());
        let mut content = self.items.last().copied().unwrap_or_default();
        if let Some(fence) = self.fence {
            if column - content < CODE_INDENTATION && fence.is_closed_by(rest) {
                self.fence = None;
            }
            return None;
        }
        let mut after_marker = false;
        for _ in 0..MAX_MARKERS {
            // The content of an item without text in its first line begins behind the end of the line.
            if column.saturating_sub(content) >= CODE_INDENTATION {
                self.above = above;
                return None;
            }
            let Some(item) = list_item(rest, column) else { break };
            (content, column, rest) = item;
            self.items.push(content);
            after_marker = true;
        }
        self.fence = Fence::opened_by(rest, self.items.len());
        if self.fence.is_some() {
            return None;
        }
        let heading = if after_marker { None } else { parse_heading(rest) };
        if heading.is_some() {
            return heading;
        }
        let is_paragraph = !after_marker && above == LineAbove::NoText;
        let heading = parse_underlined(rest, below, content).filter(|_| is_paragraph);
        self.above = if heading.is_some() { LineAbove::UnderlinedHeading } else { LineAbove::Text };
        heading
    }
}

impl Fence {
    /// Returns the fence with which a line without its indentation begins.
    fn opened_by(line: &str, depth: usize) -> Option<Self> {
        let character = line.chars().next().filter(|first| matches!(first, '`' | '~'))?;
        let info = line.trim_start_matches(character);
        let length = line.len() - info.len();
        // Backquotes behind the fence make it code within a line.
        let is_fence = length >= 3 && !(character == '`' && info.contains('`'));
        is_fence.then_some(Self { character, length, depth })
    }

    /// Returns true for a line, without its indentation, that is a fence as long as this one at least and nothing else.
    fn is_closed_by(self, line: &str) -> bool {
        line.len() >= self.length && line.trim_start_matches(self.character).is_empty()
    }
}

/// Returns the column of the first character that is not a space, and the text from there on. Tabs end at multiples of four.
fn indentation(text: &str, mut column: usize) -> (usize, &str) {
    for (offset, character) in text.char_indices() {
        match character {
            ' ' => column += 1,
            '\t' => column = (column / 4 + 1) * 4,
            _ => return (column, &text[offset..]),
        }
    }
    (column, "")
}

/// Parses the marker of a list item at a column. Returns the column at which the contents of the item begin, and the column
/// and text of what follows the marker.
fn list_item(text: &str, column: usize) -> Option<(usize, usize, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let marker = match digits {
        0 => text.starts_with(['-', '+', '*']).then_some(1)?,
        1..=9 => text[digits..].starts_with(['.', ')']).then_some(digits + 1)?,
        _ => return None,
    };
    let after = &text[marker..];
    if !after.is_empty() && !after.starts_with([' ', '\t']) {
        return None;
    }
    let end = column + marker;
    let (next, rest) = indentation(after, end);
    // Code in the first line of an item is behind one space.
    let content = if rest.is_empty() || next - end > CODE_INDENTATION { end + 1 } else { next };
    Some((content, next, rest))
}

/// Parses a line without its indentation as a heading.
fn parse_heading(line: &str) -> Option<Heading<'_>> {
    let level = line.bytes().take_while(|&byte| byte == b'#').count();
    if !(1..=6).contains(&level) || !line[level..].starts_with([' ', '\t']) {
        return None;
    }
    let text = line[level..].trim().trim_end_matches('#').trim_end();
    let text = &text[..text.floor_char_boundary(MAX_HEADING_BYTES)];
    (!text.is_empty()).then_some(Heading { level, text })
}

/// Parses a line without its indentation as a heading by the line below it. `content` is the column at which the contents of the
/// open list item begin.
fn parse_underlined<'a>(line: &'a str, below: &str, content: usize) -> Option<Heading<'a>> {
    let (column, underline) = indentation(below.trim_end(), 0);
    let (character, level) = match underline.chars().next()? {
        '=' => ('=', 1),
        '-' => ('-', 2),
        _ => return None,
    };
    let is_underline = underline.len() >= MIN_UNDERLINE_BYTES
        && underline.trim_start_matches(character).is_empty()
        && column.checked_sub(content).is_some_and(|indentation| indentation < CODE_INDENTATION);
    // A quotation, a row of a table, an HTML element and another rule are not paragraphs.
    let is_text = line.len() <= MAX_HEADING_BYTES
        && !line.starts_with(['>', '|', '<'])
        && line.contains(char::is_alphanumeric);
    (is_underline && is_text).then_some(Heading { level, text: line })
}

/// Returns the line of a text that begins at an offset, without its end.
pub(super) fn line_at(text: &str, offset: usize) -> &str {
    text[offset..].lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the headings of a Markdown text.
    fn all_headings(text: &str) -> Vec<Heading<'_>> {
        let mut blocks = MarkdownBlocks::default();
        let mut offset = 0;
        let mut found = Vec::new();
        for line in text.split_inclusive('\n') {
            offset += line.len();
            found.extend(blocks.heading(line, line_at(text, offset)));
        }
        found
    }

    /// Returns the texts of the headings of a Markdown text.
    fn headings(text: &str) -> Vec<&str> {
        all_headings(text).into_iter().map(|heading| heading.text).collect()
    }

    #[test]
    fn underlined_lines_are_headings() {
        for (text, expected) in [
            (
                "Handbook\n========\nLeave\n-----\n30 days.\n\n# b",
                &[(1, "Handbook"), (2, "Leave"), (1, "b")][..],
            ),
            ("# a\nb\r\n--  \r\n", &[(1, "a"), (2, "b")]),
            ("- item\n\n  Leave\n  -----\n", &[(2, "Leave")]),
            ("```\ncode\n```\nLeave\n===", &[(1, "Leave")]),
            // Rules below and above text, and front matter.
            ("One line\nof two\n------\n", &[]),
            ("Text.\n\n---\n", &[]),
            ("***\n---\n", &[]),
            ("---\ntitle: a\n---\n", &[]),
            // Code, items, quotations, tables, markup, and other lines below.
            ("```\nLeave\n-----\n```\n", &[]),
            ("    code\n    ----\n", &[]),
            ("- item\n---\n", &[]),
            ("- item\n\n  Leave\n---\n", &[]),
            ("> quoted\n---\n", &[]),
            ("| a |\n---\n", &[]),
            ("<p>\n---\n", &[]),
            ("Leave\n    ---\n", &[]),
            ("Leave\n-=-\n", &[]),
            ("Leave\n-\n", &[]),
            ("Leave\n- -\n", &[]),
            ("Leave", &[]),
        ] {
            let found: Vec<_> =
                all_headings(text).iter().map(|heading| (heading.level, heading.text)).collect();
            assert_eq!(found, expected, "{text:?}");
        }
        let long = "word ".repeat(100);
        assert_eq!(headings(&format!("{long}\n---\n")), Vec::<&str>::new());
    }

    #[test]
    fn code_has_no_headings() {
        for (text, expected) in [
            // Indented code, by spaces and by tabs.
            ("# a\n\n    # code\n\n# b", &["a", "b"][..]),
            ("# a\n\n\t# code\n  \t# code\n\n   # b", &["a", "b"]),
            // A fence within indented code opens nothing.
            ("text\n\n\t```\n\n# a", &["a"]),
            ("text\n\n    ```\n\n# a", &["a"]),
            // A fence is closed by one that is as long and has no text behind it.
            ("````\n```\n# code\n````\n# a", &["a"]),
            ("```sh\n```sh\n# code\n```  \n# a", &["a"]),
            ("~~~\n```\n# code\n    ~~~\n# code\n~~~~\n# a", &["a"]),
            ("```\n# code to the end", &[]),
            // Code within a line.
            ("```x``` and\n# a", &["a"]),
        ] {
            assert_eq!(headings(text), expected, "{text:?}");
        }
    }

    #[test]
    fn list_items_indent_their_content() {
        for (text, expected) in [
            // The content of an item begins behind its marker, so that it is not code.
            ("1. a\n\n   # b\n", &["b"][..]),
            ("10. a\n\n    # b\n", &["b"]),
            ("- a\n\n\t# b\n", &["b"]),
            ("- a\n\n      # code\n", &[]),
            ("- a\n  - b\n\n        # code\n\n    # c\n", &["c"]),
            ("1. a\n\n    ```sh\n    # code\n    ```\n\n# b", &["b"]),
            ("- ```sh\n  # code\n  ```\n# a", &["a"]),
            ("-\n  # a\n\n1.\n\n# b", &["a", "b"]),
            ("-     code\n\n      # code\n\n  # b", &["b"]),
            // A block of code ends with its item, and an item where a line is indented less.
            ("- a\n\n  ```\n  # code\n# b", &["b"]),
            ("- a\n\ntext\n\n    # code\n", &[]),
            // An item without text in its first line.
            ("-\n# a\n1.\n   # b\n", &["a", "b"]),
            // These are not markers.
            ("-a\n\n    # code\n", &[]),
            ("**a**\n\n    # code\n", &[]),
            ("1234567890. a\n\n    # code\n", &[]),
            ("- # a", &[]),
        ] {
            assert_eq!(headings(text), expected, "{text:?}");
        }
    }

    #[test]
    fn many_markers_are_followed_up_to_the_limit() {
        assert_eq!(headings(&"- ".repeat(100_000)), Vec::<&str>::new());
        let nested: String = (0..1_000).map(|level| format!("{}- a\n", "  ".repeat(level))).collect();
        assert_eq!(headings(&format!("{nested}# b")), ["b"]);
    }
}
