//! Conversations that the application keeps: turns in threads, their routes, and the ends of their runs.

mod approvals;
mod capabilities;
mod client_tools;
mod compaction;
mod decisions;
mod deletions;
mod departures;
// The limit on the size of files is set by a program of Linux.
#[cfg(target_os = "linux")]
mod failing_stores;
mod files;
mod floor;
mod hostile;
mod identity;
mod jobs;
mod kill;
mod limits;
mod lists;
mod logs;
mod merging;
mod prefix;
mod queue;
mod readers;
mod records;
mod refusals;
mod retention;
mod runs;
mod stores;
mod switched_off;
mod thread_cache;
mod unsupported_content;
mod visitors;

use agentd::stores::Stores;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::support::server::{self, Server, session_token};
use crate::support::vendor::{Step, Vendor, answer, delta, finish, stream_head, tool_calls};
use crate::support::{parse_run, poll_until, workspace};

/// The application over a store of conversations, and the vendor of its agent `a1`.
struct ConversationApp {
    vendor: Vendor,
    app: Server,
    stores: Stores,
}

/// A finished call of the chat endpoint.
struct Turn {
    events: Vec<Value>,
}

impl Turn {
    fn first_id(&self, event: &str, field: &str) -> String {
        let first_event = self.events.iter().find(|first_event| first_event["type"] == event);
        first_event.unwrap_or_else(|| panic!("no {event}: {:?}", self.events))[field]
            .as_str()
            .expect("an id")
            .to_owned()
    }

    fn run_id(&self) -> String {
        self.first_id("RUN_STARTED", "runId")
    }

    fn thread_id(&self) -> String {
        self.first_id("RUN_STARTED", "threadId")
    }

    fn message_id(&self) -> String {
        self.first_id("TEXT_MESSAGE_START", "messageId")
    }

    fn last(&self) -> &Value {
        self.events.last().expect("an event")
    }

    /// Returns the value of a `CUSTOM` event.
    fn custom(&self, name: &str) -> Option<&Value> {
        self.events.iter().find(|event| event["name"] == name).map(|event| &event["value"])
    }
}

impl ConversationApp {
    async fn start() -> Self {
        Self::start_with(&[]).await
    }

    async fn start_with(settings: &[(&str, &str)]) -> Self {
        let vendor = Vendor::start().await;
        let stores = server::stores(&everyone(&vendor.base_url())).await;
        let app = server::app_with_stores(stores.clone(), settings).await;
        Self { vendor, app, stores }
    }

    /// Starts another process over the same stores.
    async fn another_process(&self) -> Server {
        server::app_with_stores(self.stores.clone(), &[]).await
    }

    /// Sends a body as user `u1` of company `c1`, with the agent `a1`, and reads the whole run.
    async fn chat(&self, body: Value) -> Turn {
        let mut body = body;
        body["agentId"] = json!("a1");
        whole_run(&self.app, &body).await
    }

    /// Says something in a thread.
    async fn say(&self, thread: &str, message: &str) -> Turn {
        self.chat(json!({"threadId": thread, "message": message})).await
    }

    /// Sends a request as user `u1` and returns status and body.
    async fn call(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        call_as(&self.app, &session_token("u1", "c1"), method, path, body).await
    }

    async fn get(&self, path: &str) -> Value {
        get(&self.app, path).await
    }

    /// Returns role and text of the messages on a thread's path.
    async fn path(&self, thread: &str) -> Vec<(String, String)> {
        let thread = self.get(&format!("/api/threads/{thread}")).await;
        let nodes = thread["nodes"].as_array().expect("nodes").clone();
        nodes.iter().map(|node| role_and_text(&node["message"])).collect()
    }

    /// Returns role and text of the messages of the latest prompt, without the system prompt and contexts.
    fn prompt(&self) -> Vec<(String, String)> {
        prompt_of(&self.vendor.received_bodies("m").pop().expect("a request"))
    }

    /// Waits until a run has ended and returns it.
    async fn ended_run(&self, id: &str) -> Value {
        let path = format!("/api/runs/{id}");
        let fetch = async || self.call("GET", &path, None).await.1;
        poll_until(fetch, |run| run["endedAt"].is_string()).await
    }
}

/// Sends a body to a process as user `u1` of company `c1`, and reads the whole run. The head alone says nothing of its end:
/// until the body ends, the thread is busy.
async fn whole_run(app: &Server, body: &Value) -> Turn {
    let response = app.chat(body).await;
    let status = response.status();
    let text = response.text().await.expect("a whole body");
    assert_eq!(status, 200, "{text}");
    Turn { events: parse_run(&text) }
}

