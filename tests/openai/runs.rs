//! Models, whole completions, streams, tools of the client, threads and approvals.

use serde_json::{Value, json};

use super::{OpenAiApp, client_tools, expect_error, expect_json, frames, mint, text};
use crate::support::server::session_token;
use crate::support::vendor::{Step, answer, delta, event, finish, stream_head, tool_calls};
use crate::support::{poll_until, read_until};

#[tokio::test]
async fn models_are_the_agents_of_the_token() {
    let test = OpenAiApp::start().await;
    let list = expect_json(test.get("/v1/models").await).await;
    let ids: Vec<&Value> =
        list["data"].as_array().expect("a list").iter().map(|model| &model["id"]).collect();
    assert_eq!((&list["object"], ids), (&json!("list"), vec![&json!("a1"), &json!("a2")]));
    let model = expect_json(test.get("/v1/models/a2").await).await;
    assert_eq!(model, list["data"][1]);
    assert_eq!((&model["object"], &model["owned_by"]), (&json!("model"), &json!("c1")));
    assert!(model["created"].as_u64().expect("a time") > 1_700_000_000);
    let error = expect_error(test.get("/v1/models/a3").await, 404, "model_not_found").await;
    assert_eq!((&error["type"], &error["param"]), (&json!("invalid_request_error"), &json!("model")));
    // An agent that does not exist, of a token that an operator created, is not a model.
    let token = mint(&test.stores, &["gone", "a1"], None, None).await;
    let request = test.app.request("GET", "/v1/models").bearer_auth(&token);
    let list = expect_json(request.send().await.expect("an answer")).await;
    assert_eq!((&list["data"][0]["id"], &list["data"][1]), (&json!("a1"), &Value::Null));
    expect_error(test.send_with(&token, json!({"model": "gone"}), &[]).await, 404, "model_not_found").await;
    expect_error(test.send_with(&token, json!({"model": "a2"}), &[]).await, 404, "model_not_found").await;
}

