//! Reports of calls and of changed tools, in runs and in jobs.

use super::*;

/// Returns a response of server-sent events. In place of the text `$ID` they have the request's id.
fn events_response(messages: &[Value]) -> Vec<Step> {
    let events: String = messages.iter().map(|message| format!("data: {message}\n\n")).collect();
    let events = events.replace(r#""$ID""#, REQUEST_ID_PLACEHOLDER);
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 0\r\n\r\n";
    vec![Step::Send(format!("{head}{events}").into())]
}

fn found() -> Value {
    json!({"jsonrpc": "2.0", "id": "$ID", "result": {"content": [{"type": "text", "text": "found"}]}})
}

#[tokio::test]
async fn a_server_of_sessions_may_ping_and_tell_of_changes_during_a_call() {
    let (vendor, server) = (Vendor::start().await, start_server(McpRevision::Sessions).await);
    let app = server::app(&workspace_with(&vendor, &[entry("crm", &server)]), &[]).await;
    pin(&app, "crm", &["search"]).await;
    let log = json!({"level": "info", "data": SECRET});
    server.on(
        "search",
        [events_response(&[
            json!({"jsonrpc": "2.0", "id": "ping-1", "method": "ping"}),
            json!({"jsonrpc": "2.0", "method": "notifications/message", "params": log}),
            json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}),
            found(),
        ])],
    );
    let request_count = server.received().len();
    assert_eq!(run(&app, &vendor, "crm_search", 2).await, ["found"; 2]);
    let names = server.received_names().split_off(request_count);
    let lists = names.iter().filter(|name| *name == "tools/list").count();
    assert_eq!(lists, 2, "the list is read again after it has changed: {names:?}");
    // A response has no method.
    server.wait_for_names(|names| names.iter().filter(|name| name.is_empty()).count() == 2).await;
    let received = server.received();
    let answers = received.iter().filter(|request| request.body.windows(6).any(|text| text == b"ping-1"));
    let answers: Vec<Value> = answers.map(|answer| answer.json()["result"].clone()).collect();
    assert!(answers.len() == 2 && answers.iter().all(Value::is_object), "{answers:?}");
}

#[tokio::test]
async fn progress_is_reported_without_secrets() {
    let (vendor, server) = (Vendor::start().await, start_server(McpRevision::Stateless).await);
    let app = server::app(&workspace_with(&vendor, &[entry("crm", &server)]), &[]).await;
    pin(&app, "crm", &["search"]).await;
    let report = json!({"progressToken": "$ID", "progress": 1, "message": format!("with {SECRET}")});
    let report = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": report});
    server.on("search", [events_response(&[report, found()])]);
    let events = run_events(&app, &vendor, "crm_search", 1).await;
    let report = events.iter().find(|event| event["value"]["kind"] == "toolProgress");
    assert_eq!(report.expect("a report")["value"]["message"], "with ***", "{events:?}");
}

