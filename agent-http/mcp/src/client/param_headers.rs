//! Arguments that a call of revision 2026-07-28 repeats in `Mcp-Param-*` headers, since the tool's input schema asks for them
//! by `x-mcp-header` (SEP-2243). A server refuses a call without them.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use agent_platform::exact_json;
use base64::prelude::{BASE64_STANDARD, Engine};
use http::{HeaderName, HeaderValue};
use rmcp::model::JsonObject;
use rmcp::transport::common::http_header::{
    BASE64_HEADER_PREFIX, BASE64_HEADER_SUFFIX, HEADER_MCP_PARAM_PREFIX,
};
use serde_json::Value;

/// Keyword of a property whose value is repeated in a header.
pub(super) const PARAM_HEADER_KEYWORD: &str = "x-mcp-header";

/// The headers of a server's tools by the tools' names. Tools without such headers are left out.
#[derive(Default)]
pub(super) struct ParamHeaders(Mutex<HashMap<String, Vec<ParamHeader>>>);

/// A header and the path of its argument.
struct ParamHeader {
    name: HeaderName,
    path: Vec<String>,
}

impl ParamHeaders {
    /// Replaces the headers by the headers of these tools, given with their input schemas.
    pub(super) fn set<S: Borrow<JsonObject>>(&self, tools: impl Iterator<Item = (String, S)>) {
        let annotated = tools.filter_map(|(tool, schema)| {
            let mut headers = Vec::new();
            let schema: &JsonObject = schema.borrow();
            collect_headers(schema.get("properties"), &mut Vec::new(), &mut headers);
            (!headers.is_empty()).then_some((tool, headers))
        });
        let annotated = annotated.collect();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = annotated;
    }

    /// Returns the headers of a call. Arguments that are absent, null, lists or objects have no header.
    pub(super) fn of_call(&self, tool: &str, arguments: &JsonObject) -> Vec<(HeaderName, HeaderValue)> {
        let headers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_argument = |header: &ParamHeader| {
            let (first, rest) = header.path.split_first()?;
            let value = rest.iter().try_fold(arguments.get(first)?, |value, name| value.get(name))?;
            let text = match value {
                Value::String(text) => exact_json::text(text).to_owned(),
                Value::Bool(_) | Value::Number(_) => value.to_string(),
                Value::Null | Value::Array(_) | Value::Object(_) => return None,
            };
            Some((header.name.clone(), header_value(&text)?))
        };
        headers.get(tool).into_iter().flatten().filter_map(of_argument).collect()
    }
}

/// Appends the headers of properties that are reached from the schema's root by `properties` alone. Names that are no header
/// names are ignored.
fn collect_headers(properties: Option<&Value>, path: &mut Vec<String>, headers: &mut Vec<ParamHeader>) {
    for (property, schema) in properties.and_then(Value::as_object).into_iter().flatten() {
        path.push(property.clone());
        if let Some(suffix) =
            schema.get(PARAM_HEADER_KEYWORD).and_then(Value::as_str).filter(|name| !name.is_empty())
            && let Ok(name) = HeaderName::from_bytes(format!("{HEADER_MCP_PARAM_PREFIX}{suffix}").as_bytes())
        {
            headers.push(ParamHeader { name, path: path.clone() });
        }
        collect_headers(schema.get("properties"), path, headers);
        path.pop();
    }
}

/// Encodes a text as a header value: as it is if it is visible ASCII, else in Base64.
pub(super) fn header_value(text: &str) -> Option<HeaderValue> {
    let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && !text.starts_with(' ')
        && !text.ends_with(' ')
        && !text.starts_with(BASE64_HEADER_PREFIX);
    if is_plain {
        return HeaderValue::from_str(text).ok();
    }
    let encoded = BASE64_STANDARD.encode(text);
    HeaderValue::from_str(&format!("{BASE64_HEADER_PREFIX}{encoded}{BASE64_HEADER_SUFFIX}")).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_that_are_not_visible_ascii_are_encoded() {
        for (text, expected) in [
            ("readTodos", "readTodos"),
            ("read todos", "read todos"),
            ("läuft", "=?base64?bMOkdWZ0?="),
            (" a", "=?base64?IGE=?="),
            ("a\n", "=?base64?YQo=?="),
            ("=?base64?x", "=?base64?PT9iYXNlNjQ/eA==?="),
            ("", ""),
        ] {
            assert_eq!(header_value(text).expect("a value"), expected, "{text:?}");
        }
    }

    #[test]
    fn arguments_are_repeated_as_the_schema_asks() {
        let object = |value: Value| value.as_object().expect("an object").clone();
        let header = |name: &str| json!({"type": "string", "x-mcp-header": name});
        let schema = object(json!({"type": "object", "properties": {
            "region": header("Region"), "count": header("Count"), "plain": {"type": "string"}, "flag": header("Flag"),
            "absent": header("Absent"), "list": header("List"), "bad": header("a b"), "empty": header(""),
            "place": {"type": "object", "properties": {"city": header("City")}}}}));
        let headers = ParamHeaders::default();
        headers.set([("query".to_owned(), schema), ("other".to_owned(), JsonObject::new())].into_iter());
        let arguments = object(json!({"region": "eu", "count": 3, "plain": "x", "flag": null, "list": [1],
            "bad": "x", "empty": "x", "place": {"city": "Łódź\r\nX: 1"}}));
        let mut sent = headers.of_call("query", &arguments);
        sent.sort_by(|(one, _), (other, _)| one.as_str().cmp(other.as_str()));
        let sent: Vec<_> =
            sent.iter().map(|(name, value)| (name.as_str(), value.to_str().expect("ASCII"))).collect();
        let city = format!("=?base64?{}?=", BASE64_STANDARD.encode("Łódź\r\nX: 1"));
        assert_eq!(
            sent,
            [("mcp-param-city", city.as_str()), ("mcp-param-count", "3"), ("mcp-param-region", "eu")]
        );
        assert!(headers.of_call("other", &arguments).is_empty());
        headers.set(std::iter::empty::<(String, JsonObject)>());
        assert!(headers.of_call("query", &arguments).is_empty(), "the latest list counts");
    }
}
