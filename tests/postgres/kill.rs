//! Three processes over one database behind a proxy without affinity, of which one is killed and replaced each round, while
//! clients chat in threads, call tools and write documents, and while files are imported by commands of which some are
//! killed.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use agent_platform::conversation::{RunState, ThreadOwner};
use agent_platform::roles::RoleStore as _;
use agent_platform::workspace::get_document;
use serde_json::{Value, json};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::{PostgresFixture, note_todos, start_process};
use crate::support::command::CommandProcess;
use crate::support::process::AppProcess;
use crate::support::proxy::Proxy;
use crate::support::server::session_token;
use crate::support::server::todo_titles;
use crate::support::vendor::Vendor;
use crate::support::{
    TEST_TIMEOUT, client, env_number, free_port, parse_events, poll_until, report, workspace,
};

/// Environment variable that overrides the number of rounds.
const ROUNDS_ENV: &str = "REPLICA_KILL_ROUNDS";
const DEFAULT_ROUNDS: usize = 4;
/// Environment variable with the least time between two kills, in milliseconds. With it, the share of runs that a kill
/// ends is checked; without it, kills follow as fast as processes start, and the share means nothing.
const INTERVAL_ENV: &str = "REPLICA_KILL_INTERVAL_MS";
/// Maximum share of runs that kills end, in percent, if there is an interval.
const MAX_ENDED_PERCENT: f64 = 1.0;
const PROCESSES: usize = 3;
const CLIENTS: usize = 4;
/// Todo lists of a client, which chats with each in turn: a list has a limited number of todos.
const LISTS: usize = 128;
/// Settings of the processes: a short lease, after which the runs of a killed process are interrupted.
const SETTINGS: [(&str, &str); 1] = [("RUN_LEASE_MS", "3000")];
/// Number of acknowledged actions between two kills.
const ACTIONS_PER_ROUND: usize = 24;
/// Number of acknowledged actions while a process is suspended: each client waits for it repeatedly.
const SUSPENDED_ACTIONS: usize = 16;
/// Timeout of a client's request.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);

/// State that the clients share.
struct Shared {
    proxy: SocketAddr,
    /// Number of acknowledged actions.
    actions: AtomicUsize,
    is_over: AtomicBool,
}

/// Actions of one client.
#[derive(Default)]
struct ClientLog {
    /// Texts of acknowledged documents, by id.
    documents: HashMap<String, String>,
    /// Attempts to write a document that failed and were repeated.
    failed_writes: usize,
    /// Titles of todos whose creation was reported.
    todos: Vec<String>,
    /// Titles of all runs that were tried, which are the ids of the runs and of their threads.
    tried: Vec<String>,
    finished: usize,
    /// Runs that were answered with a problem, by the process or by the proxy.
    refused: usize,
    /// Runs without an answer in time.
    timed_out: usize,
    /// Runs whose stream ended with an error.
    failed: usize,
    /// Runs whose response was cut.
    cut: usize,
}

/// Returns the todo list of a client's turn.
fn list_id(number: usize, turn: usize) -> String {
    format!("l{number}-{}", turn / 2 % LISTS)
}

async fn run_client(shared: Arc<Shared>, number: usize) -> ClientLog {
    let (client, token) = (client(), session_token("u1", "c1"));
    let mut log = ClientLog::default();
    for n in 0.. {
        if shared.is_over.load(Ordering::Relaxed) {
            break;
        }
        if n % 2 == 0 {
            put_document(&shared, &client, &token, &mut log, &format!("d-{number}-{n}")).await;
        } else {
            create_todo(&shared, &client, &token, &mut log, (number, n)).await;
        }
    }
    log
}

/// Writes a document until it is acknowledged.
async fn put_document(shared: &Shared, client: &reqwest::Client, token: &str, log: &mut ClientLog, id: &str) {
    loop {
        let url = format!("http://{}/api/documents/{id}", shared.proxy);
        let body = json!({"title": id, "text": format!("text of {id}")});
        let sent = client.put(url).bearer_auth(token).timeout(CLIENT_TIMEOUT).json(&body).send().await;
        match sent.map(|response| response.status().as_u16()) {
            Ok(200 | 201) => break,
            // The process has been killed before it answered, or is suspended.
            Err(_) | Ok(502 | 503) => log.failed_writes += 1,
            Ok(status) => panic!("{id}: {status}"),
        }
        if shared.is_over.load(Ordering::Relaxed) {
            return;
        }
    }
    log.documents.insert(id.to_owned(), format!("text of {id}"));
    shared.actions.fetch_add(1, Ordering::Relaxed);
}

