//! Downloads whose clients do not read.

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::server::{self, Server, session_token};
use crate::support::{TEST_TIMEOUT, expect_problem, poll_until, workspace};

/// More than the buffers of a connection hold.
const FILE_BYTES: usize = 16 << 20;

/// Uploads a picture of so many bytes and returns its path.
async fn upload(app: &Server, bearer: &str, bytes: usize) -> String {
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
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("set");
    let mut stream = socket.connect(app.address).await.expect("the application listens");
    let host = app.address;
    let head = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {bearer}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.expect("it reads");
    let mut status = [0; 12];
    let read = tokio::time::timeout(TEST_TIMEOUT, stream.read_exact(&mut status)).await;
    read.expect("an answer").expect("the connection stands");
    assert_eq!(status.escape_ascii().to_string(), "HTTP/1.1 200");
    stream
}

#[tokio::test]
async fn downloads_that_are_not_read_leave_connections_to_other_companies() {
    let app = server::app(&workspace("http://unused.example/v1", "m"), &[("MAX_CONNECTIONS", "16")]).await;
    let (own, other) = (session_token("u1", "c1"), session_token("u9", "c2"));
    let path = upload(&app, &own, FILE_BYTES).await;
    let small = upload(&app, &other, 100).await;
    let mut downloads = Vec::new();
    for _ in 0..8 {
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
