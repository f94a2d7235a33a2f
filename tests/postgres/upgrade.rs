//! A rolling upgrade behind a proxy without affinity: the schema of the next version appears under running processes,
//! which are then replaced one by one while clients write and chat.
//!
//! By default the processes are of this version, and a compatible version that does not exist yet takes the place of the
//! next one. With a program of the previous version, its processes are replaced by processes of this version.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use agent_platform::workspace::get_document;
use agent_store::postgres::{PostgresOptions, migrate};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{DATA_SECRET, PostgresFixture, UNLIMITED, note_todos, start_process};
use crate::support::cluster::Cluster;
use crate::support::process::AppProcess;
use crate::support::proxy::Proxy;
use crate::support::server::session_token;
use crate::support::server::todo_titles;
use crate::support::vendor::{Step, Vendor, delta, finish, stream_head};
use crate::support::{client, env_number, parse_run, poll_until, text_of, workspace};

/// Environment variable that overrides the number of rounds, in each of which all processes are replaced.
const ROUNDS_ENV: &str = "UPGRADE_ROUNDS";
const DEFAULT_ROUNDS: usize = 1;
const PROCESSES: usize = 3;
const CLIENTS: usize = 4;
/// Number of acknowledged actions between two replacements.
const ACTIONS_PER_REPLACEMENT: usize = 24;

/// Environment variable with the path of an `agentd` of the version before.
const PREVIOUS_ENV: &str = "PREVIOUS_AGENTD";

/// Setting of all processes: ten intervals of the proxy's checks.
const SETTINGS: [(&str, &str); 1] = [("LAME_DUCK_MS", "500")];

/// A migration of the next version that is compatible with this one: it adds what only that version uses.
const NEXT_SCHEMA: &str = "
    SET lock_timeout = '2s';
    BEGIN;
    ALTER TABLE app.records ADD COLUMN next_release text;
    ALTER TABLE app.change ADD COLUMN next_release text;
    CREATE TABLE app.next_release (company text NOT NULL PRIMARY KEY);
    UPDATE app.schema_version SET version = version + 1;
    COMMIT";

/// State that the clients share.
struct Shared {
    proxy: SocketAddr,
    /// Number of acknowledged actions.
    actions: AtomicUsize,
    is_over: AtomicBool,
}

/// Writes that were acknowledged to a client.
#[derive(Default)]
struct ClientLog {
    number: usize,
    documents: Vec<String>,
    todos: Vec<String>,
}

/// Writes and chats in turn. Each request succeeds at its first attempt.
async fn run_client(shared: Arc<Shared>, number: usize) -> ClientLog {
    let (client, token) = (client(), session_token("u1", "c1"));
    let mut log = ClientLog { number, ..ClientLog::default() };
    for n in 0.. {
        if shared.is_over.load(Ordering::Relaxed) {
            break;
        }
        let (document, title) = (format!("d-{number}-{n}"), format!("t-{number}-{n}"));
        let url = format!("http://{}/api/documents/{document}", shared.proxy);
        let body = json!({"title": document, "text": document});
        let response = client.put(url).bearer_auth(&token).json(&body).send().await.expect("an answer");
        assert_eq!(response.status(), 201, "{document}: {}", response.text().await.unwrap_or_default());
        log.documents.push(document);
        let body =
            json!({"agentId": "a1", "message": title, "runId": title, "todoListId": format!("l{number}")});
        let events = chat(shared.proxy, &client, &body).await;
        assert_eq!(text_of(&events), "Noted.");
        log.todos.push(title);
        shared.actions.fetch_add(2, Ordering::Relaxed);
    }
    log
}

/// Chats through the proxy, and returns the events of the run, which is whole.
async fn chat(proxy: SocketAddr, client: &reqwest::Client, body: &Value) -> Vec<Value> {
    let url = format!("http://{proxy}/api/agent/chat");
    let sent = client.post(url).bearer_auth(session_token("u1", "c1")).json(body).send().await;
    let response = sent.expect("an answer");
    let status = response.status();
    let text = response.text().await.expect("a stream that is not cut");
    assert_eq!(status, 200, "{text}");
    let events = parse_run(&text);
    assert_eq!(events.last().expect("an end")["type"], "RUN_FINISHED", "{text}");
    events
}

