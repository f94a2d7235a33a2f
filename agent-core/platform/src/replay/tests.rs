mod fallbacks;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use agent_core::backend::{EmbeddedBackend, ModelSource};
use agent_core::context::{ContextLayer, LayerError, TurnInput};
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::event::{EventStream, RunEnd, RunOutcome};
use agent_core::message::{FinishReason, Message};
use agent_core::model::{Model, ModelInfo};
use agent_core::prompt::{AssemblyInput, Fragment, Part, RETRIEVAL_SOURCE, Stability, StoredOrigin};
use agent_core::role::{Container, EmbeddedAi, FallbackModel, RoleBlock};
use agent_core::testing::{FakeTools, ScriptedAnswer, ScriptedModel};
use agent_core::tool::{Caller, ExecutionContext, NoProgress, Progress, ToolError, ToolOutput, ToolSpec};
use agent_core::turn::HistoryStep;
use async_trait::async_trait;
use futures_util::{FutureExt, Stream};
use serde_json::{Value, json};

use super::*;
use crate::catalog::Catalog;
use crate::conversation::{Run, RunRecord, RunState};
use crate::fallback::{AttemptReport, FallbackBudget, FallbackDefaults, FallbackModels, fallback_settings};
use crate::model_notice::ModelNotice;
use crate::preview::LatestPrompts;
use crate::response_format::{FormattedModels, ValidatedModels};
use crate::run_observer::ObservedModels;
use crate::usage::{MemoryUsage, MeteredModels, PriceTable, UsageRecorder};

/// Secret that the recorded roles contain in each place for one.
const PLANTED: &str = "planted-5ecret";

/// Numbers that look random and are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % limit
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

struct TestLayer(Vec<Fragment>);

#[async_trait]
impl ContextLayer for TestLayer {
    fn name(&self) -> &'static str {
        "documents"
    }

    async fn collect(&self, _: &TurnInput) -> Result<Vec<Fragment>, LayerError> {
        Ok(self.0.clone())
    }
}

/// The fake tools; `slow` reports progress.
struct TestTools(FakeTools);

#[async_trait]
impl ToolRegistry for TestTools {
    async fn list(&self, context: &ExecutionContext) -> Result<Vec<Arc<ToolSpec>>, ToolError> {
        self.0.list(context).await
    }

    async fn call(
        &self,
        context: &ExecutionContext,
        name: &str,
        arguments: Value,
        progress: &dyn Progress,
    ) -> Result<ToolOutput, ToolError> {
        if name == "slow" {
            progress.report(1.0, Some(3.0), Some("on the way"));
            yield_once().await;
            progress.report(2.5, None, None);
        }
        self.0.call(context, name, arguments, &NoProgress).await
    }
}

