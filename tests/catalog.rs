//! The catalogue of models: its list, and the limits that it sets to prompts.

use serde_json::{Value, json};

use crate::support::server::{self, Server, session_token};
use crate::support::vendor::{Vendor, answer};
use crate::support::{expect_problem, parse_run, workspace};

const CATALOG: &str = r#"{"asOf":"2031-01-02","models":[
    {"provider":"openai","model":"small","contextWindow":32768,"maxOutputTokens":4096,"input":["text"],"tools":true,
        "structured":"object","reasoning":[],"prices":{"input":"1.25","cachedInput":"0.125","output":"10"}},
    {"provider":"openai","model":"million","contextWindow":1048576,"maxOutputTokens":65536},
    {"provider":"openai","model":"gpt-4o","contextWindow":16000},
    {"provider":"acme","model":"*","prices":{"input":"0","output":"0"}},
    {"provider":"acme","model":"anvil","contextWindow":8192,"reasoning":["default"]}]}"#;

/// The application with the catalogue, and an agent for each of some models.
struct CatalogApp {
    vendor: Vendor,
    app: Server,
    _catalog: tempfile::NamedTempFile,
}

impl CatalogApp {
    async fn start(models: &[&str]) -> Self {
        let vendor = Vendor::start().await;
        let mut workspace = workspace(&vendor.base_url(), "m");
        let agents = models.iter().map(|model| {
            let mut agent = workspace["agents"][0].clone();
            agent["id"] = json!(model);
            agent["children"][0]["content"]["model"] = json!(model);
            agent
        });
        workspace["agents"] = agents.collect();
        let catalog = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(catalog.path(), CATALOG).expect("written");
        let path = catalog.path().to_str().expect("UTF-8").to_owned();
        let app = server::app(&workspace, &[("MODEL_CATALOG", path.as_str())]).await;
        Self { vendor, app, _catalog: catalog }
    }

    async fn preview(&self, body: &Value) -> Value {
        let request = self.app.request("POST", "/api/svcchat/previewPrompt").json(body);
        let response = request.bearer_auth(session_token("u1", "c1")).send().await.expect("an answer");
        assert_eq!(response.status(), 200);
        response.json().await.expect("JSON")
    }

    async fn models(&self, query: &str) -> Value {
        let request = self.app.request("GET", &format!("/api/models{query}"));
        let response = request.bearer_auth(session_token("u1", "c1")).send().await.expect("an answer");
        assert_eq!(response.status(), 200, "{query}");
        response.json().await.expect("JSON")
    }
}

/// Returns a request with a conversation of some 70,000 tokens.
fn long_conversation(agent: &str) -> Value {
    let message = |index: usize| {
        let role = if index.is_multiple_of(2) { "user" } else { "assistant" };
        json!({"role": role, "content": format!("{index} {}", "basil and soil ".repeat(200))})
    };
    let messages: Vec<Value> = (0..101).map(message).collect();
    json!({"agentId": agent, "messages": messages})
}

#[tokio::test]
async fn the_catalogue_sets_the_limit_on_a_prompt() {
    let test = CatalogApp::start(&["small", "million", "gpt-4o", "unknown"]).await;
    for (model, window, output, is_cut, is_known) in [
        ("small", 32_768, 4_096, true, true),
        ("million", 1_048_576, 16_384, false, true),
        ("gpt-4o", 16_000, 4_000, true, true),
        ("unknown", 128_000, 16_384, false, false),
    ] {
        let preview = test.preview(&long_conversation(model)).await;
        let budget = &preview["budget"];
        assert_eq!(budget["maxPromptTokens"], window - output, "{model}");
        let tokens = budget["promptTokens"].as_u64().expect("a count");
        assert!(tokens <= window - output && (is_cut || tokens > 50_000), "{model}: {budget}");
        assert_eq!(preview["trimmed"] != json!([]), is_cut, "{model}: {}", preview["trimmed"]);
        let attempt = &preview["attempts"][0];
        assert_eq!((&attempt["model"], &attempt["known"]), (&json!(model), &json!(is_known)));
        assert_eq!(preview["payload"]["max_tokens"], output, "{model}");
    }
    let million = test.preview(&long_conversation("million")).await;
    assert!(million["budget"]["maxPromptTokens"].as_u64() >= Some(900_000), "{}", million["budget"]);

    test.vendor.on("small", [answer(&["Yes."])]);
    let response = test.app.chat(&long_conversation("small")).await;
    parse_run(&response.text().await.expect("a whole body"));
    let [sent] = &test.vendor.received_bodies("small")[..] else { panic!("one request") };
    assert_eq!(sent["max_tokens"], 4_096);
    let bytes = sent["messages"].to_string().len();
    assert!(bytes < 32_768 * 8, "{bytes} bytes");
}

