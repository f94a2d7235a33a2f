//! Repeated `kill -9` of processes between the decision about a tool call, its beginning, its result and the end of the run
//! that continues.

use std::collections::HashMap;

use agentd::stores::Stores;
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{DATA_SECRET, SETTINGS, get_json, rounds};
use crate::support::cluster::Cluster;
use crate::support::process::AppProcess;
use crate::support::server::{app_config, session_token, todo_titles};
use crate::support::vendor::{Step, Vendor, answer, tool_calls};
use crate::support::{client, parse_events, poll_until, workspace};

/// Threads of a round that wait for a decision each.
const THREADS: usize = 6;

/// Place at which a process is killed.
#[derive(Debug, Clone, Copy)]
enum KillPoint {
    /// After this number of decisions was answered.
    Decided(usize),
    /// After the model was sent this number of results.
    Called(usize),
}

impl KillPoint {
    fn of(round: usize) -> Self {
        let count = round / 2 % (THREADS + 1);
        if round.is_multiple_of(2) { Self::Decided(count) } else { Self::Called(count.max(1)) }
    }
}

/// Answers of the model: a call whose title the message has, and words after its result.
fn respond(body: &Value) -> Vec<Step> {
    let messages = body["messages"].as_array().expect("messages");
    let last = messages.last().expect("a message");
    if last["role"] == "tool" {
        return answer(&["Noted."]);
    }
    let text = last["content"].to_string();
    let title = text.split_once("note:").expect("a title").1;
    let title = title.split(['"', '\\', '\n']).next().expect("a title");
    tool_calls(&[("c1", "createTodo", &json!({"title": title}).to_string())])
}

fn is_result(body: &Value) -> bool {
    body["messages"]
        .as_array()
        .and_then(|messages| messages.last())
        .is_some_and(|last| last["role"] == "tool")
}

/// Creates a database with an agent that needs approval and a todo list for each round.
async fn create(url: &str) -> Vendor {
    let vendor = Vendor::start().await;
    vendor.on_all_with(respond);
    let mut all = workspace(&vendor.base_url(), "m");
    all["agents"][0]["content"]["approvals"] = json!([{"tools": ["createTodo"]}]);
    let lists = (0..rounds()).map(|round| {
        json!({"id": format!("l{round}"), "ownerId": "u1", "companyId": "c1", "name": "List", "todos": []})
    });
    all["todoLists"] = lists.collect();
    let stores =
        Stores::open(&app_config(&[("DATABASE_URL", url), DATA_SECRET])).await.expect("the store opens");
    stores.import("the test", &all.to_string()).await.expect("the workspace is imported");
    vendor
}

async fn start(url: &str) -> AppProcess {
    AppProcess::start(url, 0, &SETTINGS).await
}

/// Has a run ask for approval of a call that adds a todo named like the thread. Returns the approval's id.
async fn ask(process: &AppProcess, round: usize, thread: &str) -> String {
    let list = format!("l{round}");
    let body =
        json!({"agentId": "a1", "threadId": thread, "message": format!("note:{thread}"), "todoListId": list});
    let url = format!("http://{}/api/agent/chat", process.address);
    let request = client().post(url).bearer_auth(session_token("u1", "c1")).json(&body);
    let text = request.send().await.expect("an answer").text().await.expect("a whole body");
    let events = parse_events(&text);
    let outcome = &events.last().expect("an event")["outcome"];
    outcome["interrupts"][0]["id"].as_str().unwrap_or_else(|| panic!("{events:?}")).to_owned()
}

/// Approves a call. The error is the answer, or the reason why there is none.
async fn approve(address: std::net::SocketAddr, approval: String) -> Result<(), String> {
    let url = format!("http://{address}/api/approvals/{approval}");
    let request =
        client().post(url).bearer_auth(session_token("u1", "c1")).json(&json!({"decision": "approve"}));
    let response = request.send().await.map_err(|error| error.to_string())?;
    match response.status().as_u16() {
        200 => Ok(()),
        status => Err(format!("{status} {}", response.text().await.unwrap_or_default())),
    }
}

/// Approves all calls at once and kills the process at a point. Returns the acknowledged decisions.
async fn approve_and_kill(
    process: AppProcess,
    vendor: &Vendor,
    approvals: &HashMap<String, String>,
    point: KillPoint,
) -> Vec<String> {
    let (address, before) = (process.address, results_sent(vendor));
    let (sender, mut answered) = tokio::sync::mpsc::unbounded_channel();
    let decisions: Vec<_> = approvals
        .iter()
        .map(|(thread, approval)| {
            let (thread, approval, sender) = (thread.clone(), approval.clone(), sender.clone());
            tokio::spawn(async move {
                let is_acknowledged = approve(address, approval).await.is_ok();
                let _ = sender.send(());
                is_acknowledged.then_some(thread)
            })
        })
        .collect();
    match point {
        KillPoint::Decided(count) => {
            for _ in 0..count {
                answered.recv().await.expect("a decision");
            }
        }
        KillPoint::Called(count) => {
            poll_until(async || results_sent(vendor), |sent| *sent >= before + count).await;
        }
    }
    process.kill().await;
    join_all(decisions).await.into_iter().filter_map(|decided| decided.expect("it ends")).collect()
}

