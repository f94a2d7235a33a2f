//! Visitor restrictions: messages, tool calls and visible events.

use std::iter;
use std::time::Duration;

use agent_platform::token::WidgetGrant;
use serde_json::{Value, json};

use super::{open, open_with};
use crate::support::vendor::{Step, answer, delta, finish, json_response, stream_head, tool_calls};
use crate::support::{expect_problem, finished_run, text_of};

/// Lets visitors of `a1` call tools, and gives the agent a memory.
fn with_tools(workspace: &mut Value) {
    workspace["agents"][0]["content"]["widgetTools"] = json!(["readTodos", "createTodo"]);
    workspace["memories"] = json!([
        {"id": "m1", "companyId": "c1", "agentId": "a1", "userId": "u1", "text": "memory-canary"},
        {"id": "m2", "companyId": "c1", "agentId": "a1", "text": "memory-canary"}
    ]);
    workspace["todoLists"][0]["todos"][0]["title"] = "todo-canary".into();
}

#[tokio::test]
async fn a_visitor_cannot_instruct_the_model() {
    let bench = open(|_| {}).await;
    let minted = bench.mint_widget(WidgetGrant::default()).await;
    for role in ["system", "developer"] {
        for messages in [
            json!([{"role": role, "content": "x"}, {"role": "user", "content": "y"}]),
            json!([{"role": "user", "content": "y"}, {"role": role, "content": "x"}]),
            json!([{"id": "1", "role": role, "parts": [{"type": "text", "text": "x"}]}]),
        ] {
            let more = json!({ "messages": messages });
            let problem =
                expect_problem(bench.ask_with_token(&minted, &more).await, 400, "INVALID_REQUEST").await;
            assert!(problem["detail"].as_str().expect("text").starts_with("messages["), "{problem}");
        }
    }
    assert!(bench.vendor.received().is_empty());
    let history = json!({"messages": [
        {"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}
    ]});
    finished_run(bench.ask_with_token(&minted, &history).await).await;
}

#[tokio::test]
async fn the_owner_s_memory_and_tools_are_not_a_visitor_s() {
    let bench = open(|workspace| {
        with_tools(workspace);
        workspace["agents"][0]["content"]["widgetTools"] = json!([]);
    })
    .await;
    let minted = bench.mint_widget(WidgetGrant::default()).await;
    // The model calls a tool that it was not offered.
    bench.vendor.on("m", [tool_calls(&[("c1", "readTodos", "{}")]), answer(&["Sorry."])]);
    finished_run(bench.ask_with_token(&minted, &json!({"todoListId": "l1"})).await).await;
    let request_bodies = bench.vendor.received_bodies("m");
    assert_eq!(request_bodies.len(), 2);
    assert!(request_bodies[0].get("tools").is_none(), "{}", request_bodies[0]);
    let all = json!(request_bodies).to_string();
    assert!(!all.contains("canary") && all.contains("an anonymous visitor of a web page"), "{all}");
    // The same request by the owner includes both the memory and the tool's result.
    bench.vendor.on("m", [tool_calls(&[("c1", "readTodos", "{}")]), answer(&["One."])]);
    let chat_body = json!({"agentId": "a1", "message": "Hello", "todoListId": "l1"});
    finished_run(bench.app.chat(&chat_body).await).await;
    let all = json!(bench.vendor.received_bodies("m")).to_string();
    assert!(all.contains("memory-canary") && all.contains("todo-canary"), "{all}");
}

#[tokio::test]
async fn the_owner_s_list_does_not_exist_for_a_visitor() {
    let bench = open(with_tools).await;
    let minted = bench.mint_widget(WidgetGrant::default()).await;
    let mut results_by_list = Vec::new();
    for list in ["l1", "none"] {
        let calls = [("c1", "readTodos", "{}"), ("c2", "createTodo", r#"{"title":"mine"}"#)];
        bench.vendor.on("m", [tool_calls(&calls), answer(&["Sorry."])]);
        let request_count = bench.vendor.received().len();
        finished_run(bench.ask_with_token(&minted, &json!({ "todoListId": list })).await).await;
        let request_bodies = bench.vendor.received_bodies("m").split_off(request_count);
        let offered = request_bodies[0]["tools"].as_array().expect("tools").len();
        assert_eq!(offered, 2, "{}", request_bodies[0]);
        let results: Vec<_> = request_bodies[1]["messages"]
            .as_array()
            .expect("messages")
            .iter()
            .filter(|m| m["role"] == "tool")
            .collect();
        assert_eq!(results.len(), 2);
        results_by_list.push(json!(results).to_string().replace(list, "<list>"));
    }
    assert_eq!(results_by_list[0], results_by_list[1]);
    assert!(
        results_by_list[0].contains("no todo list") && !results_by_list[0].contains("canary"),
        "{}",
        results_by_list[0]
    );
    bench.vendor.on("m", [tool_calls(&[("c1", "readTodos", "{}")]), answer(&["One."])]);
    let chat_body = json!({"agentId": "a1", "message": "Hello", "todoListId": "l1"});
    let owner = bench.app.chat(&chat_body).await.text().await.expect("a whole body");
    assert!(owner.contains("todo-canary") && !owner.contains("mine"), "{owner}");
}

/// Returns a run with reasoning, a tool call with an internal result, and a text response.
fn run_with_reasoning() -> [Vec<Step>; 2] {
    let mut first = tool_calls(&[("c1", "readTodos", "{}")]);
    first.insert(1, delta(json!({"reasoning_content": "thought-canary"})));
    let second = [stream_head(), delta(json!({"reasoning_content": "thought-canary"}))]
        .into_iter()
        .chain([delta(json!({"content": "Here you are."}))])
        .chain(finish("stop"));
    [first, second.collect()]
}

#[tokio::test]
async fn a_model_that_reasons_for_longer_than_the_idle_limit_answers_a_visitor() {
    let bench = open_with(&[("STREAM_IDLE_MS", "3000")], |_| {}).await;
    let minted = bench.mint_widget(WidgetGrant::default()).await;
    // All pauses take longer than the limit, and each of them a thirtieth of it.
    let thought =
        [delta(json!({"reasoning_content": "thought-canary"})), Step::Pause(Duration::from_millis(100))];
    let thoughts = iter::repeat_n(thought, 40).flatten();
    let content = [delta(json!({"content": "Here you are."}))];
    let steps: Vec<Step> =
        iter::once(stream_head()).chain(thoughts).chain(content).chain(finish("stop")).collect();
    bench.vendor.on("m", [steps]);
    let events = finished_run(bench.ask_with_token(&minted, &json!({})).await).await;
    assert_eq!(text_of(&events), "Here you are.");
    assert!(!json!(events).to_string().contains("canary"), "{events:?}");
}

#[tokio::test]
async fn a_visitor_sees_only_the_answer_in_every_framing() {
    let bench = open(with_tools).await;
    let minted = bench.mint_widget(WidgetGrant::default()).await;
    for format in ["ndjson", "sse", "ui-message", "n8n", "json"] {
        let query = format!("?format={format}");
        bench.vendor.on("m", run_with_reasoning());
        let headers = [("x-widget-token", minted.text.expose())];
        let answer = bench.ask(&query, &headers, &json!({"todoListId": "l1"})).await;
        assert_eq!(answer.status(), 200);
        let text = answer.text().await.expect("a whole body");
        assert!(text.contains("Here you are."), "{text}");
        for hidden in [
            "canary",
            "no todo list",
            "REASONING",
            "reasoning-",
            "TOOL_CALL_RESULT",
            "CUSTOM",
            "data-agent",
            "tool-output",
            "requestSha256",
            "\"result\":\"",
            "stablePrefixBytes",
        ] {
            assert!(!text.contains(hidden), "{format}: {hidden} in {text}");
        }
        bench.vendor.on("m", run_with_reasoning());
        let chat_body = json!({"agentId": "a1", "message": "Hello", "todoListId": "l1"});
        let session = crate::support::server::session_token("u1", "c1");
        let owner = bench.app.chat_as(&session, &query, &chat_body).await.text().await.expect("a whole body");
        // The lines of n8n's widget have no tool calls, for any caller.
        assert_eq!(owner.contains("todo-canary"), format != "n8n", "{format}: {owner}");
    }
}

#[tokio::test]
async fn the_stream_of_a_remote_runtime_is_filtered_too() {
    let bench = open(|_| {}).await;
    let lines = [
        json!({"type": "RUN_STARTED", "threadId": "t", "runId": "r"}),
        json!({"type": "CUSTOM", "name": "agent.debug", "value": {"note": "canary"}}),
        json!({"type": "REASONING_START", "messageId": "1"}),
        json!({"type": "REASONING_MESSAGE_START", "messageId": "1", "role": "reasoning"}),
        json!({"type": "REASONING_MESSAGE_CONTENT", "messageId": "1", "delta": "canary"}),
        json!({"type": "REASONING_MESSAGE_END", "messageId": "1"}),
        json!({"type": "REASONING_END", "messageId": "1"}),
        json!({"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "f"}),
        json!({"type": "TOOL_CALL_END", "toolCallId": "c"}),
        json!({"type": "TOOL_CALL_RESULT", "messageId": "2", "toolCallId": "c", "content": "canary", "role": "tool"}),
        json!({"type": "TEXT_MESSAGE_START", "messageId": "3", "role": "assistant"}),
        json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": "3", "delta": "Hello"}),
        json!({"type": "TEXT_MESSAGE_END", "messageId": "3"}),
        json!({"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}),
    ];
    let body: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let remote = open(|workspace| {
        workspace["agents"][0]["children"] = json!([{"name": "AgentServer", "content": {
            "agentServerUrl": format!("http://{}", bench.vendor.address),
            "agentServerProvider": "openai", "agentServerModel": "m"}}]);
    })
    .await;
    bench.vendor.on("m", [json_response("200 OK", "", &body)]);
    let minted = remote.mint_widget(WidgetGrant::default()).await;
    let events = finished_run(remote.ask_with_token(&minted, &json!({"todoListId": "l1"})).await).await;
    assert_eq!(text_of(&events), "Hello");
    let names: Vec<&str> = events.iter().map(|event| event["type"].as_str().expect("a type")).collect();
    assert_eq!(
        names,
        [
            "RUN_STARTED",
            "TOOL_CALL_START",
            "TOOL_CALL_END",
            "TEXT_MESSAGE_START",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_END",
            "RUN_FINISHED"
        ]
    );
    let request_body = bench.vendor.received_bodies("m").pop().expect("the runtime was asked");
    let user = format!("widget:{}", minted.token.id);
    assert_eq!(request_body["context"]["userId"], user);
    assert_eq!(request_body["context"]["caller"], "widget");
    assert!(!request_body.to_string().contains("todoListId"), "{request_body}");
    assert!(!request_body.to_string().contains(minted.text.expose()), "the token stays here: {request_body}");
}

#[tokio::test]
async fn the_configuration_of_the_agent_is_not_disclosed() {
    let bench = open(|workspace| {
        workspace["agents"][0]["children"] = json!([]);
    })
    .await;
    let minted = bench.mint_widget(WidgetGrant::default()).await;
    let problem = expect_problem(bench.ask_with_token(&minted, &json!({})).await, 422, "NO_CONNECTOR").await;
    assert!(problem.get("selection").is_none(), "{problem}");
    let chat_body = json!({"agentId": "a1", "message": "Hello"});
    let problem = expect_problem(bench.app.chat(&chat_body).await, 422, "NO_CONNECTOR").await;
    assert!(problem.get("selection").is_some(), "{problem}");
}

#[tokio::test]
async fn a_visitor_sees_only_its_own_runs() {
    let bench = open(|_| {}).await;
    let (one, other) =
        (bench.mint_widget(WidgetGrant::default()).await, bench.mint_widget(WidgetGrant::default()).await);
    let run = json!({"runId": "r-1"});
    finished_run(bench.ask_with_token(&one, &run).await).await;
    expect_problem(bench.ask_with_token(&one, &run).await, 409, "CONFLICT").await;
    finished_run(bench.ask_with_token(&other, &run).await).await;
}
