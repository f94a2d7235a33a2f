//! The runtime's `POST /chat`: a request with ten fields, a streamed response.

use serde_json::{Value, json};

use crate::support::server::{self, Server};
use crate::support::vendor::{Vendor, answer, tool_calls};
use crate::support::{answered_run, expect_problem, text_of};

const SECRET: &str = "runtime-canary-0123456789";

/// Returns a minimal valid request with the members of `more`; null removes a member.
fn request(base_url: &str, more: &Value) -> Value {
    let mut body = json!({
        "messages": [{"role": "user", "content": "Hello"}],
        "provider": "openai", "model": "m", "baseUrl": base_url, "apiKey": "key-canary"
    });
    for (name, value) in more.as_object().expect("an object") {
        body[name] = value.clone();
    }
    body.as_object_mut().expect("an object").retain(|_, value| !value.is_null());
    body
}

async fn post(runtime: &Server, body: &Value) -> reqwest::Response {
    runtime.request("POST", "/chat").json(body).send().await.expect("an answer")
}

#[tokio::test]
async fn the_request_limits_the_answer() {
    let vendor = Vendor::start().await;
    let runtime = server::runtime(&[("MAX_OUTPUT_TOKENS", "200")]).await;
    for (parameters, expected) in [
        (json!(null), 200),
        (json!({}), 200),
        (json!({"maxOutputTokens": 300, "later": 1}), 300),
        (json!({"maxOutputTokens": null}), 200),
    ] {
        let body = request(&vendor.base_url(), &json!({"parameters": parameters}));
        answered_run(post(&runtime, &body).await).await;
        let request_body = vendor.received_bodies("m").pop().expect("a request");
        assert_eq!(request_body["max_tokens"], expected, "{parameters}");
    }
}

#[tokio::test]
async fn the_ten_fields_reach_the_vendor() {
    let vendor = Vendor::start().await;
    let runtime = server::runtime(&[]).await;
    let schema = json!({"type": "object", "properties": {"title": {"type": "string"}}});
    let body = request(
        &vendor.base_url(),
        &json!({
            "systemPrompt": "Be brief.",
            "enableThinking": true,
            "messages": [
                {"role": "user", "content": "What is left?"},
                {"role": "assistant", "toolCalls": [
                    {"id": "c1", "type": "function", "function": {"name": "readTodos", "arguments": "{}"}}]},
                {"role": "tool", "toolCallId": "c1", "content": "nothing"},
                {"role": "user", "content": "Sure?"}
            ],
            "tools": [
                {"name": "readTodos", "description": "Reads."},
                {"name": "createTodo", "description": "Creates.", "inputSchema": schema}
            ],
            "mcpServerUrl": "https://app.example/api/agent/mcp?token=run-canary",
            "context": {"userId": "u-canary", "agentId": "a1", "agentName": "Agent", "todoListId": "l1",
                "timezone": "Europe/Berlin", "threadId": "t-1", "runId": "r-1", "caller": "session"}
        }),
    );
    let events = answered_run(post(&runtime, &body).await).await;
    assert_eq!(events[0], json!({"type": "RUN_STARTED", "threadId": "t-1", "runId": "r-1"}));
    assert_eq!(text_of(&events), "hello world");

    let received = vendor.received().pop().expect("the vendor was asked");
    assert!(received.head.starts_with("POST /v1/chat/completions "), "{}", received.head);
    assert!(
        received.head.to_ascii_lowercase().contains("authorization: bearer key-canary"),
        "{}",
        received.head
    );
    let request_body = received.json();
    assert_eq!(request_body["model"], "m");
    assert_eq!(request_body["stream"], true);
    assert_eq!(
        request_body["messages"],
        json!([
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "What is left?"},
            {"role": "assistant", "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "readTodos", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "nothing"},
            {"role": "user", "content": "Sure?"}
        ])
    );
    assert_eq!(
        request_body["tools"],
        json!([
            {"type": "function", "function": {"name": "createTodo", "description": "Creates.", "parameters": schema}},
            {"type": "function", "function": {"name": "readTodos", "description": "Reads.",
                "parameters": {"type": "object", "properties": {}}}}
        ])
    );
    // Fields for tools and for the runtime itself are not sent to the vendor.
    let text = request_body.to_string();
    for kept in ["run-canary", "u-canary", "key-canary"] {
        assert!(!text.contains(kept), "{text}");
    }
}

#[tokio::test]
async fn the_least_is_a_conversation_a_provider_and_a_model() {
    let vendor = Vendor::start().await;
    let base = vendor.base_url();
    let runtime = server::runtime(&[("OPENAI_BASE_URL", &base), ("OPENAI_API_KEY", "operator-canary")]).await;
    let body =
        json!({"messages": [{"role": "user", "content": "Hello"}], "provider": "openai", "model": "m"});
    let events = answered_run(post(&runtime, &body).await).await;
    for id in ["threadId", "runId"] {
        assert_eq!(events[0][id].as_str().map(str::len), Some(36), "{}", events[0]);
    }
    let received = vendor.received().pop().expect("the vendor was asked");
    assert!(received.head.to_ascii_lowercase().contains("authorization: bearer operator-canary"));
    let request_body = received.json();
    assert_eq!(request_body["messages"], json!([{"role": "user", "content": "Hello"}]));
    assert_eq!(request_body.get("tools"), None);
}

