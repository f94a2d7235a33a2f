//! Misbehaving runtimes of an agent with a fallback: a fault before the run's first event is answered by the next
//! runtime, a later one ends the run as without a fallback.

use super::fallback::{
    SHORT_TIMEOUTS_WITH_FALLBACK, expect_each, expect_failed_attempts, expect_repetition_and_fallback,
};
use super::table::runtime::{answer, faults, problem};
use super::*;

/// Returns an agent for each model at a runtime, with a fallback at the healthy one, whose runtime is named in the content
/// of the role or in a container.
fn agents(models: &[(&str, String)], healthy: &Vendor, in_content: bool) -> Value {
    let agents = models.iter().map(|(model, url)| {
        let fallback = json!({"agentServerUrl": healthy.ollama_url(), "agentServerModel": HEALTHY_MODEL,
            "agentServerApiKey": "other-key"});
        let server = json!({"agentServerUrl": url, "agentServerModel": model, "agentServerApiKey": "own-key",
            "fallbacks": [fallback]});
        let (content, children) = match in_content {
            true => (server, json!([])),
            false => (json!({}), json!([{"name": "AgentServer", "content": server}])),
        };
        json!({"id": model, "name": model, "ownerId": "u1", "companyId": "c1", "content": content,
            "children": children})
    });
    json!({"users": [{"id": "u1", "companyId": "c1"}], "agents": agents.collect::<Vec<_>>()})
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_of_a_runtime_before_its_events_is_answered_by_the_fallback() {
    let absent_url = refused_url();
    let (vendor, healthy) = (Vendor::start().await, Vendor::start().await);
    healthy.on(HEALTHY_MODEL, [answer()]);
    let faults = faults();
    let url = |fault: &Fault| if fault.absent { absent_url.clone() } else { vendor.ollama_url() };
    let models: Vec<_> = faults.iter().map(|fault| (fault.name, url(fault))).collect();
    let (client, session) = (client(), server::session_token("u1", "c1"));
    for (in_content, format) in [false, true, false, true].into_iter().zip(FORMATS) {
        // Each application has separate circuits.
        let workspace = agents(&models, &healthy, in_content);
        let patient = server::app(&workspace, &LONG_TIMEOUTS).await;
        let impatient = server::app(&workspace, &SHORT_TIMEOUTS_WITH_FALLBACK).await;
        let request_count = vendor.received().len();
        let ask = async |fault: &Fault| {
            vendor.on(fault.name, fault.script.clone());
            let app = if fault.waits { &impatient } else { &patient };
            let url = app.url(&format!("/api/agent/chat?format={format}"));
            let body = json!({"agentId": fault.name, "message": "hello"});
            let request = client.post(url).bearer_auth(&session).json(&body);
            let answer = tokio::time::timeout(CASE_TIMEOUT, ClientResponse::read(request)).await;
            let answer = answer.map_err(|_| "it hangs".to_owned())?;
            let checked = answer.run_case(fault, format, Topology::App);
            checked.map_err(|what| format!("{what}: {}", answer.body))
        };
        expect_each(&faults, format, ask).await;
        let present = faults.iter().filter(|fault| !fault.absent).count();
        assert_eq!(vendor.received().len() - request_count, present, "each run calls its runtime once");
    }
    let is_answered = |fault: &&Fault| matches!(fault.outcome, Outcome::Complete { .. });
    let answered = faults.iter().filter(is_answered).count();
    let keys = |vendor: &Vendor| -> Vec<Value> {
        vendor.received().iter().map(|request| request.json()["apiKey"].clone()).collect()
    };
    assert_eq!(keys(&healthy), vec![json!("other-key"); FORMATS.len() * answered]);
    assert!(keys(&vendor).iter().all(|key| key == "own-key"), "each key to its own runtime");
}

#[tokio::test]
async fn attempts_at_runtimes_are_events_of_the_stream() {
    let (vendor, healthy) = (Vendor::start().await, Vendor::start().await);
    vendor.on("bad", [problem("503 Service Unavailable", "INTERNAL")]);
    healthy.on(HEALTHY_MODEL, [answer(), problem("401 Unauthorized", "UNAUTHENTICATED")]);
    let models = [("bad", vendor.ollama_url())];
    let app = server::app(&agents(&models, &healthy, false), &[("MODEL_ATTEMPTS", "2")]).await;
    let body = |run: &str| json!({"agentId": "bad", "message": "hello", "runId": run});
    let events = parse_events(&app.chat(&body("run-1")).await.text().await.expect("a whole body"));
    expect_repetition_and_fallback(&events);

    let problem: Value = app.chat(&body("run-2")).await.json().await.expect("a problem");
    expect_failed_attempts(&problem);
}

#[tokio::test]
async fn a_refusal_of_one_company_does_not_affect_others() {
    let (vendor, healthy) = (Vendor::start().await, Vendor::start().await);
    vendor.on("m", [problem("401 Unauthorized", "UNAUTHENTICATED")]);
    healthy.on(HEALTHY_MODEL, [answer()]);
    let mut workspace = agents(&[("m", vendor.ollama_url())], &healthy, false);
    let mut other = workspace["agents"][0].clone();
    (other["companyId"], other["ownerId"]) = ("c2".into(), "u2".into());
    workspace["agents"].as_array_mut().expect("a list").push(other);
    workspace["users"].as_array_mut().expect("a list").push(json!({"id": "u2", "companyId": "c2"}));
    let app = server::app(&workspace, &[]).await;
    for (user, company, calls) in [("u1", "c1", 1), ("u1", "c1", 1), ("u2", "c2", 2), ("u2", "c2", 2)] {
        let session = server::session_token(user, company);
        let answer = app.chat_as(&session, "", &json!({"agentId": "m", "message": "hello"})).await;
        let events = parse_events(&answer.text().await.expect("a whole body"));
        assert_eq!(crate::support::text_of(&events), "hello world");
        assert_eq!(vendor.received().len(), calls, "{company}");
    }
}