/// Chats once; the model calls a tool that creates a todo.
async fn create_todo(
    shared: &Shared,
    client: &reqwest::Client,
    token: &str,
    log: &mut ClientLog,
    (number, n): (usize, usize),
) {
    let title = &format!("t-{number}-{n}");
    log.tried.push(title.clone());
    let url = format!("http://{}/api/agent/chat", shared.proxy);
    let body = json!({"agentId": "a1", "message": title, "runId": title, "threadId": title,
        "todoListId": list_id(number, n)});
    let sent = client.post(url).bearer_auth(token).timeout(CLIENT_TIMEOUT).json(&body).send().await;
    let response = match sent {
        Ok(response) => response,
        Err(error) => {
            let count = if error.is_timeout() { &mut log.timed_out } else { &mut log.refused };
            *count += 1;
            return;
        }
    };
    let status = response.status();
    let Ok(text) = response.text().await else {
        log.cut += 1;
        return;
    };
    if status != 200 {
        assert!(status == 502 || status == 503, "{title}: {status} {text}");
        log.refused += 1;
        return;
    }
    let events = parse_events(&text);
    if events
        .iter()
        .any(|event| event["type"] == "TOOL_CALL_RESULT" && event.to_string().contains(title.as_str()))
    {
        log.todos.push(title.clone());
    }
    match events.last().and_then(|event| event["type"].as_str()) {
        Some("RUN_FINISHED") => {
            log.finished += 1;
            shared.actions.fetch_add(1, Ordering::Relaxed);
        }
        Some("RUN_ERROR") => log.failed += 1,
        _ => log.cut += 1,
    }
}

/// Number of objects of each kind in an imported file.
const IMPORTED_OBJECTS: usize = 60;
/// Number of imports of which one is left to its end. The others are killed at different moments.
const IMPORTS_PER_ACKNOWLEDGED: usize = 3;
/// Increment of the time after which an import is killed, and its limit: longer than an import takes.
const KILL_STEP: Duration = Duration::from_millis(17);
const MAX_KILL_DELAY: Duration = Duration::from_millis(600);

/// Acknowledged imports, and killed ones.
#[derive(Default)]
struct ImportLog {
    acknowledged: Vec<usize>,
    killed: Vec<usize>,
}

/// Returns the ids of the documents and the agents that an import has in common with no other.
fn imported_ids(import: usize) -> [Vec<String>; 2] {
    let ids = |kind: &str| (0..IMPORTED_OBJECTS).map(|n| format!("{kind}-{import}-{n}")).collect();
    [ids("doc"), ids("agent")]
}

/// Returns a workspace file. Each import replaces the document `latest`, too.
fn import_file(import: usize) -> Value {
    let [documents, agents] = imported_ids(import);
    let latest = [("latest".to_owned(), import.to_string())];
    let documents = documents.into_iter().map(|id| (id, import.to_string())).chain(latest);
    let document = |(id, text)| json!({"id": id, "companyId": "c1", "title": "Imported", "text": text});
    let agent =
        |id| json!({"id": id, "companyId": "c1", "ownerId": "u1", "content": {"systemPrompt": "Be brief."}});
    json!({
        "documents": documents.map(document).collect::<Vec<_>>(),
        "agents": agents.into_iter().map(agent).collect::<Vec<_>>()
    })
}

/// Imports one file after another, each by a separate process.
async fn run_imports(shared: Arc<Shared>, url: String) -> ImportLog {
    let (folder, mut log) = (tempfile::tempdir().expect("a folder"), ImportLog::default());
    let mut delay = Duration::ZERO;
    for import in 0.. {
        if shared.is_over.load(Ordering::Relaxed) {
            break;
        }
        let path = folder.path().join("workspace.json");
        std::fs::write(&path, import_file(import).to_string()).expect("written");
        let limit = if import % IMPORTS_PER_ACKNOWLEDGED == 0 { TEST_TIMEOUT } else { delay };
        let is_done = CommandProcess::import(&url, &path).finish_within(limit).await;
        assert!(is_done || limit < TEST_TIMEOUT, "import {import} fails");
        let ended = if is_done { &mut log.acknowledged } else { &mut log.killed };
        ended.push(import);
        delay = if delay < MAX_KILL_DELAY { delay + KILL_STEP } else { Duration::ZERO };
    }
    log
}

/// Runs that had started and ended with an error.
struct EndedRuns {
    /// Share of all runs that had started, in percent.
    percent: f64,
    /// Number of addresses whose process is alive.
    of_living: i64,
}

/// Three processes over one database, and clients that use them through a proxy.
struct ReplicaFixture {
    fixture: PostgresFixture,
    _vendor: Vendor,
    _proxy: Proxy,
    ports: [u16; PROCESSES],
    processes: Vec<AppProcess>,
    shared: Arc<Shared>,
    clients: JoinSet<ClientLog>,
    imports: Option<JoinHandle<ImportLog>>,
}

