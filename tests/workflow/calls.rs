//! Tool calls made by a workflow during its run, as events of the run.

use futures_util::future::join;
use reqwest::Response;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::workspace_with_workflow;
use crate::support::server::{self, Server, session_token};
use crate::support::vendor::n8n;
use crate::support::vendor::{Step, Vendor};
use crate::support::{TEST_TIMEOUT, client, parse_run};

/// Returns a response in two messages, with the gate between them.
fn in_two_messages(gate: &watch::Sender<bool>) -> Vec<Step> {
    let [end, _] = n8n::end();
    let begin = n8n::json_line(&json!({"type": "begin"}));
    let before = [n8n::stream_head(), n8n::text("Let me see."), end, Step::Until(gate.subscribe())];
    let after = [begin, n8n::text("It is noted.")].into_iter().chain(n8n::end());
    before.into_iter().chain(after).collect()
}

/// A response that is being read.
struct RunReader {
    response: Response,
    body: String,
}

impl RunReader {
    async fn start(app: &Server, thread: &str) -> Self {
        let body = json!({"agentId": "a1", "message": "Note it.", "threadId": thread, "todoListId": "l1"});
        Self { response: app.chat(&body).await, body: String::new() }
    }

    async fn until(&mut self, words: &str) {
        let reading = async {
            while !self.body.contains(words) {
                let chunk = self.response.chunk().await.expect("the connection stands");
                let chunk = chunk.unwrap_or_else(|| panic!("no {words:?} in {}", self.body));
                self.body.push_str(&String::from_utf8_lossy(&chunk));
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, reading).await.expect("it does not wait for the end");
    }

    /// Reads to the end and returns the events of the run.
    async fn events(mut self) -> Vec<Value> {
        self.until("RUN_FINISHED").await;
        let remaining_text = self.response.text().await.expect("a whole body");
        self.body.push_str(&remaining_text);
        parse_run(&self.body)
    }
}

/// Returns the `mcpServerUrl` that the workflow of a thread received.
async fn sent_tool_url(vendor: &Vendor, thread: &str) -> String {
    let sent = vendor.received_bodies("a1").into_iter().find(|sent| sent["sessionId"] == thread);
    sent.expect("the workflow was asked")["mcpServerUrl"].as_str().expect("text").to_owned()
}

/// Calls a tool without a session, as some workflows do, and returns the response message.
async fn call(address: &str, tool: &str, arguments: Value) -> Value {
    let params = json!({"name": tool, "arguments": arguments});
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let response = client().post(address).json(&request).send().await.expect("the tool server answers");
    assert_eq!(response.status(), 200);
    response.json().await.expect("one message")
}

/// Calls a tool in a session, as n8n's own MCP client does.
async fn call_in_session(address: &str, tool: &str, arguments: Value) {
    let post = |session: Option<&str>, body: Value| {
        let post = client().post(address).header("accept", "application/json, text/event-stream");
        let post = session.into_iter().fold(post, |post, session| post.header("mcp-session-id", session));
        post.json(&body).send()
    };
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "n8n", "version": "1"}});
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello});
    let opened = post(None, hello).await.expect("the tool server answers");
    let id = opened.headers()["mcp-session-id"].to_str().expect("text").to_owned();
    opened.text().await.expect("a whole body");
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(post(Some(&id), ready).await.expect("the tool server answers").status(), 202);
    let params = json!({"name": tool, "arguments": arguments});
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let called = post(Some(&id), request).await.expect("the tool server answers");
    assert_eq!(called.status(), 200);
    called.text().await.expect("a whole body");
}

fn has_type(event: &Value, kind: &str) -> bool {
    event["type"] == kind
}

/// Returns the event types, without custom events and the frames of messages.
fn event_types(events: &[Value]) -> Vec<&str> {
    let names = events.iter().filter_map(|event| event["type"].as_str());
    names.filter(|name| !["CUSTOM", "TEXT_MESSAGE_START", "TEXT_MESSAGE_END"].contains(name)).collect()
}

/// Returns a run's calls in the order in which they began: tool name, arguments, and result event.
fn calls(events: &[Value]) -> Vec<(String, Value, Value)> {
    let begun = events.iter().filter(|event| has_type(event, "TOOL_CALL_START"));
    begun
        .map(|begun| {
            let of = |kind: &str| {
                let event = events
                    .iter()
                    .find(|event| has_type(event, kind) && event["toolCallId"] == begun["toolCallId"]);
                event.cloned().unwrap_or_default()
            };
            let arguments = of("TOOL_CALL_ARGS")["delta"].as_str().map(serde_json::from_str);
            let arguments = arguments.expect("there are arguments").expect("they are JSON");
            (begun["toolCallName"].as_str().expect("a name").to_owned(), arguments, of("TOOL_CALL_RESULT"))
        })
        .collect()
}

