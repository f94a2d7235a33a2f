//! Replays of runs with a fallback or a repaired answer.

use super::*;

/// Models named `first` and `second`; the first fails at each call.
struct FallbackSource(Arc<ScriptedModel>, Arc<ScriptedModel>);

impl ModelSource for FallbackSource {
    fn model(&self, settings: &EmbeddedAi) -> Result<Arc<dyn Model>, AgentError> {
        let is_second = settings.model.as_deref() == Some("second");
        Ok(if is_second { self.1.clone() } else { self.0.clone() })
    }
}

fn fallback_source(answers: Vec<ScriptedAnswer>) -> FallbackSource {
    let model = |name: &str, answers| {
        let info = ModelInfo { model: name.to_owned(), ..ScriptedModel::new([]).info() };
        Arc::new(ScriptedModel::new(answers).with_info(info))
    };
    let failure = || AgentError::new(AgentErrorKind::Unreachable, "gone");
    let failures = (0..9).map(|_| ScriptedAnswer::from_start_error(failure())).collect();
    FallbackSource(model("first", failures), model("second", answers))
}

#[test]
fn a_run_that_a_fallback_has_answered_is_replayed_without_a_difference() {
    let spawner = Arc::new(|task: futures_util::future::BoxFuture<'static, ()>| {
        task.now_or_never();
    });
    let (clock, ledger) = (Arc::new(SystemClock), Arc::new(MemoryUsage::default()));
    let recorder = UsageRecorder::new(ledger, PriceTable::empty(), clock.clone(), spawner, None, None);
    let calling = ScriptedAnswer::new().text("I look. ").call("call-1", "look", ["{}"]);
    let answers =
        vec![calling.usage(3, 4).finish(FinishReason::ToolCalls), ScriptedAnswer::from_text("Dry.")];
    let models = MeteredModels::new(fallback_source(answers), recorder);
    let defaults = FallbackDefaults { max_attempts: 1, max_wait: Duration::ZERO, fallbacks: Vec::new() };
    let models = FallbackModels::new(models, defaults, Arc::default(), clock);
    let mut role = role();
    role.children.truncate(1);
    if let Container::EmbeddedAi(embedded) = &mut role.children[0] {
        let second = FallbackModel { model: Some("second".to_owned()), ..FallbackModel::default() };
        (embedded.model, embedded.fallbacks) = (Some("first".to_owned()), vec![second]);
    }
    let observers = Arc::new(RunObservers::new(Arc::new(SystemClock), true));
    let platform = Platform::new(Arc::new(StaticRoles::new()))
        .with_layer(RoleLayer::new(Arc::default()))
        .with_tools(tools())
        .with_sent_prompts(Arc::new(LatestPrompts::default()))
        .with_backend(
            EmbeddedBackend::new(ObservedModels::new(models, observers.clone())).with_tools(tools()),
        );
    let bundle = record_turn(&platform, &observers, Some(Arc::new(role)));
    let rounds = &bundle.inputs.as_ref().expect("inputs").rounds;
    let recorded: Vec<_> = rounds.iter().map(|round| (round.entry, round.attempts)).collect();
    assert_eq!(recorded, [(0, 2), (1, 1)]);
    let events = bundle.events.as_ref().expect("events");
    let attempt_events = events.iter().filter_map(|event| match event {
        Event::Custom { value, .. } if value["kind"] == "modelAttempt" => Some(value.clone()),
        _ => None,
    });
    let attempt_events: Vec<AttemptReport> =
        attempt_events.map(|report| serde_json::from_value(report).expect("a report")).collect();
    assert_eq!(bundle.run.attempts, attempt_events);
    let attempts = attempt_events.iter().map(|report| (report.round, report.entry, report.reason.is_none()));
    assert_eq!(attempts.collect::<Vec<_>>(), [(1, 0, false), (1, 1, true)], "{attempt_events:?}");
    assert_ne!(attempt_events[0].request_sha256, attempt_events[1].request_sha256);

    let replay = Replay::new(bundle).expect("inputs and events");
    let models = ReplayModels::new(fallback_source(Vec::new()), replay.clone())
        .with_fallbacks(|settings| fallback_settings(settings, &[]).collect());
    let backend = EmbeddedBackend::new(models).with_tools(replay.tools());
    let report = replay.run(&replay.platform().with_backend(backend));
    assert!(report.is_identical(), "{report:#?}");
}

