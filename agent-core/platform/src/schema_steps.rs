//! Number of the steps that the check of a value by a JSON Schema takes, which is limited before the check begins: no other task of
//! its thread runs meanwhile.

use percent_encoding::percent_decode_str;
use serde_json::{Map, Number, Value};

/// Maximum nesting depth of applied schemas.
const MAX_CHECK_DEPTH: usize = 256;
/// Number of bytes of text that are read in the time of one step.
const TEXT_BYTES_PER_STEP: usize = 64;
/// Number of names that are looked up, or of texts and numbers that are compared, in the time of one step.
const NAMES_PER_STEP: usize = 8;
/// Keywords that read the whole of a text.
const TEXT_KEYWORDS: [&str; 6] =
    ["contentEncoding", "contentMediaType", "format", "maxLength", "minLength", "pattern"];

/// Returns true if the check of a value by a schema takes at most `max_steps` steps.
///
/// References of the schema must be paths in it, and it must not have other keywords by which schemas refer to each other.
pub(crate) fn is_bounded(schema: &Value, value: &Value, max_steps: usize) -> bool {
    StepCounter { root: schema, remaining_steps: max_steps }.apply(schema, value, 0)
}

/// Returns the JSON Pointer of a reference to a place in the same schema.
pub(crate) fn local_pointer(reference: &str) -> Option<String> {
    let pointer = percent_decode_str(reference.strip_prefix('#')?).decode_utf8().ok()?.into_owned();
    (pointer.is_empty() || pointer.starts_with('/')).then_some(pointer)
}

/// Count of the steps of a check: the applications of a schema to a value, each time that one is reached.
///
/// The validator keeps no results of most references. With two references to the next definition in each of thirty definitions,
/// or with two ways from a definition back to itself, its work would double with each level, and no other task could end it.
/// Schemas behind a guard that rejects the value are not counted, since the validator does not apply them.
struct StepCounter<'s> {
    root: &'s Value,
    remaining_steps: usize,
}

impl<'s> StepCounter<'s> {
    /// Counts the application of a schema to a value. Returns false if a limit is exceeded.
    fn apply(&mut self, schema: &'s Value, value: &Value, depth: usize) -> bool {
        let steps = 1 + schema.as_object().map_or(0, |keywords| comparison_steps(keywords, value));
        if depth > MAX_CHECK_DEPTH || !self.spend(steps) {
            return false;
        }
        let Value::Object(keywords) = schema else { return true };
        // Unevaluated members are found by a second look at the schemas that are applied to the same value.
        let is_repeated = ["unevaluatedItems", "unevaluatedProperties"];
        let rounds = if is_repeated.into_iter().any(|name| keywords.contains_key(name)) { 3 } else { 1 };
        (0..rounds).all(|_| self.apply_in_place(keywords, value, depth + 1))
            && match value {
                Value::Object(members) => self.apply_to_members(keywords, members, depth + 1),
                Value::Array(items) => self.apply_to_items(keywords, items, depth + 1),
                _ => true,
            }
    }

    /// Takes steps from those that remain. Returns false if fewer remain.
    fn spend(&mut self, steps: usize) -> bool {
        let remaining = self.remaining_steps.checked_sub(steps);
        self.remaining_steps = remaining.unwrap_or_default();
        remaining.is_some()
    }

    /// Counts the reading of a member's name by a pattern.
    fn read_name(&mut self, name: &str) -> bool {
        self.spend(name.len() / TEXT_BYTES_PER_STEP)
    }

    /// Counts the schemas that are applied to the same value.
    fn apply_in_place(&mut self, keywords: &'s Map<String, Value>, value: &Value, depth: usize) -> bool {
        let root = self.root;
        keywords.iter().all(|(keyword, operand)| match (keyword.as_str(), operand) {
            ("$ref", Value::String(reference)) => {
                let target = local_pointer(reference).and_then(|pointer| root.pointer(&pointer));
                target.is_some_and(|target| self.apply(target, value, depth))
            }
            ("allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => {
                schemas.iter().all(|schema| self.apply(schema, value, depth))
            }
            ("then", _) if is_kept_out(keywords, value) => true,
            ("not" | "if" | "then" | "else", schema) => self.apply(schema, value, depth),
            ("dependentSchemas" | "dependencies", Value::Object(schemas)) => {
                let mut schemas = schemas.iter().filter(|(name, _)| value.get(name.as_str()).is_some());
                schemas.all(|(_, schema)| self.apply(schema, value, depth))
            }
            _ => true,
        })
    }

    /// Counts the schemas that are applied to the members of an object.
    fn apply_to_members(
        &mut self,
        keywords: &'s Map<String, Value>,
        members: &Map<String, Value>,
        depth: usize,
    ) -> bool {
        let named = keywords.get("properties").and_then(Value::as_object);
        keywords.iter().all(|(keyword, operand)| match (keyword.as_str(), operand) {
            ("properties", Value::Object(schemas)) => schemas
                .iter()
                .filter_map(|(name, schema)| Some((schema, members.get(name)?)))
                .all(|(schema, member)| self.apply(schema, member, depth)),
            ("patternProperties", Value::Object(schemas)) => schemas.values().all(|schema| {
                members.iter().all(|(name, member)| self.read_name(name) && self.apply(schema, member, depth))
            }),
            ("additionalProperties", schema) => members
                .iter()
                .filter(|(name, _)| named.is_none_or(|named| !named.contains_key(name.as_str())))
                .all(|(_, member)| self.apply(schema, member, depth)),
            ("unevaluatedProperties", schema) => {
                members.values().all(|member| self.apply(schema, member, depth))
            }
            ("propertyNames", schema) => members
                .keys()
                .all(|name| self.read_name(name) && self.apply(schema, &Value::String(name.clone()), depth)),
            _ => true,
        })
    }

