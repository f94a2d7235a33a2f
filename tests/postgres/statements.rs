//! The server's log of statements while two companies, whose items have the same ids, use the application. Its role has the
//! documented rights and no others.

use std::sync::atomic::{AtomicUsize, Ordering};

use agent_platform::conversation::{RunClock, RunLease};
use agent_store::copy::{CopyDatabase, copy};
use agent_store::postgres::{PostgresOptions, migrate};
use agentd::stores::Stores;
use futures_util::future::join_all;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{PostgresFixture, note_todos};
use crate::support::cluster::Cluster;
use crate::support::grants::documented_grants;
use crate::support::server::{self, Server, session_token};
use crate::support::statement_log::{self, Numbers, StatementCounts};
use crate::support::vendor::{Step, Vendor, delta, stream_head};
use crate::support::{parse_events, poll_until, read_until, report};

const COMPANIES: [&str; 2] = ["c1", "c2"];
/// Role of the processes.
const ROLE: &str = "agentd";
const CRON_SECRET: &str = "cron-canary-0123456789";
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";

/// Returns a workspace of two companies whose items have the same ids.
fn workspace(base_url: &str) -> Value {
    let mut all = json!({"users": [], "agents": [], "documents": [], "todoLists": []});
    let mut add = |list: &str, item: Value| all[list].as_array_mut().expect("a list").push(item);
    for company in COMPANIES {
        add("users", json!({"id": "u1", "companyId": company, "role": "admin"}));
        for (id, model, approvals) in [
            ("a1", "m", json!([])),
            ("asks", "m", json!([{"tools": ["createTodo"]}])),
            ("held", "held", json!([])),
        ] {
            add(
                "agents",
                json!({"id": id, "name": id, "ownerId": "u1", "companyId": company,
                    "content": {"systemPrompt": "Be brief.", "documentIds": ["d"], "approvals": approvals,
                        "mcpPreset": ["readTodos", "createTodo", "remember", "getDoc"]},
                    "children": [{"name": "EmbeddedAI", "content": {"provider": "openai", "model": model,
                        "baseUrl": base_url, "apiKey": "role-key-canary"}}]}),
            );
        }
        add("documents", json!({"id": "d", "companyId": company, "title": "Hours", "text": "Nine to five."}));
        add("todoLists", json!({"id": "l", "ownerId": "u1", "companyId": company, "name": "L", "todos": []}));
    }
    all
}

/// Starts a server that logs the statements of the processes, which may not change tables.
async fn start(vendor: &Vendor) -> PostgresFixture {
    let cluster = Cluster::start();
    let owner = cluster.url("postgres");
    let url = owner.replace("postgres@", &format!("{ROLE}@"));
    migrate(&owner, &PostgresOptions::default()).await.expect("migrated");
    let fixture = PostgresFixture { cluster, url };
    let admin = fixture.connect().await;
    for sql in [
        format!("CREATE ROLE {ROLE} LOGIN"),
        documented_grants("app", ROLE),
        statement_log::NOTE_NUMBERS.to_owned(),
        statement_log::log_statements_of(ROLE),
    ]
    .into_iter()
    .chain(statement_log::set_log_format())
    {
        admin.batch_execute(&sql).await.expect("set");
    }
    let stores = fixture.open().await;
    let imported = stores.import("the test", &workspace(&vendor.base_url()).to_string()).await;
    imported.expect("imported");
    fixture
}

async fn start_app(fixture: &PostgresFixture) -> Server {
    let url = fixture.url.as_str();
    let config = server::app_config(&[
        ("DATABASE_URL", url),
        ("DATA_SECRET", super::DATA_SECRET),
        ("CRON_SECRET", CRON_SECRET),
    ]);
    server::app_with_config(config, fixture.open().await).await
}

/// A user of a company whose requests go to the processes in turn.
struct User<'a> {
    company: &'static str,
    processes: &'a [Server; 2],
    next: AtomicUsize,
}

