//! Agents that answer by a user's own subscription: application, runtime, issuer and vendor together.

use serde_json::{Value, json};

use super::installation::{
    CANARIES, InstallationSettings, MODEL, RUNTIME_SECRET, open, open_over, question, workspace,
    workspace_of_models,
};
use super::{hello, refusal, unauthorized};
use crate::support::issuer::IssuerRoute;
use crate::support::responses_vendor::{self, OutputItem, Reply};
use crate::support::server::{self, session_token};
use crate::support::vendor::{self, Step, json_response};
use crate::support::{expect_problem, parse_run, text_of};

#[tokio::test]
async fn a_user_signs_in_and_is_answered_with_tools_and_reasoning() {
    let all = open(&[]).await;
    let problem = expect_problem(all.chat("u1", question("a1")).await, 403, "SIGN_IN_REQUIRED").await;
    assert_eq!(problem["signIn"], "/api/coding/sign-in");
    assert_eq!(all.vendor.received_bodies(MODEL), [Value::Null; 0]);

    all.sign_in("u1").await;
    all.vendor.on(
        MODEL,
        [
            Reply::interleaved(vec![
                OutputItem::reasoning("Look first.", "sealed-1"),
                OutputItem::call("call_1", "readTodos", "{}"),
                OutputItem::call("call_2", "createTodo", r#"{"title":"Prune"}"#),
            ]),
            Reply::answer(vec![OutputItem::text(&["Water ", "the basil."])]),
        ],
    );
    let events = all.run("u1", "a1").await;
    assert_eq!(text_of(&events), "Water the basil.");
    assert_eq!(events.iter().filter(|event| event["type"] == "TOOL_CALL_RESULT").count(), 2);
    assert_eq!(events.last().expect("an end")["type"], "RUN_FINISHED");
    let bodies = all.vendor.received_bodies(MODEL);
    assert_eq!(bodies.len(), 2);
    assert!(bodies[0]["instructions"].as_str().expect("text").contains("Be brief."), "{}", bodies[0]);
    assert_eq!(bodies[0]["prompt_cache_key"].as_str().expect("a key").len(), 32);
    assert_eq!(bodies[0].get("max_output_tokens"), None);
    all.assert_no_complaints();
    // The tokens are the user's own.
    expect_problem(all.chat("u2", question("a1")).await, 403, "SIGN_IN_REQUIRED").await;

    let status: Value = all.send("u1", "GET", "/api/coding").await.json().await.expect("JSON");
    assert_eq!((&status["signedIn"], &status["state"]), (&json!(true), &json!("ok")));
    assert_eq!(all.send("u1", "DELETE", "/api/coding/sign-in").await.status(), 204);
    expect_problem(all.chat("u1", question("a1")).await, 403, "SIGN_IN_REQUIRED").await;
    assert!(!all.issuer.revoked().is_empty());
}

#[tokio::test]
async fn instructions_of_the_operator_move_the_prompt_to_a_developer_message() {
    let all = open(&[]).await;
    all.sign_in("u1").await;
    all.vendor.on(MODEL, [hello()]);
    assert_eq!(text_of(&all.run("u1", "own-words").await), "Hello.");
    let body = &all.vendor.received_bodies(MODEL)[0];
    assert_eq!(body["instructions"], "You are a vendor's agent.");
    let first = &body["input"][0];
    assert_eq!(first["role"], "developer");
    assert!(first["content"][0]["text"].as_str().expect("text").contains("Be brief."), "{first}");
    all.assert_no_complaints();
}

#[tokio::test]
async fn earlier_media_are_notes_for_a_model_that_reads_text_alone() {
    const TEXT_MODEL: &str = "o3-mini";
    let stores = server::stores(&workspace_of_models(&[TEXT_MODEL])).await;
    let all = open_over(stores, InstallationSettings::default()).await;
    all.sign_in("u1").await;
    all.vendor.on(TEXT_MODEL, [hello()]);
    let image =
        json!({"type": "image", "source": {"type": "data", "value": "QUJDREVG", "mimeType": "image/png"}});
    let with_image = json!({"role": "user", "content": [{"type": "text", "text": "What is this?"}, image]});
    let history = json!([with_image, {"role": "assistant", "content": "A plant."}]);
    let body = json!({"agentId": TEXT_MODEL, "messages": history, "message": "Which one?"});
    let response = all.chat("u1", body).await;
    assert_eq!(response.status(), 200);
    assert_eq!(text_of(&parse_run(&response.text().await.expect("a whole body"))), "Hello.");
    let sent = all.vendor.received_bodies(TEXT_MODEL)[0]["input"].to_string();
    assert!(sent.contains("[image of type image/png, not sent]") && !sent.contains("QUJDREVG"), "{sent}");
    let latest = json!({"agentId": TEXT_MODEL, "messages": [with_image]});
    expect_problem(all.chat("u1", latest).await, 422, "UNSUPPORTED_CONTENT").await;
    assert_eq!(all.vendor.received_bodies(TEXT_MODEL).len(), 1);
    all.assert_no_complaints();
}

#[tokio::test]
async fn a_rejected_token_is_refreshed_once() {
    let all = open(&[]).await;
    all.sign_in("u1").await;
    let in_stream = || {
        let failed = json!({"type": "response.failed", "response": {"error": {"code": "unauthorized"}}});
        Reply::events(&[failed.to_string()], vec![])
    };
    for (rejected, calls) in [(unauthorized(), 1), (in_stream(), 2)] {
        all.vendor.on(MODEL, [rejected, hello()]);
        assert_eq!(text_of(&all.run("u1", "a1").await), "Hello.");
        assert_eq!(all.issuer.calls(IssuerRoute::Refresh), calls);
    }
    all.vendor.on(MODEL, [unauthorized()]);
    expect_problem(all.chat("u1", question("a1")).await, 403, "SIGN_IN_REQUIRED").await;
    assert_eq!(all.issuer.calls(IssuerRoute::Refresh), 3);

    // A rejection after the first output ends the run.
    let failed = json!({"type": "response.failed", "response": {"error": {"code": "unauthorized"}}});
    let mut events = responses_vendor::events(&[OutputItem::text(&["Hel", "lo."])]);
    *events.last_mut().expect("an end") = failed.to_string();
    all.vendor.on(MODEL, [Reply::events(&events, vec![])]);
    let events = all.run("u1", "a1").await;
    let end = events.last().expect("an end");
    assert_eq!((&end["type"], &end["code"]), (&json!("RUN_ERROR"), &json!("SIGN_IN_REQUIRED")));
    assert_eq!(all.issuer.calls(IssuerRoute::Refresh), 3);
}

#[tokio::test]
async fn an_ended_sign_in_is_reported() {
    let all = open(&[]).await;
    all.sign_in("u1").await;
    all.issuer.script(
        IssuerRoute::Refresh,
        [json_response("400 Bad Request", "", r#"{"error":"invalid_grant","error_description":"canary"}"#)],
    );
    all.vendor.on(MODEL, [unauthorized(), hello()]);
    let problem = expect_problem(all.chat("u1", question("a1")).await, 403, "SIGN_IN_REQUIRED").await;
    assert!(!problem.to_string().contains("canary"), "{problem}");
    let status: Value = all.send("u1", "GET", "/api/coding").await.json().await.expect("JSON");
    assert_eq!(status["state"], "signInRequired");
}

#[tokio::test]
async fn refusals_of_the_vendor_are_typed() {
    let all = open(&[]).await;
    all.sign_in("u1").await;
    let usage =
        json!({"error": {"type": "usage_limit_reached", "plan_type": "plus", "resets_in_seconds": 3600}});
    for (reply, status, code) in [
        (refusal("403 Forbidden", "", &json!({"detail": "canary"})), 403, "SUBSCRIPTION_REFUSED"),
        (
            refusal("404 Not Found", "", &json!({"error": {"code": "model_not_found"}})),
            403,
            "SUBSCRIPTION_REFUSED",
        ),
        (refusal("429 Too Many Requests", "", &usage), 429, "RATE_LIMITED"),
        (refusal("404 Not Found", "", &usage), 429, "RATE_LIMITED"),
        (
            refusal("503 Service Unavailable", "", &json!({"error": {"code": "server_is_overloaded"}})),
            502,
            "BACKEND_FAILED",
        ),
        (
            refusal("400 Bad Request", "", &json!({"error": {"code": "cyber_policy", "message": "canary"}})),
            502,
            "BACKEND_FAILED",
        ),
        (Reply::steps(page("403 Forbidden")), 502, "BACKEND_FAILED"),
        (Reply::steps(page("200 OK")), 502, "BACKEND_FAILED"),
    ] {
        all.vendor.on(MODEL, [reply.clone()]);
        let response = all.chat("u1", question("a1")).await;
        let retry_after = response.headers().get("retry-after").cloned();
        let problem = expect_problem(response, status, code).await;
        assert!(!problem.to_string().contains("canary"), "{problem}");
        if status == 429 {
            assert_eq!(
                (&problem["limit"]["kind"], &problem["limit"]["plan"]),
                (&json!("usage"), &json!("plus"))
            );
            let seconds: u64 =
                retry_after.expect("a delay").to_str().expect("text").parse().expect("seconds");
            assert!((3_590..=3_600).contains(&seconds), "{seconds}");
        }
    }
    for status in ["403 Forbidden", "200 OK"] {
        all.vendor.on(MODEL, [Reply::steps(page(status))]);
        let response = all.chat("u1", question("a1")).await;
        assert_eq!(response.headers()["retry-after"], "60");
        let problem = expect_problem(response, 502, "BACKEND_FAILED").await;
        assert_eq!(problem["detail"], "the request was turned away before it reached the model");
    }
    assert_eq!(all.issuer.calls(IssuerRoute::Refresh), 0);
}

/// Returns a page of a proxy in front of the vendor.
fn page(status: &str) -> Vec<Step> {
    let body = "<html>canary</html>";
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: text/html\r\ncontent-length: {length}\r\n\r\n");
    vec![Step::Send([head.as_bytes(), body.as_bytes()].concat())]
}

#[tokio::test]
async fn limits_of_the_subscription_are_reported() {
    let all = open(&[]).await;
    all.sign_in("u1").await;
    let headers = "x-codex-primary-used-percent: 42.5\r\nx-codex-primary-window-minutes: 300\r\n";
    let usage = json!({"error": {"type": "usage_limit_reached"}});
    all.vendor.on(MODEL, [refusal("429 Too Many Requests", headers, &usage)]);
    expect_problem(all.chat("u1", question("a1")).await, 429, "RATE_LIMITED").await;
    let status: Value = all.send("u1", "GET", "/api/coding").await.json().await.expect("JSON");
    assert_eq!(status["limits"]["primary"], json!({"usedPercent": 42.5, "windowMinutes": 300}));
    let other: Value = all.send("u2", "GET", "/api/coding").await.json().await.expect("JSON");
    assert_eq!(other.get("limits"), None);
}

#[tokio::test]
async fn limits_within_an_answer_are_reported_and_not_part_of_it() {
    let all = open(&[]).await;
    all.sign_in("u1").await;
    let limits = async || {
        let status: Value = all.send("u1", "GET", "/api/coding").await.json().await.expect("JSON");
        status["limits"].clone()
    };
    let window = |percent: Value| json!({"used_percent": percent, "window_minutes": 300});
    let event =
        |percent: Value| json!({"type": "codex.rate_limits", "rate_limits": {"primary": window(percent)}});
    let plain = responses_vendor::events(&[OutputItem::text(&["Hel", "lo."])]);
    let mut with_limits = plain.clone();
    let other = json!({"type": "codex.rate_limits", "metered_limit_name": "codex-spark",
        "rate_limits": {"primary": window(json!(99))}});
    for (index, event) in [
        (4, event(json!("many"))),
        (4, json!({"type": "codex.rate_limits", "rate_limits": [7], "credits": "?"})),
        (4, other),
        (3, event(json!(42.5))),
        (0, event(json!(41))),
    ] {
        with_limits.insert(index, event.to_string());
    }
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-codex-primary-used-percent: 40\r\n\
                x-codex-secondary-used-percent: 7\r\ntransfer-encoding: chunked\r\n\r\n";
    let reply = |events: &[String]| {
        let events = events.iter().map(vendor::event);
        let steps = [Step::Send(head.into())].into_iter().chain(events).chain([vendor::last_chunk()]);
        Reply::steps(steps.collect::<Vec<_>>())
    };
    let shape = |events: &[Value]| {
        events.iter().map(|event| (event["type"].clone(), event["delta"].clone())).collect::<Vec<_>>()
    };
    all.vendor.on(MODEL, [reply(&plain), reply(&with_limits)]);
    let without = all.run("u1", "a1").await;
    assert_eq!(
        limits().await["primary"],
        json!({"usedPercent": 40.0}),
        "the limits of the headers are reported"
    );
    let with = all.run("u1", "a1").await;
    assert_eq!(shape(&with), shape(&without), "the events of the run are the same");
    let expected =
        json!({"primary": {"usedPercent": 42.5, "windowMinutes": 300}, "secondary": {"usedPercent": 7.0}});
    assert_eq!(limits().await, expected, "the limits of the latest readable event are reported");
    all.assert_no_complaints();
}

#[tokio::test]
async fn a_preview_shows_the_request_that_is_sent_without_the_tokens() {
    let all = open(&[]).await;
    all.sign_in("u1").await;
    all.vendor.on(MODEL, [hello()]);
    let body = json!({"agentId": "a1", "message": "What is left?", "todoListId": "l1", "threadId": "t-1"});
    let preview =
        all.app.request("POST", "/api/svcchat/previewPrompt").bearer_auth(session_token("u1", "c1"));
    let preview = preview.json(&body).send().await.expect("an answer").text().await.expect("a whole body");
    for canary in CANARIES {
        assert!(!preview.contains(canary), "{preview}");
    }
    let preview: Value = serde_json::from_str(&preview).expect("JSON");
    let payload = &preview["payload"];
    assert_eq!((&payload["accessToken"], &payload["accountId"]), (&json!("***"), &json!("***")));
    assert_eq!(payload["body"]["prompt_cache_key"], "***");

    let response = all.chat("u1", body).await.text().await.expect("a whole body");
    let events = parse_run(&response);
    let announced = events.iter().find(|event| event["name"] == "agent.prompt").expect("it is announced");
    assert_eq!(announced["value"]["requestSha256"], preview["requestSha256"]);
    let mut request_body = all.vendor.received_bodies(MODEL)[0].clone();
    request_body["prompt_cache_key"] = json!("***");
    assert_eq!(request_body, payload["body"]);
}

#[tokio::test]
async fn missing_settings_are_named() {
    let app = server::app(&workspace(), &[]).await;
    let response = app.chat(&question("a1")).await;
    let problem = expect_problem(response, 503, "NOT_CONFIGURED").await;
    assert!(problem["detail"].as_str().expect("text").contains("RUNTIME_URL"), "{problem}");
    let runtime = server::runtime(&[("RUNTIME_SECRET", RUNTIME_SECRET)]).await;
    let url = runtime.url("");
    let settings = [("RUNTIME_URL", &*url), ("RUNTIME_SECRET", RUNTIME_SECRET)];
    let app = server::app(&workspace(), &settings).await;
    let request = app.request("POST", "/api/coding/sign-in").bearer_auth(session_token("u1", "c1"));
    let problem = expect_problem(request.send().await.expect("an answer"), 503, "NOT_CONFIGURED").await;
    assert!(problem["detail"].as_str().expect("text").contains("CODING_"), "{problem}");
}
