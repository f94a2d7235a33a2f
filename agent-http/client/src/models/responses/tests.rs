//! Tests of the adapter against a scripted loopback server.

use std::sync::{Arc, Mutex};

use agent_core::error::AgentErrorKind;
use agent_core::message::{Content, ContentPart, MediaSource, Message, ProviderItem, Role, ToolCall};
use agent_core::model::ModelEvent;
use agent_core::prompt::{Fragment, Part, Prompt, PromptMessage, Stability};
use agent_core::tool::ToolChoice;
use agent_platform::coding::SubscriptionLimits;
use expect_test::{Expect, expect};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::*;
use crate::loopback::{AfterResponse, LoopbackServer, chunked_response, outbound_client};
use crate::models::ModelLimits;
use crate::models::harness::{answer_of, answer_to, check_conformance, request, tool};
use crate::models::spec::ModelSpec;

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
    for size in [usize::MAX, 7, 1] {
        let answer = chunked_response("200 OK", kind, body.as_bytes(), size.min(body.len().max(1)), true);
        let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
        assert_eq!(answer_of(&model(&server)).await, expected, "in chunks of {size}: {body}");
    }
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
async fn a_limit_that_the_server_does_not_have_is_left_out_from_then_on() {
    let unsupported = json!({"message": "Unsupported parameter: 'max_output_tokens'", "type": "invalid_request_error",
        "param": "max_output_tokens", "code": "unsupported_parameter"});
    let forbidden = json!([{"type": "extra_forbidden", "loc": ["body", "max_output_tokens"],
        "msg": "Extra inputs are not permitted"}]);
    for (status, error) in [
        ("400 Bad Request", json!({ "error": unsupported })),
        ("422 Unprocessable Entity", json!({ "detail": forbidden })),
        ("400 Bad Request", json!({"error": "`max_output_tokens` is not supported"})),
    ] {
        let server = server_without_limit(status, error.clone()).await;
        let model = limited_model(&server);
        let lines = answer_of(&model).await;
        let later = model.prepare(&request()).expect("prepared");
        assert!(lines[0].contains("parameterRefused") && lines[0].contains(&later.sha256()), "{lines:?}");
        assert_eq!(lines[1..], ["text hi", "finish Stop"], "{error}");
        assert!(later.with_output_limit(300).is_none(), "a budget cannot lower what is not sent");
        assert_eq!(answer_of(&model).await, ["text hi", "finish Stop"]);
        assert_eq!(server.requests().len(), 3);
    }
}

#[tokio::test]
async fn a_limit_is_kept_that_is_refused_for_its_value_or_is_a_budgets() {
    let too_large = json!({"error": {"message": "Invalid 'max_output_tokens': integer above maximum value.",
        "type": "invalid_request_error", "param": "max_output_tokens", "code": "integer_above_max_value"}});
    let server = server_without_limit("400 Bad Request", too_large).await;
    let model = limited_model(&server);
    assert!(answer_of(&model).await[0].starts_with("refused"));
    assert_eq!(server.requests().len(), 1);

    let unknown = json!({"error": {"message": "Unknown parameter: 'max_output_tokens'."}});
    let server = server_without_limit("400 Bad Request", unknown).await;
    let model = limited_model(&server);
    let lowered = model.prepare(&request()).expect("prepared").with_output_limit(300).expect("a limit");
    assert!(model.start(lowered).await.is_err());
    assert_eq!(server.requests().len(), 1);
    assert!(model.prepare(&request()).expect("prepared").with_output_limit(300).is_some());
}

