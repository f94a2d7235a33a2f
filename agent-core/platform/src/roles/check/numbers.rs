//! Numbers in a role that a reader would round.

use serde_json::Value;

use super::RoleFinding;
use crate::exact_json;

/// Member of an entry of `openApi` that is compiled to tools and not stored.
const DOCUMENT: &str = "document";

/// Returns the numbers in a role that would be stored and sent with another value, since they have more digits than double
/// precision, and no integer of 64 bits is the same. `role` is JSON that [`exact_json::read`] has read.
pub fn rounded_numbers(role: &Value) -> Vec<RoleFinding> {
    let mut paths = Vec::new();
    collect_rounded(role, "", &mut paths);
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
            let is_document = |name: &str| name == DOCUMENT && path.starts_with("content.openApi[");
            for (name, member) in members.iter().filter(|(name, _)| !is_document(name)) {
                let separator = if path.is_empty() { "" } else { "." };
                collect_rounded(member, &format!("{path}{separator}{name}"), paths);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_lose_digits_are_found() {
        let role = r#"{"content": {"httpTools": [
            {"name": "a", "inputSchema": {"properties": {"n": {"const": 18446744073709551616, "maximum": 1.50}}},
                "request": {"body": {"id": 9007199254740993, "to": [1.50, 123456789012345678901234], "text": "123456789012345678901234"}}},
            {"name": "b", "request": {"body": 0.12345678901234567890}}, 7],
            "openApi": [{"id": "a", "document": {"maximum": 123456789012345678901234}}]},
            "children": [{"name": "EmbeddedAI", "content": {"parameters": {"temperature": 0.10, "extraBody": {"id": 36893488147419103233}}}}]}"#;
        let found = rounded_numbers(&exact_json::read(role).expect("JSON"));
        let paths: Vec<&str> = found.iter().map(|finding| finding.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "content.httpTools[0].inputSchema.properties.n.const",
                "content.httpTools[0].request.body.to[1]",
                "content.httpTools[1].request.body",
                "children[0].content.parameters.extraBody.id",
            ]
        );
        assert_eq!(rounded_numbers(&Value::Null), []);
    }
}
