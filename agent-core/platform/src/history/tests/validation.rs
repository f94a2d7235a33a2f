//! Errors of chat bodies and queries: each names its field.

use super::*;

#[test]
fn tool_choices_of_all_formats_are_parsed() {
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
fn lists_and_texts_beyond_their_limits_are_refused() {
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
    for empty in ["", " \r\n"] {
        let error = JsonBody::parse(empty.as_bytes(), 64).unwrap_err();
        assert_eq!(error.to_string(), "the body is empty; it must be JSON");
    }
    for broken in ["{", "{\"a\":}", "{} x", "\u{feff}{}"] {
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
fn identifiers_are_read_from_the_query() {
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
