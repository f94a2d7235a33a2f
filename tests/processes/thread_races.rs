//! Requests of several processes for one thread at the same time.

use agent_platform::usage::BudgetKind;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{SharedDatabase, over_both};
use crate::support::server::{self, Server, session_token};
use crate::support::vendor::{Step, answer, delta, finish, stream_head};
use crate::support::{expect_problem, parse_run, poll_until, text_of};
use crate::usage::put_budget;

/// Limit on the user's runs.
const LIMIT: usize = 5;
/// Requests at one time.
const REQUESTS: usize = 6;

async fn get(process: &Server, path: &str) -> Value {
    let request = process.request("GET", path).bearer_auth(session_token("u1", "c1"));
    request.send().await.expect("an answer").json().await.expect("JSON")
}

/// Sends a message to the thread `t`, and returns the status after the whole body was read.
async fn say(process: &Server) -> u16 {
    let body = json!({"agentId": "a1", "threadId": "t", "message": "Hello"});
    let response = process.chat(&body).await;
    let status = response.status().as_u16();
    response.text().await.expect("a whole body");
    status
}

#[tokio::test]
async fn a_refused_run_neither_counts_nor_reaches_the_vendor() {
    over_both(a_refused_run_neither_counts_nor_reaches_the_vendor_over).await;
}

async fn a_refused_run_neither_counts_nor_reaches_the_vendor_over(database: SharedDatabase) {
    database.vendor.on_all(answer(&["Hi."]));
    let limits = json!([{"unit": "runs", "amount": LIMIT, "window": "day"}]);
    put_budget(&database.open().await, (BudgetKind::User, "u1"), limits).await;
    let processes = [database.start().await, database.start().await];
    let (mut stored, mut busy) = (0, 0);
    // Each race has a winner, until the budget is spent.
    while stored < LIMIT {
        let before = stored;
        for status in join_all((0..REQUESTS).map(|number| say(&processes[number % 2]))).await {
            match status {
                200 => stored += 1,
                409 => busy += 1,
                402 => {}
                status => panic!("status {status}"),
            }
        }
        assert!(stored > before, "no run begins after {stored} runs; {busy} were refused");
    }
    assert_eq!(say(&processes[0]).await, 402);
    let runs = get(&processes[1], "/api/runs?threadId=t").await;
    assert_eq!((stored, runs["runs"].as_array().map(Vec::len)), (LIMIT, Some(LIMIT)), "{busy} were refused");
    assert_eq!(database.vendor.requests_for("m"), LIMIT, "{busy} were refused");
    let fetch = async || {
        let limits = get(&processes[1], "/api/limits").await;
        let limits = limits["limits"].as_array().expect("limits").clone();
        limits.into_iter().find(|limit| limit["policy"] == "budget").expect("the budget")
    };
    let limit = poll_until(fetch, |limit| limit["reserved"] == 0).await;
    assert_eq!(limit["used"], LIMIT);
}

/// A run that replaces another one takes over its permit, also if the company has no other permit.
#[tokio::test]
async fn an_interrupting_run_reuses_the_slot_of_the_one_before() {
    over_both(an_interrupting_run_reuses_the_slot_of_the_one_before_over).await;
}

async fn an_interrupting_run_reuses_the_slot_of_the_one_before_over(database: SharedDatabase) {
    let gate = watch::Sender::new(false);
    let mut steps = vec![stream_head(), delta(json!({"content": "Hi."})), Step::Until(gate.subscribe())];
    steps.extend(finish("stop"));
    database.vendor.on_all(steps);
    let url = database.test_database.url();
    let settings =
        [("DATABASE_URL", &*url), ("DATA_SECRET", "data-secret-canary"), ("CONCURRENT_RUNS_COMPANY", "1")];
    let start = async || server::app_with_config(server::app_config(&settings), database.open().await).await;
    let processes = [start().await, start().await];
    let body = json!({"agentId": "a1", "threadId": "t", "message": "Hello", "onBusy": "interrupt"});
    let mut running = vec![processes[0].chat(&body).await];
    for round in 0..4 {
        for response in join_all(processes.each_ref().map(|process| process.chat(&body))).await {
            let status = response.status();
            if status != 200 {
                panic!("round {round}: {status} {}", response.text().await.expect("a whole body"));
            }
            running.push(response);
        }
    }
    // Another thread has no place.
    let other = json!({"agentId": "a1", "threadId": "other", "message": "Hello", "onBusy": "interrupt"});
    expect_problem(processes[1].chat(&other).await, 429, "RATE_LIMITED").await;
    gate.send_replace(true);
    for response in running {
        response.text().await.expect("a whole body");
    }
}

#[tokio::test]
async fn a_run_whose_first_call_a_budget_refuses_leaves_nothing() {
    over_both(a_run_whose_first_call_a_budget_refuses_leaves_nothing_over).await;
}

async fn a_run_whose_first_call_a_budget_refuses_leaves_nothing_over(database: SharedDatabase) {
    database.vendor.on_all(answer(&["Hi."]));
    let process = database.start().await;
    let set_limits = async |tokens: usize| {
        let limits = json!([
            {"unit": "tokens", "amount": tokens, "window": "day"},
            {"unit": "runs", "amount": 1, "window": "day"},
        ]);
        put_budget(&database.open().await, (BudgetKind::User, "u1"), limits).await;
        // Another process hears of the change a moment later.
        poll_until(
            async || get(&process, "/api/limits").await,
            |limits| {
                let limits = limits["limits"].as_array().expect("limits");
                limits.iter().any(|limit| limit["unit"] == "tokens" && limit["amount"] == tokens)
            },
        )
        .await;
    };
    set_limits(10).await;
    for (thread, agent) in [("new", "a1"), ("flow", "flow"), ("remote", "remote")] {
        let body = json!({"agentId": agent, "threadId": thread, "message": "Hello", "runId": "r1"});
        expect_problem(process.chat(&body).await, 402, "BUDGET_EXCEEDED").await;
        for path in ["/api/runs/r1".to_owned(), format!("/api/threads/{thread}")] {
            let request = process.request("GET", &path).bearer_auth(session_token("u1", "c1"));
            assert_eq!(request.send().await.expect("an answer").status(), 404, "{path}");
        }
    }
    assert_eq!(database.vendor.received().len(), 0);
    // The same request, and the only run of the day.
    set_limits(100_000).await;
    let body = json!({"agentId": "a1", "threadId": "new", "message": "Hello", "runId": "r1"});
    let response = process.chat(&body).await;
    assert_eq!(response.status(), 200);
    assert_eq!(text_of(&parse_run(&response.text().await.expect("a whole body"))), "Hi.");
    let thread = get(&process, "/api/threads/new").await;
    assert_eq!(thread["messageCount"], 2);
}
