//! Clients that leave at random bytes of their answers.

use std::time::Duration;

use agent_platform::usage::NanoUsd;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};

use super::UsageApp;
use crate::support::poll_until;
use crate::support::random::Random;
use crate::support::server::session_token;
use crate::support::vendor::{Step, delta, finish, stream_head};

/// Environment variable with the seed of the places.
const SEED_ENV: &str = "DISCONNECT_SEED";
const DISCONNECTS: u64 = 500;
/// Clients that are connected at once.
const CONCURRENCY: usize = 16;
/// Limit on the bytes that a client reads; an answer is a few of them longer or shorter.
const MAX_BYTES: u64 = 3_000;

/// Begins a run and disconnects after this many bytes of the answer.
async fn leave_after(test: &UsageApp, run: u64, bytes: usize) {
    let run = format!("d{run}");
    let body = json!({"agentId": "a1", "message": "Hello", "store": false, "runId": &run});
    let mut response = test.app.chat_as(&session_token("u1", "c1"), "", &body).await;
    assert_eq!(response.status(), 200, "{run}");
    let mut read = 0;
    while read < bytes {
        let Some(chunk) = response.chunk().await.expect("the stream goes on") else { return };
        read += chunk.len();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_disconnects_are_five_hundred_rows() {
    let test = UsageApp::start().await;
    let piece = |_| [delta(json!({"content": "twelve bytes"})), Step::Pause(Duration::from_millis(1))];
    let steps = [stream_head()].into_iter().chain((0..12).flat_map(piece)).chain(finish("stop"));
    test.vendor.on_all(steps.collect());
    let path = "/api/budgets/agent/a1";
    test.put(path, json!([{"unit": "cost", "amount": "1000000", "window": "month"}])).await;
    let mut random = Random::new(SEED_ENV);
    let disconnects: Vec<_> = (0..DISCONNECTS).map(|run| (run, random.below(MAX_BYTES) as usize)).collect();
    stream::iter(&disconnects)
        .for_each_concurrent(CONCURRENCY, |(run, bytes)| leave_after(&test, *run, *bytes))
        .await;

    let total = async || test.rows("boss", "").await.pop().unwrap_or_default();
    let total = poll_until(total, |row: &Value| row["calls"] == DISCONNECTS).await;
    let (mut cost, mut cancelled) = (0, 0);
    for (run, bytes) in &disconnects {
        let entries =
            test.stores.usage.run_usage(&"c1".into(), &format!("d{run}").into()).await.expect("read");
        let [entry] = &entries[..] else { panic!("d{run} after {bytes} bytes: {entries:?}") };
        assert!(matches!(entry.outcome.as_str(), "ok" | "cancelled"), "{entry:?}");
        let is_cancelled = entry.outcome == "cancelled";
        // Usage that the vendor has counted is not an estimate, even if the client has left afterwards.
        assert!(is_cancelled || !entry.estimated, "{entry:?}");
        assert!(entry.tokens.input_tokens > 0, "{entry:?}");
        cancelled += u64::from(is_cancelled);
        cost += entry.cost.expect("a price").get();
    }
    assert!((1..DISCONNECTS).contains(&cancelled), "{cancelled} have left before the end");
    let cost = NanoUsd::new(cost).to_string();
    assert_eq!((&total["cost"], &total["runs"]), (&json!(cost), &json!(DISCONNECTS)));
    assert_eq!(test.settled(path).await["used"], cost, "the meter has the same");
}
