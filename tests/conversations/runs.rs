//! Runs: busy threads, used ids, and the ends of runs whose client, vendor or process leaves them.

use std::time::Duration;

use agent_platform::conversation::{
    BeginRun, NewNode, NewThread, OnDisconnect, RunLease, RunTrigger, ThreadKey,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{ConversationApp, dialogue};
use crate::support::server::session_token;
use crate::support::vendor::{Step, answer, delta, json_response, stream_head};
use crate::support::{expect_problem, parse_run, poll_until};

/// Returns an answer that stops in the middle.
fn stalled() -> Vec<Step> {
    vec![stream_head(), delta(json!({"content": "Partly"})), Step::Stall]
}

fn body(thread: &str, message: &str) -> Value {
    json!({"agentId": "a1", "threadId": thread, "message": message})
}

impl ConversationApp {
    /// Starts a run whose answer stops, and reads until its first text.
    async fn begin_stalled(&self, body: &Value) -> reqwest::Response {
        let mut response = self.app.chat(body).await;
        assert_eq!(response.status(), 200);
        let mut read = String::new();
        while !read.contains("Partly") {
            let chunk = response.chunk().await.expect("it reads").expect("it goes on");
            read.push_str(&String::from_utf8_lossy(&chunk));
        }
        response
    }

    /// Begins a run in the store, as a process does that then ends: its lease holds until `until`.
    pub(super) async fn begin_in_store(&self, thread: &str, run: &str, until: Timestamp) {
        let question = NewNode::user(None, agent_core::message::Message::user("Lost?"));
        let begin = BeginRun {
            key: ThreadKey::new("c1", "u1", thread),
            agent_id: "a1".into(),
            run_id: run.into(),
            continues: None,
            decisions: Vec::new(),
            context: Default::default(),
            trigger: RunTrigger::default(),
            parent_id: Some(question.id.clone()),
            nodes: vec![question],
            new_thread: NewThread::default(),
            retention: None,
            order: Default::default(),
            expected_version: None,
            on_disconnect: OnDisconnect::Cancel,
            grace_ms: None,
            backend: None,
            request_sha256: None,
            lease: RunLease { process: format!("process of {run}"), until },
            now: Timestamp::now(),
        };
        self.stores.conversations.begin_run(begin).await.expect("it begins");
    }
}

#[tokio::test]
async fn a_busy_thread_is_refused_in_every_process() {
    let test = ConversationApp::start().await;
    let other = test.another_process().await;
    test.vendor.on("m", [stalled(), answer(&["Free."])]);
    let running = json!({"agentId": "a1", "threadId": "t", "message": "Go on", "runId": "r1"});
    let response = test.begin_stalled(&running).await;
    for app in [&test.app, &other] {
        let refused = app.chat(&body("t", "And?")).await;
        assert_eq!(refused.headers()["retry-after"], "2");
        let problem = expect_problem(refused, 409, "THREAD_BUSY").await;
        assert_eq!(problem["activeRunId"], "r1");
    }
    assert_eq!(test.vendor.received_bodies("m").len(), 1, "a refused message is not sent");
    let thread = test.get("/api/threads/t?messages=none").await;
    assert_eq!((&thread["status"], &thread["activeRunId"]), (&json!("running"), &json!("r1")));
    assert_eq!(thread["messageCount"], 1);
    drop(response);
    test.ended_run("r1").await;
    test.say("t", "And?").await;
    assert_eq!(test.prompt(), dialogue(&["Go on", "Partly", "And?"]));
}

#[tokio::test]
async fn of_a_hundred_messages_at_once_one_runs() {
    let test = ConversationApp::start().await;
    let other = test.another_process().await;
    test.vendor.on("m", [stalled()]);
    let session = session_token("u1", "c1");
    let asked: Vec<Value> = (0..100).map(|number| body("t", &format!("Number {number}"))).collect();
    let calls = asked.iter().enumerate().map(|(number, body)| {
        let app = if number % 2 == 0 { &test.app } else { &other };
        app.chat_as(&session, "", body)
    });
    let responses = futures_util::future::join_all(calls).await;
    let statuses: Vec<u16> = responses.iter().map(|response| response.status().as_u16()).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 409).count(), 99, "{statuses:?}");
    assert_eq!(test.get("/api/threads/t?messages=none").await["messageCount"], 1);
}

