use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::repair::{MISSING_TOOL_RESULT, repair};
use super::*;
use agent_core::message::{Content, ContentPart, MediaSource, ToolCall};

const NO_QUERY: [(&str, &str); 0] = [];

fn chat(body: &Value) -> Result<ChatInput, FieldError> {
    let body = body.to_string();
    read(&JsonBody::parse(body.as_bytes(), 64)?, NO_QUERY)
}

/// Formats one line per message: the role, the content and the tool calls.
fn shape(messages: &[Arc<Message>]) -> String {
    messages.iter().map(|message| format!("{}\n", line(message))).collect()
}

fn line(message: &Message) -> String {
    let mut line = format!("{:?}", message.role).to_lowercase();
    if let Some(id) = &message.tool_call_id {
        line += &format!("({id})");
    }
    match &message.content {
        Content::Text(text) => line += &format!(" {text:?}"),
        Content::Parts(parts) => line.extend(parts.iter().map(part)),
    }
    for call in &message.tool_calls {
        line += &format!(" {}={}{}", call.id, call.function.name, call.function.arguments);
    }
    line
}

fn part(part: &ContentPart) -> String {
    let (kind, source) = match part {
        ContentPart::Text { text } => return format!(" {text:?}"),
        ContentPart::Image { source } => ("image", source),
        ContentPart::Audio { source } => ("audio", source),
        ContentPart::Video { source } => ("video", source),
        ContentPart::Document { source } => ("document", source),
    };
    match source {
        MediaSource::Data { value, mime_type } => format!(" {kind}<{mime_type}:{value}>"),
        MediaSource::Url { value, mime_type } => {
            format!(" {kind}<{value} {}>", mime_type.as_deref().unwrap_or("?"))
        }
    }
}

fn check(messages: Value, expected: Expect) {
    let chat = chat(&json!({ "messages": messages })).expect("a readable conversation");
    expected.assert_eq(&shape(&chat.turn.messages));
}

/// Checks that every body is rejected with the expected path, and that the error does not repeat the value.
fn check_faults(bodies: &[(Value, &str)]) {
    for (body, expected) in bodies {
        let error = chat(body).expect_err(&body.to_string());
        assert_eq!(error.to_string(), *expected, "for {body}");
        assert!(!error.to_string().contains("sk-"), "{error}");
    }
}

#[test]
fn our_own_body() {
    let chat = chat(&json!({
        "agentId": "a", "message": "now", "threadId": "t", "runId": "r", "tabId": "tab",
        "messages": [{"role": "user", "content": "before"}, {"role": "assistant", "content": "yes", "id": null}],
        "todoListId": "l", "timezone": "Europe/Berlin",
        "pageContext": {"title": "Page"}, "blocksContext": [{"id": 1}], "userId": "u", "companyId": "c",
        "toolChoice": "required", "unknown": {"x": []},
    }))
    .unwrap();
    let turn = &chat.turn;
    assert_eq!((&*turn.agent_id, &*turn.thread_id, &*turn.run_id), ("a", "t", "r"));
    assert_eq!((turn.tab_id.as_deref(), turn.todo_list_id.as_deref()), (Some("tab"), Some("l")));
    assert_eq!(turn.timezone.as_deref(), Some("Europe/Berlin"));
    assert_eq!(turn.page_context, Some(json!({"title": "Page"})));
    assert_eq!(turn.blocks_context, [json!({"id": 1})]);
    assert_eq!(turn.tool_choice, ToolChoice::Required);
    assert_eq!((chat.user_id.as_deref(), chat.company_id.as_deref()), (Some("u"), Some("c")));
    assert_eq!(shape(&turn.messages), "user \"before\"\nassistant \"yes\"\nuser \"now\"\n");
}

#[test]
fn absent_fields_stay_absent() {
    let chat = chat(&json!({"message": "x", "agentId": null, "threadId": "", "messages": null,
        "timezone": null, "pageContext": null, "blocksContext": null, "toolChoice": null}))
    .unwrap();
    let turn = &chat.turn;
    assert_eq!((&*turn.agent_id, &*turn.thread_id, &*turn.run_id), ("", "", ""));
    assert!(turn.timezone.is_none() && turn.page_context.is_none() && turn.blocks_context.is_empty());
    assert_eq!(turn.tool_choice, ToolChoice::Auto);
}

