//! Tests of the adapter against a scripted loopback server.

use agent_core::budget::EstimateCounter;
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::message::{Content, ContentPart, MediaSource, Message, ProviderItem, Role, ToolCall};
use agent_core::model::ModelEvent;
use agent_core::prompt::{Fragment, Part, Prompt, PromptMessage, Stability};
use agent_core::tool::ToolChoice;
use agent_platform::fallback::FailureClass;
use expect_test::{Expect, expect};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::*;
use crate::loopback::{AfterResponse, LoopbackServer, chunked_response, outbound_client};
use crate::models::ModelLimits;
use crate::models::harness::{
    answer_of, answer_to, check_chunked_answer, check_conformance, check_sent_request, request, tool,
};

mod requests;

const SSE: &str = "text/event-stream; charset=utf-8";
const JSON: &str = "application/json";

fn model(server: &LoopbackServer) -> Anthropic {
    let key = Some(Secret::new("sk-1"));
    let outbound = outbound_client("127.0.0.1");
    Anthropic::new(outbound, &server.url, UrlTrust::Supplied, key, "m-1").expect("a model")
}

async fn server(status: &str, kind: &str, body: &str) -> LoopbackServer {
    let answer = chunked_response(status, kind, body.as_bytes(), 64, true);
    LoopbackServer::respond_with(answer, AfterResponse::Close).await
}

/// Events with their names, as the vendor sends them.
fn sse(events: &[Value]) -> String {
    let event = |data: &Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or("x"));
    events.iter().map(event).collect()
}

/// Checks the events of a stream for several chunk sizes, which also split multi-byte characters.
async fn check_stream(events: &[Value], expected: &[&str]) {
    check_chunked_answer(model, SSE, &sse(events), expected).await;
}

fn started() -> Value {
    json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant",
        "content": [], "model": "m-1-2026", "stop_reason": null, "stop_sequence": null, "usage": {
            "input_tokens": 3, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 20, "output_tokens": 1}}})
}

fn block(index: usize, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: usize, kind: &str, member: &str, text: &str) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": {"type": kind, member: text}})
}

fn text(index: usize, text: &str) -> Value {
    delta(index, "text_delta", "text", text)
}

fn arguments(index: usize, json: &str) -> Value {
    delta(index, "input_json_delta", "partial_json", json)
}

fn stopped(index: usize) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn ended(reason: &str) -> Vec<Value> {
    vec![
        json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null},
            "usage": {"output_tokens": 9, "output_tokens_details": {"thinking_tokens": 4}}}),
        json!({"type": "message_stop"}),
    ]
}

/// Returns the events of an answer with these blocks.
fn answer(blocks: impl IntoIterator<Item = Vec<Value>>, reason: &str) -> Vec<Value> {
    [started()].into_iter().chain(blocks.into_iter().flatten()).chain(ended(reason)).collect()
}

fn text_block(index: usize, deltas: &[&str]) -> Vec<Value> {
    let deltas = deltas.iter().map(|delta| text(index, delta));
    [block(index, json!({"type": "text", "text": ""}))]
        .into_iter()
        .chain(deltas)
        .chain([stopped(index)])
        .collect()
}

fn call_block(index: usize, id: &str, deltas: &[&str]) -> Vec<Value> {
    let begin = block(index, json!({"type": "tool_use", "id": id, "name": "x", "input": {}}));
    let deltas = deltas.iter().map(|delta| arguments(index, delta));
    [begin].into_iter().chain(deltas).chain([stopped(index)]).collect()
}

fn thinking_block(index: usize, deltas: &[&str], signature: &str) -> Vec<Value> {
    let begin = block(index, json!({"type": "thinking", "thinking": "", "signature": ""}));
    let deltas = deltas.iter().map(|text| delta(index, "thinking_delta", "thinking", text));
    let signature = delta(index, "signature_delta", "signature", signature);
    [begin].into_iter().chain(deltas).chain([signature, stopped(index)]).collect()
}

const BEGIN: &str = "usage m-1-2026 28 - 20 -";
const END: &str = "usage m-1-2026 28 9 20 4";

#[tokio::test]
async fn texts_calls_and_reasons_become_events() {
    check_stream(
        &answer([text_block(0, &["Größe – 🙂", "", " \"b\"\n"])], "end_turn"),
        &[BEGIN, "text Größe – 🙂", "text  \"b\"\n", END, "finish Stop"],
    )
    .await;
    check_stream(
        &answer(
            [
                text_block(0, &["Wait."]),
                call_block(1, "toolu_1", &["", "{\"a\"", ":1}"]),
                call_block(2, "toolu_2", &[]),
            ],
            "tool_use",
        ),
        &[
            BEGIN,
            "text Wait.",
            "call 0 toolu_1 x",
            "args 0 {\"a\"",
            "args 0 :1}",
            "call 1 toolu_2 x",
            "args 1 {}",
            END,
            "finish ToolCalls",
        ],
    )
    .await;
    for (reason, expected) in [
        ("stop_sequence", "finish Stop"),
        ("max_tokens", "finish Length"),
        ("model_context_window_exceeded", "finish Length"),
        ("pause_turn", "finish Length"),
        ("refusal", "finish ContentFilter"),
        ("something_new", "finish Stop"),
    ] {
        check_stream(&answer([text_block(0, &["a"])], reason), &[BEGIN, "text a", END, expected]).await;
    }
}