#[tokio::test]
async fn a_used_run_id_names_its_run_in_every_process() {
    let test = ConversationApp::start().await;
    let other = test.another_process().await;
    let mut first = body("t", "Hello");
    first["runId"] = json!("r-1/1");
    assert_eq!(test.app.chat(&first).await.text().await.expect("a body").matches("RUN_FINISHED").count(), 1);
    for app in [&test.app, &other] {
        let refused = app.chat(&first).await;
        assert_eq!(refused.headers()["location"], "/api/runs/r-1%2F1/events");
        let problem = expect_problem(refused, 409, "CONFLICT").await;
        assert_eq!(problem["run"], json!({"id": "r-1/1", "state": "completed"}));
    }
    assert_eq!(test.get("/api/runs/r-1%2F1").await["state"], "completed");
    let theirs = test.app.chat_as(&session_token("u2", "c1"), "", &first).await;
    assert_eq!(theirs.status(), 200, "another user's ids are others");
}

#[tokio::test]
async fn a_client_that_leaves_finds_its_message_and_the_partial_answer() {
    for format in ["", "?format=sse", "?format=ui-message", "?format=n8n"] {
        let test = ConversationApp::start().await;
        test.vendor.on("m", [stalled(), answer(&["Again."])]);
        let mut body = body("t", "Hello");
        body["runId"] = json!("r1");
        let mut response = test.app.chat_as(&session_token("u1", "c1"), format, &body).await;
        let mut read = String::new();
        while !read.contains("Partly") {
            read.push_str(&String::from_utf8_lossy(
                &response.chunk().await.expect("it reads").expect("it goes on"),
            ));
        }
        drop(response);
        let run = test.ended_run("r1").await;
        assert_eq!(
            (&run["state"], &run["reason"]),
            (&json!("cancelled"), &json!("disconnected")),
            "{format}"
        );
        assert_eq!(test.path("t").await, dialogue(&["Hello", "Partly"]), "{format}");
        let nodes = test.get("/api/threads/t").await["nodes"].clone();
        assert_eq!(nodes[1]["status"], "cancelled", "{format}");
        assert_eq!(test.get("/api/threads/t").await["status"], "idle");
    }
}

#[tokio::test]
async fn a_client_that_leaves_before_the_answer_begins_leaves_its_message() {
    let test = ConversationApp::start().await;
    test.vendor.on("m", [vec![Step::Stall]]);
    let mut body = body("t", "Hello");
    body["runId"] = json!("r1");
    let session = session_token("u1", "c1");
    let asked = test.app.chat_as(&session, "", &body);
    let left = tokio::time::timeout(Duration::from_secs(20), async {
        tokio::select! {
            _ = asked => panic!("the vendor answers nothing"),
            () = test.vendor.wait_for_requests("m", 1) => {}
        }
    });
    left.await.expect("the vendor is asked");
    let run = test.ended_run("r1").await;
    assert_eq!((&run["state"], &run["reason"]), (&json!("cancelled"), &json!("disconnected")));
    assert_eq!(test.path("t").await, dialogue(&["Hello"]));
}

#[tokio::test]
async fn a_failed_run_is_kept_with_what_it_has_said() {
    let test = ConversationApp::start().await;
    let cut = vec![stream_head(), delta(json!({"content": "Partly"})), Step::Close];
    test.vendor.on("m", [cut, json_response("500 Internal Server Error", "", "{}"), answer(&["Well."])]);
    let turn = test.say("t", "Hello").await;
    assert_eq!(turn.last()["type"], "RUN_ERROR");
    let run = test.get(&format!("/api/runs/{}", turn.run_id())).await;
    assert_eq!((&run["state"], &run["error"]["code"]), (&json!("failed"), &turn.last()["code"]));
    let nodes = test.get("/api/threads/t").await["nodes"].clone();
    assert_eq!(nodes[1]["status"], "incomplete");
    // A vendor that refuses the prompt, before the answer begins.
    let mut refused = body("t", "Again");
    refused["runId"] = json!("r2");
    expect_problem(test.app.chat(&refused).await, 502, "BACKEND_FAILED").await;
    let run = test.ended_run("r2").await;
    assert_eq!((&run["state"], &run["error"]["code"]), (&json!("failed"), &json!("BACKEND_FAILED")));
    test.say("t", "Once more").await;
    let roles_and_texts = test.path("t").await;
    let said: Vec<&str> = roles_and_texts.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(said, ["Hello", "Partly", "Again", "Once more", "Well."]);
}

