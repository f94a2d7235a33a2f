//! The same vendor as n8n's webhooks.
//!
//! The files beside this are its answers, byte for byte, made after the sources of n8n 1.123 and 2 and an answer that a
//! user of 2 has posted: how an execution sends its lines (`packages/core`: the node's context, and the executor for
//! errors), how the trigger and the webhook answer (`packages/cli/src/webhooks`, `response-helper.ts`), what the nodes of
//! `packages/@n8n/nodes-langchain` and the node that responds give. There is none to test against.

use serde_json::{Value, json};

use super::{Step, chunk, last_chunk};

/// What every answer of one piece, and every stream, announces.
pub const JSON: &str = "application/json; charset=utf-8";

/// One of the files.
pub fn recorded(name: &str) -> &'static [u8] {
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

/// A file as n8n answers it, with a length.
pub fn one_piece(status: &str, media_type: &str, name: &str) -> Vec<Step> {
    let body = recorded(name);
    let head =
        format!("HTTP/1.1 {status}\r\ncontent-type: {media_type}\r\ncontent-length: {}\r\n\r\n", body.len());
    vec![Step::Send([head.as_bytes(), body].concat())]
}

/// A file as n8n streams it, cut into chunks of `size` bytes.
pub fn streamed(name: &str, size: usize) -> Vec<Step> {
    let chunks = recorded(name).chunks(size).map(chunk);
    [head()].into_iter().chain(chunks).chain([last_chunk()]).collect()
}

/// The head of a streamed answer.
pub fn head() -> Step {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {JSON}\r\ntransfer-encoding: chunked\r\n\r\n");
    Step::Send(head.into())
}

/// The head of a streamed answer, and the beginning of a model call.
pub fn stream_head() -> Step {
    let (Step::Send(head), Step::Send(begin)) = (head(), line(&said("begin", None))) else {
        panic!("both are sent")
    };
    Step::Send([head, begin].concat())
}

/// One line.
pub fn line(json: &Value) -> Step {
    chunk(format!("{json}\n"))
}

/// A piece of text.
pub fn text(text: &str) -> Step {
    line(&said("item", Some(text)))
}

/// The end of the model call, and of the answer.
pub fn end() -> [Step; 2] {
    [line(&said("end", None)), last_chunk()]
}

/// A whole answer of text.
pub fn answer(texts: &[&str]) -> Vec<Step> {
    let texts = texts.iter().map(|piece| text(piece));
    std::iter::once(stream_head()).chain(texts).chain(end()).collect()
}

fn said(kind: &str, content: Option<&str>) -> Value {
    let metadata = json!({"nodeId": "9b9b4e2c-6f0d-4c43-9f3b-0f6c0b7f3c11", "nodeName": "AI Agent",
        "itemIndex": 0, "runIndex": 0, "timestamp": 1771493103011_u64});
    match content {
        Some(content) => json!({"type": kind, "content": content, "metadata": metadata}),
        None => json!({"type": kind, "metadata": metadata}),
    }
}
