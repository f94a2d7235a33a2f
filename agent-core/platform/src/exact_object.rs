//! JSON objects whose numbers keep the digits of their original text: the arguments and results of tool calls.

use agent_core::message::SharedJson;
use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::exact_json;

/// A JSON object whose numbers keep the digits of their original text, without white space between its members. Equal ones
/// have equal members, in any order. It is read from JSON text; of a [`Value`], and within types that serde buffers, the digits are
/// those of the value.
#[derive(Debug, Clone)]
pub struct ExactObject(SharedJson);

impl ExactObject {
    /// Reads an object; `None` for a text that is none.
    pub fn read(json: &str) -> Option<Self> {
        Self::from_exact(&exact_json::read(json).ok()?)
    }

    fn from_exact(value: &Value) -> Option<Self> {
        let json = value.is_object().then(|| exact_json::write(value))?;
        Some(Self(RawValue::from_string(json).ok()?.into()))
    }

    /// Returns the JSON text.
    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// Returns the object with its numbers as any reader of JSON has them.
    pub fn to_object(&self) -> Map<String, Value> {
        serde_json::from_str(self.text()).unwrap_or_default()
    }

    /// Returns this object with the digits of `original` in the numbers that differ from those at the same places by rounding to
    /// double precision alone. Clients in JavaScript round the numbers that they send back.
    #[must_use]
    pub fn with_digits_of(&self, original: &Self) -> Self {
        if self.text() == original.text() {
            return self.clone();
        }
        let read = |object: &Self| exact_json::read(object.text());
        let (Ok(mut edited), Ok(original)) = (read(self), read(original)) else { return self.clone() };
        exact_json::restore_digits(&mut edited, &original);
        Self::from_exact(&edited).unwrap_or_else(|| self.clone())
    }
}

impl Default for ExactObject {
    fn default() -> Self {
        Self::from(Map::new())
    }
}

impl From<Map<String, Value>> for ExactObject {
    fn from(members: Map<String, Value>) -> Self {
        let json = Value::Object(members).to_string();
        Self(RawValue::from_string(json).expect("plain data serialises into memory").into())
    }
}

impl PartialEq for ExactObject {
    fn eq(&self, other: &Self) -> bool {
        let read = |object: &Self| exact_json::read(object.text()).ok();
        self.text() == other.text() || read(self) == read(other)
    }
}

impl Serialize for ExactObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (*self.0).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ExactObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Box::<RawValue>::deserialize(deserializer)?;
        let wrong = || D::Error::invalid_type(Unexpected::Other("another value"), &"a map");
        Self::read(json.get()).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(json: &str) -> ExactObject {
        ExactObject::read(json).expect("an object")
    }

    #[test]
    fn the_text_keeps_the_digits_and_no_white_space() {
        let given = object("{ \"id\" : 123456789012345678901234, \"n\": [1.50, 7] }");
        assert_eq!(given.text(), r#"{"id":123456789012345678901234,"n":[1.50,7]}"#);
        let stored = serde_json::to_string(&given).expect("JSON");
        assert_eq!(serde_json::from_str::<ExactObject>(&stored).expect("it reads back"), given);
        assert_eq!(given.to_object()["n"], json!([1.5, 7]));
        assert_eq!(given, object(r#"{"n":[1.50,7],"id":123456789012345678901234}"#));
        assert_ne!(given, object(r#"{"n":[1.50,7],"id":123456789012345678901235}"#));
        for other in ["[]", "7", "", "{", "null"] {
            assert!(ExactObject::read(other).is_none(), "{other}");
        }
        assert_eq!(ExactObject::default().text(), "{}");
    }

    /// The edited numbers are those that `JSON.stringify` writes after `JSON.parse`.
    #[test]
    fn numbers_that_a_client_has_rounded_get_their_digits_back() {
        let original = r#"{"id":1234567890123456789,"big":123456789012345678901234,"small":0.12345678901234567890,
            "price":19.90,"list":[9007199254740993,1],"to":{"id":1234567890123456789},"note":"a"}"#;
        let edited = r#"{"id":1234567890123456800,"big":1.2345678901234569e+23,"small":0.12345678901234568,
            "price":19.9,"list":[9007199254740992,1],"to":{"id":1234567890123456800},"note":"b"}"#;
        let restored = object(edited).with_digits_of(&object(original));
        assert_eq!(restored, object(&original.replace("\"a\"", "\"b\"")));
        // A person has changed these.
        for (original, edited) in [
            (r#"{"id":1234567890123456789}"#, r#"{"id":1234567890123456790}"#),
            (r#"{"id":1234567890123456789}"#, r#"{"id":1234567890123457000}"#),
            (r#"{"id":1234567890123456789}"#, r#"{"other":1234567890123456800}"#),
            (r#"{"id":9007199254740992}"#, r#"{"id":9007199254740993}"#),
            (r#"{"id":1234567890123456789}"#, r#"{"id":"1234567890123456800"}"#),
            (r#"{"n":1.5}"#, r#"{"n":1.6}"#),
            (r#"{"n":[1234567890123456789]}"#, r#"{"n":[1,1234567890123456800]}"#),
            (r#"{"n":{}}"#, r#"{"n":1}"#),
        ] {
            let edited = object(edited);
            assert_eq!(edited.with_digits_of(&object(original)), edited, "{original}");
        }
    }
}
