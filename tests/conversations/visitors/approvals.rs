//! Tool calls about which visitors decide.

use super::super::approvals::resume_entry;
use super::super::call_as;
use super::*;

/// A call of each tool in one round: the first waits for the visitor.
fn round() -> Vec<Step> {
    tool_calls(&[("c1", "listDocs", "{}"), ("c2", "searchDocs", r#"{"query":"hours"}"#)])
}

/// Starts an application whose visitors of `a1` decide about `listDocs`, with further members of the rule.
async fn start(rule: Value, settings: &[(&str, &str)]) -> ConversationApp {
    let vendor = Vendor::start().await;
    let mut all = everyone(&vendor.base_url());
    let mut approval = json!({"tools": ["listDocs"], "by": "visitor", "message": "Look?"});
    approval.as_object_mut().expect("an object").extend(rule.as_object().expect("an object").clone());
    let content = &mut all["agents"][0]["content"];
    content["mcpPreset"] = json!(["listDocs", "searchDocs"]);
    content["widgetTools"] = content["mcpPreset"].clone();
    content["approvals"] = json!([approval]);
    let stores = server::stores(&all).await;
    let app = server::app_with_stores(stores.clone(), settings).await;
    ConversationApp { vendor, app, stores }
}

impl ConversationApp {
    /// Sends a visitor's question, whose run waits for an approval. Returns the interrupt.
    async fn visitor_asks(&self, visitor: &Visitor) -> Value {
        let events = self.chat_of(visitor, json!({"threadId": "t", "message": "What is there?"})).await;
        let outcome = &events.last().expect("an end")["outcome"];
        assert_eq!(outcome["type"], "interrupt", "{events:?}");
        assert!(events.iter().all(|event| event["type"] != "TOOL_CALL_RESULT"), "{events:?}");
        outcome["interrupts"][0].clone()
    }

    async fn decide_as(&self, visitor: &Visitor, approval: &Value, body: Value) -> (u16, Value) {
        let path = format!("/api/approvals/{}", approval["id"].as_str().expect("an id"));
        let response = self.send(visitor, "POST", &path, Some(body)).await;
        (response.status().as_u16(), response.json().await.expect("JSON"))
    }

    /// Returns the results of tools in the latest request to the model, by call.
    fn sent_results(&self) -> Vec<(String, String)> {
        let request_body = self.vendor.received_bodies("m").pop().expect("a request");
        let messages = request_body["messages"].as_array().expect("messages").clone();
        let results = messages.iter().filter(|message| message["role"] == "tool");
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        results.map(|result| (text(&result["tool_call_id"]), text(&result["content"]))).collect()
    }
}

#[tokio::test]
async fn a_visitor_decides_in_the_chat_if_the_role_allows_it() {
    let test = start(json!({}), &[]).await;
    let visitor = test.visitor("a1").await;
    test.vendor.on("m", [round(), answer(&["There is one."]), answer(&["Yes."])]);
    let interrupt = test.visitor_asks(&visitor).await;
    assert_eq!(
        interrupt["metadata"]["agentd"],
        json!({"tool": "listDocs", "by": "visitor", "editable": false})
    );
    let (_, thread) = test.send_for_json(&visitor, "GET", "/api/threads/t").await;
    assert_eq!(thread["status"], "waiting");
    assert!(thread["nodes"].as_array().expect("nodes").iter().all(|node| node["message"]["role"] != "tool"));
    let (_, open) = test.send_for_json(&visitor, "GET", "/api/approvals?state=open").await;
    assert_eq!(open["approvals"].as_array().expect("a list").len(), 1, "{open}");
    let approval = &open["approvals"][0];
    assert_eq!((&approval["id"], &approval["tool"]), (&interrupt["id"], &json!("listDocs")));
    assert_eq!((&approval["message"], &approval["arguments"]), (&json!("Look?"), &json!({})));

    // The arguments are the model's.
    let edited = resume_entry(&interrupt, json!({"approved": true, "editedArgs": {}}));
    let body = json!({"threadId": "t", "messages": [], "resume": edited});
    let response = test.send(&visitor, "POST", "/api/agent/chat", Some(body)).await;
    expect_problem(response, 400, "INVALID_REQUEST").await;
    let body = json!({"threadId": "t", "messages": [], "resume": resume_entry(&interrupt, json!(true))});
    let events = test.chat_of(&visitor, body).await;
    assert_eq!(text_of(&events), "There is one.");
    assert!(events.iter().all(|event| event["type"] != "TOOL_CALL_RESULT" && event["type"] != "CUSTOM"));
    let results = test.sent_results();
    assert_eq!(results.iter().map(|(call, _)| &**call).collect::<Vec<_>>(), ["c1", "c2"]);
    for (call, content) in &results {
        assert!(!content.contains("no result") && !content.contains("not known"), "{call}: {content}");
    }
    let (_, all) = test.send_for_json(&visitor, "GET", "/api/approvals").await;
    let decided = &all["approvals"][0];
    assert_eq!((&decided["state"], &decided["executed"]), (&json!("approved"), &json!("done")));
    assert!(decided["decidedBy"].as_str().expect("a visitor").starts_with("widget:"), "{decided}");

    // The results are kept, so that the prompt is the previous one with later messages; the visitor does not see them.
    test.chat_of(&visitor, json!({"threadId": "t", "message": "Sure?"})).await;
    assert_eq!(test.sent_results(), results);
    let roles: Vec<String> = test.path_of(&visitor, "t").await.into_iter().map(|(role, _)| role).collect();
    assert_eq!(roles, ["user", "assistant", "assistant", "user", "assistant"]);
}

#[tokio::test]
async fn a_run_that_does_not_wait_keeps_no_results_of_a_visitor() {
    let test = start(json!({}), &[]).await;
    let visitor = test.visitor("a1").await;
    let search = tool_calls(&[("c2", "searchDocs", r#"{"query":"hours"}"#)]);
    test.vendor.on("m", [search, answer(&["Nothing."]), answer(&["Yes."])]);
    test.chat_of(&visitor, json!({"threadId": "t", "message": "What is there?"})).await;
    let made = test.sent_results();
    assert_eq!(made.len(), 1, "{made:?}");
    test.chat_of(&visitor, json!({"threadId": "t", "message": "Sure?"})).await;
    let stored = test.sent_results();
    assert!(stored != made && stored[0].1.starts_with("no result"), "{stored:?}");
}

#[tokio::test]
async fn a_visitor_decides_by_the_route_and_the_answer_is_a_visitor_s() {
    for (decision, expected) in [
        (json!({"decision": "approve"}), None),
        (json!({"decision": "deny", "reason": "rather not"}), Some("rather not")),
        (json!({"decision": "cancel"}), Some("withdrawn")),
    ] {
        let test = start(json!({}), &[]).await;
        let visitor = test.visitor("a1").await;
        // The tool of the second round is not the visitors', which it would be for a user.
        let hidden = tool_calls(&[("c3", "getDoc", r#"{"documentId":"d1"}"#)]);
        test.vendor.on("m", [round(), hidden, answer(&["Done."])]);
        let interrupt = test.visitor_asks(&visitor).await;
        let (status, approval) = test.decide_as(&visitor, &interrupt, decision.clone()).await;
        assert_eq!(status, 200, "{approval}");
        let read = async || test.send_for_json(&visitor, "GET", "/api/threads/t").await.1;
        let thread = poll_until(read, |thread| thread["status"] == "idle").await;
        let run = thread["nodes"].as_array().expect("nodes").last().expect("an answer")["runId"].clone();
        let path = format!("/api/runs/{}/events", run.as_str().expect("an id"));
        let log = test.send(&visitor, "GET", &path, None).await.text().await.expect("a body");
        let events = parse_run(&log);
        assert_eq!(text_of(&events), "Done.");
        assert!(events.iter().all(|event| event["type"] != "TOOL_CALL_RESULT" && event["type"] != "CUSTOM"));
        let results = test.sent_results();
        assert!(results.iter().any(|(call, _)| call == "c2"), "{results:?}");
        let (_, first) = results.iter().find(|(call, _)| call == "c1").expect("the decided call");
        match expected {
            Some(words) => assert!(first.contains(words), "{first}"),
            None => assert!(!first.contains("not made") && !first.contains("not known"), "{first}"),
        }
        let (_, third) = results.iter().find(|(call, _)| call == "c3").expect("the later call");
        assert!(third.contains("getDoc"), "{third}");
        // The same decision again changes nothing; a different decision is a conflict.
        assert_eq!(test.decide_as(&visitor, &interrupt, decision).await.0, 200);
        let other = if expected.is_none() { "deny" } else { "approve" };
        assert_eq!(test.decide_as(&visitor, &interrupt, json!({"decision": other})).await.0, 409);
    }
}

#[tokio::test]
async fn only_the_visitor_decides_about_a_visitor_s_call() {
    let test = start(json!({}), &[]).await;
    let visitor = test.visitor("a1").await;
    test.vendor.on("m", [round(), answer(&["Never."])]);
    let interrupt = test.visitor_asks(&visitor).await;
    let path = format!("/api/approvals/{}", interrupt["id"].as_str().expect("an id"));
    let approve = json!({"decision": "approve"});
    for other in [visitor.with_key(KEYS[1]), test.visitor("a1").await, test.visitor("a2").await] {
        assert_eq!(test.send_for_json(&other, "GET", &path).await.0, 404);
        assert_eq!(test.decide_as(&other, &interrupt, approve.clone()).await.0, 404);
        let (_, list) = test.send_for_json(&other, "GET", "/api/approvals").await;
        assert_eq!(list["approvals"], json!([]));
    }
    for (user, company) in [("u1", "c1"), ("u2", "c1"), ("u3", "c2")] {
        let session = session_token(user, company);
        assert_eq!(call_as(&test.app, &session, "GET", &path, None).await.0, 404, "{user}");
        assert_eq!(call_as(&test.app, &session, "POST", &path, Some(approve.clone())).await.0, 404, "{user}");
        let (_, list) = call_as(&test.app, &session, "GET", "/api/approvals", None).await;
        assert_eq!(list["approvals"], json!([]), "{user}");
    }
    for path in ["/api/approvals", &path] {
        let response = test.send(&visitor.without_key(), "GET", path, None).await;
        expect_problem(response, 403, "FORBIDDEN").await;
    }
    // A company's calls are not the visitors' either.
    let test = super::super::approvals::start(json!({"by": "company"})).await;
    test.vendor.on("m", [tool_calls(&[("c1", "createTodo", r#"{"title":"Milk"}"#)])]);
    let interrupt = test.ask("t").await;
    let visitor = test.visitor("a1").await;
    assert_eq!(test.decide_as(&visitor, &interrupt, approve).await.0, 404);
    let (_, list) = test.send_for_json(&visitor, "GET", "/api/approvals").await;
    assert_eq!(list["approvals"], json!([]));
    assert_eq!(test.vendor.received_bodies("m").len(), 1, "nothing was sent");
}

#[tokio::test]
async fn users_decide_about_their_own_calls_by_the_same_rule() {
    let test = start(json!({}), &[]).await;
    test.vendor.on("m", [tool_calls(&[("c1", "listDocs", "{}")]), answer(&["There is one."])]);
    let interrupt = test.ask("t").await;
    let turn = test.resume("t", &interrupt, json!(true)).await;
    assert_eq!(turn.last()["outcome"], Value::Null);
    assert_eq!(text_of(&turn.events), "There is one.");
}

#[tokio::test]
async fn a_visitor_without_a_key_is_not_asked() {
    let test = start(json!({}), &[]).await;
    let visitor = test.visitor("a1").await.without_key();
    test.vendor.on("m", [tool_calls(&[("c1", "listDocs", "{}")]), answer(&["I may not look."])]);
    let events = test.chat_of(&visitor, json!({"message": "What is there?"})).await;
    assert_eq!(text_of(&events), "I may not look.");
    let results = test.sent_results();
    assert!(results[0].1.contains("needs a person's approval"), "{results:?}");
}

#[tokio::test]
async fn a_visitor_s_question_expires_and_frees_the_thread() {
    let test = start(json!({"ttlMs": 1}), &[("RUN_LEASE_MS", "1000")]).await;
    let visitor = test.visitor("a1").await;
    test.vendor.on("m", [round(), answer(&["I could not look."])]);
    let interrupt = test.visitor_asks(&visitor).await;
    let read = async || test.send_for_json(&visitor, "GET", "/api/threads/t").await.1;
    let thread = poll_until(read, |thread| thread["status"] == "idle").await;
    assert_eq!(thread.get("openRunId"), None, "{thread}");
    let late = test.decide_as(&visitor, &interrupt, json!({"decision": "approve"})).await;
    assert_eq!((late.0, &late.1["code"]), (410, &json!("INTERRUPT_EXPIRED")));
    test.chat_of(&visitor, json!({"threadId": "t", "message": "And?"})).await;
    let results = test.sent_results();
    assert!(results[0].1.contains("in time"), "{results:?}");
    assert!(!results[1].1.contains("no result"), "{results:?}");
}
