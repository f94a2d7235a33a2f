//! Faults of the vendor behind the runtime, and of the runtime itself, as the user of a subscription sees them.

use std::time::Instant;

use serde_json::{Value, json};

use super::installation::{
    InstallationSettings, MODEL, RUNTIME_SECRET, open, open_over, question, workspace, workspace_of_models,
};
use super::{hello, refusal};
use crate::responses::faults::{self, FaultCase, FaultPosition};
use crate::support::issuer::IssuerRoute;
use crate::support::responses_vendor::{
    self, OutputItem, Reply, ResponsesVendor, completed, created, item_events, text_delta,
};
use crate::support::server::{self, session_token};
use crate::support::vendor::{
    LONG_TIMEOUTS, SHORT_TIMEOUTS, Step, chunk, event, json_response, last_chunk, stream_head,
};
use crate::support::{expect_problem, parse_run, read_until, report, text_of};

/// Returns the code of a case whose call passes through the runtime with a user's token.
fn code_by_subscription(case: &FaultCase<'_>) -> Option<&'static str> {
    match (case.fault.name, case.position) {
        ("401", FaultPosition::Head) => Some("SIGN_IN_REQUIRED"),
        // A connection that breaks within a response ends the runtime's response, without its end.
        (
            "reset" | "garbage",
            FaultPosition::BeforeOutput | FaultPosition::InText | FaultPosition::InCall,
        ) => Some("STREAM_TRUNCATED"),
        _ => case.code(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_behind_the_runtime_ends_the_run_once() {
    let faults = faults::faults();
    // The names of the agents are needed before there is a vendor.
    let models: Vec<String> =
        faults::cases(&faults, &ResponsesVendor::start().await).into_iter().map(|case| case.model).collect();
    let models: Vec<&str> = models.iter().map(String::as_str).collect();
    // A rejected token is replaced once, and no other fault refreshes.
    for (time_outs, waits, refreshes) in [(LONG_TIMEOUTS, false, 1), (SHORT_TIMEOUTS, true, 0)] {
        // The runtime waits for the head of a response, and the application for the events of a stream.
        let settings =
            InstallationSettings { app: &time_outs[1..], runtime: &time_outs[..1], ..Default::default() };
        let all = open_over(server::stores(&workspace_of_models(&models)).await, settings).await;
        let mut cases = faults::cases(&faults, &all.vendor);
        cases.retain(|case| case.waits() == waits);
        assert!(!cases.is_empty(), "waits: {waits}");
        all.sign_in("u1").await;
        faults::check_cases(|_| &all.app, &cases, code_by_subscription).await;
        all.assert_no_complaints();
        assert_eq!(all.issuer.calls(IssuerRoute::Refresh), refreshes);
    }
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_call_behind_the_runtime() {
    let all = open(&[]).await;
    all.sign_in("u1").await;
    all.vendor.on(MODEL, [Reply::steps([FaultPosition::InText.steps_before(), vec![Step::Stall]].concat())]);
    let mut response = all.chat("u1", question("a1")).await;
    read_until(&mut response, "\"par\"").await;
    let left = Instant::now();
    drop(response);
    all.vendor.wait_for_disconnects(1).await;
    report(&format!("the call ended {:?} after its client had left", left.elapsed()));
}

#[tokio::test]
async fn an_unreachable_runtime_and_one_without_an_api_are_reported() {
    let all = open(&[]).await;
    all.sign_in("u1").await;
    // Another runtime, which has no address of an API, and then none at all.
    let runtime = server::runtime(&[("RUNTIME_SECRET", RUNTIME_SECRET)]).await;
    let url = runtime.url("");
    let settings = [("RUNTIME_URL", &*url), ("RUNTIME_SECRET", RUNTIME_SECRET)];
    let app = server::app_with_stores(all.stores.clone(), &settings).await;
    let chat = async || app.chat_as(&session_token("u1", "c1"), "", &question("a1")).await;
    let problem = expect_problem(chat().await, 503, "NOT_CONFIGURED").await;
    assert_eq!(problem["detail"], "CODING_API_URL is not configured in the agent runtime");
    runtime.stop();
    runtime.stopped().await;
    expect_problem(chat().await, 502, "BACKEND_UNREACHABLE").await;
    // A runtime that does not know this secret has refused the application, and not the user's token.
    let stranger = server::runtime(&[("RUNTIME_SECRET", "another-secret-0123456789")]).await;
    let url = stranger.url("");
    let settings = [("RUNTIME_URL", &*url), ("RUNTIME_SECRET", RUNTIME_SECRET)];
    let app = server::app_with_stores(all.stores.clone(), &settings).await;
    let response = app.chat_as(&session_token("u1", "c1"), "", &question("a1")).await;
    expect_problem(response, 502, "BACKEND_FAILED").await;
    assert_eq!(all.issuer.calls(IssuerRoute::Refresh), 0, "no token was refreshed for it");
}

/// Returns the error of a usage limit, with further members.
fn usage_limit(more: &Value) -> Value {
    let mut error = json!({"type": "usage_limit_reached", "plan_type": "plus", "message": "canary"});
    error.as_object_mut().expect("an object").extend(more.as_object().cloned().expect("an object"));
    error
}

#[tokio::test]
async fn a_usage_limit_has_its_reset_time_and_the_vendor_is_called_once() {
    let all = open(&[("MODEL_ATTEMPTS", "3")]).await;
    all.sign_in("u1").await;
    let month = 31 * 86_400;
    for (members, header, seconds) in [
        (json!({"resets_in_seconds": 3600}), "", Some(3_600)),
        // A time that has passed is not used, nor is one after the next month believed.
        (json!({"resets_at": 1_000_000_000, "resets_in_seconds": 60}), "", Some(60)),
        (json!({"resets_at": 1_000_000_000}), "", None),
        (json!({"resets_at": 4_294_967_295_u64}), "", Some(month)),
        (json!({}), "x-codex-primary-reset-at: 4294967295\r\n", Some(month)),
    ] {
        let error = usage_limit(&members);
        let failed = json!({"type": "response.failed", "response": {"error": error}});
        let body = json!({"error": error});
        let replies = [
            refusal("429 Too Many Requests", header, &body),
            refusal("404 Not Found", header, &body),
            refusal("200 OK", header, &body),
        ];
        for reply in replies {
            all.vendor.on(MODEL, [reply]);
            let request_count = all.vendor.received_bodies(MODEL).len();
            let response = all.chat("u1", question("a1")).await;
            let retry_after = response.headers().get("retry-after").cloned();
            let problem = expect_problem(response, 429, "RATE_LIMITED").await;
            assert_eq!(all.vendor.received_bodies(MODEL).len(), request_count + 1, "it is not retried");
            assert!(!problem.to_string().contains("canary"), "{problem}");
            let limit = &problem["limit"];
            assert_eq!((&limit["kind"], &limit["plan"]), (&json!("usage"), &json!("plus")));
            assert_eq!(limit["resetsAt"].is_string(), seconds.is_some(), "{problem}");
            let after = retry_after.map(|value| value.to_str().expect("text").parse().expect("seconds"));
            let range = seconds.map(|seconds: u64| seconds - 20..=seconds);
            assert!(
                after.zip(range.clone()).map_or(range.is_none(), |(after, range)| range.contains(&after)),
                "{after:?} for {members}"
            );
        }
        all.vendor
            .on(MODEL, [Reply::events(&[text_delta(0, "par").to_string(), failed.to_string()], vec![])]);
        let events = all.run("u1", "a1").await;
        let end = events.last().expect("an end");
        assert_eq!((&end["type"], &end["code"]), (&json!("RUN_ERROR"), &json!("RATE_LIMITED")));
        assert_eq!(text_of(&events), "par");
    }
    assert_eq!(all.issuer.calls(IssuerRoute::Refresh), 0);
}

#[tokio::test]
async fn a_model_that_falls_silent_ends_the_run_in_time() {
    let idle = [("STREAM_IDLE_MS", "2500")];
    for settings in [
        InstallationSettings { app: &idle, ..Default::default() },
        InstallationSettings { runtime: &[("CODING_STREAM_IDLE_MS", "2500")], ..Default::default() },
    ] {
        let code = if settings.app.is_empty() { "STREAM_TRUNCATED" } else { "BACKEND_TIMEOUT" };
        let all = open_over(server::stores(&workspace()).await, settings).await;
        all.sign_in("u1").await;
        let steps = vec![stream_head(), event(created()), Step::Stall];
        all.vendor.on(MODEL, [Reply::steps(steps)]);
        let events = all.run("u1", "a1").await;
        let end = events.last().expect("an end");
        assert_eq!((&end["type"], &end["code"]), (&json!("RUN_ERROR"), &json!(code)));
        all.vendor.wait_for_disconnects(1).await;
    }
}

#[tokio::test]
async fn a_call_that_cannot_be_made_is_answered_to_the_model() {
    let all = open(&[]).await;
    all.sign_in("u1").await;
    for (name, arguments) in [("no_such_tool", "{}"), ("readTodos", "{\"title\":"), ("createTodo", "[1]")] {
        let call = OutputItem::call("call_1", name, arguments);
        let events = responses_vendor::events(&[call]);
        // Arguments that are not JSON are not returned unchanged.
        all.vendor.on(MODEL, [Reply::events(&events, vec![]), hello()]);
        let events = all.run("u1", "a1").await;
        assert_eq!(text_of(&events), "Hello.", "{name} {arguments}");
        let results = events.iter().filter(|event| event["type"] == "TOOL_CALL_RESULT").count();
        assert_eq!(results, 1, "{events:?}");
        let body = all.vendor.received_bodies(MODEL).pop().expect("a second round");
        let input = body["input"].as_array().expect("items");
        let [.., call, output] = &input[..] else { panic!("{body}") };
        assert_eq!((&call["name"], &output["type"]), (&json!(name), &json!("function_call_output")));
        let sent = call["arguments"].as_str().expect("text");
        serde_json::from_str::<Value>(sent).unwrap_or_else(|error| panic!("{error}: {sent}"));
    }
    all.assert_no_complaints();
}

#[tokio::test]
async fn unusual_answers_end_a_run_once() {
    let all = open(&[]).await;
    all.sign_in("u1").await;
    let text = || text_delta(0, "a").to_string();
    let usage =
        |usage: Value| json!({"type": "response.completed", "response": {"usage": usage}}).to_string();
    let calls = |id: &str| {
        let call = OutputItem::call(id, "readTodos", "{}");
        item_events(0, &call).into_iter().chain([completed()]).collect::<Vec<_>>()
    };
    let failed = json!({"type": "response.failed", "response": {"error": {"code": "server_error"}}});
    let of_nothing =
        json!({"type": "response.function_call_arguments.delta", "item_id": "fc_9", "delta": "{}"});
    for (name, replies, expected) in [
        ("without usage", vec![vec![text(), usage(Value::Null)]], "a RUN_FINISHED"),
        (
            "odd usage",
            vec![vec![
                text(),
                usage(json!({"input_tokens": 9_223_372_036_854_775_808_u64, "output_tokens": -1})),
            ]],
            "a RUN_FINISHED",
        ),
        ("failed after text", vec![vec![text(), failed.to_string()]], "a RUN_ERROR BACKEND_FAILED"),
        ("delta of nothing", vec![vec![text(), of_nothing.to_string()]], "a RUN_ERROR BACKEND_FAILED"),
        ("after the end", vec![vec![text(), completed(), text(), failed.to_string()]], "a RUN_FINISHED"),
        ("call id twice", vec![calls("c1"), calls("c1"), vec![text(), completed()]], "a RUN_FINISHED"),
    ] {
        all.vendor.on(MODEL, replies.iter().map(|events| Reply::events(events, vec![])));
        let events = all.run("u1", "a1").await;
        let end = events.last().expect("an end");
        let code = end["code"].as_str().map(|code| format!(" {code}")).unwrap_or_default();
        let shown = format!("{} {}{code}", text_of(&events), end["type"].as_str().expect("a type"));
        assert_eq!(shown, expected, "{name}");
    }
    all.assert_no_complaints();
}

#[tokio::test]
async fn framing_and_headers_of_the_vendor_do_not_matter() {
    let all = open(&[]).await;
    all.sign_in("u1").await;
    let plain: String = [text_delta(0, "Größe").to_string(), completed()]
        .iter()
        .map(|data| format!("data: {data}\n\n"))
        .collect();
    let complete_response = |body: &str, headers: &str| {
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{headers}content-length: {}\r\n\r\n",
            body.len()
        );
        vec![Step::Send([head.as_bytes(), body.as_bytes()].concat())]
    };
    let bytes = plain.as_bytes().iter().map(|byte| chunk([*byte]));
    let by_byte = [stream_head()].into_iter().chain(bytes).chain([last_chunk()]).collect();
    for steps in [
        complete_response(&plain.replace('\n', "\r\n"), ""),
        complete_response(&plain.replace('\n', "\r"), ""),
        complete_response(&format!("\u{feff}: hi\n\n{plain}"), ""),
        complete_response(
            &plain,
            "set-cookie: a=canary\r\ncf-ray: canary\r\nx-codex-primary-used-percent: 7\r\n",
        ),
        by_byte,
    ] {
        all.vendor.on(MODEL, [Reply::steps(steps)]);
        let response = all.chat("u1", question("a1")).await;
        let headers = format!("{:?}", response.headers());
        assert!(!headers.contains("canary") && !headers.contains("x-codex"), "{headers}");
        let body = response.text().await.expect("a whole body");
        assert_eq!(text_of(&parse_run(&body)), "Größe");
    }
    let gzip = json_response("200 OK", "content-encoding: gzip\r\n", "\u{1f}\u{8b}");
    all.vendor.on(MODEL, [Reply::steps(gzip)]);
    expect_problem(all.chat("u1", question("a1")).await, 502, "BACKEND_FAILED").await;
}