impl ReplicaFixture {
    async fn start() -> Self {
        let vendor = Vendor::start().await;
        note_todos(&vendor);
        let mut all = workspace(&vendor.base_url(), "m");
        let list = |id| json!({"id": id, "ownerId": "u1", "companyId": "c1", "todos": []});
        let turns = (0..CLIENTS).flat_map(|number| (0..LISTS).map(move |turn| list_id(number, 2 * turn)));
        all["todoLists"] = turns.map(list).collect();
        let fixture = PostgresFixture::start(&all).await;
        let ports: [u16; PROCESSES] = std::array::from_fn(|_| free_port());
        let mut processes = Vec::new();
        for port in ports {
            processes.push(start_process(&fixture.url, port, &SETTINGS).await);
        }
        let proxy = Proxy::start(processes.iter().map(|process| process.address)).await;
        for position in 0..PROCESSES {
            poll_until(async || proxy.is_ready(position), |ready| *ready).await;
        }
        let (actions, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
        let shared = Arc::new(Shared { proxy: proxy.address, actions, is_over });
        let mut clients = JoinSet::new();
        for number in 0..CLIENTS {
            clients.spawn(run_client(shared.clone(), number));
        }
        Self { fixture, _vendor: vendor, _proxy: proxy, ports, processes, shared, clients, imports: None }
    }

    /// Imports files until the end.
    fn start_imports(&mut self) {
        self.imports = Some(tokio::spawn(run_imports(self.shared.clone(), self.fixture.url.clone())));
    }

    /// Waits until this many further actions are acknowledged.
    async fn wait_for(&self, actions: usize) {
        let goal = self.shared.actions.load(Ordering::Relaxed) + actions;
        let fetch = async || self.shared.actions.load(Ordering::Relaxed);
        poll_until(fetch, |actions| *actions >= goal).await;
    }

    /// Stops the clients and compares the store with their logs.
    async fn finish(self) -> EndedRuns {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let logs = self.clients.join_all().await;
        check(&self.fixture, &logs).await;
        if let Some(imports) = self.imports {
            check_imports(&self.fixture, &imports.await.expect("no import fails")).await;
        }
        let percent = check_runs(&self.fixture, &logs).await;
        EndedRuns { percent, of_living: count_ended_runs_of_living(&self.fixture).await }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_processes_lose_no_acknowledged_write_and_repeat_no_effect() {
    let rounds = env_number(ROUNDS_ENV, DEFAULT_ROUNDS);
    let interval = Duration::from_millis(env_number(INTERVAL_ENV, 0));
    let mut replicas = ReplicaFixture::start().await;
    replicas.start_imports();
    let mut next_kill = Instant::now() + interval;
    for round in 0..rounds {
        replicas.wait_for(ACTIONS_PER_ROUND).await;
        tokio::time::sleep_until(next_kill).await;
        next_kill += interval;
        replicas.processes.remove(0).kill().await;
        let port = replicas.ports[round % PROCESSES];
        replicas.processes.push(start_process(&replicas.fixture.url, port, &SETTINGS).await);
    }
    let EndedRuns { percent, of_living } = replicas.finish().await;
    report(&format!("{rounds} kills; {percent:.2} % of the runs that had begun ended with an error"));
    assert_eq!(of_living, 0, "runs of processes that were not killed ended with an error");
    if !interval.is_zero() {
        assert!(percent <= MAX_ENDED_PERCENT, "{percent} % of the runs ended with an error");
    }
}

/// A process that is suspended beyond its timeouts delays the others by these at most, and nothing that it was doing
/// takes effect twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspended_process_delays_no_other_and_repeats_no_effect() {
    let replicas = ReplicaFixture::start().await;
    for process in &replicas.processes {
        replicas.wait_for(ACTIONS_PER_ROUND).await;
        process.set_suspended(true).await;
        // The server ends a transaction in which the process was suspended.
        replicas.wait_for(SUSPENDED_ACTIONS).await;
        process.set_suspended(false).await;
    }
    replicas.wait_for(ACTIONS_PER_ROUND).await;
    replicas.finish().await;
}

/// Checks that an acknowledged import is there as a whole, and one that was killed as a whole or not at all.
async fn check_imports(fixture: &PostgresFixture, log: &ImportLog) {
    let (stores, company) = (fixture.open().await, "c1".into());
    let latest = get_document(&*stores.records, &company, "latest").await.expect("read");
    let latest: usize = latest.expect("one is acknowledged").value.text.parse().expect("a number");
    let mut complete_imports = Vec::new();
    for import in log.acknowledged.iter().chain(&log.killed) {
        let [documents, agents] = imported_ids(*import);
        let mut objects_read = 0;
        for id in &documents {
            let document = get_document(&*stores.records, &company, id).await.expect("read");
            objects_read +=
                usize::from(document.is_some_and(|document| document.value.text == import.to_string()));
        }
        for id in &agents {
            let agent = stores.roles.masked_role(&company, &id.as_str().into()).await.expect("read");
            objects_read += usize::from(agent.is_some());
        }
        assert!(
            objects_read == 0 || objects_read == 2 * IMPORTED_OBJECTS,
            "{objects_read} objects of import {import}"
        );
        if objects_read > 0 {
            complete_imports.push(*import);
        }
    }
    for import in &log.acknowledged {
        assert!(complete_imports.contains(import), "import {import} was acknowledged");
    }
    // The server may end the commit of a process after it was killed, beside that of the next one.
    assert!(complete_imports.contains(&latest), "{latest} is of an import that is there");
    report(&format!(
        "{} imports acknowledged, {} killed, of which {} are there",
        log.acknowledged.len(),
        log.killed.len(),
        complete_imports.len() - log.acknowledged.len()
    ));
}

/// Compares the store with the clients' logs.
async fn check(fixture: &PostgresFixture, logs: &[ClientLog]) {
    let stores = fixture.open().await;
    let mut documents = 0;
    for (id, text) in logs.iter().flat_map(|log| &log.documents) {
        let document = get_document(&*stores.records, &"c1".into(), id).await.expect("read");
        assert_eq!(document.expect("an acknowledged document is there").value.text, *text);
        documents += 1;
    }
    let mut created: HashMap<String, usize> = HashMap::new();
    for number in 0..CLIENTS {
        for turn in 0..LISTS {
            for title in todo_titles(&stores, &list_id(number, 2 * turn)).await {
                *created.entry(title).or_default() += 1;
            }
        }
    }
    assert!(created.values().all(|count| *count == 1), "no effect is doubled: {created:?}");
    for title in logs.iter().flat_map(|log| &log.todos) {
        assert!(created.contains_key(title.as_str()), "{title} was reported and is there");
    }
    let sum = |of: fn(&ClientLog) -> usize| logs.iter().map(of).sum::<usize>();
    let (finished, todos) = (sum(|log| log.finished), sum(|log| log.todos.len()));
    assert!(documents > 0 && finished > 0 && todos > 0);
    report(&format!(
        "{documents} documents acknowledged, 0 of them lost, {} attempts repeated; {todos} effects reported, 0 of them lost, \
         {} there, 0 of them twice",
        sum(|log| log.failed_writes),
        created.len()
    ));
}

/// Returns the number of runs that did not end well although their process is alive.
async fn count_ended_runs_of_living(fixture: &PostgresFixture) -> i64 {
    let now = jiff::Timestamp::now().as_millisecond();
    let sql = "SELECT count(*) FROM app.runs JOIN app.processes ON processes.id = runs.process
               WHERE processes.lease_ms > $1 AND runs.state <> 'completed'";
    fixture.connect().await.query_one(sql, &[&now]).await.expect("counted").get(0)
}

/// Waits until all runs have ended, and compares their states with what the clients have seen. Returns the share of the runs
/// that had started, in percent, that ended with an error. One that was refused before has used nothing, not even its id.
async fn check_runs(fixture: &PostgresFixture, logs: &[ClientLog]) -> f64 {
    let (stores, owner) = (fixture.open().await, ThreadOwner::new("c1", "u1"));
    let mut states: HashMap<&'static str, usize> = HashMap::new();
    for title in logs.iter().flat_map(|log| &log.tried) {
        let id = title.as_str().into();
        let fetch = async || stores.conversations.run(&owner, &id).await.expect("read");
        let run = poll_until(fetch, |run| run.as_ref().is_none_or(|run| !run.state.is_live())).await;
        let state = match run {
            None => "never begun",
            Some(run) if run.state == RunState::Interrupted => {
                assert!(run.error.is_some(), "{title}: {run:?}");
                "interrupted"
            }
            Some(run) => run.state.as_str(),
        };
        *states.entry(state).or_default() += 1;
    }
    let sum = |of: fn(&ClientLog) -> usize| logs.iter().map(of).sum::<usize>();
    let (tried, finished) = (sum(|log| log.tried.len()), sum(|log| log.finished));
    let completed = states.get("completed").copied().unwrap_or_default();
    assert!(completed >= finished, "{finished} runs were reported as finished: {states:?}");
    report(&format!(
        "{tried} runs, to their clients: {finished} finished, {} refused, {} without an answer, {} failed, {} cut; in the \
         store: {states:?}",
        sum(|log| log.refused),
        sum(|log| log.timed_out),
        sum(|log| log.failed),
        sum(|log| log.cut)
    ));
    let never_begun = states.get("never begun").copied().unwrap_or_default();
    (tried - never_begun - completed) as f64 / (tried - never_begun) as f64 * 100.0
}
