//! Most chunks of an answer differ from the one before in their text alone.

/// A chunk that was parsed and found to hold one piece of text and nothing else to tell.
///
/// The next chunk of the same beginning and end holds another text in the same place. Reading it so
/// gives what parsing gives, for a text without quotes, escapes and control characters stands in JSON
/// as it is and ends nowhere but at its quote.
#[derive(Debug, Default)]
pub(super) struct Template {
    before: Vec<u8>,
    after: Vec<u8>,
}

impl Template {
    /// Remembers a chunk by `text`, which lies within it; forgets what was there if it does not, as
    /// where a parser had to unescape it.
    pub(super) fn learn(&mut self, chunk: &[u8], text: &str) {
        self.before.clear();
        self.after.clear();
        let start = (text.as_ptr() as usize).wrapping_sub(chunk.as_ptr() as usize);
        let Some(end) = start.checked_add(text.len()).filter(|end| *end < chunk.len()) else { return };
        self.before.extend_from_slice(&chunk[..start]);
        self.after.extend_from_slice(&chunk[end..]);
    }

    /// The text of a chunk that is like the one remembered.
    pub(super) fn read<'c>(&self, chunk: &'c [u8]) -> Option<&'c str> {
        if self.before.is_empty() {
            return None;
        }
        let text = chunk.strip_prefix(&*self.before)?.strip_suffix(&*self.after)?;
        let plain = !text.is_empty() && text.iter().all(|byte| *byte >= 0x20 && !b"\"\\".contains(byte));
        if plain { std::str::from_utf8(text).ok() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_like_the_last_chunk_is_read_without_parsing() {
        let first = br#"{"choices":[{"delta":{"content":"one"}}]}"#;
        let text = std::str::from_utf8(&first[33..36]).unwrap();
        assert_eq!(text, "one");
        let mut template = Template::default();
        assert_eq!(template.read(first), None, "nothing is known yet");
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
            assert_eq!(template.read(chunk.as_bytes()), expected, "{chunk}");
        }
        let invalid = [&first[..33], &[0xff], &first[36..]].concat();
        assert_eq!(template.read(&invalid), None);
    }

    #[test]
    fn a_text_from_elsewhere_is_not_learnt() {
        let mut template = Template::default();
        let chunk = br#"{"content":"a\u0062"}"#;
        template.learn(chunk, "ab");
        assert_eq!(template.read(chunk), None);
    }
}
