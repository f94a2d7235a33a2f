//! Misbehaving vendors of an agent with a fallback: a fault before the first content, or before the end of an answer that is
//! delivered whole, is answered by the next model; a later one ends the run as without a fallback.

use std::time::Duration;

use super::*;
use crate::support::vendor::{Step, answer, delta, finish, json_response, stream_head, tool_calls};

/// Time-outs of an application whose agents have fallbacks, for the faults that a time-out must end.
pub(super) const SHORT_TIMEOUTS_WITH_FALLBACK: [(&str, &str); 3] =
    [("FIRST_CONTENT_MS", "2500"), SHORT_TIMEOUTS[0], SHORT_TIMEOUTS[1]];

/// Asks for the faults side by side, and fails with all answers that are not as expected.
pub(super) async fn expect_each(
    faults: &[Fault],
    format: &str,
    ask: impl AsyncFn(&Fault) -> Result<(), String>,
) {
    let cases: Vec<_> = stream::iter(faults)
        .map(async |fault| (fault.name, ask(fault).await))
        .buffer_unordered(MAX_CONCURRENT_CASES)
        .collect()
        .await;
    let wrong = cases.into_iter().filter_map(|(name, result)| Some(format!("{name}: {}", result.err()?)));
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{format}:\n{}", wrong.join("\n"));
}

/// Checks a run whose first entry was unavailable twice, and whose fallback has answered.
pub(super) fn expect_repetition_and_fallback(events: &[Value]) {
    let attempts: Vec<_> =
        events.iter().map(|event| &event["value"]).filter(|value| value["kind"] == "modelAttempt").collect();
    let shown: Vec<_> = attempts
        .iter()
        .map(|attempt| (attempt["attempt"].as_u64(), attempt["entry"].as_u64(), attempt["status"].as_u64()))
        .collect();
    let expected = [(Some(1), Some(0), Some(503)), (Some(2), Some(0), Some(503)), (Some(3), Some(1), None)];
    assert_eq!(shown, expected, "{attempts:?}");
    assert_eq!(crate::support::text_of(events), "hello world");
}

/// Checks the problem of a run whose first entry was unavailable twice, and whose fallback has refused it.
pub(super) fn expect_failed_attempts(problem: &Value) {
    assert_eq!(problem["code"], "BACKEND_FAILED", "{problem}");
    let reasons: Vec<_> =
        problem["attempts"].as_array().expect("attempts").iter().map(|a| &a["status"]).collect();
    assert_eq!(reasons, [503, 503, 401], "{problem}");
}

/// Faults of requests that no other model would answer either.
const INVALID_REQUESTS: [&str; 1] = ["400"];
/// Faults of complete answers, which the tool loop finds.
const FAULTS_OF_COMPLETE_ANSWERS: [&str; 3] = ["endless-rounds", "many-calls", "long-arguments"];
/// Faults without text, after tool calls that the client has been given.
const AFTER_TOOL_CALLS: [&str; 5] =
    ["endless-rounds", "many-calls", "long-arguments", "call-cut-off", "call-reset"];

/// Returns an agent for each fault, whose fallback is the healthy model.
fn agents(models: &[(&str, String)], fallback: &Value) -> Value {
    workspace(models, |model, base| {
        let (content, mut children) = embedded(Provider::OpenAi, model, base);
        children[0]["content"]["fallbacks"] = json!([fallback]);
        (content, children)
    })
}

