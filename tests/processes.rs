//! Several application processes over one database, with the same `DATA_SECRET` and no affinity.

mod admission;
mod concurrent_runs;
mod rates;
mod thread_races;

use std::num::NonZeroU32;
use std::sync::Arc;

use agent_core::clock::SystemClock;
use agent_platform::token::{Grant, NewToken, RunCaps, Tokens, WidgetGrant};
use agent_platform::workspace::WorkspaceFile;
use agentd::stores::Stores;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::cluster::Cluster;
use crate::support::server::{self, Server, session_token};
use crate::support::vendor::n8n;
use crate::support::vendor::{Step, Vendor, answer, json_response, stream_head};
use crate::support::{TEST_TIMEOUT, client, expect_problem, parse_run, poll_until, workspace};

/// The application's database, and the vendor of its agents.
struct SharedDatabase {
    test_database: TestDatabase,
    vendor: Vendor,
}

/// Server or folder of a database, removed when dropped.
pub(crate) enum TestDatabase {
    Sqlite(TempDir),
    Postgres(Cluster),
}

impl TestDatabase {
    /// Returns the connection URL (`DATABASE_URL`).
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Sqlite(folder) => format!("sqlite://{}", folder.path().join("app.db").display()),
            Self::Postgres(cluster) => cluster.url("postgres"),
        }
    }
}

/// Runs a test over a SQLite file and over PostgreSQL.
async fn over_both(test: impl AsyncFn(SharedDatabase)) {
    test(SharedDatabase::create(TestDatabase::Sqlite(TempDir::new().expect("a folder"))).await).await;
    test(SharedDatabase::create(TestDatabase::Postgres(Cluster::start())).await).await;
}

impl SharedDatabase {
    /// Creates a database with an agent of each kind: `a1` has a model, `flow` a workflow, `remote` an agent server.
    async fn create(test_database: TestDatabase) -> Self {
        let vendor = Vendor::start().await;
        let mut all = workspace(&vendor.base_url(), "m");
        let mut flow = all["agents"][0].clone();
        flow["id"] = "flow".into();
        flow["children"] =
            json!([{"name": "WorkflowConnector", "content": {"webhookUrl": vendor.webhook_url()}}]);
        let mut remote = flow.clone();
        remote["id"] = "remote".into();
        remote["children"] = json!([]);
        let server = json!({"agentServerUrl": vendor.base_url(), "agentServerProvider": "openai",
            "agentServerModel": "held"});
        let content = remote["content"].as_object_mut().expect("an object");
        content.extend(server.as_object().expect("an object").clone());
        all["agents"].as_array_mut().expect("a list").extend([flow, remote]);
        let database = Self { test_database, vendor };
        let file = WorkspaceFile::parse_stored(&all.to_string()).expect("a valid workspace");
        file.apply(&database.open().await.roles).await.expect("the workspace is imported");
        database
    }

    fn config(&self) -> agentd::config::AppConfig {
        let url = self.test_database.url();
        server::app_config(&[("DATABASE_URL", url.as_str()), ("DATA_SECRET", "data-secret-canary")])
    }

    async fn open(&self) -> Stores {
        Stores::open(&self.config()).await.expect("the store opens")
    }

    /// Starts an application with separate stores.
    async fn start(&self) -> Server {
        server::app_with_config(self.config(), self.open().await).await
    }
}

async fn run(process: &Server, user: &str, run_id: &str) -> reqwest::Response {
    let body = json!({"agentId": "a1", "message": "Hello", "runId": run_id});
    process.chat_as(&session_token(user, "c1"), "", &body).await
}

#[tokio::test]
async fn a_run_id_is_accepted_once() {
    over_both(a_run_id_is_accepted_once_over).await;
}

async fn a_run_id_is_accepted_once_over(database: SharedDatabase) {
    let (one, other) = (database.start().await, database.start().await);
    assert_eq!(run(&one, "u1", "r-1").await.status(), 200);
    for process in [&other, &one] {
        expect_problem(run(process, "u1", "r-1").await, 409, "CONFLICT").await;
    }
    assert_eq!(run(&other, "u2", "r-1").await.status(), 200, "another user");
    let statuses = join_all([&one, &other, &one, &other].map(|process| run(process, "u1", "r-2"))).await;
    let mut statuses: Vec<u16> = statuses.iter().map(|response| response.status().as_u16()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409, 409, 409]);

    // A rejected run leaves its id for another attempt.
    database.vendor.on("m", [json_response("500 Internal Server Error", "", "{}"), answer(&["Hello"])]);
    expect_problem(run(&one, "u1", "r-3").await, 502, "BACKEND_FAILED").await;
    assert_eq!(run(&other, "u1", "r-3").await.status(), 200);

    one.stop();
    one.stopped().await;
    let restarted = database.start().await;
    for run_id in ["r-1", "r-2", "r-3"] {
        expect_problem(run(&restarted, "u1", run_id).await, 409, "CONFLICT").await;
    }
}

#[tokio::test]
async fn a_widget_tokens_cap_is_counted_over_all_processes() {
    over_both(a_widget_tokens_cap_is_counted_over_all_processes_over).await;
}

