//! Runs whose database cannot be written, at the beginning, at a flush and at the end: a SQLite file on a disk that is full
//! or that fails, and PostgreSQL in read-only mode, as after a failover that made it a standby.

use std::sync::Arc;

use agent_core::message::SharedJson;
use agent_platform::records::{Key, Precondition, Records as _, StoreError, Write};
use agent_store::sqlite::{SqliteOptions, SqliteStore};
use agentd::stores::Stores;
use reqwest::Response;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;

use super::logs::read_until;
use super::stores::{config, start};
use super::{dialogue, everyone, role_and_text};
use crate::processes::TestDatabase;
use crate::support::cluster::Cluster;
use crate::support::log::LogBuffer;
use crate::support::process::AppProcess;
use crate::support::read_only::set_read_only;
use crate::support::server::{self, Server, session_token};
use crate::support::vendor::{Step, Vendor, answer, delta, finish, stream_head};
use crate::support::{client, expect_problem, parse_run, poll_until, text_of};

/// Maximum size of a file that another store then fills.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// Records that fill the file, and the size of each. Together they need more room than a test has freed.
const FILLER_RECORDS: usize = 24;
const FILLER_BYTES: usize = 512 << 10;
/// Size of a text that the free rest of no page has room for.
const LARGE_BYTES: usize = 20_000;
/// Pieces of an answer of which a process may not keep as much in memory as there is, and the size of each.
const PIECES: usize = 80;
const PIECE_BYTES: usize = 32 << 10;
/// Settings of the process whose writes fail. The lease of its runs expires meanwhile.
const SETTINGS: [(&str, &str); 6] = [
    ("DATA_SECRET", "data-secret-canary"),
    ("OUTBOUND_ALLOW", "127.0.0.0/8"),
    ("RUN_LEASE_MS", "1000"),
    ("RUNS_PER_MINUTE", "1000000"),
    ("RUNS_PER_MINUTE_COMPANY", "0"),
    ("CONCURRENT_RUNS_COMPANY", "0"),
];

/// The application over a database whose writes can be made to fail.
struct FailingStore {
    vendor: Vendor,
    application: Application,
    database: TestDatabase,
}

enum Application {
    /// In this process, over a file that has reached its limit once `filler` has filled it (`SQLITE_FULL`).
    Limited { server: Server, store: Arc<SqliteStore>, filler: Arc<SqliteStore> },
    /// A process whose system rejects each write to a file (`SQLITE_IOERR`).
    Process(Box<AppProcess>),
    /// In this process, over PostgreSQL, whose database can be made read-only.
    ReadOnly(Server),
}

fn large_text() -> String {
    "x".repeat(LARGE_BYTES)
}

fn record(name: &str, bytes: usize) -> Write {
    let key = Key::new("filler", "things", name).expect("a key");
    let text = format!("\"{}\"", "x".repeat(bytes));
    let value: SharedJson = RawValue::from_string(text).expect("JSON").into();
    Write::Put { key, value, precondition: Precondition::Any }
}

fn body(thread: &str, run: Option<&str>, message: &str) -> Value {
    let mut body = json!({"agentId": "a1", "threadId": thread, "message": message});
    if let Some(run) = run {
        body["runId"] = json!(run);
    }
    body
}

impl FailingStore {
    /// Creates a database with an agent, and its vendor.
    async fn create(database: TestDatabase) -> (Vendor, TestDatabase) {
        let vendor = Vendor::start().await;
        let stores = Stores::open(&config(&database)).await.expect("the store opens");
        stores
            .import("the test", &everyone(&vendor.base_url()).to_string())
            .await
            .expect("the workspace is imported");
        (vendor, database)
    }

    async fn create_file() -> (Vendor, TestDatabase) {
        Self::create(TestDatabase::Sqlite(TempDir::new().expect("a folder"))).await
    }

    /// Starts the application over a file that has a limit.
    async fn full() -> Self {
        let (vendor, database) = Self::create_file().await;
        let (config, url) = (config(&database), database.url());
        let path = url.strip_prefix("sqlite://").expect("a file");
        let limited = SqliteOptions { max_file_bytes: Some(MAX_FILE_BYTES), ..SqliteOptions::default() };
        let store = Arc::new(SqliteStore::open(path, limited).expect("a store"));
        let filler = Arc::new(SqliteStore::open(path, SqliteOptions::default()).expect("a store"));
        let stores = Stores::from_records(store.clone(), &config);
        let server = server::app_with_config(config, stores).await;
        let application = Application::Limited { server, store, filler };
        Self { vendor, application, database }
    }

