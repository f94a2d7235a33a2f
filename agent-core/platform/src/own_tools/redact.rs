//! Masking of a tool's secrets in the responses of its server.

use agent_core::secret::Secret;
use serde_json::Value;

/// Minimum length of a secret that is masked, in bytes: shorter ones occur in other words.
const MIN_SECRET_BYTES: usize = 6;

/// Secrets of one call.
#[derive(Default)]
pub(super) struct Redactor(Vec<Secret>);

impl Redactor {
    /// Adds a secret, as it is and as it is escaped in JSON: a text may be JSON, or quote it.
    pub(super) fn add(&mut self, secret: Secret) {
        let plain = secret.expose();
        if plain.len() < MIN_SECRET_BYTES {
            return;
        }
        let quoted = Value::from(plain).to_string();
        let escaped = quoted[1..quoted.len() - 1].to_owned();
        // Some serializers escape slashes as well.
        let with_slashes = escaped.replace('/', "\\/");
        for form in [escaped, with_slashes] {
            if form != plain {
                self.0.push(Secret::new(form));
            }
        }
        self.0.push(secret);
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_secret_is_masked_in_json_that_a_text_quotes() {
        let mut redactor = Redactor::default();
        redactor.add(Secret::new("pass\"word/1".to_owned()));
        redactor.add(Secret::new("short".to_owned()));
        for text in ["pass\"word/1", r#"{"key": "pass\"word/1"}"#, r#"{"key": "pass\"word\/1"}"#] {
            let masked = redactor.text(format!("seen: {text}, short"));
            assert!(masked.contains(Secret::MASK) && !masked.contains("word"), "{masked}");
            assert!(masked.ends_with(", short"), "{masked}");
        }
        assert_eq!(redactor.value(json!({"pass\"word/1": [1]})), json!({"***": [1]}));
    }
}
