use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use agent_core::budget::TokenBudget;
use agent_core::event::{AssistantRole, EventGrammar, ReportedToolCalls};
use agent_core::run_token::RunToken;
use agent_core::secret::Secret;
use agent_core::testing::{FakeReportedCalls, ManualClock, backend_turn};
use agent_core::tool::Caller;
use futures_util::{FutureExt, StreamExt, stream};
use serde_json::json;

use super::*;
use crate::fallback::tests::memory_recorder;
use crate::fallback::{CircuitState, FirstContentServers, preview_attempts};
use crate::usage::UsageRecorder;

type Answer = Result<Vec<Result<SourceEvent, AgentError>>, AgentError>;

/// Runtimes by their addresses, with the answers to their calls. An answer without an end hangs.
#[derive(Clone, Default)]
struct ScriptedServers(Arc<Mutex<ServerScripts>>);

#[derive(Default)]
struct ServerScripts {
    answers: Vec<(String, VecDeque<Answer>)>,
    /// Addresses and hashes of the requests.
    calls: Vec<(String, String)>,
    /// Reported as called with the first request.
    tool_calls: Option<FakeReportedCalls>,
}

#[async_trait]
impl Backend for ScriptedServers {
    type Settings = AgentServer;

    fn capabilities(&self, settings: &AgentServer) -> Result<BackendCapabilities, AgentError> {
        // The window of the model `small` has no room for a prompt.
        let max_prompt_tokens =
            if settings.agent_server_model.as_deref() == Some("small") { 0 } else { 1_000 };
        Ok(BackendCapabilities::new(TokenBudget { max_prompt_tokens }))
    }

    fn prepare(&self, settings: &AgentServer, turn: Arc<Turn>) -> Result<PreparedRequest, AgentError> {
        let mut body = Payload::builder(64);
        body.raw(r#"{"url":"#).json(&settings.agent_server_url).raw(r#","key":"#);
        body.secret(settings.agent_server_api_key.as_ref().map_or("", Secret::expose)).raw("}");
        body.prompt_tokens(Some(turn.prompt.tokens().total().max(1)));
        Ok(PreparedRequest { payload: body.finish(), turn })
    }

    async fn start(
        &self,
        settings: &AgentServer,
        prepared: PreparedRequest,
    ) -> Result<EventStream, AgentError> {
        let PreparedRequest { payload, turn } = prepared;
        let url = settings.agent_server_url.clone().unwrap_or_default();
        let mut scripts = self.0.lock().expect("unpoisoned");
        scripts.calls.push((url.clone(), payload.sha256()));
        if let Some(calls) = scripts.tool_calls.take() {
            calls.start_call("createTodo");
        }
        let answers = scripts.answers.iter_mut().find(|(name, _)| *name == url);
        let events = answers.and_then(|(_, answers)| answers.pop_front()).expect("an answer")?;
        Ok(EventStream::new(turn.run.clone(), stream::iter(events).chain(stream::pending())))
    }
}

/// Agent servers with a clock, circuits and a ledger.
struct ServerFixture {
    servers: ScriptedServers,
    clock: ManualClock,
    circuits: Arc<Circuits>,
    recorder: UsageRecorder,
}

impl ServerFixture {
    fn new() -> Self {
        let clock = ManualClock::new();
        let recorder = memory_recorder(&clock);
        Self { servers: ScriptedServers::default(), clock, circuits: Arc::default(), recorder }
    }

    fn server(&self, name: &str, answers: impl IntoIterator<Item = Answer>) {
        let answers = answers.into_iter().collect();
        self.servers.0.lock().expect("unpoisoned").answers.push((url_of(name), answers));
    }

    /// Returns the names of the servers that were called.
    fn called(&self) -> Vec<String> {
        let scripts = self.servers.0.lock().expect("unpoisoned");
        scripts.calls.iter().map(|(url, _)| url["https://".len()..].replace(".example", "")).collect()
    }

    fn backend(&self) -> FallbackServers {
        let clock = Arc::new(self.clock.clone());
        let servers = FirstContentServers::new(self.servers.clone(), Duration::from_secs(60), clock.clone());
        let servers = MeteredServers::new(servers, self.recorder.clone());
        let defaults =
            FallbackDefaults { max_attempts: 2, max_wait: Duration::from_secs(10), fallbacks: Vec::new() };
        FallbackServers::new(servers, defaults, self.circuits.clone(), clock)
    }

