//! Bodies of requests.

use agent_core::role::ResponseFormat;

use super::*;

fn prepared(protocol: &ResponsesProtocol, request: &ModelRequest) -> Result<Payload, AgentError> {
    let mut body = Payload::builder(0);
    protocol.push_body(request, &mut body)?;
    Ok(body.finish())
}

fn body_of(protocol: &ResponsesProtocol, request: &ModelRequest) -> Value {
    let payload = prepared(protocol, request).expect("prepared");
    serde_json::from_slice(payload.bytes()).expect("the body is JSON")
}

fn check_body(protocol: &ResponsesProtocol, request: &ModelRequest, expected: Expect) {
    let payload = prepared(protocol, request).expect("prepared");
    let again = prepared(protocol, request).expect("prepared");
    assert_eq!(payload.bytes(), again.bytes(), "the bytes are the same with cached items");
    let _: Value = serde_json::from_slice(payload.bytes()).expect("the body is JSON");
    let lines = String::from_utf8_lossy(payload.bytes())
        .replace("},{", "},\n{")
        .replace(",\"input\"", ",\n\"input\"");
    expected.assert_eq(&lines);
}

fn with_history(system: &str, history: Vec<Message>) -> ModelRequest {
    let system = Fragment::new("role", "test", Stability::Role, Part::new(system));
    let history = history.into_iter().map(PromptMessage::new).collect();
    ModelRequest { prompt: Arc::new(Prompt::new(vec![system], history)), ..request() }
}

