//! Normalization of a client's message history into the request to the model.

use serde_json::{Value, json};

use crate::support::server::{self, Server};
use crate::support::vendor::Vendor;
use crate::support::{parse_run, workspace};

const PIXEL: &str = "iVBORw0KGgo=";

/// The application and its fake model vendor.
struct ChatTestApp {
    vendor: Vendor,
    app: Server,
}

impl ChatTestApp {
    async fn start() -> Self {
        let vendor = Vendor::start().await;
        let app = server::app(&workspace(&vendor.base_url(), "m"), &[]).await;
        Self { vendor, app }
    }

    /// Sends a body and returns the run's first event and the request that the vendor received.
    async fn send(&self, body: &Value) -> (Value, Value) {
        let response = self.app.chat(body).await;
        let status = response.status();
        let text = response.text().await.expect("a whole body");
        assert_eq!(status, 200, "{text}");
        let request_body = self.vendor.received_bodies("m").pop().expect("the vendor was asked");
        (parse_run(&text).swap_remove(0), request_body)
    }
}

/// Returns the messages of a vendor request without the system prompt and the turn's context.
fn conversation(request: &Value) -> Vec<Value> {
    let mut messages = request["messages"].as_array().expect("messages").clone();
    let system = messages.remove(0);
    assert_eq!(system["role"], "system");
    assert!(system["content"].as_str().expect("text").starts_with("Be brief."));
    let latest = messages.iter_mut().rev().find(|message| message["role"] == "user").expect("a user's");
    match &mut latest["content"] {
        Value::String(text) => {
            let (context, user_text) = text.split_once("</context>").expect("the turn's context");
            assert!(context.starts_with("<context>"));
            *text = user_text.trim_start().to_owned();
        }
        Value::Array(parts) => {
            let context = parts.remove(0);
            assert!(context["text"].as_str().expect("text").starts_with("<context>"));
        }
        other => panic!("no content: {other}"),
    }
    messages
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

fn calls(ids: &[&str]) -> Value {
    let calls = ids.iter().map(
        |id| json!({"id": id, "type": "function", "function": {"name": "readTodos", "arguments": "{}"}}),
    );
    json!({"role": "assistant", "tool_calls": calls.collect::<Vec<_>>()})
}

fn result(id: &str, text: &str) -> Value {
    json!({"role": "tool", "content": text, "tool_call_id": id})
}

fn platform_call(id: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": "readTodos", "arguments": "{}"}})
}

#[tokio::test]
async fn every_spelling_gives_the_same_prompt() {
    const INTERRUPTED_RESULT: &str = "no result: the tool call was interrupted";
    let messages = [
        user("What is left?"),
        calls(&["c1"]),
        result("c1", "nothing"),
        assistant("Nothing."),
        user("Sure?"),
    ];
    let cases: Vec<(&str, Value, Vec<Value>)> = vec![
        ("a text", json!({"message": "Hello"}), vec![user("Hello")]),
        (
            "a user message",
            json!({"message": {"id": "1", "role": "user", "content": "Hello"}}),
            vec![user("Hello")],
        ),
        (
            "text parts",
            json!({"message": {"content": [{"type": "text", "text": "Hello"}, {"type": "text", "text": "there"}]}}),
            vec![user("Hello\nthere")],
        ),
        (
            "a UI message",
            json!({"message": {"role": "user", "parts": [{"type": "text", "text": "Hello"}]}}),
            vec![user("Hello")],
        ),
        (
            "our body",
            json!({"message": "Sure?", "messages": [
            {"role": "user", "content": "What is left?"},
            {"role": "assistant", "toolCalls": [platform_call("c1")]},
            {"role": "tool", "toolCallId": "c1", "content": "nothing"},
            {"role": "assistant", "content": "Nothing."}]}),
            messages.to_vec(),
        ),
        (
            "AG-UI's envelope",
            json!({"threadId": "t", "state": {}, "tools": [], "context": [], "forwardedProps": {},
            "messages": [
                {"id": "1", "role": "user", "content": "What is left?"},
                {"id": "2", "role": "reasoning", "content": "Let me think."},
                {"id": "3", "role": "assistant", "toolCalls": [platform_call("c1")]},
                {"id": "4", "role": "tool", "toolCallId": "c1", "content": "nothing"},
                {"id": "5", "role": "activity", "activityType": "PLAN", "content": {}},
                {"id": "6", "role": "assistant", "content": "Nothing."},
                {"id": "7", "role": "user", "content": "Sure?"}]}),
            messages.to_vec(),
        ),
        (
            "the AI SDK's parts",
            json!({"id": "t", "trigger": "submit-message", "messages": [
            {"id": "1", "role": "user", "parts": [{"type": "text", "text": "What is left?"}]},
            {"id": "2", "role": "assistant", "metadata": {}, "parts": [
                {"type": "step-start"},
                {"type": "reasoning", "text": "Let me think."},
                {"type": "tool-readTodos", "toolCallId": "c1", "state": "output-available", "input": {}, "output": "nothing"},
                {"type": "step-start"},
                {"type": "text", "text": "Nothing.", "state": "done"}]},
            {"id": "3", "role": "user", "parts": [{"type": "text", "text": "Sure?"}]}]}),
            messages.to_vec(),
        ),
        (
            "OpenAI's spelling",
            json!({"messages": [
            {"role": "user", "content": [{"type": "text", "text": "What is left?"}]},
            {"role": "assistant", "content": null, "tool_calls": [platform_call("c1")]},
            {"role": "tool", "tool_call_id": "c1", "content": "nothing"},
            {"role": "assistant", "content": "Nothing."},
            {"role": "user", "content": "Sure?"}]}),
            messages.to_vec(),
        ),
        (
            "several spellings in one",
            json!({"messages": [
            {"role": "user", "parts": [{"type": "text", "text": "What is left?"}]},
            {"role": "assistant", "tool_calls": [platform_call("c1")]},
            {"role": "tool", "toolCallId": "c1", "content": "nothing"},
            {"role": "assistant", "content": [{"type": "output_text", "text": "Nothing."}]},
            {"role": "user", "content": [{"type": "input_text", "text": "Sure?"}]}]}),
            messages.to_vec(),
        ),
        (
            "a call whose result is lost",
            json!({"message": "Sure?", "messages": [
            {"role": "user", "content": "What is left?"},
            {"role": "assistant", "toolCalls": [platform_call("c1"), platform_call("c2")]},
            {"role": "tool", "toolCallId": "c2", "content": "nothing"}]}),
            vec![
                user("What is left?"),
                calls(&["c1", "c2"]),
                result("c1", INTERRUPTED_RESULT),
                result("c2", "nothing"),
                user("Sure?"),
            ],
        ),
        (
            "a result whose call is lost",
            json!({"message": "Sure?", "messages": [
            {"role": "user", "content": "What is left?"},
            {"role": "tool", "toolCallId": "c9", "content": "nothing"}]}),
            vec![user("What is left?"), user("Sure?")],
        ),
        (
            "a result in the wrong place",
            json!({"messages": [
            {"role": "user", "content": "What is left?"},
            {"role": "assistant", "toolCalls": [platform_call("c1")]},
            {"role": "user", "content": "Sure?"},
            {"role": "tool", "toolCallId": "c1", "content": "nothing"}]}),
            vec![user("What is left?"), calls(&["c1"]), result("c1", "nothing"), user("Sure?")],
        ),
        (
            "a result that came twice",
            json!({"message": "Sure?", "messages": [
            {"role": "user", "content": "What is left?"},
            {"role": "assistant", "toolCalls": [platform_call("c1")]},
            {"role": "tool", "toolCallId": "c1", "content": "nothing"},
            {"role": "tool", "toolCallId": "c1", "content": "something"}]}),
            vec![user("What is left?"), calls(&["c1"]), result("c1", "nothing"), user("Sure?")],
        ),
        (
            "a result to go on from",
            json!({"messages": [
            {"role": "user", "content": "What is left?"},
            {"role": "assistant", "toolCalls": [platform_call("c1")]},
            {"role": "tool", "toolCallId": "c1", "content": "nothing"}]}),
            vec![user("What is left?"), calls(&["c1"]), result("c1", "nothing")],
        ),
        (
            "orders from a session",
            json!({"message": "Hello", "messages": [
            {"role": "system", "content": "Be loud."},
            {"role": "developer", "content": "Be kind."}]}),
            vec![
                json!({"role": "system", "content": "Be loud."}),
                json!({"role": "developer", "content": "Be kind."}),
                user("Hello"),
            ],
        ),
        (
            "a version newer than this one",
            json!({"message": "Hello", "later": {"a": 1}, "messages": [
            {"role": "critic", "content": 7},
            {"role": "user", "content": [{"type": "smell", "of": "basil"}, {"type": "text", "text": "Look"}], "later": 1}]}),
            vec![user("Look"), user("Hello")],
        ),
        (
            "nulls",
            json!({"message": "Hello", "messages": null, "threadId": null, "timezone": null, "pageContext": null}),
            vec![user("Hello")],
        ),
    ];
    let app_test = ChatTestApp::start().await;
    for (case, mut body, expected) in cases {
        body["agentId"] = "a1".into();
        let (_, sent) = app_test.send(&body).await;
        assert_eq!(conversation(&sent), expected, "{case}");
    }
}

#[tokio::test]
async fn pictures_and_files_go_to_the_model() {
    let inline = format!("data:image/png;base64,{PIXEL}");
    let image = |url: &str| json!({"type": "image_url", "image_url": {"url": url}});
    let cases = [
        (
            json!({"type": "image", "source": {"type": "data", "value": PIXEL, "mimeType": "image/png"}}),
            image(&inline),
        ),
        (
            json!({"type": "image", "source": {"type": "url", "value": "https://e.example/a.png"}}),
            image("https://e.example/a.png"),
        ),
        (json!({"type": "binary", "mimeType": "image/png", "data": PIXEL}), image(&inline)),
        (json!({"type": "image_url", "image_url": {"url": inline}}), image(&inline)),
        (
            json!({"type": "image_url", "image_url": "https://e.example/a.png"}),
            image("https://e.example/a.png"),
        ),
        (json!({"type": "input_image", "image_url": inline}), image(&inline)),
        (json!({"type": "file", "mediaType": "image/png", "url": inline}), image(&inline)),
        (
            json!({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}),
            json!({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}),
        ),
        (
            json!({"type": "file", "mediaType": "application/pdf", "url": "data:application/pdf;base64,JVBERg=="}),
            json!({"type": "file", "file":
                {"filename": "document.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}}),
        ),
    ];
    let app_test = ChatTestApp::start().await;
    for (part, expected) in cases {
        for parts in ["content", "parts"] {
            let message = json!({"role": "user", parts: [{"type": "text", "text": "Look"}, part]});
            let (_, sent) = app_test.send(&json!({"agentId": "a1", "message": message})).await;
            let content = &conversation(&sent)[0]["content"];
            assert_eq!(content[0], json!({"type": "text", "text": "Look"}), "{part}");
            assert_eq!(content[1], expected, "{part}");
        }
    }
}

#[tokio::test]
async fn page_and_block_contexts_are_only_in_the_latest_turn() {
    let app_test = ChatTestApp::start().await;
    let body = json!({"agentId": "a1", "tabId": "tab-canary",
        "pageContext": {"title": "page-canary"}, "blocksContext": [{"text": "block-canary"}],
        "context": [{"description": "of AG-UI", "value": "context-canary"}],
        "messages": [{"role": "user", "content": "One"}, {"role": "assistant", "content": "Two"}],
        "message": "Three"});
    let (_, sent) = app_test.send(&body).await;
    let messages = sent["messages"].as_array().expect("messages");
    let (latest, earlier) = messages.split_last().expect("messages");
    let earlier = json!(earlier).to_string();
    for canary in ["tab-canary", "page-canary", "block-canary", "context-canary"] {
        assert!(latest["content"].as_str().expect("text").contains(canary), "{latest}");
        assert!(!earlier.contains(canary), "{earlier}");
    }
}

#[tokio::test]
async fn identifiers_come_from_wherever_a_client_puts_them() {
    let app_test = ChatTestApp::start().await;
    let ui = json!([{"role": "user", "parts": [{"type": "text", "text": "Hello"}]}]);
    let cases = [
        (json!({"message": "Hello", "threadId": "t-1", "runId": "r-1"}), Some("t-1"), Some("r-1")),
        (json!({"message": "Hello", "sessionId": "t-2"}), Some("t-2"), None),
        (json!({"id": "t-3", "trigger": "submit-message", "messages": ui}), Some("t-3"), None),
        (
            json!({"message": "Hello", "forwardedProps": {"threadId": "t-4", "runId": "r-4"}}),
            Some("t-4"),
            Some("r-4"),
        ),
        (json!({"message": "Hello", "id": "no thread's"}), None, None),
        (json!({"message": "Hello", "threadId": "", "runId": ""}), None, None),
    ];
    for (mut body, thread, named) in cases {
        body["agentId"] = "a1".into();
        let (started, _) = app_test.send(&body).await;
        for (field, expected) in [("threadId", thread), ("runId", named)] {
            let identifier = started[field].as_str().expect("an identifier");
            match expected {
                Some(expected) => assert_eq!(identifier, expected),
                // Ids made by the platform are UUIDs of version 7.
                None => assert!(identifier.len() == 36 && identifier.as_bytes()[14] == b'7', "{identifier}"),
            }
        }
    }
}

#[tokio::test]
async fn the_agent_may_be_named_in_the_query_or_in_forwarded_props() {
    let app_test = ChatTestApp::start().await;
    let session = server::session_token("u1", "c1");
    for (query, body) in [
        ("?agentId=a1", json!({"message": "Hello"})),
        ("?agentId=a1", json!({"message": "Hello", "agentId": "a1"})),
        ("", json!({"message": "Hello", "forwardedProps": {"agentId": "a1"}})),
        ("?agentId=a1&timezone=Europe/Berlin&threadId=t&tabId=1", json!({"message": "Hello"})),
    ] {
        let response = app_test.app.chat_as(&session, query, &body).await;
        assert_eq!(response.status(), 200, "{query} {body}");
        parse_run(&response.text().await.expect("a whole body"));
    }
}

#[tokio::test]
async fn a_choice_of_tool_reaches_the_model() {
    let app_test = ChatTestApp::start().await;
    let named = json!({"type": "function", "function": {"name": "createTodo"}});
    let all = ["createTodo", "readTodos"];
    for (tool_choice, expected, offered) in [
        (json!({}), json!("auto"), &all[..]),
        (json!({"toolChoice": "required"}), json!("required"), &all),
        (json!({"tool_choice": "none"}), json!(null), &[]),
        (
            json!({"toolChoice": {"type": "tool", "toolName": "createTodo"}}),
            json!("required"),
            &["createTodo"],
        ),
        (json!({"tool_choice": named}), json!("required"), &["createTodo"]),
    ] {
        let mut body = json!({"agentId": "a1", "message": "Hello"});
        body.as_object_mut().expect("an object").extend(tool_choice.as_object().expect("an object").clone());
        let (_, sent) = app_test.send(&body).await;
        assert_eq!(sent["tool_choice"], expected);
        let names: Vec<_> =
            sent["tools"].as_array().into_iter().flatten().map(|t| &t["function"]["name"]).collect();
        assert_eq!(names, offered);
    }
}
