//! Tests of whole responses: the encoded formats, when the body writes, and timeouts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use agent_client::events::EventDecoder;
use agent_core::error::AgentErrorKind;
use agent_core::event::{
    AssistantRole, Audience, Event, EventGrammar, Id, ReasoningRole, ResultMetadata, RunIds, RunOutcome,
    RunResult, SourceEvent, ToolRole,
};
use agent_core::message::{FinishReason, Usage};
use agent_core::tool::WholeDelivery;
use bytes::Bytes;
use expect_test::{Expect, expect};
use futures_util::task::{ArcWake, waker_ref};
use futures_util::{StreamExt, stream};
use http_body::Body;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::*;

type Item = Result<Event, AgentError>;

fn run() -> RunIds {
    RunIds { thread_id: "t".into(), run_id: "r".into() }
}

fn started() -> Event {
    Event::RunStarted { thread_id: "t".into(), run_id: "r".into() }
}

fn step(name: &str) -> Event {
    Event::StepStarted { step_name: name.into() }
}

fn step_over(name: &str) -> Event {
    Event::StepFinished { step_name: name.into() }
}

fn text(id: &str) -> Event {
    Event::TextMessageStart { message_id: id.into(), role: AssistantRole::Assistant }
}

fn piece(id: &str, delta: &str) -> Event {
    Event::TextMessageContent { message_id: id.into(), delta: delta.into() }
}

fn text_over(id: &str) -> Event {
    Event::TextMessageEnd { message_id: id.into() }
}

fn call(id: &str, name: &str) -> Event {
    Event::ToolCallStart {
        tool_call_id: id.into(),
        tool_call_name: name.into(),
        parent_message_id: Some("m".into()),
    }
}

fn arguments(id: &str, delta: &str) -> Event {
    Event::ToolCallArgs { tool_call_id: id.into(), delta: delta.into() }
}

fn call_over(id: &str) -> Event {
    Event::ToolCallEnd { tool_call_id: id.into() }
}

fn result(id: &str, content: &str, failed: bool) -> Event {
    Event::ToolCallResult {
        message_id: format!("result-{id}").into(),
        tool_call_id: id.into(),
        content: content.into(),
        role: ToolRole::Tool,
        metadata: failed.then_some(ResultMetadata { is_error: true }),
    }
}

fn thought(id: &str, delta: &str) -> Vec<Event> {
    let message_id: Id = id.into();
    vec![
        Event::ReasoningStart { message_id: message_id.clone() },
        Event::ReasoningMessageStart { message_id: message_id.clone(), role: ReasoningRole::Reasoning },
        Event::ReasoningMessageContent { message_id: message_id.clone(), delta: delta.into() },
        Event::ReasoningMessageEnd { message_id: message_id.clone() },
        Event::ReasoningEnd { message_id },
    ]
}

fn usage() -> Vec<Usage> {
    vec![Usage {
        model: Some("small".into()),
        input_tokens: Some(7),
        output_tokens: Some(5),
        ..Usage::default()
    }]
}

fn finished(reason: Option<FinishReason>, outcome: Option<RunOutcome>) -> Event {
    Event::RunFinished {
        thread_id: "t".into(),
        run_id: "r".into(),
        result: reason.map(RunResult::from),
        outcome,
        usage: usage(),
    }
}

/// Returns a run that contains every event except `RUN_ERROR`.
fn everything() -> Vec<Event> {
    let mut events = vec![
        started(),
        Event::Custom { name: "agent.prompt".into(), value: json!({"sha256": "ab", "parts": [1, null]}) },
        step("round-1"),
    ];
    events.extend(thought("think", "Let me\nsee"));
    events.extend([
        text("m"),
        piece("m", "Let me look: \"ü\" \u{1F600} \\ \u{2028}"),
        text_over("m"),
        call("c1", "weather"),
        call("c2", "broken"),
        arguments("c1", "{\"city\":\n"),
        arguments("c2", "{\"half"),
        arguments("c1", ""),
        arguments("c1", "\"Köln\"}"),
        call_over("c1"),
        call_over("c2"),
        result("c2", "the arguments are not JSON", true),
        result("c1", "{\"degrees\":\r\n21}", false),
        step_over("round-1"),
        step("round-2"),
        call("c3", "clock"),
        call_over("c3"),
        result("c3", "[half past nine", false),
        text("n"),
        piece("n", "It is "),
        piece("n", "21 degrees."),
        text_over("n"),
        step_over("round-2"),
        finished(Some(FinishReason::Stop), None),
    ]);
    EventGrammar::check(&events).expect("the sample is a run");
    events
}

