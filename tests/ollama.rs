//! Ollama as a backend, and its detection by `agentd dev`.

use std::collections::BTreeMap;
use std::time::Duration;

use agentd::config::{AppConfig, Flags};
use agentd::dev::detect_ollama;
use serde_json::{Value, json};

use crate::support::server::{self, Server};
use crate::support::vendor::{Step, Vendor, json_response, ollama};
use crate::support::{TEST_TIMEOUT, answered_run, expect_problem, refused_url, text_of, workspace};

/// Returns a workspace whose agent has an `EmbeddedAI` container with this content.
fn workspace_with_model(content: &Value) -> Value {
    let mut workspace = workspace("http://unused.example/v1", "m");
    workspace["agents"][0]["children"] = json!([{"name": "EmbeddedAI", "content": content}]);
    workspace
}

async fn ask(app: &Server, message: &Value) -> reqwest::Response {
    app.chat(&json!({"agentId": "a1", "message": message, "todoListId": "l1"})).await
}

#[tokio::test]
async fn an_agent_calls_its_tools_and_the_window_is_asked_for() {
    let vendor = Vendor::start().await;
    let call = ollama::tool_calls(&[("", "readTodos", "{}")]);
    vendor.on("m", [call, ollama::answer(&["Water the basil."])]);
    let agent = json!({"provider": "ollama", "model": "m", "baseUrl": vendor.ollama_url()});
    let app = server::app(&workspace_with_model(&agent), &[("OLLAMA_NUM_CTX", "4096")]).await;
    let events = answered_run(ask(&app, &json!("What is left?")).await).await;
    assert_eq!(text_of(&events), "Water the basil.");
    let usage = &events.last().expect("an end")["usage"][0];
    assert_eq!((&usage["provider"], &usage["inputTokens"]), (&json!("ollama"), &json!(22)));
    assert_eq!(vendor.received()[0].path(), "/api/chat");

    let [first, second] = &vendor.received_bodies("m")[..] else { panic!("two rounds") };
    assert_eq!(first["options"], json!({"num_ctx": 4096, "num_predict": 1024}));
    assert_eq!((&first["stream"], first.get("think")), (&json!(true), None));
    assert_eq!(first["tools"][0]["function"]["name"], "createTodo");
    let messages = second["messages"].as_array().expect("messages");
    let [.., called, result] = &messages[..] else { panic!("a call and its result") };
    assert_eq!(called["tool_calls"][0]["function"], json!({"name": "readTodos", "arguments": {}}));
    assert_eq!((&result["role"], &result["tool_name"]), (&json!("tool"), &json!("readTodos")));
    assert_eq!(result["tool_call_id"], called["tool_calls"][0]["id"]);
    assert!(result["content"].as_str().expect("text").contains("Water the basil"), "{result}");
}

#[tokio::test]
async fn a_request_to_the_runtime_brings_the_servers_address() {
    let vendor = Vendor::start().await;
    let runtime =
        server::runtime(&[("OLLAMA_BASE_URL", &vendor.ollama_url()), ("OLLAMA_NUM_CTX", "512")]).await;
    let request = json!({
        "provider": "ollama", "model": "m", "baseUrl": vendor.ollama_url(), "apiKey": "key-canary",
        "enableThinking": true, "messages": [{"role": "user", "content": "Hello"}],
    });
    let post = async |request: &Value| {
        runtime.request("POST", "/chat").json(request).send().await.expect("an answer")
    };
    assert_eq!(text_of(&answered_run(post(&request).await).await), "hello world");
    let received = vendor.received().pop().expect("the vendor was asked");
    assert_eq!(received.path(), "/api/chat");
    assert!(received.head.to_ascii_lowercase().contains("authorization: bearer key-canary"));
    assert_eq!(
        received.json(),
        json!({"model": "m", "stream": true, "think": true, "options": {"num_ctx": 512, "num_predict": 128},
            "messages": [{"role": "user", "content": "Hello"}]})
    );
    for base in [json!(null), json!(""), json!(" ")] {
        let mut without = request.clone();
        without["baseUrl"] = base;
        without.as_object_mut().expect("an object").retain(|_, value| !value.is_null());
        let problem = expect_problem(post(&without).await, 400, "INVALID_REQUEST").await;
        assert_eq!(problem["detail"], "baseUrl is missing: it is required for the provider ollama");
    }
    assert_eq!(vendor.received().len(), 1);
}

