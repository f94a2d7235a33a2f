//! Refreshes of a user's tokens, with several processes and with clients that leave.

use serde_json::json;
use tokio::sync::watch;

use super::installation::{Installation, MODEL, open, question};
use super::{hello, unauthorized};
use crate::support::issuer::{IssuerRoute, json_answer};
use crate::support::responses_vendor::Reply;
use crate::support::server::session_token;
use crate::support::vendor::{Step, json_response};
use crate::support::{expect_problem, parse_run, text_of};

/// Lifetime in seconds of tokens that are refreshed before each run.
const SHORT_LIFETIME: u64 = 60;

/// Returns the access tokens of the requests to the vendor.
fn sent_tokens(all: &Installation) -> Vec<String> {
    let bearer = |head: String| {
        let line =
            head.lines().find_map(|line| line.strip_prefix("authorization: Bearer ")).map(str::to_owned);
        line.expect("a token")
    };
    all.vendor.received_heads(MODEL).into_iter().map(bearer).collect()
}

#[tokio::test]
async fn a_rejection_after_another_process_has_refreshed_uses_its_tokens() {
    let all = open(&[]).await;
    all.sign_in("u1").await;
    let other = all.start_app().await;
    let (open, gate) = watch::channel(false);
    let rejected = json_response("401 Unauthorized", "", r#"{"error":{"code":"token_expired"}}"#);
    let held = Reply::steps([vec![Step::Until(gate)], rejected].concat());
    all.vendor.on(MODEL, [held, unauthorized(), hello()]);
    let first = tokio::spawn({
        let request = all.app.request("POST", "/api/agent/chat").bearer_auth(session_token("u1", "c1"));
        request.json(&question("a1")).send()
    });
    all.vendor.wait_for_requests(MODEL, 1).await;
    let second = other.chat(&question("a1")).await.text().await.expect("a whole body");
    assert_eq!(text_of(&parse_run(&second)), "Hello.");
    open.send_replace(true);
    let first = first.await.expect("it runs").expect("an answer").text().await.expect("a whole body");
    assert_eq!(text_of(&parse_run(&first)), "Hello.");
    assert_eq!(all.issuer.calls(IssuerRoute::Refresh), 1, "one refresh is enough");
    let sent = sent_tokens(&all);
    assert_eq!(sent.len(), 4);
    assert_eq!((&sent[0], &sent[2]), (&sent[1], &sent[3]), "the old one twice, then the new one twice");
    assert_ne!(sent[0], sent[2]);
}

#[tokio::test]
async fn a_refresh_outlives_the_client_that_caused_it() {
    let all = open(&[]).await;
    all.issuer.set_token_lifetime(SHORT_LIFETIME);
    all.sign_in("u1").await;
    all.vendor.on(MODEL, [hello()]);
    let (open, gate) = watch::channel(false);
    let tokens = json!({"access_token": "access-canary-late", "refresh_token": "refresh-canary-late",
        "token_type": "Bearer", "expires_in": 3600});
    let late = [vec![Step::Until(gate)], json_answer("200 OK", &tokens)].concat();
    all.issuer.script(IssuerRoute::Refresh, [late]);
    let waiting = tokio::spawn({
        let request = all.app.request("POST", "/api/agent/chat").bearer_auth(session_token("u1", "c1"));
        let request = request.json(&question("a1"));
        async move { request.send().await.map(drop) }
    });
    all.issuer.wait_for_calls(IssuerRoute::Refresh, 1).await;
    waiting.abort();
    assert!(waiting.await.expect_err("it has left").is_cancelled());
    open.send_replace(true);
    assert_eq!(text_of(&all.run("u1", "a1").await), "Hello.");
    assert_eq!(sent_tokens(&all), ["access-canary-late"]);
    assert_eq!(all.issuer.calls(IssuerRoute::Refresh), 1, "its answer was kept");
}

#[tokio::test]
async fn runs_at_once_refresh_once() {
    let all = open(&[]).await;
    all.issuer.set_token_lifetime(SHORT_LIFETIME);
    all.sign_in("u1").await;
    all.issuer.set_token_lifetime(3600);
    all.vendor.on(MODEL, [hello()]);
    let runs = (0..8).map(|_| all.run("u1", "a1"));
    for events in futures_util::future::join_all(runs).await {
        assert_eq!(text_of(&events), "Hello.");
    }
    assert_eq!(all.issuer.calls(IssuerRoute::Refresh), 1);
    all.assert_no_complaints();
}

#[tokio::test]
async fn a_sign_out_during_a_run_ends_no_other_sign_in() {
    let all = open(&[]).await;
    all.sign_in("u1").await;
    all.sign_in("u2").await;
    all.vendor.on(MODEL, [hello()]);
    assert_eq!(all.send("u1", "DELETE", "/api/coding/sign-in").await.status(), 204);
    let problem = expect_problem(all.chat("u1", question("a1")).await, 403, "SIGN_IN_REQUIRED").await;
    assert_eq!(problem["signIn"], "/api/coding/sign-in");
    assert_eq!(text_of(&all.run("u2", "a1").await), "Hello.");
    all.sign_in("u1").await;
    assert_eq!(text_of(&all.run("u1", "a1").await), "Hello.");
    let sent = sent_tokens(&all);
    assert_ne!(sent[0], sent[1], "each has tokens of their own");
    assert_eq!(all.issuer.revoked().len(), 1);
}
