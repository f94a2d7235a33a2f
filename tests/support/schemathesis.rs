//! Schemathesis: property tests of a running service against its OpenAPI document.

use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;

use super::env_number;
use super::packages::keep_bytecode;
use super::server::Server;

/// Time limit for the tests, far above their duration, so that a hanging test does not hang the suite.
const SCHEMATHESIS_TIMEOUT: Duration = Duration::from_secs(900);

/// Environment variable with the number of random cases of each operation, beside the systematic ones.
const EXAMPLES: &str = "SCHEMATHESIS_EXAMPLES";
const DEFAULT_EXAMPLES: usize = 3;

/// Schemathesis checks applied to each response. `positive_data_acceptance` is left out: some rules, such as the
/// characters allowed in an id, are not expressed in the schemas.
const CHECKS: &str = "status_code_conformance,content_type_conformance,response_headers_conformance,\
    response_schema_conformance,unsupported_method,ignored_auth";

/// Operations of a run.
#[derive(Clone, Copy)]
pub enum Operations<'a> {
    /// Operations with these tags.
    Tags(&'a [&'a str]),
    /// Operations with these tags, which may answer with the errors of an upstream server.
    Relaying(&'a [&'a str]),
    /// The one with this id.
    Id(&'a str),
}

impl Operations<'_> {
    fn arguments(self) -> Vec<String> {
        let each = |option: &str, values: &[&str]| {
            values.iter().flat_map(|value| [option.to_owned(), (*value).to_owned()]).collect()
        };
        match self {
            Self::Tags(tags) | Self::Relaying(tags) => each("--include-tag", tags),
            Self::Id(id) => each("--include-operation-id", &[id]),
        }
    }

    fn checks(self) -> String {
        match self {
            Self::Relaying(_) => CHECKS.to_owned(),
            Self::Tags(_) | Self::Id(_) => format!("not_a_server_error,{CHECKS}"),
        }
    }

    /// Returns the number of these operations in the document.
    fn count(self, document: &Value) -> usize {
        let paths = document["paths"].as_object().expect("paths").values();
        let operations = paths.flat_map(|path| path.as_object().expect("methods").values());
        let is_one = |operation: &&Value| match self {
            Self::Tags(tags) | Self::Relaying(tags) => tags.iter().any(|tag| operation["tags"][0] == *tag),
            Self::Id(id) => operation["operationId"] == id,
        };
        operations.filter(is_one).count()
    }
}

/// Runs the property tests of `operations`, and checks that all of them were found.
pub async fn run(server: &Server, bearer: &str, operations: Operations<'_>) {
    let document = agent_http::openapi::document();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("openapi.json");
    std::fs::write(&file, document.to_string()).expect("it is written");
    let program = std::env::var("SCHEMATHESIS").unwrap_or_else(|_| "schemathesis".to_owned());
    let mut command = Command::new(program);
    let tests = keep_bytecode(&mut command)
        .arg("run")
        .arg(&file)
        .args(["--url", &server.url("")])
        .args(["--header", &format!("Authorization: Bearer {bearer}")])
        .args(operations.arguments())
        .args(["--checks", &operations.checks(), "--phases", "examples,coverage,fuzzing"])
        .args(["--max-examples", &env_number(EXAMPLES, DEFAULT_EXAMPLES).to_string()])
        .args(["--generation-deterministic", "--no-color"])
        .args(["--request-timeout", "60", "--continue-on-failure"])
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
    let count = operations.count(&document);
    assert!(count > 0 && report.contains(&format!("{count} selected")), "operations are missing: {report}");
}
