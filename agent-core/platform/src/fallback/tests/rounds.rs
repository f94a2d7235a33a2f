//! Runs with a tool, whose second round fails at the first entry.

use std::sync::atomic::{AtomicUsize, Ordering};

use agent_core::backend::{EmbeddedBackend, Turn};
use agent_core::event::Event;
use agent_core::payload::Payload;
use agent_core::select::BackendChoice;
use agent_core::testing::{FakeTools, backend_turn, prepare_turn, start_turn};
use async_trait::async_trait;

use super::*;

const RUNS: usize = 1_000;

/// A model that calls a tool in the first round. In the second it answers, or fails in one of several ways.
struct TwoRoundModel {
    script: ScriptedModel,
    fails: bool,
    second_rounds: AtomicUsize,
}

impl TwoRoundModel {
    fn new(fails: bool) -> Arc<Self> {
        let script = ScriptedModel::new([]);
        Arc::new(Self { script, fails, second_rounds: AtomicUsize::new(0) })
    }
}

#[async_trait]
impl Model for TwoRoundModel {
    fn info(&self) -> ModelInfo {
        self.script.info()
    }

    fn prepare(&self, request: &ModelRequest) -> Result<Payload, AgentError> {
        self.script.prepare(request)
    }

    async fn start(&self, payload: Payload) -> Result<ModelStream, AgentError> {
        let has_result = String::from_utf8_lossy(payload.bytes()).contains(r#""role":"tool""#);
        let answer = match has_result {
            false => ScriptedAnswer::from_tool_call("c1", "charge", "{}"),
            true => {
                let number = self.second_rounds.fetch_add(1, Ordering::Relaxed);
                match (self.fails, number % 3) {
                    (false, _) => ScriptedAnswer::from_text("Charged."),
                    (true, 0) => failing(upstream(503, "x")),
                    (true, 1) => ScriptedAnswer::new().text("").fail(upstream(500, "x")),
                    (true, _) => ScriptedAnswer::new(),
                }
            }
        };
        ScriptedModel::new([answer]).start(payload).await
    }
}

/// The entries of a container: the first fails in second rounds, the other does not.
#[derive(Clone)]
struct TwoEntries([Arc<TwoRoundModel>; 2]);

impl ModelSource for TwoEntries {
    fn model(&self, settings: &EmbeddedAi) -> Result<Arc<dyn Model>, AgentError> {
        let [first, second] = &self.0;
        let is_first = settings.model.as_deref() == Some("first");
        Ok(if is_first { first.clone() } else { second.clone() })
    }
}

#[test]
fn a_request_that_is_started_again_begins_with_the_first_round() {
    let fixture = FallbackFixture::new();
    let clock = Arc::new(fixture.clock.clone());
    fixture.model(
        "first",
        9_000,
        vec![ScriptedAnswer::from_text("Hi."), ScriptedAnswer::from_text("Again.")],
    );
    let metered = MeteredModels::new(fixture.source.clone(), fixture.recorder.clone());
    let defaults =
        FallbackDefaults { max_attempts: 2, max_wait: Duration::from_secs(10), fallbacks: Vec::new() };
    let models = FallbackModels::new(metered, defaults, fixture.circuits.clone(), clock);
    let backend = EmbeddedBackend::new(models);
    let turn = Arc::new(backend_turn(BackendChoice::Embedded(settings(&[]))));
    let ExecutionContext { company_id, run_id, .. } = turn.context.clone();
    let prepared = prepare_turn(&backend, turn).expect("a request");
    for _ in 0..2 {
        let prepared = prepared.clone();
        let events = async { start_turn(&backend, prepared).await.expect("the run begins").count().await };
        assert!(fixture.wait(events.boxed()) > 0);
    }
    fixture.recorder.flush().now_or_never().expect("no wait");
    let ledger = fixture.recorder.store().run_usage(&company_id, &run_id).now_or_never();
    let booked = ledger.expect("no wait").expect("entries");
    let rounds: Vec<_> = booked.iter().map(|entry| (entry.round, entry.attempt)).collect();
    assert_eq!(rounds, [(1, 1), (1, 1)]);
}

#[test]
fn a_failing_second_round_repeats_no_tool_call() {
    let fixture = FallbackFixture::new();
    let clock = Arc::new(fixture.clock.clone());
    let entries = TwoEntries([TwoRoundModel::new(true), TwoRoundModel::new(false)]);
    let timed = FirstContentModels::new(entries.clone(), Duration::from_secs(60), clock.clone());
    let defaults =
        FallbackDefaults { max_attempts: 2, max_wait: Duration::from_secs(10), fallbacks: Vec::new() };
    let metered = MeteredModels::new(timed, fixture.recorder.clone());
    let models = FallbackModels::new(metered, defaults, fixture.circuits.clone(), clock.clone());
    let tools = Arc::new(FakeTools::new().answers("charge", "charged"));
    let backend = EmbeddedBackend::new(models).with_tools(tools.clone()).with_clock(clock);
    for run in 0..RUNS {
        let choice = BackendChoice::Embedded(settings(&["second"]));
        let turn = Arc::new(Turn { tools: tools.specs(), ..backend_turn(choice) });
        let prepared = prepare_turn(&backend, turn).expect("a request");
        let events = async {
            let events = start_turn(&backend, prepared).await.expect("the run begins");
            events.collect::<Vec<Event>>().await
        };
        let events = fixture.wait(events.boxed());
        assert!(matches!(events.last(), Some(Event::RunFinished { .. })), "{run}: {events:?}");
        let text = events.iter().filter_map(|event| match event {
            Event::TextMessageContent { delta, .. } => Some(delta.as_str()),
            _ => None,
        });
        assert_eq!(text.collect::<String>(), "Charged.");
        // Each run is in another minute, with new circuits and repetitions, so that each has the fault.
        fixture.clock.advance(Duration::from_secs(61));
    }
    let [first, second] = entries.0.map(|model| model.second_rounds.load(Ordering::Relaxed));
    assert_eq!((first, second), (2 * RUNS, RUNS), "each second round fails twice, and is answered once");
    assert_eq!(tools.calls().len(), RUNS);
    assert_eq!(tools.finished(), RUNS);
}
