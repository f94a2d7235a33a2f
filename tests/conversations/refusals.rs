//! Requests that a thread refuses, and agents that are gone.

use serde_json::json;

use super::{ConversationApp, dialogue, whole_run};
use crate::support::expect_problem;

#[tokio::test]
async fn unsupported_values_are_refused_by_field_name() {
    let test = ConversationApp::start().await;
    for (field, value) in [
        ("resume", json!([{"interruptId": "i", "status": "resolved"}])),
        ("onBusy", json!("wait")),
        ("onDisconnect", json!("stop")),
        ("background", json!("yes")),
        ("graceMs", json!(600_001)),
        ("store", json!("yes")),
        ("history", json!("both")),
        ("title", json!(5)),
        ("title", json!("x".repeat(201))),
        ("metadata", json!([])),
        ("parentId", json!(5)),
    ] {
        let mut body = json!({"agentId": "a1", "threadId": "t", "message": "Hello"});
        body[field] = value.clone();
        let problem = expect_problem(test.app.chat(&body).await, 400, "INVALID_REQUEST").await;
        let detail = problem["detail"].as_str().expect("text");
        assert!(detail.starts_with(field), "{field}: {detail}");
        // Without a thread the field is another application's.
        body.as_object_mut().expect("an object").remove("threadId");
        assert_eq!(test.app.chat(&body).await.status(), 200, "{field}");
        if field != "store" {
            body["store"] = json!(true);
            let problem = expect_problem(test.app.chat(&body).await, 400, "INVALID_REQUEST").await;
            let detail = problem["detail"].as_str().expect("text");
            assert!(detail.starts_with(field), "{field}: {detail}");
        }
    }
    let harmless = json!({"threadId": "t", "message": "Hello", "resume": [], "onBusy": "reject",
        "onDisconnect": "cancel", "background": false, "graceMs": 0,
        "tools": [{"name": "paint", "description": "", "parameters": {}}]});
    test.chat(harmless).await;
    assert_eq!(test.get("/api/threads").await["threads"].as_array().expect("threads").len(), 1);
}

#[tokio::test]
async fn an_unsupported_value_is_named_before_a_missing_message() {
    let test = ConversationApp::start().await;
    for (field, value) in [
        ("resume", json!([{"interruptId": "i", "status": "resolved", "payload": {"ok": true}}])),
        ("parentId", json!(5)),
        ("graceMs", json!(-1)),
    ] {
        let mut body = json!({"agentId": "a1", "threadId": "t", "messages": []});
        body[field] = value;
        let problem = expect_problem(test.app.chat(&body).await, 400, "INVALID_REQUEST").await;
        let detail = problem["detail"].as_str().expect("text");
        assert!(detail.starts_with(field), "{field}: {detail}");
        // Without a thread the field is another application's, and the message is missing.
        body.as_object_mut().expect("an object").remove("threadId");
        let problem = expect_problem(test.app.chat(&body).await, 400, "INVALID_REQUEST").await;
        let detail = problem["detail"].as_str().expect("text");
        assert!(detail.starts_with("messages"), "{field}: {detail}");
    }
}

#[tokio::test]
async fn a_message_that_fits_nowhere_is_refused_and_leaves_nothing() {
    let test = ConversationApp::start().await;
    let first = test.say("t", "A").await;
    let request_count = test.vendor.received_bodies("m").len();
    for (body, status, code) in [
        (json!({"threadId": "t", "message": "B", "parentId": "never"}), 404, "NOT_FOUND"),
        (json!({"threadId": "t", "parentId": first.message_id()}), 400, "INVALID_REQUEST"),
        (json!({"threadId": "t"}), 400, "INVALID_REQUEST"),
        (json!({"threadId": "new", "trigger": "regenerate-message"}), 400, "INVALID_REQUEST"),
        (json!({"trigger": "regenerate-message", "messageId": "m"}), 400, "INVALID_REQUEST"),
        (json!({"threadId": "t", "message": "B", "agentId": "a2"}), 409, "CONFLICT"),
        (json!({"threadId": "new", "message": "B", "agentId": "nobody"}), 404, "NOT_FOUND"),
    ] {
        let mut request = body.clone();
        if request.get("agentId").is_none() {
            request["agentId"] = json!("a1");
        }
        expect_problem(test.app.chat(&request).await, status, code).await;
    }
    assert_eq!(test.vendor.received_bodies("m").len(), request_count, "no backend is asked");
    assert_eq!(test.get("/api/threads").await["threads"].as_array().expect("threads").len(), 1);
    assert_eq!(test.path("t").await.len(), 2);
}

