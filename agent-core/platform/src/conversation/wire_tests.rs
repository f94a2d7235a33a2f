//! The JSON form of threads and nodes.

use agent_core::message::{Content, ContentPart, MediaSource, Message};
use jiff::Timestamp;
use serde_json::json;

use super::*;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(1_767_225_600_000 + ms).expect("a time")
}

#[test]
fn a_thread_has_the_members_of_the_wire_and_leaves_out_what_is_absent() {
    let thread = Thread {
        id: "t".into(),
        agent_id: "a".into(),
        title: "Hello".to_owned(),
        title_from: TitleSource::Message,
        status: ThreadStatus::AwaitingTools,
        open_run_id: None,
        active_run_id: None,
        queued_run_ids: Vec::new(),
        head: None,
        archived: false,
        origin: ThreadOrigin::Chat,
        owner: None,
        message_count: 12,
        metadata: serde_json::Map::new(),
        created_at: at(0),
        last_activity_at: at(1),
        expires_at: None,
        version: 7,
    };
    let json = json!({
        "id": "t", "agentId": "a", "title": "Hello", "titleFrom": "message", "status": "awaitingTools",
        "archived": false, "origin": "chat", "messageCount": 12, "metadata": {},
        "createdAt": "2026-01-01T00:00:00.000Z", "lastActivityAt": "2026-01-01T00:00:00.001Z", "version": 7,
    });
    assert_eq!(serde_json::to_value(&thread).expect("plain data"), json);
    assert_eq!(serde_json::from_value::<Thread>(json).expect("it reads back"), thread);
    for status in ["idle", "running", "waiting", "awaitingTools"] {
        let found =
            ThreadStatus::from_name(status).map(|status| serde_json::to_value(status).expect("plain data"));
        assert_eq!(found, Some(json!(status)));
    }
    for origin in ["chat", "job", "proactive", "client"] {
        let found =
            ThreadOrigin::from_name(origin).map(|origin| serde_json::to_value(origin).expect("plain data"));
        assert_eq!(found, Some(json!(origin)));
    }
}

#[test]
fn a_node_has_the_members_of_the_wire() {
    let node = |message: NodeMessage| Node {
        id: "n".into(),
        parent_id: None,
        turn_id: "r".into(),
        run_id: None,
        status: NodeStatus::Complete,
        origin: NodeOrigin::User,
        created_at: at(0),
        siblings: Siblings { index: 0, count: 2 },
        feedback: None,
        message: message.with_id(&"n".into()),
    };
    let expected = |message| {
        json!({
            "id": "n", "turnId": "r", "status": "complete", "origin": "user",
            "createdAt": "2026-01-01T00:00:00.000Z", "siblings": {"index": 0, "count": 2}, "message": message,
        })
    };
    let cases = [
        (Message::user("Hi").into(), json!({"id": "n", "role": "user", "content": "Hi"})),
        (NodeMessage::reasoning("so"), json!({"id": "n", "role": "reasoning", "content": "so"})),
        (
            Message::tool_result("c", "4").into(),
            json!({"id": "n", "role": "tool", "content": "4", "toolCallId": "c"}),
        ),
        (NodeMessage::from(Message::user("Hi")).erased(), json!({"id": "n", "role": "user"})),
    ];
    for (message, json) in cases {
        let node = node(message);
        assert_eq!(serde_json::to_value(&node).expect("plain data"), expected(json.clone()));
        assert_eq!(serde_json::from_value::<Node>(expected(json)).expect("it reads back"), node);
    }
}

#[test]
fn hashes_depend_on_the_content_of_a_message() {
    let hash = |content: Content| ContentHash::of(&Message { content, ..Message::user("") });
    let text = |text: &str| ContentPart::Text { text: text.to_owned() };
    let image = |value: &str| ContentPart::Image {
        source: MediaSource::Url { value: value.to_owned(), mime_type: None },
    };
    let plain = hash(Content::Text("a".to_owned()));
    assert_eq!(plain, hash(Content::Parts(vec![text("a")])), "one part is the same as plain text");
    assert_ne!(plain, hash(Content::Parts(vec![text("a"), image("x")])), "media count");
    assert_ne!(
        hash(Content::Parts(vec![text("a"), image("y")])),
        hash(Content::Parts(vec![text("a"), image("x")]))
    );
    assert_ne!(plain, ContentHash::of(&Message::assistant("a")), "roles differ");
    let named = Message { id: Some("1".to_owned()), ..Message::user("a") };
    assert_eq!(plain, ContentHash::of(&named), "ids do not count");
    assert_eq!(ContentHash::from_hex(&plain.to_hex()), plain);
    assert_eq!(ContentHash::from_hex("no hash"), ContentHash::default());
}
