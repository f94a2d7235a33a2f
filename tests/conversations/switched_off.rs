//! Requests whose runs are not stored: by the request, by the setting, or for want of a thread.

use serde_json::{Value, json};

use super::{ConversationApp, Turn, dialogue};
use crate::support::expect_problem;
use crate::support::vendor::answer;

/// Returns the events of a run without ids that differ in each.
fn shape(turn: &Turn) -> Vec<Value> {
    let names = turn.events.iter().map(|event| json!([event["type"], event["name"], event["delta"]]));
    names.collect()
}

#[tokio::test]
async fn runs_that_are_not_stored_are_answered() {
    let test = ConversationApp::start().await;
    let off = ConversationApp::start_with(&[("CONVERSATIONS", "off")]).await;
    let before = off.chat(json!({"threadId": "t", "message": "Hello"})).await;
    let unkept = test.chat(json!({"threadId": "t", "message": "Hello", "store": false})).await;
    let without = test.chat(json!({"message": "Hello"})).await;
    assert_eq!(shape(&unkept), shape(&before));
    assert_eq!(shape(&without), shape(&before));
    assert_eq!(unkept.thread_id(), "t");
    assert!(before.custom("agent.thread").is_none());
    for path in ["/api/threads", "/api/runs"] {
        let name = path.rsplit('/').next().expect("a name");
        assert_eq!(test.get(path).await[name], json!([]));
        let response = off.app.request("GET", path).send().await.expect("an answer");
        expect_problem(response, 404, "NOT_FOUND").await;
    }
    assert_eq!(test.call("GET", "/api/threads/t", None).await.0, 404);
}

#[tokio::test]
async fn a_switched_off_server_takes_the_history_of_the_client() {
    let off = ConversationApp::start_with(&[("CONVERSATIONS", "off")]).await;
    off.vendor.on("m", [answer(&["One."]), answer(&["Two."])]);
    off.chat(json!({"threadId": "t", "message": "A", "runId": "r1"})).await;
    // Fields of threads are ignored, whatever they are.
    let fields = json!({"threadId": "t", "message": "B", "store": 5, "onBusy": "queue", "parentId": 5});
    off.chat(fields).await;
    assert_eq!(off.prompt(), dialogue(&["B"]));
    let used = json!({"agentId": "a1", "threadId": "t", "message": "A", "runId": "r1"});
    let problem = expect_problem(off.app.chat(&used).await, 409, "CONFLICT").await;
    assert!(problem.get("run").is_none(), "{problem}");
}

#[tokio::test]
async fn a_visitor_has_no_threads() {
    let test = ConversationApp::start().await;
    let (status, token) = test.call("POST", "/api/agents/a1/tokens", Some(json!({"kind": "widget"}))).await;
    assert_eq!(status, 201, "{token}");
    let token = token["token"].as_str().expect("a token");
    let body = json!({"threadId": "t", "message": "Hello", "onBusy": "queue", "widgetToken": token});
    for _ in 0..2 {
        let request = test.app.request("POST", "/api/agent/chat").json(&body);
        let response = request.send().await.expect("an answer");
        assert_eq!(response.status(), 200);
        response.text().await.expect("a whole body");
    }
    assert_eq!(test.prompt(), dialogue(&["Hello"]));
    assert_eq!(test.get("/api/threads").await["threads"], json!([]));
}

#[tokio::test]
async fn an_agent_may_store_no_threads() {
    let test = ConversationApp::start().await;
    for store in [json!(null), json!(true)] {
        let body = json!({"agentId": "forgetful", "threadId": "t", "message": "Hello", "store": store});
        let response = test.app.chat(&body).await;
        assert_eq!(response.status(), 200);
        assert!(!response.text().await.expect("a whole body").contains("agent.thread"));
    }
    assert_eq!(test.prompt(), dialogue(&["Hello"]));
    let second = json!({"agentId": "forgetful", "threadId": "t", "trigger": "regenerate-message"});
    expect_problem(test.app.chat(&second).await, 400, "INVALID_REQUEST").await;
    assert_eq!(test.get("/api/threads").await["threads"], json!([]));
}