/// Sends a request with a bearer token and returns status and body.
pub(crate) async fn call_as(
    app: &Server,
    bearer: &str,
    method: &str,
    path: &str,
    body: Option<Value>,
) -> (u16, Value) {
    let request = app.request(method, path).bearer_auth(bearer);
    let request = match body {
        Some(body) => request.json(&body),
        None => request,
    };
    let response = request.send().await.expect("an answer");
    let status = response.status().as_u16();
    let text = response.text().await.expect("a whole body");
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

/// Returns the body of a successful request of user `u1`.
async fn get(app: &Server, path: &str) -> Value {
    let (status, body) = call_as(app, &session_token("u1", "c1"), "GET", path, None).await;
    assert_eq!(status, 200, "{path}: {body}");
    body
}

/// Returns a workspace with a colleague `u2`, an agent that keeps nothing, and a company `c2` with the user `u3` and an
/// agent of the same id.
fn everyone(base_url: &str) -> Value {
    let mut all = workspace(base_url, "m");
    let mut theirs = all["agents"][0].clone();
    theirs["companyId"] = "c2".into();
    theirs["ownerId"] = "u3".into();
    let mut second = all["agents"][0].clone();
    second["id"] = "a2".into();
    let mut forgetful = second.clone();
    forgetful["id"] = "forgetful".into();
    forgetful["content"]["conversations"] = json!({"store": false});
    all["agents"].as_array_mut().expect("a list").extend([theirs, second, forgetful]);
    let users = [json!({"id": "u2", "companyId": "c1"}), json!({"id": "u3", "companyId": "c2"})];
    all["users"].as_array_mut().expect("a list").extend(users);
    all
}

fn role_and_text(message: &Value) -> (String, String) {
    let text = match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    };
    let user_text = text.split_once("</context>").map_or(text.as_str(), |(_, user_text)| user_text);
    (message["role"].as_str().expect("a role").to_owned(), user_text.trim().to_owned())
}

fn prompt_of(request: &Value) -> Vec<(String, String)> {
    let messages = request["messages"].as_array().expect("messages");
    messages.iter().map(role_and_text).filter(|(role, _)| role != "system").collect()
}

/// Returns role and text of messages that alternate, the user's first.
fn dialogue(texts: &[&str]) -> Vec<(String, String)> {
    let roles = ["user", "assistant"].into_iter().cycle();
    roles.zip(texts).map(|(role, text)| (role.to_owned(), (*text).to_owned())).collect()
}

#[tokio::test]
async fn the_id_of_a_thread_suffices_to_continue_it() {
    let test = ConversationApp::start().await;
    test.vendor.on("m", [answer(&["I am ", "well."]), answer(&["You asked how I am."])]);
    let first = test.say("t 1", "How are you?\nTell me.").await;
    let second = test.say("t 1", "What have I asked?").await;
    assert_eq!(test.prompt(), dialogue(&["How are you?\nTell me.", "I am well.", "What have I asked?"]));
    let thread = test.get("/api/threads/t%201").await;
    assert_eq!(
        test.path("t%201").await,
        dialogue(&["How are you?\nTell me.", "I am well.", "What have I asked?", "You asked how I am."])
    );
    for (field, expected) in [
        ("id", json!("t 1")),
        ("agentId", json!("a1")),
        ("title", json!("How are you?")),
        ("titleFrom", json!("message")),
        ("status", json!("idle")),
        ("origin", json!("chat")),
        ("messageCount", json!(4)),
        ("head", json!(second.message_id())),
    ] {
        assert_eq!(thread[field], expected, "{field}");
    }
    let nodes = thread["nodes"].as_array().expect("nodes");
    let thread_event = first.custom("agent.thread").expect("an event");
    assert_eq!(*thread_event, json!({"userMessageId": nodes[0]["id"], "turnId": first.run_id()}));
    let thread_event = second.custom("agent.thread").expect("an event");
    let expected =
        json!({"userMessageId": nodes[2]["id"], "parentId": first.message_id(), "turnId": second.run_id()});
    assert_eq!(*thread_event, expected);
    assert_eq!(nodes[1]["id"], json!(first.message_id()), "a node has the id of the stream's message");
    assert_eq!((&nodes[1]["runId"], &nodes[1]["origin"]), (&json!(first.run_id()), &json!("run")));
    let run = test.get(&format!("/api/runs/{}", second.run_id())).await;
    assert_eq!((&run["state"], &run["trigger"]["kind"]), (&json!("completed"), &json!("chat")));
    assert_eq!(run["nodeIds"], json!([nodes[2]["id"], nodes[3]["id"]]));
    assert_eq!(run["usage"][0]["inputTokens"], 11);
}

