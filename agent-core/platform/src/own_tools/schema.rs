//! Input schemas of tools: their limits, and the check of arguments, whose work is limited before it begins.

use agent_core::tool::ToolSpec;
use jsonschema::Validator;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::schema_guards::compile_guarded;
use crate::schema_steps::{is_bounded, local_pointer};

/// Maximum number of bytes of a reported fault: it may quote the arguments.
const MAX_FAULT_BYTES: usize = 500;
/// Maximum number of patterns of a schema.
const MAX_PATTERNS: usize = 50;
/// Maximum number of steps of a check.
const MAX_CHECK_STEPS: usize = 500_000;
/// Keywords that give a schema another address, or refer to one by something else than its place.
const REFUSED_KEYWORDS: [&str; 5] =
    ["$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef"];

/// An input schema that arguments are checked against.
pub(super) struct ArgumentSchema {
    /// The schema with the guards of its alternatives.
    schema: Value,
    validator: Validator,
}

impl ArgumentSchema {
    /// Compiles a schema. Patterns take linear time, and nothing is read from elsewhere.
    ///
    /// # Errors
    /// Description of the fault, worded to follow the path.
    pub(super) fn compile(schema: &Value) -> Result<Self, String> {
        if schema["type"] != "object" {
            return Err("must be a schema of an object: its type is not \"object\"".to_owned());
        }
        if count_patterns(schema) > MAX_PATTERNS {
            return Err(format!("has more than {MAX_PATTERNS} patterns"));
        }
        let id = if schema["$schema"].as_str().is_some_and(is_draft_4) { "id" } else { "$id" };
        check_addresses(schema, id, true)?;
        if !is_bounded(schema, &json!({}), MAX_CHECK_STEPS) {
            return Err("refers to itself endlessly, or has too many alternatives".to_owned());
        }
        let (schema, validator) = compile_guarded(schema)?;
        Ok(Self { schema, validator })
    }

    /// Returns the arguments of a call as an object that conforms to the schema.
    ///
    /// # Errors
    /// Description of the first fault, with its path.
    pub(super) fn check(&self, arguments: Value) -> Result<Map<String, Value>, String> {
        let arguments = if arguments.is_null() { Value::Object(Map::new()) } else { arguments };
        if !is_bounded(&self.schema, &arguments, MAX_CHECK_STEPS) {
            return Err("their check against inputSchema takes too many steps".to_owned());
        }
        if let Err(error) = self.validator.validate(&arguments) {
            let path = error.instance_path().to_string();
            let at = if path.is_empty() { String::new() } else { format!("{path}: ") };
            return Err(cut(format!("{at}{error}")));
        }
        match arguments {
            Value::Object(arguments) => Ok(arguments),
            _ => Err("they must be a JSON object".to_owned()),
        }
    }
}

/// Returns the path of the first value of arguments that does not conform to a tool's input schema, as a JSON Pointer; `None`
/// if all conform. The whole does not conform if the check exceeds its limits.
///
/// # Errors
/// Description of the fault of a schema that tools cannot have.
pub fn nonconforming_path(schema: &Value, arguments: &Value) -> Result<Option<String>, String> {
    let schema = ArgumentSchema::compile(schema).map_err(|fault| format!("inputSchema {fault}"))?;
    if !is_bounded(&schema.schema, arguments, MAX_CHECK_STEPS) {
        return Ok(Some(String::new()));
    }
    let fault = schema.validator.validate(arguments).err();
    Ok(fault.map(|fault| fault.instance_path().to_string()))
}

/// Returns the name of the first argument that a tool's input schema requires, and that a call does not have. Nothing else is
/// checked: tools may accept more than their schemas, such as null for an optional argument.
pub fn missing_argument(spec: &ToolSpec, arguments: &Value) -> Option<String> {
    #[derive(Deserialize)]
    struct InputSchema {
        #[serde(default)]
        required: Vec<String>,
    }
    let schema: InputSchema = serde_json::from_str(spec.input_schema.get()).ok()?;
    schema.required.into_iter().find(|name| arguments.get(name).is_none())
}

/// Returns the path, with dots, of the first argument with which each call of a tool would fail, and the fault, worded to follow
/// it: one that is missing, or does not conform to the input schema. The path is empty if the whole does not conform. Null counts
/// as absent for an optional argument, since tools may accept it. A schema that cannot be checked has no further fault.
pub fn unusable_argument(spec: &ToolSpec, arguments: Map<String, Value>) -> Option<(String, &'static str)> {
    let mut arguments = Value::Object(arguments);
    if let Some(name) = missing_argument(spec, &arguments) {
        return Some((name, "is missing"));
    }
    let schema: Value = serde_json::from_str(spec.input_schema.get()).ok()?;
    let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
    if let Value::Object(fields) = &mut arguments {
        fields.retain(|name, value| !value.is_null() || required.iter().any(|one| one == name.as_str()));
    }
    let path = nonconforming_path(&schema, &arguments).ok()??;
    let path = path.trim_start_matches('/').replace('/', ".");
    Some((path, "does not conform to the schema of the tool"))
}

