//! Responses of the fake vendor as an n8n webhook.
//!
//! The files in the folder `n8n` are the response bodies, byte for byte. They were written after the sources of n8n
//! 1.123 and 2 and a response posted by a user of version 2: the lines of an execution (`packages/core`: the node's
//! context, and the executor for errors), the trigger's and the webhook's responses (`packages/cli/src/webhooks`,
//! `response-helper.ts`), the output of the nodes in `packages/@n8n/nodes-langchain` and of the Respond to Webhook
//! node. The tests do not run a real n8n.

use serde_json::{Value, json};

use super::{Step, chunk, last_chunk};

/// Content type of every JSON body and every stream.
pub const JSON_CONTENT_TYPE: &str = "application/json; charset=utf-8";

/// Returns the contents of one of the files.
pub fn fixture_body(name: &str) -> &'static [u8] {
    macro_rules! files {
        ($($file:literal),+ $(,)?) => {
            match name {
                $($file => include_bytes!(concat!("n8n/", $file)),)+
                _ => panic!("there is no {name}"),
            }
        };
    }
    files!(
        "agent.ndjson",
        "agent-with-tools.ndjson",
        "agent-and-respond-node.ndjson",
        "respond-node.ndjson",
        "keepalive.ndjson",
        "error.ndjson",
        "error-with-content.ndjson",
        "error-after-text.ndjson",
        "last-node.json",
        "last-node-with-steps.json",
        "all-entries.json",
        "chain.json",
        "model.json",
        "data.json",
        "text.txt",
        "started.json",
        "started-early.txt",
        "started-hosted.json",
        "no-data.json",
        "echo.json",
        "inactive.json",
        "failed.json",
        "failed-with-stack.json",
        "gateway.html",
    )
}

/// Returns a file as a response with a `content-length`.
pub fn fixture_response(status: &str, media_type: &str, name: &str) -> Vec<Step> {
    let body = fixture_body(name);
    let head =
        format!("HTTP/1.1 {status}\r\ncontent-type: {media_type}\r\ncontent-length: {}\r\n\r\n", body.len());
    vec![Step::Send([head.as_bytes(), body].concat())]
}

/// Returns a file as a streamed response, in chunks of `size` bytes.
pub fn streamed_fixture(name: &str, size: usize) -> Vec<Step> {
    let chunks = fixture_body(name).chunks(size).map(chunk);
    [head()].into_iter().chain(chunks).chain([last_chunk()]).collect()
}

/// Returns the head of a streamed response.
pub fn head() -> Step {
    let head =
        format!("HTTP/1.1 200 OK\r\ncontent-type: {JSON_CONTENT_TYPE}\r\ntransfer-encoding: chunked\r\n\r\n");
    Step::Send(head.into())
}

/// Returns the head of a streamed response and the `begin` line of a model call.
pub fn stream_head() -> Step {
    let (Step::Send(head), Step::Send(begin)) = (head(), json_line(&event_json("begin", None))) else {
        panic!("both are sent")
    };
    Step::Send([head, begin].concat())
}

/// Returns one line of JSON.
pub fn json_line(json: &Value) -> Step {
    chunk(format!("{json}\n"))
}

/// Returns a text delta.
pub fn text(text: &str) -> Step {
    json_line(&event_json("item", Some(text)))
}

/// Returns the end of the model call and of the body.
pub fn end() -> [Step; 2] {
    [json_line(&event_json("end", None)), last_chunk()]
}

/// Returns a complete text response.
pub fn answer(texts: &[&str]) -> Vec<Step> {
    let texts = texts.iter().map(|piece| text(piece));
    std::iter::once(stream_head()).chain(texts).chain(end()).collect()
}

fn event_json(kind: &str, content: Option<&str>) -> Value {
    let metadata = json!({"nodeId": "9b9b4e2c-6f0d-4c43-9f3b-0f6c0b7f3c11", "nodeName": "AI Agent",
        "itemIndex": 0, "runIndex": 0, "timestamp": 1771493103011_u64});
    match content {
        Some(content) => json!({"type": kind, "content": content, "metadata": metadata}),
        None => json!({"type": kind, "metadata": metadata}),
    }
}
