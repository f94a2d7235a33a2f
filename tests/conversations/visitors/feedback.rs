//! Ratings of messages, by users and visitors, and their list for the agent's owner.

use super::*;
use crate::conversations::call_as;

fn feedback_path(thread: &str, node: &Value) -> String {
    format!("/api/threads/{thread}/messages/{}/feedback", node["id"].as_str().expect("an id"))
}

#[tokio::test]
async fn a_message_is_rated_and_the_owner_of_the_agent_is_notified() {
    let test = ConversationApp::start().await;
    test.vendor.on("m", [answer(&["One."]), answer(&["Two."])]);
    test.say("t", "A secret canary").await;
    let nodes = test.get("/api/threads/t").await["nodes"].clone();
    let path = feedback_path("t", &nodes[1]);
    let rating = json!({"rating": "down", "tags": ["wrong"], "comment": "No", "share": true});
    let (status, rated) = test.call("PUT", &path, Some(rating)).await;
    assert_eq!((status, &rated["rating"], &rated["tags"]), (200, &json!("down"), &json!(["wrong"])));
    let thread = test.get("/api/threads/t").await;
    assert_eq!(thread["nodes"][1]["feedback"], rated);
    assert!(thread["nodes"][0].get("feedback").is_none(), "{thread}");
    let shown = test.get("/api/threads/t?format=ui-message").await;
    assert_eq!(shown["nodes"][1]["feedback"], rated);
    // A visitor's words are not shared by default.
    let visitor = test.visitor("a1").await;
    test.chat_of(&visitor, json!({"threadId": "v", "message": "Another canary"})).await;
    let (_, visitor_thread) = test.send_for_json(&visitor, "GET", "/api/threads/v").await;
    let own_path = feedback_path("v", &visitor_thread["nodes"][1]);
    let sent = test.send(&visitor, "PUT", &own_path, Some(json!({"rating": "up"}))).await;
    assert_eq!(sent.status(), 200);
    assert_eq!(sent.headers()["access-control-allow-origin"], PAGE);
    let first = test.get("/api/agents/a1/feedback?limit=1").await;
    let cursor = first["nextCursor"].as_str().expect("another page");
    let second = test.get(&format!("/api/agents/a1/feedback?limit=1&cursor={cursor}")).await;
    let all = [&first["feedback"][0], &second["feedback"][0]];
    assert_eq!((&all[0]["rating"], &all[1]["rating"]), (&json!("up"), &json!("down")), "newest first");
    assert!(all[0].get("message").is_none(), "{first}");
    assert_eq!(all[1]["message"], json!({"role": "assistant", "content": "One."}));
    assert!(second.get("nextCursor").is_none(), "{second}");
    assert!(
        !format!("{first}{second}").contains("canary"),
        "the list has no thread, no person and no text that is not shared"
    );
    for (user, company) in [("u2", "c1"), ("u3", "c2")] {
        let session = session_token(user, company);
        let (_, list) = call_as(&test.app, &session, "GET", "/api/agents/a1/feedback", None).await;
        assert!(list["feedback"].as_array().is_none_or(Vec::is_empty), "{user}: {list}");
    }
    let colleague = session_token("u2", "c1");
    assert_eq!(call_as(&test.app, &colleague, "GET", "/api/agents/a1/feedback", None).await.0, 404);
    assert_eq!(test.call("DELETE", &path, None).await.0, 204);
    assert_eq!(test.call("DELETE", &path, None).await.0, 204);
    assert_eq!(test.get("/api/threads/t").await["nodes"], nodes);
    assert_eq!(test.send(&visitor, "DELETE", "/api/threads/v", None).await.status(), 204);
    assert_eq!(test.get("/api/agents/a1/feedback").await, json!({"feedback": []}));
}

#[tokio::test]
async fn invalid_ratings_are_refused() {
    let test = ConversationApp::start().await;
    test.say("t", "Hello").await;
    let nodes = test.get("/api/threads/t").await["nodes"].clone();
    let path = feedback_path("t", &nodes[1]);
    for wrong in [
        json!({}),
        json!({"rating": "good"}),
        json!({"rating": "up", "comment": "x".repeat(2049)}),
        json!({"rating": "up", "tags": vec!["x"; 17]}),
        json!({"rating": "up", "tags": ["x".repeat(65)]}),
        json!({"rating": "up", "tags": [""]}),
        json!({"rating": "up", "share": "yes"}),
    ] {
        let (status, problem) = test.call("PUT", &path, Some(wrong.clone())).await;
        assert_eq!((status, &problem["code"]), (400, &json!("INVALID_REQUEST")), "{wrong}");
    }
    let most = json!({"rating": "up", "comment": "x".repeat(2048), "tags": vec!["x".repeat(64); 16]});
    assert_eq!(test.call("PUT", &path, Some(most)).await.0, 200);
    let missing = "/api/threads/t/messages/missing/feedback";
    for body in [json!({"rating": "up"}), json!(5)] {
        assert_eq!(test.call("PUT", missing, Some(body)).await.0, 404);
    }
    assert_eq!(test.call("DELETE", missing, None).await.0, 404);
    let message = format!("/api/threads/t/messages/{}", nodes[1]["id"].as_str().expect("an id"));
    assert_eq!(test.call("DELETE", &message, None).await.0, 204);
    assert!(test.get("/api/threads/t").await["nodes"][1].get("feedback").is_none());
    assert_eq!(test.call("PUT", &path, Some(json!({"rating": "up"}))).await.0, 404);
}
