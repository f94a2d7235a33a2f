//! Requests of clients that resend their history: nothing is stored twice, and the model reads what the user sees.

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{ConversationApp, dialogue};
use crate::support::vendor::answer;

/// Returns an AG-UI request, as `HttpAgent` sends it.
fn ag_ui(run: &str, messages: &[Value]) -> Value {
    json!({"threadId": "t", "runId": run, "messages": messages, "tools": [], "context": [], "state": {},
        "forwardedProps": {"agentId": "a1"}})
}

fn message(id: &str, role: &str, text: &str) -> Value {
    json!({"id": id, "role": role, "content": text})
}

/// Returns a request as the AI SDK's default transport sends it.
fn ai_sdk(trigger: &str, message_id: Option<&str>, messages: &[Value]) -> Value {
    let mut body = json!({"id": "t", "messages": messages, "trigger": trigger});
    if let Some(id) = message_id {
        body["messageId"] = json!(id);
    }
    body
}

fn ui(id: &str, role: &str, text: &str) -> Value {
    json!({"id": id, "role": role, "parts": [{"type": "text", "text": text}]})
}

async fn start() -> ConversationApp {
    let test = ConversationApp::start().await;
    test.vendor.on("m", ["One.", "Two.", "Three.", "Four."].map(|text| answer(&[text])));
    test
}

async fn message_count(test: &ConversationApp) -> u64 {
    test.get("/api/threads/t?messages=none").await["messageCount"].as_u64().expect("a number")
}

#[tokio::test]
async fn messages_that_are_added_at_once_follow_each_other() {
    const MESSAGES: usize = 20;
    let test = start().await;
    test.chat(json!({"threadId": "t", "message": "A"})).await;
    let add = |n: usize| {
        let body = json!({"messages": [{"role": "user", "content": format!("message {n}")}]});
        let added = test.call("POST", "/api/threads/t/messages", Some(body));
        async move { added.await.0 }
    };
    assert_eq!(join_all((0..MESSAGES).map(add)).await, [201; MESSAGES]);
    let path = test.path("t").await;
    assert_eq!(path[..2], dialogue(&["A", "One."]));
    let mut added: Vec<&str> = path[2..].iter().map(|(_, text)| text.as_str()).collect();
    added.sort_by_key(|text| text.len());
    added[..10].sort();
    added[10..].sort();
    let expected: Vec<String> = (0..MESSAGES).map(|n| format!("message {n}")).collect();
    assert_eq!(added, expected, "all of them are on the path");
}

#[tokio::test]
async fn an_ag_ui_client_edits_and_regenerates_without_duplicates() {
    let test = start().await;
    let first = test.chat(ag_ui("r1", &[message("u1", "user", "A")])).await;
    let answered = message(&first.message_id(), "assistant", "One.");
    let history = [message("u1", "user", "A"), answered, message("u2", "user", "B")];
    let second = test.chat(ag_ui("r2", &history)).await;
    assert_eq!(test.prompt(), dialogue(&["A", "One.", "B"]));
    assert_eq!(message_count(&test).await, 4);
    // The second question is edited: its id stays.
    let mut edited = history.clone();
    edited[2]["content"] = json!("B, please");
    test.chat(ag_ui("r3", &edited)).await;
    assert_eq!(test.prompt(), dialogue(&["A", "One.", "B, please"]));
    assert_eq!(message_count(&test).await, 6);
    // Its answer is made again.
    let fourth = test.chat(ag_ui("r4", &edited)).await;
    assert_eq!(test.prompt(), dialogue(&["A", "One.", "B, please"]));
    assert_eq!(test.path("t").await, dialogue(&["A", "One.", "B, please", "Four."]));
    assert_eq!(message_count(&test).await, 7);
    let run = test.get(&format!("/api/runs/{}", fourth.run_id())).await;
    assert_eq!(run["trigger"]["kind"], "regenerate");
    // Every branch is still there.
    let tree = test.get("/api/threads/t?messages=tree").await;
    let nodes = tree["nodes"].as_array().expect("nodes");
    let of =
        |id: String| nodes.iter().find(|node| node["id"] == json!(id)).expect("a node")["siblings"].clone();
    assert_eq!(of(second.message_id()), json!({"index": 0, "count": 1}));
    assert_eq!(of(fourth.message_id()), json!({"index": 1, "count": 2}));
}