    /// Starts the application as a process.
    async fn broken() -> Self {
        let (vendor, database) = Self::create_file().await;
        let process = AppProcess::start(&database.url(), 0, &SETTINGS).await;
        let application = Application::Process(Box::new(process));
        Self { vendor, application, database }
    }

    /// Starts the application over PostgreSQL.
    async fn read_only() -> Self {
        let (vendor, database) = Self::create(TestDatabase::Postgres(Cluster::start())).await;
        let application = Application::ReadOnly(start(&database).await);
        Self { vendor, application, database }
    }

    /// Makes writes fail from now on.
    async fn fail(&self) {
        match &self.application {
            Application::Process(process) => process.limit_file_bytes(Some(0)).await,
            Application::ReadOnly(_) => set_read_only(&self.database.url(), true).await,
            Application::Limited { store, filler, .. } => {
                let records = (0..FILLER_RECORDS).map(|n| record(&n.to_string(), FILLER_BYTES));
                filler.commit(records.collect()).await.expect("it has no limit");
                let full = store.commit(vec![record("more", LARGE_BYTES)]).await;
                assert!(
                    matches!(full, Err(StoreError::Unavailable(error)) if error.to_string().contains("full"))
                );
            }
        }
    }

    /// Lets writes succeed again.
    async fn heal(&self) {
        match &self.application {
            Application::Process(process) => process.limit_file_bytes(None).await,
            Application::ReadOnly(_) => set_read_only(&self.database.url(), false).await,
            Application::Limited { filler, .. } => {
                let records = (0..FILLER_RECORDS).map(|n| {
                    let key = Key::new("filler", "things", n.to_string()).expect("a key");
                    Write::Delete { key, precondition: Precondition::Any }
                });
                filler.commit(records.collect()).await.expect("deleted");
            }
        }
    }

    /// Checks the messages for the operator after a failed write. A full file has room for a little.
    async fn check_readiness(&self) {
        let reason = match &self.application {
            Application::Limited { .. } => return,
            Application::Process(_) => "the database reported an error",
            Application::ReadOnly(_) => "read-only",
        };
        let (status, ready) = self.get("/readyz").await;
        assert_eq!(status, 503);
        assert!(ready.contains("the store is unavailable: ") && ready.contains(reason), "{ready}");
    }

    fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let address = match &self.application {
            Application::Process(process) => process.address,
            Application::Limited { server, .. } | Application::ReadOnly(server) => server.address,
        };
        let url = format!("http://{address}{path}");
        client().request(method.parse().expect("a method"), url).bearer_auth(session_token("u1", "c1"))
    }

    async fn chat(&self, body: &Value) -> Response {
        self.request("POST", "/api/agent/chat").json(body).send().await.expect("an answer")
    }

    /// Reads a whole run, which must be finished.
    async fn say(&self, thread: &str, run: Option<&str>, message: &str) {
        let response = self.chat(&body(thread, run, message)).await;
        assert_eq!(response.status(), 200, "{thread}");
        let events = parse_run(&response.text().await.expect("a whole body"));
        assert_eq!(events.last().expect("an end")["type"], "RUN_FINISHED", "{thread}");
    }

    async fn get(&self, path: &str) -> (u16, String) {
        let response = self.request("GET", path).send().await.expect("an answer");
        let status = response.status().as_u16();
        (status, response.text().await.expect("a whole body"))
    }

    async fn get_json(&self, path: &str) -> Value {
        let (status, body) = self.get(path).await;
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).expect("JSON")
    }

    async fn ended_run(&self, id: &str) -> Value {
        let path = format!("/api/runs/{id}");
        poll_until(async || self.get_json(&path).await, |run| run["endedAt"].is_string()).await
    }

    async fn log(&self, run: &str) -> String {
        let (status, log) = self.get(&format!("/api/runs/{run}/events")).await;
        assert_eq!(status, 200, "{log}");
        log
    }

    /// Returns role and text of the messages of a thread, which must be idle.
    async fn path(&self, thread: &str) -> Vec<(String, String)> {
        let body = self.get_json(&format!("/api/threads/{thread}")).await;
        assert_eq!(body["status"], "idle", "{thread}");
        body["nodes"].as_array().expect("nodes").iter().map(|node| role_and_text(&node["message"])).collect()
    }

    /// Begins a run in a new thread, whose answer is in parts that end in "1.", "2." and so on. Each part but the
    /// first comes when its gate is opened.
    async fn begin(&self, run: &str, parts: &[&[&str]]) -> (Response, String, Vec<watch::Sender<bool>>) {
        let gates: Vec<_> = parts[1..].iter().map(|_| watch::Sender::new(false)).collect();
        let mut steps = vec![stream_head()];
        for (number, part) in parts.iter().enumerate() {
            steps.extend(number.checked_sub(1).map(|gate| Step::Until(gates[gate].subscribe())));
            steps.extend(part.iter().map(|text| delta(json!({"content": text}))));
            steps.push(delta(json!({"content": format!("{}.", number + 1)})));
        }
        steps.extend(finish("stop"));
        self.vendor.on("m", [steps]);
        let mut response = self.chat(&body(run, Some(run), "Hello")).await;
        assert_eq!(response.status(), 200);
        let received_text = read_until(&mut response, "1.\"").await;
        (response, received_text, gates)
    }
}