#[tokio::test]
async fn every_row_of_texts_becomes_its_event() {
    let summary = |delta: &str| json!({"type": "response.reasoning_summary_text.delta", "delta": delta});
    let part = |index: i32| json!({"type": "response.reasoning_summary_part.added", "summary_index": index});
    let kind = |kind: &str| json!({"type": kind, "delta": 7, "item": [], "response": "?"});
    check_stream(
        &[
            created(),
            kind("response.in_progress"),
            kind("response.queued"),
            kind("response.metadata"),
            kind("codex.rate_limits"),
            json!({}),
            text("Größe – 🙂"),
            text(""),
            text(" \"b\"\n"),
            completed(),
        ],
        &["text Größe – 🙂", "text  \"b\"\n", "finish Stop"],
    )
    .await;
    check_stream(
        &[
            part(0),
            summary("Hm"),
            part(1),
            summary("m"),
            json!({"type": "response.reasoning_text.delta", "delta": "!"}),
            text("a"),
            json!({"type": "response.done", "response": {"status": "completed"}}),
        ],
        &["reasoning Hm", "reasoning \n\n", "reasoning m", "reasoning !", "text a", "finish Stop"],
    )
    .await;
    let refusal = json!({"type": "response.refusal.delta", "item_id": "msg_1", "delta": "No."});
    check_stream(&[refusal, completed()], &["text No.", "finish ContentFilter"]).await;
    // A message of which no delta came, and one of which all came.
    let content = json!([{"type": "refusal", "refusal": "No."}]);
    let refused = json!({"id": "msg_2", "type": "message", "content": content});
    check_stream(
        &[
            added(0, message("msg_1", "")),
            text("a"),
            done(0, message("msg_1", "a")),
            done(1, refused),
            completed(),
        ],
        &["text a", "text No.", "finish ContentFilter"],
    )
    .await;
    let unannounced = json!({"type": "response.output_text.delta", "delta": "a"});
    let unnamed =
        json!({"type": "response.output_item.done", "item": {"type": "message", "content": [{"text": "a"}]}});
    check_stream(&[unannounced, unnamed, completed()], &["text a", "finish Stop"]).await;
}