impl User<'_> {
    fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        self.processes[turn % 2].request(method, path).bearer_auth(session_token("u1", self.company))
    }

    /// Sends a request that succeeds, with a JSON body unless it is null, and returns the JSON response.
    async fn send(&self, method: &str, path: &str, body: Value) -> Value {
        let request = self.request(method, path);
        let request = if body.is_null() { request } else { request.json(&body) };
        self.response(request, &format!("{method} {path}")).await
    }

    async fn response(&self, request: reqwest::RequestBuilder, what: &str) -> Value {
        let response = request.send().await.expect("an answer");
        let status = response.status();
        let text = response.text().await.expect("a whole body");
        assert!(status.is_success(), "{} {what}: {status} {text}", self.company);
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    /// Reads a path until `condition` holds, since a write of the other process may be seen later.
    async fn wait_for(&self, path: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let fetch = async || {
            let response = self.request("GET", path).send().await.expect("an answer");
            response.json::<Value>().await.unwrap_or_default()
        };
        poll_until(fetch, condition).await
    }

    /// Chats with an agent, and returns the events of the run.
    async fn chat(&self, agent: &str, body: Value) -> Vec<Value> {
        let mut body = body;
        (body["agentId"], body["todoListId"]) = (json!(agent), json!("l"));
        let response = self.request("POST", "/api/agent/chat").json(&body).send().await.expect("an answer");
        let (status, text) = (response.status(), response.text().await.expect("a whole body"));
        assert_eq!(status, 200, "{text}");
        let events = parse_events(&text);
        assert_eq!(events.last().expect("an end")["type"], "RUN_FINISHED", "{text}");
        events
    }
}

/// Writes, reads, searches and deletes documents, memories and files, and changes agents.
async fn use_records(user: &User<'_>) {
    let document = json!({"title": "Prices", "text": "Basil costs two."});
    user.send("PUT", "/api/documents/new", document.clone()).await;
    user.wait_for("/api/documents/new", |found| found["text"].is_string()).await;
    user.send("PUT", "/api/documents/new", json!({"title": "Prices", "text": "Three."})).await;
    for path in ["/api/documents", "/api/documents/new/versions", "/api/agents", "/api/limits", "/api/models"]
    {
        user.send("GET", path, Value::Null).await;
    }
    user.send("PUT", "/api/agents/a1/memories/m", json!({"text": "Grows basil."})).await;
    user.send("GET", "/api/agents/a1/memories", Value::Null).await;
    let upload =
        user.request("POST", "/api/files?name=dot.png").header("content-type", "image/png").body(PNG);
    let file = user.response(upload, "a file").await;
    user.send("GET", "/api/files", Value::Null).await;
    let path = format!("/api/files/{}", file["fileId"].as_str().expect("an id"));
    user.wait_for("/api/files", |list| list.to_string().contains("fileId")).await;
    user.send("DELETE", &path, Value::Null).await;
    user.send("PUT", "/api/providers/own", json!({"type": "openai", "apiKey": "provider-canary"})).await;
    user.send("GET", "/api/providers", Value::Null).await;
    user.send("DELETE", "/api/agents/a1/memories", Value::Null).await;
    user.send("DELETE", "/api/documents/new", Value::Null).await;
    let agent = json!({"name": "Later", "content": {"systemPrompt": "Be brief."}});
    user.send("PUT", "/api/agents/later", agent).await;
    user.send("DELETE", "/api/agents/later", Value::Null).await;
}

