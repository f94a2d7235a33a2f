//! `kill -9` of two processes at once, of the process that interrupts the runs of a killed one, and while runs begin.

use std::net::SocketAddr;

use serde_json::json;
use tokio::sync::oneshot;

use super::{Seen, check, create, get_json, read, rounds, start};
use crate::support::cluster::Cluster;
use crate::support::process::AppProcess;
use crate::support::server::session_token;
use crate::support::vendor::Vendor;
use crate::support::{client, poll_until};

/// Runs of each process in a round; every fourth ends by itself.
const RUNS: usize = 4;
/// Number of lines that each client has read before a kill while runs stream.
const LINES: usize = 5;

/// Place at which both processes are killed.
#[derive(Debug, Clone, Copy)]
enum KillPoint {
    /// Both at once, while their runs stream.
    Streaming,
    /// One process is killed while its runs stream, and the other process once it has interrupted one of these runs.
    Interrupting,
    /// Both at once, after this number of runs has asked the model, whatever of their beginnings is stored.
    Beginning(usize),
}

impl KillPoint {
    fn of(round: usize) -> Self {
        match round % 3 {
            0 => Self::Streaming,
            1 => Self::Interrupting,
            _ => Self::Beginning(1 + round / 3 % (2 * RUNS)),
        }
    }
}

/// Begins a run and reads it until the connection ends, which may be before the head of the response.
async fn attempt(
    address: SocketAddr,
    id: String,
    message: &'static str,
    started: oneshot::Sender<()>,
) -> Seen {
    let body =
        json!({"agentId": "a1", "threadId": id, "runId": id, "message": message, "onDisconnect": "continue"});
    let url = format!("http://{address}/api/agent/chat");
    let request = client().post(url).bearer_auth(session_token("u1", "c1")).json(&body);
    match request.send().await {
        Ok(response) => {
            assert_eq!(response.status(), 200, "{id}");
            read(response, id, LINES, started).await
        }
        Err(_) => Seen { id, lines: Vec::new() },
    }
}

async fn status(process: &AppProcess, path: &str) -> u16 {
    let url = format!("http://{}{path}", process.address);
    let request = client().get(url).bearer_auth(session_token("u1", "c1"));
    request.send().await.expect("an answer").status().as_u16()
}

/// Checks a run by a process that was started after the kills. One whose client has seen nothing may not exist, and leaves
/// no thread then.
async fn check_attempt(process: &AppProcess, seen: &Seen) {
    if status(process, &format!("/api/runs/{}", seen.id)).await == 404 {
        assert!(seen.lines.is_empty(), "{}: {:?}", seen.id, seen.lines);
        assert_eq!(status(process, &format!("/api/threads/{}", seen.id)).await, 404, "{}", seen.id);
    } else {
        check(process, seen).await;
    }
}

async fn run_round(url: &str, vendor: &Vendor, round: usize) {
    let point = KillPoint::of(round);
    let (first, second) = (start(url).await, start(url).await);
    let asked = vendor.received_bodies("m").len();
    let (mut clients, mut begun) = (Vec::new(), Vec::new());
    for (name, process) in [("a", &first), ("b", &second)] {
        for number in 0..RUNS {
            let message = if number % 4 == 3 { "Please be short" } else { "Hello" };
            let (started, has_started) = oneshot::channel();
            let id = format!("{name}{round}-{number}");
            clients.push(tokio::spawn(attempt(process.address, id, message, started)));
            begun.push(has_started);
        }
    }
    if let KillPoint::Beginning(count) = point {
        vendor.wait_for_requests("m", asked + count).await;
    } else {
        for has_started in begun {
            // A short run may be over before it has as many lines.
            let _ = has_started.await;
        }
    }
    if let KillPoint::Interrupting = point {
        first.kill().await;
        let run = format!("/api/runs/a{round}-0");
        poll_until(async || get_json(&second, &run).await, |run| run["endedAt"].is_string()).await;
        second.kill().await;
    } else {
        tokio::join!(first.kill(), second.kill());
    }
    let third = start(url).await;
    for client in clients {
        check_attempt(&third, &client.await.expect("it reads")).await;
    }
    third.kill().await;
}

async fn run_kill_rounds(url: &str) {
    let vendor = create(url).await;
    for round in 0..rounds() {
        run_round(url, &vendor, round).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_of_all_processes_leave_no_run_open_on_sqlite() {
    let folder = tempfile::tempdir().expect("a folder");
    run_kill_rounds(&format!("sqlite://{}", folder.path().join("app.db").display())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_of_all_processes_leave_no_run_open_on_postgres() {
    let cluster = Cluster::start();
    run_kill_rounds(&cluster.url("postgres")).await;
}
