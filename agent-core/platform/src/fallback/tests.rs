use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_core::backend::ModelSource;
use agent_core::clock::Clock;
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::message::{Content, ContentPart, FinishReason, MediaSource, Message};
use agent_core::model::{Model, ModelEvent, ModelInfo, ModelRequest, ModelStream};
use agent_core::prompt::{Prompt, PromptMessage};
use agent_core::role::{EmbeddedAi, FallbackModel, RetrySettings};
use agent_core::testing::{ManualClock, ScriptedAnswer, ScriptedModel};
use agent_core::tool::{Caller, ExecutionContext, ToolChoice, WholeDelivery};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use serde_json::Value;

use super::*;
use crate::usage::{MemoryUsage, MeteredModels, PriceTable, UsageRecorder};

mod rounds;
mod whole;
mod windows;

/// Limit on the silence of answers that are delivered whole.
const SILENCE_LIMIT: Duration = Duration::from_secs(120);

/// Scripted models by their names, and the names of the models that were created.
#[derive(Clone, Default)]
struct ScriptedSource(Arc<Mutex<ScriptedModels>>, Arc<Mutex<Vec<String>>>);

/// Models with their names.
type ScriptedModels = Vec<(String, Arc<ScriptedModel>)>;

impl ModelSource for ScriptedSource {
    fn model(&self, settings: &EmbeddedAi) -> Result<Arc<dyn Model>, AgentError> {
        let name = settings.model.clone().unwrap_or_default();
        self.1.lock().expect("unpoisoned").push(name.clone());
        let found = self.0.lock().expect("unpoisoned").iter().find(|(model, _)| *model == name).cloned();
        let (_, model) = found.ok_or_else(|| AgentError::new(AgentErrorKind::NotConfigured, "no key"))?;
        Ok(model)
    }
}

/// Returns a recorder with a ledger in memory and without budgets.
pub(super) fn memory_recorder(clock: &ManualClock) -> UsageRecorder {
    let spawner = Arc::new(|task: BoxFuture<'static, ()>| {
        task.now_or_never();
    });
    let (store, prices) = (Arc::new(MemoryUsage::default()), PriceTable::built_in());
    UsageRecorder::new(store, prices, Arc::new(clock.clone()), spawner, None, None)
}

/// Models with a clock, circuits and a ledger.
struct FallbackFixture {
    source: ScriptedSource,
    clock: ManualClock,
    circuits: Arc<Circuits>,
    recorder: UsageRecorder,
}

impl FallbackFixture {
    fn new() -> Self {
        let clock = ManualClock::new();
        let recorder = memory_recorder(&clock);
        Self { source: ScriptedSource::default(), clock, circuits: Arc::default(), recorder }
    }

    fn model(&self, name: &str, window: usize, answers: Vec<ScriptedAnswer>) -> Arc<ScriptedModel> {
        let model = Arc::new(ScriptedModel::new(answers).with_info(ModelInfo {
            provider: "scripted".to_owned(),
            model: name.to_owned(),
            context_window: window,
            max_output_tokens: 16,
            supports_media: false,
            supports_tools: true,
        }));
        self.source.0.lock().expect("unpoisoned").push((name.to_owned(), model.clone()));
        model
    }

    fn run(&self, settings: &EmbeddedAi) -> Arc<dyn Model> {
        self.run_for(settings, false)
    }

    /// Returns the model of a run, whose answers are delivered whole or as they come.
    fn run_for(&self, settings: &EmbeddedAi, is_delivered_whole: bool) -> Arc<dyn Model> {
        let clock = Arc::new(self.clock.clone());
        let timed = FirstContentModels::new(self.source.clone(), Duration::from_secs(60), clock.clone());
        let defaults = FallbackDefaults {
            max_attempts: 2,
            max_wait: Duration::from_secs(10),
            fallbacks: vec![FallbackModel { model: Some("default".to_owned()), ..FallbackModel::default() }],
        };
        let limited = SilenceLimitedModels::new(timed, SILENCE_LIMIT, clock.clone());
        let metered = MeteredModels::new(limited, self.recorder.clone());
        let models = FallbackModels::new(metered, defaults, self.circuits.clone(), clock);
        let context = ExecutionContext {
            company_id: "c".into(),
            user_id: "ada".into(),
            agent_id: "a".into(),
            run_id: "r".into(),
            caller: Caller::Session,
            whole_delivery: is_delivered_whole.then(WholeDelivery::default),
            ..ExecutionContext::default()
        };
        models.model_for_run(settings, &context).expect("a model")
    }

