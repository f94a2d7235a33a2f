//! Repeated `kill -9` of processes while runs stream, and a process that is stopped for longer than its lease.

mod approvals;
mod processes;
mod queue;

use std::time::Duration;

use agentd::stores::Stores;
use reqwest::Response;
use serde_json::{Value, json};

use super::everyone;
use crate::support::cluster::Cluster;
use crate::support::process::AppProcess;
use crate::support::server::{app_config, session_token};
use crate::support::vendor::{Step, Vendor, answer, delta, stream_head};
use crate::support::{TEST_TIMEOUT, client, env_number, parse_run, poll_until};

/// Environment variable that overrides the number of rounds.
const ROUNDS_ENV: &str = "RUN_KILL_ROUNDS";
const DEFAULT_ROUNDS: usize = 3;
/// Environment variable that overrides the number of stops of a process, 1.
const STOP_ROUNDS_ENV: &str = "RUN_STOP_ROUNDS";
/// Runs of a round; every fourth ends by itself.
const RUNS: usize = 8;
/// Pause between two tokens of a run that does not end.
const TOKEN_PAUSE: Duration = Duration::from_millis(5);
const DATA_SECRET: (&str, &str) = ("DATA_SECRET", "data-secret-canary");
const SETTINGS: [(&str, &str); 8] = [
    DATA_SECRET,
    ("OUTBOUND_ALLOW", "127.0.0.0/8"),
    ("RUN_LEASE_MS", "1000"),
    ("RUN_LOG_FLUSH_MS", "50"),
    ("RUNS_PER_MINUTE", "1000000"),
    ("CHANGES_PER_MINUTE", "1000000"),
    ("RUNS_PER_MINUTE_COMPANY", "0"),
    ("CONCURRENT_RUNS_COMPANY", "0"),
];

/// A run as its client has seen it.
struct Seen {
    id: String,
    lines: Vec<String>,
}

/// Number of rounds of a test that kills processes.
fn rounds() -> usize {
    env_number(ROUNDS_ENV, DEFAULT_ROUNDS)
}

fn bytes_of(step: Step) -> Vec<u8> {
    match step {
        Step::Send(bytes) => bytes,
        _ => panic!("a step with bytes"),
    }
}

/// Creates a database and a vendor whose answers do not end unless the message says so.
async fn create(url: &str) -> Vendor {
    let vendor = Vendor::start().await;
    vendor.on_all_with(|body| match body.to_string().contains("be short") {
        true => answer(&["Short."]),
        false => {
            vec![stream_head(), Step::Drip(bytes_of(delta(json!({"content": "tick "}))), TOKEN_PAUSE)]
        }
    });
    let stores =
        Stores::open(&app_config(&[("DATABASE_URL", url), DATA_SECRET])).await.expect("the store opens");
    stores
        .import("the test", &everyone(&vendor.base_url()).to_string())
        .await
        .expect("the workspace is imported");
    vendor
}

async fn start(url: &str) -> AppProcess {
    AppProcess::start(url, 0, &SETTINGS).await
}

async fn begin(process: &AppProcess, id: &str, message: &str) -> Response {
    let body =
        json!({"agentId": "a1", "threadId": id, "runId": id, "message": message, "onDisconnect": "continue"});
    let url = format!("http://{}/api/agent/chat", process.address);
    let request = client().post(url).bearer_auth(session_token("u1", "c1")).json(&body);
    let response = request.send().await.expect("an answer");
    assert_eq!(response.status(), 200);
    response
}

async fn get(process: &AppProcess, path: &str) -> String {
    let url = format!("http://{}{path}", process.address);
    let response = client().get(url).bearer_auth(session_token("u1", "c1")).send().await.expect("an answer");
    assert_eq!(response.status(), 200, "{path}");
    response.text().await.expect("a whole body")
}

async fn get_json(process: &AppProcess, path: &str) -> Value {
    serde_json::from_str(&get(process, path).await).expect("JSON")
}

fn whole_lines(read: &str) -> Vec<String> {
    let end = read.rfind('\n').map_or(0, |end| end + 1);
    read[..end].lines().map(str::to_owned).collect()
}

/// Reads a run until the connection ends. Notifies `started` after `count` lines or at the end.
async fn read(
    mut response: Response,
    id: String,
    count: usize,
    started: tokio::sync::oneshot::Sender<()>,
) -> Seen {
    let (mut text, mut started) = (String::new(), Some(started));
    while let Ok(Some(chunk)) = response.chunk().await {
        text.push_str(&String::from_utf8_lossy(&chunk));
        if text.lines().count() >= count
            && let Some(started) = started.take()
        {
            let _ = started.send(());
        }
    }
    Seen { id, lines: whole_lines(&text) }
}

