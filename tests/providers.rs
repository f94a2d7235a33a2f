//! Providers of a company: their managers, the key and address of their calls, and the data that other users see.

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

/// Returns the keys with which the vendor was called, oldest first.
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
async fn admins_manage_the_providers_of_their_company() {
    let test = ProviderApp::start(&[]).await;
    let (path, body) =
        ("/api/providers/own", test.provider(json!({"models": [{"model": "m", "tools": true}]})));
    for (method, path) in [("PUT", path), ("GET", path), ("DELETE", path), ("GET", "/api/providers")] {
        expect_problem(test.send(OWNER, method, path, &body).await, 403, "FORBIDDEN").await;
    }
    for id in ["openai", "Ollama", "auto", "local", "workflow", "a%20b", "-a"] {
        let response = test.send(BOSS, "PUT", &format!("/api/providers/{id}"), &body).await;
        expect_problem(response, 400, "INVALID_REQUEST").await;
    }
    let created = test.send(BOSS, "PUT", path, &body).await;
    assert_eq!(
        (created.status().as_u16(), created.headers()["location"].to_str().expect("text")),
        (201, path)
    );
    let tag = created.headers()["etag"].to_str().expect("text").to_owned();
    let shown = json!({"id": "own", "type": "openai", "baseUrl": test.vendor.base_url(), "apiKey": "***",
        "models": [{"model": "m", "tools": true}]});
    assert_eq!(created.json::<Value>().await.expect("JSON"), shown);
    assert_eq!(test.get(BOSS, path).await, shown);
    // What was read can be sent back.
    let same = test.send(BOSS, "PUT", path, &shown).await;
    assert_eq!((same.status().as_u16(), same.json::<Value>().await.expect("JSON")), (200, shown.clone()));
    let page = test.get(BOSS, "/api/providers?limit=1").await;
    assert_eq!((&page["providers"][0]["id"], page["nextCursor"].is_string()), (&json!("acme"), true));
    let second_page = format!("/api/providers?limit=1&cursor={}", page["nextCursor"].as_str().expect("text"));
    assert_eq!(test.get(BOSS, &second_page).await, json!({"providers": [shown]}));
    let request = test.app.request("DELETE", path).bearer_auth(session_token("boss", "c1"));
    let response = request.header("If-Match", tag).send().await.expect("an answer");
    expect_problem(response, 412, "PRECONDITION_FAILED").await;
    assert_eq!(test.send(BOSS, "DELETE", path, &Value::Null).await.status(), 204);
    expect_problem(test.send(BOSS, "GET", path, &Value::Null).await, 404, "NOT_FOUND").await;

    for n in 0..49 {
        put(&test.app, &format!("p{n}"), &json!({"type": "openai"})).await;
    }
    let full = test.send(BOSS, "PUT", "/api/providers/one-more", &json!({"type": "openai"})).await;
    assert_eq!(expect_problem(full, 409, "CONFLICT").await["limit"], 50);
}

#[tokio::test]
async fn one_of_concurrent_changes_with_a_version_wins() {
    let test = ProviderApp::start(&[]).await;
    let read = test.send(BOSS, "GET", "/api/providers/acme", &Value::Null).await;
    let tag = read.headers()["etag"].to_str().expect("text").to_owned();
    let writes = (0..8).map(|n| {
        let request = test.app.request("PUT", "/api/providers/acme").bearer_auth(session_token("boss", "c1"));
        let body = test.provider(json!({"apiKey": format!("raced-{n}")}));
        request.header("If-Match", &tag).json(&body).send()
    });
    let statuses: Vec<u16> = join_all(writes)
        .await
        .into_iter()
        .map(|response| response.expect("an answer").status().as_u16())
        .collect();
    let winners: Vec<usize> =
        statuses.iter().enumerate().filter(|(_, status)| **status == 200).map(|(n, _)| n).collect();
    assert_eq!(
        (winners.len(), statuses.iter().filter(|status| **status == 412).count()),
        (1, 7),
        "{statuses:?}"
    );
    assert_eq!(ask(&test.app, "a1").await.status(), 200);
    assert_eq!(keys(&test.vendor), [format!("raced-{}", winners[0])]);
}

