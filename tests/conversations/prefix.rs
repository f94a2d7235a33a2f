//! The prompt's prefix over the turns of a thread, against a simulated prefix cache of one slot, as that of llama.cpp: it
//! has the latest request and its answer.

use agentd::config::AppConfig;
use agentd::stores::Stores;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{ConversationApp, whole_run};
use crate::processes::TestDatabase;
use crate::support::cluster::Cluster;
use crate::support::server::{self, Server};
use crate::support::vendor::{Step, Vendor, answer, tool_calls};
use crate::support::workspace;

const TURNS: usize = 10;
/// The turn in which the model calls a tool.
const TOOL_TURN: usize = 4;

/// Returns the text that a model reads of a message, in a chat template.
fn rendered_message(message: &Value) -> String {
    let (role, content) = (message["role"].as_str().expect("a role"), message["content"].as_str());
    let calls = message["tool_calls"].as_array().map(|calls| json!(calls).to_string()).unwrap_or_default();
    format!("\n<|{role}|>\n{}{calls}<|end|>", content.unwrap_or_default())
}

/// Returns the text that a model reads of a request.
fn rendered(request: &Value) -> String {
    let messages = request["messages"].as_array().expect("messages").iter().map(rendered_message);
    request["tools"].to_string() + &messages.collect::<String>()
}

/// Bytes of a request, and what the cache has of them.
#[derive(Debug)]
struct Measured {
    /// The whole request.
    total: usize,
    /// The latest user message with its context, which no earlier request could have.
    new: usize,
    /// The prefix that the cache has.
    cached: usize,
}

impl Measured {
    /// Measures the first request of a turn; `cached` is the latest request before it with its answer.
    fn new(cached: &str, request: &Value) -> Self {
        let text = rendered(request);
        let common = cached.bytes().zip(text.bytes()).take_while(|(a, b)| a == b).count();
        let latest = request["messages"].as_array().and_then(|messages| messages.last()).expect("a message");
        assert_eq!(latest["role"], "user");
        Self { total: text.len(), new: rendered_message(latest).len(), cached: common }
    }

    /// Returns the cached share of the bytes before the new message.
    fn old_share(&self) -> f64 {
        self.cached as f64 / (self.total - self.new) as f64
    }

    fn whole_share(&self) -> f64 {
        self.cached as f64 / self.total as f64
    }
}

fn answer_text(turn: usize) -> String {
    format!("On Thursdays of week {turn} the shop is open from nine to six, and on Fridays to eight. ")
        .repeat(6)
}

/// Answers of the model: one a turn, with a tool call in one of them.
fn answers() -> Vec<Vec<Step>> {
    let answers = (0..TURNS).flat_map(|turn| {
        let call = (turn == TOOL_TURN).then(|| tool_calls(&[("call-1", "readTodos", "{}")]));
        call.into_iter().chain([answer(&[&answer_text(turn)])])
    });
    answers.collect()
}

fn long_role(mut workspace: Value) -> Value {
    workspace["agents"][0]["content"]["systemPrompt"] =
        json!("You are the assistant of a shop. ".repeat(200));
    workspace
}

fn question(turn: usize) -> Value {
    json!({
        "agentId": "a1", "threadId": "t", "message": format!("And how is it in week {turn}?"), "todoListId": "l1",
        "pageContext": {"visit": turn, "path": "/opening-hours"},
    })
}

/// Sends the turns to the processes that `process` returns, and measures each request after the first.
async fn measure(vendor: &Vendor, mut process: impl AsyncFnMut(usize) -> Server) -> Vec<Measured> {
    vendor.on("m", answers());
    let (mut measured, mut cached, mut compared_prompts) = (Vec::new(), String::new(), 0);
    for turn in 0..TURNS {
        let app = process(turn).await;
        let run = whole_run(&app, &question(turn)).await;
        assert_eq!(run.last()["type"], "RUN_FINISHED", "{:?}", run.events);
        app.stop();
        app.stopped().await;
        let requests = vendor.received_bodies("m").split_off(compared_prompts);
        compared_prompts += requests.len();
        if turn > 0 {
            measured.push(Measured::new(&cached, &requests[0]));
        }
        let latest = rendered(requests.last().expect("a request"));
        cached = format!("{latest}\n<|assistant|>\n{}<|end|>", answer_text(turn));
    }
    measured
}

/// Checks that every turn but the first finds all in the cache but its new message, as the tenth still does.
fn check(measured: &[Measured]) {
    assert_eq!(measured.len(), TURNS - 1);
    for (number, turn) in measured.iter().enumerate() {
        assert!(turn.old_share() >= 0.97, "turn {}: {turn:?}", number + 2);
        assert_eq!(turn.cached, turn.total - turn.new, "turn {}", number + 2);
        // The new message with its context is the rest.
        assert!(turn.whole_share() >= 0.9, "turn {}: {turn:?}", number + 2);
    }
}

