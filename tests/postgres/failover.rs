//! A standby that lost the latest writes replaces the server: what processes know is ahead of the database.

use agentd::stores::Stores;
use reqwest::Response;
use serde_json::{Value, json};

use super::{PostgresFixture, document_text, finish_chat, put_document, send};
use crate::support::cluster::Cluster;
use crate::support::pooler::Pooler;
use crate::support::server::Server;
use crate::support::vendor::Vendor;
use crate::support::{expect_problem, poll_until, workspace};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_serve_the_remaining_data_after_a_failover() {
    let vendor = Vendor::start().await;
    let fixture = PostgresFixture::start(&workspace(&vendor.base_url(), "m")).await;
    a_standby_replaces_the_server(fixture, &vendor).await;
}

/// The processes' connections to the pooler outlive the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_behind_a_pooler_serve_the_remaining_data_after_a_failover() {
    let vendor = Vendor::start().await;
    let cluster = Cluster::start();
    let pooler = Pooler::start(&cluster);
    let url = pooler.url("postgres");
    let fixture = PostgresFixture::create(cluster, url, &workspace(&vendor.base_url(), "m")).await;
    a_standby_replaces_the_server(fixture, &vendor).await;
}

async fn a_standby_replaces_the_server(mut fixture: PostgresFixture, vendor: &Vendor) {
    {
        let first = fixture.start_app().await;
        put_document(&first, "kept", "before").await;
        put_document(&first, "deleted", "before").await;
    }
    fixture.cluster.fork_standby();
    // A pooler refuses connections for a moment after its own connection failed.
    poll_until(async || Stores::open(&fixture.config()).await.is_ok(), |opened| *opened).await;
    let processes = [fixture.start_app().await, fixture.start_app().await];
    let lost = write_what_is_lost(&processes, vendor).await;

    fixture.cluster.fail_over();
    for process in &processes {
        // A process that has no failed write behind it is ready without a look at the server, and a pooler still refuses it.
        let statuses = async || {
            let ready = process.request("GET", "/readyz").send().await.expect("the server answers").status();
            [ready, send(process, "GET", "/api/documents/kept", None).await.status()]
        };
        poll_until(statuses, |statuses| statuses.iter().all(|status| status.is_success())).await;
    }
    // Repeated reads, which the cache answers, are of the new server, too.
    for process in processes.iter().cycle().take(20) {
        assert_eq!(document_text(process, "kept").await.as_deref(), Some("before"));
        assert_eq!(document_text(process, "lost").await, None);
        assert_eq!(document_text(process, "deleted").await.as_deref(), Some("before"));
        assert_eq!(prompt_of_a_chat(process, vendor).await, "Be brief.");
        expect_problem(ask_with_token(process, &lost.token).await, 401, "UNAUTHENTICATED").await;
    }
    // The run whose id was lost has taken effect nowhere.
    finish_chat(&processes[0], &json!({"agentId": "a1", "message": "Hello", "runId": "lost"})).await;
    let second = processes[1].chat(&json!({"agentId": "a1", "message": "Hello", "runId": "lost"})).await;
    expect_problem(second, 409, "CONFLICT").await;

    // The new server assigns versions a second time: here to the role, whose lost text is cached.
    let mut agent = get_agent(&processes[1]).await;
    agent["content"]["systemPrompt"] = "After.".into();
    put_agent(&processes[1], &agent).await;
    let sql = format!(
        "UPDATE app.records SET version = {} WHERE collection = 'roles' AND id = 'a1'",
        lost.agent_tag.trim_matches('"')
    );
    fixture.connect().await.batch_execute(&sql).await.expect("set");
    for process in &processes {
        poll_until(async || prompt_of_a_chat(process, vendor).await, |prompt| prompt == "After.").await;
    }
    for (writer, reader, text) in
        [(&processes[0], &processes[1], "one"), (&processes[1], &processes[0], "two")]
    {
        put_document(writer, "kept", text).await;
        poll_until(async || document_text(reader, "kept").await, |found| found.as_deref() == Some(text))
            .await;
    }
}

/// Identifiers of writes that the old server acknowledged and the new server lacks.
struct LostWrites {
    token: String,
    agent_tag: String,
}

/// Writes at both processes, and reads until both have cached it.
async fn write_what_is_lost(processes: &[Server; 2], vendor: &Vendor) -> LostWrites {
    put_document(&processes[0], "kept", "lost").await;
    put_document(&processes[1], "lost", "lost").await;
    assert!(send(&processes[0], "DELETE", "/api/documents/deleted", None).await.status().is_success());
    let response =
        send(&processes[1], "POST", "/api/agents/a1/tokens", Some(&json!({"kind": "widget"}))).await;
    let body: Value = response.json().await.expect("JSON");
    let token = body["token"].as_str().expect("a text").to_owned();
    let mut agent = get_agent(&processes[0]).await;
    agent["content"]["systemPrompt"] = "Lost.".into();
    let agent_tag = put_agent(&processes[0], &agent).await;
    finish_chat(&processes[0], &json!({"agentId": "a1", "message": "Hello", "runId": "lost"})).await;
    for process in processes {
        poll_until(async || document_text(process, "kept").await, |found| found.as_deref() == Some("lost"))
            .await;
        poll_until(async || document_text(process, "lost").await, Option::is_some).await;
        poll_until(async || document_text(process, "deleted").await, Option::is_none).await;
        poll_until(async || prompt_of_a_chat(process, vendor).await, |prompt| prompt == "Lost.").await;
        assert_eq!(ask_with_token(process, &token).await.status(), 200);
    }
    LostWrites { token, agent_tag }
}

async fn ask_with_token(process: &Server, token: &str) -> Response {
    let request = process.request("POST", "/api/agent/chat").header("x-widget-token", token);
    request.json(&json!({"message": "Hello"})).send().await.expect("an answer")
}

/// Chats, and returns the first line of the system prompt that the vendor received.
async fn prompt_of_a_chat(process: &Server, vendor: &Vendor) -> String {
    finish_chat(process, &json!({"agentId": "a1", "message": "Hello"})).await;
    let request_body = vendor.received_bodies("m").pop().expect("a request");
    let system = request_body["messages"][0]["content"].as_str().expect("text");
    system.lines().next().unwrap_or_default().to_owned()
}

async fn get_agent(process: &Server) -> Value {
    let response = send(process, "GET", "/api/agents/a1", None).await;
    assert_eq!(response.status(), 200);
    response.json().await.expect("JSON")
}

async fn put_agent(process: &Server, agent: &Value) -> String {
    let response = send(process, "PUT", "/api/agents/a1", Some(agent)).await;
    assert_eq!(response.status(), 200);
    entity_tag(&response)
}

fn entity_tag(response: &Response) -> String {
    response.headers()["etag"].to_str().expect("text").to_owned()
}
