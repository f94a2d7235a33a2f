//! Decisions about calls, agents or threads that have changed or are gone.

use super::*;

#[tokio::test]
async fn an_approver_who_has_moved_to_another_company_decides_nothing() {
    for (by, approver) in [("user", "u1"), ("owner", "u1"), ("company", "u2")] {
        let test = start(json!({ "by": by })).await;
        test.vendor.on_all_with(ask_for_todo);
        let interrupt = test.ask("t").await;
        let path = format!("/api/approvals/{}", interrupt["id"].as_str().expect("an id"));
        let (before, after) = (session_token(approver, "c1"), session_token(approver, "c2"));
        assert_eq!(call_as(&test.app, &before, "GET", &path, None).await.0, 200, "{by}");
        assert_eq!(call_as(&test.app, &after, "GET", &path, None).await.0, 404, "{by}");
        for decision in ["approve", "deny", "cancel"] {
            let body = Some(json!({ "decision": decision }));
            assert_eq!(call_as(&test.app, &after, "POST", &path, body).await.0, 404, "{by} {decision}");
        }
        let list = call_as(&test.app, &after, "GET", "/api/approvals", None).await.1;
        assert_eq!(list["approvals"], json!([]), "{by}");
        let resume = json!({"agentId": "a1", "threadId": "t", "messages": [],
            "resume": resume_entry(&interrupt, json!(true))});
        let response = test.app.chat_as(&after, "", &resume).await;
        assert!(response.status().is_client_error(), "the other company has no such thread");
        assert_eq!(test.get(&path).await["state"], "open", "{by}");
        assert_eq!(test.titles().await, ["Water the basil"], "{by}");
        // The session of the company of the run still decides.
        let deny = Some(json!({"decision": "deny"}));
        assert_eq!(call_as(&test.app, &before, "POST", &path, deny).await.0, 200, "{by}");
    }
}

#[tokio::test]
async fn a_former_owner_decides_nothing() {
    let test = start(json!({"by": "owner"})).await;
    test.vendor.on_all_with(ask_for_todo);
    let interrupt = test.ask("t").await;
    let mut agent = agent_of(&everyone(&test.vendor.base_url()));
    agent["ownerId"] = json!("u2");
    server::store_agent(&test.stores, agent).await;
    assert_eq!(test.decide("u1", &interrupt, json!({"decision": "approve"})).await.0, 403);
    let resume = json!({"agentId": "a1", "threadId": "t", "messages": [],
        "resume": resume_entry(&interrupt, json!(true))});
    expect_problem(test.app.chat(&resume).await, 409, "INTERRUPTS_OPEN").await;
    assert_eq!(test.titles().await, ["Water the basil"]);
    assert_eq!(test.decide("u2", &interrupt, json!({"decision": "approve"})).await.0, 200);
    poll_until(async || test.get("/api/threads/t").await, |thread| thread["status"] == "idle").await;
    assert_eq!(test.titles().await.len(), 2, "the owner of now decides");
}

#[tokio::test]
async fn a_call_whose_message_is_erased_is_not_made() {
    // The user's message, and the one with the call.
    for place in [0, 1] {
        let test = start(json!({"by": "company"})).await;
        test.vendor.on_all_with(ask_for_todo);
        let interrupt = test.ask("t").await;
        let thread = test.get("/api/threads/t").await;
        let node = thread["nodes"][place]["id"].as_str().expect("an id");
        let path = format!("/api/threads/t/messages/{node}");
        assert_eq!(test.call("DELETE", &path, None).await.0, 204);
        assert_eq!(test.decide("u2", &interrupt, json!({"decision": "approve"})).await.0, 409);
        let resume = resume_entry(&interrupt, json!(true));
        let body = json!({"agentId": "a1", "threadId": "t", "messages": [], "resume": resume});
        assert!(test.app.chat(&body).await.status().is_client_error());
        let run = test.get(&format!("/api/runs/{}", thread["openRunId"].as_str().expect("an id"))).await;
        assert_eq!(
            (&run["state"], &run["approvals"][0]["state"]),
            (&json!("cancelled"), &json!("cancelled"))
        );
        assert_eq!(test.get("/api/threads/t").await["status"], "idle");
        assert_eq!(test.titles().await, ["Water the basil"]);
        assert_eq!(test.vendor.received().len(), 1);
    }
}

#[tokio::test]
async fn an_expired_question_is_withdrawn_and_not_approved() {
    let test = start_with(json!({"ttlMs": 1}), &[LONG_LEASE]).await;
    test.vendor.on_all_with(ask_for_todo);
    let approval = ask(&test.app, "t").await;
    let path = format!("/api/approvals/{approval}");
    poll_until(async || test.get(&path).await, |approval| approval["state"] == "expired").await;
    let body = |entry: Value| {
        json!({"agentId": "a1", "threadId": "t", "todoListId": "l1", "messages": [],
        "resume": [entry]})
    };
    for payload in [json!(true), json!(false), json!({"approved": true, "editedArgs": {"title": "Late"}})] {
        let late = body(json!({"interruptId": approval, "status": "resolved", "payload": payload}));
        expect_problem(test.app.chat(&late).await, 410, "INTERRUPT_EXPIRED").await;
    }
    assert_eq!(test.vendor.received().len(), 1);
    let withdrawn = body(json!({"interruptId": approval, "status": "cancelled"}));
    let response = test.app.chat(&withdrawn).await;
    assert_eq!(response.status(), 200);
    let events = parse_events(&response.text().await.expect("a whole body"));
    let result = events.iter().find(|event| event["type"] == "TOOL_CALL_RESULT").expect("a result");
    assert!(result["content"].as_str().expect("text").contains("withdrawn"), "{result}");
    assert_eq!(test.titles().await.len(), 1);
    assert_eq!(test.get("/api/threads/t").await["status"], "idle");
}