#[tokio::test]
async fn the_context_may_be_a_string_of_json() {
    let vendor = Vendor::start().await;
    let runtime = server::runtime(&[]).await;
    let text = json!({"userId": "u1", "threadId": "t-1", "runId": "r-1"}).to_string();
    for (context, thread) in [(json!(text), Some("t-1")), (json!(""), None), (json!({}), None)] {
        let body = request(&vendor.base_url(), &json!({"context": context}));
        let events = answered_run(post(&runtime, &body).await).await;
        match thread {
            Some(thread) => assert_eq!(events[0]["threadId"], thread),
            None => assert_eq!(events[0]["threadId"].as_str().map(str::len), Some(36)),
        }
    }
}

#[tokio::test]
async fn unknown_and_unimplemented_providers_have_different_codes() {
    let vendor = Vendor::start().await;
    let runtime = server::runtime(&[]).await;
    let body = request(&vendor.base_url(), &json!({"provider": "anthropic"}));
    let problem = expect_problem(post(&runtime, &body).await, 501, "PROVIDER_NOT_IMPLEMENTED").await;
    assert_eq!(problem["detail"], "provider anthropic is not implemented yet");
    for provider in ["openia", "OpenAI", "auto", "local"] {
        let body = request(&vendor.base_url(), &json!({"provider": provider}));
        let problem = expect_problem(post(&runtime, &body).await, 400, "UNKNOWN_PROVIDER").await;
        assert_eq!(problem["detail"], "provider is unknown; expected one of openai, ollama, anthropic");
    }
    assert!(vendor.received().is_empty());
}

#[tokio::test]
async fn a_field_that_is_wrong_is_named() {
    let vendor = Vendor::start().await;
    let runtime = server::runtime(&[]).await;
    let tool = |tool: Value| json!({"tools": [tool]});
    let cases = [
        (json!({"provider": null}), "provider is missing"),
        (json!({"provider": ""}), "provider is missing"),
        (json!({"provider": 5}), "provider must be a string"),
        (json!({"model": null}), "model is missing"),
        (json!({"model": ""}), "model is missing"),
        (json!({"model": ["m"]}), "model must be a string"),
        (json!({"model": "x".repeat(257)}), "model is longer than 256 bytes"),
        (json!({"messages": null}), "messages is missing"),
        (json!({"messages": "Hello"}), "messages must be a list"),
        (json!({"messages": []}), "messages must end with a user message or a tool result"),
        (json!({"messages": [{"role": "user"}]}), "messages[0].content is missing"),
        (
            json!({"messages": [{"role": "assistant", "content": "x"}]}),
            "messages must end with a user message or a tool result",
        ),
        (json!({"systemPrompt": 5}), "systemPrompt must be a string"),
        (json!({"enableThinking": "yes"}), "enableThinking must be true or false"),
        (json!({"tools": {}}), "tools must be a list"),
        (tool(json!("readTodos")), "tools[0] must be an object"),
        (tool(json!({})), "tools[0].name is missing"),
        (tool(json!({"name": "f", "description": 5})), "tools[0].description must be a string"),
        (tool(json!({"name": "f", "inputSchema": "object"})), "tools[0].inputSchema must be an object"),
        (
            json!({"tools": [{"name": "f"}, {"name": "f"}]}),
            "tools[1].name is the name of an earlier tool: tool names must be unique",
        ),
        (json!({"mcpServerUrl": 5}), "mcpServerUrl must be a string"),
        (json!({"context": 5}), "context must be an object"),
        (json!({"context": "not JSON"}), "context must be an object, or a string with the JSON of one"),
        (json!({"context": {"runId": 5}}), "context.runId must be a string"),
        (json!({"parameters": 5}), "parameters must be an object"),
        (
            json!({"parameters": {"maxOutputTokens": 0}}),
            "parameters.maxOutputTokens must be a whole number from 1 to 4294967295",
        ),
        (
            json!({"parameters": {"extraBody": {"model": "x"}}}),
            "parameters.extraBody must not name model, which the platform sets",
        ),
        (json!({"baseUrl": 5}), "baseUrl must be a string"),
        (json!({"apiKey": 5}), "apiKey must be a string"),
        (json!({"apiKey": "a\nb"}), "apiKey contains control characters"),
    ];
    for (more, expected) in cases {
        let body = request(&vendor.base_url(), &more);
        let problem = expect_problem(post(&runtime, &body).await, 400, "INVALID_REQUEST").await;
        assert_eq!(problem["detail"], expected);
    }
    let body = request("not an address", &json!({}));
    let problem = expect_problem(post(&runtime, &body).await, 400, "INVALID_REQUEST").await;
    assert!(problem["detail"].as_str().expect("text").starts_with("baseUrl is not a URL"), "{problem}");
    assert!(vendor.received().is_empty());
}