#[tokio::test]
async fn hostile_providers_are_refused() {
    let test = ProviderApp::start(&[("OUTBOUND_ALLOW", "127.0.0.0/8")]).await;
    for (changes, field) in [
        (json!({"baseUrl": "http://169.254.169.254/canary"}), "baseUrl"),
        (json!({"baseUrl": "http://[::ffff:169.254.169.254]/canary"}), "baseUrl"),
        (json!({"baseUrl": "http://10.0.0.1/canary"}), "baseUrl"),
        (json!({"baseUrl": "http://2852039166/canary"}), "baseUrl"),
        (json!({"baseUrl": "file:///etc/canary"}), "baseUrl"),
        (json!({"baseUrl": "https://canary:canary@v.example/v1"}), "baseUrl"),
        (json!({"baseUrl": "https://v.example/canary\r\nx-y: z"}), "baseUrl"),
        (json!({"apiKey": "canary\r\nx-y: z"}), "apiKey"),
        (json!({"apiKey": "canary".repeat(2_000)}), "apiKey"),
        (json!({"type": "canary"}), "type"),
        (json!({"type": "local"}), "type"),
        (json!({"canary": true}), "canary"),
        (
            json!({"models": [{"model": "m", "prices": {"input": "1e400", "output": "1"}}]}),
            "models[0].prices.input",
        ),
        (
            json!({"models": [{"model": "m", "prices": {"input": "1", "output": "-1"}}]}),
            "models[0].prices.output",
        ),
    ] {
        let response = test.send(BOSS, "PUT", "/api/providers/acme", &test.provider(changes.clone())).await;
        let problem = expect_problem(response, 400, "INVALID_REQUEST").await.to_string();
        assert!(problem.contains(field), "{changes}: {problem}");
        assert!(field == "canary" || !problem.contains("canary"), "{changes}: {problem}");
    }
    // The address of a name is checked when it is called.
    let (allowed, url) = (test.provider(json!({})), "http://localhost.example.invalid/v1");
    put(&test.app, "acme", &test.provider(json!({"baseUrl": url, "apiKey": "k2"}))).await;
    let unreachable = ask(&test.app, "a1").await;
    assert!(unreachable.status().is_server_error(), "{}", unreachable.status());
    put(&test.app, "acme", &allowed).await;
    assert_eq!(ask(&test.app, "a1").await.status(), 200);
    assert_eq!(keys(&test.vendor), ["k1"]);
}

#[tokio::test]
async fn an_agent_names_a_provider_without_an_address_or_key_of_its_own() {
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

    // One that was stored without a check is called with nothing of its own either.
    let own_settings =
        json!({"provider": "acme", "model": "m", "baseUrl": "http://127.0.0.1:1/v1", "apiKey": "own"});
    let test = ProviderApp::start_with(&with_container(&own_settings), &[]).await;
    assert_eq!(ask(&test.app, "a1").await.status(), 200);
    assert_eq!(keys(&test.vendor), ["k1"]);
}

#[tokio::test]
async fn a_provider_in_use_is_not_deleted() {
    let test = ProviderApp::start(&[]).await;
    let path = "/api/providers/acme";
    let problem = expect_problem(test.send(BOSS, "DELETE", path, &Value::Null).await, 409, "CONFLICT").await;
    assert_eq!(problem["agents"], json!(["a1"]));
    let fallback = json!({"provider": "openai", "baseUrl": test.vendor.base_url(), "apiKey": "own",
        "fallbacks": [named()]});
    assert_eq!(test.save_agent(&fallback).await.status(), 200);
    let problem = expect_problem(test.send(BOSS, "DELETE", path, &Value::Null).await, 409, "CONFLICT").await;
    assert_eq!(problem["agents"], json!(["a1"]));
    assert_eq!(test.save_agent(&json!({"provider": "openai"})).await.status(), 200);
    assert_eq!(test.send(BOSS, "DELETE", path, &Value::Null).await.status(), 204);
}

