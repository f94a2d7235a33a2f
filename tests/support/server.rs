//! Starts the services in this process on free ports, configured by settings as in production.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use agent_core::secret::Secret;
use agent_core::tool::ExecutionContext;
use agent_http::auth::mint_session;
use agent_http::shutdown::Shutdown;
use agent_jobs::job::JobStore;
use agent_platform::records::Precondition;
use agent_platform::roles::RoleStore as _;
use agent_platform::workspace::{WorkspaceFile, get_todo_list};
use agentd::config::{AppConfig, Flags, RuntimeConfig, SchedulerConfig};
use agentd::run;
use agentd::stores::Stores;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Secret that signs session tokens (`SESSION_SECRET`).
pub const SESSION_SECRET: &str = "session-canary-0123456789";
/// Secret of proactive calls (`INTERNAL_SECRET`).
pub const INTERNAL_SECRET: &str = "internal-canary-0123456789";

/// A running service; stops when dropped.
pub struct Server {
    pub address: SocketAddr,
    shutdown: Shutdown,
    task: JoinHandle<()>,
}

impl Server {
    /// Returns the URL of a path on the server.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Builds a request for a path, with a new HTTP client.
    pub fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let method = method.parse().expect("a method");
        super::client().request(method, self.url(path))
    }

    /// Requests a graceful shutdown, as a signal does.
    pub fn stop(&self) {
        self.shutdown.begin();
    }

    /// Ends the remaining requests, as a second signal does.
    pub fn end(&self) {
        self.shutdown.end();
    }

    /// Waits until the service has stopped.
    pub async fn stopped(mut self) {
        (&mut self.task).await.expect("it does not panic");
    }

    /// Posts JSON to the chat endpoint as user `u1` of company `c1`.
    pub async fn chat(&self, body: &Value) -> reqwest::Response {
        self.chat_as(&session_token("u1", "c1"), "", body).await
    }

    /// Posts JSON to the chat endpoint with a bearer token and a query string.
    pub async fn chat_as(&self, bearer: &str, query: &str, body: &Value) -> reqwest::Response {
        let url = self.url(&format!("/api/agent/chat{query}"));
        super::client()
            .post(url)
            .bearer_auth(bearer)
            .json(body)
            .send()
            .await
            .expect("the application answers")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown.begin();
    }
}

/// Starts the application with a workspace; loopback is allowed, and `settings` override the defaults.
pub async fn app(workspace: &Value, settings: &[(&str, &str)]) -> Server {
    app_with_stores(stores(workspace).await, settings).await
}

/// Creates in-memory stores with a workspace, for tests that also read the stores directly.
pub async fn stores(workspace: &Value) -> Stores {
    let stores = Stores::in_memory("an empty workspace", "{}").await.expect("a valid workspace");
    // Not checked as an import, so that agents can have names that only stored roles have.
    let file = WorkspaceFile::parse_stored(&workspace.to_string()).expect("a valid workspace");
    file.apply(&stores.roles).await.expect("the workspace is imported");
    stores
}

/// Stores an agent whatever it names, also if a workspace file may not have it.
pub async fn store_agent(stores: &Stores, agent: Value) {
    let role = serde_json::from_value(agent).expect("a role");
    stores.roles.put_role(role, Precondition::Any).await.expect("stored");
}

/// Starts the application over `stores`; loopback is allowed, and `settings` override the defaults.
pub async fn app_with_stores(stores: Stores, settings: &[(&str, &str)]) -> Server {
    app_with_config(app_config(settings), stores).await
}

/// Returns an application configuration in which loopback is allowed and `settings` override the defaults.
pub fn app_config(settings: &[(&str, &str)]) -> AppConfig {
    let mut env = BTreeMap::from([
        ("PORT", "0"),
        ("SESSION_SECRET", SESSION_SECRET),
        ("INTERNAL_SECRET", INTERNAL_SECRET),
        ("OUTBOUND_ALLOW", "127.0.0.0/8"),
        // Each failure is seen once; the tests of repeated calls set it.
        ("MODEL_ATTEMPTS", "1"),
        // Far more than a test can reach; the tests of these limits set them.
        ("RUNS_PER_MINUTE", "1000000"),
        ("CHANGES_PER_MINUTE", "1000000"),
        ("RUNS_PER_MINUTE_COMPANY", "0"),
        ("CONCURRENT_RUNS_COMPANY", "0"),
        ("TOOL_CALLS_PER_RUN", "0"),
    ]);
    env.extend(settings.iter().copied());
    AppConfig::load(&Flags::default(), &env).expect("the settings are right")
}