#[tokio::test]
async fn a_later_event_does_not_take_back_the_tokens_of_the_prompt() {
    for (input_tokens, expected) in [(0, "usage m-1-2026 28 9 20 -"), (28, "usage m-1-2026 28 9 0 -")] {
        let mut events = answer([text_block(0, &["a"])], "end_turn");
        let index = events.len() - 2;
        events[index]["usage"] = json!({"input_tokens": input_tokens, "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0, "output_tokens": 9});
        check_stream(&events, &[BEGIN, "text a", expected, "finish Stop"]).await;
    }
}

#[tokio::test]
async fn pings_and_unknown_events_are_skipped() {
    let events = vec![
        json!({"type": "ping"}),
        started(),
        json!({"type": "new_event", "index": "?", "delta": 7, "usage": []}),
        json!({}),
        block(0, json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}})),
        arguments(0, "{}"),
        stopped(0),
        block(1, json!({"type": "text", "text": "a"})),
        delta(1, "citations_delta", "citation", "?"),
        text(1, "b"),
        json!({"type": "ping"}),
        stopped(1),
    ];
    let events: Vec<Value> = events.into_iter().chain(ended("end_turn")).collect();
    check_stream(&events, &[BEGIN, "text a", "text b", END, "finish Stop"]).await;
}

