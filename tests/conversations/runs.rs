//! Runs: busy threads, used ids, and the ends of runs whose client, vendor or process leaves them.

use agent_platform::conversation::{
    BeginRunRequest, NewNode, NewThread, OnDisconnect, RunLease, RunTrigger, ThreadKey,
};
use agentd::stores::Stores;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;

use super::logs::read_until;
use super::stores::{config, start as start_process};
use super::{ConversationApp, call_as, dialogue, everyone, gated};
use crate::processes::TestDatabase;
use crate::support::cluster::Cluster;
use crate::support::server::session_token;
use crate::support::vendor::{Step, Vendor, answer, delta, json_response, stream_head};
use crate::support::{TEST_TIMEOUT, expect_problem, parse_run, poll_until};

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
        read_until(&mut response, "Partly").await;
        response
    }

    /// Begins a run in the store, as a process does that then ends: its lease holds until `until`.
    pub(super) async fn begin_in_store(&self, thread: &str, run: &str, until: Timestamp) {
        let question = NewNode::user(None, agent_core::message::Message::user("Lost?"));
        let begin = BeginRunRequest {
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
        let response = app.chat(&body("t", "And?")).await;
        assert_eq!(response.headers()["retry-after"], "2");
        let problem = expect_problem(response, 409, "THREAD_BUSY").await;
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
    let bodies: Vec<Value> = (0..100).map(|number| body("t", &format!("Number {number}"))).collect();
    let calls = bodies.iter().enumerate().map(|(number, body)| {
        let app = if number % 2 == 0 { &test.app } else { &other };
        app.chat_as(&session, "", body)
    });
    let responses = futures_util::future::join_all(calls).await;
    let statuses: Vec<u16> = responses.iter().map(|response| response.status().as_u16()).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 409).count(), 99, "{statuses:?}");
    assert_eq!(test.get("/api/threads/t?messages=none").await["messageCount"], 1);
}

