//! The bytes of one request, with the places that must not be shown.
//!
//! A payload is what will be sent, to the byte. Keys, run tokens, thread and run ids stand in it as
//! they are; its **shown form** has `***` in their place. Previews print the shown form and
//! [`Payload::sha256`] is taken over it, so that a preview can be proved to be what was sent without
//! knowing the secrets.

use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use sha2::{Digest, Sha256};

/// What stands in place of what must not be shown.
pub const MASKED: &str = "***";

/// A request body that is ready to be sent.
#[derive(Clone)]
pub struct Payload {
    bytes: Bytes,
    masked: Vec<Range<usize>>,
    prompt_tokens: Option<usize>,
    sections: Vec<Section>,
    is_json: bool,
}

/// What stands at the beginning of a request, which providers' prompt caches keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Section {
    /// The system prompt.
    System,
    /// The definitions of the tools.
    Tools,
}

impl Payload {
    /// Starts a body for about `capacity` bytes.
    pub fn builder(capacity: usize) -> PayloadBuilder {
        PayloadBuilder {
            bytes: Vec::with_capacity(capacity),
            masked: Vec::new(),
            prompt_tokens: None,
            sections: Vec::new(),
        }
    }

    /// A body that is no JSON, such as a prompt in the words of a template. Nothing in it is masked.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            bytes: text.into().into(),
            masked: Vec::new(),
            prompt_tokens: None,
            sections: Vec::new(),
            is_json: false,
        }
    }

    /// Whether it is JSON, as everything is that a [`builder`](Self::builder) has written.
    pub fn is_json(&self) -> bool {
        self.is_json
    }

    /// The sections in the order in which they stand, as far as whoever made the body has noted them.
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// What the prompt in it costs by our count, where whoever made it has said so. It is not sent.
    pub fn prompt_tokens(&self) -> Option<usize> {
        self.prompt_tokens
    }

    /// The bytes as they are sent, secrets included.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The bytes, to be sent.
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// The bytes as they may be shown.
    pub fn shown(&self) -> Vec<u8> {
        let mut shown = Vec::with_capacity(self.bytes.len());
        self.push_shown(&mut shown);
        shown
    }

    /// Appends the bytes as they may be shown.
    pub fn push_shown(&self, out: &mut Vec<u8>) {
        self.each_shown(|slice| out.extend_from_slice(slice));
    }

    /// Appends what may be shown as a JSON value, to the byte where it is one, and else as a string.
    pub fn push_shown_json(&self, out: &mut Vec<u8>) {
        if self.is_json {
            return self.push_shown(out);
        }
        let text = String::from_utf8_lossy(&self.shown()).into_owned();
        serde_json::to_writer(out, &text).expect("a string serialises into memory");
    }

    /// SHA-256 of the shown form, in lower-case hexadecimal.
    pub fn sha256(&self) -> String {
        let mut hasher = Sha256::new();
        self.each_shown(|slice| hasher.update(slice));
        hex::encode(hasher.finalize())
    }

    fn each_shown(&self, mut visit: impl FnMut(&[u8])) {
        let mut from = 0;
        for range in &self.masked {
            visit(&self.bytes[from..range.start]);
            visit(MASKED.as_bytes());
            from = range.end;
        }
        visit(&self.bytes[from..]);
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.shown()))
    }
}

/// Writes a JSON body piece by piece; cached pieces are copied as they are. Previews copy the body too, so
/// it must be one whole JSON value in the end; what is none is a [`Payload::text`].
pub struct PayloadBuilder {
    bytes: Vec<u8>,
    masked: Vec<Range<usize>>,
    prompt_tokens: Option<usize>,
    sections: Vec<Section>,
}

impl PayloadBuilder {
    /// Appends JSON text as it is.
    pub fn raw(&mut self, json: &str) -> &mut Self {
        self.bytes.extend_from_slice(json.as_bytes());
        self
    }

    /// Appends a value, serialised.
    pub fn json(&mut self, value: &impl serde::Serialize) -> &mut Self {
        serde_json::to_writer(&mut self.bytes, value).expect("plain data serialises into memory");
        self
    }

