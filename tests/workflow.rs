//! Agents answered by a workflow (n8n).

mod calls;

use serde_json::{Value, json};

use crate::support::server::{self, Server};
use crate::support::vendor::n8n::{self, JSON_CONTENT_TYPE};
use crate::support::vendor::{Step, Vendor};
use crate::support::{expect_problem, parse_events, parse_run, read_until, workspace};

/// Returns a workspace whose agent `a1` is answered by the vendor's webhook.
fn workspace_with_workflow(vendor: &Vendor, auth: Option<Value>) -> Value {
    let mut content = json!({"webhookUrl": vendor.webhook_url()});
    if let Some(auth) = auth {
        content["auth"] = auth;
    }
    let mut workspace = workspace("http://unused.example/v1", "m");
    workspace["documents"] =
        json!([{"id": "hours", "companyId": "c1", "title": "Hours", "text": "Open from 9 to 18."}]);
    let agent = &mut workspace["agents"][0];
    agent["content"]["documentIds"] = json!(["hours"]);
    agent["content"]["rules"] = json!(["Be kind."]);
    agent["children"] = json!([{"name": "WorkflowConnector", "content": content}]);
    workspace
}

async fn ask(app: &Server) -> reqwest::Response {
    app.chat(
        &json!({"agentId": "a1", "message": "When are you open?", "threadId": "t-1", "todoListId": "l1"}),
    )
    .await
}

