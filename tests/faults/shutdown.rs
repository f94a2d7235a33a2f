//! Shutdown of a service: runs that outlive the drain end with one terminal event in every framing.

use tokio::time::timeout;

use super::*;
use crate::support::vendor::{Step, delta, stream_head};

const CODE: &str = "SERVER_SHUTTING_DOWN";

/// A drain time that no test reaches.
const LONG_DRAIN_MS: &str = "600000";

#[tokio::test(flavor = "multi_thread")]
async fn runs_of_the_application_that_outlive_the_drain_end_with_an_error() {
    runs_end_with_an_error(Topology::App, "200", |server| server.stop()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_of_the_runtime_that_outlive_the_drain_end_with_an_error() {
    runs_end_with_an_error(Topology::Runtime, "200", |server| server.stop()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_the_runs_of_the_application_with_an_error() {
    runs_end_with_an_error(Topology::App, LONG_DRAIN_MS, signal_twice).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_the_runs_of_the_runtime_with_an_error() {
    runs_end_with_an_error(Topology::Runtime, LONG_DRAIN_MS, signal_twice).await;
}

fn signal_twice(server: &server::Server) {
    server.stop();
    server.end();
}

/// Checks that runs that never end by themselves end with the typed error when `stop` shuts the service down, that
/// their calls upstream are cancelled, and that their connections close.
async fn runs_end_with_an_error(topology: Topology, drain_ms: &str, stop: impl FnOnce(&server::Server)) {
    let vendor = Vendor::start().await;
    let base = Provider::OpenAi.base_url(&vendor);
    let endless = vec![stream_head(), delta(json!({"content": "par"})), Step::Stall];
    vendor.on("m", std::iter::repeat_n(endless, FORMATS.len()));
    let settings = [("DRAIN_MS", drain_ms)];
    let services =
        TopologyServices::start(topology, Provider::OpenAi, &[("m", base.clone())], &settings).await;
    let mut streams = Vec::new();
    for format in FORMATS.into_iter().filter(|format| *format != "json") {
        let mut response = services.request("m", &base, format).send().await.expect("an answer");
        let mut body = String::new();
        while !body.contains("par") {
            body.push_str(&next_text(&mut response).await.expect("the stream goes on"));
        }
        streams.push((format, response, body));
    }
    let object = tokio::spawn(ClientResponse::read(services.request("m", &base, "json")));
    timeout(CASE_TIMEOUT, vendor.wait_for_requests("m", FORMATS.len())).await.expect("all runs have begun");
    assert_eq!(vendor.disconnect_count(), 0, "the runs go on");

    stop(&services.outer);
    for (format, mut response, mut body) in streams {
        let reading = async {
            while let Some(text) = next_text(&mut response).await {
                body.push_str(&text);
            }
        };
        timeout(CASE_TIMEOUT, reading).await.unwrap_or_else(|_| panic!("{format}: it hangs"));
        let answer = ClientResponse {
            status: response.status().as_u16(),
            content_type: String::new(),
            retry_after: None,
            body,
        };
        let summary = answer.parse(format).unwrap_or_else(|what| panic!("{format}: {what}\n{}", answer.body));
        // The AI SDK's error chunk has no code.
        let code = if format == "ui-message" { "error" } else { CODE };
        assert_eq!((&*summary.text, summary.error.as_deref()), ("par", Some(code)), "{format}");
    }
    let object = timeout(CASE_TIMEOUT, object).await.expect("an answer in time").expect("an answer");
    object.is_problem(CODE).unwrap_or_else(|what| panic!("json: {what}\n{}", object.body));
    timeout(CASE_TIMEOUT, vendor.wait_for_disconnects(FORMATS.len())).await.expect("all calls are cancelled");
    timeout(CASE_TIMEOUT, services.outer.stopped()).await.expect("the service stops");
}

/// Returns the next part of a body; `None` at its end.
async fn next_text(response: &mut reqwest::Response) -> Option<String> {
    let chunk = response.chunk().await.expect("the framing is whole")?;
    Some(String::from_utf8(chunk.to_vec()).expect("UTF-8"))
}
