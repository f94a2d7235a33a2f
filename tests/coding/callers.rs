//! Callers of an agent that answers by a subscription: each uses the tokens of the user for whom it runs, or none.

use std::sync::Arc;

use agent_core::clock::SystemClock;
use agent_platform::token::{ApiGrant, Grant, McpGrant, NewToken, Tokens, WidgetGrant};
use reqwest::Response;
use serde_json::{Value, json};

use super::hello;
use super::installation::{Installation, MODEL, open};
use crate::pulse::{deliver_callback, delivery};
use crate::support::server::{INTERNAL_SECRET, PULSE_SECRET, session_token};
use crate::support::{expect_problem, parse_run, text_of};

/// Settings of a scheduler that is not there, whose deliveries the tests make.
const SCHEDULER: [(&str, &str); 2] = [("PULSE_URL", "http://127.0.0.1:9"), ("PULSE_SECRET", PULSE_SECRET)];

async fn mint(all: &Installation, token: NewToken) -> String {
    let tokens = Tokens::new(all.stores.records.clone(), Arc::new(SystemClock));
    tokens.mint(token).await.expect("minted").text.expose().to_owned()
}

async fn ask_as_visitor(all: &Installation) -> Response {
    let token = mint(all, NewToken::new("c1", "a1", Grant::Widget(WidgetGrant::default()))).await;
    let request = all.app.request("POST", "/api/agent/chat").header("x-widget-token", token);
    request.json(&json!({"agentId": "a1", "message": "Hi"})).send().await.expect("an answer")
}

async fn ask_proactively(all: &Installation) -> Response {
    let request = all.app.request("POST", "/api/agent/chat").bearer_auth(INTERNAL_SECRET);
    let body = json!({"agentId": "a1", "message": "Report.", "userId": "u1", "companyId": "c1"});
    request.header("x-proactive-trigger", "every morning").json(&body).send().await.expect("an answer")
}

async fn deliver_job(all: &Installation, job: &str) -> Response {
    let payload =
        json!({"kind": "agent", "userId": "u1", "companyId": "c1", "agentId": "a1", "message": "Report."});
    deliver_callback(&all.app, &delivery(payload, job, 1)).await
}

async fn ask_by_api(all: &Installation) -> Response {
    let grant = ApiGrant { user_id: "u1".into(), agents: vec!["a1".into()], caps: None };
    let token = mint(all, NewToken::api("c1", grant)).await;
    let body = json!({"model": "a1", "messages": [{"role": "user", "content": "Hi"}]});
    let request = all.app.request("POST", "/v1/chat/completions").bearer_auth(token);
    request.json(&body).send().await.expect("an answer")
}

async fn ask_by_mcp(all: &Installation) -> Response {
    let grant = McpGrant { user_id: "u1".into(), ..McpGrant::default() };
    let token = mint(all, NewToken::new("c1", "a1", Grant::Mcp(grant))).await;
    all.app.chat_as(&token, "", &json!({"agentId": "a1", "message": "Hi"})).await
}

#[tokio::test]
async fn only_a_user_with_a_session_is_answered() {
    let all = open(&SCHEDULER).await;
    // The owner of the agent is signed in too; no other user gets the owner's tokens.
    all.sign_in("u1").await;
    all.sign_in("u2").await;
    all.vendor.on(MODEL, [hello()]);
    for response in [ask_as_visitor(&all).await, ask_proactively(&all).await, deliver_job(&all, "j1").await] {
        let problem = expect_problem(response, 403, "SIGN_IN_REQUIRED").await;
        assert!(!problem.to_string().contains("canary"), "{problem}");
    }
    let response = ask_by_api(&all).await;
    assert_eq!(response.status(), 403);
    let body: Value = response.json().await.expect("JSON");
    assert!(
        body["error"]["message"].as_str().is_some_and(|text| text.contains("own subscription")),
        "{body}"
    );
    expect_problem(ask_by_mcp(&all).await, 401, "UNAUTHENTICATED").await;
    assert_eq!(all.vendor.received_bodies(MODEL), [Value::Null; 0], "the vendor is not called");

    let legacy = all.app.request("POST", "/api/svcchat/private").bearer_auth(session_token("u1", "c1"));
    let body = json!({"agentId": "a1", "message": "Hi"});
    let response = legacy.json(&body).send().await.expect("an answer");
    assert_eq!(response.status(), 200, "{:?}", response.text().await);
    assert_eq!(all.vendor.received_bodies(MODEL).len(), 1);
}

#[tokio::test]
async fn unattended_runs_use_their_users_tokens_if_allowed() {
    let all = open(&[&SCHEDULER[..], &[("CODING_UNATTENDED", "on")]].concat()).await;
    // Only the owner of the agent is signed in.
    all.sign_in("u2").await;
    all.vendor.on(MODEL, [hello()]);
    for response in [ask_proactively(&all).await, deliver_job(&all, "j1").await] {
        let problem = expect_problem(response, 403, "SIGN_IN_REQUIRED").await;
        assert_eq!(problem["signIn"], "/api/coding/sign-in");
    }
    assert_eq!(ask_by_api(&all).await.status(), 403);
    expect_problem(ask_as_visitor(&all).await, 403, "SIGN_IN_REQUIRED").await;
    assert_eq!(all.vendor.received_bodies(MODEL), [Value::Null; 0], "the owner's tokens are not used");

    all.sign_in("u1").await;
    let body = ask_proactively(&all).await.text().await.expect("a whole body");
    assert_eq!(text_of(&parse_run(&body)), "Hello.");
    assert_eq!(deliver_job(&all, "j2").await.status(), 200);
    assert_eq!(ask_by_api(&all).await.status(), 200);
    assert_eq!(text_of(&all.run("u2", "a1").await), "Hello.");
    let heads = all.vendor.received_heads(MODEL);
    let bearer =
        |head: &String| head.lines().find(|line| line.starts_with("authorization: ")).map(str::to_owned);
    let sent: Vec<_> = heads.iter().map(bearer).collect();
    assert_eq!(sent.len(), 4);
    assert!(
        sent[0].is_some() && sent[..3].iter().all(|token| *token == sent[0]),
        "the tokens of u1 are used"
    );
    assert_ne!(sent[3], sent[0], "the tokens of u2 are used");
    expect_problem(ask_as_visitor(&all).await, 403, "SIGN_IN_REQUIRED").await;
}
