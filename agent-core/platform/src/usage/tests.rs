//! The recorder and the metered models and backends.

mod ledger;

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use agent_core::backend::ModelSource;
use agent_core::clock::SystemClock;
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::event::{Event, EventStream, RunEnd, RunIds, SourceEvent};
use agent_core::ids::{CompanyId, RunId};
use agent_core::message::{FinishReason, Usage};
use agent_core::model::{Model, ModelEvent, ModelStream};
use agent_core::payload::Payload;
use agent_core::role::EmbeddedAi;
use agent_core::select::BackendKind;
use agent_core::store_error::StoreError;
use agent_core::testing::{ManualClock, ScriptedAnswer, ScriptedModel};
use agent_core::tool::{Caller, ExecutionContext};
use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use jiff::Timestamp;

use super::backend::RunMeter;
use super::budget::RunReservation;
use super::call::MeteredCall;
use super::*;
use crate::spawner::Spawner;

const PRICES: &str = r#"{"asOf":"2026-01-01","models":[
    {"provider":"scripted","model":"script-1","prices":{"input":"1","cachedInput":"0.1","output":"10"}},
    {"provider":"p","model":"a","prices":{"input":"2","output":"20"}}]}"#;

fn spawner() -> Arc<dyn Spawner> {
    Arc::new(|task| drop(tokio::spawn(task)))
}

fn recorder(store: Arc<dyn UsageStore>) -> UsageRecorder {
    let prices = PriceTable::empty().merged(PRICES).expect("prices");
    UsageRecorder::new(store, prices, Arc::new(SystemClock), spawner(), None, None)
}

fn context() -> ExecutionContext {
    ExecutionContext {
        user_id: "widget:t:00ff".into(),
        company_id: "acme".into(),
        agent_id: "guide".into(),
        run_id: "run".into(),
        caller: Caller::Widget,
        ..ExecutionContext::default()
    }
}

async fn entries(usage: &UsageRecorder) -> Vec<UsageEntry> {
    usage.flush().await;
    usage.store().run_usage(&"acme".into(), &"run".into()).await.expect("entries")
}

/// Outcome, tokens of input and output, cost in nano-dollars, and the mark of estimates.
type Booked = (String, u64, u64, Option<i64>, bool);

fn booked(entry: &UsageEntry) -> Booked {
    let TokenCounts { input_tokens, output_tokens, .. } = entry.tokens;
    let cost = entry.cost.map(NanoUsd::get);
    (entry.outcome.clone(), input_tokens, output_tokens, cost, entry.estimated)
}

fn expected(outcome: &str, input: u64, output: u64, cost: Option<i64>, estimated: bool) -> Booked {
    (outcome.to_owned(), input, output, cost, estimated)
}

/// Calls a metered model with a prompt of 40 bytes, and reads at most `events` of its answer.
async fn call(usage: &UsageRecorder, answer: ScriptedAnswer, events: usize) {
    let models = MeteredModels::new(Arc::new(ScriptedModel::new([answer])), usage.clone());
    let model = models.model_for_run(&EmbeddedAi::default(), &context()).expect("a model");
    let Ok(mut stream) = model.start(Payload::text("x".repeat(40))).await else { return };
    for _ in 0..events {
        if !matches!(stream.next().await, Some(Ok(_))) {
            break;
        }
    }
}