/// Chats in threads, rates, forks, erases, exports and deletes them.
async fn use_threads(user: &User<'_>) {
    user.chat("a1", json!({"threadId": "t", "message": "t-first", "runId": "r1"})).await;
    user.chat("a1", json!({"threadId": "t", "message": "Hello", "runId": "r2"})).await;
    let thread = user.send("GET", "/api/threads/t", Value::Null).await;
    let nodes = thread["nodes"].as_array().expect("nodes");
    let node = |position: usize| nodes[position]["id"].as_str().expect("an id");
    let rated = format!("/api/threads/t/messages/{}/feedback", node(nodes.len() - 1));
    user.send("PUT", &rated, json!({"rating": "down", "share": true})).await;
    let feedback = user.send("GET", "/api/agents/a1/feedback", Value::Null).await;
    assert_eq!(feedback["feedback"].as_array().map(Vec::len), Some(1), "{feedback}");
    user.send("DELETE", &rated, Value::Null).await;
    user.send("POST", "/api/threads/t/fork", json!({"id": "fork"})).await;
    user.chat("a1", json!({"threadId": "fork", "message": "Go on"})).await;
    user.send("PATCH", "/api/threads/fork", json!({"archived": true, "head": node(0)})).await;
    let messages = json!([{"role": "user", "content": "Imported"}]);
    user.send("POST", "/api/threads", json!({"id": "own", "agentId": "a1", "messages": messages})).await;
    user.send("POST", "/api/threads/own/messages", json!({"messages": messages})).await;
    user.send("DELETE", &format!("/api/threads/t/messages/{}", node(0)), Value::Null).await;
    for path in [
        "/api/threads",
        "/api/threads/t?messages=tree",
        "/api/threads/t/export",
        "/api/threads/export",
        "/api/runs",
        "/api/runs?threadId=t",
        "/api/runs/r2",
        "/api/runs/r2/events",
        "/api/runs/r2/prompt",
        "/api/runs/r2/bundle",
        "/api/approvals",
    ] {
        user.send("GET", path, Value::Null).await;
    }
    user.send("DELETE", "/api/threads/own", Value::Null).await;
    user.send("DELETE", "/api/threads?agentId=none", Value::Null).await;
}

/// Waits for an approval, cancels a run in the other process, and attaches to one.
async fn use_runs(user: &User<'_>) {
    let events = user.chat("asks", json!({"threadId": "a", "message": "t-asked"})).await;
    let interrupt = events.last().expect("an end")["outcome"]["interrupts"][0].clone();
    let approvals = user.wait_for("/api/approvals", |list| list.to_string().contains("createTodo")).await;
    assert_eq!(approvals["approvals"].as_array().map(Vec::len), Some(1), "{approvals}");
    let resume =
        json!([{"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": true}}]);
    user.chat("asks", json!({"threadId": "a", "messages": [], "resume": resume})).await;

    let body = json!({"agentId": "held", "threadId": "h", "message": "Hello", "runId": "held"});
    let mut running = user.request("POST", "/api/agent/chat").json(&body).send().await.expect("an answer");
    read_until(&mut running, "Partly").await;
    // Requests go to the processes in turn, so one of these is not the run's.
    for _ in 0..2 {
        user.send("POST", "/api/runs/held/cancel", Value::Null).await;
    }
    user.wait_for("/api/runs/held", |run| run["state"] == "cancelled").await;
    drop(running);
    user.send("DELETE", "/api/threads/h", Value::Null).await;
}

/// Chats as a visitor and by the tool server, each with a token.
async fn use_tokens(user: &User<'_>) {
    let path = "/api/agents/a1/tokens";
    let widget = user.send("POST", path, json!({"kind": "widget"})).await;
    let mcp = user.send("POST", path, json!({"kind": "mcp", "todoListId": "l"})).await;
    let text = |token: &Value| token["token"].as_str().expect("a token").to_owned();
    for process in user.processes {
        let request = process.request("POST", "/api/agent/chat").header("x-widget-token", text(&widget));
        user.response(request.json(&json!({"message": "Hello"})), "a visitor's chat").await;
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": "createTodo", "arguments": {"title": "By MCP"}}});
        let request = process.request("POST", &format!("/api/agent/mcp?token={}", text(&mcp))).json(&call);
        let message = user.response(request, "a tool call").await;
        assert!(message["error"].is_null(), "{message}");
    }
    user.wait_for("/api/agent/tools/audit?agentId=a1", |page| page.to_string().contains("createTodo")).await;
    user.send("GET", "/api/agents/a1/threads", Value::Null).await;
    user.send("DELETE", &format!("{path}/{}", widget["id"].as_str().expect("an id")), Value::Null).await;
    user.send("GET", path, Value::Null).await;
}

/// Sets a budget, spends of it, and reads the usage.
async fn use_budgets(user: &User<'_>) {
    let limits = json!({"limits": [{"unit": "tokens", "amount": 1_000_000, "window": "day"}]});
    user.send("PUT", "/api/budgets/agent/a1", limits).await;
    user.chat("a1", json!({"message": "Hello", "runId": "spends", "store": false})).await;
    let booked = |usage: &Value| usage["calls"].as_u64().is_some_and(|calls| calls > 0);
    user.wait_for("/api/usage/runs/spends", booked).await;
    for path in ["/api/usage?groupBy=day,model,user", "/api/budgets", "/api/limits"] {
        user.send("GET", path, Value::Null).await;
    }
    user.send("DELETE", "/api/budgets/agent/a1", Value::Null).await;
}

