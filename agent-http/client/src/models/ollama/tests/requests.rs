//! Tests of requests: endpoint, headers and bodies.

use super::*;

#[tokio::test]
async fn the_request_goes_to_the_endpoint_with_the_key_and_the_very_bytes() {
    let server = LoopbackServer::respond_with(
        chunked_response("200 OK", NDJSON, stop().as_bytes(), 64, true),
        AfterResponse::Close,
    )
    .await;
    let model = model(&server);
    let lines = [
        "POST /v1/api/chat HTTP/1.1",
        "authorization: Bearer sk-1",
        "content-type: application/json",
        "accept: application/x-ndjson",
    ];
    check_sent_request(&model, &server, &lines).await;
}

fn check_body(request: &ModelRequest, expected: Expect) {
    let payload = prepared(request).expect("prepared");
    check_streamed_body(&payload, &expected);
}

#[test]
fn a_level_of_reasoning_takes_the_place_of_the_switch() {
    let base = Url::parse("http://127.0.0.1:11434").expect("an address");
    let model = spec("m-1", 4096).with_reasoning_effort(Some("low"));
    let model = Ollama::new(outbound_client(""), &base, UrlTrust::Operator, None, model).expect("a model");
    let payload = model.prepare(&ModelRequest { thinking: Some(false), ..request() }).expect("prepared");
    let body: Value = serde_json::from_slice(payload.bytes()).expect("the body is JSON");
    assert_eq!(body["think"], "low");
}

