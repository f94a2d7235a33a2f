//! End to end: a chat at the application, an external runtime that answers it, and the runtime's tool calls back to
//! the application's MCP server with the run token.

use serde_json::{Value, json};
use tokio::sync::watch;

use crate::support::server::{self, Server, session_token};
use crate::support::vendor::{Step, Vendor, answer, stream_head, tool_calls};
use crate::support::{client, parse_run, poll_until, text_of};

/// Returns a workspace with an agent of `u1` that may read and create todos and is answered by the backend in
/// `content` or `children`.
fn workspace(content: Value, children: Value) -> Value {
    let mut all = json!({"mcpPreset": ["readTodos", "createTodo"], "widgetTools": ["listDocs"]});
    all.as_object_mut().expect("an object").extend(content.as_object().expect("an object").clone());
    json!({
        "users": [{"id": "u1", "companyId": "c1"}],
        "agents": [{"id": "a1", "name": "A", "ownerId": "u1", "companyId": "c1", "content": all, "children": children}],
        "todoLists": [{"id": "l1", "ownerId": "u1", "companyId": "c1", "name": "Mine", "todos": []}]
    })
}

/// Returns the `mcpServerUrl` of a request to an agent server.
fn sent_mcp_url(body: &Value) -> String {
    body["mcpServerUrl"].as_str().expect("an address").to_owned()
}

/// Requests the tool list of the MCP server at an address.
async fn request_tool_list(address: &str) -> reqwest::Response {
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list",
    "params": {"_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"}
    }}});
    let request = client().post(address).header("mcp-protocol-version", "2026-07-28").json(&request);
    request.header("mcp-method", "tools/list").send().await.expect("the application answers")
}

#[tokio::test]
async fn a_runtime_creates_two_todos_side_by_side() {
    let vendor = Vendor::start().await;
    let calls =
        [("c1", "createTodo", r#"{"title":"Buy soil"}"#), ("c2", "createTodo", r#"{"title":"Buy pots"}"#)];
    vendor.on("m", [tool_calls(&calls), answer(&["Both are noted."])]);
    let runtime = server::runtime(&[]).await;
    let content = json!({
        "agentServerUrl": runtime.url(""), "agentServerProvider": "openai", "agentServerModel": "m",
        "agentServerLocalUrl": vendor.base_url(), "agentServerApiKey": "role-key-canary"
    });
    let app = server::app(&workspace(content, json!([])), &[]).await;

    let chat = json!({"agentId": "a1", "message": "Soil and pots.", "todoListId": "l1"});
    let events = parse_run(&app.chat(&chat).await.text().await.expect("a body"));
    assert_eq!(text_of(&events), "Both are noted.");
    // The runtime's own events contain the calls, and the application does not add them again.
    let begun = events.iter().filter(|event| event["type"] == "TOOL_CALL_START");
    assert_eq!(begun.count(), 2);
    for (id, title) in [("c1", "Buy soil"), ("c2", "Buy pots")] {
        let result = events.iter().find(|e| e["type"] == "TOOL_CALL_RESULT" && e["toolCallId"] == id);
        let content = result.expect("a result")["content"].as_str().expect("text");
        assert!(content.contains(title), "{content}");
    }
    let second = json!({"agentId": "a1", "message": "What is there?", "todoListId": "l1"});
    vendor.on("m", [tool_calls(&[("c3", "readTodos", "{}")]), answer(&["Soil and pots."])]);
    let events = parse_run(&app.chat(&second).await.text().await.expect("a body"));
    let result = events.iter().find(|event| event["type"] == "TOOL_CALL_RESULT").expect("a result");
    let todos = result["content"].as_str().expect("text");
    assert!(todos.contains("Buy soil") && todos.contains("Buy pots"), "{todos}");

    // The audit log has each call with the id of its run.
    let audit = async || -> Value {
        let audit =
            app.request("GET", "/api/agent/tools/audit?agentId=a1").bearer_auth(session_token("u1", "c1"));
        audit.send().await.expect("an answer").json().await.expect("JSON")
    };
    let page = poll_until(audit, |page| page["calls"].as_array().is_some_and(|calls| calls.len() == 3)).await;
    let calls = &page["calls"];
    let tools: Vec<_> = (0..3).map(|i| calls[i]["tool"].as_str().expect("a name")).collect();
    assert_eq!(tools, ["readTodos", "createTodo", "createTodo"]);
    assert!(calls[1]["runId"].is_string(), "{calls}");
    assert_eq!(calls[1]["runId"], calls[2]["runId"]);
    assert_ne!(calls[0]["runId"], calls[1]["runId"]);
}

/// Starts an application whose agent server is the fake vendor with the script `app_with_held_backend`.
async fn app_with_held_backend(vendor: &Vendor) -> Server {
    let content = json!({"agentServerUrl": vendor.base_url(), "agentServerProvider": "openai", "agentServerModel": "held"});
    server::app(&workspace(content, json!([])), &[]).await
}

#[tokio::test]
async fn a_runs_token_is_valid_only_for_the_run() {
    let vendor = Vendor::start().await;
    // Only the head arrives, so the run lasts until the gate opens.
    let gate = watch::Sender::new(false);
    vendor.on("held", [vec![stream_head(), Step::Until(gate.subscribe()), Step::Close]]);
    let app = app_with_held_backend(&vendor).await;
    let chat = json!({"agentId": "a1", "message": "Hello", "todoListId": "l1"});
    let response = app.chat(&chat).await;
    let request_body = vendor.received().pop().expect("the agent server was asked").json();
    let address = sent_mcp_url(&request_body);
    assert!(address.starts_with(&app.url("/api/agent/mcp?token=agm_")), "{address}");
    assert!(address.ends_with("&userId=u1&agentId=a1&todoListId=l1"), "{address}");

    let during = request_tool_list(&address).await;
    assert_eq!(during.status(), 200, "{:?}", during.text().await);
    let list: Value = serde_json::from_str(during.text().await.expect("a body").trim()).expect("JSON");
    let names: Vec<&str> = list["result"]["tools"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|t| t["name"].as_str())
        .collect();
    assert_eq!(names, ["createTodo", "readTodos"]);
    let other = request_tool_list(&address.replace("agentId=a1", "agentId=a2")).await;
    assert_eq!(other.status(), 403);

    gate.send_replace(true);
    let response_text = response.text().await.expect("a body");
    let events = parse_run(&response_text);
    assert_eq!(events.last().expect("an end")["type"], "RUN_ERROR");
    assert!(!response_text.contains("agm_"), "the token is in the stream: {response_text}");
    assert_eq!(request_tool_list(&address).await.status(), 401, "the token outlived its run");
}
