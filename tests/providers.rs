//! Providers of a company: their managers, the key and address of their calls, and the data that other users see.

mod management;
mod rotation;

use agent_core::clock::SystemClock;
use agent_platform::replay::{Replay, RunBundle};
use agent_platform::token::{Grant, NewToken, Tokens, WidgetGrant};
use agentd::compose;
use agentd::stores::Stores;
use futures_util::future::join_all;
use reqwest::Response;
use serde_json::{Value, json};
use std::sync::Arc;
use tempfile::TempDir;
use tokio::sync::watch;

use crate::processes::TestDatabase;
use crate::support::cluster::Cluster;
use crate::support::server::{self, Server, app_config, session_token};
use crate::support::vendor::{Step, Vendor, answer, json_response, tool_calls};
use crate::support::{expect_problem, parse_events, poll_until, workspace};

/// The application with an agent `a1` that names the provider `acme`, which is saved; `boss` is an admin, `u1` owns the agent.
struct ProviderApp {
    vendor: Vendor,
    stores: Stores,
    app: Server,
}

fn people() -> Value {
    json!([
        {"id": "u1", "companyId": "c1"},
        {"id": "boss", "companyId": "c1", "role": "admin"},
        {"id": "boss", "companyId": "c2", "role": "admin"},
    ])
}

/// Returns a workspace with an agent whose container is `embedded`.
fn with_container(embedded: &Value) -> Value {
    let mut all = workspace("https://unused.example", "m");
    all["users"] = people();
    all["agents"][0]["children"][0]["content"] = embedded.clone();
    all
}

fn named() -> Value {
    json!({"provider": "acme", "model": "m"})
}

/// Sends a request of a user of a company.
async fn send(
    app: &Server,
    (user, company): (&str, &str),
    method: &str,
    path: &str,
    body: &Value,
) -> Response {
    let request = app.request(method, path).bearer_auth(session_token(user, company));
    let request = if body.is_null() { request } else { request.json(body) };
    request.send().await.expect("an answer")
}

const BOSS: (&str, &str) = ("boss", "c1");
const OWNER: (&str, &str) = ("u1", "c1");

async fn put(app: &Server, id: &str, body: &Value) -> Response {
    let response = send(app, BOSS, "PUT", &format!("/api/providers/{id}"), body).await;
    assert!(response.status().is_success(), "{}", response.text().await.unwrap_or_default());
    response
}

async fn ask(app: &Server, agent: &str) -> Response {
    let body = json!({"agentId": agent, "message": "Hello", "store": false});
    app.chat_as(&session_token("u1", "c1"), "", &body).await
}

/// Returns the API keys of the vendor's calls, oldest first.
fn keys(vendor: &Vendor) -> Vec<String> {
    let key = |head: &str| {
        let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with("authorization:"));
        line.map_or("none", |line| line.rsplit(' ').next().unwrap_or_default()).to_owned()
    };
    vendor.received().iter().map(|request| key(&request.head)).collect()
}

impl ProviderApp {
    async fn start(settings: &[(&str, &str)]) -> Self {
        Self::start_with(&with_container(&named()), settings).await
    }

    async fn start_with(workspace: &Value, settings: &[(&str, &str)]) -> Self {
        let vendor = Vendor::start().await;
        vendor.on_all(answer(&["Hi."]));
        let stores = server::stores(workspace).await;
        let app = server::app_with_stores(stores.clone(), settings).await;
        let test = Self { vendor, stores, app };
        put(&test.app, "acme", &test.provider(json!({}))).await;
        test
    }

    fn provider(&self, changes: Value) -> Value {
        let mut provider = json!({"type": "openai", "baseUrl": self.vendor.base_url(), "apiKey": "k1"});
        for (name, value) in changes.as_object().expect("an object") {
            provider[name] = value.clone();
        }
        provider
    }

    async fn send(&self, user: (&str, &str), method: &str, path: &str, body: &Value) -> Response {
        send(&self.app, user, method, path, body).await
    }

    async fn get(&self, user: (&str, &str), path: &str) -> Value {
        let response = self.send(user, "GET", path, &Value::Null).await;
        assert_eq!(response.status(), 200, "{path}");
        response.json().await.expect("JSON")
    }

    async fn preview(&self) -> Value {
        let body = json!({"agentId": "a1", "message": "Hello"});
        let response = self.send(OWNER, "POST", "/api/svcchat/previewPrompt", &body).await;
        assert_eq!(response.status(), 200);
        response.json().await.expect("JSON")
    }

    /// Saves the agent with a container, as its owner.
    async fn save_agent(&self, embedded: &Value) -> Response {
        let agent = &with_container(embedded)["agents"][0];
        self.send(OWNER, "PUT", "/api/agents/a1", agent).await
    }
}

