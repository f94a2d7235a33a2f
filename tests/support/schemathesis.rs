//! Schemathesis: property tests of a running service against its OpenAPI document.

use std::time::Duration;

use tokio::process::Command;

use super::server::Server;

/// Time limit for the tests, far above their duration, so that a hanging test does not hang the suite.
const SCHEMATHESIS_TIMEOUT: Duration = Duration::from_secs(240);

/// Schemathesis checks applied to each response. `positive_data_acceptance` is left out: some rules, such as the
/// characters allowed in an id, are not expressed in the schemas.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
    response_headers_conformance,response_schema_conformance,unsupported_method,ignored_auth";

/// Runs the property tests for the operations with these tags, and checks that there are `operations` of them.
pub async fn run(server: &Server, bearer: &str, tags: &[&str], operations: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("openapi.json");
    std::fs::write(&file, agent_http::openapi::document().to_string()).expect("it is written");
    let program = std::env::var("SCHEMATHESIS").unwrap_or_else(|_| "schemathesis".to_owned());
    let tests = Command::new(program)
        .arg("run")
        .arg(&file)
        .args(["--url", &server.url("")])
        .args(["--header", &format!("Authorization: Bearer {bearer}")])
        .args(tags.iter().flat_map(|tag| ["--include-tag", *tag]))
        .args(["--checks", CHECKS, "--phases", "examples,coverage,fuzzing"])
        .args(["--max-examples", "10", "--generation-deterministic", "--no-color"])
        .args(["--request-timeout", "10", "--continue-on-failure"])
        .current_dir(folder.path())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(SCHEMATHESIS_TIMEOUT, tests).await.expect("the tests come to an end");
    let output = output.expect(
        "schemathesis can be run; ci/test brings it, as does `pip install schemathesis`, and SCHEMATHESIS names it",
    );
    let report = String::from_utf8_lossy(&output.stdout);
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{report}\n{words}");
    assert!(report.contains(&format!("{operations} selected")), "operations are missing: {report}");
}
