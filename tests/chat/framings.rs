//! Response framings of the chat endpoint: content negotiation and the format of each.

use reqwest::header::ACCEPT;
use serde_json::{Value, json};

use crate::support::control::ControlledVendor;
use crate::support::server::{self, Server, session_token};
use crate::support::vendor::{Vendor, answer, delta, finish, stream_head, tool_calls};
use crate::support::{expect_problem, parse_run, read_until, text_of, workspace};

async fn ask(app: &Server, query: &str, accept: Option<&str>) -> reqwest::Response {
    let mut request = app.request("POST", &format!("/api/agent/chat{query}"));
    if let Some(accept) = accept {
        request = request.header(ACCEPT, accept);
    }
    let body = json!({"agentId": "a1", "message": "Hello"});
    request.bearer_auth(session_token("u1", "c1")).json(&body).send().await.expect("an answer")
}

#[tokio::test]
async fn the_query_or_the_accept_header_chooses() {
    const NDJSON: &str = "application/x-ndjson";
    const SSE: &str = "text/event-stream";
    const JSON: &str = "application/json";
    let cases = [
        ("", None, NDJSON),
        ("", Some("*/*"), NDJSON),
        ("", Some(""), NDJSON),
        ("", Some(NDJSON), NDJSON),
        ("", Some(SSE), SSE),
        ("", Some(JSON), JSON),
        ("", Some("application/json, text/plain, */*"), NDJSON),
        ("", Some("application/json, text/event-stream"), SSE),
        ("", Some("application/json;q=0.9, text/event-stream;q=0.8"), JSON),
        ("", Some("text/event-stream;q=0.5, application/x-ndjson;q=0.4"), SSE),
        ("", Some("application/x-ndjson;q=0, */*"), SSE),
        ("?format=ndjson", Some(SSE), NDJSON),
        ("?format=sse", None, SSE),
        ("?format=sse", Some("text/html"), SSE),
        ("?format=ui-message", Some(JSON), SSE),
        ("?format=n8n", Some("text/plain"), "text/plain; charset=utf-8"),
        ("?format=json", None, JSON),
    ];
    let vendor = Vendor::start().await;
    let app = server::app(&workspace(&vendor.base_url(), "m"), &[]).await;
    for (query, accept, expected) in cases {
        let response = ask(&app, query, accept).await;
        assert_eq!(response.status(), 200, "{query} {accept:?}");
        let headers = response.headers();
        assert_eq!(headers["content-type"], expected, "{query} {accept:?}");
        assert_eq!(headers["cache-control"], "no-cache, no-store");
        let varies = headers["vary"].to_str().expect("text");
        assert!(varies.split(", ").any(|name| name == "Accept"), "{varies}");
        assert!(headers.contains_key("x-request-id"));
        let streamed = headers.get("x-accel-buffering").is_some_and(|value| value == "no");
        assert_eq!(streamed, expected != JSON, "{query} {accept:?}");
        let ui_message = headers.get("x-vercel-ai-ui-message-stream").is_some_and(|value| value == "v1");
        assert_eq!(ui_message, query == "?format=ui-message", "{query} {accept:?}");
        response.bytes().await.expect("a whole body");
    }
}

#[tokio::test]
async fn an_unknown_framing_is_refused_before_the_model_is_called() {
    let vendor = Vendor::start().await;
    let app = server::app(&workspace(&vendor.base_url(), "m"), &[]).await;
    for accept in ["text/html", "image/*", "*/*;q=0", "application/json;q=0"] {
        let problem = expect_problem(ask(&app, "", Some(accept)).await, 406, "NOT_ACCEPTABLE").await;
        let detail = problem["detail"].as_str().expect("text");
        for there_is in ["application/x-ndjson", "text/event-stream", "application/json"] {
            assert!(detail.contains(there_is), "{detail}");
        }
    }
    for query in ["?format=xml", "?format=", "?format=SSE", "?format=sse&format=json"] {
        let problem = expect_problem(ask(&app, query, None).await, 400, "INVALID_REQUEST").await;
        assert!(problem["detail"].as_str().expect("text").contains("format"), "{problem}");
    }
    assert!(vendor.received().is_empty());
}