    /// Calls a model until it has answered, and advances the clock to each wait.
    fn call(&self, model: &Arc<dyn Model>) -> Result<Vec<Result<ModelEvent, AgentError>>, AgentError> {
        self.finish(start(model))
    }

    /// Waits for the whole answer of a call that has started.
    fn finish(
        &self,
        starting: BoxFuture<'static, Result<ModelStream, AgentError>>,
    ) -> Result<Vec<Result<ModelEvent, AgentError>>, AgentError> {
        let mut stream = self.wait(starting)?;
        let mut events = Vec::new();
        while let Some(event) = self.wait(async { stream.next().await }.boxed()) {
            events.push(event);
        }
        Ok(events)
    }

    fn wait<T>(&self, mut work: BoxFuture<'_, T>) -> T {
        loop {
            if let Some(done) = (&mut work).now_or_never() {
                return done;
            }
            self.clock.advance_to_next().expect("the work waits for the clock alone");
        }
    }
}

fn start(model: &Arc<dyn Model>) -> BoxFuture<'static, Result<ModelStream, AgentError>> {
    let (payload, model) = (model.prepare(&request()), model.clone());
    async move { model.start(payload?).await }.boxed()
}

fn request() -> ModelRequest {
    ModelRequest {
        prompt: Arc::new(Prompt::new(vec![], vec![PromptMessage::new(Message::user("Hello"))])),
        appended_messages: Vec::new(),
        tools: Arc::new([]),
        tool_choice: ToolChoice::Auto,
        thinking: None,
        response_format: None,
    }
}

fn settings(fallbacks: &[&str]) -> EmbeddedAi {
    let fallback = |name: &&str| FallbackModel {
        model: Some((*name).to_owned()),
        base_url: Some(format!("https://{name}.example/v1")),
        ..FallbackModel::default()
    };
    EmbeddedAi {
        model: Some("first".to_owned()),
        base_url: Some("https://first.example/v1".to_owned()),
        fallbacks: fallbacks.iter().map(fallback).collect(),
        ..EmbeddedAi::default()
    }
}

fn error(kind: AgentErrorKind) -> AgentError {
    AgentError::new(kind, "it failed")
}

fn upstream(status: u16, word: &str) -> AgentError {
    let kind = if status == 429 { AgentErrorKind::RateLimited } else { AgentErrorKind::Failed };
    error(kind).with_source(UpstreamError::new(Some(status), [word], "an error"))
}

fn text(events: &[Result<ModelEvent, AgentError>]) -> String {
    let text = |event: &Result<ModelEvent, AgentError>| match event {
        Ok(ModelEvent::Text(text)) => Some(text.clone()),
        _ => None,
    };
    events.iter().filter_map(text).collect()
}

fn reports(events: &[Result<ModelEvent, AgentError>]) -> Vec<AttemptReport> {
    let report = |event: &Result<ModelEvent, AgentError>| match event {
        Ok(ModelEvent::Notice(report)) if report["kind"] == "modelAttempt" => {
            Some(serde_json::from_value(Value::Object(report.clone())).expect("a report"))
        }
        _ => None,
    };
    events.iter().filter_map(report).collect()
}

fn failing(error: AgentError) -> ScriptedAnswer {
    ScriptedAnswer::from_start_error(error)
}

