//! Rule for identifiers that enter from outside: from paths, bodies, workspace files, commands and tokens; and the
//! forms of identifiers that several modules know.
//!
//! An identifier is shown in logs and lists, compared byte by byte, and put into URL paths. The rule admits text that
//! looks the same wherever it is equal and that is one path segment. Stores do not apply it, so that an entry from
//! before the rule can still be read and deleted.

use std::fmt::Display;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use unicode_normalization::is_nfc;

/// Prefix of the user id of a widget's visitors, followed by the id of the widget's token. No other user id begins
/// with it.
pub const WIDGET_USER_PREFIX: &str = "widget:";

/// Path of the caller's files, used in messages and in arguments of tools.
pub(crate) const FILE_PATH: &str = "/api/files/";

/// Maximum length of the id of a file, in bytes.
const MAX_FILE_ID_BYTES: usize = 128;

/// Characters that are percent-encoded in a path segment: all but the unreserved ones (RFC 3986, section 2.3).
const SEGMENT_ESCAPES: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Violation of the rule for identifiers; worded to follow the name of the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdError {
    /// Empty, or white space only.
    #[error("is empty")]
    Empty,
    /// Longer than the limit, in bytes.
    #[error("has {bytes} bytes; the limit is {limit}")]
    TooLong {
        /// Length of the identifier.
        bytes: usize,
        /// Maximum length.
        limit: usize,
    },
    /// White space at the beginning or the end.
    #[error("begins or ends with a space")]
    Untrimmed,
    /// `.` or `..`, which a URL path does not keep.
    #[error("must not be \".\" or \"..\"")]
    DotSegment,
    /// A slash, which separates the segments of a path.
    #[error("has a slash")]
    Slash,
    /// A control, format or invisible character, or white space other than U+0020.
    #[error("has a control or invisible character")]
    Unprintable,
    /// The id is not in Unicode Normalization Form C (UAX #15).
    #[error("is not in Unicode Normalization Form C")]
    NotNormalized,
}

/// Checks an identifier of at most `limit` bytes.
///
/// # Errors
/// The first violation.
pub fn check_id(id: &str, limit: usize) -> Result<(), IdError> {
    if id.trim().is_empty() {
        return Err(IdError::Empty);
    }
    if id.len() > limit {
        return Err(IdError::TooLong { bytes: id.len(), limit });
    }
    if id == "." || id == ".." {
        return Err(IdError::DotSegment);
    }
    if id.contains('/') {
        return Err(IdError::Slash);
    }
    if !id.chars().all(is_visible) {
        return Err(IdError::Unprintable);
    }
    if id.trim().len() != id.len() {
        return Err(IdError::Untrimmed);
    }
    if !is_nfc(id) {
        return Err(IdError::NotNormalized);
    }
    Ok(())
}

/// Returns an identifier as one segment of a URI's path, percent-encoded.
pub fn encode_segment(id: &str) -> impl Display {
    utf8_percent_encode(id, SEGMENT_ESCAPES)
}

/// Returns true for a character that has a glyph or is a combining mark or U+0020.
fn is_visible(char: char) -> bool {
    match char {
        ' '..='~' => true,
        // Letters and marks without a glyph: the fillers of Hangul, the grapheme joiner, variation selectors.
        '\u{34f}'
        | '\u{115f}'..='\u{1160}'
        | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{2800}'
        | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{ffa0}'
        | '\u{e0100}'..='\u{e01ef}' => false,
        // The standard library escapes the categories C and Z; after another character, it leaves marks as they are.
        _ => {
            let mut text = [b'a'; 5];
            let end = 1 + char.encode_utf8(&mut text[1..]).len();
            str::from_utf8(&text[..end]).is_ok_and(|text| text.escape_debug().eq(text.chars()))
        }
    }
}

/// Returns true for a text that may be the id of a file.
pub(crate) fn is_file_id(id: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=MAX_FILE_ID_BYTES).contains(&id.len()) && id.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_identifiers_are_valid() {
        let longest = "x".repeat(128);
        for id in
            ["a", "agent-7", "a.b", "...", "Ünïcode", "日本語", "a b", "o'ada;--", "job:1", "क्षि", &longest]
        {
            assert_eq!(check_id(id, 128), Ok(()), "{id:?}");
        }
    }

    #[test]
    fn a_segment_has_unreserved_characters_only() {
        assert_eq!(encode_segment("aZ0-._~").to_string(), "aZ0-._~");
        assert_eq!(encode_segment("job:1 a/b?c#ü").to_string(), "job%3A1%20a%2Fb%3Fc%23%C3%BC");
    }

    #[test]
    fn each_violation_is_named() {
        let cases = [
            ("", IdError::Empty),
            (" \t", IdError::Empty),
            ("\u{a0}", IdError::Empty),
            ("abcdefghi", IdError::TooLong { bytes: 9, limit: 8 }),
            (".", IdError::DotSegment),
            ("..", IdError::DotSegment),
            ("x/y", IdError::Slash),
            ("/", IdError::Slash),
            (" a", IdError::Untrimmed),
            ("a ", IdError::Untrimmed),
            ("a\0", IdError::Unprintable),
            ("a\nb", IdError::Unprintable),
            ("a\u{a0}b", IdError::Unprintable),
            ("a\u{ad}", IdError::Unprintable),
            ("a\u{200b}", IdError::Unprintable),
            ("a\u{200d}b", IdError::Unprintable),
            ("\u{feff}a", IdError::Unprintable),
            ("a\u{202e}b", IdError::Unprintable),
            ("a\u{2028}b", IdError::Unprintable),
            ("a\u{3164}", IdError::Unprintable),
            ("a\u{fe0f}", IdError::Unprintable),
            ("e\u{301}", IdError::NotNormalized),
        ];
        for (id, error) in cases {
            assert_eq!(check_id(id, 8), Err(error), "{id:?}");
        }
    }
}
