//! The chat endpoint's older path, and the routes of a system that has been removed.

use serde_json::{Value, json};

use super::json_of;
use crate::support::server::{self, session_token};
use crate::support::vendor::Vendor;
use crate::support::{expect_problem, parse_run, text_of, workspace};

const PRIVATE: &str = "/api/svcchat/private";

#[tokio::test]
async fn the_older_name_is_the_chat_entry() {
    let vendor = Vendor::start().await;
    let app = server::app(&workspace(&vendor.base_url(), "m"), &[]).await;
    let post = |query: &str, body: &Value| {
        app.request("POST", &format!("{PRIVATE}{query}")).bearer_auth(session_token("u1", "c1")).json(body)
    };
    let bodies = [
        json!({"agentId": "a1", "chatInput": "Hello there", "sessionId": "s-1"}),
        json!({"agentId": "a1", "message": "Hello there", "threadId": "s-1"}),
        json!({"agentId": "a1", "action": "sendMessage", "chatInput": "Hello there", "sessionId": "s-1"}),
    ];
    for body in &bodies {
        let response = post("", body).send().await.expect("an answer");
        assert_eq!(response.headers()["content-type"], "application/x-ndjson");
        let events = parse_run(&response.text().await.expect("a whole body"));
        assert_eq!((text_of(&events).as_str(), &events[0]["threadId"]), ("hello world", &json!("s-1")));
        // A client that cannot read a stream requests a single object, by the query or by `Accept`.
        for request in [post("?format=json", body), post("", body).header("accept", "application/json")] {
            let response = request.send().await.expect("an answer");
            assert_eq!(response.headers()["content-type"], "application/json");
            let object: Value = response.json().await.expect("JSON");
            assert_eq!((&object["output"], &object["threadId"]), (&json!("hello world"), &json!("s-1")));
        }
    }
    for sent in vendor.received_bodies("m") {
        let last = sent["messages"].as_array().and_then(|messages| messages.last()).expect("messages");
        assert!(last["content"].as_str().expect("text").ends_with("Hello there"), "{sent}");
    }
    assert_eq!(vendor.received().len(), 9);
    expect_problem(
        post("", &json!({"agentId": "nobody", "chatInput": "x"})).send().await.expect("an answer"),
        404,
        "NOT_FOUND",
    )
    .await;
    let nobody = app.request("POST", PRIVATE).json(&bodies[0]).send().await.expect("an answer");
    expect_problem(nobody, 401, "UNAUTHENTICATED").await;
}

#[tokio::test]
async fn removed_routes_respond_without_effect() {
    let app = server::app(&workspace("http://127.0.0.1:9/v1", "m"), &[]).await;
    for (method, path) in [
        ("GET", "/api/assistants/context-status"),
        ("GET", "/api/assistants/context/status"),
        ("POST", "/api/assistants/context/refresh"),
        ("POST", "/api/assistants/context/unitLink/attach"),
    ] {
        let request = || app.request(method, path).bearer_auth(session_token("u1", "c1"));
        let response = request().send().await.expect("an answer");
        assert_eq!(response.headers()["deprecation"], "@1767225600", "a date of RFC 9651");
        assert_eq!(response.headers()["link"], "</api/agent/chat>; rel=\"successor-version\"");
        let body = json_of(request()).await;
        assert_eq!((&body["status"], &body["active"]), (&json!("deprecated"), &json!(false)), "{body}");
    }
    let unknown = app.request("GET", "/api/assistants/context").send().await.expect("an answer");
    expect_problem(unknown, 404, "NOT_FOUND").await;
}

#[tokio::test]
async fn the_prompt_names_a_legacy_client() {
    let vendor = Vendor::start().await;
    let app = server::app(&workspace(&vendor.base_url(), "m"), &[]).await;
    let client = "The message comes from a signed-in user through a mobile app or another older client.";
    for (path, is_legacy) in [(PRIVATE, true), ("/api/agent/chat", false)] {
        let body = json!({"agentId": "a1", "message": "Hello", "threadId": path});
        let request = app.request("POST", path).bearer_auth(session_token("u1", "c1")).json(&body);
        let run = request.send().await.expect("an answer").text().await.expect("a whole body");
        let events = parse_run(&run);
        let request_text = vendor.received_bodies("m").pop().expect("a request").to_string();
        assert_eq!(request_text.contains(client), is_legacy, "{path}: {request_text}");
        assert_eq!(
            request_text.contains("The message comes from a signed-in user.\\n"),
            !is_legacy,
            "{path}: {request_text}"
        );
        let event = events.iter().find(|event| event["name"] == "agent.prompt").expect("told");
        let query = if is_legacy { "?client=legacy" } else { "" };
        // In the same thread, it would be the next message.
        let body = json!({"agentId": "a1", "message": "Hello", "threadId": format!("{path} anew")});
        let preview = app.request("POST", &format!("/api/svcchat/previewPrompt{query}"));
        let body = json_of(preview.bearer_auth(session_token("u1", "c1")).json(&body)).await;
        assert_eq!(body["executionContext"]["caller"], if is_legacy { "legacy" } else { "session" });
        assert_eq!(
            body["requestSha256"], event["value"]["requestSha256"],
            "the preview shows the sent request"
        );
    }
    let preview =
        app.request("POST", "/api/svcchat/previewPrompt?client=pager").bearer_auth(session_token("u1", "c1"));
    let body = json!({"agentId": "a1", "message": "Hello"});
    expect_problem(preview.json(&body).send().await.expect("an answer"), 400, "INVALID_REQUEST").await;
}
