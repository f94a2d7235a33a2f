use std::time::Duration;

use agent_core::backend::EmbeddedBackend;
use agent_core::context::RoleLayer;
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::event::Event;
use agent_core::message::{FinishReason, Message, Usage};
use agent_core::model::ModelEvent;
use agent_core::request::{Principal, TurnRequest};
use agent_core::role::{RoleBlock, StaticRoles};
use agent_core::select::{BackendKind, SelectionRule};
use agent_core::testing::{FakeTools, ManualClock, ScriptedAnswer, ScriptedModel};
use agent_core::tool::{Caller, ToolOutput};
use agent_core::turn::{Platform, TurnError, run_observed_turn};
use futures_util::{FutureExt, StreamExt};
use serde_json::{Value, json};

use super::*;
use crate::conversation::MAX_RUN_ATTEMPTS;
use crate::preview::LatestPrompts;

fn usage(output: u64) -> Usage {
    Usage { model: Some("m".to_owned()), output_tokens: Some(output), ..Usage::default() }
}

fn answer(output: u64) -> ScriptedAnswer {
    ScriptedAnswer::new().event(ModelEvent::Usage(usage(output)))
}

/// Platform of one agent, whose tool `wait` takes 30 ms.
fn platform(answers: Vec<ScriptedAnswer>, clock: &ManualClock, observers: &Arc<RunObservers>) -> Platform {
    let role = json!({"id": "a", "companyId": "c", "content": {"systemPrompt": "Be kind.", "mcpPreset": ["wait"]},
        "children": [{"name": "EmbeddedAI"}]});
    let role: RoleBlock = serde_json::from_value(role).expect("a role");
    let time = clock.clone();
    let tools: Arc<dyn agent_core::tool::ToolRegistry> =
        Arc::new(FakeTools::new().behaves("wait", move |_| {
            time.advance(Duration::from_millis(30));
            std::future::ready(Ok(ToolOutput::error("too late")))
        }));
    let models = ObservedModels::new(Arc::new(ScriptedModel::new(answers)), observers.clone());
    Platform::new(Arc::new(StaticRoles::new().with_role(role)))
        .with_sent_prompts(Arc::new(LatestPrompts::default()))
        .with_layer(RoleLayer::new(Arc::default()))
        .with_tools(tools.clone())
        .with_backend(EmbeddedBackend::new(models).with_tools(tools))
}

/// Runs a turn; the clock advances by a millisecond after each event.
fn run(
    platform: &Platform,
    clock: &ManualClock,
    observers: &Arc<RunObservers>,
    id: &str,
) -> (RunRecord, Vec<Event>) {
    let open = observers.open(&"c".into(), &"ada".into(), &id.into(), observers.now());
    clock.advance(Duration::from_millis(5));
    open.begin_preparation();
    let principal = Principal::new("ada", "c", Caller::Session);
    let request = TurnRequest { run_id: id.into(), ..TurnRequest::new("a", vec![Message::user("Hello")]) };
    let events = run_observed_turn(platform, &principal, request, &**open).now_or_never().expect("no wait");
    let mut events = events.expect("a run").with_observer(open.event_observer());
    let mut collected_events = Vec::new();
    while let Some(event) = events.next().now_or_never().expect("no wait") {
        clock.advance(Duration::from_millis(1));
        collected_events.push(event);
    }
    (open.record(), collected_events)
}

#[test]
fn rounds_and_tools_are_timed_at_their_events() {
    let clock = ManualClock::new();
    let observers = Arc::new(RunObservers::new(Arc::new(clock.clone()), false));
    let calling = answer(3).call("call-1", "wait", ["{}"]).finish(FinishReason::ToolCalls);
    let platform = platform(
        vec![calling, answer(2).text("So ").text("it is.").finish(FinishReason::Stop)],
        &clock,
        &observers,
    );
    let (record, events) = run(&platform, &clock, &observers, "r1");
    let names: Vec<_> = events.iter().map(Event::name).collect();
    // The event of each millisecond after the fifth.
    let at = |name: &str, nth: usize| {
        let mut found = names.iter().enumerate().filter(|(_, found)| **found == name);
        5 + u64::try_from(found.nth(nth).expect("the event").0).expect("small")
    };
    let timing = record.timing.expect("times");
    assert_eq!((timing.queued_ms, timing.prepared_ms), (Some(5), Some(5)));
    let started = at("TOOL_CALL_START", 0);
    assert_eq!(timing.first_content_ms, Some(started));
    let [first, second] = &timing.rounds[..] else { panic!("two rounds: {timing:?}") };
    let ended = at("TOOL_CALL_END", 0);
    assert_eq!(
        *first,
        crate::conversation::RoundTiming {
            started_ms: 5,
            first_content_ms: Some(started),
            ended_ms: Some(ended),
            output_tokens: Some(3),
            attempts: Some(1),
        }
    );
    // The tool takes its time after the last event before its result.
    assert_eq!(second.started_ms, at("STEP_FINISHED", 0) + 30);
    assert_eq!(second.first_content_ms, Some(at("TEXT_MESSAGE_CONTENT", 0) + 30));
    assert_eq!((second.output_tokens, second.ended_ms), (Some(2), Some(at("STEP_FINISHED", 1) + 30)));
    let [tool] = &timing.tools[..] else { panic!("one call: {timing:?}") };
    assert_eq!((&*tool.call_id, &*tool.name, tool.is_error), ("call-1", "wait", true));
    assert_eq!((tool.started_ms, tool.ended_ms), (ended, Some(at("TOOL_CALL_RESULT", 0) + 30)));

    let selection = record.selection.expect("a selection");
    assert_eq!((selection.backend, selection.rule), (BackendKind::Embedded, Some(SelectionRule::EmbeddedAi)));
    assert_eq!(selection.backend_name(), "embedded");
}

