//! Tests of whole turns with in-memory stores, a scripted model and fake tools.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use serde_json::Value;
use tokio::sync::Barrier;

use super::tools::offered_tools;
use super::*;
use crate::backend::EmbeddedBackend;
use crate::context::LayerError;
use crate::error::AgentErrorKind;
use crate::event::{Event, EventGrammar};
use crate::ids::{AgentId, CompanyId, UserId};
use crate::message::Message;
use crate::model::{Model, ModelInfo};
use crate::prompt::Stability;
use crate::prompt::{Fragment, Part};
use crate::role::StaticRoles;
use crate::select::RuleReason;
use crate::store_error::StoreError;
use crate::testing::{FakeTools, ManualClock, ScriptedAnswer, ScriptedModel};
use crate::tool::{Progress, ToolChoice, ToolError, ToolOutput};
use crate::users::UserProfile;

/// A platform with access to its parts.
struct TurnFixture {
    platform: Platform,
    model: Arc<ScriptedModel>,
    tools: Arc<FakeTools>,
}

async fn bench(roles: Vec<Value>, answers: impl IntoIterator<Item = ScriptedAnswer>) -> TurnFixture {
    let roles = roles.into_iter().map(|role| serde_json::from_value(role).expect("a role"));
    let store = roles.fold(StaticRoles::new(), StaticRoles::with_role);
    let model = Arc::new(ScriptedModel::new(answers));
    let tools =
        FakeTools::new().answers("readTodos", "none").answers("readEpics", "two").answers("other", "no");
    let tools = Arc::new(tools);
    let backend = EmbeddedBackend::new(model.clone()).with_tools(tools.clone());
    let platform = Platform::new(Arc::new(store))
        .with_backend(backend)
        .with_tools(tools.clone())
        .with_clock(Arc::new(ManualClock::new()));
    TurnFixture { platform, model, tools }
}

fn agent() -> Value {
    json!({
        "id": "a", "name": "Ann", "companyId": "c",
        "content": {"tools": ["readEpics"], "widgetTools": ["readTodos"]},
        "children": [{"name": "EmbeddedAI", "content": {}}],
    })
}

/// Returns the agent with other containers.
fn agent_with(children: Value) -> Value {
    let mut agent = agent();
    agent["children"] = children;
    agent
}

fn ada() -> Principal {
    Principal::new("ada", "c", Caller::Session)
}

fn asks(agent: &str) -> TurnRequest {
    TurnRequest::new(agent, vec![Message::user("hi")])
}

impl TurnFixture {
    /// Returns the error of preparing the turn, and checks that running it fails without sending anything.
    async fn refusal(&self, principal: &Principal, request: TurnRequest) -> TurnError {
        let run = run_turn(&self.platform, principal, request.clone()).await;
        assert!(run.is_err() && self.model.payloads().is_empty());
        prepare_turn(&self.platform, principal, request).await.expect_err("no turn")
    }
}

async fn read(stream: EventStream) -> Vec<Event> {
    let events: Vec<Event> = stream.collect().await;
    EventGrammar::check(&events).unwrap_or_else(|violation| panic!("{violation}: {events:?}"));
    events
}

#[tokio::test]
async fn an_agent_is_there_for_its_own_company_alone() {
    let bench = bench(vec![agent()], [ScriptedAnswer::from_text("Hi.")]).await;
    let stranger = Principal::new("eve", "another", Caller::Session);
    for (principal, agent) in [(&stranger, "a"), (&ada(), "b"), (&ada(), "")] {
        let error = bench.refusal(principal, asks(agent)).await;
        assert!(matches!(error, TurnError::AgentNotFound), "{agent}: {error:?}");
    }
    assert!(run_turn(&bench.platform, &ada(), asks("a")).await.is_ok());
}