#[tokio::test]
async fn another_company_cannot_name_read_or_see_it() {
    let mut all = with_container(&named());
    let mut other = all["agents"][0].clone();
    other["companyId"] = "c2".into();
    other["ownerId"] = "boss".into();
    all["agents"].as_array_mut().expect("a list").push(other.clone());
    let test = ProviderApp::start_with(&all, &[]).await;
    let models = json!([{"model": "own-model", "contextWindow": 4_096}]);
    put(&test.app, "acme", &test.provider(json!({"models": models}))).await;
    let stranger = ("boss", "c2");
    for (method, body) in [("GET", Value::Null), ("DELETE", Value::Null)] {
        expect_problem(test.send(stranger, method, "/api/providers/acme", &body).await, 404, "NOT_FOUND")
            .await;
    }
    assert_eq!(test.get(stranger, "/api/providers").await, json!({"providers": []}));
    assert_eq!(test.get(stranger, "/api/models?provider=acme").await["models"], json!([]));
    let list = test.get(OWNER, "/api/models?provider=acme").await;
    let expected =
        json!([{"provider": "acme", "providerType": "openai", "model": "own-model", "contextWindow": 4_096}]);
    assert_eq!(list["models"], expected);
    let response = test.send(stranger, "PUT", "/api/agents/a1", &other).await;
    let problem = expect_problem(response, 400, "INVALID_REQUEST").await;
    assert!(problem.to_string().contains("children[0].content.provider"), "{problem}");
    // An agent that was stored with the name has no model, and says which name is unknown.
    let body = json!({"agentId": "a1", "message": "Hello", "store": false});
    let response = test.app.chat_as(&session_token("boss", "c2"), "", &body).await;
    let problem = expect_problem(response, 400, "UNKNOWN_PROVIDER").await;
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("\"acme\"")), "{problem}");
    assert!(keys(&test.vendor).is_empty());
    // Its own of the same name is another.
    let own_vendor = Vendor::start().await;
    own_vendor.on_all(answer(&["Hi."]));
    let provider = json!({"type": "openai", "baseUrl": own_vendor.base_url(), "apiKey": "of-c2"});
    assert_eq!(test.send(stranger, "PUT", "/api/providers/acme", &provider).await.status(), 201);
    assert_eq!(test.app.chat_as(&session_token("boss", "c2"), "", &body).await.status(), 200);
    assert_eq!(ask(&test.app, "a1").await.status(), 200);
    assert_eq!((keys(&own_vendor), keys(&test.vendor)), (vec!["of-c2".to_owned()], vec!["k1".to_owned()]));
}

