//! Tests of the adapter against a scripted loopback server. The responses follow Ollama's documented API; no real
//! Ollama takes part.

use std::sync::Arc;

use agent_core::budget::{EstimateCounter, TokenBudget, TokenCounter};
use agent_core::message::{Content, ContentPart, MediaSource, Message, Role, ToolCall};
use agent_core::model::ModelEvent;
use agent_core::prompt::{
    AssemblyInput, Fragment, Part, PartCache, Prompt, PromptMessage, Stability, assemble,
};
use agent_core::tool::ToolChoice;
use agent_platform::messages_model::ClaudeTokenizer;
use agent_platform::model_notice::ModelNotice;
use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;
use crate::loopback::{AfterResponse, LoopbackServer, chunked_response, outbound_client};
use crate::models::ModelLimits;
use crate::models::harness::{answer_of, answer_to, check_conformance, request, tool};

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
    for size in [usize::MAX, 7, 1] {
        let answer = chunked_response("200 OK", kind, body.as_bytes(), size.min(body.len().max(1)), true);
        let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
        assert_eq!(answer_of(&model(&server)).await, expected, "in chunks of {size}: {body}");
    }
}

/// A whole response with its `Content-Length`.
fn piece(body: &str) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {JSON}\r\ncontent-length: {}\r\n\r\n", body.len());
    (head + body).into_bytes()
}

fn said(message: &Value) -> String {
    let line = json!({"model": "m-1", "created_at": "2025-11-03T15:36:02.583064Z",
        "message": message, "done": false});
    format!("{line}\n")
}

fn text(text: &str) -> String {
    said(&json!({"role": "assistant", "content": text, "images": null}))
}