#[test]
fn errors_have_classes() {
    use FailureClass::*;
    let plain = |kind| FailureClass::of(&error(kind));
    for (kind, class) in [
        (AgentErrorKind::Unreachable, Transient),
        (AgentErrorKind::Timeout, Transient),
        (AgentErrorKind::Truncated, Transient),
        (AgentErrorKind::Failed, Transient),
        (AgentErrorKind::RateLimited, RateLimit),
        (AgentErrorKind::ContextExceeded, Size),
        (AgentErrorKind::AccountRefused, Account),
        (AgentErrorKind::Blocked, Request),
        (AgentErrorKind::NotConfigured, Request),
        (AgentErrorKind::InvalidRequest, Request),
        (AgentErrorKind::OutputTooLarge, Request),
    ] {
        assert_eq!(plain(kind), class, "{kind:?}");
    }
    for (status, word, class) in [
        (Some(500), "server_error", Transient),
        (Some(529), "overloaded_error", Transient),
        (Some(503), "overloaded_error", Transient),
        (Some(408), "", Transient),
        (Some(429), "rate_limit_exceeded", RateLimit),
        (Some(429), "insufficient_quota", Account),
        (Some(429), "exceeded_current_quota_error", Account),
        (Some(429), "billing_not_active", Account),
        (None, "ACCOUNT_REFUSED", Account),
        (Some(401), "invalid_api_key", Account),
        (Some(402), "", Account),
        (Some(403), "", Account),
        (Some(404), "", Account),
        (Some(302), "", Account),
        (Some(400), "permission_denied", Account),
        (Some(413), "", Size),
        (Some(413), "rate_limit_exceeded", Unsupported),
        (Some(400), "context_length_exceeded", Size),
        (Some(400), "unsupported_capability", Unsupported),
        (Some(500), "unsupported_capability", Unsupported),
        (Some(400), "content_policy_violation", Content),
        (Some(400), "invalid_request_error", Request),
        (Some(422), "", Request),
        (Some(400), "tool_use_failed", Transient),
        (Some(400), "json_validate_failed", Transient),
        (Some(498), "capacity_exceeded", Transient),
        (Some(424), "generation", Transient),
        (Some(400), "UNKNOWN_PROVIDER", Account),
        (Some(501), "PROVIDER_NOT_IMPLEMENTED", Account),
        (Some(503), "NOT_CONFIGURED", Account),
        (None, "INTERNAL", Transient),
        (None, "rate_limit_exceeded", RateLimit),
        (None, "overloaded_error", RateLimit),
        (None, "server_error", Transient),
        (None, "api_error", Transient),
        (None, "timeout_error", Transient),
        (None, "authentication_error", Account),
        (None, "permission_error", Account),
        (None, "billing_error", Account),
        (None, "not_found_error", Account),
        (None, "request_too_large", Size),
        // Servers name it in a successful response for their own faults, too.
        (None, "invalid_request_error", Transient),
        (None, "429", RateLimit),
        (None, "502", Transient),
    ] {
        let cause = UpstreamError::new(status, [word], "");
        let class_found = FailureClass::of(&error(AgentErrorKind::Failed).with_source(cause));
        assert_eq!(class_found, class, "{status:?} {word}");
    }
}

#[test]
fn the_next_entry_answers_and_each_attempt_is_booked() {
    let fixture = FallbackFixture::new();
    fixture.model(
        "first",
        9_000,
        vec![failing(upstream(503, "x")), ScriptedAnswer::new().text("").fail(upstream(500, "x"))],
    );
    fixture.model(
        "second",
        9_000,
        vec![ScriptedAnswer::from_text("Hi."), ScriptedAnswer::from_text("Again.")],
    );
    let model = fixture.run(&settings(&["second"]));
    let events = fixture.call(&model).expect("an answer");
    assert_eq!(text(&events), "Hi.");
    let found: Vec<_> = reports(&events)
        .into_iter()
        .map(|report| (report.attempt, report.entry, report.model, report.reason, report.status))
        .collect();
    let failed = || Some("BACKEND_FAILED".to_owned());
    assert_eq!(
        found,
        [
            (Some(1), 0, "first".to_owned(), failed(), Some(503)),
            (Some(2), 0, "first".to_owned(), failed(), Some(500)),
            (Some(3), 1, "second".to_owned(), None, None),
        ]
    );
    // The next round begins with the entry that answered, and reports no attempts.
    let events = fixture.call(&model).expect("an answer");
    assert_eq!((text(&events), reports(&events)), ("Again.".to_owned(), Vec::new()));
    fixture.recorder.flush().now_or_never().expect("no wait");
    let (company, run) = ("c".into(), "r".into());
    let ledger = fixture.recorder.store().run_usage(&company, &run);
    let mut booked: Vec<_> = ledger
        .now_or_never()
        .expect("no wait")
        .expect("entries")
        .into_iter()
        .map(|entry| (entry.round, entry.attempt, entry.model, entry.outcome))
        .collect();
    booked.sort();
    let row =
        |round, attempt, model: &str, outcome: &str| (round, attempt, model.to_owned(), outcome.to_owned());
    assert_eq!(
        booked,
        [
            row(1, 1, "first", "BACKEND_FAILED"),
            row(1, 2, "first", "BACKEND_FAILED"),
            row(1, 3, "second", "ok"),
            row(2, 1, "second", "ok"),
        ]
    );
}

