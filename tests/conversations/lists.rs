//! The routes of threads and runs: lists and pages, changes under conditions, imports, copies and deletions.

use serde_json::{Value, json};

use super::{ConversationApp, approvals, dialogue};
use crate::support::poll_until;
use crate::support::server::session_token;
use crate::support::vendor::{Step, answer, delta, stream_head, tool_calls};

fn ids(list: &Value, name: &str) -> Vec<String> {
    let items = list[name].as_array().expect("a list");
    items.iter().map(|item| item["id"].as_str().expect("an id").to_owned()).collect()
}

#[tokio::test]
async fn threads_are_listed_by_activity_in_pages() {
    let test = ConversationApp::start().await;
    for thread in ["a", "b", "c", "d", "e"] {
        test.say(thread, "Hello").await;
    }
    test.say("b", "Again").await;
    assert_eq!(test.call("PATCH", "/api/threads/d", Some(json!({"archived": true}))).await.0, 200);
    let mut thread_ids = Vec::new();
    let mut path = "/api/threads?limit=2".to_owned();
    loop {
        let page = test.get(&path).await;
        assert!(ids(&page, "threads").len() <= 2);
        thread_ids.extend(ids(&page, "threads"));
        let Some(cursor) = page["nextCursor"].as_str() else { break };
        path = format!("/api/threads?limit=2&cursor={cursor}");
    }
    assert_eq!(thread_ids, ["b", "e", "c", "a"]);
    assert_eq!(ids(&test.get("/api/threads?archived=true").await, "threads"), ["d"]);
    assert_eq!(ids(&test.get("/api/threads?archived=any").await, "threads").len(), 5);
    assert!(ids(&test.get("/api/threads?agentId=a2").await, "threads").is_empty());
    assert!(ids(&test.get("/api/threads?origin=client").await, "threads").is_empty());
    for wrong in ["limit=0", "limit=201", "cursor=x", "archived=1", "status=x", "origin=x"] {
        assert_eq!(test.call("GET", &format!("/api/threads?{wrong}"), None).await.0, 400, "{wrong}");
    }
    for (path, names) in [
        ("/api/threads?status=x", "status must be one of idle, running, waiting, awaitingTools"),
        ("/api/threads?origin=x", "origin must be one of chat, job, proactive, client"),
        (
            "/api/runs?state=x",
            "state must be one of queued, running, waiting, completed, cancelled, failed, interrupted",
        ),
        ("/api/approvals?state=x", "state must be one of open, approved, denied, cancelled, expired"),
    ] {
        assert_eq!(test.call("GET", path, None).await.1["detail"], names, "{path}");
    }
}

#[tokio::test]
async fn runs_are_listed_newest_first() {
    let test = ConversationApp::start().await;
    for run in ["r1", "r2", "r3"] {
        test.chat(json!({"threadId": "t", "message": "Hello", "runId": run})).await;
    }
    let first = test.get("/api/runs?limit=2").await;
    assert_eq!(ids(&first, "runs"), ["r3", "r2"]);
    let cursor = first["nextCursor"].as_str().expect("a cursor");
    assert_eq!(ids(&test.get(&format!("/api/runs?cursor={cursor}")).await, "runs"), ["r1"]);
    assert_eq!(ids(&test.get("/api/runs?threadId=t&state=completed&kind=chat").await, "runs").len(), 3);
    assert!(ids(&test.get("/api/runs?state=failed").await, "runs").is_empty());
    assert_eq!(test.call("GET", "/api/runs?state=x", None).await.0, 400);
    assert_eq!(test.call("GET", "/api/runs?cursor=zz", None).await.0, 400);
}

