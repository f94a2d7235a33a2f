//! Limits of the MCP server: excess requests are rejected with a reason, and the server stays available.

use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

use super::test_server::{McpTestConfig, McpTestServer};

#[tokio::test]
async fn an_agents_callers_wait_for_each_other_and_not_without_end() {
    let server = McpTestServer::start(McpTestConfig { concurrency: 2, ..McpTestConfig::default() }).await;
    let calls: Vec<_> = (0..60)
        .map(|id| {
            let body =
                json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "slow"}});
            tokio::spawn(server.post("?token=ada", body.to_string()).send())
        })
        .collect();
    server.wait_for_slow_calls(|running, _, _| running == 2).await;
    let mut calls: Vec<_> = calls.into_iter().collect();
    // Two calls run and thirty-two wait; the others are rejected at once.
    let mut refused = 0;
    while refused < 60 - 34 {
        let (response, _, others) = futures_util::future::select_all(calls).await;
        calls = others;
        let response = response.expect("it ran").expect("an answer");
        assert_eq!(response.status(), 429);
        assert!(response.headers()["retry-after"].to_str().is_ok_and(|after| after.parse::<u64>().is_ok()));
        let answer: Value = response.json().await.expect("a message");
        assert_eq!(answer["error"]["data"]["code"], "RATE_LIMITED", "{answer}");
        refused += 1;
    }
    let ping = server.ask("bob", "ping", json!({})).await;
    assert_eq!(ping["result"], json!({}), "a request that needs no work is answered");
    for done in 1..=34 {
        server.wait_for_slow_calls(|running, _, _| running >= 1).await;
        server.tool_state.release.notify_one();
        server.wait_for_slow_calls(|_, ended, _| ended == done).await;
    }
    for call in calls {
        assert_eq!(call.await.expect("it ran").expect("an answer").status(), 200);
    }
}

#[tokio::test]
async fn a_minute_has_so_many_requests() {
    let server = McpTestServer::start(McpTestConfig { per_minute: 3, ..McpTestConfig::default() }).await;
    for _ in 0..3 {
        assert_eq!(server.ask("ada", "ping", json!({})).await["result"], json!({}));
    }
    let body = json!({"jsonrpc": "2.0", "id": "q", "method": "ping"});
    let response = server.post("?token=bob", body.to_string()).send().await.expect("an answer");
    assert_eq!(response.status(), 429, "they share the agent's minute");
    let after: u64 = response.headers()["retry-after"].to_str().expect("text").parse().expect("seconds");
    assert!((1..=20).contains(&after), "{after}");
    let answer: Value = response.json().await.expect("a message");
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("q"), &json!(-32000)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_identifiers_at_once_are_answered_or_refused() {
    let server = McpTestServer::start(McpTestConfig { concurrency: 4, ..McpTestConfig::default() }).await;
    let session = server.open_session("ada", "2025-11-25").await;
    let server = &server;
    let session = session.as_str();
    let send = |id: usize| {
        let body = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "slow"}});
        server.in_session("ada", Some(session), &body).send()
    };
    let mut slow = server.tool_state.slow.subscribe();
    let ending = async {
        loop {
            let running = slow.wait_for(|(running, ..)| *running > 0).await.expect("the tools exist").0;
            assert!(running <= 4, "{running}");
            server.tool_state.release.notify_one();
            tokio::task::yield_now().await;
        }
    };
    let asking = stream::iter(0..10_000)
        .map(|id| async move { send(id).await.expect("an answer").status().as_u16() })
        .buffer_unordered(512)
        .collect::<Vec<u16>>();
    let statuses = tokio::select! {
        statuses = asking => statuses,
        () = ending => unreachable!("it goes on for ever"),
    };
    let count = |expected| statuses.iter().filter(|status| **status == expected).count();
    assert!(count(200) > 0 && count(429) > 0, "{} and {}", count(200), count(429));
    assert_eq!(count(200) + count(429), 10_000);
    let after = server.ask("ada", "ping", json!({})).await;
    assert_eq!(after["result"], json!({}), "the server goes on");
}
