//! MCP messages: framings, errors, sessions, cancellation and progress.

use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};

use super::test_server::{McpTestConfig, McpTestServer, REQUEST_META};
use crate::support;

fn call(id: Value, tool: &str, meta: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": {}, "_meta": meta}})
}

fn messages(body: &str, content_type: &str) -> Vec<Value> {
    let lines = match content_type {
        "text/event-stream" => {
            body.lines().filter_map(|line| line.strip_prefix("data: ")).collect::<Vec<_>>()
        }
        _ => {
            assert!(body.ends_with('\n'), "{body}");
            body.lines().collect()
        }
    };
    lines.into_iter().map(|line| serde_json::from_str(line).expect("a message")).collect()
}

#[tokio::test]
async fn an_answer_is_framed_as_it_is_asked_for() {
    let server = McpTestServer::start(McpTestConfig::default()).await;
    let session = server.open_session("ada", "2025-11-25").await;
    let standard = Some("application/json, text/event-stream");
    let lines = Some("application/x-ndjson");
    let (json, ndjson, events) = ("application/json", "application/x-ndjson", "text/event-stream");
    for (accept, alone, with_progress, heard) in [
        (None, ndjson, ndjson, 4),
        (Some("*/*"), ndjson, ndjson, 4),
        (lines, ndjson, ndjson, 4),
        (Some("application/json"), json, json, 1),
        (standard, json, events, 4),
    ] {
        for version in ["2026-07-28", "2025-11-25", "none"] {
            let send = async |tool: &str, mut meta: Value| {
                if version == "2026-07-28" {
                    let request_meta: Value = serde_json::from_str(REQUEST_META).expect("JSON");
                    meta.as_object_mut()
                        .expect("an object")
                        .extend(request_meta.as_object().expect("an object").clone());
                }
                let mut post = server.post("?token=ada", call(json!("x"), tool, meta).to_string());
                if let Some(accept) = accept {
                    post = post.header("accept", accept);
                }
                match version {
                    "2026-07-28" => {
                        post = post
                            .header("mcp-protocol-version", version)
                            .header("mcp-method", "tools/call")
                            .header("mcp-name", tool);
                    }
                    "2025-11-25" => post = post.header("mcp-session-id", &session),
                    _ => {}
                }
                let response = post.send().await.expect("an answer");
                assert_eq!(response.status(), 200, "{accept:?} {version}");
                let content_type = response.headers()["content-type"].to_str().expect("text").to_owned();
                let body = response.text().await.expect("a whole body");
                (messages(&body, &content_type), content_type)
            };
            let (answers, content_type) = send("readTodos", json!({})).await;
            assert_eq!((content_type.as_str(), answers.len()), (alone, 1), "{accept:?} {version}");
            let todos = &answers[0]["result"]["structuredContent"]["todos"];
            assert_eq!(todos[0]["title"], "Water the basil", "{answers:?}");
            let text = answers[0]["result"]["content"][0]["text"].as_str().expect("text");
            assert!(text.contains("Water the basil"));

            let (answers, content_type) = send("steps", json!({"progressToken": "p"})).await;
            assert_eq!(
                (content_type.as_str(), answers.len()),
                (with_progress, heard),
                "{accept:?} {version} {answers:?}"
            );
            assert_eq!(answers.last().expect("an answer")["result"]["content"][0]["text"], "done");
            for (step, report) in answers.iter().rev().skip(1).rev().enumerate() {
                assert_eq!(report["method"], "notifications/progress");
                assert_eq!(report["params"]["progress"], step as f64 + 1.0);
                assert_eq!(report["params"]["progressToken"], "p");
            }
        }
    }
}