#[tokio::test]
async fn missing_settings_are_named_and_the_operators_server_needs_no_allowance() {
    let vendor = Vendor::start().await;
    let url = vendor.ollama_url();
    let closed = ("OUTBOUND_ALLOW", "");
    let no_server =
        server::app(&workspace_with_model(&json!({"provider": "ollama", "model": "m"})), &[closed]).await;
    let problem = expect_problem(ask(&no_server, &json!("Hi")).await, 503, "NOT_CONFIGURED").await;
    assert_eq!(problem["detail"], "OLLAMA_BASE_URL is not configured");
    let settings = [closed, ("OLLAMA_BASE_URL", &*url)];
    let no_model = server::app(&workspace_with_model(&json!({"provider": "ollama"})), &settings).await;
    let problem = expect_problem(ask(&no_model, &json!("Hi")).await, 503, "NOT_CONFIGURED").await;
    assert_eq!(problem["detail"], "OLLAMA_MODEL is not configured");
    let settings = [closed, ("OLLAMA_BASE_URL", &*url), ("OLLAMA_MODEL", "m")];
    for content in [json!({"provider": "ollama"}), json!({})] {
        let app = server::app(&workspace_with_model(&content), &settings).await;
        assert_eq!(text_of(&answered_run(ask(&app, &json!("Hi")).await).await), "hello world", "{content}");
    }
    assert_eq!(vendor.received_bodies("m").len(), 2);
    // An address named by a role is not covered by the operator's own.
    let other = Vendor::start().await;
    let content = json!({"provider": "ollama", "model": "m", "baseUrl": other.ollama_url()});
    let app = server::app(&workspace_with_model(&content), &settings).await;
    expect_problem(ask(&app, &json!("Hi")).await, 403, "OUTBOUND_BLOCKED").await;
    assert_eq!(other.connections(), 0);
}

#[tokio::test]
async fn pictures_are_sent_and_other_media_refused() {
    let vendor = Vendor::start().await;
    let agent = json!({"provider": "ollama", "model": "m", "baseUrl": vendor.ollama_url()});
    let app = server::app(&workspace_with_model(&agent), &[]).await;
    let message =
        |part: Value| json!({"role": "user", "content": [{"type": "text", "text": "What is this?"}, part]});
    let data = |kind: &str, mime: &str| {
        message(json!({"type": kind, "source": {"type": "data", "value": "QUJD", "mimeType": mime}}))
    };
    answered_run(ask(&app, &data("image", "image/png")).await).await;
    let request_body = vendor.received_bodies("m").pop().expect("it was asked");
    let latest = request_body["messages"].as_array().and_then(|messages| messages.last()).expect("a message");
    assert_eq!(latest["images"], json!(["QUJD"]));
    assert!(latest["content"].as_str().expect("text").ends_with("What is this?"), "{latest}");
    let address = json!({"type": "url", "value": "https://example.com/a.png"});
    for refused in [
        message(json!({"type": "image", "source": address})),
        data("audio", "audio/wav"),
        data("document", "application/pdf"),
    ] {
        expect_problem(ask(&app, &refused).await, 422, "UNSUPPORTED_CONTENT").await;
    }
    assert_eq!(vendor.received_bodies("m").len(), 1);
}

#[tokio::test]
async fn a_prompt_truncated_by_ollama_is_reported_to_the_caller() {
    let vendor = Vendor::start().await;
    // `prompt_eval_count` of a prompt that Ollama has truncated to half of the context window.
    let cut = [ollama::stream_head(), ollama::text("What?")].into_iter().chain(ollama::done("stop", 258));
    vendor.on("m", [cut.collect()]);
    let runtime = server::runtime(&[("OLLAMA_NUM_CTX", "512")]).await;
    let request = |words: usize| {
        json!({"provider": "ollama", "model": "m", "baseUrl": vendor.ollama_url(),
            "messages": [{"role": "user", "content": "word ".repeat(words)}]})
    };
    for (words, expected) in [(1_000, true), (260, false)] {
        let response = runtime.request("POST", "/chat").json(&request(words)).send().await;
        let events = answered_run(response.expect("an answer")).await;
        assert_eq!(text_of(&events), "What?");
        let notice = events.iter().find(|event| event["type"] == "CUSTOM");
        assert_eq!(notice.is_some(), expected, "{events:?}");
        let Some(notice) = notice else { continue };
        assert_eq!(notice["name"], "agent.debug");
        let value = &notice["value"];
        assert_eq!(
            (&value["kind"], &value["readTokens"], &value["contextWindow"]),
            (&json!("promptCut"), &json!(258), &json!(512))
        );
        assert!(value["estimatedTokens"].as_u64().is_some_and(|tokens| tokens > 900), "{value}");
    }
}

