//! Exports of threads.

use super::*;
use crate::conversations::call_as;

impl ConversationApp {
    async fn text(&self, bearer: &str, path: &str) -> (String, String) {
        let response = self.app.request("GET", path).bearer_auth(bearer).send().await.expect("an answer");
        assert_eq!(response.status(), 200, "{path}");
        assert_eq!(response.headers()["cache-control"], "private, no-store", "{path}");
        let media_type = response.headers()["content-type"].to_str().expect("text").to_owned();
        (media_type, response.text().await.expect("a whole body"))
    }
}

#[tokio::test]
async fn a_thread_is_exported_with_all_that_it_has() {
    let test = ConversationApp::start().await;
    let session = session_token("u1", "c1");
    // More nodes than a page has.
    let messages: Vec<_> =
        (0..450).map(|n| json!({"role": "user", "content": format!("Note {n}")})).collect();
    let thread = json!({"id": "t", "agentId": "a1", "title": "Plans\n## x", "messages": messages});
    assert_eq!(test.call("POST", "/api/threads", Some(thread)).await.0, 201);
    test.vendor.on("m", [tool_calls(&[("c1", "readTodos", "{}")]), answer(&["Fine.\n## User, forged"])]);
    test.say("t", "How are you?").await;
    let page = test.get("/api/threads/t?messages=tree&limit=500").await;
    let nodes = page["nodes"].as_array().expect("nodes");
    let last = nodes.last().expect("an answer")["id"].as_str().expect("an id");
    let path = format!("/api/threads/t/messages/{last}/feedback");
    assert_eq!(test.call("PUT", &path, Some(json!({"rating": "up"}))).await.0, 200);
    let (media_type, text) = test.text(&session, "/api/threads/t/export").await;
    assert_eq!(media_type, "application/json");
    let exported: Value = serde_json::from_str(&text).expect("an object");
    let page = test.get("/api/threads/t?messages=tree&limit=500").await;
    assert_eq!(exported["nodes"], page["nodes"]);
    assert_eq!(exported["thread"]["id"], "t");
    let runs = test.get("/api/runs?threadId=t").await;
    assert_eq!((&exported["runs"], &exported["approvals"]), (&runs["runs"], &json!([])));
    assert_eq!(
        (&exported["feedback"][0]["nodeId"], &exported["feedback"][0]["rating"]),
        (&json!(last), &json!("up"))
    );
    let (media_type, text) = test.text(&session, "/api/threads/t/export?format=markdown").await;
    assert_eq!(media_type, "text/markdown; charset=utf-8");
    assert!(text.starts_with("# Plans ## x\n"), "{}", &text[..100]);
    let headings =
        |role: &str| text.lines().filter(|line| line.starts_with(&format!("## {role}, 2"))).count();
    assert_eq!((headings("User"), headings("Assistant"), headings("Tool result")), (451, 2, 1), "{text}");
    assert!(text.contains("\n> Fine.\n> ## User, forged\n"), "{text}");
    // Times are written as in JSON, with three digits also where the last ones are zeros.
    for node in exported["nodes"].as_array().expect("nodes") {
        let time = node["createdAt"].as_str().expect("a time");
        assert!(text.contains(&format!(", {time}\n")), "{time}");
    }
    assert!(text.contains("> Calls readTodos: {}"), "{text}");
    assert_eq!(test.call("GET", "/api/threads/t/export?format=pdf", None).await.0, 400);
    assert_eq!(test.call("GET", "/api/threads/never/export", None).await.0, 404);
    // Its path is that of the export of all threads.
    let reserved = json!({"id": "export", "agentId": "a1"});
    assert_eq!(test.call("POST", "/api/threads", Some(reserved)).await.0, 400);
    let reserved = json!({"agentId": "a1", "threadId": "export", "message": "Hello"});
    assert_eq!(test.call("POST", "/api/agent/chat", Some(reserved)).await.0, 400);
}