#[tokio::test]
async fn the_runs_of_a_killed_process_are_interrupted() {
    let test = ConversationApp::start().await;
    let now = Timestamp::now();
    let later = |millis| now.checked_add(SignedDuration::from_millis(millis)).expect("a time");
    test.begin_in_store("t", "lost", later(1_500)).await;
    test.begin_in_store("long", "held", later(3_600_000)).await;
    expect_problem(test.app.chat(&body("t", "And?")).await, 409, "THREAD_BUSY").await;
    // The next message in the thread need not wait for the search for such runs.
    let look = async || {
        let response = test.app.chat(&body("t", "And?")).await;
        (response.status().as_u16(), response.text().await.expect("a body"))
    };
    let (_, run) = poll_until(look, |(status, _)| *status == 200).await;
    parse_run(&run);
    let lost = test.get("/api/runs/lost").await;
    assert_eq!((&lost["state"], &lost["error"]["code"]), (&json!("interrupted"), &json!("RUN_INTERRUPTED")));
    assert_eq!(test.get("/api/runs/held").await["state"], "running", "its lease holds");
    assert_eq!(test.path("t").await.len(), 3);
}

#[tokio::test]
async fn a_process_frees_the_threads_of_killed_ones_by_itself() {
    let test = ConversationApp::start().await;
    let soon = Timestamp::now().checked_add(SignedDuration::from_millis(200)).expect("a time");
    test.begin_in_store("t", "lost", soon).await;
    let look = async || test.get("/api/threads/t?messages=none").await["status"].clone();
    poll_until(look, |status| status == "idle").await;
    assert_eq!(test.get("/api/runs/lost").await["state"], "interrupted");
}

#[tokio::test]
async fn a_graceful_stop_interrupts_the_runs_that_do_not_end() {
    let test = ConversationApp::start_with(&[("DRAIN_MS", "2500")]).await;
    test.vendor.on("m", [stalled()]);
    let mut body = body("t", "Hello");
    body["runId"] = json!("r1");
    let response = test.begin_stalled(&body).await;
    test.app.stop();
    let rest = response.text().await.expect("the stream ends");
    assert!(rest.contains("SERVER_SHUTTING_DOWN"), "{rest}");
    let ConversationApp { app, stores, .. } = test;
    app.stopped().await;
    let owner = agent_platform::conversation::ThreadOwner::new("c1", "u1");
    let run = stores.conversations.run(&owner, &"r1".into()).await.expect("it reads").expect("a run");
    assert_eq!(json!(run)["state"], "interrupted");
    let key = ThreadKey::new("c1", "u1", "t");
    let thread = stores.conversations.thread(&key).await.expect("it reads").expect("a thread");
    assert_eq!((json!(thread)["status"].clone(), thread.message_count), (json!("idle"), 2));
}

#[tokio::test]
async fn a_run_whose_thread_is_deleted_ends_as_cancelled() {
    let test = ConversationApp::start().await;
    let (opener, gate) = watch::channel(false);
    let slow = vec![
        stream_head(),
        delta(json!({"content": "Partly"})),
        Step::Until(gate),
        delta(json!({"content": "."})),
    ];
    test.vendor.on("m", [slow.into_iter().chain(crate::support::vendor::finish("stop")).collect()]);
    let response = test.begin_stalled(&body("t", "Hello")).await;
    assert_eq!(test.call("DELETE", "/api/threads/t", None).await.0, 204);
    opener.send_replace(true);
    let rest = response.text().await.expect("it ends");
    let last: Value = serde_json::from_str(rest.lines().last().expect("a line")).expect("JSON");
    assert_eq!((&last["type"], &last["outcome"]["type"]), (&json!("RUN_FINISHED"), &json!("cancelled")));
    assert_eq!(test.call("GET", "/api/threads/t", None).await.0, 404);
}
