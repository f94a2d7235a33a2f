//! The runtime's operations.

use http::Method;
use serde_json::json;

use super::operation::{Operation, Service};
use crate::error::Code;
use crate::runtime::PROVIDERS;

pub(super) fn operations() -> Vec<Operation> {
    let text = || json!({"type": "string"});
    let body = json!({
        "type": "object",
        "required": ["provider", "model", "messages"],
        "properties": {
            "provider": {"type": "string", "examples": PROVIDERS}, "model": text(), "systemPrompt": text(),
            "messages": {"type": "array", "items": {"type": "object"}, "description": "The conversation, oldest first."},
            "tools": {"type": "array"}, "mcpServerUrl": text(), "enableThinking": {"type": "boolean"},
            "apiKey": text(), "baseUrl": text(), "toolChoice": {},
        },
    });
    let chat =
        Operation::new(Method::POST, "/chat", "runtimeChat", "runtime", "A turn with a model and its tools.")
            .of(&[Service::Runtime])
            .credentials(&["", "runtimeSecret"])
            .run()
            .body(body)
            .problems(&[Code::UnknownProvider]);
    vec![chat]
}