#[test]
fn a_fallback_is_created_when_it_is_first_needed() {
    let fixture = FallbackFixture::new();
    let answers = vec![ScriptedAnswer::from_text("Hi."), failing(upstream(401, "x"))];
    fixture.model("first", 9_000, answers);
    fixture.model("second", 9_000, vec![ScriptedAnswer::from_text("Hello.")]);
    fixture.model("third", 9_000, vec![]);
    let created = || std::mem::take(&mut *fixture.source.1.lock().expect("unpoisoned"));
    let model = fixture.run(&settings(&["second", "third"]));
    assert_eq!(text(&fixture.call(&model).expect("an answer")), "Hi.");
    assert_eq!(created(), ["first"]);
    assert_eq!(text(&fixture.call(&model).expect("an answer")), "Hello.");
    assert_eq!(created(), ["second"]);
}

#[test]
fn nothing_is_repeated_after_content() {
    for begun in [
        ScriptedAnswer::new().text("par"),
        ScriptedAnswer::new().reasoning("hm"),
        ScriptedAnswer::new().call("1", "look", ["{"]),
    ] {
        let fixture = FallbackFixture::new();
        fixture.model("first", 9_000, vec![begun.fail(upstream(500, "x"))]);
        let second = fixture.model("second", 9_000, vec![ScriptedAnswer::from_text("Hi.")]);
        let events = fixture.call(&fixture.run(&settings(&["second"]))).expect("an answer");
        let failures = events.iter().filter(|event| event.is_err()).count();
        assert_eq!((failures, second.unused_answers()), (1, 1));
        assert!(events.last().is_some_and(Result::is_err));
    }
}

#[test]
fn an_answer_without_content_in_time_is_given_up() {
    let fixture = FallbackFixture::new();
    fixture.model("first", 9_000, vec![ScriptedAnswer::new().text("").hang(), ScriptedAnswer::new().hang()]);
    fixture.model("second", 9_000, vec![ScriptedAnswer::from_text("Hi.")]);
    let first_content_ms = NonZeroU32::new(300);
    let retry = Some(RetrySettings { first_content_ms, ..RetrySettings::default() });
    let began = agent_core::clock::Clock::monotonic(&fixture.clock);
    let model = fixture.run(&EmbeddedAi { retry, ..settings(&["second"]) });
    let events = fixture.call(&model).expect("an answer");
    assert_eq!(text(&events), "Hi.");
    let reasons: Vec<_> = reports(&events).into_iter().filter_map(|report| report.reason).collect();
    assert_eq!(reasons, ["BACKEND_TIMEOUT", "BACKEND_TIMEOUT"]);
    let waited = agent_core::clock::Clock::monotonic(&fixture.clock) - began;
    assert!(waited <= Duration::from_millis(600 + 250), "{waited:?}");
}