#[tokio::test]
async fn usage_limits_go_to_their_handler_and_not_into_the_answer() {
    let limits = |percent: Value| json!({"type": "codex.rate_limits", "rate_limits": {"primary": {"used_percent": percent}}, "delta": "x"});
    let malformed = r#"{"type":"codex.rate_limits","rate_limits":{"primary":{"used_percent":1e999}}}"#;
    let deep =
        format!(r#"{{"type":"codex.rate_limits","rate_limits":{}}}"#, "[".repeat(200) + &"]".repeat(200));
    let body = [
        sse(&[limits(json!(1)), created(), text("a"), limits(json!("7"))]),
        format!("data: {malformed}\n\ndata: {deep}\n\n"),
        sse(&[
            json!({"type": "codex.rate_limits", "rate_limits": 7}),
            limits(json!(2.5)),
            text("b"),
            completed(),
        ]),
    ]
    .concat();
    let reported: Arc<Mutex<Vec<SubscriptionLimits>>> = Arc::default();
    let server = LoopbackServer::respond_with(
        chunked_response("200 OK", SSE, body.as_bytes(), 7, true),
        AfterResponse::Close,
    )
    .await;
    let handler = reported.clone();
    let protocol =
        protocol("m-1").with_limit_handler(move |limits| handler.lock().expect("unpoisoned").push(limits));
    let outbound = outbound_client("127.0.0.1");
    let model = Responses::new(outbound, &server.url, UrlTrust::Supplied, None, protocol).expect("a model");
    assert_eq!(answer_of(&model).await, ["text a", "text b", "finish Stop"]);
    let reported = reported.lock().expect("unpoisoned");
    let used: Vec<_> =
        reported.iter().filter_map(|limits| Some(limits.primary.as_ref()?.used_percent)).collect();
    assert_eq!(used, [1.0, 2.5]);
}

#[tokio::test]
async fn framing_does_not_matter() {
    let plain = sse(&[text("a"), completed()]);
    let expected = &["text a", "finish Stop"];
    for body in [
        format!("\u{feff}: hi\r\n\r\nevent: x\r\n{}", plain.replace('\n', "\r\n")),
        plain.replace('\n', "\r"),
        format!("data: [DONE]\n\n{plain}data: [DONE]\n\n"),
        format!("{plain}{}data: sorry\n\n", sse(&[text("never"), incomplete(json!({}))])),
        plain.replace("data: ", "event: error\nid: 7\nretry: 1\ndata: "),
    ] {
        check(SSE, &body, expected).await;
    }
    for kind in ["text/plain", "application/octet-stream", ""] {
        check(kind, &plain, expected).await;
    }
}

#[tokio::test]
async fn every_end_is_told_from_being_cut_off() {
    let usage = json!({"input_tokens": 9, "input_tokens_details": {"cached_tokens": 8}, "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2}});
    let with_usage = |kind: &str, details: Value| {
        json!({"type": kind,
        "response": {"model": "m-1-2026", "usage": usage, "incomplete_details": details}})
    };
    let reason = |reason: &str| json!({"reason": reason});
    let cases: Vec<(Vec<Value>, &[&str])> = vec![
        (
            vec![text("a"), with_usage("response.completed", Value::Null)],
            &["text a", "usage m-1-2026 9 5 8 2", "finish Stop"],
        ),
        (
            vec![text("a"), with_usage("response.incomplete", reason("max_output_tokens"))],
            &["text a", "usage m-1-2026 9 5 8 2", "finish Length"],
        ),
        (vec![text("a"), incomplete(reason("content_filter"))], &["text a", "finish ContentFilter"]),
        (vec![text("a"), incomplete(reason("new"))], &["text a", "fails Failed"]),
        (vec![text("a"), incomplete(Value::Null)], &["text a", "fails Failed"]),
        (
            vec![text("a"), json!({"type": "response.done", "response": {"status": "failed"}})],
            &["text a", "fails Failed"],
        ),
        (vec![text("a"), json!({"type": "response.completed"})], &["text a", "finish Stop"]),
        (vec![completed()], &["finish Stop"]),
        (vec![text("a")], &["text a", "fails Truncated"]),
        (vec![text("a"), json!("[DONE]")], &["text a", "fails Failed"]),
        (vec![], &["fails Truncated"]),
    ];
    for (data, expected) in cases {
        check_stream(&data, expected).await;
    }
    let odd = json!({"type": "response.completed", "response": {"usage": {"input_tokens": -1, "output_tokens": 9_223_372_036_854_775_808_u64}}});
    check_stream(&[text("a"), odd], &["text a", "finish Stop"]).await;
    check(SSE, &(sse(&[text("a")]) + "data: [DONE]\n\n"), &["text a", "fails Truncated"]).await;
    check(SSE, sse(&[text("a"), completed()]).trim_end(), &["text a", "fails Truncated"]).await;
}

#[tokio::test]
async fn calls_are_put_together_however_they_arrive() {
    let all = |number| {
        json!({"type": "response.function_call_arguments.done", "item_id": format!("fc_{number}"),
        "arguments": "{\"n\":1}"})
    };
    let expected_call: &[&str] = &["call 0 call_0 x", "args 0 {\"n\":1}", "finish ToolCalls"];
    let cut: &[&str] = &["call 0 call_0 x", "args 0 {\"n\"", "args 0 :1}", "finish ToolCalls"];
    let full = |number| call(number, "{\"n\":1}");
    let without = |item: Value, members: &[&str]| {
        let mut item = item;
        for member in members {
            item.as_object_mut().expect("an object").remove(*member);
        }
        item
    };
    let cases: Vec<(Vec<Value>, &[&str])> = vec![
        (
            vec![
                added(0, call(0, "")),
                arguments(0, "{\"n\""),
                arguments(0, ":1}"),
                all(0),
                done(0, full(0)),
            ],
            cut,
        ),
        (vec![added(0, call(0, "")), arguments(0, "{\"n\""), arguments(0, ":1}"), done(0, call(0, ""))], cut),
        // What the deltas lack: a part, all, and the announcement.
        (vec![added(0, call(0, "")), arguments(0, "{\"n\""), done(0, full(0))], cut),
        (vec![added(0, call(0, "")), all(0), done(0, full(0))], expected_call),
        (vec![added(0, full(0)), done(0, full(0))], expected_call),
        (vec![done(0, full(0))], expected_call),
        (vec![done(0, full(0)), done(0, full(0))], expected_call),
        (vec![added(0, call(0, "")), all(0)], expected_call),
        // A name that comes last, identifiers that change, and events without an identifier or an index.
        (vec![added(0, without(call(0, ""), &["name"])), arguments(0, "{\"n\""), done(0, full(0))], cut),
        (
            vec![
                added(0, call(0, "")),
                json!({"type": "response.function_call_arguments.delta", "item_id": "other", "output_index": 0, "delta": "{\"n\""}),
                done(
                    0,
                    json!({"id": "third", "type": "function_call", "name": "x", "arguments": "{\"n\":1}"}),
                ),
            ],
            cut,
        ),
        (
            vec![
                added(0, call(0, "")),
                json!({"type": "response.function_call_arguments.delta", "output_index": 0, "delta": "{\"n\":1}"}),
                done(0, without(full(0), &["id"])),
            ],
            expected_call,
        ),
        (
            vec![
                json!({"type": "response.output_item.added", "item": without(call(0, ""), &["id"])}),
                json!({"type": "response.function_call_arguments.delta", "delta": "{\"n\":1}"}),
                json!({"type": "response.output_item.done", "item": without(full(0), &["id"])}),
            ],
            expected_call,
        ),
        // Arguments that are an object, and no call identifier.
        (
            vec![done(
                0,
                json!({"type": "function_call", "call_id": "call_0", "name": "x", "arguments": {"n": 1}}),
            )],
            expected_call,
        ),
        (
            vec![done(0, without(full(0), &["call_id"]))],
            &["call 0 new x", "args 0 {\"n\":1}", "finish ToolCalls"],
        ),
        (
            vec![done(0, without(full(0), &["name"]))],
            &["call 0 call_0 ", "args 0 {\"n\":1}", "finish ToolCalls"],
        ),
        // Two items with one index.
        (
            vec![
                added(0, call(0, "")),
                added(0, call(1, "")),
                arguments(1, "[1]"),
                arguments(0, "[0]"),
                done(0, call(1, "[1]")),
                done(0, call(0, "[0]")),
            ],
            &["call 0 call_0 x", "call 1 call_1 x", "args 1 [1]", "args 0 [0]", "finish ToolCalls"],
        ),
    ];
    for (data, expected) in cases {
        let data: Vec<Value> = [created()].into_iter().chain(data).chain([completed()]).collect();
        check_stream(&data, expected).await;
    }
}

#[tokio::test]
async fn calls_that_contradict_themselves_fail_and_incomplete_ones_are_not_made() {
    let begun = || added(0, call(0, ""));
    let cases: Vec<(Vec<Value>, &str)> = vec![
        (vec![begun(), arguments(0, "[0]"), done(0, call(0, "[1]"))], "fails Failed"),
        (vec![begun(), arguments(0, "[0]"), done(0, call(0, "[")), completed()], "fails Failed"),
        (vec![begun(), done(0, call(0, "[0]")), arguments(0, "1")], "fails Failed"),
        (vec![begun(), arguments(7, "[0]")], "fails Failed"),
        (
            vec![begun(), json!({"type": "response.function_call_arguments.delta", "item_id": "fc_0"})],
            "fails Failed",
        ),
        (vec![begun(), arguments(0, "[0]"), completed()], "fails Truncated"),
        (vec![added(0, json!({"type": "function_call"})), completed()], "fails Truncated"),
        (
            vec![begun(), arguments(0, "["), incomplete(json!({"reason": "max_output_tokens"}))],
            "finish Length",
        ),
    ];
    for (data, expected) in cases {
        let body = sse(&data);
        let answer = chunked_response("200 OK", SSE, body.as_bytes(), 64, true);
        let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
        let events = answer_of(&model(&server)).await;
        assert_eq!(events.last().map(String::as_str), Some(expected), "{body}: {events:?}");
        assert_eq!(events.iter().filter(|event| event.starts_with("f")).count(), 1, "{events:?}");
    }
}

#[tokio::test]
async fn interleaved_calls_are_told_apart_up_to_the_limit() {
    for (calls, expected) in [(32, "finish ToolCalls"), (33, "fails ToolLoopLimit")] {
        let mut data: Vec<Value> = (0..calls).map(|number| added(number, call(number, ""))).collect();
        for piece in ["{\"n\":", "1", "}"] {
            data.extend((0..calls).rev().map(|number| arguments(number, piece)));
        }
        data.extend((0..calls).map(|number| done(number, call(number, "{\"n\":1}"))));
        data.push(completed());
        let answer = chunked_response("200 OK", SSE, sse(&data).as_bytes(), 1000, true);
        let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
        let events = answer_of(&model(&server)).await;
        assert_eq!(events.last().map(String::as_str), Some(expected));
        if calls == 32 {
            assert_eq!(events.len(), 4 * calls + 1);
            for number in 0..calls {
                let own_prefix = format!("args {number} ");
                let arguments = events.iter().filter_map(|event| event.strip_prefix(&own_prefix));
                assert_eq!(arguments.collect::<String>(), "{\"n\":1}");
            }
        }
    }
}

/// Returns the events of a stream, as they are, and the model that made them.
async fn events_of(data: &[Value]) -> (Vec<Result<ModelEvent, AgentError>>, Responses) {
    let answer = chunked_response("200 OK", SSE, sse(data).as_bytes(), 1000, true);
    let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
    let model = model(&server);
    let payload = model.prepare(&request()).expect("prepared");
    let events = model.start(payload).await.expect("started").collect().await;
    (events, model)
}

#[tokio::test]
async fn the_providers_items_are_kept_with_their_place() {
    let search =
        json!({"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"q": "x"}});
    let odd = json!({"type": "My Secret", "x": 1.0});
    let (events, model) = events_of(&[
        added(0, reasoning("a")),
        done(0, reasoning("a")),
        added(1, message("msg_1", "")),
        text("ab"),
        done(1, message("msg_1", "ab")),
        added(2, reasoning("b")),
        added(3, call(3, "")),
        // The third item is done after the fourth has begun.
        done(2, reasoning("b")),
        done(3, call(3, "{}")),
        done(4, search),
        done(5, odd),
        completed(),
    ])
    .await;
    let events: Vec<ModelEvent> = events.into_iter().map(|event| event.expect("an event")).collect();
    let items: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            ModelEvent::ProviderItem(item) => {
                let json = model.protocol.maker().matching_item(item).expect("an item of the model");
                Some((json.get(), item.text_before, item.calls_before))
            }
            _ => None,
        })
        .collect();
    assert_eq!(
        items,
        [
            (r#"{"type":"reasoning","summary":[],"encrypted_content":"sealed-a"}"#, 0, 0),
            (r#"{"type":"reasoning","summary":[],"encrypted_content":"sealed-b"}"#, 2, 0),
            (r#"{"type":"web_search_call","action":{"q":"x"}}"#, 2, 1),
            (r#"{"type":"My Secret","x":1.0}"#, 2, 1),
        ]
    );
    let notices: Vec<Value> = events
        .iter()
        .filter_map(|event| match event {
            ModelEvent::Notice(notice) => serde_json::to_value(notice).ok(),
            _ => None,
        })
        .collect();
    assert_eq!(
        notices,
        [
            json!({"kind": "unknownItem", "itemType": "web_search_call"}),
            json!({"kind": "unknownItem", "itemType": ""}),
        ]
    );
    let (cut, _) = events_of(&[done(0, reasoning("a")), text("a")]).await;
    assert!(!cut.iter().any(|event| matches!(event, Ok(ModelEvent::ProviderItem(_)))), "{cut:?}");
}

#[tokio::test]
async fn what_is_kept_is_bounded() {
    let long = |bytes: usize| "x".repeat(bytes);
    let item = |number: usize| {
        done(
            number,
            json!({"type": "reasoning", "id": number.to_string(), "encrypted_content": long(1 << 20)}),
        )
    };
    let items: Vec<Value> = (0..5).map(item).collect();
    let messages = |count: usize| (0..count).map(|number| done(number, json!({"type": "message"}))).collect();
    let cases: Vec<(Vec<Value>, &str)> = vec![
        (items, "fails OutputTooLarge"),
        (messages(1024), "finish Stop"),
        (messages(1025), "fails OutputTooLarge"),
        (vec![done(0, call(0, &long(256 << 10)))], "finish ToolCalls"),
        (vec![done(0, call(0, &long((256 << 10) + 1)))], "fails Failed"),
        (vec![text(&long((4 << 20) - 200))], "finish Stop"),
        (vec![text(&long(5 << 20))], "fails Failed"),
    ];
    for (data, expected) in cases {
        let data: Vec<Value> = data.into_iter().chain([completed()]).collect();
        let answer = chunked_response("200 OK", SSE, sse(&data).as_bytes(), 64 << 10, true);
        let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
        let events = answer_of(&model(&server)).await;
        assert_eq!(events.last().map(String::as_str), Some(expected));
    }
    let answer = chunked_response("200 OK", JSON, " ".repeat(5 << 20).as_bytes(), 1 << 20, true);
    let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
    assert_eq!(answer_of(&model(&server)).await, ["refused OutputTooLarge"]);
}

#[tokio::test]
async fn errors_inside_an_answer_are_its_end() {
    let error = json!({"type": "error", "error": {"code": "server_error", "message": "sk-1"}});
    let failed = json!({"type": "response.failed", "response": {"status": "failed", "error": {"code": "rate_limit_exceeded"}}});
    let cases: Vec<(Vec<Value>, &[&str])> = vec![
        (vec![error.clone()], &["fails Failed"]),
        (vec![text("a"), error, text("b"), completed()], &["text a", "fails Failed"]),
        (vec![text("a"), failed], &["text a", "fails RateLimited"]),
        (vec![json!({"error": {"message": "overloaded"}})], &["fails Failed"]),
        (vec![text("a"), json!("sorry")], &["text a", "fails Failed"]),
        (vec![text("a"), json!([1, 2])], &["text a", "fails Failed"]),
        (vec![text("a"), json!({"type": 7})], &["text a", "fails Failed"]),
        (vec![json!({"type": "response.output_text.delta"})], &["fails Failed"]),
        (vec![json!({"type": "response.output_text.delta", "delta": {}})], &["fails Failed"]),
        (vec![json!({"type": "response.output_item.added"})], &["fails Failed"]),
        (vec![json!({"type": "response.output_item.done", "item": 7})], &["fails Failed"]),
        (vec![json!({"type": "response.output_item.done", "item": []})], &["fails Failed"]),
        (vec![json!({"type": "response.completed", "response": "?"})], &["fails Failed"]),
    ];
    for (data, expected) in cases {
        check_stream(&data, expected).await;
    }
    for broken in [
        "{\"type\":\"response.comp",
        r#"{"type":"a","type":"b"}"#,
        r#"{"type":"response.output_text.delta","delta":"\ud83d"}"#,
    ] {
        check(SSE, &format!("{}data: {broken}\n\n", sse(&[text("a")])), &["text a", "fails Failed"]).await;
    }
    let body = [sse(&[text("a")]).as_bytes(), b"data: {\"type\":\"x\xff\"}\n\n"].concat();
    let server =
        LoopbackServer::respond_with(chunked_response("200 OK", SSE, &body, 7, true), AfterResponse::Close)
            .await;
    assert_eq!(answer_of(&model(&server)).await, ["text a", "fails Failed"]);
}

#[tokio::test]
async fn an_answer_in_one_piece_is_an_answer_and_a_reported_error_a_refusal() {
    let answer = |status: &str, output: Value| {
        json!({"object": "response", "status": status, "model": "m-1", "error": null, "output": output,
            "incomplete_details": {"reason": "max_output_tokens"}, "usage": {"input_tokens": 3, "output_tokens": 4}})
        .to_string()
    };
    let output = json!([reasoning("a"), message("msg_1", "Hello"), call(0, "{}")]);
    let cases: Vec<(String, &[&str])> = vec![
        (
            answer("completed", json!([message("msg_1", "Hello")])),
            &["text Hello", "usage m-1 3 4 - -", "finish Stop"],
        ),
        (answer("incomplete", json!([])), &["usage m-1 3 4 - -", "finish Length"]),
        (answer("failed", json!([])), &["refused Failed"]),
        (
            r#"{"error":{"message":"overloaded","code":"rate_limit_exceeded"}}"#.into(),
            &["refused RateLimited"],
        ),
        (r#"{"detail":"Not Found"}"#.into(), &["refused Failed"]),
        ("{}".into(), &["refused Failed"]),
        ("[]".into(), &["refused Failed"]),
        ("sorry".into(), &["refused Failed"]),
        (String::new(), &["refused Failed"]),
    ];
    for (body, expected) in cases {
        check(JSON, &body, expected).await;
    }
    let server = LoopbackServer::respond_with(
        chunked_response("200 OK", JSON, answer("completed", output).as_bytes(), 64, true),
        AfterResponse::Close,
    )
    .await;
    let events = answer_of(&model(&server)).await;
    assert_eq!(events[..3], ["text Hello", "call 0 call_0 x", "args 0 {}"]);
    assert!(events[3].contains("sealed-a"), "{events:?}");
    assert_eq!(events[4..], ["usage m-1 3 4 - -", "finish ToolCalls"]);
    check("text/html; charset=utf-8", "<html>Sorry</html>", &["refused Failed"]).await;
}

#[tokio::test]
async fn a_status_that_is_no_success_refuses() {
    for (status, expected) in [
        ("400 Bad Request", "Failed"),
        ("401 Unauthorized", "Failed"),
        ("403 Forbidden", "Failed"),
        ("413 Payload Too Large", "InvalidRequest"),
        ("429 Too Many Requests", "RateLimited"),
        ("503 Service Unavailable", "Failed"),
        ("504 Gateway Timeout", "Timeout"),
    ] {
        let answer = chunked_response(status, JSON, b"{}", 64, true);
        let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
        assert_eq!(answer_of(&model(&server)).await, [format!("refused {expected}")]);
    }
    let answer = chunked_response("401 Unauthorized", JSON, b"{}", 64, true);
    let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
    let protocol = ResponsesProtocol { account: Account::Subscription, ..protocol("m-1") };
    let model = Responses { protocol, ..model(&server) };
    assert_eq!(answer_of(&model).await, ["refused SignInRequired"]);
}

#[tokio::test]
async fn the_request_goes_to_the_endpoint_with_the_key_and_the_very_bytes() {
    let answer = chunked_response("200 OK", SSE, sse(&[completed()]).as_bytes(), 64, true);
    let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
    let model = model(&server);
    let payload = model.prepare(&request()).expect("prepared");
    let bytes = payload.bytes().clone();
    drop(model.start(payload).await.expect("started"));
    let requests = server.requests();
    let (head, body) = requests[0].split_once("\r\n\r\n").expect("a request");
    assert_eq!(body.as_bytes(), bytes);
    for line in [
        "POST /v1/responses HTTP/1.1",
        "authorization: Bearer sk-1",
        "content-type: application/json",
        "accept: text/event-stream",
    ] {
        assert!(head.lines().any(|found| found == line), "{line}: {head}");
    }
}

#[tokio::test]
async fn the_window_is_learnt_from_a_refusal_and_from_an_answer() {
    let error = json!({"code": "context_length_exceeded", "message": "sk-1"});
    let failed = json!({"type": "response.failed", "response": {"error": error}});
    let refusal = json!({ "error": error }).to_string();
    for answer in [
        chunked_response("400 Bad Request", JSON, refusal.as_bytes(), 64, true),
        chunked_response("200 OK", SSE, sse(&[created(), failed]).as_bytes(), 64, true),
    ] {
        let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
        let spec = ModelSpec::new("m-1").with_limits(ModelLimits::default());
        let model = Responses { protocol: protocol(spec), ..model(&server) };
        assert_eq!(model.info().context_window, 128_000);
        let shown = answer_of(&model).await;
        assert!(shown.iter().any(|event| event.ends_with("ContextExceeded")), "{shown:?}");
        assert!(model.info().context_window < 1_000, "{:?}", model.info());
    }
}

#[tokio::test]
async fn the_adapter_conforms() {
    let (complete_answer, begun) =
        (sse(&[created(), text("Hello"), completed()]), sse(&[created(), text("Hel")]));
    check_conformance(SSE, (complete_answer, begun), model).await;
}
