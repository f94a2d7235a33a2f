//! Constrained decoding: generates output that conforms to a JSON Schema, token by token.

use std::sync::Arc;

use llguidance::api::TopLevelGrammar;
use llguidance::{Matcher, ParserFactory};
use serde_json::{Map, Value, json};

use crate::vocabulary::Vocabulary;

/// Maximum length of a generated string, in characters.
const MAX_STRING_CHARS: u64 = 200;
/// Maximum length of a generated array, in items.
const MAX_ITEMS: u64 = 8;
/// Largest absolute value of a generated integer if the schema sets no bounds.
const MAX_INTEGER: i64 = 999_999_999;
/// Maximum nesting depth of a schema, including resolved references.
const MAX_SCHEMA_DEPTH: usize = 12;
/// String formats that the grammar engine supports.
const SUPPORTED_FORMATS: [&str; 9] =
    ["date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];

/// Schema compiler for one vocabulary.
pub(crate) struct GrammarCompiler {
    factory: ParserFactory,
}

impl GrammarCompiler {
    /// Prepares the vocabulary for the grammar engine, which takes some tens of milliseconds.
    pub(crate) fn new(vocabulary: &Arc<Vocabulary>) -> Result<Self, String> {
        let mut factory =
            ParserFactory::new_simple(&vocabulary.grammar_tokens()).map_err(|error| error.to_string())?;
        factory.quiet();
        Ok(Self { factory })
    }

    /// Creates a matcher that accepts output conforming to `schema`. The schema must come from [`forcible`].
    pub(crate) fn matcher(&self, schema: &Value) -> Result<Matcher, String> {
        let grammar = TopLevelGrammar::from_json_schema(schema.clone());
        let matcher = Matcher::new(self.factory.create_parser(grammar));
        match matcher.get_error() {
            None => Ok(matcher),
            Some(error) => Err(error),
        }
    }
}

/// Rewrites a tool's schema into one that the grammar engine supports and whose output is bounded: local
/// references are inlined; strings, arrays and integers get bounds; unsupported keywords are dropped. Output
/// that conforms to the result and to the dropped keywords conforms to the original schema.
pub(crate) fn bounded_schema(schema: &Value) -> Value {
    let mut forcible = match simplify(schema, schema, 0) {
        Value::Object(object) => object,
        _ => Map::new(),
    };
    forcible.insert("x-guidance".into(), json!({ "whitespace_flexible": false }));
    Value::Object(forcible)
}

fn simplify(schema: &Value, root: &Value, depth: usize) -> Value {
    let Value::Object(schema) = schema else { return any_scalar_schema() };
    if depth > MAX_SCHEMA_DEPTH {
        return json!({ "type": "null" });
    }
    let simplify_child = |schema: &Value| simplify(schema, root, depth + 1);
    if let Some(Value::String(reference)) = schema.get("$ref") {
        let target = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
        return target.map_or_else(any_scalar_schema, simplify_child);
    }
    for key in ["const", "enum"] {
        if let Some(values) = schema.get(key) {
            return json!({ key: values });
        }
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(Value::Array(choices)) = schema.get(key) {
            return json!({ "anyOf": choices.iter().map(simplify_child).collect::<Vec<_>>() });
        }
    }
    if let Some([only]) = schema.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
        return simplify_child(only);
    }
    let kinds: Vec<&str> = match schema.get("type") {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        _ if schema.contains_key("properties") => vec!["object"],
        _ if schema.contains_key("items") => vec!["array"],
        _ => vec![],
    };
    match kinds[..] {
        [] => any_scalar_schema(),
        [kind] => simplify_type(kind, schema, &simplify_child),
        _ => {
            json!({ "anyOf": kinds.iter().map(|kind| simplify_type(kind, schema, &simplify_child)).collect::<Vec<_>>() })
        }
    }
}

