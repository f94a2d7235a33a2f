//! Three processes over one database, without affinity, of which one is killed and replaced each round, while clients
//! chat, call tools and write documents, and while files are imported by commands of which some are killed.

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use agent_platform::roles::RoleStore as _;
use agent_platform::workspace::get_document;
use serde_json::{Value, json};
use tokio::task::{JoinHandle, JoinSet};

use super::{PostgresFixture, note_todos, start_process};
use crate::support::command::CommandProcess;
use crate::support::process::AppProcess;
use crate::support::server::session_token;
use crate::support::server::todo_titles;
use crate::support::vendor::Vendor;
use crate::support::{TEST_TIMEOUT, client, env_number, free_port, parse_events, poll_until, workspace};

/// Environment variable that overrides the number of rounds.
const ROUNDS_ENV: &str = "REPLICA_KILL_ROUNDS";
const DEFAULT_ROUNDS: usize = 4;
const PROCESSES: usize = 3;
const CLIENTS: usize = 4;
/// Number of acknowledged actions between two kills.
const ACTIONS_PER_ROUND: usize = 24;
/// Number of acknowledged actions while a process is suspended: each client waits for it repeatedly.
const SUSPENDED_ACTIONS: usize = 16;
/// Timeout of a client's request.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);

/// State that the clients share.
struct Shared {
    ports: [u16; PROCESSES],
    next: AtomicUsize,
    /// Number of acknowledged actions.
    actions: AtomicUsize,
    is_over: AtomicBool,
}

impl Shared {
    /// Returns the address of the next process in turn, as a proxy without affinity does.
    fn next_address(&self) -> String {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        format!("http://127.0.0.1:{}", self.ports[turn % PROCESSES])
    }
}

