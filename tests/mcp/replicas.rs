//! MCP sessions across several application processes over one database with the same `DATA_SECRET`.

use std::path::Path;
use std::sync::Arc;

use agent_core::clock::SystemClock;
use agent_platform::token::{MintedToken, Tokens};
use agent_store::sqlite::{SqliteOptions, SqliteStore};
use agentd::stores::Stores;
use futures_util::future::join_all;
use reqwest::RequestBuilder;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

use super::application::mcp_token;
use crate::support::server::{self, Server, session_token};
use crate::support::{self, TEST_TIMEOUT, poll_until, read_until};

const PATH: &str = "/api/agent/mcp";
const SECRET: &str = "data-secret-canary-0123456789";
/// Maximum number of sessions per token at one process.
const MAX_SESSIONS_PER_TOKEN: usize = 64;

/// An application over a shared database.
struct Replica {
    app: Server,
    stores: Stores,
    client: reqwest::Client,
}

/// Starts an application over the database in `folder`; without a secret, it has no key.
async fn replica(folder: &Path, secret: Option<&str>) -> Replica {
    let file = folder.join("app.db");
    let url = format!("sqlite://{}", file.display());
    let mut settings = vec![("DATABASE_URL", url.as_str())];
    settings.extend(secret.map(|secret| ("DATA_SECRET", secret)));
    let config = server::app_config(&settings);
    let store = Arc::new(SqliteStore::open(file, SqliteOptions::default()).expect("the database opens"));
    let stores = Stores::from_records(store, &config);
    let app = server::app_with_config(config, stores.clone()).await;
    Replica { app, stores, client: support::client() }
}

/// Starts two applications over a new database.
async fn two_replicas() -> (TempDir, Replica, Replica) {
    let folder = TempDir::new().expect("a folder");
    let first = replica(folder.path(), Some(SECRET)).await;
    let workspace = json!({
        "users": [{"id": "ada", "companyId": "c1"}, {"id": "bob", "companyId": "c1"}],
        "agents": [{"id": "a1", "name": "One", "ownerId": "ada", "companyId": "c1",
            "content": {"mcpPreset": ["readTodos", "createTodo", "listDocs", "getDoc", "createDoc"]}}],
        "todoLists": [{"id": "l-ada", "ownerId": "ada", "companyId": "c1", "name": "A",
            "todos": [{"id": "t", "title": "Water the basil", "done": false}]}]
    });
    first.stores.import("the workspace", &workspace.to_string()).await.expect("imported");
    let second = replica(folder.path(), Some(SECRET)).await;
    (folder, first, second)
}

