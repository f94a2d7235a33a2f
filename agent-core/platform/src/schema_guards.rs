//! Guards in front of the alternatives of a schema.
//!
//! A validator checks a value by each alternative of `anyOf` and `oneOf` until it knows which ones accept it. Where alternatives
//! lead back to the schema that has them, as the operators of an expression do, its work can double with each level of a value.
//! The guard of an alternative has those of its keywords that apply no further schema. The alternative is applied only to values
//! that conform to its guard: `{"if": guard, "then": alternative, "else": false}`. The values that a schema accepts stay the
//! same, also with `unevaluatedProperties` and `unevaluatedItems`: the alternative itself evaluates each property that its
//! guard evaluates.

use jsonschema::{PatternOptions, Validator};
use serde_json::{Map, Value, json};

use crate::json::invalid_schema_message;
use crate::schema_keywords::{ONE_SCHEMA, SCHEMA_LISTS, SCHEMA_MAPS};
use crate::schema_steps::local_pointer;

/// Maximum size of a compiled pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 256 << 10;
/// Maximum number of bytes of all guards of a schema. Alternatives beyond it have none.
const MAX_GUARD_BYTES: usize = 256 << 10;
/// Number of bytes for which each schema counts that is read for a guard.
const READ_SCHEMA_BYTES: usize = 64;
/// Maximum number of references from an alternative to the keywords of its guard.
const MAX_REFERENCES: usize = 8;
/// Revisions of JSON Schema without `if`.
const REVISIONS_WITHOUT_IF: [&str; 3] = ["draft-03", "draft-04", "draft-06"];

/// Compiles a schema. Patterns take linear time, and nothing is read from elsewhere. Returns the schema with its guards, by which
/// steps are counted, and its validator.
///
/// # Errors
/// Description of the fault, worded to follow the path of the schema.
pub(crate) fn compile_guarded(schema: &Value) -> Result<(Value, Validator), String> {
    let build = |schema: &Value| {
        let patterns = PatternOptions::regex().size_limit(MAX_PATTERN_BYTES);
        jsonschema::options().with_pattern_options(patterns).build(schema)
    };
    let guarded = with_guards(schema);
    if let Ok(validator) = build(&guarded) {
        return Ok((guarded, validator));
    }
    // The fault is named by its place in the schema without guards.
    match build(schema) {
        Ok(validator) => Ok((schema.clone(), validator)),
        Err(error) => Err(invalid_schema_message(&error)),
    }
}

/// Returns a schema with a guard in front of each alternative that has references.
fn with_guards(schema: &Value) -> Value {
    let mut guarded = schema.clone();
    let mut references = Vec::new();
    collect_references(schema, &mut references);
    if !references.is_empty() && may_have_guards(schema) {
        let mut writer = GuardWriter { root: schema, references, remaining_bytes: MAX_GUARD_BYTES };
        writer.add_within(&mut guarded, "");
    }
    guarded
}

/// Returns false for a schema that would accept other values with guards.
fn may_have_guards(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => fields.iter().all(|(name, value)| match value {
            Value::String(revision) if name == "$schema" => {
                !REVISIONS_WITHOUT_IF.iter().any(|older| revision.contains(older))
            }
            _ => may_have_guards(value),
        }),
        Value::Array(items) => items.iter().all(may_have_guards),
        _ => true,
    }
}

/// Writer of the guards of one schema.
struct GuardWriter<'s> {
    /// The schema without guards.
    root: &'s Value,
    /// Pointers of all references.
    references: Vec<String>,
    remaining_bytes: usize,
}