#[test]
fn the_manifest_names_what_has_changed_since_the_latest_run() {
    let clock = ManualClock::new();
    let observers = Arc::new(RunObservers::new(Arc::new(clock.clone()), false));
    let scripted_answer = || answer(1).text("Yes.").finish(FinishReason::Stop);
    let platform = platform(vec![scripted_answer(), scripted_answer()], &clock, &observers);
    let (first, events) = run(&platform, &clock, &observers, "r1");
    let first = first.prompt.expect("a manifest");
    let sent = events.iter().find_map(|event| match event {
        Event::Custom { name, value } if name == "agent.prompt" => Some(value.clone()),
        _ => None,
    });
    assert_eq!(sent.expect("the event")["requestSha256"], json!(first.request_sha256));
    assert_eq!((&first.cache.previous_run_id, &first.cache.first_changed_part), (&None, &None));
    assert!(first.cache.stable_prefix_bytes >= "Be kind.".len());
    assert_eq!(first.parts[0].source, "role");
    assert_eq!(first.tools[0].name, "wait");
    assert!(first.tools[0].tokens > 0 && first.tools[0].sha256.len() == 64, "{:?}", first.tools);
    let (second, _) = run(&platform, &clock, &observers, "r2");
    let second = second.prompt.expect("a manifest");
    assert_eq!(second.cache.previous_run_id.as_deref(), Some("r1"));
    assert_eq!(second.cache.first_changed_part, None, "nothing has changed");
    // Messages of another thread are not compared.
    let share = second.cache.reusable_share.expect("an earlier prompt");
    assert!((0.5..1.0).contains(&share), "{share}");
    assert_eq!(second.request_sha256, first.request_sha256);
    let text = serde_json::to_string(&second).expect("JSON");
    assert!(!text.contains("Be kind."), "a manifest has no texts");
    assert!(text.len() < 4_096, "{}", text.len());
}

/// Returns a report of an attempt, as an event and the error of a run's start have it.
fn attempt_json(kind: &str, attempt: usize, model: &str) -> Value {
    json!({"kind": kind, "round": 1, "attempt": attempt, "entry": 0, "provider": "openai", "model": model,
        "reason": "BACKEND_FAILED", "status": 503, "waitedMs": 250, "requestSha256": "00"})
}

fn attempt_report(attempt: u32) -> AttemptReport {
    AttemptReport {
        round: 1,
        attempt: Some(attempt),
        entry: 0,
        provider: "openai".to_owned(),
        model: "m".to_owned(),
        reason: Some("BACKEND_FAILED".to_owned()),
        status: Some(503),
        waited_ms: 250,
        request_sha256: Some("00".to_owned()),
    }
}

#[test]
fn attempts_are_recorded_as_the_events_report_them() {
    let observers = Arc::new(RunObservers::new(Arc::new(ManualClock::new()), false));
    let open = observers.open(&"c".into(), &"ada".into(), &"r".into(), observers.now());
    let mut observer = open.event_observer();
    let mut report = |name: &str, value: Value| {
        assert!(observer.observe(&Event::Custom { name: name.to_owned(), value }).is_none());
    };
    report("agent.debug", attempt_json("modelAttempt", 1, "m"));
    report("agent.debug", attempt_json("outputProgress", 2, "m"));
    report("agent.prompt", attempt_json("modelAttempt", 3, "m"));
    // The event of a runtime may have any members.
    report("agent.debug", attempt_json("modelAttempt", 4, &"m".repeat(2_000)));
    report("agent.debug", json!({"kind": "modelAttempt", "round": -1}));
    report("agent.debug", json!("modelAttempt"));
    assert_eq!(open.record().attempts, [attempt_report(1)]);
    for attempt in 0..2 * MAX_RUN_ATTEMPTS {
        report("agent.debug", attempt_json("modelAttempt", attempt, "m"));
    }
    assert_eq!(open.record().attempts.len(), MAX_RUN_ATTEMPTS);
}

#[test]
fn a_run_that_does_not_begin_has_the_attempts_of_its_error() {
    let observers = Arc::new(RunObservers::new(Arc::new(ManualClock::new()), false));
    let open = observers.open(&"c".into(), &"ada".into(), &"r".into(), observers.now());
    let error =
        || AgentError::new(AgentErrorKind::Failed, "gone").with_member("signInUrl", "https://example");
    open.record_start_error(&TurnError::AgentNotFound);
    open.record_start_error(&TurnError::Backend(error()));
    open.record_start_error(&TurnError::Backend(error().with_member("attempts", "many")));
    assert_eq!(open.record().attempts, []);
    let attempts = json!([attempt_json("modelAttempt", 1, "m"), attempt_json("modelAttempt", 2, "m")]);
    open.record_start_error(&TurnError::Backend(error().with_member("attempts", attempts)));
    assert_eq!(open.record().attempts, [attempt_report(1), attempt_report(2)]);
}

#[test]
fn a_run_is_found_until_its_record_is_closed() {
    let observers = Arc::new(RunObservers::new(Arc::new(ManualClock::new()), false));
    let found = || observers.record_of(&"c".into(), &"ada".into(), &"r".into()).is_some();
    let open = || observers.open(&"c".into(), &"ada".into(), &"r".into(), observers.now());
    let first = open();
    assert!(found());
    let second = open();
    drop(first);
    assert!(found(), "the later attempt's");
    drop(second);
    assert!(!found());
}
