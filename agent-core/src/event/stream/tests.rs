use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use futures_util::{FutureExt, stream};

use super::*;
use crate::event::{AssistantRole, Id, ReasoningRole, ToolRole};
use crate::testing::FakeReportedCalls;

type Given = Result<SourceEvent, AgentError>;

fn ok(event: Event) -> Given {
    Ok(event.into())
}

fn run() -> RunIds {
    RunIds { thread_id: "t".into(), run_id: "r".into() }
}

fn read(stream: EventStream) -> Vec<Event> {
    let events: Vec<Event> = stream.collect().now_or_never().expect("the source is ready");
    EventGrammar::check(&events).unwrap_or_else(|violation| panic!("{violation}: {events:?}"));
    events
}

fn names(events: &[Event]) -> Vec<&'static str> {
    events.iter().map(Event::name).collect()
}

fn text(id: &str) -> Given {
    ok(Event::TextMessageStart { message_id: id.into(), role: AssistantRole::Assistant })
}

fn code(events: &[Event]) -> &str {
    match events.last() {
        Some(Event::RunError { code, .. }) => code,
        other => panic!("no error but {other:?}"),
    }
}

/// The events of a reported call's start.
const BEGUN: [&str; 3] = ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"];

fn with_calls(events: EventStream, calls: &FakeReportedCalls) -> EventStream {
    events.with_reported_calls(Some(Box::new(calls.clone())))
}

/// A waker that records that it was woken.
#[derive(Default)]
struct WakeFlag(AtomicBool);

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn finished() -> Given {
    ok(Event::RunFinished {
        thread_id: "theirs".into(),
        run_id: "theirs".into(),
        result: None,
        outcome: None,
        usage: vec![],
    })
}

/// A run with one of each event that a visitor must not see, and most of them not closed.
fn everything() -> Vec<Given> {
    let id = Id::from("x");
    vec![
        ok(Event::StepStarted { step_name: id.clone() }),
        ok(Event::ReasoningStart { message_id: id.clone() }),
        ok(Event::ReasoningMessageStart { message_id: id.clone(), role: ReasoningRole::Reasoning }),
        ok(Event::ReasoningMessageContent { message_id: id.clone(), delta: "hm".into() }),
        text("x"),
        ok(Event::ToolCallStart {
            tool_call_id: id.clone(),
            tool_call_name: "n".into(),
            parent_message_id: None,
        }),
        ok(Event::ToolCallEnd { tool_call_id: id.clone() }),
        ok(Event::ToolCallResult {
            message_id: "y".into(),
            tool_call_id: id,
            content: "secret".into(),
            role: ToolRole::Tool,
            metadata: None,
        }),
        ok(Event::Custom { name: "agent.debug".into(), value: json!({}) }),
        finished(),
    ]
}

#[test]
fn every_source_ends_with_one_terminal_event() {
    let slow = || Err(AgentError::new(AgentErrorKind::Timeout, "slow"));
    let theirs = || ok(Event::RunStarted { thread_id: "theirs".into(), run_id: "theirs".into() });
    let error = || ok(Event::RunError { message: "m".into(), code: "THEIRS".into(), usage: vec![] });
    let sources: [(Vec<Given>, Option<&str>); 10] = [
        (vec![], Some("STREAM_TRUNCATED")),
        (vec![text("a")], Some("STREAM_TRUNCATED")),
        (vec![text("a"), text("a")], Some("BACKEND_FAILED")),
        (vec![text("a"), slow()], Some("BACKEND_TIMEOUT")),
        (vec![slow(), finished()], Some("BACKEND_TIMEOUT")),
        (vec![text("a"), error(), finished()], Some("THEIRS")),
        (vec![text("a"), finished(), text("b")], None),
        (vec![finished(), finished()], None),
        (vec![finished(), slow()], None),
        (vec![theirs(), theirs(), finished()], None),
    ];
    for (source, expected) in sources {
        let events = read(EventStream::new(run(), stream::iter(source)));
        assert!(matches!(&events[0], Event::RunStarted { run_id, .. } if &**run_id == "r"), "{events:?}");
        match expected {
            Some(expected) => assert_eq!(code(&events), expected),
            None => assert!(
                matches!(events.last(), Some(Event::RunFinished { run_id, .. }) if &**run_id == "r"),
                "{events:?}"
            ),
        }
    }
}

