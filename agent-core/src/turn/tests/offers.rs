//! Tests of the tools that a turn offers, and of run tokens.

use super::*;

#[tokio::test]
async fn tools_are_cut_by_what_the_caller_may_use() {
    let mut cut = agent();
    cut["id"] = "cut".into();
    cut["content"]["agentServerTools"] = json!(["readEpics"]);
    let fixture = fixture(vec![agent(), cut], []).await;
    let cases: [(&str, Caller, &[&str]); 4] = [
        ("a", Caller::Session, &["readEpics", "readTodos"]),
        ("a", Caller::Proactive, &["readEpics", "readTodos"]),
        ("a", Caller::Widget, &["readTodos"]),
        ("cut", Caller::Session, &["readEpics"]),
    ];
    for (agent, caller, expected) in cases {
        let principal = Principal::new("ada", "c", caller);
        let prepared = prepare_turn(&fixture.platform, &principal, asks(agent)).await.expect("a turn");
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
    let TurnFixture { platform, tools, .. } = fixture(vec![agent()], []).await;
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
    let fixture = fixture(vec![agent()], answers).await;
    let visitor = Principal::new("widget:1", "c", Caller::Widget);
    read(run_turn(&fixture.platform, &visitor, asks("a")).await.expect("a run")).await;
    assert!(fixture.tools.calls().is_empty());
}

#[tokio::test]
async fn no_tool_is_offered_where_none_may_be_called() {
    let fixture = fixture(vec![agent()], [ScriptedAnswer::from_text("Hi.")]).await;
    let request = TurnRequest { tool_choice: ToolChoice::None, ..asks("a") };
    let prepared = prepare_turn(&fixture.platform, &ada(), request).await.expect("a turn");
    assert!(prepared.request.turn.tools.is_empty());
}

#[tokio::test]
async fn a_remote_runtime_gets_the_chosen_tool_alone() {
    let TurnFixture { tools, .. } = fixture(vec![agent()], []).await;
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
