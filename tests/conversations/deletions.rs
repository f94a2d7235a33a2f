//! Deletion of threads whose runs are live: what the clients of the runs and the readers of their logs receive.

use agent_platform::conversation::ThreadOwner;
use serde_json::{Value, json};

use super::logs::read_until;
use super::{ConversationApp, call_as, gated};
use crate::support::server::{Server, session_token};
use crate::support::vendor::{Step, delta, stream_head};
use crate::support::{TEST_TIMEOUT, poll_until};

fn body(run: &str) -> Value {
    json!({"agentId": "a1", "threadId": "t", "message": "Hello", "runId": run, "onBusy": "queue"})
}

/// Attaches to the log of a run.
async fn attach(app: &Server, run: &str) -> reqwest::Response {
    let request = app.request("GET", &format!("/api/runs/{run}/events"));
    let response = request.bearer_auth(session_token("u1", "c1")).send().await.expect("an answer");
    assert_eq!(response.status(), 200);
    response
}

/// Reads a response to its end, which comes in order.
async fn end_of(response: reqwest::Response) -> String {
    let text = tokio::time::timeout(TEST_TIMEOUT, response.text()).await.expect("it ends");
    text.expect("a whole body")
}

/// Checks that the events of a run end as a cancelled run's do.
fn assert_cancelled(events: &str) {
    let last: Value = serde_json::from_str(events.lines().last().expect("a line")).expect("an event");
    assert_eq!(
        (&last["type"], &last["outcome"]["type"]),
        (&json!("RUN_FINISHED"), &json!("cancelled")),
        "{events}"
    );
}

#[tokio::test]
async fn a_deletion_ends_the_run_in_another_process() {
    let test = ConversationApp::start().await;
    let other = test.another_process().await;
    let stalled = vec![stream_head(), delta(json!({"content": "Partly"})), Step::Stall];
    test.vendor.on("m", [stalled]);
    let mut first = test.app.chat(&body("r1")).await;
    let mut received_text = read_until(&mut first, "Partly").await;
    let session = session_token("u1", "c1");
    let (status, _) = call_as(&other, &session, "DELETE", "/api/threads/t", None).await;
    assert_eq!(status, 204);
    received_text.push_str(&first.text().await.expect("a whole body"));
    assert_cancelled(&received_text);
    test.vendor.wait_for_disconnects(1).await;
    assert_eq!(test.call("GET", "/api/threads/t", None).await.0, 404);
    assert_eq!(test.call("GET", "/api/runs/r1", None).await.0, 404);
}

#[tokio::test]
async fn a_deletion_of_several_threads_ends_their_runs_in_another_process() {
    let test = ConversationApp::start().await;
    let other = test.another_process().await;
    let stalled = || vec![stream_head(), delta(json!({"content": "Partly"})), Step::Stall];
    test.vendor.on("m", [stalled(), stalled()]);
    let mut kept = test.app.chat(&json!({"agentId": "a2", "threadId": "kept", "message": "Hello"})).await;
    read_until(&mut kept, "Partly").await;
    let mut first = test.app.chat(&body("r1")).await;
    let mut received_text = read_until(&mut first, "Partly").await;
    let queued = test.app.chat(&body("r2")).await;
    let session = session_token("u1", "c1");
    let (status, deleted) = call_as(&other, &session, "DELETE", "/api/threads?agentId=a1", None).await;
    assert_eq!((status, deleted), (200, json!({"deleted": 1, "more": false})));
    // Neither has another event that would tell its process of the deletion.
    received_text.push_str(&end_of(first).await);
    assert_cancelled(&received_text);
    assert_cancelled(&end_of(queued).await);
    test.vendor.wait_for_disconnects(1).await;
    assert_eq!(test.call("GET", "/api/runs/r1", None).await.0, 404);
    assert_eq!(
        test.get("/api/threads/kept").await["status"],
        "running",
        "the run of another agent continues"
    );
}

#[tokio::test]
async fn a_run_whose_thread_is_gone_ends_as_cancelled() {
    let test = ConversationApp::start().await;
    let (steps, gate) = gated();
    test.vendor.on("m", [steps]);
    let mut first = test.app.chat(&body("r1")).await;
    let mut received_text = read_until(&mut first, "Partly").await;
    // Deleted in the store, as by an operator's command: no process is notified.
    let key = ThreadOwner::new("c1", "u1").thread("t");
    test.stores.conversations.delete(&key).await.expect("it works").expect("it was there");
    gate.send_replace(true);
    received_text.push_str(&first.text().await.expect("a whole body"));
    assert_cancelled(&received_text);
}

#[tokio::test]
async fn readers_in_other_processes_end_with_their_thread() {
    let test = ConversationApp::start().await;
    let (other, third) = (test.another_process().await, test.another_process().await);
    let (steps, _gate) = gated();
    test.vendor.on("m", [steps]);
    let mut first = test.app.chat(&body("r1")).await;
    read_until(&mut first, "Partly").await;
    let queued = other.chat(&body("r2")).await;
    let mut readers = Vec::new();
    for app in [&test.app, &other, &third] {
        let mut reader = attach(app, "r1").await;
        let received_text = read_until(&mut reader, "Partly").await;
        readers.push((received_text, reader));
    }
    let mut waiting = Vec::new();
    for app in [&test.app, &other, &third] {
        waiting.push(attach(app, "r2").await);
    }
    let session = session_token("u1", "c1");
    assert_eq!(call_as(&third, &session, "DELETE", "/api/threads/t", None).await.0, 204);
    for (shown, reader) in readers {
        let shown = format!("{shown}{}", end_of(reader).await);
        assert!(!shown.contains("wholly") && !shown.contains("RUN_ERROR"), "{shown}");
    }
    for reader in waiting {
        let shown = end_of(reader).await;
        assert!(!shown.contains("TEXT_MESSAGE") && !shown.contains("RUN_ERROR"), "{shown}");
    }
    for response in [first, queued] {
        assert_cancelled(&end_of(response).await);
    }
}

#[tokio::test]
async fn readers_of_a_deleted_thread_end_without_a_notification() {
    let test = ConversationApp::start().await;
    let (other, third) = (test.another_process().await, test.another_process().await);
    let (steps, gate) = gated();
    test.vendor.on("m", [steps]);
    let mut first = test.app.chat(&body("r1")).await;
    read_until(&mut first, "Partly").await;
    let queued = other.chat(&body("r2")).await;
    let mut readers = Vec::new();
    for app in [&test.app, &other, &third] {
        let mut reader = attach(app, "r1").await;
        read_until(&mut reader, "Partly").await;
        readers.extend([reader, attach(app, "r2").await]);
    }
    let key = ThreadOwner::new("c1", "u1").thread("t");
    test.stores.conversations.delete(&key).await.expect("it works").expect("it was there");
    for reader in readers {
        let later_text = end_of(reader).await;
        assert!(!later_text.contains("wholly") && !later_text.contains("RUN_ERROR"), "{later_text}");
    }
    assert_cancelled(&end_of(queued).await);
    gate.send_replace(true);
    assert_cancelled(&end_of(first).await);
    let fetch = async || test.call("GET", "/api/threads/t", None).await.0;
    poll_until(fetch, |status| *status == 404).await;
}
