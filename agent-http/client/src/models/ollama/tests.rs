//! Tests of the adapter against a scripted loopback server. The responses follow Ollama's documented API; no real
//! Ollama takes part.

mod answers;
mod requests;

use std::sync::Arc;

use agent_core::budget::{EstimateCounter, TokenBudget, TokenCounter};
use agent_core::message::{Content, ContentPart, MediaSource, Message, Role, ToolCall};
use agent_core::model::ModelEvent;
use agent_core::prompt::{
    AssemblyInput, Fragment, Part, PartCache, Prompt, PromptMessage, Stability, assemble,
};
use agent_core::tool::ToolChoice;
use agent_platform::fallback::FailureClass;
use agent_platform::messages_model::ClaudeTokenizer;
use agent_platform::model_notice::ModelNotice;
use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;
use crate::loopback::{AfterResponse, LoopbackServer, chunked_response, outbound_client};
use crate::models::ModelLimits;
use crate::models::harness::{
    answer_of, answer_to, check_chunked_answer, check_conformance, check_sent_request, check_streamed_body,
    request, tool,
};

const NDJSON: &str = "application/x-ndjson";
const JSON: &str = "application/json; charset=utf-8";

fn model(server: &LoopbackServer) -> Ollama {
    model_of(server, 8192)
}

fn model_of(server: &LoopbackServer, num_ctx: usize) -> Ollama {
    let key = Some(Secret::new("sk-1"));
    let model = spec("m-1", num_ctx);
    Ollama::new(outbound_client("127.0.0.1"), &server.url, UrlTrust::Supplied, key, model).expect("a model")
}

fn spec(name: &str, num_ctx: usize) -> ModelSpec {
    let limits = ModelLimits { context_window: Some(num_ctx), ..ModelLimits::default() };
    ModelSpec::new(name).with_limits(limits)
}

/// Checks the events of a stream for several chunk sizes, which also split multi-byte characters.
async fn check(kind: &str, body: &str, expected: &[&str]) {
    check_chunked_answer(model, kind, body, expected).await;
}

/// A whole response with its `Content-Length`.
fn piece(body: &str) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {JSON}\r\ncontent-length: {}\r\n\r\n", body.len());
    (head + body).into_bytes()
}

fn message_line(message: &Value) -> String {
    let line = json!({"model": "m-1", "created_at": "2025-11-03T15:36:02.583064Z",
        "message": message, "done": false});
    format!("{line}\n")
}

fn text(text: &str) -> String {
    message_line(&json!({"role": "assistant", "content": text, "images": null}))
}

fn calls(calls: &Value) -> String {
    message_line(&json!({"role": "assistant", "content": "", "tool_calls": calls}))
}

fn done(more: &Value) -> String {
    let mut line = json!({"model": "m-1", "created_at": "2025-11-03T15:36:03.1Z",
        "message": {"role": "assistant", "content": ""}, "done": true, "total_duration": 4883583458_u64});
    for (name, value) in more.as_object().expect("an object") {
        line[name] = value.clone();
    }
    format!("{line}\n")
}

fn stop() -> String {
    done(&json!({"done_reason": "stop"}))
}

/// A request whose prompt has about `tokens` tokens, and an image if `picture` is set.
fn request_of(tokens: usize, picture: bool) -> ModelRequest {
    let text = ContentPart::Text { text: "word ".repeat(tokens) };
    let source = MediaSource::Data { value: "QUJD".into(), mime_type: "image/png".into() };
    let parts = [text].into_iter().chain(picture.then_some(ContentPart::Image { source })).collect();
    let message = Message { content: Content::Parts(parts), ..Message::user("") };
    ModelRequest { prompt: Arc::new(Prompt::new(Vec::new(), vec![PromptMessage::new(message)])), ..request() }
}

#[tokio::test]
async fn the_adapter_conforms() {
    let (complete_answer, begun) = (text("Hello") + &stop(), text("Hel"));
    check_conformance(NDJSON, (complete_answer, begun), model).await;
}

fn prepared(request: &ModelRequest) -> Result<Payload, AgentError> {
    let base = Url::parse("http://127.0.0.1:11434/").expect("an address");
    let key = Some(Secret::new("sk-1"));
    Ollama::new(outbound_client(""), &base, UrlTrust::Operator, key, spec("m-1", 4096))
        .expect("a model")
        .prepare(request)
}
