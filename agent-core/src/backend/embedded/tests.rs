//! Tests of the embedded backend with a scripted model.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::{FutureExt, StreamExt};

use super::*;
use crate::backend::ErasedBackend as _;
use crate::budget::{EstimateCounter, TokenCounter};
use crate::event::{Event, EventGrammar};
use crate::message::{Content, ContentPart, FinishReason, MediaSource, Message, Role};
use crate::model::{ModelInfo, ModelStream};
use crate::payload::Payload;
use crate::prompt::{Prompt, PromptMessage};
use crate::select::BackendChoice;
use crate::testing::{FakeTools, ManualClock, ScriptedAnswer, ScriptedModel, backend_turn};
use crate::tool::ToolChoice;
use crate::tool::ToolSpec;

fn embedded() -> BackendChoice {
    BackendChoice::Embedded(EmbeddedAi::default())
}

fn turn(choice: BackendChoice, message: Message, tools: Arc<[Arc<ToolSpec>]>) -> Arc<Turn> {
    let prompt = Arc::new(Prompt::new(Vec::new(), vec![PromptMessage::new(message)]));
    let (tool_choice, thinking) = (ToolChoice::Required, Some(true));
    Arc::new(Turn { prompt, tools, tool_choice, thinking, ..backend_turn(choice) })
}

fn says_hi(tools: Arc<[Arc<ToolSpec>]>) -> Arc<Turn> {
    turn(embedded(), Message::user("hi"), tools)
}

fn info() -> ModelInfo {
    ScriptedModel::repeating("").info()
}

fn kind<T>(result: Result<T, AgentError>) -> AgentErrorKind {
    result.err().expect("a failure").kind()
}

#[test]
fn a_turn_runs_with_the_backends_tools_and_limits() {
    let model = Arc::new(ScriptedModel::new([
        ScriptedAnswer::from_tool_call("a", "x", "{}"),
        ScriptedAnswer::from_text("Done."),
    ]));
    let tools = Arc::new(FakeTools::new().answers("x", "a long result"));
    let backend = EmbeddedBackend::new(model.clone())
        .with_tools(tools.clone())
        .with_clock(Arc::new(ManualClock::new()))
        .with_limits(LoopLimits { max_result_bytes: 1, ..LoopLimits::default() });
    let prepared = backend.prepare_turn(says_hi(tools.specs())).expect("prepared");
    assert!(model.payloads().is_empty(), "preparing sends nothing");
    let payload = prepared.payload.clone();
    let events = async { backend.start_turn(prepared).await.expect("started").collect::<Vec<Event>>().await };
    let events = events.now_or_never().expect("the run does not wait");
    EventGrammar::check(&events).expect("the grammar");
    let payloads = model.payloads();
    assert_eq!(payloads[0].bytes(), payload.bytes(), "the prepared bytes are sent");
    assert_eq!(model.sent_requests()[0]["toolChoice"], "Required");
    assert_eq!(model.sent_requests()[0]["thinking"], true);
    assert_eq!(model.sent_requests()[1]["messages"][2]["content"], "a\n[truncated: 13 bytes in total]");
    assert_eq!(tools.calls()[0].context.user_id, "ada");
}

#[test]
fn a_tool_that_the_turn_does_not_offer_is_not_called() {
    let model = Arc::new(ScriptedModel::new([
        ScriptedAnswer::from_tool_call("a", "y", "{}"),
        ScriptedAnswer::from_text("Sorry."),
    ]));
    let tools = Arc::new(FakeTools::new().answers("x", "yes").answers("y", "secret"));
    let backend = EmbeddedBackend::new(model.clone()).with_tools(tools.clone());
    let prepared = backend.prepare_turn(says_hi(tools.specs()[..1].into())).expect("prepared");
    let run = async { backend.start_turn(prepared).await.expect("started").collect::<Vec<Event>>().await };
    run.now_or_never().expect("the run does not wait");
    assert!(tools.calls().is_empty());
    assert_eq!(model.sent_requests()[1]["messages"][2]["content"], "there is no tool named \"y\"");
}

#[test]
fn content_that_the_model_does_not_support_is_not_sent() {
    let source = MediaSource::Url { value: "https://example.com/a.png".into(), mime_type: None };
    let picture = || Message {
        content: Content::Parts(vec![ContentPart::Image { source: source.clone() }]),
        ..Message::text(Role::User, "")
    };
    let tools = FakeTools::new().answers("x", "yes").specs();
    let text_only = ModelInfo { supports_media: false, supports_tools: false, ..info() };
    let cases = [(info(), None, true), (text_only, Some(AgentErrorKind::UnsupportedContent), false)];
    for (info, error_kind, has_tools) in cases {
        let backend = EmbeddedBackend::new(Arc::new(ScriptedModel::repeating("").with_info(info)));
        let prepared = backend.prepare_turn(turn(embedded(), picture(), Arc::new([])));
        assert_eq!(prepared.err().map(|failure| failure.kind()), error_kind);
        let prepared = backend.prepare_turn(says_hi(tools.clone())).expect("prepared");
        let body: serde_json::Value = serde_json::from_slice(prepared.payload.bytes()).expect("JSON");
        assert_eq!(body.get("tools").is_some(), has_tools);
    }
}

/// A model with a separate token counter.
struct ModelWithCounter(ScriptedModel);

#[async_trait]
impl Model for ModelWithCounter {
    fn info(&self) -> ModelInfo {
        self.0.info()
    }

    fn counter(&self) -> Option<Arc<dyn TokenCounter>> {
        Some(Arc::new(EstimateCounter))
    }