    /// Runs a turn to its end, and advances the clock to each wait.
    fn run(&self, settings: &AgentServer) -> Result<Vec<Event>, AgentError> {
        self.run_turn(settings, turn(settings))
    }

    fn run_turn(&self, settings: &AgentServer, turn: Turn) -> Result<Vec<Event>, AgentError> {
        let backend = self.backend();
        let prepared = backend.prepare(settings, Arc::new(turn))?;
        let events = self.wait(backend.start(settings, prepared))?;
        let events: Vec<Event> = self.wait(events.collect());
        EventGrammar::check(&events).unwrap_or_else(|violation| panic!("{violation}: {events:?}"));
        Ok(events)
    }

    fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            if let Some(done) = work.as_mut().now_or_never() {
                return done;
            }
            self.clock.advance_to_next().expect("the work waits for the clock alone");
        }
    }
}

fn url_of(name: &str) -> String {
    format!("https://{name}.example")
}

fn server(name: &str) -> AgentServer {
    AgentServer { agent_server_url: Some(url_of(name)), ..AgentServer::default() }
}

fn settings(fallbacks: &[&str]) -> AgentServer {
    AgentServer { fallbacks: fallbacks.iter().map(|name| server(name)).collect(), ..server("first") }
}

fn turn(settings: &AgentServer) -> Turn {
    backend_turn(BackendChoice::AgentServer(Box::new(settings.clone())))
}

fn error(kind: AgentErrorKind, status: Option<u16>) -> AgentError {
    let error = AgentError::new(kind, "it failed");
    match status {
        Some(status) => error.with_source(UpstreamError::new(Some(status), [], "an error")),
        None => error,
    }
}

fn refused(status: u16) -> Answer {
    Err(error(AgentErrorKind::Failed, Some(status)))
}

fn step(name: &str) -> Result<SourceEvent, AgentError> {
    Ok(SourceEvent::Event(Event::StepStarted { step_name: name.into() }))
}

fn notice(value: serde_json::Value) -> Result<SourceEvent, AgentError> {
    Ok(SourceEvent::Event(Event::Custom { name: "agent.debug".to_owned(), value }))
}

fn text(delta: &str) -> Vec<Result<SourceEvent, AgentError>> {
    let (message_id, role) = (agent_core::event::Id::from("m"), AssistantRole::Assistant);
    let start = Event::TextMessageStart { message_id: message_id.clone(), role };
    let content = Event::TextMessageContent { message_id, delta: delta.to_owned() };
    vec![Ok(SourceEvent::Event(start)), Ok(SourceEvent::Event(content))]
}

fn answered(delta: &str) -> Answer {
    Ok(text(delta).into_iter().chain([Ok(RunEnd::success().into())]).collect())
}

/// The first events of a run of this platform's runtime.
fn beginning() -> Vec<Result<SourceEvent, AgentError>> {
    let started = Event::RunStarted { thread_id: "theirs".into(), run_id: "theirs".into() };
    let ignored = json!({"kind": "parametersIgnored", "provider": "p", "model": "m", "parameters": ["topK"]});
    vec![Ok(SourceEvent::Event(started)), step("round-1"), notice(ignored)]
}

fn reported(code: &str) -> Result<SourceEvent, AgentError> {
    Ok(RunEnd::Failed { message: "theirs".to_owned(), code: code.to_owned(), usage: Vec::new() }.into())
}

fn answer_text(events: &[Event]) -> String {
    let text = |event: &Event| match event {
        Event::TextMessageContent { delta, .. } => Some(delta.clone()),
        _ => None,
    };
    events.iter().filter_map(text).collect()
}

fn code(events: &[Event]) -> &str {
    match events.last() {
        Some(Event::RunError { code, .. }) => code,
        _ => "",
    }
}

/// Returns the reports of attempts: entry and reason.
fn attempts(events: &[Event]) -> Vec<(u64, Option<String>)> {
    let report = |event: &Event| match event {
        Event::Custom { value, .. } if value["kind"] == "modelAttempt" => {
            Some((value["entry"].as_u64()?, value["reason"].as_str().map(str::to_owned)))
        }
        _ => None,
    };
    events.iter().filter_map(report).collect()
}

