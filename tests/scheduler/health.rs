//! Health and metrics, which require no authorization.

use serde_json::json;

use super::{json_of, open, payload};
use crate::support::poll_until;
use crate::support::vendor::json_response;

#[tokio::test]
async fn health_has_the_number_of_jobs_in_each_state() {
    let bench = open().await;
    bench.receiver.on("done", [json_response("200 OK", "", "{}")]);
    bench.create_job(json!({"delayMs": 60_000}), payload("later")).await;
    let done = bench.create_job(json!({"delayMs": 0}), payload("done")).await;
    bench.wait_for_state(&done, "completed").await;
    let fetch = async || {
        json_of(bench.scheduler.request("GET", "/health").send().await.expect("the server answers")).await
    };
    // A delivery ends after its outcome is stored.
    let health = poll_until(fetch, |health| health["delivering"] == 0).await;
    for (name, value) in [
        ("/status", json!("ok")),
        ("/service", json!("scheduler")),
        ("/store", json!({"kind": "test", "reachable": true})),
        ("/jobs/scheduled", json!(1)),
        ("/jobs/completed", json!(1)),
        ("/lagMs", json!(0)),
    ] {
        assert_eq!(health.pointer(name), Some(&value), "{name}: {health}");
    }
    for path in ["/livez", "/readyz"] {
        let response = bench.scheduler.request("GET", path).send().await.expect("the server answers");
        assert_eq!(response.status(), 200);
    }
}

#[tokio::test]
async fn metrics_count_requests_jobs_and_deliveries() {
    let bench = open().await;
    bench
        .receiver
        .on("done", [json_response("200 OK", "", "{}")])
        .on("bad", [json_response("422 Nope", "", "")]);
    let done = bench.create_job(json!({"delayMs": 0}), payload("done")).await;
    let bad = bench.create_job(json!({"delayMs": 0}), payload("bad")).await;
    bench.wait_for_state(&done, "completed").await;
    bench.wait_for_state(&bad, "discarded").await;
    let response = bench.scheduler.request("GET", "/metrics").send().await.expect("the server answers");
    let kind = response.headers()["content-type"].to_str().expect("text").to_owned();
    assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
    drop(response);
    let fetch = async || {
        let response = bench.scheduler.request("GET", "/metrics").send().await.expect("the server answers");
        response.text().await.expect("a body")
    };
    // A delivery ends after its outcome is stored.
    let text = poll_until(fetch, |text| text.contains("agentd_job_deliveries_in_flight 0\n")).await;
    for line in [
        "agentd_http_requests_total{method=\"POST\",route=\"/jobs\",status=\"201\"} 2\n",
        "agentd_jobs{state=\"completed\"} 1\n",
        "agentd_jobs{state=\"discarded\"} 1\n",
        "agentd_job_lag_seconds 0.0\n",
        "agentd_job_deliveries_total{outcome=\"succeeded\"} 1\n",
        "agentd_job_deliveries_total{outcome=\"rejected\"} 1\n",
        "agentd_job_lateness_seconds_count 2\n",
        "agentd_build_info{version=\"",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!text.contains(&done), "no job's id is a label");
}
