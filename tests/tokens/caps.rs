//! Run caps of widget tokens.

use std::num::NonZeroU32;

use agent_platform::token::{RunCaps, WidgetGrant};
use serde_json::json;

use super::open;
use crate::support::vendor::{answer, json_response};
use crate::support::{expect_problem, finished_run, server};

fn grant_with_caps(runs_per_minute: u32, runs_per_day: Option<u32>) -> WidgetGrant {
    let runs_per_minute = NonZeroU32::new(runs_per_minute).expect("a cap");
    let caps = RunCaps { runs_per_minute, runs_per_day: runs_per_day.and_then(NonZeroU32::new) };
    WidgetGrant { caps, ..WidgetGrant::default() }
}

#[tokio::test]
async fn a_minute_s_runs_are_counted_for_each_token() {
    let bench = open(|_| {}).await;
    let (one, other) = (
        bench.mint_widget(grant_with_caps(2, None)).await,
        bench.mint_widget(grant_with_caps(1, None)).await,
    );
    // Refused requests do not count as runs.
    for _ in 0..3 {
        expect_problem(bench.ask_with_token(&one, &json!({"agentId": "a2"})).await, 403, "FORBIDDEN").await;
        expect_problem(bench.ask_with_token(&one, &json!({"messages": 7})).await, 400, "INVALID_REQUEST")
            .await;
    }
    for _ in 0..2 {
        finished_run(bench.ask_with_token(&one, &json!({})).await).await;
    }
    for _ in 0..2 {
        let response = bench.ask_with_token(&one, &json!({})).await;
        let headers = response.headers().clone();
        let wait: u64 = headers["retry-after"].to_str().expect("text").parse().expect("seconds");
        assert!((1..=30).contains(&wait), "a run each half minute: {wait}");
        assert_eq!(headers["ratelimit"], format!("\"minute\";r=0;t={wait}"));
        assert_eq!(headers["ratelimit-policy"], "\"minute\";q=2;w=60");
        expect_problem(response, 429, "RATE_LIMITED").await;
    }
    finished_run(bench.ask_with_token(&other, &json!({})).await).await;
    assert_eq!(bench.vendor.received().len(), 3);
}

#[tokio::test]
async fn a_day_s_runs_are_counted_in_the_store() {
    let bench = open(|_| {}).await;
    let minted = bench.mint_widget(grant_with_caps(1000, Some(2))).await;
    bench.vendor.on("m", [answer(&["Hello"]), json_response("500 Internal Server Error", "", "{}")]);
    finished_run(bench.ask_with_token(&minted, &json!({})).await).await;
    // A failed run counts, because it may have caused cost.
    expect_problem(bench.ask_with_token(&minted, &json!({})).await, 502, "BACKEND_FAILED").await;
    let response = bench.ask_with_token(&minted, &json!({})).await;
    let headers = response.headers().clone();
    let wait: u64 = headers["retry-after"].to_str().expect("text").parse().expect("seconds");
    assert!((1..=24 * 60 * 60).contains(&wait), "until midnight: {wait}");
    assert_eq!(headers["ratelimit"], format!("\"day\";r=0;t={wait}"));
    assert_eq!(headers["ratelimit-policy"], "\"day\";q=2;w=86400");
    expect_problem(response, 429, "RATE_LIMITED").await;
    // The count is in the store, so another process sees it.
    let app = server::app_with_stores(bench.stores.clone(), &[]).await;
    let request = app.request("POST", "/api/agent/chat").header("x-widget-token", super::text(&minted));
    let response = request.json(&json!({"message": "Hello"})).send().await.expect("an answer");
    expect_problem(response, 429, "RATE_LIMITED").await;
    assert_eq!(bench.vendor.received().len(), 2);
}

#[tokio::test]
async fn runs_that_begin_at_once_are_counted_one_by_one() {
    let bench = open(|_| {}).await;
    let minted = bench.mint_widget(grant_with_caps(1000, Some(5))).await;
    let body = json!({});
    let all = (0..12).map(|_| bench.ask_with_token(&minted, &body));
    let statuses: Vec<u16> =
        futures_util::future::join_all(all).await.iter().map(|response| response.status().as_u16()).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 5, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 429).count(), 7, "{statuses:?}");
}