#[test]
fn a_run_without_events_is_repeated_and_each_attempt_is_booked() {
    let fixture = ServerFixture::new();
    let cut_off = beginning().into_iter().chain([Err(error(AgentErrorKind::Truncated, None))]).collect();
    fixture.server("first", [refused(503), Ok(cut_off)]);
    let failed = beginning().into_iter().chain([reported("BACKEND_UNREACHABLE")]).collect();
    fixture.server("second", [Ok(failed), refused(401)]);
    fixture.server("third", [Ok(beginning().into_iter().chain(answered("Hi.").expect("events")).collect())]);
    let events = fixture.run(&settings(&["second", "third"])).expect("a run");
    assert_eq!(answer_text(&events), "Hi.");
    assert_eq!(fixture.called(), ["first", "first", "second", "second", "third"]);
    let reason = |text: &str| Some(text.to_owned());
    assert_eq!(
        attempts(&events),
        [
            (0, reason("BACKEND_FAILED")),
            (0, reason("STREAM_TRUNCATED")),
            (1, reason("BACKEND_UNREACHABLE")),
            (1, reason("BACKEND_FAILED")),
            (2, None)
        ]
    );
    let steps = events.iter().filter(|event| matches!(event, Event::StepStarted { .. })).count();
    assert_eq!(steps, 1, "no events of a failed attempt are passed on: {events:?}");
    fixture.recorder.flush().now_or_never().expect("no wait");
    let ledger = fixture.recorder.store().run_usage(&"c".into(), &"run-1".into()).now_or_never();
    let mut booked: Vec<_> = ledger
        .expect("no wait")
        .expect("entries")
        .into_iter()
        .map(|entry| (entry.round, entry.attempt, entry.provider, entry.outcome))
        .collect();
    booked.sort();
    let row = |attempt, outcome: &str| (1, attempt, "runtime".to_owned(), outcome.to_owned());
    assert_eq!(
        booked,
        [
            row(1, "BACKEND_FAILED"),
            row(2, "STREAM_TRUNCATED"),
            row(3, "BACKEND_UNREACHABLE"),
            row(4, "BACKEND_FAILED"),
            row(5, "ok")
        ]
    );
}

#[test]
fn nothing_is_repeated_after_an_event_of_the_run() {
    let call = Event::ToolCallStart {
        tool_call_id: "c".into(),
        tool_call_name: "createTodo".to_owned(),
        parent_message_id: None,
    };
    let custom = Event::Custom { name: "searched".to_owned(), value: json!({}) };
    for begun in [
        text("par"),
        vec![Ok(SourceEvent::Event(call))],
        vec![Ok(SourceEvent::Event(custom))],
        vec![notice(json!({"kind": "other"}))],
        // A step of another runtime may be a tool, and a second step of the product's runtime follows tools.
        vec![step("search")],
        beginning().into_iter().chain([step("round-2")]).collect(),
    ] {
        let fixture = ServerFixture::new();
        let failing = begun.into_iter().chain([Err(error(AgentErrorKind::Unreachable, None))]).collect();
        fixture.server("first", [Ok(failing)]);
        let events = fixture.run(&settings(&["second"])).expect("a run");
        assert_eq!((code(&events), fixture.called()), ("BACKEND_UNREACHABLE", vec!["first".to_owned()]));
        assert_eq!(attempts(&events), []);
    }
}

/// A run token whose calls are reported by the server.
#[derive(Debug)]
struct FakeToken(Secret, FakeReportedCalls);

impl RunToken for FakeToken {
    fn text(&self) -> &Secret {
        &self.0
    }

    fn report_calls(&self) -> Box<dyn ReportedToolCalls> {
        Box::new(self.1.clone())
    }

    fn keep_until_expiry(&self) {}
}