    /// Counts the schemas that are applied to the items of a list.
    fn apply_to_items(&mut self, keywords: &'s Map<String, Value>, items: &[Value], depth: usize) -> bool {
        keywords.iter().all(|(keyword, operand)| match (keyword.as_str(), operand) {
            ("items" | "prefixItems", Value::Array(schemas)) => {
                schemas.iter().zip(items).all(|(schema, item)| self.apply(schema, item, depth))
            }
            ("items" | "additionalItems" | "contains" | "unevaluatedItems", schema) => {
                items.iter().all(|item| self.apply(schema, item, depth))
            }
            _ => true,
        })
    }
}

/// Returns true if the guard of a schema certainly keeps a value from the guarded schema.
fn is_kept_out(keywords: &Map<String, Value>, value: &Value) -> bool {
    keywords.get("else") == Some(&Value::Bool(false))
        && keywords.get("if").is_some_and(|guard| certainly_rejects(guard, value))
}

/// Returns true if a value does not conform to a schema by keywords that apply no reference. False says nothing.
fn certainly_rejects(schema: &Value, value: &Value) -> bool {
    let Value::Object(keywords) = schema else { return *schema == Value::Bool(false) };
    // Older revisions ignore the keywords beside a reference.
    if keywords.contains_key("$ref") {
        return false;
    }
    let members = value.as_object();
    keywords.iter().any(|(keyword, operand)| match (keyword.as_str(), operand) {
        ("type", Value::String(name)) => !may_have_type(value, name),
        ("type", Value::Array(names)) => {
            !names.iter().any(|name| name.as_str().is_none_or(|name| may_have_type(value, name)))
        }
        ("const", expected) => certainly_differ(expected, value),
        ("enum", Value::Array(values)) => values.iter().all(|expected| certainly_differ(expected, value)),
        ("required", Value::Array(names)) => members.is_some_and(|members| {
            names.iter().filter_map(Value::as_str).any(|name| !members.contains_key(name))
        }),
        ("properties", Value::Object(schemas)) => members.is_some_and(|members| {
            let mut named = schemas.iter().filter_map(|(name, schema)| Some((schema, members.get(name)?)));
            named.any(|(schema, member)| certainly_rejects(schema, member))
        }),
        ("allOf", Value::Array(schemas)) => schemas.iter().any(|schema| certainly_rejects(schema, value)),
        _ => false,
    })
}

/// Returns false if a value does not have a type. Revisions differ about whether 1.0 is an integer, which is left open.
fn may_have_type(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        _ => true,
    }
}

/// Returns true for scalar values that differ, and for a scalar value and another kind of value. Numbers with a fraction or an
/// exponent are left open, since 1 equals 1.0, and so are lists and objects.
fn certainly_differ(expected: &Value, value: &Value) -> bool {
    let is_whole = |number: &Number| number.is_i64() || number.is_u64();
    match (expected, value) {
        (Value::Number(expected), Value::Number(number)) => {
            is_whole(expected) && is_whole(number) && expected != number
        }
        (Value::Array(_), Value::Array(_)) | (Value::Object(_), Value::Object(_)) => false,
        (expected, value) => expected != value,
    }
}

/// Returns the steps for the comparisons that a schema's own keywords make.
fn comparison_steps(keywords: &Map<String, Value>, value: &Value) -> usize {
    let length = |keyword: &str| match keywords.get(keyword) {
        Some(Value::Array(items)) => items.len(),
        Some(Value::Object(members)) => members.len(),
        _ => 0,
    };
    let of_value = match value {
        Value::String(text) if TEXT_KEYWORDS.iter().any(|name| keywords.contains_key(*name)) => {
            text.len() / TEXT_BYTES_PER_STEP
        }
        Value::Object(_) => (length("properties") + length("required")) / NAMES_PER_STEP,
        Value::Array(_) if keywords.get("uniqueItems") == Some(&Value::Bool(true)) => size_steps(value),
        _ => 0,
    };
    let of_enum = match value {
        Value::Array(_) | Value::Object(_) => length("enum"),
        _ => length("enum") / NAMES_PER_STEP,
    };
    of_enum + of_value
}

/// Returns the steps needed to visit all parts of a value.
fn size_steps(value: &Value) -> usize {
    let of_text = |text: &str| text.len() / TEXT_BYTES_PER_STEP;
    let of_parts: usize = match value {
        Value::String(text) => of_text(text),
        Value::Array(items) => items.iter().map(size_steps).sum(),
        Value::Object(members) => {
            members.iter().map(|(name, member)| of_text(name) + size_steps(member)).sum()
        }
        _ => 0,
    };
    1 + of_parts
}