/// Schedules a tool call of the application's own jobs, which is due at once.
async fn use_jobs(user: &User<'_>) {
    let assignment = json!({"toolId": "createTodo", "todoListId": "l", "arguments": {"title": "Due"},
        "schedule": {"enabled": true, "executeAt": "2026-01-01T00:00:00Z"}});
    user.send("PUT", "/api/agents/a1/assignments/s", assignment).await;
    let cron = user.processes[0].request("GET", "/api/cron?run=true").bearer_auth(CRON_SECRET);
    user.response(cron, "the jobs").await;
    user.send("GET", "/api/agents/a1/assignments", Value::Null).await;
    user.send("DELETE", "/api/agents/a1/assignments/s", Value::Null).await;
}

async fn use_everything(user: User<'_>) {
    use_records(&user).await;
    use_threads(&user).await;
    use_runs(&user).await;
    use_tokens(&user).await;
    use_budgets(&user).await;
    use_jobs(&user).await;
}

/// Does what each process does at intervals: renews its lease, and looks for what has outlived its time.
async fn sweep(stores: &Stores) {
    let (now, conversations) = (Timestamp::now(), &stores.conversations);
    let lease = RunLease { process: "sweeper".to_owned(), until: now };
    conversations.renew_lease(&lease).await.expect("renewed");
    conversations.take_signals("sweeper", now).await.expect("taken");
    conversations.due_runs(now, None).await.expect("read");
    conversations.scan_threads(None).await.expect("read");
    conversations.trim_logs(now).await.expect("trimmed");
    conversations.reap(RunClock { now, log_until: now }).await.expect("reaped");
    stores.usage.trim_usage(now).await.expect("trimmed");
    stores.records.companies(None).await.expect("read");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_statement_on_tenant_tables_binds_the_company() {
    let vendor = Vendor::start().await;
    note_todos(&vendor);
    let gate = watch::Sender::new(false);
    let steps = vec![stream_head(), delta(json!({"content": "Partly"})), Step::Until(gate.subscribe())];
    vendor.on("held", [steps]);
    let fixture = start(&vendor).await;
    let processes = [start_app(&fixture).await, start_app(&fixture).await];
    let user = |company| User { company, processes: &processes, next: AtomicUsize::new(0) };
    join_all(COMPANIES.map(|company| use_everything(user(company)))).await;
    sweep(&fixture.open().await).await;

    let admin = fixture.connect().await;
    let mut numbers = Numbers::default();
    for row in admin.query(statement_log::SELECT_NUMBERS, &[]).await.expect("read") {
        numbers.add("postgres", row.get(0), row.get(1), row.get(2));
    }
    let counts = StatementCounts::of(&fixture.cluster.log_text(), &numbers);
    counts.check();
    report(&format!(
        "{} statements on tenant tables: {} bind the company, {} a number of the company, exceptions {:?}",
        counts.total(),
        counts.by_company,
        counts.by_number,
        counts.exceptions
    ));
    let companies: Vec<&str> = counts.companies.iter().map(String::as_str).collect();
    assert_eq!(companies, ["", "c1", "c2"], "the platform and the companies");
    let tables = admin.query(statement_log::SELECT_TABLES, &[]).await.expect("read");
    let tables: Vec<String> = tables.iter().map(|row| row.get(0)).collect();
    statement_log::check_tables(&tables);
    let unused: Vec<_> =
        tables.iter().filter(|table| *table != "schema_version" && !counts.tables.contains(*table)).collect();
    assert!(unused.is_empty(), "no statement names {unused:?}");
    back_up(&fixture).await;
}

/// Copies the database into a file, as `agentd backup` does. The role of the processes may.
async fn back_up(fixture: &PostgresFixture) {
    let folder = tempfile::tempdir().expect("a folder");
    let (from, to) = (fixture.url.clone(), folder.path().join("backup.db"));
    let copied = copy(&CopyDatabase::Postgres(from), &CopyDatabase::Sqlite(to)).await;
    assert!(copied.expect("the documented rights suffice").records > 0);
}
