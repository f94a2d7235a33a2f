//! The form of an input schema that models receive. Vendors refuse choices at its top, and with them the whole request.

use std::borrow::Cow;
use std::ptr;

use serde_json::{Map, Value, json};

use crate::schema_steps::local_pointer;

/// Keywords that vendors refuse at the top.
const REFUSED_KEYWORDS: [&str; 5] = ["allOf", "anyOf", "enum", "not", "oneOf"];
/// Maximum number of schemas whose properties are merged.
const MAX_MERGED_SCHEMAS: usize = 64;

/// Keyword with which a tool server asks its own clients to repeat an argument in a header (MCP, SEP-2243). It says nothing to a
/// model, and the clients of the platform's tool server need not repeat anything.
const HEADER_KEYWORD: &str = "x-mcp-header";

/// Returns the schema with the properties of its choices in place of the choices. Arguments are checked by the whole schema,
/// and a model reads which of its choices they miss.
pub(super) fn offered_schema(schema: &Value) -> Cow<'_, Value> {
    let mut offered = without_choices(schema);
    if has_header_keyword(&offered) {
        remove_header_keyword(offered.to_mut());
    }
    // The protocol lets servers leave the member out. Some vendors refuse the request without it.
    if offered.get("properties").is_none()
        && let Value::Object(fields) = offered.to_mut()
    {
        fields.insert("properties".to_owned(), json!({}));
    }
    offered
}

fn has_header_keyword(schema: &Value) -> bool {
    let mut properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    properties.any(|(_, property)| property.get(HEADER_KEYWORD).is_some() || has_header_keyword(property))
}

fn remove_header_keyword(schema: &mut Value) {
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (_, property) in properties.into_iter().flatten() {
        if let Value::Object(fields) = property {
            fields.remove(HEADER_KEYWORD);
        }
        remove_header_keyword(property);
    }
}

fn without_choices(schema: &Value) -> Cow<'_, Value> {
    let fields = schema.as_object();
    let fields = fields.filter(|fields| REFUSED_KEYWORDS.iter().any(|name| fields.contains_key(*name)));
    let Some(fields) = fields else { return Cow::Borrowed(schema) };
    let mut merged =
        MergedProperties { root: schema, properties: Vec::new(), required: Vec::new(), schemas: Vec::new() };
    merged.add(schema, true);
    let mut offered = fields.clone();
    offered.retain(|name, _| !REFUSED_KEYWORDS.contains(&name.as_str()));
    let properties = merged.properties.into_iter().map(|(name, forms)| match forms.as_slice() {
        [form] => (name.to_owned(), Value::clone(form)),
        forms => (name.to_owned(), json!({"anyOf": forms})),
    });
    offered.insert("properties".to_owned(), Value::Object(properties.collect::<Map<_, _>>()));
    if !merged.required.is_empty() {
        offered.insert("required".to_owned(), json!(merged.required));
    }
    Cow::Owned(Value::Object(offered))
}

/// The properties of a schema and of its choices, each with its distinct forms.
struct MergedProperties<'s> {
    root: &'s Value,
    properties: Vec<(&'s str, Vec<&'s Value>)>,
    /// Names of the properties that every choice requires.
    required: Vec<&'s str>,
    /// The schemas so far; each is added once: one may refer to itself.
    schemas: Vec<&'s Value>,
}

impl<'s> MergedProperties<'s> {
    /// Adds the properties of a schema; `is_certain` is false for one of several choices.
    fn add(&mut self, schema: &'s Value, is_certain: bool) {
        let is_known = self.schemas.iter().any(|known| ptr::eq(*known, schema));
        if is_known || self.schemas.len() >= MAX_MERGED_SCHEMAS {
            return;
        }
        self.schemas.push(schema);
        for (name, form) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            match self.properties.iter_mut().find(|(other, _)| other == name) {
                Some((_, forms)) if forms.contains(&form) => {}
                Some((_, forms)) => forms.push(form),
                None => self.properties.push((name.as_str(), vec![form])),
            }
        }
        for name in items(schema, "required").iter().filter(|_| is_certain).filter_map(Value::as_str) {
            if !self.required.contains(&name) {
                self.required.push(name);
            }
        }
        let root = self.root;
        let reference = schema.get("$ref").and_then(Value::as_str).and_then(local_pointer);
        if let Some(target) = reference.and_then(|pointer| root.pointer(&pointer)) {
            self.add(target, is_certain);
        }
        for choice in items(schema, "allOf") {
            self.add(choice, is_certain);
        }
        for choice in items(schema, "anyOf").iter().chain(items(schema, "oneOf")) {
            self.add(choice, false);
        }
    }
}

/// Returns the items of a keyword's list.
fn items<'v>(schema: &'v Value, keyword: &str) -> &'v [Value] {
    schema.get(keyword).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_at_the_top_become_properties() {
        let plain =
            json!({"type": "object", "properties": {"a": {"oneOf": [{"type": "string"}, {"type": "null"}]}}});
        assert!(matches!(offered_schema(&plain), Cow::Borrowed(_)));
        let text = json!({"type": "string"});
        let schema = json!({"type": "object", "properties": {"id": text}, "required": ["id"],
            "oneOf": [
                {"properties": {"id": text, "kind": {"const": "mail"}, "to": text}, "required": ["kind", "to"]},
                {"$ref": "#/$defs/call"}],
            "allOf": [{"properties": {"note": text}, "required": ["note", "id"]}],
            "not": {"required": ["to", "number"]},
            "$defs": {"call": {"properties": {"kind": {"const": "call"}, "number": text}, "required": ["kind"]}}});
        let expected = json!({"type": "object", "required": ["id", "note"],
            "properties": {"id": text, "note": text, "to": text, "number": text,
                "kind": {"anyOf": [{"const": "mail"}, {"const": "call"}]}},
            "$defs": schema["$defs"]});
        assert_eq!(*offered_schema(&schema), expected);
        let header = json!({"type": "string", "x-mcp-header": "Region"});
        let annotated = json!({"type": "object", "properties": {"a": header, "b": {"properties": {"c": header}},
            "x-mcp-header": text}});
        let expected = json!({"type": "object", "properties": {"a": text, "b": {"properties": {"c": text}},
            "x-mcp-header": text}});
        assert_eq!(*offered_schema(&annotated), expected);
        let empty = json!({"type": "object"});
        assert_eq!(*offered_schema(&empty), json!({"type": "object", "properties": {}}));
        // A schema that refers to itself ends.
        let endless = json!({"type": "object", "anyOf": [{"$ref": "#"}, {"properties": {"a": text}}]});
        assert_eq!(offered_schema(&endless)["properties"], json!({"a": text}));
    }
}