#[tokio::test]
async fn a_question_keeps_the_rule_with_which_it_was_asked() {
    for (name, change) in [
        ("no rule", json!({"approvals": []})),
        (
            "another rule",
            json!({"approvals": [{"tools": ["createTodo"], "by": "company", "editable": false}]}),
        ),
    ] {
        let test = start(json!({"by": "user"})).await;
        test.vendor.on_all_with(ask_for_todo);
        let interrupt = test.ask("t").await;
        let mut agent = agent_of(&everyone(&test.vendor.base_url()));
        agent["content"]
            .as_object_mut()
            .expect("an object")
            .extend(change.as_object().expect("an object").clone());
        server::store_agent(&test.stores, agent).await;
        let body = json!({"agentId": "a1", "threadId": "t", "message": "Hello?"});
        expect_problem(test.app.chat(&body).await, 409, "INTERRUPTS_OPEN").await;
        assert_eq!(test.decide("u2", &interrupt, json!({"decision": "approve"})).await.0, 404, "{name}");
        assert_eq!(test.titles().await.len(), 1, "{name}: nothing was done");
        let edited = json!({"approved": true, "editedArgs": {"title": "Oat milk"}});
        test.resume("t", &interrupt, edited).await;
        assert_eq!(test.titles().await, ["Water the basil", "Oat milk"], "{name}");
    }
}

#[tokio::test]
async fn an_approved_call_of_a_tool_that_the_agent_has_lost_is_not_made() {
    for payload in [json!(true), json!({"approved": true, "editedArgs": {"title": "Oat milk"}})] {
        let test = start(json!({})).await;
        test.vendor.on_all_with(ask_for_todo);
        let interrupt = test.ask("t").await;
        let mut agent = agent_of(&everyone(&test.vendor.base_url()));
        agent["content"]["mcpPreset"] = json!(["readTodos"]);
        server::store_agent(&test.stores, agent).await;
        let turn = test.resume("t", &interrupt, payload).await;
        let results = results(&turn);
        assert_eq!(results.len(), 1, "the model is told: {:?}", turn.events);
        assert_eq!(turn.last()["type"], "RUN_FINISHED");
        assert_eq!(test.titles().await, ["Water the basil"], "{results:?}");
        assert_eq!(test.get("/api/threads/t").await["status"], "idle");
    }
}

#[tokio::test]
async fn a_waiting_run_whose_agent_is_gone_can_be_withdrawn() {
    let test = start_with(json!({}), &[LONG_LEASE]).await;
    test.vendor.on_all_with(ask_for_todo);
    let interrupt = test.ask("t").await;
    let run = test.get("/api/threads/t").await["openRunId"].as_str().expect("an id").to_owned();
    assert_eq!(test.call("DELETE", "/api/agents/a1", None).await.0, 204);
    let resume = json!({"agentId": "a1", "threadId": "t", "messages": [],
        "resume": resume_entry(&interrupt, json!(true))});
    let message = json!({"agentId": "a1", "threadId": "t", "message": "Hello?", "onBusy": "interrupt"});
    expect_problem(test.app.chat(&resume).await, 404, "NOT_FOUND").await;
    expect_problem(test.app.chat(&message).await, 404, "NOT_FOUND").await;
    let list = test.get("/api/approvals?state=open").await;
    assert_eq!(list["approvals"][0]["id"], interrupt["id"]);
    let (status, cancelled) = test.call("POST", &format!("/api/runs/{run}/cancel"), None).await;
    assert_eq!((status, &cancelled["state"]), (200, &json!("cancelled")));
    assert_eq!(test.get("/api/threads/t").await["status"], "idle");
    assert_eq!(test.titles().await.len(), 1);
    assert_eq!(test.vendor.received().len(), 1);
}

#[tokio::test]
async fn a_decision_for_a_deleted_thread_is_of_no_effect() {
    let test = start(json!({"by": "company"})).await;
    test.vendor.on_all_with(ask_for_todo);
    let interrupt = test.ask("t").await;
    assert_eq!(test.call("DELETE", "/api/threads/t", None).await.0, 204);
    for user in ["u1", "u2"] {
        assert_eq!(test.decide(user, &interrupt, json!({"decision": "approve"})).await.0, 404, "{user}");
    }
    let resume = json!({"agentId": "a1", "threadId": "t", "messages": [],
        "resume": resume_entry(&interrupt, json!(true))});
    assert_eq!(test.app.chat(&resume).await.status(), 400, "there is no message to answer");
    // A thread of the same id has none of its questions.
    let second = test.ask("t").await;
    assert_ne!(second["id"], interrupt["id"]);
    let resume = json!({"agentId": "a1", "threadId": "t", "messages": [],
        "resume": resume_entry(&interrupt, json!(true))});
    expect_problem(test.app.chat(&resume).await, 409, "INTERRUPTS_OPEN").await;
    assert_eq!(test.titles().await.len(), 1);
}
