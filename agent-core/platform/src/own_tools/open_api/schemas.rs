//! Conversion of the schemas of a document to JSON Schema with references to its own definitions.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, Value, json};

use super::document::OpenApiDocument;

/// Maximum length of a description, in bytes; a longer one is truncated.
const MAX_DESCRIPTION_BYTES: usize = 1024;

/// Maximum depth of a schema, and the number of schemas to which an operation refers.
const MAX_DEPTH: usize = 32;
const MAX_DEFINITIONS: usize = 128;
/// Keywords that are kept as they are, if JSON Schema allows their values.
const PLAIN_KEYWORDS: [&str; 23] = [
    "const",
    "default",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minContains",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "pattern",
    "required",
    "title",
    "type",
    "uniqueItems",
    "dependentRequired",
];
/// Values of `type`.
const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];
/// Keywords whose value is a schema, a list of schemas, or schemas by name.
const SCHEMA_KEYWORDS: [&str; 8] =
    ["additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then"];
const LIST_KEYWORDS: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
const MAP_KEYWORDS: [&str; 3] = ["dependentSchemas", "patternProperties", "properties"];
/// Keywords that combine schemas.
const CHOICES: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// The schemas of one operation.
pub(super) struct Schemas<'d> {
    document: &'d OpenApiDocument<'d>,
    /// Names of the definitions by their references, and those that are not converted yet.
    names: BTreeMap<String, String>,
    pending: Vec<String>,
}

impl<'d> Schemas<'d> {
    pub(super) fn new(document: &'d OpenApiDocument<'d>) -> Self {
        Self { document, names: BTreeMap::new(), pending: Vec::new() }
    }

    /// Converts a schema.
    ///
    /// # Errors
    /// Reason why it cannot be represented.
    pub(super) fn convert(&mut self, schema: &Value) -> Result<Value, String> {
        self.convert_at(schema, 0)
    }

    /// Converts the definitions to which the converted schemas refer; `None` if there are none.
    ///
    /// # Errors
    /// Reason why one cannot be represented.
    pub(super) fn into_definitions(mut self) -> Result<Option<Value>, String> {
        let mut all = Map::new();
        while let Some(reference) = self.pending.pop() {
            let name = self.names.get(&reference).cloned().unwrap_or_default();
            let target = self.document.target(&reference)?;
            let converted = self.convert(target)?;
            all.insert(name, converted);
        }
        all.sort_keys();
        Ok((!all.is_empty()).then_some(Value::Object(all)))
    }

    fn convert_at(&mut self, schema: &Value, depth: usize) -> Result<Value, String> {
        if depth > MAX_DEPTH {
            return Err("has a schema that is nested too deeply".to_owned());
        }
        let fields = match schema {
            Value::Object(fields) => fields,
            Value::Bool(_) => return Ok(schema.clone()),
            _ => return Err("has a schema that is not an object".to_owned()),
        };
        if fields.contains_key("$dynamicRef") || fields.contains_key("$recursiveRef") {
            return Err("has a dynamic reference".to_owned());
        }
        let mut converted = Map::new();
        if let Some(reference) = fields.get("$ref").and_then(Value::as_str) {
            let name = self.definition(reference)?;
            converted.insert("$ref".to_owned(), format!("#/$defs/{name}").into());
            // Beside a reference, revision 3.0 has no other keywords.
            if self.document.is_3_0 {
                return Ok(Value::Object(converted));
            }
        }
        self.convert_fields(fields, &mut converted, depth)?;
        if self.document.is_3_0 {
            upgrade(fields, &mut converted);
        }
        Ok(Value::Object(converted))
    }

