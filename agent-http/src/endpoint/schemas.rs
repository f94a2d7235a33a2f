//! JSON schemas of the API's types, each defined once.

use agent_client::problem::PROBLEM_JSON;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::error::Code;

/// Schema generator that collects the referenced definitions.
pub(crate) struct Schemas(SchemaGenerator);

impl Schemas {
    /// Creates a generator of JSON Schema 2020-12, the dialect of OpenAPI 3.1.
    pub(crate) fn new() -> Self {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        });
        Self(settings.into_generator())
    }

    /// Returns the schema of a type, as a reference if the type has a name.
    pub(crate) fn schema_for<T: JsonSchema>(&mut self) -> Value {
        self.0.subschema_for::<T>().to_value()
    }

    /// Returns the schema of a type in which these fields are optional.
    pub(crate) fn without_required<T: JsonSchema>(&mut self, fields: &[&str]) -> Value {
        let mut schema = T::json_schema(&mut self.0).to_value();
        if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
            required.retain(|name| !fields.iter().any(|field| name == field));
        }
        schema
    }

    /// Returns all referenced definitions, and the schemas of errors.
    pub(crate) fn into_definitions(mut self) -> Value {
        let mut definitions: Map<String, Value> = self.0.take_definitions(true);
        definitions.insert("Problem".to_owned(), problem());
        definitions.insert("ApiError".to_owned(), openai_error());
        definitions.sort_keys();
        Value::Object(definitions)
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
            "type": text("`about:blank`, or the type `quota-exceeded` of IANA for a limit of the service."),
            "title": text("The reason phrase of the HTTP status."),
            "status": {"type": "integer", "description": "The HTTP status code."},
            "detail": text("Human-readable explanation of the error."),
            "code": {"type": "string", "description": "Machine-readable error code. Codes may be added.", "examples": codes},
            "requestId": text("The request's id, as in the header `X-Request-Id`."),
            "violated-policies": {"type": "array", "items": {"type": "string"}, "description":
                "Names of the limits of the service that are reached, as in the header `RateLimit-Policy`."},
        },
    })
}

/// Returns the response object that all errors share.
pub(crate) fn problem_response() -> Value {
    json!({
        "description": "An error, as problem details.",
        "content": {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    })
}

fn openai_error() -> Value {
    let text = |text: &str| json!({"type": "string", "description": text});
    let param = json!({"type": ["string", "null"], "description": "Path of the invalid field."});
    json!({
        "type": "object",
        "description": "An error as OpenAI's API has it.",
        "required": ["error"],
        "properties": {"error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": text("Human-readable explanation of the error."),
                "type": text("Kind of error, such as `invalid_request_error`."),
                "param": param,
                "code": text("Machine-readable error code. Codes may be added."),
            },
        }},
    })
}

/// Returns the response object that all errors of OpenAI's API share.
pub(crate) fn openai_error_response() -> Value {
    json!({
        "description": "An error, as OpenAI's API has it.",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ApiError"}}},
    })
}
