//! Deserialization of settings in a role.

use serde_json::{Map, Value};

use super::SettingsFault;

/// Deserializes settings; the fault has the path of the field.
pub(super) fn read<T: serde::de::DeserializeOwned>(
    settings: &Map<String, Value>,
) -> Result<T, SettingsFault> {
    serde_path_to_error::deserialize(Value::Object(settings.clone())).map_err(|error| {
        let path = error.path().to_string();
        let path = if path == "." { String::new() } else { path };
        SettingsFault::new(path, format!("is invalid: {}", error.inner()))
    })
}
