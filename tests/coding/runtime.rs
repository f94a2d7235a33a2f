//! The runtime's routes `/coding-chat` and `/coding-auth`.

mod auth;
mod auth_faults;
mod chat;
mod relay;
mod secrets;

use agent_client::device_auth::DeviceAuthDialect;
use reqwest::Response;
use serde_json::{Value, json};

use crate::support::expect_problem;
use crate::support::issuer::FakeIssuer;
use crate::support::server::{self, Server};

const RUNTIME_SECRET: &str = "runtime-canary-0123456789";

const DIALECTS: [DeviceAuthDialect; 2] = [DeviceAuthDialect::Rfc8628, DeviceAuthDialect::Codex];

/// Starts a runtime with the secret and these settings. No address of a request is allowed.
async fn runtime(settings: &[(&str, &str)]) -> Server {
    let own_settings = [("RUNTIME_SECRET", RUNTIME_SECRET), ("OUTBOUND_ALLOW", "")];
    server::runtime(&[&own_settings, settings].concat()).await
}

/// Starts a runtime for an issuer.
async fn runtime_for(issuer: &FakeIssuer) -> Server {
    let settings = issuer.settings();
    let settings: Vec<_> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    runtime(&settings).await
}

/// Posts JSON to a route with the runtime's secret.
async fn post(runtime: &Server, path: &str, body: &Value) -> Response {
    let request = runtime.request("POST", path).bearer_auth(RUNTIME_SECRET);
    request.json(body).send().await.expect("an answer")
}

async fn begin(runtime: &Server) -> Response {
    post(runtime, "/coding-auth/device", &json!({})).await
}

async fn poll(runtime: &Server, handle: &str) -> Response {
    post(runtime, "/coding-auth/token", &json!({"device_code": handle})).await
}

async fn refresh(runtime: &Server, token: &str) -> Response {
    post(runtime, "/coding-auth/refresh", &json!({"refresh_token": token})).await
}

/// Returns the body of a success, which is never stored.
async fn expect_ok(response: Response) -> Value {
    let (status, headers) = (response.status(), response.headers().clone());
    let body = response.text().await.expect("a whole body");
    assert_eq!(status, 200, "{body}");
    assert_eq!(headers["content-type"], "application/json");
    assert_eq!(headers["cache-control"], "no-store");
    serde_json::from_str(&body).expect("JSON")
}

/// Checks that a response is a refusal with an error code of OAuth, and returns its reason.
async fn expect_oauth_error(response: Response, error: &str) -> Option<String> {
    assert_eq!(response.headers()["cache-control"], "no-store");
    let problem = expect_problem(response, 400, "OAUTH_ERROR").await;
    assert_eq!(problem["error"], error, "{problem}");
    problem.get("reason").map(|reason| reason.as_str().expect("text").to_owned())
}

/// Shows a response as its OAuth error with the reason, else as its code, else as its status.
async fn outcome(response: Response) -> String {
    let status = response.status().as_u16();
    let body: Value = response.json().await.expect("JSON");
    match (body["error"].as_str(), body["reason"].as_str(), body["code"].as_str()) {
        (Some(error), Some(reason), _) => format!("{error} {reason}"),
        (Some(error), None, _) => error.to_owned(),
        (None, _, Some(code)) => format!("{status} {code}"),
        (None, _, None) => status.to_string(),
    }
}