/// Actions of one client.
#[derive(Default)]
struct ClientLog {
    /// Texts of acknowledged documents, by id.
    documents: HashMap<String, String>,
    /// Titles of todos whose creation was reported.
    todos: Vec<String>,
    /// Titles of all runs that were tried.
    tried: Vec<String>,
    finished: usize,
    failed: usize,
    /// Runs that ended with an error inside a response, or whose response was cut.
    cut: usize,
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
        let url = format!("{}/api/documents/{id}", shared.next_address());
        let body = json!({"title": id, "text": format!("text of {id}")});
        let sent = client.put(url).bearer_auth(token).timeout(CLIENT_TIMEOUT).json(&body).send().await;
        match sent.map(|response| response.status().as_u16()) {
            Ok(200 | 201) => break,
            // The process is away, or has been killed before it answered.
            Err(_) | Ok(503) => log.failed += 1,
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
    let url = format!("{}/api/agent/chat", shared.next_address());
    let body = json!({"agentId": "a1", "message": title, "runId": title, "todoListId": format!("l{number}")});
    let sent = client.post(url).bearer_auth(token).timeout(CLIENT_TIMEOUT).json(&body).send().await;
    let Ok(response) = sent else {
        log.failed += 1;
        return;
    };
    let status = response.status();
    let Ok(text) = response.text().await else {
        log.cut += 1;
        return;
    };
    assert!(status == 200 || status == 503, "{title}: {status} {text}");
    let events = parse_events(&text);
    if events
        .iter()
        .any(|event| event["type"] == "TOOL_CALL_RESULT" && event.to_string().contains(title.as_str()))
    {
        log.todos.push(title.clone());
    }
    match events.last().map(|event| &event["type"]) {
        Some(kind) if kind == "RUN_FINISHED" => {
            log.finished += 1;
            shared.actions.fetch_add(1, Ordering::Relaxed);
        }
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

/// Imports that were acknowledged, and those that were killed.
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

/// Imports one file after another, each by a process of its own.
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

/// Three processes over one database, and clients that use them in turn.
struct ReplicaFixture {
    fixture: PostgresFixture,
    _vendor: Vendor,
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
        let list =
            |number| json!({"id": format!("l{number}"), "ownerId": "u1", "companyId": "c1", "todos": []});
        all["todoLists"] = (0..CLIENTS).map(list).collect();
        let fixture = PostgresFixture::start(&all).await;
        let ports: [u16; PROCESSES] = std::array::from_fn(|_| free_port());
        let mut processes = Vec::new();
        for port in ports {
            processes.push(start_process(&fixture.url, port, &[]).await);
        }
        let (next, actions, is_over) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
        let shared = Arc::new(Shared { ports, next, actions, is_over });
        let mut clients = JoinSet::new();
        for number in 0..CLIENTS {
            clients.spawn(run_client(shared.clone(), number));
        }
        Self { fixture, _vendor: vendor, processes, shared, clients, imports: None }
    }

    /// Imports files until the end.
    fn start_imports(&mut self) {
        self.imports = Some(tokio::spawn(run_imports(self.shared.clone(), self.fixture.url.clone())));
    }

    /// Waits until this many further actions are acknowledged.
    async fn wait_for(&self, actions: usize) {
        let goal = self.shared.actions.load(Ordering::Relaxed) + actions;
        let look = async || self.shared.actions.load(Ordering::Relaxed);
        poll_until(look, |actions| *actions >= goal).await;
    }

    /// Stops the clients and compares the store with their logs.
    async fn finish(self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let logs = self.clients.join_all().await;
        check(&self.fixture, &logs).await;
        if let Some(imports) = self.imports {
            check_imports(&self.fixture, &imports.await.expect("no import fails")).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_lose_no_acknowledged_write_and_double_no_effect() {
    let rounds = env_number(ROUNDS_ENV, DEFAULT_ROUNDS);
    let mut replicas = ReplicaFixture::start().await;
    replicas.start_imports();
    for round in 0..rounds {
        replicas.wait_for(ACTIONS_PER_ROUND).await;
        replicas.processes.remove(0).kill().await;
        let port = replicas.shared.ports[round % PROCESSES];
        replicas.processes.push(start_process(&replicas.fixture.url, port, &[]).await);
    }
    replicas.finish().await;
}

/// A process that is suspended beyond its timeouts delays the others by these at most, and nothing that it was doing
/// takes effect twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspended_process_delays_no_other_and_doubles_no_effect() {
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
    let mut whole = Vec::new();
    for import in log.acknowledged.iter().chain(&log.killed) {
        let [documents, agents] = imported_ids(*import);
        let mut found = 0;
        for id in &documents {
            let document = get_document(&*stores.records, &company, id).await.expect("read");
            found += usize::from(document.is_some_and(|document| document.value.text == import.to_string()));
        }
        for id in &agents {
            let agent = stores.roles.masked_role(&company, &id.as_str().into()).await.expect("read");
            found += usize::from(agent.is_some());
        }
        assert!(found == 0 || found == 2 * IMPORTED_OBJECTS, "{found} objects of import {import}");
        if found > 0 {
            whole.push(*import);
        }
    }
    for import in &log.acknowledged {
        assert!(whole.contains(import), "import {import} was acknowledged");
    }
    // The server may end the commit of a process after it was killed, beside that of the next one.
    assert!(whole.contains(&latest), "{latest} is of an import that is there");
    let _ = writeln!(
        std::io::stderr(),
        "{} imports acknowledged, {} killed, of which {} are there",
        log.acknowledged.len(),
        log.killed.len(),
        whole.len() - log.acknowledged.len()
    );
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
        for title in todo_titles(&stores, &format!("l{number}")).await {
            *created.entry(title).or_default() += 1;
        }
    }
    assert!(created.values().all(|count| *count == 1), "no effect is doubled: {created:?}");
    for title in logs.iter().flat_map(|log| &log.todos) {
        assert!(created.contains_key(title.as_str()), "{title} was reported and is there");
    }
    let sum = |of: fn(&ClientLog) -> usize| logs.iter().map(of).sum::<usize>();
    let (tried, finished) = (sum(|log| log.tried.len()), sum(|log| log.finished));
    let (failed, cut) = (sum(|log| log.failed), sum(|log| log.cut));
    let todos = sum(|log| log.todos.len());
    assert!(documents > 0 && finished > 0 && todos > 0);
    // Shown with `--no-capture`.
    let _ = writeln!(
        std::io::stderr(),
        "{documents} documents, {tried} runs: {finished} finished, {todos} with an effect, {cut} cut; {failed} requests failed"
    );
}
