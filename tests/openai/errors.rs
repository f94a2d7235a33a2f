//! Credentials, limits, and the shape of errors.

use std::num::NonZeroU32;
use std::time::Duration;

use agent_platform::token::{Grant, McpGrant, NewToken, RunCaps, Tokens, WidgetGrant};
use serde_json::{Value, json};

use super::{OpenAiApp, client_tools, expect_error, expect_json, mint};
use crate::support::server::{self, INTERNAL_SECRET, session_token};
use crate::support::vendor::{Step, answer, delta, json_response, stream_head, tool_calls};
use crate::support::{client, expect_problem, workspace};
use crate::tools::select_runtime;

fn tokens(test: &OpenAiApp) -> Tokens {
    Tokens::new(test.stores.records.clone(), std::sync::Arc::new(agent_core::clock::SystemClock))
}

#[tokio::test]
async fn only_api_tokens_are_accepted() {
    let test = OpenAiApp::start().await;
    let minted =
        async |grant| tokens(&test).mint(NewToken::new("c1", "a1", grant)).await.expect("minted").text;
    let widget = minted(Grant::Widget(WidgetGrant::default())).await;
    let mcp = minted(Grant::Mcp(McpGrant { user_id: "u1".into(), ..McpGrant::default() })).await;
    let revoked = mint(&test.stores, &["a1"], None, None).await;
    let id = tokens(&test).find(&revoked).await.expect("found").id;
    assert!(tokens(&test).revoke(&id, None).await.expect("the store works"));
    let mut forged = test.token.clone();
    forged.replace_range(60..64, if &forged[60..64] == "AAAA" { "BBBB" } else { "AAAA" });
    let session = session_token("u1", "c1");
    for token in [
        widget.expose(),
        mcp.expose(),
        &session,
        INTERNAL_SECRET,
        &revoked,
        &forged,
        &test.token[..40],
        "aga_",
    ] {
        let error = expect_error(test.send_with(token, json!({}), &[]).await, 401, "invalid_api_key").await;
        assert_eq!((&error["type"], &error["param"]), (&json!("authentication_error"), &Value::Null));
        let request = test.app.request("GET", "/v1/models").bearer_auth(token);
        expect_error(request.send().await.expect("an answer"), 401, "invalid_api_key").await;
    }
    // Nor is a cookie, or nothing.
    let own_origin = format!("http://{}", test.app.address);
    let cookie = format!("agent_session={session}");
    let request = test.app.request("GET", "/v1/models").header("origin", own_origin).header("cookie", cookie);
    expect_error(request.send().await.expect("an answer"), 401, "invalid_api_key").await;
    let request = test.app.request("GET", "/v1/models");
    let response = request.send().await.expect("an answer");
    assert_eq!(response.headers()["www-authenticate"], "Bearer");
    expect_error(response, 401, "invalid_api_key").await;
    for name in ["x-widget-token", "x-proactive-trigger"] {
        let response = test.send(json!({}), &[(name, widget.expose())]).await;
        expect_error(response, 400, "ambiguous_credentials").await;
        // Alone it is the credential of other routes.
        let request = test.app.request("GET", "/v1/models").header(name, widget.expose());
        expect_error(request.send().await.expect("an answer"), 401, "invalid_api_key").await;
    }
    assert!(test.vendor.received().is_empty());
}

#[tokio::test]
async fn an_api_token_is_accepted_nowhere_else() {
    let test = OpenAiApp::start().await;
    for (method, path) in [
        ("GET", "/api/agents"),
        ("GET", "/api/threads"),
        ("GET", "/api/agents/a1/tokens"),
        ("POST", "/api/agent/chat"),
        ("POST", "/api/agent/mcp"),
        ("GET", "/api/usage"),
    ] {
        let request = test.app.request(method, path).bearer_auth(&test.token);
        let request = request.header("accept", "application/json, text/event-stream");
        let response = request.json(&json!({"agentId": "a1", "message": "Hello"})).send().await;
        expect_problem(response.expect("an answer"), 401, "UNAUTHENTICATED").await;
    }
    let request = test.app.request("POST", "/api/agent/chat").header("x-widget-token", &test.token);
    let response = request.json(&json!({"agentId": "a1", "message": "Hello"})).send().await;
    expect_problem(response.expect("an answer"), 401, "UNAUTHENTICATED").await;
}

