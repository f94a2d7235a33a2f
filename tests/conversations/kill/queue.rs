//! `kill -9` of a process with a run and several that wait for it, of which others may be in another process.

use reqwest::Response;
use serde_json::{Value, json};

use super::super::logs::read_until;
use super::{create, get, get_json, rounds, start};
use crate::support::cluster::Cluster;
use crate::support::process::AppProcess;
use crate::support::server::session_token;
use crate::support::{TEST_TIMEOUT, client, parse_run, poll_until, text_of};

/// Number of runs that wait in a round.
const QUEUED: usize = 4;

/// A thread with a run that does not end by itself, and runs that wait for it.
struct Round {
    thread: String,
}

impl Round {
    fn run(&self, name: &str) -> String {
        format!("{}-{name}", self.thread)
    }

    /// Names of the runs that wait, in order.
    fn queued() -> impl Iterator<Item = String> {
        (0..QUEUED).map(|at| format!("q{at}"))
    }

    fn message(name: &str) -> String {
        match name {
            "live" => "Hello".to_owned(),
            _ => format!("Please be short, {name}"),
        }
    }

    async fn send(&self, process: &AppProcess, name: &str) -> Response {
        let body = json!({"agentId": "a1", "threadId": self.thread, "runId": self.run(name),
            "message": Self::message(name), "onBusy": "queue", "onDisconnect": "continue"});
        let url = format!("http://{}/api/agent/chat", process.address);
        let request = client().post(url).bearer_auth(session_token("u1", "c1")).json(&body);
        let response = request.send().await.expect("an answer");
        assert_eq!(response.status(), 200, "the head comes at once");
        response
    }

    async fn thread(&self, process: &AppProcess) -> Value {
        get_json(process, &format!("/api/threads/{}", self.thread)).await
    }

    /// Waits until a run has ended, and returns it with its events, which end typed.
    async fn ended(&self, process: &AppProcess, name: &str) -> (Value, Vec<Value>) {
        let path = format!("/api/runs/{}", self.run(name));
        let run = poll_until(async || get_json(process, &path).await, |run| run["endedAt"].is_string()).await;
        let log = parse_run(&get(process, &format!("{path}/events")).await);
        assert_eq!(run["events"]["count"], log.len(), "{name}");
        (run, log)
    }

    async fn cancel_live_run(&self, process: &AppProcess) {
        let url = format!("http://{}/api/runs/{}/cancel", process.address, self.run("live"));
        let response = client().post(url).bearer_auth(session_token("u1", "c1")).send().await;
        assert_eq!(response.expect("an answer").status(), 200);
    }

    /// Checks the outcome of the runs of the killed process and of the others, and continues the thread.
    async fn check(&self, witness: &AppProcess, killed: &[String], was_cancelled: bool) {
        let mut expected = vec![Self::message("live")];
        for name in ["live".to_owned()].into_iter().chain(Self::queued()) {
            let (run, log) = self.ended(witness, &name).await;
            let last = log.last().expect("an end");
            let has_begun = run["startedAt"].is_string();
            match run["state"].as_str().expect("a state") {
                "interrupted" => {
                    assert!(killed.contains(&name), "{name} is another process's: {run}");
                    assert_eq!(
                        (&last["type"], &last["code"]),
                        (&json!("RUN_ERROR"), &json!("RUN_INTERRUPTED"))
                    );
                }
                "completed" => {
                    assert!(!killed.contains(&name) || was_cancelled, "{name}: {run}");
                    assert_eq!((text_of(&log).as_str(), &last["type"]), ("Short.", &json!("RUN_FINISHED")));
                }
                "cancelled" => assert!(was_cancelled && name == "live", "{name}: {run}"),
                state => panic!("{name} is {state}"),
            }
            if name != "live" && has_begun {
                expected.push(Self::message(&name));
            }
            assert!(killed.contains(&name) || has_begun, "{name} was not answered: {run}");
        }
        let thread = self.thread(witness).await;
        assert_eq!((&thread["status"], &thread["queuedRunIds"]), (&json!("idle"), &Value::Null));
        assert_eq!(users(&thread), expected, "each message once, in order");
        let next = self.send(witness, "next").await.text().await.expect("a whole body");
        assert_eq!(text_of(&parse_run(&next)), "Short.", "the thread goes on");
        expected.push(Self::message("next"));
        assert_eq!(users(&self.thread(witness).await), expected);
    }
}

/// Returns the texts of a thread's user messages.
fn users(thread: &Value) -> Vec<String> {
    let nodes = thread["nodes"].as_array().expect("nodes").iter().map(|node| &node["message"]);
    let texts = nodes.filter(|message| message["role"] == "user");
    texts.map(|message| message["content"].as_str().expect("text").to_owned()).collect()
}

/// Kills processes whose runs wait. Every other waiting run is that of `other`, which checks all of them; without one, the next
/// process does.
async fn run_kill_rounds(url: &str, other: Option<AppProcess>) {
    for number in 0..rounds() {
        let round = Round { thread: format!("t{number}") };
        let process = start(url).await;
        let mut live = round.send(&process, "live").await;
        read_until(&mut live, "tick").await;
        let (mut killed, mut waiting, mut answered) = (vec!["live".to_owned()], Vec::new(), Vec::new());
        for (at, name) in Round::queued().enumerate() {
            match &other {
                Some(other) if at % 2 == 1 => answered.push(round.send(other, &name).await),
                _ => {
                    waiting.push(round.send(&process, &name).await);
                    killed.push(name);
                }
            }
        }
        let queued: Vec<_> = Round::queued().map(|name| round.run(&name)).collect();
        assert_eq!(round.thread(&process).await["queuedRunIds"], json!(queued));
        // In every second round, the process dies while its first waiting run is to begin.
        let is_cancelled = number % 2 == 1;
        if is_cancelled {
            round.cancel_live_run(&process).await;
        }
        process.kill().await;
        drop((live, waiting));
        for response in answered {
            let text = tokio::time::timeout(TEST_TIMEOUT, response.text()).await.expect("its turn comes");
            assert_eq!(text_of(&parse_run(&text.expect("a whole body"))), "Short.");
        }
        let next = match &other {
            Some(_) => None,
            None => Some(start(url).await),
        };
        let process = next.as_ref().or(other.as_ref()).expect("a process");
        round.check(process, &killed, is_cancelled).await;
        if let Some(next) = next {
            next.kill().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_leaves_no_run_in_the_queue_on_sqlite() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite://{}", folder.path().join("app.db").display());
    let _vendor = create(&url).await;
    run_kill_rounds(&url, None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_leaves_the_queue_to_the_others_on_postgres() {
    let cluster = Cluster::start();
    let url = cluster.url("postgres");
    let _vendor = create(&url).await;
    run_kill_rounds(&url, Some(start(&url).await)).await;
}
