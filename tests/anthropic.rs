//! Anthropic's Messages API as a backend of embedded agents, against a vendor whose requests are checked strictly.

use serde_json::{Value, json};

use crate::conversations::call_as;
use crate::support::messages_vendor::{
    call_block, check_request, message, message_event, message_start, text_block, thinking_block,
};
use crate::support::server::{self, Server, session_token};
use crate::support::vendor::{ReceivedRequest, Step, Vendor, answer, json_response, last_chunk, stream_head};
use crate::support::{expect_problem, parse_run, poll_until, workspace};

const KEY: &str = "role-key-canary";
const MODEL: &str = "claude-sonnet-4-5";

/// Starts an application whose agent `a1` is answered by `vendor`, with more members of its container.
async fn start(vendor: &Vendor, container: Value) -> Server {
    start_with(vendor, json!({}), container).await
}

/// As [`start`], with more members of the agent's content too.
async fn start_with(vendor: &Vendor, of_agent: Value, container: Value) -> Server {
    let mut workspace = workspace(&vendor.base_url(), MODEL);
    for (name, value) in of_agent.as_object().expect("an object") {
        workspace["agents"][0]["content"][name] = value.clone();
    }
    let content = &mut workspace["agents"][0]["children"][0]["content"];
    content["provider"] = json!("anthropic");
    for (name, value) in container.as_object().expect("an object") {
        content[name] = value.clone();
    }
    server::app(&workspace, &[]).await
}

fn body(message: &str) -> Value {
    json!({"agentId": "a1", "message": message, "threadId": "t", "todoListId": "l1"})
}

async fn run(app: &Server, message: &str) -> Vec<Value> {
    let response = app.chat(&body(message)).await;
    let status = response.status();
    let text = response.text().await.expect("a whole body");
    assert_eq!(status, 200, "{text}");
    parse_run(&text)
}

fn text_of(events: &[Value]) -> String {
    events
        .iter()
        .filter(|event| event["type"] == "TEXT_MESSAGE_CONTENT")
        .filter_map(|event| event["delta"].as_str())
        .collect()
}

/// Checks all requests, and returns their bodies.
fn checked(vendor: &Vendor) -> Vec<Value> {
    let received = vendor.received();
    received.iter().for_each(|request| check_request(request, KEY));
    received.iter().map(|request| request.json()).collect()
}