#[tokio::test]
async fn invalid_requests_name_the_field() {
    let test = OpenAiApp::start().await;
    let image = json!([{"type": "image_url", "image_url": {"url": "ftp://x.example/a.png"}}]);
    for (sent, status, code, param) in [
        (json!({"model": null}), 400, "invalid_request", json!("model")),
        (json!({"messages": []}), 400, "invalid_request", json!("messages")),
        (
            json!({"messages": [{"role": "user", "content": image}]}),
            400,
            "invalid_request",
            json!("messages[0].content[0].image_url.url"),
        ),
        (json!({"n": 2}), 400, "unsupported_parameter", json!("n")),
        (
            json!({"response_format": {"type": "grammar"}}),
            400,
            "unsupported_parameter",
            json!("response_format"),
        ),
        (json!({"model": "a3"}), 404, "model_not_found", json!("model")),
    ] {
        let response = test.send(sent.clone(), &[]).await;
        assert_eq!(response.headers()["x-should-retry"], "false");
        let error = expect_error(response, status, code).await;
        assert_eq!((&error["param"], &error["type"]), (&param, &json!("invalid_request_error")), "{sent}");
    }
    let post = async |content_type: &str, body: String| {
        let request = test.app.request("POST", "/v1/chat/completions").bearer_auth(&test.token);
        request.header("content-type", content_type).body(body).send().await.expect("an answer")
    };
    expect_error(post("application/json", "{".to_owned()).await, 400, "invalid_request").await;
    expect_error(post("text/plain", "{}".to_owned()).await, 415, "unsupported_media_type").await;
    let large = format!(r#"{{"model": "{}"}}"#, "x".repeat(4 << 20));
    expect_error(post("application/json", large).await, 413, "payload_too_large").await;
    let twice = client().post(test.app.url("/v1/chat/completions")).bearer_auth(&test.token);
    let twice = twice.header("x-thread-id", "a").header("x-thread-id", "b").json(&json!({"model": "a1"}));
    let error = expect_error(twice.send().await.expect("an answer"), 400, "invalid_request").await;
    assert_eq!(error["param"], "x-thread-id");
    assert!(test.vendor.received().is_empty());
}

#[tokio::test]
async fn paths_of_the_api_that_do_not_exist_have_its_errors() {
    let test = OpenAiApp::start().await;
    for (method, path, status, code) in [
        ("POST", "/v1/embeddings", 404, "not_found"),
        ("POST", "/v1/responses", 404, "not_found"),
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("DELETE", "/v1/models/a1", 405, "method_not_allowed"),
    ] {
        let request = test.app.request(method, path).bearer_auth(&test.token);
        expect_error(request.send().await.expect("an answer"), status, code).await;
    }
    let request = test.app.request("GET", "/v2/models").send().await.expect("an answer");
    expect_problem(request, 404, "NOT_FOUND").await;
}

#[tokio::test]
async fn each_token_has_its_own_caps() {
    let test = OpenAiApp::start().await;
    let caps = RunCaps { runs_per_minute: NonZeroU32::new(1).expect("a cap"), runs_per_day: None };
    let token = mint(&test.stores, &["a1"], Some(caps), None).await;
    expect_error(test.send_with(&token, json!({"n": 2}), &[]).await, 400, "unsupported_parameter").await;
    expect_json(test.send_with(&token, json!({}), &[]).await).await;
    let response = test.send_with(&token, json!({"stream": true}), &[]).await;
    let headers = response.headers().clone();
    let wait: u64 = headers["retry-after"].to_str().expect("text").parse().expect("seconds");
    assert!((1..=60).contains(&wait), "{wait}");
    assert!(headers.get("x-should-retry").is_none(), "the packages wait and send it again");
    let error = expect_error(response, 429, "rate_limit_exceeded").await;
    assert_eq!(error["type"], "rate_limit_error");
    // Another token of the same user.
    test.complete(json!({})).await;
    assert_eq!(test.vendor.received().len(), 2);
}

/// Sets the budget of the token with a text.
async fn put_budget(test: &OpenAiApp, token: &str, limit: Value) {
    let id = tokens(test).find(token).await.expect("a token").id;
    let request = test.app.request("PUT", &format!("/api/budgets/token/{id}"));
    let request = request.bearer_auth(session_token("boss", "c1")).json(&json!({"limits": [limit]}));
    assert_eq!(request.send().await.expect("an answer").status(), 201);
}

#[tokio::test]
async fn a_token_has_a_budget() {
    let test = OpenAiApp::start().await;
    let limited = mint(&test.stores, &["a1"], None, None).await;
    put_budget(&test, &limited, json!({"unit": "tokens", "amount": 1, "window": "day"})).await;
    for is_stream in [false, true] {
        let response = test.send_with(&limited, json!({"stream": is_stream}), &[]).await;
        let error = expect_error(response, 402, "budget_exceeded").await;
        assert!(error["message"].as_str().is_some_and(|message| message.contains("token")), "{error}");
    }
    assert!(test.vendor.received().is_empty());
    test.complete(json!({})).await;
}

#[tokio::test]
async fn tool_calls_of_a_runtime_count_for_the_tokens_budget() {
    let (test, runtime) = (OpenAiApp::start().await, server::runtime(&[]).await);
    let mut agent = workspace(&test.vendor.base_url(), "m")["agents"][0].clone();
    select_runtime(&mut agent, &runtime, &test.vendor);
    let put = test.app.request("PUT", "/api/agents/a1").bearer_auth(session_token("u1", "c1"));
    assert_eq!(put.json(&agent).send().await.expect("an answer").status(), 200);
    let token = mint(&test.stores, &["a1"], None, None).await;
    put_budget(&test, &token, json!({"unit": "toolCalls", "amount": 1, "window": "day"})).await;
    let calls = [("c1", "readTodos", "{}"), ("c2", "readTodos", "{}")];
    for (token, refused) in [(&token, 1), (&test.token, 0)] {
        test.vendor.on("m", [tool_calls(&calls), answer(&["Done."])]);
        expect_json(test.send_with(token, json!({}), &[]).await).await;
        let request_text = test.vendor.received_bodies("m").pop().expect("a request")["messages"].to_string();
        assert_eq!(request_text.matches("budget").count(), refused, "{request_text}");
    }
}

#[tokio::test]
async fn a_token_ends_with_its_time() {
    let test = OpenAiApp::start().await;
    let lasting = mint(&test.stores, &["a1"], None, Some(Duration::from_secs(3600))).await;
    expect_json(test.send_with(&lasting, json!({}), &[]).await).await;
    let clock = agent_core::testing::ManualClock::new();
    let early = Tokens::new(test.stores.records.clone(), std::sync::Arc::new(clock));
    let grant =
        agent_platform::token::ApiGrant { user_id: "u1".into(), agents: vec!["a1".into()], caps: None };
    let new = NewToken { ttl: Some(Duration::from_secs(3600)), ..NewToken::api("c1", grant) };
    let expired = early.mint(new).await.expect("minted").text;
    expect_error(test.send_with(expired.expose(), json!({}), &[]).await, 401, "invalid_api_key").await;
}

#[tokio::test]
async fn errors_of_the_vendor_before_the_answer_have_their_status() {
    let test = OpenAiApp::start().await;
    let too_long = json!({"error": {"message": "This model's maximum context length is 10 tokens. However, your messages resulted in 20 tokens.",
        "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}});
    test.vendor.on(
        "m",
        [
            json_response("429 Too Many Requests", "retry-after: 7\r\n", "{}"),
            json_response("500 Internal Server Error", "", "{}"),
            json_response("400 Bad Request", "", r#"{"error":{"type":"invalid_request_error"}}"#),
            json_response("400 Bad Request", "", &too_long.to_string()),
        ],
    );
    let limited = test.send(json!({}), &[]).await;
    assert_eq!(limited.headers()["retry-after"], "7");
    expect_error(limited, 429, "rate_limit_exceeded").await;
    let response = test.send(json!({"stream": true}), &[]).await;
    assert!(response.headers().get("x-should-retry").is_none(), "nothing has been carried out");
    expect_error(response, 502, "backend_failed").await;
    let response = test.send(json!({}), &[]).await;
    assert_eq!(response.headers()["x-should-retry"], "false", "the vendor would refuse it again");
    expect_error(response, 502, "backend_failed").await;
    let error = expect_error(test.send(json!({}), &[]).await, 400, "context_length_exceeded").await;
    assert_eq!((&error["type"], &error["param"]), (&json!("invalid_request_error"), &json!("messages")));
}

#[tokio::test]
async fn a_prompt_that_is_too_long_by_the_own_count_has_the_code_of_the_api() {
    for compaction in [json!({"mode": "cut"}), json!({"mode": "off"})] {
        let test = OpenAiApp::start_with(|agent| {
            agent["content"]["contextWindow"] = json!(4096);
            agent["content"]["compaction"] = compaction.clone();
        })
        .await;
        let long = json!({"messages": [{"role": "user", "content": "one more word ".repeat(4096)}]});
        for (is_stream, headers) in [(false, &[][..]), (true, &[][..]), (false, &[("x-thread-id", "t1")][..])]
        {
            let mut sent = long.clone();
            sent["stream"] = json!(is_stream);
            let response = test.send(sent, headers).await;
            assert_eq!(response.headers()["x-should-retry"], "false");
            let error = expect_error(response, 400, "context_length_exceeded").await;
            assert_eq!(
                (&error["type"], &error["param"]),
                (&json!("invalid_request_error"), &json!("messages"))
            );
        }
        assert!(test.vendor.received().is_empty(), "{compaction}");
    }
}

/// The client of a stream has been given the text; that of a single object has not.
#[tokio::test]
async fn an_answer_that_breaks_off_is_asked_for_again_unless_it_is_streamed() {
    let test = OpenAiApp::start_with(|agent| {
        agent["children"][0]["content"]["retry"] = json!({"maxAttempts": 2});
    })
    .await;
    let lost = || vec![stream_head(), delta(json!({"content": "Los"})), Step::Reset];
    test.vendor.on("m", [lost(), answer(&["Done."]), lost(), answer(&["Done."])]);
    let completion = expect_json(test.send(json!({}), &[]).await).await;
    assert_eq!(completion["choices"][0]["message"]["content"], "Done.", "{completion}");
    assert_eq!(test.vendor.received().len(), 2);
    let streamed = test.send(json!({"stream": true}), &[]).await.text().await.expect("a whole body");
    assert!(streamed.contains("Los") && streamed.contains("backend_failed"), "{streamed}");
    assert_eq!(test.vendor.received().len(), 3);

    // A call of the client's tool that broke off is not among the calls that the client executes.
    let begun = json!({"tool_calls": [{"index": 0, "id": "lost", "type": "function",
        "function": {"name": "paint", "arguments": "{\"color\":\"red\"}"}}]});
    let lost = vec![stream_head(), delta(begun), Step::Reset];
    test.vendor.on("m", [lost, tool_calls(&[("kept", "paint", r#"{"color":"blue"}"#)])]);
    let completion = test.complete(json!({"tools": client_tools()})).await;
    let calls = completion["choices"][0]["message"]["tool_calls"].as_array().expect("calls");
    let ids: Vec<_> = calls.iter().map(|call| &call["id"]).collect();
    assert_eq!(ids, ["kept"], "{completion}");
}

#[tokio::test]
async fn pages_of_any_origin_may_use_the_api_without_cookies() {
    let test = OpenAiApp::start().await;
    let preflight = test
        .app
        .request("OPTIONS", "/v1/chat/completions")
        .header("origin", "https://chat.example")
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "authorization,content-type,x-stainless-lang,x-thread-id");
    let preflight = preflight.send().await.expect("an answer");
    let headers = preflight.headers();
    assert_eq!(headers["access-control-allow-origin"], "https://chat.example");
    assert!(headers.get("access-control-allow-credentials").is_none());
    let allowed = headers["access-control-allow-headers"].to_str().expect("text");
    assert!(allowed.contains("x-stainless-lang") && allowed.contains("x-thread-id"), "{allowed}");
    let response = test.send(json!({}), &[("origin", "https://chat.example")]).await;
    let exposed = response.headers()["access-control-expose-headers"].to_str().expect("text");
    assert!(exposed.contains("x-agent-run-id") && exposed.contains("x-request-id"), "{exposed}");
    expect_json(response).await;
}