async fn of_a_hundred_messages_to_two_processes_one_runs(database: TestDatabase) {
    let vendor = Vendor::start().await;
    let stores = Stores::open(&config(&database)).await.expect("the store opens");
    stores
        .import("the test", &everyone(&vendor.base_url()).to_string())
        .await
        .expect("the workspace is imported");
    let apps = [start_process(&database).await, start_process(&database).await];
    vendor.on("m", [stalled()]);
    let bodies: Vec<Value> = (0..100).map(|number| body("t", &format!("Number {number}"))).collect();
    let calls = bodies.iter().enumerate().map(|(number, body)| apps[number % 2].chat(body));
    let responses = futures_util::future::join_all(calls).await;
    let is_busy = |response: &&reqwest::Response| response.status() == 409;
    assert_eq!(responses.iter().filter(is_busy).count(), 99);
    let mut running: Vec<_> = responses.into_iter().filter(|response| !is_busy(&response)).collect();
    assert_eq!(running[0].status(), 200);
    read_until(&mut running[0], "Partly").await;
    let session = session_token("u1", "c1");
    for app in &apps {
        let (_, thread) = call_as(app, &session, "GET", "/api/threads/t", None).await;
        assert_eq!((&thread["status"], &thread["messageCount"]), (&json!("running"), &json!(1)));
        let (_, runs) = call_as(app, &session, "GET", "/api/runs", None).await;
        assert_eq!(runs["runs"].as_array().expect("runs").len(), 1, "refused runs leave no records");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_hundred_messages_one_runs_in_sqlite() {
    of_a_hundred_messages_to_two_processes_one_runs(TestDatabase::Sqlite(TempDir::new().expect("a folder")))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_hundred_messages_one_runs_in_postgres() {
    of_a_hundred_messages_to_two_processes_one_runs(TestDatabase::Postgres(Cluster::start())).await;
}

#[tokio::test]
async fn the_run_of_a_killed_process_ends_when_it_is_cancelled() {
    // No process looks for such runs while the test goes on.
    let test = ConversationApp::start_with(&[("RUN_LEASE_MS", "600000")]).await;
    let other = test.another_process().await;
    let past = Timestamp::now().checked_sub(SignedDuration::from_millis(1)).expect("a time");
    let session = session_token("u1", "c1");
    for (number, (app, kind)) in
        [(&test.app, "runs"), (&other, "runs"), (&test.app, "threads")].into_iter().enumerate()
    {
        let (thread, run) = (format!("t{number}"), format!("r{number}"));
        test.begin_in_store(&thread, &run, past).await;
        let id = if kind == "runs" { &run } else { &thread };
        let (status, _) = call_as(app, &session, "POST", &format!("/api/{kind}/{id}/cancel"), None).await;
        assert_eq!(status, 200, "{kind}");
        let ended = test.get(&format!("/api/runs/{run}")).await;
        assert_eq!(
            (&ended["state"], &ended["error"]["code"]),
            (&json!("interrupted"), &json!("RUN_INTERRUPTED"))
        );
        let thread = test.get(&format!("/api/threads/{thread}")).await;
        assert_eq!(
            (&thread["status"], thread.get("activeRunId")),
            (&json!("idle"), None),
            "the thread is free"
        );
        let (status, again) = call_as(app, &session, "POST", &format!("/api/runs/{run}/cancel"), None).await;
        assert_eq!(
            (status, &again["state"]),
            (200, &json!("interrupted")),
            "a repeated request changes nothing"
        );
    }
}

/// Waits until a statement waits for a lock that another session has.
async fn wait_for_blocked_statement(client: &tokio_postgres::Client) {
    let fetch = async || {
        let row =
            client.query_one("SELECT count(*) FROM pg_locks WHERE NOT granted", &[]).await.expect("a row");
        row.get::<_, i64>(0)
    };
    poll_until(fetch, |waiting| *waiting > 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_cancelled_while_its_end_is_stored() {
    let vendor = Vendor::start().await;
    let cluster = Cluster::start();
    let (client, connection) =
        tokio_postgres::connect(&cluster.url("postgres"), tokio_postgres::NoTls).await.expect("a session");
    tokio::spawn(connection);
    let database = TestDatabase::Postgres(cluster);
    let stores = Stores::open(&config(&database)).await.expect("the store opens");
    stores
        .import("the test", &everyone(&vendor.base_url()).to_string())
        .await
        .expect("the workspace is imported");
    let apps = [start_process(&database).await, start_process(&database).await];
    let session = session_token("u1", "c1");
    for (number, cancels) in [&apps[0], &apps[1]].into_iter().enumerate() {
        let (steps, gate) = gated();
        vendor.on("m", [steps]);
        let run = format!("r{number}");
        let mut request_body = body("t", "Hello");
        request_body["runId"] = json!(run);
        let mut first = apps[0].chat(&request_body).await;
        let mut received_text = read_until(&mut first, "Partly").await;
        // The rows of threads are read, and not written.
        client.batch_execute("BEGIN; LOCK TABLE app.threads IN EXCLUSIVE MODE").await.expect("a lock");
        gate.send_replace(true);
        wait_for_blocked_statement(&client).await;
        let path = format!("/api/runs/{run}");
        let cancel = format!("{path}/cancel");
        let cancel = call_as(cancels, &session, "POST", &cancel, None);
        let commit = async || client.batch_execute("COMMIT").await.expect("the lock is released");
        let (status, cancelled) = if number == 0 {
            let cancelled = cancel.await;
            commit().await;
            cancelled
        } else {
            // Another process may have to wait for the end, too.
            tokio::join!(cancel, commit()).0
        };
        assert_eq!(status, 200);
        assert!(number == 1 || cancelled["state"] == "running", "its end is not stored yet: {cancelled}");
        received_text.push_str(&first.text().await.expect("a whole body"));
        let events = parse_run(&received_text);
        let last = events.last().expect("an end");
        assert_eq!(last["type"], "RUN_FINISHED");
        let expected = if last["outcome"]["type"] == "cancelled" { "cancelled" } else { "completed" };
        for app in &apps {
            let (_, ended) = call_as(app, &session, "GET", &path, None).await;
            assert_eq!(ended["state"], expected, "the client received the stored end: {last}");
            let log = app.request("GET", &format!("{path}/events")).bearer_auth(&session);
            let log = log.send().await.expect("an answer").text().await.expect("a whole body");
            assert_eq!(log, received_text, "and the log has the same");
        }
        let (_, thread) = call_as(&apps[1], &session, "GET", "/api/threads/t", None).await;
        assert_eq!((&thread["status"], thread.get("activeRunId")), (&json!("idle"), None));
    }
}

#[tokio::test]
async fn a_used_run_id_names_its_run_in_every_process() {
    let test = ConversationApp::start().await;
    let other = test.another_process().await;
    let mut first = body("t", "Hello");
    first["runId"] = json!("r-1/1");
    assert_eq!(test.app.chat(&first).await.text().await.expect("a body").matches("RUN_FINISHED").count(), 1);
    for app in [&test.app, &other] {
        let response = app.chat(&first).await;
        assert_eq!(response.headers()["location"], "/api/runs/r-1%2F1/events");
        let problem = expect_problem(response, 409, "CONFLICT").await;
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
        read_until(&mut response, "Partly").await;
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
    let response = test.app.chat_as(&session, "", &body);
    let left = tokio::time::timeout(TEST_TIMEOUT, async {
        tokio::select! {
            _ = response => panic!("the vendor answers nothing"),
            () = test.vendor.wait_for_requests("m", 1) => {}
        }
    });
    left.await.expect("the vendor is asked");
    let run = test.ended_run("r1").await;
    assert_eq!((&run["state"], &run["reason"]), (&json!("cancelled"), &json!("disconnected")));
    assert_eq!(test.path("t").await, dialogue(&["Hello"]));
}

#[tokio::test]
async fn a_failed_run_is_stored_with_its_partial_answer() {
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
    let mut request_body = body("t", "Again");
    request_body["runId"] = json!("r2");
    expect_problem(test.app.chat(&request_body).await, 502, "BACKEND_FAILED").await;
    let run = test.ended_run("r2").await;
    assert_eq!((&run["state"], &run["error"]["code"]), (&json!("failed"), &json!("BACKEND_FAILED")));
    test.say("t", "Once more").await;
    let roles_and_texts = test.path("t").await;
    let texts: Vec<&str> = roles_and_texts.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts, ["Hello", "Partly", "Again", "Once more", "Well."]);
}

#[tokio::test]
async fn the_runs_of_a_killed_process_are_interrupted() {
    let test = ConversationApp::start().await;
    let now = Timestamp::now();
    let later = |millis| now.checked_add(SignedDuration::from_millis(millis)).expect("a time");
    test.begin_in_store("t", "lost", later(1_500)).await;
    test.begin_in_store("long", "held", later(3_600_000)).await;
    expect_problem(test.app.chat(&body("long", "And?")).await, 409, "THREAD_BUSY").await;
    // The next message in the thread need not wait for the search for such runs. While the lease holds, the thread is busy.
    let fetch = async || {
        let response = test.app.chat(&body("t", "And?")).await;
        if response.status() == 200 {
            return Some(response.text().await.expect("a whole body"));
        }
        expect_problem(response, 409, "THREAD_BUSY").await;
        None
    };
    let run = poll_until(fetch, Option::is_some).await.expect("a run");
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
    let fetch = async || test.get("/api/threads/t?messages=none").await["status"].clone();
    poll_until(fetch, |status| status == "idle").await;
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
    let later_text = response.text().await.expect("the stream ends");
    assert!(later_text.contains("SERVER_SHUTTING_DOWN"), "{later_text}");
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
    let later_text = response.text().await.expect("it ends");
    let last: Value = serde_json::from_str(later_text.lines().last().expect("a line")).expect("JSON");
    assert_eq!((&last["type"], &last["outcome"]["type"]), (&json!("RUN_FINISHED"), &json!("cancelled")));
    assert_eq!(test.call("GET", "/api/threads/t", None).await.0, 404);
}