#[tokio::test]
async fn a_turn_thinks_calls_two_tools_and_answers() {
    let vendor = Vendor::start().await;
    let calls = [
        thinking_block(0, "Both at once.", "sig-1"),
        text_block(1, "I look."),
        call_block(2, "toolu_1", "readTodos", "{}"),
        call_block(3, "toolu_2", "createTodo", r#"{"title":"Milk"}"#),
    ];
    let last = message([thinking_block(0, "Done.", "sig-2"), text_block(1, "It is noted.")], "end_turn");
    let next = message([text_block(0, "Welcome.")], "end_turn");
    vendor.on(MODEL, [message(calls, "tool_use"), last, next]);
    let app = start(&vendor, json!({"enableThinking": true})).await;
    let events = run(&app, "Note milk.").await;
    assert_eq!(text_of(&events), "I look.It is noted.");
    assert_eq!(events.iter().filter(|event| event["type"] == "TOOL_CALL_RESULT").count(), 2);
    let bodies = checked(&vendor);
    assert_eq!(bodies.len(), 2);
    assert!(
        bodies[0]["thinking"]["budget_tokens"].as_u64().is_some_and(|tokens| tokens >= 1024),
        "{}",
        bodies[0]
    );
    // The answer goes back as it came, with the signature, and the results follow in one message.
    let messages = bodies[1]["messages"].as_array().expect("messages");
    let kinds = |message: &Value| -> Vec<String> {
        let blocks = message["content"].as_array().expect("blocks");
        blocks.iter().map(|block| block["type"].as_str().expect("a type").to_owned()).collect()
    };
    let [.., assistant_message, results] = &messages[..] else { panic!("two messages") };
    assert_eq!(kinds(assistant_message), ["thinking", "text", "tool_use", "tool_use"]);
    assert_eq!(
        (&assistant_message["content"][0]["thinking"], &assistant_message["content"][0]["signature"]),
        (&json!("Both at once."), &json!("sig-1"))
    );
    assert_eq!(assistant_message["content"][3]["input"], json!({"title": "Milk"}));
    assert_eq!(kinds(results), ["tool_result", "tool_result"]);
    // The prefix up to the first breakpoint holds over rounds and turns.
    run(&app, "Thanks!").await;
    let bodies = checked(&vendor);
    for name in ["tools", "system"] {
        assert!(bodies.iter().all(|body| body[name] == bodies[0][name]), "{name} changes");
    }
    // The tokens are booked as the vendor counts them, for the model whose price is known.
    let run_id = events[0]["runId"].as_str().expect("a run");
    let fetch = async || {
        let path = format!("/api/usage/runs/{run_id}");
        call_as(&app, &session_token("u1", "c1"), "GET", &path, None).await.1
    };
    let usage =
        poll_until(fetch, |usage| usage["entries"].as_array().is_some_and(|found| found.len() == 2)).await;
    let entry = &usage["entries"][0];
    assert_eq!((&entry["provider"], &entry["model"]), (&json!("anthropic"), &json!(MODEL)), "{usage}");
    for (name, tokens) in [
        ("inputTokens", 56),
        ("cachedInputTokens", 40),
        ("cacheWriteTokens", 10),
        ("outputTokens", 18),
        ("reasoningTokens", 8),
    ] {
        assert_eq!(usage[name], tokens, "{name}: {usage}");
    }
}

#[tokio::test]
async fn the_preview_shows_the_request() {
    let vendor = Vendor::start().await;
    vendor.on(MODEL, [message([text_block(0, "Hi.")], "end_turn")]);
    let parameters = json!({"temperature": 0.5, "topK": 9, "stopSequences": ["END"], "seed": 1});
    let app = start(&vendor, json!({"parameters": parameters})).await;
    let request = json!({"agentId": "a1", "message": "Hello", "todoListId": "l1"});
    let token = session_token("u1", "c1");
    let (status, shown) =
        call_as(&app, &token, "POST", "/api/svcchat/previewPrompt", Some(request.clone())).await;
    assert_eq!(status, 200, "{shown}");
    assert_eq!(shown["attempts"][0]["ignoredParameters"], json!(["seed"]));
    assert_eq!(shown["budget"]["tokenCounter"], "claude", "{shown}");
    assert_eq!(app.chat(&request).await.status(), 200);
    let bodies = checked(&vendor);
    assert_eq!(bodies[0], shown["payload"]);
    let sent = [&bodies[0]["temperature"], &bodies[0]["top_k"], &bodies[0]["stop_sequences"]];
    assert_eq!(sent, [&json!(0.5), &json!(9), &json!(["END"])]);
    assert!(!shown.to_string().contains(KEY));
}

#[tokio::test]
async fn parameters_that_a_thinking_model_refuses_are_reported_and_not_sent() {
    let vendor = Vendor::start().await;
    vendor.on(MODEL, [message([text_block(0, "Hi.")], "end_turn")]);
    let parameters = json!({"temperature": 0.5, "topK": 9, "stopSequences": ["END"]});
    let app = start(&vendor, json!({"enableThinking": true, "parameters": parameters})).await;
    let token = session_token("u1", "c1");
    let request = json!({"agentId": "a1", "message": "Hello"});
    let (status, shown) = call_as(&app, &token, "POST", "/api/svcchat/previewPrompt", Some(request)).await;
    assert_eq!(status, 200, "{shown}");
    let refused = json!(["temperature", "topK"]);
    assert_eq!(shown["attempts"][0]["ignoredParameters"], refused, "{shown}");
    let events = run(&app, "Hello").await;
    let notice =
        events.iter().find(|event| event["value"]["kind"] == "parametersIgnored").expect("the event");
    assert_eq!(notice["value"]["parameters"], refused);
    let sent = checked(&vendor).remove(0);
    assert_eq!((sent.get("temperature"), sent.get("top_k")), (None, None));
    assert_eq!(sent["stop_sequences"], json!(["END"]));
    // Saving warns of them.
    let (_, agent) = call_as(&app, &token, "GET", "/api/agents/a1", None).await;
    let (status, saved) = call_as(&app, &token, "PUT", "/api/agents/a1", Some(agent)).await;
    assert_eq!(status, 200, "{saved}");
    for name in ["temperature", "topK"] {
        assert!(saved.to_string().contains(&format!("children[0].content.parameters.{name}")), "{saved}");
    }
}

#[tokio::test]
async fn reasoning_beyond_the_answers_limit_is_reported_and_not_sent() {
    let vendor = Vendor::start().await;
    vendor.on(MODEL, [message([text_block(0, "Hi.")], "end_turn")]);
    let parameters = json!({"temperature": 0.5, "reasoning": "high"});
    let app =
        start_with(&vendor, json!({"maxOutputTokens": 1500}), json!({ "parameters": parameters })).await;
    let token = session_token("u1", "c1");
    let request = json!({"agentId": "a1", "message": "Hello"});
    let (status, shown) = call_as(&app, &token, "POST", "/api/svcchat/previewPrompt", Some(request)).await;
    assert_eq!(status, 200, "{shown}");
    assert_eq!(shown["attempts"][0]["ignoredParameters"], json!(["reasoning"]), "{shown}");
    let events = run(&app, "Hello").await;
    let notice =
        events.iter().find(|event| event["value"]["kind"] == "parametersIgnored").expect("the event");
    assert_eq!(notice["value"]["parameters"], json!(["reasoning"]));
    let sent = checked(&vendor).remove(0);
    assert_eq!((sent.get("thinking"), &sent["temperature"]), (None, &json!(0.5)));
    // Saving warns of it.
    let (_, agent) = call_as(&app, &token, "GET", "/api/agents/a1", None).await;
    let (status, saved) = call_as(&app, &token, "PUT", "/api/agents/a1", Some(agent)).await;
    assert_eq!(status, 200, "{saved}");
    assert!(saved.to_string().contains("children[0].content.parameters.reasoning"), "{saved}");
}

fn failure(status: &str, headers: &str, kind: &str) -> Vec<Step> {
    let body = json!({"type": "error", "error": {"type": kind, "message": "planted words"}}).to_string();
    json_response(status, headers, &body)
}

/// An error in a stream that has started with these steps.
fn failing(steps: Vec<Step>, kind: &str) -> Vec<Step> {
    let error = message_event(&json!({"type": "error", "error": {"type": kind, "message": "planted words"}}));
    [vec![stream_head(), message_start()], steps, vec![error, last_chunk()]].concat()
}

#[tokio::test]
async fn failures_have_their_codes() {
    let vendor = Vendor::start().await;
    let app = start(&vendor, json!({})).await;
    for (script, status, code) in [
        (failure("429 Too Many Requests", "retry-after: 7\r\n", "rate_limit_error"), 429, "RATE_LIMITED"),
        (failure("400 Bad Request", "", "invalid_request_error"), 502, "BACKEND_FAILED"),
        (failure("401 Unauthorized", "", "authentication_error"), 502, "BACKEND_FAILED"),
        (failure("529 Overloaded", "", "overloaded_error"), 502, "BACKEND_FAILED"),
    ] {
        vendor.on(MODEL, [script]);
        let response = app.chat(&json!({"agentId": "a1", "message": "Hello", "store": false})).await;
        let problem = expect_problem(response, status, code).await;
        assert!(!problem.to_string().contains("planted"), "{problem}");
    }
    // Once text is shown, the run ends with one error.
    vendor.on(MODEL, [failing(text_block(0, "Partly"), "overloaded_error")]);
    let events = run(&app, "Hello").await;
    assert_eq!(
        (text_of(&events), &events.last().expect("an end")["type"]),
        ("Partly".to_owned(), &json!("RUN_ERROR"))
    );
    checked(&vendor);
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_booked_by_what_has_arrived() {
    let vendor = Vendor::start().await;
    vendor.on(MODEL, [failing(text_block(0, &"twelve bytes".repeat(100)), "overloaded_error")]);
    let app = start(&vendor, json!({})).await;
    let events = run(&app, "Hello").await;
    assert_eq!(events.last().expect("an end")["type"], "RUN_ERROR");
    let path = format!("/api/usage/runs/{}", events[0]["runId"].as_str().expect("a run"));
    let fetch = async || call_as(&app, &session_token("u1", "c1"), "GET", &path, None).await.1;
    let usage = poll_until(fetch, |usage| usage["entries"][0].is_object()).await;
    // The vendor says at the beginning of an answer that it has one token.
    let call = &usage["entries"][0];
    assert_eq!((&call["outputTokens"], &call["estimated"]), (&json!(300), &json!(true)), "{usage}");
    assert_eq!((&call["inputTokens"], &call["cachedInputTokens"]), (&json!(28), &json!(20)), "{usage}");
}

#[tokio::test]
async fn another_model_answers_before_the_first_content() {
    let other = Vendor::start().await;
    other.on("m", [answer(&["From the other."])]);
    let fallback = json!({"provider": "openai", "model": "m", "baseUrl": other.base_url(), "apiKey": "k"});
    for script in [
        failure("529 Overloaded", "", "overloaded_error"),
        failure("500 Internal Server Error", "", "api_error"),
        failure("401 Unauthorized", "", "authentication_error"),
        failing(vec![], "overloaded_error"),
        failing(vec![message_event(&json!({"type": "ping"}))], "api_error"),
        // A stream that ends before its content.
        vec![stream_head(), message_start(), last_chunk()],
        vec![stream_head(), message_start(), Step::Reset],
    ] {
        let vendor = Vendor::start().await;
        vendor.on(MODEL, [script]);
        let app = start(&vendor, json!({"fallbacks": [fallback]})).await;
        assert_eq!(text_of(&run(&app, "Hello").await), "From the other.");
        checked(&vendor);
    }
}

#[tokio::test]
async fn a_fallback_gets_no_thinking_of_another_model() {
    let vendor = Vendor::start().await;
    let calls = [thinking_block(0, "Look first.", "sig-1"), call_block(1, "toolu_1", "readTodos", "{}")];
    vendor.on(MODEL, [message(calls, "tool_use"), failure("529 Overloaded", "", "overloaded_error")]);
    vendor.on("claude-opus-5", [message([text_block(0, "Done.")], "end_turn")]);
    let fallback = json!({"provider": "anthropic", "model": "claude-opus-5", "baseUrl": vendor.base_url(),
        "apiKey": KEY});
    let container = json!({"enableThinking": true, "retry": {"maxAttempts": 1}, "fallbacks": [fallback]});
    let app = start(&vendor, container).await;
    assert_eq!(text_of(&run(&app, "Hello").await), "Done.");
    let bodies = checked(&vendor);
    let [_, own, other] = &bodies[..] else { panic!("{} requests", bodies.len()) };
    assert_eq!((&own["model"], &other["model"]), (&json!(MODEL), &json!("claude-opus-5")));
    // The API rejects a signature of another model.
    assert!(own["messages"].to_string().contains("sig-1"), "{own}");
    assert!(!other["messages"].to_string().contains("sig-1"), "{other}");
    assert!(other["messages"].to_string().contains("toolu_1"), "{other}");
}

#[test]
fn the_vendor_refuses_what_the_api_refuses() {
    let request = |change: fn(&mut Value)| {
        let cached = json!({"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}});
        let mut body = json!({"model": MODEL, "max_tokens": 9, "stream": true,
            "messages": [{"role": "user", "content": [cached]}]});
        change(&mut body);
        let head =
            format!("POST /v1/messages HTTP/1.1\r\nx-api-key: {KEY}\r\nanthropic-version: 2023-06-01\r\n");
        ReceivedRequest { head, body: body.to_string().into_bytes() }
    };
    check_request(&request(|_| {}), KEY);
    let call = |body: &mut Value| {
        let call = json!({"type": "tool_use", "id": "1", "name": "x", "input": {}});
        body["messages"]
            .as_array_mut()
            .expect("messages")
            .push(json!({"role": "assistant", "content": [call]}));
    };
    let faults: [fn(&mut Value); 8] = [
        |body| body["max_tokens"] = json!(0),
        |body| body["messages"][0]["role"] = json!("assistant"),
        |body| body["messages"][0]["content"][0]["text"] = json!(" "),
        |body| body["seed"] = json!(7),
        |body| body["temperature"] = json!(1.5),
        |body| {
            body["temperature"] = json!(0.5);
            body["top_p"] = json!(0.5);
        },
        |body| {
            body["thinking"] = json!({"type": "adaptive"});
            body["top_k"] = json!(9);
        },
        |body| body["thinking"] = json!({"type": "enabled", "budget_tokens": 9}),
    ];
    let is_refused =
        |request: ReceivedRequest| std::panic::catch_unwind(|| check_request(&request, KEY)).is_err();
    let accepted: Vec<usize> =
        (0..faults.len()).filter(|index| !is_refused(request(faults[*index]))).collect();
    assert_eq!(accepted, Vec::<usize>::new());
    assert!(is_refused(request(call)), "the call has no result");
}

#[tokio::test]
async fn a_missing_key_names_its_setting() {
    let mut workspace = workspace("http://unused.example/v1", MODEL);
    workspace["agents"][0]["children"][0]["content"] = json!({"provider": "anthropic"});
    let app = server::app(&workspace, &[]).await;
    let problem = expect_problem(app.chat(&body("Hello")).await, 503, "NOT_CONFIGURED").await;
    assert!(
        problem["detail"].as_str().is_some_and(|detail| detail.contains("ANTHROPIC_API_KEY")),
        "{problem}"
    );
}