#[tokio::test]
async fn visitors_and_tokens_have_no_access() {
    let test = ProviderApp::start(&[]).await;
    let tokens = Tokens::new(test.stores.records.clone(), Arc::new(SystemClock));
    let widget = tokens.mint(NewToken::new("c1", "a1", Grant::Widget(WidgetGrant::default()))).await;
    let widget = widget.expect("minted").text.expose().to_owned();
    for (method, path) in [
        ("GET", "/api/providers"),
        ("GET", "/api/providers/acme"),
        ("PUT", "/api/providers/acme"),
        ("DELETE", "/api/providers/acme"),
        ("GET", "/api/models"),
    ] {
        let bare = test.app.request(method, path).send().await.expect("an answer");
        assert!(matches!(bare.status().as_u16(), 401 | 403), "{method} {path}: {}", bare.status());
        let headed = test.app.request(method, path).header("x-widget-token", &widget);
        let borne = test.app.request(method, path).bearer_auth(&widget);
        for request in [headed, borne] {
            let response = request.json(&test.provider(json!({}))).send().await.expect("an answer");
            assert!(
                matches!(response.status().as_u16(), 401 | 403),
                "{method} {path}: {}",
                response.status()
            );
        }
    }
    // A visitor gets an answer without any data of the provider.
    let chat = async || {
        let request = test.app.request("POST", "/api/agent/chat").header("x-widget-token", &widget);
        let response = request.json(&json!({"message": "Hello"})).send().await.expect("an answer");
        (response.status().as_u16(), response.text().await.expect("a body"))
    };
    let (status, text) = chat().await;
    assert!(status == 200 && !text.contains("acme"), "{status} {text}");
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
    let line = "agentd_model_attempts_total{provider=\"openai\",model=\"m\",outcome=\"ok\"} 1\n";
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
async fn a_wrong_key_is_replaced_without_waiting_for_its_circuit() {
    let test = ProviderApp::start(&[]).await;
    test.vendor.on("m", [json_response("401 Unauthorized", "", "{}"), answer(&["Hi."])]);
    let response = ask(&test.app, "a1").await;
    assert!(!response.status().is_success(), "{}", response.status());
    assert_eq!(test.preview().await["attempts"][0]["circuit"], "open");
    put(&test.app, "acme", &test.provider(json!({"apiKey": "k2"}))).await;
    assert_eq!(test.preview().await["attempts"][0]["circuit"], "closed");
    assert_eq!(ask(&test.app, "a1").await.status(), 200);
    assert_eq!(keys(&test.vendor), ["k1", "k2"]);
}

#[tokio::test]
async fn a_key_that_is_changed_within_a_run_holds_for_its_next_call() {
    let test = ProviderApp::start(&[]).await;
    let gate = watch::Sender::new(false);
    let mut steps = tool_calls(&[("c1", "readTodos", "{}")]);
    steps.insert(1, Step::Until(gate.subscribe()));
    test.vendor.on("m", [steps, answer(&["Done."])]);
    let running = ask(&test.app, "a1").await;
    test.vendor.wait_for_requests("m", 1).await;
    put(&test.app, "acme", &test.provider(json!({"apiKey": "k2"}))).await;
    gate.send_replace(true);
    let events = parse_events(&running.text().await.expect("a body"));
    assert_eq!(events.last().expect("an end")["type"], "RUN_FINISHED", "{events:?}");
    assert_eq!(keys(&test.vendor), ["k1", "k2"]);
}

#[tokio::test]
async fn a_price_that_is_changed_within_a_run_holds_for_the_next_run() {
    let test = ProviderApp::start(&[]).await;
    let priced = |output: &str| {
        test.provider(json!({"models": [{"model": "m", "prices": {"input": "2", "output": output}}]}))
    };
    put(&test.app, "acme", &priced("10")).await;
    let path = "/api/budgets/agent/a1";
    let budget = json!({"limits": [{"unit": "cost", "amount": "50", "window": "month"}]});
    assert!(test.send(BOSS, "PUT", path, &budget).await.status().is_success());
    let gate = watch::Sender::new(false);
    let mut steps = tool_calls(&[("c1", "readTodos", "{}")]);
    steps.insert(1, Step::Until(gate.subscribe()));
    test.vendor.on("m", [steps, answer(&["Done."])]);
    let running = ask(&test.app, "a1").await;
    test.vendor.wait_for_requests("m", 1).await;
    put(&test.app, "acme", &priced("100")).await;
    gate.send_replace(true);
    let first = parse_events(&running.text().await.expect("a body"));
    let second = parse_events(&ask(&test.app, "a1").await.text().await.expect("a body"));
    // 11 and 7 tokens a call: the run keeps the price of its beginning.
    for (events, calls, cost) in [(first, 2, "0.000184000"), (second, 1, "0.000722000")] {
        assert_eq!(events.last().expect("an end")["type"], "RUN_FINISHED", "{events:?}");
        let path = format!("/api/usage/runs/{}", events[0]["runId"].as_str().expect("a run"));
        let usage = poll_until(async || test.get(BOSS, &path).await, |usage| usage["calls"] == calls).await;
        assert_eq!(usage["cost"], cost, "{usage}");
    }
    let limit = async || test.get(BOSS, path).await["limits"][0].clone();
    let limit = poll_until(limit, |limit| limit["reserved"] == "0.000000000").await;
    assert_eq!(limit["used"], "0.000906000", "the meter has what the calls have");
}

async fn start(database: &TestDatabase) -> Server {
    let url = database.url();
    let config = app_config(&[("DATABASE_URL", url.as_str()), ("DATA_SECRET", "data-secret-canary")]);
    let stores = Stores::open(&config).await.expect("it opens");
    server::app_with_config(config, stores).await
}

/// Changes the key in one process while another one is called all the time.
async fn rotate_a_key(database: TestDatabase) {
    let vendor = Vendor::start().await;
    vendor.on_all(answer(&["Hi."]));
    let url = database.url();
    let config = app_config(&[("DATABASE_URL", url.as_str()), ("DATA_SECRET", "data-secret-canary")]);
    let stores = Stores::open(&config).await.expect("it opens");
    let file = agent_platform::workspace::WorkspaceFile::parse_stored(&with_container(&named()).to_string());
    file.expect("a workspace").apply(&stores.roles).await.expect("imported");
    let (one, two) = (start(&database).await, start(&database).await);
    let provider = |key: &str| json!({"type": "openai", "baseUrl": vendor.base_url(), "apiKey": key});
    let call = async |app: &Server| {
        assert_eq!(ask(app, "a1").await.status(), 200);
        keys(&vendor).pop().expect("a call")
    };
    put(&one, "acme", &provider("k0")).await;
    poll_until(async || ask(&two, "a1").await.status().as_u16(), |status| *status == 200).await;
    for n in 1..=5 {
        let (writer, reader) = if n % 2 == 0 { (&one, &two) } else { (&two, &one) };
        let (old, new) = (format!("k{}", n - 1), format!("k{n}"));
        assert_eq!(call(reader).await, old);
        put(writer, "acme", &provider(&new)).await;
        assert_eq!(call(writer).await, new, "at once in the process that has changed it");
        let received_key = poll_until(async || call(reader).await, |key| *key == new).await;
        assert_eq!(received_key, new);
        let request_count = keys(&vendor).len();
        for _ in 0..5 {
            call(reader).await;
            call(writer).await;
        }
        assert!(
            keys(&vendor)[request_count..].iter().all(|key| *key == new),
            "none uses the old one afterwards"
        );
    }
}

#[tokio::test]
async fn a_changed_key_holds_in_every_process_over_sqlite() {
    rotate_a_key(TestDatabase::Sqlite(TempDir::new().expect("a folder"))).await;
}

#[tokio::test]
async fn a_changed_key_holds_in_every_process_over_postgres() {
    rotate_a_key(TestDatabase::Postgres(Cluster::start())).await;
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
