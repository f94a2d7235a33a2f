//! Encoded formats: lines, server-sent events, UI messages, n8n chunks and one JSON object.

use expect_test::{Expect, expect};
use serde_json::Value;

use super::*;

async fn check(framing: Framing, events: Vec<Event>, expected: Expect) {
    expected.assert_eq(answer(framing, events).await.body());
}

#[tokio::test]
async fn every_event_comes_back_from_its_line() {
    for events in [
        everything(),
        failed(),
        vec![started(), finished(None, Some(RunOutcome::Cancelled))],
        vec![started(), finished(Some(FinishReason::ToolCalls), None)],
    ] {
        assert_eq!(decode(answer(Framing::Ndjson, events.clone()).await.body()), events);
    }
}

#[tokio::test]
async fn server_sent_events_are_the_same_lines_numbered() {
    let lines = answer(Framing::Ndjson, everything()).await.into_body();
    let frames = answer(Framing::Sse, everything()).await.into_body();
    let expected: String =
        lines.lines().enumerate().map(|(number, line)| format!("id: {number}\ndata: {line}\n\n")).collect();
    assert_eq!(frames, expected);
}

#[tokio::test]
async fn lines_look_like_ag_ui() {
    let events =
        vec![started(), text("m"), piece("m", "Hi \"you\""), finished(Some(FinishReason::Stop), None)];
    check(Framing::Ndjson, events, expect![[r#"
        {"type":"RUN_STARTED","threadId":"t","runId":"r"}
        {"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}
        {"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"Hi \"you\""}
        {"type":"TEXT_MESSAGE_END","messageId":"m"}
        {"type":"RUN_FINISHED","threadId":"t","runId":"r","result":{"finishReason":"stop"},"usage":[{"model":"small","inputTokens":7,"outputTokens":5}]}
    "#]]).await;
}

#[tokio::test]
async fn ui_messages_look_like_the_ai_sdks() {
    check(Framing::UiMessage, everything(), expect![[r#"
        data: {"type":"start","messageId":"r","messageMetadata":{"threadId":"t","runId":"r"}}

        data: {"type":"data-agent-prompt","data":{"sha256":"ab","parts":[1,null]},"transient":true}

        data: {"type":"start-step"}

        data: {"type":"reasoning-start","id":"think"}

        data: {"type":"reasoning-delta","id":"think","delta":"Let me\nsee"}

        data: {"type":"reasoning-end","id":"think"}

        data: {"type":"text-start","id":"m"}

        data: {"type":"text-delta","id":"m","delta":"Let me look: \"ü\" 😀 \\  "}

        data: {"type":"text-end","id":"m"}

        data: {"type":"tool-input-start","toolCallId":"c1","toolName":"weather"}

        data: {"type":"tool-input-start","toolCallId":"c2","toolName":"broken"}

        data: {"type":"tool-input-delta","toolCallId":"c1","inputTextDelta":"{\"city\":\n"}

        data: {"type":"tool-input-delta","toolCallId":"c2","inputTextDelta":"{\"half"}

        data: {"type":"tool-input-delta","toolCallId":"c1","inputTextDelta":"\"Köln\"}"}

        data: {"type":"tool-input-available","toolCallId":"c1","toolName":"weather","input":{"city": "Köln"}}

        data: {"type":"tool-input-error","toolCallId":"c2","toolName":"broken","input":"{\"half","errorText":"the arguments are not valid JSON"}

        data: {"type":"tool-output-error","toolCallId":"c2","errorText":"the arguments are not JSON"}

        data: {"type":"tool-output-available","toolCallId":"c1","output":{"degrees":  21}}

        data: {"type":"finish-step"}

        data: {"type":"start-step"}

        data: {"type":"tool-input-start","toolCallId":"c3","toolName":"clock"}

        data: {"type":"tool-input-available","toolCallId":"c3","toolName":"clock","input":{}}

        data: {"type":"tool-output-available","toolCallId":"c3","output":"[half past nine"}

        data: {"type":"text-start","id":"n"}

        data: {"type":"text-delta","id":"n","delta":"It is "}

        data: {"type":"text-delta","id":"n","delta":"21 degrees."}

        data: {"type":"text-end","id":"n"}

        data: {"type":"finish-step"}

        data: {"type":"message-metadata","messageMetadata":{"usage":[{"model":"small","inputTokens":7,"outputTokens":5}]}}

        data: {"type":"finish","finishReason":"stop"}

        data: [DONE]

    "#]]).await;
}

#[tokio::test]
async fn a_failed_run_is_a_ui_message_with_an_error() {
    check(Framing::UiMessage, failed(), expect![[r#"
        data: {"type":"start","messageId":"r","messageMetadata":{"threadId":"t","runId":"r"}}

        data: {"type":"text-start","id":"m"}

        data: {"type":"text-delta","id":"m","delta":"So"}

        data: {"type":"message-metadata","messageMetadata":{"usage":[{"model":"small","inputTokens":7,"outputTokens":5}]}}

        data: {"type":"error","errorText":"the vendor is away"}

        data: {"type":"finish","finishReason":"error"}

        data: [DONE]

    "#]]).await;
}

#[tokio::test]
async fn a_cancelled_run_is_an_aborted_ui_message() {
    let events = vec![started(), finished(None, Some(RunOutcome::Cancelled))];
    check(Framing::UiMessage, events, expect![[r#"
        data: {"type":"start","messageId":"r","messageMetadata":{"threadId":"t","runId":"r"}}

        data: {"type":"message-metadata","messageMetadata":{"usage":[{"model":"small","inputTokens":7,"outputTokens":5}]}}

        data: {"type":"abort"}

        data: [DONE]

    "#]]).await;
}

#[tokio::test]
async fn lines_look_like_n8ns() {
    let mut events =
        vec![started(), Event::Custom { name: "agent.prompt".into(), value: json!({}) }, step("a")];
    events.extend(thought("think", "Hm"));
    events.extend([text("m"), piece("m", "Let\n"), piece("m", "me \"look\""), text_over("m")]);
    events.extend([call("c", "x"), arguments("c", "{}"), call_over("c"), result("c", "21", false)]);
    events.extend([step_over("a"), text("n"), piece("n", "21"), text_over("n"), finished(None, None)]);
    check(
        Framing::N8n,
        events,
        expect![[r#"
        {"type":"begin","metadata":{"nodeId":"m"}}
        {"type":"item","content":"Let\n","metadata":{"nodeId":"m"}}
        {"type":"item","content":"me \"look\"","metadata":{"nodeId":"m"}}
        {"type":"end","metadata":{"nodeId":"m"}}
        {"type":"begin","metadata":{"nodeId":"n"}}
        {"type":"item","content":"21","metadata":{"nodeId":"n"}}
        {"type":"end","metadata":{"nodeId":"n"}}
    "#]],
    )
    .await;
    check(
        Framing::N8n,
        failed(),
        expect![[r#"
        {"type":"begin","metadata":{"nodeId":"m"}}
        {"type":"item","content":"So","metadata":{"nodeId":"m"}}
        {"type":"error","content":"the vendor is away"}
    "#]],
    )
    .await;
}

#[tokio::test]
async fn an_event_that_a_format_leaves_out_does_not_end_the_body() {
    let mut events =
        vec![started(), call("c", "x"), arguments("c", ""), arguments("c", "{}"), call_over("c")];
    events.extend(thought("think", "Hm"));
    events.extend([text("m"), piece("m", "Hi"), text_over("m"), finished(None, None)]);
    for framing in [Framing::Ndjson, Framing::Sse, Framing::UiMessage, Framing::N8n] {
        let ready = answer(framing, events.clone()).await.into_body();
        assert!(ready.contains("Hi"), "{framing:?}: {ready}");
        let paced = stream::iter(events.clone()).then(|event| async {
            tokio::task::yield_now().await;
            Ok(event.into())
        });
        let paced = EventStream::new(run(), Box::pin(paced));
        let response = into_response(framing, paced, &StreamLimits::default()).await.expect("it succeeds");
        let body = response.into_body().collect().await.expect("the body is infallible").to_bytes();
        assert_eq!(String::from_utf8_lossy(&body), ready, "{framing:?}");
    }
}

#[tokio::test]
async fn a_text_that_continues_after_its_step_is_reopened() {
    let events = vec![
        started(),
        step("a"),
        text("m"),
        piece("m", "1"),
        step_over("a"),
        piece("m", "2"),
        step("b"),
        step_over("b"),
        text_over("m"),
        finished(None, None),
    ];
    let body = answer(Framing::UiMessage, events).await.into_body();
    let types: Vec<String> = chunks(&body).iter().map(|chunk| chunk["type"].to_string()).collect();
    let expected = "start start-step text-start text-delta text-end finish-step text-start text-delta start-step \
                    text-end finish-step message-metadata finish";
    assert_eq!(types.join(" ").replace('"', ""), expected);
}

#[tokio::test]
async fn arguments_without_bound_are_an_input_error() {
    let long = "x".repeat(600 * 1024);
    let events = vec![
        started(),
        call("c", "x"),
        arguments("c", &long),
        arguments("c", &long),
        arguments("c", "1"),
        call_over("c"),
        finished(None, None),
    ];
    let body = answer(Framing::UiMessage, events).await.into_body();
    let last =
        chunks(&body).into_iter().rfind(|chunk| chunk["toolCallId"] == "c").expect("the call is there");
    assert_eq!((&last["type"], &last["input"]), (&json!("tool-input-error"), &json!("")));
}

/// Returns the chunks of a UI message stream; each frame is one line of JSON.
fn chunks(body: &str) -> Vec<Value> {
    let frames = body.strip_suffix("data: [DONE]\n\n").expect("the stream says that it is done");
    frames
        .split_terminator("\n\n")
        .map(|frame| frame.strip_prefix("data: ").expect("a frame is one line of data"))
        .map(|line| serde_json::from_str(line).expect("a line is JSON"))
        .collect()
}

#[tokio::test]
async fn one_object_holds_the_run() {
    let body = answer(Framing::Json, everything()).await.into_body();
    let pretty =
        serde_json::to_string_pretty(&serde_json::from_str::<Value>(&body).expect("JSON")).expect("JSON");
    expect![[r#"
        {
          "threadId": "t",
          "runId": "r",
          "output": "Let me look: \"ü\" 😀 \\  \n\nIt is 21 degrees.",
          "toolCalls": [
            {
              "id": "c1",
              "type": "function",
              "function": {
                "name": "weather",
                "arguments": "{\"city\":\n\"Köln\"}"
              },
              "result": "{\"degrees\":\r\n21}"
            },
            {
              "id": "c2",
              "type": "function",
              "function": {
                "name": "broken",
                "arguments": "{\"half"
              },
              "result": "the arguments are not JSON",
              "isError": true
            },
            {
              "id": "c3",
              "type": "function",
              "function": {
                "name": "clock",
                "arguments": ""
              },
              "result": "[half past nine"
            }
          ],
          "usage": [
            {
              "model": "small",
              "inputTokens": 7,
              "outputTokens": 5
            }
          ],
          "finishReason": "stop"
        }"#]]
    .assert_eq(&pretty);
}

#[tokio::test]
async fn a_failed_run_is_answered_by_its_error_and_not_by_an_object() {
    let cases =
        [("BACKEND_UNREACHABLE", AgentErrorKind::Unreachable), ("THEIR_WORD", AgentErrorKind::Failed)];
    for (code, kind) in cases {
        let error = Event::RunError { message: "away".into(), code: code.into(), usage: vec![] };
        let limits = StreamLimits::default();
        let failure =
            into_response(Framing::Json, source(vec![error]), &limits).await.expect_err("it failed");
        assert_eq!((failure.kind(), failure.message()), (kind, "away"));
    }
}

#[tokio::test]
async fn the_size_of_a_collected_object_is_bounded() {
    let limits = StreamLimits { max_collected_bytes: 10, ..StreamLimits::default() };
    let events = vec![text("m"), piece("m", "12345"), piece("m", "123456")];
    let failure = into_response(Framing::Json, source(events), &limits).await.expect_err("it is too long");
    assert_eq!(failure.kind(), AgentErrorKind::OutputTooLarge);
}

#[tokio::test]
async fn headers_say_what_the_body_is() {
    let cases = [
        (Framing::Ndjson, "application/x-ndjson", Some("no"), None),
        (Framing::Sse, "text/event-stream", Some("no"), None),
        (Framing::UiMessage, "text/event-stream", Some("no"), Some("v1")),
        (Framing::N8n, "text/plain; charset=utf-8", Some("no"), None),
        (Framing::Json, "application/json", None, None),
    ];
    for (framing, content_type, buffering, version) in cases {
        let response = answer(framing, everything()).await;
        let header = |name| response.headers().get(name).map(|value| value.to_str().expect("text"));
        assert_eq!(header("content-type"), Some(content_type));
        assert_eq!(header("cache-control"), Some("no-cache, no-store"));
        assert_eq!(header("vary"), Some("Accept"));
        assert_eq!(header("x-accel-buffering"), buffering);
        assert_eq!(header("x-vercel-ai-ui-message-stream"), version);
    }
}

#[tokio::test]
async fn a_visitors_calls_have_no_results() {
    let events = source(everything()).for_audience(Audience::Visitor);
    let response = into_response(Framing::Json, events, &StreamLimits::default()).await.expect("it succeeds");
    let body = response.into_body().collect().await.expect("the body is infallible").to_bytes();
    let object: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!(object["toolCalls"][0].get("result"), None);
}