/// Returns a workspace with a todo list per client and the agent `held`, whose model waits for a gate.
fn workspace_of(vendor: &Vendor) -> Value {
    let mut all = workspace(&vendor.base_url(), "m");
    let list = |number| json!({"id": format!("l{number}"), "ownerId": "u1", "companyId": "c1", "todos": []});
    all["todoLists"] = (0..CLIENTS).map(list).collect();
    let mut held = all["agents"][0].clone();
    held["id"] = "held".into();
    held["children"][0]["content"]["model"] = "held".into();
    all["agents"].as_array_mut().expect("a list").push(held);
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_are_replaced_under_load_without_an_error() {
    let rounds = env_number(ROUNDS_ENV, DEFAULT_ROUNDS);
    let vendor = Vendor::start().await;
    note_todos(&vendor);
    let previous = std::env::var_os(PREVIOUS_ENV).map(PathBuf::from);
    let (fixture, mut processes) = start_first(&workspace_of(&vendor), previous.as_deref()).await;
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
    wait_for_actions(&shared, &mut clients).await;
    match &previous {
        Some(_) => migrate(&fixture.url, &PostgresOptions::default()).await.expect("migrated"),
        None => fixture.connect().await.batch_execute(NEXT_SCHEMA).await.expect("migrated"),
    }
    let mut held_chats = 0;
    for replacement in 0..rounds * PROCESSES {
        wait_for_actions(&shared, &mut clients).await;
        let process = processes.remove(0);
        held_chats += PROCESSES + 1;
        let position = replacement % PROCESSES;
        let address = process.address;
        drain(process, &proxy, position, &vendor, held_chats).await;
        processes.push(start_process(&fixture.url, address.port(), &SETTINGS).await);
        poll_until(async || proxy.is_ready(position), |ready| *ready).await;
    }
    wait_for_actions(&shared, &mut clients).await;
    shared.is_over.store(true, Ordering::Relaxed);
    let logs = clients.join_all().await;
    assert_eq!(proxy.server_errors(), [""; 0], "of {} responses", proxy.responses());
    all_writes_are_there(&fixture, &logs, &proxy).await;
}

/// Creates a database, and starts the processes that are replaced: processes of the program `previous`, which creates the
/// tables of its version, or else of this program.
async fn start_first(workspace: &Value, previous: Option<&Path>) -> (PostgresFixture, Vec<AppProcess>) {
    let mut processes = Vec::new();
    let Some(program) = previous else {
        let fixture = PostgresFixture::start(workspace).await;
        for _ in 0..PROCESSES {
            processes.push(start_process(&fixture.url, 0, &SETTINGS).await);
        }
        return (fixture, processes);
    };
    let cluster = Cluster::start();
    let url = cluster.url("postgres");
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), workspace.to_string()).expect("written");
    let mut import = Command::new(program);
    import.arg("import").arg(file.path()).env("DATABASE_URL", &url).env("DATA_SECRET", DATA_SECRET);
    assert!(import.status().await.expect("it runs").success(), "the version before imports the workspace");
    let settings = [&UNLIMITED[..], &SETTINGS].concat();
    for _ in 0..PROCESSES {
        processes.push(AppProcess::start_program(program, &url, &settings).await);
    }
    (PostgresFixture { cluster, url }, processes)
}

/// Waits until the clients have done more. Ends with the error of a client that has failed.
async fn wait_for_actions(shared: &Shared, clients: &mut JoinSet<ClientLog>) {
    let goal = shared.actions.load(Ordering::Relaxed) + ACTIONS_PER_REPLACEMENT;
    let done = async || shared.actions.load(Ordering::Relaxed);
    tokio::select! {
        ended = clients.join_next() => panic!("a client has ended: {:?}", ended.expect("one").map(drop)),
        _ = poll_until(done, |done| *done >= goal) => {}
    }
}

/// Stops a process while it and others stream answers. These go on until the proxy has noticed, and end whole.
async fn drain(process: AppProcess, proxy: &Proxy, position: usize, vendor: &Vendor, held_chats: usize) {
    let gate = watch::Sender::new(false);
    let mut steps = vec![stream_head(), delta(json!({"content": "first "})), Step::Until(gate.subscribe())];
    steps.push(delta(json!({"content": "second"})));
    steps.extend(finish("stop"));
    vendor.on("held", [steps]);
    let mut chats = JoinSet::new();
    // One is of the process itself, whatever the proxy's turn.
    for address in [process.address].into_iter().chain([proxy.address; PROCESSES]) {
        let client = client();
        let body = json!({"agentId": "held", "message": "Hello"});
        chats.spawn(async move { text_of(&chat(address, &client, &body).await) });
    }
    vendor.wait_for_requests("held", held_chats).await;
    process.terminate().await;
    poll_until(async || proxy.is_ready(position), |ready| !*ready).await;
    gate.send_replace(true);
    assert_eq!(chats.join_all().await, ["first second"; PROCESSES + 1]);
    process.ended().await;
}

async fn all_writes_are_there(fixture: &PostgresFixture, logs: &[ClientLog], proxy: &Proxy) {
    let stores = fixture.open().await;
    let (mut documents, mut todos) = (0, 0);
    for log in logs {
        for id in &log.documents {
            let document = get_document(&*stores.records, &"c1".into(), id).await.expect("read");
            assert_eq!(document.expect("an acknowledged document is there").value.text, *id);
        }
        let titles = todo_titles(&stores, &format!("l{}", log.number)).await;
        assert_eq!(titles, log.todos, "each effect is there once");
        (documents, todos) = (documents + log.documents.len(), todos + log.todos.len());
    }
    // Shown with `--no-capture`.
    let _ = writeln!(
        std::io::stderr(),
        "{} responses, 0 of them 5xx; {documents} documents, {todos} runs with an effect",
        proxy.responses()
    );
}