/// Returns the application configuration and the message after `dev` has searched for an Ollama.
async fn config_after_detection(env: &[(&str, &str)]) -> (AppConfig, Option<String>) {
    let env: BTreeMap<&str, &str> = env.iter().copied().collect();
    let mut config = AppConfig::load(&Flags::default(), &env).expect("the settings are right");
    let message = tokio::time::timeout(TEST_TIMEOUT, detect_ollama(&mut config)).await;
    let message = message.expect("it does not wait long").expect("it can look");
    (config, message)
}

#[tokio::test]
async fn dev_finds_an_ollama_and_names_the_model() {
    let vendor = Vendor::start().await;
    let url = vendor.ollama_url();
    let listed = json!([
        {"name": "nomic-embed-text:latest", "capabilities": ["embedding"]},
        {"name": "gemma3:4b", "capabilities": ["completion", "vision"]},
        {"name": "llama3.2:latest", "capabilities": ["completion", "tools"]},
    ]);
    let missing = "The server does not have that model: run `ollama pull mistral`.";
    let none = "has no local chat model; run `ollama pull llama3.2`.";
    // Models listed, `OLLAMA_MODEL`; the model chosen, and a part of the message.
    let cases = [
        (&listed, "", Some("llama3.2:latest"), "Agents use llama3.2:latest of the Ollama server at"),
        (&listed, "gemma3:4b", Some("gemma3:4b"), "Agents use gemma3:4b of the Ollama server at"),
        (&listed, "llama3.2", Some("llama3.2"), "Agents use llama3.2 of the Ollama server at"),
        (&listed, "mistral", Some("mistral"), missing),
        (&json!([]), "", None, none),
        (&json!([]), "mistral", Some("mistral"), missing),
    ];
    for (models, setting, expected, expected_message) in cases {
        vendor.on("/api/tags", [ollama::tags(models)]);
        let (config, message) =
            config_after_detection(&[("OLLAMA_BASE_URL", &url), ("OLLAMA_MODEL", setting)]).await;
        let message = message.expect("there is something to say");
        assert!(message.contains(expected_message), "{message}");
        assert_eq!(message.contains("does not have that model"), expected_message == missing, "{message}");
        let ollama = config.server.ollama;
        assert_eq!((ollama.model.as_deref(), ollama.preferred), (expected, expected.is_some()), "{message}");
    }
}

#[tokio::test]
async fn dev_ignores_an_ollama_with_a_faulty_response() {
    let absent = refused_url();
    let vendor = Vendor::start().await;
    let url = vendor.ollama_url();
    let scripts = [
        json_response("404 Not Found", "", "{}"),
        json_response("200 OK", "", "<html>"),
        vec![Step::Stall],
        vec![ollama::stream_head(), Step::Drip(b"1\r\n \r\n".to_vec(), Duration::from_millis(5))],
        vec![Step::Reset],
    ];
    for (url, script) in
        scripts.into_iter().map(|script| (&url, script)).chain([(&absent, vec![Step::Close])])
    {
        vendor.on("/api/tags", [script.clone()]);
        let (config, words) =
            config_after_detection(&[("OLLAMA_BASE_URL", url), ("OLLAMA_MODEL", "m")]).await;
        assert!(!config.server.ollama.preferred, "{script:?}");
        assert!(words.expect("it was expected").starts_with("Ollama is not reachable at"), "{script:?}");
    }
}

#[tokio::test]
async fn the_detected_model_answers_agents_without_a_model_unless_a_key_is_set() {
    let vendor = Vendor::start().await;
    let (url, hosted) = (vendor.ollama_url(), vendor.base_url());
    let tags = ollama::tags(&json!([{"name": "found:latest", "capabilities": ["completion"]}]));
    vendor.on("/api/tags", [tags]);
    let agents = workspace_with_model(&json!({"provider": "auto"}));
    let key = [("OPENAI_API_KEY", "sk-1"), ("OPENAI_BASE_URL", &*hosted), ("OPENAI_MODEL", "hosted")];
    for (more, expected) in [(&[][..], "found:latest"), (&key[..], "hosted")] {
        let mut env =
            vec![("OLLAMA_BASE_URL", &*url), ("SESSION_SECRET", server::SESSION_SECRET), ("PORT", "0")];
        env.extend(more);
        let (config, _) = config_after_detection(&env).await;
        let app = server::app_with_config(config, server::stores(&agents).await).await;
        assert_eq!(text_of(&answered_run(ask(&app, &json!("Hi")).await).await), "hello world");
        assert_eq!(vendor.received_bodies(expected).len(), 1, "{expected}");
    }
}