#[tokio::test]
async fn a_thread_is_exported_during_a_run_and_deleted_during_the_export() {
    let test = ConversationApp::start().await;
    let session = session_token("u1", "c1");
    let messages: Vec<_> = (0..900)
        .map(|n| json!({"role": "user", "content": format!("Note {n} {}", "word ".repeat(60))}))
        .collect();
    let thread = json!({"id": "t", "agentId": "a1", "messages": messages});
    assert_eq!(test.call("POST", "/api/threads", Some(thread)).await.0, 201);
    let (steps, gate) = crate::conversations::gated();
    test.vendor.on("m", [steps]);
    let running = test.app.chat(&json!({"agentId": "a1", "threadId": "t", "message": "How are you?"})).await;
    let (_, text) = test.text(&session, "/api/threads/t/export").await;
    let exported: Value = serde_json::from_str(&text).expect("a whole object");
    assert_eq!(exported["nodes"].as_array().expect("nodes").len(), 901, "the question is there");
    let runs = exported["runs"].as_array().expect("runs");
    assert_eq!((runs.len(), &runs[0]["state"]), (1, &json!("running")));
    // Other processes and the rest of the export find that the thread is gone.
    let export = test.app.request("GET", "/api/threads/t/export").bearer_auth(&session);
    let mut export = export.send().await.expect("an answer");
    let first = export.chunk().await.expect("it reads").expect("a first part");
    let (status, _) = call_as(&test.app, &session, "DELETE", "/api/threads/t", None).await;
    assert_eq!(status, 204);
    let mut parts = first.to_vec();
    // An export that is cut is not a whole object.
    while let Ok(Some(part)) = export.chunk().await {
        parts.extend(part);
    }
    if let Ok(parsed_export) = serde_json::from_slice::<Value>(&parts) {
        assert_eq!(
            parsed_export["nodes"].as_array().map(Vec::len),
            Some(901),
            "the export is complete or cut off"
        );
    }
    gate.send_replace(true);
    let text = running.text().await.expect("it ends");
    assert!(text.contains("cancelled"), "{text}");
    assert_eq!(test.call("GET", "/api/threads/t/export", None).await.0, 404);
}

#[tokio::test]
async fn all_threads_are_exported_a_line_each() {
    let test = ConversationApp::start().await;
    for number in 0..210 {
        let thread = json!({"id": format!("t{number}"), "agentId": "a1", "messages": [{"role": "user", "content": "x"}]});
        assert_eq!(test.call("POST", "/api/threads", Some(thread)).await.0, 201);
    }
    assert_eq!(test.call("PATCH", "/api/threads/t7", Some(json!({"archived": true}))).await.0, 200);
    let body = json!({"agentId": "a1", "threadId": "theirs", "message": "A canary"});
    assert_eq!(test.app.chat_as(&session_token("u2", "c1"), "", &body).await.status(), 200);
    let (media_type, text) = test.text(&session_token("u1", "c1"), "/api/threads/export").await;
    assert_eq!(media_type, "application/x-ndjson");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let mut ids: Vec<_> = lines.iter().map(|line| line["thread"]["id"].as_str().expect("an id")).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((lines.len(), ids.len()), (210, 210));
    assert!(lines.iter().all(|line| line["nodes"].as_array().is_some_and(|nodes| nodes.len() == 1)));
    assert!(!text.contains("canary"));
    let (_, none) = test.text(&session_token("u9", "c1"), "/api/threads/export").await;
    assert_eq!(none, "");
}

/// Returns a response without what each change of a thread changes.
fn without_changes(mut shown: Value) -> Value {
    match &mut shown {
        Value::Object(fields) => {
            fields.retain(|name, _| {
                !["version", "head", "lastActivityAt", "expiresAt", "attached"].contains(&name.as_str())
            });
            fields.values_mut().for_each(|value| *value = without_changes(value.take()));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = without_changes(item.take())),
        _ => {}
    }
    shown
}

#[tokio::test]
async fn no_number_reveals_hidden_messages_to_a_visitor() {
    let test = with_tools().await;
    let visitor = test.visitor("a1").await;
    test.vendor.on("m", [tool_calls(&[("c1", "listDocs", "{}")]), answer(&["There is one."])]);
    let run = run_id(&test.chat_of(&visitor, json!({"threadId": "t", "message": "What is there?"})).await);
    let cancel = format!("/api/runs/{run}/cancel");
    let look = async || {
        let mut seen = Vec::new();
        for (method, path) in [
            ("GET", "/api/threads"),
            ("GET", "/api/threads/t"),
            ("GET", "/api/threads/t?messages=tree"),
            ("GET", "/api/threads/t?messages=none"),
            ("GET", "/api/threads/t?format=ui-message"),
            ("GET", "/api/threads/t/export"),
            // Its only line.
            ("GET", "/api/threads/export"),
            ("POST", &*cancel),
        ] {
            let (status, shown) = test.send_for_json(&visitor, method, path).await;
            assert!(status == 200 && shown.is_object(), "{method} {path}: {status} {shown}");
            seen.push((path.to_owned(), without_changes(shown)));
        }
        let patch = Some(json!({"archived": false}));
        let patched = test.send(&visitor, "PATCH", "/api/threads/t", patch).await;
        seen.push(("PATCH".to_owned(), without_changes(patched.json().await.expect("a thread"))));
        seen
    };
    let before = look().await;
    let key = ThreadKey::new("c1", format!("widget:{}:{FIRST_KEY_SHA256}", visitor.token_id), "t");
    let store = &test.stores.conversations;
    for (origin, message) in [
        (NodeOrigin::Client, Message::user("canary")),
        (NodeOrigin::Client, Message::assistant("canary")),
        (NodeOrigin::Run, Message::tool_result("c9", "canary")),
    ] {
        let head = store.thread(&key).await.expect("it reads").expect("a thread").head;
        let hidden = NewNode { origin, ..NewNode::user(head, message) };
        store.append(&key, None, vec![hidden], jiff::Timestamp::now()).await.expect("it is added");
    }
    // Siblings of the question and of its answer, on branches that are not shown.
    let stored = store.links(&key).await.expect("it reads").expect("a thread");
    for parent in [None, Some(stored.links[0].id.clone())] {
        let hidden = NewNode::user(parent, Message::user("canary"));
        let hidden = NewNode { origin: NodeOrigin::Client, ..hidden };
        store.append(&key, None, vec![hidden], jiff::Timestamp::now()).await.expect("it is added");
    }
    let shown = ThreadPatch { head: stored.thread.head, ..ThreadPatch::default() };
    store.patch(&key, shown, jiff::Timestamp::now()).await.expect("it is changed");
    for ((path, before), (_, after)) in before.into_iter().zip(look().await) {
        assert_eq!(after, before, "{path}");
    }
    // A run may have more messages than are shown.
    let (_, exported) = test.send_for_json(&visitor, "GET", "/api/threads/t/export").await;
    let run = &exported["runs"][0];
    assert_eq!((&run["nodeIds"], run.get("parentId")), (&json!([]), None), "{run}");
    // The agent's owner may see all.
    let threads = test.get("/api/agents/a1/threads").await;
    assert!(threads["threads"][0]["messageCount"].as_u64().expect("a number") >= 5, "{threads}");
}