#[tokio::test]
async fn ndjson_has_one_event_per_line() {
    let vendor = Vendor::start().await;
    let app = server::app(&workspace(&vendor.base_url(), "m"), &[]).await;
    let body = json!({"agentId": "a1", "message": "Hello", "threadId": "t-1", "runId": "r-1"});
    let body = app.chat(&body).await.text().await.expect("a whole body");
    assert!(body.ends_with('\n'));
    let events = parse_run(&body);
    assert_eq!(events[0], json!({"type": "RUN_STARTED", "threadId": "t-1", "runId": "r-1"}));
    assert_eq!(events[1]["type"], "CUSTOM");
    assert_eq!(events[1]["name"], "agent.prompt");
    assert_eq!(text_of(&events), "hello world");
    assert_eq!(
        events.last(),
        Some(&json!({"type": "RUN_FINISHED", "threadId": "t-1", "runId": "r-1",
            "result": {"finishReason": "stop"},
            "usage": [{"provider": "openai", "model": "fake-1", "inputTokens": 11, "outputTokens": 7}]}))
    );
    assert!(!body.contains("null"), "absent fields are omitted: {body}");
}

#[tokio::test]
async fn server_sent_events_are_the_same_events_with_numbers() {
    let vendor = Vendor::start().await;
    let app = server::app(&workspace(&vendor.base_url(), "m"), &[]).await;
    let lines = ask(&app, "", None).await.text().await.expect("a whole body");
    let frames = ask(&app, "?format=sse", None).await.text().await.expect("a whole body");
    let frames: Vec<&str> = frames.strip_suffix("\n\n").expect("a last frame").split("\n\n").collect();
    let types = parse_run(&lines).into_iter().map(|event| event["type"].clone()).collect::<Vec<_>>();
    assert_eq!(frames.len(), types.len());
    for (number, (frame, expected)) in frames.iter().zip(types).enumerate() {
        let data = frame.strip_prefix(&format!("id: {number}\ndata: ")).expect(frame);
        let event: Value = serde_json::from_str(data).expect(data);
        assert_eq!(event["type"], expected);
    }
}

#[tokio::test]
async fn a_ui_message_stream_ends_in_done() {
    let vendor = Vendor::start().await;
    vendor.on("m", [tool_calls(&[("c1", "readTodos", "{}")]), answer(&["hello ", "world"])]);
    let app = server::app(&workspace(&vendor.base_url(), "m"), &[]).await;
    let session = session_token("u1", "c1");
    let body = json!({"agentId": "a1", "message": "Hello", "runId": "r-1", "todoListId": "l1"});
    let response = app.chat_as(&session, "?format=ui-message", &body).await;
    let body = response.text().await.expect("a whole body");
    let frames = body.strip_suffix("data: [DONE]\n\n").expect("the end mark");
    let frames = frames.split_terminator("\n\n");
    let chunks: Vec<Value> = frames
        .map(|frame| frame.strip_prefix("data: ").expect(frame))
        .map(|data| serde_json::from_str(data).expect(data))
        .collect();
    assert_eq!(chunks[0]["type"], "start");
    assert_eq!(chunks[0]["messageId"], "r-1");
    assert_eq!(chunks.last().expect("a chunk")["type"], "finish");
    let of = |kind: &'static str| chunks.iter().filter(move |chunk| chunk["type"] == kind);
    let text: String = of("text-delta").map(|chunk| chunk["delta"].as_str().expect("text")).collect();
    assert_eq!(text, "hello world");
    let input = of("tool-input-available").next().expect("a call");
    assert_eq!((&input["toolCallId"], &input["toolName"]), (&json!("c1"), &json!("readTodos")));
    let output = of("tool-output-available").next().expect("a result");
    assert!(output["output"].to_string().contains("Water the basil"), "{output}");
}