fn simplify_type(kind: &str, schema: &Map<String, Value>, simplify_child: &dyn Fn(&Value) -> Value) -> Value {
    let copy = |keys: &[&str]| -> Map<String, Value> {
        let copied = keys.iter().filter_map(|key| Some(((*key).to_owned(), schema.get(*key)?.clone())));
        std::iter::once(("type".to_owned(), Value::from(kind))).chain(copied).collect()
    };
    let at_most = |key: &str, limit: u64| schema.get(key).and_then(Value::as_u64).unwrap_or(limit).min(limit);
    let mut simple = copy(&[]);
    match kind {
        "object" => {
            let empty = Map::new();
            let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
            let required = schema.get("required").and_then(Value::as_array).map(Vec::as_slice);
            let required: Vec<&str> = required.unwrap_or_default().iter().filter_map(Value::as_str).collect();
            let mut simplified: Map<String, Value> =
                properties.iter().map(|(name, schema)| (name.clone(), simplify_child(schema))).collect();
            for name in &required {
                simplified.entry(*name).or_insert_with(any_scalar_schema);
            }
            simple.insert("properties".into(), simplified.into());
            simple.insert("required".into(), required.into());
            simple.insert("additionalProperties".into(), false.into());
        }
        "array" => {
            let items = schema.get("items").map_or_else(any_scalar_schema, simplify_child);
            let max = at_most("maxItems", MAX_ITEMS);
            simple.insert("items".into(), items);
            simple.insert("minItems".into(), at_least(schema, "minItems").min(max).into());
            simple.insert("maxItems".into(), max.into());
        }
        "string" => match schema.get("format").and_then(Value::as_str) {
            Some(format) if SUPPORTED_FORMATS.contains(&format) => simple = copy(&["format"]),
            _ => {
                let max = at_most("maxLength", MAX_STRING_CHARS);
                simple.insert("minLength".into(), at_least(schema, "minLength").min(max).into());
                simple.insert("maxLength".into(), max.into());
            }
        },
        "integer" => {
            simple = copy(&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]);
            if !simple.contains_key("exclusiveMinimum") {
                simple.entry("minimum").or_insert_with(|| (-MAX_INTEGER).into());
            }
            if !simple.contains_key("exclusiveMaximum") {
                simple.entry("maximum").or_insert_with(|| MAX_INTEGER.into());
            }
        }
        "number" => simple = copy(&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]),
        _ => {}
    }
    simple.into()
}

fn at_least(schema: &Map<String, Value>, key: &str) -> u64 {
    schema.get(key).and_then(Value::as_u64).unwrap_or(0)
}

/// Returns the schema used where the original allows any value: a scalar, because an unconstrained object or
/// array has no bounded length.
fn any_scalar_schema() -> Value {
    json!({ "anyOf": [
        { "type": "string", "maxLength": MAX_STRING_CHARS },
        { "type": "integer", "minimum": -MAX_INTEGER, "maximum": MAX_INTEGER },
        { "type": "boolean" },
        { "type": "null" },
    ]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_are_reduced_to_supported_grammars() {
        let text = json!({ "type": "string", "minLength": 0, "maxLength": MAX_STRING_CHARS });
        let cases = [
            (json!({ "type": "string", "pattern": "^a" }), text.clone()),
            (
                json!({ "type": "string", "format": "date-time" }),
                json!({ "type": "string", "format": "date-time" }),
            ),
            (
                json!({ "type": "string", "maxLength": 5 }),
                json!({ "type": "string", "minLength": 0, "maxLength": 5 }),
            ),
            (json!({ "enum": ["a", "b"], "type": "string" }), json!({ "enum": ["a", "b"] })),
            (
                json!({ "oneOf": [{ "type": "null" }, { "type": "string" }] }),
                json!({ "anyOf": [{ "type": "null" }, text] }),
            ),
            (json!({ "type": ["string", "null"] }), json!({ "anyOf": [text, { "type": "null" }] })),
            (
                json!({ "type": "integer", "minimum": 1 }),
                json!({ "type": "integer", "minimum": 1, "maximum": MAX_INTEGER }),
            ),
            (
                json!({ "items": { "type": "boolean" } }),
                json!({ "type": "array", "items": { "type": "boolean" }, "minItems": 0, "maxItems": MAX_ITEMS }),
            ),
            (json!({ "$ref": "#/$defs/name" }), text.clone()),
            (json!({ "$ref": "#/$defs/missing" }), any_scalar_schema()),
            (json!(true), any_scalar_schema()),
        ];
        for (property, expected) in cases {
            let schema = json!({
                "type": "object",
                "properties": { "p": property },
                "required": ["p", "q"],
                "$defs": { "name": { "type": "string" } },
            });
            let forced = bounded_schema(&schema);
            assert_eq!(forced["properties"]["p"], expected, "{property}");
            assert_eq!(forced["properties"]["q"], any_scalar_schema());
            assert_eq!(forced["required"], json!(["p", "q"]));
            assert_eq!(forced["additionalProperties"], json!(false));
        }
    }

    #[test]
    fn recursive_schemas_are_cut_at_a_depth() {
        let schema = json!({
            "type": "object",
            "properties": { "next": { "$ref": "#" } },
        });
        let depth = |mut schema: &Value| {
            (0..)
                .take_while(|_| {
                    schema = &schema["properties"]["next"];
                    schema.is_object()
                })
                .count()
        };
        assert!((1..=MAX_SCHEMA_DEPTH + 1).contains(&depth(&bounded_schema(&schema))));
    }
}
