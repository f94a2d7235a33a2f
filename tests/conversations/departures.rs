//! Runs whose clients leave, or that are cancelled, before the backend has accepted them.

use serde_json::{Value, json};
use tokio::sync::watch;

use super::logs::read_until;
use super::{ConversationApp, dialogue};
use crate::support::server::session_token;
use crate::support::vendor::{Step, answer, delta, json_response, stream_head};
use crate::support::{parse_run, poll_until, text_of};

/// Returns an answer whose head comes when the gate is opened.
fn gated(text: &str) -> (Vec<Step>, watch::Sender<bool>) {
    let gate = watch::Sender::new(false);
    let mut steps = vec![Step::Until(gate.subscribe())];
    steps.extend(answer(&[text]));
    (steps, gate)
}

fn body(run: &str, fields: Value) -> Value {
    let mut body = json!({"agentId": "a1", "threadId": "t", "message": "Hello", "runId": run});
    body.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
    body
}

impl ConversationApp {
    /// Sends a request, and leaves when the vendor has received `requests` requests and not answered this one.
    async fn leave_before_head(&self, body: &Value, requests: usize) {
        tokio::select! {
            response = self.app.chat(body) => panic!("no head yet: {}", response.status()),
            () = self.vendor.wait_for_requests("m", requests) => {}
        }
    }

    async fn wait_for_attached(&self, run: &str, count: u32) {
        let path = format!("/api/runs/{run}");
        let attached = async || self.call("GET", &path, None).await.1["attached"].clone();
        poll_until(attached, |attached| *attached == count).await;
    }

    /// Attaches to a run that is live, which has no event yet.
    async fn attach(&self, run: &str) -> reqwest::Response {
        let request = self.app.request("GET", &format!("/api/runs/{run}/events"));
        let response = request.bearer_auth(session_token("u1", "c1")).send().await.expect("an answer");
        assert_eq!(response.status(), 200);
        response
    }
}

#[tokio::test]
async fn a_run_has_its_grace_from_the_beginning() {
    let test = ConversationApp::start().await;
    let (steps, gate) = gated("Attached.");
    test.vendor.on("m", [steps, vec![Step::Stall]]);
    test.leave_before_head(&body("r1", json!({"graceMs": 600_000})), 1).await;
    test.wait_for_attached("r1", 0).await;
    let attached = test.attach("r1").await;
    test.wait_for_attached("r1", 1).await;
    gate.send_replace(true);
    let log = parse_run(&attached.text().await.expect("a whole body"));
    assert_eq!(text_of(&log), "Attached.");
    assert_eq!(test.ended_run("r1").await["state"], "completed");
    assert_eq!(test.path("t").await, dialogue(&["Hello", "Attached."]));

    // No client attaches, and the backend never answers.
    test.leave_before_head(&body("r2", json!({"graceMs": 50})), 2).await;
    let run = test.ended_run("r2").await;
    assert_eq!(
        (&run["state"], &run["reason"], &run["graceMs"]),
        (&json!("cancelled"), &json!("disconnected"), &json!(50))
    );
    test.vendor.wait_for_disconnects(1).await;
    assert_eq!(test.get("/api/threads/t").await["status"], "idle");
}

#[tokio::test]
async fn a_run_that_needs_no_client_outlives_an_early_departure() {
    let test = ConversationApp::start().await;
    let (steps, gate) = gated("Done.");
    test.vendor.on("m", [steps]);
    test.leave_before_head(&body("r1", json!({"onDisconnect": "continue"})), 1).await;
    test.wait_for_attached("r1", 0).await;
    gate.send_replace(true);
    assert_eq!(test.ended_run("r1").await["state"], "completed");
    assert_eq!(test.path("t").await, dialogue(&["Hello", "Done."]));
}

#[tokio::test]
async fn a_run_in_the_background_is_accepted_before_its_backend_answers() {
    let test = ConversationApp::start().await;
    let with_settings = json!({"background": true, "onDisconnect": "cancel", "graceMs": 0});
    for (run, fields) in [("r1", json!({"background": true})), ("r2", with_settings)] {
        let (steps, gate) = gated("Done.");
        test.vendor.on("m", [steps]);
        let accepted = test.app.chat(&body(run, fields)).await;
        assert_eq!(accepted.status(), 202);
        let accepted: Value = accepted.json().await.expect("JSON");
        assert_eq!(accepted, json!({"threadId": "t", "runId": run, "state": "running"}));
        let attached = test.attach(run).await;
        gate.send_replace(true);
        let log = parse_run(&attached.text().await.expect("a whole body"));
        assert_eq!(text_of(&log), "Done.");
        assert_eq!(test.ended_run(run).await["state"], "completed");
    }
    assert_eq!(test.path("t").await, dialogue(&["Hello", "Done."].repeat(2)));
}

