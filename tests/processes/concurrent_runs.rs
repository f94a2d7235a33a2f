//! Default limit on the concurrent runs of a company, counted over all processes.

use futures_util::future::join_all;
use reqwest::Response;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{SharedDatabase, over_both};
use crate::support::server::{self, Server, session_token};
use crate::support::vendor::{Step, delta, finish, stream_head};
use crate::support::{expect_problem, poll_until};

/// Concurrent runs of each company. A process admits an eighth without a commit.
const LIMIT: usize = 8;

/// Starts a run. Returns `None` if it is refused, and checks the refusal.
async fn begin(process: &Server) -> Option<Response> {
    let body = json!({"agentId": "a1", "message": "Hello", "store": false});
    let response = process.chat_as(&session_token("u1", "c1"), "", &body).await;
    if response.status() == 200 {
        return Some(response);
    }
    let problem: Value = expect_problem(response, 429, "RATE_LIMITED").await;
    assert_eq!(problem["violated-policies"], json!(["company-concurrent"]), "{problem}");
    assert_eq!(problem["budget"]["amount"], LIMIT, "{problem}");
    None
}

#[tokio::test]
async fn concurrent_runs_of_a_company_are_counted_over_all_processes() {
    over_both(the_limit_is_shared_over).await;
}

async fn the_limit_is_shared_over(database: SharedDatabase) {
    let gate = watch::Sender::new(false);
    let mut steps = vec![stream_head(), delta(json!({"content": "Hi."})), Step::Until(gate.subscribe())];
    steps.extend(finish("stop"));
    database.vendor.on_all(steps);
    let (url, limit) = (database.test_database.url(), LIMIT.to_string());
    let settings =
        [("DATABASE_URL", &*url), ("DATA_SECRET", "data-secret-canary"), ("CONCURRENT_RUNS_COMPANY", &limit)];
    let start = async || server::app_with_config(server::app_config(&settings), database.open().await).await;
    let processes = [start().await, start().await, start().await];
    let begun = join_all((0..3 * LIMIT).map(|number| begin(&processes[number % 3]))).await;
    let held: Vec<Response> = begun.into_iter().flatten().collect();
    assert_eq!(held.len(), LIMIT + 2, "each further process may admit one more run");
    gate.send_replace(true);
    for response in held {
        response.text().await.expect("a whole body");
    }
    gate.send_replace(false);
    // The places of the ended runs are free for any process.
    let mut held = Vec::new();
    while held.len() < LIMIT {
        held.extend(poll_until(async || begin(&processes[2]).await, Option::is_some).await);
    }
    assert!(begin(&processes[2]).await.is_none(), "one process admits exactly the limit");
    gate.send_replace(true);
    for response in held {
        response.text().await.expect("a whole body");
    }
}