#[tokio::test]
async fn a_role_overrides_the_catalogue() {
    let test = CatalogApp::start(&["small", "unknown"]).await;
    for agent in ["small", "unknown"] {
        let path = format!("/api/agents/{agent}");
        let request = test.app.request("GET", &path).bearer_auth(session_token("u1", "c1"));
        let mut role: Value = request.send().await.expect("an answer").json().await.expect("JSON");
        role["content"]["contextWindow"] = json!(8_000);
        role["content"]["maxOutputTokens"] = json!(100);
        let request = test.app.request("PUT", &path).bearer_auth(session_token("u1", "c1"));
        let saved = request.json(&role).send().await.expect("an answer");
        assert!(saved.status().is_success(), "{}", saved.status());
        let preview = test.preview(&long_conversation(agent)).await;
        assert_eq!(preview["budget"]["maxPromptTokens"], 7_900, "{agent}");
        assert_eq!(
            (&preview["payload"]["max_tokens"], &preview["attempts"][0]["known"]),
            (&json!(100), &json!(true)),
            "{agent}"
        );
    }
}

#[tokio::test]
async fn the_catalogue_is_listed_by_provider_and_model() {
    let test = CatalogApp::start(&["small"]).await;
    assert_eq!(
        test.models("?provider=acme").await,
        json!({"asOf": "2031-01-02", "models": [
            {"provider": "acme", "model": "anvil", "contextWindow": 8192, "reasoning": ["default"]}]})
    );
    let openai = test.models("?provider=openai").await;
    let models = openai["models"].as_array().expect("a list");
    assert!(models.iter().all(|model| model["provider"] == "openai"));
    let find_model = |name: &str| models.iter().find(|model| model["model"] == name).expect("a model");
    assert_eq!(
        *find_model("small"),
        json!({"provider": "openai", "model": "small", "contextWindow": 32768, "maxOutputTokens": 4096,
            "input": ["text"], "tools": true, "structured": "object", "reasoning": [],
            "prices": {"input": "1.25", "cachedInput": "0.125", "cacheWrite": "1.25", "output": "10", "asOf": "2031-01-02"}})
    );
    let merged = find_model("gpt-4o");
    assert_eq!((&merged["contextWindow"], &merged["structured"]), (&json!(16_000), &json!("schema")));
    assert!(merged["prices"]["asOf"].as_str() < Some("2031-01-02"), "{merged}");

    let all = test.models("").await;
    let names: Vec<_> = all["models"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|model| (model["provider"].as_str().expect("text"), model["model"].as_str().expect("text")))
        .collect();
    assert!(names.len() > 150 && names.is_sorted() && names.iter().all(|(_, model)| *model != "*"));
    assert_eq!(test.models("?provider=none").await["models"], json!([]));
    assert_eq!(test.models("?provider=").await, all);

    let twice = test.app.request("GET", "/api/models?provider=a&provider=b");
    let twice = twice.bearer_auth(session_token("u1", "c1")).send().await.expect("an answer");
    expect_problem(twice, 400, "INVALID_REQUEST").await;
    let unsigned = test.app.request("GET", "/api/models").send().await.expect("an answer");
    expect_problem(unsigned, 401, "UNAUTHENTICATED").await;
}
