//! The official MCP conformance suite, run in Node against an MCP server with the suite's fixtures.

use std::sync::Arc;
use std::time::Duration;

use agent_http::body::Body;
use agent_http::mcp;
use agent_http::request::BodyLimits;
use agent_http::serve::{self, ServeLimits};
use agent_http::service::service_fn;
use agent_http::shutdown::Shutdown;
use agent_mcp::server::{AgentLimits, AuditLog, HostGuard, McpAuthenticator, McpServer, McpServerLimits};
use agent_platform::memory::MemoryRecords;
use agent_platform::seal::Sealer;
use tokio::net::TcpListener;
use tokio::process::Command;

use super::fixture::{Fixture, TOKEN};
use crate::support::packages::{node_path, npm_folder};

/// Page that states the suite's version and its results.
const PAGE: &str = include_str!("../../docs/mcp.md");
/// Name of the suite's package.
const PACKAGE: &str = "@modelcontextprotocol/conformance";

/// Time limit for the suite, far above its duration, so that a hanging suite does not hang the tests.
const CONFORMANCE_TIMEOUT: Duration = Duration::from_secs(300);

/// Starts an MCP server with the suite's fixtures that adds the token to every request, and returns its URL.
async fn start_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("a bound listener");
    let url = format!("http://{address}/");
    let fixture = Arc::new(Fixture::new());
    let limits = McpServerLimits {
        json_depth: 64,
        timeout: Duration::from_secs(30),
        per_agent: AgentLimits {
            concurrency: 16,
            per_minute: std::num::NonZeroU32::MAX,
            wait: Duration::from_secs(30),
        },
        connections: ServeLimits::default().connections,
        token_recheck_interval: CONFORMANCE_TIMEOUT,
    };
    let server = McpServer::new(
        HostGuard::new(&url.parse().expect("an address"), address, []),
        McpAuthenticator::new(fixture.clone(), None),
        fixture.clone(),
        AuditLog::new(Arc::new(MemoryRecords::default())),
        limits,
    );
    let server = Arc::new(server.with_sealed_sessions(Arc::new(Sealer::ephemeral())));
    assert!(fixture.server.set(server.clone()).is_ok());
    let service = service_fn(move |mut request: http::Request<Body>| {
        let server = server.clone();
        *request.uri_mut() = format!("/?token={TOKEN}").parse().expect("an address");
        async move { mcp::handle(&server, &BodyLimits::default(), request).await }
    });
    tokio::spawn(serve::serve(listener, service, ServeLimits::default(), Shutdown::default()));
    url
}

/// Prints the suite's summary; the test harness shows it with `--no-capture`.
#[expect(clippy::print_stdout, reason = "the summary is for people")]
fn print(text: &str) {
    println!("{text}");
}

/// Returns the row of the page's table that a summary makes: scenarios, scenarios without a failed check, and checks.
fn table_row(revision: &str, summary: &str) -> String {
    let count = |sign: char| summary.lines().filter(|line| line.trim_start().starts_with(sign)).count();
    let (passed_count, others) = (count('✓'), count('✗'));
    let total = summary.split("Total: ").nth(1).and_then(|total| total.lines().next());
    let (passed, failed) = total.and_then(|total| total.split_once(" passed, ")).expect("a total");
    let failed = failed.trim().strip_suffix(" failed").expect("the failed checks");
    format!("| {revision} | {} | {passed_count} | {passed} | {failed} |\n", passed_count + others)
}

async fn run_suite(revision: &str) {
    let url = start_server().await;
    let suite = Command::new(node_path())
        .arg(format!("node_modules/{PACKAGE}/dist/index.js"))
        .args(["server", "--url", &url, "--requirements", revision])
        .args(["--expected-failures", &format!("expected-failures-{revision}.yml")])
        .current_dir(npm_folder("conformance"))
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(CONFORMANCE_TIMEOUT, suite).await.expect("the suite comes to an end");
    let output = output.expect("node can be run");
    let (report, words) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let summary = report.split("SUMMARY").last().unwrap_or_default();
    assert!(output.status.success(), "{report}\n{words}");
    print(&format!("{revision}: {summary}"));
    let row = table_row(revision, summary);
    assert!(PAGE.contains(&row), "docs/mcp.md does not have the row\n{row}\nof {summary}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_version_with_sessions_is_kept_to() {
    run_suite("2025-11-25").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_protocol_version_without_sessions_is_kept() {
    run_suite("2026-07-28").await;
}

#[test]
fn the_page_names_the_version_of_the_suite() {
    let package =
        std::fs::read_to_string(npm_folder("conformance").join("package.json")).expect("it is there");
    let package: serde_json::Value = serde_json::from_str(&package).expect("JSON");
    let version = package["dependencies"][PACKAGE].as_str().expect("an exact version");
    let words = format!("`{PACKAGE}` {version})");
    assert!(PAGE.contains(&words), "docs/mcp.md does not name {words}");
}
