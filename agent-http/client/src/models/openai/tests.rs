//! Tests of the adapter against a scripted loopback server.

mod adaptation;
mod answers;
mod requests;

use std::sync::Arc;

use agent_core::error::AgentErrorKind;
use agent_core::message::{Content, MediaSource, Message, ProviderItem, Role, ToolCall};
use agent_core::model::ModelEvent;
use agent_core::prompt::{Fragment, Part, Prompt, PromptMessage, Stability};
use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;
use crate::context_size::ContextSize;
use crate::loopback::{AfterResponse, LoopbackServer, chunked_response, outbound_client};
use crate::models::ModelLimits;
use crate::models::answer_parts::ItemMaker;
use crate::models::harness::{
    answer_of, answer_to, check_chunked_answer, check_conformance, check_sent_request, check_streamed_body,
    request, tool,
};

const SSE: &str = "text/event-stream";
const JSON: &str = "application/json; charset=utf-8";

fn model(server: &LoopbackServer) -> OpenAi {
    let key = Some(Secret::new("sk-1"));
    OpenAi::new(outbound_client("127.0.0.1"), &server.url, UrlTrust::Supplied, key, "m-1").expect("a model")
}

async fn read(server: &LoopbackServer) -> Vec<String> {
    answer_of(&model(server)).await
}

/// Checks the events of a body for several chunk sizes, which also split multi-byte characters.
async fn check(kind: &str, body: &str, expected: &[&str]) {
    check_chunked_answer(model, kind, body, expected).await;
}

/// SSE events with the given data.
fn sse<T: AsRef<str>>(data: &[T]) -> String {
    data.iter().map(|data| format!("data: {}\n\n", data.as_ref())).collect()
}

fn delta(delta: &str) -> String {
    format!(r#"{{"model":"m-1-2026","choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}"#)
}

fn finish(reason: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":"{reason}"}}]}}"#)
}

fn text(text: &str) -> String {
    delta(&format!(r#"{{"content":"{text}"}}"#))
}

fn calls(fragments: &str) -> String {
    delta(&format!(r#"{{"tool_calls":[{fragments}]}}"#))
}

const DONE: &str = "[DONE]";

#[tokio::test]
async fn the_adapter_conforms() {
    let (complete_answer, begun) = (sse(&[text("Hello"), finish("stop"), DONE.into()]), sse(&[text("Hel")]));
    check_conformance(SSE, (complete_answer, begun), model).await;
}

const OVERFLOW: &str = r#"{"error":{"code":400,"message":"request (5021 tokens) exceeds the available context size (4096 tokens) sk-1","type":"exceed_context_size_error","n_prompt_tokens":5021,"n_ctx":4096}}"#;