#[tokio::test]
async fn a_credential_that_is_bound_to_an_agent_is_good_for_that_one_alone() {
    let bench = bench(vec![agent()], [ScriptedAnswer::from_text("Hi.")]).await;
    let bound = |agent: &str| Principal { agent_id: Some(agent.into()), ..ada() };
    for (principal, agent) in [(bound("b"), "a"), (bound("a"), "no such")] {
        let error = bench.refusal(&principal, asks(agent)).await;
        assert!(matches!(error, TurnError::WrongAgent), "{error:?}");
    }
    assert!(run_turn(&bench.platform, &bound("a"), asks("a")).await.is_ok());
}

#[tokio::test]
async fn a_role_without_a_backend_is_told_how_each_rule_came_out() {
    let bench =
        bench(vec![agent_with(json!([{"name": "AgentServer", "content": {"agentServerUrl": " "}}]))], [])
            .await;
    let error = bench.refusal(&ada(), asks("a")).await;
    let TurnError::NoConnector(selection) = error else { panic!("{error:?}") };
    assert!(selection.choice.is_none());
    let reasons = selection.rules.map(|outcome| outcome.reason);
    assert_eq!(
        reasons,
        [
            RuleReason::FieldMissing,
            RuleReason::FieldBlank,
            RuleReason::NoContainer,
            RuleReason::NoContainer,
            RuleReason::NoContainer
        ]
    );
}

#[tokio::test]
async fn a_backend_that_the_platform_lacks_is_named() {
    let workflow =
        json!([{"name": "WorkflowConnector", "content": {"webhookUrl": "https://example.com/hook"}}]);
    let bench = bench(vec![agent_with(workflow)], []).await;
    let error = bench.refusal(&ada(), asks("a")).await;
    assert!(matches!(error, TurnError::NoBackend(BackendKind::Workflow)), "{error:?}");
}

/// Knows one user, `bob` of company `c`.
struct TokyoBob;

#[async_trait]
impl crate::users::UserDirectory for TokyoBob {
    async fn profile(&self, company: &CompanyId, user: &UserId) -> Result<Option<UserProfile>, StoreError> {
        let known = *company == "c" && *user == "bob";
        Ok(known.then(|| UserProfile { timezone: Some("Asia/Tokyo".to_owned()) }))
    }
}

#[tokio::test]
async fn a_time_zone_must_exist_and_else_is_the_users() {
    let mut bench = bench(vec![agent()], []).await;
    let in_zone = |zone: &str| TurnRequest { timezone: Some(zone.into()), ..asks("a") };
    for unknown in ["Europe/Atlantis", "localtime", "Factory", &"x".repeat(65)] {
        let error = bench.refusal(&ada(), in_zone(unknown)).await;
        assert!(matches!(error, TurnError::InvalidField { field: "timezone", .. }), "{error:?}");
    }

    let bob = Principal::new("bob", "c", Caller::Session);
    let elsewhere = Principal::new("bob", "d", Caller::Session);
    let zone = async |platform: &Platform, principal: &Principal, request| {
        let prepared = prepare_turn(platform, principal, request).await.expect("a turn");
        prepared.request.turn.context.timezone.clone()
    };
    assert_eq!(zone(&bench.platform, &bob, asks("a")).await, None, "no directory of users");
    bench.platform = bench.platform.with_users(Arc::new(TokyoBob));
    assert_eq!(zone(&bench.platform, &bob, asks("a")).await.as_deref(), Some("Asia/Tokyo"));
    assert_eq!(zone(&bench.platform, &bob, in_zone("Europe/Berlin")).await.as_deref(), Some("Europe/Berlin"));
    assert_eq!(zone(&bench.platform, &ada(), asks("a")).await, None);
    let error = bench.refusal(&elsewhere, asks("a")).await;
    assert!(matches!(error, TurnError::AgentNotFound), "{error:?}");
}