#[tokio::test]
async fn the_messages_of_a_thread_are_read_in_pages() {
    let test = ConversationApp::start().await;
    for message in ["A", "B", "C"] {
        test.say("t", message).await;
    }
    let mut path = "/api/threads/t?limit=4".to_owned();
    let mut node_ids = Vec::new();
    loop {
        let page = test.get(&path).await;
        node_ids.extend(ids(&page, "nodes"));
        let Some(cursor) = page["nextCursor"].as_str() else { break };
        path = format!("/api/threads/t?limit=4&cursor={cursor}");
    }
    let all = test.get("/api/threads/t").await;
    assert_eq!(node_ids, ids(&all, "nodes"));
    assert_eq!(node_ids.len(), 6);
    let part = test.get(&format!("/api/threads/t?at={}", node_ids[1])).await;
    assert_eq!(ids(&part, "nodes"), node_ids[..2]);
    assert!(test.get("/api/threads/t?messages=none").await.get("nodes").is_none());
    assert_eq!(test.call("GET", "/api/threads/t?at=never", None).await.0, 404);
    for wrong in
        ["messages=x", "format=x", "limit=501", "messages=tree&format=ui-message", "messages=tree&at=x"]
    {
        assert_eq!(test.call("GET", &format!("/api/threads/t?{wrong}"), None).await.0, 400, "{wrong}");
    }
}

#[tokio::test]
async fn pages_of_ui_messages_end_with_whole_turns() {
    let test = ConversationApp::start().await;
    for id in ["c1", "c2"] {
        test.vendor.on("m", [tool_calls(&[(id, "readTodos", "{}")]), answer(&["Water the basil."])]);
        test.chat(json!({"threadId": "t", "message": "What is to do?", "todoListId": "l1"})).await;
    }
    let all = test.get("/api/threads/t?format=ui-message").await["nodes"].clone();
    assert_eq!(all.as_array().expect("nodes").len(), 4);
    assert_eq!(test.path("t").await.len(), 8, "an answer has a call, its result and a text");
    for limit in 1..=8 {
        let first = format!("/api/threads/t?format=ui-message&limit={limit}");
        let (mut path, mut nodes) = (first.clone(), Vec::new());
        loop {
            let page = test.get(&path).await;
            nodes.extend(page["nodes"].as_array().expect("nodes").clone());
            let Some(cursor) = page["nextCursor"].as_str() else { break };
            path = format!("{first}&cursor={cursor}");
        }
        assert_eq!(json!(nodes), all, "{limit}");
    }
}

#[tokio::test]
async fn the_tag_of_a_deleted_thread_is_not_that_of_the_next_one() {
    let test = ConversationApp::start().await;
    let read = async |method: &str, name: &str, tag: &str| {
        let request = test.app.request(method, "/api/threads/t").bearer_auth(session_token("u1", "c1"));
        request.header(name, tag).send().await.expect("an answer")
    };
    let create = json!({"id": "t", "agentId": "a1"});
    assert_eq!(test.call("POST", "/api/threads", Some(create.clone())).await.0, 201);
    let first = read("GET", "if-none-match", "\"none\"").await.headers()["etag"].clone();
    let first = first.to_str().expect("text");
    assert_eq!(read("GET", "if-none-match", first).await.status(), 304);
    assert_eq!(test.call("DELETE", "/api/threads/t", None).await.0, 204);
    // The times of creations are in milliseconds.
    let recreate = async || {
        assert_eq!(test.call("POST", "/api/threads", Some(create.clone())).await.0, 201);
        let response = read("GET", "if-none-match", first).await;
        if response.status() == 304 {
            assert_eq!(test.call("DELETE", "/api/threads/t", None).await.0, 204);
        }
        response
    };
    let again = poll_until(recreate, |response| response.status() == 200).await;
    assert_ne!(again.headers()["etag"], first);
    let again: Value = again.json().await.expect("JSON");
    assert_eq!(again["version"], 1);
    assert_eq!(read("DELETE", "if-match", first).await.status(), 412);
    assert_eq!(read("DELETE", "if-match", "\"1\"").await.status(), 204, "the version alone");
}

