//! The application over PostgreSQL: outages and failovers of the server, a pooler in between, and several processes of
//! which one is killed or replaced at a time.

mod failover;
mod held;
mod kill;
mod migration;
mod outage;
mod pooler;
mod statements;
mod upgrade;

use agent_platform::workspace::WorkspaceFile;
use agentd::config::AppConfig;
use agentd::stores::Stores;
use serde_json::{Value, json};

use crate::support::cluster::Cluster;
use crate::support::parse_run;
use crate::support::process::AppProcess;
use crate::support::server::{self, Server, session_token};
use crate::support::vendor::{Vendor, answer, tool_calls};

/// Secret that seals secrets and run tokens (`DATA_SECRET`).
const DATA_SECRET: &str = "data-secret-canary";

/// Settings of a process without the limits that a load of one user reaches.
const UNLIMITED: [(&str, &str); 7] = [
    ("DATA_SECRET", DATA_SECRET),
    ("OUTBOUND_ALLOW", "127.0.0.0/8"),
    ("RUNS_PER_MINUTE", "1000000"),
    ("RUNS_PER_MINUTE_COMPANY", "0"),
    ("CONCURRENT_RUNS_COMPANY", "0"),
    ("CHANGES_PER_MINUTE", "1000000"),
    ("MAX_DOCUMENTS", "100000"),
];

/// Starts an application as a child process with the settings [`UNLIMITED`]; `settings` are added.
async fn start_process(url: &str, port: u16, settings: &[(&str, &str)]) -> AppProcess {
    AppProcess::start(url, port, &[&UNLIMITED, settings].concat()).await
}

/// A PostgreSQL server with the application's database.
struct PostgresFixture {
    cluster: Cluster,
    url: String,
}

impl PostgresFixture {
    /// Starts a server and imports a workspace.
    async fn start(workspace: &Value) -> Self {
        let cluster = Cluster::start();
        let url = cluster.url("postgres");
        Self::create(cluster, url, workspace).await
    }

    /// Imports a workspace into an empty database of a server.
    async fn create(cluster: Cluster, url: String, workspace: &Value) -> Self {
        let fixture = Self { cluster, url };
        let file = WorkspaceFile::parse_stored(&workspace.to_string()).expect("a valid workspace");
        file.apply(&fixture.open().await.roles).await.expect("the workspace is imported");
        fixture
    }

    fn config(&self) -> AppConfig {
        server::app_config(&[("DATABASE_URL", self.url.as_str()), ("DATA_SECRET", DATA_SECRET)])
    }

    /// Opens separate stores, as another process does.
    async fn open(&self) -> Stores {
        Stores::open(&self.config()).await.expect("the store opens")
    }

    /// Starts an application with separate stores.
    async fn start_app(&self) -> Server {
        server::app_with_config(self.config(), self.open().await).await
    }

    /// Opens a connection to the server.
    async fn connect(&self) -> tokio_postgres::Client {
        let url = self.cluster.url("postgres");
        let connecting = tokio_postgres::connect(&url, tokio_postgres::NoTls);
        let (client, connection) = connecting.await.expect("a connection");
        tokio::spawn(async move { drop(connection.await) });
        client
    }
}

/// Sends a request of the user `u1`, with a JSON body if there is one.
async fn send(app: &Server, method: &str, path: &str, body: Option<&Value>) -> reqwest::Response {
    let request = app.request(method, path).bearer_auth(session_token("u1", "c1"));
    let request = body.into_iter().fold(request, |request, body| request.json(body));
    request.send().await.expect("the application answers")
}

/// Writes a document, which is acknowledged.
async fn put_document(app: &Server, id: &str, text: &str) {
    let body = json!({"title": id, "text": text});
    let response = send(app, "PUT", &format!("/api/documents/{id}"), Some(&body)).await;
    let status = response.status();
    assert!(status.is_success(), "{status} {}", response.text().await.unwrap_or_default());
}

/// Returns the text of a document; `None` if there is none.
async fn document_text(app: &Server, id: &str) -> Option<String> {
    let response = send(app, "GET", &format!("/api/documents/{id}"), None).await;
    if response.status() == 404 {
        return None;
    }
    assert_eq!(response.status(), 200);
    let document: Value = response.json().await.expect("JSON");
    Some(document["text"].as_str().expect("text").to_owned())
}

/// Lets the model of every agent create a todo with the word of the message that begins with `t-`.
fn note_todos(vendor: &Vendor) {
    vendor.on_all_with(|request: &Value| {
        let last = request["messages"].as_array().and_then(|messages| messages.last()).cloned();
        let last = last.unwrap_or_default();
        if last["role"] == "tool" {
            return answer(&["Noted."]);
        }
        // The time of the turn is beside the message.
        let text = last["content"].as_str().unwrap_or_default();
        let mut words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-');
        match words.find(|word| word.starts_with("t-")) {
            Some(title) => tool_calls(&[("call-1", "createTodo", &json!({"title": title}).to_string())]),
            None => answer(&["Hello."]),
        }
    });
}

/// Chats once and requires that the run finishes.
async fn finish_chat(app: &Server, body: &Value) {
    let response = app.chat(body).await;
    let (status, text) = (response.status(), response.text().await.expect("a whole body"));
    assert_eq!(status, 200, "{text}");
    assert_eq!(parse_run(&text).last().expect("an end")["type"], "RUN_FINISHED", "{text}");
}
