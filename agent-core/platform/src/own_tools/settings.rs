//! Deserialization of settings in a role.

use serde_json::{Map, Value};

use crate::json::{objects_only, redact_serde_message};

/// Maximum number of names that a message lists, and the length of one in bytes.
const MAX_LISTED_NAMES: usize = 16;
const MAX_LISTED_NAME_BYTES: usize = 128;

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

/// Returns names for a message: at most 16 of them, each of at most 128 bytes, and the number of the others.
pub(super) fn list_names(names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let mut names = names.into_iter();
    let shown = names.by_ref().take(MAX_LISTED_NAMES).map(|name| {
        let name = name.as_ref();
        name[..name.floor_char_boundary(MAX_LISTED_NAME_BYTES)].to_owned()
    });
    let shown = shown.collect::<Vec<_>>().join(", ");
    match names.count() {
        0 => shown,
        others => format!("{shown} and {others} more"),
    }
}

/// Deserializes settings; the error has the path of the field, and not its value.
pub(super) fn read<T: serde::de::DeserializeOwned>(
    settings: &Map<String, Value>,
) -> Result<T, ToolSettingsError> {
    let settings = objects_only(Value::Object(settings.clone()));
    serde_path_to_error::deserialize(settings).map_err(|error| {
        let path = error.path().to_string();
        let path = if path == "." { String::new() } else { path };
        ToolSettingsError::new(path, redact_serde_message(&error.inner().to_string()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_lists_a_bounded_number_of_names() {
        assert_eq!(list_names(["a", "b"]), "a, b");
        assert_eq!(list_names(vec!["n".to_owned(); 20]), format!("{} and 4 more", ["n"; 16].join(", ")));
        assert_eq!(list_names(["\u{fc}".repeat(1000)]), "\u{fc}".repeat(64));
    }
}
