//! Check that a value had objects where it was read as structs: serde reads the elements of an array as fields in their order.

use serde::{Serialize, de::Error};
use serde_json::Value;

/// Refuses a value with an array in a place where what was read from it is written as an object.
pub(super) fn check_objects<E: Error>(value: &Value, read: &impl Serialize) -> Result<(), E> {
    let found = find_array(value, &serde_json::to_value(read).map_err(E::custom)?);
    found.map_or(Ok(()), |path| {
        Err(E::custom(path[1..].to_owned() + ": invalid type: sequence, expected a map"))
    })
}

/// Returns the path of the first array whose place has an object in `written`.
fn find_array(value: &Value, written: &Value) -> Option<String> {
    match (value, written) {
        (Value::Array(_), Value::Object(_)) => Some(String::new()),
        (Value::Array(items), Value::Array(written)) => (items.iter().zip(written).enumerate())
            .find_map(|(index, (item, written))| Some(format!("[{index}]{}", find_array(item, written)?))),
        (Value::Object(fields), Value::Object(written)) => (fields.iter())
            .find_map(|(name, field)| Some(format!(".{name}{}", find_array(field, written.get(name)?)?))),
        _ => None,
    }
}