#[test]
fn open_items_are_closed_in_reverse_before_the_end() {
    let events = read(EventStream::new(run(), stream::iter(everything())));
    assert_eq!(
        names(&events)[10..],
        ["TEXT_MESSAGE_END", "REASONING_MESSAGE_END", "REASONING_END", "STEP_FINISHED", "RUN_FINISHED"]
    );
}

#[test]
fn a_run_that_is_failed_from_outside_drops_its_source() {
    let held = Arc::new(());
    let watch = Arc::downgrade(&held);
    let source = stream::pending().map(move |event| {
        let _ = &held;
        event
    });
    let mut events = EventStream::new(run(), source);
    assert!(watch.upgrade().is_some() && !events.is_over());
    events.fail(AgentError::new(AgentErrorKind::Timeout, "silent"));
    assert!(watch.upgrade().is_none() && events.is_over());
    events.fail(AgentError::new(AgentErrorKind::Internal, "once more"));
    assert_eq!(code(&read(events)), "BACKEND_TIMEOUT");
}

#[test]
fn a_visitor_sees_neither_reasoning_nor_results_nor_extensions() {
    let events = EventStream::new(run(), stream::iter(everything()));
    let events = events.with_custom_event("agent.prompt", json!({})).for_audience(Audience::Visitor);
    assert_eq!(
        names(&read(events)),
        [
            "RUN_STARTED",
            "STEP_STARTED",
            "TEXT_MESSAGE_START",
            "TOOL_CALL_START",
            "TOOL_CALL_END",
            "TEXT_MESSAGE_END",
            "STEP_FINISHED",
            "RUN_FINISHED"
        ]
    );
}

#[test]
fn events_that_the_audience_does_not_see_are_reported_once() {
    for (audience, is_hidden) in [(Audience::Trusted, false), (Audience::Visitor, true)] {
        let thought = stream::iter([ok(Event::ReasoningStart { message_id: "x".into() })]);
        let calls = FakeReportedCalls::default();
        calls.start_call("c");
        calls.end_call("c", "1");
        for events in [
            EventStream::new(run(), thought.chain(stream::pending())),
            with_calls(EventStream::new(run(), stream::pending()), &calls),
        ] {
            let mut events = events.for_audience(audience);
            assert!(!events.take_hidden(), "no hidden event has come");
            while let Some(Some(_)) = events.next().now_or_never() {}
            assert_eq!((events.take_hidden(), events.take_hidden()), (is_hidden, false), "{audience:?}");
        }
    }
}

#[test]
fn reported_calls_are_placed_where_they_were_made() {
    let calls = FakeReportedCalls::default();
    let (say, mut reported_events) = tokio::sync::mpsc::unbounded_channel::<Given>();
    let source = stream::poll_fn(move |cx| reported_events.poll_recv(cx));
    let mut events = with_calls(EventStream::new(run(), source), &calls);
    let mut delivered = Vec::new();
    let mut names_so_far = |events: &mut EventStream| {
        let begin = delivered.len();
        while let Some(Some(event)) = events.next().now_or_never() {
            delivered.push(event);
        }
        names(&delivered[begin..])
    };
    let send = |event| say.send(event).expect("the stream reads");
    calls.start_call("early");
    assert_eq!(names_so_far(&mut events), [&["RUN_STARTED"], &BEGUN[..]].concat());
    send(text("a"));
    assert_eq!(names_so_far(&mut events), ["TEXT_MESSAGE_START"]);
    calls.end_call("early", "1");
    send(text("b"));
    assert_eq!(
        names_so_far(&mut events),
        ["TOOL_CALL_RESULT", "TEXT_MESSAGE_START"],
        "a result, and its use"
    );
    calls.start_call("late");
    calls.start_call("never");
    calls.end_call("late", "2");
    send(finished());
    let ended = ["TOOL_CALL_RESULT", "TEXT_MESSAGE_END", "TEXT_MESSAGE_END", "RUN_FINISHED"];
    assert_eq!(names_so_far(&mut events), [&BEGUN[..], &BEGUN, &ended].concat());
    assert!(calls.is_last_clone(), "the run has ended");
    calls.end_call("never", "3");
    assert_eq!(names_so_far(&mut events), [""; 0]);
    EventGrammar::check(&delivered).expect("the events follow the grammar");
}

