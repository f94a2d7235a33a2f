//! Uploaded documents over the HTTP interface: uploads, the extraction of their texts, limits and rights, and processes
//! that share a store, of which some are killed.

mod kill;
mod limits;
mod processes;
mod rights;
mod uploads;

use agentd::stores::Stores;
use reqwest::Response;
use serde_json::json;

use crate::support::server::{self, Server, session_token};

/// The owner of the documents, a colleague, and a user of another company, each as user and company id.
const OWNER: (&str, &str) = ("u1", "c1");
const COLLEAGUE: (&str, &str) = ("u2", "c1");
const STRANGER: (&str, &str) = ("u3", "c2");
/// An admin and a viewer of the owner's company.
const ADMIN: (&str, &str) = ("boss", "c1");
const VIEWER: (&str, &str) = ("guest", "c1");

/// Headers of a request that waits for the end of the extraction.
const WAIT: [(&str, &str); 1] = [("prefer", "wait=30")];

async fn stores() -> Stores {
    let users = json!([
        {"id": "boss", "companyId": "c1", "role": "admin"},
        {"id": "guest", "companyId": "c1", "role": "viewer"}
    ]);
    server::stores(&json!({ "users": users })).await
}

async fn open(settings: &[(&str, &str)]) -> Server {
    server::app_with_stores(stores().await, settings).await
}

/// Sends a request with a session of `user`.
async fn send(
    app: &Server,
    user: (&str, &str),
    (method, path): (&str, &str),
    headers: &[(&str, &str)],
    body: impl Into<reqwest::Body>,
) -> Response {
    let request = app.request(method, path).bearer_auth(session_token(user.0, user.1)).body(body);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.send().await.expect("the application answers")
}

/// Uploads a plain text.
async fn upload(
    app: &Server,
    user: (&str, &str),
    path: &str,
    headers: &[(&str, &str)],
    text: impl Into<reqwest::Body>,
) -> Response {
    let headers = [&[("content-type", "text/plain")], headers].concat();
    send(app, user, ("PUT", path), &headers, text).await
}

async fn get(app: &Server, user: (&str, &str), path: &str) -> Response {
    send(app, user, ("GET", path), &[], "").await
}

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers()[name].to_str().expect("text")
}
