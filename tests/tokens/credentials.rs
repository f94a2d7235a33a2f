//! Widget tokens as credentials: which are accepted, and their combination with other credentials.

use agent_platform::token::{ApiGrant, Grant, McpGrant, NewToken, WidgetGrant};
use serde_json::{Value, json};

use super::{open, text};
use crate::support::server::{INTERNAL_SECRET, session_token};
use crate::support::{expect_problem, finished_run};

#[tokio::test]
async fn a_token_is_accepted_in_header_query_and_body() {
    let bench = open(|_| {}).await;
    let minted = bench.mint_widget(WidgetGrant::default()).await;
    let text = text(&minted);
    let cookie = format!("agent_session={}", session_token("u1", "c1"));
    let in_query = format!("?widgetToken={text}");
    let also_the_agent = format!("?widgetToken={text}&agentId=a1");
    let user = format!("widget:{}", minted.token.id);
    type Case<'c> = (&'c str, Vec<(&'c str, &'c str)>, Value);
    let cases: Vec<Case<'_>> = vec![
        ("", vec![("x-widget-token", text)], json!({})),
        (&in_query, vec![], json!({})),
        ("", vec![], json!({"widgetToken": text})),
        ("", vec![], json!({"forwardedProps": {"widgetToken": text}})),
        // Values that repeat the token's own claims are accepted.
        (&also_the_agent, vec![], json!({"agentId": "a1"})),
        ("", vec![("x-widget-token", text)], json!({"userId": user, "companyId": "c1"})),
        // The token takes precedence over the cookie in every position, whether or not the cookie is valid.
        ("", vec![("x-widget-token", text), ("cookie", &cookie)], json!({})),
        (&in_query, vec![("cookie", &cookie)], json!({})),
        ("", vec![("cookie", &cookie)], json!({"widgetToken": text})),
        ("", vec![("cookie", &cookie), ("origin", "https://x.example")], json!({"widgetToken": text})),
        ("", vec![("cookie", "agent_session=broken")], json!({"widgetToken": text})),
    ];
    for (query, headers, more) in &cases {
        finished_run(bench.ask(query, headers, more).await).await;
    }
    assert_eq!(bench.vendor.received().len(), cases.len());
}

#[tokio::test]
async fn invalid_tokens_are_refused_equally_in_every_location() {
    let bench = open(|_| {}).await;
    let good = bench.mint_widget(WidgetGrant::default()).await;
    let revoked = bench.mint_widget(WidgetGrant::default()).await;
    assert!(bench.tokens().revoke(&revoked.token.id, None).await.expect("the store works"));
    let mcp = McpGrant { user_id: "u1".into(), ..McpGrant::default() };
    let mcp = bench.mint(NewToken::new("c1", "a1", Grant::Mcp(mcp))).await;
    let api = ApiGrant { user_id: "u1".into(), agents: vec!["a1".into()], caps: None };
    let api = bench.mint(NewToken::api("c1", api)).await;
    let good = text(&good);
    let mut forged = good.to_owned();
    forged.replace_range(40..44, if &good[40..44] == "AAAA" { "BBBB" } else { "AAAA" });
    let expired = bench.mint_expired().await;
    let session = session_token("u1", "c1");
    let own_origin = format!("http://{}", bench.app.address);
    let cookie = format!("agent_session={session}");
    let mut answers = std::collections::BTreeSet::new();
    for token in [
        text(&expired),
        text(&revoked),
        text(&mcp),
        text(&api),
        &forged,
        &good[..67],
        &good[4..],
        "w",
        &session,
        "agw_",
    ] {
        let query = format!("?widgetToken={token}");
        for response in [
            bench.ask("", &[("x-widget-token", token)], &json!({"agentId": "a1"})).await,
            bench.ask(&query, &[], &json!({"agentId": "a1"})).await,
            bench.ask("", &[], &json!({"agentId": "a1", "widgetToken": token})).await,
            // A valid cookie does not replace an invalid explicit credential.
            bench
                .ask(
                    "",
                    &[("origin", &own_origin), ("cookie", &cookie)],
                    &json!({"agentId": "a1", "widgetToken": token}),
                )
                .await,
        ] {
            let problem = expect_problem(response, 401, "UNAUTHENTICATED").await;
            answers.insert(problem["detail"].to_string());
        }
    }
    assert_eq!(answers.len(), 1, "no response says what was wrong: {answers:?}");
    assert!(bench.vendor.received().is_empty());
}

