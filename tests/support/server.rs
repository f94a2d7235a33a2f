//! Starts the services in this process, on free ports, configured as an operator would.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use agent_core::job::JobStore;
use agent_core::secret::Secret;
use agent_http::auth::mint_session;
use agent_http::config::{AppConfig, Flags, RuntimeConfig, SchedulerConfig};
use agentd::run::{self, Stop};
use agentd::stores::Stores;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The secret that sessions are signed with.
pub const SESSION_SECRET: &str = "session-canary-0123456789";
/// The secret of proactive calls.
pub const INTERNAL_SECRET: &str = "internal-canary-0123456789";

/// A service that runs until it is dropped.
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Server {
    /// An address below the server.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// A request for a path, by a client of its own.
    pub fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let method = method.parse().expect("a method");
        super::client().request(method, self.url(path))
    }

    /// Tells the service to stop, as a signal does.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until the service has stopped.
    pub async fn stopped(self) {
        self.task.await.expect("it does not panic");
    }

    /// Posts JSON to the chat entry as the user `u1` of the company `c1`.
    pub async fn chat(&self, body: &Value) -> reqwest::Response {
        self.chat_as(&session("u1", "c1"), "", body).await
    }

    /// Posts JSON to the chat entry with a bearer and a query.
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

/// The application with a workspace, reaching loopback, and `settings` over the defaults.
pub async fn app(workspace: &Value, settings: &[(&str, &str)]) -> Server {
    app_over(stores(workspace).await, settings).await
}

/// Stores with a workspace, for tests that look at them beside the application.
pub async fn stores(workspace: &Value) -> Stores {
    Stores::in_memory("the test's workspace", &workspace.to_string()).await.expect("it is right")
}

/// The application over stores, likewise.
pub async fn app_over(stores: Stores, settings: &[(&str, &str)]) -> Server {
    app_of(app_config(settings), stores).await
}

/// The configuration of an application that reaches loopback, with `settings` over the defaults.
pub fn app_config(settings: &[(&str, &str)]) -> AppConfig {
    let mut env = BTreeMap::from([
        ("PORT", "0"),
        ("SESSION_SECRET", SESSION_SECRET),
        ("INTERNAL_SECRET", INTERNAL_SECRET),
        ("OUTBOUND_ALLOW", "127.0.0.0/8"),
    ]);
    env.extend(settings.iter().copied());
    AppConfig::load(&Flags::default(), &env).expect("the settings are right")
}

/// The application with a configuration, over stores.
pub async fn app_of(config: AppConfig, stores: Stores) -> Server {
    let listener = run::listen(config.server.listen).await.expect("a free port");
    let address = listener.local_addr().expect("it listens");
    let (stopper, stop) = Stop::by_hand();
    let task = tokio::spawn(async move {
        run::serve_app(&config, listener, stores, None, stop).await.expect("the application serves");
    });
    Server { address, stop: stopper, task }
}

/// The agent runtime, reaching loopback, and `settings` over the defaults.
pub async fn runtime(settings: &[(&str, &str)]) -> Server {
    runtime_of(runtime_config(settings)).await
}

/// The configuration of an agent runtime that reaches loopback, with `settings` over the defaults.
pub fn runtime_config(settings: &[(&str, &str)]) -> RuntimeConfig {
    let mut env = BTreeMap::from([("PORT", "0"), ("OUTBOUND_ALLOW", "127.0.0.0/8")]);
    env.extend(settings.iter().copied());
    RuntimeConfig::load(&Flags::default(), &env).expect("the settings are right")
}

/// The agent runtime with a configuration.
pub async fn runtime_of(config: RuntimeConfig) -> Server {
    let listener = run::listen(config.server.listen).await.expect("a free port");
    let address = listener.local_addr().expect("it listens");
    let (stopper, stop) = Stop::by_hand();
    let task = tokio::spawn(async move {
        run::serve_runtime(&config, listener, stop).await.expect("the runtime serves");
    });
    Server { address, stop: stopper, task }
}

/// The scheduler's secret.
pub const PULSE_SECRET: &str = "pulse-canary-0123456789";

/// The scheduler over a store, which delivers to `callback`, and `settings` over the defaults.
pub async fn scheduler(jobs: Arc<dyn JobStore>, callback: &str, settings: &[(&str, &str)]) -> Server {
    let mut env = BTreeMap::from([("PORT", "0"), ("PULSE_SECRET", PULSE_SECRET), ("CALLBACK_URL", callback)]);
    env.extend(settings.iter().copied());
    let config = SchedulerConfig::load(&Flags::default(), &env).expect("the settings are right");
    let listener = run::listen(config.listen).await.expect("a free port");
    let address = listener.local_addr().expect("it listens");
    let (stopper, stop) = Stop::by_hand();
    let task = tokio::spawn(async move {
        run::serve_scheduler(&config, listener, jobs, "test", stop).await.expect("the scheduler serves");
    });
    Server { address, stop: stopper, task }
}

/// A session token.
pub fn session(user: &str, company: &str) -> String {
    let secret = Secret::new(SESSION_SECRET);
    mint_session(&secret, user, company, Duration::from_secs(600)).expect("the claims are right")
}
