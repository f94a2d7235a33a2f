//! A fake MCP server that follows the protocol except where a script tells it to misbehave.
//!
//! It is plain TCP, because HTTP libraries do not allow most of the faults.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::script_server::{ReceivedRequest, ScriptServer, Step};
use super::vendor::json_response;

/// MCP revision that a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum McpRevision {
    /// Revision 2025-11-25, with sessions.
    Sessions,
    /// Revision 2026-07-28, without sessions.
    Stateless,
}

pub const MCP_REVISIONS: [McpRevision; 2] = [McpRevision::Sessions, McpRevision::Stateless];

/// Placeholder in scripts for the JSON-RPC id of the request being answered.
pub const REQUEST_ID_PLACEHOLDER: &str = "$ID";

#[derive(Default)]
struct McpServerState {
    received: Vec<ReceivedRequest>,
    scripts: HashMap<String, Vec<Vec<Step>>>,
    sessions: Vec<String>,
    opened: usize,
}

/// The server; stops when dropped.
pub struct FakeMcpServer {
    state: Arc<Mutex<McpServerState>>,
    server: ScriptServer,
}

impl FakeMcpServer {
    /// Starts a server on a free port.
    pub async fn start(revision: McpRevision) -> Self {
        let state = Arc::<Mutex<McpServerState>>::default();
        let server = ScriptServer::start({
            let state = state.clone();
            move |request: ReceivedRequest| -> Vec<Step> {
                let id = serde_json::from_slice::<Value>(&request.body).map(|body| body["id"].to_string());
                let id = id.as_deref().unwrap_or("null");
                let mut state = state.lock().expect("unpoisoned");
                state.received.push(request.clone());
                let steps = select_response(&mut state, revision, &request);
                steps.into_iter().map(|step| fill_request_id(step, id)).collect()
            }
        })
        .await;
        Self { state, server }
    }

    /// Returns the server's URL with a run token.
    pub fn url(&self, token: &str) -> String {
        format!("http://{}/mcp?token={token}", self.server.address)
    }

    /// Returns the server's address without a token.
    pub fn plain_url(&self) -> String {
        format!("http://{}/mcp", self.server.address)
    }

    /// Sets the responses to calls of a tool, or to requests of a method, by `name`: the first response for the first
    /// request, and so on; the last one is repeated.
    pub fn on(&self, name: &str, answers: impl IntoIterator<Item = Vec<Step>>) -> &Self {
        let answers = answers.into_iter().collect();
        self.state.lock().expect("unpoisoned").scripts.insert(name.to_owned(), answers);
        self
    }

    /// Returns the requests received.
    pub fn received(&self) -> Vec<ReceivedRequest> {
        self.state.lock().expect("unpoisoned").received.clone()
    }

    /// Returns the name of each request received: the tool of a `tools/call`, `DELETE` for the end of a session, else
    /// the method.
    pub fn received_names(&self) -> Vec<String> {
        self.received().iter().map(request_name).collect()
    }

    /// Waits until `enough` holds for the names of the requests received.
    pub async fn wait_for_names(&self, enough: impl Fn(&[String]) -> bool) {
        let mut request_count = self.server.request_count();
        let waited = request_count.wait_for(|_| enough(&self.received_names()));
        let waited = tokio::time::timeout(super::TEST_TIMEOUT, waited).await;
        waited.unwrap_or_else(|_| panic!("{:?}", self.received_names())).expect("the server runs");
    }

    /// Returns the number of clients that disconnected during a response.
    pub fn disconnect_count(&self) -> usize {
        *self.server.disconnects().borrow()
    }

    /// Waits until a client has disconnected during a response.
    pub async fn wait_for_disconnect(&self) {
        self.server.wait_for_disconnects(1).await;
    }
}

/// Returns the response to a tool call: a result with one text block.
pub fn text_result(text: &str) -> Vec<Step> {
    result_response(&json!({"content": [{"type": "text", "text": text}]}))
}

/// Returns the response to a request for the list of tools.
pub fn tools_response(tools: &[Value]) -> Vec<Step> {
    result_response(&json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "tools": tools}))
}

/// Returns the response to a request: a JSON-RPC result.
pub fn result_response(result: &Value) -> Vec<Step> {
    let body = format!(r#"{{"jsonrpc":"2.0","id":{REQUEST_ID_PLACEHOLDER},"result":{result}}}"#);
    json_response("200 OK", "", &body)
}

fn request_name(received: &ReceivedRequest) -> String {
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

/// Replaces [`REQUEST_ID_PLACEHOLDER`] by the request's id, and corrects `content-length`.
fn fill_request_id(step: Step, id: &str) -> Step {
    let Step::Send(bytes) = step else { return step };
    let Ok(text) = std::str::from_utf8(&bytes) else { return Step::Send(bytes) };
    if !text.contains(REQUEST_ID_PLACEHOLDER) {
        return Step::Send(bytes);
    }
    let filled = text.replace(REQUEST_ID_PLACEHOLDER, id);
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

fn select_response(
    state: &mut McpServerState,
    revision: McpRevision,
    request: &ReceivedRequest,
) -> Vec<Step> {
    let name = request_name(request);
    if let Some(answers) = state.scripts.get_mut(&name) {
        return if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() };
    }
    let session = request
        .head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("mcp-session-id: ").map(str::to_owned));
    let known = session.as_ref().is_some_and(|session| state.sessions.contains(session));
    match (revision, name.as_str()) {
        (McpRevision::Stateless, "server/discover") => result_response(&json!({"resultType": "complete",
            "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "ttlMs": 0,
            "cacheScope": "private"})),
        (McpRevision::Sessions, "initialize") => {
            state.opened += 1;
            let session = format!("session-{}", state.opened);
            state.sessions.push(session.clone());
            let body = format!(
                r#"{{"jsonrpc":"2.0","id":{REQUEST_ID_PLACEHOLDER},"result":{{"protocolVersion":"2025-11-25","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"fake","version":"1"}}}}}}"#
            );
            json_response("200 OK", &format!("mcp-session-id: {session}\r\n"), &body)
        }
        (McpRevision::Sessions, _) if session.is_none() => {
            let body =
                json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": "no session"}});
            json_response("400 Bad Request", "", &body.to_string())
        }
        (McpRevision::Sessions, _) if !known => json_response("404 Not Found", "", "{}"),
        (_, name) if name.starts_with("notifications/") => json_response("202 Accepted", "", ""),
        (_, "DELETE") => json_response("200 OK", "", ""),
        (_, name) => text_result(&format!("{name} is done")),
    }
}
