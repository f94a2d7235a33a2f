//! Built-in tools through the application: definitions offered to the model, calls and results.

mod http;
mod messenger;
mod open_api;
mod servers;
mod trace;

use serde_json::{Value, json};

use crate::support::server::{Server, session_token};
use crate::support::vendor::{Vendor, answer, tool_calls};
use crate::support::{parse_run, poll_until, server, text_of, workspace};

/// Has an agent be answered by a runtime, which calls the vendor.
pub(crate) fn select_runtime(agent: &mut Value, runtime: &Server, vendor: &Vendor) {
    agent["children"] = json!([]);
    for (field, value) in [
        ("agentServerUrl", runtime.url("")),
        ("agentServerProvider", "openai".to_owned()),
        ("agentServerModel", "m".to_owned()),
        ("agentServerLocalUrl", vendor.base_url()),
        ("agentServerApiKey", "role-key-canary".to_owned()),
    ] {
        agent["content"][field] = json!(value);
    }
}

#[tokio::test]
async fn a_model_gets_the_version_conflict_and_repeats_the_write() {
    let vendor = Vendor::start().await;
    let mut workspace = workspace(&vendor.base_url(), "m");
    let tools = json!(["appendDoc", "getDoc", "readPlan", "recordMetric", "updateTodo"]);
    workspace["agents"][0]["content"]["mcpPreset"] = tools.clone();
    workspace["documents"] = json!([{"id": "d1", "companyId": "c1", "title": "Log", "text": "Sown."},
        {"id": "d2", "companyId": "c2", "title": "Theirs", "text": "foreign-canary"}]);
    vendor.on(
        "m",
        [
            tool_calls(&[
                ("c1", "getDoc", r#"{"id":"d1"}"#),
                ("c2", "appendDoc", r#"{"id":"d1","text":"Watered.","version":0}"#),
                ("c3", "getDoc", r#"{"id":"d2","companyId":"c2"}"#),
                ("c4", "updateTodo", r#"{"id":"t1","done":true}"#),
                ("c5", "deleteTodo", r#"{"id":"t1"}"#),
            ]),
            tool_calls(&[
                ("c6", "appendDoc", r#"{"id":"d1","text":"Watered."}"#),
                ("c7", "recordMetric", r#"{"name":"water","value":2.5,"unit":"l","at":"2026-07-01"}"#),
            ]),
            answer(&["Done."]),
        ],
    );
    let app = server::app(&workspace, &[]).await;
    let response = app.chat(&json!({"agentId": "a1", "message": "Log it", "todoListId": "l1"})).await;
    let body = response.text().await.expect("a whole body");
    assert_eq!(text_of(&parse_run(&body)), "Done.");

    let requests = vendor.received_bodies("m");
    let offered = requests[0]["tools"].as_array().expect("tools");
    let names: Vec<_> = offered.iter().map(|tool| tool["function"]["name"].clone()).collect();
    assert_eq!(json!(names), tools);
    assert!(offered.iter().all(|tool| tool["function"]["parameters"]["type"] == "object"), "{offered:?}");
    let text_result = |id: &str| -> String {
        let messages = requests[2]["messages"].as_array().expect("messages");
        let result = messages.iter().find(|message| message["tool_call_id"] == id).expect("a result");
        result["content"].as_str().expect("text").to_owned()
    };
    let result = |id: &str| -> Value { serde_json::from_str(&text_result(id)).expect("JSON") };
    assert_eq!(result("c1")["doc"]["text"], "Sown.");
    let version = &result("c1")["doc"]["version"];
    let lost = format!(
        "the document \"d1\" has changed since it was read and is now at version {version}: read it again"
    );
    assert_eq!(text_result("c2"), lost);
    assert_eq!(text_result("c3"), "there is no document \"d2\"");
    assert_eq!(result("c4")["todo"]["done"], true);
    assert_eq!(text_result("c5"), "there is no tool named \"deleteTodo\"");
    assert_eq!(result("c6")["doc"]["bytes"], "Sown.\nWatered.".len());
    let metric = &result("c7")["metric"];
    assert_eq!(
        (&metric["at"], &metric["localTime"]),
        (&json!("2026-06-30T22:00:00.000Z"), &json!("2026-07-01 00:00 Europe/Berlin"))
    );
    assert!(!body.contains("canary"), "{body}");

    // The agent's owner sees the calls of the run in the audit log.
    let run_id = parse_run(&body)[0]["runId"].clone();
    let audit = async || -> Value {
        let request = app.request("GET", "/api/agent/tools/audit?agentId=a1");
        let page = request.bearer_auth(session_token("u1", "c1")).send().await.expect("an answer");
        page.json().await.expect("JSON")
    };
    let page = poll_until(audit, |page| page["calls"].as_array().is_some_and(|calls| calls.len() == 6)).await;
    let mut calls: Vec<_> = page["calls"].as_array().expect("calls").iter().collect();
    assert!(calls.iter().all(|call| call["credentialId"] == "internal" && call["runId"] == run_id), "{page}");
    calls.sort_by_key(|call| call["tool"].to_string());
    let outcomes: Vec<_> = calls.iter().map(|call| json!([call["tool"], call["outcome"]])).collect();
    let expected = json!([
        ["appendDoc", "toolError"],
        ["appendDoc", "ok"],
        ["getDoc", "ok"],
        ["getDoc", "toolError"],
        ["recordMetric", "ok"],
        ["updateTodo", "ok"],
    ]);
    for call in expected.as_array().expect("a list") {
        assert!(outcomes.contains(call), "{call} in {outcomes:?}");
    }
}