#[tokio::test]
async fn a_token_that_is_revoked_is_refused_from_then_on() {
    let bench = open(|_| {}).await;
    let (first, other) =
        (bench.mint_widget(WidgetGrant::default()).await, bench.mint_widget(WidgetGrant::default()).await);
    finished_run(bench.ask_with_token(&first, &json!({})).await).await;
    bench.tokens().revoke(&first.token.id, Some(&"c1".into())).await.expect("the store works");
    expect_problem(bench.ask_with_token(&first, &json!({})).await, 401, "UNAUTHENTICATED").await;
    finished_run(bench.ask_with_token(&other, &json!({})).await).await;
}

#[tokio::test]
async fn a_token_is_valid_only_for_its_own_agent() {
    let bench = open(|_| {}).await;
    let minted = bench.mint_widget(WidgetGrant::default()).await;
    for (query, more) in [
        ("", json!({"agentId": "a2"})),
        ("", json!({"agentId": "nobody"})),
        ("?agentId=a2", json!({})),
        ("", json!({"forwardedProps": {"agentId": "a2"}})),
        ("", json!({"userId": "u1"})),
        ("", json!({"companyId": "c2"})),
    ] {
        let response = bench.ask(query, &[("x-widget-token", text(&minted))], &more).await;
        expect_problem(response, 403, "FORBIDDEN").await;
    }
    assert!(bench.vendor.received().is_empty());
    // A token of an agent that does not exist gets the usual 404.
    let gone = bench.mint(NewToken::new("c1", "gone", Grant::Widget(WidgetGrant::default()))).await;
    expect_problem(bench.ask_with_token(&gone, &json!({})).await, 404, "NOT_FOUND").await;
    let elsewhere = bench.mint(NewToken::new("c2", "a1", Grant::Widget(WidgetGrant::default()))).await;
    expect_problem(bench.ask_with_token(&elsewhere, &json!({})).await, 404, "NOT_FOUND").await;
}

#[tokio::test]
async fn two_explicit_credentials_are_refused_even_if_both_are_valid() {
    let bench = open(|_| {}).await;
    let minted = bench.mint_widget(WidgetGrant::default()).await;
    let text = text(&minted);
    let bearer = format!("Bearer {}", session_token("u1", "c1"));
    let internal = format!("Bearer {INTERNAL_SECRET}");
    let in_query = format!("?widgetToken={text}");
    let twice = format!("?widgetToken={text}&widgetToken={text}");
    let in_body = json!({"agentId": "a1", "widgetToken": text});
    type Case<'c> = (&'c str, Vec<(&'c str, &'c str)>, Value);
    let cases: Vec<Case<'_>> = vec![
        ("", vec![("x-widget-token", text), ("authorization", &bearer)], json!({})),
        ("", vec![("x-widget-token", text), ("x-widget-token", text)], json!({})),
        ("", vec![("x-widget-token", text)], in_body.clone()),
        (&in_query, vec![("x-widget-token", text)], json!({})),
        (&in_query, vec![], in_body.clone()),
        (&twice, vec![], json!({})),
        ("", vec![("authorization", &bearer)], in_body.clone()),
        ("", vec![("authorization", &internal), ("x-proactive-trigger", "x")], in_body),
        ("", vec![], json!({"widgetToken": text, "forwardedProps": {"widgetToken": text}})),
    ];
    for (query, headers, more) in cases {
        expect_problem(bench.ask(query, &headers, &more).await, 400, "AMBIGUOUS_CREDENTIALS").await;
    }
    assert!(bench.vendor.received().is_empty());
}

#[tokio::test]
async fn a_body_that_holds_no_token_is_refused_for_that() {
    let bench = open(|_| {}).await;
    let post = |content_type: &'static str, body: String| {
        let request = bench.app.request("POST", "/api/agent/chat").header("content-type", content_type);
        async move { request.body(body).send().await.expect("an answer") }
    };
    for (content_type, body) in [
        ("application/json", "{".to_owned()),
        ("application/json", "[]".to_owned()),
        ("application/json", r#"{"widgetToken": 5}"#.to_owned()),
        ("application/json", r#"{"messages": 7}"#.to_owned()),
        ("text/plain", "{}".to_owned()),
    ] {
        expect_problem(post(content_type, body).await, 401, "UNAUTHENTICATED").await;
    }
    let large = format!(r#"{{"message": "{}"}}"#, "x".repeat(2 << 20));
    expect_problem(post("application/json", large).await, 413, "PAYLOAD_TOO_LARGE").await;
    // With a valid token, errors in the rest of the body are reported.
    let minted = bench.mint_widget(WidgetGrant::default()).await;
    let body = json!({"widgetToken": text(&minted), "messages": 7}).to_string();
    let problem = expect_problem(post("application/json", body).await, 400, "INVALID_REQUEST").await;
    assert_eq!(problem["detail"], "messages must be a list");
}