#[test]
fn if_all_fail_the_error_is_the_first_entrys() {
    let fixture = FallbackFixture::new();
    let limited = |seconds| upstream(429, "x").with_retry_after(Duration::from_secs(seconds));
    fixture.model("first", 9_000, vec![failing(limited(90))]);
    fixture.model("second", 9_000, vec![failing(limited(40))]);
    fixture.model("third", 9_000, vec![failing(upstream(401, "x"))]);
    let error =
        fixture.call(&fixture.run(&settings(&["second", "missing", "third"]))).expect_err("none answers");
    assert_eq!(error.kind(), AgentErrorKind::RateLimited);
    assert_eq!(error.retry_after(), Some(Duration::from_secs(40)), "the shortest");
    let [("attempts", attempts)] = error.members() else { panic!("{:?}", error.members()) };
    let reasons: Vec<_> = attempts.as_array().expect("a list").iter().map(|a| &a["reason"]).collect();
    assert_eq!(reasons, ["RATE_LIMITED", "RATE_LIMITED", "NOT_CONFIGURED", "BACKEND_FAILED"]);
    assert_eq!(attempts[2].get("attempt"), None, "it was left out");
}

#[test]
fn a_short_delay_is_waited_for_and_a_long_one_is_not() {
    for (seconds, expected) in [(7, "first"), (11, "second"), (1_000_000_000, "second")] {
        let fixture = FallbackFixture::new();
        let limited = upstream(429, "x").with_retry_after(Duration::from_secs(seconds));
        fixture.model("first", 9_000, vec![failing(limited), ScriptedAnswer::from_text("first")]);
        fixture.model("second", 9_000, vec![ScriptedAnswer::from_text("second")]);
        let model = fixture.run(&settings(&["second"]));
        // The circuit is open as long as was asked, which the same round outwaits.
        assert_eq!(text(&fixture.call(&model).expect("an answer")), expected, "{seconds}");
    }
}

#[test]
fn a_rate_limit_without_an_end_leaves_the_address_to_the_fallback() {
    let second = Duration::from_secs(1);
    for delay in [None, Some(Duration::ZERO), Some(second)] {
        let bench = FallbackFixture::new();
        let limited = || match delay {
            Some(delay) => failing(upstream(429, "x").with_retry_after(delay)),
            None => failing(upstream(429, "x")),
        };
        let first = bench.model("first", 9_000, (0..100).map(|_| limited()).collect());
        bench.model("second", 9_000, (0..100).map(|_| ScriptedAnswer::from_text("Hi.")).collect());
        let mut settings = settings(&["second"]);
        settings.fallbacks[0].base_url.clone_from(&settings.base_url);
        for run in 0..100 {
            let events = bench.call(&bench.run(&settings)).expect("an answer");
            assert_eq!(text(&events), "Hi.", "{run} {delay:?}");
            bench.clock.advance(second);
        }
        let calls = 100 - first.unused_answers();
        assert!((5..=20).contains(&calls), "{calls} calls of the limited model");
    }
}

#[test]
fn a_refused_request_leaves_the_repetitions_to_others() {
    for failure in ["unsupported_capability", "content_policy_violation"] {
        let bench = FallbackFixture::new();
        bench.model("first", 9_000, (0..50).map(|_| failing(upstream(400, failure))).collect());
        bench.model("second", 9_000, (0..50).map(|_| ScriptedAnswer::from_text("Hi.")).collect());
        let also = vec!["content".to_owned()];
        let retry = Some(RetrySettings { also, ..RetrySettings::default() });
        let mut settings = EmbeddedAi { retry, ..settings(&["second"]) };
        settings.fallbacks[0].base_url.clone_from(&settings.base_url);
        for run in 0..50 {
            let events = bench.call(&bench.run(&settings)).expect("an answer");
            assert_eq!(text(&events), "Hi.", "{run} {failure}");
        }
    }
}

#[test]
fn concurrent_runs_of_an_only_model_wait_for_its_rate_limit() {
    let bench = FallbackFixture::new();
    let delay = Duration::from_secs(2);
    let limited = || failing(upstream(429, "x").with_retry_after(delay));
    let answers = (0..3).map(|_| limited()).chain((0..3).map(|_| ScriptedAnswer::from_text("Hi.")));
    let model = bench.model("first", 9_000, answers.collect());
    let mut calls: Vec<_> = (0..3).map(|_| start(&bench.run(&settings(&[])))).collect();
    assert!(calls.iter_mut().all(|call| call.now_or_never().is_none()), "each waits");
    assert_eq!(model.unused_answers(), 3);
    bench.clock.advance(delay);
    for call in calls {
        assert_eq!(text(&bench.finish(call).expect("an answer")), "Hi.");
    }
    // Beyond the budget of repetitions, none waits for a call that will not be made.
    for _ in 0..20 {
        model.push(limited());
        model.push(ScriptedAnswer::from_text("Hi."));
        if bench.call(&bench.run(&settings(&[]))).is_err() {
            return;
        }
    }
    panic!("the repetitions are bounded");
}