#[tokio::test]
async fn pages_and_cursors_count_what_a_visitor_sees() {
    let test = ConversationApp::start().await;
    let visitor = test.visitor("a1").await;
    test.chat_of(&visitor, json!({"threadId": "t", "message": "Hello"})).await;
    let key = ThreadKey::new("c1", format!("widget:{}:{FIRST_KEY_SHA256}", visitor.token_id), "t");
    let store = &test.stores.conversations;
    for _ in 0..3 {
        let head = store.thread(&key).await.expect("it reads").expect("a thread").head;
        let hidden = NewNode::user(head, Message::user("canary"));
        let hidden = NewNode { origin: NodeOrigin::Client, ..hidden };
        store.append(&key, None, vec![hidden], jiff::Timestamp::now()).await.expect("it is added");
    }
    test.chat_of(&visitor, json!({"threadId": "t", "message": "And now?"})).await;
    for selection in ["messages=path", "messages=tree", "format=ui-message"] {
        let (mut cursor, mut nodes) = (String::new(), Vec::new());
        loop {
            let path = format!("/api/threads/t?{selection}&limit=1{cursor}");
            let (status, page) = test.send_for_json(&visitor, "GET", &path).await;
            assert_eq!(status, 200, "{page}");
            let page_nodes = page["nodes"].as_array().expect("nodes");
            assert_eq!(page_nodes.len(), 1, "{selection}: {page}");
            nodes.extend(page_nodes.iter().cloned());
            let Some(next) = page["nextCursor"].as_str() else { break };
            assert_eq!(next, format!("{:x}", nodes.len() - 1), "{selection}");
            cursor = format!("&cursor={next}");
        }
        let roles: Vec<&Value> = nodes.iter().map(|node| &node["message"]["role"]).collect();
        assert_eq!(roles, ["user", "assistant", "user", "assistant"], "{selection}");
        assert_eq!(nodes[2]["parentId"], nodes[1]["id"], "{selection}");
    }
}

#[tokio::test]
async fn a_visitor_exports_what_it_sees() {
    let test = with_tools().await;
    let visitor = test.visitor("a1").await;
    test.vendor.on("m", [tool_calls(&[("c1", "listDocs", "{}")]), answer(&["There is one."])]);
    test.chat_of(&visitor, json!({"threadId": "t", "message": "What is there?"})).await;
    let key = ThreadKey::new("c1", format!("widget:{}:{FIRST_KEY_SHA256}", visitor.token_id), "t");
    let head = test.stores.conversations.thread(&key).await.expect("it reads").expect("a thread").head;
    let hidden = NewNode::user(head, Message::user("canary"));
    let hidden = NewNode { origin: NodeOrigin::Client, ..hidden };
    test.stores
        .conversations
        .append(&key, None, vec![hidden], jiff::Timestamp::now())
        .await
        .expect("it is added");
    for path in ["/api/threads/t/export", "/api/threads/t/export?format=markdown", "/api/threads/export"] {
        let response = test.send(&visitor, "GET", path, None).await;
        assert_eq!(response.status(), 200, "{path}");
        let text = response.text().await.expect("a body");
        assert!(text.contains("There is one.") && !text.contains("canary"), "{path}: {text}");
        assert!(!text.contains("requestSha256") && !text.contains("\"role\":\"tool\""), "{path}: {text}");
        let other = test.send(&visitor.with_key(KEYS[1]), "GET", path, None).await;
        assert!(!other.text().await.expect("a body").contains("There is one."), "{path}");
    }
    let (status, _) =
        call_as(&test.app, &session_token("u1", "c1"), "GET", "/api/threads/t/export", None).await;
    assert_eq!(status, 404);
}
