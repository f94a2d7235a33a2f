//! A whole installation of subscriptions: application, runtime, issuer and vendor.

use agent_client::device_auth::DeviceAuthDialect;
use agentd::stores::Stores;
use reqwest::Response;
use serde_json::{Value, json};

use crate::support::issuer::FakeIssuer;
use crate::support::responses_vendor::ResponsesVendor;
use crate::support::server::{self, Server, session_token};
use crate::support::{parse_run, poll_until};

pub const RUNTIME_SECRET: &str = "runtime-canary-0123456789";
/// Model of the agents in [`workspace`].
pub const MODEL: &str = "coder";
/// Parts of every secret of the sign-in and of the services.
pub const CANARIES: [&str; 2] = ["canary", "agd_v1."];

/// The servers of an installation.
pub struct Installation {
    pub issuer: FakeIssuer,
    pub vendor: ResponsesVendor,
    pub runtime: Server,
    pub app: Server,
    pub stores: Stores,
}

/// Settings of an installation, in addition to the settings that connect its servers.
#[derive(Clone, Copy)]
pub struct InstallationSettings<'a> {
    pub dialect: DeviceAuthDialect,
    pub app: &'a [(&'a str, &'a str)],
    pub runtime: &'a [(&'a str, &'a str)],
}

impl Default for InstallationSettings<'_> {
    fn default() -> Self {
        Self { dialect: DeviceAuthDialect::Rfc8628, app: &[], runtime: &[] }
    }
}

/// Opens an installation with the agents of [`workspace`], and further settings of the application.
pub async fn open(settings: &[(&str, &str)]) -> Installation {
    let settings = InstallationSettings { app: settings, ..InstallationSettings::default() };
    open_over(server::stores(&workspace()).await, settings).await
}

/// Opens an installation over stores.
pub async fn open_over(stores: Stores, settings: InstallationSettings<'_>) -> Installation {
    let (issuer, vendor) =
        (FakeIssuer::start(settings.dialect).await, ResponsesVendor::start_for_subscriptions().await);
    issuer.set_interval(1, false);
    let settings_of_app = [
        vec![
            ("RUNTIME_SECRET", RUNTIME_SECRET.to_owned()),
            ("CODING_API_URL", format!("{}/responses", vendor.base_url())),
        ],
        issuer.settings(),
    ]
    .concat();
    let settings_of_app: Vec<_> =
        settings_of_app.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let runtime = server::runtime(&[&settings_of_app, settings.runtime].concat()).await;
    let app = start_app(&runtime, &stores, settings.app).await;
    Installation { issuer, vendor, runtime, app, stores }
}

async fn start_app(runtime: &Server, stores: &Stores, settings: &[(&str, &str)]) -> Server {
    let url = runtime.url("");
    let runtime_settings = [("RUNTIME_URL", &*url), ("RUNTIME_SECRET", RUNTIME_SECRET)];
    server::app_with_stores(stores.clone(), &[&runtime_settings, settings].concat()).await
}

/// Returns the container of an agent that answers by the subscription.
pub fn container(content: Value) -> Value {
    json!([{"name": "SubscriptionConnector", "content": content}])
}

/// Returns the workspace of two users and two agents, both of which belong to `u2`.
pub fn workspace() -> Value {
    let content = json!({"systemPrompt": "Be brief.", "mcpPreset": ["readTodos", "createTodo"],
        "widgetTools": []});
    json!({
        "users": [{"id": "u1", "companyId": "c1"}, {"id": "u2", "companyId": "c1"}],
        "agents": [
            {"id": "a1", "name": "Coder", "ownerId": "u2", "companyId": "c1", "content": content,
                "children": container(json!({"model": MODEL}))},
            {"id": "own-words", "name": "Coder", "ownerId": "u2", "companyId": "c1", "content": content,
                "children": container(json!({"model": MODEL, "instructions": "You are a vendor's agent."}))},
        ],
        "todoLists": [{"id": "l1", "ownerId": "u1", "companyId": "c1", "name": "Mine", "todos": [
            {"id": "t1", "title": "Water the basil", "done": false}]}]
    })
}

/// Returns the workspace with one agent for each model, which is named like its model.
pub fn workspace_of_models(models: &[&str]) -> Value {
    let mut all = workspace();
    let template = all["agents"][0].clone();
    let agents = models.iter().map(|model| {
        let mut agent = template.clone();
        agent["id"] = json!(model);
        agent["children"] = container(json!({"model": model}));
        agent
    });
    all["agents"] = agents.collect();
    all
}

impl Installation {
    /// Starts another process of the application over the same stores.
    pub async fn start_app(&self) -> Server {
        start_app(&self.runtime, &self.stores, &[]).await
    }

    pub async fn send(&self, user: &str, method: &str, path: &str) -> Response {
        let request = self.app.request(method, path).bearer_auth(session_token(user, "c1"));
        request.send().await.expect("an answer")
    }

    /// Signs a user in, as the person does who enters the code.
    pub async fn sign_in(&self, user: &str) {
        let begun: Value = self.send(user, "POST", "/api/coding/sign-in").await.json().await.expect("JSON");
        self.issuer.approve(begun["userCode"].as_str().expect("a code"));
        let path = format!("/api/coding/sign-in/{}", begun["signInId"].as_str().expect("an id"));
        let fetch = async || self.send(user, "GET", &path).await.json::<Value>().await.expect("JSON");
        poll_until(fetch, |status| status["status"] == "complete").await;
    }

    pub async fn chat(&self, user: &str, body: Value) -> Response {
        self.app.chat_as(&session_token(user, "c1"), "", &body).await
    }

    /// Asks the agent as a user, and returns the events of the run.
    pub async fn run(&self, user: &str, agent: &str) -> Vec<Value> {
        let response = self.chat(user, question(agent)).await;
        let status = response.status();
        let body = response.text().await.expect("a whole body");
        assert_eq!(status, 200, "{body}");
        for canary in CANARIES {
            assert!(!body.contains(canary), "{body}");
        }
        parse_run(&body)
    }

    pub fn assert_no_complaints(&self) {
        assert_eq!((self.vendor.complaints(), self.issuer.complaints()), (vec![], vec![]));
    }
}

pub fn question(agent: &str) -> Value {
    json!({"agentId": agent, "message": "What is left?", "todoListId": "l1"})
}