#[test]
fn a_run_reports_once_the_number_of_omitted_calls() {
    for last in [finished(), Err(AgentError::new(AgentErrorKind::Timeout, "slow"))] {
        let calls = FakeReportedCalls::default();
        calls.start_call("read");
        calls.omit_calls(2);
        let events = read(with_calls(EventStream::new(run(), stream::iter([last])), &calls));
        assert_eq!(names(&events)[..4], [&["RUN_STARTED"], &BEGUN[..]].concat());
        assert_eq!(events.len(), 4 + 2);
        let value = json!({"kind": "toolCallsLeftOut", "count": 2});
        assert_eq!(events[events.len() - 2], Event::Custom { name: "agent.debug".into(), value });
    }
}

/// Returns a source of one answer per item, in steps, each with this many bytes of reasoning, text and result.
fn answers(bytes: &[usize]) -> Vec<Given> {
    let mut events = Vec::new();
    for (round, &size) in bytes.iter().enumerate() {
        let (step_name, delta) = (Id::from(format!("s{round}")), "x".repeat(size));
        let (thought, text_message_id, call) =
            (Id::from(format!("r{round}")), Id::from(format!("t{round}")), Id::from("c"));
        events.extend([
            ok(Event::StepStarted { step_name: step_name.clone() }),
            ok(Event::ReasoningMessageStart { message_id: thought.clone(), role: ReasoningRole::Reasoning }),
            ok(Event::ReasoningMessageContent { message_id: thought, delta: delta.clone() }),
            text(&text_message_id),
            ok(Event::TextMessageContent { message_id: text_message_id, delta: delta.clone() }),
            ok(Event::ToolCallStart {
                tool_call_id: call.clone(),
                tool_call_name: "t".into(),
                parent_message_id: None,
            }),
            ok(Event::ToolCallArgs { tool_call_id: call.clone(), delta: delta.clone() }),
            ok(Event::ToolCallEnd { tool_call_id: call.clone() }),
            ok(Event::ToolCallResult {
                message_id: "m".into(),
                tool_call_id: call,
                content: delta,
                role: ToolRole::Tool,
                metadata: None,
            }),
            ok(Event::StepFinished { step_name }),
        ]);
    }
    events.push(finished());
    events
}

#[test]
fn output_is_bounded_per_answer_and_per_run() {
    let limits = OutputLimits { max_answer_bytes: 320, max_run_bytes: 1_000 };
    for (sizes, expected) in [
        (&[100][..], None),
        (&[200, 1], Some("an answer of the model exceeds the limit of 320 bytes")),
        (&[100, 100], None),
        (&[100, 100, 100], Some("the output of the run exceeds the limit of 1000 bytes")),
    ] {
        for audience in [Audience::Trusted, Audience::Visitor] {
            let source = EventStream::new(run(), stream::iter(answers(sizes)));
            let events = read(source.with_output_limits(limits).for_audience(audience));
            let emitted: usize = events.iter().filter_map(Event::delta).map(|(_, delta)| delta.len()).sum();
            assert!(emitted <= limits.max_run_bytes, "{emitted} bytes");
            match (events.last(), expected) {
                (Some(Event::RunFinished { .. }), None) => {}
                (Some(Event::RunError { message, code, .. }), Some(expected)) => {
                    assert_eq!((&**code, &**message), ("OUTPUT_TOO_LARGE", expected), "{sizes:?}");
                }
                (last, _) => panic!("{sizes:?}: {last:?}"),
            }
        }
    }
}

