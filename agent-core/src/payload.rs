//! Request bytes with redacted ranges.
//!
//! A payload holds the exact bytes to send. They contain keys, run tokens, thread and run ids in plain text; the
//! **shown form** replaces these with `***`. Previews print the shown form, and [`Payload::sha256`] is its hash, so
//! that a preview can be proved to be what was sent without knowledge of the secrets.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::value::{RawValue, to_raw_value};
use sha2::{Digest, Sha256};

/// Placeholder for redacted bytes.
pub const REDACTED: &str = "***";

/// A request body that is ready to send.
#[derive(Clone, Default)]
pub struct Payload {
    bytes: Bytes,
    redacted_ranges: Vec<Range<usize>>,
    prompt_tokens: Option<usize>,
    /// Position of the limit on the answer.
    output_limit: Option<Range<usize>>,
    sections: Vec<PromptSection>,
    attachments: Vec<Arc<dyn Any + Send + Sync>>,
    is_json: bool,
    /// Hash of the shown form, which clones share. It is computed once the bytes are complete.
    sha256: Arc<OnceLock<String>>,
}

/// Section at the start of a request, which providers' prompt caches keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PromptSection {
    /// The system prompt.
    System,
    /// The definitions of the tools.
    Tools,
}

impl Payload {
    /// Creates a builder for a body of about `capacity` bytes.
    pub fn builder(capacity: usize) -> PayloadBuilder {
        let payload = Self { is_json: true, ..Self::default() };
        PayloadBuilder { bytes: Vec::with_capacity(capacity), payload }
    }

    /// Creates a body that is not JSON, such as a prompt rendered by a template. Nothing in it is redacted.
    pub fn text(text: impl Into<String>) -> Self {
        Self { bytes: text.into().into(), ..Self::default() }
    }

    /// Returns true if the body is JSON, as is every body of a [`builder`](Self::builder).
    pub fn is_json(&self) -> bool {
        self.is_json
    }

    /// Returns the sections in their order in the body, as far as the creator of the body has recorded them.
    pub fn sections(&self) -> &[PromptSection] {
        &self.sections
    }

    /// Returns the prompt's tokens by the platform's count, if they were recorded. The number is not sent.
    pub fn prompt_tokens(&self) -> Option<usize> {
        self.prompt_tokens
    }

    /// Returns the latest value of type `T` that was attached for the answer's reader. It is not sent.
    pub fn attachment<T: Any>(&self) -> Option<&T> {
        self.attachments.iter().rev().find_map(|value| value.downcast_ref())
    }

    /// Adds a value for the reader of the answer; see [`attachment`](Self::attachment).
    pub fn with_attachment(mut self, value: impl Any + Send + Sync) -> Self {
        self.attachments.push(Arc::new(value));
        self
    }

    /// Returns the payload with another limit on the answer, in tokens; `None` if the position of the limit was not recorded.
    pub fn with_output_limit(&self, tokens: u64) -> Option<Self> {
        let (limit, digits) = (self.output_limit.clone()?, tokens.to_string());
        let bytes = [&self.bytes[..limit.start], digits.as_bytes(), &self.bytes[limit.end..]].concat().into();
        let shift = |index: usize| if index < limit.end { index } else { index - limit.len() + digits.len() };
        let redacted_ranges = self.redacted_ranges.iter().map(|range| shift(range.start)..shift(range.end));
        let (redacted_ranges, output_limit) =
            (redacted_ranges.collect(), Some(limit.start..shift(limit.end)));
        Some(Self { bytes, redacted_ranges, output_limit, sha256: Arc::default(), ..self.clone() })
    }

    /// Returns the bytes as they are sent, secrets included.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns the bytes to send.
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// Returns the shown form.
    pub fn redacted(&self) -> Vec<u8> {
        let mut redacted = Vec::with_capacity(self.bytes.len());
        self.for_each_redacted(|slice| redacted.extend_from_slice(slice));
        redacted
    }

    /// Returns the shown form as a JSON value: byte for byte if the body is one JSON value, else as a string.
    pub fn redacted_json(&self) -> Box<RawValue> {
        let text = String::from_utf8_lossy(&self.redacted()).into_owned();
        match serde_json::from_str::<&RawValue>(&text) {
            Ok(json) if self.is_json => json.to_owned(),
            _ => to_raw_value(&text).expect("a string serialises into memory"),
        }
    }

    /// Returns the SHA-256 hash of the shown form, in lower-case hexadecimal.
    pub fn sha256(&self) -> String {
        let compute = || {
            let mut hasher = Sha256::new();
            self.for_each_redacted(|slice| hasher.update(slice));
            hex::encode(hasher.finalize())
        };
        self.sha256.get_or_init(compute).clone()
    }

    fn for_each_redacted(&self, mut visit: impl FnMut(&[u8])) {
        let mut from = 0;
        for range in &self.redacted_ranges {
            visit(&self.bytes[from..range.start]);
            visit(REDACTED.as_bytes());
            from = range.end;
        }
        visit(&self.bytes[from..]);
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.redacted()))
    }
}

/// Writes a JSON body in pieces; cached pieces are copied unchanged. Previews copy the body as well, so the result must
/// be one complete JSON value; use [`Payload::text`] for any other body.
pub struct PayloadBuilder {
    bytes: Vec<u8>,
    /// The payload without its bytes.
    payload: Payload,
}

