//! Stored entries of a journal, and the digest of a call.

use std::fmt::Write as _;

use agent_core::message::ProviderItem;
use agent_core::tool::ToolOutput;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

/// Maximum size of a recorded text, in bytes; a longer one is truncated. With escapes it stays below the limit of a
/// stored value.
pub(super) const MAX_RECORDED_TEXT_BYTES: usize = 256 * 1024;
/// Maximum size of a structured result, in bytes of JSON; a longer one is not recorded.
const MAX_STRUCTURED_BYTES: usize = 256 * 1024;
/// Hexadecimal digits of a call's digest: 128 bits.
const DIGEST_DIGITS: usize = 32;

/// An entry of a journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum JournalEntry {
    /// Answer of a model that calls tools.
    Answer {
        /// Text before the calls.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        text: String,
        /// The calls, in their order.
        calls: Vec<RecordedCall>,
        /// Items in the provider's own format.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        provider_items: Vec<RecordedItem>,
    },
    /// Tool call that was started; its outcome is unknown.
    Begun,
    /// Tool call whose effect is committed with this entry; its result is not recorded.
    Committed,
    /// Tool call that has returned.
    Returned {
        /// Text for the model.
        text: String,
        /// The structured result.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        structured: Option<Value>,
        /// True if the call failed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

/// Tool call in a recorded answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RecordedCall {
    /// Identifier from the provider.
    pub(super) id: String,
    /// The tool's name.
    pub(super) name: String,
    /// The arguments as JSON text, as the model wrote them.
    pub(super) arguments: String,
}

/// Item in the provider's own format in a recorded answer; see [`ProviderItem`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RecordedItem {
    /// The item as JSON text: an entry's representation cannot contain raw JSON.
    json: String,
    text_before: usize,
    calls_before: usize,
}

impl From<&ProviderItem> for RecordedItem {
    fn from(item: &ProviderItem) -> Self {
        let ProviderItem { json, text_before, calls_before } = item;
        Self { json: json.get().to_owned(), text_before: *text_before, calls_before: *calls_before }
    }
}

impl RecordedItem {
    /// Returns the item; `None` if the text is not JSON.
    pub(super) fn into_item(self) -> Option<ProviderItem> {
        let Self { json, text_before, calls_before } = self;
        let json = RawValue::from_string(json).ok()?.into();
        Some(ProviderItem { json, text_before, calls_before })
    }
}

impl JournalEntry {
    /// Creates the entry of a call that has returned.
    pub(super) fn returned(output: &ToolOutput) -> Self {
        let structured = output.structured.clone();
        let structured = structured.filter(|value| value.to_string().len() <= MAX_STRUCTURED_BYTES);
        let text = truncated(&output.text);
        Self::Returned { text, structured, is_error: output.is_error }
    }
}

/// Returns a text of at most [`MAX_RECORDED_TEXT_BYTES`].
pub(super) fn truncated(text: &str) -> String {
    if text.len() <= MAX_RECORDED_TEXT_BYTES {
        return text.to_owned();
    }
    let prefix = &text[..text.floor_char_boundary(MAX_RECORDED_TEXT_BYTES)];
    format!("{prefix}\n[truncated: {} bytes in total]", text.len())
}

/// Returns the digest of a call: of its tool's name and its arguments regardless of the order of their members.
pub(super) fn call_digest(name: &str, arguments: &Value) -> String {
    let mut arguments = arguments.clone();
    arguments.sort_all_objects();
    let digest = Sha256::new().chain_update(name).chain_update([0]).chain_update(arguments.to_string());
    let mut text = String::with_capacity(2 * DIGEST_DIGITS);
    for byte in &digest.finalize()[..DIGEST_DIGITS / 2] {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_digest_depends_on_the_name_and_the_values() {
        let of = |name: &str, arguments: Value| call_digest(name, &arguments);
        let digest = of("t", json!({"a": 1, "b": {"c": 2, "d": 3}}));
        assert_eq!(digest.len(), DIGEST_DIGITS);
        assert_eq!(digest, of("t", json!({"b": {"d": 3, "c": 2}, "a": 1})));
        for other in [
            of("u", json!({"a": 1, "b": {"c": 2, "d": 3}})),
            of("t", json!({"a": 2, "b": {"c": 2, "d": 3}})),
            of("t", json!({})),
        ] {
            assert_ne!(digest, other);
        }
    }

    #[test]
    fn a_long_result_is_kept_in_part() {
        let output = ToolOutput {
            structured: Some(json!("y".repeat(300_000))),
            ..ToolOutput::text("ü".repeat(200_000))
        };
        let JournalEntry::Returned { text, structured: None, is_error: false } =
            JournalEntry::returned(&output)
        else {
            panic!("the text alone")
        };
        assert!(
            text.len() < MAX_RECORDED_TEXT_BYTES + 100
                && text.ends_with("[truncated: 400000 bytes in total]")
        );
    }

    #[test]
    fn an_entry_without_items_has_the_form_of_older_versions() {
        let older = r#"{"is":"answer","text":"a","calls":[{"id":"1","name":"x","arguments":"{}"}]}"#;
        let entry: JournalEntry = serde_json::from_str(older).expect("an entry");
        let JournalEntry::Answer { provider_items, .. } = &entry else { panic!("{entry:?}") };
        assert_eq!(*provider_items, []);
        assert_eq!(serde_json::to_string(&entry).expect("plain data"), older);
    }
}