#[test]
fn reported_calls_count_towards_the_output() {
    for last in [finished(), Err(AgentError::new(AgentErrorKind::Timeout, "slow"))] {
        let calls = FakeReportedCalls::default();
        let limits = OutputLimits { max_answer_bytes: 100, max_run_bytes: 100 };
        for id in ["a", "b", "c"] {
            calls.start_call(id);
            calls.end_call(id, &"x".repeat(60));
        }
        let source = EventStream::new(run(), stream::iter([last])).with_output_limits(limits);
        assert_eq!(code(&read(with_calls(source, &calls))), "OUTPUT_TOO_LARGE");
    }
}

#[test]
fn open_items_are_bounded() {
    let many = (0..5_000).map(|index| text(&index.to_string()));
    let events = read(EventStream::new(run(), stream::iter(many.chain([finished()]).collect::<Vec<_>>())));
    assert_eq!(code(&events), "OUTPUT_TOO_LARGE");
}

#[test]
fn a_report_reaches_a_stream_whose_source_is_pending() {
    let calls = FakeReportedCalls::default();
    let (mut during_poll, reports) = (Some(calls.clone()), calls.clone());
    // The first report comes after the stream has polled for reports, and before it registers its waker.
    let source = stream::poll_fn(move |_| {
        if let Some(calls) = during_poll.take() {
            calls.start_call("during");
        }
        Poll::Pending
    });
    let mut events = with_calls(EventStream::new(run(), source), &calls);
    let woken = Arc::new(WakeFlag::default());
    let waker = Waker::from(woken.clone());
    let mut poll_name = || match events.poll_next_unpin(&mut Context::from_waker(&waker)) {
        Poll::Ready(event) => Some(event.expect("the run is not over").name()),
        Poll::Pending => None,
    };
    for expected in ["RUN_STARTED", BEGUN[0], BEGUN[1], BEGUN[2]] {
        assert_eq!(poll_name(), Some(expected));
    }
    assert_eq!((poll_name(), woken.0.load(Ordering::Relaxed)), (None, false));
    reports.end_call("during", "1");
    assert!(woken.0.load(Ordering::Relaxed));
    assert_eq!(poll_name(), Some("TOOL_CALL_RESULT"));
}

#[test]
fn an_announcement_follows_the_start() {
    let events = EventStream::new(run(), stream::iter([text("a"), finished()]));
    let events = read(events.with_custom_event("agent.prompt", json!({"a": 1})));
    assert_eq!(events[1], Event::Custom { name: "agent.prompt".into(), value: json!({"a": 1}) });
}

#[test]
fn a_cancelled_run_closes_what_is_open_and_drops_the_source() {
    let source = stream::iter([text("m")]).chain(stream::pending());
    let guard = Arc::new(());
    let mut events = EventStream::new(run(), source).with_guard(guard.clone());
    assert_eq!(format!("{events:?}"), r#"EventStream { run: RunIds { thread_id: "t", run_id: "r" }, .. }"#);
    let mut seen: Vec<Event> = Vec::new();
    while let Some(Some(event)) = events.next().now_or_never() {
        seen.push(event);
    }
    events.finish(RunEnd::cancelled());
    assert_eq!(Arc::strong_count(&guard), 1, "the run's guard is dropped");
    seen.extend(events.collect::<Vec<_>>().now_or_never().expect("the source is gone"));
    EventGrammar::check(&seen).expect("a whole run");
    assert_eq!(names(&seen), ["RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_END", "RUN_FINISHED"]);
    let outcome = match seen.last() {
        Some(Event::RunFinished { outcome, .. }) => outcome.clone(),
        _ => None,
    };
    assert_eq!(outcome, Some(crate::event::RunOutcome::Cancelled));
}