#[tokio::test]
async fn the_model_is_told_where_a_call_may_have_taken_effect() {
    for revision in MCP_REVISIONS {
        let (vendor, server) = (Vendor::start().await, start_server(revision).await);
        let mut refund = definition("refund");
        refund["annotations"] = json!({"destructiveHint": true});
        server.on("tools/list", [tools_response(&[definition("search"), refund])]);
        let app = server::app(&workspace_with(&vendor, &[entry("crm", &server)]), &[]).await;
        pin(&app, "crm", &["search", "refund"]).await;
        let cut_off = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{";
        for (steps, is_unknown) in [
            (vec![Step::Reset], true),
            (vec![Step::Send(cut_off.into()), Step::Close], true),
            (json_response("200 OK", "", "{"), true),
            (events_response(&[]), true),
            (result_response(&json!({"content": "text"})), true),
            (json_response("403 Forbidden", "", "{}"), false),
            (json_response("500 Internal Server Error", "", ""), false),
            (json_response("500 Internal Server Error", "content-encoding: gzip\r\n", "bomb"), false),
            (json_response("502 Bad Gateway", "", "<html>"), true),
            (json_response("503 Service Unavailable", "", ""), true),
            (json_response("503 Service Unavailable", "retry-after: 1\r\n", ""), false),
            (json_response("504 Gateway Timeout", "", ""), true),
        ] {
            server.on("refund", [steps.clone()]).on("search", [steps]);
            let result = run(&app, &vendor, "crm_refund", 1).await.remove(0);
            let suffix = "; the call may or may not have taken effect";
            assert_eq!(result.ends_with(suffix), is_unknown, "{revision:?}: {result}");
            let result = run(&app, &vendor, "crm_search", 1).await.remove(0);
            assert!(!result.ends_with(suffix), "a call that only reads: {result}");
        }
    }
}

#[tokio::test]
async fn a_job_does_not_repeat_a_call_that_may_have_taken_effect() {
    for revision in MCP_REVISIONS {
        let (vendor, server) = (Vendor::start().await, start_server(revision).await);
        let mut refund = definition("refund");
        refund["annotations"] = json!({"destructiveHint": true});
        server.on("tools/list", [tools_response(&[refund])]).on("refund", [vec![Step::Reset]]);
        let stores = server::stores(&workspace_with(&vendor, &[entry("crm", &server)])).await;
        let settings = [("PULSE_URL", "http://127.0.0.1:9"), ("PULSE_SECRET", PULSE_SECRET)];
        let app = server::app_with_stores(stores, &settings).await;
        pin(&app, "crm", &["refund"]).await;
        let job = json!({"kind": "tool", "userId": "u1", "companyId": "c1", "agentId": "a1",
            "toolId": "crm_refund", "arguments": {"q": "x"}});
        for _ in 0..2 {
            let answer = deliver_callback(&app, &delivery(job.clone(), "j1", 1)).await;
            expect_problem(answer, 422, "OUTCOME_UNKNOWN").await;
        }
        let names = server.received_names();
        assert_eq!(names.iter().filter(|name| *name == "refund").count(), 1, "{revision:?}: {names:?}");
    }
}

#[tokio::test]
async fn a_run_reports_each_tool_that_has_changed_once() {
    let (vendor, server) = (Vendor::start().await, start_server(McpRevision::Stateless).await);
    let mut workspace = workspace_with(&vendor, &[entry("crm", &server)]);
    let app = server::app(&workspace, &[]).await;
    pin(&app, "crm", &["search", "refund"]).await;
    let unchanged = run_events(&app, &vendor, "crm_search", 2).await;
    assert!(reported_changes(&unchanged).is_empty(), "{unchanged:?}");

    let mut changed = definition("search");
    changed["description"] = json!("Another tool.");
    server.on("tools/list", [result_response(&json!({"tools": [changed]}))]);
    let report = |name: &str, status: &str| json!({"kind": "toolChanged", "tool": name, "serverId": "crm", "status": status});
    let runtime = server::runtime(&[]).await;
    for is_remote in [false, true] {
        if is_remote {
            select_runtime(&mut workspace["agents"][0], &runtime, &vendor);
            assert_eq!(put_agent(&app, &workspace).await.status(), 200);
        }
        let events = run_events(&app, &vendor, "crm_search", 3).await;
        assert_eq!(reported_changes(&events), [&report("crm_search", "changed")], "remote: {is_remote}");
        let events = run_events(&app, &vendor, "crm_refund", 1).await;
        assert_eq!(reported_changes(&events), [&report("crm_refund", "gone")], "remote: {is_remote}");
    }
}

#[tokio::test]
async fn an_approved_call_of_a_tool_that_has_changed_since_is_reported() {
    let (vendor, server) = (Vendor::start().await, start_server(McpRevision::Stateless).await);
    let mut workspace = workspace_with(&vendor, &[entry("crm", &server)]);
    workspace["agents"][0]["content"]["approvals"] = json!([{"tools": ["crm_search"]}]);
    let app = server::app(&workspace, &[]).await;
    pin(&app, "crm", &["search", "refund"]).await;
    vendor.on("m", [tool_calls(&[("call-1", "crm_search", r#"{"q":"x"}"#)]), answer(&["Done."])]);
    let body = json!({"agentId": "a1", "threadId": "t", "message": "Look."});
    let asked = parse_run(&app.chat(&body).await.text().await.expect("a body"));
    let outcome = &asked.last().expect("an event")["outcome"];
    assert_eq!(outcome["type"], "interrupt", "{asked:?}");

    let mut changed = definition("search");
    changed["description"] = json!("Another tool.");
    server.on("tools/list", [result_response(&json!({"tools": [changed]}))]);
    let id = &outcome["interrupts"][0]["id"];
    let decision = json!({"interruptId": id, "status": "resolved", "payload": {"approved": true}});
    let body = json!({"agentId": "a1", "threadId": "t", "messages": [], "resume": [decision]});
    // The result belongs to a call of the run before, so that the grammar of one run does not apply.
    let continued = parse_events(&app.chat(&body).await.text().await.expect("a body"));
    let report = json!({"kind": "toolChanged", "tool": "crm_search", "serverId": "crm", "status": "changed"});
    assert_eq!(reported_changes(&continued), [&report]);
    assert_eq!(text_of(&continued), "Done.");
    assert!(!server.received_names().iter().any(|name| name == "search"));
}
