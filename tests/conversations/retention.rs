//! Retention of threads, and the defaults that a role sets for its conversations.

use agent_core::message::Message;
use agent_platform::conversation::{
    CreateThreadRequest, NewThread, ThreadFilter, ThreadKey, ThreadOwner, import_nodes,
};
use jiff::{Timestamp, ToSpan};
use serde_json::{Value, json};

use super::logs::read_until;
use super::{ConversationApp, everyone};
use crate::support::poll_until;
use crate::support::server;
use crate::support::vendor::{Step, Vendor, answer, delta, stream_head};

/// Starts an application whose agent `a1` has these settings of conversations.
async fn start(conversations: Value, settings: &[(&str, &str)]) -> ConversationApp {
    let vendor = Vendor::start().await;
    let mut all = everyone(&vendor.base_url());
    all["agents"][0]["content"]["conversations"] = conversations;
    let stores = server::stores(&all).await;
    let app = server::app_with_stores(stores.clone(), settings).await;
    ConversationApp { vendor, app, stores }
}

impl ConversationApp {
    /// Stores a thread of an owner whose last activity was some days ago.
    async fn store_thread(&self, owner: &str, agent: &str, days_ago: i32) {
        let create = CreateThreadRequest {
            key: ThreadKey::new("c1", owner, &*format!("{agent} {days_ago}")),
            agent_id: agent.into(),
            new: NewThread::default(),
            retention: None,
            nodes: import_nodes(None, vec![Message::user("x")]),
            now: Timestamp::now() - (i64::from(days_ago) * 24).hours(),
        };
        self.stores.conversations.create(create).await.expect("created");
    }

    async fn threads_of(&self, owner: &str) -> Vec<String> {
        let owner = ThreadOwner::new("c1", owner);
        let page = self.stores.conversations.threads(&owner, &ThreadFilter::default(), None, 50).await;
        page.expect("threads").threads.into_iter().map(|thread| thread.id.to_string()).collect()
    }
}

#[tokio::test]
async fn threads_are_deleted_after_the_shorter_of_two_times() {
    // The retention time of visitors is so short that threads are swept every second.
    let settings = [("THREAD_RETENTION", "10d"), ("VISITOR_THREAD_RETENTION", "2s")];
    let test = start(json!({"retentionDays": 5}), &settings).await;
    for (agent, days) in
        [("a1", 4), ("a1", 6), ("a2", 9), ("a2", 11), ("deleted agent", 9), ("deleted agent", 11)]
    {
        test.store_thread("u1", agent, days).await;
    }
    test.store_thread("widget:t:00ff", "a2", 1).await;
    let threads = async || (test.threads_of("u1").await, test.threads_of("widget:t:00ff").await);
    let are_expired = |threads: &(Vec<String>, Vec<String>)| threads.0.len() <= 3 && threads.1.is_empty();
    let (left, _) = poll_until(threads, are_expired).await;
    assert_eq!(left, ["a1 4", "deleted agent 9", "a2 9"]);
}

#[tokio::test]
async fn a_thread_shows_its_expiry_which_activity_postpones() {
    let test = start(json!({"retentionDays": 5}), &[]).await;
    test.vendor.on("m", [answer(&["Hi."])]);
    test.say("t", "Hello").await;
    let expiry = |thread: &Value| {
        let time =
            |name: &str| -> Timestamp { thread[name].as_str().expect("a time").parse().expect("RFC 3339") };
        time("expiresAt").duration_since(time("lastActivityAt")).as_hours()
    };
    let thread = test.get("/api/threads/t").await;
    assert_eq!(expiry(&thread), 5 * 24);
    let body = json!({"messages": [{"role": "user", "content": "More"}]});
    assert_eq!(test.call("POST", "/api/threads/t/messages", Some(body)).await.0, 201);
    let appended = test.get("/api/threads/t").await;
    assert_eq!(expiry(&appended), 5 * 24);
    assert!(appended["expiresAt"].as_str() > thread["expiresAt"].as_str());
    let (status, created) = test.call("POST", "/api/threads", Some(json!({"agentId": "a1"}))).await;
    assert_eq!((status, expiry(&created)), (201, 5 * 24));
    let (_, other) = test.call("POST", "/api/threads", Some(json!({"agentId": "a2"}))).await;
    assert_eq!(other["expiresAt"], Value::Null, "its agent keeps threads");
}

#[tokio::test]
async fn a_role_sets_what_requests_leave_out() {
    let test = start(json!({"onDisconnect": "continue", "onBusy": "interrupt"}), &[]).await;
    let stalled = || vec![stream_head(), delta(json!({"content": "Partly"})), Step::Stall];
    test.vendor.on("m", [stalled(), stalled(), answer(&["Hi."])]);
    let body = |id: &str| json!({"agentId": "a1", "threadId": "t", "runId": id, "message": "Hello"});
    let mut first = test.app.chat(&body("r1")).await;
    read_until(&mut first, "Partly").await;
    drop(first);
    let mut second = test.app.chat(&body("r2")).await;
    read_until(&mut second, "Partly").await;
    let displaced = test.ended_run("r1").await;
    assert_eq!((&displaced["onDisconnect"], &displaced["reason"]), (&json!("continue"), &json!("displaced")));
    // A request goes before its agent's role.
    let mut request_body = body("r3");
    request_body["onBusy"] = json!("reject");
    assert_eq!(test.app.chat(&request_body).await.status(), 409);
    assert_eq!(test.call("POST", "/api/runs/r2/cancel", None).await.0, 200);
    let mut leaving = body("r4");
    leaving["onDisconnect"] = json!("cancel");
    test.vendor.on("m", [stalled()]);
    let mut leaving = test.app.chat(&leaving).await;
    read_until(&mut leaving, "Partly").await;
    drop(leaving);
    assert_eq!(test.ended_run("r4").await["reason"], "disconnected");
}
