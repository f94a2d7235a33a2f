//! Tests of features that a server has or lacks, which the adapter learns from its errors.

use super::*;

#[tokio::test]
async fn the_window_is_learned_from_the_error_of_the_server() {
    let answer = chunked_response("400 Bad Request", JSON, OVERFLOW.as_bytes(), 64, true);
    let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
    let limits = ModelLimits::default();
    let of_limits = |limits| {
        let spec = ModelSpec::new("m-1").with_limits(limits).at(PROVIDER, server.url.as_str());
        OpenAi { model: spec.into(), ..model(&server) }
    };
    let (one, same) = (of_limits(limits.clone()), of_limits(limits));
    assert_eq!(one.info().context_window, 128_000);
    let payload = one.prepare(&request()).expect("prepared");
    let failure = one.start(payload).await.err().expect("refused");
    assert_eq!(failure.kind(), AgentErrorKind::ContextExceeded);
    let sizes = ContextSize { window: Some(4_096), prompt: Some(5_021) };
    assert_eq!(ContextSize::of(&failure), sizes);
    let shown = format!("{failure:?}");
    assert!(shown.contains("exceed_context_size_error") && !shown.contains("sk-1"), "{shown}");
    for model in [&one, &same] {
        assert!(model.info().context_window <= 4_096, "{:?}", model.info());
    }
    let spec = ModelSpec::clone(&one.model).at(PROVIDER, "http://other.example/");
    let another = OpenAi { model: spec.into(), ..one };
    assert_eq!(another.info().context_window, 128_000);
}

/// Returns the items that a model's answer gives for later requests.
async fn provider_items(model: &OpenAi) -> Vec<ProviderItem> {
    let payload = model.prepare(&request()).expect("prepared");
    let events: Vec<_> = model.start(payload).await.expect("an answer").collect().await;
    let items = events.into_iter().filter_map(|event| match event {
        Ok(ModelEvent::ProviderItem(item)) => Some(item),
        _ => None,
    });
    items.collect()
}

