//! A double of the runtime's routes below `/coding-auth`, over an issuer in memory.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_core::clock::SystemClock;
use agent_core::secret::Secret;
use agent_platform::coding::{CodingAuthority, CodingAuthorityError, DeviceCode, IssuedTokens, TokenHint};
use agent_platform::testing::ScriptedIssuer;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::vendor::{ReceivedRequest, read_request};

/// Secret of the runtime (`RUNTIME_SECRET`).
pub const RUNTIME_SECRET: &str = "runtime-canary-0123456789";

/// The runtime; stops when dropped.
pub struct CodingRuntime {
    pub address: SocketAddr,
    /// The issuer behind it, whose interval is a second.
    pub issuer: Arc<ScriptedIssuer>,
    task: JoinHandle<()>,
}

impl CodingRuntime {
    /// Starts a runtime on a free port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound listener");
        let issuer = Arc::new(ScriptedIssuer::new(Arc::new(SystemClock)));
        issuer.set_sign_ins(Duration::from_secs(1), Duration::from_secs(900));
        let task = tokio::spawn({
            let issuer = issuer.clone();
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream, issuer.clone()));
                }
            }
        });
        Self { address, issuer, task }
    }

    /// Returns the base URL (`RUNTIME_URL`).
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for CodingRuntime {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, issuer: Arc<ScriptedIssuer>) {
    let mut buffer = Vec::new();
    while let Some(request) = read_request(&mut stream, &mut buffer).await {
        let (status, kind, body) = answer(&request, &issuer).await;
        let body = body.to_string();
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncache-control: no-store\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        if stream.write_all(format!("{head}{body}").as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Returns the response's status line, content type and body.
async fn answer(request: &ReceivedRequest, issuer: &ScriptedIssuer) -> (&'static str, &'static str, Value) {
    if !request.head.contains(&format!("Bearer {RUNTIME_SECRET}\r\n")) {
        return problem("401 Unauthorized", "UNAUTHENTICATED", "a secret is required", json!({}));
    }
    let body = request.json();
    let member = |name: &str| Secret::new(body[name].as_str().unwrap_or_default());
    let answer = match request.path() {
        "/coding-auth/device" => issuer.request_device_code().await.map(|code| device_body(&code)),
        "/coding-auth/token" => {
            issuer.request_tokens(&member("device_code")).await.map(|set| token_body(&set))
        }
        "/coding-auth/refresh" => {
            issuer.refresh(&member("refresh_token"), Instant::now()).await.map(|set| token_body(&set))
        }
        "/coding-auth/revoke" => {
            let revoked = issuer.revoke(&member("token"), TokenHint::RefreshToken).await;
            revoked.map(|revoked| json!({"revoked": revoked}))
        }
        _ => return problem("404 Not Found", "NOT_FOUND", "not found", json!({})),
    };
    answer.map_or_else(refusal, |body| ("200 OK", "application/json", body))
}

fn device_body(code: &DeviceCode) -> Value {
    json!({
        "device_code": code.device_code.expose(),
        "user_code": code.user_code.expose(),
        "verification_uri": code.verification_uri,
        "verification_uri_complete": format!("{}?code={}", code.verification_uri, code.user_code.expose()),
        "expires_in": code.expires_in.as_secs(),
        "interval": code.interval.as_secs(),
    })
}

fn token_body(tokens: &IssuedTokens) -> Value {
    json!({
        "access_token": tokens.access_token.expose(),
        "token_type": "Bearer",
        "expires_in": tokens.expires_in.as_secs(),
        "refresh_token": tokens.refresh_token.as_ref().map(Secret::expose),
        "account_id": tokens.account_id.as_ref().map(Secret::expose),
        "plan": tokens.plan,
    })
}

fn refusal(error: CodingAuthorityError) -> (&'static str, &'static str, Value) {
    let oauth = |members: Value| problem("400 Bad Request", "OAUTH_ERROR", "the issuer refused", members);
    match error {
        CodingAuthorityError::InvalidGrant(fault) => {
            oauth(json!({"error": "invalid_grant", "reason": fault.to_string()}))
        }
        CodingAuthorityError::NotConfigured(setting) => {
            let detail = format!("{setting} is not configured");
            problem("503 Service Unavailable", "NOT_CONFIGURED", &detail, json!({}))
        }
        CodingAuthorityError::RateLimited(_) => {
            problem("429 Too Many Requests", "RATE_LIMITED", "too many requests", json!({}))
        }
        error @ (CodingAuthorityError::Pending
        | CodingAuthorityError::SlowDown
        | CodingAuthorityError::Denied
        | CodingAuthorityError::Expired) => oauth(json!({"error": error.to_string()})),
        _ => problem(
            "502 Bad Gateway",
            "BACKEND_FAILED",
            "turned away before it reached the issuer",
            json!({}),
        ),
    }
}

fn problem(
    status: &'static str,
    code: &str,
    detail: &str,
    mut members: Value,
) -> (&'static str, &'static str, Value) {
    members["code"] = code.into();
    members["detail"] = detail.into();
    (status, "application/problem+json", members)
}
