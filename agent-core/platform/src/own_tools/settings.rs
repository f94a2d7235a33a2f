//! Deserialization of settings in a role.

use serde_json::{Map, Value};

use crate::json::redact_serde_message;

/// Error of a setting of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolSettingsError {
    /// Path of the field in the role's content, such as `httpTools[1].request.url`.
    pub path: String,
    /// Description, worded to follow the path.
    pub message: String,
}

impl ToolSettingsError {
    pub(super) fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }
}

/// Deserializes settings; the error has the path of the field, and not its value.
pub(super) fn read<T: serde::de::DeserializeOwned>(
    settings: &Map<String, Value>,
) -> Result<T, ToolSettingsError> {
    serde_path_to_error::deserialize(Value::Object(settings.clone())).map_err(|error| {
        let path = error.path().to_string();
        let path = if path == "." { String::new() } else { path };
        ToolSettingsError::new(path, redact_serde_message(&error.inner().to_string()))
    })
}
