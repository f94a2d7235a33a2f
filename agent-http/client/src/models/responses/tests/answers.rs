//! Events of answers: text, calls, items of the provider, usage limits, the end, and errors.

use std::sync::Mutex;

use agent_core::model::ModelEvent;
use agent_platform::coding::SubscriptionLimits;

use super::*;

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
    // A message without deltas, and one with all of them.
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
async fn every_end_is_distinguished_from_truncation() {
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
        // Missing from the deltas: a part, all, and the announcement.
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
async fn interleaved_calls_are_distinguished_up_to_the_limit() {
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
        // The third item is done after the fourth has started.
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
async fn kept_items_are_bounded() {
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
