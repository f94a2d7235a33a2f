//! Tests of the adapter against a scripted loopback server.

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
use crate::models::harness::{answer_of, answer_to, check_conformance, request, tool};

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
    for size in [usize::MAX, 7, 1] {
        let answer = chunked_response("200 OK", kind, body.as_bytes(), size.min(body.len().max(1)), true);
        let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
        assert_eq!(read(&server).await, expected, "in chunks of {size}: {body}");
    }
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
async fn text_and_reasoning_come_as_they_are_said() {
    let null = r#"{"role":"assistant","content":null,"refusal":null,"tool_calls":null,"function_call":null}"#;
    let stop = || finish("stop");
    let done = || DONE.to_owned();
    let cases: Vec<(Vec<String>, &[&str])> = vec![
        (vec![text("Hel"), text("lo"), stop(), done()], &["text Hel", "text lo", "finish Stop"]),
        (
            vec![delta(r#"{"role":"assistant","content":""}"#), delta(null), text("a"), stop(), done()],
            &["text a", "finish Stop"],
        ),
        (vec![text("Größe – 🙂 \\ud83d\\ude42\\n")], &["text Größe – 🙂 🙂\n", "fails Truncated"]),
        (vec![delta(r#"{"refusal":"No."}"#), stop(), done()], &["text No.", "finish Stop"]),
        (
            vec![
                delta(r#"{"reasoning_content":"Hm"}"#),
                delta(r#"{"reasoning":"m"}"#),
                text("a"),
                stop(),
                done(),
            ],
            &["reasoning Hm", "reasoning m", "text a", "finish Stop"],
        ),
        (
            vec![
                delta(r#"{"reasoning_content":"Hm","reasoning":"Hm"}"#),
                delta(r#"{"reasoning_content":"","reasoning":"m"}"#),
                stop(),
                done(),
            ],
            &["reasoning Hm", "reasoning m", "finish Stop"],
        ),
        // The accumulated message beside the delta.
        (
            vec![
                r#"{"choices":[{"delta":{"content":"a"},"message":{"content":"a"}}]}"#.into(),
                r#"{"choices":[{"delta":{"content":"b"},"message":{"content":"ab"}}]}"#.into(),
                done(),
            ],
            &["text a", "text b", "finish Stop"],
        ),
        // A second choice, no choice, and unknown members.
        (
            vec![
                r#"{"choices":[{"index":1,"delta":{"content":"other"}}]}"#.into(),
                r#"{"choices":[],"prompt_filter_results":[{}]}"#.into(),
                r#"{"choices":null,"error":null,"later":1}"#.into(),
                text("a"),
                done(),
            ],
            &["text a", "finish Stop"],
        ),
    ];
    for (data, expected) in cases {
        check(SSE, &sse(&data), expected).await;
    }
}

#[tokio::test]
async fn every_end_is_told_from_being_cut_off() {
    let length = [text("a"), finish("length"), DONE.into()];
    let cases: Vec<(String, &[&str])> = vec![
        (sse(&length), &["text a", "finish Length"]),
        (sse(&[text("a"), finish("content_filter"), DONE.into()]), &["text a", "finish ContentFilter"]),
        (sse(&[text("a"), finish("model_length"), DONE.into()]), &["text a", "finish Length"]),
        (sse(&[text("a"), finish("eos"), DONE.into()]), &["text a", "finish Stop"]),
        (sse(&[text("a"), finish("stop")]), &["text a", "finish Stop"]),
        (sse(&[text("a"), DONE.into()]), &["text a", "finish Stop"]),
        (sse(&[text("a"), " [DONE] ".into(), text("never")]), &["text a", "finish Stop"]),
        (sse(&[finish("stop"), DONE.into()]), &["finish Stop"]),
        (format!("\u{feff}: hi\r\n\r\n{}", sse(&length).replace('\n', "\r\n")), &["text a", "finish Length"]),
        (sse(&[text("a")]), &["text a", "fails Truncated"]),
        (sse(&[text("a")]) + "data: [DONE]", &["text a", "fails Truncated"]),
        (sse(&[DONE]), &["fails Truncated"]),
        (String::new(), &["fails Truncated"]),
        (sse(&[delta("{}"), DONE.into()]), &["fails Truncated"]),
    ];
    for (body, expected) in cases {
        check(SSE, &body, expected).await;
    }
}

#[tokio::test]
async fn errors_inside_an_answer_that_began_well_are_errors() {
    let error = r#"{"error":{"message":"sk-1 is overloaded","type":"server_error","code":503}}"#;
    let named = |data: &str| format!("event: error\ndata: {data}\n\n");
    let with_usage = |choice: &str, error: &str| {
        let usage = r#"{"prompt_tokens":12,"completion_tokens":5}"#;
        format!(r#"{{"choices":[{{"index":0,{choice}}}],"error":{error},"usage":{usage}}}"#)
    };
    let cases: Vec<(String, &[&str])> = vec![
        (sse(&[error]), &["fails Failed"]),
        (sse(&[text("a"), error.into(), text("b"), DONE.into()]), &["text a", "fails Failed"]),
        (sse(&[r#"{"error":"overloaded"}"#]), &["fails Failed"]),
        (named(r#"{"message":"overloaded"}"#), &["fails Failed"]),
        (named("overloaded"), &["fails Failed"]),
        (named(OVERFLOW), &["fails ContextExceeded"]),
        (named(r#"{"message":"prompt is too long"}"#), &["fails ContextExceeded"]),
        (sse(&[text("a"), finish("error"), DONE.into()]), &["text a", "fails Failed"]),
        (sse(&[text("a"), finish("insufficient_system_resource"), DONE.into()]), &["text a", "fails Failed"]),
        (
            sse(&[text("a"), with_usage(r#""delta":{"content":"b"},"finish_reason":"error""#, "null")]),
            &["text a", "usage m-1-2026 12 5 - -", "fails Failed"],
        ),
        (sse(&[with_usage(r#""delta":{}"#, r#""overloaded""#)]), &["usage - 12 5 - -", "fails Failed"]),
        (sse(&[text("a"), "sorry".into(), text("b")]), &["text a", "fails Failed"]),
        (sse(&[r#"{"choices":[{"#]), &["fails Failed"]),
        (sse(&[r#"{"choices":"none"}"#]), &["fails Failed"]),
        (sse(&[r#"{"choices":[{"delta":{"content":7}}]}"#]), &["fails Failed"]),
        (sse(&["[1]"]), &["fails Failed"]),
    ];
    for (body, expected) in cases {
        check(SSE, &body, expected).await;
    }
}

#[tokio::test]
async fn calls_are_put_together_however_servers_cut_them() {
    let call = |index: &str, id: &str, name: &str, arguments: &str| {
        let member = |key: &str, value: &str| match value {
            "-" => String::new(),
            value => format!(
                r#""{key}":{},"#,
                if key == "index" { value.to_owned() } else { format!("{value:?}") }
            ),
        };
        let function = format!("{}{}", member("name", name), member("arguments", arguments));
        let head = format!("{}{}", member("index", index), member("id", id));
        format!(r#"{{{head}"type":"function","function":{{{}}}}}"#, function.trim_end_matches(','))
    };
    let answer = |fragments: &[&[String]]| {
        let mut data: Vec<String> = fragments.iter().map(|fragments| calls(&fragments.join(","))).collect();
        data.extend([finish("tool_calls"), DONE.to_owned()]);
        sse(&data)
    };
    let complete_call = |index, id| call(index, id, "x", "{}");
    let two: &[&str] = &["call 0 a x", "args 0 {}", "call 1 b x", "args 1 {}", "finish ToolCalls"];
    let two_new: &[&str] = &["call 0 new x", "args 0 {}", "call 1 new x", "args 1 {}", "finish ToolCalls"];
    let cases: Vec<(String, &[&str])> = vec![
        (
            answer(&[
                &[call("0", "a", "x", "")],
                &[call("0", "-", "-", "{\"n\"")],
                &[call("0", "-", "-", "")],
                &[call("0", "-", "-", ":1}")],
            ]),
            &["call 0 a x", "args 0 {\"n\"", "args 0 :1}", "finish ToolCalls"],
        ),
        (
            answer(&[
                &[call("0", "a", "x", "{")],
                &[call("1", "b", "y", "{"), call("0", "-", "-", "}")],
                &[call("1", "-", "-", "}")],
            ]),
            &["call 0 a x", "args 0 {", "call 1 b y", "args 1 {", "args 0 }", "args 1 }", "finish ToolCalls"],
        ),
        // Indices that are not positions, are missing, or are all the same; identifiers that are missing or repeated.
        (answer(&[&[complete_call("7", "a")], &[complete_call("3", "b")]]), two),
        (answer(&[&[complete_call("-", "a"), complete_call("-", "b")]]), two),
        (answer(&[&[complete_call("0", "a")], &[complete_call("0", "b")]]), two),
        (answer(&[&[complete_call("0", "-")], &[complete_call("1", "-")]]), two_new),
        (answer(&[&[complete_call("0", "")], &[complete_call("1", "")]]), two_new),
        (answer(&[&[complete_call("-", "-")], &[complete_call("-", "-")]]), two_new),
        (
            answer(&[
                &[call("-", "a", "x", "{")],
                &[call("-", "b", "x", "{")],
                &[call("-", "a", "-", "}")],
                &[call("-", "-", "-", "}")],
            ]),
            &["call 0 a x", "args 0 {", "call 1 b x", "args 1 {", "args 0 }", "args 1 }", "finish ToolCalls"],
        ),
        (
            answer(&[&[call("0", "a", "x", "{")], &[call("0", "a", "x", "}")], &[call("0", "z", "-", " ")]]),
            &["call 0 a x", "args 0 {", "args 0 }", "args 0  ", "finish ToolCalls"],
        ),
        // No arguments, an empty fragment, and a finish reason that is not `tool_calls`.
        (answer(&[&[call("0", "a", "x", "-")]]), &["call 0 a x", "finish ToolCalls"]),
        (
            answer(&[&["{}".to_owned(), complete_call("0", "a")]]),
            &["call 0 a x", "args 0 {}", "finish ToolCalls"],
        ),
        (
            sse(&[calls(&complete_call("0", "a")), DONE.into()]),
            &["call 0 a x", "args 0 {}", "finish ToolCalls"],
        ),
        (
            sse(&[calls(&complete_call("0", "a")), finish("stop")]),
            &["call 0 a x", "args 0 {}", "finish Stop"],
        ),
        (sse(&[calls(&complete_call("0", "a"))]), &["call 0 a x", "args 0 {}", "fails Truncated"]),
    ];
    for (body, expected) in cases {
        check(SSE, &body, expected).await;
    }
}

#[tokio::test]
async fn usage_comes_before_the_end_wherever_the_server_puts_it() {
    let usage = r#"{"model":"m-1-2026","choices":[],"usage":{"prompt_tokens":12,"completion_tokens":5,
        "prompt_tokens_details":{"cached_tokens":8},"completion_tokens_details":{"reasoning_tokens":2}}}"#;
    let usage = usage.replace('\n', "");
    let expected: &[&str] = &["text a", "usage m-1-2026 12 5 8 2", "finish Stop"];
    for end in [
        vec![finish("stop"), usage.clone(), DONE.into()],
        vec![finish("stop"), usage.clone()],
        vec![usage, finish("stop")],
    ] {
        check(SSE, &sse(&[vec![text("a")], end].concat()), expected).await;
    }
    let poor =
        [text("a"), r#"{"usage":{"prompt_tokens":1,"prompt_tokens_details":null}}"#.into(), DONE.into()];
    check(SSE, &sse(&poor), &["text a", "usage m-1-2026 1 - - -", "finish Stop"]).await;
    check(
        SSE,
        &sse(&[text("a").replace("}]}", "}],\"usage\":null}"), DONE.into()]),
        &["text a", "finish Stop"],
    )
    .await;
    // The answer is there although its usage cannot be read.
    for wrong in ["7", r#""none""#, r#"{"prompt_tokens":1e400}"#, r#"{"prompt_tokens_details":"none"}"#] {
        let usage = format!(r#"{{"choices":[],"usage":{wrong}}}"#);
        check(SSE, &sse(&[text("a"), finish("stop"), usage, DONE.into()]), &["text a", "finish Stop"]).await;
    }
}

#[tokio::test]
async fn an_answer_in_one_piece_is_an_answer_and_a_reported_error_a_refusal() {
    let choice = |message: &str, reason: &str| {
        let usage = r#""usage":{"prompt_tokens":3,"completion_tokens":4}"#;
        let choice = format!(r#"{{"index":0,"message":{message},"finish_reason":{reason}}}"#);
        format!(r#"{{"object":"chat.completion","model":"m-1","choices":[{choice}],{usage}}}"#)
    };
    let calls = r#"{"content":null,"tool_calls":[
        {"id":"a","type":"function","function":{"name":"x","arguments":"{\"n\":1}"}},
        {"id":"b","type":"function","function":{"name":"y","arguments":""}}]}"#;
    let cases: Vec<(String, &[&str])> = vec![
        (
            choice(r#"{"role":"assistant","content":"Hello","reasoning":"Hm"}"#, "\"stop\""),
            &["reasoning Hm", "text Hello", "usage m-1 3 4 - -", "finish Stop"],
        ),
        (
            choice(calls, "\"tool_calls\""),
            &["call 0 a x", "args 0 {\"n\":1}", "call 1 b y", "usage m-1 3 4 - -", "finish ToolCalls"],
        ),
        (
            choice(calls, "null"),
            &["call 0 a x", "args 0 {\"n\":1}", "call 1 b y", "usage m-1 3 4 - -", "finish ToolCalls"],
        ),
        (choice(r#"{"content":"a"}"#, "\"length\""), &["text a", "usage m-1 3 4 - -", "finish Length"]),
        (choice(r#"{"content":""}"#, "null"), &["refused Truncated"]),
        (choice(r#"{"content":"a"}"#, "\"error\""), &["refused Failed"]),
        (r#"{"error":{"message":"overloaded"}}"#.into(), &["refused Failed"]),
        (r#"{"choices":[],"error":"overloaded"}"#.into(), &["refused Failed"]),
        (r#"{"detail":"Not Found"}"#.into(), &["refused Failed"]),
        ("{}".into(), &["refused Failed"]),
        ("[]".into(), &["refused Failed"]),
        ("sorry".into(), &["refused Failed"]),
        (String::new(), &["refused Failed"]),
    ];
    for (body, expected) in cases {
        check(JSON, &body, expected).await;
    }
    check("Application/JSON", "{}", &["refused Failed"]).await;
    check("text/html; charset=utf-8", "<html>Sorry</html>", &["refused Failed"]).await;
    // A stream with another media type.
    for kind in ["text/plain", "application/octet-stream", "application/x-ndjson"] {
        check(kind, &sse(&[text("a"), DONE.into()]), &["text a", "finish Stop"]).await;
    }
}

#[tokio::test]
async fn bodies_have_bounds_and_broken_ones_are_found_out() {
    let long = "x".repeat(2 << 20);
    let begun = sse(&[text("a")]);
    let cases = [
        (chunked_response("200 OK", SSE, text(&long).as_bytes(), 64 << 10, true), "fails Failed"),
        (chunked_response("200 OK", SSE, sse(&[text(&long)]).as_bytes(), 4 << 20, true), "fails Failed"),
        (
            chunked_response("200 OK", JSON, " ".repeat(5 << 20).as_bytes(), 1 << 20, true),
            "refused OutputTooLarge",
        ),
        (chunked_response("200 OK", JSON, b"{\"choices\":[", 64, false), "refused Truncated"),
        (chunked_response("200 OK", SSE, &begun.as_bytes()[..9], 64, false), "fails Truncated"),
    ];
    for (answer, expected) in cases {
        let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
        assert_eq!(read(&server).await, [expected]);
    }
    let server = LoopbackServer::respond_with(
        chunked_response("200 OK", SSE, begun.as_bytes(), 64, false),
        AfterResponse::Close,
    )
    .await;
    assert_eq!(read(&server).await, ["text a", "fails Truncated"]);
}

#[tokio::test]
async fn the_calls_of_an_answer_are_bounded() {
    let nameless = |count: usize| vec![r#"{"function":{"name":"x"}}"#; count].join(",");
    let whole = |count: usize| {
        let message = format!(r#"{{"tool_calls":[{}]}}"#, nameless(count));
        format!(r#"{{"choices":[{{"index":0,"message":{message},"finish_reason":"tool_calls"}}]}}"#)
    };
    for (kind, body, expected) in [
        (JSON, whole(32), "finish ToolCalls"),
        (JSON, whole(33), "refused ToolLoopLimit"),
        // Each call without an index is compared with all before it.
        (JSON, whole(150_000), "refused ToolLoopLimit"),
        (SSE, sse(&[calls(&nameless(32)), DONE.into()]), "finish ToolCalls"),
        (SSE, sse(&[calls(&nameless(33)), DONE.into()]), "fails ToolLoopLimit"),
    ] {
        let answer = chunked_response("200 OK", kind, body.as_bytes(), 1 << 20, true);
        let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
        let events = read(&server).await;
        assert_eq!(events.last().map(String::as_str), Some(expected));
    }
}

#[tokio::test]
async fn a_status_that_is_no_success_refuses() {
    let cases = [
        ("400 Bad Request", "Failed"),
        ("401 Unauthorized", "Failed"),
        ("429 Too Many Requests", "RateLimited"),
        ("503 Service Unavailable", "Failed"),
        ("504 Gateway Timeout", "Timeout"),
    ];
    for (status, kind) in cases {
        let server = LoopbackServer::respond_with(
            chunked_response(status, JSON, b"{}", 64, true),
            AfterResponse::Close,
        )
        .await;
        assert_eq!(read(&server).await, [format!("refused {kind}")]);
    }
}

#[tokio::test]
async fn the_request_goes_to_the_endpoint_with_the_key_and_the_very_bytes() {
    let complete_answer = sse(&[text("a"), DONE.into()]);
    let server = LoopbackServer::respond_with(
        chunked_response("200 OK", SSE, complete_answer.as_bytes(), 64, true),
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
        "POST /v1/chat/completions HTTP/1.1",
        "authorization: Bearer sk-1",
        "content-type: application/json",
        "accept: text/event-stream",
    ] {
        assert!(head.lines().any(|found| found == line), "{line}: {head}");
    }
}

#[tokio::test]
async fn the_adapter_conforms() {
    let (complete_answer, begun) = (sse(&[text("Hello"), finish("stop"), DONE.into()]), sse(&[text("Hel")]));
    check_conformance(SSE, (complete_answer, begun), model).await;
}

fn check_body(request: &ModelRequest, expected: Expect) {
    let base = Url::parse("https://example.com/v1/").expect("an address");
    let model = OpenAi::new(outbound_client(""), &base, UrlTrust::Operator, Some(Secret::new("sk-1")), "m-1")
        .expect("a model");
    let payload = model.prepare(request).expect("prepared");
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
fn bodies_without_tools() {
    check_body(
        &request(),
        expect![[r#"
        {"model":"m-1","stream":true,"stream_options":{"include_usage":true},"max_tokens":16384,
        "messages":[{"role":"user","content":"hi"}]}"#]],
    );
    let empty = Prompt::new(Vec::new(), Vec::new());
    check_body(
        &ModelRequest { prompt: Arc::new(empty), ..request() },
        expect![[r#"
        {"model":"m-1","stream":true,"stream_options":{"include_usage":true},"max_tokens":16384,
        "messages":[]}"#]],
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
    let calls = vec![ToolCall::new("1", "readTodos", "{\"n\":1}"), ToolCall::new("2", "createTodo", "{")];
    let with_tools = ModelRequest {
        prompt: Arc::new(Prompt::new(vec![system], history)),
        appended_messages: vec![
            Message::with_tool_calls("", calls),
            Message::tool_result("1", "one"),
            Message::tool_result("2", ""),
        ],
        tools: Arc::new([
            tool(
                "createTodo",
                "Adds a \"todo\".",
                r#"{"type":"object","properties":{"title":{"type":"string"}}}"#,
            ),
            tool("readTodos", "", r#"{"type":"object"}"#),
        ]),
        ..request()
    };
    check_body(
        &with_tools,
        expect![[r#"
        {"model":"m-1","stream":true,"stream_options":{"include_usage":true},"max_tokens":16384,"tools":[{"type":"function","function":{"name":"createTodo","description":"Adds a \"todo\".","parameters":{"type":"object","properties":{"title":{"type":"string"}}}}},
        {"type":"function","function":{"name":"readTodos","description":"","parameters":{"type":"object"}}}],"tool_choice":"auto",
        "messages":[{"role":"system","content":"You are \"terse\".\n"},
        {"role":"user","content":"before"},
        {"role":"assistant","content":"Wait.","tool_calls":[{"id":"old","type":"function","function":{"name":"readTodos","arguments":"{}"}}]},
        {"role":"tool","content":"none","tool_call_id":"old"},
        {"role":"user","content":"hi"},
        {"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"readTodos","arguments":"{\"n\":1}"}},
        {"id":"2","type":"function","function":{"name":"createTodo","arguments":"{"}}]},
        {"role":"tool","content":"one","tool_call_id":"1"},
        {"role":"tool","content":"","tool_call_id":"2"}]}"#]],
    );
}

#[test]
fn the_tool_choice_is_said_where_there_are_tools() {
    let cases = [
        (ToolChoice::Auto, json!({"choice": "auto", "tools": ["x", "y"]})),
        (ToolChoice::None, json!({"choice": null, "tools": []})),
        (ToolChoice::Required, json!({"choice": "required", "tools": ["x", "y"]})),
        (ToolChoice::Tool("y".into()), json!({"choice": "required", "tools": ["y"]})),
        (ToolChoice::Tool("z".into()), json!({"choice": null, "tools": []})),
    ];
    let base = Url::parse("https://example.com").expect("an address");
    let model = OpenAi::new(outbound_client(""), &base, UrlTrust::Operator, None, "m-1").expect("a model");
    let sent = |request: &ModelRequest| {
        let payload = model.prepare(request).expect("prepared");
        let body: Value = serde_json::from_slice(payload.bytes()).expect("the body is JSON");
        let tools = body["tools"].as_array().into_iter().flatten();
        let names: Vec<_> = tools.map(|tool| tool["function"]["name"].clone()).collect();
        json!({"choice": body["tool_choice"], "tools": names})
    };
    for (tool_choice, expected) in cases {
        let bare = ModelRequest { tool_choice, ..request() };
        assert_eq!(
            sent(&bare),
            json!({"choice": null, "tools": []}),
            "servers refuse a choice without tools"
        );
        let tools = ["x", "y"].map(|name| tool(name, "", "{}"));
        assert_eq!(sent(&ModelRequest { tools: Arc::new(tools), ..bare }), expected);
    }
}

#[test]
fn the_limit_on_the_answer_has_the_name_that_the_server_knows() {
    for (base, model, expected) in [
        ("https://api.openai.com/v1", "gpt-5-mini", json!({"max_completion_tokens": 16_384})),
        ("https://me.openai.azure.com/openai", "gpt-4-turbo", json!({"max_completion_tokens": 4_096})),
        ("https://notopenai.com/v1", "m-1", json!({"max_tokens": 16_384})),
        ("http://127.0.0.1:8080/v1", "m-1", json!({"max_tokens": 16_384})),
    ] {
        let base = Url::parse(base).expect("an address");
        let with_limits = |limits| {
            let model = ModelSpec::new(model).with_limits(limits);
            OpenAi::new(outbound_client(""), &base, UrlTrust::Operator, None, model).expect("a model")
        };
        let limit_of = |model: &OpenAi| {
            let payload = model.prepare(&request()).expect("prepared");
            let body: serde_json::Map<String, Value> =
                serde_json::from_slice(payload.bytes()).expect("the body is JSON");
            Value::Object(body.into_iter().filter(|(name, _)| name.starts_with("max_")).collect())
        };
        assert_eq!(limit_of(&with_limits(ModelLimits::default())), expected);
        let limits = ModelLimits { max_output_tokens: 7, ..ModelLimits::default() };
        let limited = limit_of(&with_limits(limits));
        assert_eq!(limited.as_object().expect("an object").values().collect::<Vec<_>>(), [&json!(7)]);
    }
}

const OVERFLOW: &str = r#"{"error":{"code":400,"message":"request (5021 tokens) exceeds the available context size (4096 tokens) sk-1","type":"exceed_context_size_error","n_prompt_tokens":5021,"n_ctx":4096}}"#;

#[tokio::test]
async fn the_window_is_learnt_from_the_error_of_the_server() {
    let answer = chunked_response("400 Bad Request", JSON, OVERFLOW.as_bytes(), 64, true);
    let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
    let limits = ModelLimits::default();
    let of_limits = |limits| {
        let spec = ModelSpec::new("m-1").with_limits(limits).at(PROVIDER, server.url.as_str());
        OpenAi { model: spec.into(), ..model(&server) }
    };
    let (one, same) = (of_limits(limits.clone()), of_limits(limits));
    assert_eq!(one.info().context_window, 128_000);
    let payload = one.prepare(&request()).expect("prepared");
    let failure = one.start(payload).await.err().expect("refused");
    assert_eq!(failure.kind(), AgentErrorKind::ContextExceeded);
    let sizes = ContextSize { window: Some(4_096), prompt: Some(5_021) };
    assert_eq!(ContextSize::of(&failure), sizes);
    let shown = format!("{failure:?}");
    assert!(shown.contains("exceed_context_size_error") && !shown.contains("sk-1"), "{shown}");
    for model in [&one, &same] {
        assert!(model.info().context_window <= 4_096, "{:?}", model.info());
    }
    let spec = ModelSpec::clone(&one.model).at(PROVIDER, "http://other.example/");
    let another = OpenAi { model: spec.into(), ..one };
    assert_eq!(another.info().context_window, 128_000);
}

#[tokio::test]
async fn reasoning_of_calls_goes_back_to_models_that_require_it() {
    let call = r#"{"index":0,"id":"c1","function":{"name":"x","arguments":"{}"}}"#;
    let parts = [
        delta(r#"{"reasoning_content":"Hm"}"#),
        delta(r#"{"reasoning_content":", \"so\""}"#),
        calls(call),
        finish("tool_calls"),
        DONE.into(),
    ];
    let answer = chunked_response("200 OK", SSE, sse(&parts).as_bytes(), 4096, true);
    let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
    let named = |name: &str| {
        OpenAi::new(outbound_client("127.0.0.1"), &server.url, UrlTrust::Supplied, None, name)
            .expect("a model")
    };
    let later_reasoning = |model: &OpenAi, items: &[ProviderItem]| {
        let answer = Message::with_tool_calls("", vec![ToolCall::new("c1", "x", "{}")]);
        let answer = Message { provider_items: items.to_vec(), ..answer };
        let appended_messages = vec![answer, Message::tool_result("c1", "ok")];
        let payload = model.prepare(&ModelRequest { appended_messages, ..request() }).expect("prepared");
        let body: Value = serde_json::from_slice(payload.bytes()).expect("the body is JSON");
        assert_eq!(body["messages"].as_array().map(Vec::len), Some(3), "{body}");
        body["messages"][1]["reasoning_content"].clone()
    };
    for (name, expected, of_others) in [
        ("deepseek-v4-pro", json!("Hm, \"so\""), json!("I call x.")),
        ("moonshotai/Kimi-K2", json!("Hm, \"so\""), json!("I call x.")),
        ("m-1", Value::Null, Value::Null),
    ] {
        let model = named(name);
        let payload = model.prepare(&request()).expect("prepared");
        let events: Vec<_> = model.start(payload).await.expect("an answer").collect().await;
        let items = events.into_iter().filter_map(|event| match event {
            Ok(ModelEvent::ProviderItem(item)) => Some(item),
            _ => None,
        });
        let items: Vec<ProviderItem> = items.collect();
        assert_eq!(later_reasoning(&model, &items), expected, "{name}");
        // Calls of former turns have none, and the item of one model is not sent to another.
        assert_eq!(later_reasoning(&model, &[]), of_others, "{name}");
        let other = later_reasoning(&named("deepseek-v3"), &items);
        assert_eq!(other, "I call x.", "{name}");
    }
}

/// Servers of others run the same models, and refuse members that they do not know.
#[tokio::test]
async fn reasoning_that_the_server_does_not_have_is_left_out_from_then_on() {
    const NAME: &str = "moonshotai/kimi-k2-instruct";
    let of_groq = json!({"error": {"message": "'messages.1' : for 'role:assistant' the following must be satisfied[('messages.1' : property 'reasoning_content' is unsupported)]",
        "type": "invalid_request_error"}});
    let of_cerebras = json!({"message": "messages.1.assistant.reasoning_content: property 'messages.1.assistant.reasoning_content' is unsupported",
        "type": "invalid_request_error", "param": "validation_error", "code": "wrong_api_format"});
    let missing = json!({"error": {"message": "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1"}});
    let reasoning = "so \"}\", \\".to_owned();
    let kept = ProviderItem {
        json: ItemMaker::reasoning(NAME).keep(&reasoning).into(),
        text_before: 0,
        calls_before: 0,
    };
    let calling = |call: &str| Message::with_tool_calls("", vec![ToolCall::new(call, "x", "{}")]);
    let appended_messages = vec![
        calling("c1"),
        Message::tool_result("c1", r#"{"a":1,"reasoning_content":"of the tool"}"#),
        Message { provider_items: vec![kept], ..calling("c2") },
        Message::tool_result("c2", "ok"),
    ];
    let asked = ModelRequest { appended_messages, ..request() };
    for (error, refused_members) in [
        (of_groq.clone(), vec![r#","reasoning_content":""#]),
        (of_cerebras, vec![r#","reasoning_content":""#]),
        (of_groq, vec![r#","reasoning_content":""#, r#","stream_options":"#]),
        (missing, vec![]),
    ] {
        let refused = |error: &Value| {
            chunked_response("400 Bad Request", JSON, error.to_string().as_bytes(), 4096, true)
        };
        let of_options = refused(&json!({"error": {"message": "Unknown parameter: 'stream_options'."}}));
        let (refused, refuses_options) = (refused(&error), refused_members.len() > 1);
        let body = sse(&[text("a"), finish("stop"), DONE.into()]);
        let answer = chunked_response("200 OK", SSE, body.as_bytes(), 4096, true);
        let respond = move |request: &str| {
            if refuses_options && request.contains("stream_options") {
                return of_options.clone();
            }
            let has_reasoning = request.contains(r#","reasoning_content":""#);
            if has_reasoning { refused.clone() } else { answer.clone() }
        };
        let server = LoopbackServer::respond_by(respond, AfterResponse::Close).await;
        let model = OpenAi::new(outbound_client("127.0.0.1"), &server.url, UrlTrust::Supplied, None, NAME);
        let model = model.expect("a model");
        let lines = answer_to(&model, &asked).await;
        let later = model.prepare(&asked).expect("prepared");
        let refusals = refused_members.len();
        if refusals == 0 {
            assert!(lines.len() == 1 && lines[0].starts_with("refused"), "{lines:?}");
            assert_eq!(server.requests().len(), 1);
            continue;
        }
        let notices = &lines[..refusals];
        let is_notice = |line: &String| line.contains("parameterRefused") && line.contains(&later.sha256());
        assert!(notices.iter().all(is_notice), "{lines:?}");
        assert_eq!(lines[refusals..], ["text a", "finish Stop"], "{error}");
        let sent = String::from_utf8_lossy(later.bytes());
        assert!(refused_members.iter().all(|member| !sent.contains(member)), "{sent}");
        assert_eq!(answer_to(&model, &asked).await, ["text a", "finish Stop"]);
        assert_eq!(server.requests().len(), refusals + 2);
    }
}

#[tokio::test]
async fn stream_options_that_the_server_does_not_have_are_left_out_from_then_on() {
    let of_mistral = json!({"object": "error", "message": {"detail": [{"type": "extra_forbidden",
        "loc": ["body", "stream_options", "include_usage"], "msg": "Extra inputs are not permitted", "input": true}]}});
    let of_groq = json!({"error": {"message": "property 'stream_options' is unsupported, did you mean 'stream'?",
        "type": "invalid_request_error"}});
    let elsewhere = json!({"error": {"message": "Unknown parameter: 'tools'."}});
    for (status, error, is_repeated) in [
        ("422 Unprocessable Entity", of_mistral, true),
        ("400 Bad Request", of_groq, true),
        ("400 Bad Request", elsewhere, false),
    ] {
        let refused = chunked_response(status, JSON, error.to_string().as_bytes(), 4096, true);
        let body = sse(&[text("a"), finish("stop"), DONE.into()]);
        let answer = chunked_response("200 OK", SSE, body.as_bytes(), 4096, true);
        let respond = move |request: &str| match request.contains("stream_options") {
            true => refused.clone(),
            false => answer.clone(),
        };
        let server = LoopbackServer::respond_by(respond, AfterResponse::Close).await;
        let model = model(&server);
        let lines = answer_of(&model).await;
        if !is_repeated {
            assert_eq!((lines, server.requests().len()), (vec!["refused Failed".to_owned()], 1));
            continue;
        }
        let later = model.prepare(&request()).expect("prepared").sha256();
        assert!(lines[0].contains("parameterRefused") && lines[0].contains(&later), "{lines:?}");
        assert_eq!(lines[1..], ["text a", "finish Stop"], "{error}");
        assert_eq!(answer_of(&model).await, ["text a", "finish Stop"]);
        assert_eq!(server.requests().len(), 3);
    }
}

/// Gateways begin a response before the model's server has rejected the prompt.
#[tokio::test]
async fn the_window_is_learnt_from_an_error_inside_an_answer() {
    let body = format!(": PROCESSING\n\n{}", sse(&[OVERFLOW]));
    let answer = chunked_response("200 OK", SSE, body.as_bytes(), 64, true);
    let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
    let model = model(&server);
    assert_eq!(model.info().context_window, 128_000);
    assert_eq!(answer_of(&model).await, ["fails ContextExceeded"]);
    assert!(model.info().context_window <= 4_096, "{:?}", model.info());
}

#[test]
fn the_endpoint_is_below_the_base_address() {
    let cases = [
        ("https://example.com", Some("https://example.com/chat/completions")),
        ("https://example.com/", Some("https://example.com/chat/completions")),
        ("https://example.com/v1", Some("https://example.com/v1/chat/completions")),
        ("https://example.com/v1/", Some("https://example.com/v1/chat/completions")),
        (
            "https://example.com/a%20b?api-version=1",
            Some("https://example.com/a%20b/chat/completions?api-version=1"),
        ),
        ("mailto:ada@example.com", None),
    ];
    for (base, expected) in cases {
        let base = Url::parse(base).expect("an address");
        let model = OpenAi::new(outbound_client(""), &base, UrlTrust::Operator, None, "m-1");
        match (model, expected) {
            (Ok(model), Some(expected)) => assert_eq!(model.endpoint.url.as_str(), expected),
            (Err(failure), None) => assert_eq!(failure.kind(), AgentErrorKind::InvalidRequest),
            (other, _) => panic!("{base}: {:?}", other.map(|model| model.endpoint.url)),
        }
    }
}

#[test]
fn the_switch_for_reasoning_and_the_level_of_the_agent_are_sent() {
    let base = Url::parse("https://example.com/v1/").expect("an address");
    for (model, thinking, level, expected) in [
        ("m-1", None, None, None),
        ("m-1", Some(true), None, Some("medium")),
        ("m-1", Some(false), None, None),
        ("gpt-5-mini", Some(false), None, Some("minimal")),
        ("m-1", None, Some("high"), Some("high")),
        ("m-1", Some(false), Some("none"), Some("none")),
    ] {
        let model = ModelSpec::new(model).with_reasoning_effort(level);
        let model =
            OpenAi::new(outbound_client(""), &base, UrlTrust::Operator, None, model).expect("a model");
        let payload = model.prepare(&ModelRequest { thinking, ..request() }).expect("prepared");
        let body: Value = serde_json::from_slice(payload.bytes()).expect("the body is JSON");
        assert_eq!(body.get("reasoning_effort").and_then(Value::as_str), expected, "{thinking:?} {level:?}");
    }
}

#[test]
fn a_part_without_a_form_is_refused_in_the_latest_user_message_alone() {
    let source = MediaSource::Data { value: "QUJD".into(), mime_type: "video/mp4".into() };
    let content = Content::Parts(vec![ContentPart::Video { source }]);
    let video = PromptMessage::new(Message { content, ..Message::text(Role::User, "") });
    let text = PromptMessage::new(Message::user("And now?"));
    let server = Url::parse("http://127.0.0.1:9/").expect("an address");
    let model = OpenAi::new(outbound_client(""), &server, UrlTrust::Operator, None, "m-1").expect("a model");
    let prepared = |messages: [&Arc<PromptMessage>; 2]| {
        let prompt = Arc::new(Prompt::new(Vec::new(), messages.map(Arc::clone).into()));
        model.prepare(&ModelRequest { prompt, ..request() })
    };
    let refused = prepared([&text, &video]).err().map(|error| error.kind());
    assert_eq!(refused, Some(AgentErrorKind::UnsupportedContent));
    let payload = prepared([&video, &text]).expect("the latest message is text");
    let body: Value = serde_json::from_slice(payload.bytes()).expect("the body is JSON");
    let note = json!([{"type": "text", "text": "[video of type video/mp4, not sent]"}]);
    assert_eq!(body["messages"][0]["content"], note);
    assert_eq!(body["messages"][1]["content"], "And now?");
}