fn config(database: &TestDatabase) -> AppConfig {
    let url = database.url();
    server::app_config(&[("DATABASE_URL", url.as_str()), ("DATA_SECRET", "data-secret-canary")])
}

/// Runs each turn in a separate process, over one database.
async fn turns_in_new_processes(database: TestDatabase) {
    let vendor = Vendor::start().await;
    let stores = Stores::open(&config(&database)).await.expect("the store opens");
    let workspace = long_role(workspace(&vendor.base_url(), "m"));
    stores.import("the test", &workspace.to_string()).await.expect("the workspace is imported");
    drop(stores);
    let measured = measure(&vendor, async |_| {
        let stores = Stores::open(&config(&database)).await.expect("the store opens");
        server::app_with_config(config(&database), stores).await
    });
    check(&measured.await);
}

#[tokio::test]
async fn the_prefix_survives_restarts_with_sqlite() {
    turns_in_new_processes(TestDatabase::Sqlite(TempDir::new().expect("a folder"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_prefix_survives_restarts_with_postgres() {
    turns_in_new_processes(TestDatabase::Postgres(Cluster::start())).await;
}

#[tokio::test]
async fn a_runtime_gets_the_same_history_in_every_turn() {
    let vendor = Vendor::start().await;
    let runtime = server::runtime(&[]).await;
    let mut workspace = long_role(workspace("http://unused.example/v1", "m"));
    workspace["agents"][0]["children"] = json!([{"name": "AgentServer", "content": {
        "agentServerUrl": format!("http://{}", runtime.address), "agentServerProvider": "openai",
        "agentServerModel": "m", "agentServerLocalUrl": vendor.base_url(), "agentServerApiKey": "k",
    }}]);
    let stores = server::stores(&workspace).await;
    let measured = measure(&vendor, async |_| server::app_with_stores(stores.clone(), &[]).await);
    check(&measured.await);
}

/// Returns role and text of the latest prompt's messages without the system prompt, with their contexts reduced to the
/// page's number.
fn pages(test: &ConversationApp) -> Vec<String> {
    let request = test.vendor.received_bodies("m").pop().expect("a request");
    let messages = request["messages"].as_array().expect("messages").clone();
    let shown = |message: &Value| {
        let text = message["content"].as_str().expect("text");
        let page = text.split_once("visit-").map(|(_, after_marker)| {
            after_marker.chars().take_while(char::is_ascii_digit).collect::<String>()
        });
        let user_text = text.split_once("</context>\n\n").map_or(text, |(_, user_text)| user_text);
        page.map_or_else(|| user_text.to_owned(), |page| format!("{user_text}@{page}"))
    };
    messages.iter().filter(|message| message["role"] != "system").map(shown).collect()
}

fn at_page(page: usize, mut body: Value) -> Value {
    body["threadId"] = json!("t");
    body["pageContext"] = json!({"path": format!("visit-{page}")});
    body
}

#[tokio::test]
async fn each_answer_keeps_the_context_that_it_was_made_with() {
    let test = ConversationApp::start().await;
    test.vendor.on("m", ["A1", "A2", "B1", "C", "D", "E"].map(|text| answer(&[text])));
    let first = test.chat(at_page(1, json!({"message": "Q"}))).await;
    assert_eq!(pages(&test), ["Q@1"]);
    let question = first.custom("agent.thread").expect("an event")["userMessageId"].clone();
    // The answer is made again, at another page.
    let second = test.chat(at_page(2, json!({"parentId": question}))).await;
    assert_eq!(pages(&test), ["Q@2"]);
    test.chat(at_page(3, json!({"message": "R"}))).await;
    assert_eq!(pages(&test), ["Q@2", "A2", "R@3"]);
    // On the branch of the first answer the question has its first context.
    test.chat(at_page(4, json!({"message": "S", "parentId": first.message_id()}))).await;
    assert_eq!(pages(&test), ["Q@1", "A1", "S@4"]);
    // An edit is a separate message.
    test.chat(at_page(5, json!({"message": "T", "parentId": second.message_id()}))).await;
    assert_eq!(pages(&test), ["Q@2", "A2", "T@5"]);
    // A fork has the contexts of its path.
    let (status, fork) = test.call("POST", "/api/threads/t/fork", Some(json!({"id": "fork"}))).await;
    assert_eq!(status, 201, "{fork}");
    let mut body = at_page(6, json!({"message": "U"}));
    body["threadId"] = json!("fork");
    let other = test.another_process().await;
    body["agentId"] = json!("a1");
    whole_run(&other, &body).await;
    assert_eq!(pages(&test), ["Q@2", "A2", "T@5", "D", "U@6"]);
}

#[tokio::test]
async fn a_client_s_own_history_gets_the_contexts_of_the_thread() {
    let test = ConversationApp::start().await;
    test.vendor.on("m", ["A", "B", "C"].map(|text| answer(&[text])));
    let user = |text: &str| json!({"role": "user", "content": text});
    let assistant = |text: &str| json!({"role": "assistant", "content": text});
    let sent = async |app: &Server, page: usize, messages: Value| {
        let mut body = at_page(page, json!({"messages": messages, "history": "client"}));
        body["agentId"] = json!("a1");
        whole_run(app, &body).await;
        pages(&test)
    };
    assert_eq!(sent(&test.app, 1, json!([user("Q")])).await, ["Q@1"]);
    let other = test.another_process().await;
    let second = json!([user("Q"), assistant("A"), user("Q")]);
    assert_eq!(sent(&other, 2, second).await, ["Q@1", "A", "Q@2"]);
    let third = json!([user("Q"), assistant("A"), user("Q"), assistant("B"), user("R")]);
    assert_eq!(sent(&test.app, 3, third).await, ["Q@1", "A", "Q@2", "B", "R@3"]);
}

#[tokio::test]
async fn contexts_are_not_shown_and_are_deleted_with_their_thread() {
    let test = ConversationApp::start().await;
    test.vendor.on("m", ["A", "B"].map(|text| answer(&[text])));
    let first = test.chat(at_page(7, json!({"message": "Q"}))).await;
    for path in [
        "/api/threads/t",
        "/api/threads/t?messages=tree",
        "/api/threads/t?format=ui-message",
        "/api/threads/t/export",
        "/api/threads/export",
        "/api/runs",
    ] {
        let response = test.app.request("GET", path).bearer_auth(server::session_token("u1", "c1")).send();
        let text = response.await.expect("an answer").text().await.expect("a whole body");
        assert!(!text.contains("visit-7"), "{path}: {text}");
    }
    let preview =
        json!({"agentId": "a1", "threadId": "t", "message": "R", "pageContext": {"path": "visit-8"}});
    let (status, shown) = test.call("POST", "/api/svcchat/previewPrompt", Some(preview.clone())).await;
    assert_eq!(status, 200, "{shown}");
    let payload = shown["payload"].to_string();
    assert!(
        payload.contains("visit-7") && payload.contains("visit-8"),
        "a preview shows what is sent: {payload}"
    );
    assert_eq!(shown["cache"].get("firstChangedPart"), None, "the prompt only grows: {}", shown["cache"]);
    assert!(shown["cache"]["reusableShare"].as_f64().expect("a share") > 0.5, "{}", shown["cache"]);
    // An erased message takes its contexts with it, and a deleted thread all of them.
    let node = first.custom("agent.thread").expect("an event")["userMessageId"].clone();
    let path = format!("/api/threads/t/messages/{}", node.as_str().expect("an id"));
    assert_eq!(test.call("DELETE", &path, None).await.0, 204);
    let (_, shown) = test.call("POST", "/api/svcchat/previewPrompt", Some(preview)).await;
    assert!(!shown["payload"].to_string().contains("visit-7"), "{}", shown["payload"]);
    assert_eq!(test.call("DELETE", "/api/threads/t", None).await.0, 204);
}

#[tokio::test]
async fn a_run_reports_the_reused_part_of_its_prompt() {
    let test = ConversationApp::start().await;
    test.vendor.on("m", ["A", "B", "C", "D"].map(|text| answer(&[text])));
    let cache = async |page: usize, body: Value| {
        let turn = test.chat(at_page(page, body)).await;
        turn.custom("agent.prompt").expect("an event").get("cache").cloned()
    };
    assert_eq!(cache(1, json!({"message": "Q"})).await, None, "there was no prompt before");
    let second = cache(2, json!({"message": "R"})).await.expect("a comparison");
    assert_eq!(second.get("firstChangedPart"), None, "{second}");
    let share = second["reusableShare"].as_f64().expect("a share");
    assert!((0.5..1.0).contains(&share), "{second}");
    let edited = json!({"messages": [{"role": "user", "content": "Other"}], "parentId": null});
    let changed = cache(3, edited).await.expect("a comparison");
    assert_eq!(changed["firstChangedPart"], "messages[0]", "{changed}");
    let (status, agent) = test.call("GET", "/api/agents/a1", None).await;
    assert_eq!(status, 200, "{agent}");
    let mut role = agent;
    role["content"]["systemPrompt"] = json!("Be long-winded.");
    let (status, saved) = test.call("PUT", "/api/agents/a1", Some(role)).await;
    assert_eq!(status, 200, "{saved}");
    let changed = cache(4, json!({"message": "S"})).await.expect("a comparison");
    assert_eq!(changed["firstChangedPart"], "system-prompt", "{changed}");
}