/// Checks a run that its client has seen in part, by a process that runs.
async fn check(process: &AppProcess, Seen { id, lines }: &Seen) {
    let path = format!("/api/runs/{id}");
    let run = poll_until(async || get_json(process, &path).await, |run| run["endedAt"].is_string()).await;
    let log = get(process, &format!("{path}/events")).await;
    parse_run(&log);
    let log: Vec<&str> = log.lines().collect();
    assert_eq!(run["events"]["count"], log.len(), "{id}");
    assert_eq!(run["events"]["complete"], true, "{id}");
    let last: Value = serde_json::from_str(log[log.len() - 1]).expect("an event");
    let thread = get_json(process, &format!("/api/threads/{id}")).await;
    assert_eq!(thread["status"], "idle", "{id}");
    let nodes = thread["nodes"].as_array().expect("nodes");
    assert_eq!(nodes[0]["message"]["role"], "user", "{id}: the message is kept");
    let is_finished = lines.last().is_some_and(|line| line.contains("RUN_FINISHED"));
    if is_finished {
        assert_eq!(
            (run["state"].as_str(), &log),
            (Some("completed"), &lines.iter().map(String::as_str).collect()),
            "{id}"
        );
        assert_eq!(nodes[1]["message"]["content"], "Short.");
        return;
    }
    assert!(matches!(run["state"].as_str(), Some("interrupted" | "completed")), "{id}: {run}");
    let stored = &log[..log.len() - 1];
    let common = stored.len().min(lines.len());
    assert_eq!(stored[..common], lines[..common], "{id}: what is stored is what was shown");
    if run["state"] == "interrupted" {
        assert_eq!(last["code"], "RUN_INTERRUPTED", "{id}");
        let logged_text: String = log
            .iter()
            .filter_map(|line| {
                let event: Value = serde_json::from_str(line).expect("an event");
                Some(event["delta"].as_str()?.to_owned())
            })
            .collect();
        let stored_text = nodes.get(1).map_or("", |node| node["message"]["content"].as_str().expect("text"));
        assert_eq!(stored_text, logged_text, "{id}: the thread has what the log has");
        assert!(nodes.get(1).is_none_or(|node| node["status"] == "incomplete"), "{id}");
    }
}

/// Kills a process while its runs stream, and checks them by `other`, or by the next process.
async fn run_kill_rounds(url: &str, other: Option<AppProcess>) {
    for round in 0..rounds() {
        let process = start(url).await;
        let mut readers = Vec::new();
        let mut begun = Vec::new();
        for number in 0..RUNS {
            let id = format!("r{round}-{number}");
            let message = if number % 4 == 3 { "Please be short" } else { "Hello" };
            let response = begin(&process, &id, message).await;
            let (started, has_started) = tokio::sync::oneshot::channel();
            // Kills come at other places of each run.
            let count = 1 + (round * 7 + number * 5) % 40;
            readers.push(tokio::spawn(read(response, id, count, started)));
            begun.push(has_started);
        }
        for has_started in begun {
            // A short run may be over before it has as many lines.
            let _ = has_started.await;
        }
        process.kill().await;
        let next = match &other {
            Some(_) => None,
            None => Some(start(url).await),
        };
        let process = next.as_ref().or(other.as_ref()).expect("a process");
        for reader in readers {
            let read_text = reader.await.expect("it reads");
            check(process, &read_text).await;
        }
        if let Some(next) = next {
            next.kill().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_lose_no_message_and_leave_no_run_open_on_sqlite() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite://{}", folder.path().join("app.db").display());
    let _vendor = create(&url).await;
    run_kill_rounds(&url, None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_lose_no_message_and_leave_no_run_open_on_postgres() {
    let cluster = Cluster::start();
    let url = cluster.url("postgres");
    let _vendor = create(&url).await;
    run_kill_rounds(&url, Some(start(&url).await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_stopped_for_longer_than_its_lease_adds_nothing() {
    let cluster = Cluster::start();
    let url = cluster.url("postgres");
    let vendor = create(&url).await;
    let (stopped, other) = (start(&url).await, start(&url).await);
    for round in 0..env_number(STOP_ROUNDS_ENV, 1) {
        let id = format!("r{round}");
        let (path, log_path) = (format!("/api/runs/{id}"), format!("/api/runs/{id}/events"));
        let response = begin(&stopped, &id, "Hello").await;
        let (started, has_started) = tokio::sync::oneshot::channel();
        // Stops come at other places of each run.
        let reader = tokio::spawn(read(response, id, 5 + round * 7 % 40, started));
        has_started.await.expect("it streams");
        stopped.set_suspended(true).await;
        let run = poll_until(async || get_json(&other, &path).await, |run| run["endedAt"].is_string()).await;
        assert_eq!(run["state"], "interrupted");
        let log = get(&other, &log_path).await;
        stopped.set_suspended(false).await;
        let read_text = tokio::time::timeout(TEST_TIMEOUT, reader).await.expect("it ends").expect("it reads");
        let last = read_text.lines.last();
        assert!(last.expect("an end").contains("RUN_INTERRUPTED"), "{last:?}");
        vendor.wait_for_disconnects(round + 1).await;
        assert_eq!(get(&other, &log_path).await, log, "the log is sealed");
        assert_eq!(get_json(&other, &path).await["events"], run["events"]);
    }
}
