//! JSON documents as lines `path: value`.

use std::borrow::Cow;
use std::fmt::Write;

use agent_retrieval::analysis::is_hidden;
use agent_retrieval::document::TextFormat;
use agent_retrieval::extract::{ExtractError, ExtractedDocument};
use agent_retrieval::json_numbers::quote_inexact;
use serde_json::{Map, Value};

use crate::encoding::decode;
use crate::json_lines::{is_json_lines, records};
use crate::limits::ExtractionLimits;
use crate::text_builder::TextBuilder;

/// Maximum length of a name in a path, and of a path, in bytes. Each line repeats it.
const MAX_NAME_BYTES: usize = 200;
const MAX_PATH_BYTES: usize = 1_000;

/// Extracts a JSON document, or one with an object in each line. The scalar members of an object share a line, so that a record
/// stays together.
pub(crate) fn extract(bytes: &[u8], limits: &ExtractionLimits) -> Result<ExtractedDocument, ExtractError> {
    let text = decode(bytes);
    let mut lines = JsonLines { builder: TextBuilder::new(limits), max_depth: limits.max_depth };
    if is_json_lines(&text) {
        for (index, record) in records(&text).enumerate() {
            lines.push_value(&format!("[{index}]"), &parse(record)?, 0)?;
        }
        return Ok(lines.builder.finish(None, TextFormat::Plain));
    }
    let value = parse(&text)?;
    lines.push_value("", &value, 0)?;
    let title = value.get("title").or_else(|| value.get("name")).and_then(Value::as_str);
    Ok(lines.builder.finish(title, TextFormat::Plain))
}

/// Parses a JSON text, whose numbers keep their digits.
fn parse(text: &str) -> Result<Value, ExtractError> {
    let value = match serde_json::from_str(text) {
        // A number beyond double precision, which the exact text has as it is written.
        Err(error) if error.to_string().starts_with("number out of range") => Value::Null,
        parsed => parsed.map_err(parse_error)?,
    };
    if let Cow::Owned(exact) = quote_inexact(text, "") {
        // The values of a document take several times its size: those with other numbers go first.
        drop(value);
        return serde_json::from_str(&exact).map_err(parse_error);
    }
    Ok(value)
}

/// Converts an error, without the text of the document that its message may contain.
fn parse_error(error: serde_json::Error) -> ExtractError {
    if error.to_string().starts_with("recursion limit exceeded") {
        return ExtractError::LimitExceeded("the nesting of values".to_owned());
    }
    ExtractError::Malformed(format!("not valid JSON at line {}, column {}", error.line(), error.column()))
}

struct JsonLines {
    builder: TextBuilder,
    max_depth: usize,
}

impl JsonLines {
    fn push_value(&mut self, path: &str, value: &Value, depth: usize) -> Result<(), ExtractError> {
        if depth > self.max_depth {
            return Err(ExtractError::LimitExceeded("the nesting of values".to_owned()));
        }
        match value {
            Value::Object(members) => self.push_object(path, members, depth),
            Value::Array(items) => self.push_array(path, items, depth),
            scalar => self.push_line(path, &text_of(scalar)),
        }
    }

    fn push_object(
        &mut self,
        path: &str,
        members: &Map<String, Value>,
        depth: usize,
    ) -> Result<(), ExtractError> {
        let mut line = String::new();
        for (name, value) in members.iter().filter(|(_, value)| is_scalar(value) && !value.is_null()) {
            let separator = if line.is_empty() { "" } else { "; " };
            // Writing to a string cannot fail.
            let _ = write!(line, "{separator}{name}: {}", text_of(value));
        }
        if !line.is_empty() {
            self.push_line(path, &line)?;
        }
        for (name, value) in members.iter().filter(|(_, value)| !is_scalar(value)) {
            self.push_value(&child_path(path, name), value, depth + 1)?;
        }
        Ok(())
    }

    fn push_array(&mut self, path: &str, items: &[Value], depth: usize) -> Result<(), ExtractError> {
        if items.iter().all(is_scalar) {
            let values: Vec<String> = items.iter().map(text_of).collect();
            return self.push_line(path, &values.join(", "));
        }
        for (index, item) in items.iter().enumerate() {
            let child =
                if path.len() < MAX_PATH_BYTES { format!("{path}[{index}]") } else { path.to_owned() };
            self.push_value(&child, item, depth + 1)?;
        }
        Ok(())
    }

    fn push_line(&mut self, path: &str, text: &str) -> Result<(), ExtractError> {
        if !path.is_empty() {
            self.builder.push(path)?;
            self.builder.push(": ")?;
        }
        self.builder.push(text)?;
        self.builder.push("\n")
    }
}