    /// Appends a JSON string whose content is masked when shown.
    pub fn masked(&mut self, secret: &str) -> &mut Self {
        self.bytes.push(b'"');
        let start = self.bytes.len();
        let quoted = serde_json::to_string(secret).expect("a string serialises");
        self.bytes.extend_from_slice(&quoted.as_bytes()[1..quoted.len() - 1]);
        self.masked.push(start..self.bytes.len());
        self.bytes.push(b'"');
        self
    }

    /// Appends a JSON string of which the parts given as `Err` are masked when shown, as in an
    /// address that carries a token. The parts must need no JSON escaping beyond what they bring.
    pub fn partly_masked<'a>(
        &mut self,
        parts: impl IntoIterator<Item = Result<&'a str, &'a str>>,
    ) -> &mut Self {
        self.bytes.push(b'"');
        for part in parts {
            let (Ok(text) | Err(text)) = part;
            let start = self.bytes.len();
            let quoted = serde_json::to_string(text).expect("a string serialises");
            self.bytes.extend_from_slice(&quoted.as_bytes()[1..quoted.len() - 1]);
            if part.is_err() {
                self.masked.push(start..self.bytes.len());
            }
        }
        self.bytes.push(b'"');
        self
    }

    /// Notes what the prompt costs by our count, for comparing with what the other side has read.
    pub fn prompt_tokens(&mut self, tokens: Option<usize>) -> &mut Self {
        self.prompt_tokens = tokens;
        self
    }

    /// Notes that a section comes next, for telling which of two is first in a provider's prompt cache.
    pub fn section(&mut self, section: Section) -> &mut Self {
        if !self.sections.contains(&section) {
            self.sections.push(section);
        }
        self
    }

    /// The buffer itself, for writers that append much.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// The bytes, where they are not to be sent.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The finished body.
    pub fn finish(self) -> Payload {
        let Self { bytes, masked, prompt_tokens, sections } = self;
        Payload { bytes: bytes.into(), masked, prompt_tokens, sections, is_json: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shown_form_masks_and_the_hash_is_of_the_shown_form() {
        let body = |key: &str, run: &str| {
            let mut builder = Payload::builder(64);
            builder.raw(r#"{"apiKey":"#).masked(key).raw(r#","url":"#);
            builder.partly_masked([Ok("http://h/?token="), Err(run), Ok("&a=1")]).raw("}");
            builder.finish()
        };
        let first = body("sk-\"1\"", "t1");
        assert_eq!(first.bytes(), r#"{"apiKey":"sk-\"1\"","url":"http://h/?token=t1&a=1"}"#);
        assert_eq!(first.shown(), br#"{"apiKey":"***","url":"http://h/?token=***&a=1"}"#);
        assert_eq!(first.sha256(), hex::encode(Sha256::digest(first.shown())));
        assert_eq!(first.sha256(), body("other", "t2").sha256());
        assert!(!format!("{first:?}").contains("sk-"));
    }

    #[test]
    fn a_payload_is_shown_as_it_is_or_as_text() {
        let json = |payload: Payload| {
            let mut out = Vec::new();
            payload.push_shown_json(&mut out);
            String::from_utf8(out).expect("UTF-8")
        };
        let mut builder = Payload::builder(32);
        builder.raw(r#"{"b": 1.0,  "a":"\u00e4"}"#);
        assert_eq!(json(builder.finish()), r#"{"b": 1.0,  "a":"\u00e4"}"#);
        assert_eq!(json(Payload::text("<s>\"hi\"")), r#""<s>\"hi\"""#);
        assert_eq!(json(Payload::text("")), r#""""#);
    }

    #[test]
    fn sections_are_in_the_order_in_which_they_began() {
        let mut builder = Payload::builder(0);
        builder.section(Section::Tools).section(Section::System).section(Section::Tools);
        assert_eq!(builder.finish().sections(), [Section::Tools, Section::System]);
    }
}
