//! Subsets of JSON Schema that providers take, and refuse a request beyond.

use serde_json::{Map, Value};

use super::recursion::is_recursive;

/// Keywords that both subsets have.
const COMMON_KEYWORDS: [&str; 14] = [
    "$defs",
    "$ref",
    "additionalProperties",
    "anyOf",
    "const",
    "definitions",
    "description",
    "enum",
    "format",
    "items",
    "properties",
    "required",
    "title",
    "type",
];
/// Further keywords of OpenAI's strict mode.
const STRICT: [&str; 8] = [
    "exclusiveMaximum",
    "exclusiveMinimum",
    "maxItems",
    "maximum",
    "minItems",
    "minimum",
    "multipleOf",
    "pattern",
];
/// Formats of texts that both have.
const FORMATS: [&str; 9] =
    ["date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"];
/// Limit on the properties of a schema in both subsets.
const MAX_PROPERTIES: usize = 500;

/// A subset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SchemaDialect {
    /// OpenAI's strict mode: every property is required, and no others are allowed.
    OpenAiStrict,
    /// Anthropic's: no other properties are allowed, and no recursion.
    Anthropic,
}

impl SchemaDialect {
    /// Returns true if the subset has the schema.
    pub(super) fn has(self, schema: &Value) -> bool {
        let mut properties = 0;
        is_object_schema(schema)
            && schema.get("anyOf").is_none()
            && schema.get("$ref").is_none()
            && self.has_within(schema, &mut properties)
            && properties <= MAX_PROPERTIES
            && !(self == Self::Anthropic && is_recursive(schema))
    }

    fn has_within(self, schema: &Value, properties: &mut usize) -> bool {
        let Value::Object(members) = schema else { return false };
        let is_keyword = |name: &str| {
            COMMON_KEYWORDS.contains(&name) || self == Self::OpenAiStrict && STRICT.contains(&name)
        };
        if !members.keys().all(|name| is_keyword(name)) {
            return false;
        }
        if members.contains_key("$ref") {
            return members.len() == 1;
        }
        if let Some(format) = members.get("format")
            && !format.as_str().is_some_and(|format| FORMATS.contains(&format))
        {
            return false;
        }
        if has_type(members, "object") && !self.has_object(members, properties) {
            return false;
        }
        let lists = members.get("anyOf").and_then(Value::as_array).into_iter().flatten();
        let maps = ["$defs", "definitions", "properties"].into_iter().filter_map(|name| members.get(name));
        let of_maps = maps.filter_map(Value::as_object).flat_map(Map::values);
        let inner = lists.chain(of_maps).chain(members.get("items"));
        inner.into_iter().all(|schema| self.has_within(schema, properties))
    }

    fn has_object(self, members: &Map<String, Value>, properties: &mut usize) -> bool {
        let own = members.get("properties").and_then(Value::as_object);
        *properties += own.map_or(0, Map::len);
        let required = members.get("required").and_then(Value::as_array);
        let is_required =
            |name: &String| required.is_some_and(|required| required.iter().any(|other| other == name));
        let requires_all = self == Self::Anthropic || own.is_none_or(|own| own.keys().all(is_required));
        members.get("additionalProperties") == Some(&Value::Bool(false)) && requires_all
    }
}

/// Returns true if every answer of a schema is an object.
pub(super) fn is_object_schema(schema: &Value) -> bool {
    schema["type"] == "object"
}

fn has_type(members: &Map<String, Value>, name: &str) -> bool {
    match members.get("type") {
        Some(Value::Array(types)) => types.iter().any(|kind| kind == name),
        Some(kind) => kind == name,
        None => members.contains_key("properties") && name == "object",
    }
}