#[tokio::test]
async fn a_run_in_the_background_ends_with_the_error_of_its_backend() {
    let test = ConversationApp::start().await;
    let (mut steps, gate) = gated("");
    steps.truncate(1);
    steps.extend(json_response("500 Internal Server Error", "", r#"{"error":{"message":"broken"}}"#));
    test.vendor.on("m", [steps, vec![Step::Stall]]);
    assert_eq!(test.app.chat(&body("r1", json!({"background": true}))).await.status(), 202);
    let attached = test.attach("r1").await;
    gate.send_replace(true);
    let log = parse_run(&attached.text().await.expect("a whole body"));
    let types: Vec<_> = log.iter().map(|event| event["type"].clone()).collect();
    assert_eq!(types, ["RUN_STARTED", "RUN_ERROR"]);
    let run = test.ended_run("r1").await;
    assert_eq!((&run["state"], &run["error"]["code"]), (&json!("failed"), &json!("BACKEND_FAILED")));
    assert_eq!(log[1]["code"], "BACKEND_FAILED");

    // It can be cancelled before the backend has answered.
    assert_eq!(test.app.chat(&body("r2", json!({"background": true}))).await.status(), 202);
    test.vendor.wait_for_requests("m", 2).await;
    assert_eq!(test.call("POST", "/api/runs/r2/cancel", None).await.0, 200);
    assert_eq!(test.ended_run("r2").await["reason"], "requested");
    test.vendor.wait_for_disconnects(1).await;
    assert_eq!(test.get("/api/threads/t").await["status"], "idle");
}

#[tokio::test]
async fn a_run_without_grace_needs_a_reader() {
    let test = ConversationApp::start().await;
    let (steps, gate) = gated("Read.");
    test.vendor.on("m", [vec![Step::Stall], steps]);
    test.leave_before_head(&body("r1", json!({})), 1).await;
    let run = test.ended_run("r1").await;
    assert_eq!((&run["state"], &run["reason"]), (&json!("cancelled"), &json!("disconnected")));
    test.vendor.wait_for_disconnects(1).await;

    let request_body = body("r2", json!({}));
    let mut reader = None;
    tokio::select! {
        response = test.app.chat(&request_body) => panic!("no head yet: {}", response.status()),
        () = async {
            test.vendor.wait_for_requests("m", 2).await;
            // The backend may be asked before the beginning is stored.
            test.wait_for_attached("r2", 1).await;
            reader = Some(test.attach("r2").await);
            test.wait_for_attached("r2", 2).await;
        } => {}
    }
    test.wait_for_attached("r2", 1).await;
    gate.send_replace(true);
    let log = reader.expect("it reads").text().await.expect("a whole body");
    assert_eq!(text_of(&parse_run(&log)), "Read.");
    assert_eq!(test.ended_run("r2").await["state"], "completed");
}

#[tokio::test]
async fn a_run_is_cancelled_before_the_backend_answers() {
    let test = ConversationApp::start().await;
    test.vendor.on("m", [vec![Step::Stall]]);
    let request_body = body("r1", json!({}));
    let (mut response, ()) = tokio::join!(test.app.chat(&request_body), async {
        test.vendor.wait_for_requests("m", 1).await;
        let fetch = async || test.call("POST", "/api/runs/r1/cancel", None).await.0;
        // The backend may be asked before the beginning is stored.
        poll_until(fetch, |status| *status == 200).await;
    });
    assert_eq!(response.status(), 200);
    let mut received_text = read_until(&mut response, "RUN_STARTED").await;
    received_text.push_str(&response.text().await.expect("a whole body"));
    assert_eq!(parse_run(&received_text).last().expect("an end")["outcome"], json!({"type": "cancelled"}));
    test.vendor.wait_for_disconnects(1).await;
    assert_eq!(test.ended_run("r1").await["reason"], "requested");
}

#[tokio::test]
async fn a_client_may_leave_after_each_event() {
    let test = ConversationApp::start().await;
    let words = ["One ", "two ", "three ", "four ", "five "];
    let mut expected = Vec::new();
    for count in 0..=words.len() {
        let run = format!("r{count}");
        let mut steps = vec![stream_head()];
        steps.extend(words[..count].iter().map(|word| delta(json!({ "content": word }))));
        steps.push(Step::Stall);
        test.vendor.on("m", [steps]);
        let mut response = test.app.chat(&body(&run, json!({}))).await;
        let last = count.checked_sub(1).map_or("RUN_STARTED", |last| words[last]);
        read_until(&mut response, last).await;
        drop(response);
        let ended = test.ended_run(&run).await;
        assert_eq!(
            (&ended["state"], &ended["reason"]),
            (&json!("cancelled"), &json!("disconnected")),
            "{count}"
        );
        test.vendor.wait_for_disconnects(count + 1).await;
        // Exactly the sent events are stored.
        expected.push(("user".to_owned(), "Hello".to_owned()));
        if count > 0 {
            expected.push(("assistant".to_owned(), words[..count].concat().trim().to_owned()));
        }
        assert_eq!(test.path("t").await, expected, "{count}");
        let log = test.app.request("GET", &format!("/api/runs/{run}/events"));
        let log = log.bearer_auth(session_token("u1", "c1")).send().await.expect("an answer");
        let log = parse_run(&log.text().await.expect("a whole body"));
        assert_eq!(text_of(&log), words[..count].concat());
        assert_eq!(log.last().expect("an end")["outcome"], json!({"type": "cancelled"}), "{count}");
    }
}