#[tokio::test]
async fn a_call_is_reported_in_the_run_that_made_it() {
    let vendor = Vendor::start().await;
    let (gate, other_gate) = (watch::Sender::new(false), watch::Sender::new(false));
    vendor.on("a1", [in_two_messages(&gate), in_two_messages(&other_gate)]);
    let app = server::app(&workspace_with_workflow(&vendor, None), &[]).await;
    let mut one = RunReader::start(&app, "t-1").await;
    one.until("Let me see.").await;
    let mut other = RunReader::start(&app, "t-2").await;
    other.until("Let me see.").await;

    let tools = sent_tool_url(&vendor, "t-1").await;
    let answer = call(&tools, "createTodo", json!({"title": "Buy soil"})).await;
    // The run reports the call while the workflow still waits.
    one.until("TOOL_CALL_RESULT").await;
    gate.send_replace(true);
    let events = one.events().await;
    assert_eq!(
        event_types(&events),
        [
            "RUN_STARTED",
            "TEXT_MESSAGE_CONTENT",
            "TOOL_CALL_START",
            "TOOL_CALL_ARGS",
            "TOOL_CALL_END",
            "TOOL_CALL_RESULT",
            "TEXT_MESSAGE_CONTENT",
            "RUN_FINISHED"
        ]
    );
    let [(tool, arguments, result)] = &calls(&events)[..] else { panic!("{events:?}") };
    assert_eq!((tool.as_str(), arguments), ("createTodo", &json!({"title": "Buy soil"})));
    assert_eq!(
        result["content"], answer["result"]["content"][0]["text"],
        "the run shows the result that the workflow received"
    );
    assert!(result.get("metadata").is_none(), "{result}");

    // A workflow may continue after its response. Its token is valid, but the run that would report the call has
    // ended.
    let after = call(&tools, "createTodo", json!({"title": "Too late"})).await;
    assert!(after["result"]["content"][0]["text"].as_str().expect("text").contains("Too late"), "{after}");
    other_gate.send_replace(true);
    let events = other.events().await;
    assert!(calls(&events).is_empty(), "another run's calls: {events:?}");
}

#[tokio::test]
async fn concurrent_calls_and_calls_that_fail_are_reported() {
    let vendor = Vendor::start().await;
    let gate = watch::Sender::new(false);
    vendor.on("a1", [in_two_messages(&gate)]);
    let app = server::app(&workspace_with_workflow(&vendor, None), &[]).await;
    let mut reading = RunReader::start(&app, "t-1").await;
    reading.until("Let me see.").await;
    let tools = sent_tool_url(&vendor, "t-1").await;
    let titles = ["Buy soil", "Buy pots"];
    let create = |title| call(&tools, "createTodo", json!({"title": title}));
    join(create(titles[0]), create(titles[1])).await;
    call_in_session(&tools, "readTodos", json!({})).await;
    call(&tools, "createTodo", json!({"title": 1})).await;
    let response = call(&tools, "deleteTodo", json!({})).await;
    gate.send_replace(true);
    let events = reading.events().await;
    let calls = calls(&events);
    assert_eq!(calls.len(), 5, "{events:?}");
    for title in titles {
        let (_, _, result) =
            calls[..2].iter().find(|(_, arguments, _)| arguments["title"] == title).expect("both are there");
        assert!(result["content"].as_str().expect("text").contains(title), "{result}");
    }
    let read = calls[2].2["content"].as_str().expect("text");
    assert!(titles.iter().all(|title| read.contains(title)), "{read}");
    for (_, _, result) in &calls[3..] {
        assert_eq!(result["metadata"], json!({"isError": true}));
    }
    assert_eq!(calls[4].2["content"], response["error"]["message"]);
}

#[tokio::test]
async fn every_framing_reports_the_calls() {
    let vendor = Vendor::start().await;
    let app = server::app(&workspace_with_workflow(&vendor, None), &[]).await;
    let cases = [
        ("/api/agent/chat?format=json", r#""toolCalls":[{"#),
        ("/api/svcchat/private?format=json", r#""result":"#),
        ("/api/svcchat/private?format=ui-message", r#""type":"tool-output-available""#),
        ("/api/agent/chat?format=sse", r#"data: {"type":"TOOL_CALL_RESULT""#),
    ];
    for (i, (path, expected)) in cases.into_iter().enumerate() {
        let gate = watch::Sender::new(false);
        vendor.on("a1", [in_two_messages(&gate)]);
        let thread = format!("t-{i}");
        let request = app
            .request("POST", path)
            .bearer_auth(session_token("u1", "c1"))
            .json(&json!({"agentId": "a1", "message": "Note it.", "threadId": thread, "todoListId": "l1"}));
        let asking = tokio::spawn(async move { request.send().await.expect("an answer").text().await });
        vendor.wait_for_requests("a1", i + 1).await;
        let tools = sent_tool_url(&vendor, &thread).await;
        call(&tools, "createTodo", json!({"title": "Buy soil"})).await;
        gate.send_replace(true);
        let body = asking.await.expect("it does not panic").expect("a whole body");
        assert!(body.contains(expected) && body.contains("Buy soil"), "{path}: {body}");
    }
}