fn results_sent(vendor: &Vendor) -> usize {
    vendor.received_bodies("m").iter().filter(|body| is_result(body)).count()
}

/// Waits until a thread's call is open for a decision, or has a result that is stored, also where the process has ended
/// between the decision and the next run. Returns the approval with the text of the result.
async fn settle(process: &AppProcess, thread: &str, approval: &str) -> (Value, String) {
    let (path, approval_path) = (format!("/api/threads/{thread}"), format!("/api/approvals/{approval}"));
    let fetch = async || (get_json(process, &path).await, get_json(process, &approval_path).await);
    let is_settled = |(read, approval): &(Value, Value)| match read["status"].as_str() {
        Some("idle") => true,
        Some("waiting") => approval["state"] == "open",
        _ => false,
    };
    let (read, approval) = poll_until(fetch, is_settled).await;
    let nodes = read["nodes"].as_array().expect("nodes");
    let result = nodes.iter().find(|node| node["message"]["role"] == "tool");
    let result = result.map(|node| node["message"]["content"].to_string()).unwrap_or_default();
    (approval, result)
}

/// Kills a process during approved calls, and checks their outcome in `other` or the next process.
async fn run_kill_rounds(url: &str, vendor: &Vendor, other: Option<AppProcess>) {
    let (mut expected, mut outcomes) = (Vec::new(), HashMap::<&str, usize>::new());
    for round in 0..rounds() {
        let process = start(url).await;
        let mut approvals = HashMap::new();
        for number in 0..THREADS {
            let thread = format!("r{round}-{number}");
            approvals.insert(thread.clone(), ask(&process, round, &thread).await);
        }
        let acknowledged = approve_and_kill(process, vendor, &approvals, KillPoint::of(round)).await;
        let next = match &other {
            Some(_) => None,
            None => Some(start(url).await),
        };
        let process = next.as_ref().or(other.as_ref()).expect("a process");
        for (thread, approval) in &approvals {
            let (found, result) = settle(process, thread, approval).await;
            if found["state"] == "open" {
                assert!(!acknowledged.contains(thread), "{thread}: an acknowledged decision is lost");
                let decided = approve(process.address, approval.clone()).await;
                assert_eq!(decided, Ok(()), "{thread}: it can still be decided");
                let read = async || settle(process, thread, approval).await;
                poll_until(read, |(found, result)| found["executed"] == "done" && !result.is_empty()).await;
                *outcomes.entry("decided again").or_default() += 1;
                expected.push((round, thread.clone(), 1..=1));
                continue;
            }
            assert_eq!(found["state"], "approved", "{thread}: {found}");
            let (outcome, count) = match result.as_str() {
                text if text.contains("it is not known whether the call was made") => ("unknown", 0..=1),
                text if text.contains("the call was not made") => ("not made", 0..=0),
                _ => ("made", 1..=1),
            };
            *outcomes.entry(outcome).or_default() += 1;
            expected.push((round, thread.clone(), count));
            // The same decision again changes nothing.
            assert_eq!(approve(process.address, approval.clone()).await, Ok(()), "{thread}");
        }
        if let Some(next) = next {
            next.kill().await;
        }
    }
    drop(other);
    let stores =
        Stores::open(&app_config(&[("DATABASE_URL", url), DATA_SECRET])).await.expect("the store opens");
    for round in 0..rounds() {
        let titles = todo_titles(&stores, &format!("l{round}")).await;
        for (_, thread, count) in expected.iter().filter(|(of, ..)| *of == round) {
            let made = titles.iter().filter(|title| *title == thread).count();
            assert!(count.contains(&made), "{thread}: made {made} times, expected {count:?}; {outcomes:?}");
        }
    }
    assert_eq!(expected.len(), rounds() * THREADS, "{outcomes:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approved_calls_are_made_once_or_said_to_be_unknown_on_sqlite() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite://{}", folder.path().join("app.db").display());
    let vendor = create(&url).await;
    run_kill_rounds(&url, &vendor, None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approved_calls_are_made_once_or_said_to_be_unknown_on_postgres() {
    let cluster = Cluster::start();
    let url = cluster.url("postgres");
    let vendor = create(&url).await;
    let witness = start(&url).await;
    run_kill_rounds(&url, &vendor, Some(witness)).await;
}