fn calls(calls: &Value) -> String {
    said(&json!({"role": "assistant", "content": "", "tool_calls": calls}))
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

#[tokio::test]
async fn text_and_thoughts_come_as_they_are_said() {
    let thinking = |text: &str| said(&json!({"role": "assistant", "content": "", "thinking": text}));
    let cases: Vec<(String, &[&str])> = vec![
        (text("Hel") + &text("lo") + &stop(), &["text Hel", "text lo", "finish Stop"]),
        (text("Größe – 🙂\n") + &stop(), &["text Größe – 🙂\n", "finish Stop"]),
        (
            thinking("Hm") + &thinking("m") + &text("a") + &stop(),
            &["reasoning Hm", "reasoning m", "text a", "finish Stop"],
        ),
        (
            said(&json!({"content": "a", "thinking": "Hm"})) + &stop(),
            &["reasoning Hm", "text a", "finish Stop"],
        ),
        // The last line may have content, which precedes the finish event.
        (
            done(&json!({"message": {"content": "all"}, "eval_count": 3})),
            &["text all", "usage m-1 - 3 - -", "finish Stop"],
        ),
        // Lines without content, and unknown members.
        (
            format!("\r\n \n{{\"model\":\"m-1\",\"later\":[1],\"error\":null}}\r\n{}{}", text("a"), stop()),
            &["text a", "finish Stop"],
        ),
    ];
    for (body, expected) in cases {
        check(NDJSON, &body, expected).await;
    }
}

#[tokio::test]
async fn every_end_is_told_from_being_cut_off() {
    let reason = |reason: &str| done(&json!({"done_reason": reason}));
    let cases: Vec<(String, &[&str])> = vec![
        (text("a") + &reason("length"), &["text a", "finish Length"]),
        (text("a") + &reason("later"), &["text a", "finish Stop"]),
        (text("a") + &done(&json!({})), &["text a", "finish Stop"]),
        (text("a") + &stop() + &text("never"), &["text a", "finish Stop"]),
        (text("a") + &stop() + "sorry\n", &["text a", "finish Stop"]),
        (text("a") + stop().trim_end(), &["text a", "finish Stop"]),
        (stop(), &["finish Stop"]),
        (reason("load"), &["fails Truncated"]),
        (text("a"), &["text a", "fails Truncated"]),
        (text("a") + &stop()[..40], &["text a", "fails Truncated"]),
        (text("a") + text("b").trim_end(), &["text a", "text b", "fails Truncated"]),
        (String::new(), &["fails Truncated"]),
        ("{}\n".into(), &["fails Truncated"]),
    ];
    for (body, expected) in cases {
        check(NDJSON, &body, expected).await;
    }
}

#[tokio::test]
async fn errors_inside_an_answer_that_began_well_are_errors() {
    let error = "{\"error\":\"sk-1 is overloaded\"}\n";
    let cases: Vec<(String, &[&str])> = vec![
        (error.into(), &["fails Failed"]),
        (text("a") + error + &text("b"), &["text a", "fails Failed"]),
        (text("a") + error.trim_end(), &["text a", "fails Failed"]),
        ("{\"error\":{\"message\":\"x\"},\"done\":true}\n".into(), &["fails Failed"]),
        (text("a") + "sorry\n" + &stop(), &["text a", "fails Failed"]),
        ("{\"message\":{\n".into(), &["fails Failed"]),
        ("{\"message\":\"none\"}\n".into(), &["fails Failed"]),
        ("{\"message\":{\"content\":7}}\n".into(), &["fails Failed"]),
        ("{\"done\":\"yes\"}\n".into(), &["fails Failed"]),
        (calls(&json!("none")), &["fails Failed"]),
        ("[1]\n".into(), &["fails Failed"]),
        ("data: {}\n\n".into(), &["fails Failed"]),
    ];
    for (body, expected) in cases {
        check(NDJSON, &body, expected).await;
    }
}

#[tokio::test]
async fn calls_come_whole_and_are_given_identifiers() {
    let call = |arguments: Value| json!([{"function": {"name": "x", "arguments": arguments}}]);
    let cases: Vec<(String, &[&str])> = vec![
        (
            calls(&call(json!({"n": [1, "ö"]}))) + &stop(),
            &["call 0 new x", "args 0 {\"n\":[1,\"ö\"]}", "finish ToolCalls"],
        ),
        (
            text("Wait.") + &calls(&call(json!({}))) + &calls(&call(json!({"a": 1}))) + &stop(),
            &[
                "text Wait.",
                "call 0 new x",
                "args 0 {}",
                "call 1 new x",
                "args 1 {\"a\":1}",
                "finish ToolCalls",
            ],
        ),
        (
            calls(&json!([
                {"id": "call_ab", "function": {"index": 0, "name": "x", "arguments": {}}},
                {"id": "", "type": "function", "function": {"index": 1, "name": "y"}}
            ])) + &stop(),
            &["call 0 call_ab x", "args 0 {}", "call 1 new y", "finish ToolCalls"],
        ),
        // A string that contains JSON, as Ollama-compatible servers send it; no arguments; and arguments that are not
        // an object, which the tool loop refuses.
        (
            calls(&call(json!("{\"n\": 1}"))) + &stop(),
            &["call 0 new x", "args 0 {\"n\": 1}", "finish ToolCalls"],
        ),
        (calls(&call(json!(null))) + &stop(), &["call 0 new x", "finish ToolCalls"]),
        (calls(&call(json!([1]))) + &stop(), &["call 0 new x", "args 0 [1]", "finish ToolCalls"]),
        (calls(&call(json!("{"))) + &stop(), &["call 0 new x", "args 0 {", "finish ToolCalls"]),
        (calls(&json!([{}])) + &stop(), &["call 0 new ", "finish ToolCalls"]),
        (calls(&json!([])) + &stop(), &["finish Stop"]),
        (calls(&call(json!({}))), &["call 0 new x", "args 0 {}", "fails Truncated"]),
        (
            calls(&call(json!({}))) + &done(&json!({"done_reason": "length"})),
            &["call 0 new x", "args 0 {}", "finish Length"],
        ),
    ];
    for (body, expected) in cases {
        check(NDJSON, &body, expected).await;
    }
}

#[tokio::test]
async fn usage_is_the_last_lines() {
    let cases: [(Value, &[&str]); 5] = [
        (
            json!({"prompt_eval_count": 26, "prompt_eval_cached_count": 20, "eval_count": 5}),
            &["usage m-1 26 5 20 -", "finish Stop"],
        ),
        (json!({"eval_count": 5}), &["usage m-1 - 5 - -", "finish Stop"]),
        (json!({}), &["finish Stop"]),
        // Counts that no answer can have do not fail it.
        (json!({"prompt_eval_count": -26, "eval_count": 5}), &["usage m-1 - 5 - -", "finish Stop"]),
        (
            json!({"prompt_eval_count": "26", "prompt_eval_cached_count": [], "eval_count": 2.5}),
            &["finish Stop"],
        ),
    ];
    for (counts, expected) in cases {
        check(NDJSON, &done(&counts), expected).await;
    }
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
async fn a_prompt_that_was_cut_is_noticed() {
    let cut = |estimated: usize, read: u64| {
        let notice = ModelNotice::PromptCut {
            estimated_tokens: estimated as u64,
            read_tokens: read,
            context_window: 512,
        };
        format!("{:?}", ModelEvent::from(notice))
    };
    let estimate = |request: &ModelRequest| request.estimated_tokens(&request.tools);
    let (short, long) = (request_of(300, false), request_of(900, false));
    // Messages appended during the run are counted, and so are tools.
    let appended =
        ModelRequest { appended_messages: vec![long.prompt.messages()[0].message().clone()], ..request() };
    let schema = format!(r#"{{"type":"object","description":"{}"}}"#, "word ".repeat(900));
    let tools = ModelRequest { tools: Arc::new([tool("x", "", &schema)]), ..request() };
    let unused = ModelRequest { tool_choice: ToolChoice::None, ..tools.clone() };
    let cases = [
        (&short, Some(310), None),
        (&short, Some(1), None),
        (&long, Some(258), Some(cut(estimate(&long), 258))),
        (&long, Some(3), Some(cut(estimate(&long), 3))),
        (&long, Some(900), None),
        (&long, None, None),
        (&appended, Some(512), Some(cut(estimate(&appended), 512))),
        (&tools, Some(258), Some(cut(estimate(&tools), 258))),
        (&unused, Some(8), None),
        (&request_of(900, true), Some(258), None),
    ];
    for (request, read, expected) in cases {
        let counts = read.map_or(json!({}), |read| json!({"prompt_eval_count": read}));
        let server = LoopbackServer::respond_with(
            chunked_response("200 OK", NDJSON, done(&counts).as_bytes(), 64, true),
            AfterResponse::Close,
        )
        .await;
        let events = answer_to(&model_of(&server, 512), request).await;
        let notice = events.iter().find(|event| event.starts_with("Notice"));
        assert_eq!(notice, expected.as_ref(), "{read:?} read of {}", estimate(request));
        assert_eq!(events.last().map(String::as_str), Some("finish Stop"));
    }
}

#[tokio::test]
async fn an_answer_in_one_piece_is_an_answer_and_a_reported_error_a_refusal() {
    let complete_answer =
        done(&json!({"message": {"content": "Hello"}, "prompt_eval_count": 3, "eval_count": 4}));
    let cases: Vec<(String, &[&str])> = vec![
        (complete_answer.clone(), &["text Hello", "usage m-1 3 4 - -", "finish Stop"]),
        (complete_answer.replace(',', ",\n  "), &["text Hello", "usage m-1 3 4 - -", "finish Stop"]),
        (text("Hel") + &text("lo") + &stop(), &["text Hel", "text lo", "finish Stop"]),
        ("{\"error\":\"overloaded\"}".into(), &["refused Failed"]),
        (text("Hel"), &["refused Truncated"]),
        ("{}".into(), &["refused Failed"]),
        ("[]".into(), &["refused Failed"]),
        ("sorry".into(), &["refused Failed"]),
        (String::new(), &["refused Failed"]),
    ];
    for (body, expected) in cases {
        let server = LoopbackServer::respond_with(piece(&body), AfterResponse::Close).await;
        assert_eq!(answer_of(&model(&server)).await, expected, "{body}");
    }
    check("text/html; charset=utf-8", "<html>Sorry</html>", &["refused Failed"]).await;
    // A stream with another media type.
    for kind in ["application/json", "text/plain", "text/event-stream"] {
        check(kind, &(text("a") + &stop()), &["text a", "finish Stop"]).await;
    }
}

#[tokio::test]
async fn bodies_have_bounds_and_broken_ones_are_found_out() {
    let long = text(&"x".repeat(2 << 20));
    let begun = text("a");
    let cases = [
        (chunked_response("200 OK", NDJSON, long.as_bytes(), 64 << 10, true), "fails Failed"),
        (chunked_response("200 OK", NDJSON, &begun.as_bytes()[..9], 64, false), "fails Truncated"),
        (piece(&" ".repeat(5 << 20)), "refused OutputTooLarge"),
    ];
    for (answer, expected) in cases {
        let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
        assert_eq!(answer_of(&model(&server)).await, [expected]);
    }
}

#[tokio::test]
async fn a_status_that_is_no_success_refuses_and_what_people_meet_is_said_plainly() {
    let cases = [
        ("400 Bad Request", "{\"error\":\"sk-1 is bad\"}", "rejected the request (HTTP 400)"),
        ("400 Bad Request", "{\"error\":\"m-1 does not support tools\"}", "does not support tools, but"),
        (
            "400 Bad Request",
            "{\"error\":\"\\\"m-1\\\" does not support thinking\"}",
            "does not support thinking, but",
        ),
        ("404 Not Found", "{\"error\":\"model 'm-1' not found\"}", "does not have the model"),
        ("429 Too Many Requests", "", "is rate limiting requests (HTTP 429)"),
        ("500 Internal Server Error", "{\"error\":\"does not support tools\"}", "failed (HTTP 500)"),
    ];
    for (status, body, expected) in cases {
        let server = LoopbackServer::respond_with(
            chunked_response(status, JSON, body.as_bytes(), 64, true),
            AfterResponse::Close,
        )
        .await;
        let model = model(&server);
        let payload = model.prepare(&request()).expect("prepared");
        let failure = model.start(payload).await.err().expect("refused");
        assert!(failure.message().contains(expected), "{}", failure.message());
        assert!(!format!("{failure:?}").contains("sk-1"), "{failure:?}");
    }
    // A status error is reported even if its body does not arrive.
    let silent = chunked_response("400 Bad Request", JSON, b"{", 64, false);
    let server = LoopbackServer::respond_with(silent, AfterResponse::Hold).await;
    assert_eq!(answer_of(&model(&server)).await, ["refused Failed"]);
}

#[tokio::test]
async fn the_request_goes_to_the_endpoint_with_the_key_and_the_very_bytes() {
    let server = LoopbackServer::respond_with(
        chunked_response("200 OK", NDJSON, stop().as_bytes(), 64, true),
        AfterResponse::Close,
    )
    .await;
    let model = model(&server);
    let payload = model.prepare(&request()).expect("prepared");
    let bytes = payload.bytes().clone();
    drop(model.start(payload).await.expect("started"));
    let requests = server.requests();
    let (head, body) = requests[0].split_once("\r\n\r\n").expect("a request");
    assert_eq!(body.as_bytes(), bytes);
    for line in [
        "POST /v1/api/chat HTTP/1.1",
        "authorization: Bearer sk-1",
        "content-type: application/json",
        "accept: application/x-ndjson",
    ] {
        assert!(head.lines().any(|found| found == line), "{line}: {head}");
    }
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

fn check_body(request: &ModelRequest, expected: Expect) {
    let payload = prepared(request).expect("prepared");
    assert!(!format!("{payload:?}").contains("sk-1"), "the key is no part of the body");
    let body: Value = serde_json::from_slice(payload.bytes()).expect("the body is JSON");
    assert_eq!(body["stream"], true);
    expected.assert_eq(
        &String::from_utf8_lossy(payload.bytes())
            .replace("},{", "},\n{")
            .replace(",\"messages", ",\n\"messages"),
    );
}

#[test]
fn a_level_of_reasoning_takes_the_place_of_the_switch() {
    let base = Url::parse("http://127.0.0.1:11434").expect("an address");
    let model = spec("m-1", 4096).with_reasoning_effort(Some("low"));
    let model = Ollama::new(outbound_client(""), &base, UrlTrust::Operator, None, model).expect("a model");
    let payload = model.prepare(&ModelRequest { thinking: Some(false), ..request() }).expect("prepared");
    let body: Value = serde_json::from_slice(payload.bytes()).expect("the body is JSON");
    assert_eq!(body["think"], "low");
}

#[test]
fn bodies_without_tools() {
    check_body(
        &request(),
        expect![[r#"
            {"model":"m-1","stream":true,"options":{"num_ctx":4096,"num_predict":1024},
            "messages":[{"role":"user","content":"hi"}]}"#]],
    );
    check_body(
        &ModelRequest { thinking: Some(false), ..request_of(1, true) },
        expect![[r#"
            {"model":"m-1","stream":true,"think":false,"options":{"num_ctx":4096,"num_predict":1024},
            "messages":[{"role":"user","content":"word ","images":["QUJD"]}]}"#]],
    );
}

#[test]
fn bodies_with_tools_and_what_the_run_has_said_since() {
    let system = Fragment::new("role", "test", Stability::Role, Part::new("You are \"terse\".\n"));
    let history = vec![
        Message::user("before"),
        Message::with_tool_calls("Wait.", vec![ToolCall::new("old", "readTodos", "{}")]),
        Message::tool_result("old", "none"),
        Message::user("hi"),
    ];
    let history = history.into_iter().map(PromptMessage::new).collect();
    let calls = vec![ToolCall::new("1", "readTodos", "{\"n\":1}"), ToolCall::new("2", "createTodo", "{}")];
    let with_tools = ModelRequest {
        prompt: Arc::new(Prompt::new(vec![system], history)),
        appended_messages: vec![
            Message::with_tool_calls("", calls),
            Message::tool_result("1", "one"),
            Message::tool_result("2", ""),
        ],
        tools: Arc::new([
            tool("createTodo", "Adds a \"todo\".", r#"{"type":"object"}"#),
            tool("readTodos", "", r#"{"type":"object"}"#),
        ]),
        thinking: Some(true),
        ..request()
    };
    check_body(
        &with_tools,
        expect![[r#"
            {"model":"m-1","stream":true,"think":true,"options":{"num_ctx":4096,"num_predict":1024},"tools":[{"type":"function","function":{"name":"createTodo","description":"Adds a \"todo\".","parameters":{"type":"object"}}},
            {"type":"function","function":{"name":"readTodos","description":"","parameters":{"type":"object"}}}],
            "messages":[{"role":"system","content":"You are \"terse\".\n"},
            {"role":"user","content":"before"},
            {"role":"assistant","content":"Wait.","tool_calls":[{"id":"old","function":{"name":"readTodos","arguments":{}}}]},
            {"role":"tool","content":"none","tool_call_id":"old","tool_name":"readTodos"},
            {"role":"user","content":"hi"},
            {"role":"assistant","tool_calls":[{"id":"1","function":{"name":"readTodos","arguments":{"n":1}}},
            {"id":"2","function":{"name":"createTodo","arguments":{}}}]},
            {"role":"tool","content":"one","tool_call_id":"1","tool_name":"readTodos"},
            {"role":"tool","content":"","tool_call_id":"2","tool_name":"createTodo"}]}"#]],
    );
}

#[test]
fn every_kind_of_message_is_spelt() {
    let call = |id: &str, name: &str, arguments: &str| ToolCall::new(id, name, arguments);
    let text = |text: &str| ContentPart::Text { text: text.into() };
    let picture = || {
        let source = MediaSource::Data { value: "QUJD".into(), mime_type: "image/png".into() };
        ContentPart::Image { source }
    };
    let parts = |parts: Vec<ContentPart>| Message { content: Content::Parts(parts), ..Message::user("") };
    let calls = |calls: Vec<ToolCall>| Message::with_tool_calls("", calls);
    let messages = vec![
        Message::text(Role::Developer, "c"),
        parts(vec![text("see"), picture(), text(""), text("this")]),
        parts(vec![]),
        Message::assistant(""),
        calls(vec![call("1", "look", " {\"at\": [1]} "), call("2", "say \"hi\"", "{")]),
        Message::tool_result("2", "b"),
        Message::tool_result("1", "a"),
        calls(vec![call("3", "none", ""), call("4", "list", "[]"), call("5", "deep", &"[".repeat(1_000))]),
        Message::tool_result("3", ""),
        // The results of an earlier message's call and of an unknown call.
        Message::tool_result("1", "late"),
        Message::tool_result("9", "stray"),
        Message::user("and now?"),
    ];
    let history: Vec<_> = messages.iter().cloned().map(PromptMessage::new).collect();
    let of_prompt = ModelRequest { prompt: Arc::new(Prompt::new(vec![], history)), ..request() };
    let expected = expect![[r#"
        {"model":"m-1","stream":true,"options":{"num_ctx":4096,"num_predict":1024},
        "messages":[{"role":"system","content":"c"},
        {"role":"user","content":"see\nthis","images":["QUJD"]},
        {"role":"user","content":""},
        {"role":"assistant","content":""},
        {"role":"assistant","tool_calls":[{"id":"1","function":{"name":"look","arguments":{"at": [1]}}},
        {"id":"2","function":{"name":"say \"hi\"","arguments":{}}}]},
        {"role":"tool","content":"b","tool_call_id":"2","tool_name":"say \"hi\""},
        {"role":"tool","content":"a","tool_call_id":"1","tool_name":"look"},
        {"role":"assistant","tool_calls":[{"id":"3","function":{"name":"none","arguments":{}}},
        {"id":"4","function":{"name":"list","arguments":{}}},
        {"id":"5","function":{"name":"deep","arguments":{}}}]},
        {"role":"tool","content":"","tool_call_id":"3","tool_name":"none"},
        {"role":"tool","content":"late","tool_call_id":"1"},
        {"role":"tool","content":"stray","tool_call_id":"9"},
        {"role":"user","content":"and now?"}]}"#]];
    check_body(&of_prompt, expected);
    let empty = Arc::new(Prompt::new(vec![], vec![]));
    let appended = ModelRequest { prompt: empty, appended_messages: messages, ..request() };
    let bytes = |request: &ModelRequest| prepared(request).expect("prepared").into_bytes();
    assert_eq!(bytes(&appended), bytes(&of_prompt), "what the run has appended is spelt alike");
}

#[test]
fn the_context_of_a_turn_is_a_text_in_front_of_the_others() {
    let picture = ContentPart::Image {
        source: MediaSource::Data { value: "QUJD".into(), mime_type: "image/png".into() },
    };
    let cache = PartCache::default();
    for (parts, expected) in [
        (vec![picture.clone()], "<context>\nnoon\n</context>"),
        (vec![ContentPart::Text { text: "see".into() }, picture], "<context>\nnoon\n</context>\nsee"),
    ] {
        let message = Message { content: Content::Parts(parts), ..Message::user("") };
        let prompt = assemble(AssemblyInput {
            history_report: None,
            fragments: vec![Fragment::new("time", "test", Stability::Turn, Part::new("noon"))],
            history: vec![PromptMessage::new(message)],
            tools: &[],
            budget: TokenBudget { max_prompt_tokens: 10_000 },
            counter: Arc::new(EstimateCounter),
            retrieval: None,
            cache: &cache,
        });
        let prompt = Arc::new(prompt.expect("it fits"));
        let payload = prepared(&ModelRequest { prompt, ..request() }).expect("prepared");
        let body: Value = serde_json::from_slice(payload.bytes()).expect("the body is JSON");
        assert_eq!(body["messages"][0], json!({"role": "user", "content": expected, "images": ["QUJD"]}));
    }
}

#[test]
fn a_prompt_that_was_counted_for_a_model_of_anthropic_is_not_taken_for_a_longer_one() {
    /// Counter with the name and the counts of a tokenizer.
    struct Counter(ClaudeTokenizer);
    impl TokenCounter for Counter {
        fn id(&self) -> &'static str {
            self.0.counter_name()
        }
        fn count(&self, text: &str) -> usize {
            self.0.estimate(EstimateCounter.count(text))
        }
    }
    let estimate = |counter: Arc<dyn TokenCounter>| {
        let prompt = assemble(AssemblyInput {
            history_report: None,
            fragments: Vec::new(),
            history: vec![PromptMessage::new(Message::user("So far so good. ".repeat(1000)))],
            tools: &[],
            budget: TokenBudget { max_prompt_tokens: 100_000 },
            counter,
            retrieval: None,
            cache: &PartCache::default(),
        });
        let prompt = Arc::new(prompt.expect("it fits"));
        let payload = prepared(&ModelRequest { prompt, ..request() }).expect("prepared");
        payload.prompt_tokens().expect("a count")
    };
    let expected = estimate(Arc::new(EstimateCounter));
    let estimated = estimate(Arc::new(Counter(ClaudeTokenizer::Present)));
    assert!(expected > 1000 && estimated.abs_diff(expected) < 10, "{estimated}, not {expected}");
}

#[test]
fn the_tool_choice_is_made_by_what_is_offered() {
    let cases = [
        (ToolChoice::Auto, Some(vec!["x", "y"])),
        (ToolChoice::Required, Some(vec!["x", "y"])),
        (ToolChoice::Tool("y".into()), Some(vec!["y"])),
        (ToolChoice::Tool("z".into()), None),
        (ToolChoice::None, None),
    ];
    for (tool_choice, expected) in cases {
        let tools = Arc::new([tool("x", "", "{}"), tool("y", "", "{}")]);
        let payload = prepared(&ModelRequest { tools, tool_choice, ..request() }).expect("prepared");
        let body: Value = serde_json::from_slice(payload.bytes()).expect("the body is JSON");
        let names = body.get("tools").and_then(Value::as_array).map(|tools| {
            tools.iter().filter_map(|tool| tool["function"]["name"].as_str()).collect::<Vec<_>>()
        });
        assert_eq!(names, expected);
        assert_eq!(body.get("tool_choice"), None);
    }
}

#[test]
fn media_without_a_form_are_refused_in_the_latest_user_message_alone() {
    let data = |mime_type: &str| MediaSource::Data { value: "QUJD".into(), mime_type: mime_type.into() };
    let url = MediaSource::Url { value: "https://example.com/a.png".into(), mime_type: None };
    let cases = [
        (ContentPart::Image { source: data("image/png") }, true),
        (ContentPart::Image { source: url }, false),
        (ContentPart::Audio { source: data("audio/wav") }, false),
        (ContentPart::Video { source: data("video/mp4") }, false),
        (ContentPart::Document { source: data("application/pdf") }, false),
    ];
    for (part, taken) in cases {
        let message =
            PromptMessage::new(Message { content: Content::Parts(vec![part]), ..Message::user("") });
        let next = PromptMessage::new(Message::user("And now?"));
        let prompt = Arc::new(Prompt::new(Vec::new(), vec![message.clone(), next]));
        let payload = prepared(&ModelRequest { prompt, ..request() }).expect("the latest message is text");
        let body = String::from_utf8_lossy(payload.bytes());
        assert_eq!(body.contains(", not sent]"), !taken, "{body}");
        let prompt = Arc::new(Prompt::new(Vec::new(), vec![message]));
        let prepared = prepared(&ModelRequest { prompt, ..request() });
        let refused = prepared.err().map(|failure| failure.kind());
        assert_eq!(refused, (!taken).then_some(AgentErrorKind::UnsupportedContent));
    }
}

#[test]
fn the_endpoint_is_below_the_base_address_and_the_window_is_the_budget() {
    let cases = [
        ("http://127.0.0.1:11434", Some("http://127.0.0.1:11434/api/chat")),
        ("https://example.com/ollama/", Some("https://example.com/ollama/api/chat")),
        ("mailto:ada@example.com", None),
    ];
    for (base, expected) in cases {
        let base = Url::parse(base).expect("an address");
        let model = Ollama::new(outbound_client(""), &base, UrlTrust::Operator, None, spec("m-1", 2048));
        match (model, expected) {
            (Ok(model), Some(expected)) => {
                assert_eq!(model.endpoint.url.as_str(), expected);
                assert_eq!((model.info().context_window, model.info().max_output_tokens), (2048, 512));
            }
            (Err(failure), None) => assert_eq!(failure.kind(), AgentErrorKind::InvalidRequest),
            (other, _) => panic!("{base}: {:?}", other.map(|model| model.endpoint.url)),
        }
    }
}