#[tokio::test]
async fn the_context_comes_from_the_credential_and_the_role() {
    let bench = bench(vec![agent()], []).await;
    let principal = Principal::new("ada", "c", Caller::Proactive);
    let request = TurnRequest {
        thread_id: "t".into(),
        run_id: "r".into(),
        todo_list_id: Some("l".into()),
        tool_choice: ToolChoice::Required,
        ..asks("a")
    };
    let prepared = prepare_turn(&bench.platform, &principal, request).await.expect("a turn");
    assert_eq!(prepared.selection.choice.as_ref().map(BackendChoice::kind), Some(BackendKind::Embedded));
    let turn = &prepared.request.turn;
    let expected = ExecutionContext {
        user_id: "ada".into(),
        company_id: "c".into(),
        agent_id: "a".into(),
        agent_name: Some("Ann".into()),
        todo_list_id: Some("l".into()),
        timezone: None,
        thread_id: "t".into(),
        run_id: "r".into(),
        caller: Caller::Proactive,
        ..ExecutionContext::default()
    };
    assert_eq!(turn.context, expected);
    assert_eq!((&*turn.run.thread_id, &*turn.run.run_id), ("t", "r"));
    assert_eq!((&turn.tool_choice, turn.thinking), (&ToolChoice::Required, None));
    assert!(bench.model.payloads().is_empty(), "preparing sends nothing");
}

/// A context layer that collects one fragment once all parties of the barrier have arrived.
struct BarrierLayer(&'static str, Arc<Barrier>);

#[async_trait]
impl ContextLayer for BarrierLayer {
    fn name(&self) -> &'static str {
        self.0
    }

    async fn collect(&self, _: &TurnInput) -> Result<Vec<Fragment>, LayerError> {
        self.1.wait().await;
        Ok(vec![Fragment::new(self.0, self.0, Stability::Role, Part::new(self.0))])
    }
}

/// A tool registry that lists its tools once all parties of the barrier have arrived.
struct BarrierTools(Arc<Barrier>);

#[async_trait]
impl ToolRegistry for BarrierTools {
    async fn list(&self, _: &ExecutionContext) -> Result<Vec<Arc<ToolSpec>>, ToolError> {
        self.0.wait().await;
        Ok(Vec::new())
    }

    async fn call(
        &self,
        _: &ExecutionContext,
        name: &str,
        _: Value,
        _: &dyn Progress,
    ) -> Result<ToolOutput, ToolError> {
        Err(ToolError::Unknown(name.to_owned()))
    }
}

#[tokio::test]
async fn layers_and_tools_are_asked_side_by_side_and_layers_stand_in_their_order() {
    let barrier = Arc::new(Barrier::new(4));
    let mut bench = bench(vec![agent()], []).await;
    for name in ["first", "second", "third"] {
        bench.platform = bench.platform.with_layer(BarrierLayer(name, barrier.clone()));
    }
    bench.platform = bench.platform.with_tools(Arc::new(BarrierTools(barrier)));
    let principal = ada();
    let prepared = prepare_turn(&bench.platform, &principal, asks("a"));
    let prepared = tokio::time::timeout(Duration::from_secs(10), prepared).await.expect("each waits for all");
    let prompt = prepared.expect("a turn").request.turn.prompt.clone();
    assert_eq!(prompt.system_text(), "first\n\nsecond\n\nthird");
}

#[tokio::test]
async fn tools_are_cut_by_what_the_caller_may_use() {
    let mut cut = agent();
    cut["id"] = "cut".into();
    cut["content"]["agentServerTools"] = json!(["readEpics"]);
    let bench = bench(vec![agent(), cut], []).await;
    let cases: [(&str, Caller, &[&str]); 4] = [
        ("a", Caller::Session, &["readEpics", "readTodos"]),
        ("a", Caller::Proactive, &["readEpics", "readTodos"]),
        ("a", Caller::Widget, &["readTodos"]),
        ("cut", Caller::Session, &["readEpics"]),
    ];
    for (agent, caller, expected) in cases {
        let principal = Principal::new("ada", "c", caller);
        let prepared = prepare_turn(&bench.platform, &principal, asks(agent)).await.expect("a turn");
        let names: Vec<&str> = prepared.request.turn.tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, expected, "{agent} {caller:?}");
    }
}