/// Returns the names of an object's members, sorted.
fn names(object: &Value) -> Vec<&str> {
    let mut names: Vec<_> = object.as_object().expect("an object").keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

/// Returns the texts of a run's messages, and the code and message of its error.
fn messages_and_error(body: &str) -> (Vec<String>, Option<String>) {
    let events = parse_run(body);
    let kind = |event: &Value, kind: &str| event["type"] == kind;
    let begun = events.iter().filter(|event| kind(event, "TEXT_MESSAGE_START"));
    let messages = begun.map(|begun| {
        let deltas = events
            .iter()
            .filter(|event| kind(event, "TEXT_MESSAGE_CONTENT") && event["messageId"] == begun["messageId"]);
        deltas.filter_map(|event| event["delta"].as_str()).collect()
    });
    let error = events.iter().find(|event| kind(event, "RUN_ERROR"));
    let error =
        error.map(|error| format!("{} {}", error["code"].as_str().unwrap_or_default(), error["message"]));
    (messages.collect(), error)
}

#[tokio::test]
async fn the_payload_suits_both_triggers() {
    let vendor = Vendor::start().await;
    let auth = json!({"type": "basic", "user": "ada", "password": "s3cret"});
    let app = server::app(
        &workspace_with_workflow(&vendor, Some(auth)),
        &[("PUBLIC_URL", "https://app.example.com")],
    )
    .await;
    let history = json!([{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello!"}]);
    let response = app
        .chat(
            &json!({"agentId": "a1", "messages": history, "message": "When are you open?", "threadId": "t-1",
            "todoListId": "l1", "pageContext": {"url": "/plants"}}),
        )
        .await;
    let body = response.text().await.expect("a whole body");
    assert_eq!(messages_and_error(&body), (vec!["hello world".to_owned()], None));
    let announced = parse_events(&body)
        .into_iter()
        .find(|event| event["name"] == "agent.prompt")
        .expect("it is announced");
    assert_eq!(announced["value"]["backend"], "workflow");

    let [received] = &vendor.received()[..] else { panic!("one request") };
    assert_eq!(received.path(), "/webhook/chat");
    let head = received.head.to_ascii_lowercase();
    assert!(head.contains("content-type: application/json\r\n"), "{head}");
    assert!(received.head.contains("Basic YWRhOnMzY3JldA=="), "{head}");

    let request_body = received.json();
    assert_eq!(
        names(&request_body),
        [
            "action",
            "agentId",
            "chatInput",
            "mcpServerUrl",
            "messages",
            "roleData",
            "sessionId",
            "todoListBlockId"
        ]
    );
    assert_eq!((&request_body["action"], &request_body["sessionId"]), (&json!("sendMessage"), &json!("t-1")));
    assert_eq!((&request_body["agentId"], &request_body["todoListBlockId"]), (&json!("a1"), &json!("l1")));
    assert_eq!(request_body["chatInput"], "When are you open?");
    let tools = request_body["mcpServerUrl"].as_str().expect("text");
    assert!(tools.starts_with("https://app.example.com/api/agent/mcp?"), "{tools}");
    assert!(tools.contains("agentId=a1") && tools.contains("todoListId=l1"), "{tools}");
    let messages = request_body["messages"].as_array().expect("a list");
    assert_eq!(messages.len(), 3);
    // The page context belongs to the turn, so it is in the latest message, but not in the user's own text
    // (`chatInput`).
    let latest = messages[2]["content"].as_str().expect("text");
    assert!(latest.contains("/plants") && latest.ends_with("When are you open?"), "{latest}");

    let role = &request_body["roleData"];
    let prompt = role["finalSystemPrompt"].as_str().expect("text");
    for part in ["Be brief.", "Be kind.", "Open from 9 to 18."] {
        assert!(prompt.contains(part), "{prompt}");
    }
    assert_eq!(names(role), ["agentId", "docs", "finalSystemPrompt", "name", "rules", "systemPrompt"]);
    assert_eq!((&role["docs"], &role["rules"]), (&json!([{"id": "hours"}]), &json!(["Be kind."])));
}

#[tokio::test]
async fn recorded_streams_become_runs() {
    let vendor = Vendor::start().await;
    let app = server::app(&workspace_with_workflow(&vendor, None), &[]).await;
    let failed = Some("BACKEND_FAILED \"the workflow reported an error\"");
    let cases: [(&str, &[&str], Option<&str>); 8] = [
        ("agent.ndjson", &["We öffnen um 9 Uhr 🌿."], None),
        ("agent-with-tools.ndjson", &["Let me look.", "Repot the basil."], None),
        ("respond-node.ndjson", &["We open at 9.\n\nSee you!"], None),
        ("agent-and-respond-node.ndjson", &["We open at 9.", "We open at 9."], None),
        ("keepalive.ndjson", &["We open at 9."], None),
        ("error.ndjson", &[], failed),
        ("error-with-content.ndjson", &[], failed),
        ("error-after-text.ndjson", &["We open"], failed),
    ];
    for (name, messages, error) in cases {
        for size in [1, 50, 4096] {
            vendor.on("a1", [n8n::streamed_fixture(name, size)]);
            let body = ask(&app).await.text().await.expect("a whole body");
            let expected =
                (messages.iter().map(|text| (*text).to_owned()).collect(), error.map(str::to_owned));
            assert_eq!(messages_and_error(&body), expected, "{name} in chunks of {size}");
            assert!(!body.to_ascii_lowercase().contains("canary"), "{body}");
        }
    }
}

#[tokio::test]
async fn recorded_answers_of_one_piece_become_runs_or_problems() {
    let vendor = Vendor::start().await;
    let app = server::app(&workspace_with_workflow(&vendor, None), &[]).await;
    let complete_answers = [
        ("last-node.json", JSON_CONTENT_TYPE, "We open at 9."),
        ("last-node-with-steps.json", JSON_CONTENT_TYPE, "We open at 9."),
        ("all-entries.json", JSON_CONTENT_TYPE, "We open at 9.\n\nWe close at 18."),
        ("chain.json", JSON_CONTENT_TYPE, "We open at 9."),
        ("model.json", JSON_CONTENT_TYPE, "We open at 9."),
        ("data.json", JSON_CONTENT_TYPE, "We open at 9."),
        ("text.txt", "text/html; charset=utf-8", "We open at 9.\nSee you!"),
    ];
    for (name, media_type, expected) in complete_answers {
        vendor.on("a1", [n8n::fixture_response("200 OK", media_type, name)]);
        let body = ask(&app).await.text().await.expect("a whole body");
        assert_eq!(messages_and_error(&body), (vec![expected.to_owned()], None), "{name}");
    }
    let refused = [
        ("200 OK", "started.json", JSON_CONTENT_TYPE, "its trigger must respond"),
        ("200 OK", "started-early.txt", "text/html", "its trigger must respond"),
        ("200 OK", "started-hosted.json", JSON_CONTENT_TYPE, "its trigger must respond"),
        ("200 OK", "no-data.json", JSON_CONTENT_TYPE, "is empty"),
        ("200 OK", "echo.json", JSON_CONTENT_TYPE, "none of the fields"),
        ("200 OK", "gateway.html", "text/html", "an HTML page"),
        ("200 OK", "failed-with-stack.json", JSON_CONTENT_TYPE, "reported an error"),
        ("404 Not Found", "inactive.json", JSON_CONTENT_TYPE, "must be active"),
        ("500 Internal Server Error", "failed.json", JSON_CONTENT_TYPE, "the workflow failed"),
        ("500 Internal Server Error", "failed-with-stack.json", JSON_CONTENT_TYPE, "the workflow failed"),
        ("502 Bad Gateway", "gateway.html", "text/html", "HTTP 502"),
    ];
    for (status, name, media_type, words) in refused {
        vendor.on("a1", [n8n::fixture_response(status, media_type, name)]);
        let problem = expect_problem(ask(&app).await, 502, "BACKEND_FAILED").await;
        assert!(problem["detail"].as_str().expect("text").contains(words), "{name}: {problem}");
        assert!(!problem.to_string().to_ascii_lowercase().contains("canary"), "{problem}");
    }
}

#[tokio::test]
async fn a_workflow_that_streams_no_text_has_failed() {
    let vendor = Vendor::start().await;
    let app = server::app(&workspace_with_workflow(&vendor, None), &[]).await;
    let end = Step::Send(b"0\r\n\r\n".to_vec());
    let [ended, _] = n8n::end();
    for script in [vec![n8n::head(), end.clone()], vec![n8n::stream_head(), ended, end]] {
        vendor.on("a1", [script]);
        let (messages, error) = messages_and_error(&ask(&app).await.text().await.expect("a whole body"));
        assert!(messages.is_empty());
        assert!(error.expect("an error").contains("the workflow's response is empty"));
    }
}

#[tokio::test]
async fn the_first_words_are_sent_before_the_workflow_ends() {
    let vendor = Vendor::start().await;
    vendor.on("a1", [vec![n8n::stream_head(), n8n::text("We open"), Step::Stall]]);
    let app = server::app(&workspace_with_workflow(&vendor, None), &[]).await;
    let mut response = ask(&app).await;
    let body = read_until(&mut response, "We open").await;
    assert!(!body.contains("RUN_FINISHED"), "{body}");
}