/// A tool's name in Base64 is valid and leaves the call to `rmcp`, which is the reference for the short way.
#[tokio::test]
async fn direct_calls_are_answered_as_by_rmcp() {
    let server = McpTestServer::start(McpTestConfig::default()).await;
    let cases = [
        ("readTodos", json!({})),
        ("steps", json!({})),
        ("none", json!({})),
        ("fails", json!({"how": "output"})),
        ("fails", json!({"how": "defect"})),
        ("fails", json!({"how": "unknown"})),
        ("fails", json!({})),
        ("createTodo", json!({"title": 7})),
    ];
    let accepted = [None, Some("application/json"), Some("application/json, text/event-stream")];
    for ((tool, arguments), accept) in cases.iter().flat_map(|case| accepted.map(|accept| (case, accept))) {
        for token in [None, Some(json!("p")), Some(json!(7))] {
            let mut meta: Value = serde_json::from_str(REQUEST_META).expect("JSON");
            if let Some(token) = &token {
                meta["progressToken"] = token.clone();
            }
            let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
            let body =
                json!({"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": params}).to_string();
            let send = async |name: String| {
                let mut post = server.post("?token=ada", body.clone());
                post = post.header("mcp-protocol-version", "2026-07-28").header("mcp-method", "tools/call");
                if let Some(accept) = accept {
                    post = post.header("accept", accept);
                }
                let response = post.header("mcp-name", name).send().await.expect("an answer");
                let mut headers = response.headers().clone();
                // These differ between any two responses.
                for name in ["date", "x-request-id"] {
                    headers.remove(name);
                }
                // The length of a response that is a stream is not known.
                for name in ["content-length", "transfer-encoding"] {
                    headers.remove(name);
                }
                (response.status(), headers, response.text().await.expect("a whole body"))
            };
            let encoded = format!("=?base64?{}?=", BASE64_STANDARD.encode(tool));
            let (short, reference) = (send((*tool).to_owned()).await, send(encoded).await);
            assert_eq!(short, reference, "{tool} {arguments} {accept:?} {token:?}");
        }
    }
}

