use serde_json::json;
use tokio::sync::watch;

use super::PostgresFixture;
use crate::support::server;
use crate::support::vendor::{Step, Vendor, answer, delta, finish, stream_head};
use crate::support::{expect_problem, parse_run, poll_until, text_of, workspace};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_is_a_typed_error_and_streams_under_way_go_on() {
    let vendor = Vendor::start().await;
    let mut fixture = PostgresFixture::start(&workspace(&vendor.base_url(), "m")).await;
    let app = server::app_with_config(fixture.config(), fixture.open().await).await;
    let chat = json!({"agentId": "a1", "message": "Hello"});
    vendor.on("m", [answer(&["Hello", "!"])]);
    let events = parse_run(&app.chat(&chat).await.text().await.expect("a whole body"));
    assert_eq!(text_of(&events), "Hello!");
    let ready = async || app.request("GET", "/readyz").send().await.expect("it answers").status().as_u16();
    assert_eq!(ready().await, 200);

    let gate = watch::Sender::new(false);
    let mut steps = vec![stream_head(), delta(json!({"content": "first "})), Step::Until(gate.subscribe())];
    steps.push(delta(json!({"content": "second"})));
    steps.extend(finish("stop"));
    vendor.on("m", [steps]);
    let under_way = app.chat(&chat).await;
    vendor.wait_for_requests("m", 2).await;

    fixture.cluster.crash();
    for run_id in ["r1", "r2"] {
        let response = app.chat(&json!({"agentId": "a1", "message": "Hello", "runId": run_id})).await;
        assert!(response.headers().contains_key("retry-after"), "{:?}", response.headers());
        expect_problem(response, 503, "STORE_UNAVAILABLE").await;
    }
    assert_eq!(ready().await, 503);
    gate.send_replace(true);
    let events = parse_run(&under_way.text().await.expect("a whole body"));
    assert_eq!(text_of(&events), "first second");
    assert_eq!(events.last().expect("an end")["type"], "RUN_FINISHED");

    fixture.cluster.restart();
    poll_until(ready, |status| *status == 200).await;
    vendor.on("m", [answer(&["Again"])]);
    let events = parse_run(
        &app.chat(&json!({"agentId": "a1", "message": "Hello", "runId": "r1"}))
            .await
            .text()
            .await
            .expect("text"),
    );
    assert_eq!(text_of(&events), "Again", "a refused run has not used its id");
}