#[test]
fn a_larger_window_is_needed_after_an_overflow() {
    let fixture = FallbackFixture::new();
    fixture.model("first", 2_000, vec![failing(error(AgentErrorKind::ContextExceeded))]);
    let small = fixture.model("small", 1_000, vec![ScriptedAnswer::from_text("small")]);
    fixture.model("large", 9_000, vec![ScriptedAnswer::from_text("large")]);
    let events = fixture.call(&fixture.run(&settings(&["small", "large"]))).expect("an answer");
    assert_eq!((text(&events), small.unused_answers()), ("large".to_owned(), 1));
}

#[test]
fn invalid_requests_and_refused_content_go_nowhere_else() {
    for (failure, also, expected) in [
        (upstream(400, "invalid_request_error"), false, None),
        (error(AgentErrorKind::Blocked), false, None),
        (upstream(400, "content_policy_violation"), false, None),
        (upstream(400, "content_policy_violation"), true, Some("second")),
    ] {
        let fixture = FallbackFixture::new();
        fixture.model("first", 9_000, vec![failing(failure)]);
        fixture.model("second", 9_000, vec![ScriptedAnswer::from_text("second")]);
        let also = if also { vec!["content".to_owned()] } else { Vec::new() };
        let retry = Some(RetrySettings { also, ..RetrySettings::default() });
        let answer = fixture.call(&fixture.run(&EmbeddedAi { retry, ..settings(&["second"]) }));
        assert_eq!(answer.ok().map(|events| text(&events)).as_deref(), expected);
    }
    let fixture = FallbackFixture::new();
    let filtered = || ScriptedAnswer::new().finish(FinishReason::ContentFilter);
    fixture.model("first", 9_000, vec![filtered(), filtered()]);
    fixture.model("second", 9_000, vec![ScriptedAnswer::from_text("second")]);
    let events = fixture.call(&fixture.run(&settings(&["second"]))).expect("an answer");
    assert_eq!(text(&events), "", "the filter's end is the answer");
    let retry = Some(RetrySettings { also: vec!["content".to_owned()], ..RetrySettings::default() });
    let events =
        fixture.call(&fixture.run(&EmbeddedAi { retry, ..settings(&["second"]) })).expect("an answer");
    assert_eq!(text(&events), "second");
}

#[test]
fn a_client_that_leaves_during_the_wait_makes_no_further_call() {
    let fixture = FallbackFixture::new();
    let first =
        fixture.model("first", 9_000, vec![failing(upstream(503, "x")), ScriptedAnswer::from_text("late")]);
    let model = fixture.run(&settings(&[]));
    let mut starting = start(&model);
    if (&mut starting).now_or_never().is_none() {
        drop(starting);
        fixture.clock.advance(Duration::from_secs(60));
        assert_eq!(first.unused_answers(), 1);
    } else {
        panic!("a wait of no length");
    }
}

#[test]
fn a_failing_key_opens_only_its_own_circuit() {
    let fixture = FallbackFixture::new();
    let first = fixture.model("first", 9_000, (0..1_000).map(|_| failing(upstream(503, "x"))).collect());
    let second =
        fixture.model("second", 9_000, (0..1_000).map(|_| ScriptedAnswer::from_text("Hi.")).collect());
    for _ in 0..1_000 {
        let model = fixture.run(&settings(&["second"]));
        assert_eq!(text(&fixture.call(&model).expect("an answer")), "Hi.");
    }
    assert_eq!(second.unused_answers(), 0);
    let calls = 1_000 - first.unused_answers();
    assert!((5..=100).contains(&calls), "{calls} calls of the dead model");
    // Another tenant with a separate key is not affected.
    first.push(ScriptedAnswer::from_text("mine"));
    let own_key_settings =
        EmbeddedAi { api_key: Some(agent_core::secret::Secret::new("own")), ..settings(&["second"]) };
    let before = first.unused_answers();
    second.push(ScriptedAnswer::from_text("Hi."));
    fixture.call(&fixture.run(&own_key_settings)).expect("an answer");
    assert!(first.unused_answers() < before);
}

