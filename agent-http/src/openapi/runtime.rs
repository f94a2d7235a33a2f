//! Operations of the agent runtime.

use http::Method;
use serde_json::json;

use super::operation::{DescribedService, Operation};
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
            .services(&[DescribedService::Runtime])
            .credentials(&["", "runtimeSecret"])
            .run_responses()
            .body(body)
            .problems(&[Code::UnknownProvider]);
    vec![chat, messenger_call()]
}

fn messenger_call() -> Operation {
    let body = json!({
        "type": "object",
        "required": ["token", "method"],
        "properties": {
            "token": {"type": "string", "pattern": "^[A-Za-z0-9:_-]{1,128}$", "description": "The bot's token. It is in no log."},
            "method": {"type": "string", "pattern": "^[A-Za-z]{3,64}$", "examples": ["sendMessage"]},
            "params": {"type": "object", "description": "The method's parameters, by the API's names."},
        },
    });
    let answer = json!({
        "description": "The API's answer, with its own status, body and content type.",
        "headers": {"Retry-After": {"description": "`parameters.retry_after` of a refusal.", "schema": {"type": "integer"}}},
    });
    Operation::new(
        Method::POST,
        "/messenger/call",
        "messengerCall",
        "runtime",
        "A call of the messenger's bot API.",
    )
    .services(&[DescribedService::Runtime])
    .credentials(&["", "runtimeSecret"])
    .body(body)
    .response("default", answer)
    .problems(&[Code::BackendUnreachable, Code::BackendTimeout])
}