/// Describes the difference of a response from the expected response to a fault with a fallback.
fn check_answer(answer: &ClientResponse, fault: &Fault, format: &str) -> Result<(), String> {
    // The client of a single object has seen nothing of an answer that fails before its end.
    let is_whole = format == "json";
    let is_repeated = match fault.outcome {
        Outcome::Problem(_) | Outcome::StreamError { text: "", .. } => true,
        Outcome::StreamError { .. } => is_whole,
        Outcome::Complete { .. } => false,
    };
    let allowed_faults: &[&str] = if is_whole { &FAULTS_OF_COMPLETE_ANSWERS } else { &AFTER_TOOL_CALLS };
    let is_final = INVALID_REQUESTS.iter().chain(allowed_faults).any(|name| *name == fault.name);
    if !is_repeated || is_final {
        return answer.run_case(fault, format, Topology::App);
    }
    let summary = answer.parse(format)?;
    expect_eq("the error", summary.error, None)?;
    expect_eq("the text", &*summary.text, "hello world")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_before_content_is_answered_by_the_fallback() {
    let absent_base = format!("{}/v1", refused_url());
    let (vendor, healthy) = (Vendor::start().await, Vendor::start().await);
    let faults = faults(Provider::OpenAi);
    let base = |fault: &Fault| if fault.absent { absent_base.clone() } else { vendor.base_url() };
    let models: Vec<_> = faults.iter().map(|fault| (fault.name, base(fault))).collect();
    let fallback = json!({"provider": "openai", "model": HEALTHY_MODEL, "baseUrl": healthy.base_url(),
        "apiKey": "other-key"});
    let start = async |settings: &[(&str, &str)]| {
        let settings = [&[("TOOL_ROUNDS", "3")], settings].concat();
        server::app(&agents(&models, &fallback), &settings).await
    };
    let (patient, impatient) = (start(&LONG_TIMEOUTS).await, start(&SHORT_TIMEOUTS_WITH_FALLBACK).await);
    let (client, session) = (client(), server::session_token("u1", "c1"));
    for format in FORMATS {
        let ask = async |fault: &Fault| {
            vendor.on(fault.name, fault.script.clone());
            let app = if fault.waits { &impatient } else { &patient };
            let url = app.url(&format!("/api/agent/chat?format={format}"));
            let body = json!({"agentId": fault.name, "message": "hello", "todoListId": "l1"});
            let request = client.post(url).bearer_auth(&session).json(&body);
            let answer = tokio::time::timeout(CASE_TIMEOUT, ClientResponse::read(request)).await;
            let answer = answer.map_err(|_| "it hangs".to_owned())?;
            check_answer(&answer, fault, format).map_err(|what| format!("{what}: {}", answer.body))
        };
        expect_each(&faults, format, ask).await;
    }
    let sent = healthy.received();
    assert!(
        sent.iter().all(|request| request.head.contains("Bearer other-key")),
        "each key to its own vendor"
    );
}

#[tokio::test]
async fn attempts_are_events_of_the_stream() {
    let (vendor, healthy) = (Vendor::start().await, Vendor::start().await);
    vendor.on("bad", [json_response("503 Service Unavailable", "", "{}")]);
    let fallback = json!({"provider": "openai", "model": HEALTHY_MODEL, "baseUrl": healthy.base_url()});
    let models = [("bad", vendor.base_url())];
    let app = server::app(&agents(&models, &fallback), &[("MODEL_ATTEMPTS", "2")]).await;
    let events = parse_events(&app.chat(&body_of("run-1")).await.text().await.expect("a whole body"));
    expect_repetition_and_fallback(&events);
    assert_eq!(vendor.received().len(), 2);

    // Both vendors fail: the problem has all attempts.
    healthy.on(HEALTHY_MODEL, [json_response("401 Unauthorized", "", "{}")]);
    let problem: Value = app.chat(&body_of("run-2")).await.json().await.expect("a problem");
    expect_failed_attempts(&problem);
}

#[tokio::test]
async fn a_call_whose_name_is_followed_by_a_reset_is_not_made() {
    let (vendor, healthy) = (Vendor::start().await, Vendor::start().await);
    let name = json!({"tool_calls": [{"index": 0, "id": "c1", "type": "function",
        "function": {"name": "createTodo", "arguments": ""}}]});
    let of_name = vec![stream_head(), delta(name), Step::Reset];
    let fallback = json!({"provider": "openai", "model": HEALTHY_MODEL, "baseUrl": healthy.base_url()});
    let models = [("bad", vendor.base_url())];
    for fallbacks in [json!([]), json!([fallback])] {
        vendor.on("bad", [of_name.clone()]);
        let mut workspace = agents(&models, &fallback);
        workspace["agents"][0]["content"]["mcpPreset"] = json!(["createTodo"]);
        workspace["agents"][0]["children"][0]["content"]["fallbacks"] = fallbacks;
        let stores = server::stores(&workspace).await;
        let app = server::app_with_stores(stores.clone(), &[("MODEL_ATTEMPTS", "3")]).await;
        let body = json!({"agentId": "bad", "message": "hello", "todoListId": "l1"});
        let events = parse_events(&app.chat(&body).await.text().await.expect("a whole body"));
        let ends = events.iter().filter(|event| {
            event["type"].as_str().is_some_and(|kind| matches!(kind, "RUN_ERROR" | "RUN_FINISHED"))
        });
        let ends: Vec<_> = ends.map(|event| event["code"].as_str()).collect();
        assert_eq!(ends, [Some("BACKEND_FAILED")], "{events:?}");
        assert!(events.iter().all(|event| event["type"] != "TOOL_CALL_RESULT"), "{events:?}");
        assert!(server::todo_titles(&stores, "l1").await.is_empty(), "the tool has no effect");
    }
    assert_eq!((vendor.received().len(), healthy.received().len()), (2, 0), "the client was given the name");
}

/// The second round fails after its text and a call. The tool of the first is not called again, and that of the lost call never.
#[tokio::test]
async fn a_whole_delivery_repeats_a_round_that_fails_after_content() {
    let vendor = Vendor::start().await;
    let models = [("bad", vendor.base_url())];
    let mut workspace = agents(&models, &json!({}));
    workspace["agents"][0]["content"]["mcpPreset"] = json!(["createTodo"]);
    workspace["agents"][0]["children"][0]["content"]["fallbacks"] = json!([]);
    let stores = server::stores(&workspace).await;
    let app = server::app_with_stores(stores.clone(), &[("MODEL_ATTEMPTS", "2")]).await;
    let call = |title: &str| tool_calls(&[("c1", "createTodo", &json!({"title": title}).to_string())]);
    let lost = || {
        let begun = json!({"tool_calls": [{"index": 0, "id": "c2", "type": "function",
            "function": {"name": "createTodo", "arguments": "{\"title\":\"Lost\"}"}}]});
        vec![stream_head(), delta(json!({"content": "Los"})), delta(begun), Step::Reset]
    };
    let body =
        |stored: bool| json!({"agentId": "bad", "message": "hello", "todoListId": "l1", "store": stored});
    for (run, stored) in [(1, false), (2, true)] {
        vendor.on("bad", [call("Weed"), lost(), answer(&["Done."])]);
        let path = "/api/agent/chat?format=json";
        let request = app.request("POST", path).bearer_auth(server::session_token("u1", "c1"));
        let response = request.json(&body(stored)).send().await.expect("an answer");
        assert_eq!(response.status(), 200);
        let object: Value = response.json().await.expect("JSON");
        assert_eq!(
            (&object["output"], object["toolCalls"].as_array().map(Vec::len)),
            (&json!("Done."), Some(1))
        );
        if stored {
            // Readers of the log are given neither the text nor the call, and the attempts.
            let path = format!("/api/runs/{}/events", object["runId"].as_str().expect("a run"));
            let log = app.request("GET", &path).bearer_auth(server::session_token("u1", "c1")).send().await;
            let log = log.expect("an answer").text().await.expect("a whole body");
            assert!(log.contains("modelAttempt") && !log.contains("Los"), "{log}");
            assert_eq!(crate::support::text_of(&parse_events(&log)), "Done.");
        }
        assert_eq!(server::todo_titles(&stores, "l1").await, vec!["Weed"; run]);
        assert_eq!(vendor.received().len(), 3 * run);
    }

    // The client of a stream has been given the text.
    vendor.on("bad", [call("Weed"), lost(), answer(&["Done."])]);
    let events = parse_events(&app.chat(&body(false)).await.text().await.expect("a whole body"));
    let ends: Vec<_> = events.iter().filter_map(|event| event["code"].as_str()).collect();
    assert_eq!((ends, &*crate::support::text_of(&events)), (vec!["BACKEND_FAILED"], "Los"), "{events:?}");
    assert_eq!(server::todo_titles(&stores, "l1").await, ["Weed"; 3]);
}

#[tokio::test]
async fn a_round_that_is_held_back_is_not_idle_and_has_the_deadline_of_its_run() {
    let vendor = Vendor::start().await;
    let mut workspace = agents(&[("bad", vendor.base_url())], &json!({}));
    workspace["agents"][0]["children"][0]["content"]["fallbacks"] = json!([]);
    let ask = async |settings: &[(&str, &str)]| {
        let app = server::app(&workspace, settings).await;
        let request = app.request("POST", "/api/agent/chat?format=json").json(&body_of("run-1"));
        let request = request.bearer_auth(server::session_token("u1", "c1"));
        (request.send().await.expect("an answer"), app)
    };
    let text = || delta(json!({"content": "x"}));
    // Each piece comes in time, and the answer takes longer than a silence may.
    let mut slow = vec![stream_head()];
    for _ in 0..6 {
        slow.extend([text(), Step::Pause(Duration::from_millis(600))]);
    }
    slow.extend(finish("stop"));
    vendor.on("bad", [slow]);
    let (object, _app) = ask(&[("MODEL_ATTEMPTS", "2"), ("STREAM_IDLE_MS", "2000")]).await;
    let object: Value = object.json().await.expect("JSON");
    assert_eq!(object["output"], "xxxxxx", "{object}");

    let Step::Send(piece) = text() else { panic!("a chunk is sent") };
    vendor.on("bad", [vec![stream_head(), Step::Drip(piece, Duration::from_millis(50))]]);
    let (late, _app) = ask(&[("MODEL_ATTEMPTS", "2"), ("RUN_TIMEOUT_MS", "1500")]).await;
    let problem = crate::support::expect_problem(late, 504, "BACKEND_TIMEOUT").await;
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("time limit")), "{problem}");
    vendor.wait_for_disconnects(1).await;
    assert_eq!(vendor.received().len(), 2, "no call is repeated");
}