#[tokio::test]
async fn a_tool_call_without_a_tool_server_has_an_error_result() {
    let vendor = Vendor::start().await;
    vendor.on("m", [tool_calls(&[("c1", "readTodos", "{}")]), answer(&["I cannot look."])]);
    let runtime = server::runtime(&[]).await;
    let body = request(&vendor.base_url(), &json!({"tools": [{"name": "readTodos"}]}));
    let events = answered_run(post(&runtime, &body).await).await;
    assert_eq!(events.last().expect("an end")["type"], "RUN_FINISHED");
    assert_eq!(text_of(&events), "I cannot look.");
    let result = events.iter().find(|event| event["type"] == "TOOL_CALL_RESULT").expect("a result");
    assert_eq!(result["metadata"], json!({"isError": true}));
    let message = &vendor.received_bodies("m")[1]["messages"][2];
    assert_eq!((&message["role"], &message["tool_call_id"]), (&json!("tool"), &json!("c1")));
    assert!(
        message["content"].as_str().expect("text").contains("the request has no tool server"),
        "{message}"
    );
}

#[tokio::test]
async fn the_secret_is_asked_for_on_all_but_health() {
    let vendor = Vendor::start().await;
    let runtime = server::runtime(&[("RUNTIME_SECRET", SECRET)]).await;
    let body = request(&vendor.base_url(), &json!({}));
    let wrong = ["", "Bearer", "Bearer wrong", "Basic runtime-canary-0123456789", SECRET];
    for authorization in wrong {
        let request = runtime.request("POST", "/chat").header("authorization", authorization).json(&body);
        let response = request.send().await.expect("an answer");
        assert_eq!(response.headers()["www-authenticate"], "Bearer");
        expect_problem(response, 401, "UNAUTHENTICATED").await;
    }
    expect_problem(post(&runtime, &body).await, 401, "UNAUTHENTICATED").await;
    // Without authorization, an invalid body is not reported.
    expect_problem(post(&runtime, &json!({})).await, 401, "UNAUTHENTICATED").await;
    assert!(vendor.received().is_empty());
    for path in ["/health", "/livez", "/readyz"] {
        assert_eq!(runtime.request("GET", path).send().await.expect("an answer").status(), 200, "{path}");
    }
    let request = runtime.request("POST", "/chat").bearer_auth(SECRET).json(&body);
    answered_run(request.send().await.expect("an answer")).await;
    let mut twice = reqwest::header::HeaderMap::new();
    for _ in 0..2 {
        twice.append("authorization", format!("Bearer {SECRET}").parse().expect("a header"));
    }
    let response = runtime.request("POST", "/chat").headers(twice).json(&body).send().await;
    expect_problem(response.expect("an answer"), 400, "AMBIGUOUS_CREDENTIALS").await;
}

#[tokio::test]
async fn the_framings_are_the_application_s() {
    let vendor = Vendor::start().await;
    let runtime = server::runtime(&[]).await;
    let body = request(&vendor.base_url(), &json!({"context": {"threadId": "t-1", "runId": "r-1"}}));
    for (query, content_type) in [
        ("", "application/x-ndjson"),
        ("?format=sse", "text/event-stream"),
        ("?format=ui-message", "text/event-stream"),
        ("?format=n8n", "text/plain; charset=utf-8"),
        ("?format=json", "application/json"),
    ] {
        let result = runtime.request("POST", &format!("/chat{query}")).json(&body).send().await;
        let response = result.expect("an answer");
        assert_eq!(
            (response.status().as_u16(), &response.headers()["content-type"]),
            (200, &content_type.parse().expect("a header"))
        );
        let text = response.text().await.expect("a whole body");
        if query == "?format=json" {
            let object: Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!(object["output"], "hello world");
            assert_eq!((&object["threadId"], &object["runId"]), (&json!("t-1"), &json!("r-1")));
        }
    }
    let response = runtime.request("POST", "/chat?format=xml").json(&body).send().await;
    expect_problem(response.expect("an answer"), 400, "INVALID_REQUEST").await;
    let response = runtime.request("POST", "/chat").header("accept", "text/html").json(&body).send().await;
    expect_problem(response.expect("an answer"), 406, "NOT_ACCEPTABLE").await;
}

#[tokio::test]
async fn bodies_are_bounded_as_the_application_s_are() {
    let runtime = server::runtime(&[("BODY_LIMIT_BYTES", "2048")]).await;
    let post = |content_type: &'static str, body: String| {
        runtime.request("POST", "/chat").header("content-type", content_type).body(body).send()
    };
    let json = "application/json";
    for (content_type, body, status, code) in [
        (json, String::new(), 400, "INVALID_REQUEST"),
        (json, "[]".to_owned(), 400, "INVALID_REQUEST"),
        (json, format!("{}{}", "[".repeat(65), "]".repeat(65)), 400, "INVALID_REQUEST"),
        (json, "x".repeat(2049), 413, "PAYLOAD_TOO_LARGE"),
        ("text/plain", "{}".to_owned(), 415, "UNSUPPORTED_MEDIA_TYPE"),
    ] {
        expect_problem(post(content_type, body).await.expect("an answer"), status, code).await;
    }
}
