//! Responses of the fake vendor as an Ollama server, after Ollama's API documentation. The tests do not run a real
//! Ollama.

use serde_json::{Value, json};

use super::{Step, chunk, json_response, last_chunk};

/// Returns the head of a streamed response.
pub fn stream_head() -> Step {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n";
    Step::Send(head.into())
}

/// Returns one line of JSON.
pub fn json_line(json: &Value) -> Step {
    chunk(format!("{json}\n"))
}

/// Returns a line with a part of the assistant's message.
pub fn message_line(message: Value) -> Step {
    json_line(&json!({"model": "fake-1", "created_at": "2025-11-03T15:36:02.583064Z",
        "message": message, "done": false}))
}

/// Returns a text delta.
pub fn text(text: &str) -> Step {
    message_line(json!({"role": "assistant", "content": text}))
}

/// Returns the last line, with `prompt_tokens` as the prompt's token count, and the end of the body.
pub fn done(reason: &str, prompt_tokens: u64) -> [Step; 2] {
    let line = json_line(&json!({"model": "fake-1", "created_at": "2025-11-03T15:36:03.1Z",
        "message": {"role": "assistant", "content": ""}, "done": true, "done_reason": reason,
        "total_duration": 4883583458_u64, "prompt_eval_count": prompt_tokens, "eval_count": 7}));
    [line, last_chunk()]
}

/// Returns a complete text response.
pub fn answer(texts: &[&str]) -> Vec<Step> {
    let texts = texts.iter().map(|piece| text(piece));
    std::iter::once(stream_head()).chain(texts).chain(done("stop", 11)).collect()
}

/// Returns a tool call. Arguments that are not JSON are sent as a string, which a real Ollama never does.
pub fn tool_call_json(id: &str, name: &str, arguments: &str) -> Value {
    let arguments = serde_json::from_str(arguments).unwrap_or_else(|_| json!(arguments));
    let mut call = json!({"function": {"name": name, "arguments": arguments}});
    if !id.is_empty() {
        call["id"] = id.into();
    }
    call
}

/// Returns a complete response that calls tools.
pub fn tool_calls(calls: &[(&str, &str, &str)]) -> Vec<Step> {
    let calls: Vec<Value> =
        calls.iter().map(|(id, name, arguments)| tool_call_json(id, name, arguments)).collect();
    let message = message_line(json!({"role": "assistant", "content": "", "tool_calls": calls}));
    [stream_head(), message].into_iter().chain(done("stop", 11)).collect()
}

/// Returns the list of installed models.
pub fn tags(models: &Value) -> Vec<Step> {
    json_response("200 OK", "", &json!({ "models": models }).to_string())
}
