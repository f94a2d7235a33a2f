//! Numbers in the tools of a role that a reader would round.

use serde_json::Value;

use super::RoleFinding;
use crate::exact_json;

/// Parts of an HTTP tool whose numbers are sent as they are, with their names in paths.
const CONSTANT_PARTS: [(&str, &str); 2] =
    [("/request/body", "request.body"), ("/inputSchema", "inputSchema")];

/// Returns the numbers in the HTTP tools of a role that would be stored and sent with another value, since they have more digits
/// than double precision, and no integer of 64 bits is the same. `role` is JSON that [`exact_json::read`] has read.
pub fn rounded_numbers(role: &Value) -> Vec<RoleFinding> {
    let tools = role.pointer("/content/httpTools").and_then(Value::as_array);
    let mut paths = Vec::new();
    for (i, tool) in tools.into_iter().flatten().enumerate() {
        for (pointer, name) in CONSTANT_PARTS {
            if let Some(part) = tool.pointer(pointer) {
                collect_rounded(part, &format!("content.httpTools[{i}].{name}"), &mut paths);
            }
        }
    }
    let message =
        "has more digits than a number keeps (64 bits for whole numbers, about 15 digits for others)";
    paths.into_iter().map(|path| RoleFinding::new(path, message)).collect()
}

fn collect_rounded(value: &Value, path: &str, paths: &mut Vec<String>) {
    match value {
        Value::String(text) if exact_json::is_inexact(text) => paths.push(path.to_owned()),
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                collect_rounded(item, &format!("{path}[{i}]"), paths);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                collect_rounded(member, &format!("{path}.{name}"), paths);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_tools_that_lose_digits_are_found() {
        let role = r#"{"content": {"other": 123456789012345678901234, "httpTools": [
            {"name": "a", "inputSchema": {"properties": {"n": {"const": 18446744073709551616, "maximum": 1.50}}},
                "request": {"body": {"id": 9007199254740993, "to": [1.50, 123456789012345678901234], "text": "123456789012345678901234"}}},
            {"name": "b", "request": {"body": 0.12345678901234567890}}, 7]}}"#;
        let found = rounded_numbers(&exact_json::read(role).expect("JSON"));
        let paths: Vec<&str> = found.iter().map(|finding| finding.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "content.httpTools[0].request.body.to[1]",
                "content.httpTools[0].inputSchema.properties.n.const",
                "content.httpTools[1].request.body",
            ]
        );
        assert_eq!(rounded_numbers(&Value::Null), []);
    }
}
