//! Tests of whole turns with in-memory stores, a scripted model and fake tools.

mod failures;
mod offers;

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

async fn fixture(roles: Vec<Value>, answers: impl IntoIterator<Item = ScriptedAnswer>) -> TurnFixture {
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
async fn an_agent_exists_only_for_its_own_company() {
    let fixture = fixture(vec![agent()], [ScriptedAnswer::from_text("Hi.")]).await;
    let stranger = Principal::new("eve", "another", Caller::Session);
    for (principal, agent) in [(&stranger, "a"), (&ada(), "b"), (&ada(), "")] {
        let error = fixture.refusal(principal, asks(agent)).await;
        assert!(matches!(error, TurnError::AgentNotFound), "{agent}: {error:?}");
    }
    assert!(run_turn(&fixture.platform, &ada(), asks("a")).await.is_ok());
}

#[tokio::test]
async fn a_credential_that_is_bound_to_an_agent_is_valid_only_for_that_agent() {
    let fixture = fixture(vec![agent()], [ScriptedAnswer::from_text("Hi.")]).await;
    let bound = |agent: &str| Principal { agent_id: Some(agent.into()), ..ada() };
    for (principal, agent) in [(bound("b"), "a"), (bound("a"), "no such")] {
        let error = fixture.refusal(&principal, asks(agent)).await;
        assert!(matches!(error, TurnError::WrongAgent), "{error:?}");
    }
    assert!(run_turn(&fixture.platform, &bound("a"), asks("a")).await.is_ok());
}

#[tokio::test]
async fn a_role_without_a_backend_reports_the_outcome_of_each_rule() {
    let fixture =
        fixture(vec![agent_with(json!([{"name": "AgentServer", "content": {"agentServerUrl": " "}}]))], [])
            .await;
    let error = fixture.refusal(&ada(), asks("a")).await;
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
    let fixture = fixture(vec![agent_with(workflow)], []).await;
    let error = fixture.refusal(&ada(), asks("a")).await;
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
    let mut fixture = fixture(vec![agent()], []).await;
    let in_zone = |zone: &str| TurnRequest { timezone: Some(zone.into()), ..asks("a") };
    for unknown in ["Europe/Atlantis", "localtime", "Factory", &"x".repeat(65)] {
        let error = fixture.refusal(&ada(), in_zone(unknown)).await;
        assert!(matches!(error, TurnError::InvalidField { field: "timezone", .. }), "{error:?}");
    }

    let bob = Principal::new("bob", "c", Caller::Session);
    let elsewhere = Principal::new("bob", "d", Caller::Session);
    let zone = async |platform: &Platform, principal: &Principal, request| {
        let prepared = prepare_turn(platform, principal, request).await.expect("a turn");
        prepared.request.turn.context.timezone.clone()
    };
    assert_eq!(zone(&fixture.platform, &bob, asks("a")).await, None, "no directory of users");
    fixture.platform = fixture.platform.with_users(Arc::new(TokyoBob));
    assert_eq!(zone(&fixture.platform, &bob, asks("a")).await.as_deref(), Some("Asia/Tokyo"));
    assert_eq!(
        zone(&fixture.platform, &bob, in_zone("Europe/Berlin")).await.as_deref(),
        Some("Europe/Berlin")
    );
    assert_eq!(zone(&fixture.platform, &ada(), asks("a")).await, None);
    let error = fixture.refusal(&elsewhere, asks("a")).await;
    assert!(matches!(error, TurnError::AgentNotFound), "{error:?}");
}

#[tokio::test]
async fn the_context_comes_from_the_credential_and_the_role() {
    let fixture = fixture(vec![agent()], []).await;
    let principal = Principal::new("ada", "c", Caller::Proactive);
    let request = TurnRequest {
        thread_id: "t".into(),
        run_id: "r".into(),
        todo_list_id: Some("l".into()),
        tool_choice: ToolChoice::Required,
        ..asks("a")
    };
    let prepared = prepare_turn(&fixture.platform, &principal, request).await.expect("a turn");
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
    assert!(fixture.model.payloads().is_empty(), "preparing sends nothing");
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
    let mut fixture = fixture(vec![agent()], []).await;
    for name in ["first", "second", "third"] {
        fixture.platform = fixture.platform.with_layer(BarrierLayer(name, barrier.clone()));
    }
    fixture.platform = fixture.platform.with_tools(Arc::new(BarrierTools(barrier)));
    let principal = ada();
    let prepared = prepare_turn(&fixture.platform, &principal, asks("a"));
    let prepared = tokio::time::timeout(Duration::from_secs(60), prepared).await.expect("each waits for all");
    let prompt = prepared.expect("a turn").request.turn.prompt.clone();
    assert_eq!(prompt.system_text(), "first\n\nsecond\n\nthird");
}

#[tokio::test]
async fn the_hash_in_the_run_is_of_what_was_sent_and_what_a_preview_shows() {
    let fixture = fixture(vec![agent()], [ScriptedAnswer::from_text("Hi.")]).await;
    let request = asks("a");
    let preview = prepare_turn(&fixture.platform, &ada(), request.clone()).await.expect("a turn");
    let run = run_turn(&fixture.platform, &ada(), request.clone()).await.expect("a run");
    assert_eq!((&*run.run().thread_id, &*run.run().run_id), (&*request.thread_id, &*request.run_id));
    let events = read(run).await;
    let Event::Custom { name, value } = &events[1] else { panic!("{events:?}") };
    let sent = fixture.model.payloads();
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
async fn visitors_see_the_answer_without_reasoning_results_and_extensions() {
    let script = || {
        let first = ScriptedAnswer::new().reasoning("Hm").call("1", "readTodos", ["{}"]);
        [first.finish(crate::message::FinishReason::ToolCalls), ScriptedAnswer::from_text("Hi.")]
    };
    let run = async |caller| {
        let fixture = fixture(vec![agent()], script()).await;
        let principal = Principal::new("u", "c", caller);
        let events = read(run_turn(&fixture.platform, &principal, asks("a")).await.expect("a run")).await;
        assert_eq!(fixture.tools.calls().len(), 1);
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
    let mut fixture = fixture(vec![agent()], [&*answer; 6].map(ScriptedAnswer::from_text)).await;
    fixture.platform = fixture.platform.with_layer(CountingLayer::default());
    for named_thread in [true, false] {
        let mut messages =
            vec![Message::user("Can I come on Thursday after work, or is that too late for you?")];
        let mut sent = Vec::new();
        for _ in 0..3 {
            let mut request = TurnRequest::new("a", messages.clone());
            if named_thread {
                request.thread_id = "t".into();
            }
            read(run_turn(&fixture.platform, &ada(), request).await.expect("a run")).await;
            messages.extend([Message::assistant(answer.clone()), Message::user("And how is it on Friday?")]);
            sent.push(fixture.model.sent_requests().pop().expect("a request"));
        }
        for turns in sent.windows(2) {
            let share = cached_share(&turns[0], &answer, &turns[1]);
            assert!(share >= 0.9, "{share} with a thread: {named_thread}");
        }
        let shown = rendered(&sent[2]);
        assert_eq!(shown.matches("<context>").count(), 3, "{shown}");
    }
}

#[tokio::test]
async fn the_limit_on_prompts_is_that_of_the_selected_backend() {
    let fixture = fixture(vec![agent()], []).await;
    let prepared = prepare_turn(&fixture.platform, &ada(), asks("a")).await.expect("a turn");
    let expected = prepared.capabilities.budget.max_prompt_tokens;
    assert_eq!(fixture.platform.max_prompt_tokens(&ada(), &asks("a")).await, Some(expected));
    assert_eq!(fixture.platform.max_prompt_tokens(&ada(), &asks("b")).await, None, "there is no such agent");
}

#[tokio::test]
async fn platforms_and_runs_have_debug() {
    let layer = crate::context::RoleLayer::new(Arc::default());
    let platform = Platform::new(Arc::new(StaticRoles::new())).with_layer(layer);
    assert_eq!(format!("{platform:?}"), r#"Platform { layers: ["role"], .. }"#);
    let request = TurnRequest::new("a", vec![Message::user("hi")]);
    let error = run_turn(&platform, &ada(), request).await.expect_err("there is no agent");
    assert!(matches!(error, TurnError::AgentNotFound), "{error:?}");
}
