//! Connections that the requests of one company hold together, whatever they wait for and however small their responses are.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;
use tokio::task::JoinSet;

use crate::support::server::{self, Server, session_token};
use crate::support::vendor::{Step, Vendor};
use crate::support::{TEST_TIMEOUT, client, expect_problem, poll_until, workspace};

const CONNECTIONS: (&str, &str) = ("MAX_CONNECTIONS", "16");
/// Connections of the clients of one company: nine sixteenths.
const SHARE: usize = 9;
/// Requests that are sent on a connection at once: their responses are more than its buffers hold.
const PIPELINED: usize = 1_000;

async fn agents(app: &Server, bearer: &str) -> reqwest::Response {
    app.request("GET", "/api/agents").bearer_auth(bearer).send().await.expect("an answer")
}

#[tokio::test]
async fn runs_of_a_company_leave_connections_to_others() {
    let vendor = Vendor::start().await;
    vendor.on("m", [vec![Step::Stall]]);
    let app = server::app(&workspace(&vendor.base_url(), "m"), &[CONNECTIONS]).await;
    let (own, other) = (session_token("u1", "c1"), session_token("u9", "c2"));
    let mut runs = JoinSet::new();
    for _ in 0..SHARE {
        let chat = client().post(app.url("/api/agent/chat?format=json")).bearer_auth(&own);
        let chat = chat.json(&json!({"agentId": "a1", "message": "Hello"}));
        runs.spawn(async move { chat.send().await.map(|response| response.status()) });
    }
    vendor.wait_for_requests("m", SHARE).await;
    let problem = expect_problem(agents(&app, &own).await, 429, "RATE_LIMITED").await;
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("connections")), "{problem}");
    assert_eq!(agents(&app, &other).await.status(), 200);
    runs.abort_all();
    poll_until(async || agents(&app, &own).await.status().as_u16(), |status| *status == 200).await;
}

/// Creates a thread with a message, and returns the path of a response that is not large, but nearly so.
async fn small_list(app: &Server, bearer: &str) -> String {
    let created = app.request("POST", "/api/threads").bearer_auth(bearer).json(&json!({"agentId": "a1"}));
    let thread: Value = created.send().await.expect("an answer").json().await.expect("JSON");
    let path = format!("/api/threads/{}", thread["id"].as_str().expect("an id"));
    let messages = json!({"messages": [{"role": "user", "content": "x".repeat(30_000)}], "parentId": null});
    let added = app.request("POST", &format!("{path}/messages")).bearer_auth(bearer).json(&messages);
    assert_eq!(added.send().await.expect("an answer").status(), 201);
    let list = format!("{path}?messages=tree");
    let response = app.request("GET", &list).bearer_auth(bearer).send().await.expect("an answer");
    let bytes = response.bytes().await.expect("a body").len();
    assert!((30_000..32 * 1024).contains(&bytes), "{bytes}");
    list
}

/// Sends many requests on a connection with a small buffer, and reads no response until the future is dropped.
async fn send_and_read_nothing(address: SocketAddr, bearer: String, path: String) {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("set");
    let mut stream = socket.connect(address).await.expect("the application listens");
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {bearer}\r\n\r\n");
    let _ = stream.write_all(request.repeat(PIPELINED).as_bytes()).await;
    std::future::pending().await
}

#[tokio::test]
async fn small_responses_that_are_not_read_leave_connections_to_other_companies() {
    // No time limit ends before the test.
    let settings = [CONNECTIONS, ("WRITE_STALL_MS", "600000")];
    let app = server::app(&workspace("http://unused.example/v1", "m"), &settings).await;
    let (own, other) = (session_token("u1", "c1"), session_token("u9", "c2"));
    let list = small_list(&app, &own).await;
    let mut unread = JoinSet::<()>::new();
    let hold_and_ask = async || {
        // More than the maximum number, since refused connections are closed.
        if unread.len() < 3 * SHARE {
            unread.spawn(send_and_read_nothing(app.address, own.clone(), list.clone()));
        }
        agents(&app, &own).await.status().as_u16()
    };
    poll_until(hold_and_ask, |status| *status == 429).await;
    let theirs = tokio::time::timeout(TEST_TIMEOUT, agents(&app, &other)).await.expect("an answer");
    assert_eq!(theirs.status(), 200);
    drop(unread);
    poll_until(async || agents(&app, &own).await.status().as_u16(), |status| *status == 200).await;
}
