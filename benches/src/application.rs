//! The application over a chosen store, as a process or within the benchmark, and the chats that it is sent.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use agent_core::secret::Secret;
use agent_http::auth::mint_session;
use agentd::config::{AppConfig, Flags};
use anyhow::Result;
use serde_json::{Value, json};

use crate::answer::Behaviour;
use crate::load::Step;
use crate::process::Process;
use crate::subjects::{
    API_KEY, Bench, COMPANY, DATA_SECRET, MESSAGE, RunningSubject, SESSION_SECRET, TODO_LIST, TOKEN_TTL,
    UNLIMITED, USER, WORKER_THREADS, application_exchange, post, role, workspace_of,
};
use crate::wire::{Expected, Wire};

/// The only behaviour of the agent in [`Bench::workspace`].
const BEHAVIOUR: Behaviour = Behaviour::First;
/// Settings that limit the rate of requests, which the load would exceed.
const RATE_SETTINGS: [&str; 5] = [
    "MCP_REQUESTS_PER_MINUTE",
    "RUNS_PER_MINUTE",
    "RUNS_PER_MINUTE_COMPANY",
    "CONCURRENT_RUNS_COMPANY",
    "CHANGES_PER_MINUTE",
];

/// Store of an application.
#[derive(Clone, Copy, Debug)]
pub enum StoreKind<'u> {
    /// Memory of the process.
    Memory,
    /// A new SQLite file.
    Sqlite,
    /// The database with this URL, of either kind.
    Database(&'u str),
}

impl Bench {
    /// Returns the workspace of an agent with two documents and a memory of its user.
    pub fn workspace(&self) -> Value {
        let container = self.model_container(BEHAVIOUR);
        let content = json!({"documentIds": ["hours", "prices"]});
        let children = json!([{"name": "EmbeddedAI", "content": container}]);
        let mut workspace = workspace_of(vec![role(BEHAVIOUR, content, children)]);
        let text =
            |id: &str| json!({"id": id, "companyId": COMPANY, "title": id, "text": "Some text. ".repeat(40)});
        workspace["documents"] = json!([text("hours"), text("prices")]);
        workspace["memories"] = json!([{
            "id": "m", "companyId": COMPANY, "agentId": agent_id(), "userId": USER, "text": "Likes tea.",
        }]);
        workspace
    }

    /// Returns the container of the vendor's model with a behaviour.
    fn model_container(&self, behaviour: Behaviour) -> Value {
        json!({
            "provider": "openai", "model": behaviour.to_string(), "baseUrl": self.vendor_url(), "apiKey": API_KEY,
        })
    }

    /// Returns the workspace of an agent for each behaviour, whose backend is the vendor's model with further settings.
    pub fn models_workspace(&self, behaviours: &[Behaviour], content: &Value, settings: &Value) -> Value {
        let agents = behaviours.iter().map(|behaviour| {
            let mut container = self.model_container(*behaviour);
            for (name, value) in settings.as_object().into_iter().flatten() {
                container[name] = value.clone();
            }
            role(*behaviour, content.clone(), json!([{"name": "EmbeddedAI", "content": container}]))
        });
        workspace_of(agents.collect())
    }

    /// Starts the application, `app_over`, in memory with a workspace.
    ///
    /// # Errors
    /// The application could not be started.
    pub fn start_workspace(&self, workspace: &Value, app_over: &Path) -> Result<RunningSubject> {
        self.start_workspace_over(StoreKind::Memory, workspace, app_over)
    }

    /// Starts the application, `app_over`, over a store with a workspace.
    ///
    /// # Errors
    /// The application could not be started.
    pub fn start_workspace_over(
        &self,
        store: StoreKind<'_>,
        workspace: &Value,
        app_over: &Path,
    ) -> Result<RunningSubject> {
        let file = self.file(workspace)?;
        self.start_app_over(store, app_over, Some(&file), WORKER_THREADS)
    }

    /// Starts the application, `app_over`, over a store with the [workspace](Self::workspace).
    ///
    /// # Errors
    /// The application could not be started.
    pub fn start_over(&self, store: StoreKind<'_>, app_over: &Path) -> Result<RunningSubject> {
        self.start_workspace_over(store, &self.workspace(), app_over)
    }

    /// Starts the application, `app_over`, with a number of worker threads over a database as it is, of either kind.
    ///
    /// # Errors
    /// The application could not be started.
    pub fn start_replica(&self, url: &str, app_over: &Path, worker_threads: &str) -> Result<RunningSubject> {
        self.start_app_over(StoreKind::Database(url), app_over, None, worker_threads)
    }

    fn start_app_over(
        &self,
        store: StoreKind<'_>,
        app_over: &Path,
        workspace: Option<&Path>,
        worker_threads: &str,
    ) -> Result<RunningSubject> {
        let mut command = Command::new(app_over);
        command.arg(if matches!(store, StoreKind::Memory) { "memory" } else { "database" }).args(workspace);
        command.env_clear().envs(self.application_settings()).env("TOKIO_WORKER_THREADS", worker_threads);
        if let StoreKind::Database(url) = store {
            command.env("DATABASE_URL", url);
        }
        command.current_dir(tempfile::tempdir_in(self.scratch.path())?.keep());
        let (process, address) = Process::start_announced(command, self.scratch.path())?;
        let exchange = application_exchange(session(COMPANY)?);
        Ok(RunningSubject { processes: vec![process], address, exchange })
    }

