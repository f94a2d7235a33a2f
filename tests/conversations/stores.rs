//! Conversations in SQLite and PostgreSQL, shared by two processes.

use agentd::config::AppConfig;
use agentd::stores::Stores;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::watch;

use super::logs::read_until;
use super::{call_as, everyone, get, prompt_of, whole_run};
use crate::processes::TestDatabase;
use crate::support::cluster::Cluster;
use crate::support::server::{self, Server, session_token};
use crate::support::vendor::{Step, Vendor, answer, delta, finish, stream_head};
use crate::support::{expect_problem, parse_run, poll_until};

pub(super) fn config(database: &TestDatabase) -> AppConfig {
    let url = database.url();
    server::app_config(&[("DATABASE_URL", url.as_str()), ("DATA_SECRET", "data-secret-canary")])
}

pub(super) async fn start(database: &TestDatabase) -> Server {
    let config = config(database);
    let stores = Stores::open(&config).await.expect("the store opens");
    server::app_with_config(config, stores).await
}

async fn share_a_thread(database: TestDatabase) {
    let vendor = Vendor::start().await;
    let stores = Stores::open(&config(&database)).await.expect("the store opens");
    stores
        .import("the test", &everyone(&vendor.base_url()).to_string())
        .await
        .expect("the workspace is imported");
    let stalled = vec![stream_head(), delta(json!({"content": "Partly"})), Step::Stall];
    vendor.on("m", [answer(&["One."]), answer(&["Two."]), stalled, answer(&["Three."])]);
    let (first, second) = (start(&database).await, start(&database).await);
    let body = |message: &str, run: &str| json!({"agentId": "a1", "threadId": "t", "message": message, "runId": run});
    whole_run(&first, &body("A", "r1")).await;
    whole_run(&second, &body("B", "r2")).await;
    let sent = prompt_of(&vendor.received_bodies("m").pop().expect("a request"));
    assert_eq!(sent, super::dialogue(&["A", "One.", "B"]));
    let used = second.chat(&body("B", "r1")).await;
    assert_eq!(used.headers()["location"], "/api/runs/r1/events");
    expect_problem(used, 409, "CONFLICT").await;
    let mut running = first.chat(&body("C", "r3")).await;
    read_until(&mut running, "Partly").await;
    let problem = expect_problem(second.chat(&body("D", "r4")).await, 409, "THREAD_BUSY").await;
    assert_eq!(problem["activeRunId"], "r3");
    let note = json!({"messages": [{"role": "user", "content": "D"}]});
    let added =
        call_as(&second, &session_token("u1", "c1"), "POST", "/api/threads/t/messages", Some(note)).await;
    assert_eq!((added.0, &added.1["activeRunId"]), (409, &json!("r3")), "{}", added.1);
    drop(running);
    let run = poll_until(async || get(&second, "/api/runs/r3").await, |run| run["endedAt"].is_string()).await;
    assert_eq!((&run["state"], &run["reason"]), (&json!("cancelled"), &json!("disconnected")));
    whole_run(&second, &body("D", "r4")).await;
    drop((first, second));
    let third = start(&database).await;
    let thread = get(&third, "/api/threads/t").await;
    let texts: Vec<_> = thread["nodes"]
        .as_array()
        .expect("nodes")
        .iter()
        .map(|node| super::role_and_text(&node["message"]))
        .collect();
    assert_eq!(texts, super::dialogue(&["A", "One.", "B", "Two.", "C", "Partly", "D", "Three."]));
    assert_eq!(get(&third, "/api/threads").await["threads"][0]["messageCount"], 8);
}

#[tokio::test]
async fn two_processes_share_a_thread_in_sqlite() {
    share_a_thread(TestDatabase::Sqlite(TempDir::new().expect("a folder"))).await;
}