#[test]
fn nothing_is_repeated_after_an_unreported_tool_call() {
    for calls_tool in [false, true] {
        let (fixture, calls) = (ServerFixture::new(), FakeReportedCalls::default());
        fixture.server("first", [Ok(vec![Err(error(AgentErrorKind::Unreachable, None))]), refused(503)]);
        fixture.server("second", [answered("Hi.")]);
        fixture.servers.0.lock().expect("unpoisoned").tool_calls = calls_tool.then(|| calls.clone());
        let settings = settings(&["second"]);
        let token = Arc::new(FakeToken(Secret::new("token"), calls));
        let turn = Turn { run_token: Some(token), ..turn(&settings) };
        let events = fixture.run_turn(&settings, turn).expect("a run");
        let expected = if calls_tool { (1, "BACKEND_UNREACHABLE", "") } else { (3, "", "Hi.") };
        assert_eq!((fixture.called().len(), code(&events), answer_text(&events).as_str()), expected);
    }
}

#[test]
fn a_run_without_content_in_time_is_given_up() {
    let fixture = ServerFixture::new();
    fixture.server("first", [Ok(beginning()), Ok(Vec::new())]);
    fixture.server("second", [answered("Hi.")]);
    let retry =
        RetrySettings { first_content_ms: std::num::NonZeroU32::new(300), ..RetrySettings::default() };
    let began = fixture.clock.monotonic();
    let events = fixture.run(&AgentServer { retry: Some(retry), ..settings(&["second"]) }).expect("a run");
    let timeout = || Some("BACKEND_TIMEOUT".to_owned());
    assert_eq!(
        (answer_text(&events).as_str(), attempts(&events)),
        ("Hi.", vec![(0, timeout()), (0, timeout()), (1, None)])
    );
    let waited = fixture.clock.monotonic() - began;
    assert!(waited <= Duration::from_millis(600 + 250), "{waited:?}");
    // A fallback may name its own time.
    let fixture = ServerFixture::new();
    fixture.server("first", [refused(401)]);
    fixture.server("second", [Ok(beginning()), Ok(beginning())]);
    let fallback = AgentServer { first_content_ms: std::num::NonZeroU32::new(100), ..server("second") };
    let began = fixture.clock.monotonic();
    let events = fixture.run(&AgentServer { fallbacks: vec![fallback], ..server("first") });
    assert_eq!(code(&events.expect("a run")), "BACKEND_FAILED", "the first server's");
    assert!(fixture.clock.monotonic() - began <= Duration::from_millis(200 + 250));
}

#[test]
fn if_all_fail_the_error_is_the_first_servers_with_the_attempts_for_owners() {
    for (caller, has_attempts) in [(Caller::Session, true), (Caller::Widget, false)] {
        let fixture = ServerFixture::new();
        let limited = |seconds| {
            let error = error(AgentErrorKind::RateLimited, Some(429));
            Err(error.with_retry_after(Duration::from_secs(seconds)))
        };
        fixture.server("first", [limited(90)]);
        fixture.server("second", [limited(40)]);
        let fallbacks = vec![server("second"), AgentServer::default()];
        let settings = AgentServer { fallbacks, ..server("first") };
        let mut turn = turn(&settings);
        turn.context.caller = caller;
        let error = fixture.run_turn(&settings, turn).expect_err("none answers");
        assert_eq!(error.kind(), AgentErrorKind::RateLimited);
        assert_eq!(error.retry_after(), Some(Duration::from_secs(40)), "the shortest");
        let members = error.members();
        assert_eq!(members.len(), usize::from(has_attempts));
        for (name, attempts) in members {
            let reasons: Vec<_> = attempts.as_array().expect("a list").iter().map(|a| &a["reason"]).collect();
            assert_eq!(
                (*name, reasons.as_slice()),
                ("attempts", &[&json!("RATE_LIMITED"), &json!("RATE_LIMITED"), &json!("NOT_CONFIGURED")][..])
            );
        }
    }
}

#[test]
fn the_end_that_a_runtime_reports_is_passed_on_as_it_is() {
    for (code_sent, calls) in [("THEIRS", 2), ("TOOL_LOOP_LIMIT", 1), ("CONTEXT_LENGTH_EXCEEDED", 1)] {
        let fixture = ServerFixture::new();
        fixture.server("first", [Ok(vec![reported(code_sent)]), Ok(vec![reported(code_sent)])]);
        let events = fixture.run(&server("first")).expect("a run");
        assert_eq!((code(&events), fixture.called().len()), (code_sent, calls));
        assert!(matches!(events.last(), Some(Event::RunError { message, .. }) if message == "theirs"));
    }
    // An empty answer is one.
    let fixture = ServerFixture::new();
    fixture.server("first", [Ok(vec![Ok(RunEnd::success().into())])]);
    let events = fixture.run(&settings(&["second"])).expect("a run");
    assert!(matches!(events.last(), Some(Event::RunFinished { .. })), "{events:?}");
}

