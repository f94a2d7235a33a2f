//! MCP change notifications, caused by the management routes and by the tools of a run.

use std::collections::BTreeSet;

use reqwest::Response;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::application::{McpApp, mcp_token, start};
use super::test_server::REQUEST_META;
use crate::support::server::{self, session_token};
use crate::support::vendor::{Vendor, answer, tool_calls};
use crate::support::{TEST_TIMEOUT, parse_run, text_of, workspace};

const PROTOCOL_VERSIONS: [&str; 3] = ["2025-06-18", "2025-11-25", "2026-07-28"];

const TOOLS: &str = "tools/list_changed";
const PROMPTS: &str = "prompts/list_changed";
const RESOURCES: &str = "resources/list_changed";
const DOCUMENT_UPDATED: &str = "resources/updated doc://open";
/// Notifications sent when an agent's role changes.
const ROLE_NOTIFICATIONS: &[&str] = &[PROMPTS, RESOURCES, TOOLS];

/// A client that reads notifications.
struct NotificationListener {
    stream: Response,
    heard: String,
}

impl NotificationListener {
    /// Opens a notification stream in the way of the protocol version: for all lists, and for the document `start` if
    /// `follows` is set.
    async fn start(app: &server::Server, token: &str, version: &str, follows: bool) -> Self {
        let send = async |method: &str, session: Option<&str>, headers: &[(&str, &str)], body: Value| {
            let mut request = app.request(method, "/api/agent/mcp").bearer_auth(token);
            for (name, value) in session.map(|id| ("mcp-session-id", id)).iter().chain(headers) {
                request = request.header(*name, *value);
            }
            if !body.is_null() {
                request = request.json(&body);
            }
            let response = request.send().await.expect("an answer");
            assert!(response.status().is_success(), "{version} {method}: {}", response.status());
            response
        };
        if version == "2026-07-28" {
            let meta: Value = serde_json::from_str(REQUEST_META).expect("JSON");
            let mut subscription =
                json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true});
            if follows {
                subscription["resourceSubscriptions"] = json!(["doc://open"]);
            }
            let params = json!({"_meta": meta, "notifications": subscription});
            let body = json!({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params});
            let headers = [("mcp-protocol-version", version), ("mcp-method", "subscriptions/listen")];
            let mut listener =
                Self { stream: send("POST", None, &headers, body).await, heard: String::new() };
            assert_eq!(listener.next(1).await, ["subscriptions/acknowledged"]);
            return listener;
        }
        let standard = ("accept", "application/json, text/event-stream");
        let client = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": client});
        let opened = send("POST", None, &[standard], body).await;
        let id = opened.headers()["mcp-session-id"].to_str().expect("text").to_owned();
        let body = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        send("POST", Some(&id), &[standard], body).await;
        let subscribe = async |uri: &str| -> Value {
            let params = json!({ "uri": uri });
            let body = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/subscribe", "params": params});
            send("POST", Some(&id), &[standard], body).await.json().await.expect("a message")
        };
        if follows {
            let answer = subscribe("doc://absent").await;
            assert_eq!(answer["error"]["data"], json!({"uri": "doc://absent"}), "{answer}");
            let answer = subscribe("doc://open").await;
            assert_eq!(answer["result"], json!({}), "{answer}");
        }
        let stream = send("GET", Some(&id), &[("accept", "text/event-stream")], Value::Null).await;
        Self { stream, heard: String::new() }
    }

    /// Reads the next `count` notifications and returns them sorted. The stream must go on for them.
    async fn next(&mut self, count: usize) -> Vec<String> {
        let notifications = self.next_until_end(count).await;
        assert_eq!(notifications.len(), count, "the stream ended after {notifications:?}");
        notifications
    }

    /// Reads the next `count` notifications, or fewer at the end of the stream, and returns them sorted.
    async fn next_until_end(&mut self, count: usize) -> Vec<String> {
        let mut notifications = Vec::new();
        while notifications.len() < count {
            if let Some((line, later_lines)) = self.heard.split_once('\n') {
                let message = line.strip_prefix("data:").unwrap_or(line).trim();
                if let Ok(message) = serde_json::from_str::<Value>(message) {
                    let method = message["method"].as_str().expect("a notification");
                    let method = method.strip_prefix("notifications/").expect("a notification");
                    let uri = message["params"]["uri"].as_str().map(|uri| format!(" {uri}"));
                    notifications.push(format!("{method}{}", uri.unwrap_or_default()));
                }
                self.heard = later_lines.to_owned();
                continue;
            }
            let chunk = timeout(TEST_TIMEOUT, self.stream.chunk()).await;
            let Some(chunk) = chunk.unwrap_or_else(|_| panic!("only {notifications:?}")).expect("whole")
            else {
                break;
            };
            self.heard.push_str(std::str::from_utf8(&chunk).expect("text"));
        }
        notifications.sort();
        notifications
    }
}

async fn send_management_request(
    bench: &McpApp,
    user: (&str, &str),
    method: &str,
    path: &str,
    body: Value,
) -> u16 {
    let request = bench.app.request(method, path).bearer_auth(session_token(user.0, user.1));
    let request = if body.is_null() { request } else { request.json(&body) };
    request.send().await.expect("an answer").status().as_u16()
}

async fn assert_notified_or_ended(listener: &mut NotificationListener, version: &str) {
    let notifications = listener.next_until_end(ROLE_NOTIFICATIONS.len()).await;
    let distinct: BTreeSet<&str> = notifications.iter().map(String::as_str).collect();
    assert_eq!(distinct.len(), notifications.len(), "{version}: {notifications:?}");
    assert!(
        distinct.iter().all(|notifications| ROLE_NOTIFICATIONS.contains(notifications)),
        "{version}: {notifications:?}"
    );
}

