//! Fixtures of the tests of whole responses: events, runs and decoders.

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
use bytes::Bytes;
use futures_util::task::{ArcWake, waker_ref};
use futures_util::{StreamExt, stream};
use http_body::Body;
use http_body_util::BodyExt;
use serde_json::json;
use tokio::sync::mpsc;

use super::*;

mod formats;
mod time_limits;
mod writes;

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

fn decode(text: &str) -> Vec<Event> {
    let mut decoder = EventDecoder::new();
    text.lines()
        .map(|line| {
            decoder.decode(line.as_bytes()).expect("the line is an event").expect("the type is known")
        })
        .collect()
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

fn limits(idle: u64, run: u64) -> StreamLimits {
    StreamLimits {
        idle_timeout: Duration::from_secs(idle),
        run_timeout: Duration::from_secs(run),
        ..StreamLimits::default()
    }
}