    fn prepare(&self, request: &ModelRequest) -> Result<Payload, AgentError> {
        self.0.prepare(request)
    }

    async fn start(&self, payload: Payload) -> Result<ModelStream, AgentError> {
        self.0.start(payload).await
    }
}

#[test]
fn the_budget_and_the_counter_are_the_models() {
    let info = ModelInfo { context_window: 1000, max_output_tokens: 300, ..info() };
    let without_counter =
        EmbeddedBackend::new(Arc::new(ScriptedModel::repeating("").with_info(info.clone())));
    let max_prompt_tokens = info.context_window - info.max_output_tokens;
    let budget = crate::budget::TokenBudget { max_prompt_tokens };
    assert_eq!(without_counter.capabilities_of(&embedded()).expect("a budget").budget, budget);
    assert!(without_counter.capabilities_of(&embedded()).expect("known").counter.is_none());
    let with_counter = EmbeddedBackend::new(Arc::new(ModelWithCounter(ScriptedModel::repeating(""))));
    assert!(with_counter.capabilities_of(&embedded()).expect("known").counter.is_some());
}

/// A model source that always fails.
struct FailingModelSource;

impl ModelSource for FailingModelSource {
    fn model(&self, settings: &EmbeddedAi) -> Result<Arc<dyn Model>, AgentError> {
        let provider = settings.provider.clone().unwrap_or_default();
        Err(AgentError::new(AgentErrorKind::UnknownProvider, format!("{provider:?} is not known")))
    }
}

#[test]
fn a_role_without_a_model_is_rejected_before_a_request_is_built() {
    let settings = EmbeddedAi { provider: Some("abacus".into()), ..EmbeddedAi::default() };
    let choice = BackendChoice::Embedded(settings);
    let backend = EmbeddedBackend::new(FailingModelSource);
    let result = backend.prepare_turn(turn(choice.clone(), Message::user("hi"), Arc::new([])));
    assert_eq!(result.expect_err("no model").message(), "\"abacus\" is not known");
    assert_eq!(kind(backend.capabilities_of(&choice)), AgentErrorKind::UnknownProvider);
}

/// A model source that counts the models of runs.
struct CountingModelSource(Arc<ScriptedModel>, Arc<AtomicUsize>);

impl ModelSource for CountingModelSource {
    fn model(&self, _: &EmbeddedAi) -> Result<Arc<dyn Model>, AgentError> {
        Ok(self.0.clone())
    }

    fn model_for_run(&self, _: &EmbeddedAi, _: &ExecutionContext) -> Result<Arc<dyn Model>, AgentError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Ok(self.0.clone())
    }
}

#[test]
fn a_request_is_started_by_its_model_and_repeated_by_another() {
    let (script, count) = (Arc::new(ScriptedModel::repeating("Hi.")), Arc::new(AtomicUsize::new(0)));
    let backend = EmbeddedBackend::new(CountingModelSource(script.clone(), count.clone()));
    backend.capabilities_of(&embedded()).expect("a budget");
    let prepared = backend.prepare_turn(says_hi(Arc::new([]))).expect("prepared");
    let mut models = vec![count.load(Ordering::Relaxed)];
    for _ in 0..2 {
        let result = backend.start_turn(prepared.clone()).now_or_never().expect("the run does not wait");
        let events =
            result.expect("started").collect::<Vec<Event>>().now_or_never().expect("the run does not wait");
        EventGrammar::check(&events).expect("the grammar");
        models.push(count.load(Ordering::Relaxed));
    }
    assert_eq!(models, [1, 1, 2]);
    let other_request = PreparedRequest { payload: Payload::text("{}"), turn: prepared.turn };
    let result = backend.start_turn(other_request).now_or_never().expect("the run does not wait");
    assert!(result.is_ok(), "a request that another backend has built is sent as it is");
    assert_eq!((count.load(Ordering::Relaxed), script.payloads().len()), (3, 3));
}

#[test]
fn a_turn_for_another_backend_is_an_internal_error() {
    let backend = EmbeddedBackend::new(Arc::new(ScriptedModel::repeating("")));
    let other_choice = || BackendChoice::AgentServer(Box::default());
    assert_eq!(kind(backend.capabilities_of(&other_choice())), AgentErrorKind::Internal);
    let turn = turn(other_choice(), Message::user("hi"), Arc::new([]));
    assert_eq!(kind(backend.prepare_turn(turn.clone())), AgentErrorKind::Internal);
    let prepared = PreparedRequest { payload: Payload::builder(0).finish(), turn };
    assert_eq!(
        kind(backend.start_turn(prepared).now_or_never().expect("the run does not wait")),
        AgentErrorKind::Internal
    );
}

#[test]
fn a_rejection_by_the_model_is_an_error_of_start() {
    let rejected =
        ScriptedAnswer::from_start_error(AgentError::new(AgentErrorKind::RateLimited, "slow down"));
    let completed = ScriptedAnswer::new().finish(FinishReason::Stop);
    let backend = EmbeddedBackend::new(Arc::new(ScriptedModel::new([rejected, completed])));
    let prepared = backend.prepare_turn(says_hi(Arc::new([]))).expect("prepared");
    let result = backend.start_turn(prepared.clone()).now_or_never().expect("the run does not wait");
    assert_eq!(kind(result), AgentErrorKind::RateLimited);
    let second_result = backend.start_turn(prepared).now_or_never().expect("the run does not wait");
    assert!(second_result.is_ok(), "a prepared request can be sent again");
}