#[test]
fn bodies_without_tools() {
    check_body(
        &request(),
        expect![[r#"
            {"model":"m-1","stream":true,"options":{"num_ctx":4096,"num_predict":1024},
            "messages":[{"role":"user","content":"hi"}]}"#]],
    );
    check_body(
        &ModelRequest { thinking: Some(false), ..request_of(1, true) },
        expect![[r#"
            {"model":"m-1","stream":true,"think":false,"options":{"num_ctx":4096,"num_predict":1024},
            "messages":[{"role":"user","content":"word ","images":["QUJD"]}]}"#]],
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
    let calls = vec![ToolCall::new("1", "readTodos", "{\"n\":1}"), ToolCall::new("2", "createTodo", "{}")];
    let with_tools = ModelRequest {
        prompt: Arc::new(Prompt::new(vec![system], history)),
        appended_messages: vec![
            Message::with_tool_calls("", calls),
            Message::tool_result("1", "one"),
            Message::tool_result("2", ""),
        ],
        tools: Arc::new([
            tool("createTodo", "Adds a \"todo\".", r#"{"type":"object"}"#),
            tool("readTodos", "", r#"{"type":"object"}"#),
        ]),
        thinking: Some(true),
        ..request()
    };
    check_body(
        &with_tools,
        expect![[r#"
            {"model":"m-1","stream":true,"think":true,"options":{"num_ctx":4096,"num_predict":1024},"tools":[{"type":"function","function":{"name":"createTodo","description":"Adds a \"todo\".","parameters":{"type":"object"}}},
            {"type":"function","function":{"name":"readTodos","description":"","parameters":{"type":"object"}}}],
            "messages":[{"role":"system","content":"You are \"terse\".\n"},
            {"role":"user","content":"before"},
            {"role":"assistant","content":"Wait.","tool_calls":[{"id":"old","function":{"name":"readTodos","arguments":{}}}]},
            {"role":"tool","content":"none","tool_call_id":"old","tool_name":"readTodos"},
            {"role":"user","content":"hi"},
            {"role":"assistant","tool_calls":[{"id":"1","function":{"name":"readTodos","arguments":{"n":1}}},
            {"id":"2","function":{"name":"createTodo","arguments":{}}}]},
            {"role":"tool","content":"one","tool_call_id":"1","tool_name":"readTodos"},
            {"role":"tool","content":"","tool_call_id":"2","tool_name":"createTodo"}]}"#]],
    );
}

#[test]
fn every_kind_of_message_is_spelt() {
    let call = |id: &str, name: &str, arguments: &str| ToolCall::new(id, name, arguments);
    let text = |text: &str| ContentPart::Text { text: text.into() };
    let picture = || {
        let source = MediaSource::Data { value: "QUJD".into(), mime_type: "image/png".into() };
        ContentPart::Image { source }
    };
    let parts = |parts: Vec<ContentPart>| Message { content: Content::Parts(parts), ..Message::user("") };
    let calls = |calls: Vec<ToolCall>| Message::with_tool_calls("", calls);
    let messages = vec![
        Message::text(Role::Developer, "c"),
        parts(vec![text("see"), picture(), text(""), text("this")]),
        parts(vec![]),
        Message::assistant(""),
        calls(vec![call("1", "look", " {\"at\": [1]} "), call("2", "say \"hi\"", "{")]),
        Message::tool_result("2", "b"),
        Message::tool_result("1", "a"),
        calls(vec![call("3", "none", ""), call("4", "list", "[]"), call("5", "deep", &"[".repeat(1_000))]),
        Message::tool_result("3", ""),
        // The results of an earlier message's call and of an unknown call.
        Message::tool_result("1", "late"),
        Message::tool_result("9", "stray"),
        Message::user("and now?"),
    ];
    let history: Vec<_> = messages.iter().cloned().map(PromptMessage::new).collect();
    let of_prompt = ModelRequest { prompt: Arc::new(Prompt::new(vec![], history)), ..request() };
    let expected = expect![[r#"
        {"model":"m-1","stream":true,"options":{"num_ctx":4096,"num_predict":1024},
        "messages":[{"role":"system","content":"c"},
        {"role":"user","content":"see\nthis","images":["QUJD"]},
        {"role":"user","content":""},
        {"role":"assistant","content":""},
        {"role":"assistant","tool_calls":[{"id":"1","function":{"name":"look","arguments":{"at": [1]}}},
        {"id":"2","function":{"name":"say \"hi\"","arguments":{}}}]},
        {"role":"tool","content":"b","tool_call_id":"2","tool_name":"say \"hi\""},
        {"role":"tool","content":"a","tool_call_id":"1","tool_name":"look"},
        {"role":"assistant","tool_calls":[{"id":"3","function":{"name":"none","arguments":{}}},
        {"id":"4","function":{"name":"list","arguments":{}}},
        {"id":"5","function":{"name":"deep","arguments":{}}}]},
        {"role":"tool","content":"","tool_call_id":"3","tool_name":"none"},
        {"role":"tool","content":"late","tool_call_id":"1"},
        {"role":"tool","content":"stray","tool_call_id":"9"},
        {"role":"user","content":"and now?"}]}"#]];
    check_body(&of_prompt, expected);
    let empty = Arc::new(Prompt::new(vec![], vec![]));
    let appended = ModelRequest { prompt: empty, appended_messages: messages, ..request() };
    let bytes = |request: &ModelRequest| prepared(request).expect("prepared").into_bytes();
    assert_eq!(bytes(&appended), bytes(&of_prompt), "what the run has appended is spelt alike");
}

#[test]
fn the_context_of_a_turn_is_a_text_in_front_of_the_others() {
    let picture = ContentPart::Image {
        source: MediaSource::Data { value: "QUJD".into(), mime_type: "image/png".into() },
    };
    let cache = PartCache::default();
    for (parts, expected) in [
        (vec![picture.clone()], "<context>\nnoon\n</context>"),
        (vec![ContentPart::Text { text: "see".into() }, picture], "<context>\nnoon\n</context>\nsee"),
    ] {
        let message = Message { content: Content::Parts(parts), ..Message::user("") };
        let prompt = assemble(AssemblyInput {
            history_report: None,
            fragments: vec![Fragment::new("time", "test", Stability::Turn, Part::new("noon"))],
            history: vec![PromptMessage::new(message)],
            tools: &[],
            budget: TokenBudget { max_prompt_tokens: 10_000 },
            counter: Arc::new(EstimateCounter),
            retrieval: None,
            cache: &cache,
        });
        let prompt = Arc::new(prompt.expect("it fits"));
        let payload = prepared(&ModelRequest { prompt, ..request() }).expect("prepared");
        let body: Value = serde_json::from_slice(payload.bytes()).expect("the body is JSON");
        assert_eq!(body["messages"][0], json!({"role": "user", "content": expected, "images": ["QUJD"]}));
    }
}

#[test]
fn a_count_by_anthropics_tokenizer_is_converted_for_other_models() {
    /// Counter with the name and the counts of a tokenizer.
    struct Counter(ClaudeTokenizer);
    impl TokenCounter for Counter {
        fn id(&self) -> &'static str {
            self.0.counter_name()
        }
        fn count(&self, text: &str) -> usize {
            self.0.estimate(EstimateCounter.count(text))
        }
    }
    let estimate = |counter: Arc<dyn TokenCounter>| {
        let prompt = assemble(AssemblyInput {
            history_report: None,
            fragments: Vec::new(),
            history: vec![PromptMessage::new(Message::user("So far so good. ".repeat(1000)))],
            tools: &[],
            budget: TokenBudget { max_prompt_tokens: 100_000 },
            counter,
            retrieval: None,
            cache: &PartCache::default(),
        });
        let prompt = Arc::new(prompt.expect("it fits"));
        let payload = prepared(&ModelRequest { prompt, ..request() }).expect("prepared");
        payload.prompt_tokens().expect("a count")
    };
    let expected = estimate(Arc::new(EstimateCounter));
    let estimated = estimate(Arc::new(Counter(ClaudeTokenizer::Present)));
    assert!(expected > 1000 && estimated.abs_diff(expected) < 10, "{estimated}, not {expected}");
}

#[test]
fn the_tool_choice_is_made_by_what_is_offered() {
    let cases = [
        (ToolChoice::Auto, Some(vec!["x", "y"])),
        (ToolChoice::Required, Some(vec!["x", "y"])),
        (ToolChoice::Tool("y".into()), Some(vec!["y"])),
        (ToolChoice::Tool("z".into()), None),
        (ToolChoice::None, None),
    ];
    for (tool_choice, expected) in cases {
        let tools = Arc::new([tool("x", "", "{}"), tool("y", "", "{}")]);
        let payload = prepared(&ModelRequest { tools, tool_choice, ..request() }).expect("prepared");
        let body: Value = serde_json::from_slice(payload.bytes()).expect("the body is JSON");
        let names = body.get("tools").and_then(Value::as_array).map(|tools| {
            tools.iter().filter_map(|tool| tool["function"]["name"].as_str()).collect::<Vec<_>>()
        });
        assert_eq!(names, expected);
        assert_eq!(body.get("tool_choice"), None);
    }
}

#[test]
fn media_without_a_form_are_refused_only_in_the_latest_user_message() {
    let data = |mime_type: &str| MediaSource::Data { value: "QUJD".into(), mime_type: mime_type.into() };
    let url = MediaSource::Url { value: "https://example.com/a.png".into(), mime_type: None };
    let cases = [
        (ContentPart::Image { source: data("image/png") }, true),
        (ContentPart::Image { source: url }, false),
        (ContentPart::Audio { source: data("audio/wav") }, false),
        (ContentPart::Video { source: data("video/mp4") }, false),
        (ContentPart::Document { source: data("application/pdf") }, false),
    ];
    for (part, taken) in cases {
        let message =
            PromptMessage::new(Message { content: Content::Parts(vec![part]), ..Message::user("") });
        let next = PromptMessage::new(Message::user("And now?"));
        let prompt = Arc::new(Prompt::new(Vec::new(), vec![message.clone(), next]));
        let payload = prepared(&ModelRequest { prompt, ..request() }).expect("the latest message is text");
        let body = String::from_utf8_lossy(payload.bytes());
        assert_eq!(body.contains(", not sent]"), !taken, "{body}");
        let prompt = Arc::new(Prompt::new(Vec::new(), vec![message]));
        let prepared = prepared(&ModelRequest { prompt, ..request() });
        let refused = prepared.err().map(|failure| failure.kind());
        assert_eq!(refused, (!taken).then_some(AgentErrorKind::UnsupportedContent));
    }
}

#[test]
fn the_endpoint_is_below_the_base_address_and_the_window_is_the_budget() {
    let cases = [
        ("http://127.0.0.1:11434", Some("http://127.0.0.1:11434/api/chat")),
        ("https://example.com/ollama/", Some("https://example.com/ollama/api/chat")),
        ("mailto:ada@example.com", None),
    ];
    for (base, expected) in cases {
        let base = Url::parse(base).expect("an address");
        let model = Ollama::new(outbound_client(""), &base, UrlTrust::Operator, None, spec("m-1", 2048));
        match (model, expected) {
            (Ok(model), Some(expected)) => {
                assert_eq!(model.endpoint.url.as_str(), expected);
                assert_eq!((model.info().context_window, model.info().max_output_tokens), (2048, 512));
            }
            (Err(failure), None) => assert_eq!(failure.kind(), AgentErrorKind::InvalidRequest),
            (other, _) => panic!("{base}: {:?}", other.map(|model| model.endpoint.url)),
        }
    }
}