#[tokio::test]
async fn each_end_of_a_call_is_booked() {
    let text = || ScriptedAnswer::new().text("12345678");
    let failed = || AgentError::new(AgentErrorKind::Failed, "no");
    let cases = [
        ("ok", text().usage(7, 3).finish(FinishReason::Stop), 9, expected("ok", 7, 3, Some(37_000), false)),
        (
            "usage twice",
            text().usage(7, 3).usage(7, 4).finish(FinishReason::Stop),
            9,
            expected("ok", 7, 4, Some(47_000), false),
        ),
        ("no usage", text().finish(FinishReason::Stop), 9, expected("ok", 10, 2, Some(30_000), true)),
        (
            "absurd usage",
            text().usage(1 << 63, u64::MAX).finish(FinishReason::Stop),
            9,
            expected("ok", 10, 2, Some(30_000), true),
        ),
        ("left at once", text(), 0, expected("cancelled", 10, 0, Some(10_000), true)),
        ("left later", text().usage(7, 3), 1, expected("cancelled", 10, 2, Some(30_000), true)),
        ("left after usage", text().usage(7, 3), 2, expected("cancelled", 7, 3, Some(37_000), false)),
        ("failed", text().fail(failed()), 9, expected("BACKEND_FAILED", 10, 2, Some(30_000), true)),
        ("cut off", text(), 9, expected("STREAM_TRUNCATED", 10, 2, Some(30_000), true)),
    ];
    for (name, answer, events, expected) in cases {
        let usage = recorder(Arc::new(MemoryUsage::default()));
        call(&usage, answer, events).await;
        let entries = entries(&usage).await;
        assert_eq!(entries.iter().map(booked).collect::<Vec<_>>(), [expected], "{name}");
        let entry = &entries[0];
        assert_eq!(
            (entry.scope.user_id.as_str(), entry.scope.caller),
            ("widget:t", Caller::Widget),
            "{name}"
        );
        assert_eq!((entry.round, entry.attempt), (1, 1), "{name}");
        assert_eq!(entry.price_as_of.as_deref(), Some("2026-01-01"), "{name}");
    }
}

/// A model whose starts end as the list says; `None` stands for one that never ends.
struct StubbornModel(ScriptedModel, Mutex<Vec<Option<AgentErrorKind>>>);

#[async_trait]
impl Model for StubbornModel {
    fn info(&self) -> agent_core::model::ModelInfo {
        self.0.info()
    }

    fn prepare(&self, request: &agent_core::model::ModelRequest) -> Result<Payload, AgentError> {
        self.0.prepare(request)
    }

    async fn start(&self, payload: Payload) -> Result<ModelStream, AgentError> {
        let next = self.1.lock().expect("a lock").pop();
        match next {
            Some(Some(kind)) => Err(AgentError::new(kind, "refused")),
            Some(None) => std::future::pending().await,
            None => self.0.start(payload).await,
        }
    }
}

#[tokio::test]
async fn a_call_has_the_name_of_the_model_that_was_asked_for() {
    for (reported, expected) in [
        ("script-1", "script-1"),
        ("script-1-2026-01-31", "script-1"),
        ("Script-1", "script-1"),
        ("SCRIPT-1-20260131", "script-1"),
        ("unpriced", "script-1"),
    ] {
        let usage = recorder(Arc::new(MemoryUsage::default()));
        let report = Usage {
            model: Some(reported.to_owned()),
            input_tokens: Some(7),
            output_tokens: Some(3),
            ..Usage::default()
        };
        let answer = ScriptedAnswer::new().event(ModelEvent::Usage(report)).finish(FinishReason::Stop);
        call(&usage, answer, 9).await;
        let found: Vec<_> = entries(&usage)
            .await
            .into_iter()
            .map(|entry| (entry.model, entry.cost.map(NanoUsd::get)))
            .collect();
        assert_eq!(found, [(expected.to_owned(), Some(37_000))], "{reported}");
    }
}

#[tokio::test]
async fn a_dated_name_that_was_asked_for_is_kept_in_its_case() {
    let usage = recorder(Arc::new(MemoryUsage::default()));
    let scope = RunScope::from(&context());
    let mut call = MeteredCall::new(usage.clone(), scope, ("scripted", "Script-1-2026-01-31"), 10);
    call.set_usage(vec![reported("scripted", "script-1-2026-01-31", 7)]);
    drop(call);
    let found: Vec<_> =
        entries(&usage).await.into_iter().map(|entry| (entry.model, entry.cost.is_some())).collect();
    assert_eq!(found, [("Script-1-2026-01-31".to_owned(), true)]);
}

