//! Tests of failures before the start, and of prompts that exceed the window of the model.

use super::*;

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
async fn errors_before_the_start_name_their_stage() {
    let error =
        run_turn(&Platform::new(Arc::new(FailingStore)), &ada(), asks("a")).await.expect_err("no run");
    assert!(matches!(error, TurnError::Store(_)), "{error:?}");
    let with = async |change: fn(Platform) -> Platform| {
        let mut fixture = fixture(vec![agent()], []).await;
        fixture.platform = change(fixture.platform);
        fixture.refusal(&ada(), asks("a")).await
    };
    let error = with(|platform| platform.with_layer(FailingStore)).await;
    assert!(matches!(error, TurnError::Layer(_)), "{error:?}");
    let error = with(|platform| platform.with_tools(Arc::new(FailingStore))).await;
    assert!(matches!(error, TurnError::Tools(_)), "{error:?}");
    assert_eq!(error.to_string(), "the agent's tools could not be listed");
}

#[tokio::test]
async fn refusals_of_the_backend_keep_their_kind() {
    let kind = |error: TurnError| match error {
        TurnError::Backend(failure) => failure.kind(),
        other => panic!("{other:?}"),
    };
    let small = async |info: ModelInfo| {
        let mut fixture = fixture(vec![agent()], []).await;
        let model = Arc::new(ScriptedModel::new([]).with_info(info));
        fixture.platform = fixture.platform.with_backend(EmbeddedBackend::new(model));
        fixture
    };
    let info = fixture(vec![], []).await.model.info();
    let narrow = small(ModelInfo { context_window: 310, max_output_tokens: 300, ..info }).await;
    let long = TurnRequest::new("a", vec![Message::user("long ".repeat(1000))]);
    assert_eq!(kind(narrow.refusal(&ada(), long).await), AgentErrorKind::InvalidRequest);

    let refusal = ScriptedAnswer::from_start_error(AgentError::new(AgentErrorKind::RateLimited, "slow down"));
    let fixture = fixture(vec![agent()], [refusal]).await;
    let error = run_turn(&fixture.platform, &ada(), asks("a")).await.expect_err("no run");
    assert_eq!(kind(error), AgentErrorKind::RateLimited);
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
    let fixture = fixture(vec![agent()], answers).await;
    let events = read(run_turn(&fixture.platform, &ada(), long_request(31)).await.expect("a run")).await;
    assert_eq!(events.iter().filter(|event| matches!(event, Event::RunStarted { .. })).count(), 1);
    let lengths: Vec<usize> = fixture
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
        let fixture = fixture(vec![agent()], answers).await;
        let error = run_turn(&fixture.platform, &ada(), long_request(31)).await.expect_err("an error");
        let TurnError::Backend(error) = error else { panic!("{error:?}") };
        assert_eq!(error.kind(), AgentErrorKind::ContextExceeded);
        assert_eq!(fixture.model.payloads().len(), requests);
    }
}
