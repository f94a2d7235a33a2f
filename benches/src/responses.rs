//! Events of the mock vendor's Responses API: an answer of one message, each event in its own HTTP chunk.

use serde_json::{Value, json};

use crate::answer::http_chunk;

/// Identifier of the only item of an answer.
const MESSAGE_ID: &str = "msg_1";

/// Returns the body before the first token.
pub(crate) fn opening(model: &str) -> String {
    let item = json!({"id": MESSAGE_ID, "type": "message", "status": "in_progress", "role": "assistant", "content": []});
    let part = json!({"type": "output_text", "text": "", "annotations": []});
    let events = [
        json!({"type": "response.created", "response": response(model, "in_progress", &json!([]), Value::Null)}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": item}),
        of_message("content_part.added", "part", part),
    ];
    events.iter().map(event).collect()
}

/// Returns one token.
pub(crate) fn text_delta(text: &str) -> String {
    event(&of_message("output_text.delta", "delta", text.into()))
}

/// Returns the body after the last token of an answer with this text.
pub(crate) fn end(model: &str, text: &str) -> String {
    let part = json!({"type": "output_text", "text": text, "annotations": []});
    let item = json!({"id": MESSAGE_ID, "type": "message", "status": "completed", "role": "assistant", "content": [part]});
    let usage = json!({"input_tokens": 20, "output_tokens": 200, "total_tokens": 220});
    let events = [
        of_message("output_text.done", "text", text.into()),
        json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
        json!({"type": "response.completed", "response": response(model, "completed", &json!([item]), usage)}),
    ];
    events.iter().map(event).collect()
}

fn response(model: &str, status: &str, output: &Value, usage: Value) -> Value {
    json!({"id": "resp_1", "object": "response", "model": model, "status": status, "error": null,
        "output": output, "usage": usage})
}

/// Returns an event about the message, with one member of its own.
fn of_message(kind: &str, name: &str, value: Value) -> Value {
    let mut event = json!({"type": format!("response.{kind}"), "item_id": MESSAGE_ID, "output_index": 0,
        "content_index": 0});
    event[name] = value;
    event
}

fn event(data: &Value) -> String {
    http_chunk(&format!("data: {data}\n\n"))
}