#[tokio::test]
async fn usage_without_a_name_is_that_of_the_model_that_was_asked_for() {
    let report = Usage { input_tokens: Some(7), output_tokens: Some(3), ..Usage::default() };
    let answer = ScriptedAnswer::new().event(ModelEvent::Usage(report)).finish(FinishReason::Stop);
    let usage = recorder(Arc::new(MemoryUsage::default()));
    let models = MeteredModels::new(Arc::new(ScriptedModel::new([answer])), usage);
    let model = models.model_for_run(&EmbeddedAi::default(), &context()).expect("a model");
    let events: Vec<_> = model.start(Payload::text("{}")).await.expect("an answer").collect().await;
    let mut reports = events.into_iter().filter_map(|event| match event {
        Ok(ModelEvent::Usage(usage)) => Some(usage),
        _ => None,
    });
    let mut run = vec![Usage { model: Some("other".to_owned()), input_tokens: Some(1), ..Usage::default() }];
    reports.next().expect("a report").add_to(&mut run);
    let rows: Vec<_> = run.iter().map(|usage| (usage.model.as_deref(), usage.input_tokens)).collect();
    assert_eq!(rows, [(Some("other"), Some(1)), (Some("script-1"), Some(7))]);
}

#[tokio::test]
async fn calls_that_do_not_begin_are_attempts_at_the_same_round() {
    let usage = recorder(Arc::new(MemoryUsage::default()));
    let answers = [1, 2].map(|n| ScriptedAnswer::new().usage(n, n).finish(FinishReason::Stop));
    let starts = vec![None, Some(AgentErrorKind::Timeout), Some(AgentErrorKind::RateLimited)];
    let stubborn = StubbornModel(ScriptedModel::new(answers), Mutex::new(starts));
    let models = MeteredModels::new(Arc::new(stubborn), usage.clone());
    let model = models.model_for_run(&EmbeddedAi::default(), &context()).expect("a model");
    let payload = || Payload::text("x".repeat(40));
    for _ in 0..2 {
        model.start(payload()).await.err().expect("refused");
    }
    let abandoned = futures_util::FutureExt::now_or_never(model.start(payload()));
    assert!(abandoned.is_none(), "its caller has left");
    for _ in 0..2 {
        model.start(payload()).await.expect("an answer").for_each(async |_| ()).await;
    }
    let found: Vec<_> =
        entries(&usage).await.iter().map(|entry| (entry.round, entry.attempt, booked(entry))).collect();
    let expected = [
        (1, 1, expected("RATE_LIMITED", 0, 0, Some(0), false)),
        (1, 2, expected("BACKEND_TIMEOUT", 10, 0, Some(10_000), true)),
        (1, 3, expected("cancelled", 10, 0, Some(10_000), true)),
        (1, 4, expected("ok", 1, 1, Some(11_000), false)),
        (2, 1, expected("ok", 2, 2, Some(22_000), false)),
    ];
    assert_eq!(found, expected);
}

/// Runs a metered stream of another service, and reads at most `count` of its events.
async fn run(usage: &UsageRecorder, events: Vec<Result<SourceEvent, AgentError>>, count: usize) {
    let scope = RunScope::from(&context());
    let call = MeteredCall::new(usage.clone(), scope.clone(), ("p", "a"), 10);
    let ids = RunIds { thread_id: "t".into(), run_id: "run".into() };
    let meter = RunMeter::new(
        usage.clone(),
        (scope, None),
        BackendKind::Workflow,
        (Some(call), RunReservation::default()),
    );
    let events = stream::iter(events).chain(stream::pending());
    EventStream::new(ids, events).with_observer(Box::new(meter)).take(count).for_each(async |_| ()).await;
}

fn reported(provider: &str, model: &str, tokens: u64) -> Usage {
    Usage {
        provider: Some(provider.to_owned()),
        model: Some(model.to_owned()),
        input_tokens: Some(tokens),
        output_tokens: Some(tokens),
        ..Usage::default()
    }
}

