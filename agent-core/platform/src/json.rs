//! Checks of JSON text before it is parsed, and the errors of its deserialization.

mod objects;

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;

pub use objects::objects_only;

/// Returns true if `json` nests deeper than `max_depth`, by counting brackets outside of strings. The result for
/// invalid JSON is meaningless; the parser rejects it.
#[must_use]
pub fn is_deeper_than(max_depth: usize, json: &[u8]) -> bool {
    let mut depth = 0_usize;
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => {
                depth += 1;
                if depth > max_depth {
                    return true;
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => {
                while let Some(byte) = bytes.next() {
                    match byte {
                        b'"' => break,
                        b'\\' => drop(bytes.next()),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    false
}

/// Maximum length of the path that [`find_duplicate_key`] returns, in characters: keys are chosen by the client.
const MAX_PATH_CHARS: usize = 200;

/// Returns the path of the first key that an object of `json` contains twice, such as `messages[2].role`, truncated to
/// 200 characters.
///
/// RFC 8259, section 4, leaves the meaning of such an object open: parsers take the first or the last value, so a filter
/// in front of the server may have checked the other one. Invalid JSON has no duplicates; the parser rejects it. The
/// nesting must be bounded by the caller, since the check recurses.
///
/// ```
/// use agent_platform::json::find_duplicate_key;
///
/// assert_eq!(find_duplicate_key(br#"{"a": [{"b": 1, "b": 2}]}"#).as_deref(), Some("a[0].b"));
/// assert_eq!(find_duplicate_key(br#"{"a": 1, "b": {"a": 2}}"#), None);
/// ```
#[must_use]
pub fn find_duplicate_key(json: &[u8]) -> Option<String> {
    let mut found = None;
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let check = DuplicateCheck { found: &mut found };
    // The error that stops the walk at the first duplicate carries nothing; the path is in `found`.
    let _ = check.deserialize(&mut deserializer);
    found.map(|path| path.chars().take(MAX_PATH_CHARS).collect())
}

/// Walks over one JSON value without building it, and fails at the first duplicate key.
struct DuplicateCheck<'f> {
    /// Path of the duplicate, which each container extends while the error passes it.
    found: &'f mut Option<String>,
}

impl DuplicateCheck<'_> {
    fn nested(&mut self) -> DuplicateCheck<'_> {
        DuplicateCheck { found: self.found }
    }

    /// Prepends the container's part of the path, if the nested value has a duplicate.
    fn extend_path(&mut self, part: &str) {
        if let Some(path) = self.found.as_mut() {
            let dot = if path.starts_with('[') { "" } else { "." };
            *path = format!("{part}{dot}{path}");
        }
    }
}

impl<'de> DeserializeSeed<'de> for DuplicateCheck<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for DuplicateCheck<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let mut keys = KeySet::default();
        while let Some(key) = map.next_key_seed(ObjectKey)? {
            if !keys.insert(key.clone()) {
                *self.found = Some(key.into_owned());
                return Err(A::Error::custom("duplicate key"));
            }
            if let Err(error) = map.next_value_seed(self.nested()) {
                self.extend_path(&key);
                return Err(error);
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        let mut index = 0;
        loop {
            match items.next_element_seed(self.nested()) {
                Ok(Some(())) => index += 1,
                Ok(None) => return Ok(()),
                Err(error) => {
                    self.extend_path(&format!("[{index}]"));
                    return Err(error);
                }
            }
        }
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// Keys of one object. A small number of keys is compared one by one, which is faster than hashing.
#[derive(Default)]
struct KeySet<'de> {
    few: Vec<Cow<'de, str>>,
    many: HashSet<Cow<'de, str>>,
}

impl<'de> KeySet<'de> {
    const MAX_LINEAR_KEYS: usize = 16;

    /// Adds a key; returns false if it is present.
    fn insert(&mut self, key: Cow<'de, str>) -> bool {
        if self.few.contains(&key) {
            return false;
        }
        if self.few.len() < Self::MAX_LINEAR_KEYS {
            self.few.push(key);
            return true;
        }
        self.many.insert(key)
    }
}

/// Deserializes an object's key, borrowed if it has no escapes.
struct ObjectKey;

impl<'de> DeserializeSeed<'de> for ObjectKey {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Cow<'de, str>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for ObjectKey {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(key))
    }

    fn visit_str<E>(self, key: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(key.to_owned()))
    }
}

/// Message of `serde_json` for a value of the wrong type in place of the name of an enum's variant.
const NOT_A_VARIANT: &str = "expected value";

/// Maximum length of the description of an invalid schema, in bytes: its names are chosen by the client.
const MAX_SCHEMA_MESSAGE_BYTES: usize = 500;

/// Returns true if `json`, whose deserialization ended with `error`, is not well-formed. `serde_json` counts some values of
/// the wrong type as errors of syntax, too, such as a number in place of the name of an enum's variant.
#[must_use]
pub fn is_syntax_error(json: &[u8], error: &serde_json::Error) -> bool {
    let is_well_formed =
        || str::from_utf8(json).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok());
    error.classify() != Category::Data && !is_well_formed()
}