#[tokio::test]
async fn an_agent_that_names_a_provider_may_not_have_an_address_or_key() {
    let test = ProviderApp::start(&[]).await;
    let fallback = |fallback: Value| json!({"provider": "openai", "fallbacks": [fallback]});
    let at = |field: &str| format!("children[0].content.{field}");
    for (embedded, path) in [
        (json!({"provider": "none", "model": "m"}), at("provider")),
        (json!({"provider": "not an id", "model": "m"}), at("provider")),
        (json!({"provider": "acme", "model": "m", "baseUrl": "https://evil.example"}), at("baseUrl")),
        (json!({"provider": "acme", "model": "m", "apiKey": "own"}), at("apiKey")),
        (json!({"provider": "acme"}), at("model")),
        (fallback(json!({"provider": "none", "model": "m"})), at("fallbacks[0].provider")),
        (
            fallback(json!({"provider": "acme", "model": "m", "baseUrl": "https://evil.example"})),
            at("fallbacks[0].baseUrl"),
        ),
        (fallback(json!({"provider": "acme", "model": "m", "apiKey": "own"})), at("fallbacks[0].apiKey")),
    ] {
        let problem = expect_problem(test.save_agent(&embedded).await, 400, "INVALID_REQUEST").await;
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains(&path)), "{path}: {problem}");
    }
    let saved =
        test.save_agent(&json!({"provider": "acme", "model": "m", "apiKey": "***", "baseUrl": ""})).await;
    assert_eq!(saved.status(), 200);

    // A container that was stored without a check is called without its own settings, too.
    let own_settings =
        json!({"provider": "acme", "model": "m", "baseUrl": "http://127.0.0.1:1/v1", "apiKey": "own"});
    let test = ProviderApp::start_with(&with_container(&own_settings), &[]).await;
    assert_eq!(ask(&test.app, "a1").await.status(), 200);
    assert_eq!(keys(&test.vendor), ["k1"]);
}

#[tokio::test]
async fn previews_and_usage_name_the_provider_and_metrics_its_type() {
    let mut embedded = named();
    embedded["fallbacks"] = json!([{"provider": "ollama", "model": "f", "baseUrl": "https://o.example"}]);
    let test = ProviderApp::start_with(&with_container(&embedded), &[]).await;
    let models = json!([{"model": "m", "contextWindow": 9_000, "maxOutputTokens": 64,
        "prices": {"input": "2", "output": "10"}}]);
    put(&test.app, "acme", &test.provider(json!({"models": models}))).await;
    let preview = test.preview().await;
    let attempt = &preview["attempts"][0];
    assert_eq!(
        [&attempt["provider"], &attempt["providerType"], &attempt["known"], &attempt["maxPromptTokens"]],
        [&json!("acme"), &json!("openai"), &json!(true), &json!(9_000 - 64)],
    );
    assert_eq!(attempt["priced"], true, "by the company's provider: {attempt}");
    assert_eq!(preview["attempts"][1].get("providerType"), None);
    assert!(!preview.to_string().contains("k1"), "{preview}");
    let events = parse_events(&ask(&test.app, "a1").await.text().await.expect("a body"));
    let prompt = events.iter().find(|event| event["name"] == "agent.prompt").expect("the event");
    let request_body = test.vendor.received_bodies("m").remove(0);
    assert_eq!(request_body["max_tokens"], 64);
    assert!(prompt["value"]["requestSha256"].is_string());
    let run = events[0]["runId"].as_str().expect("a run");
    let path = format!("/api/usage/runs/{run}");
    let usage = poll_until(async || test.get(BOSS, &path).await, |usage| usage["calls"] == 1).await;
    let entry = &usage["entries"][0];
    // 11 and 7 tokens.
    assert_eq!(
        [&entry["provider"], &entry["model"], &entry["cost"]],
        [&json!("acme"), &json!("m"), &json!("0.000092000")],
    );
    let metrics =
        test.app.request("GET", "/metrics").send().await.expect("an answer").text().await.expect("text");
    // The name of the model is the company's choice, too.
    let line = "agentd_model_attempts_total{provider=\"openai\",model=\"custom\",outcome=\"ok\"} 1\n";
    assert!(metrics.contains(line) && !metrics.contains("acme"), "{metrics}");
}

const CATALOG: &str = r#"{"asOf":"2026-01-31","models":[
    {"provider":"openai","model":"m","contextWindow":16000,"maxOutputTokens":1000,"prices":{"input":"1","output":"1"}},
    {"provider":"acme","model":"*","prices":{"input":"0","output":"0"}}]}"#;

