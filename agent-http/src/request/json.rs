//! JSON parsing with bounded depth and errors that name the field but never repeat submitted values.

use agent_platform::json::{
    find_duplicate_key, is_deeper_than, is_syntax_error, objects_only, redact_serde_message,
};
use serde::Deserialize;
use serde_json::error::Category;

use crate::error::HttpError;

/// Maximum nesting depth of a request's JSON.
pub const MAX_JSON_DEPTH: usize = 64;

/// Maximum length of a field path in an error, in characters. Map keys come from the client and may be of any length.
const MAX_SHOWN_PATH_CHARS: usize = 200;

/// Parses `json` as one JSON text of at most `max_depth` levels. A struct is read from an object only.
///
/// # Errors
///
/// Returns 400 `INVALID_REQUEST`: with line and column for invalid JSON, or with the field's path, such as
/// `messages[2].role`, for a value that does not match `T`, or a key that is given twice. Submitted values are never repeated (map keys are, in
/// paths), nor are messages of a type's own `Deserialize`, which might contain them.
pub(crate) fn parse_json<'de, T: Deserialize<'de>>(
    json: &'de [u8],
    max_depth: usize,
) -> Result<T, HttpError> {
    if json.trim_ascii().is_empty() {
        return Err(HttpError::invalid("the body", "is empty; it must be JSON"));
    }
    if is_deeper_than(max_depth, json) {
        return Err(HttpError::invalid("the body", format_args!("is nested deeper than {max_depth} levels")));
    }
    if let Some(path) = find_duplicate_key(json) {
        return Err(HttpError::invalid(&path, "is given twice"));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let value = serde_path_to_error::deserialize(objects_only(&mut deserializer))
        .map_err(|error| field_error(json, &error))?;
    deserializer.end().map_err(|error| syntax_error(&error))?;
    Ok(value)
}

fn field_error(json: &[u8], error: &serde_path_to_error::Error<serde_json::Error>) -> HttpError {
    if is_syntax_error(json, error.inner()) {
        return syntax_error(error.inner());
    }
    let path = error.path().to_string();
    let problem = redact_serde_message(&error.inner().to_string());
    if path == "." {
        return HttpError::invalid("the body", problem);
    }
    HttpError::invalid(truncate_chars(&path, MAX_SHOWN_PATH_CHARS), problem)
}

/// Returns at most the first `count` characters.
pub(crate) fn truncate_chars(text: &str, count: usize) -> &str {
    text.char_indices().nth(count).map_or(text, |(end, _)| &text[..end])
}

fn syntax_error(error: &serde_json::Error) -> HttpError {
    let problem = match error.classify() {
        Category::Eof => "ends in the middle of its JSON".to_owned(),
        _ => format!("is not valid JSON at line {} column {}", error.line(), error.column()),
    };
    HttpError::invalid("the body", problem)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only parsed into")]
    struct Chat {
        messages: Vec<Message>,
        limit: Option<u32>,
        meta: Option<std::collections::BTreeMap<String, bool>>,
        either: Option<Either>,
        pair: Option<(u8, u8)>,
        own: Option<Own>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only parsed into")]
    struct Message {
        role: Role,
        content: String,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Role {
        User,
        Tool,
    }

    #[derive(Debug, Deserialize)]
    #[serde(untagged)]
    #[expect(dead_code, reason = "only parsed into")]
    enum Either {
        Number(u8),
        Flag(bool),
    }

    #[derive(Debug)]
    struct Own;

    impl<'de> Deserialize<'de> for Own {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let text = String::deserialize(deserializer)?;
            Err(serde::de::Error::custom(format!("{text} is wrong")))
        }
    }

    fn check(json: &str, expected: Expect) {
        let error = parse_json::<Chat>(json.as_bytes(), MAX_JSON_DEPTH).expect_err(json);
        assert!(!error.detail().contains("sk-"), "{error}");
        expected.assert_eq(error.detail());
    }

    #[test]
    fn errors_name_the_field_and_not_the_value() {
        let message = r#"{"role":"user","content":"x"}"#;
        check("", expect!["the body is empty; it must be JSON"]);
        check(" \n", expect!["the body is empty; it must be JSON"]);
        check(r#"{"messages":["#, expect!["the body ends in the middle of its JSON"]);
        check("{\"messages\":\n[sk-1]}", expect!["the body is not valid JSON at line 2 column 2"]);
        check(r#"{"messages":[]} sk-1"#, expect!["the body is not valid JSON at line 1 column 17"]);
        for other in ["\"sk-1\"", "[]", " [\"sk-1\"]", "[[],1,{}]", "null", "5"] {
            check(other, expect!["the body must be an object"]);
        }
        check("{}", expect!["the body is missing the field `messages`"]);
        check(r#"{"messages":"sk-1"}"#, expect!["messages must be an array"]);
        check(
            &format!(r#"{{"messages":[{message},{message},{{"role":"sk-1"}}]}}"#),
            expect!["messages[2].role must be `user` or `tool`"],
        );
        check(r#"{"messages":[["user","sk-1"]]}"#, expect!["messages[0] must be an object"]);
        check(r#"{"messages":[{"role":"user"}]}"#, expect!["messages[0] is missing the field `content`"]);
        check(
            r#"{"messages":[{"colour":1}]}"#,
            expect!["messages[0].colour is not a known field; expected `role` or `content`"],
        );
        check(r#"{"messages":[],"messages":[]}"#, expect!["messages is given twice"]);
        check(r#"{"messages":[],"meta":{"a":true,"\u0061":true}}"#, expect!["meta.a is given twice"]);
        check(r#"{"limit":"sk-1, expected sk-2"}"#, expect!["limit must be a non-negative integer"]);
        check(r#"{"limit":-5}"#, expect!["limit must be a non-negative integer"]);
        check(r#"{"meta":{"a":"sk-1"}}"#, expect!["meta.a must be a boolean"]);
        check(r#"{"either":"sk-1"}"#, expect!["either matches none of the accepted formats"]);
        check(r#"{"pair":[1]}"#, expect!["pair must be an array of the right length"]);
        check(r#"{"own":"sk-1"}"#, expect!["own is not a valid value"]);
        for role in ["5", "null", "[1]", "{}", "-1e3"] {
            let json = format!(r#"{{"messages":[{{"role":{role},"content":"x"}}]}}"#);
            check(&json, expect!["messages[0].role must be a string"]);
        }
        check(r#"{"messages":[{"role":5,"#, expect!["the body is not valid JSON at line 1 column 22"]);
        check("{\"messages\":\"\u{0}\"}", expect!["the body is not valid JSON at line 1 column 14"]);
    }

    #[test]
    fn depth_is_bounded() {
        let member = |value: String| format!("{{\"a\":{value}}}");
        let nested = |levels: usize| member("[".repeat(levels - 1) + &"]".repeat(levels - 1));
        let cases = [
            (nested(64), true),
            (nested(65), false),
            (nested(500_000), false),
            // Brackets inside strings, also after an escaped quote, do not count.
            (member(format!("\"{}\"", "[".repeat(100))), true),
            (member(format!("\"\\\"{}\"", "[".repeat(100))), true),
            (member(format!("[{}]", vec!["[]"; 100].join(","))), true),
        ];
        for (json, taken) in cases {
            let parsed = parse_json::<serde_json::Value>(json.as_bytes(), MAX_JSON_DEPTH);
            assert_eq!(parsed.is_ok(), taken, "{:.80}", json);
            if let Err(error) = parsed {
                assert_eq!(error.detail(), "the body is nested deeper than 64 levels");
            }
        }
    }

    #[test]
    fn a_long_path_is_cut() {
        let json = format!(r#"{{"meta":{{"{}":1}}}}"#, "ü".repeat(5000));
        let error = parse_json::<Chat>(json.as_bytes(), MAX_JSON_DEPTH).expect_err("not a boolean");
        assert!(error.detail().chars().count() < MAX_SHOWN_PATH_CHARS + 50);
    }
}
