use agent_core::event::{AssistantRole, Interrupt};
use agent_core::message::ToolCall;
use serde_json::{Value, json};

use super::super::collect::CollectedToolCall;
use super::*;

fn completion() -> ChatCompletion {
    ChatCompletion {
        id: "chatcmpl-r".to_owned(),
        created: UNIX_EPOCH + std::time::Duration::from_secs(7),
        model: "a1".into(),
        includes_usage: true,
        client_tools: vec!["paint".to_owned()],
        calls_in_parallel: true,
    }
}

fn piece(id: &str, delta: &str) -> Event {
    Event::TextMessageContent { message_id: id.into(), delta: delta.into() }
}

fn call(id: &str, name: &str, arguments: &[&str]) -> Vec<Event> {
    let start = Event::ToolCallStart {
        tool_call_id: id.into(),
        tool_call_name: name.into(),
        parent_message_id: None,
    };
    let deltas = arguments
        .iter()
        .map(|delta| Event::ToolCallArgs { tool_call_id: id.into(), delta: (*delta).to_owned() });
    [start].into_iter().chain(deltas).chain([Event::ToolCallEnd { tool_call_id: id.into() }]).collect()
}

fn finished(reason: FinishReason, outcome: Option<RunOutcome>, usage: &[Usage]) -> Event {
    let result = Some(RunResult::from(reason));
    let usage = usage.to_vec();
    Event::RunFinished { thread_id: "t".into(), run_id: "r".into(), result, outcome, usage }
}

fn pending(ids: &[&str]) -> Option<RunOutcome> {
    let pending_tool_call_ids = ids.iter().map(|id| Id::from(*id)).collect();
    Some(RunOutcome::Success { pending_tool_call_ids })
}

fn usage(input: u64, output: u64) -> Usage {
    Usage {
        input_tokens: Some(input),
        output_tokens: Some(output),
        reasoning_tokens: Some(2),
        cached_input_tokens: Some(3),
        ..Usage::default()
    }
}

/// Returns the data of the frames of a run's events, after its start.
fn frames(events: &[Event]) -> Vec<Value> {
    let started = Event::RunStarted { thread_id: "t".into(), run_id: "r".into() };
    let mut encoder = CompletionEncoder::new(completion());
    let mut out = Vec::new();
    for event in std::iter::once(&started).chain(events) {
        encoder.encode(event, &mut out);
    }
    let text = String::from_utf8(out).expect("text");
    let frames = text.split_terminator("\n\n").map(|frame| frame.strip_prefix("data: ").expect("a frame"));
    frames.map(|json| serde_json::from_str(json).expect("JSON")).collect()
}

/// Returns the deltas and finish reasons of the frames after the first.
fn deltas(events: &[Event]) -> Vec<(Value, Value)> {
    let choice =
        |frame: Value| (frame["choices"][0]["delta"].clone(), frame["choices"][0]["finish_reason"].clone());
    frames(events).into_iter().skip(1).map(choice).collect()
}

fn content(text: &str) -> (Value, Value) {
    (json!({"content": text}), Value::Null)
}

