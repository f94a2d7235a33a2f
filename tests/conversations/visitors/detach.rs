//! Attached streams end when their reader loses the right to them.

use super::*;
use crate::conversations::gated;
use crate::support::server::Server;
use crate::support::{TEST_TIMEOUT, read_until};

/// Starts a run that goes on, and returns its id.
async fn start_run(test: &ConversationApp, visitor: &Visitor) -> String {
    start_run_with(test, visitor, vec![stream_head(), delta(json!({"content": "Partly"})), Step::Stall]).await
}

/// Starts a run whose answer begins with "Partly", and returns its id.
async fn start_run_with(test: &ConversationApp, visitor: &Visitor, answer: Vec<Step>) -> String {
    test.vendor.on("m", [answer]);
    let body = json!({"threadId": "t", "message": "Hello", "onDisconnect": "continue"});
    let mut running = test.send(visitor, "POST", "/api/agent/chat", Some(body)).await;
    read_until(&mut running, "Partly").await;
    let (_, thread) = test.send_for_json(visitor, "GET", "/api/threads/t").await;
    thread["activeRunId"].as_str().expect("a run").to_owned()
}

/// Attaches to a run in a process, and reads what it has said.
async fn attach(app: &Server, visitor: &Visitor, run: &str) -> reqwest::Response {
    let request = visitor.client.get(app.url(&format!("/api/runs/{run}/events"))).header("origin", PAGE);
    let request = request.header("x-widget-token", &visitor.token).header("x-visitor-key", KEYS[0]);
    let mut attached = request.send().await.expect("an answer");
    assert_eq!(attached.status(), 200);
    read_until(&mut attached, "Partly").await;
    attached
}

/// Reads to the end.
async fn ends(mut attached: reqwest::Response) {
    let read_to_end = async { while let Ok(Some(_)) = attached.chunk().await {} };
    tokio::time::timeout(TEST_TIMEOUT, read_to_end).await.expect("the stream ends in time");
}

#[tokio::test]
async fn a_revoked_token_ends_attached_streams() {
    let test = ConversationApp::start().await;
    let (visitor, other) = (test.visitor("a1").await, test.another_process().await);
    let run = start_run(&test, &visitor).await;
    let (here, there) = (attach(&test.app, &visitor, &run).await, attach(&other, &visitor, &run).await);
    let tokens = Tokens::new(test.stores.records.clone(), Arc::new(SystemClock));
    assert!(tokens.revoke(&visitor.token_id, None).await.expect("it is revoked"));
    tokio::join!(ends(here), ends(there));
}

#[tokio::test]
async fn a_deleted_agent_ends_attached_streams() {
    let test = ConversationApp::start().await;
    let (visitor, other) = (test.visitor("a1").await, test.another_process().await);
    let run = start_run(&test, &visitor).await;
    let (here, there) = (attach(&test.app, &visitor, &run).await, attach(&other, &visitor, &run).await);
    assert_eq!(test.call("DELETE", "/api/agents/a1", None).await.0, 204);
    tokio::join!(ends(here), ends(there));
}

#[tokio::test]
async fn a_deleted_thread_ends_attached_streams() {
    let test = ConversationApp::start().await;
    let (visitor, other) = (test.visitor("a1").await, test.another_process().await);
    let run = start_run(&test, &visitor).await;
    let (here, there) = (attach(&test.app, &visitor, &run).await, attach(&other, &visitor, &run).await);
    // A deletion in the store, as by an operator's command, notifies no process.
    let key = ThreadKey::new("c1", format!("widget:{}:{FIRST_KEY_SHA256}", visitor.token_id), "t");
    assert!(test.stores.conversations.delete(&key).await.expect("deleted").is_some());
    tokio::join!(ends(here), ends(there));
}

#[tokio::test]
async fn a_reader_who_keeps_the_right_stays_attached() {
    let test = ConversationApp::start().await;
    let (visitor, other) = (test.visitor("a1").await, test.visitor("a1").await);
    let (answer, gate) = gated();
    let run = start_run_with(&test, &visitor, answer).await;
    let attached = attach(&test.app, &visitor, &run).await;
    // A stream that is attached later is checked later: once it has ended, the first one has been checked.
    let other_run = start_run(&test, &other).await;
    let detached = attach(&test.app, &other, &other_run).await;
    let tokens = Tokens::new(test.stores.records.clone(), Arc::new(SystemClock));
    assert!(tokens.revoke(&other.token_id, None).await.expect("it is revoked"));
    ends(detached).await;
    gate.send_replace(true);
    let rest = tokio::time::timeout(TEST_TIMEOUT, attached.text()).await.expect("it ends with the run");
    let rest = rest.expect("a whole body");
    assert!(rest.contains("and wholly.") && rest.contains("RUN_FINISHED"), "{rest}");
}
