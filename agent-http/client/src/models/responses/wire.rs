//! Wire types of the Responses API's answers, limited to the members that the adapter reads. Members whose type differs
//! between events, items and servers stay JSON until they are needed.

use std::borrow::Cow;
use std::fmt;

use agent_core::message::{SharedJson, Usage};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::token_count::whole_count;

/// Limit on a token count that is believed.
const MAX_TOKEN_COUNT: u64 = u32::MAX as u64;
/// Members of an item that are not sent back: the vendor has not stored the answer, so it knows neither.
const UNSENT_MEMBERS: [&str; 2] = ["id", "status"];

/// One event of a stream.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct StreamEvent<'a> {
    #[serde(borrow, rename = "type")]
    pub kind: Option<&'a RawValue>,
    #[serde(borrow)]
    pub delta: Option<&'a RawValue>,
    #[serde(borrow)]
    pub arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    pub item: Option<&'a RawValue>,
    #[serde(borrow)]
    pub item_id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub output_index: Option<&'a RawValue>,
    #[serde(borrow)]
    pub summary_index: Option<&'a RawValue>,
    #[serde(borrow)]
    pub response: Option<&'a RawValue>,
    #[serde(borrow)]
    pub error: Option<&'a RawValue>,
}

/// An item of an answer.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct WireItem<'a> {
    #[serde(borrow, rename = "type")]
    pub kind: Option<&'a RawValue>,
    #[serde(borrow)]
    pub id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub call_id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub name: Option<&'a RawValue>,
    #[serde(borrow)]
    pub arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    pub content: Option<&'a RawValue>,
}

/// A whole answer, as the last event or a response that is not a stream contains it.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct WireAnswer<'a> {
    #[serde(borrow)]
    pub status: Option<&'a RawValue>,
    #[serde(borrow)]
    pub model: Option<&'a RawValue>,
    #[serde(borrow)]
    pub output: Option<&'a RawValue>,
    #[serde(borrow)]
    pub usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub incomplete_details: Option<&'a RawValue>,
    #[serde(borrow)]
    pub error: Option<&'a RawValue>,
}

/// Returns a string; `None` for other JSON.
pub(super) fn text(json: Option<&RawValue>) -> Option<Cow<'_, str>> {
    let json = json?.get();
    match serde_json::from_str::<&str>(json) {
        Ok(text) => Some(text.into()),
        // It contains escapes.
        Err(_) => serde_json::from_str::<String>(json).ok().map(Cow::from),
    }
}

/// Returns a number; `None` for other JSON.
pub(super) fn number(json: Option<&RawValue>) -> Option<u64> {
    serde_json::from_str(json?.get()).ok()
}

/// Returns the text of a message's content, and true if a part of it is a refusal.
pub(super) fn content_text(content: Option<&RawValue>) -> (String, bool) {
    let content: Value = content.and_then(|json| serde_json::from_str(json.get()).ok()).unwrap_or_default();
    let (mut text, mut is_refusal) = (String::new(), false);
    for part in content.as_array().into_iter().flatten() {
        text.push_str(part["text"].as_str().unwrap_or_default());
        if let Some(refusal) = part["refusal"].as_str() {
            text.push_str(refusal);
            is_refusal = true;
        }
    }
    (text, is_refusal)
}

/// Returns the usage; `None` if it contains no count. Counts that no answer can have are left out.
pub(super) fn usage(usage: Option<&RawValue>, model: Option<String>, provider: &str) -> Option<Usage> {
    let usage: Value = serde_json::from_str(usage?.get()).ok()?;
    let count =
        |path: &str| usage.pointer(path).and_then(whole_count).filter(|count| *count <= MAX_TOKEN_COUNT);
    let counts = Usage {
        input_tokens: count("/input_tokens"),
        cached_input_tokens: count("/input_tokens_details/cached_tokens"),
        output_tokens: count("/output_tokens"),
        reasoning_tokens: count("/output_tokens_details/reasoning_tokens"),
        ..Usage::default()
    };
    let provider = Some(provider.to_owned());
    (counts != Usage::default()).then_some(Usage { model, provider, ..counts })
}

/// Returns an item as it is sent back: without the members that the vendor would not recognize, and otherwise
/// unchanged, in the order and form of its members.
pub(super) fn sent_item(item: &RawValue) -> Result<SharedJson, serde_json::Error> {
    let Members(members) = serde_json::from_str(item.get())?;
    let mut json = String::with_capacity(item.get().len());
    for (name, value) in members.iter().filter(|(name, _)| !UNSENT_MEMBERS.contains(&&**name)) {
        json.push(if json.is_empty() { '{' } else { ',' });
        json.push_str(&serde_json::to_string(name)?);
        json.push(':');
        json.push_str(value.get());
    }
    json.push_str(if json.is_empty() { "{}" } else { "}" });
    Ok(RawValue::from_string(json)?.into())
}

/// The members of an object, in their order.
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor).map(Members)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> &RawValue {
        serde_json::from_str(json).expect("JSON")
    }

    #[test]
    fn an_item_is_sent_back_as_it_came_without_id_and_status() {
        for (item, expected) in [
            (
                r#"{"id":"rs_1","type":"reasoning","summary":[{"id":"x"}],"encrypted_content":"a\/b\u00e9","status":null}"#,
                r#"{"type":"reasoning","summary":[{"id":"x"}],"encrypted_content":"a\/b\u00e9"}"#,
            ),
            (r#"{"b": 1.0e3, "\u0061": [ 1 ],"i\u0064":"rs_1"}"#, r#"{"b":1.0e3,"a":[ 1 ]}"#),
            (r#"{"id":"rs_1"}"#, "{}"),
        ] {
            assert_eq!(sent_item(raw(item)).expect("an object").get(), expected);
        }
        assert!(sent_item(raw("[]")).is_err());
    }

    #[test]
    fn usage_is_read_as_far_as_it_can_be_true() {
        let read = |json: &str| {
            let usage = usage(Some(raw(json)), Some("m".into()), "p")?;
            Some([usage.input_tokens, usage.cached_input_tokens, usage.output_tokens, usage.reasoning_tokens])
        };
        for (json, expected) in [
            (
                r#"{"input_tokens":9,"input_tokens_details":{"cached_tokens":8},"output_tokens":5,"output_tokens_details":{"reasoning_tokens":2}}"#,
                Some([Some(9), Some(8), Some(5), Some(2)]),
            ),
            (r#"{"input_tokens":9223372036854775808,"output_tokens":-5,"input_tokens_details":null}"#, None),
            (r#"{"input_tokens":"9","output_tokens":5}"#, Some([None, None, Some(5), None])),
            (r#"{"input_tokens":9.0,"output_tokens":5.5}"#, Some([Some(9), None, None, None])),
            ("{}", None),
            ("7", None),
        ] {
            assert_eq!(read(json), expected, "{json}");
        }
        assert_eq!(usage(None, None, "p"), None);
    }

    #[test]
    fn texts_and_numbers_are_lent_or_left_out() {
        assert!(matches!(text(Some(raw(r#""a""#))), Some(Cow::Borrowed("a"))));
        assert_eq!(text(Some(raw(r#""\u00e9""#))).as_deref(), Some("é"));
        for other in ["1", "{}", r#""\ud83d""#] {
            assert_eq!(text(Some(raw(other))), None, "{other}");
        }
        assert_eq!(number(Some(raw("7"))), Some(7));
        for other in ["-1", "\"7\"", "1.5", "null"] {
            assert_eq!(number(Some(raw(other))), None, "{other}");
        }
    }
}
