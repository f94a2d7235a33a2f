//! Tenant isolation: objects of another user or company get the same response as objects that do not exist.

use serde_json::{Value, json};

use crate::support::server::{self, INTERNAL_SECRET, Server, session_token};
use crate::support::vendor::{Vendor, answer, json_response, tool_calls};
use crate::support::{expect_problem, parse_run, workspace};

/// Returns a workspace of two companies: `c1` with the users `u1` and `u2`, and `c2` with `u3`, an agent and a todo
/// list.
fn two_companies(base_url: &str) -> Value {
    let mut all = workspace(base_url, "m");
    let mut theirs = all["agents"][0].clone();
    theirs["id"] = "a2".into();
    theirs["companyId"] = "c2".into();
    all["agents"].as_array_mut().expect("a list").push(theirs);
    for (user, company, list) in [("u2", "c1", "l2"), ("u3", "c2", "l3")] {
        all["users"].as_array_mut().expect("a list").push(json!({"id": user, "companyId": company}));
        all["todoLists"].as_array_mut().expect("a list").push(json!({
            "id": list, "ownerId": user, "companyId": company, "name": "name-canary",
            "todos": [{"id": "t1", "title": "todo-canary", "done": false}]
        }));
    }
    all
}

async fn open() -> (Vendor, Server) {
    let vendor = Vendor::start().await;
    let app = server::app(&two_companies(&vendor.base_url()), &[]).await;
    (vendor, app)
}

#[tokio::test]
async fn another_company_s_agent_is_not_found() {
    let (vendor, app) = open().await;
    let session = session_token("u1", "c1");
    let mut answers = Vec::new();
    for agent in ["a2", "nobody"] {
        let body = json!({"agentId": agent, "message": "Hello"});
        let mut problem = expect_problem(app.chat_as(&session, "", &body).await, 404, "NOT_FOUND").await;
        problem.as_object_mut().expect("an object").remove("requestId");
        answers.push(problem);
    }
    assert_eq!(answers[0], answers[1]);
    let internal = app.request("POST", "/api/agent/chat").bearer_auth(INTERNAL_SECRET);
    let body = json!({"agentId": "a2", "message": "Hello", "userId": "u1", "companyId": "c1"});
    let internal = internal.header("x-proactive-trigger", "x").json(&body).send().await.expect("an answer");
    let mut problem = expect_problem(internal, 404, "NOT_FOUND").await;
    problem.as_object_mut().expect("an object").remove("requestId");
    assert_eq!(problem, answers[0]);
    assert!(vendor.received().is_empty());
}

#[tokio::test]
async fn another_user_s_list_cannot_be_read_or_written() {
    let (vendor, app) = open().await;
    let session = session_token("u1", "c1");
    let mut results = Vec::new();
    for list in ["l2", "l3", "none"] {
        let calls = [("c1", "readTodos", "{}"), ("c2", "createTodo", r#"{"title":"mine","userId":"u2"}"#)];
        vendor.on("m", [tool_calls(&calls), answer(&["Sorry."])]);
        let body = json!({"agentId": "a1", "message": "Hello", "todoListId": list});
        let body = app.chat_as(&session, "", &body).await.text().await.expect("a whole body");
        let events = parse_run(&body);
        assert_eq!(events.last().expect("an end")["type"], "RUN_FINISHED");
        assert!(!body.contains("canary"), "{body}");
        let of_tools = events.iter().filter(|event| event["type"] == "TOOL_CALL_RESULT");
        for result in of_tools {
            assert_eq!(result["metadata"], json!({"isError": true}));
            let text = result["content"].as_str().expect("text");
            assert!(text.contains("no todo list"), "{text}");
            results.push(text.replace(list, "<list>"));
        }
        assert!(!json!(vendor.received_bodies("m")).to_string().contains("canary"));
    }
    assert_eq!(results.len(), 6);
    results.dedup();
    assert_eq!(results.len(), 1, "other users' objects look like absent ones: {results:?}");
    // The refused calls have written nothing.
    vendor.on("m", [tool_calls(&[("c1", "readTodos", "{}")]), answer(&["One."])]);
    let body = json!({"agentId": "a1", "message": "Hello", "todoListId": "l2"});
    let owner =
        app.chat_as(&server::session_token("u2", "c1"), "", &body).await.text().await.expect("a whole body");
    assert!(owner.contains("todo-canary") && !owner.contains("mine"), "{owner}");
}

#[tokio::test]
async fn a_user_uses_a_run_id_once() {
    let (vendor, app) = open().await;
    let (first, second) = (session_token("u1", "c1"), session_token("u2", "c1"));
    let body = json!({"agentId": "a1", "message": "Hello", "runId": "r-1"});
    let ask = async |session: &str| app.chat_as(session, "", &body).await;
    // A run refused by its backend has not started and leaves its id free.
    vendor.on("m", [json_response("500 Internal Server Error", "", "{}"), answer(&["Hello"])]);
    expect_problem(ask(&first).await, 502, "BACKEND_FAILED").await;
    let started = ask(&first).await;
    assert_eq!(started.status(), 200);
    // The id is taken during the run and after it.
    expect_problem(ask(&first).await, 409, "CONFLICT").await;
    parse_run(&started.text().await.expect("a whole body"));
    expect_problem(ask(&first).await, 409, "CONFLICT").await;
    let another = ask(&second).await;
    assert_eq!(another.status(), 200, "another user's runs are none of ours");
}