#[test]
fn bodies_without_tools() {
    check_body(
        &protocol("m-1"),
        &request(),
        expect![[r#"
            {"model":"m-1","reasoning":{"summary":"auto"},"include":["reasoning.encrypted_content"],"store":false,"stream":true,
            "input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}]}"#]],
    );
    let empty = Prompt::new(Vec::new(), Vec::new());
    check_body(
        &protocol("gpt-4o"),
        &ModelRequest { prompt: Arc::new(empty), ..request() },
        expect![[r#"
            {"model":"gpt-4o","store":false,"stream":true,
            "input":[]}"#]],
    );
}

/// Returns an item that the model `m-1` has made.
fn item(json: &str, text_before: usize, calls_before: usize) -> ProviderItem {
    item_of(&protocol("m-1"), json, text_before, calls_before)
}

fn item_of(
    protocol: &ResponsesProtocol,
    json: &str,
    text_before: usize,
    calls_before: usize,
) -> ProviderItem {
    let json = RawValue::from_string(json.to_owned()).expect("JSON");
    ProviderItem { json: protocol.maker().keep(&*json).into(), text_before, calls_before }
}

#[test]
fn bodies_with_tools_and_what_the_run_has_said_since() {
    let image = |source| ContentPart::Image { source };
    let picture = || image(MediaSource::Data { value: "QUJD".into(), mime_type: "image/png".into() });
    let remote = image(MediaSource::Url { value: "https://example.com/a.png".into(), mime_type: None });
    let caption = || ContentPart::Text { text: "What?".into() };
    let parts = |role, parts| Message { content: Content::Parts(parts), ..Message::text(role, "") };
    let history = vec![
        Message::text(Role::System, "of the history"),
        Message::text(Role::Developer, "of the page"),
        parts(Role::User, vec![caption(), picture(), remote]),
        Message::with_tool_calls("Wait.", vec![ToolCall::new("an id", "a.tool", "")]),
        Message { tool_call_id: Some("an id".into()), ..parts(Role::Tool, vec![caption(), picture()]) },
        Message::assistant(""),
        Message::user("hi"),
    ];
    let calls = vec![ToolCall::new("1", "readTodos", "{\"n\":1}"), ToolCall::new("2", "createTodo", "{")];
    let answer = Message {
        provider_items: vec![item("{\"r\": 1.0}", 0, 0), item("{\"r\":2}", 5, 1)],
        ..Message::with_tool_calls("One, two", calls)
    };
    let schema = r#"{"type":"object","properties":{"title":{"type":"string"}}}"#;
    let request = ModelRequest {
        appended_messages: vec![answer, Message::tool_result("1", "one"), Message::tool_result("2", "")],
        tools: Arc::new([
            tool("a.tool", "", "{}"),
            tool("createTodo", "Adds a \"todo\".", schema),
            tool("readTodos", "", r#"{"type":"object"}"#),
        ]),
        ..with_history("You are \"terse\".\n", history)
    };
    let limited = ModelLimits { max_output_tokens: 7, ..ModelLimits::default() };
    let spec = ModelSpec::new("m-1").with_limits(limited);
    check_body(
        &protocol(spec).with_output_limit(true).with_prompt_cache_key("0123"),
        &request,
        expect![[r#"
            {"model":"m-1","instructions":"You are \"terse\".\n","tools":[{"type":"function","name":"t_afe0f0996e87","description":"","parameters":{},"strict":false},
            {"type":"function","name":"createTodo","description":"Adds a \"todo\".","parameters":{"type":"object","properties":{"title":{"type":"string"}}},"strict":false},
            {"type":"function","name":"readTodos","description":"","parameters":{"type":"object"},"strict":false}],"tool_choice":"auto","parallel_tool_calls":true,"reasoning":{"summary":"auto"},"include":["reasoning.encrypted_content"],"store":false,"stream":true,"max_output_tokens":16,"prompt_cache_key":"0123",
            "input":[{"type":"message","role":"developer","content":[{"type":"input_text","text":"of the history"}]},
            {"type":"message","role":"developer","content":[{"type":"input_text","text":"of the page"}]},
            {"type":"message","role":"user","content":[{"type":"input_text","text":"What?"},
            {"type":"input_image","image_url":"data:image/png;base64,QUJD","detail":"auto"},
            {"type":"input_image","image_url":"https://example.com/a.png","detail":"auto"}]},
            {"type":"message","role":"assistant","content":[{"type":"output_text","text":"Wait."}]},
            {"type":"function_call","call_id":"c_5e92a53cfa80609c","name":"t_afe0f0996e87","arguments":"{}"},
            {"type":"function_call_output","call_id":"c_5e92a53cfa80609c","output":[{"type":"input_text","text":"What?"},
            {"type":"input_image","image_url":"data:image/png;base64,QUJD","detail":"auto"}]},
            {"type":"message","role":"assistant","content":[{"type":"output_text","text":""}]},
            {"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]},
            {"r": 1.0},
            {"type":"message","role":"assistant","content":[{"type":"output_text","text":"One, "}]},
            {"type":"function_call","call_id":"1","name":"readTodos","arguments":"{\"n\":1}"},
            {"r":2},
            {"type":"message","role":"assistant","content":[{"type":"output_text","text":"two"}]},
            {"type":"function_call","call_id":"2","name":"createTodo","arguments":"{"},
            {"type":"function_call_output","call_id":"1","output":"one"},
            {"type":"function_call_output","call_id":"2","output":""}]}"#]],
    );
}

#[test]
fn the_input_of_a_request_for_an_object_names_json() {
    let with_format = |schema: Option<Value>| {
        let format = ResponseFormat { schema, ..ResponseFormat::default() };
        let asked = with_history("Answer with a JSON object.", vec![Message::user("hi")]);
        ModelRequest { response_format: Some(Arc::new(format)), ..asked }
    };
    let input = |protocol: &ResponsesProtocol, schema: Option<Value>| {
        let body = body_of(protocol, &with_format(schema));
        body["input"].as_array().expect("items").clone()
    };
    let of_object = input(&protocol("m-1"), None);
    assert!(of_object[0].to_string().contains("JSON"), "{of_object:?}");
    assert_eq!((of_object.len(), &of_object[1]["role"]), (2, &json!("user")));
    assert_eq!(input(&protocol("m-1"), Some(json!({"type": "object"}))).len(), 1);
    // The system prompt, which describes the format, is an item if the vendor has instructions of its own.
    let fixed = input(&protocol("m-1").with_instructions(Some("Be brief.")), None);
    assert!(fixed[0].to_string().contains("Answer with a JSON object."), "{fixed:?}");
    assert_eq!(fixed.len(), 2);
}

#[test]
fn items_go_only_to_the_model_server_and_account_that_made_them() {
    let at = |address: &str, model: &str, key: &str| {
        let protocol = ResponsesProtocol::new("test", Account::ApiKey, model, address);
        protocol.with_key(Some(&Secret::new(key)))
    };
    let reasoning = r#"{"type":"reasoning","encrypted_content":"x"}"#;
    let own = || item_of(&at("https://example.com/v1", "m-1", "sk-1"), reasoning, 0, 0);
    let json = RawValue::from_string(reasoning.to_owned()).expect("JSON").into();
    let nameless = ProviderItem { json, text_before: 0, calls_before: 0 };
    for (address, model, key, item, is_sent) in [
        ("https://example.com/v1", "m-1", "sk-1", own(), true),
        ("https://example.com/v1", "m-2", "sk-1", own(), false),
        ("https://example.org/v1", "m-1", "sk-1", own(), false),
        ("https://example.com/v1", "m-1", "sk-2", own(), false),
        ("https://example.com/v1", "m-1", "sk-1", nameless, false),
    ] {
        let answer = Message {
            provider_items: vec![item],
            ..Message::with_tool_calls("One", vec![ToolCall::new("1", "x", "{}")])
        };
        let result = Message::tool_result("1", "done");
        let history = vec![Message::user("hi"), answer.clone(), result.clone()];
        let appended = ModelRequest { appended_messages: vec![answer, result], ..request() };
        let expected: &[&str] = match is_sent {
            true => &["message", "reasoning", "message", "function_call", "function_call_output"],
            false => &["message", "message", "function_call", "function_call_output"],
        };
        for request in [appended, with_history("", history)] {
            let body = body_of(&at(address, model, key), &request);
            let input = body["input"].as_array().expect("items");
            let kinds: Vec<&str> = input.iter().filter_map(|item| item["type"].as_str()).collect();
            assert_eq!(kinds, expected, "{address} {model}: {body}");
        }
    }
}

#[test]
fn an_items_place_is_kept_within_what_the_answer_has() {
    let calls = || vec![ToolCall::new("1", "x", "{}")];
    for (text, calls, items, expected) in [
        ("", calls(), vec![item("1", 0, 0), item("2", 9, 9)], vec!["1", "call", "2"]),
        ("größe", vec![], vec![item("1", 3, 0), item("2", 1, 0)], vec!["gr", "1", "2", "öße"]),
        ("ab", calls(), vec![item("1", 0, 1), item("2", 1, 0)], vec!["call", "1", "a", "2", "b"]),
        ("ab", calls(), vec![], vec!["ab", "call"]),
        ("", vec![], vec![item("1", 0, 0)], vec!["1"]),
        ("", vec![], vec![], vec![""]),
    ] {
        let message = Message { provider_items: items, ..Message::with_tool_calls(text, calls) };
        let body = body_of(&protocol("m-1"), &with_history("", vec![message]));
        let shown: Vec<String> = body["input"]
            .as_array()
            .expect("items")
            .iter()
            .map(|item| match item["type"].as_str() {
                Some("message") => item["content"][0]["text"].as_str().expect("text").to_owned(),
                Some(_) => "call".to_owned(),
                None => item.to_string(),
            })
            .collect();
        assert_eq!(shown, expected);
    }
}

#[test]
fn the_operators_instructions_displace_the_system_prompt() {
    let with_system = with_history("Be brief.", vec![Message::user("hi")]);
    let developer = json!({"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]});
    let user = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]});
    let with_instructions =
        || protocol("m-1").with_instructions(Some("Own.")).with_default_instructions("You are Ada.");
    let default = || protocol("m-1").with_default_instructions("You are Ada.");
    for (protocol, request, instructions, input) in [
        (protocol("m-1"), &with_system, json!("Be brief."), json!([user])),
        (default(), &with_system, json!("Be brief."), json!([user])),
        (with_instructions(), &with_system, json!("Own."), json!([developer, user])),
        (protocol("m-1"), &request(), Value::Null, json!([user])),
        (default(), &request(), json!("You are Ada."), json!([user])),
        (with_instructions(), &request(), json!("Own."), json!([user])),
    ] {
        let body = body_of(&protocol, request);
        assert_eq!((&body["instructions"], &body["input"]), (&instructions, &input));
    }
}

#[test]
fn the_cache_key_is_hidden() {
    let payload =
        prepared(&protocol("m-1").with_prompt_cache_key("secret-key"), &request()).expect("prepared");
    let shown = String::from_utf8(payload.redacted()).expect("UTF-8");
    assert!(shown.contains(r#""prompt_cache_key":"***""#), "{shown}");
    let other = prepared(&protocol("m-1").with_prompt_cache_key("other"), &request()).expect("prepared");
    assert_eq!(payload.sha256(), other.sha256());
    assert_eq!(body_of(&protocol("m-1"), &request()).get("prompt_cache_key"), None);
}

#[test]
fn the_switch_for_reasoning_and_the_level_of_the_agent_are_sent() {
    let cases = [
        ("m-1", None, None, json!({"summary": "auto"})),
        ("m-1", Some(true), None, json!({"effort": "medium", "summary": "auto"})),
        ("m-1", Some(false), None, json!({"effort": "low"})),
        ("m-1", None, Some("high"), json!({"effort": "high", "summary": "auto"})),
        ("m-1", Some(false), Some("minimal"), json!({"effort": "minimal"})),
        ("openai/GPT-4o", None, None, Value::Null),
        ("gpt-4.1", Some(false), None, Value::Null),
        ("gpt-4.1", Some(true), None, json!({"effort": "medium", "summary": "auto"})),
        ("gpt-5-mini", None, None, json!({"summary": "auto"})),
    ];
    for (name, thinking, level, expected) in cases {
        let spec = ModelSpec::new(name).with_reasoning_effort(level);
        let body = body_of(&protocol(spec), &ModelRequest { thinking, ..request() });
        assert_eq!(body["reasoning"], expected, "{name} {thinking:?} {level:?}");
        let include = if expected.is_null() { Value::Null } else { json!(["reasoning.encrypted_content"]) };
        assert_eq!(body["include"], include);
    }
}

#[test]
fn the_tool_choice_is_said_where_there_are_tools() {
    let cases = [
        (ToolChoice::Auto, json!("auto")),
        (ToolChoice::None, json!("none")),
        (ToolChoice::Required, json!("required")),
        (ToolChoice::Tool("y".into()), json!({"type": "function", "name": "y"})),
        (ToolChoice::Tool("a.b".into()), json!({"type": "function", "name": "t_2e7336dc8eba"})),
        (ToolChoice::Tool("z".into()), json!("none")),
    ];
    for (tool_choice, expected) in cases {
        let bare = ModelRequest { tool_choice, ..request() };
        let body = body_of(&protocol("m-1"), &bare);
        for member in ["tools", "tool_choice", "parallel_tool_calls"] {
            assert_eq!(body.get(member), None, "servers refuse a choice without tools");
        }
        let tools = Arc::new([tool("a.b", "", "{}"), tool("y", "", "{}")]);
        let body = body_of(&protocol("m-1"), &ModelRequest { tools, ..bare });
        assert_eq!((&body["tool_choice"], &body["parallel_tool_calls"]), (&expected, &json!(true)));
        assert_eq!(body["tools"].as_array().map(Vec::len), Some(2), "the choice does not change the prefix");
    }
}

#[tokio::test]
async fn aliases_of_tools_are_mapped_back_and_reasoning_is_hidden_if_switched_off() {
    let named = |name: &str| {
        done(0, json!({"type": "function_call", "call_id": "c", "name": name, "arguments": "{}"}))
    };
    let reasoning_delta = json!({"type": "response.reasoning_text.delta", "delta": "Hm"});
    let body =
        sse(&[reasoning_delta, named("t_2e7336dc8eba"), named("y"), named("t_000000000000"), completed()]);
    let answer = chunked_response("200 OK", SSE, body.as_bytes(), 64, true);
    let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
    let tools = || Arc::new([tool("a.b", "", "{}"), tool("y", "", "{}")]);
    let calls =
        ["call 0 c a.b", "args 0 {}", "call 1 c y", "args 1 {}", "call 2 c t_000000000000", "args 2 {}"];
    for (thinking, begins) in
        [(None, &["reasoning Hm"][..]), (Some(true), &["reasoning Hm"]), (Some(false), &[])]
    {
        let request = ModelRequest { tools: tools(), thinking, ..request() };
        let events = answer_to(&model(&server), &request).await;
        assert_eq!(events, [begins, &calls, &["finish ToolCalls"]].concat(), "{thinking:?}");
    }
}

#[test]
fn content_without_a_form_is_refused_only_in_the_latest_user_message() {
    let source = || MediaSource::Data { value: "QUJD".into(), mime_type: "application/pdf".into() };
    let message = |role, part| Message { content: Content::Parts(vec![part]), ..Message::text(role, "") };
    for (message, expected) in [
        (message(Role::User, ContentPart::Image { source: source() }), Ok(())),
        (message(Role::Tool, ContentPart::Image { source: source() }), Ok(())),
        (message(Role::Assistant, ContentPart::Text { text: "a".into() }), Ok(())),
        (message(Role::Assistant, ContentPart::Image { source: source() }), Ok(())),
        (message(Role::User, ContentPart::Document { source: source() }), Err(())),
        (message(Role::User, ContentPart::Audio { source: source() }), Err(())),
        (message(Role::User, ContentPart::Video { source: source() }), Err(())),
    ] {
        let prepared = prepared(&protocol("m-1"), &with_history("", vec![message.clone()]));
        let refused = |failure: AgentError| assert_eq!(failure.kind(), AgentErrorKind::UnsupportedContent);
        assert_eq!(prepared.map(drop).map_err(refused), expected, "{message:?}");
    }
    let notes = [
        (
            Role::Assistant,
            ContentPart::Image { source: source() },
            "[image of type application/pdf, not sent]",
        ),
        (
            Role::User,
            ContentPart::Document { source: source() },
            "[document of type application/pdf, not sent]",
        ),
    ];
    for (role, part, note) in notes {
        let history = vec![message(role, part), Message::user("And now?")];
        let body = body_of(&protocol("m-1"), &with_history("", history));
        assert_eq!(body["input"][0]["content"][0]["text"], note, "{body}");
    }
}

#[test]
fn the_endpoint_is_below_the_base_address() {
    for (base, expected) in [
        ("https://example.com/v1", Some("https://example.com/v1/responses")),
        ("https://example.com/v1/?api-version=1", Some("https://example.com/v1/responses?api-version=1")),
        ("mailto:ada@example.com", None),
    ] {
        let base = Url::parse(base).expect("an address");
        let model = Responses::new(outbound_client(""), &base, UrlTrust::Operator, None, protocol("m-1"));
        match (model, expected) {
            (Ok(model), Some(expected)) => assert_eq!(model.endpoint.url.as_str(), expected),
            (Err(failure), None) => assert_eq!(failure.kind(), AgentErrorKind::InvalidRequest),
            (other, _) => panic!("{base}: {:?}", other.map(|model| model.endpoint.url)),
        }
    }
}
