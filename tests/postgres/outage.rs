use serde_json::{Value, json};
use tokio::sync::watch;

use super::{PostgresFixture, send};
use crate::support::server::{self, session_token};
use crate::support::vendor::{Step, Vendor, answer, delta, finish, stream_head};
use crate::support::{expect_problem, parse_run, poll_until, text_of, workspace};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_is_a_typed_error_and_open_streams_continue() {
    let vendor = Vendor::start().await;
    let mut fixture = PostgresFixture::start(&workspace(&vendor.base_url(), "m")).await;
    let app = server::app_with_config(fixture.config(), fixture.open().await).await;
    let chat = json!({"agentId": "a1", "message": "Hello"});
    vendor.on("m", [answer(&["Hello", "!"])]);
    let events = parse_run(&app.chat(&chat).await.text().await.expect("a whole body"));
    assert_eq!(text_of(&events), "Hello!");
    let ready =
        async || app.request("GET", "/readyz").send().await.expect("the server answers").status().as_u16();
    assert_eq!(ready().await, 200);

    let mint = async |kind: &str| -> String {
        let made = send(&app, "POST", "/api/agents/a1/tokens", Some(&json!({"kind": kind}))).await;
        let made: Value = made.json().await.expect("JSON");
        made["token"].as_str().expect("a token").to_owned()
    };
    let (widget_token, mcp_token) = (mint("widget").await, mint("mcp").await);

    let gate = watch::Sender::new(false);
    let mut held = vec![stream_head(), delta(json!({"content": "first "})), Step::Until(gate.subscribe())];
    held.push(delta(json!({"content": "second"})));
    held.extend(finish("stop"));
    vendor.on("m", [held]);
    let under_way = app.chat(&json!({"agentId": "a1", "message": "Hello", "runId": "held"})).await;
    vendor.wait_for_requests("m", 2).await;

    fixture.cluster.crash();
    for run_id in ["r1", "r2"] {
        let response = app.chat(&json!({"agentId": "a1", "message": "Hello", "runId": run_id})).await;
        assert!(response.headers().contains_key("retry-after"), "{:?}", response.headers());
        expect_problem(response, 503, "STORE_UNAVAILABLE").await;
    }
    let audit = app.request("GET", "/api/agent/tools/audit?agentId=a1");
    let visit = app.request("POST", "/api/agent/chat").header("x-widget-token", widget_token);
    let tool_call = app.request("POST", &format!("/api/agent/mcp?token={mcp_token}"));
    for (name, request) in [
        ("audit", audit.bearer_auth(session_token("u1", "c1"))),
        ("visit", visit.json(&json!({"message": "Hello"}))),
        ("tool call", tool_call.json(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}))),
    ] {
        let refused = request.send().await.expect("an answer");
        assert!(refused.headers().contains_key("retry-after"), "{name}: {:?}", refused.headers());
        expect_problem(refused, 503, "STORE_UNAVAILABLE").await;
    }
    assert_eq!(ready().await, 503);
    for path in ["/api/agents/a1/tools", "/api/agents/a1/capabilities"] {
        // Cached records are returned for up to 100 ms.
        let get = async || send(&app, "GET", path, None).await;
        let refused = poll_until(get, |response| response.status() != 200).await;
        assert!(refused.headers().contains_key("retry-after"), "{path}: {:?}", refused.headers());
        expect_problem(refused, 503, "STORE_UNAVAILABLE").await;
    }
    gate.send_replace(true);
    let events = parse_run(&under_way.text().await.expect("a whole body"));
    assert_eq!(text_of(&events), "first second");
    assert_eq!(events.last().expect("an end")["type"], "RUN_FINISHED");

    fixture.cluster.restart();
    poll_until(ready, |status| *status == 200).await;
    vendor.on("m", [answer(&["Again"])]);
    let events = parse_run(
        &app.chat(&json!({"agentId": "a1", "message": "Hello", "runId": "r1"}))
            .await
            .text()
            .await
            .expect("text"),
    );
    assert_eq!(text_of(&events), "Again", "a refused run has not used its id");
    let usage = async || -> Value {
        send(&app, "GET", "/api/usage/runs/held", None).await.json().await.unwrap_or_default()
    };
    // The usage of the run that ended without the store.
    poll_until(usage, |usage| usage["entries"].as_array().is_some_and(|entries| entries.len() == 1)).await;
}