/// Runs a test on a disk that is full, on one that fails, and over a read-only server.
async fn on_each_store(test: impl AsyncFn(FailingStore)) {
    // One after the other, since the start of a server blocks, and a transaction of another store may not wait for it.
    let read_only = FailingStore::read_only().await;
    let (full, broken) = (FailingStore::full().await, FailingStore::broken().await);
    tokio::join!(test(full), test(broken), test(read_only));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_beginning_cannot_be_stored_is_refused_and_leaves_nothing() {
    on_each_store(async |test: FailingStore| {
        test.vendor.on("m", [answer(&["Stored."])]);
        test.say("t", Some("r0"), "First").await;
        test.fail().await;
        let large = large_text();
        // An id of the client is stored before the beginning.
        let refused = [("t", Some("r1")), ("t", None), ("new", None)];
        for (thread, run) in refused {
            expect_problem(test.chat(&body(thread, run, &large)).await, 503, "STORE_UNAVAILABLE").await;
        }
        test.check_readiness().await;
        for path in ["/api/runs/r1", "/api/threads/new"] {
            assert_eq!(test.get(path).await.0, 404, "{path}");
        }
        assert_eq!(test.path("t").await, dialogue(&["First", "Stored."]), "an acknowledged write is stored");
        parse_run(&test.log("r0").await);
        test.heal().await;
        assert_eq!(test.get("/readyz").await.0, 200);
        // The refused run has not used its id.
        for (thread, run) in refused {
            test.say(thread, run, &large).await;
        }
        let expected = ["First", "Stored.", &large, "Stored.", &large, "Stored."];
        assert_eq!(test.path("t").await, dialogue(&expected));
        assert_eq!(test.path("new").await, dialogue(&[&large, "Stored."]));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_events_cannot_be_stored_continues_and_its_log_marks_the_gap() {
    on_each_store(async |test: FailingStore| {
        let piece = "x".repeat(PIECE_BYTES);
        let pieces = vec![piece.as_str(); PIECES];
        let (mut response, mut shown, gates) = test.begin("r", &[&[], &pieces, &["The end: "]]).await;
        test.fail().await;
        gates[0].send_replace(true);
        shown.push_str(&read_until(&mut response, "2.\"").await);
        test.heal().await;
        gates[1].send_replace(true);
        shown.push_str(&response.text().await.expect("a whole body"));
        let events = parse_run(&shown);
        let complete_text = format!("1.{}2.The end: 3.", piece.repeat(PIECES));
        assert_eq!(events.last().expect("an end")["type"], "RUN_FINISHED");
        assert!(text_of(&events) == complete_text, "the client receives everything");
        let run = test.ended_run("r").await;
        assert_eq!((&run["state"], &run["events"]["complete"]), (&json!("completed"), &json!(false)));
        let log = parse_run(&test.log("r").await);
        assert_eq!(run["events"]["count"], log.len());
        assert_eq!(log.last().expect("an end")["type"], "RUN_FINISHED");
        let logged = text_of(&log);
        assert!(
            complete_text.starts_with(&logged) && logged.len() > 512 << 10,
            "{} bytes are logged",
            logged.len()
        );
        assert!(logged.len() < complete_text.len(), "the log lacks something");
        assert!(test.path("r").await == dialogue(&["Hello", &complete_text]), "the thread is complete");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_has_no_gap_if_the_store_is_writable_again_in_time() {
    // One after another, so that the log's messages come from the failing store.
    check_log_without_gap(FailingStore::full().await).await;
    check_log_without_gap(FailingStore::read_only().await).await;
}

async fn check_log_without_gap(test: FailingStore) {
    let log = LogBuffer::install();
    let failures = || log.text().matches("the logs of runs were not stored").count();
    let large = large_text();
    let (mut response, mut shown, gates) = test.begin("r", &[&[], &[&large], &[]]).await;
    let failures_before = failures();
    test.fail().await;
    gates[0].send_replace(true);
    shown.push_str(&read_until(&mut response, "2.\"").await);
    poll_until(async || failures(), |count| *count > failures_before).await;
    // Readers receive events that are not stored, too. The first may find a connection that was closed.
    let there = async || test.get("/api/runs/r/events?wait=false").await.1;
    poll_until(there, |there| there.starts_with(&shown)).await;
    test.heal().await;
    gates[1].send_replace(true);
    shown.push_str(&response.text().await.expect("a whole body"));
    assert_eq!(text_of(&parse_run(&shown)), format!("1.{large}2.3."));
    let run = test.ended_run("r").await;
    assert_eq!((&run["state"], &run["events"]["complete"]), (&json!("completed"), &json!(true)));
    assert_eq!(test.log("r").await, shown);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_that_the_disk_has_no_room_for_is_an_error_and_is_stored_later() {
    on_each_store(async |test: FailingStore| {
        let large = large_text();
        let (response, mut shown, gates) = test.begin("r", &[&[], &[&large]]).await;
        test.fail().await;
        gates[0].send_replace(true);
        shown.push_str(&response.text().await.expect("a whole body"));
        let events = parse_run(&shown);
        let last = events.last().expect("an end");
        assert_eq!((&last["type"], &last["code"]), (&json!("RUN_ERROR"), &json!("STORE_UNAVAILABLE")));
        // Its process has the run still, whose lease may have expired: it is not interrupted.
        let busy = expect_problem(test.chat(&body("r", None, "More")).await, 409, "THREAD_BUSY").await;
        assert_eq!(busy["activeRunId"], "r");
        assert_eq!(test.get_json("/api/runs/r").await["state"], "running");
        test.heal().await;
        let run = test.ended_run("r").await;
        assert_eq!((&run["state"], &run["events"]["complete"]), (&json!("completed"), &json!(true)));
        let log = test.log("r").await;
        assert_eq!(parse_run(&log).last().expect("an end")["type"], "RUN_FINISHED");
        let events = |log: &str| log.lines().map(str::to_owned).collect::<Vec<_>>();
        let (mut shown, mut log) = (events(&shown), events(&log));
        shown.pop();
        log.pop();
        assert_eq!(log, shown, "the stored events are the sent ones, except for the end");
        let complete_text = format!("1.{large}2.");
        assert_eq!(test.path("r").await, dialogue(&["Hello", &complete_text]));
        test.vendor.on("m", [answer(&["Again."])]);
        test.say("r", None, "More").await;
        assert_eq!(test.path("r").await, dialogue(&["Hello", &complete_text, "More", "Again."]));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_cancelled_while_nothing_can_be_stored_is_cancelled_later() {
    on_each_store(async |test: FailingStore| {
        let large = large_text();
        let (mut response, mut shown, gates) = test.begin("r", &[&[], &[&large], &["Too late: "]]).await;
        test.fail().await;
        gates[0].send_replace(true);
        shown.push_str(&read_until(&mut response, "2.\"").await);
        // The first request may find a connection that was closed.
        let cancel =
            async || test.request("POST", "/api/runs/r/cancel").send().await.expect("an answer").status();
        poll_until(cancel, |status| *status == 200).await;
        shown.push_str(&response.text().await.expect("a whole body"));
        let last = parse_run(&shown).pop().expect("an end");
        assert_eq!((&last["type"], &last["code"]), (&json!("RUN_ERROR"), &json!("STORE_UNAVAILABLE")));
        let busy = expect_problem(test.chat(&body("r", None, "More")).await, 409, "THREAD_BUSY").await;
        assert_eq!(busy["activeRunId"], "r");
        test.heal().await;
        let run = test.ended_run("r").await;
        assert_eq!((&run["state"], &run["reason"]), (&json!("cancelled"), &json!("requested")));
        assert_eq!(run["events"]["complete"], true);
        let log = test.log("r").await;
        assert_eq!(parse_run(&log).last().expect("an end")["outcome"], json!({"type": "cancelled"}));
        let all_but_end = |log: &str| log.lines().rev().skip(1).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(
            all_but_end(&log),
            all_but_end(&shown),
            "the stored events are the sent ones, except for the end"
        );
        // The request to the model was dropped, so that its later words are nowhere.
        gates[1].send_replace(true);
        let answer_text = format!("1.{large}2.");
        assert_eq!(test.path("r").await, dialogue(&["Hello", &answer_text]));
        let nodes = test.get_json("/api/threads/r").await["nodes"].clone();
        assert_eq!(nodes[1]["status"], "cancelled");
        test.vendor.on("m", [answer(&["Again."])]);
        test.say("r", None, "More").await;
        assert_eq!(test.path("r").await, dialogue(&["Hello", &answer_text, "More", "Again."]));
    })
    .await;
}