#[test]
fn a_client_that_leaves_during_the_wait_makes_no_further_call() {
    let settings = settings(&["second"]);
    // Before the response, and after it.
    for failing in [refused(503), Ok(vec![Err(error(AgentErrorKind::Unreachable, None))])] {
        let fixture = ServerFixture::new();
        fixture.server("first", [failing]);
        let backend = fixture.backend();
        let prepared = backend.prepare(&settings, Arc::new(turn(&settings))).expect("prepared");
        let mut run =
            async { backend.start(&settings, prepared).await?.collect::<Vec<_>>().map(Ok).await }.boxed();
        let ended: Option<Result<Vec<Event>, AgentError>> = (&mut run).now_or_never();
        assert!(ended.is_none(), "it waits");
        drop(run);
        fixture.clock.advance(Duration::from_secs(60));
        assert_eq!(fixture.called(), ["first"]);
    }
}

#[test]
fn a_refusal_of_one_company_does_not_affect_others() {
    let fixture = ServerFixture::new();
    fixture.server("first", (0..4).map(|_| refused(401)));
    fixture.server("second", (0..5).map(|_| answered("Hi.")));
    let settings = settings(&["second"]);
    let with_key =
        |key: &str| AgentServer { agent_server_api_key: Some(Secret::new(key)), ..settings.clone() };
    let run = |settings: &AgentServer, company: &str| {
        let before = fixture.called().len();
        let mut turn = turn(settings);
        turn.context.company_id = company.into();
        assert_eq!(answer_text(&fixture.run_turn(settings, turn).expect("a run")), "Hi.");
        fixture.called().split_off(before)
    };
    assert_eq!(run(&settings, "c"), ["first", "second"]);
    assert_eq!(run(&settings, "c"), ["second"], "its circuit is open");
    assert_eq!(run(&settings, "d"), ["first", "second"], "another company");
    assert_eq!(run(&with_key("own"), "c"), ["first", "second"], "another key");
    assert_eq!(run(&with_key("own"), "c"), ["second"]);
}

#[test]
fn a_preview_shows_the_request_of_each_server_as_it_is_sent() {
    let fixture = ServerFixture::new();
    fixture.server("first", [refused(401)]);
    fixture.server("third", [answered("Hi.")]);
    let parameters = json!({"topK": 3}).as_object().expect("an object").clone();
    let fallbacks = vec![
        AgentServer { agent_server_model: Some("small".to_owned()), ..server("second") },
        AgentServer::default(),
        AgentServer {
            agent_server_provider: Some("openai".to_owned()),
            agent_server_model: Some("gpt-4o".to_owned()),
            agent_server_api_key: Some(Secret::new("sk-third")),
            parameters,
            ..server("third")
        },
    ];
    let settings = AgentServer { fallbacks, ..server("first") };
    let backend = fixture.backend();
    let prepared = backend.prepare(&settings, Arc::new(turn(&settings))).expect("prepared");
    let shown = preview_attempts(&prepared.payload, true);
    let summary: Vec<_> = shown.iter().map(|attempt| (attempt.eligible, attempt.reason)).collect();
    let expected = [
        (true, None),
        (false, Some("CONTEXT_LENGTH_EXCEEDED")),
        (false, Some("NOT_CONFIGURED")),
        (true, None),
    ];
    assert_eq!(summary, expected);
    assert_eq!(shown[0].request_sha256.as_deref(), Some(prepared.payload.sha256().as_str()));
    assert_eq!((shown[3].provider.as_str(), shown[3].known), ("openai", true));
    assert_eq!(shown[3].ignored_parameters, ["topK"]);
    assert_eq!(shown[0].max_prompt_tokens, 1_000);
    let written = serde_json::to_string(&shown).expect("JSON");
    assert!(written.contains("https://third.example") && !written.contains("sk-third"), "{written}");
    fixture.run(&settings).expect("a run");
    let sent: Vec<_> = {
        let scripts = fixture.servers.0.lock().expect("unpoisoned");
        scripts.calls.iter().map(|(_, hash)| Some(hash.clone())).collect()
    };
    assert_eq!(sent, [shown[0].request_sha256.clone(), shown[3].request_sha256.clone()]);
    let shown = preview_attempts(&prepared.payload, false);
    assert_eq!((shown[0].circuit, shown[0].reason), (CircuitState::Open, Some("CIRCUIT_OPEN")));
    assert!(shown.iter().all(|attempt| attempt.payload.is_none()));
}