/// Starts the application with a configuration over `stores`.
pub async fn app_with_config(config: AppConfig, stores: Stores) -> Server {
    let listener = run::listen(config.server.listen).await.expect("a free port");
    serve_app(listener, config, stores)
}

/// Binds a free port for an application whose address others must have before it starts. Nothing else can take the port.
pub async fn bind() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.expect("a free port")
}

/// Starts the application as [`app_with_stores`] does, on a listener.
pub fn app_on(listener: TcpListener, stores: Stores, settings: &[(&str, &str)]) -> Server {
    serve_app(listener, app_config(settings), stores)
}

fn serve_app(listener: TcpListener, config: AppConfig, stores: Stores) -> Server {
    let address = listener.local_addr().expect("a bound listener");
    let shutdown = Shutdown::default();
    let task = tokio::spawn({
        let shutdown = shutdown.clone();
        async move {
            run::serve_app(&config, listener, stores, None, shutdown).await.expect("the application serves");
        }
    });
    Server { address, shutdown, task }
}

/// Starts the agent runtime; loopback is allowed, and `settings` override the defaults.
pub async fn runtime(settings: &[(&str, &str)]) -> Server {
    runtime_with_config(runtime_config(settings)).await
}

/// Returns a runtime configuration in which loopback is allowed and `settings` override the defaults.
pub fn runtime_config(settings: &[(&str, &str)]) -> RuntimeConfig {
    let mut env = BTreeMap::from([("PORT", "0"), ("OUTBOUND_ALLOW", "127.0.0.0/8")]);
    env.extend(settings.iter().copied());
    RuntimeConfig::load(&Flags::default(), &env).expect("the settings are right")
}

/// Starts the agent runtime with a configuration.
pub async fn runtime_with_config(config: RuntimeConfig) -> Server {
    let listener = run::listen(config.server.listen).await.expect("a free port");
    let address = listener.local_addr().expect("a bound listener");
    let shutdown = Shutdown::default();
    let task = tokio::spawn({
        let shutdown = shutdown.clone();
        async move {
            run::serve_runtime(&config, listener, shutdown).await.expect("the runtime serves");
        }
    });
    Server { address, shutdown, task }
}

/// Secret shared by the application and the scheduler (`PULSE_SECRET`).
pub const PULSE_SECRET: &str = "pulse-canary-0123456789";

/// Starts the scheduler over a store, with `callback` as its delivery URL; `settings` override the defaults.
pub async fn scheduler(jobs: Arc<dyn JobStore>, callback: &str, settings: &[(&str, &str)]) -> Server {
    let mut env = BTreeMap::from([("PORT", "0"), ("PULSE_SECRET", PULSE_SECRET), ("CALLBACK_URL", callback)]);
    env.extend(settings.iter().copied());
    let config = SchedulerConfig::load(&Flags::default(), &env).expect("the settings are right");
    let listener = run::listen(config.listen).await.expect("a free port");
    let address = listener.local_addr().expect("a bound listener");
    let shutdown = Shutdown::default();
    let task = tokio::spawn({
        let shutdown = shutdown.clone();
        async move {
            run::serve_scheduler(&config, listener, jobs, "test", shutdown)
                .await
                .expect("the scheduler serves");
        }
    });
    Server { address, shutdown, task }
}

/// Mints a session token that is valid for ten minutes.
pub fn session_token(user: &str, company: &str) -> String {
    let secret = Secret::new(SESSION_SECRET);
    mint_session(&secret, &user.into(), &company.into(), Duration::from_secs(3_600))
        .expect("the claims are right")
}

/// Returns the titles of a todo list of the user `u1`, in their order.
pub async fn todo_titles(stores: &Stores, list: &str) -> Vec<String> {
    let context = ExecutionContext {
        user_id: "u1".into(),
        company_id: "c1".into(),
        todo_list_id: Some(list.to_owned()),
        ..ExecutionContext::default()
    };
    let list = get_todo_list(&*stores.records, &context).await.expect("it is there");
    list.todos.into_iter().map(|todo| todo.title).collect()
}