    /// Returns the configuration of an application within the benchmark, over a PostgreSQL database.
    ///
    /// # Errors
    /// A setting is invalid.
    pub fn application_config(&self, url: &str) -> Result<AppConfig> {
        let mut settings = self.application_settings();
        settings.insert("DATABASE_URL", url.to_owned());
        let settings: BTreeMap<&str, &str> =
            settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
        Ok(AppConfig::load(&Flags::default(), &settings)?)
    }

    fn application_settings(&self) -> BTreeMap<&'static str, String> {
        let mut settings: BTreeMap<_, _> =
            RATE_SETTINGS.map(|setting| (setting, UNLIMITED.to_owned())).into();
        settings.insert("SESSION_SECRET", SESSION_SECRET.to_owned());
        settings.insert("DATA_SECRET", DATA_SECRET.to_owned());
        settings.insert("PORT", "0".to_owned());
        settings.insert("OUTBOUND_ALLOW", self.upstream.to_string());
        settings
    }
}

/// Returns the id of the agent in [`Bench::workspace`].
pub fn agent_id() -> String {
    format!("agent-{BEHAVIOUR}")
}

/// Returns the id of the company in [`Bench::workspace`].
pub fn company_id() -> &'static str {
    COMPANY
}

/// Returns the id of the user of [`session`].
pub fn user_id() -> &'static str {
    USER
}

/// Creates a session token of a user of this company.
///
/// # Errors
/// The company's id is invalid.
pub fn session(company: &str) -> Result<String> {
    Ok(mint_session(&Secret::new(SESSION_SECRET), &USER.into(), &company.into(), TOKEN_TTL)?)
}

/// Credential of a chat.
#[derive(Clone, Copy, Debug)]
pub enum ChatCredential<'t> {
    /// A session token.
    Session(&'t str),
    /// A widget token.
    Widget(&'t str),
}

/// Returns a chat with the agent of [`Bench::workspace`], with the run id that the client chose, if it chose one.
pub fn chat(credential: ChatCredential<'_>, run_id: Option<&str>) -> Step {
    let mut body = json!({});
    if let Some(run_id) = run_id {
        body["runId"] = run_id.into();
    }
    chat_with(credential, body)
}

/// Returns a chat with the agent of [`Bench::workspace`] and these further members of the request.
pub fn chat_with(credential: ChatCredential<'_>, mut body: Value) -> Step {
    body["agentId"] = agent_id().into();
    body["message"] = MESSAGE.into();
    let header = match credential {
        ChatCredential::Session(token) => {
            body["todoListId"] = TODO_LIST.into();
            format!("authorization: Bearer {token}\r\n")
        }
        ChatCredential::Widget(token) => format!("x-widget-token: {token}\r\n"),
    };
    let request = post("/api/agent/chat", "application/x-ndjson", &header, &body);
    let expected = Expected { text: BEHAVIOUR.text(), ..Expected::default() };
    Step { request, wire: Wire::AgUi, expected }
}

/// Returns a chat with the agent of a behaviour in [`Bench::models_workspace`] and these further members of the request.
pub fn model_chat(token: &str, behaviour: Behaviour, mut body: Value) -> Step {
    body["agentId"] = format!("agent-{behaviour}").into();
    body["message"] = MESSAGE.into();
    let credential = format!("authorization: Bearer {token}\r\n");
    let request = post("/api/agent/chat", "application/x-ndjson", &credential, &body);
    let expected = Expected { text: behaviour.text(), ..Expected::default() };
    Step { request, wire: Wire::AgUi, expected }
}

/// Returns a request of the log of a run with a behaviour's answer, from its first event to its end.
pub fn run_log(token: &str, run_id: &str, behaviour: Behaviour) -> Step {
    let request = format!(
        "GET /api/runs/{run_id}/events HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: application/x-ndjson\r\n\
         authorization: Bearer {token}\r\n\r\n"
    )
    .into_bytes();
    let expected = Expected { text: behaviour.text(), ..Expected::default() };
    Step { request, wire: Wire::AgUi, expected }
}

/// Returns a request that cancels a run.
pub fn cancel_run(token: &str, run_id: &str) -> Vec<u8> {
    format!(
        "POST /api/runs/{run_id}/cancel HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\n\
         content-length: 0\r\n\r\n"
    )
    .into_bytes()
}

/// Returns a chat in which a user asks the agent of [`Bench::workspace`] a question.
pub fn question(token: &str, text: &str) -> Step {
    let body = json!({"agentId": agent_id(), "message": text});
    let credential = format!("authorization: Bearer {token}\r\n");
    let request = post("/api/agent/chat", "application/x-ndjson", &credential, &body);
    let expected = Expected { text: BEHAVIOUR.text(), ..Expected::default() };
    Step { request, wire: Wire::AgUi, expected }
}

/// Returns a request that shows the retrieval of the agent of [`Bench::workspace`] for a query.
pub fn retrieval(token: &str, query: &str) -> Vec<u8> {
    let credential = format!("authorization: Bearer {token}\r\n");
    let path = format!("/api/agents/{}/retrieve", agent_id());
    post(&path, "application/json", &credential, &json!({"query": query}))
}

/// Returns a request of a page of 50 documents, after the document `after`.
pub fn list_documents(address: SocketAddr, token: &str, after: &str) -> Vec<u8> {
    let cursor = match after {
        "" => String::new(),
        after => format!("&cursor={}", hex::encode(after)),
    };
    format!(
        "GET /api/documents?limit=50{cursor} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\r\n"
    )
    .into_bytes()
}
