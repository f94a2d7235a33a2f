//! The table of the answer's events, row by row, as the client sees them.

use serde_json::{Value, json};

use super::{app, run};
use crate::support::responses_vendor::{
    OutputItem, Reply, ResponsesVendor, completed, created, item_events, text_delta,
};

/// Renders the events of a run: their deltas, results and end.
fn shown(events: &[Value]) -> Vec<String> {
    let line = |event: &Value| {
        let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
        match event["type"].as_str()? {
            "TEXT_MESSAGE_CONTENT" => Some(format!("text {}", text("delta"))),
            "REASONING_MESSAGE_CONTENT" => Some(format!("reasoning {}", text("delta"))),
            "TOOL_CALL_START" => Some(format!("call {}", text("toolCallName"))),
            "TOOL_CALL_ARGS" => Some(format!("args {}", text("delta"))),
            "TOOL_CALL_RESULT" => Some("result".to_owned()),
            "CUSTOM" if event["name"] == "agent.debug" => Some(format!("debug {}", event["value"]["kind"])),
            "RUN_FINISHED" => Some(format!(
                "finished {} {}",
                event["result"]["finishReason"].as_str().unwrap_or("-"),
                event["usage"][0]["inputTokens"]
            )),
            "RUN_ERROR" => Some(format!("error {}", text("code"))),
            _ => None,
        }
    };
    events.iter().filter_map(line).collect()
}

fn event(kind: &str, members: Value) -> String {
    let mut event = json!({"type": format!("response.{kind}")});
    event.as_object_mut().expect("an object").extend(members.as_object().cloned().unwrap_or_default());
    event.to_string()
}

fn incomplete(reason: &str) -> String {
    let usage = json!({"input_tokens": 5, "output_tokens": 6});
    event("incomplete", json!({"response": {"incomplete_details": {"reason": reason}, "usage": usage}}))
}

