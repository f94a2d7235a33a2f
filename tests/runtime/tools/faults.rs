//! Tool server faults: each becomes the result of one call, and the run token is not disclosed.

use super::table::{ResponsesByName, faults, handshake_faults};
use super::{TOKEN, post, request, result_of};
use crate::support::log::LogBuffer;
use crate::support::tool_server::{FakeMcpServer, MCP_REVISIONS, McpRevision};
use crate::support::vendor::{Vendor, answer, tool_calls};
use crate::support::{finished_run, server, text_of};

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_of_a_tool_server_affects_only_the_result_of_its_call() {
    for revision in MCP_REVISIONS {
        let (vendor, tools) = (Vendor::start().await, FakeMcpServer::start(revision).await);
        let faults = faults();
        let mut calls: Vec<(&str, &str, &str)> =
            faults.iter().map(|(name, ..)| (*name, *name, "{}")).collect();
        calls.push(("good", "good", "{}"));
        for (name, steps, _) in &faults {
            tools.on(name, [steps.clone()]);
        }
        vendor.on("m", [tool_calls(&calls), answer(&["I see."])]);
        let runtime = server::runtime(&[("TOOL_TIMEOUT_MS", "3000")]).await;
        let names: Vec<&str> = calls.iter().map(|(name, ..)| *name).collect();
        let events =
            finished_run(post(&runtime, &request(&vendor, "m", &names, &tools.url(TOKEN))).await).await;
        for (name, _, expected) in &faults {
            assert_eq!(result_of(&events, name), (*expected, true), "{name}, {revision:?}");
        }
        assert_eq!(result_of(&events, "good"), ("good is done", false));
        assert_eq!(text_of(&events), "I see.");
        // A call that may have been executed is never sent again.
        for name in names {
            assert_eq!(
                tools.received_names().iter().filter(|method| *method == name).count(),
                1,
                "{name}, {revision:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_failed_handshake_is_the_result_of_every_call() {
    let runtime = server::runtime(&[]).await;
    for (name, scripts, expected) in handshake_faults() {
        let (vendor, tools) = (Vendor::start().await, FakeMcpServer::start(McpRevision::Sessions).await);
        for (method, steps) in scripts {
            tools.on(method, [steps]);
        }
        vendor.on("m", [tool_calls(&[("c1", "first", "{}"), ("c2", "second", "{}")]), answer(&["I see."])]);
        let body = request(&vendor, "m", &["first", "second"], &tools.url(TOKEN));
        let events = finished_run(post(&runtime, &body).await).await;
        for id in ["c1", "c2"] {
            assert_eq!(result_of(&events, id), (expected, true), "{name}");
        }
        // Both calls share one connection attempt.
        let greetings = tools.received_names();
        assert_eq!(greetings.iter().filter(|method| *method == "server/discover").count(), 1, "{name}");
        assert_eq!(text_of(&events), "I see.");
    }
}

/// Runs on one thread, so that the thread-local subscriber collects every event.
#[tokio::test]
async fn the_token_of_the_address_is_in_no_log_and_no_event() {
    let log = LogBuffer::default();
    let lines = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_span_events(tracing_subscriber::fmt::format::FmtSpan::FULL)
        .with_ansi(false)
        .with_writer(log.clone());
    let _collecting = tracing::subscriber::set_default(lines.finish());
    let mut transcript = String::new();
    let runtime = server::runtime(&[("TOOL_TIMEOUT_MS", "1000")]).await;
    let mut tell = async |scripts: ResponsesByName, calls: Vec<&str>, revision| {
        let (vendor, tools) = (Vendor::start().await, FakeMcpServer::start(revision).await);
        for (name, steps) in scripts {
            tools.on(name, [steps]);
        }
        let made: Vec<_> = calls.iter().map(|name| (*name, *name, "{}")).collect();
        vendor.on("m", [tool_calls(&made), answer(&["I see."])]);
        let response = post(&runtime, &request(&vendor, "m", &calls, &tools.url(TOKEN))).await;
        transcript.push_str(&format!("{:?}", response.headers()));
        transcript.push_str(&response.text().await.expect("a whole body"));
        // The end of the session is logged as well.
        if calls == ["good"] && revision == McpRevision::Sessions {
            tools.wait_for_names(|methods| methods.last().is_some_and(|method| method == "DELETE")).await;
        }
        assert!(tools.received().iter().all(|received| received.head.contains(TOKEN)));
    };
    for revision in MCP_REVISIONS {
        let scripts: Vec<_> = faults().into_iter().map(|(name, steps, _)| (name, steps)).collect();
        let calls = scripts.iter().map(|(name, _)| *name).collect();
        tell(scripts, calls, revision).await;
        tell(vec![], vec!["good"], revision).await;
    }
    for (_, scripts, _) in handshake_faults() {
        tell(scripts, vec!["good"], McpRevision::Stateless).await;
    }
    assert!(transcript.contains("good is done") && transcript.contains("I see."), "{transcript}");
    assert!(!transcript.contains(TOKEN), "{transcript}");
    let log = log.text();
    assert!(log.contains(" rmcp::service: ") && log.contains("good"), "{log}");
    assert!(!log.contains(TOKEN), "{}", log.lines().find(|line| line.contains(TOKEN)).unwrap_or_default());
}