#[tokio::test]
async fn thinking_is_kept_with_its_signature_at_its_place() {
    let redacted = vec![block(1, json!({"type": "redacted_thinking", "data": "EmwK/+=="})), stopped(1)];
    let body = sse(&answer(
        [
            thinking_block(0, &["Let me ", "see."], "EqQB/+="),
            redacted,
            text_block(2, &["Wait."]),
            thinking_block(3, &[], "sig-2"),
            call_block(4, "toolu_1", &["{}"]),
        ],
        "tool_use",
    ));
    let server = server("200 OK", SSE, &body).await;
    let model = model(&server);
    let started = model.start(model.prepare(&request()).expect("prepared")).await.expect("started");
    let events: Vec<ModelEvent> = started.map(|event| event.expect("an event")).collect().await;
    let items: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            ModelEvent::ProviderItem(item) => Some((
                serde_json::from_str::<Value>(item.json.get()).expect("JSON"),
                item.text_before,
                item.calls_before,
            )),
            _ => None,
        })
        .collect();
    let of_model = |block: Value| json!({"type": "anthropic_thinking", "maker": "m-1", "item": block});
    assert_eq!(
        items,
        [
            (of_model(json!({"type": "thinking", "thinking": "Let me see.", "signature": "EqQB/+="})), 0, 0),
            (of_model(json!({"type": "redacted_thinking", "data": "EmwK/+=="})), 0, 0),
            (of_model(json!({"type": "thinking", "thinking": "", "signature": "sig-2"})), 5, 0),
        ]
    );
    let reasoning: String = events
        .iter()
        .filter_map(|event| match event {
            ModelEvent::Reasoning(text) => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(reasoning, "Let me see.");
}

#[tokio::test]
async fn thinking_that_the_request_does_not_want_is_kept_and_not_shown() {
    let body = sse(&answer([thinking_block(0, &["Hm"], "s"), text_block(1, &["a"])], "end_turn"));
    let server = server("200 OK", SSE, &body).await;
    let quiet = ModelRequest { thinking: Some(false), ..request() };
    let shown = answer_to(&model(&server), &quiet).await;
    assert!(!shown.iter().any(|event| event.starts_with("reasoning")), "{shown:?}");
    assert!(shown.iter().any(|event| event.starts_with("ProviderItem")), "{shown:?}");
}

#[tokio::test]
async fn an_error_within_a_stream_has_the_class_of_its_type() {
    use FailureClass::*;
    for (kind, message, class) in [
        ("overloaded_error", "Overloaded", RateLimit),
        ("rate_limit_error", "sk-1", RateLimit),
        ("api_error", "Internal server error", Transient),
        ("timeout_error", "", Transient),
        ("authentication_error", "invalid x-api-key", Account),
        ("permission_error", "", Account),
        ("billing_error", "", Account),
        ("not_found_error", "model: m-1", Account),
        ("request_too_large", "", Size),
        ("invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum", Size),
        ("invalid_request_error", "messages.0: sk-1", Transient),
    ] {
        let error = json!({"type": "error", "error": {"type": kind, "message": message}});
        let body = sse(&[started(), json!({"type": "ping"}), error.clone(), text(0, "late")]);
        for (media_type, body) in [(SSE, body), (JSON, error.to_string())] {
            let server = server("200 OK", media_type, &body).await;
            let model = model(&server);
            let started = model.start(model.prepare(&request()).expect("prepared")).await;
            let events = match started {
                Ok(events) => events.collect::<Vec<_>>().await,
                Err(error) => vec![Err(error)],
            };
            let failure = events.last().and_then(|event| event.as_ref().err()).expect("an error");
            assert_eq!(FailureClass::of(failure), class, "{kind}: {failure:?}");
            assert!(!format!("{failure:?}").contains("sk-1"), "{failure:?}");
        }
    }
}

#[tokio::test]
async fn an_unsuccessful_status_has_the_class_of_the_failure() {
    use FailureClass::*;
    for (status, kind, class) in [
        ("400 Bad Request", "invalid_request_error", Request),
        ("401 Unauthorized", "authentication_error", Account),
        ("402 Payment Required", "billing_error", Account),
        ("403 Forbidden", "permission_error", Account),
        ("404 Not Found", "not_found_error", Account),
        ("413 Payload Too Large", "request_too_large", Size),
        ("429 Too Many Requests", "rate_limit_error", RateLimit),
        ("500 Internal Server Error", "api_error", Transient),
        ("504 Gateway Timeout", "timeout_error", Transient),
        ("529 Overloaded", "overloaded_error", Transient),
    ] {
        let body =
            json!({"type": "error", "error": {"type": kind, "message": "sk-1"}, "request_id": "req_1"});
        let status = format!("{status}\r\nretry-after: 7");
        let server = server(&status, JSON, &body.to_string()).await;
        let model = model(&server);
        let failure = model.start(model.prepare(&request()).expect("prepared")).await.err().expect("refused");
        assert_eq!(FailureClass::of(&failure), class, "{status}: {failure:?}");
        // Waiting does not pay for an account.
        let is_unpaid = failure.kind() == AgentErrorKind::AccountRefused;
        assert_eq!(is_unpaid, kind == "billing_error", "{status}");
        assert_eq!(failure.retry_after().map(|delay| delay.as_secs()), (!is_unpaid).then_some(7));
        assert!(!format!("{failure:?}").contains("sk-1"), "{failure:?}");
    }
}

#[tokio::test]
async fn an_answer_that_is_cut_off_or_contradicts_itself_fails() {
    let call = block(0, json!({"type": "tool_use", "id": "t", "name": "x", "input": {}}));
    for (events, last) in [
        (vec![], "fails Truncated"),
        (vec![started()], "fails Truncated"),
        (vec![started(), call.clone(), arguments(0, "{\"a")], "fails Truncated"),
        (vec![started(), call.clone(), json!({"type": "message_stop"})], "fails Truncated"),
        (vec![started(), json!({"type": "message_stop"})], "fails Truncated"),
        (vec![started(), text(0, "a")], "fails Failed"),
        (vec![started(), call.clone(), arguments(1, "{}")], "fails Failed"),
        (vec![started(), json!({"type": "content_block_start", "index": 0})], "fails Failed"),
        (vec![json!({"type": "message_delta", "delta": 7})], "fails Failed"),
        (vec![json!("text")], "fails Failed"),
    ] {
        let server = server("200 OK", SSE, &sse(&events)).await;
        let shown = answer_of(&model(&server)).await;
        assert_eq!(shown.last().map(String::as_str), Some(last), "{events:?}: {shown:?}");
        assert_eq!(shown.iter().filter(|event| event.starts_with("fails")).count(), 1);
    }
    // The last event is missing, and the answer is complete.
    let complete_events = &answer([text_block(0, &["a"])], "end_turn");
    check_stream(&complete_events[..complete_events.len() - 1], &[BEGIN, "text a", END, "finish Stop"]).await;
}

#[tokio::test]
async fn the_contents_of_an_answer_are_bounded() {
    let calls = (0..40).map(|index| call_block(index, "t", &["{}"]));
    let thinking = thinking_block(0, &["x".repeat(2 << 20).as_str(); 3], "s");
    let long = call_block(0, "t", &["x".repeat(200 << 10).as_str(); 2]);
    for (events, last) in [
        (answer(calls, "tool_use"), "fails ToolLoopLimit"),
        (answer([thinking], "end_turn"), "fails OutputTooLarge"),
        (answer([long], "tool_use"), "fails Failed"),
    ] {
        let answer = chunked_response("200 OK", SSE, sse(&events).as_bytes(), 1 << 16, true);
        let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
        let shown = answer_of(&model(&server)).await;
        assert_eq!(shown.last().map(String::as_str), Some(last));
    }
}

#[tokio::test]
async fn answers_that_are_not_streamed_are_read() {
    let body = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m-1", "content": [
            {"type": "thinking", "thinking": "Hm", "signature": "s"},
            {"type": "text", "text": "Hello"},
            {"type": "tool_use", "id": "toolu_1", "name": "x", "input": {"a": 1}}],
        "stop_reason": "tool_use", "usage": {"input_tokens": 3, "output_tokens": 4}});
    let shown = answer_of(&model(&server("200 OK", JSON, &body.to_string()).await)).await;
    assert_eq!(
        shown[..5],
        ["usage m-1 3 4 - -", "reasoning Hm", "text Hello", "call 0 toolu_1 x", r#"args 0 {"a":1}"#]
    );
    assert!(shown[5].contains(r#""signature":"s""#), "{shown:?}");
    assert_eq!(shown[6..], ["finish ToolCalls"]);
    let other = server("200 OK", JSON, r#"{"choices": []}"#).await;
    assert_eq!(answer_of(&model(&other)).await, ["refused Failed"]);
    let page = server("200 OK", "text/html", "<html>").await;
    assert_eq!(answer_of(&model(&page)).await, ["refused Failed"]);
}

#[tokio::test]
async fn the_request_goes_to_the_endpoint_with_key_version_and_the_very_bytes() {
    let body = sse(&answer([text_block(0, &["a"])], "end_turn"));
    for base in ["/v1", "/v1/", "", "/", "/proxy"] {
        let server = server("200 OK", SSE, &body).await;
        let url = server.url.join(if base.is_empty() { "/" } else { base }).expect("a URL");
        let key = Some(Secret::new("sk-1"));
        let outbound = outbound_client("127.0.0.1");
        let model = Anthropic::new(outbound, &url, UrlTrust::Supplied, key, "m-1").expect("a model");
        let path = if base == "/proxy" { "/proxy/v1/messages" } else { "/v1/messages" };
        let request_line = format!("POST {path} HTTP/1.1");
        let lines = [
            &*request_line,
            "x-api-key: sk-1",
            "anthropic-version: 2023-06-01",
            "content-type: application/json",
            "accept: text/event-stream",
        ];
        let head = check_sent_request(&model, &server, &lines).await;
        assert!(!head.contains("authorization"), "{head}");
    }
}

#[test]
fn tokens_are_estimated_for_the_models_tokenizer() {
    let base = Url::parse("https://api.example.com").expect("an address");
    let text = "Ein kleiner Text. ".repeat(50);
    let plain = EstimateCounter.count(&text);
    for (name, expected) in [
        ("house-model", None),
        ("claude-haiku-4-5", Some(("claude", (plain * 118).div_ceil(100)))),
        ("claude-opus-5", Some(("claude_4_7", (plain * 153).div_ceil(100)))),
    ] {
        let counter = |limits: ModelLimits| {
            let (outbound, spec) = (outbound_client(""), ModelSpec::new(name).with_limits(limits));
            let model = Anthropic::new(outbound, &base, UrlTrust::Operator, None, spec).expect("a model");
            model.counter()
        };
        assert!(counter(ModelLimits::default()).is_none(), "{name}");
        let limits = ModelLimits { counter: Some(Arc::new(EstimateCounter)), ..ModelLimits::default() };
        let counted = counter(limits).map(|counter| (counter.id(), counter.count(&text)));
        assert_eq!(counted, expected, "{name}");
    }
}

#[tokio::test]
async fn the_window_is_learned_from_a_refusal() {
    let error = json!({"type": "error", "error": {"type": "invalid_request_error",
        "message": "prompt is too long: 2083 tokens > 2000 maximum"}});
    for (status, media_type, body) in
        [("400 Bad Request", JSON, error.to_string()), ("200 OK", SSE, sse(&[started(), error.clone()]))]
    {
        let server = server(status, media_type, &body).await;
        let spec = ModelSpec::new("m-1").with_limits(ModelLimits::default());
        let outbound = outbound_client("127.0.0.1");
        let model = Anthropic::new(outbound, &server.url, UrlTrust::Supplied, None, spec).expect("a model");
        assert_eq!(model.info().context_window, 128_000);
        let shown = answer_of(&model).await;
        assert!(shown.last().is_some_and(|event| event.ends_with("ContextExceeded")), "{shown:?}");
        assert!(model.info().context_window < 1_000, "{:?}", model.info());
    }
}

#[tokio::test]
async fn the_adapter_conforms() {
    let complete_answer = sse(&answer([text_block(0, &["Hello"])], "end_turn"));
    let begun = sse(&[started(), block(0, json!({"type": "text", "text": ""})), text(0, "Hel")]);
    check_conformance(SSE, (complete_answer, begun), model).await;
}
