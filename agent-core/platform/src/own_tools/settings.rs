//! Deserialization of settings in a role.

use agent_core::role::{OwnTool, ToolAuth};
use agent_core::secret::Secret;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::json::{objects_only, redact_serde_message};

/// Beginning of the message of an unknown field, before the names of the known ones.
const UNKNOWN_FIELD: &str = "is not a known field; expected ";

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

/// Deserializes the settings of a tool, or of a group of tools. `others` are fields that are read elsewhere.
pub(super) fn read_tool<T: DeserializeOwned>(
    tool: &OwnTool,
    others: &[&str],
) -> Result<T, ToolSettingsError> {
    // All fields are named, so that a new one cannot be forgotten.
    let typed = OwnTool { auth: Some(ToolAuth::default()), settings: Map::new() };
    read(&tool.settings, field_names(&typed).into_iter().chain(others.iter().map(|&name| name.to_owned())))
}

/// Deserializes the settings of a credential. Unknown fields are ignored.
pub(super) fn read_auth<T: DeserializeOwned>(auth: &ToolAuth) -> Result<T, ToolSettingsError> {
    read(&auth.settings, [])
}

/// Checks that a credential has no fields but `own` and those of all credentials.
pub(super) fn check_auth_fields(auth: &ToolAuth, own: &[&str]) -> Result<(), ToolSettingsError> {
    let typed = ToolAuth { secret: Some(Secret::new("")), settings: Map::new() };
    let own = std::iter::once("type").chain(own.iter().copied()).map(str::to_owned);
    let names: Vec<String> = own.chain(field_names(&typed)).collect();
    match auth.settings.keys().find(|name| !names.contains(name)) {
        Some(name) => {
            Err(ToolSettingsError::new(name.as_str(), format!("{UNKNOWN_FIELD}{}", choice_of(&names))))
        }
        None => Ok(()),
    }
}

fn field_names(typed: &impl Serialize) -> Vec<String> {
    let value = serde_json::to_value(typed).expect("plain data serialises into memory");
    value.as_object().into_iter().flat_map(Map::keys).cloned().collect()
}

/// Deserializes settings; the error has the path of the field, and not its value. `others` are fields that are read elsewhere;
/// the message about an unknown field also lists them.
fn read<T: DeserializeOwned>(
    settings: &Map<String, Value>,
    others: impl IntoIterator<Item = String>,
) -> Result<T, ToolSettingsError> {
    let settings = objects_only(Value::Object(settings.clone()));
    serde_path_to_error::deserialize(settings).map_err(|error| {
        let is_nested = error.path().iter().count() > 1;
        let path = error.path().to_string();
        let path = if path == "." { String::new() } else { path };
        let message = redact_serde_message(&error.inner().to_string());
        let message = match message.strip_prefix(UNKNOWN_FIELD).filter(|_| !is_nested) {
            Some(known) => {
                let known = known.split('`').skip(1).step_by(2).map(str::to_owned);
                format!("{UNKNOWN_FIELD}{}", choice_of(&known.chain(others).collect::<Vec<_>>()))
            }
            None => message,
        };
        ToolSettingsError::new(path, message)
    })
}

/// Returns names in the form of serde's messages.
fn choice_of(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match &quoted[..] {
        [one, other] => format!("{one} or {other}"),
        _ => format!("one of {}", quoted.join(", ")),
    }
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