/// A step that does not change the history.
struct UnchangedHistory;

#[async_trait]
impl HistoryStep for UnchangedHistory {
    async fn apply(&self, _: &TurnInput, _: &mut AssemblyInput<'_>) -> Result<(), AgentError> {
        Ok(())
    }
}

#[test]
fn a_run_beyond_the_first_models_window_is_replayed_identically() {
    check_replay_beyond_the_first_window(Value::Null);
    // A part of the window is for the schema.
    check_replay_beyond_the_first_window(json!({"type": "json", "schema": {"type": "object"}}));
}

fn check_replay_beyond_the_first_window(format: Value) {
    let source = |answers: Vec<ScriptedAnswer>| {
        let model = |name: &str, context_window, answers: Vec<ScriptedAnswer>| {
            let info = ScriptedModel::new([]).info();
            let info = ModelInfo { model: name.to_owned(), context_window, max_output_tokens: 10, ..info };
            Arc::new(ScriptedModel::new(answers).with_info(info))
        };
        FallbackSource(model("first", 20, Vec::new()), model("second", 10_000, answers))
    };
    let spawner = Arc::new(|task: futures_util::future::BoxFuture<'static, ()>| {
        task.now_or_never();
    });
    let (clock, ledger) = (Arc::new(SystemClock), Arc::new(MemoryUsage::default()));
    let recorder = UsageRecorder::new(ledger, PriceTable::empty(), clock.clone(), spawner, None, None);
    let models = MeteredModels::new(source(vec![ScriptedAnswer::from_text("Dry.")]), recorder);
    let defaults = FallbackDefaults { max_attempts: 1, max_wait: Duration::ZERO, fallbacks: Vec::new() };
    let models = FallbackModels::new(models, defaults, Arc::default(), clock);
    let limits = models.limits();
    let mut role = role();
    role.children.truncate(1);
    if let Container::EmbeddedAi(embedded) = &mut role.children[0] {
        let second = FallbackModel { model: Some("second".to_owned()), ..FallbackModel::default() };
        (embedded.model, embedded.fallbacks) = (Some("first".to_owned()), vec![second]);
        embedded.response_format = serde_json::from_value(format).expect("a format");
    }
    let observers = Arc::new(RunObservers::new(Arc::new(SystemClock), true));
    let backend = EmbeddedBackend::new(ObservedModels::new(models, observers.clone())).with_tools(tools());
    let platform = Platform::new(Arc::new(StaticRoles::new()))
        .with_layer(RoleLayer::new(Arc::default()))
        .with_tools(tools())
        .with_sent_prompts(Arc::new(LatestPrompts::default()))
        .with_history_step(FallbackBudget::new(UnchangedHistory, [limits]))
        .with_backend(backend);
    let bundle = record_turn(&platform, &observers, Some(Arc::new(role)));
    let inputs = bundle.inputs.as_ref().expect("inputs");
    assert_eq!((inputs.rounds[0].entry, inputs.max_prompt_tokens), (1, 9_990));
    let replay = Replay::new(bundle).expect("inputs and events");
    let models = ReplayModels::new(source(Vec::new()), replay.clone())
        .with_fallbacks(|settings| fallback_settings(settings, &[]).collect());
    let backend = EmbeddedBackend::new(models).with_tools(replay.tools());
    let report = replay.run(&replay.platform().with_backend(backend));
    assert!(report.is_identical(), "{report:#?}");
}