/// Returns the number of patterns in a schema.
fn count_patterns(schema: &Value) -> usize {
    match schema {
        Value::Object(fields) => {
            let own = usize::from(fields.get("pattern").is_some_and(Value::is_string));
            let of_names = fields.get("patternProperties").and_then(Value::as_object).map_or(0, Map::len);
            own + of_names + fields.values().map(count_patterns).sum::<usize>()
        }
        Value::Array(items) => items.iter().map(count_patterns).sum(),
        _ => 0,
    }
}

/// Checks that each reference names a place in the schema, so that the count of steps finds what the validator finds. `id` is the
/// keyword that gives a schema an address, which only the whole one may have. Values that are data are checked too, since a
/// reference may lead to them.
fn check_addresses(schema: &Value, id: &str, is_root: bool) -> Result<(), String> {
    let fields = match schema {
        Value::Object(fields) => fields,
        Value::Array(items) => return items.iter().try_for_each(|item| check_addresses(item, id, false)),
        _ => return Ok(()),
    };
    // Schemas that generators make of a part have a revision of their own.
    let changes_id = |draft: &str| id == "id" || is_draft_4(draft);
    for (name, value) in fields {
        match value {
            Value::Object(_) | Value::Array(_) => check_addresses(value, id, false)?,
            Value::String(reference) if name == "$ref" && local_pointer(reference).is_none() => {
                return Err("has a reference that is not a path in it, such as #/$defs/item".to_owned());
            }
            _ if REFUSED_KEYWORDS.contains(&name.as_str()) => {
                return Err(format!("has {name}, which is not supported"));
            }
            Value::String(text) if !is_root && (name == id || (name == "$schema" && changes_id(text))) => {
                return Err(format!("has {name} within it, which is not supported"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns true for the revision in which `id` is the keyword that gives a schema an address.
fn is_draft_4(revision: &str) -> bool {
    revision.contains("draft-04")
}

fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_FAULT_BYTES));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile(schema: &Value) -> ArgumentSchema {
        ArgumentSchema::compile(schema).expect("a schema")
    }

    /// Returns definitions, each of which applies the next one twice, by `keyword`.
    fn doubling(levels: usize, keyword: &str) -> Value {
        let next = |level: usize| json!({"$ref": format!("#/$defs/d{}", level + 1)});
        let level = |level| (format!("d{level}"), json!({keyword: [next(level), next(level)]}));
        let mut definitions: Map<String, Value> = (0..levels).map(level).collect();
        definitions.insert(format!("d{levels}"), json!({"type": "string"}));
        definitions.into()
    }

    #[test]
    fn a_check_whose_work_doubles_with_each_level_is_refused() {
        const FAULT: &str = "their check against inputSchema takes too many steps";
        for keyword in ["allOf", "anyOf", "oneOf"] {
            let schema = |levels| {
                json!({"type": "object", "properties": {"q": {"$ref": "#/$defs/d0"}},
                    "$defs": doubling(levels, keyword)})
            };
            assert_eq!(compile(&schema(24)).check(json!({"q": "x"})), Err(FAULT.to_owned()), "{keyword}");
            let few = compile(&schema(3)).check(json!({"q": "x"}));
            assert_eq!(few.is_ok(), keyword != "oneOf", "{few:?}");
        }
        // Two ways from a definition back to itself: the depth of the arguments decides.
        let node = json!({"$ref": "#/$defs/node"});
        let next = json!({"properties": {"next": node}});
        let schema = json!({"type": "object", "properties": {"next": node},
            "$defs": {"node": {"type": "object", "allOf": [next, next]}}});
        let nested = |levels: usize| (0..levels).fold(json!({}), |next, _| json!({"next": next}));
        let schema = compile(&schema);
        assert!(schema.check(nested(5)).is_ok());
        assert_eq!(schema.check(nested(24)), Err(FAULT.to_owned()));
        // Work that grows with the arguments only.
        let tree = compile(
            &json!({"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#"}}},
            "additionalProperties": {"anyOf": [{"type": "number"}, {"enum": ["a", "b"]}]}}),
        );
        let leaf = json!({"children": [], "n": 1, "kind": "b"});
        let wide = json!({"children": vec![json!({"children": vec![leaf; 100]}); 100]});
        assert!(tree.check(wide).is_ok());
        let deep = (0..60).fold(json!({"kind": "c"}), |child, _| json!({"children": [child]}));
        assert!(tree.check(deep).is_err_and(|fault| fault.starts_with("/children/0/children/0")));
    }

    #[test]
    fn alternatives_that_lead_back_to_themselves_are_checked() {
        let expression = json!({"$ref": "#/$defs/expression"});
        let operator = |tag: &Value| {
            json!({"type": "object", "properties": {"left": expression, "right": expression, "op": tag},
                "required": ["op", "left", "right"]})
        };
        // Tags of each scalar type, of which the last one is used, and types that only integers tell apart.
        let tags = [
            (["add", "multiply", "power"].map(|name| json!({"const": name})), json!("power")),
            ([1, 2, 3].map(|number| json!({"const": number})), json!(3)),
            ([json!({"enum": [1, "add"]}), json!({"enum": [null, [3]]}), json!({"enum": [3, 4]})], json!(3)),
            ([json!({"const": null}), json!({"const": false}), json!({"const": true})], json!(true)),
            ([json!({"type": "string"}), json!({"type": "null"}), json!({"type": "integer"})], json!(3)),
            ([json!({"type": "string"}), json!({"type": "integer"}), json!({"type": "number"})], json!(0.5)),
        ];
        for (keyword, (tags, used)) in
            ["anyOf", "oneOf"].into_iter().flat_map(|k| tags.clone().map(|t| (k, t)))
        {
            let alternatives = tags.iter().map(operator);
            let alternatives: Vec<_> = alternatives.chain([json!({"type": "number"})]).collect();
            let schema = compile(&json!({"type": "object", "properties": {"e": expression},
                "$defs": {"expression": {keyword: alternatives}}}));
            let nested =
                |leaf: Value| (0..30).fold(leaf, |inner, _| json!({"op": used, "left": inner, "right": 2}));
            assert!(schema.check(json!({"e": nested(json!(1))})).is_ok(), "{keyword} {used}");
            let fault = schema.check(json!({"e": nested(json!("x"))})).expect_err("no number");
            assert!(fault.starts_with("/e: "), "{keyword} {used}: {fault}");
        }
    }

    #[test]
    fn work_of_the_keywords_of_one_schema_is_counted() {
        const FAULT: &str = "their check against inputSchema takes too many steps";
        let text = "a".repeat(100_000);
        let patterns: Map<_, _> = (0..MAX_PATTERNS).map(|i| (format!("(a|b{i})+$"), json!({}))).collect();
        let names: Vec<String> = (0..5_000).map(|i| format!("n{i}")).collect();
        let members: Map<_, _> = names.iter().map(|name| (name.clone(), json!({}))).collect();
        for (schema, value, times) in [
            (json!({"patternProperties": patterns}), json!({(text.as_str()): 1}), 8),
            (json!({"propertyNames": {"pattern": "(a|b)+$"}}), json!({(text.as_str()): 1}), 200),
            (json!({"uniqueItems": true}), json!((0..50_000).collect::<Vec<_>>()), 20),
            (json!({"maxLength": 300_000}), json!(text), 400),
            (json!({"properties": members}), json!({}), 1_000),
            (json!({"required": names}), json!({}), 1_000),
        ] {
            let schema = compile(&json!({"type": "object", "properties": {"v": {"items": schema}}}));
            let once = schema.check(json!({"v": [value]}));
            assert!(once.err().is_none_or(|fault| fault != FAULT), "one check is within the limit");
            assert_eq!(schema.check(json!({"v": vec![value; times]})), Err(FAULT.to_owned()), "{times}");
        }
    }

    #[test]
    fn a_schema_that_would_exhaust_the_process_is_refused() {
        let patterns = |count: usize, pattern: &str| {
            let properties = (0..count).map(|i| (format!("p{i}"), json!({"pattern": pattern})));
            json!({"type": "object", "properties": properties.collect::<Map<_, _>>()})
        };
        let with =
            |keyword: &str, value: Value| json!({"type": "object", "properties": {"a": {keyword: value}}});
        let mut bomb = json!({"type": "object", "$ref": "#/$defs/d0"});
        bomb["$defs"] = doubling(24, "anyOf");
        for (schema, expected) in [
            (patterns(MAX_PATTERNS + 1, "^a$"), "has more than 50 patterns"),
            (patterns(1, "([a-z0-9]{1000}){1000}"), "is not a valid JSON Schema"),
            (json!({"type": "object", "$ref": "#"}), "refers to itself endlessly"),
            (bomb, "refers to itself endlessly, or has too many alternatives"),
            (with("$ref", json!("https://evil.example/a")), "has a reference that is not a path in it"),
            (with("$ref", json!("#name")), "has a reference that is not a path in it"),
            (with("$dynamicRef", json!("#name")), "has $dynamicRef, which is not supported"),
            (with("$anchor", json!("name")), "has $anchor, which is not supported"),
            (with("$id", json!("urn:a")), "has $id within it, which is not supported"),
            (
                with("$schema", json!("http://json-schema.org/draft-04/schema#")),
                "has $schema within it, which is not supported",
            ),
        ] {
            let fault = ArgumentSchema::compile(&schema).err().unwrap_or_default();
            assert!(fault.starts_with(expected), "{fault}");
        }
        for schema in [
            patterns(MAX_PATTERNS, "^[A-Za-z0-9_-]{1,64}$"),
            with("$schema", json!("http://json-schema.org/draft-07/schema#")),
            json!({"type": "object", "$id": "https://a.example/s", "$schema": "http://json-schema.org/draft-07/schema#",
                "properties": {"id": {"type": "string"}, "$id": {"type": "string"}, "$ref": {"$ref": "#/definitions/a%20b"}},
                "definitions": {"a b": {"type": "integer"}}}),
        ] {
            compile(&schema);
        }
    }
}
