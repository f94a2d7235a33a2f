//! Immutable texts with cached derived forms.

use std::sync::{Arc, OnceLock};

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::budget::{TokenCountCache, TokenCounter};

/// An immutable text that caches its derived forms: its JSON string, its hash and its token counts.
#[derive(Debug)]
pub struct Part {
    text: String,
    json: OnceLock<Box<str>>,
    sha256: OnceLock<Arc<str>>,
    tokens: TokenCountCache,
}

impl Part {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Arc<Self> {
        Arc::new(Self::from_text(text.into()))
    }

    pub(super) fn from_text(text: String) -> Self {
        Self { text, json: OnceLock::new(), sha256: OnceLock::new(), tokens: TokenCountCache::default() }
    }

    /// Returns the text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the text escaped for a JSON string, without the quotes.
    pub fn json(&self) -> &str {
        self.json.get_or_init(|| {
            let quoted = serde_json::to_string(&self.text).expect("a string serialises");
            quoted[1..quoted.len() - 1].into()
        })
    }

    /// Returns the SHA-256 of the text, in lower-case hexadecimal.
    pub fn sha256(&self) -> &Arc<str> {
        self.sha256.get_or_init(|| hex::encode(Sha256::digest(&self.text)).into())
    }

    /// Returns the text's tokens by `counter`. Counted once per counter.
    pub fn tokens(&self, counter: &dyn TokenCounter) -> usize {
        self.tokens.get(counter.id(), || counter.count(&self.text))
    }
}

/// Identifier and hash of a part of the prefix, for comparing two prompts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartHash {
    /// The fragment's identifier, or `tool:` and the tool's name.
    pub id: Arc<str>,
    /// SHA-256 of its text or definition, in lower-case hexadecimal.
    pub sha256: Arc<str>,
}