#[tokio::test]
async fn an_ag_ui_client_with_new_ids_leaves_no_duplicates() {
    let test = start().await;
    test.chat(ag_ui("r1", &[message("x1", "user", "A")])).await;
    let history =
        [message("y1", "user", "A"), message("y2", "assistant", "One."), message("y3", "user", "B")];
    test.chat(ag_ui("r2", &history)).await;
    assert_eq!(test.path("t").await, dialogue(&["A", "One.", "B", "Two."]));
    assert_eq!(message_count(&test).await, 4);
    // Another first message is another conversation in the client's list.
    test.chat(ag_ui("r3", &[message("z1", "user", "A, differently")])).await;
    assert_eq!(test.prompt(), dialogue(&["A, differently"]));
}

#[tokio::test]
async fn the_ai_sdk_resends_edits_and_regenerates_without_duplicates() {
    let test = start().await;
    let first = test.chat(ai_sdk("submit-message", None, &[ui("u1", "user", "A")])).await;
    // Its message has the turn's id.
    let answered = ui(&first.run_id(), "assistant", "One.");
    let history = [ui("u1", "user", "A"), answered.clone(), ui("u2", "user", "B")];
    let second = test.chat(ai_sdk("submit-message", None, &history)).await;
    assert_eq!(test.prompt(), dialogue(&["A", "One.", "B"]));
    let regenerated = test.chat(ai_sdk("regenerate-message", Some(&second.run_id()), &history)).await;
    assert_eq!(test.prompt(), dialogue(&["A", "One.", "B"]));
    assert_eq!(message_count(&test).await, 5);
    let run = test.get(&format!("/api/runs/{}", regenerated.run_id())).await;
    assert_eq!(run["trigger"]["kind"], "regenerate");
    // An edit keeps the message's id.
    let edited = [ui("u1", "user", "A"), answered, ui("u2", "user", "B, please")];
    test.chat(ai_sdk("submit-message", Some("u2"), &edited)).await;
    assert_eq!(test.path("t").await, dialogue(&["A", "One.", "B, please", "Four."]));
    assert_eq!(message_count(&test).await, 7);
}

#[tokio::test]
async fn the_ai_sdk_may_send_only_the_last_message() {
    let test = start().await;
    let send = async |id: &str, text: &str| {
        test.chat(json!({"id": "t", "trigger": "submit-message", "message": ui(id, "user", text)})).await
    };
    send("u1", "A").await;
    let second = send("u2", "A").await;
    assert_eq!(test.prompt(), dialogue(&["A", "One.", "A"]));
    let second = json!({"id": "t", "trigger": "regenerate-message", "messageId": second.run_id()});
    test.chat(second).await;
    assert_eq!(test.path("t").await, dialogue(&["A", "One.", "A", "Three."]));
    assert_eq!(message_count(&test).await, 5);
}

#[tokio::test]
async fn a_client_may_name_the_parent_of_its_message() {
    let test = start().await;
    let first = test.say("t", "A").await;
    test.say("t", "B").await;
    let body = json!({"threadId": "t", "message": "C", "parentId": first.message_id()});
    test.chat(body).await;
    assert_eq!(test.prompt(), dialogue(&["A", "One.", "C"]));
    let user = first.custom("agent.thread").expect("an event")["userMessageId"].clone();
    test.chat(json!({"threadId": "t", "parentId": user})).await;
    assert_eq!(test.path("t").await, dialogue(&["A", "Four."]));
    test.chat(json!({"threadId": "t", "message": "New", "parentId": null})).await;
    assert_eq!(test.prompt(), dialogue(&["New"]));
}

#[tokio::test]
async fn a_prompt_may_have_the_history_of_the_client() {
    let test = start().await;
    test.say("t", "A").await;
    let messages = json!([{"role": "user", "content": "A"}, {"role": "assistant", "content": "Other words."},
        {"role": "user", "content": "B"}]);
    test.chat(json!({"threadId": "t", "history": "client", "messages": messages})).await;
    assert_eq!(test.prompt(), dialogue(&["A", "Other words.", "B"]));
    assert_eq!(test.path("t").await, dialogue(&["A", "One.", "B", "Two."]));
    let kept = test.get("/api/threads/t?messages=tree").await.to_string();
    assert!(!kept.contains("Other words."), "clients cannot add messages of the assistant: {kept}");
}
