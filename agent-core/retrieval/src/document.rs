//! A document as retrieval sees it: an identifier, and the text that was extracted from its bytes.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// The identifier of a document, unique within a company.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentId(Arc<str>);

impl DocumentId {
    /// Returns the identifier as a string.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<T: Into<Arc<str>>> From<T> for DocumentId {
    fn from(id: T) -> Self {
        Self(id.into())
    }
}

impl Borrow<str> for DocumentId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DocumentId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The markup of a text, from which the chunker knows where sections begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TextFormat {
    /// No markup.
    #[default]
    Plain,
    /// Markdown: lines that begin with `#` outside of code are headings.
    Markdown,
}

/// The text that was extracted from a document, with its title, its markup and the positions of its pages.
#[derive(Debug, Clone, Default)]
pub struct ExtractedText {
    /// The title, indexed with every chunk; may be empty.
    pub title: String,
    /// The text, to which all offsets refer.
    pub text: String,
    /// The markup of the text.
    pub format: TextFormat,
    /// The byte offsets at which pages begin, ascending; empty for a document without pages.
    pub page_starts: Vec<u32>,
}

impl ExtractedText {
    /// Returns the number of the page, from 1, that has the byte at an offset.
    pub(crate) fn page_at(&self, offset: usize) -> Option<u32> {
        let page = self.page_starts.partition_point(|&start| start as usize <= offset);
        u32::try_from(page).ok().filter(|&page| page > 0)
    }
}

/// Returns the front matter at the beginning of a Markdown text, with the lines that enclose it; empty if there is none.
///
/// It is YAML between lines `---`, or TOML between lines `+++`, with one key at least, and begins in the second line. Other text
/// between two such lines is not front matter, since `---` also is a rule.
pub fn front_matter(text: &str) -> &str {
    let mut lines = text.split_inclusive('\n');
    let opening = lines.next().unwrap_or_default();
    let (ends, separator) = match opening.trim_end() {
        "---" => (["---", "..."], ':'),
        "+++" => (["+++"; 2], '='),
        _ => return "",
    };
    let mut end = opening.len();
    let mut has_key = false;
    for (index, line) in lines.enumerate() {
        end += line.len();
        let line = line.trim_end();
        if ends.contains(&line) {
            return if has_key { &text[..end] } else { "" };
        }
        let is_key = begins_with_key(line, separator);
        has_key |= is_key;
        let is_value = line.is_empty() || line.starts_with([' ', '\t', '#', '[', ']', '{', '}', '-']);
        if !(is_key || is_value) || (index == 0 && line.is_empty()) {
            return "";
        }
    }
    ""
}

/// Returns true for a line that begins with a key of YAML or TOML.
fn begins_with_key(line: &str, separator: char) -> bool {
    let Some((key, value)) = line.split_once(separator) else { return false };
    let key = key.trim_end().trim_matches(['"', '\'']);
    let is_key = |character: char| character.is_alphanumeric() || matches!(character, '_' | '-' | '.');
    let is_separated = separator == '=' || value.is_empty() || value.starts_with([' ', '\t']);
    !key.is_empty() && key.chars().all(is_key) && is_separated
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn front_matter_is_told_from_text_between_rules() {
        for (text, expected) in [
            ("---\ntitle: Leave\n# draft\ntags:\n  - hr\n- x\n\n---\n# Leave\n", Some("# Leave\n")),
            ("---\r\ntitle: Leave\r\n...\r\ntext", Some("text")),
            ("---\n# draft\n\"title\":\n---", Some("")),
            ("+++\ntitle = 'Leave'\n# draft\n[extra]\na=1\n+++\ntext", Some("text")),
            // Rules, texts without a key, and front matter without an end.
            ("---\n\n# Leave\n\nNote: text\n\n---\n", None),
            ("---\n# Leave\n---\n", None),
            ("---\nhttp://a.example\n---\n", None),
            ("---\nThis is text: of a page.\n---\n", None),
            ("---\ntitle: Leave\n# draft\n", None),
            ("---\n---\ntitle: no", None),
            ("title: Leave\n---\n", None),
            ("", None),
        ] {
            let found = front_matter(text);
            assert_eq!((!found.is_empty()).then(|| &text[found.len()..]), expected, "{text:?}");
        }
    }
}
