//! Misbehaving vendors of an agent with a fallback: a fault before the first content is answered by the next model, a
//! later one ends the run as without a fallback.

use super::*;

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
/// Faults without text, after tool calls that the client has been given.
const AFTER_TOOL_CALLS: [&str; 4] = ["endless-rounds", "many-calls", "long-arguments", "call-cut-off"];

/// Returns an agent for each fault, whose fallback is the healthy model.
fn agents(models: &[(&str, String)], fallback: &Value) -> Value {
    workspace(models, |model, base| {
        let (content, mut children) = embedded(Provider::OpenAi, model, base);
        children[0]["content"]["fallbacks"] = json!([fallback]);
        (content, children)
    })
}

/// Describes the difference of a response from what is expected of a fault with a fallback.
fn check_answer(answer: &ClientResponse, fault: &Fault, format: &str) -> Result<(), String> {
    let is_before_content =
        matches!(fault.outcome, Outcome::Problem(_) | Outcome::StreamError { said: "", .. });
    let is_final = INVALID_REQUESTS.iter().chain(&AFTER_TOOL_CALLS).any(|name| *name == fault.name);
    if !is_before_content || is_final {
        return answer.run_case(fault, format, Topology::App);
    }
    let summary = answer.parse(format)?;
    expect_eq("the error", summary.error, None)?;
    expect_eq("what was said", &*summary.said, "hello world")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_before_content_is_answered_by_the_fallback() {
    let absent = TcpSocket::new_v4().expect("a socket");
    absent.bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
    let absent_base = format!("http://{}/v1", absent.local_addr().expect("an address"));
    let (vendor, healthy) = (Vendor::start().await, Vendor::start().await);
    let faults = faults(Provider::OpenAi);
    let base = |fault: &Fault| if fault.absent { absent_base.clone() } else { vendor.base_url() };
    let models: Vec<_> = faults.iter().map(|fault| (fault.name, base(fault))).collect();
    let fallback = json!({"provider": "openai", "model": HEALTHY_MODEL, "baseUrl": healthy.base_url(),
        "apiKey": "other-key"});
    let header_timeout = HEADER_TIMEOUT.as_millis().to_string();
    let idle_timeout = IDLE_TIMEOUT.as_millis().to_string();
    let settings = [
        ("RESPONSE_HEADER_TIMEOUT_MS", header_timeout.as_str()),
        ("STREAM_IDLE_MS", idle_timeout.as_str()),
        ("TOOL_ROUNDS", "3"),
        ("FIRST_CONTENT_MS", "400"),
    ];
    let app = server::app(&agents(&models, &fallback), &settings).await;
    let (client, session) = (client(), server::session_token("u1", "c1"));
    for format in FORMATS {
        let url = app.url(&format!("/api/agent/chat?format={format}"));
        let ask = async |fault: &Fault| {
            vendor.on(fault.name, fault.script.clone());
            let body = json!({"agentId": fault.name, "message": "hello", "todoListId": "l1"});
            let request = client.post(&url).bearer_auth(&session).json(&body);
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
async fn attempts_are_told_to_the_user() {
    let (vendor, healthy) = (Vendor::start().await, Vendor::start().await);
    vendor.on("bad", [crate::support::vendor::json_response("503 Service Unavailable", "", "{}")]);
    let fallback = json!({"provider": "openai", "model": HEALTHY_MODEL, "baseUrl": healthy.base_url()});
    let models = [("bad", vendor.base_url())];
    let app = server::app(&agents(&models, &fallback), &[("MODEL_ATTEMPTS", "2")]).await;
    let events = parse_events(&app.chat(&body_of("run-1")).await.text().await.expect("a whole body"));
    expect_repetition_and_fallback(&events);
    assert_eq!(vendor.received().len(), 2);

    // Both vendors fail: the problem has all attempts.
    healthy.on(HEALTHY_MODEL, [crate::support::vendor::json_response("401 Unauthorized", "", "{}")]);
    let problem: Value = app.chat(&body_of("run-2")).await.json().await.expect("a problem");
    expect_failed_attempts(&problem);
}

fn body_of(run: &str) -> Value {
    json!({"agentId": "bad", "message": "hello", "runId": run})
}