#[tokio::test]
async fn reasoning_of_calls_goes_back_to_models_that_require_it() {
    let call = r#"{"index":0,"id":"c1","function":{"name":"x","arguments":"{}"}}"#;
    let parts = [
        delta(r#"{"reasoning_content":"Hm"}"#),
        delta(r#"{"reasoning_content":", \"so\""}"#),
        calls(call),
        finish("tool_calls"),
        DONE.into(),
    ];
    let answer = chunked_response("200 OK", SSE, sse(&parts).as_bytes(), 4096, true);
    let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
    let named = |name: &str| {
        OpenAi::new(outbound_client("127.0.0.1"), &server.url, UrlTrust::Supplied, None, name)
            .expect("a model")
    };
    let later_reasoning = |model: &OpenAi, items: &[ProviderItem]| {
        let answer = Message::with_tool_calls("", vec![ToolCall::new("c1", "x", "{}")]);
        let answer = Message { provider_items: items.to_vec(), ..answer };
        let appended_messages = vec![answer, Message::tool_result("c1", "ok")];
        let payload = model.prepare(&ModelRequest { appended_messages, ..request() }).expect("prepared");
        let body: Value = serde_json::from_slice(payload.bytes()).expect("the body is JSON");
        assert_eq!(body["messages"].as_array().map(Vec::len), Some(3), "{body}");
        body["messages"][1]["reasoning_content"].clone()
    };
    for (name, expected, of_others) in [
        ("deepseek-v4-pro", json!("Hm, \"so\""), json!("I call x.")),
        ("moonshotai/Kimi-K2", json!("Hm, \"so\""), json!("I call x.")),
        ("m-1", Value::Null, Value::Null),
    ] {
        let model = named(name);
        let items = provider_items(&model).await;
        assert_eq!(later_reasoning(&model, &items), expected, "{name}");
        // Calls of former turns have none, and the item of one model is not sent to another.
        assert_eq!(later_reasoning(&model, &[]), of_others, "{name}");
        let other = later_reasoning(&named("deepseek-v3"), &items);
        assert_eq!(other, "I call x.", "{name}");
    }
}

/// Google's models refuse their own calls without these signatures. The vendor signs the first of several calls.
#[tokio::test]
async fn signatures_of_calls_go_back_to_the_model_that_made_them() {
    let signed = r#"{"index":0,"id":"c1","type":"function","function":{"name":"x","arguments":"{\"a\":\"]}\"}"},"extra_content":{"google":{"thought_signature":"s/1=="}}}"#;
    let unsigned = r#"{"index":1,"id":"c2","type":"function","function":{"name":"y","arguments":"{}"}}"#;
    let stray = r#"{"extra_content":{"google":{"thought_signature":"of no call"}}}"#;
    let parts = [calls(stray), calls(&format!("{signed},{unsigned}")), finish("stop"), DONE.into()];
    let answer = chunked_response("200 OK", SSE, sse(&parts).as_bytes(), 4096, true);
    let refused = json!({"error": {"message": "Unrecognized request argument supplied: extra_content"}});
    let refused = chunked_response("400 Bad Request", JSON, refused.to_string().as_bytes(), 4096, true);
    let respond = move |request: &str| match request.contains("extra_content") {
        true => refused.clone(),
        false => answer.clone(),
    };
    let server = LoopbackServer::respond_by(respond, AfterResponse::Close).await;
    let at = |base: &Url, name: &str| {
        OpenAi::new(outbound_client("127.0.0.1"), base, UrlTrust::Supplied, None, name).expect("a model")
    };
    let model = at(&server.url, "gemini-3-pro");
    let items = provider_items(&model).await;
    let called = vec![ToolCall::new("c1", "x", r#"{"a":"]}"}"#), ToolCall::new("c2", "y", "{}")];
    let continued = |items: &[ProviderItem]| {
        let answer =
            Message { provider_items: items.to_vec(), ..Message::with_tool_calls("Hm.", called.clone()) };
        let results = [Message::tool_result("c1", "ok"), Message::tool_result("c2", "ok")];
        ModelRequest { appended_messages: [answer].into_iter().chain(results).collect(), ..request() }
    };
    let sent_calls = |model: &OpenAi, items: &[ProviderItem]| {
        let payload = model.prepare(&continued(items)).expect("prepared");
        let body: Value = serde_json::from_slice(payload.bytes()).expect("the body is JSON");
        assert_eq!(body["messages"].as_array().map(Vec::len), Some(4), "{body}");
        assert_eq!(body["messages"][1]["content"], "Hm.");
        body["messages"][1]["tool_calls"].clone()
    };
    let plain = serde_json::to_value(&called).expect("calls");
    let with_signature = |signature: &str| {
        let mut calls = plain.clone();
        calls[0]["extra_content"] = json!({"google": {"thought_signature": signature}});
        calls
    };
    let google = Url::parse("https://generativelanguage.googleapis.com/v1beta/openai/").expect("an address");
    for (base, name, of_own, of_others) in [
        (&server.url, "gemini-3-pro", with_signature("s/1=="), plain.clone()),
        (&server.url, "m-1", plain.clone(), plain.clone()),
        (
            &google,
            "gemini-3-pro",
            with_signature("s/1=="),
            with_signature("skip_thought_signature_validator"),
        ),
        (&google, "gemini-2.5-flash", plain.clone(), plain.clone()),
    ] {
        let model = at(base, name);
        assert_eq!(sent_calls(&model, &items), of_own, "{base} {name}");
        assert_eq!(sent_calls(&model, &[]), of_others, "{base} {name}");
    }
    // A third-party server that refuses the member is sent the request without it.
    let lines = answer_to(&model, &continued(&items)).await;
    assert!(lines[0].contains("parameterRefused") && lines.contains(&"call 1 c2 y".to_owned()), "{lines:?}");
    assert_eq!(sent_calls(&model, &items), plain);
}

/// Third-party servers run the same models, and refuse members that they do not know.
#[tokio::test]
async fn reasoning_that_the_server_does_not_have_is_left_out_from_then_on() {
    const NAME: &str = "moonshotai/kimi-k2-instruct";
    let of_groq = json!({"error": {"message": "'messages.1' : for 'role:assistant' the following must be satisfied[('messages.1' : property 'reasoning_content' is unsupported)]",
        "type": "invalid_request_error"}});
    let of_cerebras = json!({"message": "messages.1.assistant.reasoning_content: property 'messages.1.assistant.reasoning_content' is unsupported",
        "type": "invalid_request_error", "param": "validation_error", "code": "wrong_api_format"});
    let missing = json!({"error": {"message": "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1"}});
    let reasoning = "so \"}\", \\".to_owned();
    let kept = ProviderItem {
        json: ItemMaker::reasoning(NAME).keep(&reasoning).into(),
        text_before: 0,
        calls_before: 0,
    };
    let calling = |call: &str| Message::with_tool_calls("", vec![ToolCall::new(call, "x", "{}")]);
    let appended_messages = vec![
        calling("c1"),
        Message::tool_result("c1", r#"{"a":1,"reasoning_content":"of the tool"}"#),
        Message { provider_items: vec![kept], ..calling("c2") },
        Message::tool_result("c2", "ok"),
    ];
    let asked = ModelRequest { appended_messages, ..request() };
    for (error, refused_members) in [
        (of_groq.clone(), vec![r#","reasoning_content":""#]),
        (of_cerebras, vec![r#","reasoning_content":""#]),
        (of_groq, vec![r#","reasoning_content":""#, r#","stream_options":"#]),
        (missing, vec![]),
    ] {
        let refused = |error: &Value| {
            chunked_response("400 Bad Request", JSON, error.to_string().as_bytes(), 4096, true)
        };
        let of_options = refused(&json!({"error": {"message": "Unknown parameter: 'stream_options'."}}));
        let (refused, refuses_options) = (refused(&error), refused_members.len() > 1);
        let body = sse(&[text("a"), finish("stop"), DONE.into()]);
        let answer = chunked_response("200 OK", SSE, body.as_bytes(), 4096, true);
        let respond = move |request: &str| {
            if refuses_options && request.contains("stream_options") {
                return of_options.clone();
            }
            let has_reasoning = request.contains(r#","reasoning_content":""#);
            if has_reasoning { refused.clone() } else { answer.clone() }
        };
        let server = LoopbackServer::respond_by(respond, AfterResponse::Close).await;
        let model = OpenAi::new(outbound_client("127.0.0.1"), &server.url, UrlTrust::Supplied, None, NAME);
        let model = model.expect("a model");
        let lines = answer_to(&model, &asked).await;
        let later = model.prepare(&asked).expect("prepared");
        let refusals = refused_members.len();
        if refusals == 0 {
            assert!(lines.len() == 1 && lines[0].starts_with("refused"), "{lines:?}");
            assert_eq!(server.requests().len(), 1);
            continue;
        }
        let notices = &lines[..refusals];
        let is_notice = |line: &String| line.contains("parameterRefused") && line.contains(&later.sha256());
        assert!(notices.iter().all(is_notice), "{lines:?}");
        assert_eq!(lines[refusals..], ["text a", "finish Stop"], "{error}");
        let sent = String::from_utf8_lossy(later.bytes());
        assert!(refused_members.iter().all(|member| !sent.contains(member)), "{sent}");
        assert_eq!(answer_to(&model, &asked).await, ["text a", "finish Stop"]);
        assert_eq!(server.requests().len(), refusals + 2);
    }
}

#[tokio::test]
async fn stream_options_that_the_server_does_not_have_are_left_out_from_then_on() {
    let of_mistral = json!({"object": "error", "message": {"detail": [{"type": "extra_forbidden",
        "loc": ["body", "stream_options", "include_usage"], "msg": "Extra inputs are not permitted", "input": true}]}});
    let of_groq = json!({"error": {"message": "property 'stream_options' is unsupported, did you mean 'stream'?",
        "type": "invalid_request_error"}});
    let elsewhere = json!({"error": {"message": "Unknown parameter: 'tools'."}});
    for (status, error, is_repeated) in [
        ("422 Unprocessable Entity", of_mistral, true),
        ("400 Bad Request", of_groq, true),
        ("400 Bad Request", elsewhere, false),
    ] {
        let refused = chunked_response(status, JSON, error.to_string().as_bytes(), 4096, true);
        let body = sse(&[text("a"), finish("stop"), DONE.into()]);
        let answer = chunked_response("200 OK", SSE, body.as_bytes(), 4096, true);
        let respond = move |request: &str| match request.contains("stream_options") {
            true => refused.clone(),
            false => answer.clone(),
        };
        let server = LoopbackServer::respond_by(respond, AfterResponse::Close).await;
        let model = model(&server);
        let lines = answer_of(&model).await;
        if !is_repeated {
            assert_eq!((lines, server.requests().len()), (vec!["refused Failed".to_owned()], 1));
            continue;
        }
        let later = model.prepare(&request()).expect("prepared").sha256();
        assert!(lines[0].contains("parameterRefused") && lines[0].contains(&later), "{lines:?}");
        assert_eq!(lines[1..], ["text a", "finish Stop"], "{error}");
        assert_eq!(answer_of(&model).await, ["text a", "finish Stop"]);
        assert_eq!(server.requests().len(), 3);
    }
}

/// OpenAI's newer models, also at other addresses.
#[tokio::test]
async fn members_that_newer_models_refuse_are_replaced_from_then_on() {
    let limit = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.";
    let effort = "Function tools with reasoning_effort are not supported for gpt-5.6 in /v1/chat/completions. To use function tools, use /v1/responses or set reasoning_effort to 'none'.";
    let refusal = |message: &str| {
        let body = json!({"error": {"message": message, "type": "invalid_request_error"}}).to_string();
        chunked_response("400 Bad Request", JSON, body.as_bytes(), 4096, true)
    };
    let (limit, effort) = (refusal(limit), refusal(effort));
    let body = sse(&[text("a"), finish("stop"), DONE.into()]);
    let answer = chunked_response("200 OK", SSE, body.as_bytes(), 4096, true);
    let respond = move |request: &str| match request {
        _ if request.contains(r#","max_tokens":16384"#) => limit.clone(),
        _ if request.contains(r#","tools":["#) && !request.contains(r#","reasoning_effort":"none""#) => {
            effort.clone()
        }
        _ => answer.clone(),
    };
    let schema = r#"{"type":"object","properties":{"a":{},"max_tokens":{}}}"#;
    let with_tools = ModelRequest { tools: Arc::new([tool("x", "X.", schema)]), ..request() };
    for level in [None, Some("high")] {
        let server = LoopbackServer::respond_by(respond.clone(), AfterResponse::Close).await;
        let spec = ModelSpec::new("gpt-5.6").with_reasoning_effort(level);
        let model = OpenAi::new(outbound_client("127.0.0.1"), &server.url, UrlTrust::Supplied, None, spec)
            .expect("a model");
        let lines = answer_to(&model, &with_tools).await;
        let later = model.prepare(&with_tools).expect("prepared");
        assert!(lines[0].contains("max_tokens") && lines[1].contains("reasoning_effort"), "{lines:?}");
        assert!(lines[..2].iter().all(|line| line.contains(&later.sha256())), "{lines:?}");
        assert_eq!(lines[2..], ["text a", "finish Stop"]);
        assert_eq!(answer_to(&model, &with_tools).await, ["text a", "finish Stop"]);
        assert_eq!(server.requests().len(), 4);
        let sent: Value = serde_json::from_slice(later.bytes()).expect("the body is JSON");
        assert_eq!(
            (&sent["max_completion_tokens"], &sent["reasoning_effort"], &sent["max_tokens"]),
            (&json!(16_384), &json!("none"), &Value::Null)
        );
        assert_eq!(sent["tools"][0]["function"]["parameters"]["properties"]["max_tokens"], json!({}));
        // Without tools, the model reasons at its level.
        let sent = model.prepare(&request()).expect("prepared");
        let sent: Value = serde_json::from_slice(sent.bytes()).expect("the body is JSON");
        assert_eq!(sent.get("reasoning_effort").and_then(Value::as_str), level);
    }
}

/// Gateways begin a response before the model's server has rejected the prompt.
#[tokio::test]
async fn the_window_is_learned_from_an_error_inside_an_answer() {
    let body = format!(": PROCESSING\n\n{}", sse(&[OVERFLOW]));
    let answer = chunked_response("200 OK", SSE, body.as_bytes(), 64, true);
    let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
    let model = model(&server);
    assert_eq!(model.info().context_window, 128_000);
    assert_eq!(answer_of(&model).await, ["fails ContextExceeded"]);
    assert!(model.info().context_window <= 4_096, "{:?}", model.info());
}
