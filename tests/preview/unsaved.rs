//! Previews of roles that are not saved.

use serde_json::{Value, json};

use super::{PREVIEW, json_of, text, workspace_with_container};
use crate::support::server::{self, Server, session_token};
use crate::support::{expect_problem, workspace};

const AGENT: &str = "/api/agents/a1";

fn request(app: &Server, user: &str, agent: &str, body: &Value) -> reqwest::RequestBuilder {
    let path = format!("/api/agents/{agent}/preview");
    app.request("POST", &path).bearer_auth(session_token(user, "c1")).json(body)
}

async fn read(app: &Server, path: &str) -> (String, Value) {
    let answer = app.request("GET", path).bearer_auth(session_token("u1", "c1")).send().await;
    let answer = answer.expect("an answer");
    let version = answer.headers()["etag"].to_str().expect("printable").to_owned();
    (version, answer.json().await.expect("JSON"))
}

#[tokio::test]
async fn an_edited_role_is_shown_and_not_saved() {
    let app = server::app(&workspace("http://127.0.0.1:9/v1", "m"), &[]).await;
    let before = read(&app, AGENT).await;
    let mut role = before.1.clone();
    role["content"]["systemPrompt"] = json!("Speak in verse.");
    role["content"]["mcpPreset"] = json!(["readTodos"]);
    role["content"]["enableAutoRag"] = json!(true);
    let request_body =
        json!({"role": role, "message": "Hello?", "todoListId": "l1", "pageContext": {"url": "/plants"}});
    let body = json_of(request(&app, "u1", "a1", &request_body)).await;
    assert!(body["finalSystemPrompt"].as_str().expect("text").starts_with("Speak in verse."), "{body}");
    assert_eq!(body["tools"].as_array().map(Vec::len), Some(1));
    assert!(body["combinedContext"].as_str().expect("text").contains("/plants"));
    assert_eq!(body["payload"]["messages"][0]["content"], body["finalSystemPrompt"]);
    assert_eq!(body["warnings"][0]["path"], "content.enableAutoRag");

    assert_eq!(read(&app, AGENT).await, before);
    let stored = app.request("GET", &format!("{PREVIEW}?agentId=a1")).bearer_auth(session_token("u1", "c1"));
    assert!(json_of(stored).await["finalSystemPrompt"].as_str().expect("text").starts_with("Be brief."));
}

#[tokio::test]
async fn a_role_that_equals_the_saved_one_has_the_saved_preview() {
    let app = server::app(&workspace("http://127.0.0.1:9/v1", "m"), &[]).await;
    let (_, role) = read(&app, AGENT).await;
    let unsaved = json_of(request(&app, "u1", "a1", &json!({"role": role}))).await;
    let saved = app.request("GET", &format!("{PREVIEW}?agentId=a1")).bearer_auth(session_token("u1", "c1"));
    let saved = json_of(saved).await;
    for field in ["systemPromptParts", "tools", "selection", "cache"] {
        assert_eq!(unsaved[field], saved[field], "{field}");
    }
}

#[tokio::test]
async fn masked_secrets_are_the_saved_ones_and_none_is_shown() {
    let container =
        json!({"agentServerUrl": "https://one.example", "agentServerApiKey": "server-key-canary"});
    let app = server::app(&workspace_with_container("AgentServer", &container), &[]).await;
    let (_, role) = read(&app, AGENT).await;
    let key = |secret: Option<&str>, url: &str| {
        let mut role = role.clone();
        role["children"][0]["content"] = json!({"agentServerUrl": url});
        if let Some(secret) = secret {
            role["children"][0]["content"]["agentServerApiKey"] = json!(secret);
        }
        request(&app, "u1", "a1", &json!({ "role": role }))
    };
    let (same, other) = ("https://one.example", "https://other.example");
    let cases = [
        (Some("***"), same, true),
        (None, same, true),
        (Some("fresh-canary"), same, true),
        (Some("fresh-canary"), other, true),
        (Some(""), same, false),
        (Some("***"), other, false),
    ];
    for (secret, url, is_kept) in cases {
        let text = text(key(secret, url)).await;
        assert!(!text.contains("canary"), "{text}");
        let shown: Value = serde_json::from_str(&text).expect("JSON");
        let expected = if is_kept { json!("***") } else { Value::Null };
        assert_eq!(shown["payload"]["apiKey"], expected, "{secret:?} for {url}");
    }
}