#[tokio::test]
async fn each_event_of_the_vendor_becomes_the_events_of_its_row() {
    let vendor = ResponsesVendor::start().await;
    let text = || text_delta(0, "a").to_string();
    let call = OutputItem::call("c1", "readTodos", "{ }");
    let call_events = || item_events(0, &call);
    let without = |name: &str| {
        call_events()
            .into_iter()
            .filter(|event| !event.contains(name))
            .chain([completed()])
            .collect::<Vec<_>>()
    };
    let failed =
        |code: &str| event("failed", json!({"response": {"error": {"code": code, "message": "canary"}}}));
    let finished = "finished stop 11";
    let called = |args: &[&str]| {
        let begin =
            ["call readTodos".to_owned()].into_iter().chain(args.iter().map(|args| format!("args {args}")));
        begin.chain(["result".into(), "text done".into(), "finished stop 22".into()]).collect::<Vec<_>>()
    };
    let lines_of = |lines: &[&str]| lines.iter().map(|&line| line.to_owned()).collect::<Vec<_>>();
    let rows: Vec<(&str, Vec<String>, Vec<String>)> = vec![
        (
            "nothing",
            vec![
                created(),
                event("in_progress", json!({})),
                event("queued", json!({})),
                event("metadata", json!({"headers": {}})),
                json!({"type": "codex.rate_limits", "rate_limits": {"allowed": true}}).to_string(),
                "[DONE]".into(),
                text(),
                completed(),
                "[DONE]".into(),
            ],
            lines_of(&["text a", finished]),
        ),
        (
            "refusal",
            vec![event("refusal.delta", json!({"item_id": "msg_0", "delta": "No."})), completed()],
            lines_of(&["text No.", "finished content_filter 11"]),
        ),
        (
            "reasoning",
            vec![
                event("reasoning_summary_part.added", json!({"summary_index": 0})),
                event("reasoning_summary_text.delta", json!({"delta": "x"})),
                event("reasoning_summary_part.added", json!({"summary_index": 1})),
                event("reasoning_text.delta", json!({"delta": "y"})),
                text(),
                completed(),
            ],
            lines_of(&["reasoning x", "reasoning \n\n", "reasoning y", "text a", finished]),
        ),
        ("call", call_events().into_iter().chain([completed()]).collect(), called(&["{", " }"])),
        ("call-without-deltas", without("arguments.delta"), called(&["{ }"])),
        ("call-without-done", without("arguments.done"), called(&["{", " }"])),
        (
            "call-without-added",
            without("item.added").into_iter().filter(|event| !event.contains("arguments.d")).collect(),
            called(&["{ }"]),
        ),
        (
            "call-not-done",
            without("done"),
            lines_of(&["call readTodos", "args {", "args  }", "error STREAM_TRUNCATED"]),
        ),
        (
            "call-contradicted",
            without("done")
                .into_iter()
                .take(3)
                .chain([
                    event(
                        "function_call_arguments.done",
                        json!({"item_id": "fc_0", "arguments": "{\"x\":1}"}),
                    ),
                    completed(),
                ])
                .collect(),
            lines_of(&["call readTodos", "args {", "args  }", "error BACKEND_FAILED"]),
        ),
        (
            "item",
            vec![
                event(
                    "output_item.done",
                    json!({"item": {"type": "image_generation_call", "result": "canary"}}),
                ),
                text(),
                completed(),
            ],
            lines_of(&["debug \"unknownItem\"", "text a", finished]),
        ),
        (
            "done",
            vec![text(), completed().replace("response.completed", "response.done")],
            lines_of(&["text a", finished]),
        ),
        (
            "without-usage",
            vec![text(), event("completed", json!({"response": {}}))],
            lines_of(&["text a", "finished stop null"]),
        ),
        ("cut", vec![text(), incomplete("max_output_tokens")], lines_of(&["text a", "finished length 5"])),
        (
            "filtered",
            vec![text(), incomplete("content_filter")],
            lines_of(&["text a", "finished content_filter 5"]),
        ),
        (
            "incomplete",
            vec![text(), incomplete("something_new")],
            lines_of(&["text a", "error BACKEND_FAILED"]),
        ),
        ("failed", vec![text(), failed("server_error")], lines_of(&["text a", "error BACKEND_FAILED"])),
        (
            "overflow",
            vec![text(), failed("context_length_exceeded")],
            lines_of(&["text a", "error CONTEXT_LENGTH_EXCEEDED"]),
        ),
        ("limited", vec![text(), failed("rate_limit_exceeded")], lines_of(&["text a", "error RATE_LIMITED"])),
        ("used-up", vec![text(), failed("usage_limit_reached")], lines_of(&["text a", "error RATE_LIMITED"])),
        (
            "error-at-top",
            vec![text(), json!({"type": "error", "code": "slow_down", "message": "canary"}).to_string()],
            lines_of(&["text a", "error BACKEND_FAILED"]),
        ),
        (
            "error-in-error",
            vec![
                text(),
                json!({"type": "error", "error": {"code": "rate_limit_exceeded"}, "status_code": 429})
                    .to_string(),
            ],
            lines_of(&["text a", "error RATE_LIMITED"]),
        ),
        ("no-end", vec![text()], lines_of(&["text a", "error STREAM_TRUNCATED"])),
        (
            "no-json",
            vec![text(), "{\"type\":\"response.".into()],
            lines_of(&["text a", "error BACKEND_FAILED"]),
        ),
    ];
    let names: Vec<&str> = rows.iter().map(|(name, ..)| *name).collect();
    for (name, events, _) in &rows {
        let last = Reply::answer(vec![OutputItem::text(&["done"])]);
        vendor.on(name, [Reply::events(events, Vec::new()), last]);
    }
    let app = app(&vendor, &names, json!({}), &[]).await;
    for (name, _, expected) in &rows {
        let events = run(&app, name).await;
        assert_eq!(shown(&events), *expected, "{name}");
        assert!(
            !serde_json::to_string(&events).expect("events serialise").contains("canary"),
            "{name}: {events:?}"
        );
    }
    assert_eq!(vendor.complaints(), [""; 0]);
}
