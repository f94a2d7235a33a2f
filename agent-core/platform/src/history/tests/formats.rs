//! Messages of each format of body: our own, AG-UI, AI SDK and OpenAI.

use super::*;

#[test]
fn a_chat_body_with_all_fields_is_read() {
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
fn ag_ui_messages_are_parsed() {
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
fn ai_sdk_messages_are_parsed() {
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
fn openai_messages_are_parsed() {
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
            {"role": "user", "content": "why?"},
            {"role": "assistant", "content": null, "refusal": "I can't."},
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
            user "why?"
            assistant "I can't."
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