impl GuardWriter<'_> {
    /// Adds guards within a schema, which is at a pointer.
    fn add_within(&mut self, schema: &mut Value, pointer: &str) {
        let Value::Object(keywords) = schema else { return };
        for (keyword, operand) in keywords.iter_mut() {
            let (keyword, pointer) = (keyword.as_str(), format!("{pointer}/{keyword}"));
            match operand {
                Value::Array(schemas) if SCHEMA_LISTS.contains(&keyword) => {
                    let has_alternatives = matches!(keyword, "anyOf" | "oneOf") && schemas.len() > 1;
                    for (index, schema) in schemas.iter_mut().enumerate() {
                        let pointer = format!("{pointer}/{index}");
                        self.add_within(schema, &pointer);
                        if has_alternatives {
                            self.add_guard(schema, &pointer);
                        }
                    }
                }
                Value::Object(schemas) if SCHEMA_MAPS.contains(&keyword) => {
                    for (name, schema) in schemas.iter_mut() {
                        self.add_within(schema, &format!("{pointer}/{}", escape_segment(name)));
                    }
                }
                Value::Object(_) if ONE_SCHEMA.contains(&keyword) => self.add_within(operand, &pointer),
                _ => {}
            }
        }
    }

    /// Adds the guard of an alternative, unless it would move a place that a reference leads to.
    fn add_guard(&mut self, alternative: &mut Value, pointer: &str) {
        let places_within = format!("{pointer}/");
        let is_referenced = self.references.iter().any(|reference| reference.starts_with(&places_within));
        if is_referenced || !has_reference(alternative) {
            return;
        }
        let (root, mut parts) = (self.root, Vec::new());
        if let Some(original) = root.pointer(pointer) {
            self.collect_parts(original, 0, &mut parts);
        }
        let guard = match parts.len() {
            0 => return,
            1 => parts.swap_remove(0),
            _ => json!({"allOf": parts}),
        };
        let behind = alternative.take();
        *alternative = json!({"if": guard, "then": behind, "else": false});
    }

    /// Collects the keywords for a guard from a schema, from the target of its reference, and from the parts of its `allOf`.
    fn collect_parts(&mut self, schema: &Value, references: usize, parts: &mut Vec<Value>) {
        let Value::Object(keywords) = schema else { return };
        let Some(remaining_bytes) = self.remaining_bytes.checked_sub(READ_SCHEMA_BYTES) else { return };
        self.remaining_bytes = remaining_bytes;
        // Older revisions ignore the keywords beside a reference.
        if let Some(reference) = keywords.get("$ref") {
            let root = self.root;
            let pointer = reference.as_str().and_then(local_pointer);
            let target = pointer.and_then(|pointer| root.pointer(&pointer));
            if let Some(target) = target.filter(|_| references < MAX_REFERENCES) {
                self.collect_parts(target, references + 1, parts);
            }
            return;
        }
        let part = Value::Object(own_part(keywords));
        let bytes = part.to_string().len();
        if part != json!({}) && bytes <= self.remaining_bytes {
            self.remaining_bytes -= bytes;
            parts.push(part);
        }
        if let Some(Value::Array(schemas)) = keywords.get("allOf") {
            for schema in schemas {
                self.collect_parts(schema, references, parts);
            }
        }
    }
}

/// Returns the keywords of a schema and of its properties that apply no further schema.
fn own_part(keywords: &Map<String, Value>) -> Map<String, Value> {
    let mut part = copy_of(keywords, &["type", "required"]);
    let properties = keywords.get("properties").and_then(Value::as_object);
    let properties = properties.into_iter().flatten().filter_map(|(name, schema)| {
        let keywords = schema.as_object().filter(|keywords| !keywords.contains_key("$ref"))?;
        let part = copy_of(keywords, &["type", "const", "enum"]);
        (!part.is_empty()).then(|| (name.clone(), Value::Object(part)))
    });
    let properties: Map<String, Value> = properties.collect();
    if !properties.is_empty() {
        part.insert("properties".to_owned(), Value::Object(properties));
    }
    part
}

fn copy_of(keywords: &Map<String, Value>, names: &[&str]) -> Map<String, Value> {
    let copied = names.iter().filter_map(|name| Some(((*name).to_owned(), keywords.get(*name)?.clone())));
    copied.collect()
}

/// Collects the pointers of all references of a schema, those in values that are data included.
fn collect_references(schema: &Value, references: &mut Vec<String>) {
    match schema {
        Value::Object(fields) => {
            let reference = fields.get("$ref").and_then(Value::as_str);
            references.extend(reference.and_then(local_pointer).map(|pointer| escape_anew(&pointer)));
            fields.values().for_each(|value| collect_references(value, references));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_references(item, references)),
        _ => {}
    }
}

