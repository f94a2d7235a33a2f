//! Records of runs: their times, the selection of their backends and the manifests of their prompts.

use std::sync::Arc;

use agent_core::role::RoleSource;
use agent_platform::replay::{AspectComparison, BundleError, Replay, RunBundle};
use agentd::compose;
use serde_json::{Value, json};

use super::{ConversationApp, call_as, everyone};
use crate::support::server::{self, app_config, session_token};
use crate::support::vendor::{Vendor, answer, json_response, tool_calls};

/// Returns the status of each route of a run's record for a user.
async fn statuses(test: &ConversationApp, user: &str, company: &str, run: &str) -> Vec<u16> {
    let token = session_token(user, company);
    let mut statuses = Vec::new();
    for path in ["", "/prompt", "/bundle"] {
        let path = format!("/api/runs/{run}{path}");
        statuses.push(call_as(&test.app, &token, "GET", &path, None).await.0);
    }
    statuses
}

#[tokio::test]
async fn a_run_reports_its_times_backend_and_prompt() {
    let test = ConversationApp::start().await;
    test.vendor
        .on("m", [tool_calls(&[("c1", "createTodo", r#"{"title":"Milk"}"#)]), answer(&["It is ", "noted."])]);
    let turn = test.say("t", "Note milk.").await;
    let id = turn.run_id();
    let run = test.ended_run(&id).await;
    assert_eq!(run["selection"], json!({"backend": "embedded", "rule": "EmbeddedAI"}));
    assert_eq!(run["backend"], "embedded");
    let sent = turn.custom("agent.prompt").expect("the event");
    assert_eq!(run["requestSha256"], sent["requestSha256"]);
    assert_eq!(run.get("prompt"), None, "the manifest has a route of its own");

    let timing = &run["timing"];
    let rounds = timing["rounds"].as_array().expect("rounds");
    assert_eq!(rounds.len(), 2, "{timing}");
    let ms = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("no time in {timing}"));
    let mut times = vec![ms(&timing["queuedMs"]), ms(&timing["preparedMs"])];
    for round in rounds {
        times.extend(["startedMs", "firstContentMs", "endedMs"].map(|name| ms(&round[name])));
        assert_eq!(round["attempts"], 1, "{timing}");
    }
    assert!(times.is_sorted(), "{timing}");
    let tool = &timing["tools"][0];
    assert_eq!((&tool["name"], &tool["callId"]), (&json!("createTodo"), &json!("c1")));
    assert!(ms(&tool["startedMs"]) <= ms(&tool["endedMs"]), "{timing}");
    assert!(ms(&tool["endedMs"]) <= ms(&rounds[1]["startedMs"]), "{timing}");

    let prompt = test.get(&format!("/api/runs/{id}/prompt")).await;
    assert_eq!(prompt["requestSha256"], sent["requestSha256"]);
    assert_eq!(prompt["cache"]["stablePrefixBytes"], sent["stablePrefixBytes"]);
    assert!(prompt["parts"].as_array().is_some_and(|parts| !parts.is_empty()), "{prompt}");
    let tools: Vec<_> = prompt["tools"].as_array().expect("tools").iter().map(|tool| &tool["name"]).collect();
    assert!(tools.contains(&&json!("createTodo")), "{prompt}");

    let list = test.get("/api/runs").await;
    assert_eq!(list["runs"][0]["timing"], *timing);
    assert_eq!(list["runs"][0].get("prompt"), None);
    assert_eq!(statuses(&test, "u1", "c1", &id).await, [200; 3]);
    for (user, company, run) in [("u2", "c1", &*id), ("u3", "c2", &*id), ("u1", "c1", "never")] {
        assert_eq!(statuses(&test, user, company, run).await, [404; 3], "{user} of {company}: {run}");
    }
    let (status, _) = test.call("DELETE", "/api/threads/t", None).await;
    assert_eq!(status, 204);
    assert_eq!(statuses(&test, "u1", "c1", &id).await, [404; 3], "the record is deleted with its thread");
}

#[tokio::test]
async fn the_next_run_names_the_part_that_has_changed() {
    let test = ConversationApp::start().await;
    test.vendor.on("m", [answer(&["One."]), answer(&["Two."])]);
    let first = test.say("t", "One?").await.run_id();
    let (status, mut agent) = test.call("GET", "/api/agents/a1", None).await;
    assert_eq!(status, 200, "{agent}");
    agent["content"]["rules"] = json!(["Never say three."]);
    let (status, problem) = test.call("PUT", "/api/agents/a1", Some(agent)).await;
    assert_eq!(status, 200, "{problem}");
    let second = test.say("t", "Two?").await.run_id();
    test.ended_run(&second).await;
    let prompt = test.get(&format!("/api/runs/{second}/prompt")).await;
    assert_eq!(prompt["cache"]["previousRunId"], json!(first));
    assert_eq!(prompt["cache"]["firstChangedPart"], "rules");
}

/// Returns the bundle of a run as it is sent, and checks that it has no secret.
async fn bundle_of(test: &ConversationApp, run: &str) -> String {
    let request = test.app.request("GET", &format!("/api/runs/{run}/bundle"));
    let response = request.bearer_auth(session_token("u1", "c1")).send().await.expect("an answer");
    assert_eq!(response.status(), 200);
    let length = response.content_length();
    let text = response.text().await.expect("a whole body");
    assert_eq!(length, Some(text.len() as u64));
    assert!(!text.contains("role-key-canary"), "the role's key is masked");
    text
}

fn replay(test: &ConversationApp, bundle: &str) -> agent_platform::replay::ReplayReport {
    let bundle = RunBundle::parse(bundle.as_bytes()).expect("a bundle");
    let replay: Arc<Replay> = Replay::new(bundle).expect("inputs and events");
    let platform = compose::replay(&app_config(&[]), &test.stores, None, &replay, false).expect("a platform");
    replay.run(&platform)
}

#[tokio::test]
async fn a_run_is_replayed_from_its_bundle() {
    let test = ConversationApp::start_with(&[("RUN_PROMPTS", "keep")]).await;
    let call = tool_calls(&[("c1", "createTodo", r#"{"title":"Milk"}"#), ("c2", "never", "{}")]);
    let refusal = json_response("400 Bad Request", "", r#"{"error":{"message":"no"}}"#);
    test.vendor.on("m", [call, answer(&["It is ", "noted."]), answer(&["You are ", "welcome."]), refusal]);
    let first = test.say("t", "Note milk.").await.run_id();
    let second = test.say("t", "Thanks!").await.run_id();
    let response =
        test.app.chat(&json!({"agentId": "a1", "threadId": "t", "message": "More?", "runId": "r3"})).await;
    assert!(!response.status().is_success(), "the vendor refuses it");
    for run in [&*first, &*second, "r3"] {
        test.ended_run(run).await;
        let requests = test.vendor.received_bodies("m").len();
        let report = replay(&test, &bundle_of(&test, run).await);
        assert!(report.is_identical(), "{run}: {report:#?}");
        assert_eq!(test.vendor.received_bodies("m").len(), requests, "no server is called");
    }
    let prompt = test.get(&format!("/api/runs/{first}/prompt")).await;
    assert_eq!(prompt["parts"][0]["content"], "Be brief.", "{prompt}");

    let changed = bundle_of(&test, &first).await.replace("Be brief.", "Be longer");
    assert!(matches!(RunBundle::parse(changed.as_bytes()), Err(BundleError::Altered)));
    let replayed =
        Replay::new(RunBundle::parse_changed(changed.as_bytes()).expect("a bundle")).expect("inputs");
    let platform =
        compose::replay(&app_config(&[]), &test.stores, None, &replayed, false).expect("a platform");
    let report = replayed.run(&platform);
    assert!(
        matches!(&report.prompt, AspectComparison::Different(all) if all.iter().any(|found| found.name == "system-prompt")),
        "{report:#?}"
    );
}

/// Starts an application whose agent `a1` has the model `n` of another vendor as its fallback.
async fn start_with_fallback() -> (ConversationApp, Vendor) {
    let (vendor, other) = (Vendor::start().await, Vendor::start().await);
    let mut workspace = everyone(&vendor.base_url());
    let fallback = json!({"provider": "openai", "model": "n", "baseUrl": other.base_url()});
    workspace["agents"][0]["children"][0]["content"]["fallbacks"] = json!([fallback]);
    let stores = server::stores(&workspace).await;
    let settings = [("RUN_PROMPTS", "keep"), ("MODEL_ATTEMPTS", "1")];
    let app = server::app_with_stores(stores.clone(), &settings).await;
    (ConversationApp { vendor, app, stores }, other)
}

/// Returns the hashes of the requests of attempts.
fn request_hashes(attempts: &Value) -> Vec<Value> {
    let attempts = attempts.as_array().unwrap_or_else(|| panic!("no attempts: {attempts}"));
    attempts.iter().map(|attempt| attempt["requestSha256"].clone()).collect()
}

/// Returns the hashes of the requests that a message at the beginning of a thread would send.
async fn previewed_hashes(test: &ConversationApp, message: &str) -> Vec<Value> {
    let body = json!({"agentId": "a1", "threadId": "unused", "message": message});
    let path = "/api/svcchat/previewPrompt?attempts=all";
    let (status, shown) = test.call("POST", path, Some(body)).await;
    assert_eq!(status, 200, "{shown}");
    request_hashes(&shown["attempts"])
}

#[tokio::test]
async fn each_attempt_is_reported_with_the_hash_of_its_request() {
    let (test, other) = start_with_fallback().await;
    test.vendor.on("m", [json_response("503 Service Unavailable", "", "{}")]);
    let mut count = 0;
    let (turn, previewed) = loop {
        count += 1;
        let before = previewed_hashes(&test, "Is it dry?").await;
        let turn = test.say(&format!("t{count}"), "Is it dry?").await;
        // The prompt contains the time to the minute.
        if before == previewed_hashes(&test, "Is it dry?").await {
            break (turn, before);
        }
    };
    let id = turn.run_id();
    let run = test.ended_run(&id).await;
    assert_eq!(request_hashes(&run["attempts"]), previewed, "{run}");
    assert_eq!(run["attempts"].as_array().map(Vec::len), Some(2), "{run}");
    let expected = json!({"round": 1, "attempt": 1, "entry": 0, "provider": "openai", "model": "m",
        "reason": "BACKEND_FAILED", "status": 503, "waitedMs": 0, "requestSha256": run["requestSha256"]});
    assert_eq!(run["attempts"][0], expected);
    let attempts = turn.events.iter().map(|event| event["value"].clone());
    let attempts: Vec<Value> = attempts.filter(|value| value["kind"] == "modelAttempt").collect();
    let recorded = run["attempts"].as_array().expect("attempts").iter().map(|attempt| {
        let mut attempt = attempt.clone();
        attempt["kind"] = json!("modelAttempt");
        attempt
    });
    assert_eq!(recorded.collect::<Vec<_>>(), attempts, "the run has the data of its events");
    assert_eq!(test.get("/api/runs").await["runs"][0]["attempts"], run["attempts"]);
    let text = bundle_of(&test, &id).await;
    let bundle = RunBundle::parse(text.as_bytes()).expect("a bundle");
    assert_eq!(json!(bundle.run.attempts), run["attempts"]);
    let report = replay(&test, &text);
    assert!(report.is_identical(), "{report:#?}");

    // A run that does not begin has the attempts of its problem.
    other.on("n", [json_response("401 Unauthorized", "", "{}")]);
    let body = json!({"agentId": "a1", "threadId": "refused", "runId": "refused", "message": "And now?"});
    let response = test.app.chat(&body).await;
    assert_eq!(response.status(), 502);
    let problem: Value = response.json().await.expect("a problem");
    let run = test.ended_run("refused").await;
    assert_eq!((&run["state"], &run["attempts"]), (&json!("failed"), &problem["attempts"]));
    assert_eq!(request_hashes(&run["attempts"]).len(), 2, "{run}");

    // A round of one attempt has none.
    test.vendor.on("m", [answer(&["Yes."])]);
    let id = test.say("healthy", "Is it dry?").await.run_id();
    assert_eq!(test.ended_run(&id).await.get("attempts"), None);
}

#[tokio::test]
async fn the_models_of_a_replayed_run_are_called_live() {
    let test = ConversationApp::start_with(&[("RUN_PROMPTS", "keep")]).await;
    let milk = || tool_calls(&[("c1", "createTodo", r#"{"title":"Milk"}"#)]);
    let bread = tool_calls(&[("c9", "createTodo", r#"{"title":"Bread"}"#)]);
    test.vendor.on("m", [milk(), answer(&["It is noted."]), milk(), answer(&["Done."]), bread]);
    let run = test.say("t", "Note milk.").await.run_id();
    test.ended_run(&run).await;
    let text = bundle_of(&test, &run).await;
    let (recorded, titles) = (test.vendor.received_bodies("m"), test.titles().await);
    let live = async |text: &str, has_secrets: bool| {
        let mut bundle = RunBundle::parse(text.as_bytes()).expect("a bundle");
        if has_secrets {
            let stored = test.stores.roles.role(&"c1".into(), &"a1".into()).await.expect("read");
            bundle = bundle.with_secrets_of((*stored.expect("a role")).clone());
        }
        let replay = Replay::new(bundle).expect("inputs and events");
        let config = app_config(&[]);
        let platform = compose::replay(&config, &test.stores, None, &replay, true).expect("a platform");
        assert!(replay.run(&platform).is_identical());
        replay.call_models().await
    };
    let calls = live(&text, true).await;
    assert_eq!(calls.len(), 2, "{calls:#?}");
    assert_eq!((&*calls[0].provider, &*calls[0].model), ("openai", "m"));
    assert!(calls[0].same_tool_calls && calls[1].same_tool_calls, "{calls:#?}");
    assert_eq!((&*calls[1].recorded.text, &*calls[1].live.text), ("It is noted.", "Done."));
    assert_eq!(calls[1].live.usage.as_ref().and_then(|usage| usage.input_tokens), Some(11));
    let request_bodies = test.vendor.received_bodies("m");
    assert_eq!(
        (request_bodies.len(), &request_bodies[2..]),
        (4, &*recorded),
        "the requests are those of the run"
    );
    assert_eq!(test.titles().await, titles, "no tool is called");

    let second = live(&text, true).await;
    assert_eq!(second[0].live.tool_calls[0].arguments, r#"{"title":"Bread"}"#);
    assert!(!second[0].same_tool_calls);
    // Without the role's key no model is called.
    let requests = test.vendor.received_bodies("m").len();
    let calls = live(&text, false).await;
    assert!(calls.iter().all(|call| !call.same_tool_calls), "{calls:#?}");
    let error = calls[0].live.error.as_deref().expect("an error");
    assert!(error.starts_with("NOT_CONFIGURED"), "{error}");
    assert_eq!(test.vendor.received_bodies("m").len(), requests);
}

#[tokio::test]
async fn model_inputs_are_stored_if_the_setting_allows_it() {
    let test = ConversationApp::start().await;
    test.vendor.on("m", [answer(&["Well."])]);
    let run = test.say("t", "How are you?").await.run_id();
    test.ended_run(&run).await;
    let prompt = test.get(&format!("/api/runs/{run}/prompt")).await;
    assert_eq!(prompt["parts"][0].get("content"), None, "{prompt}");
    let bundle = RunBundle::parse(bundle_of(&test, &run).await.as_bytes()).expect("a bundle");
    assert!(matches!(Replay::new(bundle), Err(BundleError::NoInputs)));
}
