//! Runs in threads beyond the limits on a company's runs.

use serde_json::json;

use super::{ConversationApp, dialogue, gated};
use crate::support::vendor::answer;
use crate::support::{expect_problem, parse_run, poll_until, read_until, text_of};

#[tokio::test]
async fn a_refused_run_leaves_its_id_and_its_thread_as_they_were() {
    let test = ConversationApp::start_with(&[("CONCURRENT_RUNS_COMPANY", "1")]).await;
    let (steps, gate) = gated();
    test.vendor.on("m", [steps, answer(&["Again."])]);
    let mut first = test.app.chat(&json!({"agentId": "a1", "threadId": "other", "message": "Hello"})).await;
    read_until(&mut first, "Partly").await;
    let messages = json!([{"role": "user", "content": "A"}, {"role": "assistant", "content": "B"}]);
    let create = json!({"id": "t", "agentId": "a1", "messages": messages});
    assert_eq!(test.call("POST", "/api/threads", Some(create)).await.0, 201);
    let before = test.get("/api/threads/t").await;
    let body = json!({"agentId": "a1", "threadId": "t", "runId": "r1", "message": "Hello"});
    for (field, value) in
        [("onBusy", json!("reject")), ("background", json!(true)), ("threadId", json!("new"))]
    {
        let mut body = body.clone();
        body[field] = value;
        let problem = expect_problem(test.app.chat(&body).await, 429, "RATE_LIMITED").await;
        assert_eq!(problem["violated-policies"], json!(["company-concurrent"]), "{field}");
        assert_eq!(test.call("GET", "/api/runs/r1", None).await.0, 404, "{field}");
    }
    assert_eq!(test.get("/api/threads/t").await, before);
    assert_eq!(test.call("GET", "/api/threads/new", None).await.0, 404);
    gate.send_replace(true);
    first.text().await.expect("a whole body");
    // The same request, until the place of the run that has ended is free.
    let again = async || {
        let response = test.app.chat(&body).await;
        (response.status().as_u16(), response.text().await.expect("a whole body"))
    };
    let (_, text) = poll_until(again, |(status, _)| *status == 200).await;
    assert_eq!(text_of(&parse_run(&text)), "Again.");
    assert_eq!(test.path("t").await, dialogue(&["A", "B", "Hello", "Again."]));
}

#[tokio::test]
async fn a_queued_message_that_the_limits_refuse_is_not_added() {
    let test = ConversationApp::start_with(&[("RUNS_PER_MINUTE_COMPANY", "1")]).await;
    let (steps, gate) = gated();
    test.vendor.on("m", [steps]);
    let mut first = test.app.chat(&json!({"agentId": "a1", "threadId": "t", "message": "Hello"})).await;
    read_until(&mut first, "Partly").await;
    let body = json!({"agentId": "a1", "threadId": "t", "runId": "r2", "message": "Two", "onBusy": "queue"});
    let queued = test.app.chat(&body).await;
    assert_eq!(queued.status(), 200);
    gate.send_replace(true);
    first.text().await.expect("a whole body");
    let events = parse_run(&queued.text().await.expect("a whole body"));
    assert_eq!(events.last().expect("an end")["code"], "RATE_LIMITED", "{events:?}");
    assert_eq!(test.ended_run("r2").await["state"], "failed");
    assert_eq!(test.path("t").await, dialogue(&["Hello", "Partly and wholly."]));
    assert_eq!(test.vendor.received_bodies("m").len(), 1);
}

#[tokio::test]
async fn a_queued_message_takes_the_place_of_the_run_before() {
    let test = ConversationApp::start_with(&[("CONCURRENT_RUNS_COMPANY", "1")]).await;
    let (steps, gate) = gated();
    test.vendor.on("m", [steps, answer(&["Second."]), answer(&["Third."])]);
    let mut first = test.app.chat(&json!({"agentId": "a1", "threadId": "t", "message": "Hello"})).await;
    read_until(&mut first, "Partly").await;
    let mut queued = Vec::new();
    for message in ["Two", "Three"] {
        let body = json!({"agentId": "a1", "threadId": "t", "message": message, "onBusy": "queue"});
        queued.push(test.app.chat(&body).await);
    }
    gate.send_replace(true);
    first.text().await.expect("a whole body");
    for (response, expected) in queued.into_iter().zip(["Second.", "Third."]) {
        assert_eq!(text_of(&parse_run(&response.text().await.expect("a whole body"))), expected);
    }
    let expected = ["Hello", "Partly and wholly.", "Two", "Second.", "Three", "Third."];
    assert_eq!(test.path("t").await, dialogue(&expected));
}
