//! Fast path for streamed chunks that differ from the previous chunk only in their text delta and in digits after it.

/// JSON chunk with its text delta cut out, against which the next chunk is matched instead of being parsed.
///
/// A chunk with the same prefix and suffix contains another text at the same position. The result equals that of the
/// parser, since text without quotes, escapes and control characters is unchanged in JSON and ends only at its quote.
/// In the suffix, digits match any digits, such as those of a timestamp, except for the first digit of a number. A
/// number of one digit, such as an index, must be equal, and no number gets a leading zero, which is not valid JSON.
/// The caller must learn only chunks of which it reads no longer number. Other chunks do not match, and the caller
/// parses them.
#[derive(Debug)]
pub(crate) struct DeltaTemplate {
    /// False for the plain implementation: nothing is learned, so that the caller parses each chunk.
    enabled: bool,
    /// The chunk without its text.
    frame: Vec<u8>,
    /// Byte offset of the text in `frame`.
    text_offset: usize,
}

impl DeltaTemplate {
    /// Creates an empty template; `enabled` selects the optimization.
    pub(crate) fn new(enabled: bool) -> Self {
        Self { enabled, frame: Vec::new(), text_offset: 0 }
    }

    /// Remembers a chunk without `text`, which must be a slice of it. If it is not, as when the parser has unescaped
    /// it, the template is cleared.
    pub(crate) fn learn(&mut self, chunk: &[u8], text: &str) {
        if !self.enabled {
            return;
        }
        self.frame.clear();
        let start = (text.as_ptr() as usize).wrapping_sub(chunk.as_ptr() as usize);
        let Some(end) = start.checked_add(text.len()).filter(|end| *end < chunk.len()) else { return };
        self.frame.reserve_exact(chunk.len() - text.len());
        self.frame.extend_from_slice(&chunk[..start]);
        self.frame.extend_from_slice(&chunk[end..]);
        self.text_offset = start;
    }

    /// Returns the text of a chunk that matches the template.
    pub(crate) fn match_chunk<'c>(&self, chunk: &'c [u8]) -> Option<&'c str> {
        if self.frame.is_empty() {
            return None;
        }
        let (known_before, known_after) = self.frame.split_at(self.text_offset);
        let rest = chunk.strip_prefix(known_before)?;
        let (text, after) = rest.split_at_checked(rest.len().checked_sub(known_after.len())?)?;
        if !equals_except_digits(after, known_after) {
            return None;
        }
        let plain = !text.is_empty() && text.iter().all(|byte| *byte >= 0x20 && !b"\"\\".contains(byte));
        if plain { std::str::from_utf8(text).ok() } else { None }
    }
}

/// Returns true if `bytes` has the length of `known` and differs from it only in digits that follow a digit.
fn equals_except_digits(bytes: &[u8], known: &[u8]) -> bool {
    if bytes == known {
        return true;
    }
    let ([first, bytes @ ..], [known_first, known_rest @ ..]) = (bytes, known) else { return false };
    // In an escape sequence, a digit changes a character, and so perhaps a name.
    if first != known_first || bytes.len() != known_rest.len() || known.contains(&b'\\') {
        return false;
    }
    let is_same_or_digit = |((byte, known), before): ((&u8, &u8), &u8)| {
        (byte == known) | (byte.is_ascii_digit() & known.is_ascii_digit() & before.is_ascii_digit())
    };
    // No early exit, so that the loop is vectorized.
    bytes.iter().zip(known_rest).zip(known).map(is_same_or_digit).fold(true, |all, is_equal| all & is_equal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_like_the_previous_one_is_matched_without_parsing() {
        let first = br#"{"choices":[{"delta":{"content":"one"}}]}"#;
        let text = std::str::from_utf8(&first[33..36]).unwrap();
        assert_eq!(text, "one");
        let mut template = DeltaTemplate::new(true);
        assert_eq!(template.match_chunk(first), None, "nothing is known yet");
        template.learn(first, text);
        for (chunk, expected) in [
            (r#"{"choices":[{"delta":{"content":"two words"}}]}"#, Some("two words")),
            (r#"{"choices":[{"delta":{"content":"größer"}}]}"#, Some("größer")),
            (r#"{"choices":[{"delta":{"content":""}}]}"#, None),
            (r#"{"choices":[{"delta":{"content":"a\"b"}}]}"#, None),
            (r#"{"choices":[{"delta":{"content":"a","x":"b"}}]}"#, None),
            (r#"{"choices":[{"delta":{"content":"a\nb"}}]}"#, None),
            ("{\"choices\":[{\"delta\":{\"content\":\"a\nb\"}}]}", None),
            (r#"{"choices":[{"delta":{"content":"a"}}],"usage":{}}"#, None),
            (r#"{"choices":[{"delta":{"content":"#, None),
            ("", None),
        ] {
            assert_eq!(template.match_chunk(chunk.as_bytes()), expected, "{chunk}");
        }
        let invalid = [&first[..33], &[0xff], &first[36..]].concat();
        assert_eq!(template.match_chunk(&invalid), None);
    }

    #[test]
    fn digits_after_the_text_may_be_others() {
        let line = br#"{"type":"item","content":"one","metadata":{"timestamp":1759233453214}}"#;
        let mut template = DeltaTemplate::new(true);
        template.learn(line, std::str::from_utf8(&line[26..29]).unwrap());
        for (chunk, expected) in [
            (r#"{"type":"item","content":"two","metadata":{"timestamp":1759233453299}}"#, Some("two")),
            (r#"{"type":"item","content":"two","metadata":{"timestamp":17592334532990}}"#, None),
            (r#"{"type":"item","content":"two","metadata":{"timestamp":175923345329-}}"#, None),
            (r#"{"type":"ite7","content":"two","metadata":{"timestamp":1759233453299}}"#, None),
            (r#"{"type":"item","content":"two","metadata":{"timestamp":2759233453214}}"#, None),
            (r#"{"type":"item","content":"two","metadata":{"timestamp":0759233453214}}"#, None),
        ] {
            assert_eq!(template.match_chunk(chunk.as_bytes()), expected, "{chunk}");
        }
    }

    #[test]
    fn numbers_of_one_digit_and_escapes_must_be_the_same() {
        for (known, chunk, matches) in [
            (r#"{"text":"one","index":0}"#, r#"{"text":"two","index":0}"#, true),
            (r#"{"text":"one","index":0}"#, r#"{"text":"two","index":1}"#, false),
            (r#"{"text":"one","\u0055rror":1}"#, r#"{"text":"two","\u0055rror":1}"#, true),
            (r#"{"text":"one","\u0055rror":1}"#, r#"{"text":"two","\u0065rror":1}"#, false),
        ] {
            let mut template = DeltaTemplate::new(true);
            template.learn(known.as_bytes(), &known[9..12]);
            assert_eq!(template.match_chunk(chunk.as_bytes()), matches.then_some("two"), "{chunk}");
        }
    }

    #[test]
    fn nothing_is_learned_without_the_optimization() {
        let chunk = br#"{"content":"one"}"#;
        let mut template = DeltaTemplate::new(false);
        template.learn(chunk, std::str::from_utf8(&chunk[12..15]).unwrap());
        assert_eq!(template.match_chunk(chunk), None);
    }

    #[test]
    fn a_text_from_elsewhere_is_not_learned() {
        let mut template = DeltaTemplate::new(true);
        let chunk = br#"{"content":"a\u0062"}"#;
        template.learn(chunk, "ab");
        assert_eq!(template.match_chunk(chunk), None);
    }
}
