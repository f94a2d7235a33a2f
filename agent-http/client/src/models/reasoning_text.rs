//! Reasoning in the answers of providers, whose form differs between providers.

use std::fmt;

use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Members of an object that contain its reasoning. The first one counts. Others are signatures and types.
const TEXT_MEMBERS: [&str; 5] = ["text", "thinking", "reasoning", "content", "summary"];

/// Text of a model's reasoning: a string, an object with the text, or a list of these. A value of another shape is read as
/// empty and does not fail the answer, since reasoning is not needed for it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ReasoningText(pub(super) String);

impl<'de> Deserialize<'de> for ReasoningText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ReasoningVisitor).map(Self)
    }
}

struct ReasoningVisitor;

impl<'de> Visitor<'de> for ReasoningVisitor {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_string<E: Error>(self, text: String) -> Result<String, E> {
        Ok(text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<String, A::Error> {
        let mut text = String::new();
        while let Some(ReasoningText(part)) = parts.next_element()? {
            text.push_str(&part);
        }
        Ok(text)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<String, A::Error> {
        let mut text = String::new();
        while let Some(name) = members.next_key::<String>()? {
            if text.is_empty() && TEXT_MEMBERS.contains(&name.as_str()) {
                ReasoningText(text) = members.next_value()?;
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(text)
    }

    fn visit_unit<E>(self) -> Result<String, E> {
        Ok(String::new())
    }

    fn visit_bool<E>(self, _: bool) -> Result<String, E> {
        Ok(String::new())
    }

    fn visit_i64<E>(self, _: i64) -> Result<String, E> {
        Ok(String::new())
    }

    fn visit_u64<E>(self, _: u64) -> Result<String, E> {
        Ok(String::new())
    }

    fn visit_f64<E>(self, _: f64) -> Result<String, E> {
        Ok(String::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasoning_is_read_in_every_shape() {
        for (json, expected) in [
            (r#""Hm \"so\"""#, "Hm \"so\""),
            (r#"[{"type":"text","text":"H"},"m",null,7]"#, "Hm"),
            (r#"{"type":"thinking","thinking":"Hm","signature":"x"}"#, "Hm"),
            (r#"{"thinking":[{"type":"text","text":"Hm"}]}"#, "Hm"),
            (r#"{"content":"","text":"Hm","summary":["other"]}"#, "Hm"),
            (
                r#"{"summary":[{"type":"summary_text","text":"H"},{"text":"m"}],"encrypted_content":"x"}"#,
                "Hm",
            ),
            ("{}", ""),
            ("null", ""),
            ("true", ""),
            ("-1", ""),
            ("1.5", ""),
            (r#"{"text":{"other":["Hm"]}}"#, ""),
        ] {
            let read: ReasoningText = serde_json::from_str(json).expect(json);
            assert_eq!(read.0, expected, "{json}");
        }
    }
}