#[tokio::test]
async fn tool_calls_and_results_are_part_of_the_thread() {
    let test = ConversationApp::start().await;
    let calls = tool_calls(&[("call-1", "readTodos", "{}")]);
    test.vendor.on("m", [calls, answer(&["Water the basil."]), answer(&["Yes."])]);
    let body = json!({"threadId": "t", "message": "What is to do?", "todoListId": "l1"});
    test.chat(body).await;
    test.say("t", "Sure?").await;
    let request_body = test.vendor.received_bodies("m").pop().expect("a request");
    let messages = request_body["messages"].as_array().expect("messages");
    let roles: Vec<&str> = messages.iter().filter_map(|message| message["role"].as_str()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "assistant", "user"]);
    assert_eq!(messages[2]["tool_calls"][0]["function"]["name"], "readTodos");
    assert!(messages[3]["content"].as_str().expect("text").contains("Water the basil"), "{messages:?}");
    let thread = test.get("/api/threads/t?format=ui-message").await;
    let nodes = thread["nodes"].as_array().expect("nodes");
    let roles: Vec<&Value> = nodes.iter().map(|node| &node["message"]["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant"]);
    let parts = nodes[1]["message"]["parts"].as_array().expect("parts");
    let call = parts.iter().find(|part| part["type"] == "tool-readTodos").expect("a call");
    assert_eq!(call["state"], "output-available");
}

#[tokio::test]
async fn instructions_precede_the_path_and_are_not_stored() {
    let test = ConversationApp::start().await;
    test.vendor.on("m", [answer(&["One."]), answer(&["Two."])]);
    test.say("t", "First").await;
    let messages = json!([{"role": "developer", "content": "Rhyme."}, {"role": "user", "content": "Second"}]);
    test.chat(json!({"threadId": "t", "messages": messages})).await;
    let request_body = test.vendor.received_bodies("m").pop().expect("a request");
    assert!(request_body.to_string().contains("Rhyme."), "{request_body}");
    assert_eq!(test.path("t").await, dialogue(&["First", "One.", "Second", "Two."]));
}

#[tokio::test]
async fn a_thread_is_made_for_a_request_that_wants_one() {
    let test = ConversationApp::start().await;
    let body = json!({"message": "Hello", "store": true, "title": "Mine", "metadata": {"color": "green"}});
    let turn = test.chat(body).await;
    let thread = test.get(&format!("/api/threads/{}", turn.thread_id())).await;
    assert_eq!((&thread["title"], &thread["titleFrom"]), (&json!("Mine"), &json!("user")));
    assert_eq!(thread["metadata"], json!({"color": "green"}));
    let kept = test.get("/api/threads").await;
    assert_eq!(kept["threads"].as_array().expect("threads").len(), 1);
}

#[tokio::test]
async fn a_proactive_call_continues_the_thread_of_the_user_it_names() {
    let test = ConversationApp::start().await;
    test.vendor.on("m", [answer(&["It rains."]), answer(&["Yes."])]);
    let body = json!({"agentId": "a1", "threadId": "t", "message": "Tell the user that it rains.",
        "userId": "u1", "companyId": "c1"});
    let request = test.app.request("POST", "/api/agent/chat").bearer_auth(server::INTERNAL_SECRET);
    let response = request.header("x-proactive-trigger", "rain").json(&body).send().await.expect("an answer");
    let turn = Turn { events: parse_run(&response.text().await.expect("a whole body")) };
    let run = test.get(&format!("/api/runs/{}", turn.run_id())).await;
    assert_eq!(run["trigger"], json!({"kind": "proactive", "reason": "rain"}));
    assert_eq!(test.get("/api/threads/t").await["origin"], "proactive");
    test.say("t", "Really?").await;
    assert_eq!(test.prompt(), dialogue(&["Tell the user that it rains.", "It rains.", "Really?"]));
}

/// Returns an answer that says "Partly", and the rest when the gate opens.
fn gated() -> (Vec<Step>, watch::Sender<bool>) {
    let gate = watch::Sender::new(false);
    let mut steps = vec![stream_head(), delta(json!({"content": "Partly "})), Step::Until(gate.subscribe())];
    steps.push(delta(json!({"content": "and wholly."})));
    steps.extend(finish("stop"));
    (steps, gate)
}
