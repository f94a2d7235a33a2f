//! Test doubles for external systems, and helpers that start the services.

use std::fmt::Debug;
use std::io::Write as _;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::Duration;

use agent_client::events::EventDecoder;
use agent_core::event::{Event, EventGrammar};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

// The store's tests use more of this module than these tests do.
#[allow(dead_code)]
pub mod cluster;
pub mod coding_runtime;
pub mod command;
pub mod commit_log;
pub mod control;
pub mod embedder;
pub mod fake_network;
pub mod grants;
// Tests of the application use more of this module than tests of the runtime.
#[allow(dead_code)]
pub mod issuer;
pub mod log;
pub mod messages_vendor;
pub mod packages;
pub mod paused_records;
// The store's tests use more of this module than these tests do.
#[allow(dead_code)]
pub mod pooler;
pub mod process;
pub mod proxy;
pub mod random;
pub mod read_only;
pub mod responses_vendor;
pub mod schemathesis;
pub mod script_server;
pub mod server;
pub mod sink;
pub mod statement_log;
pub mod third_party;
pub mod tool_server;
pub mod vendor;

pub(crate) use cluster::free_port;

/// Time limit for waits, after which a test counts as hanging. It is less than the services' default time limits of a minute,
/// so that none of them ends the awaited operation.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(50);