impl PayloadBuilder {
    /// Appends JSON text unchanged.
    pub fn raw(&mut self, json: &str) -> &mut Self {
        self.bytes.extend_from_slice(json.as_bytes());
        self
    }

    /// Appends a value, serialized as JSON.
    pub fn json(&mut self, value: &impl serde::Serialize) -> &mut Self {
        serde_json::to_writer(&mut self.bytes, value).expect("plain data serialises into memory");
        self
    }

    /// Appends a JSON string whose content is redacted in the shown form.
    pub fn secret(&mut self, secret: &str) -> &mut Self {
        self.partly_secret([Err(secret)])
    }

    /// Appends a JSON string whose `Err` parts are redacted in the displayed form. Each part is escaped on its own.
    pub fn partly_secret<'a>(
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
                self.payload.redacted_ranges.push(start..self.bytes.len());
            }
        }
        self.bytes.push(b'"');
        self
    }

    /// Records the prompt's tokens by the platform's count, for comparison with the usage that the provider reports.
    pub fn prompt_tokens(&mut self, tokens: Option<usize>) -> &mut Self {
        self.payload.prompt_tokens = tokens;
        self
    }

    /// Appends the limit on the answer, in tokens, and records its position.
    pub fn output_limit(&mut self, tokens: usize) -> &mut Self {
        let start = self.bytes.len();
        self.json(&tokens);
        self.payload.output_limit = Some(start..self.bytes.len());
        self
    }

    /// Records that a section starts here, to determine the order of sections in a provider's prompt cache.
    pub fn section(&mut self, section: PromptSection) -> &mut Self {
        if !self.payload.sections.contains(&section) {
            self.payload.sections.push(section);
        }
        self
    }

    /// Attaches a value for the reader of the answer; see [`Payload::attachment`].
    pub fn attach(&mut self, value: impl Any + Send + Sync) -> &mut Self {
        self.payload.attachments.push(Arc::new(value));
        self
    }

    /// Returns the buffer, for writers that append large parts.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Returns the finished payload.
    pub fn finish(self) -> Payload {
        Payload { bytes: self.bytes.into(), ..self.payload }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shown_form_masks_and_the_hash_is_of_the_shown_form() {
        let body = |key: &str, run: &str| {
            let mut builder = Payload::builder(64);
            builder.raw(r#"{"apiKey":"#).secret(key).raw(r#","url":"#);
            builder.partly_secret([Ok("http://h/?token="), Err(run), Ok("&a=1")]).raw("}");
            builder.finish()
        };
        let first = body("sk-\"1\"", "t1");
        assert_eq!(first.bytes(), r#"{"apiKey":"sk-\"1\"","url":"http://h/?token=t1&a=1"}"#);
        assert_eq!(first.redacted(), br#"{"apiKey":"***","url":"http://h/?token=***&a=1"}"#);
        assert_eq!(first.sha256(), hex::encode(Sha256::digest(first.redacted())));
        assert_eq!(first.sha256(), body("other", "t2").sha256());
        assert!(!format!("{first:?}").contains("sk-"));
    }

    #[test]
    fn a_lower_limit_masks_the_same_text() {
        let mut builder = Payload::builder(64);
        builder.raw(r#"{"a":"#).secret("k1").raw(r#","n":"#).output_limit(16_000);
        builder.raw(r#","b":"#).secret("k2").raw("}");
        let first = builder.finish();
        for tokens in [7, 300, 123_456_789] {
            let limited = first.with_output_limit(500).and_then(|limited| limited.with_output_limit(tokens));
            let limited = limited.expect("a recorded position");
            assert_eq!(limited.bytes(), &format!(r#"{{"a":"k1","n":{tokens},"b":"k2"}}"#));
            assert_eq!(limited.redacted(), format!(r#"{{"a":"***","n":{tokens},"b":"***"}}"#).into_bytes());
            assert_ne!(limited.sha256(), first.sha256());
        }
        assert!(Payload::text("16000").with_output_limit(7).is_none());
    }

    #[test]
    fn a_payload_is_shown_as_it_is_or_as_text() {
        let json = |payload: Payload| payload.redacted_json().get().to_owned();
        let mut builder = Payload::builder(32);
        builder.raw(r#"{"b": 1.0,  "a":"\u00e4"}"#);
        assert_eq!(json(builder.finish()), r#"{"b": 1.0,  "a":"\u00e4"}"#);
        assert_eq!(json(Payload::text("<s>\"hi\"")), r#""<s>\"hi\"""#);
        assert_eq!(json(Payload::text("")), r#""""#);
    }

    #[test]
    fn an_attachment_is_found_by_its_type_and_not_sent() {
        let mut builder = Payload::builder(2);
        builder.raw("{}");
        let payload = builder.finish().with_attachment("for the reader");
        assert_eq!(payload.attachment::<&str>(), Some(&"for the reader"));
        assert_eq!(payload.attachment::<String>(), None);
        assert_eq!((payload.bytes(), payload.redacted()), (&Bytes::from("{}"), b"{}".to_vec()));
        assert_eq!(Payload::text("").attachment::<&str>(), None);
    }

    #[test]
    fn sections_are_in_the_order_in_which_they_began() {
        let mut builder = Payload::builder(0);
        builder.section(PromptSection::Tools).section(PromptSection::System).section(PromptSection::Tools);
        assert_eq!(builder.finish().sections(), [PromptSection::Tools, PromptSection::System]);
    }
}