#[test]
fn a_run_in_json_is_replayed_with_its_repair_and_its_object() {
    let format = json!({"type": "json", "schema": {"type": "object", "required": ["dry"]}});
    let mut role = role();
    role.children.truncate(1);
    if let Container::EmbeddedAi(embedded) = &mut role.children[0] {
        embedded.response_format = serde_json::from_value(format).expect("a format");
    }
    let calling = ScriptedAnswer::new().text("I look. ").call("call-1", "look", ["{}"]);
    let answers = vec![
        calling.usage(3, 4).finish(FinishReason::ToolCalls),
        ScriptedAnswer::new().text("It is dry.").usage(5, 6).finish(FinishReason::Stop),
        ScriptedAnswer::new().text("{\"dry\": true}").usage(7, 8).finish(FinishReason::Stop),
    ];
    let formatted =
        |answers| FormattedModels::new(Arc::new(ScriptedModel::new(answers)), Catalog::built_in());
    let observers = Arc::new(RunObservers::new(Arc::new(SystemClock), true));
    let models = ObservedModels::new(ValidatedModels::new(formatted(answers)), observers.clone());
    let platform = Platform::new(Arc::new(StaticRoles::new()))
        .with_layer(RoleLayer::new(Arc::default()))
        .with_tools(tools())
        .with_sent_prompts(Arc::new(LatestPrompts::default()))
        .with_backend(EmbeddedBackend::new(models).with_tools(tools()));
    let bundle = record_turn(&platform, &observers, Some(Arc::new(role)));
    let rounds = &bundle.inputs.as_ref().expect("inputs").rounds;
    let drafts: Vec<_> = rounds.iter().map(|round| (&*round.draft, round.correction.is_some())).collect();
    assert_eq!(drafts, [("I look. ", false), ("It is dry.", true), ("", false)]);
    let events = bundle.events.as_ref().expect("events");
    let Some(Event::RunFinished { result, .. }) = events.last() else { panic!("{events:?}") };
    assert_eq!(result.as_ref().and_then(|result| result.object.clone()), Some(json!({"dry": true})));

    let replay = Replay::new(bundle).expect("inputs and events");
    let models = ReplayModels::new(formatted(Vec::new()), replay.clone());
    let backend = EmbeddedBackend::new(models).with_tools(replay.tools());
    let report = replay.run(&replay.platform().with_backend(backend));
    assert!(report.is_identical(), "{report:#?}");
}

/// Runs a turn of one message and records it.
fn record_turn(
    platform: &Platform,
    observers: &Arc<RunObservers>,
    role: Option<Arc<RoleBlock>>,
) -> RunBundle {
    let turn = TurnRequest {
        thread_id: "t".into(),
        run_id: "r".into(),
        role,
        ..TurnRequest::new("a", vec![Message::user("Dry?")])
    };
    let observer = observers.open(&"c".into(), &"ada".into(), &"r".into(), observers.now());
    let principal = Principal::new("ada", "c", Caller::Session);
    let running = run_observed_turn(platform, &principal, turn, &**observer);
    let events = running.now_or_never().expect("no wait").expect("a run");
    let events = read_and_cancel(events.with_observer(observer.event_observer()), None);
    let inputs = serde_json::from_slice(&observer.inputs().expect("the inputs are kept"));
    let RunRecord { timing, selection, prompt, attempts } = observer.record();
    let run = json!({"id": "r", "threadId": "t", "turnId": "r", "agentId": "a", "state": RunState::Completed,
        "trigger": {"kind": "chat"}, "nodeIds": [], "onDisconnect": "cancel", "attached": 0, "usage": [],
        "events": {"count": events.len(), "complete": true}, "createdAt": "2026-01-01T00:00:00.000Z"});
    let run = Run { timing, selection, attempts, ..serde_json::from_value(run).expect("a run") };
    let inputs = Some(inputs.expect("inputs are read back"));
    RunBundle { program: "test".to_owned(), run, prompt, inputs, events: Some(events) }
}
