//! What stands in for the outside, and what starts the inside.

use serde_json::{Value, json};

pub mod control;
pub mod server;
pub mod vendor;

/// A client that follows nothing and takes no proxy.
pub fn client() -> reqwest::Client {
    // The second caller in a process finds a provider installed, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().expect("a client")
}

/// A workspace of one company with an agent whose model is `model` at `base_url`, called by the application.
pub fn workspace(base_url: &str, model: &str) -> Value {
    json!({
        "users": [{"id": "u1", "companyId": "c1", "timezone": "Europe/Berlin"}],
        "agents": [{
            "id": "a1", "name": "Agent", "ownerId": "u1", "companyId": "c1",
            "content": {"systemPrompt": "Be brief.", "mcpPreset": ["readTodos", "createTodo"]},
            "children": [{"name": "EmbeddedAI", "content":
                {"provider": "openai", "model": model, "baseUrl": base_url, "apiKey": "role-key-canary"}}]
        }],
        "todoLists": [{"id": "l1", "ownerId": "u1", "companyId": "c1", "name": "Mine",
            "todos": [{"id": "t1", "title": "Water the basil", "done": false}]}]
    })
}

/// The events of an NDJSON body.
pub fn events(body: &str) -> Vec<Value> {
    body.lines().map(|line| serde_json::from_str(line).expect("each line is an event")).collect()
}