#[tokio::test]
async fn clients_are_notified_of_changes_by_the_management() {
    let role = json!({"name": "Other", "content": {"mcpPreset": ["getDoc", "listDocs"]}});
    let text = json!({"title": "T", "text": "Changed."});
    let nothing = Value::Null;
    // Method, path, body, expected status, and notifications to a client of agent `a1` that subscribes to one
    // document.
    let steps: &[(&str, &str, &Value, u16, &[&str])] = &[
        ("PUT", "/api/agents/a1", &role, 200, ROLE_NOTIFICATIONS),
        ("PUT", "/api/documents/open", &text, 200, &[DOCUMENT_UPDATED]),
        ("PUT", "/api/documents/inner%201", &text, 200, &[]),
        ("PUT", "/api/documents/open", &json!({"text": 7}), 400, &[]),
        ("PUT", "/api/agents/a1", &json!({"name": 7}), 400, &[]),
        ("PUT", "/api/agents/cut", &role, 200, &[]),
        ("PUT", "/api/documents/new", &text, 201, &[RESOURCES]),
        ("DELETE", "/api/documents/new", &nothing, 204, &[RESOURCES]),
        ("DELETE", "/api/documents/new", &nothing, 404, &[]),
        ("DELETE", "/api/documents/open", &nothing, 204, &[RESOURCES, DOCUMENT_UPDATED]),
        ("PUT", "/api/documents/open", &text, 201, &[RESOURCES, DOCUMENT_UPDATED]),
        ("DELETE", "/api/agents/cut", &nothing, 204, &[]),
        ("DELETE", "/api/agents/a1", &nothing, 204, ROLE_NOTIFICATIONS),
    ];
    for version in PROTOCOL_VERSIONS {
        let bench = start(&[]).await;
        let (ada, cut, eve) =
            (mcp_token("ada", "c1", "a1"), mcp_token("bob", "c1", "cut"), mcp_token("eve", "c2", "a2"));
        let mut follower =
            NotificationListener::start(&bench.app, &bench.mint(ada).await, version, true).await;
        let mut colleague =
            NotificationListener::start(&bench.app, &bench.mint(cut).await, version, false).await;
        let mut stranger =
            NotificationListener::start(&bench.app, &bench.mint(eve).await, version, false).await;
        for (method, path, body, status, notifications) in steps {
            let response =
                send_management_request(&bench, ("ada", "c1"), method, path, (*body).clone()).await;
            assert_eq!(response, *status, "{method} {path}");
            // The tokens of a deleted agent are revoked, which ends its clients' sessions: they are notified or ended.
            if (*method, *path) == ("DELETE", "/api/agents/a1") {
                assert_notified_or_ended(&mut follower, version).await;
                continue;
            }
            assert_eq!(follower.next(notifications.len()).await, *notifications, "{version} {method} {path}");
            // A client of another agent is notified of the company's documents and of its own role.
            if (*method, *path) == ("DELETE", "/api/agents/cut") {
                assert_notified_or_ended(&mut colleague, version).await;
                continue;
            }
            let notifications: &[&str] = match (*path, *status) {
                ("/api/agents/cut", _) => ROLE_NOTIFICATIONS,
                (path, 200..300)
                    if path.starts_with("/api/documents") && notifications.contains(&RESOURCES) =>
                {
                    &[RESOURCES]
                }
                _ => &[],
            };
            assert_eq!(colleague.next(notifications.len()).await, notifications, "{version} {method} {path}");
        }
        // The client of another company has received none of these notifications.
        let put =
            send_management_request(&bench, ("eve", "c2"), "PUT", "/api/documents/fresh", text.clone()).await;
        assert_eq!((put, stranger.next(1).await), (201, vec![RESOURCES.to_owned()]), "{version}");
        let put = send_management_request(&bench, ("eve", "c2"), "PUT", "/api/agents/a2", role.clone()).await;
        assert_eq!(
            (put, stranger.next(3).await),
            (200, ROLE_NOTIFICATIONS.iter().map(|notifications| (*notifications).to_owned()).collect())
        );
    }
}

#[tokio::test]
async fn clients_are_notified_of_changes_by_a_runs_tools() {
    let vendor = Vendor::start().await;
    let mut workspace = workspace(&vendor.base_url(), "m");
    workspace["agents"][0]["content"]["mcpPreset"] = json!(["appendDoc", "createDoc", "getDoc", "listDocs"]);
    workspace["documents"] = json!([{"id": "open", "companyId": "c1", "title": "Log", "text": "Sown."}]);
    let calls = [
        ("c1", "appendDoc", r#"{"id":"open","text":"Watered."}"#),
        ("c2", "createDoc", r#"{"title":"Harvest","text":"Soon."}"#),
        ("c3", "appendDoc", r#"{"id":"none","text":"Lost."}"#),
    ];
    vendor.on("m", [tool_calls(&calls), answer(&["Done."])]);
    let stores = server::stores(&workspace).await;
    let bench = McpApp { app: server::app_with_stores(stores.clone(), &[]).await, stores };
    let token = bench.mint(mcp_token("u1", "c1", "a1")).await;
    let mut listener = NotificationListener::start(&bench.app, &token, "2025-11-25", true).await;
    let response = bench.app.chat(&json!({"agentId": "a1", "message": "Log it"})).await;
    assert_eq!(text_of(&parse_run(&response.text().await.expect("a whole body"))), "Done.");
    assert_eq!(listener.next(2).await, [RESOURCES, DOCUMENT_UPDATED]);
}
