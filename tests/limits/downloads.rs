//! Downloads and large responses whose clients do not read.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::server::{self, Server, session_token};
use crate::support::{TEST_TIMEOUT, expect_problem, poll_until, workspace};

/// More than the buffers of a connection hold.
const FILE_BYTES: usize = 16 << 20;

/// Uploads a picture of this many bytes and returns its path.
pub(super) async fn upload(app: &Server, bearer: &str, bytes: usize) -> String {
    let mut picture = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    picture.resize(bytes, 0);
    let request = app.request("POST", "/api/files").bearer_auth(bearer).header("content-type", "image/png");
    let response = request.body(picture).send().await.expect("the application answers");
    assert_eq!(response.status(), 201);
    let file: Value = response.json().await.expect("JSON");
    format!("/api/files/{}", file["fileId"].as_str().expect("an id"))
}

async fn get(app: &Server, bearer: &str, path: &str) -> reqwest::Response {
    app.request("GET", path).bearer_auth(bearer).send().await.expect("the application answers")
}

/// Requests a path on a connection with a small buffer, and reads the status of the response alone.
async fn begin_download(app: &Server, bearer: &str, path: &str) -> TcpStream {
    begin_exchange(app, bearer, &format!("GET {path}"), "", 200).await
}

/// Sends a request as [`begin_download`] does, with a body of JSON, and checks its status.
async fn begin_exchange(app: &Server, bearer: &str, target: &str, body: &str, expected: u16) -> TcpStream {
    let (status, stream) = send_head(app, bearer, target, body).await;
    assert_eq!(status, format!("HTTP/1.1 {expected}"));
    stream
}

/// Sends a request on a connection with a small buffer, and returns the beginning of the response's status line.
async fn send_head(app: &Server, bearer: &str, target: &str, body: &str) -> (String, TcpStream) {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("set");
    let mut stream = socket.connect(app.address).await.expect("the application listens");
    let host = app.address;
    let head = format!("{target} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {bearer}\r\n");
    let length = body.len();
    let head = format!("{head}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(head.as_bytes()).await.expect("it reads");
    let mut status = [0; 12];
    let read = tokio::time::timeout(TEST_TIMEOUT, stream.read_exact(&mut status)).await;
    read.expect("an answer").expect("the connection stands");
    (status.escape_ascii().to_string(), stream)
}

#[tokio::test]
async fn downloads_that_are_not_read_leave_connections_to_other_companies() {
    let app = server::app(&workspace("http://unused.example/v1", "m"), &[("MAX_CONNECTIONS", "32")]).await;
    let (own, other) = (session_token("u1", "c1"), session_token("u9", "c2"));
    let path = upload(&app, &own, FILE_BYTES).await;
    let small = upload(&app, &other, 100).await;
    let mut downloads = Vec::new();
    for _ in 0..16 {
        downloads.push(begin_download(&app, &own, &path).await);
    }
    for refused in [path.as_str(), "/api/threads/export"] {
        let problem = expect_problem(get(&app, &own, refused).await, 429, "RATE_LIMITED").await;
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("downloads")), "{problem}");
    }
    let response = get(&app, &other, &small).await;
    assert_eq!((response.status().as_u16(), response.bytes().await.expect("a body").len()), (200, 100));
    drop(downloads.pop());
    let status = async || get(&app, &own, &path).await.status().as_u16();
    poll_until(status, |status| *status == 200).await;
}

/// Creates a thread, and returns the path of its messages with a request's body that adds [`FILE_BYTES`] of them.
async fn long_thread(app: &Server, bearer: &str) -> (String, String) {
    let created = app.request("POST", "/api/threads").bearer_auth(bearer).json(&json!({"agentId": "a1"}));
    let thread: Value = created.send().await.expect("an answer").json().await.expect("JSON");
    let text = "x".repeat(FILE_BYTES / 160);
    let messages: Vec<Value> = (0..160).map(|_| json!({"role": "user", "content": text})).collect();
    let path = format!("/api/threads/{}", thread["id"].as_str().expect("an id"));
    (path, json!({"messages": messages, "parentId": null}).to_string())
}

#[tokio::test]
async fn large_responses_that_are_not_read_leave_connections_to_other_companies() {
    // No time limit ends before the test.
    let settings = [
        ("MAX_CONNECTIONS", "32"),
        ("BODY_LIMIT_BYTES", "33554432"),
        ("BODY_IDLE_MS", "600000"),
        ("BODY_TOTAL_MS", "600000"),
        ("WRITE_STALL_MS", "600000"),
    ];
    let app = server::app(&workspace("http://unused.example/v1", "m"), &settings).await;
    let (own, other) = (session_token("u1", "c1"), session_token("u9", "c2"));
    let (path, body) = long_thread(&app, &own).await;
    let add = format!("POST {path}/messages");
    // Changes have a quarter of the connections, and are not made if their response may not be sent.
    let mut changes = Vec::new();
    for _ in 0..8 {
        changes.push(begin_exchange(&app, &own, &add, &body, 201).await);
    }
    let rename = async || {
        let request = app.request("PATCH", &path).bearer_auth(&own).json(&json!({"title": "Other"}));
        request.send().await.expect("an answer")
    };
    let problem = expect_problem(rename().await, 429, "RATE_LIMITED").await;
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("responses")), "{problem}");
    // Reads have half of the connections, together with downloads.
    let list = format!("{path}?messages=tree&limit=160");
    let mut lists = Vec::new();
    changes.clear();
    for _ in 0..16 {
        // The clients that have left held permits of the company, too.
        let begin = async || send_head(&app, &own, &format!("GET {list}"), "").await;
        lists.push(poll_until(begin, |(status, _)| status == "HTTP/1.1 200").await.1);
    }
    for refused in [list.as_str(), "/api/threads/export"] {
        expect_problem(get(&app, &own, refused).await, 429, "RATE_LIMITED").await;
    }
    assert_eq!(get(&app, &own, "/api/agents").await.status(), 200, "a small response");
    assert_eq!(get(&app, &other, "/api/agents").await.status(), 200);
    drop(lists);
    poll_until(async || get(&app, &own, &list).await.status().as_u16(), |status| *status == 200).await;
    poll_until(async || rename().await.status().as_u16(), |status| *status == 200).await;
}