#[test]
fn a_run_is_one_choice_that_begins_with_the_role_and_ends_with_the_reason() {
    let events = [
        Event::TextMessageStart { message_id: "m".into(), role: AssistantRole::Assistant },
        piece("m", "Hel"),
        piece("m", "lo"),
        Event::TextMessageEnd { message_id: "m".into() },
        Event::Custom { name: "agent.debug".into(), value: json!({}) },
        finished(FinishReason::Stop, None, &[usage(5, 7), usage(10, 20)]),
    ];
    let frames = frames(&events);
    let chunk = |choices: Value| {
        json!({"id": "chatcmpl-r", "object": "chat.completion.chunk", "created": 7, "model": "a1",
            "choices": choices})
    };
    let choice = |delta: Value, reason: Option<&str>| {
        chunk(json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": reason}]))
    };
    let mut last = chunk(json!([]));
    last["usage"] = json!({"prompt_tokens": 15, "completion_tokens": 27, "total_tokens": 42,
        "prompt_tokens_details": {"cached_tokens": 6}, "completion_tokens_details": {"reasoning_tokens": 4}});
    let expected = [
        choice(json!({"role": "assistant", "content": ""}), None),
        choice(json!({"content": "Hel"}), None),
        choice(json!({"content": "lo"}), None),
        choice(json!({}), Some("stop")),
        last,
    ];
    assert_eq!(frames, expected);
}

#[test]
fn usage_is_sent_to_those_who_ask_and_if_it_is_known() {
    let end = |usage: &[Usage]| finished(FinishReason::Stop, None, usage);
    let count = |includes_usage, usage: &[Usage]| {
        let mut encoder = CompletionEncoder::new(ChatCompletion { includes_usage, ..completion() });
        let mut out = Vec::new();
        encoder.encode(&end(usage), &mut out);
        String::from_utf8(out).expect("text").matches("data: ").count()
    };
    assert_eq!((count(true, &[usage(1, 2)]), count(false, &[usage(1, 2)])), (2, 1));
    assert_eq!((count(true, &[]), count(true, &[Usage::default()])), (1, 1));
}

#[test]
fn the_texts_of_messages_are_separated() {
    let events = [
        piece("m1", "One."),
        piece("m2", "Two"),
        piece("m2", "."),
        finished(FinishReason::Length, None, &[]),
    ];
    let expected =
        [content("One."), content("\n\n"), content("Two"), content("."), (json!({}), json!("length"))];
    assert_eq!(deltas(&events), expected);
}

#[test]
fn only_the_calls_that_wait_for_the_client_are_sent() {
    let mut events = call("c1", "readTodos", &["{", "}"]);
    events.push(Event::tool_call_result("c1".into(), "none".to_owned(), false));
    // A call with invalid arguments gets a result from the loop, although it names the client's tool.
    events.extend(call("c2", "paint", &["nonsense"]));
    events.push(Event::tool_call_result("c2".into(), "invalid arguments".to_owned(), true));
    events.extend(call("c3", "paint", &["{\"color\":", "\"red\"}"]));
    events.extend(call("c4", "paint", &[]));
    events.push(finished(FinishReason::ToolCalls, pending(&["c3", "c4"]), &[]));
    let call = |index: usize, id: &str, arguments: &str| {
        let function = json!({"name": "paint", "arguments": arguments});
        let call = json!({"index": index, "id": id, "type": "function", "function": function});
        (json!({"tool_calls": [call]}), Value::Null)
    };
    let expected =
        [call(0, "c3", "{\"color\":\"red\"}"), call(1, "c4", "{}"), (json!({}), json!("tool_calls"))];
    assert_eq!(deltas(&events), expected);
}

#[test]
fn a_client_that_takes_one_call_at_a_time_is_sent_the_first() {
    let completion = || ChatCompletion { calls_in_parallel: false, ..completion() };
    let events = call("c1", "paint", &["{}"]).into_iter().chain(call("c2", "paint", &["{}"]));
    let end = finished(FinishReason::ToolCalls, pending(&["c1", "c2"]), &[]);
    let mut encoder = CompletionEncoder::new(completion());
    let mut out = Vec::new();
    events.chain([end]).for_each(|event| encoder.encode(&event, &mut out));
    let text = String::from_utf8(out).expect("text");
    assert!(text.contains(r#""id":"c1""#) && !text.contains(r#""id":"c2""#), "{text}");
    assert!(text.contains(r#""finish_reason":"tool_calls""#), "{text}");
    let calls = ["c1", "c2"].map(|id| ToolCall::new(id, "paint", "{}"));
    let mut run = collected("", "tool_calls");
    run.tool_calls = calls.map(|call| CollectedToolCall { call, result: None, is_error: false }).to_vec();
    run.pending_tool_call_ids = vec!["c1".into(), "c2".into()];
    let whole: Value =
        serde_json::from_slice(&completion().to_json(&run).expect("a completion")).expect("JSON");
    let message = &whole["choices"][0]["message"];
    assert_eq!(message["tool_calls"].as_array().map(Vec::len), Some(1), "{whole}");
    assert_eq!(message["tool_calls"][0]["id"], "c1");
}

#[test]
fn a_run_that_waits_for_approval_says_so_and_ends() {
    let interrupts = vec![Interrupt { id: "i".to_owned(), ..Interrupt::default() }];
    let outcome = Some(RunOutcome::Interrupt { interrupts, pending_tool_call_ids: Vec::new() });
    let end = finished(FinishReason::ToolCalls, outcome, &[]);
    let stop = (json!({}), json!("stop"));
    assert_eq!(deltas(std::slice::from_ref(&end)), [content(WAITING_NOTICE), stop.clone()]);
    let notice = content(&format!("\n\n{WAITING_NOTICE}"));
    assert_eq!(deltas(&[piece("m", "Well."), end]), [content("Well."), notice, stop]);
}

#[test]
fn an_error_is_the_last_event() {
    let error = |code: &str| Event::RunError { message: "words".into(), code: code.into(), usage: vec![] };
    let cancelled = finished(FinishReason::Stop, Some(RunOutcome::Cancelled), &[]);
    for (event, kind, code, message) in [
        (error("BACKEND_FAILED"), "server_error", "backend_failed", "words"),
        (error("CONTEXT_LENGTH_EXCEEDED"), "invalid_request_error", "context_length_exceeded", "words"),
        (error("OF_ANOTHER_VERSION"), "server_error", "internal", "words"),
        (cancelled, "invalid_request_error", "conflict", CANCELLED_MESSAGE),
    ] {
        let frames = frames(&[piece("m", "Half"), event, piece("m", " more")]);
        let param = (code == "context_length_exceeded").then_some("messages");
        let expected = json!({"error": {"message": message, "type": kind, "param": param, "code": code}});
        assert_eq!(frames[2..], [expected]);
    }
}

#[test]
fn arguments_are_bounded() {
    let large = "x".repeat(MAX_ARGUMENT_BYTES / 2);
    let mut events = call("c1", "paint", &[&large]);
    events.extend(call("c2", "paint", &[&large, "x"]));
    events.push(finished(FinishReason::ToolCalls, pending(&["c1", "c2"]), &[]));
    let frames = frames(&events);
    assert_eq!((frames.len(), &frames[1]["error"]["code"]), (2, &json!("output_too_large")));
}

fn whole(run: &CollectedRun) -> Value {
    serde_json::from_slice(&completion().to_json(run).expect("a completion")).expect("JSON")
}

fn collected(output: &str, reason: &'static str) -> CollectedRun {
    CollectedRun { output: output.to_owned(), finish_reason: reason, ..CollectedRun::default() }
}

#[test]
fn a_whole_completion_has_text_and_usage() {
    let run = CollectedRun { usage: vec![usage(5, 7)], ..collected("Hello", "stop") };
    let expected = json!({
        "id": "chatcmpl-r", "object": "chat.completion", "created": 7, "model": "a1",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello", "refusal": null},
            "logprobs": null, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12,
            "prompt_tokens_details": {"cached_tokens": 3}, "completion_tokens_details": {"reasoning_tokens": 2}},
    });
    assert_eq!(whole(&run), expected);
    let silent = whole(&collected("", "length"));
    assert_eq!(silent["choices"][0]["message"]["content"], "");
    assert_eq!((&silent["choices"][0]["finish_reason"], silent.get("usage")), (&json!("length"), None));
}

#[test]
fn a_whole_completion_has_the_calls_that_wait() {
    let calls = [ToolCall::new("c1", "readTodos", "{}"), ToolCall::new("c2", "paint", "")];
    let mut run = collected("", "tool_calls");
    run.tool_calls = calls.map(|call| CollectedToolCall { call, result: None, is_error: false }).to_vec();
    run.pending_tool_call_ids = vec!["c2".into()];
    let choice = whole(&run)["choices"][0].clone();
    let function = json!({"name": "paint", "arguments": "{}"});
    assert_eq!(
        choice["message"]["tool_calls"],
        json!([{"id": "c2", "type": "function", "function": function}])
    );
    assert_eq!(
        (&choice["message"]["content"], &choice["finish_reason"]),
        (&Value::Null, &json!("tool_calls"))
    );
    run.pending_tool_call_ids.clear();
    run.interrupts = vec![Interrupt::default()];
    let choice = whole(&run)["choices"][0].clone();
    assert_eq!(
        (&choice["message"]["content"], &choice["finish_reason"]),
        (&json!(WAITING_NOTICE), &json!("stop"))
    );
    assert!(choice["message"].get("tool_calls").is_none());
    let error = completion().to_json(&collected("Half", "cancelled")).expect_err("it is not complete");
    assert_eq!(error.code(), Code::Conflict);
}
