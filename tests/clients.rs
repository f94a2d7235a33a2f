//! Unmodified third-party clients, run in Node, against the application.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::control::ControlledVendor;
use crate::support::server::{self, session_token};

/// Time limit for the Node tests, far above their duration, so that a hanging client does not hang the suite.
const CLIENT_TESTS_TIMEOUT: Duration = Duration::from_secs(240);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_clients_that_people_use_work() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients");
    assert!(
        folder.join("node_modules").is_dir(),
        "the clients are not installed; run `npm ci --prefix tests/clients` first"
    );
    let vendor = ControlledVendor::start().await;
    let app = server::app(&workspace(&vendor.base_url()), &[]).await;
    let tests = Command::new("node")
        .args(["--test", "--test-reporter=tap"])
        .current_dir(folder)
        .env("BASE_URL", app.url(""))
        .env("TOKEN", session_token("u1", "c1"))
        .env("VENDOR_CONTROL_URL", vendor.control_url())
        .env("TODO_LIST", "l1")
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(CLIENT_TESTS_TIMEOUT, tests).await.expect("the clients come to an end");
    let output = output.expect("node can be run; install Node 20 or newer");
    let report = String::from_utf8_lossy(&output.stdout);
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{report}\n{words}");
    let count = |name: &str| {
        let line = report.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.trim().parse::<usize>().unwrap_or_else(|_| panic!("no {name:?} in {report}"))
    };
    assert!(count("# pass ") >= 28, "tests are missing: {report}");
    assert_eq!(count("# skipped "), 0, "{report}");
}

fn workspace(base_url: &str) -> Value {
    let agents = ["text", "tools", "error", "slow"].map(|id| {
        json!({
            "id": id, "name": id, "ownerId": "u1", "companyId": "c1",
            "content": {"systemPrompt": "Be brief.", "mcpPreset": ["readTodos"]},
            "children": [{"name": "EmbeddedAI", "content":
                {"provider": "openai", "model": id, "baseUrl": base_url, "apiKey": "key"}}]
        })
    });
    json!({
        "users": [{"id": "u1", "companyId": "c1"}],
        "agents": agents,
        "todoLists": [{"id": "l1", "ownerId": "u1", "companyId": "c1", "name": "Mine",
            "todos": [{"id": "t1", "title": "Water the basil", "done": false}]}]
    })
}