#[tokio::test]
async fn a_refusal_is_content_with_its_own_reason() {
    let test = OpenAiApp::start().await;
    let refusal = delta(json!({"refusal": "I cannot do that."}));
    let refused: Vec<Step> = std::iter::once(stream_head()).chain([refusal]).chain(finish("stop")).collect();
    test.vendor.on("m", [refused.clone(), refused]);
    let choice = test.complete(json!({})).await["choices"][0].clone();
    let message = json!({"role": "assistant", "content": "I cannot do that.", "refusal": null});
    assert_eq!((&choice["message"], &choice["finish_reason"]), (&message, &json!("content_filter")));
    let frames = test.stream(json!({})).await;
    assert!(frames.iter().any(|frame| frame.contains(r#""finish_reason":"content_filter""#)), "{frames:?}");
    // A client may keep it as the API's own models send it.
    let earlier = json!({"role": "assistant", "content": null, "refusal": "I cannot do that."});
    let messages =
        json!([{"role": "user", "content": "Do it."}, earlier, {"role": "user", "content": "Why not?"}]);
    test.complete(json!({"messages": messages})).await;
    let sent = test.vendor.received_bodies("m").pop().expect("a request");
    let sent = sent["messages"].as_array().expect("a list").clone();
    assert!(sent.contains(&json!({"role": "assistant", "content": "I cannot do that."})), "{sent:?}");
}

#[tokio::test]
async fn a_completion_is_a_run_of_the_agent() {
    let test = OpenAiApp::start().await;
    let messages = json!([{"role": "system", "content": "Rhyme."}, {"role": "user", "content": "Hello"}]);
    let response = test.send(json!({"messages": messages}), &[("x-request-id", "req-7")]).await;
    let headers = response.headers().clone();
    let completion = expect_json(response).await;
    let run = headers["x-agent-run-id"].to_str().expect("text");
    assert_eq!(
        (&headers["x-request-id"], headers.get("x-thread-id")),
        (&"req-7".parse().expect("a value"), None)
    );
    assert_eq!(completion["id"], format!("chatcmpl-{run}"));
    assert_eq!((&completion["object"], &completion["model"]), (&json!("chat.completion"), &json!("a1")));
    let choice = &completion["choices"][0];
    assert_eq!(choice["message"], json!({"role": "assistant", "content": "hello world", "refusal": null}));
    assert_eq!((&choice["index"], &choice["finish_reason"]), (&json!(0), &json!("stop")));
    let usage = &completion["usage"];
    assert_eq!(
        (&usage["prompt_tokens"], &usage["completion_tokens"], &usage["total_tokens"]),
        (&json!(11), &json!(7), &json!(18))
    );
    // The agent's own instructions come before the client's, and its own tools are offered.
    let request_body = test.vendor.received_bodies("m").pop().expect("a request");
    let prompt = request_body["messages"].to_string();
    let position_of = |text: &str| prompt.find(text).unwrap_or_else(|| panic!("no {text:?} in {prompt}"));
    assert!(
        position_of("Be brief.") < position_of("Rhyme.") && position_of("Rhyme.") < position_of("Hello"),
        "{prompt}"
    );
    assert!(request_body["tools"].to_string().contains("readTodos"), "{request_body}");
    // Nothing is kept, and the usage is that of the user by this API.
    assert_eq!(test.call("GET", "/api/threads").await["threads"], json!([]));
    let path = format!("/api/usage/runs/{run}");
    let usage = poll_until(async || test.call("GET", &path).await, |usage| usage["entries"].is_array()).await;
    assert_eq!((&usage["caller"], &usage["userId"]), (&json!("api"), &json!("u1")));
}

#[tokio::test]
async fn a_stream_has_the_chunks_of_the_answer() {
    let test = OpenAiApp::start().await;
    let response = test.send(json!({"stream": true}), &[]).await;
    let headers = response.headers().clone();
    let frames = frames(response).await;
    let run = headers["x-agent-run-id"].to_str().expect("text");
    assert_eq!(
        (&headers["x-accel-buffering"], text(&frames).as_str()),
        (&"no".parse().expect("a value"), "hello world")
    );
    let chunks: Vec<Value> = frames.iter().map(|frame| serde_json::from_str(frame).expect("JSON")).collect();
    assert_eq!(chunks[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    for chunk in &chunks {
        assert_eq!(
            (&chunk["id"], &chunk["object"]),
            (&json!(format!("chatcmpl-{run}")), &json!("chat.completion.chunk"))
        );
        assert!(chunk.get("usage").is_none(), "{chunk}");
    }
    let last = chunks.last().expect("a chunk");
    assert_eq!(last["choices"][0]["finish_reason"], "stop");

    let with_usage = test.stream(json!({"stream_options": {"include_usage": true}})).await;
    let last: Value = serde_json::from_str(with_usage.last().expect("a chunk")).expect("JSON");
    assert_eq!((&last["choices"], &last["usage"]["total_tokens"]), (&json!([]), &json!(18)));
    assert_eq!(with_usage.len(), frames.len() + 1);
}

#[tokio::test]
async fn the_client_limits_answers_below_the_limit_of_the_agent() {
    let test = OpenAiApp::start_with(|agent| {
        agent["children"][0]["content"]["parameters"] = json!({"maxOutputTokens": 500});
    })
    .await;
    for (sent, expected) in [
        (json!({}), 500),
        (json!({"max_tokens": null}), 500),
        (json!({"max_tokens": 40}), 40),
        (json!({"max_completion_tokens": 30}), 30),
        (json!({"max_completion_tokens": 30, "max_tokens": 20}), 20),
        (json!({"max_tokens": 501}), 500),
        (json!({"max_tokens": 5_000_000_000_u64}), 500),
    ] {
        test.complete(sent.clone()).await;
        let request_body = test.vendor.received_bodies("m").pop().expect("a request");
        assert_eq!(request_body["max_tokens"], expected, "{sent}");
    }
    // Each call of the run has the limit, and an answer that reaches it is cut off.
    let mut cut = vec![stream_head(), delta(json!({"content": "Once upon a"}))];
    cut.extend(finish("length"));
    test.vendor.on("m", [tool_calls(&[("c1", "readTodos", "{}")]), cut]);
    let frames = test.stream(json!({"max_tokens": 40})).await;
    assert!(frames.last().expect("a chunk").contains(r#""finish_reason":"length""#), "{frames:?}");
    let limits: Vec<Value> =
        test.vendor.received_bodies("m").into_iter().map(|body| body["max_tokens"].clone()).collect();
    assert_eq!(limits[limits.len() - 2..], [40, 40]);
    for wrong in [json!(0), json!(-1), json!("40"), json!(1.5)] {
        let response = test.send(json!({"max_tokens": wrong}), &[]).await;
        assert_eq!(expect_error(response, 400, "invalid_request").await["param"], "max_tokens");
    }
}

#[tokio::test]
async fn the_client_executes_its_own_tools_and_sees_no_others() {
    let test = OpenAiApp::start().await;
    let calls = || tool_calls(&[("c1", "readTodos", "{}"), ("c2", "paint", r#"{"color":"red"}"#)]);
    test.vendor.on("m", [calls(), calls(), answer(&["It is red."])]);
    let function = json!({"name": "paint", "arguments": r#"{"color":"red"}"#});
    let call = json!({"id": "c2", "type": "function", "function": function});
    let completion = test.complete(json!({"tools": client_tools()})).await;
    let choice = &completion["choices"][0];
    assert_eq!(
        (&choice["message"]["content"], &choice["finish_reason"]),
        (&Value::Null, &json!("tool_calls"))
    );
    assert_eq!(choice["message"]["tool_calls"], json!([call]));

    let frames = test.stream(json!({"tools": client_tools()})).await;
    let streamed = frames.iter().filter(|frame| frame.contains("tool_calls\":["));
    let streamed: Vec<Value> = streamed.map(|frame| serde_json::from_str(frame).expect("JSON")).collect();
    let mut expected = call.clone();
    expected["index"] = json!(0);
    assert_eq!(streamed.len(), 1, "{frames:?}");
    assert_eq!(streamed[0]["choices"][0]["delta"]["tool_calls"], json!([expected]));
    assert!(frames.last().expect("a chunk").contains(r#""finish_reason":"tool_calls""#));
    assert!(!frames.concat().contains("readTodos"), "{frames:?}");

    let messages = json!([{"role": "user", "content": "Paint"}, choice["message"],
        {"role": "tool", "tool_call_id": "c2", "content": "painted"}]);
    let completion = test.complete(json!({"tools": client_tools(), "messages": messages})).await;
    assert_eq!(completion["choices"][0]["message"]["content"], "It is red.");
    let request_body = test.vendor.received_bodies("m").pop().expect("a request");
    let sent = request_body["messages"].as_array().expect("messages");
    assert_eq!(sent.last().expect("a message")["content"], "painted");
}

#[tokio::test]
async fn a_tool_is_chosen_or_forbidden() {
    let test = OpenAiApp::start().await;
    let chosen = json!({"type": "function", "function": {"name": "paint"}});
    test.complete(json!({"tools": client_tools(), "tool_choice": chosen})).await;
    let request_body = test.vendor.received_bodies("m").pop().expect("a request");
    assert_eq!(request_body["tools"][0]["function"]["name"], "paint");
    test.complete(json!({"tools": client_tools(), "tool_choice": "none"})).await;
    let request_body = test.vendor.received_bodies("m").pop().expect("a request");
    assert!(request_body.get("tools").is_none(), "{request_body}");
    let absent = json!({"type": "function", "function": {"name": "sculpt"}});
    let error =
        expect_error(test.send(json!({"tool_choice": absent}), &[]).await, 400, "invalid_request").await;
    assert_eq!(error["param"], "tool_choice");
    let tool_definitions = json!([{"type": "function", "function": {"name": "readTodos"}}]);
    let error =
        expect_error(test.send(json!({"tools": tool_definitions}), &[]).await, 400, "invalid_request").await;
    assert_eq!(error["param"], "tools");
}

#[tokio::test]
async fn a_header_keeps_the_thread() {
    let test = OpenAiApp::start().await;
    let user = |text: &str| json!({"role": "user", "content": text});
    let in_thread = [("x-thread-id", "t1")];
    let first = test.send(json!({"messages": [user("One")]}), &in_thread).await;
    assert_eq!(first.headers()["x-thread-id"], "t1");
    let run = first.headers()["x-agent-run-id"].to_str().expect("text").to_owned();
    let first = expect_json(first).await;
    // Most clients send everything again; the new message alone will do.
    let second = json!([user("One"), first["choices"][0]["message"], user("Two")]);
    frames(test.send(json!({"messages": second, "stream": true}), &in_thread).await).await;
    expect_json(test.send(json!({"messages": [user("Three")]}), &in_thread).await).await;
    let request_body = test.vendor.received_bodies("m").pop().expect("a request");
    let prompt = request_body["messages"].to_string();
    for text in ["One", "Two", "Three", "hello world"] {
        assert!(prompt.contains(text), "{prompt}");
    }
    let thread = test.call("GET", "/api/threads/t1").await;
    assert_eq!((&thread["messageCount"], &thread["agentId"]), (&json!(6), &json!("a1")));
    assert_eq!(test.call("GET", &format!("/api/runs/{run}")).await["state"], "completed");
    let error = expect_error(test.send(json!({"model": "a2"}), &in_thread).await, 409, "conflict").await;
    assert_eq!(error["type"], "invalid_request_error");

    let stored = test.send(json!({"store": true, "metadata": {"topic": "x"}}), &[]).await;
    let id = stored.headers()["x-thread-id"].to_str().expect("text").to_owned();
    assert_eq!(test.call("GET", &format!("/api/threads/{id}")).await["metadata"], json!({"topic": "x"}));
    let not_kept = test.send(json!({"store": false}), &[("x-thread-id", "t2")]).await;
    assert!(not_kept.headers().get("x-thread-id").is_none());
    expect_json(not_kept).await;
    let threads = test.call("GET", "/api/threads").await;
    assert_eq!(threads["threads"].as_array().expect("threads").len(), 2);
}

/// Changes a role so that `createTodo` needs approval.
fn with_approval(unattended: &'static str) -> impl FnOnce(&mut Value) {
    move |agent| {
        agent["content"]["approvals"] = json!([{"tools": ["createTodo"], "unattended": unattended}]);
    }
}

fn create_todo() -> Vec<Step> {
    tool_calls(&[("c1", "createTodo", r#"{"title":"Buy milk"}"#)])
}

#[tokio::test]
async fn a_call_that_needs_approval_is_denied_in_an_unattended_run() {
    let test = OpenAiApp::start_with(with_approval("deny")).await;
    test.vendor.on("m", [create_todo(), answer(&["As you like."]), create_todo(), answer(&["As you like."])]);
    for headers in [&[][..], &[("x-thread-id", "t1")]] {
        let completion = expect_json(test.send(json!({}), headers).await).await;
        assert_eq!(completion["choices"][0]["message"]["content"], "As you like.");
        let request_body = test.vendor.received_bodies("m").pop().expect("a request");
        let result =
            request_body["messages"].as_array().expect("messages").last().expect("a result")["content"]
                .clone();
        assert!(result.as_str().expect("text").contains("needs a person's approval"), "{result}");
    }
}

#[tokio::test]
async fn a_stored_run_may_wait_for_approval() {
    let test = OpenAiApp::start_with(with_approval("wait")).await;
    test.vendor.on("m", [create_todo(), create_todo(), create_todo(), answer(&["As you like."])]);
    let first_completion = test.send(json!({}), &[("x-thread-id", "t1")]).await;
    assert_eq!(first_completion.headers()["x-agent-run-state"], "waiting");
    let first_completion = expect_json(first_completion).await;
    let notice = "A tool call of this answer waits for a person's approval.";
    assert_eq!(first_completion["choices"][0]["message"]["content"], notice);
    assert_eq!(first_completion["choices"][0]["finish_reason"], "stop");
    assert_eq!(test.call("GET", "/api/threads/t1").await["status"], "waiting");
    let response = test.send(json!({}), &[("x-thread-id", "t1")]).await;
    assert_eq!(response.headers()["x-should-retry"], "false");
    expect_error(response, 409, "interrupts_open").await;
    let streamed = test.send(json!({"stream": true}), &[("x-thread-id", "t2")]).await;
    assert_eq!(text(&frames(streamed).await), notice);
    // A run that is not stored cannot wait.
    let completion = test.complete(json!({})).await;
    assert_eq!(completion["choices"][0]["message"]["content"], "As you like.");
}

/// Approves the call for which the thread `t1` waits, and waits until the turn has ended.
async fn approve(test: &OpenAiApp) {
    let approvals = test.call("GET", "/api/approvals?state=open").await;
    let id = approvals["approvals"][0]["id"].as_str().expect("an id");
    let approve = test.app.request("POST", &format!("/api/approvals/{id}"));
    let approve = approve.bearer_auth(session_token("u1", "c1")).json(&json!({"decision": "approve"}));
    assert_eq!(approve.send().await.expect("an answer").status(), 200);
    poll_until(async || test.call("GET", "/api/threads/t1").await, |thread| thread["status"] == "idle").await;
}

#[tokio::test]
async fn the_limit_of_an_answer_holds_for_the_run_that_continues_it() {
    let test = OpenAiApp::start_with(with_approval("wait")).await;
    test.vendor.on("m", [create_todo(), answer(&["Done."]), answer(&["Hello."])]);
    let in_thread = [("x-thread-id", "t1")];
    let waiting = test.send(json!({"max_tokens": 40}), &in_thread).await;
    assert_eq!(waiting.headers()["x-agent-run-state"], "waiting");
    expect_json(waiting).await;
    approve(&test).await;
    expect_json(test.send(json!({}), &in_thread).await).await;
    let limits: Vec<Value> =
        test.vendor.received_bodies("m").into_iter().map(|body| body["max_tokens"].clone()).collect();
    assert_eq!((limits.len(), &limits[..2]), (3, &[json!(40), json!(40)][..]));
    assert_ne!(limits[2], 40, "the limit applies to one turn");
}

#[tokio::test]
async fn results_of_the_clients_tools_are_kept_while_another_call_waits() {
    let test = OpenAiApp::start_with(with_approval("wait")).await;
    let calls = || tool_calls(&[("c1", "createTodo", r#"{"title":"Buy milk"}"#), ("c2", "paint", "{}")]);
    test.vendor.on("m", [calls(), answer(&["It is red."])]);
    let in_thread = [("x-thread-id", "t1")];
    let asked = json!({"role": "user", "content": "Paint"});
    let body = json!({"tools": client_tools(), "messages": [asked]});
    let first = expect_json(test.send(body, &in_thread).await).await;
    let message = &first["choices"][0]["message"];
    assert_eq!(first["choices"][0]["finish_reason"], "tool_calls");
    let result = json!({"role": "tool", "tool_call_id": "c2", "content": "painted"});
    let messages = json!([asked, message, result]);
    let second = test.send(json!({"tools": client_tools(), "messages": messages}), &in_thread).await;
    assert_eq!(second.headers()["x-agent-run-state"], "waiting");
    let second = expect_json(second).await;
    let notice = "A tool call of this answer waits for a person's approval.";
    assert_eq!(second["choices"][0]["message"]["content"], notice);
    assert_eq!(test.vendor.received_bodies("m").len(), 1);

    approve(&test).await;
    let request_body = test.vendor.received_bodies("m").pop().expect("a request");
    let sent = request_body["messages"].as_array().expect("messages").iter();
    let results: Vec<&Value> = sent.filter(|message| message["role"] == "tool").collect();
    assert_eq!((results.len(), &results[1]["content"]), (2, &json!("painted")));
}

#[tokio::test]
async fn results_that_are_sent_again_are_answered_as_the_first_time() {
    let test = OpenAiApp::start().await;
    test.vendor.on("m", [tool_calls(&[("c1", "paint", "{}")]), answer(&["It is red."])]);
    let in_thread = [("x-thread-id", "t1")];
    let asked = json!({"role": "user", "content": "Paint"});
    let body = json!({"tools": client_tools(), "messages": [asked]});
    let first = expect_json(test.send(body, &in_thread).await).await;
    let with_result = |content: &str, is_streamed: bool| {
        let result = json!({"role": "tool", "tool_call_id": "c1", "content": content});
        let messages = json!([asked, first["choices"][0]["message"], result]);
        json!({"tools": client_tools(), "messages": messages, "stream": is_streamed})
    };
    let answered = test.send(with_result("painted", false), &in_thread).await;
    let run = answered.headers()["x-agent-run-id"].clone();
    let answered = expect_json(answered).await;
    assert_eq!(answered["choices"][0]["message"]["content"], "It is red.");
    let again = test.send(with_result("painted", false), &in_thread).await;
    assert_eq!(again.headers()["x-agent-run-id"], run);
    let again = expect_json(again).await;
    for member in ["id", "choices", "usage"] {
        assert_eq!(again[member], answered[member], "{member}");
    }
    let streamed = test.send(with_result("painted", true), &in_thread).await;
    assert_eq!(text(&frames(streamed).await), "It is red.");
    for is_streamed in [false, true] {
        let other = test.send(with_result("painted blue", is_streamed), &in_thread).await;
        expect_error(other, 409, "conflict").await;
    }
    assert_eq!(test.vendor.received_bodies("m").len(), 2);
    assert_eq!(test.call("GET", "/api/threads/t1").await["messageCount"], 4);
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_run() {
    let test = OpenAiApp::start().await;
    let slow = vec![stream_head(), delta(json!({"content": "tick"})), Step::Stall];
    test.vendor.on("m", [slow]);
    let mut response = test.send(json!({"stream": true}), &[]).await;
    read_until(&mut response, "tick").await;
    drop(response);
    test.vendor.wait_for_disconnects(1).await;
}

#[tokio::test]
async fn an_error_in_a_stream_is_its_last_event() {
    let test = OpenAiApp::start().await;
    let broken = vec![
        stream_head(),
        delta(json!({"content": "Half an"})),
        event(json!({"error": {"message": "vendor-detail"}})),
        Step::Close,
    ];
    test.vendor.on("m", [broken]);
    let frames = test.stream(json!({})).await;
    let error: Value = serde_json::from_str(frames.last().expect("an event")).expect("JSON");
    assert_eq!(
        (&error["error"]["type"], &error["error"]["code"]),
        (&json!("server_error"), &json!("backend_failed"))
    );
    assert_eq!(text(&frames), "Half an");
    assert!(!frames.concat().contains("vendor-detail"));
    // The packages would send the request again, and with it the calls of tools.
    let response = test.send(json!({}), &[]).await;
    assert_eq!(response.headers()["x-should-retry"], "false");
    expect_error(response, 502, "backend_failed").await;
}