#[tokio::test]
async fn a_run_elsewhere_is_booked_by_its_report() {
    let text = || {
        let id = agent_core::event::Id::from("m");
        let start = Event::TextMessageStart {
            message_id: id.clone(),
            role: agent_core::event::AssistantRole::Assistant,
        };
        let content = Event::TextMessageContent { message_id: id, delta: "12345678".to_owned() };
        vec![Ok(SourceEvent::Event(start)), Ok(SourceEvent::Event(content))]
    };
    let end = |usage| Ok(SourceEvent::End(RunEnd::Finished { result: None, outcome: None, usage }));
    let two = vec![reported("p", "a-2026-01-01", 1), reported("q", "b\n", 2)];
    let many = (0..40).map(|n| reported("q", &format!("m{n}"), 1)).collect();
    let failure = AgentError::new(AgentErrorKind::Failed, "no").with_usage(vec![reported("p", "a", 3)]);
    type Row = (&'static str, &'static str, Booked);
    type Events = Vec<Result<SourceEvent, AgentError>>;
    let other = |model| ("q", model, expected("ok", 1, 1, None, false));
    let models =
        ["m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "m9", "m10", "m11", "m12", "m13", "m14"];
    let mut sixteen: Vec<Row> = models.map(other).to_vec();
    sixteen.push(("other", "other", expected("ok", 25, 25, None, false)));
    let cases: [(&str, Events, usize, Vec<Row>); 6] = [
        (
            "two models",
            [text(), vec![end(two)]].concat_results(),
            99,
            vec![
                ("p", "a", expected("ok", 1, 1, Some(22_000), false)),
                ("q", "b", expected("ok", 2, 2, None, false)),
            ],
        ),
        ("many models", [text(), vec![end(many)]].concat_results(), 99, sixteen),
        (
            "no report",
            [text(), vec![end(Vec::new())]].concat_results(),
            99,
            vec![("p", "a", expected("ok", 10, 2, Some(60_000), true))],
        ),
        (
            "a failure",
            [text(), vec![Err(failure)]].concat_results(),
            99,
            vec![("p", "a", expected("BACKEND_FAILED", 3, 3, Some(66_000), false))],
        ),
        ("left", text(), 3, vec![("p", "a", expected("cancelled", 10, 2, Some(60_000), true))]),
        ("left at once", text(), 0, vec![("p", "a", expected("cancelled", 10, 0, Some(20_000), true))]),
    ];
    for (name, events, count, expected) in cases {
        let usage = recorder(Arc::new(MemoryUsage::default()));
        // A stream that has ended stays pending, so that only its events are read.
        let last = events.iter().any(|event| matches!(event, Err(_) | Ok(SourceEvent::End(_))));
        let count = if last { events.len() + 2 } else { count };
        run(&usage, events, count).await;
        let entries = entries(&usage).await;
        let rows: Vec<_> = entries
            .iter()
            .map(|entry| (entry.provider.as_str(), entry.model.as_str(), booked(entry)))
            .collect();
        assert_eq!(rows, expected, "{name}");
    }
}

/// Concatenation of lists whose items cannot be cloned.
trait ConcatResults {
    fn concat_results(self) -> Vec<Result<SourceEvent, AgentError>>;
}

impl ConcatResults for [Vec<Result<SourceEvent, AgentError>>; 2] {
    fn concat_results(self) -> Vec<Result<SourceEvent, AgentError>> {
        self.into_iter().flatten().collect()
    }
}

#[tokio::test]
async fn tool_calls_of_a_run_are_one_entry() {
    let usage = recorder(Arc::new(MemoryUsage::default()));
    let scope = RunScope::from(&context());
    let meter = RunMeter::new(
        usage.clone(),
        (scope.clone(), None),
        BackendKind::Embedded,
        (None, RunReservation::default()),
    );
    for _ in 0..3 {
        usage.book_tool_call(scope.clone(), Some("look"), "ok");
    }
    assert_eq!(entries(&usage).await, [], "the run goes on");
    drop(meter);
    let found = entries(&usage).await;
    assert_eq!(found.iter().map(|entry| entry.tool_calls).collect::<Vec<_>>(), [3]);
    assert!(!found[0].is_model_call());
    usage.book_tool_call(scope, Some("look"), "ok");
    assert_eq!(
        entries(&usage).await.len(),
        2,
        "a call after the end, as of a remote runtime, is booked at once"
    );
}