#[tokio::test]
async fn invalid_messages_have_the_standards_error_codes() {
    let server = McpTestServer::start(McpTestConfig::default()).await;
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{}{}}}"#,
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    let wide =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"a":"{}"}}}}"#, "x".repeat(4 << 20));
    let request = |method: &str, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":"q","method":"{method}","params":{params}}}"#)
    };
    let cases: &[(&str, u16, i64, Value)] = &[
        ("{", 400, -32700, Value::Null),
        (&deep, 400, -32600, Value::Null),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, 400, -32600, Value::Null),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, 400, -32600, Value::Null),
        (r#"{"id":"q","method":"ping"}"#, 400, -32600, json!("q")),
        (&request("no/such", "{}"), 200, -32601, json!("q")),
        (&request("logging/setLevel", r#"{"level":"info"}"#), 200, -32601, json!("q")),
        (&request("ping", r#"{"a":1,"a":2}"#), 400, -32600, json!("q")),
        (&request("ping", "[1]"), 400, -32600, json!("q")),
        (&request("ping", r#"{"_meta":5}"#), 400, -32600, json!("q")),
        (r#"{"jsonrpc":"2.0","method":"notifications/initialized","params":"x"}"#, 400, -32600, Value::Null),
        (&request("initialize", "{}"), 200, -32602, json!("q")),
        (
            &request("initialize", r#"{"protocolVersion":5,"capabilities":{},"clientInfo":{}}"#),
            200,
            -32602,
            json!("q"),
        ),
        (&request("tools/call", "{}"), 200, -32602, json!("q")),
        (&request("tools/call", r#"{"name":"readTodos","arguments":7}"#), 200, -32602, json!("q")),
        (&request("tools/call", r#"{"name":"none"}"#), 200, -32602, json!("q")),
        (
            &request("tools/call", r#"{"name":"fails","arguments":{"how":"unknown"}}"#),
            200,
            -32602,
            json!("q"),
        ),
        (&request("tools/list", r#"{"cursor":"none"}"#), 200, -32602, json!("q")),
        (&request("prompts/get", r#"{"name":"none"}"#), 200, -32602, json!("q")),
        (&request("resources/read", r#"{"uri":"doc://none"}"#), 200, -32002, json!("q")),
        (&request("resources/subscribe", r#"{"uri":"doc://none"}"#), 200, -32600, json!("q")),
    ];
    for (body, status, code, id) in cases {
        let response = server.post("?token=ada", (*body).to_owned()).send().await.expect("an answer");
        assert_eq!(response.status(), *status, "{body:.100}");
        assert_eq!(response.headers()["content-type"], "application/x-ndjson");
        let answer: Value = response.json().await.expect("a message");
        assert_eq!(
            (answer["error"]["code"].as_i64(), &answer["id"]),
            (Some(*code), id),
            "{body:.100} {answer}"
        );
        assert!(answer["error"]["message"].as_str().is_some_and(|words| words.contains(' ')), "{answer}");
        if *code == -32002 {
            assert_eq!(answer["error"]["data"], json!({"uri": "doc://none"}));
        }
    }
    let problems = [
        (server.post("?token=ada", wide), 413, "PAYLOAD_TOO_LARGE"),
        (server.request("POST", "?token=ada").body("{}"), 415, "UNSUPPORTED_MEDIA_TYPE"),
        (server.post("?token=ada", "{}").header("content-encoding", "gzip"), 415, "UNSUPPORTED_MEDIA_TYPE"),
        (server.post("?token=ada", "{}").header("accept", "text/html"), 406, "NOT_ACCEPTABLE"),
    ];
    for (request, status, code) in problems {
        support::expect_problem(request.send().await.expect("an answer"), status, code).await;
    }
    let odd = server.ask("ada", "ping", json!({})).await;
    assert_eq!(odd["result"], json!({}), "the server goes on");
}

#[tokio::test]
async fn a_tools_failure_is_for_the_model_and_a_defects_cause_is_not() {
    let server = McpTestServer::start(McpTestConfig::default()).await;
    for (how, words) in [
        ("output", "it did not work"),
        ("defect", "the tool failed"),
        ("", "invalid arguments: how: is missing"),
    ] {
        let params = json!({"name": "fails", "arguments": if how.is_empty() { json!({}) } else { json!({"how": how}) }});
        let answer = server.ask("ada", "tools/call", params).await;
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        assert_eq!(answer["result"]["content"], json!([{"type": "text", "text": words}]));
    }
}

#[tokio::test]
async fn a_session_belongs_to_its_opener() {
    let server = McpTestServer::start(McpTestConfig::default()).await;
    let ping = json!({"jsonrpc": "2.0", "id": 5, "method": "ping"});
    for version in ["2025-06-18", "2025-11-25"] {
        let session = server.open_session("ada", version).await;
        let answer = server.in_session("ada", Some(&session), &ping).send().await.expect("an answer");
        assert_eq!(
            answer.json::<Value>().await.expect("a message"),
            json!({"jsonrpc": "2.0", "id": 5, "result": {}})
        );
        for (token, id) in [("bob", session.as_str()), ("ada", "none"), ("ada", "")] {
            for request in [
                server.in_session(token, Some(id), &ping),
                server.request("DELETE", "").bearer_auth(token).header("mcp-session-id", id),
                server
                    .request("GET", "")
                    .bearer_auth(token)
                    .header("mcp-session-id", id)
                    .header("accept", "text/event-stream"),
            ] {
                let response = request.send().await.expect("an answer");
                assert_eq!(response.status(), 404, "{token} {id}");
                let answer: Value = response.json().await.expect("a message");
                assert_eq!(answer["error"]["code"], -32001);
            }
        }
        let end = server.request("DELETE", "").bearer_auth("ada").header("mcp-session-id", &session);
        assert_eq!(end.send().await.expect("an answer").status(), 204);
        let after = server.in_session("ada", Some(&session), &ping).send().await.expect("an answer");
        assert_eq!(after.status(), 404);
    }
    // An unsupported version is answered with a supported one.
    let params = json!({"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
    let answer: Value = server
        .in_session("ada", None, &body)
        .send()
        .await
        .expect("an answer")
        .json()
        .await
        .expect("a message");
    assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{answer}");
}

#[tokio::test]
async fn an_identifier_that_is_under_way_is_refused() {
    let server = McpTestServer::start(McpTestConfig::default()).await;
    let session = server.open_session("ada", "2025-11-25").await;
    let slow = call(json!(7), "slow", json!({}));
    let first = tokio::spawn(server.in_session("ada", Some(&session), &slow).send());
    server.wait_for_slow_calls(|running, _, _| running == 1).await;
    let second = server.in_session("ada", Some(&session), &slow).send().await.expect("an answer");
    assert_eq!(second.status(), 400);
    assert_eq!(second.json::<Value>().await.expect("a message")["error"]["code"], -32600);
    let other = server.open_session("ada", "2025-11-25").await;
    let elsewhere = tokio::spawn(server.in_session("ada", Some(&other), &slow).send());
    server.wait_for_slow_calls(|running, _, _| running == 2).await;
    server.tool_state.release.notify_waiters();
    for answered in [first, elsewhere] {
        let response = answered.await.expect("it ran").expect("an answer");
        let answer: Value = response.json().await.expect("a message");
        assert_eq!(answer["result"]["content"][0]["text"], "at last");
    }
    let second = tokio::spawn(server.in_session("ada", Some(&session), &slow).send());
    server.wait_for_slow_calls(|running, _, _| running == 1).await;
    server.tool_state.release.notify_waiters();
    assert_eq!(second.await.expect("it ran").expect("an answer").status(), 200, "it is over");
}

#[tokio::test]
async fn cancelled_calls_are_stopped() {
    let server = McpTestServer::start(McpTestConfig::default()).await;
    // With a session, the client cancels by a notification; disconnecting does not cancel.
    let session = server.open_session("ada", "2025-11-25").await;
    let slow =
        tokio::spawn(server.in_session("ada", Some(&session), &call(json!(7), "slow", json!({}))).send());
    server.wait_for_slow_calls(|running, _, _| running == 1).await;
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
    let response = server.in_session("ada", Some(&session), &cancel).send().await.expect("an answer");
    assert_eq!(response.status(), 202);
    server.wait_for_slow_calls(|running, _, dropped| running == 0 && dropped == 1).await;
    let unanswered = slow.await.expect("it ran").expect("an answer").text().await.expect("a body");
    assert_eq!(unanswered, "");

    // Without a session, disconnecting cancels.
    let gone = tokio::spawn(server.post("?token=ada", call(json!(8), "slow", json!({})).to_string()).send());
    server.wait_for_slow_calls(|running, _, _| running == 1).await;
    gone.abort();
    server.wait_for_slow_calls(|running, _, dropped| running == 0 && dropped == 2).await;

    server.server.audit().flush().await;
    let calls =
        server.server.audit().list_calls(&"c1".into(), &"a1".into(), None, None).await.expect("a page").calls;
    let outcomes: Vec<Value> = calls.iter().map(|call| json!(call.outcome)).collect();
    assert_eq!(outcomes, ["cancelled", "cancelled"]);
}

#[tokio::test]
async fn a_tool_that_takes_too_long_has_failed() {
    let server = McpTestServer::start(McpTestConfig {
        timeout: Duration::from_millis(100),
        ..McpTestConfig::default()
    })
    .await;
    let answer = server.ask("ada", "tools/call", json!({"name": "slow"})).await;
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    server.wait_for_slow_calls(|running, _, dropped| running == 0 && dropped == 1).await;
    server.server.audit().flush().await;
    let calls =
        server.server.audit().list_calls(&"c1".into(), &"a1".into(), None, None).await.expect("a page").calls;
    assert_eq!(json!(calls[0].outcome), "timedOut");
}

#[tokio::test]
async fn lists_are_sorted_and_complete() {
    let server = McpTestServer::start(McpTestConfig::default()).await;
    let answer = server.ask("ada", "tools/list", json!({})).await;
    let tools = answer["result"]["tools"].as_array().expect("tools");
    let names: Vec<&str> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert_eq!(names, ["createTodo", "fails", "readTodos", "slow", "steps"]);
    let read = &tools[2];
    assert_eq!(read["inputSchema"]["type"], "object");
    assert_eq!(read["outputSchema"]["type"], "object");
    assert_eq!(read["annotations"]["readOnlyHint"], true);
    let prompts = server.ask("ada", "prompts/list", json!({})).await;
    assert_eq!(
        prompts["result"]["prompts"],
        json!([{"name": "Tone", "title": "Tone", "description": "Be brief."}])
    );
    let prompt = server.ask("ada", "prompts/get", json!({"name": "Tone"})).await;
    assert_eq!(
        prompt["result"]["messages"],
        json!([{"role": "user", "content": {"type": "text", "text": "Be brief."}}])
    );
}