#[tokio::test]
async fn the_role_precedes_the_provider_and_the_provider_the_catalogue() {
    let catalog = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(catalog.path(), CATALOG).expect("written");
    let path = catalog.path().to_str().expect("UTF-8").to_owned();
    let test = ProviderApp::start(&[("MODEL_CATALOG", &path)]).await;
    let limits = async || {
        let preview = test.preview().await;
        let tokens = |value: &Value| value.as_u64().expect("a number");
        let output = tokens(&preview["payload"]["max_tokens"]);
        (tokens(&preview["budget"]["maxPromptTokens"]) + output, output)
    };
    assert_eq!(limits().await, (16_000, 1_000), "the file's, by the type");
    let window = json!({"model": "m", "contextWindow": 12_000});
    put(&test.app, "acme", &test.provider(json!({"models": [window]}))).await;
    assert_eq!(limits().await, (12_000, 1_000), "the provider's window");
    let both = json!({"model": "m", "contextWindow": 12_000, "maxOutputTokens": 500});
    put(&test.app, "acme", &test.provider(json!({"models": [both]}))).await;
    assert_eq!(limits().await, (12_000, 500), "the provider's limits");
    let mut agent = with_container(&named())["agents"][0].clone();
    agent["content"]["contextWindow"] = 8_000.into();
    agent["content"]["maxOutputTokens"] = 700.into();
    assert_eq!(test.send(OWNER, "PUT", "/api/agents/a1", &agent).await.status(), 200);
    assert_eq!(limits().await, (8_000, 700), "the role's limits");

    let cost = async || {
        let events = parse_events(&ask(&test.app, "a1").await.text().await.expect("a body"));
        let path = format!("/api/usage/runs/{}", events[0]["runId"].as_str().expect("a run"));
        poll_until(async || test.get(BOSS, &path).await, |usage| usage["calls"] == 1).await["cost"].clone()
    };
    assert_eq!(cost().await, "0.000018000", "the file's price, by the type and not by the company's name");
    let budget = json!({"limits": [{"unit": "cost", "amount": "5", "window": "day"}]});
    let saved = test.send(BOSS, "PUT", "/api/budgets/agent/a1", &budget).await;
    assert!(saved.status().is_success());
    let priced = json!({"model": "m", "prices": {"input": "2", "output": "10"}});
    put(&test.app, "acme", &test.provider(json!({"models": [priced]}))).await;
    assert_eq!(cost().await, "0.000092000", "the provider's price");
    let used = async || test.get(BOSS, "/api/budgets/agent/a1").await["limits"][0].clone();
    let limit = poll_until(used, |limit| limit["reserved"] == "0.000000000").await;
    assert_eq!(limit["used"], "0.000110000", "both runs");

    // While the cost is limited, a model without a price is refused when it is saved and when it is called.
    let unheard = json!({"provider": "acme", "model": "unheard-of"});
    let price_unknown = async |refused: Response| {
        let problem = expect_problem(refused, 422, "PRICE_UNKNOWN").await;
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("\"acme\"")), "{problem}");
    };
    price_unknown(test.save_agent(&unheard).await).await;
    let priced = json!({"model": "unheard-of", "prices": {"input": "2", "output": "10"}});
    let priced = test.provider(json!({"models": [priced]}));
    put(&test.app, "acme", &priced).await;
    assert_eq!(test.save_agent(&unheard).await.status(), 200);
    put(&test.app, "acme", &test.provider(json!({}))).await;
    price_unknown(ask(&test.app, "a1").await).await;
    put(&test.app, "acme", &priced).await;
    assert_eq!(ask(&test.app, "a1").await.status(), 200);
}

#[tokio::test]
async fn a_company_is_never_called_with_the_operators_key() {
    let vendor = Vendor::start().await;
    vendor.on_all(answer(&["Hi."]));
    let url = vendor.base_url();
    let settings = [("OPENAI_BASE_URL", url.as_str()), ("OPENAI_API_KEY", "operator-key")];
    let app = server::app(&with_container(&named()), &settings).await;
    put(&app, "acme", &json!({"type": "openai"})).await;
    let answered = ask(&app, "a1").await.status();
    assert!(answered == 200 || answered == 503, "{answered}");
    put(&app, "acme", &json!({"type": "openai", "apiKey": "k1"})).await;
    assert_eq!(ask(&app, "a1").await.status(), 200);
    let keys = keys(&vendor);
    assert_eq!(keys.last().map(String::as_str), Some("k1"));
    assert!(!keys.iter().any(|key| key == "operator-key"), "{keys:?}");
}

#[tokio::test]
async fn a_recorded_run_is_replayed_without_the_provider() {
    let test = ProviderApp::start(&[("RUN_PROMPTS", "keep")]).await;
    let models = json!([{"model": "m", "contextWindow": 9_000, "maxOutputTokens": 64}]);
    put(&test.app, "acme", &test.provider(json!({"models": models}))).await;
    let body = json!({"agentId": "a1", "message": "Hello", "threadId": "t", "runId": "r1"});
    let response = test.app.chat_as(&session_token("u1", "c1"), "", &body).await;
    assert_eq!(
        parse_events(&response.text().await.expect("a body")).last().expect("an end")["type"],
        "RUN_FINISHED"
    );
    let path = "/api/runs/r1/bundle";
    let fetch = async || test.send(OWNER, "GET", path, &Value::Null).await.text().await.expect("a body");
    let bundle = poll_until(fetch, |text| text.contains("companyModels")).await;
    assert!(!bundle.contains("k1") && bundle.contains("acme"), "{bundle}");
    let bundle = RunBundle::parse(bundle.as_bytes()).expect("a bundle");
    let replay = Replay::new(bundle).expect("inputs and events");
    let empty = Stores::in_memory("nothing", "{}").await.expect("stores");
    let platform = compose::replay(&app_config(&[]), &empty, None, &replay, false).expect("a platform");
    let report = replay.run(&platform);
    assert!(report.is_identical(), "{report:?}");
}