#[tokio::test]
async fn a_new_agent_is_previewed_before_it_exists() {
    let app = server::app(&workspace("http://127.0.0.1:9/v1", "m"), &[]).await;
    let role = json!({"name": "New", "content": {"systemPrompt": "Be new."}, "children": [{"name": "EmbeddedAI",
        "content": {"provider": "openai", "model": "m", "baseUrl": "http://127.0.0.1:9/v1", "apiKey": "***"}}]});
    let body = json_of(request(&app, "u2", "fresh", &json!({ "role": role }))).await;
    assert_eq!(
        (&body["executionContext"]["agentId"], &body["executionContext"]["agentName"]),
        (&json!("fresh"), &json!("New"))
    );
    let answer = app.request("GET", "/api/agents/fresh").bearer_auth(session_token("u2", "c1")).send().await;
    expect_problem(answer.expect("an answer"), 404, "NOT_FOUND").await;
    let invalid = request(&app, "u2", "a%20", &json!({ "role": role })).send().await.expect("an answer");
    expect_problem(invalid, 400, "INVALID_REQUEST").await;
}

#[tokio::test]
async fn previews_are_refused_like_saves() {
    let app = server::app(&workspace("http://127.0.0.1:9/v1", "m"), &[]).await;
    let (_, role) = read(&app, AGENT).await;
    let with = |change: fn(&mut Value)| {
        let mut role = role.clone();
        change(&mut role);
        json!({ "role": role })
    };
    let same = with(|_| {});
    let cases = [
        ("u2", same.clone(), 403, "FORBIDDEN", "owner"),
        ("u1", json!({}), 400, "INVALID_REQUEST", "role is missing"),
        ("u1", json!({"role": []}), 400, "INVALID_REQUEST", "role must be an object"),
        ("u1", with(|role| role["content"]["tolls"] = json!([])), 400, "INVALID_REQUEST", "content.tolls"),
        (
            "u1",
            with(|role| role["content"]["documentIds"] = json!(["none"])),
            400,
            "INVALID_REQUEST",
            "documentIds",
        ),
        ("u1", with(|role| role["id"] = json!("b1")), 400, "INVALID_REQUEST", "id"),
        ("u1", with(|role| role["ownerId"] = json!("u2")), 403, "FORBIDDEN", "ownerId"),
        ("u1", json!({"role": role, "agentId": "b1"}), 400, "INVALID_REQUEST", "agentId"),
        ("u1", json!({"role": role, "message": 7}), 400, "INVALID_REQUEST", "message"),
        ("u1", with(|role| role["children"] = json!([])), 422, "NO_CONNECTOR", "backend"),
    ];
    for (user, body, status, code, expected) in cases {
        let answer = request(&app, user, "a1", &body).send().await.expect("an answer");
        let problem = expect_problem(answer, status, code).await;
        assert!(problem["detail"].as_str().expect("a detail").contains(expected), "{problem}");
    }
    let path = format!("{AGENT}/preview");
    let stranger =
        |body: &Value| app.request("POST", &path).bearer_auth(session_token("u1", "c2")).json(body);
    expect_problem(stranger(&same).send().await.expect("an answer"), 403, "FORBIDDEN").await;
    // For another company the agent is one that could be created.
    let body = json_of(stranger(&with(|role| {
        for name in ["id", "ownerId", "companyId"] {
            role.as_object_mut().expect("an object").remove(name);
        }
    })));
    assert_eq!(body.await["systemPromptParts"][0]["content"], "Be brief.");
    let nobody = app.request("POST", &path).json(&same).send().await.expect("an answer");
    expect_problem(nobody, 401, "UNAUTHENTICATED").await;
}