#[tokio::test]
async fn two_processes_share_a_thread_in_postgres() {
    share_a_thread(TestDatabase::Postgres(Cluster::start())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_that_cannot_be_stored_is_an_error_and_is_stored_later() {
    let vendor = Vendor::start().await;
    let mut database = TestDatabase::Postgres(Cluster::start());
    let stores = Stores::open(&config(&database)).await.expect("the store opens");
    stores
        .import("the test", &everyone(&vendor.base_url()).to_string())
        .await
        .expect("the workspace is imported");
    let app = start(&database).await;
    let gate = watch::Sender::new(false);
    let mut steps = vec![stream_head(), delta(json!({"content": "first "})), Step::Until(gate.subscribe())];
    steps.push(delta(json!({"content": "second"})));
    steps.extend(finish("stop"));
    vendor.on("m", [steps, answer(&["Again."])]);
    let body = json!({"agentId": "a1", "threadId": "t", "message": "Hello", "runId": "r1"});
    let running = app.chat(&body).await;
    assert_eq!(running.status(), 200);
    let TestDatabase::Postgres(cluster) = &mut database else { panic!("a cluster") };
    cluster.crash();
    gate.send_replace(true);
    let events = parse_run(&running.text().await.expect("a whole body"));
    let last = events.last().expect("an end");
    assert_eq!((&last["type"], &last["code"]), (&json!("RUN_ERROR"), &json!("STORE_UNAVAILABLE")));
    cluster.restart();
    let fetch = async || call_as(&app, &session_token("u1", "c1"), "GET", "/api/runs/r1", None).await.1;
    let run = poll_until(fetch, |run| run["endedAt"].is_string()).await;
    assert_eq!(run["state"], "completed");
    let nodes = get(&app, "/api/threads/t").await["nodes"].clone();
    assert_eq!(nodes[1]["message"]["content"], "first second");
    let second = json!({"agentId": "a1", "threadId": "t", "message": "Again"});
    whole_run(&app, &second).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_continues_while_its_store_is_unavailable() {
    let vendor = Vendor::start().await;
    let mut database = TestDatabase::Postgres(Cluster::start());
    let stores = Stores::open(&config(&database)).await.expect("the store opens");
    stores
        .import("the test", &everyone(&vendor.base_url()).to_string())
        .await
        .expect("the workspace is imported");
    let app = start(&database).await;
    let gates = [watch::Sender::new(false), watch::Sender::new(false)];
    let mut steps = vec![stream_head()];
    for (gate, word) in gates.iter().zip(["second ", "third"]) {
        steps.extend([Step::Until(gate.subscribe()), delta(json!({ "content": word }))]);
    }
    steps.insert(1, delta(json!({"content": "first "})));
    steps.extend(finish("stop"));
    vendor.on("m", [steps]);
    let body = json!({"agentId": "a1", "threadId": "t", "message": "Hello", "runId": "r1"});
    let mut running = app.chat(&body).await;
    let mut received_text = read_until(&mut running, "first ").await;
    let TestDatabase::Postgres(cluster) = &mut database else { panic!("a cluster") };
    cluster.crash();
    gates[0].send_replace(true);
    received_text.push_str(&read_until(&mut running, "second ").await);
    // Nothing that cannot be kept begins.
    let request_body = json!({"agentId": "a1", "threadId": "u", "message": "Hello", "runId": "r2"});
    expect_problem(app.chat(&request_body).await, 503, "STORE_UNAVAILABLE").await;
    assert_eq!(vendor.received_bodies("m").len(), 1, "no backend is asked");
    cluster.restart();
    let session = session_token("u1", "c1");
    let fetch = async || call_as(&app, &session, "GET", "/api/runs/r1", None).await.0;
    poll_until(fetch, |status| *status == 200).await;
    gates[1].send_replace(true);
    received_text.push_str(&running.text().await.expect("a whole body"));
    let events = parse_run(&received_text);
    assert_eq!(events.last().expect("an end")["type"], "RUN_FINISHED");
    let run = get(&app, "/api/runs/r1").await;
    assert_eq!((&run["state"], &run["events"]["complete"]), (&json!("completed"), &json!(true)));
    let log = app.request("GET", "/api/runs/r1/events").bearer_auth(&session);
    let log = log.send().await.expect("an answer").text().await.expect("a whole body");
    assert_eq!(log, received_text, "the log has no gap");
    let nodes = get(&app, "/api/threads/t").await["nodes"].clone();
    assert_eq!(nodes[1]["message"]["content"], "first second third");
}
