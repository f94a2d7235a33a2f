//! The application's request to an agent runtime, and its handling of the runtime's responses.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use url::Url;

use crate::support::server::{self, INTERNAL_SECRET};
use crate::support::vendor::{Step, Vendor};
use crate::support::{expect_problem, parse_events, parse_run, text_of, workspace};

/// Exactly the fields of a request to a runtime.
const REQUEST_FIELDS: [&str; 10] = [
    "messages",
    "systemPrompt",
    "provider",
    "model",
    "enableThinking",
    "tools",
    "mcpServerUrl",
    "context",
    "baseUrl",
    "apiKey",
];

/// Returns a runtime's response with one text delta and an event of an unknown type.
fn runtime_response() -> Vec<Step> {
    let lines = [
        json!({"type": "RUN_STARTED", "threadId": "theirs", "runId": "theirs"}),
        json!({"type": "TEXT_MESSAGE_START", "messageId": "1", "role": "assistant"}),
        json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": "1", "delta": "Hello."}),
        json!({"type": "LATER", "than": "we are"}),
        json!({"type": "TEXT_MESSAGE_END", "messageId": "1"}),
        json!({"type": "RUN_FINISHED", "threadId": "theirs", "runId": "theirs"}),
    ];
    let body: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    vec![Step::Send(format!("{head}{body}").into())]
}

/// Returns a workspace whose agent is answered by a runtime with these settings.
fn workspace_with_runtime(settings: &Value) -> Value {
    let mut workspace = workspace("http://unused.example/v1", "unused");
    workspace["agents"][0]["children"] = json!([{"name": "AgentServer", "content": settings}]);
    workspace
}