#[test]
fn five_entries_at_one_dead_address_are_called_within_the_budget() {
    let fixture = FallbackFixture::new();
    let model = fixture.model("first", 9_000, (0..5_000).map(|_| failing(upstream(503, "x"))).collect());
    let same = FallbackModel {
        model: Some("first".to_owned()),
        base_url: Some("https://first.example/v1".to_owned()),
        ..FallbackModel::default()
    };
    let settings = EmbeddedAi { fallbacks: vec![same; 4], ..settings(&[]) };
    for _ in 0..200 {
        assert!(fixture.call(&fixture.run(&settings)).is_err());
    }
    let calls = 5_000 - model.unused_answers();
    assert!((200..=220).contains(&calls), "{calls} calls for 200 runs");
}

#[test]
fn a_call_that_a_budget_refuses_closes_no_circuit() {
    let fixture = FallbackFixture::new();
    let spent = failing(error(AgentErrorKind::BudgetExceeded));
    fixture.model("first", 9_000, vec![failing(upstream(401, "x")), spent, ScriptedAnswer::from_text("Hi.")]);
    let model = fixture.run(&settings(&[]));
    let circuit = || preview_attempts(&model.prepare(&request()).expect("a payload"), false)[0].circuit;
    assert!(fixture.call(&fixture.run(&settings(&[]))).is_err());
    assert_eq!(circuit(), CircuitState::Open);
    fixture.clock.advance(Duration::from_secs(61));
    assert!(fixture.call(&fixture.run(&settings(&[]))).is_err());
    assert_eq!(circuit(), CircuitState::HalfOpen, "the model was not called");
    fixture.call(&fixture.run(&settings(&[]))).expect("an answer");
    assert_eq!(circuit(), CircuitState::Closed);
}

#[test]
fn containers_without_a_model_have_the_default_fallbacks() {
    let fixture = FallbackFixture::new();
    fixture.model("", 9_000, vec![failing(upstream(401, "x"))]);
    fixture.model("default", 9_000, vec![ScriptedAnswer::from_text("default")]);
    let events = fixture.call(&fixture.run(&EmbeddedAi::default())).expect("an answer");
    assert_eq!(text(&events), "default");
}