/// Polling interval for conditions that cannot be awaited.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Calls `fetch` until its result meets `condition`. Returns the last result as an error if `time` expires first.
pub async fn poll_until_within<T>(
    time: Duration,
    mut fetch: impl AsyncFnMut() -> T,
    condition: impl Fn(&T) -> bool,
) -> Result<T, T> {
    let waiting = async {
        loop {
            let result = fetch().await;
            if condition(&result) {
                return result;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    let waited = tokio::time::timeout(time, waiting).await;
    match waited {
        Ok(result) => Ok(result),
        Err(_) => Err(fetch().await),
    }
}

/// Polls as [`poll_until_within`] does for [`TEST_TIMEOUT`]; panics with the last result if the condition never holds.
pub async fn poll_until<T: Debug>(fetch: impl AsyncFnMut() -> T, condition: impl Fn(&T) -> bool) -> T {
    poll_until_within(TEST_TIMEOUT, fetch, condition)
        .await
        .unwrap_or_else(|result| panic!("it stays {result:?}"))
}

/// Returns the number in an environment variable, or `default` if it is not set.
pub fn env_number<T: FromStr<Err: Debug>>(variable: &str, default: T) -> T {
    std::env::var(variable).map_or(default, |number| number.parse().expect("a number"))
}

/// Shows figures with `--no-capture`.
pub fn report(figures: &str) {
    let _ = writeln!(std::io::stderr(), "{figures}");
}

/// Returns the base URL of a server that is not there. No other program can take its port until this process ends.
pub fn refused_url() -> String {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
    let address = socket.local_addr().expect("an address");
    // It stays bound without listening, so that connections are refused.
    std::mem::forget(socket);
    format!("http://{address}")
}

/// Returns an HTTP client that uses no proxy and follows no redirect, so that a test sees what the server sends. It keeps
/// no connection, since connections of one test's runtime are of no use to the next.
pub fn client() -> reqwest::Client {
    // Building one takes so long that a server may close the connections of a test that builds many.
    static CLIENT: OnceLock<reqwest::Client> = OnceLock::new();
    let build = || client_builder().pool_max_idle_per_host(0).build().expect("the client can be built");
    CLIENT.get_or_init(build).clone()
}

/// Returns a [`client`] that keeps its connections.
pub fn keep_alive_client() -> reqwest::Client {
    client_builder().build().expect("the client can be built")
}

/// Returns the builder of a [`client`], for tests that change more than its pool.
pub fn client_builder() -> reqwest::ClientBuilder {
    // Fails if another caller in this process has installed a provider, which serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none())
}

/// Returns a workspace of one company with an agent whose `EmbeddedAI` container names `model` at `base_url`.
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

/// Parses the events of an NDJSON body.
pub fn parse_events(body: &str) -> Vec<Value> {
    body.lines().map(|line| serde_json::from_str(line).expect("each line is an event")).collect()
}

/// Parses the events of an NDJSON body and checks them against the event grammar.
pub fn parse_run(body: &str) -> Vec<Value> {
    let mut decoder = EventDecoder::new();
    let decode = |line: &str| decoder.decode(line.as_bytes()).expect("an event");
    let decoded: Vec<Event> = body.lines().filter_map(decode).collect();
    EventGrammar::check(&decoded).unwrap_or_else(|violation| panic!("{violation}: {body}"));
    parse_events(body)
}

/// Checks that a run was answered, and returns its events.
pub async fn answered_run(response: reqwest::Response) -> Vec<Value> {
    let status = response.status();
    let body = response.text().await.expect("a whole body");
    assert_eq!(status, 200, "{body}");
    parse_run(&body)
}

/// Checks that a run has finished, and returns its events.
pub async fn finished_run(response: reqwest::Response) -> Vec<Value> {
    let events = answered_run(response).await;
    assert_eq!(events.last().expect("an end")["type"], "RUN_FINISHED", "{events:?}");
    events
}

/// Returns the concatenated text of a run's events.
pub fn text_of(events: &[Value]) -> String {
    let texts = events.iter().filter(|event| event["type"] == "TEXT_MESSAGE_CONTENT");
    texts.map(|event| event["delta"].as_str().expect("text")).collect()
}

/// Checks that a response is a complete problem document with this status and code, and returns it.
pub async fn expect_problem(response: reqwest::Response, status: u16, code: &str) -> Value {
    let (actual_status, headers) = (response.status(), response.headers().clone());
    let body = response.text().await.expect("a whole body");
    assert_eq!(actual_status, status, "{body}");
    assert_eq!(headers["content-type"], "application/problem+json");
    let problem: Value = serde_json::from_str(&body).expect("JSON");
    let quota_exceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded";
    let is_own_limit = problem.get("violated-policies").is_some();
    assert_eq!(problem["type"], if is_own_limit { quota_exceeded } else { "about:blank" });
    assert_eq!(problem["title"], actual_status.canonical_reason().expect("a known status"));
    assert_eq!(problem["status"], status);
    assert_eq!(problem["code"], code, "{body}");
    let id = headers["x-request-id"].to_str().expect("printable");
    assert!(!id.is_empty());
    assert_eq!(problem["requestId"], id);
    assert!(!problem["detail"].as_str().expect("a detail").is_empty());
    problem
}

/// Checks the status of a response, and returns its JSON body.
pub async fn expect_json(response: reqwest::Response, status: u16) -> Value {
    let actual_status = response.status();
    let text = response.text().await.expect("a whole body");
    assert_eq!(actual_status, status, "{text}");
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("JSON: {text}"))
}

/// Reads a response until it contains `words`, and returns what was read.
pub async fn read_until(response: &mut reqwest::Response, words: &str) -> String {
    let mut read = String::new();
    let reading = async {
        while !read.contains(words) {
            let chunk = response.chunk().await.expect("the connection stands");
            let chunk = chunk.unwrap_or_else(|| panic!("it ends without {words:?}: {read}"));
            read.push_str(&String::from_utf8_lossy(&chunk));
        }
    };
    let waited = tokio::time::timeout(TEST_TIMEOUT, reading).await;
    assert!(waited.is_ok(), "{words:?} does not come: {read}");
    read
}

/// Opens a connection, writes bytes and reads until the server closes it.
pub async fn exchange(address: SocketAddr, request: impl AsRef<[u8]>) -> String {
    let mut stream = TcpStream::connect(address).await.expect("the server listens");
    stream.write_all(request.as_ref()).await.expect("it reads");
    read_until_closed(&mut stream).await
}

/// Reads until the peer closes the connection.
pub async fn read_until_closed(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let read = tokio::time::timeout(TEST_TIMEOUT, stream.read_to_end(&mut answer)).await;
    read.expect("the connection is closed in time").expect("it is closed in order");
    String::from_utf8(answer).expect("UTF-8")
}
