//! Check of arguments against a tool's input schema.

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use crate::json::invalid_schema_message;

/// Maximum number of bytes of a reported fault: it may quote the arguments.
const MAX_FAULT_BYTES: usize = 500;

/// Compiles a schema. Patterns take linear time, and nothing is read from elsewhere.
///
/// # Errors
/// Description of the fault, worded to follow the path.
pub(super) fn compile(schema: &Value) -> Result<Validator, String> {
    if schema["type"] != "object" {
        return Err("must be a schema of an object: its type is not \"object\"".to_owned());
    }
    let options = jsonschema::options().with_pattern_options(PatternOptions::regex());
    options.build(schema).map_err(|error| invalid_schema_message(&error))
}

/// Returns the first fault of arguments with its path.
pub(super) fn fault(validator: &Validator, arguments: &Value) -> Option<String> {
    let error = validator.iter_errors(arguments).next()?;
    let path = error.instance_path().to_string();
    let at = if path.is_empty() { String::new() } else { format!("{path}: ") };
    Some(cut(format!("{at}{error}")))
}

fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_FAULT_BYTES));
    text
}
