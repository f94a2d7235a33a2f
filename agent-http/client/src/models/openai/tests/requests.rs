//! Tests of requests: endpoint, headers and bodies.

use agent_platform::parameters::ModelParameters;

use super::*;

#[tokio::test]
async fn the_request_goes_to_the_endpoint_with_the_key_and_the_very_bytes() {
    let complete_answer = sse(&[text("a"), DONE.into()]);
    let server = LoopbackServer::respond_with(
        chunked_response("200 OK", SSE, complete_answer.as_bytes(), 64, true),
        AfterResponse::Close,
    )
    .await;
    let model = model(&server);
    let lines = [
        "POST /v1/chat/completions HTTP/1.1",
        "authorization: Bearer sk-1",
        "content-type: application/json",
        "accept: text/event-stream",
    ];
    check_sent_request(&model, &server, &lines).await;
}

fn check_body(request: &ModelRequest, expected: Expect) {
    let base = Url::parse("https://example.com/v1/").expect("an address");
    let model = OpenAi::new(outbound_client(""), &base, UrlTrust::Operator, Some(Secret::new("sk-1")), "m-1")
        .expect("a model");
    let payload = model.prepare(request).expect("prepared");
    check_streamed_body(&payload, &expected);
}

#[test]
fn bodies_without_tools() {
    check_body(
        &request(),
        expect![[r#"
        {"model":"m-1","stream":true,"stream_options":{"include_usage":true},"max_tokens":16384,
        "messages":[{"role":"user","content":"hi"}]}"#]],
    );
    let empty = Prompt::new(Vec::new(), Vec::new());
    check_body(
        &ModelRequest { prompt: Arc::new(empty), ..request() },
        expect![[r#"
        {"model":"m-1","stream":true,"stream_options":{"include_usage":true},"max_tokens":16384,
        "messages":[]}"#]],
    );
}

#[test]
fn bodies_with_tools_and_what_the_run_has_said_since() {
    let system = Fragment::new("role", "test", Stability::Role, Part::new("You are \"terse\".\n"));
    let history = vec![
        Message::user("before"),
        Message::with_tool_calls("Wait.", vec![ToolCall::new("old", "readTodos", "{}")]),
        Message::tool_result("old", "none"),
        Message::user("hi"),
    ];
    let history = history.into_iter().map(PromptMessage::new).collect();
    let calls = vec![ToolCall::new("1", "readTodos", "{\"n\":1}"), ToolCall::new("2", "createTodo", "{")];
    let with_tools = ModelRequest {
        prompt: Arc::new(Prompt::new(vec![system], history)),
        appended_messages: vec![
            Message::with_tool_calls("", calls),
            Message::tool_result("1", "one"),
            Message::tool_result("2", ""),
        ],
        tools: Arc::new([
            tool(
                "createTodo",
                "Adds a \"todo\".",
                r#"{"type":"object","properties":{"title":{"type":"string"}}}"#,
            ),
            tool("readTodos", "", r#"{"type":"object"}"#),
        ]),
        ..request()
    };
    check_body(
        &with_tools,
        expect![[r#"
        {"model":"m-1","stream":true,"stream_options":{"include_usage":true},"max_tokens":16384,"tools":[{"type":"function","function":{"name":"createTodo","description":"Adds a \"todo\".","parameters":{"type":"object","properties":{"title":{"type":"string"}}}}},
        {"type":"function","function":{"name":"readTodos","description":"","parameters":{"type":"object"}}}],"tool_choice":"auto",
        "messages":[{"role":"system","content":"You are \"terse\".\n"},
        {"role":"user","content":"before"},
        {"role":"assistant","content":"Wait.","tool_calls":[{"id":"old","type":"function","function":{"name":"readTodos","arguments":"{}"}}]},
        {"role":"tool","content":"none","tool_call_id":"old"},
        {"role":"user","content":"hi"},
        {"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"readTodos","arguments":"{\"n\":1}"}},
        {"id":"2","type":"function","function":{"name":"createTodo","arguments":"{"}}]},
        {"role":"tool","content":"one","tool_call_id":"1"},
        {"role":"tool","content":"","tool_call_id":"2"}]}"#]],
    );
}

#[test]
fn the_tool_choice_is_said_where_there_are_tools() {
    let cases = [
        (ToolChoice::Auto, json!({"choice": "auto", "tools": ["x", "y"]})),
        (ToolChoice::None, json!({"choice": null, "tools": []})),
        (ToolChoice::Required, json!({"choice": "required", "tools": ["x", "y"]})),
        (ToolChoice::Tool("y".into()), json!({"choice": "required", "tools": ["y"]})),
        (ToolChoice::Tool("z".into()), json!({"choice": null, "tools": []})),
    ];
    let base = Url::parse("https://example.com").expect("an address");
    let model = OpenAi::new(outbound_client(""), &base, UrlTrust::Operator, None, "m-1").expect("a model");
    let sent = |request: &ModelRequest| {
        let payload = model.prepare(request).expect("prepared");
        let body: Value = serde_json::from_slice(payload.bytes()).expect("the body is JSON");
        let tools = body["tools"].as_array().into_iter().flatten();
        let names: Vec<_> = tools.map(|tool| tool["function"]["name"].clone()).collect();
        json!({"choice": body["tool_choice"], "tools": names})
    };
    for (tool_choice, expected) in cases {
        let bare = ModelRequest { tool_choice, ..request() };
        assert_eq!(
            sent(&bare),
            json!({"choice": null, "tools": []}),
            "servers refuse a choice without tools"
        );
        let tools = ["x", "y"].map(|name| tool(name, "", "{}"));
        assert_eq!(sent(&ModelRequest { tools: Arc::new(tools), ..bare }), expected);
    }
}

#[test]
fn the_limit_on_the_answer_has_the_name_that_the_server_knows() {
    for (base, model, expected) in [
        ("https://api.openai.com/v1", "gpt-5-mini", json!({"max_completion_tokens": 16_384})),
        ("https://me.openai.azure.com/openai", "gpt-4-turbo", json!({"max_completion_tokens": 4_096})),
        ("https://notopenai.com/v1", "m-1", json!({"max_tokens": 16_384})),
        ("http://127.0.0.1:8080/v1", "m-1", json!({"max_tokens": 16_384})),
    ] {
        let base = Url::parse(base).expect("an address");
        let with_limits = |limits| {
            let model = ModelSpec::new(model).with_limits(limits);
            OpenAi::new(outbound_client(""), &base, UrlTrust::Operator, None, model).expect("a model")
        };
        let limit_of = |model: &OpenAi| {
            let payload = model.prepare(&request()).expect("prepared");
            let body: serde_json::Map<String, Value> =
                serde_json::from_slice(payload.bytes()).expect("the body is JSON");
            Value::Object(body.into_iter().filter(|(name, _)| name.starts_with("max_")).collect())
        };
        assert_eq!(limit_of(&with_limits(ModelLimits::default())), expected);
        let limits = ModelLimits { max_output_tokens: 7, ..ModelLimits::default() };
        let limited = limit_of(&with_limits(limits));
        assert_eq!(limited.as_object().expect("an object").values().collect::<Vec<_>>(), [&json!(7)]);
    }
}

#[test]
fn the_endpoint_is_below_the_base_address() {
    let cases = [
        ("https://example.com", Some("https://example.com/chat/completions")),
        ("https://example.com/", Some("https://example.com/chat/completions")),
        ("https://example.com/v1", Some("https://example.com/v1/chat/completions")),
        ("https://example.com/v1/", Some("https://example.com/v1/chat/completions")),
        (
            "https://example.com/a%20b?api-version=1",
            Some("https://example.com/a%20b/chat/completions?api-version=1"),
        ),
        ("mailto:ada@example.com", None),
    ];
    for (base, expected) in cases {
        let base = Url::parse(base).expect("an address");
        let model = OpenAi::new(outbound_client(""), &base, UrlTrust::Operator, None, "m-1");
        match (model, expected) {
            (Ok(model), Some(expected)) => assert_eq!(model.endpoint.url.as_str(), expected),
            (Err(failure), None) => assert_eq!(failure.kind(), AgentErrorKind::InvalidRequest),
            (other, _) => panic!("{base}: {:?}", other.map(|model| model.endpoint.url)),
        }
    }
}

#[test]
fn the_switch_for_reasoning_and_the_level_of_the_agent_are_sent() {
    let base = Url::parse("https://example.com/v1/").expect("an address");
    for (model, thinking, level, expected) in [
        ("m-1", None, None, None),
        ("m-1", Some(true), None, Some("medium")),
        ("m-1", Some(false), None, None),
        ("gpt-5-mini", Some(false), None, Some("minimal")),
        ("m-1", None, Some("high"), Some("high")),
        ("m-1", Some(false), Some("none"), Some("none")),
    ] {
        let model = ModelSpec::new(model).with_reasoning_effort(level);
        let model =
            OpenAi::new(outbound_client(""), &base, UrlTrust::Operator, None, model).expect("a model");
        let payload = model.prepare(&ModelRequest { thinking, ..request() }).expect("prepared");
        let body: Value = serde_json::from_slice(payload.bytes()).expect("the body is JSON");
        assert_eq!(body.get("reasoning_effort").and_then(Value::as_str), expected, "{thinking:?} {level:?}");
    }
}

#[test]
fn the_seed_has_the_name_that_the_server_knows() {
    let members = json!({"seed": 7});
    let parameters = ModelParameters::read(members.as_object().expect("an object")).expect("parameters");
    for (base, name) in [
        ("https://api.mistral.ai/v1", "random_seed"),
        ("https://api.openai.com/v1", "seed"),
        ("https://notmistral.ai/v1", "seed"),
    ] {
        let base = Url::parse(base).expect("an address");
        let spec = ModelSpec::new("m-1").with_parameters(parameters.clone());
        let model = OpenAi::new(outbound_client(""), &base, UrlTrust::Operator, None, spec).expect("a model");
        let payload = model.prepare(&request()).expect("prepared");
        let body: Value = serde_json::from_slice(payload.bytes()).expect("the body is JSON");
        assert_eq!((&body[name], body.get("seed").is_some()), (&json!(7), name == "seed"), "{base}");
    }
}

#[test]
fn ids_and_the_order_of_messages_are_those_that_the_models_take() {
    let long = "call_01a1fe22-a159-71ee-b7ea-c21f6a0d92e8";
    let messages = vec![
        Message::with_tool_calls(
            "",
            vec![ToolCall::new(long, "x", "{}"), ToolCall::new("D681PevKs", "y", "{}")],
        ),
        Message::tool_result(long, "a"),
        Message::tool_result("D681PevKs", "b"),
        Message::user("And now?"),
        Message::assistant("Done."),
        Message::user("Thanks."),
    ];
    let sent = |base: &str, name: &str, messages: &[Message]| {
        let base = Url::parse(base).expect("an address");
        let model = OpenAi::new(outbound_client(""), &base, UrlTrust::Operator, None, name).expect("a model");
        let request = ModelRequest { appended_messages: messages.to_vec(), ..request() };
        let body: Value = serde_json::from_slice(model.prepare(&request).expect("prepared").bytes())
            .expect("the body is JSON");
        body["messages"].as_array().expect("messages")[1..].to_vec()
    };
    let openai = sent("https://api.openai.com/v1", "gpt-5", &messages);
    assert_eq!(openai.len(), 6);
    let ids = [&openai[0]["tool_calls"][0]["id"], &openai[0]["tool_calls"][1]["id"]];
    assert_eq!(ids[1], "D681PevKs");
    assert!(ids[0].as_str().is_some_and(|id| id.len() <= 40), "{ids:?}");
    assert_eq!([&openai[1]["tool_call_id"], &openai[2]["tool_call_id"]], ids);
    let short = sent("https://api.openai.com/v1", "gpt-5", &messages[3..]);
    assert_eq!(short, [json!({"role": "user", "content": "And now?"}), openai[4].clone(), openai[5].clone()]);

    for (base, name) in [
        ("https://api.mistral.ai/v1", "open-small"),
        ("http://127.0.0.1:8000/v1", "mistralai/Mistral-Small-4"),
        ("https://openrouter.ai/api/v1", "mistralai/devstral-medium"),
    ] {
        let mistral = sent(base, name, &messages);
        assert_eq!(mistral.len(), 7, "{name}");
        let ids = [&mistral[0]["tool_calls"][0]["id"], &mistral[0]["tool_calls"][1]["id"]];
        assert_eq!(ids[1], "D681PevKs");
        let is_plain = |id: &str| id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        assert!(ids[0].as_str().is_some_and(is_plain), "{ids:?}");
        assert_eq!([&mistral[1]["tool_call_id"], &mistral[2]["tool_call_id"]], ids);
        assert_eq!(mistral[3], json!({"role": "assistant", "content": "OK"}));
        assert_eq!(mistral[4]["content"], "And now?");
    }
}

#[test]
fn a_part_without_a_form_is_refused_only_in_the_latest_user_message() {
    let source = MediaSource::Data { value: "QUJD".into(), mime_type: "video/mp4".into() };
    let content = Content::Parts(vec![ContentPart::Video { source }]);
    let video = PromptMessage::new(Message { content, ..Message::text(Role::User, "") });
    let text = PromptMessage::new(Message::user("And now?"));
    let server = Url::parse("http://127.0.0.1:9/").expect("an address");
    let model = OpenAi::new(outbound_client(""), &server, UrlTrust::Operator, None, "m-1").expect("a model");
    let prepared = |messages: [&Arc<PromptMessage>; 2]| {
        let prompt = Arc::new(Prompt::new(Vec::new(), messages.map(Arc::clone).into()));
        model.prepare(&ModelRequest { prompt, ..request() })
    };
    let refused = prepared([&text, &video]).err().map(|error| error.kind());
    assert_eq!(refused, Some(AgentErrorKind::UnsupportedContent));
    let payload = prepared([&video, &text]).expect("the latest message is text");
    let body: Value = serde_json::from_slice(payload.bytes()).expect("the body is JSON");
    let note = json!([{"type": "text", "text": "[video of type video/mp4, not sent]"}]);
    assert_eq!(body["messages"][0]["content"], note);
    assert_eq!(body["messages"][1]["content"], "And now?");
}
