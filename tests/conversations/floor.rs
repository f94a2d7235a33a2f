//! Approvals that a company demands whatever the roles of its agents say.

use serde_json::{Value, json};

use super::approvals::call;
use super::{ConversationApp, call_as, everyone};
use crate::support::server::{self, session_token};
use crate::support::vendor::{Vendor, answer};

const PATH: &str = "/api/settings/approvalFloor";

/// Starts an application with an admin `boss`, and an agent `a1` whose role has no rules for approvals.
async fn start() -> ConversationApp {
    let vendor = Vendor::start().await;
    let mut all = everyone(&vendor.base_url());
    let boss = json!({"id": "boss", "companyId": "c1", "role": "admin"});
    all["users"].as_array_mut().expect("a list").push(boss);
    let stores = server::stores(&all).await;
    let app = server::app_with_stores(stores.clone(), &[]).await;
    ConversationApp { vendor, app, stores }
}

async fn change(test: &ConversationApp, user: &str, method: &str, body: Option<Value>) -> (u16, Value) {
    call_as(&test.app, &session_token(user, "c1"), method, PATH, body).await
}

/// Returns the approvals of a preview, that of `createTodo` in the list of tools, and whether capabilities have approvals.
async fn shown(test: &ConversationApp) -> (Value, Value, Value) {
    let preview = test.get("/api/svcchat/previewPrompt?agentId=a1&message=Hello").await;
    let list = test.get("/api/agents/a1/tools").await;
    let tools = list["tools"].as_array().expect("tools");
    let tool = tools.iter().find(|tool| tool["name"] == "createTodo").expect("the tool");
    let capabilities = test.get("/api/agents/a1/capabilities").await;
    (
        preview["approvals"].clone(),
        json!([tool["approval"], tool["approvalFloor"]]),
        capabilities["humanInTheLoop"]["approvals"].clone(),
    )
}

#[tokio::test]
async fn an_admin_makes_calls_wait_that_no_role_asks_for() {
    let test = start().await;
    assert_eq!(shown(&test).await, (Value::Null, json!(["auto", null]), json!(false)));
    let floor = json!({"annotations": ["notReadOnly"]});
    for (user, body, expected) in [
        ("u1", floor.clone(), 403),
        ("boss", json!({"annotations": ["later"]}), 400),
        ("boss", floor.clone(), 201),
        ("boss", floor, 200),
    ] {
        let (status, answer) = change(&test, user, "PUT", Some(body)).await;
        assert_eq!(status, expected, "{answer}");
    }
    let setting = json!({"id": "approvalFloor", "annotations": ["notReadOnly"]});
    assert_eq!(test.get(PATH).await, setting, "users of the company may read it");
    assert_eq!(test.get("/api/settings").await, json!({"settings": [setting]}));
    let approval = json!([{"tool": "createTodo", "by": "user", "unattended": "deny", "floor": true}]);
    assert_eq!(shown(&test).await, (approval, json!(["ask", true]), json!(true)));
    let theirs = call_as(&test.app, &session_token("u3", "c2"), "GET", PATH, None).await;
    assert_eq!(theirs.0, 404, "another company has none");

    test.vendor.on("m", [call("c1", "Milk"), answer(&["It is on the list."])]);
    let interrupt = test.ask("t").await;
    assert_eq!(test.titles().await, ["Water the basil"], "nothing was done");
    test.resume("t", &interrupt, json!({"approved": true})).await;
    assert_eq!(test.titles().await, ["Water the basil", "Milk"]);

    assert_eq!(change(&test, "u1", "DELETE", None).await.0, 403);
    assert_eq!(change(&test, "boss", "DELETE", None).await.0, 204);
    test.vendor.on("m", [call("c2", "Oats"), answer(&["It is on the list."])]);
    let turn = test.chat(json!({"threadId": "t2", "message": "Buy oats", "todoListId": "l1"})).await;
    assert!(turn.last()["outcome"].is_null(), "{:?}", turn.events);
    assert_eq!(test.titles().await, ["Water the basil", "Milk", "Oats"]);
}
