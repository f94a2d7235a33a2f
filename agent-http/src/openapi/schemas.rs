//! The schemas, each of a type once.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::error::{Code, PROBLEM_JSON};

/// Makes schemas and keeps those that are referred to.
pub(super) struct Schemas(SchemaGenerator);

impl Schemas {
    /// None yet. JSON Schema 2020-12 is what OpenAPI 3.1 speaks.
    pub(super) fn new() -> Self {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        });
        Self(settings.into_generator())
    }

    /// The schema of a type, by reference where it has a name.
    pub(super) fn of<T: JsonSchema>(&mut self) -> Value {
        self.0.subschema_for::<T>().to_value()
    }

    /// The schema of a type in which these fields may be left out.
    pub(super) fn without_required<T: JsonSchema>(&mut self, fields: &[&str]) -> Value {
        let mut schema = T::json_schema(&mut self.0).to_value();
        if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
            required.retain(|name| !fields.iter().any(|field| name == field));
        }
        schema
    }

    /// All that were referred to, and what problems look like.
    pub(super) fn into_definitions(mut self) -> Value {
        let mut all: Map<String, Value> = self.0.take_definitions(true);
        all.insert("Problem".to_owned(), problem());
        all.sort_keys();
        Value::Object(all)
    }
}

fn problem() -> Value {
    let codes: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    let text = |text: &str| json!({"type": "string", "description": text});
    json!({
        "type": "object",
        "description": "Problem details, RFC 9457.",
        "required": ["type", "title", "status", "detail", "code", "requestId"],
        "properties": {
            "type": text("Always `about:blank`."),
            "title": text("The status in words."),
            "status": {"type": "integer", "description": "The status."},
            "detail": text("What is wrong, for people."),
            "code": {"type": "string", "description": "What is wrong, for machines. More may be added.", "examples": codes},
            "requestId": text("The request's id, as in the header `X-Request-Id`."),
        },
    })
}

/// The one response of everything that fails.
pub(super) fn problem_response() -> Value {
    json!({
        "description": "A problem.",
        "content": {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    })
}
