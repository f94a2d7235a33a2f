//! Threads with content that the agent's model does not support.

use serde_json::{Value, json};

use super::ConversationApp;
use crate::support::expect_problem;
use crate::support::vendor::answer;

/// A model that reads text alone by the catalogue.
const TEXT_MODEL: &str = "o3-mini";

fn with_part(thread: &str, text: &str, part: &Value) -> Value {
    let content = json!([{"type": "text", "text": text}, part]);
    json!({"agentId": "a1", "threadId": thread, "message": {"role": "user", "content": content}})
}

fn part(kind: &str, media_type: &str) -> Value {
    json!({"type": kind, "source": {"type": "data", "value": "QUJDREVG", "mimeType": media_type}})
}

impl ConversationApp {
    /// Says something in a thread, checks that the preview shows the same, and returns the messages that `model` was sent.
    async fn sent_messages(&self, model: &str, thread: &str, message: &str) -> Value {
        let body = json!({"agentId": "a1", "threadId": thread, "message": message});
        let (status, shown) = self.call("POST", "/api/svcchat/previewPrompt", Some(body)).await;
        assert_eq!(status, 200, "{shown}");
        let run = self.say(thread, message).await;
        let prompt = run.custom("agent.prompt").expect("a summary");
        assert_eq!(prompt["requestSha256"], shown["requestSha256"], "the preview has the notes");
        let body = self.vendor.received_bodies(model).pop().expect("a request");
        body["messages"].clone()
    }
}

#[tokio::test]
async fn a_thread_continues_after_unsupported_content() {
    let test = ConversationApp::start().await;
    test.vendor.on("m", [answer(&["A plant."]), answer(&["Basil."])]);
    let refused = with_part("t", "What is this?", &part("video", "video/mp4"));
    expect_problem(test.app.chat(&refused).await, 422, "UNSUPPORTED_CONTENT").await;
    assert!(test.vendor.received().is_empty());

    let first = test.sent_messages("m", "t", "It shows a plant.").await;
    let text = first.to_string();
    assert!(text.contains("[video of type video/mp4, not sent]") && !text.contains("QUJDREVG"), "{text}");
    let second = test.sent_messages("m", "t", "Which one?").await;
    assert_eq!(second[1], first[1], "the message with the note is sent as before");

    // The stored message has its content, and another such message is refused.
    let thread = test.get("/api/threads/t").await;
    assert_eq!(thread["nodes"][0]["message"]["content"][1]["type"], "video", "{thread}");
    let another = with_part("t", "And this?", &part("video", "video/mp4"));
    expect_problem(test.app.chat(&another).await, 422, "UNSUPPORTED_CONTENT").await;
}

#[tokio::test]
async fn a_thread_with_images_continues_with_a_text_only_model() {
    let test = ConversationApp::start().await;
    test.vendor.on("m", [answer(&["A plant."])]);
    test.vendor.on(TEXT_MODEL, [answer(&["Basil."])]);
    test.chat(with_part("t", "What is this?", &part("image", "image/png"))).await;
    assert!(test.vendor.received_bodies("m")[0].to_string().contains("QUJDREVG"), "the image is sent");

    let mut role = test.get("/api/agents/a1").await;
    role["children"][0]["content"]["model"] = json!(TEXT_MODEL);
    let (status, saved) = test.call("PUT", "/api/agents/a1", Some(role)).await;
    assert_eq!(status, 200, "{saved}");
    let text = test.sent_messages(TEXT_MODEL, "t", "Which one?").await.to_string();
    assert!(text.contains("[image of type image/png, not sent]") && !text.contains("QUJDREVG"), "{text}");
    let latest = with_part("u", "And this?", &part("image", "image/png"));
    expect_problem(test.app.chat(&latest).await, 422, "UNSUPPORTED_CONTENT").await;
}
