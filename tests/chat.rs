//! `POST /api/agent/chat`: one message in, one response stream out.

mod bounds;
mod framings;
mod history;
mod refusals;

use serde_json::json;

use crate::support::vendor::{Vendor, answer, tool_calls};
use crate::support::{parse_events, server, workspace};

#[tokio::test]
async fn a_model_calls_two_tools_and_answers() {
    let vendor = Vendor::start().await;
    let calls = [("c1", "readTodos", "{}"), ("c2", "createTodo", r#"{"title":"Buy soil"}"#)];
    vendor.on("m", [tool_calls(&calls), answer(&["Done", "."])]);
    let app = server::app(&workspace(&vendor.base_url(), "m"), &[]).await;
    let response = app.chat(&json!({"agentId": "a1", "message": "Add soil", "todoListId": "l1"})).await;
    assert_eq!(response.status(), 200);
    let body = response.text().await.expect("a whole body");
    let events = parse_events(&body);
    let names: Vec<&str> = events.iter().map(|event| event["type"].as_str().expect("a type")).collect();
    assert_eq!(names.first(), Some(&"RUN_STARTED"));
    assert_eq!(names.last(), Some(&"RUN_FINISHED"), "{body}");
    let results: Vec<_> = events.iter().filter(|event| event["type"] == "TOOL_CALL_RESULT").collect();
    assert_eq!(results.len(), 2);
    let second = &vendor.received_bodies("m")[1];
    let messages = second["messages"].as_array().expect("messages");
    let roles: Vec<_> = messages.iter().map(|message| message["role"].as_str().expect("a role")).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "tool"]);
    assert_eq!(messages[3]["tool_call_id"], "c1");
    assert!(messages[4]["content"].as_str().expect("text").contains("Buy soil"));
}
