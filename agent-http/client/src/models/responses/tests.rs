//! Fixtures of the tests of the model of Responses servers: a loopback server and events of answers.

use std::sync::Arc;

use agent_core::error::AgentErrorKind;
use agent_core::message::{Content, ContentPart, MediaSource, Message, ProviderItem, Role, ToolCall};
use agent_core::prompt::{Fragment, Part, Prompt, PromptMessage, Stability};
use agent_core::tool::ToolChoice;
use expect_test::{Expect, expect};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::*;
use crate::loopback::{AfterResponse, LoopbackServer, chunked_response, outbound_client};
use crate::models::ModelLimits;
use crate::models::harness::{
    answer_of, answer_to, check_chunked_answer, check_conformance, check_sent_request, request, tool,
};
use crate::models::spec::ModelSpec;

mod answers;
mod refusals;
mod requests;

const SSE: &str = "text/event-stream";

const JSON: &str = "application/json; charset=utf-8";

fn protocol(model: impl Into<ModelSpec>) -> ResponsesProtocol {
    ResponsesProtocol::new("test", Account::ApiKey, model, "https://example.com/v1")
}

fn model(server: &LoopbackServer) -> Responses {
    let key = Some(Secret::new("sk-1"));
    let outbound = outbound_client("127.0.0.1");
    Responses::new(outbound, &server.url, UrlTrust::Supplied, key, protocol("m-1")).expect("a model")
}

/// SSE events with the given data.
fn sse(data: &[Value]) -> String {
    data.iter().map(|data| format!("data: {data}\n\n")).collect()
}

/// Checks the events of a body for several chunk sizes, which also split multi-byte characters.
async fn check(kind: &str, body: &str, expected: &[&str]) {
    check_chunked_answer(model, kind, body, expected).await;
}

/// Checks the events of a stream.
async fn check_stream(data: &[Value], expected: &[&str]) {
    check(SSE, &sse(data), expected).await;
}

fn created() -> Value {
    json!({"type": "response.created", "response": {"id": "r", "status": "in_progress", "error": null, "output": []}})
}

fn added(index: usize, item: Value) -> Value {
    json!({"type": "response.output_item.added", "output_index": index, "item": item})
}

fn done(index: usize, item: Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": index, "item": item})
}

fn text(delta: &str) -> Value {
    json!({"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "content_index": 0, "delta": delta})
}

fn message(id: &str, text: &str) -> Value {
    json!({"id": id, "type": "message", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

fn call(number: usize, arguments: &str) -> Value {
    json!({"id": format!("fc_{number}"), "type": "function_call", "status": "in_progress", "name": "x",
        "call_id": format!("call_{number}"), "arguments": arguments})
}

fn arguments(number: usize, delta: &str) -> Value {
    json!({"type": "response.function_call_arguments.delta", "item_id": format!("fc_{number}"),
        "output_index": number, "delta": delta})
}

fn reasoning(id: &str) -> Value {
    json!({"id": id, "type": "reasoning", "summary": [], "encrypted_content": format!("sealed-{id}")})
}

fn completed() -> Value {
    json!({"type": "response.completed", "response": {"id": "r", "status": "completed", "error": null, "output": []}})
}

fn incomplete(reason: Value) -> Value {
    json!({"type": "response.incomplete", "response": {"status": "incomplete", "incomplete_details": reason}})
}

/// Starts a server that answers requests without a limit on the answer, and refuses others with this error.
async fn server_without_limit(status: &'static str, error: Value) -> LoopbackServer {
    let refused = chunked_response(status, JSON, error.to_string().as_bytes(), 4096, true);
    let answer = chunked_response("200 OK", SSE, sse(&[text("hi"), completed()]).as_bytes(), 4096, true);
    let respond = move |request: &str| match request.contains("max_output_tokens") {
        true => refused.clone(),
        false => answer.clone(),
    };
    LoopbackServer::respond_by(respond, AfterResponse::Close).await
}

fn limited_model(server: &LoopbackServer) -> Responses {
    let protocol = protocol("m-1").with_output_limit(true);
    Responses::new(outbound_client("127.0.0.1"), &server.url, UrlTrust::Supplied, None, protocol)
        .expect("a model")
}

#[tokio::test]
async fn the_request_goes_to_the_endpoint_with_the_key_and_the_very_bytes() {
    let answer = chunked_response("200 OK", SSE, sse(&[completed()]).as_bytes(), 64, true);
    let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
    let model = model(&server);
    let lines = [
        "POST /v1/responses HTTP/1.1",
        "authorization: Bearer sk-1",
        "content-type: application/json",
        "accept: text/event-stream",
    ];
    check_sent_request(&model, &server, &lines).await;
}

#[tokio::test]
async fn the_adapter_conforms() {
    let (complete_answer, begun) =
        (sse(&[created(), text("Hello"), completed()]), sse(&[created(), text("Hel")]));
    check_conformance(SSE, (complete_answer, begun), model).await;
}