fn failed() -> Vec<Event> {
    let error = Event::RunError {
        message: "the vendor is away".into(),
        code: "BACKEND_UNREACHABLE".into(),
        usage: usage(),
    };
    vec![started(), text("m"), piece("m", "So"), error]
}

fn source(events: Vec<Event>) -> EventStream {
    EventStream::new(run(), stream::iter(events.into_iter().map(|event| Ok(event.into()))))
}

async fn answer(framing: Framing, events: Vec<Event>) -> Response<String> {
    let limits = StreamLimits::default();
    let response = into_response(framing, source(events), &limits).await.expect("the run succeeds");
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.expect("the body is infallible").to_bytes();
    Response::from_parts(parts, String::from_utf8(bytes.to_vec()).expect("the body is text"))
}

async fn check(framing: Framing, events: Vec<Event>, expected: Expect) {
    expected.assert_eq(answer(framing, events).await.body());
}

fn decode(text: &str) -> Vec<Event> {
    let mut decoder = EventDecoder::new();
    text.lines()
        .map(|line| {
            decoder.decode(line.as_bytes()).expect("the line is an event").expect("the type is known")
        })
        .collect()
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
async fn a_text_that_goes_on_after_its_step_is_opened_anew() {
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
async fn a_failed_run_is_no_object_but_its_failure() {
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
async fn one_object_is_bounded() {
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

/// Waker that counts how often a task is woken.
#[derive(Default)]
struct WakeCounter(AtomicUsize);

impl ArcWake for WakeCounter {
    fn wake_by_ref(wakes: &Arc<Self>) {
        wakes.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A body that is polled by hand, and the sender of its events.
struct BodyHarness {
    feed: Option<mpsc::UnboundedSender<Item>>,
    body: StreamBody,
    wakes: Arc<WakeCounter>,
}

impl BodyHarness {
    async fn new() -> Self {
        let (feed, events) = fed();
        Self { feed: Some(feed), ..Self::over(events, StreamLimits::default()).await }
    }

    async fn over(events: EventStream, limits: StreamLimits) -> Self {
        let body = into_response(Framing::Ndjson, events, &limits).await.expect("a stream");
        Self { feed: None, body: body.into_body(), wakes: Arc::default() }
    }

    fn send(&self, events: impl IntoIterator<Item = Event>) {
        let feed = self.feed.as_ref().expect("the feed is open");
        events.into_iter().for_each(|event| feed.send(Ok(event)).expect("the body listens"));
    }

    /// Polls once.
    fn poll(&mut self) -> Poll<Option<Bytes>> {
        let waker = waker_ref(&self.wakes);
        let polled = std::pin::Pin::new(&mut self.body).poll_frame(&mut Context::from_waker(&waker));
        polled.map(|frame| frame.map(|frame| frame.expect("infallible").into_data().expect("data")))
    }

    /// Polls once, expects `Pending`, and checks whether the task is woken after other tasks have run.
    async fn is_pending(&mut self, woken: bool) {
        let before = self.wakes.0.load(Ordering::Relaxed);
        assert_eq!(self.poll(), Poll::Pending);
        tokio::task::yield_now().await;
        assert_eq!(self.wakes.0.load(Ordering::Relaxed) > before, woken);
    }

    /// Returns the next frame as a connection obtains it: polls again at once if the body has woken the task.
    fn frame(&mut self) -> Bytes {
        loop {
            let before = self.wakes.0.load(Ordering::Relaxed);
            match self.poll() {
                Poll::Ready(Some(frame)) => return frame,
                Poll::Pending if self.wakes.0.load(Ordering::Relaxed) > before => {}
                other => panic!("no frame but {other:?}"),
            }
        }
    }

    fn events(&mut self) -> Vec<Event> {
        decode(std::str::from_utf8(&self.frame()).expect("text"))
    }
}

fn fed() -> (mpsc::UnboundedSender<Item>, EventStream) {
    let (feed, events) = mpsc::unbounded_channel();
    let events = stream::unfold(events, |mut events: mpsc::UnboundedReceiver<Item>| async {
        events.recv().await.map(|event| (event.map(SourceEvent::from), events))
    });
    (feed, EventStream::new(run(), events))
}

#[tokio::test(start_paused = true)]
async fn what_is_ready_is_written_at_once_and_together() {
    let mut bench = BodyHarness::new().await;
    assert_eq!(bench.events(), [started()]);
    bench.is_pending(false).await;
    assert_eq!(bench.body.buffer.capacity(), 0, "an idle stream holds no buffer");

    bench.send([text("m"), piece("m", "a")]);
    assert_eq!(bench.events(), [text("m"), piece("m", "a")]);
    bench.is_pending(false).await;
}

#[tokio::test]
async fn the_first_piece_does_not_wait_for_what_else_is_ready() {
    let mut bench = BodyHarness::new().await;
    bench.send([text("m"), piece("m", "a"), piece("m", "b"), piece("m", "c")]);
    assert_eq!(bench.events(), [started(), text("m"), piece("m", "a")]);
    assert_eq!(bench.poll(), Poll::Pending, "the connection writes now");
    assert_eq!(bench.wakes.0.load(Ordering::Relaxed), 1, "and asks again at once");
    bench.send([piece("m", "d")]);
    assert_eq!(bench.events(), [piece("m", "b"), piece("m", "c"), piece("m", "d")]);
    bench.is_pending(false).await;
    bench.send([piece("m", "e"), finished(None, None)]);
    assert_eq!(bench.events(), [piece("m", "e"), text_over("m"), finished(None, None)]);

    let mut bench = BodyHarness::new().await;
    bench.send([text("m"), piece("m", "a")]);
    assert_eq!(bench.events(), [started(), text("m"), piece("m", "a")]);
    bench.is_pending(false).await;
    bench.send([piece("m", "b"), piece("m", "c")]);
    assert!(bench.poll().is_ready(), "the first piece was written long ago");
}

/// hyper polls a pending body repeatedly while it writes.
#[tokio::test(start_paused = true)]
async fn a_run_that_has_nothing_is_asked_again_when_it_has_woken_the_task() {
    let (feed, mut events) = mpsc::unbounded_channel::<Item>();
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    let counted = stream::poll_fn(move |cx| {
        counter.fetch_add(1, Ordering::Relaxed);
        events.poll_recv(cx).map(|item| item.map(|event| event.map(SourceEvent::from)))
    });
    let mut bench = BodyHarness::over(EventStream::new(run(), counted), StreamLimits::default()).await;
    let give = |event| feed.send(Ok(event)).expect("it listens");
    let rounds = [vec![text("m"), piece("m", "a")], vec![piece("m", "b")], vec![piece("m", "c")]];
    for round in rounds {
        round.into_iter().for_each(give);
        assert!(bench.poll().is_ready());
        // The first delta is written before the source is known to have no more.
        let mut last = None;
        for _ in 0..3 {
            assert_eq!(bench.poll(), Poll::Pending);
            let now = asked.load(Ordering::Relaxed);
            assert!(last.is_none_or(|last| last == now), "nothing has happened");
            last = Some(now);
        }
        let before = bench.wakes.0.load(Ordering::Relaxed);
        give(piece("m", "more"));
        assert_eq!(bench.wakes.0.load(Ordering::Relaxed), before + 1);
        assert!(bench.poll().is_ready(), "it was woken");
    }
}

#[tokio::test]
async fn the_end_is_written_at_once() {
    let mut bench = BodyHarness::new().await;
    bench.send([text("m"), finished(None, None)]);
    assert_eq!(bench.events(), [started(), text("m"), text_over("m"), finished(None, None)]);
    assert!(bench.body.is_end_stream());
    assert_eq!(bench.poll(), Poll::Ready(None));
}

#[tokio::test]
async fn a_source_that_is_always_ready_is_read_in_bounded_frames() {
    let pieces = (0..1000).map(|_| piece("m", &"x".repeat(1000)));
    let events = [text("m")].into_iter().chain(pieces).chain([finished(None, None)]);
    let mut bench = BodyHarness::over(source(events.collect()), StreamLimits::default()).await;
    let mut events = 0;
    while !bench.body.is_end_stream() {
        let frame = bench.frame();
        assert!(frame.len() < 64 * 1024 + 2000, "{}", frame.len());
        events += frame.iter().filter(|byte| **byte == b'\n').count();
    }
    assert_eq!(events, 1 + 1 + 1000 + 1 + 1);
}

#[tokio::test]
async fn dropping_the_body_drops_the_run() {
    let mut bench = BodyHarness::new().await;
    assert_eq!(bench.events(), [started()]);
    let feed = bench.feed.take().expect("the feed is open");
    drop(bench);
    assert!(feed.is_closed());
}

fn limits(idle: u64, run: u64) -> StreamLimits {
    StreamLimits {
        idle_timeout: Duration::from_secs(idle),
        run_timeout: Duration::from_secs(run),
        ..StreamLimits::default()
    }
}

/// Sends `times` deltas, one every `every` seconds, and then nothing.
fn paced(every: u64, times: usize) -> EventStream {
    let pieces = stream::unfold(0, move |sent| async move {
        if sent >= times {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(Duration::from_secs(every)).await;
        let event = if sent == 0 { text("m") } else { piece("m", "x") };
        Some((Ok(event.into()), sent + 1))
    });
    EventStream::new(run(), pieces)
}

/// Thinks `times` times, once every `every` seconds, and then sends the rest.
fn thinking(every: u64, times: u64, later_events: Vec<Event>) -> EventStream {
    let thoughts = stream::iter(0..times).then(move |number| async move {
        tokio::time::sleep(Duration::from_secs(every)).await;
        thought(&number.to_string(), "hm")
    });
    let events = thoughts.flat_map(stream::iter).chain(stream::iter(later_events));
    let events = events.map(|event| Ok::<_, AgentError>(SourceEvent::from(event)));
    EventStream::new(run(), events.chain(stream::pending()))
}

async fn last_event(events: EventStream, limits: StreamLimits) -> (Event, usize, u64) {
    let began = Instant::now();
    let response = into_response(Framing::Ndjson, events, &limits).await.expect("a stream");
    let body = response.into_body().collect().await.expect("infallible").to_bytes();
    let mut events = decode(std::str::from_utf8(&body).expect("text"));
    let last = events.pop().expect("there is an event");
    (last, events.len(), began.elapsed().as_secs())
}

fn timed_out(message: &str) -> Event {
    Event::RunError { message: message.into(), code: "BACKEND_TIMEOUT".into(), usage: vec![] }
}

#[tokio::test(start_paused = true)]
async fn silence_and_length_end_a_run() {
    let silent = "the backend sent no event for 120 seconds";
    let long = "the run exceeded the time limit of 1000 seconds";
    let cases = [
        (0, 0, (timed_out(silent), 1, 120)),
        (100, 4, (timed_out(silent), 5, 520)),
        (119, 100, (timed_out(long), 9, 1000)),
        (3, 5000, (timed_out(long), 334, 1000)),
    ];
    for (every, times, (error, before, seconds)) in cases {
        let (last, events, took) = last_event(paced(every, times), limits(120, 1000)).await;
        assert_eq!((last, events, took), (error, before, seconds), "{every} {times}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_backend_whose_events_the_client_does_not_see_is_not_silent() {
    let answered = finished(None, None);
    let silent = timed_out("the backend sent no event for 5 seconds");
    let long = timed_out("the run exceeded the time limit of 50 seconds");
    for audience in [Audience::Trusted, Audience::Visitor] {
        let cases = [
            (4, 10, vec![answered.clone()], (&answered, 40)),
            (4, 2, vec![], (&silent, 13)),
            (6, 1, vec![answered.clone()], (&silent, 5)),
            (4, 20, vec![answered.clone()], (&long, 50)),
        ];
        for (every, times, later_events, expected) in cases {
            let began = Instant::now();
            let events = thinking(every, times, later_events).for_audience(audience);
            let events: Vec<Event> = TimeoutStream::new(events, &limits(5, 50)).collect().await;
            let found = (events.last().expect("an end"), began.elapsed().as_secs());
            assert_eq!(found, expected, "{audience:?} {every} {times}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sees_no_event_has_signs_of_life() {
    for (framing, sign) in [
        (Framing::Sse, ": running"),
        (Framing::UiMessage, ": running"),
        (Framing::Ndjson, ""),
        (Framing::N8n, ""),
    ] {
        // n8n's lines have no reasoning, for any reader.
        let trusted_count = if framing == Framing::N8n { 2 } else { 0 };
        for (audience, count) in [(Audience::Trusted, trusted_count), (Audience::Visitor, 2)] {
            let later_events = vec![text("m"), piece("m", "Hello"), finished(None, None)];
            let events = thinking(4, 10, later_events).for_audience(audience);
            let response = into_response(framing, events, &limits(5, 50)).await.expect("a stream");
            let body = response.into_body().collect().await.expect("infallible").to_bytes();
            let body = std::str::from_utf8(&body).expect("text");
            // Forty seconds have two times fifteen.
            let signs = body.lines().filter(|line| *line == sign).count();
            assert_eq!(signs, count, "{framing:?} {audience:?}: {body}");
            assert!(body.contains("Hello"), "{body}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_completion_has_signs_of_life_while_its_format_has_nothing_for_the_events() {
    let later_events = || vec![text("m"), piece("m", "Hello"), finished(None, None)];
    for (events, count) in [
        (thinking(4, 10, later_events()), 2),
        (paced(4, 11), 0),
        (thinking(4, 3, later_events()), 0),
        (thinking(20, 2, later_events()), 1),
    ] {
        let completion = ChatCompletion {
            id: "chatcmpl-r".to_owned(),
            created: std::time::UNIX_EPOCH,
            model: "a1".into(),
            includes_usage: false,
            client_tools: vec![],
            calls_in_parallel: true,
        };
        let response = completion_response(completion, events.into(), None, &limits(25, 60));
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        let body = std::str::from_utf8(&body).expect("text");
        assert_eq!(body.matches(": running\n\n").count(), count, "{body}");
        assert!(body.ends_with("data: [DONE]\n\n"), "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_asks_last_is_woken_when_a_run_has_been_silent_for_too_long() {
    let (_feed, events) = fed();
    let mut bench = BodyHarness::over(events, limits(5, 50)).await;
    assert_eq!(bench.events(), [started()]);
    bench.is_pending(false).await;
    let first = std::mem::take(&mut bench.wakes);
    bench.is_pending(false).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(first.0.load(Ordering::Relaxed), 0, "it does not ask any more");
    assert!(bench.wakes.0.load(Ordering::Relaxed) > 0);
    assert_eq!(bench.events(), [timed_out("the backend sent no event for 5 seconds")]);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_never_pending_meets_the_deadline_alone() {
    let pieces = stream::repeat_with(|| Ok(SourceEvent::from(piece("m", &"x".repeat(1000)))));
    let endless = stream::iter([Ok(text("m").into())]).chain(pieces);
    let mut bench = BodyHarness::over(EventStream::new(run(), endless), limits(3, 10)).await;
    let mut last = bench.events();
    let mut seconds = 0;
    while !bench.body.is_end_stream() {
        tokio::time::advance(Duration::from_secs(1)).await;
        seconds += 1;
        last = bench.events();
    }
    assert_eq!(last.pop(), Some(timed_out("the run exceeded the time limit of 10 seconds")));
    assert!((10..20).contains(&seconds), "the deadline is looked at now and then, here after {seconds}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_run_that_is_collected_is_a_time_out() {
    let failure = into_response(Framing::Json, paced(0, 0), &limits(5, 50)).await.expect_err("it is silent");
    assert_eq!(failure.kind(), AgentErrorKind::Timeout);
}

#[tokio::test(start_paused = true)]
async fn the_silence_of_a_run_is_limited_by_its_model_or_here() {
    let delivery = WholeDelivery::default();
    let last_event = async |every, times| {
        let source = RunSource::from(paced(every, times)).with_whole_delivery(Some(delivery.clone()));
        let began = Instant::now();
        let events: Vec<Event> = TimeoutStream::new(source, &limits(5, 50)).collect().await;
        (events.last().expect("an end").clone(), began.elapsed().as_secs())
    };
    let silent = timed_out("the backend sent no event for 5 seconds");
    assert_eq!(last_event(0, 0).await, (silent, 5));
    delivery.set_silence_limited();
    let long = timed_out("the run exceeded the time limit of 50 seconds");
    assert_eq!(last_event(0, 0).await, (long.clone(), 50));
    assert_eq!(last_event(20, 9).await, (long, 50));
}

#[tokio::test(start_paused = true)]
async fn limits_beyond_all_time_are_no_limits() {
    let limits = StreamLimits { idle_timeout: Duration::MAX, run_timeout: Duration::MAX, ..limits(1, 1) };
    let response = into_response(Framing::Ndjson, source(everything()), &limits).await.expect("a stream");
    assert!(!response.into_body().collect().await.expect("infallible").to_bytes().is_empty());
}
