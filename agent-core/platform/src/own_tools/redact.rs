//! Masking of a tool's secrets in the responses of its server.

use agent_core::secret::Secret;
use serde_json::Value;

/// Minimum length of a secret that is masked, in bytes: shorter ones occur in other words.
const MIN_SECRET_BYTES: usize = 6;

/// Secrets of one call.
#[derive(Default)]
pub(super) struct Redactor(Vec<Secret>);

impl Redactor {
    /// Adds a secret.
    pub(super) fn add(&mut self, secret: Secret) {
        if secret.expose().len() >= MIN_SECRET_BYTES {
            self.0.push(secret);
        }
    }

    /// Returns the text with each secret replaced by its mask.
    pub(super) fn text(&self, mut text: String) -> String {
        for secret in &self.0 {
            if text.contains(secret.expose()) {
                text = text.replace(secret.expose(), Secret::MASK);
            }
        }
        text
    }

    /// Masks the secrets in the texts and keys of a JSON value.
    pub(super) fn value(&self, value: Value) -> Value {
        if self.0.is_empty() {
            return value;
        }
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(items) => items.into_iter().map(|item| self.value(item)).collect(),
            Value::Object(fields) => {
                fields.into_iter().map(|(name, value)| (self.text(name), self.value(value))).collect()
            }
            value => value,
        }
    }
}
