//! Durability of the application's store: after `kill -9`, every acknowledged write is present, and no import is
//! present in part.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use agent_core::role::RoleSource as _;
use agent_core::tool::ExecutionContext;
use agent_platform::records::{Inventory, Key};
use agent_platform::workspace::{collection, create_todo, get_document, get_todo_list};
use agent_store::sqlite::{SqliteOptions, SqliteStore};
use agentd::config::{AppConfig, Flags};
use agentd::stores::Stores;
use serde_json::json;
use tempfile::TempDir;

/// Environment variable with the path of the child's database.
const DATABASE_ENV: &str = "DURABLE_TEST_DATABASE";
const ROUND_ENV: &str = "DURABLE_TEST_ROUND";
const COMPANY: &str = "acme";
/// Number of workspaces that the child imports in a round; after each import it adds a todo to the imported list.
const IMPORTS_PER_ROUND: usize = 100;
const ROUNDS: usize = 10;

fn config(database: &Path) -> AppConfig {
    let database = format!("sqlite://{}", database.display());
    let env: std::collections::BTreeMap<&str, &str> =
        [("DATABASE_URL", database.as_str()), ("DATA_SECRET", "data-secret-canary")].into();
    AppConfig::load(&Flags::default(), &env).expect("the settings are right")
}

fn open(database: &Path) -> (Arc<SqliteStore>, Stores) {
    let config = config(database);
    let store = Arc::new(SqliteStore::open(database, SqliteOptions::default()).expect("the store opens"));
    let stores = Stores::from_records(store.clone(), &config);
    (store, stores)
}

/// Returns the `n`th workspace of a round: an agent with a secret, two documents and a todo list.
fn workspace(round: usize, n: usize) -> String {
    let id = |what: &str| format!("{what}-{round}-{n}");
    let text = |id: String| json!({"id": id, "companyId": COMPANY, "title": "T", "text": "x".repeat(2000)});
    json!({
        "agents": [{"id": id("agent"), "companyId": COMPANY, "content": {"messengerToken": id("token")}}],
        "documents": [text(id("left")), text(id("right"))],
        "todoLists": [{"id": id("list"), "ownerId": "ada", "companyId": COMPANY, "todos": []}],
    })
    .to_string()
}

fn owner(round: usize, n: usize) -> ExecutionContext {
    ExecutionContext {
        user_id: "ada".into(),
        company_id: COMPANY.into(),
        todo_list_id: Some(format!("list-{round}-{n}")),
        ..ExecutionContext::default()
    }
}

#[tokio::test]
async fn imports_and_writes_survive_a_kill_whole() {
    let folder = TempDir::new().expect("a folder");
    let database = folder.path().join("app.db");
    let mut early = 0;
    for round in 0..ROUNDS {
        let mut child = KillOnDrop(spawn_child(&database, round));
        let stdout = child.0.stdout.take().expect("a pipe");
        let mut lines = BufReader::new(stdout).lines().map(|line| line.expect("a line"));
        // Spreads the kills over the rounds' progress.
        let wait_for = 1 + (round * 37) % (2 * IMPORTS_PER_ROUND - 40);
        let mut acknowledged = HashSet::new();
        while acknowledged.len() < wait_for {
            acknowledged.extend(parse_acknowledgement(lines.next().expect("the child goes on")));
        }
        child.0.kill().expect("killed");
        acknowledged.extend(lines.filter_map(parse_acknowledgement));
        child.0.wait().expect("ended");
        early += usize::from(acknowledged.len() < 2 * IMPORTS_PER_ROUND);
        check_store(&database, round, &acknowledged).await;
    }
    assert!(early >= ROUNDS / 2, "most kills come while the process writes");
}

/// Parses a line in which the child acknowledges a write: `imported 7` or `added 7`.
fn parse_acknowledgement(line: String) -> Option<(bool, usize)> {
    let number = |text: &str| text.parse().expect("a number");
    let imported = line.strip_prefix("imported ").map(|n| (true, number(n)));
    imported.or_else(|| line.strip_prefix("added ").map(|n| (false, number(n))))
}

async fn check_store(database: &Path, round: usize, acknowledged: &HashSet<(bool, usize)>) {
    let (store, stores) = open(database);
    assert_eq!(store.check_integrity().await.expect("a check"), Vec::<String>::new(), "round {round}");
    assert_eq!(store.companies(None).await.expect("read"), [COMPANY], "round {round}");
    for n in 0..IMPORTS_PER_ROUND {
        let role = stores
            .roles
            .role(&COMPANY.into(), &format!("agent-{round}-{n}").into())
            .await
            .expect("the store opens");
        let mut there = vec![role.is_some()];
        for side in ["left", "right"] {
            let stored_document =
                get_document(&*stores.records, &COMPANY.into(), &format!("{side}-{round}-{n}")).await;
            there.push(stored_document.expect("read").is_some());
        }
        let list = Key::new(COMPANY, collection::TODO_LISTS, format!("list-{round}-{n}")).expect("a key");
        there.push(stores.records.get(&list).await.expect("read").is_some());
        assert!(there.iter().all(|there| *there == role.is_some()), "round {round}: half of import {n}");
        assert!(
            role.is_some() || !acknowledged.contains(&(true, n)),
            "round {round}: import {n} was acknowledged"
        );
        if let Some(role) = role {
            let token = role.content.messenger_token.as_ref().expect("the secret came along");
            assert_eq!(token.expose(), format!("token-{round}-{n}"));
            let todos =
                get_todo_list(&*stores.records, &owner(round, n)).await.expect("the list").todos.len();
            assert!(
                todos == 1 || !acknowledged.contains(&(false, n)),
                "round {round}: todo {n} was acknowledged"
            );
        }
    }
}

/// A child process that is killed when the test ends, even by a panic.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts this test binary with the one test that acts as the child process.
fn spawn_child(database: &Path, round: usize) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "durable::imports_until_it_is_killed", "--ignored", "--nocapture"])
        .env(DATABASE_ENV, database)
        .env(ROUND_ENV, round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the child of the test above"]
async fn imports_until_it_is_killed() {
    let database = PathBuf::from(std::env::var_os(DATABASE_ENV).expect("the test above says where"));
    let round: usize = std::env::var(ROUND_ENV).expect("the round is set").parse().expect("a number");
    let (_, stores) = open(&database);
    let tasks = (0..4).map(|task| {
        let stores = stores.clone();
        tokio::spawn(async move {
            for n in (task..IMPORTS_PER_ROUND).step_by(4) {
                stores.import("the test", &workspace(round, n)).await.expect("imported");
                // `println!` would go to the test harness, which may capture it.
                writeln!(std::io::stdout(), "imported {n}").expect("the parent listens");
                create_todo(&*stores.records, &owner(round, n), "water").await.expect("added");
                writeln!(std::io::stdout(), "added {n}").expect("the parent listens");
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("written");
    }
}
