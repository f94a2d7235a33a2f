//! Schemathesis tests of every operation of the OpenAPI document: each service with each of its credentials.

use std::sync::Arc;

use agent_jobs::job::MemoryJobStore;
use serde_json::{Value, json};

use crate::support::schemathesis::{self, Operations};
use crate::support::server::{self, PULSE_SECRET, Server, session_token};
use crate::support::vendor::{Vendor, json_response};

const CRON_SECRET: &str = "cron-canary-0123456789";
const RUNTIME_SECRET: &str = "runtime-canary-0123456789";
/// Address without a listener.
const NOWHERE: &str = "http://127.0.0.1:9/callback";
/// Tags of the operations that are tested with a session.
const SESSION_TAGS: [&str; 10] =
    ["agents", "console", "deprecated", "documents", "files", "health", "jobs", "threads", "usage", "widget"];
/// Tags of operations that call an upstream server, whose errors are separate server errors.
const RELAYING_TAGS: [&str; 3] = ["chat", "coding", "previews"];
/// Tags of operations with other credentials.
const OTHER_TAGS: [&str; 4] = ["mcp", "openai", "runtime", "scheduler"];

/// The application with its scheduler, and the vendor of its agents.
struct Installation {
    app: Server,
    _scheduler: Server,
    _vendor: Vendor,
}

async fn open() -> Installation {
    let vendor = Vendor::start().await;
    let answer = json!({"choices": [{"message": {"content": "Hello."}, "finish_reason": "stop"}]});
    vendor.on_all(json_response("200 OK", "", &answer.to_string()));
    let scheduler = server::scheduler(Arc::new(MemoryJobStore::default()), NOWHERE, &[]).await;
    let workspace = json!({
        "users": [{"id": "u1", "companyId": "c1"}],
        "agents": [{"id": "a1", "name": "Agent", "ownerId": "u1", "companyId": "c1", "children": [
            {"name": "EmbeddedAI", "content":
                {"provider": "openai", "model": "m", "baseUrl": vendor.base_url(), "apiKey": "role-key-canary"}}]}],
        "documents": [{"id": "d1", "companyId": "c1", "title": "Hours", "text": "Nine to five."}]
    });
    let url = scheduler.url("");
    let settings = [
        ("PULSE_URL", &*url),
        ("PULSE_SECRET", PULSE_SECRET),
        ("CRON_SECRET", CRON_SECRET),
        ("CONSOLE", "on"),
    ];
    let app = server::app(&workspace, &settings).await;
    Installation { app, _scheduler: scheduler, _vendor: vendor }
}

#[test]
fn every_operation_is_tested() {
    let document = agent_http::openapi::document();
    let paths = document["paths"].as_object().expect("paths").values();
    let operations = paths.flat_map(|path| path.as_object().expect("methods").values());
    let tags = operations.filter_map(|operation| Some(operation["tags"][0].as_str()?.to_owned()));
    let tested = [&SESSION_TAGS[..], &RELAYING_TAGS, &OTHER_TAGS].concat();
    let untested: Vec<String> = tags.filter(|tag| !tested.contains(&tag.as_str())).collect();
    assert!(untested.is_empty(), "{untested:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_application_answers_sessions_as_described() {
    let installation = open().await;
    let session = session_token("u1", "c1");
    schemathesis::run(&installation.app, &session, Operations::Tags(&SESSION_TAGS)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chats_and_previews_are_answered_as_described() {
    let installation = open().await;
    let session = session_token("u1", "c1");
    schemathesis::run(&installation.app, &session, Operations::Relaying(&RELAYING_TAGS)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_application_answers_its_scheduler_as_described() {
    let installation = open().await;
    schemathesis::run(&installation.app, PULSE_SECRET, Operations::Id("pulseCallback")).await;
    schemathesis::run(&installation.app, CRON_SECRET, Operations::Id("cron")).await;
}

/// Creates a token of the agent and returns its text.
async fn create_token(installation: &Installation, kind: &str) -> String {
    let request = installation.app.request("POST", "/api/agents/a1/tokens");
    let request = request.bearer_auth(session_token("u1", "c1")).json(&json!({"kind": kind}));
    let minted: Value = request.send().await.expect("an answer").json().await.expect("JSON");
    minted["token"].as_str().expect("a token").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tool_server_answers_as_described() {
    let installation = open().await;
    let token = create_token(&installation, "mcp").await;
    schemathesis::run(&installation.app, &token, Operations::Tags(&["mcp"])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_openai_compatible_api_answers_as_described() {
    let installation = open().await;
    let token = create_token(&installation, "api").await;
    schemathesis::run(&installation.app, &token, Operations::Relaying(&["openai"])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_runtime_answers_as_described() {
    let runtime = server::runtime(&[("RUNTIME_SECRET", RUNTIME_SECRET)]).await;
    schemathesis::run(&runtime, RUNTIME_SECRET, Operations::Relaying(&["runtime"])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_scheduler_answers_as_described() {
    let scheduler = server::scheduler(Arc::new(MemoryJobStore::default()), NOWHERE, &[]).await;
    schemathesis::run(&scheduler, PULSE_SECRET, Operations::Tags(&["scheduler"])).await;
}