fn names(object: &Value) -> BTreeSet<&str> {
    object.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[tokio::test]
async fn the_ten_fields_and_no_other_are_sent() {
    let fake = Vendor::start().await;
    fake.on("m", [runtime_response()]);
    let workspace = workspace_with_runtime(&json!({
        "agentServerUrl": format!("http://{}/base/", fake.address), "agentServerProvider": "openai",
        "agentServerModel": "m", "agentServerEnableThinking": true, "agentServerTools": ["readTodos"],
        "agentServerLocalUrl": "http://127.0.0.1:9/v1", "agentServerApiKey": "key-canary"
    }));
    let app = server::app(&workspace, &[("PUBLIC_URL", "https://app.example/base")]).await;
    let body = json!({"agentId": "a1", "threadId": "t-1", "runId": "r-1", "tabId": "x", "todoListId": "l1",
        "timezone": "Europe/Madrid", "messages": [
            {"id": "m-1", "role": "user", "content": "What is left?"},
            {"role": "assistant", "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "readTodos", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "nothing"}],
        "message": "Sure?"});
    let answered = parse_run(&app.chat(&body).await.text().await.expect("a whole body"));
    assert_eq!(answered[0], json!({"type": "RUN_STARTED", "threadId": "t-1", "runId": "r-1"}));
    assert_eq!(text_of(&answered), "Hello.");

    let received = fake.received().pop().expect("the runtime was asked");
    assert!(received.head.starts_with("POST /base/chat "), "{}", received.head);
    let head = received.head.to_ascii_lowercase();
    assert!(head.contains("content-type: application/json") && !head.contains("authorization"), "{head}");
    let request_body = received.json();
    assert_eq!(names(&request_body), BTreeSet::from(REQUEST_FIELDS));
    for (name, expected) in [
        ("provider", json!("openai")),
        ("model", json!("m")),
        ("enableThinking", json!(true)),
        ("baseUrl", json!("http://127.0.0.1:9/v1")),
        ("apiKey", json!("key-canary")),
        (
            "context",
            json!({"userId": "u1", "agentId": "a1", "agentName": "Agent", "todoListId": "l1",
            "timezone": "Europe/Madrid", "threadId": "t-1", "runId": "r-1", "caller": "session"}),
        ),
    ] {
        assert_eq!(request_body[name], expected);
    }
    assert!(request_body["systemPrompt"].as_str().expect("text").starts_with("Be brief."));
    let messages = request_body["messages"].as_array().expect("messages");
    assert_eq!(
        messages[..3],
        [
            json!({"id": "m-1", "role": "user", "content": "What is left?"}),
            json!({"role": "assistant", "toolCalls": [
            {"id": "c1", "type": "function", "function": {"name": "readTodos", "arguments": "{}"}}]}),
            json!({"role": "tool", "toolCallId": "c1", "content": "nothing"}),
        ]
    );
    assert!(messages[3]["content"].as_str().expect("text").ends_with("Sure?"));
    let tools = request_body["tools"].as_array().expect("tools");
    assert_eq!(tools.len(), 1, "cut to those that the role gives this runtime");
    assert_eq!(names(&tools[0]), BTreeSet::from(["name", "description", "inputSchema"]));
    assert_eq!(tools[0]["name"], "readTodos");
    let tool_server = Url::parse(request_body["mcpServerUrl"].as_str().expect("text")).expect("an address");
    assert_eq!(tool_server.origin().ascii_serialization(), "https://app.example");
    assert_eq!(tool_server.path(), "/base/api/agent/mcp");
    let query: Vec<(String, String)> = tool_server.query_pairs().into_owned().collect();
    for (name, value) in
        [("userId", "u1"), ("agentId", "a1"), ("todoListId", "l1"), ("timezone", "Europe/Madrid")]
    {
        assert!(query.contains(&(name.to_owned(), value.to_owned())), "{query:?}");
    }
}

#[tokio::test]
async fn the_limit_on_an_answer_is_sent_if_the_role_has_one() {
    let fake = Vendor::start().await;
    for (limit, expected) in [(json!(700), json!({"maxOutputTokens": 700})), (json!(null), json!(null))] {
        fake.on("m", [runtime_response()]);
        let mut workspace = workspace_with_runtime(&json!({
            "agentServerUrl": format!("http://{}", fake.address), "agentServerModel": "m"
        }));
        workspace["agents"][0]["content"]["maxOutputTokens"] = limit;
        let app = server::app(&workspace, &[]).await;
        parse_run(
            &app.chat(&json!({"agentId": "a1", "message": "Hello"})).await.text().await.expect("a body"),
        );
        let request_body = fake.received_bodies("m").pop().expect("a request");
        assert_eq!(request_body["parameters"], expected);
    }
}

#[tokio::test]
async fn parameters_that_a_role_omits_are_not_sent() {
    let fake = Vendor::start().await;
    fake.on("/chat", [runtime_response()]);
    let mut workspace = workspace_with_runtime(&json!({}));
    workspace["users"] = json!([]);
    workspace["agents"][0]["name"] = "".into();
    // The address in the role's own content takes precedence over containers, together with the settings beside it.
    workspace["agents"][0]["content"]["agentServerUrl"] = format!("http://{}", fake.address).into();
    let app = server::app(&workspace, &[]).await;
    let body = json!({"agentId": "a1", "message": "Hello", "userId": "u1", "companyId": "c1"});
    let request = app.request("POST", "/api/agent/chat").bearer_auth(INTERNAL_SECRET);
    let response = request.header("x-proactive-trigger", "x").json(&body).send().await.expect("an answer");
    assert_eq!(text_of(&parse_run(&response.text().await.expect("a whole body"))), "Hello.");

    let received = fake.received().pop().expect("the runtime was asked");
    assert!(received.head.starts_with("POST /chat "), "{}", received.head);
    let request_body = received.json();
    assert_eq!(
        names(&request_body),
        BTreeSet::from(["messages", "systemPrompt", "tools", "mcpServerUrl", "context"])
    );
    let context = &request_body["context"];
    assert_eq!(names(context), BTreeSet::from(["userId", "agentId", "threadId", "runId", "caller"]));
    assert_eq!(context["caller"], "proactive");
    let tool_server = Url::parse(request_body["mcpServerUrl"].as_str().expect("text")).expect("an address");
    assert_eq!(tool_server.origin().ascii_serialization(), format!("http://{}", app.address));
    assert!(tool_server.query_pairs().all(|(name, _)| name != "todoListId" && name != "timezone"));
}

#[tokio::test]
async fn a_request_without_a_time_zone_uses_the_user_s() {
    let fake = Vendor::start().await;
    fake.on("/chat", [runtime_response()]);
    let workspace = workspace_with_runtime(&json!({"agentServerUrl": format!("http://{}", fake.address)}));
    let app = server::app(&workspace, &[]).await;
    parse_run(
        &app.chat(&json!({"agentId": "a1", "message": "Hello"})).await.text().await.expect("a whole body"),
    );
    let request_body = fake.received().pop().expect("the runtime was asked").json();
    assert_eq!(request_body["context"]["timezone"], "Europe/Berlin");
    assert!(request_body["mcpServerUrl"].as_str().expect("text").contains("timezone=Europe%2FBerlin"));
}

#[tokio::test]
async fn requests_pass_from_application_to_runtime_to_vendor() {
    const SECRET: &str = "runtime-canary-0123456789";
    let vendor = Vendor::start().await;
    let runtime = server::runtime(&[("RUNTIME_SECRET", SECRET)]).await;
    let url = runtime.url("");
    let settings = |provider: &str| {
        workspace_with_runtime(
            &json!({"agentServerUrl": url, "agentServerProvider": provider, "agentServerModel": "m",
            "agentServerLocalUrl": vendor.base_url()}),
        )
    };
    let of_app: [(&str, &str); 2] = [("RUNTIME_URL", &url), ("RUNTIME_SECRET", SECRET)];
    let app = server::app(&settings("openai"), &of_app).await;
    let body = json!({"agentId": "a1", "message": "Hello", "threadId": "t-1", "runId": "r-1"});
    let events = parse_events(&app.chat(&body).await.text().await.expect("a whole body"));
    assert_eq!(events[0], json!({"type": "RUN_STARTED", "threadId": "t-1", "runId": "r-1"}));
    assert_eq!(text_of(&events), "hello world");
    let end = events.last().expect("an end");
    assert_eq!((&end["type"], &end["runId"]), (&json!("RUN_FINISHED"), &json!("r-1")));
    assert_eq!(end["usage"][0]["inputTokens"], 11);

    // An error of the runtime about the role's settings keeps its code; the message is the application's own.
    for (provider, status, code) in
        [("anthropic", 501, "PROVIDER_NOT_IMPLEMENTED"), ("openia", 400, "UNKNOWN_PROVIDER")]
    {
        let app = server::app(&settings(provider), &of_app).await;
        expect_problem(app.chat(&json!({"agentId": "a1", "message": "Hello"})).await, status, code).await;
    }
}