#[test]
fn a_preview_shows_the_request_of_each_entry_as_it_is_sent() {
    let fixture = FallbackFixture::new();
    let first = fixture.model("first", 9_000, vec![failing(upstream(401, "x"))]);
    fixture.model("small", 17, vec![]);
    let large = fixture.model("large", 8_000, vec![ScriptedAnswer::from_text("Hi.")]);
    let model = fixture.run(&settings(&["small", "missing", "large"]));
    let payload = model.prepare(&request()).expect("a payload");
    let shown = preview_attempts(&payload, true);
    let summary: Vec<_> = shown.iter().map(|attempt| (attempt.eligible, attempt.reason)).collect();
    assert_eq!(
        summary,
        [(true, None), (true, None), (false, Some("NOT_CONFIGURED")), (true, None)],
        "the scripted model counts no tokens"
    );
    assert_eq!(
        shown.iter().map(|attempt| attempt.max_prompt_tokens).collect::<Vec<_>>(),
        [8_984, 1, 0, 7_984]
    );
    assert_eq!(shown[0].request_sha256.as_deref(), Some(payload.sha256().as_str()));
    assert!(preview_attempts(&payload, false).iter().all(|attempt| attempt.payload.is_none()));
    let model = fixture.run(&settings(&["large"]));
    fixture.call(&model).expect("an answer");
    let sent = |model: &ScriptedModel| model.payloads().last().expect("a call").sha256();
    assert_eq!(shown[0].request_sha256, Some(sent(&first)));
    assert_eq!(shown[3].request_sha256, Some(sent(&large)));
    // The account's refusal has opened the circuit.
    let payload = model.prepare(&request()).expect("a payload");
    let shown = preview_attempts(&payload, false);
    assert_eq!((shown[0].circuit, shown[0].reason), (CircuitState::Open, Some("CIRCUIT_OPEN")));
    assert_eq!(fixture.circuits.open_count(fixture.clock.monotonic()), 1);
    let text = serde_json::to_string(&shown[0]).expect("JSON");
    assert!(text.contains(r#""circuit":"open""#) && !text.contains("payload"), "{text}");
}

#[test]
fn a_request_of_another_instance_is_a_call_of_the_run() {
    let fixture = FallbackFixture::new();
    fixture.model(
        "first",
        9_000,
        vec![ScriptedAnswer::from_text("Hi."), ScriptedAnswer::from_text("Again.")],
    );
    let payload = fixture.run(&settings(&[])).prepare(&request()).expect("a payload");
    let model = fixture.run(&settings(&[]));
    drop(fixture.wait(model.start(payload)).expect("an answer"));
    fixture.call(&model).expect("an answer");
    fixture.recorder.flush().now_or_never().expect("no wait");
    let ledger = fixture.recorder.store().run_usage(&"c".into(), &"r".into()).now_or_never();
    let booked = ledger.expect("no wait").expect("entries");
    let mut rounds: Vec<_> = booked.iter().map(|entry| (entry.round, entry.attempt)).collect();
    rounds.sort_unstable();
    assert_eq!(rounds, [(1, 1), (2, 1)]);
}

#[test]
fn a_model_that_supports_all_content_is_preferred_to_notes() {
    let fixture = FallbackFixture::new();
    let first = fixture.model("first", 4_096, vec![ScriptedAnswer::from_text("A plant.")]);
    let images = Arc::new(ScriptedModel::new([failing(upstream(401, "x"))]));
    fixture.source.0.lock().expect("unpoisoned").push(("images".to_owned(), images.clone()));
    let source = MediaSource::Url { value: "https://example.com/a.png".into(), mime_type: None };
    let content = Content::Parts(vec![ContentPart::Image { source }]);
    let image = PromptMessage::new(Message { content, ..Message::user("") });
    let request_of = |messages: Vec<Arc<PromptMessage>>| ModelRequest {
        prompt: Arc::new(Prompt::new(vec![], messages)),
        ..request()
    };
    let question = PromptMessage::new(Message::user("And now?"));
    let earlier_image = request_of(vec![image.clone(), question]);

    let model = fixture.run(&settings(&["images"]));
    let payload = model.prepare(&earlier_image).expect("a model for images");
    let reasons: Vec<_> =
        preview_attempts(&payload, false).into_iter().map(|attempt| attempt.reason).collect();
    assert_eq!((prepared_entry(&payload), reasons), (1, vec![None, None]));
    // The model for images fails, and the other model gets the note.
    let mut stream = fixture.wait(model.start(payload)).expect("an answer");
    let mut events = Vec::new();
    while let Some(event) = fixture.wait(async { stream.next().await }.boxed()) {
        events.push(event);
    }
    assert_eq!(text(&events), "A plant.");
    let with_notes = |model: &ScriptedModel| {
        let sent = model.sent_requests().into_iter();
        sent.map(|body| body.to_string().contains("[image, not sent]")).collect::<Vec<_>>()
    };
    assert_eq!((with_notes(&images), with_notes(&first)), (vec![false], vec![true]));

    let text_only = fixture.run(&settings(&[]));
    let payload = text_only.prepare(&earlier_image).expect("the latest message is text");
    let body = String::from_utf8_lossy(payload.bytes());
    assert!(body.contains("[image, not sent]") && !body.contains("example.com"), "{body}");
    assert!(text_only.info().supports_media, "the model itself refuses or replaces media");
    let refused = text_only.prepare(&request_of(vec![image])).err().map(|error| error.kind());
    assert_eq!(refused, Some(AgentErrorKind::UnsupportedContent));
}