#[tokio::test]
async fn a_client_that_leaves_while_a_call_waits_makes_no_further_call() {
    let vendor = Vendor::start().await;
    let models = [("left", vendor.base_url()), ("witness", vendor.base_url())];
    let mut workspace = agents(&models, &json!({}));
    for agent in workspace["agents"].as_array_mut().expect("a list") {
        agent["children"][0]["content"]["fallbacks"] = json!([]);
    }
    let app = server::app(&workspace, &[("MODEL_ATTEMPTS", "2")]).await;
    let busy = || json_response("429 Too Many Requests", "retry-after: 1\r\n", "{}");
    for (model, _) in &models {
        vendor.on(model, [busy(), answer(&["late"])]);
    }
    let ask = |agent: &str| {
        let request =
            client().post(app.url("/api/agent/chat")).bearer_auth(server::session_token("u1", "c1"));
        request.json(&json!({"agentId": agent, "message": "hello"})).send()
    };
    let leaving = tokio::spawn(ask("left"));
    vendor.wait_for_requests("left", 1).await;
    leaving.abort();
    assert!(leaving.await.expect_err("it was aborted").is_cancelled());
    // This run begins later and waits equally long, so that the aborted run would have been repeated before it.
    let witness = ask("witness").await.expect("an answer").text().await.expect("a whole body");
    assert_eq!(crate::support::text_of(&parse_events(&witness)), "late");
    assert_eq!((vendor.received_bodies("witness").len(), vendor.received_bodies("left").len()), (2, 1));
}

#[tokio::test]
async fn five_entries_at_a_dead_address_end_a_run_once() {
    let dead = format!("{}/v1", refused_url());
    let entry = json!({"provider": "openai", "model": "bad", "baseUrl": dead});
    let mut workspace = agents(&[("bad", dead.clone())], &entry);
    workspace["agents"][0]["children"][0]["content"]["fallbacks"] = json!(vec![entry; 4]);
    let app = server::app(&workspace, &[("MODEL_ATTEMPTS", "10"), ("MODEL_RETRY_WAIT_MS", "500")]).await;
    for run in 0..3 {
        let answer = app.chat(&body_of(&format!("run-{run}"))).await;
        let problem = crate::support::expect_problem(answer, 502, "BACKEND_UNREACHABLE").await;
        let attempts = problem["attempts"].as_array().expect("attempts");
        let calls = attempts.iter().filter(|attempt| attempt["attempt"].is_u64()).count();
        assert!((1..=11).contains(&calls), "within the free repetitions: {problem}");
    }
}

fn body_of(run: &str) -> Value {
    json!({"agentId": "bad", "message": "hello", "runId": run})
}
