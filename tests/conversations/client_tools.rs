//! Tools that the client of a run executes: the run ends with calls without results, which the next one brings.

use std::collections::HashSet;

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{ConversationApp, Turn, call_as, gated};
use crate::support::server::session_token;
use crate::support::vendor::{Step, answer, delta, stream_head, tool_calls};
use crate::support::{expect_problem, poll_until, read_until};

pub(super) fn client_tools() -> Value {
    let parameters = json!({"type": "object", "properties": {"color": {"type": "string"}}});
    json!([{"name": "paint", "description": "Paints the page.", "parameters": parameters}])
}

/// Returns AG-UI's input with these messages.
fn input(run: &str, messages: Value) -> Value {
    json!({"threadId": "t", "runId": run, "messages": messages, "tools": client_tools(), "context": [],
        "state": {}, "forwardedProps": {}})
}

fn user(id: &str, text: &str) -> Value {
    json!({"id": id, "role": "user", "content": text})
}

/// Returns role and call of the messages of the latest prompt.
fn prompt(test: &ConversationApp) -> Vec<Value> {
    let request_body = test.vendor.received_bodies("m").pop().expect("a request");
    let messages = request_body["messages"].as_array().expect("messages").iter();
    messages.filter(|message| message["role"] != "system").cloned().collect()
}