#[tokio::test]
async fn an_unknown_id_in_a_body_is_named_by_its_field() {
    let test = ConversationApp::start().await;
    test.say("t", "A").await;
    let messages = json!([{"role": "user", "content": "B"}]);
    for (method, path, body, field) in [
        ("POST", "/api/threads", json!({"agentId": "nobody"}), "agentId"),
        ("POST", "/api/threads/t/fork", json!({"agentId": "nobody"}), "agentId"),
        ("POST", "/api/threads/t/fork", json!({"at": "never"}), "at"),
        ("POST", "/api/threads/t/fork", json!({"at": "a/b"}), "at"),
        ("PATCH", "/api/threads/t", json!({"head": "never"}), "head"),
        ("POST", "/api/threads/t/messages", json!({"messages": messages, "parentId": "never"}), "parentId"),
        (
            "POST",
            "/api/agent/chat",
            json!({"agentId": "a1", "threadId": "t", "message": "B", "parentId": "never"}),
            "parentId",
        ),
    ] {
        let (status, problem) = test.call(method, path, Some(body)).await;
        assert_eq!(
            (status, &problem["detail"]),
            (404, &json!(format!("{field} not found"))),
            "{path}: {problem}"
        );
    }
    // An id in the path has no field.
    let (status, problem) = test.call("PATCH", "/api/threads/unknown", Some(json!({"head": "never"}))).await;
    assert_eq!((status, &problem["detail"]), (404, &json!("not found")));
}

#[tokio::test]
async fn the_threads_of_a_deleted_agent_are_read_and_not_continued() {
    let test = ConversationApp::start().await;
    test.say("t", "Hello").await;
    assert_eq!(test.call("DELETE", "/api/agents/a1", None).await.0, 204);
    assert_eq!(test.path("t").await, dialogue(&["Hello", "hello world"]));
    let body = json!({"agentId": "a1", "threadId": "t", "message": "And?"});
    let problem = expect_problem(test.app.chat(&body).await, 404, "NOT_FOUND").await;
    assert_eq!(problem["detail"], "agent not found");
    // Decisions need no message.
    let resume = json!([{"interruptId": "i", "status": "resolved", "payload": true}]);
    let body = json!({"agentId": "a1", "threadId": "t", "resume": resume});
    let problem = expect_problem(test.app.chat(&body).await, 404, "NOT_FOUND").await;
    assert_eq!(problem["detail"], "agent not found");
    assert_eq!(test.path("t").await.len(), 2);
}

/// Returns the body of a request that imports `count` messages of a user.
fn numbered(count: usize) -> Vec<serde_json::Value> {
    (0..count).map(|number| json!({"role": "user", "content": format!("n{number}")})).collect()
}

#[tokio::test]
async fn a_thread_has_ten_thousand_messages_at_most() {
    let test = ConversationApp::start().await;
    let create = json!({"id": "t", "agentId": "a1", "messages": numbered(9_999)});
    assert_eq!(test.call("POST", "/api/threads", Some(create)).await.0, 201);
    // All of them are known, and one is new.
    let mut messages = numbered(9_999);
    messages.push(json!({"role": "user", "content": "The last one"}));
    let request_body = json!({"agentId": "a1", "threadId": "t", "messages": messages});
    let turn = whole_run(&test.app, &request_body).await;
    assert_eq!(turn.last()["type"], "RUN_FINISHED");
    let request_count = test.vendor.received_bodies("m").len();
    // The answer of a run that has started is kept whatever there is.
    let thread = test.get("/api/threads/t?messages=none").await;
    assert_eq!((&thread["messageCount"], &thread["status"]), (&json!(10_001), &json!("idle")));
    for body in [
        json!({"agentId": "a1", "threadId": "t", "message": "One more"}),
        json!({"agentId": "a1", "threadId": "t", "message": "One more", "parentId": null}),
        json!({"agentId": "a1", "threadId": "t", "message": "One more", "onBusy": "queue"}),
        json!({"agentId": "a1", "threadId": "t", "trigger": "regenerate-message"}),
        request_body.clone(),
    ] {
        expect_problem(test.app.chat(&body).await, 409, "THREAD_FULL").await;
    }
    let more = json!({"messages": [{"role": "user", "content": "One more"}]});
    assert_eq!(test.call("POST", "/api/threads/t/messages", Some(more)).await.0, 409);
    assert_eq!(test.get("/api/threads/t?messages=none").await["messageCount"], 10_001);
    assert_eq!(
        test.vendor.received_bodies("m").len(),
        request_count,
        "a message without a place is not sent"
    );
}

