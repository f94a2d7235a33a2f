//! Unmodified third-party MCP clients, run in Node, connected by the URL that users paste.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use super::test_server::{McpTestConfig, McpTestServer};
use crate::support::packages::{INSPECTOR, node_path, npm_folder};

/// Time limit for a client, far above its duration, so that a hanging client does not hang the tests.
const MCP_CLIENT_TIMEOUT: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_inspector_lists_and_calls() {
    let server = McpTestServer::start(McpTestConfig::default()).await;
    // The inspector stores its state in the home directory.
    let home = tempfile::tempdir().expect("a folder");
    let inspect = async |more: &[&str]| -> Value {
        let inspector = Command::new(node_path())
            .arg(INSPECTOR)
            .args(["--cli", &server.url("?token=ada"), "--transport", "http"])
            .args(more)
            .env("HOME", home.path())
            .current_dir(npm_folder("conformance"))
            .kill_on_drop(true)
            .output();
        let output =
            timeout(MCP_CLIENT_TIMEOUT, inspector).await.expect("the output ends").expect("node can be run");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let listed = inspect(&["--method", "tools/list"]).await;
    assert_eq!(listed["tools"][0]["name"], "createTodo", "{listed}");
    let called =
        inspect(&["--method", "tools/call", "--tool-name", "createTodo", "--tool-arg", "title=Repot"]).await;
    assert_eq!(called["structuredContent"]["todo"]["title"], "Repot", "{called}");
    let prompts = inspect(&["--method", "prompts/list"]).await;
    assert_eq!(prompts["prompts"][0]["name"], "Tone", "{prompts}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mcp_remote_lists_and_calls() {
    let server = McpTestServer::start(McpTestConfig::default()).await;
    // A separate folder, so that the client does not use the developer's stored sign-ins.
    let home = std::env::temp_dir().join(format!("mcp-remote-{}", agent_core::new_id()));
    let mut remote = Command::new(node_path())
        .args(["node_modules/mcp-remote/dist/proxy.js", &server.url("?token=ada")])
        .args(["--allow-http", "--transport", "http-only"])
        .env("MCP_REMOTE_CONFIG_DIR", &home)
        .current_dir(npm_folder("conformance"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("node can be run");
    let mut stdin = remote.stdin.take().expect("piped");
    let mut lines = BufReader::new(remote.stdout.take().expect("piped")).lines();
    let mut ask = async |message: Value| -> Value {
        stdin.write_all(format!("{message}\n").as_bytes()).await.expect("it reads");
        if message.get("id").is_none() {
            return Value::Null;
        }
        loop {
            let line = timeout(MCP_CLIENT_TIMEOUT, lines.next_line())
                .await
                .expect("the server answers")
                .expect("whole lines");
            let answer: Value = serde_json::from_str(&line.expect("it goes on")).expect("JSON");
            if answer["id"] == message["id"] {
                return answer;
            }
        }
    };
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let opened = ask(json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})).await;
    assert_eq!(opened["result"]["serverInfo"]["name"], "agentd", "{opened}");
    ask(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
    let list = ask(json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})).await;
    assert_eq!(list["result"]["tools"][0]["name"], "createTodo", "{list}");
    let params = json!({"name": "readTodos", "arguments": {}});
    let called = ask(json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params})).await;
    assert_eq!(called["result"]["structuredContent"]["todos"][0]["title"], "Water the basil", "{called}");
    remote.kill().await.expect("it is stopped");
    // The folder exists only if the client has stored anything.
    let _ = std::fs::remove_dir_all(home);
}