/// Lets other calls be polled.
async fn yield_once() {
    let mut has_yielded = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn role() -> RoleBlock {
    let role = json!({"id": "a", "name": "Ann", "companyId": "c", "ownerId": "ada", "content": {"systemPrompt": "Be kind.",
        "rules": ["Be brief."], "messengerToken": PLANTED, "agentServerApiKey": PLANTED,
        "mcpPreset": ["fail", "hang", "look", "slow"], "widgetTools": ["fail", "look", "slow"]},
        "children": [{"name": "EmbeddedAI", "content": {"provider": "openai", "apiKey": PLANTED}},
            {"name": "WorkflowConnector", "content": {"auth": {"type": "basic", "user": "u", "password": PLANTED}}},
            {"name": "Own", "content": {"key": PLANTED}}]});
    serde_json::from_value(role).expect("a role")
}

/// One recorded run, and the case that it is an example of.
struct Recorded {
    bundle: RunBundle,
    shapes: Vec<&'static str>,
}

/// Shape of a run, chosen by numbers.
struct Shape {
    answers: Vec<ScriptedAnswer>,
    messages: Vec<Message>,
    caller: Caller,
    client_tools: bool,
    fragments: Vec<Fragment>,
    /// Number of events after which the run is cancelled.
    cancelled_after: Option<usize>,
    shapes: Vec<&'static str>,
}

fn shape(numbers: &mut Numbers) -> Shape {
    let mut shapes = Vec::new();
    let mut answers = Vec::new();
    for round in 0..numbers.below(4) {
        shapes.push(if round == 0 { "tools" } else { "several rounds" });
        answers.push(calling_answer(numbers, round, &mut shapes));
    }
    let last = ScriptedAnswer::new().reasoning("hm").text("It ").text("is ").reasoning("so").text("so.");
    answers.push(match numbers.below(6) {
        0 => {
            shapes.push("error before an answer");
            ScriptedAnswer::from_start_error(AgentError::new(AgentErrorKind::RateLimited, "too many"))
        }
        1 => {
            shapes.push("error within an answer");
            last.fail(AgentError::new(AgentErrorKind::Failed, "it broke"))
        }
        2 => {
            shapes.push("cut short");
            last.usage(7, 2).finish(FinishReason::Length)
        }
        _ => last
            .event(ModelNotice::UnknownItem { item_type: "odd".to_owned() }.into())
            .usage(5, 3)
            .finish(FinishReason::Stop),
    });
    let caller = if numbers.one_in(5) { Caller::Widget } else { Caller::Session };
    if caller == Caller::Widget {
        shapes.push("visitor");
    }
    let cancelled_after = numbers.one_in(4).then(|| 1 + numbers.below(14));
    if cancelled_after.is_some() {
        shapes.push("cancelled");
    }
    let client_tools = numbers.one_in(4);
    let mut messages = Vec::new();
    if numbers.one_in(2) {
        shapes.push("history");
        messages.extend([Message::user("Earlier?"), Message::assistant("Earlier.")]);
    }
    messages.push(Message::user(format!("Question {}?", numbers.below(100))));
    let fragments = test_fragments(numbers, &mut shapes);
    Shape { answers, messages, caller, client_tools, fragments, cancelled_after, shapes }
}

fn calling_answer(numbers: &mut Numbers, round: usize, shapes: &mut Vec<&'static str>) -> ScriptedAnswer {
    let mut answer = ScriptedAnswer::new().text("I look. ");
    for call in 0..1 + numbers.below(3) {
        let (name, arguments) = match numbers.below(8) {
            0 => ("missing", vec!["{", "}"]),
            1 => ("look", vec!["not JSON"]),
            2 | 3 => ("slow", vec![r#"{"at":"#, "1}"]),
            4 => ("fail", vec!["{}"]),
            5 => ("mine", vec!["{}"]),
            _ => ("look", vec![]),
        };
        shapes.extend((name == "fail").then_some("tool errors"));
        shapes.extend((name == "slow").then_some("progress"));
        // The ids of the second round repeat the ids of the first.
        answer = answer.call(
            format!("call-{}", if round == 1 { call } else { 10 * round + call }),
            name,
            arguments,
        );
    }
    answer.usage(11, 4).finish(FinishReason::ToolCalls)
}

fn test_fragments(numbers: &mut Numbers, shapes: &mut Vec<&'static str>) -> Vec<Fragment> {
    let part =
        |id: &str, source, stability, text: &str| Fragment::new(id, source, stability, Part::new(text));
    let mut fragments = vec![part("time", "execution", Stability::Turn, "It is noon.")];
    if numbers.one_in(2) {
        shapes.push("documents");
        let origin = StoredOrigin {
            kind: "document",
            id: Some("handbook".to_owned()),
            omitted_bytes: numbers.one_in(2).then_some(12),
            ..StoredOrigin::default()
        };
        fragments
            .push(part("doc:handbook", "documents", Stability::Agent, "Water daily.").with_origin(origin));
    }
    if numbers.one_in(2) {
        shapes.push("retrieved fragments");
        fragments.push(part("retrieved:1", RETRIEVAL_SOURCE, Stability::Turn, "Basil likes sun."));
    }
    fragments
}

fn tools() -> Arc<dyn ToolRegistry> {
    let fake = FakeTools::new()
        .answers("look", "dry")
        .answers("slow", "wet at last")
        .behaves("fail", |_| std::future::ready(Err(ToolError::NotFound("no such bed".to_owned()))));
    Arc::new(TestTools(fake))
}

fn recording_platform(
    answers: Vec<ScriptedAnswer>,
    fragments: Vec<Fragment>,
    observers: &Arc<RunObservers>,
) -> Platform {
    let models = ObservedModels::new(Arc::new(ScriptedModel::new(answers)), observers.clone());
    Platform::new(Arc::new(StaticRoles::new()))
        .with_layer(RoleLayer::new(Arc::default()))
        .with_layer(TestLayer(fragments))
        .with_tools(tools())
        .with_sent_prompts(Arc::new(LatestPrompts::default()))
        .with_backend(EmbeddedBackend::new(models).with_tools(tools()))
}

fn client_tool() -> Arc<ToolSpec> {
    let specs = FakeTools::new().answers("mine", "").specs();
    Arc::new(ToolSpec { is_client_side: true, ..ToolSpec::clone(&specs[0]) })
}

/// Runs a turn and records it as the application does.
fn record(shape: Shape, id: &str) -> Recorded {
    let Shape { mut answers, messages, caller, client_tools, fragments, cancelled_after, shapes } = shape;
    let observers = Arc::new(RunObservers::new(Arc::new(SystemClock), true));
    if messages.len() > 1 {
        answers.insert(0, ScriptedAnswer::from_text("Earlier."));
    }
    let platform = recording_platform(answers, fragments, &observers);
    let principal = Principal::new("ada", "c", caller);
    let turn = TurnRequest {
        thread_id: "t".into(),
        run_id: id.into(),
        role: Some(Arc::new(role())),
        client_tools: if client_tools { vec![client_tool()] } else { Vec::new() },
        ..TurnRequest::new("a", messages)
    };
    if turn.messages.len() > 1 {
        let earlier = TurnRequest { messages: Arc::new(turn.messages[..1].to_vec()), ..turn.clone() };
        let ran = run_observed_turn(&platform, &principal, earlier, &()).now_or_never().expect("no wait");
        driver::read_to_end(ran.expect("a run"), None, None);
    }
    let observer = observers.open(&"c".into(), &"ada".into(), &id.into(), observers.now());
    let started = Event::RunStarted { thread_id: "t".into(), run_id: id.into() };
    let running = run_observed_turn(&platform, &principal, turn, &**observer);
    let events = match running.now_or_never().expect("no wait") {
        Ok(events) => read_and_cancel(events.with_observer(observer.event_observer()), cancelled_after),
        Err(error) => {
            let agent_core::turn::TurnError::Backend(error) = error else { panic!("{error}") };
            let (message, code) = (error.message().to_owned(), error.kind().code().to_owned());
            vec![started, Event::RunError { message, code, usage: Vec::new() }]
        }
    };
    let inputs = observer.inputs().expect("the inputs are kept");
    let RunRecord { timing, selection, prompt, attempts } = observer.record();
    let run = json!({"id": id, "threadId": "t", "turnId": id, "agentId": "a", "state": RunState::Completed,
        "trigger": {"kind": "chat"}, "nodeIds": [], "onDisconnect": "cancel", "attached": 0, "usage": [],
        "events": {"count": events.len(), "complete": true}, "createdAt": "2026-01-01T00:00:00.000Z"});
    let run = Run { timing, selection, attempts, ..serde_json::from_value(run).expect("a run") };
    let inputs = Some(serde_json::from_slice(&inputs).expect("inputs are read back"));
    let bundle = RunBundle { program: "test".to_owned(), run, prompt, inputs, events: Some(events) };
    Recorded { bundle, shapes }
}

/// Reads events to the end, or cancels the run after some of them or where it waits.
fn read_and_cancel(mut events: EventStream, after: Option<usize>) -> Vec<Event> {
    let mut read_events = Vec::new();
    let mut cancelled = false;
    loop {
        let next = std::future::poll_fn(|cx| Pin::new(&mut events).poll_next(cx));
        match driver::complete(next) {
            Some(Some(event)) => read_events.push(event),
            Some(None) => return read_events,
            None => assert!(!std::mem::replace(&mut cancelled, true), "a cancelled run ends"),
        }
        if cancelled || after == Some(read_events.len()) {
            events.finish(RunEnd::Finished {
                result: None,
                outcome: Some(RunOutcome::Cancelled),
                usage: vec![],
            });
        }
    }
}

fn replayed(bundle: RunBundle) -> ReplayReport {
    let replay = Replay::new(bundle).expect("inputs and events");
    let models = ReplayModels::new(Arc::new(ScriptedModel::new([])), replay.clone());
    let backend = EmbeddedBackend::new(models)
        .with_tools(replay.tools())
        .with_limits(Replay::limits(LoopLimits::default()));
    replay.run(&replay.platform().with_backend(backend))
}

fn recorded_runs() -> impl Iterator<Item = Recorded> {
    let mut numbers = Numbers(41);
    (0..200).map(move |run| record(shape(&mut numbers), &format!("run-{run}")))
}

#[test]
fn two_hundred_recorded_runs_are_replayed_without_a_difference() {
    let mut counts = BTreeMap::new();
    for (index, Recorded { bundle, shapes }) in recorded_runs().enumerate() {
        let text = bundle.to_json().expect("a bundle");
        assert!(!text.contains(PLANTED), "run {index} shows a secret");
        let read = RunBundle::parse(text.as_bytes()).expect("it is read back");
        assert_eq!(read.to_json().expect("a bundle"), text, "run {index} is written as it was read");
        let report = replayed(read);
        assert!(report.is_identical(), "run {index} ({shapes:?}): {report:#?}");
        shapes.into_iter().for_each(|shape| *counts.entry(shape).or_insert(0) += 1);
    }
    let expected = [
        "cancelled",
        "cut short",
        "documents",
        "error before an answer",
        "error within an answer",
        "history",
        "progress",
        "retrieved fragments",
        "several rounds",
        "tool errors",
        "tools",
        "visitor",
    ];
    for shape in expected {
        assert!(counts.get(shape).is_some_and(|count| *count >= 10), "{shape}: {counts:?}");
    }
}

/// Returns a recorded run with tools, documents and a complete answer.
fn full_run() -> RunBundle {
    let has_all = |recorded: &Recorded| {
        let has = |shape| recorded.shapes.contains(&shape);
        has("several rounds") && has("documents") && !has("cancelled") && !has("error before an answer")
    };
    recorded_runs().find(has_all).expect("one of them").bundle
}

fn names(comparison: &AspectComparison) -> Vec<&str> {
    match comparison {
        AspectComparison::Different(all) => all.iter().map(|difference| difference.name.as_str()).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn a_changed_part_is_named() {
    fn changed(change: impl FnOnce(&mut RunInputs)) -> ReplayReport {
        let mut bundle = full_run();
        change(bundle.inputs.as_mut().expect("inputs"));
        replayed(bundle)
    }
    let rules = changed(|inputs| inputs.role.content.rules = vec!["Be long.".to_owned()]);
    assert_eq!(names(&rules.prompt)[0], "rules", "{rules:?}");
    assert_eq!(
        (&rules.selection, &rules.tools),
        (&AspectComparison::Identical, &AspectComparison::Identical)
    );
    assert!(
        matches!(&rules.events, AspectComparison::Different(all) if all[0].name == "event 2"),
        "{rules:?}"
    );
    let document = changed(|inputs| {
        let mut fragments = inputs.fragments.iter_mut();
        fragments.find(|fragment| fragment.id == "doc:handbook").expect("it").text.push_str(" Twice.");
    });
    assert_eq!(names(&document.prompt)[0], "doc:handbook", "{document:?}");
    let tool = changed(|inputs| inputs.tools[1].description.push_str(" well"));
    assert_eq!(names(&tool.prompt)[0], format!("tool:{}", full_run().inputs.expect("inputs").tools[1].name));
    let backend = changed(|inputs| inputs.role.children.clear());
    assert!(matches!(&backend.selection, AspectComparison::Different(_)), "{backend:?}");
    let message = changed(|inputs| inputs.request.messages.push(Message::user("More?")));
    assert!(names(&message.prompt).contains(&"messages"), "{message:?}");
    let mut other = full_run();
    let events = other.events.as_mut().expect("events");
    // Results of the tools, and not of the loop itself, which does not ask them.
    for event in events {
        if let Event::ToolCallResult { content, metadata: None, .. } = event {
            content.push_str(" as dust");
        }
    }
    let result = replayed(other);
    let changed = names(&result.prompt);
    assert!(!changed.is_empty(), "{result:?}");
    assert!(changed.iter().all(|name| name.starts_with("request of round")), "{result:?}");
}

#[test]
fn a_changed_bundle_is_refused() {
    let text = full_run().to_json().expect("a bundle");
    let changed = text.replace("Be brief.", "Be long..");
    assert!(matches!(RunBundle::parse(changed.as_bytes()), Err(BundleError::Altered)));
    assert!(RunBundle::parse_changed(changed.as_bytes()).is_ok(), "it is read where changes are expected");
    let other = text.replace("agentd-run-bundle/1", "agentd-run-bundle/9");
    assert!(
        matches!(RunBundle::parse(other.as_bytes()), Err(BundleError::Format(found)) if found.ends_with("/9"))
    );
    let mut numbers = Numbers(7);
    for _ in 0..2_000 {
        let mut bytes = text.clone().into_bytes();
        match numbers.below(3) {
            0 => bytes.truncate(numbers.below(bytes.len())),
            1 => drop(bytes.remove(numbers.below(text.len()))),
            _ => {
                let position = numbers.below(bytes.len());
                bytes[position] ^= 1 << numbers.below(7);
            }
        }
        assert!(RunBundle::parse(&bytes).is_err(), "a change is found");
        // One that is read nevertheless is replayed or refused.
        if let Ok(bundle) = RunBundle::parse_changed(&bytes)
            && let Ok(replay) = Replay::new(bundle)
        {
            let models = ReplayModels::new(Arc::new(ScriptedModel::new([])), replay.clone());
            let backend = EmbeddedBackend::new(models).with_tools(replay.tools());
            replay.run(&replay.platform().with_backend(backend));
        }
    }
}

#[test]
fn a_run_without_inputs_or_events_is_not_replayed() {
    let without = RunBundle { inputs: None, ..full_run() };
    assert!(matches!(Replay::new(without), Err(BundleError::NoInputs)));
    let without = RunBundle { events: None, ..full_run() };
    assert!(matches!(Replay::new(without), Err(BundleError::NoEvents)));
}