    fn convert_fields(
        &mut self,
        fields: &Map<String, Value>,
        converted: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<(), String> {
        // The client does not send what only the server sets.
        let document = self.document;
        let is_sent = |schema: &Value| !document.is_read_only(schema);
        for (keyword, value) in fields {
            let keyword = keyword.as_str();
            let value = match value {
                Value::String(text) if keyword == "description" => cut(text).into(),
                value if PLAIN_KEYWORDS.contains(&keyword) && is_valid_value(keyword, value) => value.clone(),
                value if SCHEMA_KEYWORDS.contains(&keyword) => self.convert_at(value, depth + 1)?,
                Value::Array(items) if LIST_KEYWORDS.contains(&keyword) => {
                    let items = items.iter().map(|item| self.convert_at(item, depth + 1));
                    Value::Array(items.collect::<Result<_, _>>()?)
                }
                Value::Object(schemas) if MAP_KEYWORDS.contains(&keyword) => {
                    let sent = schemas.iter().filter(|(_, schema)| is_sent(schema));
                    let sent =
                        sent.map(|(name, schema)| Ok((name.clone(), self.convert_at(schema, depth + 1)?)));
                    Value::Object(sent.collect::<Result<_, String>>()?)
                }
                _ => continue,
            };
            converted.insert(keyword.to_owned(), value);
        }
        if let Some(Value::Array(required)) = converted.get_mut("required") {
            let properties = fields.get("properties").and_then(Value::as_object);
            let is_unsent = |name: &str| {
                properties.and_then(|properties| properties.get(name)).is_some_and(|schema| !is_sent(schema))
            };
            let mut seen = HashSet::new();
            required.retain(|name| {
                name.as_str().is_some_and(|name| !is_unsent(name) && seen.insert(name.to_owned()))
            });
        }
        Ok(())
    }

    /// Returns the name of the definition for a reference.
    fn definition(&mut self, reference: &str) -> Result<String, String> {
        if let Some(name) = self.names.get(reference) {
            return Ok(name.clone());
        }
        self.document.target(reference)?;
        if self.names.len() >= MAX_DEFINITIONS {
            return Err(format!("refers to more than {MAX_DEFINITIONS} schemas"));
        }
        let last = reference.rsplit('/').next().unwrap_or_default();
        let plain: String = last
            .chars()
            .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
            .take(64)
            .collect();
        let is_free = |name: &String| !name.is_empty() && self.names.values().all(|other| other != name);
        let numbered = (self.names.len()..).map(|number| format!("{plain}_{number}"));
        let name = std::iter::once(plain.clone()).chain(numbered).find(is_free).unwrap_or_default();
        self.names.insert(reference.to_owned(), name.clone());
        self.pending.push(reference.to_owned());
        Ok(name)
    }
}

/// Returns true if JSON Schema allows this value of a plain keyword. Documents have others, such as `"required": true` at a
/// property or the type `file`, which leave the rest of the schema as it is.
fn is_valid_value(keyword: &str, value: &Value) -> bool {
    let is_type = |value: &Value| value.as_str().is_some_and(|name| TYPES.contains(&name));
    match keyword {
        "exclusiveMaximum" | "exclusiveMinimum" | "maximum" | "minimum" => value.is_number(),
        "multipleOf" => value.as_f64().is_some_and(|number| number > 0.0),
        "maxContains" | "maxItems" | "maxLength" | "maxProperties" | "minContains" | "minItems"
        | "minLength" | "minProperties" => value.is_u64(),
        "format" | "pattern" | "title" => value.is_string(),
        "uniqueItems" => value.is_boolean(),
        "enum" | "required" => value.is_array(),
        "type" => match value {
            Value::Array(types) => {
                let is_repeated = |i: usize| types[..i].contains(&types[i]);
                !types.is_empty() && types.iter().all(is_type) && !(0..types.len()).any(is_repeated)
            }
            name => is_type(name),
        },
        "dependentRequired" => value.as_object().is_some_and(|lists| {
            lists.values().all(|list| list.as_array().is_some_and(|names| names.iter().all(Value::is_string)))
        }),
        _ => true,
    }
}

/// Converts the keywords of revision 3.0 that JSON Schema does not have, or has with another meaning.
fn upgrade(fields: &Map<String, Value>, converted: &mut Map<String, Value>) {
    for (exclusive, limit) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        match fields.get(exclusive) {
            Some(Value::Bool(true)) => {
                converted.remove(exclusive);
                if let Some(value) = converted.remove(limit) {
                    converted.insert(exclusive.to_owned(), value);
                }
            }
            Some(Value::Bool(false)) => drop(converted.remove(exclusive)),
            _ => {}
        }
    }
    if fields.get("nullable") != Some(&Value::Bool(true)) {
        return;
    }
    // Revision 3.0 ignores the keyword beside other schemas without a type, but documents mean it: a reference can have no other
    // keyword.
    if CHOICES.iter().any(|keyword| converted.contains_key(*keyword)) {
        let description = converted.remove("description");
        let value = Value::Object(std::mem::take(converted));
        converted.extend(description.map(|text| ("description".to_owned(), text)));
        converted.insert("anyOf".to_owned(), json!([value, {"type": "null"}]));
        return;
    }
    if let Some(kind @ Value::String(_)) = converted.get("type").cloned() {
        converted.insert("type".to_owned(), json!([kind, "null"]));
    }
    if let Some(Value::Array(values)) = converted.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
}

/// Removes the patterns of a schema.
pub(super) fn remove_patterns(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.get("pattern").is_some_and(Value::is_string) {
                fields.remove("pattern");
            }
            if fields.get("patternProperties").is_some_and(Value::is_object) {
                fields.remove("patternProperties");
            }
            fields.values_mut().for_each(remove_patterns);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_patterns),
        _ => {}
    }
}

/// Returns a description within its limit.
pub(super) fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_DESCRIPTION_BYTES)].to_owned()
}