fn message(id: usize, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// Replaces the last character by another one.
fn damaged(session: &str) -> String {
    let last = if session.ends_with('A') { 'B' } else { 'A' };
    format!("{}{last}", &session[..session.len() - 1])
}

impl Replica {
    async fn mint(&self, user: &str) -> MintedToken {
        let tokens = Tokens::new(self.stores.records.clone(), Arc::new(SystemClock));
        tokens.mint(mcp_token(user, "c1", "a1")).await.expect("minted")
    }

    fn request(&self, method: &str, token: &str, session: Option<&str>) -> RequestBuilder {
        let request =
            self.client.request(method.parse().expect("a method"), self.app.url(PATH)).bearer_auth(token);
        let request = session.into_iter().fold(request, |request, id| request.header("mcp-session-id", id));
        request.header(
            "accept",
            if method == "GET" { "text/event-stream" } else { "application/json, text/event-stream" },
        )
    }

    async fn status(&self, method: &str, token: &str, session: &str) -> u16 {
        let mut request = self.request(method, token, Some(session));
        if method == "POST" {
            request = request.json(&message(1, "ping", json!({})));
        }
        request.send().await.expect("an answer").status().as_u16()
    }

    /// Opens a session, without the notification `initialized`.
    async fn open(&self, token: &str) -> String {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let initialize = message(0, "initialize", params);
        let response = self.request("POST", token, None).json(&initialize).send().await.expect("an answer");
        assert_eq!(response.status(), 200);
        response.headers()["mcp-session-id"].to_str().expect("text").to_owned()
    }

    async fn ask(&self, token: &str, session: &str, body: &Value) -> Value {
        let response = self.request("POST", token, Some(session)).json(body).send().await.expect("an answer");
        assert_eq!(response.status(), 200, "{body}");
        response.json().await.expect("one message")
    }

    /// Lists and calls tools in a session.
    async fn use_tools(&self, token: &str, session: &str, id: usize) {
        let list = self.ask(token, session, &message(id, "tools/list", json!({}))).await;
        assert_eq!(list["id"], id);
        assert_eq!(list["result"]["tools"].as_array().map(Vec::len), Some(5), "{list}");
        let call = message(id + 1, "tools/call", json!({"name": "readTodos", "arguments": {}}));
        let called = self.ask(token, session, &call).await;
        assert_eq!(called["id"], id + 1);
        let todos = &called["result"]["structuredContent"]["todos"];
        assert_eq!(todos[0]["title"], "Water the basil", "{called}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_answered_by_every_process_in_turn_and_after_a_restart() {
    let (folder, first, second) = two_replicas().await;
    let ada = first.mint("ada").await;
    let token = ada.text.expose();
    let session = first.open(token).await;
    assert!(session.starts_with("v1.") && session.bytes().all(|byte| byte.is_ascii_graphic()), "{session}");
    assert!(session.len() < 1024, "{}", session.len());
    // The other process has the whole life of the session, from `initialized` on.
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let response = second.request("POST", token, Some(&session)).json(&initialized).send().await;
    assert_eq!(response.expect("an answer").status(), 202);
    for round in 0..3 {
        second.use_tools(token, &session, 10 * round).await;
        first.use_tools(token, &session, 10 * round).await;
    }
    // A third process starts to answer under load, and restores the session once.
    let third = replica(folder.path(), Some(SECRET)).await;
    let all = [&first, &second, &third];
    join_all((0..48).map(|n| all[n % 3].use_tools(token, &session, 100 + 2 * n))).await;
    for process in [first, second, third] {
        process.app.stop();
        process.app.stopped().await;
    }
    let restarted = replica(folder.path(), Some(SECRET)).await;
    restarted.use_tools(token, &session, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_opener_has_the_session_at_any_process() {
    let (folder, first, second) = two_replicas().await;
    let (ada, bob) = (first.mint("ada").await, first.mint("bob").await);
    let (ada, bob) = (ada.text.expose(), bob.text.expose());
    let session = first.open(ada).await;
    let other_key = replica(folder.path(), Some("another-secret-0123456789")).await;
    let without_key = replica(folder.path(), None).await;
    let foreign = other_key.open(ada).await;
    let local = without_key.open(ada).await;
    assert!(!local.contains('.'), "{local}");
    assert_eq!(without_key.status("POST", ada, &local).await, 200);
    let (_, sealed) = session.rsplit_once('.').expect("three parts");
    let (foreign_key, _) = foreign.rsplit_once('.').expect("three parts");
    let refused = [
        (&first, bob, session.clone()),
        (&second, bob, session.clone()),
        (&second, ada, damaged(&session)),
        (&second, ada, session[..session.len() - 8].to_owned()),
        (&second, ada, format!("{session}A")),
        (&second, ada, format!("{foreign_key}.{sealed}")),
        (&second, ada, "none".to_owned()),
        (&second, ada, foreign.clone()),
        (&second, ada, local.clone()),
        (&other_key, ada, session.clone()),
        (&without_key, ada, session.clone()),
    ];
    for (replica, token, session) in &refused {
        for method in ["POST", "GET", "DELETE"] {
            assert_eq!(replica.status(method, token, session).await, 404, "{method} {session}");
        }
    }
    second.use_tools(ada, &session, 1).await;
    first.use_tools(ada, &session, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_ends_with_its_token_at_every_process() {
    let (_folder, first, second) = two_replicas().await;
    let (ada, spare) = (first.mint("ada").await, first.mint("ada").await);
    let session = first.open(ada.text.expose()).await;
    second.use_tools(ada.text.expose(), &session, 1).await;
    let mut stream = first.request("GET", ada.text.expose(), Some(&session)).send().await.expect("an answer");
    let revoke = format!("/api/agents/a1/tokens/{}", ada.token.id);
    let owner = session_token("ada", "c1");
    let revoked = first.app.request("DELETE", &revoke).bearer_auth(owner).send().await.expect("an answer");
    assert_eq!(revoked.status(), 204);
    let ended = async { while let Ok(Some(_)) = stream.chunk().await {} };
    timeout(TEST_TIMEOUT, ended).await.expect("the stream ends");
    for replica in [&first, &second] {
        poll_until(
            async || replica.status("POST", ada.text.expose(), &session).await,
            |status| *status == 401,
        )
        .await;
        // Another token of the same user does not have it.
        assert_eq!(replica.status("POST", spare.text.expose(), &session).await, 404);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_session_has_ended_at_the_process_that_deleted_it() {
    let (_folder, first, second) = two_replicas().await;
    let ada = first.mint("ada").await;
    let ada = ada.text.expose();
    let session = first.open(ada).await;
    // The second process ends it without having it; the first one does not hear of it.
    assert_eq!(second.status("DELETE", ada, &session).await, 204);
    for method in ["POST", "GET", "DELETE"] {
        assert_eq!(second.status(method, ada, &session).await, 404);
    }
    first.use_tools(ada, &session, 1).await;
    assert_eq!(first.status("DELETE", ada, &session).await, 204);
    for method in ["POST", "GET", "DELETE"] {
        assert_eq!(first.status(method, ada, &session).await, 404);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_evicted_session_is_restored() {
    let (_folder, first, _second) = two_replicas().await;
    let ada = first.mint("ada").await;
    let ada = ada.text.expose();
    let session = first.open(ada).await;
    let mut stream = first.request("GET", ada, Some(&session)).send().await.expect("an answer");
    for _ in 0..MAX_SESSIONS_PER_TOKEN {
        first.open(ada).await;
    }
    let ended = async { while let Ok(Some(_)) = stream.chunk().await {} };
    timeout(TEST_TIMEOUT, ended).await.expect("the stream ends with the evicted session");
    join_all((0..16).map(|n| first.use_tools(ada, &session, 2 * n))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_at_any_process_gets_its_changes() {
    let (_folder, first, second) = two_replicas().await;
    let ada = first.mint("ada").await;
    let ada = ada.text.expose();
    let session = first.open(ada).await;
    // An event of another process is not resumed; a new stream starts.
    let stream = second.request("GET", ada, Some(&session)).header("last-event-id", "7");
    let mut stream = stream.send().await.expect("an answer");
    assert_eq!(stream.status(), 200);
    let create = json!({"name": "createDoc", "arguments": {"title": "New", "text": "Text."}});
    let created = second.ask(ada, &session, &message(1, "tools/call", create)).await;
    assert!(!created["result"]["isError"].as_bool().unwrap_or_default(), "{created}");
    read_until(&mut stream, "notifications/resources/list_changed").await;
}
