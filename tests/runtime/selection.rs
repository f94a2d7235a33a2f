//! Backend selection, and the errors if no backend is usable.

use serde_json::{Value, json};

use crate::support::server;
use crate::support::vendor::{ReceivedRequest, Vendor};
use crate::support::{expect_problem, parse_run, workspace};

/// Returns a workspace whose agent has these containers.
fn with_children(children: &Value) -> Value {
    let mut workspace = workspace("http://unused.example/v1", "m");
    workspace["agents"][0]["children"] = children.clone();
    workspace
}

async fn ask(workspace: &Value) -> reqwest::Response {
    let app = server::app(workspace, &[]).await;
    app.chat(&json!({"agentId": "a1", "message": "Hello"})).await
}

#[tokio::test]
async fn an_agent_without_a_backend_gets_the_outcome_of_each_rule() {
    let mut workspace = with_children(&json!([
        {"name": "AgentServer", "content": {"agentServerModel": "m", "agentServerApiKey": "key-canary"}},
        {"name": "SubscriptionConnector", "content": {"model": " "}},
        {"name": "Unheard", "content": {"of": "it"}}
    ]));
    workspace["agents"][0]["content"]["agentServerUrl"] = "  ".into();
    let problem = expect_problem(ask(&workspace).await, 422, "NO_CONNECTOR").await;
    assert_eq!(
        problem["selection"],
        json!({"rules": [
            {"rule": "content.agentServerUrl", "matched": false, "reason": "fieldBlank", "field": "agentServerUrl"},
            {"rule": "AgentServer", "matched": false, "reason": "fieldMissing", "field": "agentServerUrl"},
            {"rule": "WorkflowConnector", "matched": false, "reason": "noContainer"},
            {"rule": "EmbeddedAI", "matched": false, "reason": "noContainer"},
            {"rule": "SubscriptionConnector", "matched": false, "reason": "fieldBlank", "field": "model"}
        ]})
    );
    assert!(!problem.to_string().contains("canary"));
}

#[tokio::test]
async fn a_subscription_without_a_runtime_is_not_configured() {
    let children = json!([{"name": "SubscriptionConnector", "content": {"model": "canary"}}]);
    let problem = expect_problem(ask(&with_children(&children)).await, 503, "NOT_CONFIGURED").await;
    assert!(problem["detail"].as_str().expect("text").contains("RUNTIME_URL"), "{problem}");
    assert!(!problem.to_string().contains("canary"));
}

#[tokio::test]
async fn unusable_embedded_providers_name_their_settings() {
    let embedded = |content: Value| with_children(&json!([{"name": "EmbeddedAI", "content": content}]));
    let problem =
        expect_problem(ask(&embedded(json!({"provider": "openia"}))).await, 400, "UNKNOWN_PROVIDER").await;
    let detail = problem["detail"].as_str().expect("text");
    for choice in ["auto", "local", "openai", "ollama"] {
        assert!(detail.contains(choice), "{detail}");
    }
    for (content, setting) in [
        (json!({"provider": "openai"}), "OPENAI_API_KEY"),
        (json!({"provider": "local"}), "EMBEDDED_MODEL_PATH"),
        (json!({"provider": "ollama"}), "OLLAMA_BASE_URL"),
        (json!({}), "OPENAI_API_KEY"),
        (json!({}), "OLLAMA_BASE_URL"),
    ] {
        let problem = expect_problem(ask(&embedded(content)).await, 503, "NOT_CONFIGURED").await;
        assert!(problem["detail"].as_str().expect("text").contains(setting), "{problem}");
    }
}

#[tokio::test]
async fn the_first_rule_that_matches_decides() {
    let vendor = Vendor::start().await;
    let embedded = json!({"name": "EmbeddedAI", "content":
        {"provider": "openai", "model": "m", "baseUrl": vendor.base_url(), "apiKey": "key"}});
    let subscription = json!({"name": "SubscriptionConnector", "content": {"model": "m"}});
    let workflow = json!({"name": "WorkflowConnector", "content": {"webhookUrl": vendor.webhook_url()}});
    let blank = json!({"name": "WorkflowConnector", "content": {"webhookUrl": ""}});
    // The order of the rules decides, not the order of the containers.
    let answered = ask(&with_children(&json!([subscription, blank, embedded]))).await;
    assert_eq!(answered.status(), 200);
    parse_run(&answered.text().await.expect("a whole body"));
    assert_eq!(vendor.received().len(), 1);
    let answered = ask(&with_children(&json!([embedded, workflow]))).await;
    assert_eq!(answered.status(), 200);
    parse_run(&answered.text().await.expect("a whole body"));
    let received = vendor.received();
    assert_eq!(
        received.iter().map(ReceivedRequest::path).collect::<Vec<_>>(),
        ["/v1/chat/completions", "/webhook/chat"]
    );
}