/// Returns the message of an error of well-formed JSON, with `expected value` of `serde_json` in the form of serde's other
/// messages.
#[must_use]
pub(crate) fn normalize_serde_message(message: String) -> String {
    if message == NOT_A_VARIANT { "invalid type, expected a string".to_owned() } else { message }
}

/// Rewrites a serde error message without quoted input, worded to follow the path of the value. The input that serde
/// quotes precedes the last `, expected `, and what follows it comes from our own types. Other messages are kept only
/// if they name our fields.
#[must_use]
pub fn redact_serde_message(message: &str) -> String {
    let message = message.rsplit_once(" at line ").map_or(message, |(message, _)| message);
    let message = normalize_serde_message(message.to_owned());
    if let Some((received, expected)) = message.rsplit_once(", expected ") {
        if received.starts_with("unknown field ") {
            return format!("is not a known field; expected {expected}");
        }
        return format!("must be {}", json_type_name(expected));
    }
    // The text of a type that has several forms, which is ours.
    if let Some(forms) = message.strip_prefix("expected an array of ") {
        return format!("must be an array of {forms}");
    }
    match message.split_once(" field `") {
        Some(("missing", field)) => format!("is missing the field `{field}"),
        Some(("duplicate", field)) => format!("has the field `{field} twice"),
        _ if message.starts_with("data did not match any variant") => {
            "matches none of the accepted formats".to_owned()
        }
        _ => "is not a valid value".to_owned(),
    }
}

/// Describes why a value is not a JSON Schema, and where in it, worded to follow the path of the schema. Its values are not
/// repeated.
pub(crate) fn invalid_schema_message(error: &jsonschema::ValidationError<'_>) -> String {
    let pointer = error.instance_path().as_str();
    let location = if pointer.is_empty() { String::new() } else { format!(" at {pointer}") };
    let mut message = format!("is not a valid JSON Schema{location}: {}", error.masked());
    message.truncate(message.floor_char_boundary(MAX_SCHEMA_MESSAGE_BYTES));
    message
}

/// Returns the name of a type as JSON has it, from that in a message of serde.
fn json_type_name(expected: &str) -> &str {
    match expected {
        "a boolean" | "a string" => expected,
        "string or map" | "variant identifier" => "a string",
        "a sequence" => "an array",
        "a map" => "an object",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a non-negative integer",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "a nonzero u16" => "a whole number from 1 to 65535",
        "a nonzero u32" | "a nonzero u64" => "a positive integer",
        "f32" | "f64" => "a number",
        "unit" => "null",
        _ if expected.contains("tuple ") => "an array of the right length",
        _ if expected.starts_with("struct ") || expected.starts_with("internally tagged enum ") => {
            "an object"
        }
        _ if expected.starts_with("one of ") || expected.contains('`') => expected,
        _ => "of another type",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_keys_are_found_by_their_path() {
        let many = |last: &str| {
            let keys: Vec<_> = (0..40).map(|i| format!("\"k{i}\":{i}")).collect();
            format!("{{{},\"{last}\":0}}", keys.join(","))
        };
        let cases = [
            (r#"{}"#.to_owned(), None),
            (r#"{"a":1,"b":{"a":1},"c":[{"a":1},{"a":1}]}"#.into(), None),
            (r#"{"a":1,"a":1}"#.into(), Some("a")),
            (r#"{"a":1,"\u0061":1}"#.into(), Some("a")),
            (r#"{"a":[1,{"b":{"c":null,"c":0.5}}]}"#.into(), Some("a[1].b.c")),
            (r#"[[{"a":true,"a":-1}]]"#.into(), Some("[0][0].a")),
            (many("k3"), Some("k3")),
            (many("k33"), Some("k33")),
            (many("k40"), None),
            (r#"{"a":1,"a""#.into(), Some("a")),
            ("{\"a\":".into(), None),
            (String::new(), None),
        ];
        for (json, expected) in cases {
            assert_eq!(find_duplicate_key(json.as_bytes()).as_deref(), expected, "{json:.80}");
        }
        let long = format!(r#"{{"{0}":1,"{0}":2}}"#, "ü".repeat(500));
        assert_eq!(find_duplicate_key(long.as_bytes()).map(|path| path.chars().count()), Some(200));
    }

    #[test]
    fn zero_is_described_where_it_is_not_a_value() {
        let described = |error: serde_json::Error| redact_serde_message(&error.to_string());
        let days = serde_json::from_str::<std::num::NonZeroU16>("0").expect_err("no day");
        assert_eq!(described(days), "must be a whole number from 1 to 65535");
        let runs = serde_json::from_str::<std::num::NonZeroU32>("0").expect_err("no run");
        assert_eq!(described(runs), "must be a positive integer");
    }
}