#[test]
fn widget_tokens_are_read_from_both_places() {
    let read = |text: &str| {
        let body = JsonBody::parse(text.as_bytes(), 64).expect("JSON");
        let tokens = widget_tokens(&body).map_err(|error| error.to_string())?;
        Ok::<_, String>(tokens.iter().map(|token| token.expose().to_owned()).collect::<Vec<_>>())
    };
    let expected_tokens = |tokens: &[&str]| Ok(tokens.iter().copied().map(str::to_owned).collect());
    let no_string = || Err("widgetToken must be a string".to_owned());
    for (body, expected) in [
        (r#"{}"#, expected_tokens(&[])),
        (r#"{"widgetToken": null}"#, expected_tokens(&[])),
        (r#"{"widgetToken": ""}"#, expected_tokens(&[])),
        (r#"{"widgetToken": "w", "messages": 7}"#, expected_tokens(&["w"])),
        (r#"{"widgetToken": "w", "widgetToken": "v"}"#, expected_tokens(&["w", "v"])),
        (r#"{"forwardedProps": {"widgetToken": "w"}}"#, expected_tokens(&["w"])),
        (r#"{"forwardedProps": [{"widgetToken": "w"}]}"#, expected_tokens(&[])),
        (r#"{"widgetToken": "w", "forwardedProps": {"widgetToken": "w"}}"#, expected_tokens(&["w", "w"])),
        (r#"{"widgetToken": 1}"#, no_string()),
        (r#"{"forwardedProps": {"widgetToken": ["sk-1"]}}"#, no_string()),
        (r#"[]"#, Err("the body must be an object".to_owned())),
    ] {
        assert_eq!(read(body), expected, "{body}");
    }
}

#[test]
fn run_agent_input() {
    let chat = chat(&json!({
        "threadId": "t", "runId": "r", "parentRunId": "p", "state": {"s": 1},
        "messages": [
            {"id": "1", "role": "user", "content": [{"type": "text", "text": "look"},
                {"type": "image", "source": {"type": "url", "value": "https://x/y.png"}}]},
            {"id": "2", "role": "reasoning", "content": "hm"},
            {"id": "3", "role": "assistant", "toolCalls": [
                {"id": "c1", "type": "function", "function": {"name": "readTodos", "arguments": ""}}]},
            {"id": "4", "role": "tool", "toolCallId": "c1", "content": "", "error": "no list"},
            {"id": "5", "role": "activity", "activityType": "plan", "content": {"steps": []}},
        ],
        "tools": [{"name": "clientSide", "description": "", "parameters": {}}],
        "context": [{"description": "page", "value": "Home"}],
        "forwardedProps": {"agentId": "a", "todoListId": "l", "toolChoice": {"name": "readTodos"},
            "blocksContext": [{"id": "b"}], "pageContext": {"p": 1}},
    }))
    .unwrap();
    let turn = &chat.turn;
    assert_eq!((&*turn.agent_id, &*turn.thread_id, &*turn.run_id), ("a", "t", "r"));
    assert_eq!(turn.todo_list_id.as_deref(), Some("l"));
    assert_eq!(turn.tool_choice, ToolChoice::Tool("readTodos".to_owned()));
    assert_eq!(turn.blocks_context, [json!({"id": "b"}), json!({"description": "page", "value": "Home"})]);
    assert_eq!(turn.page_context, Some(json!({"p": 1})));
    expect![[r#"
        user "look" image<https://x/y.png ?>
        assistant "" c1=readTodos{}
        tool(c1) "no list"
    "#]]
    .assert_eq(&shape(&turn.messages));
}

#[test]
fn ai_sdk_messages() {
    let chat = chat(&json!({
        "id": "thread", "trigger": "submit-message", "messageId": "m9", "agentId": "a",
        "messages": [
            {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "What is"}, {"type": "text", "text": "this?"},
                {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AAAA", "filename": "a.png"},
                {"type": "file", "mediaType": "application/pdf", "url": "https://x/y.pdf"}]},
            {"id": "m2", "role": "assistant", "metadata": {}, "parts": [
                {"type": "step-start"},
                {"type": "reasoning", "text": "hm", "state": "done"},
                {"type": "text", "text": "I look."},
                {"type": "tool-getDoc", "toolCallId": "c1", "state": "output-available", "input": {"id": 7}, "output": {"text": "x"}},
                {"type": "dynamic-tool", "toolName": "readTodos", "toolCallId": "c2", "state": "output-error", "rawInput": "{\"a\":1}", "errorText": "no list"},
                {"type": "text", "text": "Trying on."},
                {"type": "step-start"},
                {"type": "tool-getDoc", "toolCallId": "c3", "state": "input-available", "input": {"id": 8}},
                {"type": "tool-getDoc", "toolCallId": "c4", "state": "input-streaming"},
                {"type": "tool-getDoc", "toolCallId": "c5", "state": "output-denied", "input": {}},
                {"type": "source-url", "sourceId": "s", "url": "https://x"},
                {"type": "data-weather", "data": {}},
                {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AAAA"},
                {"type": "step-start"},
            ]},
            {"id": "m3", "role": "user", "parts": [{"type": "text", "text": "And?"}]},
        ],
    }))
    .unwrap();
    assert_eq!(chat.turn.thread_id, "thread");
    assert_eq!(chat.turn.messages[1].id.as_deref(), Some("m2"));
    expect![[r#"
        user "What is" "this?" image<image/png:AAAA> document<https://x/y.pdf application/pdf>
        assistant "I look." c1=getDoc{"id":7} c2=readTodos{"a":1}
        tool(c1) "{\"text\":\"x\"}"
        tool(c2) "no list"
        assistant "Trying on."
        assistant "" c3=getDoc{"id":8} c5=getDoc{}
        tool(c3) "no result: the tool call was interrupted"
        tool(c5) "the user denied the tool call"
        user "And?"
    "#]]
    .assert_eq(&shape(&chat.turn.messages));
}

#[test]
fn older_ai_sdk_messages() {
    check(
        json!([
            {"role": "user", "content": "sum", "parts": [{"type": "text", "text": "sum"}]},
            {"role": "assistant", "content": "4", "parts": [
                {"type": "tool-invocation", "toolInvocation":
                    {"toolCallId": "c", "toolName": "add", "state": "result", "args": {"a": 2}, "result": 4}},
                {"type": "text", "text": "4"}]},
            {"role": "data", "content": "x"},
            {"role": "user", "content": "thanks"},
        ]),
        expect![[r#"
            user "sum"
            assistant "" c=add{"a":2}
            tool(c) "4"
            assistant "4"
            user "thanks"
        "#]],
    );
}

#[test]
fn openai_messages() {
    check(
        json!([
            {"role": "system", "content": "be brief"},
            {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "user", "name": "x", "content": [
                {"type": "input_text", "text": "see"},
                {"type": "image_url", "image_url": {"url": "HTTPS://x/y.png", "detail": "low"}},
                {"type": "input_image", "image_url": "data:image/jpeg;base64,BBBB"},
                {"type": "input_audio", "input_audio": {"data": "CCCC", "format": "mp3"}},
                {"type": "file", "file": {"file_data": "data:application/pdf;base64,DDDD", "filename": "x.pdf"}},
                {"type": "input_file", "file_url": "https://x/y"},
                {"type": "hologram", "beam": 1},
            ]},
            {"role": "assistant", "content": null, "refusal": null, "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1}"}},
                {"id": "c2", "function": {"name": "g", "arguments": {"y": [1, 2.5]}}},
                {"id": "c3", "type": "custom", "custom": {"name": "h", "input": ""}}]},
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "1"}]},
            {"role": "tool", "tool_call_id": "c2", "content": "2"},
            {"role": "function", "name": "f", "content": "old"},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
            {"role": "user", "content": "ok"},
        ]),
        expect![[r#"
            system "be brief"
            developer "a\nb"
            user "see" image<HTTPS://x/y.png ?> image<image/jpeg:BBBB> audio<audio/mpeg:CCCC> document<application/pdf:DDDD> document<https://x/y ?>
            assistant "" c1=f{"x":1} c2=g{"y":[1,2.5]}
            tool(c1) "1"
            tool(c2) "2"
            assistant "no"
            user "ok"
        "#]],
    );
}

#[test]
fn legacy_binary_parts() {
    check(
        json!([{"role": "user", "content": [
            {"type": "binary", "mimeType": "image/png", "data": "AAAA"},
            {"type": "binary", "mimeType": "video/mp4", "url": "https://x/y.mp4"},
            {"type": "audio", "source": {"type": "data", "value": "BBBB", "mimeType": "audio/webm;codecs=opus"}},
            {"type": "video", "source": {"type": "url", "value": "https://x", "mimeType": "video/mp4"}},
            {"type": "document", "source": {"type": "data", "value": "CCCC", "mimeType": "text/plain"}},
        ]}]),
        expect![[r#"
            user image<image/png:AAAA> video<https://x/y.mp4 video/mp4> audio<audio/webm;codecs=opus:BBBB> video<https://x video/mp4> document<text/plain:CCCC>
        "#]],
    );
}

#[test]
fn one_message_in_several_spellings() {
    for message in [
        json!("hi"),
        json!({"role": "user", "content": "hi"}),
        json!({"content": [{"type": "text", "text": "hi"}]}),
        json!({"id": "1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}),
    ] {
        for field in ["message", "chatInput"] {
            let chat = chat(&json!({ field: message })).unwrap();
            assert_eq!(shape(&chat.turn.messages), "user \"hi\"\n");
        }
    }
}

#[test]
fn thread_of_each_body() {
    let text = json!([{"role": "user", "content": "x"}]);
    let parts = json!([{"role": "user", "parts": [{"type": "text", "text": "x"}]}]);
    for (body, thread) in [
        (json!({"messages": text, "threadId": "t", "sessionId": "s"}), "t"),
        (json!({"messages": text, "sessionId": "s", "id": "i"}), "s"),
        (json!({"messages": text, "id": "i"}), ""),
        (json!({"messages": text, "id": "i", "trigger": "submit-message"}), "i"),
        (json!({"messages": parts, "id": "i"}), "i"),
        (json!({"message": parts[0], "id": "i"}), "i"),
        (json!({"messages": parts, "id": "i", "threadId": "t"}), "t"),
    ] {
        assert_eq!(chat(&body).unwrap().turn.thread_id, thread, "for {body}");
    }
}

#[test]
fn tool_choices() {
    for (choice, expected) in [
        (json!("auto"), ToolChoice::Auto),
        (json!("none"), ToolChoice::None),
        (json!("required"), ToolChoice::Required),
        (json!({"type": "function", "function": {"name": "f"}}), ToolChoice::Tool("f".into())),
        (json!({"type": "function", "name": "f"}), ToolChoice::Tool("f".into())),
        (json!({"type": "tool", "toolName": "f"}), ToolChoice::Tool("f".into())),
        (json!({"type": "tool", "name": "f"}), ToolChoice::Tool("f".into())),
        (json!({"name": "f"}), ToolChoice::Tool("f".into())),
        (json!({"type": "required"}), ToolChoice::Required),
    ] {
        for field in ["toolChoice", "tool_choice"] {
            let chat = chat(&json!({"message": "x", field: choice})).unwrap();
            assert_eq!(chat.turn.tool_choice, expected, "for {choice}");
        }
    }
    let choices = "toolChoice must be auto, none, required, or name a tool";
    check_faults(&[
        (json!({"message": "x", "toolChoice": "sk-1"}), choices),
        (json!({"message": "x", "toolChoice": 1}), choices),
        (json!({"message": "x", "toolChoice": {}}), choices),
        (json!({"message": "x", "toolChoice": {"type": "tool"}}), choices),
        (
            json!({"message": "x", "toolChoice": {"type": "function", "function": {"name": 1}}}),
            "toolChoice.function.name must be a string",
        ),
        (
            json!({"message": "x", "forwardedProps": {"toolChoice": {"name": []}}}),
            "forwardedProps.toolChoice.name must be a string",
        ),
    ]);
}

#[test]
fn faults_name_the_field_and_not_the_value() {
    let long = "sk-".repeat(43);
    let user = json!({"role": "user", "content": "x"});
    let call = |call: Value| json!({"messages": [user, {"role": "assistant", "toolCalls": [call]}]});
    let user_part = |part: Value| json!({"messages": [{"role": "user", "content": [part]}]});
    let ui = |part: Value| json!({"messages": [{"role": "assistant", "parts": [part]}]});
    check_faults(&[
        (json!([]), "the body must be an object"),
        (json!("sk-1"), "the body must be an object"),
        (json!({}), "message or messages is required"),
        (json!({"messages": []}), "messages is empty"),
        (json!({"message": ""}), "message is empty"),
        (json!({"message": 7}), "message must be text or a user message"),
        (json!({"message": {"role": "assistant", "content": "x"}}), "message.role must be user"),
        (json!({"message": {"role": "user"}}), "message.content is missing"),
        (json!({"message": {"role": "user", "content": ""}}), "message is empty"),
        (json!({"messages": [{"role": "user", "content": ""}]}), "messages[0] is empty"),
        (json!({"messages": [{"role": "user", "parts": []}]}), "messages[0] is empty"),
        (
            json!({"messages": [
                user, {"role": "assistant", "content": "y"},
                {"role": "user", "content": [{"type": "text", "text": ""}]}, {"role": "system", "content": "z"}
            ]}),
            "messages[2] is empty",
        ),
        (
            json!({"messages": [{"role": "user", "content": ""}, {"role": "assistant", "content": "y"}]}),
            "messages must end with a user message or a tool result",
        ),
        (json!({"messages": "sk-1"}), "messages must be a list"),
        (json!({"messages": ["sk-1"]}), "messages[0] must be an object"),
        (json!({"messages": [{}]}), "messages[0].role is missing"),
        (json!({"messages": [{"role": 1}]}), "messages[0].role must be a string"),
        (json!({"messages": [{"role": "user"}]}), "messages[0].content is missing"),
        (
            json!({"messages": [{"role": "user", "content": 1}]}),
            "messages[0].content must be text or a list of parts",
        ),
        (json!({"messages": [{"role": "user", "content": "x", "id": 1}]}), "messages[0].id must be a string"),
        (
            json!({"messages": [{"role": "user", "content": "x", "id": long}]}),
            "messages[0].id is longer than 128 bytes",
        ),
        (json!({"messages": [{"role": "tool", "content": "x"}]}), "messages[0].toolCallId is missing"),
        (
            json!({"messages": [{"role": "tool", "tool_call_id": 1}]}),
            "messages[0].tool_call_id must be a string",
        ),
        (json!({"messages": [{"role": "tool", "toolCallId": ""}]}), "messages[0].toolCallId is empty"),
        (call(json!("sk-1")), "messages[1].toolCalls[0] must be an object"),
        (call(json!({})), "messages[1].toolCalls[0].id is missing"),
        (call(json!({"id": long})), "messages[1].toolCalls[0].id is longer than 128 bytes"),
        (call(json!({"id": "a\nb"})), "messages[1].toolCalls[0].id contains control characters"),
        (call(json!({"id": "c"})), "messages[1].toolCalls[0].function is missing"),
        (call(json!({"id": "c", "function": {}})), "messages[1].toolCalls[0].function.name is missing"),
        (
            call(json!({"id": "c", "function": {"name": "f", "arguments": 1}})),
            "messages[1].toolCalls[0].function.arguments must be JSON text",
        ),
        (user_part(json!("sk-1")), "messages[0].content[0] must be an object"),
        (user_part(json!({"text": "x"})), "messages[0].content[0].type is missing"),
        (user_part(json!({"type": "text"})), "messages[0].content[0].text is missing"),
        (user_part(json!({"type": "image"})), "messages[0].content[0].source is missing"),
        (
            user_part(json!({"type": "image", "source": {"type": "sk-1", "value": "x"}})),
            "messages[0].content[0].source.type must be data, url or file",
        ),
        (
            user_part(json!({"type": "image", "source": {"type": "data", "value": "AAAA"}})),
            "messages[0].content[0].source.mimeType is missing",
        ),
        (
            user_part(
                json!({"type": "image", "source": {"type": "data", "value": "sk 1", "mimeType": "image/png"}}),
            ),
            "messages[0].content[0].source.value must be Base64",
        ),
        (
            user_part(
                json!({"type": "image", "source": {"type": "url", "value": "https://x", "mimeType": "a/b,c"}}),
            ),
            "messages[0].content[0].source.mimeType must be a media type",
        ),
        (
            user_part(json!({"type": "image_url", "image_url": {"url": "file:///sk-1"}})),
            "messages[0].content[0].image_url.url must be an http, https or data URL",
        ),
        (
            user_part(json!({"type": "image_url", "image_url": "data:sk-1"})),
            "messages[0].content[0].image_url must be a Base64 data URL with a media type",
        ),
        (
            user_part(json!({"type": "input_audio", "input_audio": {"data": "A", "format": "sk-1"}})),
            "messages[0].content[0].input_audio.format must be mp3 or wav",
        ),
        (
            user_part(json!({"type": "file", "file": {"file_id": "sk-1"}})),
            "messages[0].content[0].file.file_data is missing",
        ),
        (
            user_part(json!({"type": "file", "mediaType": "image/png"})),
            "messages[0].content[0].url or data is required",
        ),
        (ui(json!({})), "messages[0].parts[0].type is missing"),
        (ui(json!({"type": "text"})), "messages[0].parts[0].text is missing"),
        (ui(json!({"type": "tool-f"})), "messages[0].parts[0].toolCallId is missing"),
        (
            ui(json!({"type": "tool-", "toolCallId": "c"})),
            "messages[0].parts[0].type must end with the tool's name",
        ),
        (ui(json!({"type": "dynamic-tool"})), "messages[0].parts[0].toolName is missing"),
        (
            ui(json!({"type": "tool-invocation", "toolInvocation": {"toolName": "f"}})),
            "messages[0].parts[0].toolInvocation.toolCallId is missing",
        ),
        (json!({"messages": [{"role": "user", "parts": "sk-1"}]}), "messages[0].parts must be a list"),
        (json!({"message": "x", "threadId": 1}), "threadId must be a string"),
        (json!({"message": "x", "agentId": long}), "agentId is longer than 128 bytes"),
        (json!({"message": "x", "timezone": "sk-1 {}"}), "timezone must be an IANA time zone name"),
        (json!({"message": "x", "blocksContext": {}}), "blocksContext must be a list"),
        (json!({"message": "x", "forwardedProps": {"tabId": 1}}), "forwardedProps.tabId must be a string"),
        (
            json!({"message": "x", "agentId": "a", "forwardedProps": {"agentId": "b"}}),
            "agentId is given in more than one place with different values",
        ),
    ]);
}

#[test]
fn the_end_must_call_for_an_answer() {
    let user = json!({"role": "user", "content": "x"});
    let assistant_message = json!({"role": "assistant", "content": "y"});
    let calls = json!({"role": "assistant", "toolCalls": [{"id": "c", "function": {"name": "f"}}]});
    let result = json!({"role": "tool", "toolCallId": "c", "content": "z"});
    let stray = json!({"role": "tool", "toolCallId": "other", "content": "z"});
    let empty = json!({"role": "assistant", "content": ""});
    let thought = json!({"role": "reasoning", "content": "hm"});
    let order = json!({"role": "developer", "content": "be brief"});
    for (messages, fits) in [
        (json!([user]), true),
        (json!([user, calls, result]), true),
        (json!([user, assistant_message, user, empty, thought, order]), true),
        (json!([user, assistant_message]), false),
        (json!([user, calls]), false),
        (json!([user, assistant_message, stray]), false),
        (json!([user, calls, result, assistant_message]), false),
        (json!([order]), false),
        (json!([thought]), false),
    ] {
        // A result alone may be one of a call that a thread waits with.
        let read = chat(&json!({ "messages": messages })).and_then(|read| read.reject_missing_message());
        assert_eq!(read.is_ok(), fits, "for {messages}");
        if let Err(error) = read {
            assert_eq!(error.to_string(), "messages must end with a user message or a tool result");
        }
        let preview = json!({ "messages": messages }).to_string();
        read_preview(&JsonBody::parse(preview.as_bytes(), 64).unwrap(), NO_QUERY)
            .expect("a preview answers nobody");
    }
}

#[test]
fn bounds() {
    let user = json!({"role": "user", "content": "x"});
    let many = |count: usize| Value::from(vec![user.clone(); count]);
    assert!(chat(&json!({"messages": many(MAX_MESSAGES)})).is_ok());
    let parts = |count: usize| Value::from(vec![json!({"type": "text", "text": "x"}); count]);
    assert!(chat(&json!({"message": {"content": parts(MAX_LIST_ITEMS)}})).is_ok());
    let calls = vec![json!({"type": "tool-f", "toolCallId": "c", "state": "result"}); MAX_LIST_ITEMS];
    let splitting = json!({"role": "assistant", "parts": calls});
    check_faults(&[
        (json!({"messages": many(MAX_MESSAGES + 1)}), "messages has more than 10000 elements"),
        (json!({"messages": many(MAX_MESSAGES), "message": "x"}), "messages has more than 10000 elements"),
        (
            json!({"message": {"content": parts(MAX_LIST_ITEMS + 1)}}),
            "message.content has more than 1000 elements",
        ),
        (json!({"messages": vec![splitting; 11], "message": "x"}), "messages has more than 10000 elements"),
        (
            json!({"message": "x", "context": vec![json!({}); MAX_LIST_ITEMS + 1]}),
            "context has more than 1000 elements",
        ),
    ]);
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert!(JsonBody::parse(deep(64).as_bytes(), 64).is_ok());
    assert_eq!(
        JsonBody::parse(deep(65).as_bytes(), 64).unwrap_err().to_string(),
        "the body is nested deeper than 64 levels"
    );
    for broken in ["", "{", "{\"a\":}", "{} x", "\u{feff}{}"] {
        let error = JsonBody::parse(broken.as_bytes(), 64).unwrap_err();
        assert!(error.to_string().starts_with("the body is not valid JSON at line 1, column "), "{error}");
    }
    assert!(JsonBody::parse(deep(100_000).as_bytes(), 200).is_err());
    assert!(JsonBody::parse(b"{\"message\":\"\xff\"}", 64).is_err());
}

#[test]
fn a_key_that_is_given_twice_is_an_error() {
    for (body, path) in [
        (r#"{"agentId":"a","message":"x","agentId":"b"}"#, "agentId"),
        (r#"{"messages":[{"role":"user","content":"x","role":"system"}]}"#, "messages[0].role"),
        (r#"{"message":"x","pageContext":{"a":1,"\u0061":2}}"#, "pageContext.a"),
    ] {
        let body = JsonBody::parse(body.as_bytes(), 64).unwrap();
        assert!(widget_tokens(&body).is_ok());
        assert_eq!(read(&body, NO_QUERY).unwrap_err().to_string(), format!("{path} is given twice"));
        assert_eq!(read_preview(&body, NO_QUERY).unwrap_err().path, path);
        assert_eq!(RuntimeRequest::read(&body).unwrap_err().path, path);
    }
    let body = r#"{"message":"x","widgetToken":"a","widgetToken":"b"}"#;
    let tokens = widget_tokens(&JsonBody::parse(body.as_bytes(), 64).unwrap()).unwrap();
    assert_eq!(tokens.len(), 2, "a repeated credential is an error of the authentication");
}

#[test]
fn the_query_names_identifiers() {
    let body = json!({"message": "x", "agentId": "a"}).to_string();
    let body = JsonBody::parse(body.as_bytes(), 64).unwrap();
    let problem = |query: &[(&str, &str)]| {
        read(&body, query.iter().copied()).map(|_| ()).map_err(|error| error.to_string())
    };
    let chat =
        read(&body, [("agentId", "a"), ("threadId", "t"), ("tabId", ""), ("token", "x"), ("token", "y")])
            .unwrap();
    assert_eq!((&*chat.turn.agent_id, &*chat.turn.thread_id, chat.turn.tab_id), ("a", "t", None));
    assert_eq!(
        problem(&[("agentId", "b")]),
        Err("agentId is given in more than one place with different values".to_owned())
    );
    assert_eq!(
        problem(&[("runId", "1"), ("runId", "1")]),
        Err("runId is in the query more than once".to_owned())
    );
    assert_eq!(problem(&[("runId", "a\rb")]), Err("runId contains control characters".to_owned()));
    assert_eq!(problem(&[("runId", &"x".repeat(129))]), Err("runId is longer than 128 bytes".to_owned()));
    // Chat messages must not appear in access logs, so only a preview takes its message from the query.
    let query = [("message", "hi"), ("agentId", "a")];
    assert!(read(&JsonBody::empty(), query).is_err());
    let preview = read_preview(&JsonBody::empty(), query).unwrap();
    assert_eq!(shape(&preview.turn.messages), "user \"hi\"\n");
    assert!(read_preview(&JsonBody::empty(), NO_QUERY).unwrap().turn.messages.is_empty());
}

#[test]
fn instructions_are_forbidden_by_their_place() {
    let user = json!({"role": "user", "content": "x"});
    for (messages, path) in [
        (json!([user]), None),
        (json!([{"role": "system", "content": "x"}, user]), Some("messages[0].role")),
        (
            json!([{"role": "reasoning"}, user, {"role": "developer", "content": ""}, {"role": "system", "content": "x"}, user]),
            Some("messages[2].role"),
        ),
        (json!([{"role": "system", "parts": []}, user]), Some("messages[0].role")),
    ] {
        let chat = chat(&json!({ "messages": messages })).unwrap();
        assert_eq!(chat.reject_instructions().err().map(|fault| fault.path).as_deref(), path);
    }
}

fn runtime(body: &Value) -> Result<RuntimeRequest, FieldError> {
    let body = body.to_string();
    RuntimeRequest::read(&JsonBody::parse(body.as_bytes(), 64)?)
}

#[test]
fn runtime_body() {
    let request = runtime(&json!({
        "messages": [{"role": "user", "content": "x"}], "systemPrompt": "Be.", "provider": "openai", "model": "m",
        "enableThinking": true, "mcpServerUrl": "http://h/mcp?token=sk-1", "baseUrl": "http://b", "apiKey": "sk-2",
        "tools": [
            {"name": "a", "description": "A", "inputSchema": {"type": "object", "required": ["x"]},
                "outputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true, "title": "A"}},
            {"name": "b", "input_schema": {"type": "object"}},
            {"name": "c", "parameters": {"type": "object", "properties": {}}},
            {"name": "d"},
            {"type": "function", "function": {"name": "e", "parameters": {"type": "object"}}},
        ],
        "context": {"userId": "u", "agentId": "a", "agentName": "Ann", "todoListId": "l", "timezone": "UTC",
            "threadId": "t", "runId": "r", "caller": "widget", "more": 1},
    }))
    .unwrap();
    assert_eq!((&*request.provider, &*request.model, &*request.system_prompt), ("openai", "m", "Be."));
    assert_eq!(request.enable_thinking, Some(true));
    let schemas: Vec<String> =
        request.tools.iter().map(|tool| format!("{} {}", tool.name, tool.input_schema)).collect();
    assert_eq!(
        schemas,
        [
            r#"a {"type":"object","required":["x"]}"#,
            r#"b {"type":"object"}"#,
            r#"c {"type":"object","properties":{}}"#,
            r#"d {"type":"object","properties":{}}"#,
            r#"e {"type":"object"}"#
        ]
    );
    assert!(
        request.tools[0].annotations.is_some_and(|hints| hints.read_only_hint && !hints.destructive_hint)
    );
    assert!(request.tools[0].output_schema.is_some());
    assert_eq!(request.mcp_server_url.as_ref().map(Secret::expose), Some("http://h/mcp?token=sk-1"));
    assert_eq!(request.base_url.as_deref(), Some("http://b"));
    assert_eq!(request.api_key, Some(Secret::new("sk-2")));
    let context = &request.context;
    assert_eq!((&*context.user_id, &*context.thread_id, &*context.run_id), ("u", "t", "r"));
    assert_eq!(context.caller, agent_core::tool::Caller::Widget);
    assert!(!format!("{request:?}").contains("sk-"));
}

#[test]
fn runtime_context_in_a_string() {
    let minimal = |context: Value| {
        runtime(
            &json!({"messages": [{"role": "user", "content": "x"}], "provider": "p", "model": "m", "context": context}),
        )
    };
    let context = minimal(json!(r#"{"userId":"u","caller":"later"}"#)).unwrap().context;
    assert_eq!((&*context.user_id, context.caller), ("u", agent_core::tool::Caller::Session));
    assert_eq!(minimal(json!("")).unwrap().context, Default::default());
    assert_eq!(minimal(Value::Null).unwrap().context, Default::default());
    for (context, expected) in [
        (json!("sk-1"), "context must be an object, or a string with the JSON of one"),
        (json!("[]"), "context must be an object, or a string with the JSON of one"),
        (json!(7), "context must be an object"),
        (json!({"userId": 7}), "context.userId must be a string"),
        (json!("{\"userId\": 7}"), "context.userId must be a string"),
    ] {
        assert_eq!(minimal(context).unwrap_err().to_string(), expected);
    }
}

#[test]
fn runtime_faults() {
    let valid = json!({"messages": [{"role": "user", "content": "x"}], "provider": "p", "model": "m"});
    assert!(runtime(&valid).is_ok());
    for (field, value, expected) in [
        ("messages", Value::Null, "messages is missing"),
        ("messages", json!([]), "messages must end with a user message or a tool result"),
        ("messages", json!([{"role": "user"}]), "messages[0].content is missing"),
        ("provider", Value::Null, "provider is missing"),
        ("model", json!(""), "model is missing"),
        ("model", json!("x".repeat(257)), "model is longer than 256 bytes"),
        ("systemPrompt", json!(1), "systemPrompt must be a string"),
        ("enableThinking", json!("sk-1"), "enableThinking must be true or false"),
        ("apiKey", json!(1), "apiKey must be a string"),
        ("apiKey", json!("sk-1\n"), "apiKey contains control characters"),
        ("baseUrl", json!([]), "baseUrl must be a string"),
        ("tools", json!({}), "tools must be a list"),
        ("tools", json!(["sk-1"]), "tools[0] must be an object"),
        ("tools", json!([{"name": "a"}, {}]), "tools[1].name is missing"),
        (
            "tools",
            json!([{"name": "a"}, {"name": "a"}]),
            "tools[1].name is the name of an earlier tool: tool names must be unique",
        ),
        ("tools", json!([{"name": "a", "parameters": []}]), "tools[0].parameters must be an object"),
        ("tools", json!([{"name": "a", "inputSchema": 1}]), "tools[0].inputSchema must be an object"),
        ("tools", json!([{"function": {"name": 1}}]), "tools[0].function.name must be a string"),
    ] {
        let mut body = valid.clone();
        body[field] = value;
        assert_eq!(runtime(&body).unwrap_err().to_string(), expected);
    }
}

/// Builds a conversation from a short notation: `u` is a user message, `e` an empty answer, `a` an answer, `12` the
/// calls 1 and 2, `=1` the result of call 1.
fn conversation(short: &str) -> Vec<Arc<Message>> {
    let message = |(index, word): (usize, &str)| match word {
        "u" => Message::user(format!("u{index}")),
        "a" => Message::assistant(format!("a{index}")),
        "e" => Message::assistant(""),
        word if word.starts_with('=') => Message::tool_result(&word[1..], format!("r{index}")),
        word => {
            let calls = word.chars().map(|id| ToolCall::new(id, "f", "{}"));
            Message::with_tool_calls("", calls.collect())
        }
    };
    let words = short.split(' ').filter(|word| !word.is_empty());
    words.enumerate().map(message).map(Arc::new).collect()
}

fn short(messages: &[Arc<Message>]) -> String {
    let word = |message: &Arc<Message>| match message.role {
        Role::Tool => {
            let lost = matches!(&message.content, Content::Text(text) if text == MISSING_TOOL_RESULT);
            let content = if lost { "?".into() } else { message.content.to_text() };
            format!("={}:{content}", message.tool_call_id.as_deref().unwrap_or("none"))
        }
        Role::Assistant if !message.tool_calls.is_empty() => {
            message.tool_calls.iter().map(|call| call.id.as_str()).collect::<Vec<_>>().join("+")
        }
        _ => message.content.to_text().into_owned(),
    };
    messages.iter().map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn repairs() {
    for (input, expected) in [
        ("", ""),
        ("u 12 =1 =2 a", "u0 1+2 =1:r2 =2:r3 a4"),
        // Calls without results.
        ("u 1 u", "u0 1 =1:? u2"),
        ("u 12 =2 u", "u0 1+2 =1:? =2:r2 u3"),
        // Results at other positions.
        ("u 12 =2 =1 u", "u0 1+2 =1:r3 =2:r2 u4"),
        ("u 1 u =1 u", "u0 1 =1:r3 u2 u4"),
        ("u 1 2 =1 =2 u", "u0 1 =1:r3 2 =2:r4 u5"),
        ("u =1 1 u", "u0 1 =1:r1 u3"),
        // Results without calls, and duplicate results.
        ("u =1 u", "u0 u2"),
        ("u 1 =1 =1 u", "u0 1 =1:r2 u4"),
        ("u =1 1 =1 u", "u0 1 =1:r3 u4"),
        ("u =1 =1 1 u", "u0 1 =1:r1 u4"),
        // Repeated ids.
        ("u 1 =1 u 1 =1 u 1 =1", "u0 1 =1:r2 u3 1-2 =1-2:r5 u6 1-3 =1-3:r8"),
        ("u 11 =1 =1", "u0 1+1-2 =1:r2 =1-2:r3"),
        ("u 1 u 1 =1 =1", "u0 1 =1:? u2 1-2 =1-2:r4"),
        // Empty messages.
        ("u e u", "u0 u2"),
        ("e", ""),
    ] {
        assert_eq!(short(&repair(conversation(input))), expected, "for {input}");
    }
}

#[test]
fn calls_without_whole_arguments_were_never_made() {
    for (arguments, kept) in [("{}", true), ("[1]", true), ("{\"a\":", false), ("", false)] {
        let messages =
            vec![Message::user("x"), Message::with_tool_calls("", vec![ToolCall::new("1", "f", arguments)])];
        let messages = messages.into_iter().map(Arc::new).collect();
        assert_eq!(repair(messages).len(), if kept { 3 } else { 1 }, "for {arguments}");
    }
    // A call with a result was executed, even if its arguments are invalid.
    let call = Message::with_tool_calls("", vec![ToolCall::new("1", "f", "{\"a\":")]);
    assert_eq!(repair([call, Message::tool_result("1", "x")].map(Arc::new).into()).len(), 2);
}

#[test]
fn changed_ids_stay_short_and_apart() {
    let long = "ä".repeat(64);
    let call = |id: &str| Arc::new(Message::with_tool_calls("", vec![ToolCall::new(id, "f", "{}")]));
    let repaired = repair(vec![call("x-2"), call("x"), call("x"), call("x-2"), call(&long), call(&long)]);
    let ids: Vec<&str> = repaired.iter().filter_map(|message| message.tool_call_id.as_deref()).collect();
    let shortened = format!("{}-2", "ä".repeat(60));
    assert_eq!(ids, ["x-2", "x", "x-3", "x-2-2", &long, &shortened]);
    assert!(ids.iter().all(|id| id.len() <= MAX_ID_BYTES));
}

/// Checks the guarantees of repair over many conversations with few ids, which collide often.
#[test]
fn repaired_conversations_are_whole() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    for _ in 0..5_000 {
        let mut input_text = String::new();
        for _ in 0..next(12) {
            input_text += &match next(8) {
                0 => "u ".to_owned(),
                1 => "a ".to_owned(),
                2 => "e ".to_owned(),
                3..=5 => format!("={} ", next(4)),
                _ => (0..=next(3)).map(|_| next(4).to_string()).collect::<String>() + " ",
            };
        }
        let given_messages = conversation(&input_text);
        let summaries = |messages: &[Arc<Message>]| -> Vec<String> {
            let spoken = messages.iter().filter(|m| m.role != Role::Tool && !m.content.is_empty());
            spoken.map(|message| message.content.to_text().into_owned()).collect()
        };
        let (calls, spoken) = (count_calls(&given_messages), summaries(&given_messages));
        let shared = Arc::new(given_messages.clone());
        let repaired = repair(given_messages);
        let is_valid = *shared == repaired;
        let found = repair_shared(Arc::clone(&shared));
        assert_eq!(*found, repaired, "{input_text}");
        assert_eq!(Arc::ptr_eq(&found, &shared), is_valid, "a valid list stays shared: {input_text}");
        assert_whole(&repaired, &input_text);
        assert_eq!(count_calls(&repaired), calls, "no call is lost: {input_text}");
        assert_eq!(summaries(&repaired), spoken, "nothing said is lost: {input_text}");
        let again = repair(repaired.clone());
        assert!(again.len() == repaired.len(), "what is whole stays: {input_text}");
        assert!(again.iter().zip(&repaired).all(|(a, b)| Arc::ptr_eq(a, b)), "and is shared: {input_text}");
        // The start of a growing history is stable.
        let mut longer = repaired.clone();
        longer.extend(conversation("u 01 =0 =1"));
        assert_eq!(repair(longer)[..repaired.len()], repaired[..], "{input_text}");
    }
}

fn count_calls(messages: &[Arc<Message>]) -> usize {
    messages.iter().map(|message| message.tool_calls.len()).sum()
}

fn assert_whole(messages: &[Arc<Message>], description: &str) {
    let mut remaining_messages = messages.iter();
    let mut ids = std::collections::HashSet::new();
    while let Some(message) = remaining_messages.next() {
        assert_ne!(message.role, Role::Tool, "a stray result: {description}");
        for call in &message.tool_calls {
            assert!(ids.insert(&call.id), "an id came twice: {description}");
            let result = remaining_messages
                .next()
                .unwrap_or_else(|| panic!("a call without its result: {description}"));
            assert_eq!(
                (result.role, result.tool_call_id.as_ref()),
                (Role::Tool, Some(&call.id)),
                "{description}"
            );
        }
    }
}
