//! JSON values whose numbers keep the digits of their original text.
//!
//! A [`Value`] has integers of 64 bits and floats of double precision. Other numbers, and those that would be written in another
//! way, such as `1.50`, are marked texts here, which [`write`](fn@write) and [`to_vec`] write as the numbers that they were.

use std::borrow::Cow;

use agent_core::tool::ExecutionContext;
use agent_retrieval::json_numbers::quote_inexact;
use serde::Serialize;
use serde_json::{Map, Number, Value};

/// Beginning of a marked text, a noncharacter of Unicode. It is removed from the texts of the JSON that look like marked ones.
const MARK: &str = "\u{ffff}";
const QUOTED_MARK: &str = "\"\u{ffff}";
/// Beginning of an escape of JSON, and the digits of the mark's in lower case.
const ESCAPE: &str = "\\u";
const MARK_DIGITS: &[u8] = b"ffff";

/// Reads JSON. Numbers that would lose digits are marked texts.
///
/// # Errors
/// Errors of the parser.
pub fn read(json: &str) -> Result<Value, serde_json::Error> {
    let value = serde_json::from_str(json)?;
    Ok(match read_marked(json) {
        Some(marked) => marked,
        None if has_mark(json) => without_own_marks(value),
        None => value,
    })
}

/// Returns true if a text of JSON may contain the mark, also as an escape.
fn has_mark(json: &str) -> bool {
    let is_escape = |(offset, _): (usize, &str)| {
        let digits = json.as_bytes()[offset + ESCAPE.len()..].get(..MARK_DIGITS.len());
        digits.is_some_and(|digits| digits.eq_ignore_ascii_case(MARK_DIGITS))
    };
    json.contains(MARK) || json.match_indices(ESCAPE).any(is_escape)
}

/// Reads valid JSON; `None` if no number needs a mark.
fn read_marked(json: &str) -> Option<Value> {
    let marked = quote_inexact(json, MARK);
    if marked.len() == json.len() {
        return None;
    }
    let marked = serde_json::from_str(&marked).ok()?;
    match has_mark(json) {
        true => Some(with_marks_of(serde_json::from_str(json).ok()?, marked)),
        false => Some(marked),
    }
}

/// Returns the value with marked texts in place of the numbers for which the same JSON, read with marks, has them. The value's own texts
/// are not taken for marked ones.
fn with_marks_of(value: Value, marked: Value) -> Value {
    match (value, marked) {
        (Value::Number(_), marked @ Value::String(_)) => marked,
        (Value::Array(items), Value::Array(marked)) if items.len() == marked.len() => {
            items.into_iter().zip(marked).map(|(item, marked)| with_marks_of(item, marked)).collect()
        }
        (Value::Object(members), Value::Object(mut marked)) => {
            let members = members.into_iter().map(|(name, member)| {
                let marked = marked.get_mut(&name).map(Value::take).unwrap_or_default();
                (without_mark(name), with_marks_of(member, marked))
            });
            members.collect()
        }
        (value, _) => without_own_marks(value),
    }
}

/// Returns a value with the digits of `text` as marked texts, if the text is JSON of the same value. Its own texts are not taken
/// for marked ones.
pub fn with_digits_of(value: Value, text: &str) -> Value {
    let value = without_own_marks(value);
    match read_marked(text) {
        Some(exact) if rounded(exact.clone()) == value => exact,
        _ => value,
    }
}

/// Removes the mark from the texts and names of a value without marked texts that look like one.
fn without_own_marks(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(without_mark(text)),
        Value::Array(items) => items.into_iter().map(without_own_marks).collect(),
        Value::Object(members) => members
            .into_iter()
            .map(|(name, member)| (without_mark(name), without_own_marks(member)))
            .collect(),
        value => value,
    }
}

/// Returns a text, without the mark if it looks like a marked one.
fn without_mark(text: String) -> String {
    number_of(&text).map(str::to_owned).unwrap_or(text)
}

/// Returns the arguments of a call with the digits that the model has written, which the context's text has.
pub fn exact_arguments(arguments: Map<String, Value>, context: &ExecutionContext) -> Map<String, Value> {
    // Other arguments may have taken the place of the model's.
    let text = context.arguments_text.as_deref().unwrap_or_default();
    match with_digits_of(Value::Object(arguments), text) {
        Value::Object(arguments) => arguments,
        _ => Map::new(),
    }
}

