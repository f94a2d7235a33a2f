//! A fake MCP server that follows the protocol except where a script tells it to misbehave.
//!
//! It is plain TCP, because HTTP libraries do not allow most of the faults.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::vendor::{After, Received, Step, plain, read_request, take};

/// MCP revision that a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// Revision 2025-11-25, with sessions.
    Sessions,
    /// Revision 2026-07-28, without sessions.
    Stateless,
}

pub const ERAS: [Era; 2] = [Era::Sessions, Era::Stateless];

/// Placeholder in scripts for the JSON-RPC id of the request being answered.
pub const ID: &str = "$ID";

#[derive(Default)]
struct State {
    received: Vec<Received>,
    scripts: HashMap<String, Vec<Vec<Step>>>,
    sessions: Vec<String>,
    opened: usize,
}

/// The server; stops when dropped.
pub struct ToolServer {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    came: watch::Receiver<usize>,
    left: watch::Receiver<usize>,
    task: tokio::task::JoinHandle<()>,
}

impl ToolServer {
    /// Starts a server on a free port.
    pub async fn start(era: Era) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it listens");
        let state = Arc::<Mutex<State>>::default();
        let (comer, came) = watch::channel(0);
        let (leaver, left) = watch::channel(0);
        let task = tokio::spawn({
            let state = state.clone();
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let _ = stream.set_nodelay(true);
                    tokio::spawn(serve(stream, era, state.clone(), comer.clone(), leaver.clone()));
                }
            }
        });
        Self { address, state, came, left, task }
    }

    /// Returns the server's URL with a run token.
    pub fn url(&self, token: &str) -> String {
        format!("http://{}/mcp?token={token}", self.address)
    }

    /// Sets the responses to calls of a tool, or to requests of a method, by `name`: the first response for the first
    /// request, and so on; the last one is repeated.
    pub fn on(&self, name: &str, answers: impl IntoIterator<Item = Vec<Step>>) -> &Self {
        let answers = answers.into_iter().collect();
        self.state.lock().expect("unpoisoned").scripts.insert(name.to_owned(), answers);
        self
    }

    /// Returns the requests received.
    pub fn received(&self) -> Vec<Received> {
        self.state.lock().expect("unpoisoned").received.clone()
    }

    /// Returns the name of each request received: the tool of a `tools/call`, `DELETE` for the end of a session, else
    /// the method.
    pub fn methods(&self) -> Vec<String> {
        self.received().iter().map(name_of).collect()
    }

    /// Waits until `enough` holds for the names of the requests received.
    pub async fn until(&self, enough: impl Fn(&[String]) -> bool) {
        let mut came = self.came.clone();
        let waited = came.wait_for(|_| enough(&self.methods()));
        let waited = tokio::time::timeout(super::PATIENCE, waited).await;
        waited.unwrap_or_else(|_| panic!("{:?}", self.methods())).expect("the server runs");
    }

    /// Returns the number of clients that disconnected during a response.
    pub fn clients_that_left(&self) -> usize {
        *self.left.borrow()
    }

    /// Waits until a client has disconnected during a response.
    pub async fn until_left(&self) {
        self.left.clone().wait_for(|left| *left > 0).await.expect("the server runs");
    }
}

impl Drop for ToolServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns the response to a tool call: a result with one text block.
pub fn text_result(text: &str) -> Vec<Step> {
    result(&json!({"content": [{"type": "text", "text": text}]}))
}

/// Returns the response to a request: a JSON-RPC result.
pub fn result(result: &Value) -> Vec<Step> {
    let body = format!(r#"{{"jsonrpc":"2.0","id":{ID},"result":{result}}}"#);
    plain("200 OK", "", &body)
}

fn name_of(received: &Received) -> String {
    if received.head.starts_with("DELETE ") {
        return "DELETE".to_owned();
    }
    let body = serde_json::from_slice::<Value>(&received.body).unwrap_or_default();
    let name = match body["method"].as_str() {
        Some("tools/call") => body["params"]["name"].as_str(),
        method => method,
    };
    name.unwrap_or_default().to_owned()
}

async fn serve(
    mut stream: TcpStream,
    era: Era,
    state: Arc<Mutex<State>>,
    comer: watch::Sender<usize>,
    leaver: watch::Sender<usize>,
) {
    let mut buffer = Vec::new();
    while let Some(request) = read_request(&mut stream, &mut buffer).await {
        let id = serde_json::from_slice::<Value>(&request.body).map(|body| body["id"].to_string());
        let steps = {
            let mut state = state.lock().expect("unpoisoned");
            state.received.push(request.clone());
            answer(&mut state, era, &request)
        };
        comer.send_modify(|came| *came += 1);
        for step in steps {
            match take(fill(step, id.as_deref().unwrap_or("null")), &mut stream).await {
                After::Next => {}
                After::Closed => return,
                After::Left => {
                    leaver.send_modify(|left| *left += 1);
                    return;
                }
            }
        }
    }
}

/// Replaces [`ID`] by the request's id, and corrects `content-length`.
fn fill(step: Step, id: &str) -> Step {
    let Step::Send(bytes) = step else { return step };
    let Ok(text) = std::str::from_utf8(&bytes) else { return Step::Send(bytes) };
    if !text.contains(ID) {
        return Step::Send(bytes);
    }
    let filled = text.replace(ID, id);
    let Some((head, body)) = filled.split_once("\r\n\r\n") else { return Step::Send(filled.into()) };
    let lengths: Vec<String> = head
        .split("\r\n")
        .map(|line| match line.strip_prefix("content-length:") {
            Some(_) => format!("content-length: {}", body.len()),
            None => line.to_owned(),
        })
        .collect();
    Step::Send(format!("{}\r\n\r\n{body}", lengths.join("\r\n")).into())
}

fn answer(state: &mut State, era: Era, request: &Received) -> Vec<Step> {
    let name = name_of(request);
    if let Some(answers) = state.scripts.get_mut(&name) {
        return if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() };
    }
    let session = request
        .head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("mcp-session-id: ").map(str::to_owned));
    let known = session.as_ref().is_some_and(|session| state.sessions.contains(session));
    match (era, name.as_str()) {
        (Era::Stateless, "server/discover") => result(&json!({"resultType": "complete",
            "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "ttlMs": 0,
            "cacheScope": "private"})),
        (Era::Sessions, "initialize") => {
            state.opened += 1;
            let session = format!("session-{}", state.opened);
            state.sessions.push(session.clone());
            let body = format!(
                r#"{{"jsonrpc":"2.0","id":{ID},"result":{{"protocolVersion":"2025-11-25","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"fake","version":"1"}}}}}}"#
            );
            plain("200 OK", &format!("mcp-session-id: {session}\r\n"), &body)
        }
        (Era::Sessions, _) if session.is_none() => {
            let body =
                json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": "no session"}});
            plain("400 Bad Request", "", &body.to_string())
        }
        (Era::Sessions, _) if !known => plain("404 Not Found", "", "{}"),
        (_, name) if name.starts_with("notifications/") => plain("202 Accepted", "", ""),
        (_, "DELETE") => plain("200 OK", "", ""),
        (_, name) => text_result(&format!("{name} is done")),
    }
}
