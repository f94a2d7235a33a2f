//! The API that follows OpenAI's: models, chat completions, its tokens and its errors.

mod errors;
mod runs;

use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::SystemClock;
use agent_platform::token::{ApiGrant, NewToken, RunCaps, Tokens};
use agentd::stores::Stores;
use serde_json::{Value, json};

use crate::support::server::{self, Server, session_token};
use crate::support::vendor::Vendor;
use crate::support::workspace;

/// The application with the agents `a1` and `a2`, their vendor, an API token of the user `u1` for both, and the admin `boss`.
struct OpenAiApp {
    vendor: Vendor,
    app: Server,
    stores: Stores,
    token: String,
}

impl OpenAiApp {
    async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// Starts the application with a changed role of `a1`.
    async fn start_with(change: impl FnOnce(&mut Value)) -> Self {
        let vendor = Vendor::start().await;
        let mut workspace = workspace(&vendor.base_url(), "m");
        let mut second = workspace["agents"][0].clone();
        second["id"] = "a2".into();
        workspace["agents"].as_array_mut().expect("a list").push(second);
        workspace["users"] = json!([{"id": "boss", "companyId": "c1", "role": "admin"}]);
        change(&mut workspace["agents"][0]);
        let stores = server::stores(&workspace).await;
        let app = server::app_with_stores(stores.clone(), &[]).await;
        let token = mint(&stores, &["a1", "a2"], None, None).await;
        Self { vendor, app, stores, token }
    }

    async fn get(&self, path: &str) -> reqwest::Response {
        let request = self.app.request("GET", path).bearer_auth(&self.token);
        request.send().await.expect("an answer")
    }

    /// Asks the agent `a1`, with further members of the body and further headers.
    async fn send(&self, more: Value, headers: &[(&str, &str)]) -> reqwest::Response {
        self.send_with(&self.token, more, headers).await
    }

    async fn send_with(&self, token: &str, more: Value, headers: &[(&str, &str)]) -> reqwest::Response {
        let mut body = json!({"model": "a1", "messages": [{"role": "user", "content": "Hello"}]});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let mut request = self.app.request("POST", "/v1/chat/completions").bearer_auth(token).json(&body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.expect("an answer")
    }

    /// Asks the agent `a1` for a whole completion.
    async fn complete(&self, more: Value) -> Value {
        expect_json(self.send(more, &[]).await).await
    }

    /// Asks the agent `a1` for a stream; returns the data of its frames.
    async fn stream(&self, mut more: Value) -> Vec<String> {
        more["stream"] = json!(true);
        frames(self.send(more, &[]).await).await
    }

    /// Sends a request with the user's session.
    async fn call(&self, method: &str, path: &str) -> Value {
        let request = self.app.request(method, path).bearer_auth(session_token("u1", "c1"));
        request.send().await.expect("an answer").json().await.expect("JSON")
    }
}

/// Creates an API token of the user `u1`.
async fn mint(stores: &Stores, agents: &[&str], caps: Option<RunCaps>, ttl: Option<Duration>) -> String {
    let agents = agents.iter().map(|agent| (*agent).into()).collect();
    let new = NewToken::api("c1", ApiGrant { user_id: "u1".into(), agents, caps });
    let tokens = Tokens::new(stores.records.clone(), Arc::new(SystemClock));
    tokens.mint(NewToken { ttl, ..new }).await.expect("minted").text.expose().to_owned()
}

/// Checks that a response is 200, and returns its JSON.
async fn expect_json(response: reqwest::Response) -> Value {
    let status = response.status();
    let text = response.text().await.expect("a whole body");
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).expect("JSON")
}

/// Checks that a response is an error of this status and code in the API's shape, and returns the error.
async fn expect_error(response: reqwest::Response, status: u16, code: &str) -> Value {
    let (actual_status, headers) = (response.status(), response.headers().clone());
    let body = response.text().await.expect("a whole body");
    assert_eq!(actual_status, status, "{body}");
    assert_eq!(headers["content-type"], "application/json");
    assert!(!headers["x-request-id"].is_empty());
    let body: Value = serde_json::from_str(&body).expect("JSON");
    let error = body["error"].clone();
    let mut names: Vec<&String> = error.as_object().expect("an object").keys().collect();
    names.sort();
    assert_eq!(names, ["code", "message", "param", "type"], "{body}");
    assert_eq!(error["code"], code, "{body}");
    assert!(!error["message"].as_str().expect("a message").is_empty());
    error
}

/// Returns the data of the frames of a stream, whose last one is `[DONE]`.
async fn frames(response: reqwest::Response) -> Vec<String> {
    let (status, headers) = (response.status(), response.headers().clone());
    let body = response.text().await.expect("a whole body");
    assert_eq!(status, 200, "{body}");
    assert_eq!(headers["content-type"], "text/event-stream");
    let frames = body.split_terminator("\n\n").map(|frame| frame.strip_prefix("data: ").expect("a frame"));
    let mut frames: Vec<String> = frames.map(str::to_owned).collect();
    assert_eq!(frames.pop().as_deref(), Some("[DONE]"), "{body}");
    frames
}

/// Returns the text of the chunks.
fn text(frames: &[String]) -> String {
    let chunks = frames.iter().map(|frame| serde_json::from_str::<Value>(frame).expect("JSON"));
    chunks.filter_map(|chunk| Some(chunk["choices"][0]["delta"]["content"].as_str()?.to_owned())).collect()
}

/// Returns the tools of the client.
fn client_tools() -> Value {
    let parameters = json!({"type": "object", "properties": {"color": {"type": "string"}}});
    json!([{"type": "function", "function": {"name": "paint", "description": "Paints.", "parameters": parameters}}])
}
