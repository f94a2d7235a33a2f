//! What stands in for the outside, and what starts the inside.

use std::net::SocketAddr;
use std::time::Duration;

use agent_core::event::{Event, Grammar};
use agent_http::stream::Decoder;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

// The tests of its store use more of it.
#[allow(dead_code)]
pub mod cluster;
pub mod control;
pub mod process;
pub mod schemathesis;
pub mod server;
pub mod sink;
pub mod third_party;
pub mod tool_server;
pub mod vendor;
pub mod world;

/// When a test has hung.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How long to wait between two looks at something that can only be looked at.
const GLANCE: Duration = Duration::from_millis(10);

/// Looks until something is as is wanted. An error is what it still was when `time` was over.
pub async fn until_within<T>(
    time: Duration,
    mut look: impl AsyncFnMut() -> T,
    wanted: impl Fn(&T) -> bool,
) -> Result<T, T> {
    let waiting = async {
        loop {
            let found = look().await;
            if wanted(&found) {
                return found;
            }
            tokio::time::sleep(GLANCE).await;
        }
    };
    let waited = tokio::time::timeout(time, waiting).await;
    match waited {
        Ok(found) => Ok(found),
        Err(_) => Err(look().await),
    }
}

/// The same with the usual patience. A test in which it never comes to that fails with what was found.
pub async fn until<T: std::fmt::Debug>(look: impl AsyncFnMut() -> T, wanted: impl Fn(&T) -> bool) -> T {
    until_within(PATIENCE, look, wanted).await.unwrap_or_else(|found| panic!("it stays {found:?}"))
}

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

/// The events of an NDJSON body that keeps to the grammar.
pub fn run(body: &str) -> Vec<Value> {
    let mut decoder = Decoder::new();
    let decode = |line: &str| decoder.decode(line.as_bytes()).expect("an event");
    let decoded: Vec<Event> = body.lines().filter_map(decode).collect();
    Grammar::check(&decoded).unwrap_or_else(|violation| panic!("{violation}: {body}"));
    events(body)
}

/// The text of an answer, joined.
pub fn text_of(events: &[Value]) -> String {
    let texts = events.iter().filter(|event| event["type"] == "TEXT_MESSAGE_CONTENT");
    texts.map(|event| event["delta"].as_str().expect("text")).collect()
}

/// The problem that a response is, which must be whole and of this status and code.
pub async fn problem(response: reqwest::Response, status: u16, code: &str) -> Value {
    let (given, headers) = (response.status(), response.headers().clone());
    let body = response.text().await.expect("a whole body");
    assert_eq!(given, status, "{body}");
    assert_eq!(headers["content-type"], "application/problem+json");
    let problem: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(problem["type"], "about:blank");
    assert_eq!(problem["title"], given.canonical_reason().expect("a known status"));
    assert_eq!(problem["status"], status);
    assert_eq!(problem["code"], code, "{body}");
    let id = headers["x-request-id"].to_str().expect("printable");
    assert!(!id.is_empty());
    assert_eq!(problem["requestId"], id);
    assert!(!problem["detail"].as_str().expect("a detail").is_empty());
    problem
}

/// Writes bytes on a connection of their own and reads whatever comes until the other side closes it.
pub async fn exchange(address: SocketAddr, request: impl AsRef<[u8]>) -> String {
    let mut stream = TcpStream::connect(address).await.expect("the server listens");
    stream.write_all(request.as_ref()).await.expect("it reads");
    rest(&mut stream).await
}

/// Everything that comes until the other side closes the connection.
pub async fn rest(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    read.expect("the connection is closed in time").expect("it is closed in order");
    String::from_utf8(answer).expect("UTF-8")
}
