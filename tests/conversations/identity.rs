//! Isolation: a request for another user's object has the same response, byte for byte, as one for an object that never existed.

use serde_json::{Value, json};

use super::ConversationApp;
use crate::support::server::{INTERNAL_SECRET, session_token};
use crate::support::{exchange, expect_problem};

/// A call of a route with an id that may be another's.
type Call = (&'static str, String, Option<Value>);

/// Returns a call of every route with these ids.
fn calls(thread: &str, node: &str, run: &str) -> Vec<Call> {
    let one = format!("/api/threads/{thread}");
    vec![
        ("GET", one.clone(), None),
        ("GET", format!("{one}?messages=tree"), None),
        ("GET", format!("{one}?messages=none"), None),
        ("GET", format!("{one}?format=ui-message&at={node}"), None),
        ("PATCH", one.clone(), Some(json!({"title": "Mine"}))),
        ("PATCH", one.clone(), Some(json!({"head": node}))),
        ("PATCH", one.clone(), Some(json!({"title": 5}))),
        ("POST", format!("{one}/messages"), Some(json!({"messages": [{"role": "user", "content": "x"}]}))),
        ("POST", format!("{one}/messages"), Some(json!({"messages": 5}))),
        ("POST", format!("{one}/fork"), Some(json!({"at": node}))),
        ("POST", format!("{one}/fork"), Some(json!({"at": 5}))),
        ("PUT", format!("{one}/messages/{node}/feedback"), Some(json!({"rating": "up"}))),
        ("PUT", format!("{one}/messages/{node}/feedback"), Some(json!({"rating": 5}))),
        ("DELETE", format!("{one}/messages/{node}/feedback"), None),
        ("DELETE", format!("{one}/messages/{node}"), None),
        ("GET", format!("{one}/export"), None),
        ("DELETE", one, None),
        ("POST", format!("/api/threads/{thread}/cancel"), None),
        ("GET", format!("/api/runs/{run}"), None),
        ("GET", format!("/api/runs/{run}/prompt"), None),
        ("GET", format!("/api/runs/{run}/bundle"), None),
        ("GET", format!("/api/runs/{run}/events"), None),
        ("GET", format!("/api/runs/{run}/events?after=999&wait=false"), None),
        ("POST", format!("/api/runs/{run}/cancel"), None),
    ]
}

impl ConversationApp {
    /// Sends a call and returns the response as a client sees it, without parts that differ in every response.
    async fn seen(&self, bearer: &str, (method, path, body): Call) -> (u16, String, Vec<String>) {
        let request = self.app.request(method, &path).bearer_auth(bearer);
        let request = match body {
            Some(body) => request.json(&body),
            None => request,
        };
        let response = request.send().await.expect("an answer");
        let id = response.headers()["x-request-id"].to_str().expect("text").to_owned();
        let own_headers = ["x-request-id", "date"];
        let headers = response.headers().iter().filter(|(name, _)| !own_headers.contains(&name.as_str()));
        let headers = headers.map(|(name, value)| format!("{name}: {value:?}")).collect();
        let status = response.status().as_u16();
        (status, response.text().await.expect("a body").replace(&id, "<id>"), headers)
    }
}

#[tokio::test]
async fn foreign_deleted_and_unknown_ids_get_the_same_response() {
    let test = ConversationApp::start().await;
    test.say("deleted", "Gone canary").await;
    let deleted = test.get("/api/threads/deleted").await;
    let deleted_run = deleted["nodes"][0]["runId"].as_str().expect("an id").to_owned();
    assert_eq!(test.call("DELETE", "/api/threads/deleted", None).await.0, 204);
    let turn = test.say("secret", "My canary").await;
    let thread = test.get("/api/threads/secret").await;
    let node = thread["nodes"][0]["id"].as_str().expect("an id").to_owned();
    let deleted_node = deleted["nodes"][0]["id"].as_str().expect("an id");
    let never = calls("never", "never", "never");
    let (owner, colleague, stranger) =
        (session_token("u1", "c1"), session_token("u2", "c1"), session_token("u3", "c2"));
    let mut cells = 0;
    for (bearer, ids) in [
        (&colleague, calls("secret", &node, &turn.run_id())),
        (&stranger, calls("secret", &node, &turn.run_id())),
        (&owner, calls("deleted", deleted_node, &deleted_run)),
        (&owner, calls(&"x".repeat(129), "%00", "%2e%2e")),
        (&owner, calls("a%00b", "a%0Ab", "a%00b")),
    ] {
        for (call, expected) in ids.into_iter().zip(&never) {
            let path = call.1.clone();
            let answer = test.seen(bearer, call).await;
            assert_eq!(answer.0, 404, "{path}: {}", answer.1);
            assert_eq!(answer, test.seen(bearer, expected.clone()).await, "{path}");
            cells += 1;
        }
    }
    assert_eq!(cells, 120);
    // Other credentials have no threads at all.
    for (_, path, _) in calls("secret", &node, &turn.run_id()).into_iter().filter(|call| call.0 == "GET") {
        let request = test.app.request("GET", &path).bearer_auth(INTERNAL_SECRET);
        let request = request.header("x-proactive-trigger", "x");
        expect_problem(request.send().await.expect("an answer"), 403, "FORBIDDEN").await;
        let response = test.app.request("GET", &path).send().await.expect("an answer");
        expect_problem(response, 401, "UNAUTHENTICATED").await;
    }
    // The owner still has everything.
    assert_eq!(test.get("/api/threads/secret").await, thread);
}

#[tokio::test]
async fn each_user_has_a_separate_thread_of_an_id() {
    let test = ConversationApp::start().await;
    test.say("t", "My canary").await;
    for (user, company) in [("u2", "c1"), ("u3", "c2")] {
        let session = session_token(user, company);
        let body = json!({"agentId": "a1", "threadId": "t", "message": "Hello"});
        let response = test.app.chat_as(&session, "", &body).await;
        assert_eq!(response.status(), 200);
        assert!(!response.text().await.expect("a body").contains("canary"));
        let request_text = test.vendor.received_bodies("m").pop().expect("a request").to_string();
        assert!(!request_text.contains("canary"), "{request_text}");
        for path in ["/api/threads", "/api/runs"] {
            let (_, list) = super::call_as(&test.app, &session, "GET", path, None).await;
            assert!(!list.to_string().contains("canary"), "{list}");
            let name = path.rsplit('/').next().expect("a name");
            assert_eq!(list[name].as_array().expect("a list").len(), 1);
        }
    }
    assert_eq!(test.path("t").await.len(), 2);
}

#[tokio::test]
async fn any_id_without_control_characters_is_an_id() {
    let test = ConversationApp::start().await;
    let (longest, too_long) = ("x".repeat(128), "x".repeat(129));
    let ids =
        ["..", ".", "a/b", "../t", "%2f", "%", "a b", "😀", "job:j1", "widget:1:2", "?", "#x", &longest];
    for (id, segment) in ids.iter().map(|id| (id, segment(id))) {
        let turn = test.say(id, "Hello").await;
        assert_eq!(turn.thread_id(), *id);
        // Not by the client, which resolves dots in a path.
        let path = format!("/api/threads/{segment}?messages=none");
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {}\r\nconnection: close\r\n\r\n",
            session_token("u1", "c1")
        );
        let response = exchange(test.app.address, request).await;
        let (head, read) = response.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 200"), "{id}: {response}");
        let thread: Value = serde_json::from_str(read).expect("an object");
        assert_eq!((&thread["id"], &thread["messageCount"]), (&json!(id), &json!(2)), "{id}");
    }
    let list = test.get("/api/threads?limit=100").await;
    assert_eq!(list["threads"].as_array().expect("threads").len(), ids.len(), "each is another thread");
    for id in [&too_long, "a\u{0}b", "a\nb", "\u{7f}", "a\u{85}b"] {
        let body = json!({"agentId": "a1", "threadId": id, "message": "Hello"});
        expect_problem(test.app.chat(&body).await, 400, "INVALID_REQUEST").await;
    }
    assert_eq!(test.get("/api/threads?limit=100").await, list);
}

/// Returns an id as a segment of a path.
fn segment(id: &str) -> String {
    id.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[tokio::test]
async fn answers_are_not_cached() {
    let test = ConversationApp::start().await;
    let turn = test.say("t", "Hello").await;
    for path in ["/api/threads", "/api/threads/t", "/api/runs", &format!("/api/runs/{}", turn.run_id())] {
        let request = test.app.request("GET", path).bearer_auth(session_token("u1", "c1"));
        let response = request.send().await.expect("an answer");
        assert_eq!(response.headers()["cache-control"], "private, no-store", "{path}");
    }
}