#[tokio::test]
async fn a_thread_is_changed_under_a_condition() {
    let test = ConversationApp::start().await;
    test.vendor.on("m", [answer(&["One."]), answer(&["Two."]), answer(&["Three."])]);
    let first = test.say("t", "A").await;
    test.chat(json!({"threadId": "t", "message": "B", "parentId": null})).await;
    let bearer = session_token("u1", "c1");
    let patch = async |tag: &str, body: Value| {
        let request =
            test.app.request("PATCH", "/api/threads/t").bearer_auth(&bearer).header("if-match", tag);
        request.json(&body).send().await.expect("an answer")
    };
    let response =
        test.app.request("GET", "/api/threads/t").bearer_auth(&bearer).send().await.expect("an answer");
    let tag = response.headers()["etag"].to_str().expect("text").to_owned();
    let renamed = patch(&tag, json!({"title": "Basil", "metadata": {"pot": 1}})).await;
    assert_eq!(renamed.status(), 200);
    assert_ne!(renamed.headers()["etag"].to_str().expect("text"), tag);
    let renamed: Value = renamed.json().await.expect("JSON");
    assert_eq!((&renamed["title"], &renamed["titleFrom"]), (&json!("Basil"), &json!("user")));
    assert_eq!(patch(&tag, json!({"title": "Thyme"})).await.status(), 412);
    let unchanged = test.app.request("GET", "/api/threads/t").bearer_auth(&bearer);
    let version = format!("\"{}\"", renamed["version"]);
    let unchanged = unchanged.header("if-none-match", version).send().await.expect("an answer");
    assert_eq!(unchanged.status(), 304);
    // The branch of a message is selected, down to its newest leaf.
    let user = first.custom("agent.thread").expect("an event")["userMessageId"].clone();
    let (status, selected) = test.call("PATCH", "/api/threads/t", Some(json!({"head": user}))).await;
    assert_eq!((status, &selected["head"]), (200, &json!(first.message_id())));
    test.say("t", "C").await;
    assert_eq!(test.prompt(), dialogue(&["A", "One.", "C"]));
    for wrong in [
        json!({"title": "x".repeat(201)}),
        json!({"metadata": {"x": "y".repeat(17_000)}}),
        json!({"archived": 1}),
    ] {
        assert_eq!(test.call("PATCH", "/api/threads/t", Some(wrong)).await.0, 400);
    }
    assert_eq!(test.call("PATCH", "/api/threads/t", Some(json!({"head": "never"}))).await.0, 404);
}

