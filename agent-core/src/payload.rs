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
}

impl Payload {
    /// Starts a body for about `capacity` bytes.
    pub fn builder(capacity: usize) -> PayloadBuilder {
        PayloadBuilder { bytes: Vec::with_capacity(capacity), masked: Vec::new(), prompt_tokens: None }
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
        self.each_shown(|slice| shown.extend_from_slice(slice));
        shown
    }

    /// SHA-256 of the shown form, in lower-case hexadecimal.
    pub fn sha256(&self) -> String {
        let mut hasher = Sha256::new();
        self.each_shown(|slice| hasher.update(slice));
        hex(&hasher.finalize())
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

/// Writes a JSON body piece by piece; cached pieces are copied as they are.
pub struct PayloadBuilder {
    bytes: Vec<u8>,
    masked: Vec<Range<usize>>,
    prompt_tokens: Option<usize>,
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

    /// The buffer itself, for writers that append much.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// The finished body.
    pub fn finish(self) -> Payload {
        Payload { bytes: self.bytes.into(), masked: self.masked, prompt_tokens: self.prompt_tokens }
    }
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|b| [DIGITS[(b >> 4) as usize] as char, DIGITS[(b & 15) as usize] as char])
        .collect()
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
        assert_eq!(first.sha256(), hex(&Sha256::digest(first.shown())));
        assert_eq!(first.sha256(), body("other", "t2").sha256());
        assert!(!format!("{first:?}").contains("sk-"));
    }
}
