//! Capabilities of agents.

use serde_json::json;

use super::{ConversationApp, call_as};
use crate::support::server::session_token;

const PATH: &str = "/api/agents/a1/capabilities";

#[tokio::test]
async fn an_agent_reports_its_capabilities() {
    let test = ConversationApp::start().await;
    let capabilities = test.get(PATH).await;
    assert_eq!(capabilities["identity"]["name"], "Agent");
    assert_eq!(
        (&capabilities["transport"]["streaming"], &capabilities["transport"]["resumable"]),
        (&json!(true), &json!(true))
    );
    let items = capabilities["tools"]["items"].as_array().expect("tools");
    let mut names: Vec<&str> = items.iter().filter_map(|tool| tool["name"].as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["createTodo", "readTodos"]);
    assert_eq!(capabilities["tools"]["items"][0]["parameters"]["type"], "object");
    assert_eq!(
        (&capabilities["tools"]["clientProvided"], &capabilities["humanInTheLoop"]["approvals"]),
        (&json!(true), &json!(false))
    );
    let own_defaults = json!({"threads": true, "onDisconnect": "cancel", "graceMs": 0, "onBusy": "reject"});
    assert_eq!(capabilities["custom"]["agentd"], own_defaults);

    let mut role = test.get("/api/agents/a1").await;
    role["content"]["approvals"] = json!([{"tools": ["createTodo"], "editable": false}]);
    role["content"]["conversations"] =
        json!({"onDisconnect": "continue", "onBusy": "interrupt", "clientTools": "off"});
    let (status, saved) = test.call("PUT", "/api/agents/a1", Some(role)).await;
    assert_eq!(status, 200, "{saved}");
    let capabilities = test.get(PATH).await;
    let human = &capabilities["humanInTheLoop"];
    assert_eq!((&human["approvals"], &human["approveWithEdits"]), (&json!(true), &json!(false)));
    assert_eq!(capabilities["tools"]["clientProvided"], false);
    assert_eq!(capabilities["custom"]["agentd"]["onBusy"], "interrupt");

    let capabilities = test.get("/api/agents/forgetful/capabilities").await;
    assert_eq!(
        (&capabilities["transport"]["resumable"], &capabilities["humanInTheLoop"]["feedback"]),
        (&json!(false), &json!(false))
    );
    let foreign =
        call_as(&test.app, &session_token("u3", "c2"), "GET", "/api/agents/a2/capabilities", None).await;
    assert_eq!(foreign.0, 404, "an agent of another company");
}

#[tokio::test]
async fn an_application_without_conversations_offers_no_threads() {
    let test = ConversationApp::start_with(&[("CONVERSATIONS", "off")]).await;
    let capabilities = test.get(PATH).await;
    assert_eq!(
        (&capabilities["custom"]["agentd"]["threads"], &capabilities["transport"]["resumable"]),
        (&json!(false), &json!(false))
    );
}