/// An issuer that counts its tokens.
#[derive(Default)]
struct CountingIssuer(std::sync::atomic::AtomicUsize);

#[derive(Debug)]
struct FixedToken(crate::secret::Secret);

impl RunToken for FixedToken {
    fn text(&self) -> &crate::secret::Secret {
        &self.0
    }

    fn report_calls(&self) -> Box<dyn crate::event::ReportedToolCalls> {
        Box::new(crate::testing::FakeReportedCalls::default())
    }

    fn keep_until_expiry(&self) {}
}

impl RunTokens for CountingIssuer {
    fn issue(
        &self,
        _: &ExecutionContext,
        _: &[Arc<ToolSpec>],
        _: Duration,
    ) -> Result<Arc<dyn RunToken>, AgentError> {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(Arc::new(FixedToken(crate::secret::Secret::new("text"))))
    }
}

#[tokio::test]
async fn only_a_run_with_tools_and_a_remote_backend_has_a_token() {
    let TurnFixture { platform, tools, .. } = bench(vec![agent()], []).await;
    let issuer = Arc::new(CountingIssuer::default());
    let platform = platform.with_run_tokens(issuer.clone());
    let mut capabilities = BackendCapabilities::new(crate::budget::TokenBudget { max_prompt_tokens: 1000 });
    let context = ExecutionContext::default();
    let mint = |capabilities: &BackendCapabilities, tools: &[Arc<ToolSpec>]| {
        mint_run_token(&platform, capabilities, &context, tools).expect("no error").is_some()
    };
    assert!(!mint(&capabilities, &tools.specs()), "the backend calls the tools itself");
    capabilities.run_token_ttl = Some(Duration::from_secs(1));
    assert!(!mint(&capabilities, &[]));
    assert_eq!(issuer.0.load(std::sync::atomic::Ordering::Relaxed), 0);
    assert!(mint(&capabilities, &tools.specs()));
    assert_eq!(issuer.0.load(std::sync::atomic::Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_tool_that_the_caller_may_not_use_is_not_called_whatever_the_model_says() {
    let answers =
        [ScriptedAnswer::from_tool_call("1", "readEpics", "{}"), ScriptedAnswer::from_text("Sorry.")];
    let bench = bench(vec![agent()], answers).await;
    let visitor = Principal::new("widget:1", "c", Caller::Widget);
    read(run_turn(&bench.platform, &visitor, asks("a")).await.expect("a run")).await;
    assert!(bench.tools.calls().is_empty());
}

#[tokio::test]
async fn the_hash_in_the_run_is_of_what_was_sent_and_what_a_preview_shows() {
    let bench = bench(vec![agent()], [ScriptedAnswer::from_text("Hi.")]).await;
    let request = asks("a");
    let preview = prepare_turn(&bench.platform, &ada(), request.clone()).await.expect("a turn");
    let run = run_turn(&bench.platform, &ada(), request.clone()).await.expect("a run");
    assert_eq!((&*run.run().thread_id, &*run.run().run_id), (&*request.thread_id, &*request.run_id));
    let events = read(run).await;
    let Event::Custom { name, value } = &events[1] else { panic!("{events:?}") };
    let sent = bench.model.payloads();
    assert_eq!(sent.len(), 1);
    let prompt = &preview.request.turn.prompt;
    assert_eq!(name, "agent.prompt");
    assert_eq!(
        *value,
        json!({
            "requestSha256": sent[0].sha256(),
            "stablePrefixBytes": prompt.stable_prefix_bytes(),
            "promptTokens": prompt.tokens().total(),
            "backend": "embedded",
        })
    );
    assert_eq!(sent[0].bytes(), preview.request.payload.bytes());
}

#[tokio::test]
async fn a_visitor_sees_the_answer_and_neither_thoughts_nor_results_nor_extensions() {
    let script = || {
        let first = ScriptedAnswer::new().reasoning("Hm").call("1", "readTodos", ["{}"]);
        [first.finish(crate::message::FinishReason::ToolCalls), ScriptedAnswer::from_text("Hi.")]
    };
    let run = async |caller| {
        let bench = bench(vec![agent()], script()).await;
        let principal = Principal::new("u", "c", caller);
        let events = read(run_turn(&bench.platform, &principal, asks("a")).await.expect("a run")).await;
        assert_eq!(bench.tools.calls().len(), 1);
        events
    };
    let hidden = |event: &&Event| {
        let name = event.name();
        name.starts_with("REASONING") || name == "TOOL_CALL_RESULT" || name == "CUSTOM"
    };
    assert_eq!(run(Caller::Session).await.iter().filter(hidden).count(), 7);
    let visitor_events = run(Caller::Widget).await;
    assert_eq!(visitor_events.iter().filter(hidden).count(), 0);
    assert!(
        visitor_events
            .iter()
            .any(|event| matches!(event, Event::TextMessageContent { delta, .. } if delta == "Hi."))
    );
}

/// A role store, tool registry and context layer that always fail.
struct FailingStore;

fn store_error() -> StoreError {
    StoreError::unavailable("disk on fire")
}

#[async_trait]
impl RoleSource for FailingStore {
    async fn role(&self, _: &CompanyId, _: &AgentId) -> Result<Option<Arc<RoleBlock>>, StoreError> {
        Err(store_error())
    }
}

#[async_trait]
impl ContextLayer for FailingStore {
    fn name(&self) -> &'static str {
        "broken"
    }

    async fn collect(&self, _: &TurnInput) -> Result<Vec<Fragment>, LayerError> {
        Err(store_error().into())
    }
}

#[async_trait]
impl ToolRegistry for FailingStore {
    async fn list(&self, _: &ExecutionContext) -> Result<Vec<Arc<ToolSpec>>, ToolError> {
        Err(ToolError::internal(store_error()))
    }

    async fn call(
        &self,
        _: &ExecutionContext,
        _: &str,
        _: Value,
        _: &dyn Progress,
    ) -> Result<ToolOutput, ToolError> {
        Err(ToolError::internal(store_error()))
    }
}

#[tokio::test]
async fn whatever_fails_before_the_start_is_an_error_that_says_where() {
    let error =
        run_turn(&Platform::new(Arc::new(FailingStore)), &ada(), asks("a")).await.err().expect("no run");
    assert!(matches!(error, TurnError::Store(_)), "{error:?}");
    let with = async |change: fn(Platform) -> Platform| {
        let mut bench = bench(vec![agent()], []).await;
        bench.platform = change(bench.platform);
        bench.refusal(&ada(), asks("a")).await
    };
    let error = with(|platform| platform.with_layer(FailingStore)).await;
    assert!(matches!(error, TurnError::Layer(_)), "{error:?}");
    let error = with(|platform| platform.with_tools(Arc::new(FailingStore))).await;
    assert!(matches!(error, TurnError::Tools(_)), "{error:?}");
    assert_eq!(error.to_string(), "the agent's tools could not be listed");
}

#[tokio::test]
async fn what_the_backend_refuses_is_an_error_of_its_kind() {
    let kind = |error: TurnError| match error {
        TurnError::Backend(failure) => failure.kind(),
        other => panic!("{other:?}"),
    };
    let small = async |info: ModelInfo| {
        let mut bench = bench(vec![agent()], []).await;
        let model = Arc::new(ScriptedModel::new([]).with_info(info));
        bench.platform = bench.platform.with_backend(EmbeddedBackend::new(model));
        bench
    };
    let info = bench(vec![], []).await.model.info();
    let narrow = small(ModelInfo { context_window: 310, max_output_tokens: 300, ..info }).await;
    let long = TurnRequest::new("a", vec![Message::user("long ".repeat(1000))]);
    assert_eq!(kind(narrow.refusal(&ada(), long).await), AgentErrorKind::InvalidRequest);

    let refusal = ScriptedAnswer::from_start_error(AgentError::new(AgentErrorKind::RateLimited, "slow down"));
    let bench = bench(vec![agent()], [refusal]).await;
    let error = run_turn(&bench.platform, &ada(), asks("a")).await.err().expect("no run");
    assert_eq!(kind(error), AgentErrorKind::RateLimited);
}

/// A context layer whose text is another one in each turn.
#[derive(Default)]
struct CountingLayer(std::sync::atomic::AtomicUsize);

#[async_trait]
impl ContextLayer for CountingLayer {
    fn name(&self) -> &'static str {
        "counting"
    }

    async fn collect(&self, _: &TurnInput) -> Result<Vec<Fragment>, LayerError> {
        let count = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let text = format!("## Caller\n\n- The message comes from a signed-in user.\n\nIt is 12:0{count}.");
        let role =
            "You are the assistant of a library with opening hours from Tuesday to Saturday. ".repeat(6);
        Ok(vec![
            Fragment::new("role", "counting", Stability::Role, Part::new(role)),
            Fragment::new("time", "counting", Stability::Turn, Part::new(text)),
        ])
    }
}

/// Returns the text that a model reads of a request: system prompt, tools and messages.
fn rendered(request: &Value) -> String {
    let mut text = format!("{}\n{}", request["system"].as_str().unwrap_or_default(), request["tools"]);
    for message in request["messages"].as_array().expect("messages") {
        text.push_str(&format!(
            "\n<{}>{}",
            message["role"].as_str().expect("a role"),
            message["content"].as_str().expect("a text")
        ));
    }
    text
}

/// Returns the share of the second request that a prefix cache has after the first request and its answer.
fn cached_share(first: &Value, answer: &str, second: &Value) -> f64 {
    let cached = format!("{}\n<assistant>{answer}", rendered(first));
    let second = rendered(second);
    let common = cached.bytes().zip(second.bytes()).take_while(|(a, b)| a == b).count();
    common as f64 / second.len() as f64
}

#[tokio::test]
async fn the_next_turn_finds_the_latest_one_in_the_prefix_cache() {
    let answer = "On Thursdays the library is open from nine to six. ".repeat(20);
    let mut bench = bench(vec![agent()], [&*answer; 6].map(ScriptedAnswer::from_text)).await;
    bench.platform = bench.platform.with_layer(CountingLayer::default());
    for named_thread in [true, false] {
        let mut messages =
            vec![Message::user("Can I come on Thursday after work, or is that too late for you?")];
        let mut sent = Vec::new();
        for _ in 0..3 {
            let mut request = TurnRequest::new("a", messages.clone());
            if named_thread {
                request.thread_id = "t".into();
            }
            read(run_turn(&bench.platform, &ada(), request).await.expect("a run")).await;
            messages.extend([Message::assistant(answer.clone()), Message::user("And how is it on Friday?")]);
            sent.push(bench.model.sent_requests().pop().expect("a request"));
        }
        for turns in sent.windows(2) {
            let share = cached_share(&turns[0], &answer, &turns[1]);
            assert!(share >= 0.9, "{share} with a thread: {named_thread}");
        }
        let shown = rendered(&sent[2]);
        assert_eq!(shown.matches("<context>").count(), 3, "{shown}");
    }
}

fn overflow(window: Option<u32>) -> AgentError {
    let error = AgentError::new(AgentErrorKind::ContextExceeded, "too long");
    window.into_iter().fold(error, |error, window| error.with_member("contextWindow", window))
}

/// Returns a request with a history of this many messages of a hundred words.
fn long_request(messages: usize) -> TurnRequest {
    let message = |index: usize| {
        let text = format!("{index} {}", "word ".repeat(100));
        if index.is_multiple_of(2) { Message::user(text) } else { Message::assistant(text) }
    };
    TurnRequest::new("a", (0..messages).map(message).collect())
}

#[tokio::test]
async fn a_prompt_beyond_the_models_window_is_cut_and_sent_once_more() {
    let answers = [ScriptedAnswer::from_start_error(overflow(Some(3_000))), ScriptedAnswer::from_text("Hi.")];
    let bench = bench(vec![agent()], answers).await;
    let events = read(run_turn(&bench.platform, &ada(), long_request(31)).await.expect("a run")).await;
    assert_eq!(events.iter().filter(|event| matches!(event, Event::RunStarted { .. })).count(), 1);
    let lengths: Vec<usize> = bench
        .model
        .sent_requests()
        .iter()
        .map(|request| request["messages"].as_array().expect("messages").len())
        .collect();
    assert!(lengths.len() == 2 && lengths[0] == 31 && lengths[1] < 20, "{lengths:?}");
}

#[tokio::test]
async fn a_prompt_is_sent_at_most_twice_and_only_if_it_can_be_cut() {
    for (answers, requests) in [
        (vec![ScriptedAnswer::from_start_error(overflow(None))], 1),
        (
            vec![
                ScriptedAnswer::from_start_error(overflow(Some(3_000))),
                ScriptedAnswer::from_start_error(overflow(Some(2_000))),
            ],
            2,
        ),
    ] {
        let bench = bench(vec![agent()], answers).await;
        let error = run_turn(&bench.platform, &ada(), long_request(31)).await.err().expect("an error");
        let TurnError::Backend(error) = error else { panic!("{error:?}") };
        assert_eq!(error.kind(), AgentErrorKind::ContextExceeded);
        assert_eq!(bench.model.payloads().len(), requests);
    }
}

#[tokio::test]
async fn no_tool_is_offered_where_none_may_be_called() {
    let bench = bench(vec![agent()], [ScriptedAnswer::from_text("Hi.")]).await;
    let request = TurnRequest { tool_choice: ToolChoice::None, ..asks("a") };
    let prepared = prepare_turn(&bench.platform, &ada(), request).await.expect("a turn");
    assert!(prepared.request.turn.tools.is_empty());
}

#[tokio::test]
async fn a_remote_runtime_gets_the_chosen_tool_alone() {
    let TurnFixture { tools, .. } = bench(vec![agent()], []).await;
    let offered = |choice: &ToolChoice, remote: bool| {
        let mut capabilities =
            BackendCapabilities::new(crate::budget::TokenBudget { max_prompt_tokens: 1000 });
        capabilities.run_token_ttl = remote.then(|| Duration::from_secs(1));
        let offered = offered_tools(choice, &capabilities, tools.specs());
        offered.iter().map(|tool| tool.name.clone()).collect::<Vec<_>>()
    };
    let all = ["other", "readEpics", "readTodos"];
    let named = ToolChoice::Tool("readEpics".to_owned());
    assert_eq!(offered(&named, true), ["readEpics"]);
    assert_eq!(offered(&named, false), all, "the tool loop offers it alone in the first round");
    for remote in [true, false] {
        assert_eq!(offered(&ToolChoice::Auto, remote), all);
        assert_eq!(offered(&ToolChoice::None, remote), [""; 0]);
    }
}

#[tokio::test]
async fn the_limit_on_prompts_is_that_of_the_selected_backend() {
    let bench = bench(vec![agent()], []).await;
    let prepared = prepare_turn(&bench.platform, &ada(), asks("a")).await.expect("a turn");
    let expected = prepared.capabilities.budget.max_prompt_tokens;
    assert_eq!(bench.platform.max_prompt_tokens(&ada(), &asks("a")).await, Some(expected));
    assert_eq!(bench.platform.max_prompt_tokens(&ada(), &asks("b")).await, None, "there is no such agent");
}