#[test]
fn a_prompt_beyond_the_first_window_is_for_a_server_with_a_larger_one() {
    let fixture = ServerFixture::new();
    fixture.server("second", [answered("Hi.")]);
    let small = || Some("small".to_owned());
    let fallbacks = vec![server("second"), AgentServer { agent_server_model: small(), ..server("third") }];
    let first = AgentServer { agent_server_model: small(), ..server("first") };
    let settings = AgentServer { fallbacks, ..first.clone() };
    let backend = fixture.backend();
    let limit = |settings: AgentServer| {
        backend.limits().max_prompt_tokens(&BackendChoice::AgentServer(Box::new(settings)))
    };
    assert_eq!(limit(settings.clone()), Some(1_000));
    assert_eq!(limit(AgentServer { fallbacks: vec![AgentServer::default()], ..first.clone() }), None);
    fixture.run(&settings).expect("a run");
    assert_eq!(fixture.called(), ["second"]);
    // Without a larger window, the server itself decides.
    fixture.server("first", [answered("Hi.")]);
    fixture.run(&AgentServer { fallbacks: settings.fallbacks[1..].to_vec(), ..first }).expect("a run");
    assert_eq!(fixture.called(), ["second", "first"]);
}

#[test]
fn a_request_of_another_backend_is_sent_to_the_first_server() {
    let fixture = ServerFixture::new();
    fixture.server("first", [refused(401)]);
    let settings = settings(&["second"]);
    let prepared = fixture.servers.prepare(&settings, Arc::new(turn(&settings))).expect("prepared");
    let error = fixture.wait(fixture.backend().start(&settings, prepared)).expect_err("refused");
    assert_eq!((error.kind(), fixture.called()), (AgentErrorKind::Failed, vec!["first".to_owned()]));
}

#[test]
fn a_call_has_the_price_that_the_settings_of_its_server_set() {
    let fixture = ServerFixture::new();
    fixture.server("first", [refused(503), refused(503)]);
    fixture.server("second", [answered("Hello.")]);
    let price = |input: &str| serde_json::from_value(json!({"input": input, "output": "8"})).expect("prices");
    let priced_settings =
        AgentServer { agent_server_api_key: Some(Secret::new("k")), prices: price("2"), ..server("second") };
    let settings = AgentServer { prices: price("1"), fallbacks: vec![priced_settings], ..server("first") };
    let prepared = fixture.backend().prepare(&settings, Arc::new(turn(&settings))).expect("a request");
    let previews = preview_attempts(&prepared.payload, false);
    // The first server has no key in the role, so another account pays for its calls.
    let shown: Vec<_> =
        previews.iter().map(|preview| preview.prices.as_ref().map(|price| &*price.as_of)).collect();
    assert_eq!(shown, [None, Some("role")]);
    fixture.run(&settings).expect("the fallback answers");
    fixture.recorder.flush().now_or_never().expect("no wait");
    let ledger = fixture.recorder.store().run_usage(&"c".into(), &"run-1".into()).now_or_never();
    let mut entries = ledger.expect("no wait").expect("entries");
    entries.sort_by_key(|entry| entry.attempt);
    let booked: Vec<_> = entries.iter().map(|entry| (entry.attempt, entry.price_as_of.as_deref())).collect();
    assert_eq!(booked, [(1, None), (2, None), (3, Some("role"))]);
    assert!(entries[2].cost.is_some_and(|cost| cost.get() > 0), "{entries:?}");
}