#[tokio::test]
async fn a_client_executes_its_tools_and_the_turn_continues() {
    let test = ConversationApp::start().await;
    let calls = tool_calls(&[("call-1", "readTodos", "{}"), ("call-2", "paint", r#"{"color":"red"}"#)]);
    test.vendor.on("m", [calls, answer(&["It is red."])]);
    let mut body = input("r1", json!([user("m1", "Make it red")]));
    body["forwardedProps"] = json!({"todoListId": "l1"});
    let first = test.chat(body).await;
    let offered = test.vendor.received_bodies("m").pop().expect("a request");
    let names: Vec<&str> = offered["tools"]
        .as_array()
        .expect("tools")
        .iter()
        .filter_map(|tool| tool["function"]["name"].as_str())
        .collect();
    assert!(names.contains(&"paint") && names.is_sorted(), "{names:?}");
    let results: Vec<&Value> =
        first.events.iter().filter(|event| event["type"] == "TOOL_CALL_RESULT").collect();
    assert_eq!(results.len(), 1, "the client's call has no result");
    assert_eq!(results[0]["toolCallId"], "call-1");
    let outcome = json!({"type": "success", "pendingToolCallIds": ["call-2"]});
    assert_eq!(first.last()["outcome"], outcome);
    let thread = test.get("/api/threads/t?messages=none").await;
    assert_eq!((&thread["status"], &thread["openRunId"]), (&json!("awaitingTools"), &json!("r1")));
    let run = test.get("/api/runs/r1").await;
    assert_eq!((&run["state"], &run["outcome"]), (&json!("completed"), &outcome));

    // An AG-UI client sends everything again, with the result.
    let called = first.first_id("TOOL_CALL_START", "parentMessageId");
    let call = |id: &str, name: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    let messages = json!([
        user("m1", "Make it red"),
        {"id": called, "role": "assistant",
            "toolCalls": [call("call-1", "readTodos", "{}"), call("call-2", "paint", r#"{"color":"red"}"#)]},
        {"id": results[0]["messageId"], "role": "tool", "toolCallId": "call-1", "content": results[0]["content"]},
        {"id": "m4", "role": "tool", "toolCallId": "call-2", "content": "painted"},
    ]);
    let second = test.chat(input("r2", messages)).await;
    assert_eq!(second.last()["outcome"], Value::Null);
    let sent = prompt(&test);
    assert_eq!(sent.len(), 4, "{sent:?}");
    assert_eq!((&sent[3]["tool_call_id"], &sent[3]["content"]), (&json!("call-2"), &json!("painted")));
    let run = test.get("/api/runs/r2").await;
    assert_eq!((&run["trigger"]["kind"], &run["continues"]), (&json!("tools"), &json!("r1")));
    assert_eq!(run["turnId"], "r1", "it is the same turn");
    assert_eq!(test.get("/api/runs/r1").await["continuedBy"], "r2");
    let thread = test.get("/api/threads/t").await;
    assert_eq!((&thread["status"], &thread["messageCount"]), (&json!("idle"), &json!(5)));
    let nodes = thread["nodes"].as_array().expect("nodes");
    assert_eq!((&nodes[3]["origin"], &nodes[3]["message"]["content"]), (&json!("client"), &json!("painted")));
}

#[tokio::test]
async fn only_pending_calls_are_answered_and_once() {
    let test = ConversationApp::start().await;
    let calls = tool_calls(&[("c1", "paint", "{}"), ("c2", "paint", "{}")]);
    test.vendor.on("m", [calls, answer(&["Done."]), answer(&["Again."])]);
    test.chat(input("r1", json!([user("m1", "Paint")]))).await;
    let results = |texts: &[(&str, &str)]| {
        let results =
            texts.iter().map(|(call, text)| json!({"role": "tool", "toolCallId": call, "content": text}));
        Value::Array(results.collect())
    };
    let forged = results(&[("c1", "first"), ("c1", "second"), ("c9", "forged")]);
    test.chat(json!({"threadId": "t", "messages": forged})).await;
    let sent = prompt(&test);
    let contents: Vec<&Value> =
        sent.iter().filter(|sent| sent["role"] == "tool").map(|sent| &sent["content"]).collect();
    assert_eq!(contents[0], "first");
    assert!(contents[1].as_str().expect("text").starts_with("no result"), "{contents:?}");
    assert_eq!(contents.len(), 2, "{contents:?}");
    // The calls are not pending any more.
    let late = test
        .app
        .chat(&json!({"agentId": "a1", "threadId": "t", "messages": results(&[("c2", "late")])}))
        .await;
    assert_eq!(late.status(), 400, "a result alone is not a message");
    test.say("t", "And now?").await;
    assert!(!prompt(&test).iter().any(|sent| sent["content"] == "late"));
}

#[tokio::test]
async fn a_message_without_a_run_ends_the_wait_for_the_client() {
    let test = ConversationApp::start().await;
    test.vendor.on("m", [tool_calls(&[("c1", "paint", "{}")]), answer(&["Done."])]);
    test.chat(input("r1", json!([user("m1", "Paint")]))).await;
    let read = async || {
        let thread = test.get("/api/threads/t?messages=none").await;
        (thread["status"].clone(), thread["openRunId"].clone())
    };
    assert_eq!(read().await, (json!("awaitingTools"), json!("r1")));
    let note = json!({"messages": [{"role": "user", "content": "Never mind"}]});
    assert_eq!(test.call("POST", "/api/threads/t/messages", Some(note)).await.0, 201);
    assert_eq!(read().await, (json!("idle"), Value::Null));
    test.say("t", "And now?").await;
    let results: Vec<Value> = prompt(&test)
        .into_iter()
        .filter(|sent| sent["role"] == "tool")
        .map(|sent| sent["content"].clone())
        .collect();
    assert_eq!(results, ["no result: the tool call was interrupted"]);
}

/// Returns AG-UI's input with the messages of the run that made the call `call-1`, and the result of this call.
fn input_with_result(first: &Turn, run: &str, content: &str) -> Value {
    let function = json!({"name": "paint", "arguments": "{}"});
    let call = json!({"id": "call-1", "type": "function", "function": function});
    let called = first.first_id("TOOL_CALL_START", "parentMessageId");
    let messages = json!([
        user("m1", "Paint"),
        {"id": called, "role": "assistant", "toolCalls": [call]},
        {"id": "m3", "role": "tool", "toolCallId": "call-1", "content": content},
    ]);
    let mut input = input(run, messages);
    input["agentId"] = json!("a1");
    input
}

#[tokio::test]
async fn results_that_are_sent_again_are_answered_as_the_first_time() {
    for format in ["?format=ndjson", "?format=sse", "?format=ui-message", "?format=json"] {
        let test = ConversationApp::start().await;
        test.vendor.on("m", [tool_calls(&[("call-1", "paint", "{}")]), answer(&["It ", "is red."])]);
        let first = test.chat(input("r1", json!([user("m1", "Paint")]))).await;
        let session = session_token("u1", "c1");
        let send = async |run: &str, content: &str| {
            test.app.chat_as(&session, format, &input_with_result(&first, run, content)).await
        };
        let read = async |run: &str| {
            let response = send(run, "painted").await;
            let status = response.status();
            let text = response.text().await.expect("a whole body");
            assert_eq!(status, 200, "{format}: {text}");
            text
        };
        let answered = read("r2").await;
        assert!(answered.contains("is red."), "{answered}");
        for run in ["r2", "r3"] {
            assert_eq!(read(run).await, answered, "{format} {run}");
            expect_problem(send(run, "painted blue").await, 409, "CONFLICT").await;
        }
        // That of another run is used.
        let used = expect_problem(send("r1", "painted").await, 409, "CONFLICT").await;
        assert_eq!(used["run"]["id"], "r1");
        assert_eq!(test.vendor.received_bodies("m").len(), 2, "the model is not asked again");
        assert_eq!(test.call("GET", "/api/runs/r3", None).await.0, 404, "the request has no run");
        let thread = test.get("/api/threads/t").await;
        assert_eq!((&thread["status"], &thread["messageCount"]), (&json!("idle"), &json!(4)));
        // The next message goes on.
        test.say("t", "Thank you").await;
        assert_eq!(test.get("/api/threads/t").await["messageCount"], 6);
    }
}

#[tokio::test]
async fn results_are_answered_again_only_in_their_own_thread() {
    let test = ConversationApp::start().await;
    test.vendor.on("m", [tool_calls(&[("call-1", "paint", "{}")]), answer(&["It is red."])]);
    let first = test.chat(input("r1", json!([user("m1", "Paint")]))).await;
    test.chat(input_with_result(&first, "r2", "painted")).await;
    let result = json!([{"role": "tool", "toolCallId": "call-1", "content": "painted"}]);
    let results = |thread: &str| json!({"agentId": "a1", "threadId": thread, "messages": result});
    let colleague = session_token("u2", "c1");
    let body = json!({"agentId": "a1", "threadId": "t", "message": "Hello"});
    let said = test.app.chat_as(&colleague, "", &body).await;
    assert_eq!(said.status(), 200);
    said.text().await.expect("a whole body");
    test.say("other", "Hello").await;
    for (session, thread) in
        [(&colleague, "t"), (&session_token("u1", "c1"), "other"), (&session_token("u1", "c1"), "never")]
    {
        let response = test.app.chat_as(session, "", &results(thread)).await;
        let problem = expect_problem(response, 400, "INVALID_REQUEST").await;
        let expected = "messages has results of tool calls that the thread is not waiting for";
        assert_eq!(problem["detail"], expected, "{thread}");
    }
    let again = test.app.chat(&results("t")).await;
    assert_eq!(again.status(), 200);
    assert!(again.text().await.expect("a whole body").contains("It is red."));
}

#[tokio::test]
async fn results_that_are_sent_again_join_their_run() {
    let test = ConversationApp::start().await;
    let (steps, gate) = gated();
    test.vendor.on("m", [tool_calls(&[("call-1", "paint", "{}")]), steps]);
    let first = test.chat(input("r1", json!([user("m1", "Paint")]))).await;
    let running = test.app.chat(&input_with_result(&first, "r2", "painted")).await;
    let other_process = test.another_process().await;
    let mut repeated = vec![other_process.chat(&input_with_result(&first, "r3", "painted")).await];
    for on_busy in ["reject", "queue", "interrupt"] {
        let mut body = input_with_result(&first, on_busy, "painted");
        body["forwardedProps"] = json!({"onBusy": on_busy});
        repeated.push(test.app.chat(&body).await);
        body["messages"][2]["content"] = json!("painted blue");
        expect_problem(test.app.chat(&body).await, 409, "CONFLICT").await;
    }
    gate.send_replace(true);
    let answered = running.text().await.expect("a whole body");
    assert!(answered.contains("and wholly."), "{answered}");
    for response in repeated {
        assert_eq!(response.status(), 200);
        assert_eq!(response.text().await.expect("a whole body"), answered);
    }
    assert_eq!(test.vendor.received_bodies("m").len(), 2);
    assert_eq!(test.get("/api/threads/t").await["messageCount"], 4);
}

#[tokio::test]
async fn repeated_results_attach_to_the_run_that_answers_them() {
    let test = ConversationApp::start().await;
    let (steps, gate) = gated();
    test.vendor.on("m", [tool_calls(&[("call-1", "paint", "{}")]), vec![Step::Stall], steps]);
    let first = test.chat(input("r1", json!([user("m1", "Paint")]))).await;
    let send = async |run: &str| test.app.chat(&input_with_result(&first, run, "painted")).await;
    let (cancelled, ()) = tokio::join!(send("r2"), async {
        test.vendor.wait_for_requests("m", 2).await;
        let cancel = async || test.call("POST", "/api/runs/r2/cancel", None).await.0;
        // The backend may be asked before the beginning is stored.
        poll_until(cancel, |status| *status == 200).await;
    });
    let cancelled = cancelled.text().await.expect("a whole body");
    // The run has left no message.
    let anew = send("r3").await;
    let joined = [send("r3").await, send("r4").await];
    gate.send_replace(true);
    let answered = anew.text().await.expect("a whole body");
    assert!(answered.contains("and wholly."), "{answered}");
    for response in joined.into_iter().chain([send("r5").await]) {
        assert_eq!(response.text().await.expect("a whole body"), answered);
    }
    assert_eq!(send("r2").await.text().await.expect("a whole body"), cancelled);
    assert_eq!(test.vendor.received_bodies("m").len(), 3);
}

#[tokio::test]
async fn results_after_a_history_without_their_calls_are_placed_like_others() {
    for asked in [user("m1", "Paint"), json!({"role": "user", "content": "Paint"})] {
        let test = ConversationApp::start().await;
        test.vendor.on("m", [tool_calls(&[("call-1", "paint", "{}")]), answer(&["It is red."])]);
        test.chat(input("r1", json!([user("m1", "Paint")]))).await;
        let body = |content: &str| {
            let result = json!({"role": "tool", "toolCallId": "call-1", "content": content});
            json!({"agentId": "a1", "threadId": "t", "messages": [asked.clone(), result]})
        };
        let answered = test.app.chat(&body("painted")).await.text().await.expect("a whole body");
        assert!(answered.contains("It is red."), "{asked}: {answered}");
        let roles: Vec<Value> = prompt(&test).iter().map(|message| message["role"].clone()).collect();
        assert_eq!(roles, ["user", "assistant", "tool"], "{asked}");
        // The messages before the results are not new when they are sent again.
        let again = test.app.chat(&body("painted")).await.text().await.expect("a whole body");
        assert_eq!(again, answered, "{asked}");
        expect_problem(test.app.chat(&body("painted blue")).await, 409, "CONFLICT").await;
        assert_eq!(test.get("/api/threads/t").await["messageCount"], 4, "{asked}");
        assert_eq!(test.vendor.received_bodies("m").len(), 2, "{asked}");
    }
}

#[tokio::test]
async fn results_without_a_completed_answer_are_answered_again() {
    for reason in ["disconnected", "requested"] {
        let test = ConversationApp::start().await;
        let partly = vec![stream_head(), delta(json!({"content": "Partly"})), Step::Stall];
        test.vendor.on("m", [tool_calls(&[("call-1", "paint", "{}")]), partly, answer(&["It is red."])]);
        let first = test.chat(input("r1", json!([user("m1", "Paint")]))).await;
        let send =
            async |run: &str, content: &str| test.app.chat(&input_with_result(&first, run, content)).await;
        let mut running = send("r2", "painted").await;
        read_until(&mut running, "Partly").await;
        if reason == "requested" {
            assert_eq!(test.call("POST", "/api/runs/r2/cancel", None).await.0, 200);
        } else {
            drop(running);
        }
        assert_eq!(test.ended_run("r2").await["reason"], reason);
        let answered = send("r3", "painted").await.text().await.expect("a whole body");
        assert!(answered.contains("It is red."), "{reason}: {answered}");
        let roles: Vec<Value> = prompt(&test).iter().map(|message| message["role"].clone()).collect();
        assert_eq!(roles, ["user", "assistant", "tool"], "{reason}: without the answer so far");
        let thread = test.get("/api/threads/t").await;
        assert_eq!((&thread["status"], &thread["messageCount"]), (&json!("idle"), &json!(5)));
        let shown = thread["nodes"][3].clone();
        assert_eq!((&shown["runId"], &shown["siblings"]), (&json!("r3"), &json!({"index": 1, "count": 2})));
        // The completed run answers them from now on.
        let again = send("r4", "painted").await.text().await.expect("a whole body");
        assert_eq!(again, answered, "{reason}");
        let first_answer = send("r2", "painted").await.text().await.expect("a whole body");
        assert!(first_answer.contains("Partly") && first_answer.contains("cancelled"), "{first_answer}");
        expect_problem(send("r5", "painted blue").await, 409, "CONFLICT").await;
        assert_eq!(test.vendor.received_bodies("m").len(), 3, "{reason}");
    }
}

#[tokio::test]
async fn a_generated_id_names_the_events_of_a_run_that_was_not_completed() {
    let test = ConversationApp::start().await;
    let partly = vec![stream_head(), delta(json!({"content": "Partly"})), Step::Stall];
    test.vendor.on("m", [tool_calls(&[("call-1", "paint", "{}")]), partly, answer(&["It is red."])]);
    let results = json!([{"role": "tool", "toolCallId": "call-1", "content": "painted"}]);
    let body = |run: Option<&str>, messages: &Value| {
        json!({"agentId": "a1", "threadId": "t", "runId": run, "messages": messages,
            "tools": client_tools()})
    };
    let generated_id = async || {
        let runs = test.get("/api/runs?threadId=t").await;
        runs["runs"][0]["id"].as_str().expect("an id").to_owned()
    };
    test.chat(body(None, &json!([user("m1", "Paint")]))).await;
    let calling = generated_id().await;
    let mut running = test.app.chat(&body(None, &results)).await;
    read_until(&mut running, "Partly").await;
    let first = generated_id().await;
    drop(running);
    assert_eq!(test.ended_run(&first).await["state"], "cancelled");
    let answered = test.app.chat(&body(None, &results)).await.text().await.expect("a whole body");
    assert!(answered.contains("It is red."), "{answered}");
    let again =
        test.app.chat(&body(Some(first.as_str()), &results)).await.text().await.expect("a whole body");
    assert!(again.contains("Partly") && again.contains("cancelled"), "{again}");
    expect_problem(test.app.chat(&body(Some(calling.as_str()), &results)).await, 409, "CONFLICT").await;
    assert_eq!(test.vendor.received_bodies("m").len(), 3);
}

#[tokio::test]
async fn results_repeated_concurrently_are_answered_once() {
    let test = ConversationApp::start().await;
    let partly = vec![stream_head(), delta(json!({"content": "Partly"})), Step::Stall];
    let (steps, gate) = gated();
    test.vendor.on("m", [tool_calls(&[("call-1", "paint", "{}")]), partly, steps]);
    let first = test.chat(input("r1", json!([user("m1", "Paint")]))).await;
    let mut running = test.app.chat(&input_with_result(&first, "r2", "painted")).await;
    read_until(&mut running, "Partly").await;
    drop(running);
    assert_eq!(test.ended_run("r2").await["state"], "cancelled");
    let again = |number: u32| input_with_result(&first, &format!("r{number}"), "painted");
    let bodies: Vec<Value> = (3..9).map(again).collect();
    let responses = join_all(bodies.iter().map(|body| test.app.chat(body))).await;
    gate.send_replace(true);
    let mut answers = HashSet::new();
    for response in responses {
        assert_eq!(response.status(), 200);
        answers.insert(response.text().await.expect("a whole body"));
    }
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(test.get("/api/threads/t").await["messageCount"], 5);
}

#[tokio::test]
async fn results_that_are_sent_without_history_are_answered_again() {
    let test = ConversationApp::start().await;
    test.vendor
        .on("m", [tool_calls(&[("call-1", "paint", "{}")]), vec![Step::Stall], answer(&["It is red."])]);
    test.chat(input("r1", json!([user("m1", "Paint")]))).await;
    let results = json!([{"role": "tool", "toolCallId": "call-1", "content": "painted"}]);
    let body =
        |run: &str| json!({"agentId": "a1", "threadId": "t", "runId": run, "messages": results.clone()});
    let (request_body, again) = (body("r2"), body("r3"));
    tokio::select! {
        response = test.app.chat(&request_body) => panic!("no head yet: {}", response.status()),
        () = test.vendor.wait_for_requests("m", 2) => {}
    }
    assert_eq!(test.ended_run("r2").await["reason"], "disconnected");
    let answered = test.app.chat(&again).await.text().await.expect("a whole body");
    assert!(answered.contains("It is red."), "{answered}");
    assert_eq!(test.get("/api/threads/t").await["messageCount"], 4, "the results are there once");
}

#[tokio::test]
async fn results_of_a_continued_thread_are_not_answered_again() {
    let test = ConversationApp::start().await;
    let partly = vec![stream_head(), delta(json!({"content": "Partly"})), Step::Stall];
    test.vendor.on("m", [tool_calls(&[("call-1", "paint", "{}")]), partly, answer(&["You are welcome."])]);
    let first = test.chat(input("r1", json!([user("m1", "Paint")]))).await;
    let mut running = test.app.chat(&input_with_result(&first, "r2", "painted")).await;
    read_until(&mut running, "Partly").await;
    drop(running);
    assert_eq!(test.ended_run("r2").await["state"], "cancelled");
    test.say("t", "Thank you").await;
    let again = test.app.chat(&input_with_result(&first, "r3", "painted")).await;
    let again = again.text().await.expect("a whole body");
    assert!(again.contains("Partly") && again.contains("cancelled"), "{again}");
    let thread = test.get("/api/threads/t").await;
    let last = &thread["nodes"].as_array().expect("nodes").last().expect("an answer")["message"]["content"];
    assert_eq!((&thread["messageCount"], last), (&json!(6), &json!("You are welcome.")));
}

#[tokio::test]
async fn outputs_of_the_ai_sdk_that_are_sent_again_are_answered_as_the_first_time() {
    let test = ConversationApp::start().await;
    test.vendor.on("m", [tool_calls(&[("c1", "paint", "{}")]), answer(&["It is red."])]);
    let session = session_token("u1", "c1");
    let asked = json!({"id": "u-1", "role": "user", "parts": [{"type": "text", "text": "Paint"}]});
    let send = async |messages: Value| {
        let body = json!({"agentId": "a1", "id": "t", "trigger": "submit-message", "tools": client_tools(),
            "messages": messages});
        test.app.chat_as(&session, "?format=ui-message", &body).await
    };
    let chunks = send(json!([asked])).await.text().await.expect("a whole body");
    assert!(chunks.contains("tool-input-available"), "{chunks}");
    let thread = test.get("/api/threads/t?format=ui-message").await;
    let message = thread["nodes"][1]["message"].clone();
    let with_output = |output: &str| {
        let mut part = message["parts"].as_array().expect("parts").last().expect("a part").clone();
        (part["state"], part["output"]) = (json!("output-available"), json!(output));
        json!([asked, {"id": message["id"], "role": "assistant", "parts": [part]}])
    };
    let answered = send(with_output("painted")).await.text().await.expect("a whole body");
    assert!(answered.contains("It is red."), "{answered}");
    let again = send(with_output("painted")).await;
    assert_eq!(again.status(), 200);
    assert_eq!(again.text().await.expect("a whole body"), answered);
    expect_problem(send(with_output("painted blue")).await, 409, "CONFLICT").await;
    assert_eq!(test.vendor.received_bodies("m").len(), 2);
}

#[tokio::test]
async fn a_message_instead_of_results_continues_without_them() {
    let test = ConversationApp::start().await;
    test.vendor.on("m", [tool_calls(&[("c1", "paint", "{}")]), answer(&["As you like."])]);
    let first = test.chat(input("r1", json!([user("m1", "Paint")]))).await;
    let called = first.first_id("TOOL_CALL_START", "parentMessageId");
    let call = json!({"id": "c1", "type": "function", "function": {"name": "paint", "arguments": "{}"}});
    let messages = json!([user("m1", "Paint"), {"id": called, "role": "assistant", "toolCalls": [call]},
        user("m2", "Never mind")]);
    test.chat(input("r2", messages)).await;
    let sent = prompt(&test);
    let roles: Vec<&Value> = sent.iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "user"]);
    assert!(sent[2]["content"].as_str().expect("text").starts_with("no result"));
    assert_eq!(test.get("/api/threads/t").await["status"], "idle");
    assert_eq!(
        test.get("/api/threads/t").await["messageCount"],
        4,
        "no result is stored that no client has sent"
    );
}

#[tokio::test]
async fn without_a_thread_the_client_holds_the_history() {
    let test = ConversationApp::start().await;
    test.vendor.on("m", [tool_calls(&[("c1", "paint", "{}")]), answer(&["Red."])]);
    let first = test.chat(json!({"message": "Paint", "tools": client_tools()})).await;
    assert_eq!(first.last()["outcome"], json!({"type": "success", "pendingToolCallIds": ["c1"]}));
    let call = json!({"id": "c1", "type": "function", "function": {"name": "paint", "arguments": "{}"}});
    let messages = json!([user("m1", "Paint"), {"role": "assistant", "toolCalls": [call]},
        {"role": "tool", "toolCallId": "c1", "content": "painted"}]);
    let second = test.chat(json!({"messages": messages, "tools": client_tools()})).await;
    assert_eq!(second.last()["type"], "RUN_FINISHED");
    assert_eq!(prompt(&test)[2]["content"], "painted");
}

#[tokio::test]
async fn tools_by_their_names_are_those_of_a_list() {
    let test = ConversationApp::start().await;
    test.vendor.on("m", [answer(&["Hi."]), answer(&["Hi."]), answer(&["Hi."])]);
    let mut by_name = client_tools()[0].clone();
    by_name.as_object_mut().expect("an object").remove("name");
    for tools in [client_tools(), json!({ "paint": by_name }), json!({})] {
        test.chat(json!({"message": "Paint", "tools": tools})).await;
    }
    let offered: Vec<Value> =
        test.vendor.received_bodies("m").into_iter().map(|body| body["tools"].clone()).collect();
    assert!(offered[0].to_string().contains("Paints the page."), "{}", offered[0]);
    assert_eq!(offered[0], offered[1]);
    assert!(!offered[2].to_string().contains("paint"), "{}", offered[2]);
}

#[tokio::test]
async fn one_object_and_ui_messages_name_the_pending_calls() {
    let test = ConversationApp::start().await;
    let calls = || tool_calls(&[("c1", "paint", "{}")]);
    test.vendor.on("m", [calls(), calls()]);
    let body = json!({"agentId": "a1", "message": "Paint", "tools": client_tools()});
    let session = session_token("u1", "c1");
    let request = test
        .app
        .request("POST", "/api/agent/chat")
        .bearer_auth(&session)
        .header("accept", "application/json");
    let object: Value = request.json(&body).send().await.expect("an answer").json().await.expect("JSON");
    assert_eq!(
        (&object["finishReason"], &object["pendingToolCallIds"]),
        (&json!("tool_calls"), &json!(["c1"]))
    );
    let chunks = test.app.chat_as(&session, "?format=ui-message", &body).await.text().await.expect("a body");
    assert!(chunks.contains(r#""type":"tool-input-available""#), "{chunks}");
    assert!(chunks.contains(r#""finishReason":"tool-calls""#), "{chunks}");
}

#[tokio::test]
async fn invalid_tools_are_refused_and_the_role_decides_who_brings_any() {
    let test = ConversationApp::start().await;
    let body = |tools: Value| json!({"agentId": "a1", "threadId": "t", "message": "Hello", "tools": tools});
    let many: Vec<Value> = (0..65).map(|number| json!({"name": format!("t{number}")})).collect();
    let large = json!({"type": "object", "description": "x".repeat(17_000)});
    for (tools, path) in [
        (json!([{"name": "readTodos"}]), "tools"),
        (json!([{"name": "a b"}]), "tools[0].name"),
        (json!([{"name": "a"}, {"name": "a"}]), "tools[1].name"),
        (json!([{"name": "a", "parameters": large}]), "tools[0].parameters"),
        (json!(many), "tools"),
        (json!(["a"]), "tools[0]"),
        (json!({"readTodos": {}}), "tools"),
        (json!({"a b": {}}), "tools"),
        (json!({"": {}}), "tools"),
        (json!({"a": null}), "tools.a"),
        (json!({"a": {"description": 1}}), "tools.a.description"),
        (json!({"a": {"parameters": large}}), "tools.a.parameters"),
        (json!("a"), "tools"),
    ] {
        let kept = body(tools);
        let mut unkept = kept.clone();
        unkept.as_object_mut().expect("an object").remove("threadId");
        for request in [&kept, &unkept] {
            let problem = expect_problem(test.app.chat(request).await, 400, "INVALID_REQUEST").await;
            assert!(problem["detail"].as_str().expect("text").starts_with(path), "{problem}");
        }
        let (status, problem) = test.call("POST", "/api/svcchat/previewPrompt", Some(unkept)).await;
        assert_eq!(status, 400, "{problem}");
        assert!(problem["detail"].as_str().expect("text").starts_with(path), "{problem}");
    }
    let session = session_token("u1", "c1");
    let mut role = call_as(&test.app, &session, "GET", "/api/agents/a1", None).await.1;
    role["content"]["conversations"] = json!({"clientTools": "off"});
    let (status, saved) = call_as(&test.app, &session, "PUT", "/api/agents/a1", Some(role)).await;
    assert_eq!(status, 200, "{saved}");
    test.say("t", "Hello").await;
    let body = json!({"threadId": "t", "message": "Hello", "tools": client_tools()});
    test.chat(body).await;
    let request_body = test.vendor.received_bodies("m").pop().expect("a request");
    assert!(!request_body["tools"].to_string().contains("paint"), "{request_body}");
}
