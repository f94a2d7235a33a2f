//! Bodies of authenticated requests that do not arrive, and requests that wait for runs.

use std::sync::Arc;

use agent_core::clock::SystemClock;
use agent_platform::token::{Grant, McpGrant, NewToken, Tokens};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::server::{self, Server, session_token};
use crate::support::vendor::{Step, Vendor};
use crate::support::{TEST_TIMEOUT, client, expect_problem, poll_until, workspace};

/// Sends the head of a request, and waits until the server asks for the body.
async fn begin_body(app: &Server, bearer: &str, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(app.address).await.expect("the application listens");
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {bearer}\r\ncontent-type: application/json\r\n\
         content-length: 100\r\nexpect: 100-continue\r\n\r\n",
        app.address
    );
    stream.write_all(head.as_bytes()).await.expect("it reads");
    let expected = b"HTTP/1.1 100 Continue\r\n\r\n";
    let mut answer = vec![0; expected.len()];
    let read = tokio::time::timeout(TEST_TIMEOUT, stream.read_exact(&mut answer)).await;
    read.expect("an answer").expect("the connection stands");
    assert_eq!(answer.escape_ascii().to_string(), expected.escape_ascii().to_string());
    stream
}

#[tokio::test]
async fn slow_bodies_of_a_company_leave_connections_to_others() {
    let vendor = Vendor::start().await;
    let settings = [("MAX_CONNECTIONS", "16"), ("BODY_IDLE_MS", "600000"), ("BODY_TOTAL_MS", "600000")];
    let app = server::app(&workspace(&vendor.base_url(), "m"), &settings).await;
    let (own, other) = (session_token("u1", "c1"), session_token("u9", "c2"));
    let mut bodies = Vec::new();
    for path in ["/api/agent/chat", "/api/svcchat/previewPrompt"] {
        for _ in 0..2 {
            bodies.push(begin_body(&app, &own, path).await);
        }
    }
    let message = json!({"agentId": "a1", "message": "Hello"});
    let problem = expect_problem(app.chat(&message).await, 429, "RATE_LIMITED").await;
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("bodies")), "{problem}");
    let agents = app.request("GET", "/api/agents").bearer_auth(&own).send().await.expect("an answer");
    assert_eq!(agents.status(), 200, "a request without a body");
    expect_problem(app.chat_as(&other, "", &message).await, 404, "NOT_FOUND").await;
    drop(bodies.pop());
    poll_until(async || app.chat(&message).await.status().as_u16(), |status| *status == 200).await;
}

#[tokio::test]
async fn slow_bodies_at_the_tool_server_leave_connections_to_others() {
    let stores = server::stores(&workspace("http://unused.example/v1", "m")).await;
    let tokens = Tokens::new(stores.records.clone(), Arc::new(SystemClock));
    let grant = Grant::Mcp(McpGrant { user_id: "u1".into(), ..McpGrant::default() });
    let token = tokens.mint(NewToken::new("c1", "a1", grant)).await.expect("minted").text;
    let settings = [("MAX_CONNECTIONS", "16"), ("BODY_IDLE_MS", "600000"), ("BODY_TOTAL_MS", "600000")];
    let app = server::app_with_stores(stores, &settings).await;
    let path = "/api/agent/mcp";
    let mut bodies = Vec::new();
    for _ in 0..4 {
        bodies.push(begin_body(&app, token.expose(), path).await);
    }
    let ping = async || {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
        let request = app.request("POST", path).bearer_auth(token.expose()).json(&message);
        request.send().await.expect("an answer")
    };
    let problem = expect_problem(ping().await, 429, "RATE_LIMITED").await;
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("bodies")), "{problem}");
    drop(bodies.pop());
    poll_until(async || ping().await.status().as_u16(), |status| *status == 200).await;
}

#[tokio::test]
async fn requests_that_wait_for_runs_leave_a_company_its_other_requests() {
    let vendor = Vendor::start().await;
    vendor.on("m", [vec![Step::Stall]]);
    // A quarter of the connections is fewer than the runs that wait.
    let app = server::app(&workspace(&vendor.base_url(), "m"), &[("MAX_CONNECTIONS", "16")]).await;
    let own = session_token("u1", "c1");
    let message = json!({"agentId": "a1", "message": "Hello"});
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let url = format!("http://{}/api/agent/chat?format=json", app.address);
        let chat = client().post(url).bearer_auth(&own).json(&message);
        waiting.spawn(async move { chat.send().await.map(|response| response.status()) });
    }
    vendor.wait_for_requests("m", 6).await;
    let created = app.request("POST", "/api/threads").bearer_auth(&own).json(&json!({"agentId": "a1"}));
    assert_eq!(created.send().await.expect("an answer").status(), 201);
    waiting.abort_all();
}