/// Returns a name as a segment of a JSON Pointer (RFC 6901, section 3).
fn escape_segment(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Returns a pointer whose segments are escaped as [`escape_segment`] does. A `~` alone is understood as `~0`, too.
fn escape_anew(pointer: &str) -> String {
    let names = pointer.split('/').map(|segment| segment.replace("~1", "/").replace("~0", "~"));
    names.map(|name| escape_segment(&name)).collect::<Vec<_>>().join("/")
}

fn has_reference(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => fields.contains_key("$ref") || fields.values().any(has_reference),
        Value::Array(items) => items.iter().any(has_reference),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Schemas with alternatives that have references.
    fn schemas() -> Vec<Value> {
        let expression = json!({"$ref": "#/$defs/expression"});
        let operator = |name: &str| {
            json!({"type": "object", "properties": {"left": expression, "op": {"const": name}, "right": expression},
                "required": ["op", "left", "right"], "additionalProperties": false})
        };
        let inline = json!({"$defs": {"expression": {"oneOf": [operator("add"), operator("multiply"), {"type": "number"}]}},
            "$ref": "#/$defs/expression"});
        let referenced = json!({"$defs": {"add": operator("add"), "multiply": operator("multiply"),
            "expression": {"anyOf": [{"$ref": "#/$defs/add"}, {"allOf": [{"$ref": "#/$defs/multiply"}]}, {"type": "number"}]}},
            "$ref": "#/$defs/expression"});
        // A reference to a place within an alternative, which keeps its place.
        let within = json!({"anyOf": [{"type": "object", "properties": {"left": {"$ref": "#"}, "op": {"const": "add"},
            "right": {"$ref": "#/anyOf/0/properties/left"}}, "required": ["op"]}, {"type": "number"}]});
        // Names of keywords as names of properties, and data that look like schemas.
        let names = json!({"properties": {"anyOf": {"const": {"anyOf": [{"$ref": "#", "type": "string"}, {"type": "number"}]}},
            "left": {"oneOf": [{"$ref": "#", "type": "object"}, {"type": "number"}]}}});
        // A place within an alternative, named without the escape of its property, whose name a guard has, too.
        let unescaped = json!({"properties": {"c": {"$ref": "#/properties/a~b/anyOf/0/then"},
            "a~b": {"anyOf": [{"type": "object", "properties": {"left": {"$ref": "#"}}, "then": {"type": "string"}}, {"type": "number"}]}}});
        let with_unevaluated = |closed: bool, part: Value| {
            let own = json!({"properties": {"left": expression, "op": {"const": "add"}}, "required": ["op"]});
            let add = json!({"type": "object", "allOf": [own], "properties": {"right": expression}});
            let mut kinds = vec![add, operator("multiply"), json!({"type": "number"})];
            if let Some(add) = kinds[0].as_object_mut().filter(|_| closed) {
                add.insert("unevaluatedProperties".to_owned(), part.clone());
            }
            let mut root = json!({"$defs": {"expression": {"anyOf": kinds}}, "$ref": "#/$defs/expression"});
            if !closed {
                root["unevaluatedProperties"] = part;
            }
            root
        };
        // Alternatives that close themselves, and that are closed from outside; with a schema for what is left, too.
        let closed = with_unevaluated(true, json!(false));
        let closed_outside = with_unevaluated(false, json!(false));
        let left_over = with_unevaluated(false, json!({"type": "string"}));
        let items = json!({"anyOf": [{"type": "array", "prefixItems": [{"$ref": "#"}]}, {"type": "number"}, {"$ref": "#/$defs/text"}],
            "$defs": {"text": {"type": "array", "contains": {"const": "text"}, "prefixItems": [true, {"$ref": "#"}]}},
            "unevaluatedItems": {"const": "more"}});
        vec![inline, referenced, within, names, unescaped, closed, closed_outside, left_over, items]
    }

    fn values() -> Vec<Value> {
        let leaf = json!({"op": "add", "left": 1, "right": 2});
        let mut values = vec![
            json!(1),
            json!("text"),
            json!({}),
            json!({"op": "divide", "left": 1, "right": 2}),
            json!({"op": "add", "left": 1}),
            json!({"op": "add", "left": 1, "right": 2, "more": 3}),
            json!({"op": "multiply", "left": leaf, "right": {"op": "add", "left": leaf, "right": "text"}}),
            json!({"anyOf": {"anyOf": [{"$ref": "#", "type": "string"}, {"type": "number"}]}}),
            json!({"anyOf": 1}),
            json!({"left": {"left": {"left": 1}}}),
            json!({"left": {"left": {"left": "text"}}}),
            json!({"c": "text"}),
            json!({"c": {}}),
            json!({"op": "add", "left": 1, "right": 2, "more": "text"}),
            json!({"op": "add", "left": {"op": "add", "more": "text"}, "more": "text"}),
            json!([1, "more"]),
            json!([[1, "more"], "more"]),
            json!([[1, 2], "more"]),
            json!(["text", 1, "text"]),
            json!(["text", 1, "other"]),
            json!([1, 2]),
        ];
        values.extend([json!({"op": "multiply", "left": leaf, "right": leaf}), leaf]);
        values
    }

    #[test]
    fn a_schema_with_guards_accepts_the_same_values() {
        for schema in schemas() {
            let plain = jsonschema::validator_for(&schema).expect("a schema");
            let (guarded, validator) = compile_guarded(&schema).expect("a schema");
            let verdicts = values().iter().map(|value| plain.is_valid(value)).collect::<Vec<_>>();
            let with_guards = values().iter().map(|value| validator.is_valid(value)).collect::<Vec<_>>();
            assert_eq!(with_guards, verdicts, "{guarded}");
        }
    }

    #[test]
    fn alternatives_with_references_get_guards_where_no_place_moves() {
        let guards = |schema: &Value| with_guards(schema).to_string().matches(r#""if""#).count();
        let counts: Vec<_> = schemas().iter().map(guards).collect();
        assert_eq!(counts, [2, 2, 0, 1, 0, 2, 2, 2, 2]);
        let alternatives = schemas()[0]["$defs"]["expression"]["oneOf"].clone();
        let with =
            |keyword: &str, value: Value| json!({"anyOf": alternatives, "$defs": {"part": {keyword: value}}});
        assert_eq!(guards(&with("$schema", json!("http://json-schema.org/draft-06/schema#"))), 0, "no `if`");
        assert_eq!(guards(&with("unevaluatedProperties", json!(false))), 2);
        assert_eq!(guards(&with("description", json!("An unevaluated expression of draft-06"))), 2);
        let guarded = with_guards(&schemas()[1]);
        let guard = &guarded["$defs"]["expression"]["anyOf"][1]["if"];
        let expected = json!({"type": "object", "required": ["op", "left", "right"], "properties": {"op": {"const": "multiply"}}});
        assert_eq!(guard, &expected);
        assert_eq!(guarded["$defs"]["add"], schemas()[1]["$defs"]["add"]);
    }

    #[test]
    fn guards_are_bounded_and_faults_have_the_place_of_the_schema_without_them() {
        // Each level of references has twenty times as many parts.
        let level = |n: usize| {
            let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
            (format!("d{n}"), json!({"type": "object", "allOf": vec![next; 20]}))
        };
        let mut definitions: Map<String, Value> = (0..8).map(level).collect();
        definitions.insert("d8".to_owned(), json!({"type": "object"}));
        let many = json!({"$defs": definitions, "anyOf": [{"$ref": "#/$defs/d0"}, {"$ref": "#/$defs/d1"}]});
        assert!(with_guards(&many).to_string().len() < 3 * MAX_GUARD_BYTES);
        let wrong = json!({"anyOf": [{"type": "object", "properties": {"a": {"$ref": "#"}}, "required": [1]}, {"type": "number"}]});
        let fault = compile_guarded(&wrong).map(drop).expect_err("no name");
        assert!(fault.contains(" at /anyOf/0/required/0: "), "{fault}");
    }
}
