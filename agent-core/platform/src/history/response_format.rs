//! Format of the answer in requests: `responseFormat`, and `response_format` of OpenAI's API.

use std::sync::Arc;

use agent_core::role::{ResponseFormat, ResponseKind};

use super::FieldError;
use super::completion_error::CompletionError;
use super::json::{ObjectFields, Value};
use super::sources::FieldSources;
use crate::response_format::{FormatError, check_response_format};

/// Field of the platform's own requests, and its members.
const FIELD: &str = "responseFormat";
const MEMBERS: [&str; 5] = ["type", "name", "schema", "strict", "repairs"];
/// Field of OpenAI's API, and its member with the schema.
const OPENAI_FIELD: &str = "response_format";
const JSON_SCHEMA: &str = "json_schema";

/// Reads the field `responseFormat`.
///
/// # Errors
/// The first member that is unknown, of the wrong type, or out of its bounds.
pub(super) fn read(sources: &FieldSources<'_>) -> Result<Option<Arc<ResponseFormat>>, FieldError> {
    let Some((path, value)) = sources.get(FIELD) else { return Ok(None) };
    let format = read_format(value).map_err(|fault| fault.with_parent_path(&path))?;
    Ok(Some(Arc::new(format)))
}

fn read_format(value: &Value<'_>) -> Result<ResponseFormat, FieldError> {
    let fields = ObjectFields::from_value(value)?;
    let kind = match fields.required_text("type")? {
        "text" => ResponseKind::Text,
        "json" => ResponseKind::Json,
        _ => return Err(FieldError::new("type", "must be text or json")),
    };
    // If a member had no effect, the client would misread the answer.
    if let Some(name) = fields.names().find(|name| !MEMBERS.contains(name)) {
        return Err(FieldError::new(name, "is not a member of a response format"));
    }
    let repairs = match fields.get("repairs") {
        None => None,
        Some(repairs) => match repairs.as_u64().and_then(|repairs| u8::try_from(repairs).ok()) {
            Some(repairs) => Some(repairs),
            None => return Err(FieldError::new("repairs", "must be a small whole number")),
        },
    };
    let format = ResponseFormat {
        kind,
        name: fields.text("name")?.map(str::to_owned),
        schema: fields.get("schema").map(serde_json::Value::from),
        strict: fields.boolean("strict")?,
        repairs,
    };
    check_response_format(&format).map_err(|FormatError { path, message }| FieldError::new(path, message))?;
    Ok(format)
}

/// Reads the field `response_format` of a chat completion.
///
/// # Errors
/// The first member that is invalid, and types that are not supported.
pub(super) fn read_completion_format(
    fields: ObjectFields<'_>,
) -> Result<Option<Arc<ResponseFormat>>, CompletionError> {
    let Some(format_fields) = fields.object(OPENAI_FIELD)? else { return Ok(None) };
    let with_path = |fault: FieldError| fault.with_parent_path(OPENAI_FIELD);
    let json = ResponseFormat { kind: ResponseKind::Json, ..ResponseFormat::default() };
    let format = match format_fields.required_text("type").map_err(with_path)? {
        "text" => ResponseFormat::default(),
        "json_object" => json,
        JSON_SCHEMA => {
            let with_path = |fault: FieldError| with_path(fault.with_parent_path(JSON_SCHEMA));
            let missing = || with_path(FieldError::new("", "is missing"));
            let described = format_fields.object(JSON_SCHEMA).map_err(with_path)?.ok_or_else(missing)?;
            let format = ResponseFormat {
                name: Some(described.required_text("name").map_err(with_path)?.to_owned()),
                schema: described.get("schema").map(serde_json::Value::from),
                strict: described.boolean("strict").map_err(with_path)?,
                ..json
            };
            check_response_format(&format)
                .map_err(|FormatError { path, message }| with_path(FieldError::new(path, message)))?;
            format
        }
        _ => {
            let problem = "must have the type text, json_object or json_schema";
            return Err(CompletionError::Unsupported(FieldError::new(OPENAI_FIELD, problem)));
        }
    };
    Ok(Some(Arc::new(format)))
}