#[tokio::test]
async fn the_json_object_has_the_outcome_of_the_run() {
    let vendor = Vendor::start().await;
    let calls = [("c1", "readTodos", "{}"), ("c2", "createTodo", r#"{"title":""}"#)];
    let mut first = tool_calls(&calls);
    first.insert(1, delta(json!({"content": "Let me see."})));
    let mut last = vec![stream_head(), delta(json!({"content": "Two things"}))];
    last.extend(finish("length"));
    vendor.on("m", [first, last]);
    let app = server::app(&workspace(&vendor.base_url(), "m"), &[]).await;
    let body =
        json!({"agentId": "a1", "message": "Hello", "todoListId": "l1", "threadId": "t-1", "runId": "r-1"});
    let response = app.chat_as(&session_token("u1", "c1"), "?format=json", &body).await;
    let object: Value = response.json().await.expect("JSON");
    let names: Vec<&str> = object.as_object().expect("an object").keys().map(String::as_str).collect();
    assert_eq!(names, ["threadId", "runId", "output", "toolCalls", "usage", "finishReason"]);
    assert_eq!((&object["threadId"], &object["runId"]), (&json!("t-1"), &json!("r-1")));
    assert_eq!(object["output"], "Let me see.\n\nTwo things");
    assert_eq!(object["finishReason"], "length");
    let usage = json!([{"provider": "openai", "model": "fake-1", "inputTokens": 22, "outputTokens": 14}]);
    assert_eq!(object["usage"], usage);
    let [read, create] = &object["toolCalls"].as_array().expect("calls")[..] else {
        panic!("two calls: {object}")
    };
    assert_eq!((&read["id"], &read["type"]), (&json!("c1"), &json!("function")));
    assert_eq!(read["function"], json!({"name": "readTodos", "arguments": "{}"}));
    assert!(read["result"].as_str().expect("a result").contains("Water the basil"));
    assert_eq!(read.get("isError"), None);
    assert_eq!(create["isError"], true, "{create}");
}

#[tokio::test]
async fn a_failed_run_as_one_object_is_a_problem_with_the_failure_s_status() {
    let vendor = Vendor::start().await;
    let cut = vec![stream_head(), delta(json!({"content": "Half"})), crate::support::vendor::last_chunk()];
    vendor.on("cut", [cut]);
    vendor.on("loop", [tool_calls(&[("c1", "readTodos", "{}")])]);
    for (model, code) in [("cut", "STREAM_TRUNCATED"), ("loop", "TOOL_LOOP_LIMIT")] {
        let app = server::app(&workspace(&vendor.base_url(), model), &[("TOOL_ROUNDS", "2")]).await;
        expect_problem(ask(&app, "?format=json", None).await, 502, code).await;
        let events = parse_run(&ask(&app, "", None).await.text().await.expect("a whole body"));
        let end = events.last().expect("an end");
        assert_eq!((&end["type"], &end["code"]), (&json!("RUN_ERROR"), &json!(code)));
    }
}

#[tokio::test]
async fn each_event_is_sent_without_delay() {
    let vendor = ControlledVendor::start().await;
    let app = server::app(&workspace(&vendor.base_url(), "held"), &[]).await;
    let mut waiting = Vec::new();
    for (format, first) in [
        ("ndjson", r#""delta":"first"}"#),
        ("sse", r#""delta":"first"}"#),
        ("ui-message", r#""delta":"first"}"#),
        ("n8n", r#""content":"first""#),
    ] {
        let mut response = ask(&app, &format!("?format={format}"), None).await;
        let body = read_until(&mut response, first).await;
        assert!(!body.contains(" last"));
        waiting.push(response);
    }
    // Every first delta has arrived while the vendor withholds the rest of its answer, so it may be released.
    vendor.release();
    for mut response in waiting {
        let mut later_text = String::new();
        while let Some(chunk) = response.chunk().await.expect("more") {
            later_text.push_str(std::str::from_utf8(&chunk).expect("UTF-8"));
        }
        assert!(later_text.contains(" last"), "{later_text}");
    }
}