/// Returns the value with numbers in place of marked texts, as any reader of JSON has them.
pub fn rounded(value: Value) -> Value {
    match value {
        Value::String(text) => match number_of(&text).and_then(|number| serde_json::from_str(number).ok()) {
            Some(number) => Value::Number(number),
            None => Value::String(text),
        },
        Value::Array(items) => items.into_iter().map(rounded).collect(),
        Value::Object(members) => members.into_iter().map(|(name, member)| (name, rounded(member))).collect(),
        value => value,
    }
}

/// Puts the numbers of `original` in place of those at the same places in `value` that are the same after rounding to double precision, and
/// are written with as few digits as that takes.
pub(crate) fn restore_digits(value: &mut Value, original: &Value) {
    match (value, original) {
        (Value::Object(members), Value::Object(originals)) => {
            for (name, member) in members {
                if let Some(original) = originals.get(name.as_str()) {
                    restore_digits(member, original);
                }
            }
        }
        (Value::Array(items), Value::Array(originals)) if items.len() == originals.len() => {
            items.iter_mut().zip(originals).for_each(|(item, original)| restore_digits(item, original));
        }
        (value, original) if is_rounded(value, original) => value.clone_from(original),
        _ => {}
    }
}

fn is_rounded(value: &Value, original: &Value) -> bool {
    let (Some(value), Some(original)) = (number_text(value), number_text(original)) else { return false };
    let (Ok(number), Ok(rounded)) = (value.parse::<f64>(), original.parse::<f64>()) else { return false };
    number == rounded && significant_digits(&value) == significant_digits(&format!("{rounded:e}"))
}

/// Returns a number as it is written.
fn number_text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::Number(number) => Some(number.to_string().into()),
        Value::String(text) => number_of(text).map(Cow::Borrowed),
        _ => None,
    }
}

/// Returns true for a marked text whose number has another value in double precision.
pub(crate) fn is_inexact(text: &str) -> bool {
    number_of(text).is_some_and(|number| {
        let rounded = number.parse::<f64>().unwrap_or_default();
        significant_digits(number) != significant_digits(&format!("{rounded:e}"))
    })
}

fn significant_digits(number: &str) -> String {
    let mantissa = number.split(['e', 'E']).next().unwrap_or_default();
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    digits.trim_matches('0').to_owned()
}

/// Returns a text, or the number of a marked one.
pub fn text(text: &str) -> &str {
    number_of(text).unwrap_or(text)
}

/// Writes a value as JSON, with numbers in place of marked texts.
pub fn write(value: &Value) -> String {
    without_marks(value.to_string())
}

/// Writes any data as JSON, with numbers in place of marked texts.
///
/// # Errors
/// Errors of the data's serialization.
pub fn to_vec(data: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    Ok(without_marks(serde_json::to_string(data)?).into_bytes())
}

/// Replaces marked texts by their numbers in JSON that was written elsewhere; `None` if it has none.
pub fn unmark(json: &[u8]) -> Option<Vec<u8>> {
    let json = std::str::from_utf8(json).ok().filter(|json| json.contains(QUOTED_MARK))?;
    Some(without_marks(json.to_owned()).into_bytes())
}

fn number_of(text: &str) -> Option<&str> {
    text.strip_prefix(MARK).filter(|number| is_number(number))
}

fn is_number(text: &str) -> bool {
    text.starts_with(|first: char| first == '-' || first.is_ascii_digit())
        && serde_json::from_str::<Number>(text).is_ok()
}