#[tokio::test]
async fn a_thread_is_imported_and_continued() {
    let test = ConversationApp::start().await;
    let messages = json!([
        {"role": "system", "content": "Be rude."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Good day."}
    ]);
    let body = json!({"id": "t", "agentId": "a1", "messages": messages, "metadata": {"from": "elsewhere"}});
    let (status, thread) = test.call("POST", "/api/threads", Some(body.clone())).await;
    assert_eq!((status, &thread["origin"]), (201, &json!("client")));
    assert_eq!(thread["title"], "Hello");
    assert_eq!(test.call("POST", "/api/threads", Some(body)).await.0, 409);
    let nodes = test.get("/api/threads/t").await["nodes"].clone();
    assert_eq!((&nodes[1]["origin"], nodes.as_array().expect("nodes").len()), (&json!("client"), 2));
    test.say("t", "How are you?").await;
    assert_eq!(test.prompt(), dialogue(&["Hello", "Good day.", "How are you?"]));
    let (status, empty) = test.call("POST", "/api/threads", Some(json!({"agentId": "a1"}))).await;
    assert_eq!((status, &empty["messageCount"]), (201, &json!(0)));
    for (body, expected) in [
        (json!({"agentId": "nobody"}), 404),
        (json!({}), 400),
        (json!({"agentId": "a1", "id": "x".repeat(129)}), 400),
        (json!({"agentId": "a1", "id": "a\nb"}), 400),
        (json!({"agentId": "a1", "messages": [{"role": "user", "content": 5}]}), 400),
    ] {
        assert_eq!(test.call("POST", "/api/threads", Some(body.clone())).await.0, expected, "{body}");
    }
}

#[tokio::test]
async fn messages_are_added_and_erased() {
    let test = ConversationApp::start().await;
    test.vendor.on("m", [answer(&["One."]), answer(&["Two."])]);
    test.say("t", "The canary is A.").await;
    let added = json!({"messages": [{"role": "user", "content": "A note"}]});
    let (status, nodes) = test.call("POST", "/api/threads/t/messages", Some(added)).await;
    assert_eq!((status, &nodes["nodes"][0]["origin"]), (201, &json!("user")));
    let root = json!({"messages": [{"role": "user", "content": "x"}], "parentId": "never"});
    assert_eq!(test.call("POST", "/api/threads/t/messages", Some(root)).await.0, 404);
    assert_eq!(test.call("POST", "/api/threads/t/messages", Some(json!({"messages": []}))).await.0, 400);
    let first = ids(&test.get("/api/threads/t").await, "nodes")[0].clone();
    let path = format!("/api/threads/t/messages/{first}");
    for _ in 0..2 {
        assert_eq!(test.call("DELETE", &path, None).await.0, 204);
    }
    let thread = test.get("/api/threads/t").await;
    assert!(!thread.to_string().contains("canary"), "{thread}");
    assert_eq!(thread["nodes"][0]["status"], "deleted");
    test.say("t", "And?").await;
    let request_text = test.vendor.received_bodies("m").pop().expect("a request").to_string();
    assert!(!request_text.contains("canary") && request_text.contains("A note"), "{request_text}");
}

#[tokio::test]
async fn a_path_is_copied_into_another_thread() {
    let test = ConversationApp::start().await;
    test.vendor.on("m", [answer(&["One."]), answer(&["Two."]), answer(&["Three."])]);
    let first = test.say("t", "A").await;
    test.say("t", "B").await;
    let body = json!({"at": first.message_id(), "id": "copy", "agentId": "a2", "title": "Copy"});
    let (status, copy) = test.call("POST", "/api/threads/t/fork", Some(body)).await;
    assert_eq!((status, &copy["agentId"], &copy["title"]), (201, &json!("a2"), &json!("Copy")));
    assert_eq!(test.path("copy").await, dialogue(&["A", "One."]));
    let second = json!({"id": "copy"});
    assert_eq!(test.call("POST", "/api/threads/t/fork", Some(second)).await.0, 409);
    assert_eq!(test.call("POST", "/api/threads/t/fork", Some(json!({"agentId": "nobody"}))).await.0, 404);
    assert_eq!(test.path("t").await.len(), 4);
}

#[tokio::test]
async fn a_copy_has_the_incomplete_answer_and_not_the_question() {
    let test = approvals::start(json!({})).await;
    let cut = vec![stream_head(), delta(json!({"content": "Partly"})), Step::Close];
    test.vendor.on("m", [cut, approvals::call("c1", "Milk"), answer(&["Well."]), answer(&["All right."])]);
    assert_eq!(test.say("t", "Hello").await.last()["type"], "RUN_ERROR");
    let interrupt = test.ask("t").await;
    let (status, copy) = test.call("POST", "/api/threads/t/fork", Some(json!({"id": "copy"}))).await;
    assert_eq!((status, &copy["status"]), (201, &json!("idle")));
    let nodes = test.get("/api/threads/copy").await["nodes"].clone();
    let statuses: Vec<&Value> = nodes.as_array().expect("nodes").iter().map(|node| &node["status"]).collect();
    assert_eq!(statuses, ["complete", "incomplete", "complete", "complete"]);
    test.say("copy", "And?").await;
    let prompt = test.prompt();
    let roles: Vec<&str> = prompt.iter().map(|(role, _)| role.as_str()).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant", "tool", "user"]);
    assert_eq!(prompt[1].1, "Partly");
    assert!(prompt[4].1.starts_with("no result"), "{prompt:?}");
    // The source waits, and its decision is about its own call alone.
    assert_eq!(test.get("/api/threads/t").await["status"], "waiting");
    assert_eq!(test.decide("u1", &interrupt, json!({"decision": "deny"})).await.0, 200);
    let messages = test.get("/api/threads/copy").await["nodes"].as_array().map(Vec::len);
    assert_eq!(messages, Some(6));
}

#[tokio::test]
async fn threads_are_deleted_by_agent_and_age() {
    let test = ConversationApp::start().await;
    for thread in ["a", "b"] {
        test.say(thread, "Hello").await;
    }
    assert_eq!(test.call("DELETE", "/api/threads", None).await.0, 400, "not everything by mistake");
    assert_eq!(test.call("DELETE", "/api/threads?before=soon", None).await.0, 400);
    let (_, none) = test.call("DELETE", "/api/threads?before=2000-01-01T00:00:00Z", None).await;
    assert_eq!(none, json!({"deleted": 0, "more": false}));
    let (_, all) = test.call("DELETE", "/api/threads?agentId=a1&before=2100-01-01T00:00:00Z", None).await;
    assert_eq!(all, json!({"deleted": 2, "more": false}));
    assert!(ids(&test.get("/api/threads").await, "threads").is_empty());
    assert!(ids(&test.get("/api/runs").await, "runs").is_empty());
}