/// Returns the path of a member. A long name is cut, and a name after a path of the maximum length is left out.
fn child_path(path: &str, name: &str) -> String {
    let visible = name.chars().filter(|&character| !is_hidden(character));
    let mut name: String = visible.take(MAX_NAME_BYTES).collect();
    name.truncate(name.floor_char_boundary(MAX_NAME_BYTES));
    match path.len() {
        0 => name,
        MAX_PATH_BYTES.. => path.to_owned(),
        _ => format!("{path}.{name}"),
    }
}

fn is_scalar(value: &Value) -> bool {
    !matches!(value, Value::Object(_) | Value::Array(_))
}

fn text_of(scalar: &Value) -> String {
    match scalar {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of_json(json: &str) -> Result<String, ExtractError> {
        extract(json.as_bytes(), &ExtractionLimits::default()).map(|extraction| extraction.document.text)
    }

    #[test]
    fn records_stay_together() {
        let json = r#"{"name": "Handbook", "users": [{"id": 1, "tags": ["a", "b"], "city": "Bonn"}, {"id": 2, "at": null}],
            "limits": {"rate": {"burst": 10, "on": true}}, "empty": {}}"#;
        let extraction = extract(json.as_bytes(), &ExtractionLimits::default()).unwrap();
        let expected = "name: Handbook\nusers[0]: id: 1; city: Bonn\nusers[0].tags: a, b\nusers[1]: id: 2\n\
                        limits.rate: burst: 10; on: true";
        assert_eq!(extraction.document.text, expected);
        assert_eq!(extraction.document.title, "Handbook");
    }

    #[test]
    fn paths_are_bounded_and_visible() {
        let long = "é".repeat(5_000);
        let hidden = "\u{200b}".repeat(5_000);
        let json = format!("{{\"{long}\": {{\"{hidden}a\": {{\"b\": 1}}}}}}");
        let expected = format!("{}.a: b: 1", &long[..MAX_NAME_BYTES]);
        assert_eq!(text_of_json(&json).as_deref(), Ok(&*expected));
        let nested =
            format!("{}{{\"last\": 7}}{}", "{\"a member of a long name\": [0, ".repeat(60), "]}".repeat(60));
        let text = text_of_json(&nested).unwrap();
        let longest = text.lines().map(str::len).max().unwrap();
        assert!(
            text.ends_with(": last: 7") && longest < MAX_PATH_BYTES + MAX_NAME_BYTES,
            "{longest}: {text}"
        );
    }

    #[test]
    fn numbers_are_read_as_they_are_written() {
        let json = r#"{"price": 19.90, "id": 123456789012345678901234, "e": 1E5, "n": -0.5, "s": "1.50 \" 2.50 \\", "l": [1.0, 7]}"#;
        let expected =
            "price: 19.90; id: 123456789012345678901234; e: 1E5; n: -0.5; s: 1.50 \" 2.50 \\\nl: 1.0, 7";
        assert_eq!(text_of_json(json).as_deref(), Ok(expected));
        assert!(matches!(text_of_json("[1.50, 01.50]"), Err(ExtractError::Malformed(_))));
        let beyond = "[1e400, -2.5E+999, 7]";
        assert_eq!(text_of_json(beyond).as_deref(), Ok("1e400, -2.5E+999, 7"));
    }

    #[test]
    fn each_line_may_be_a_record() {
        let lines = "{\"city\": \"M\\u00fcnchen\", \"price\": 19.90}\r\n\n{\"city\": \"Bonn\", \"tags\": [\"a\", \"b\"]}\n";
        assert_eq!(
            text_of_json(lines).as_deref(),
            Ok("[0]: city: München; price: 19.90\n[1]: city: Bonn\n[1].tags: a, b")
        );
    }

    #[test]
    fn any_value_is_a_document() {
        for (json, expected) in
            [("\"text\"", "text"), ("[1, [2, 3]]", "[0]: 1\n[1]: 2, 3"), (" 7 ", "7"), ("{}", "")]
        {
            assert_eq!(text_of_json(json).as_deref(), Ok(expected), "{json}");
        }
    }

    #[test]
    fn bad_documents_are_errors_without_their_text() {
        let error = text_of_json("{\"secret\": canary}").unwrap_err();
        assert_eq!(error, ExtractError::Malformed("not valid JSON at line 1, column 12".to_owned()));
        for depth in [200, 100_000] {
            let nested = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
            assert!(matches!(text_of_json(&nested), Err(ExtractError::LimitExceeded(_))), "{depth}");
        }
        let limits = ExtractionLimits { max_depth: 3, ..ExtractionLimits::default() };
        assert!(matches!(extract(b"[[[[[[]]]]]]", &limits), Err(ExtractError::LimitExceeded(_))));
    }
}