fn without_marks(json: String) -> String {
    if !json.contains(QUOTED_MARK) {
        return json;
    }
    let mut exact = String::with_capacity(json.len());
    let mut rest = json.as_str();
    while let Some((before, after)) = rest.split_once(QUOTED_MARK) {
        exact.push_str(before);
        match after.split_once('"').filter(|(number, _)| is_number(number)) {
            // A quotation mark within a text is escaped.
            Some((number, after)) if !before.ends_with('\\') => {
                exact.push_str(number);
                rest = after;
            }
            // A part of the number was masked.
            _ => {
                exact.push('"');
                rest = after;
            }
        }
    }
    exact.push_str(rest);
    exact
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_written_as_they_were_read() {
        let json =
            r#"{"id":123456789012345678901234,"price":19.90,"s":"1.50","l":[-0.12345678901234567890,7,1E5]}"#;
        let value = read(json).expect("JSON");
        assert_eq!(write(&value), json);
        assert_eq!(to_vec(&value).expect("JSON"), json.as_bytes());
        assert_eq!(unmark(value.to_string().as_bytes()).as_deref(), Some(json.as_bytes()));
        assert_eq!((unmark(json.as_bytes()), unmark(b"\xff\"\xef\xbf\xbf1\"")), (None, None));
        let plain: Value = serde_json::from_str(json).expect("JSON");
        assert_eq!(rounded(value.clone()), plain);
        assert_eq!(with_digits_of(plain.clone(), json), value);
        for other in [r#"{"id":123456789012345678901234}"#, "It is 1.50.", ""] {
            assert_eq!(with_digits_of(plain.clone(), other), plain);
        }
        assert_eq!(value["id"].as_str().map(text), Some("123456789012345678901234"));
        assert_eq!(text("plain"), "plain");
        assert!(read("[1.50, 01.50]").is_err() && read("1e400").is_err());
    }

    #[test]
    fn own_texts_that_look_like_marked_ones_stay_texts() {
        for (json, expected) in [
            ("{\"a\":\"\u{ffff}12\",\"n\":1.50}", r#"{"a":"12","n":1.50}"#),
            (r#"{"a":"\uffff12","n":1.50}"#, r#"{"a":"12","n":1.50}"#),
            (
                r#"{"a":["\uFfFF1.50",1.50,[]],"\uffff7":{"b":[-2.50]}}"#,
                r#"{"a":["1.50",1.50,[]],"7":{"b":[-2.50]}}"#,
            ),
            (r#"{"a":"\uffff12"}"#, r#"{"a":"12"}"#),
            (r#""\uffff12""#, r#""12""#),
        ] {
            assert_eq!(write(&read(json).expect("JSON")), expected, "{json}");
        }
        // The noncharacter within a text stays.
        let json = r#"{"a":"x\uffff12","n":1.50}"#;
        assert_eq!(write(&read(json).expect("JSON")), json.replace(r"\uffff", MARK));
        assert!(!has_mark(r#""\u00ff""#) && !has_mark(r#""\u"#) && has_mark(r#""\uFFFF""#));
    }

    #[test]
    fn a_number_is_inexact_if_its_value_changes() {
        for (number, expected) in [
            ("123456789012345678901234", true),
            ("18446744073709551616", true),
            ("0.12345678901234567890", true),
            ("1e-400", true),
            ("1.50", false),
            ("1e5", false),
            ("-0.00", false),
            ("100000000000000000000", false),
            ("0.1000000000000000055511151231257827", true),
        ] {
            assert_eq!(is_inexact(&format!("{MARK}{number}")), expected, "{number}");
        }
        assert!(!is_inexact("123456789012345678901234") && !is_inexact(MARK));
    }

    #[test]
    fn a_mark_without_a_number_is_left_out() {
        assert_eq!(write(&json!(["\u{ffff}12***", "a\"\u{ffff}12"])), r#"["12***","a\"12"]"#);
    }

    #[test]
    fn arguments_have_the_digits_of_their_own_text() {
        let text = r#"{"id": 123456789012345678901234, "n": 1.50}"#;
        let context = ExecutionContext { arguments_text: Some(text.into()), ..ExecutionContext::default() };
        let arguments: Map<String, Value> = serde_json::from_str(text).expect("JSON");
        let exact = exact_arguments(arguments.clone(), &context);
        assert_eq!(write(&Value::Object(exact)), r#"{"id":123456789012345678901234,"n":1.50}"#);
        // A person has changed the arguments.
        let mut changed = arguments;
        changed.insert("n".to_owned(), json!(2));
        assert_eq!(exact_arguments(changed.clone(), &context), changed);
        assert_eq!(exact_arguments(changed.clone(), &ExecutionContext::default()), changed);
        // Texts that look like marked ones stay texts.
        let text = r#"{"a":["\uffff12",1.50],"\uffff7":"b"}"#;
        let context = ExecutionContext { arguments_text: Some(text.into()), ..ExecutionContext::default() };
        let arguments: Map<String, Value> = serde_json::from_str(text).expect("JSON");
        let exact = exact_arguments(arguments, &context);
        assert_eq!(write(&Value::Object(exact)), r#"{"a":["12",1.50],"7":"b"}"#);
    }
}