async fn a_widget_tokens_cap_is_counted_over_all_processes_over(database: SharedDatabase) {
    let processes = [database.start().await, database.start().await, database.start().await];
    let caps = RunCaps { runs_per_minute: NonZeroU32::new(20).expect("a cap"), runs_per_day: None };
    let grant = Grant::Widget(WidgetGrant { caps, ..WidgetGrant::default() });
    let tokens = Tokens::new(database.open().await.records, Arc::new(SystemClock));
    let minted = tokens.mint(NewToken::new("c1", "a1", grant)).await.expect("minted");
    let ask = |number: usize| {
        let request = processes[number % 3].request("POST", "/api/agent/chat");
        let request = request.header("x-widget-token", minted.text.expose());
        request.json(&json!({"message": "Hello"})).send()
    };
    let start = std::time::Instant::now();
    let responses = join_all((0..60).map(ask)).await;
    // One more run is admitted every three seconds.
    let later = usize::try_from(start.elapsed().as_secs() / 3).expect("few");
    let mut admitted = 0;
    for response in responses {
        let response = response.expect("an answer");
        if response.status() == 200 {
            admitted += 1;
        } else {
            expect_problem(response, 429, "RATE_LIMITED").await;
        }
    }
    assert!((20..=20 + later).contains(&admitted), "{admitted} admitted, of which {later} later");
}

/// Calls a tool at an address, without a session.
async fn call_tool(address: &str, tool: &str, arguments: Value) -> reqwest::Response {
    let params = json!({"name": tool, "arguments": arguments});
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    client().post(address).json(&request).send().await.expect("the tool server answers")
}

/// Opens a session of the tool server, and its stream of notifications.
async fn open_session_stream(address: &str) -> reqwest::Response {
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello});
    let accept = "application/json, text/event-stream";
    let opened = client().post(address).header("accept", accept).json(&hello).send().await;
    let opened = opened.expect("the tool server answers");
    let session = opened.headers()["mcp-session-id"].clone();
    opened.text().await.expect("a whole body");
    let stream =
        client().get(address).header("accept", "text/event-stream").header("mcp-session-id", session);
    let stream = stream.send().await.expect("the tool server answers");
    assert_eq!(stream.status(), 200);
    stream
}

/// Returns the `mcpServerUrl` that an agent's backend received, unchanged and with the address of another process.
async fn sent_tool_urls(vendor: &Vendor, agent: &str, from: &Server, to: &Server) -> [String; 2] {
    vendor.wait_for_requests(agent, 1).await;
    let request_body = vendor.received_bodies(agent).remove(0);
    let url = request_body["mcpServerUrl"].as_str().expect("text").to_owned();
    let elsewhere = url.replace(&from.address.to_string(), &to.address.to_string());
    assert_ne!(url, elsewhere);
    [url, elsewhere]
}

#[tokio::test]
async fn a_workflow_calls_tools_at_any_process() {
    over_both(a_workflow_calls_tools_at_any_process_over).await;
}

async fn a_workflow_calls_tools_at_any_process_over(database: SharedDatabase) {
    let (issuer, other) = (database.start().await, database.start().await);
    let gate = tokio::sync::watch::Sender::new(false);
    let [end, last] = n8n::end();
    let script = vec![n8n::stream_head(), n8n::text("Let me see."), Step::Until(gate.subscribe()), end, last];
    database.vendor.on("flow", [script]);
    let chat = json!({"agentId": "flow", "message": "Note it.", "todoListId": "l1"});
    let response = issuer.chat(&chat).await;
    let urls = sent_tool_urls(&database.vendor, "flow", &issuer, &other).await;
    for (url, title) in urls.iter().zip(["Buy soil", "Buy pots"]) {
        let called = call_tool(url, "createTodo", json!({"title": title})).await;
        assert_eq!(called.status(), 200);
        let called: Value = called.json().await.expect("JSON");
        assert!(called["result"]["content"][0]["text"].as_str().expect("text").contains(title), "{called}");
    }
    gate.send_replace(true);
    let events = parse_run(&response.text().await.expect("a whole body"));
    assert_eq!(events.last().expect("an end")["type"], "RUN_FINISHED");
    // A workflow may continue after its response, and after a restart of the issuer.
    issuer.stop();
    issuer.stopped().await;
    let called = call_tool(&urls[1], "createTodo", json!({"title": "Buy seeds"})).await;
    assert_eq!(called.status(), 200);
}

#[tokio::test]
async fn a_runs_token_ends_at_all_processes() {
    over_both(a_runs_token_ends_at_all_processes_over).await;
}

async fn a_runs_token_ends_at_all_processes_over(database: SharedDatabase) {
    let (issuer, other) = (database.start().await, database.start().await);
    database.vendor.on("held", [vec![stream_head(), Step::Stall]]);
    let response = issuer.chat(&json!({"agentId": "remote", "message": "Hello", "todoListId": "l1"})).await;
    let urls = sent_tool_urls(&database.vendor, "held", &issuer, &other).await;
    assert!(urls[0].contains("token=agr_"), "{}", urls[0]);
    for url in &urls {
        let called = call_tool(url, "readTodos", json!({})).await;
        assert_eq!(called.status(), 200);
    }
    let foreign = urls[1].replace("agentId=remote", "agentId=a1");
    assert_eq!(call_tool(&foreign, "readTodos", json!({})).await.status(), 403);

    let stream = open_session_stream(&urls[1]).await;

    // The client leaves, which ends the run.
    drop(response);
    for url in &urls {
        let fetch = async || call_tool(url, "readTodos", json!({})).await.status().as_u16();
        poll_until(fetch, |status| *status == 401).await;
    }
    tokio::time::timeout(TEST_TIMEOUT, stream.text()).await.expect("it ends with the token").expect("text");
    let restarted = database.start().await;
    let elsewhere = urls[0].replace(&issuer.address.to_string(), &restarted.address.to_string());
    assert_eq!(call_tool(&elsewhere, "readTodos", json!({})).await.status(), 401);
}