#[tokio::test]
async fn a_full_thread_takes_none_of_ten_thousand_new_messages() {
    let test = ConversationApp::start().await;
    let create = json!({"id": "t", "agentId": "a1", "messages": numbered(10_000)});
    assert_eq!(test.call("POST", "/api/threads", Some(create)).await.0, 201);
    let unknown: Vec<_> = (0..10_000)
        .map(|number| json!({"id": format!("x{number}"), "role": "user", "content": format!("other {number}")}))
        .collect();
    let body = json!({"threadId": "t", "runId": "r", "messages": unknown, "tools": [], "context": [], "state": {},
        "forwardedProps": {"agentId": "a1"}});
    expect_problem(test.app.chat(&body).await, 409, "THREAD_FULL").await;
    let thread = test.get("/api/threads/t?messages=none").await;
    assert_eq!((&thread["messageCount"], &thread["status"]), (&json!(10_000), &json!("idle")));
    assert_eq!(test.call("GET", "/api/runs/r", None).await.0, 404, "the run has not begun");
    let more = json!({"id": "u", "agentId": "a1", "messages": numbered(10_001)});
    assert!((400..500).contains(&test.call("POST", "/api/threads", Some(more)).await.0));
}

#[tokio::test]
async fn a_message_has_a_hundred_alternatives_at_most() {
    let test = ConversationApp::start().await;
    let messages: Vec<_> =
        (0..100).map(|number| json!({"role": "user", "content": format!("{number}")})).collect();
    assert_eq!(test.call("POST", "/api/threads", Some(json!({"id": "t", "agentId": "a1"}))).await.0, 201);
    for message in messages {
        let body = json!({"messages": [message], "parentId": null});
        assert_eq!(test.call("POST", "/api/threads/t/messages", Some(body)).await.0, 201);
    }
    let body = json!({"agentId": "a1", "threadId": "t", "message": "One more", "parentId": null});
    expect_problem(test.app.chat(&body).await, 409, "THREAD_FULL").await;
    assert_eq!(test.get("/api/threads/t?messages=none").await["status"], "idle");
}

#[tokio::test]
async fn a_message_has_a_hundred_answers_at_most() {
    let test = ConversationApp::start().await;
    let create =
        json!({"id": "t", "agentId": "a1", "messages": [{"id": "m", "role": "user", "content": "Hello"}]});
    assert_eq!(test.call("POST", "/api/threads", Some(create)).await.0, 201);
    let asked = test.get("/api/threads/t").await["nodes"][0]["id"].clone();
    for number in 0..99 {
        let answer = json!({"role": "assistant", "content": format!("{number}")});
        let body = json!({"messages": [answer], "parentId": asked});
        assert_eq!(test.call("POST", "/api/threads/t/messages", Some(body)).await.0, 201);
    }
    let body = json!({"agentId": "a1", "threadId": "t", "parentId": asked});
    let turn = whole_run(&test.app, &body).await;
    assert_eq!(turn.last()["type"], "RUN_FINISHED");
    let request_count = test.vendor.received_bodies("m").len();
    let regenerate = json!({"agentId": "a1", "threadId": "t", "trigger": "regenerate-message"});
    for body in [body, regenerate] {
        expect_problem(test.app.chat(&body).await, 409, "THREAD_FULL").await;
    }
    assert_eq!(test.vendor.received_bodies("m").len(), request_count, "no backend is asked");
    // The conversation goes on.
    test.say("t", "Thank you").await;
    assert_eq!(test.get("/api/threads/t?messages=none").await["messageCount"], 103);
}
