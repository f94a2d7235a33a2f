//! Management API: authorization and validation for agents, documents and tokens.

mod agents;
mod documents;
mod identity;
mod limits;
mod memories;
mod sharing;
mod tokens;

use agentd::stores::Stores;
use reqwest::Response;
use serde_json::{Value, json};

use crate::support::server::{self, Server, session_token};

/// The owner of the agent `a1`, a colleague, and a user of another company, each as user and company id.
const OWNER: (&str, &str) = ("u1", "c1");
const COLLEAGUE: (&str, &str) = ("u2", "c1");
const STRANGER: (&str, &str) = ("u3", "c2");
/// An admin and a viewer of the owner's company.
const ADMIN: (&str, &str) = ("boss", "c1");
const VIEWER: (&str, &str) = ("guest", "c1");

/// Secrets that no response may contain.
const SECRETS: &[&str] =
    &["role-key-canary", "bot-canary", "server-key-canary", "password-canary", "fresh-canary"];

/// Returns a workspace of two companies.
fn workspace() -> Value {
    json!({
        "users": [
            {"id": "boss", "companyId": "c1", "role": "admin"},
            {"id": "guest", "companyId": "c1", "role": "viewer"},
            {"id": "boss", "companyId": "c2", "role": "admin"}
        ],
        "agents": [
            {"id": "a1", "name": "Agent", "ownerId": "u1", "companyId": "c1",
                "content": {"systemPrompt": "Be brief.", "messengerToken": "bot-canary",
                    "agentServerUrl": "https://one.example", "agentServerApiKey": "server-key-canary"},
                "children": [
                    {"name": "EmbeddedAI", "content":
                        {"provider": "openai", "baseUrl": "https://model.example/v1", "apiKey": "role-key-canary"}},
                    {"name": "WorkflowConnector", "content": {"webhookUrl": "https://flow.example/x",
                        "auth": {"type": "basic", "user": "u", "password": "password-canary"}}}]},
            {"id": "b1", "ownerId": "u2", "companyId": "c1"},
            {"id": "z1", "ownerId": "u3", "companyId": "c2"}
        ],
        "documents": [
            {"id": "d1", "companyId": "c1", "title": "Hours", "text": "Nine to five."},
            {"id": "d2", "companyId": "c2", "title": "Theirs", "text": "Not yours."}
        ]
    })
}

/// An application with that workspace, and its stores.
struct ManagementApp {
    app: Server,
    stores: Stores,
}

async fn open() -> ManagementApp {
    let stores = server::stores(&workspace()).await;
    ManagementApp { app: server::app_with_stores(stores.clone(), &[]).await, stores }
}

impl ManagementApp {
    /// Sends a request with a session of `user` and additional headers.
    async fn send(
        &self,
        user: (&str, &str),
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Response {
        let mut request = self.app.request(method, path).bearer_auth(session_token(user.0, user.1));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        body.into_iter().fold(request, |request, body| request.json(body)).send().await.expect("an answer")
    }

    async fn get(&self, user: (&str, &str), path: &str) -> Response {
        self.send(user, "GET", path, &[], None).await
    }

    async fn put(&self, user: (&str, &str), path: &str, body: &Value) -> Response {
        self.send(user, "PUT", path, &[], Some(body)).await
    }

    async fn post(&self, user: (&str, &str), path: &str, body: &Value) -> Response {
        self.send(user, "POST", path, &[], Some(body)).await
    }

    async fn delete(&self, user: (&str, &str), path: &str) -> Response {
        self.send(user, "DELETE", path, &[], None).await
    }
}

/// Checks the status, the content type and the absence of secrets; returns the JSON body.
async fn expect_json(response: Response, status: u16) -> Value {
    let (actual_status, headers) = (response.status(), response.headers().clone());
    let text = response.text().await.expect("a whole body");
    assert_eq!(actual_status, status, "{text}");
    assert!(!SECRETS.iter().any(|secret| text.contains(secret)), "{text}");
    assert_eq!(headers["content-type"], "application/json");
    serde_json::from_str(&text).expect("JSON")
}

/// Returns a document without the account of its index, which is there as soon as the document is indexed.
fn without_index(mut document: Value) -> Value {
    document.as_object_mut().expect("a document").remove("indexed");
    document
}

/// Returns the response's `ETag`.
fn entity_tag(response: &Response) -> String {
    response.headers()["etag"].to_str().expect("text").to_owned()
}
