//! Bodies of requests.

use agent_core::budget::TokenBudget;
use agent_core::prompt::{AssemblyInput, PartCache, assemble};
use agent_platform::messages_model::ClaudeTokenizer;

use super::*;
use crate::models::answer_parts::ItemMaker;
use crate::models::prompt_tokens::request_tokens;

fn prepared(model: &ModelSpec, request: &ModelRequest) -> Result<Payload, AgentError> {
    request::prepare(model, request)
}

fn body_of(model: &str, request: &ModelRequest) -> Value {
    body_with(&ModelSpec::new(model), request)
}

fn body_with(model: &ModelSpec, request: &ModelRequest) -> Value {
    let payload = prepared(model, request).expect("prepared");
    serde_json::from_slice(payload.bytes()).expect("the body is JSON")
}

fn check_body(model: &ModelSpec, request: &ModelRequest, expected: Expect) {
    let payload = prepared(model, request).expect("prepared");
    let again = prepared(model, request).expect("prepared");
    assert_eq!(payload.bytes(), again.bytes(), "the bytes are the same with cached blocks");
    let _: Value = serde_json::from_slice(payload.bytes()).expect("the body is JSON");
    let lines = String::from_utf8_lossy(payload.bytes()).replace("},{", "},\n{");
    let lines = lines.replace(",\"messages\"", ",\n\"messages\"").replace(",\"system\"", ",\n\"system\"");
    expected.assert_eq(&lines);
}

fn with_history(system: &[(&str, Stability)], history: Vec<Message>) -> ModelRequest {
    let fragment = |(text, stability): &(&str, Stability)| {
        Fragment::new(format!("{stability:?}"), "test", *stability, Part::new(*text))
    };
    let history = history.into_iter().map(PromptMessage::new).collect();
    let prompt = Prompt::new(system.iter().map(fragment).collect(), history);
    ModelRequest { prompt: Arc::new(prompt), ..request() }
}

/// Returns thinking of the model `m-1`.
fn thinking(signature: &str, text_before: usize, calls_before: usize) -> ProviderItem {
    thinking_of("m-1", signature, text_before, calls_before)
}

fn thinking_of(model: &str, signature: &str, text_before: usize, calls_before: usize) -> ProviderItem {
    let block = json!({"type": "thinking", "thinking": "Hm", "signature": signature});
    ProviderItem { json: ItemMaker::thinking(model).keep(&block).into(), text_before, calls_before }
}

fn item(json: String, text_before: usize, calls_before: usize) -> ProviderItem {
    ProviderItem { json: RawValue::from_string(json).expect("JSON").into(), text_before, calls_before }
}

#[test]
fn a_minimal_request_has_only_the_required_members() {
    check_body(
        &ModelSpec::new("m-1"),
        &request(),
        expect![[r#"
        {"model":"m-1","stream":true,"max_tokens":16384,
        "messages":[{"role":"user","content":[{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}]}]}"#]],
    );
}

#[test]
fn a_body_with_tools_and_what_the_run_has_said_since() {
    let picture = || ContentPart::Image {
        source: MediaSource::Data { value: "QUJD".into(), mime_type: "image/png".into() },
    };
    let remote = ContentPart::Image {
        source: MediaSource::Url { value: "https://example.com/a.png".into(), mime_type: None },
    };
    let document = ContentPart::Document {
        source: MediaSource::Data { value: "QUJD".into(), mime_type: "application/pdf".into() },
    };
    let caption = || ContentPart::Text { text: "What?".into() };
    let parts = |role, parts| Message { content: Content::Parts(parts), ..Message::text(role, "") };
    let history = vec![
        Message::assistant("Welcome."),
        Message::text(Role::Developer, "of the page"),
        parts(Role::User, vec![caption(), picture(), remote, document]),
        Message::with_tool_calls("Wait.", vec![ToolCall::new("an id", "a.tool", "")]),
        Message { tool_call_id: Some("an id".into()), ..parts(Role::Tool, vec![caption(), picture()]) },
        Message::assistant(" "),
        Message::user("hi"),
    ];
    let calls = vec![ToolCall::new("1", "readTodos", "{\"n\":1}"), ToolCall::new("2", "createTodo", "{")];
    let answer = Message {
        provider_items: vec![
            thinking("s1", 0, 0),
            item(r#"{"type":"reasoning","encrypted_content":"x"}"#.to_owned(), 2, 0),
            thinking("s2", 5, 1),
        ],
        ..Message::with_tool_calls("One, two", calls)
    };
    let schema = r#"{"type":"object","properties":{"title":{"type":"string"}}}"#;
    let system = [("You are \"terse\".\n", Stability::Role), ("It is noon.", Stability::Turn)];
    let request = ModelRequest {
        appended_messages: vec![answer, Message::tool_result("1", "one"), Message::tool_result("2", "")],
        tools: Arc::new([
            tool("a.tool", "", r#"{"type":"object"}"#),
            tool("createTodo", "Adds a \"todo\".", schema),
        ]),
        ..with_history(&system, history)
    };
    let limited = ModelLimits { max_output_tokens: 7, ..ModelLimits::default() };
    check_body(
        &ModelSpec::new("m-1").with_limits(limited),
        &request,
        expect![[r#"
        {"model":"m-1","stream":true,"max_tokens":7,"tools":[{"name":"t_afe0f0996e87","description":"","input_schema":{"type":"object"}},
        {"name":"createTodo","description":"Adds a \"todo\".","input_schema":{"type":"object","properties":{"title":{"type":"string"}}}}],"tool_choice":{"type":"auto"},
        "system":[{"type":"text","text":"You are \"terse\".\n","cache_control":{"type":"ephemeral"}},
        {"type":"text","text":"\n\nIt is noon.","cache_control":{"type":"ephemeral"}}],
        "messages":[{"role":"user","content":[{"type":"text","text":"(The conversation begins with your message.)"}]},
        {"role":"assistant","content":[{"type":"text","text":"Welcome."}]},
        {"role":"user","content":[{"type":"text","text":"of the page"},
        {"type":"text","text":"What?"},
        {"type":"image","source":{"type":"base64","media_type":"image/png","data":"QUJD"}},
        {"type":"image","source":{"type":"url","url":"https://example.com/a.png"}},
        {"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"QUJD"}}]},
        {"role":"assistant","content":[{"type":"text","text":"Wait."},
        {"type":"tool_use","id":"c_5e92a53cfa80609c","name":"t_afe0f0996e87","input":{}}]},
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"c_5e92a53cfa80609c","content":[{"type":"text","text":"What?"},
        {"type":"image","source":{"type":"base64","media_type":"image/png","data":"QUJD"}}],"cache_control":{"type":"ephemeral"}},
        {"type":"text","text":"hi"}]},
        {"role":"assistant","content":[{"type":"thinking","thinking":"Hm","signature":"s1"},
        {"type":"text","text":"One, "},
        {"type":"tool_use","id":"1","name":"readTodos","input":{"n":1}},
        {"type":"thinking","thinking":"Hm","signature":"s2"},
        {"type":"text","text":"two"},
        {"type":"tool_use","id":"2","name":"createTodo","input":{}}]},
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"one"}]},
        {"type":"tool_result","tool_use_id":"2","cache_control":{"type":"ephemeral"}}]}]}"#]],
    );
}

/// Returns the paths of the breakpoints in a body.
fn breakpoints(value: &Value, path: &str) -> Vec<String> {
    let inner: Vec<(String, &Value)> = match value {
        Value::Array(items) => {
            items.iter().enumerate().map(|(i, item)| (format!("{path}/{i}"), item)).collect()
        }
        Value::Object(members) => {
            members.iter().map(|(name, item)| (format!("{path}/{name}"), item)).collect()
        }
        _ => Vec::new(),
    };
    let own_path = value.get("cache_control").map(|_| path.to_owned());
    own_path.into_iter().chain(inner.into_iter().flat_map(|(path, item)| breakpoints(item, &path))).collect()
}

#[test]
fn breakpoints_end_what_later_requests_repeat() {
    let tools: Arc<[_]> =
        Arc::new([tool("a", "", r#"{"type":"object"}"#), tool("b", "", r#"{"type":"object"}"#)]);
    let stable = ("Be brief.", Stability::Role);
    let turn = ("It is noon.", Stability::Turn);
    let latest = || Message::user("now");
    let earlier = || vec![Message::user("one"), Message::assistant("two"), Message::user("now")];
    for (system, history, expected) in [
        (vec![], vec![latest()], vec!["/messages/0/content/0", "/tools/1"]),
        (vec![stable], vec![latest()], vec!["/messages/0/content/0", "/system/0"]),
        (vec![stable, turn], vec![latest()], vec!["/messages/0/content/0", "/system/0", "/system/1"]),
        (
            vec![stable, turn],
            earlier(),
            vec!["/messages/1/content/0", "/messages/2/content/0", "/system/0", "/system/1"],
        ),
    ] {
        let request = ModelRequest { tools: tools.clone(), ..with_history(&system, history) };
        let mut breakpoint_paths = breakpoints(&body_of("m-1", &request), "");
        breakpoint_paths.sort();
        assert_eq!(breakpoint_paths, expected);
    }
    // Thinking takes none.
    let answer = Message { provider_items: vec![thinking("s", 1, 0)], ..Message::assistant("a") };
    let request = ModelRequest { appended_messages: vec![answer], ..with_history(&[], vec![latest()]) };
    assert_eq!(breakpoints(&body_of("m-1", &request), ""), Vec::<String>::new());
}

#[test]
fn a_rounds_request_begins_with_the_earlier_one() {
    let first = ModelRequest {
        tools: Arc::new([tool("x", "", r#"{"type":"object"}"#)]),
        ..with_history(&[("Be brief.", Stability::Role)], vec![Message::user("one")])
    };
    let calls = vec![ToolCall::new("1", "x", "{}")];
    let appended = vec![Message::with_tool_calls("", calls), Message::tool_result("1", "done")];
    let second = ModelRequest { appended_messages: appended, ..first.clone() };
    let unmarked = |request: &ModelRequest| {
        let payload = prepared(&ModelSpec::new("m-1"), request).expect("prepared");
        String::from_utf8_lossy(payload.bytes()).replace(messages::CACHE_BREAKPOINT, "")
    };
    let begun = unmarked(&first);
    let begun = begun.strip_suffix("]}]}").expect("the end of the messages");
    assert!(unmarked(&second).starts_with(begun), "{begun}");
}

#[test]
fn thinking_is_asked_for_in_the_form_that_the_model_takes() {
    let forced = ToolChoice::Required;
    let budget = |tokens: u32| json!({"type": "enabled", "budget_tokens": tokens});
    let (adaptive, disabled) =
        (json!({"type": "adaptive", "display": "summarized"}), json!({"type": "disabled"}));
    for (model, thinking, level, choice, expected, effort) in [
        ("claude-haiku-4-5", None, None, ToolChoice::Auto, Value::Null, Value::Null),
        ("claude-haiku-4-5", Some(true), None, ToolChoice::Auto, budget(8192), Value::Null),
        ("claude-haiku-4-5", None, Some("low"), ToolChoice::Auto, budget(2048), Value::Null),
        ("claude-haiku-4-5", Some(false), Some("low"), ToolChoice::Auto, Value::Null, Value::Null),
        ("claude-haiku-4-5", Some(true), None, forced.clone(), Value::Null, Value::Null),
        ("claude-3-haiku", Some(true), None, ToolChoice::Auto, Value::Null, Value::Null),
        ("claude-opus-5", None, None, ToolChoice::Auto, Value::Null, Value::Null),
        ("claude-opus-5", Some(true), None, ToolChoice::Auto, adaptive.clone(), Value::Null),
        ("claude-opus-5", None, Some("max"), ToolChoice::Auto, adaptive.clone(), json!("max")),
        ("claude-opus-5", Some(false), None, ToolChoice::Auto, disabled.clone(), Value::Null),
        ("claude-opus-5", Some(true), None, forced.clone(), disabled.clone(), Value::Null),
        ("claude-opus-5", Some(true), Some("max"), forced.clone(), disabled, json!("high")),
        ("claude-opus-4-8", None, None, ToolChoice::Auto, Value::Null, Value::Null),
        ("claude-opus-4-8", Some(true), None, ToolChoice::Auto, adaptive.clone(), Value::Null),
        // Models that cannot stop to think do so at the lowest level, and take no forced call.
        ("claude-fable-5", Some(false), None, ToolChoice::Auto, Value::Null, json!("low")),
        ("claude-fable-5", Some(true), None, ToolChoice::Auto, adaptive.clone(), Value::Null),
        ("claude-opus-5-5", Some(false), None, ToolChoice::Auto, Value::Null, json!("low")),
        ("claude-opus-5-5", Some(false), Some("high"), ToolChoice::Auto, Value::Null, json!("high")),
        ("claude-opus-5-5", Some(true), None, forced.clone(), adaptive, Value::Null),
        ("claude-opus-5-5", None, None, forced, Value::Null, Value::Null),
        (
            "claude-sonnet-5-5",
            Some(false),
            None,
            ToolChoice::Auto,
            json!({"type": "between_tools"}),
            Value::Null,
        ),
    ] {
        let request = ModelRequest {
            thinking,
            tool_choice: choice,
            tools: Arc::new([tool("x", "", r#"{"type":"object"}"#)]),
            ..request()
        };
        let body = body_with(&ModelSpec::new(model).with_reasoning_effort(level), &request);
        assert_eq!(body["thinking"], expected, "{model} {thinking:?} {level:?}");
        assert_eq!(body["output_config"]["effort"], effort, "{model} {level:?}");
    }
    // The budget leaves room for the answer.
    let limited = ModelLimits { max_output_tokens: 3000, ..ModelLimits::default() };
    let spec = ModelSpec::new("claude-haiku-4-5").with_limits(limited);
    let with_thinking = ModelRequest { thinking: Some(true), ..request() };
    assert_eq!(body_with(&spec, &with_thinking)["thinking"], budget(1500));
    let small = ModelLimits { max_output_tokens: 2000, ..ModelLimits::default() };
    assert_eq!(body_with(&spec.with_limits(small), &with_thinking)["thinking"], Value::Null);
}

#[test]
fn a_turn_that_called_tools_without_thinking_continues_without() {
    let calls = |items| Message {
        provider_items: items,
        ..Message::with_tool_calls("", vec![ToolCall::new("1", "x", "{}")])
    };
    let result = || Message::tool_result("1", "done");
    let is_asked = |request: &ModelRequest| body_of("claude-haiku-4-5", request)["thinking"] != Value::Null;
    let of_run = |messages: Vec<Message>| ModelRequest {
        thinking: Some(true),
        appended_messages: messages,
        ..with_history(&[], vec![calls(vec![]), result(), Message::user("now")])
    };
    assert!(is_asked(&of_run(vec![])), "an earlier turn does not count");
    let own = || thinking_of("claude-haiku-4-5", "s", 0, 0);
    assert!(is_asked(&of_run(vec![calls(vec![own()]), result()])));
    assert!(!is_asked(&of_run(vec![calls(vec![thinking("s", 0, 0)]), result()])), "another model's");
    // The model thinks once in a turn.
    let later = vec![calls(vec![own()]), result(), calls(vec![]), result()];
    assert!(is_asked(&of_run(later)));
    assert!(!is_asked(&of_run(vec![calls(vec![]), result()])));
    // A run that continues after an approval has the calls in its history.
    let history = vec![Message::user("now"), calls(vec![]), result()];
    let resumed = ModelRequest { thinking: Some(true), ..with_history(&[], history) };
    assert!(!is_asked(&resumed));
}

#[test]
fn a_prompt_counted_for_another_model_is_estimated_again() {
    let tokens = |limits: ModelLimits| {
        let spec = ModelSpec::new("claude-opus-5").with_limits(limits);
        let answered = vec![Message::assistant("One moment."), Message::user("Thanks.")];
        let request = ModelRequest { appended_messages: answered, ..request() };
        prepared(&spec, &request).expect("prepared").prompt_tokens().expect("a count")
    };
    let plain = tokens(ModelLimits::default());
    let limits = ModelLimits { counter: Some(Arc::new(EstimateCounter)), ..ModelLimits::default() };
    assert_eq!(tokens(limits), (plain * 153).div_ceil(100));
}

#[test]
fn the_estimate_is_independent_of_the_prompts_counter() {
    let counted_by = |counter: Arc<dyn TokenCounter>| {
        let prompt = assemble(AssemblyInput {
            fragments: Vec::new(),
            history: vec![PromptMessage::new(Message::user("So far so good. ".repeat(1000)))],
            tools: &[],
            budget: TokenBudget { max_prompt_tokens: 100_000 },
            counter,
            retrieval: None,
            cache: &PartCache::default(),
            history_report: None,
        });
        ModelRequest { prompt: Arc::new(prompt.expect("it fits")), ..request() }
    };
    let tokens = |model: &str, request: &ModelRequest| {
        let limits = ModelLimits { counter: Some(Arc::new(EstimateCounter)), ..ModelLimits::default() };
        let spec = ModelSpec::new(model).with_limits(limits);
        prepared(&spec, request).expect("prepared").prompt_tokens().expect("a count")
    };
    let plain = counted_by(Arc::new(EstimateCounter));
    assert!(plain.prompt.tokens().messages > 1000);
    for tokenizer in [ClaudeTokenizer::Earlier, ClaudeTokenizer::Present] {
        let counted = counted_by(Arc::new(ClaudeCounter::new(tokenizer, Arc::new(EstimateCounter))));
        let estimates = ["claude-haiku-4-5", "claude-opus-5", "house-model"]
            .map(|model| (tokens(model, &counted), tokens(model, &plain)));
        // As the models of other APIs are estimated.
        let others = (request_tokens(&counted, &[]), request_tokens(&plain, &[]));
        for (estimate, expected) in estimates.into_iter().chain([others]) {
            assert!(estimate.abs_diff(expected) < 10, "{tokenizer:?}: {estimate}, not {expected}");
        }
    }
}

#[test]
fn a_model_gets_no_thinking_of_another_one() {
    let answer = |item: ProviderItem| Message {
        provider_items: vec![item],
        ..Message::with_tool_calls("One", vec![ToolCall::new("1", "x", "{}")])
    };
    let named = || thinking_of("claude-opus-5", "s", 0, 0);
    let nameless = || item(r#"{"type":"thinking","thinking":"Hm","signature":"s"}"#.to_owned(), 0, 0);
    for (model, item, expected) in [
        ("claude-opus-5", named(), &["thinking", "text", "tool_use"][..]),
        ("claude-sonnet-5", named(), &["text", "tool_use"]),
        ("claude-opus-5", nameless(), &["text", "tool_use"]),
    ] {
        let (answered, result) = (answer(item), Message::tool_result("1", "done"));
        let history = vec![Message::user("now"), answered.clone(), result.clone()];
        let appended = ModelRequest { appended_messages: vec![answered, result], ..request() };
        for request in [appended, with_history(&[], history)] {
            let body = body_of(model, &request);
            let blocks = body["messages"][1]["content"].as_array().expect("blocks");
            let kinds: Vec<&str> = blocks.iter().filter_map(|block| block["type"].as_str()).collect();
            assert_eq!(kinds, expected, "{model}: {body}");
        }
    }
}

#[test]
fn tool_choices_are_sent_in_the_vendors_form() {
    for (choice, expected) in [
        (ToolChoice::Auto, json!({"type": "auto"})),
        (ToolChoice::Required, json!({"type": "any"})),
        (ToolChoice::None, json!({"type": "none"})),
        (ToolChoice::Tool("a.tool".into()), json!({"type": "tool", "name": "t_afe0f0996e87"})),
        (ToolChoice::Tool("another".into()), json!({"type": "none"})),
    ] {
        let tools: Arc<[_]> = Arc::new([tool("a.tool", "", r#"{"type":"object"}"#)]);
        let request = ModelRequest { tools, tool_choice: choice, ..request() };
        let body = body_of("m-1", &request);
        assert_eq!(body["tool_choice"], expected);
        assert_eq!(body["tools"][0]["name"], "t_afe0f0996e87");
    }
    for choice in [ToolChoice::Required, ToolChoice::Tool("a.tool".into())] {
        let tools: Arc<[_]> = Arc::new([tool("a.tool", "", r#"{"type":"object"}"#)]);
        let request = ModelRequest { tools, tool_choice: choice, ..request() };
        let body = body_of("claude-opus-5-5", &request);
        assert_eq!(body["tool_choice"], json!({"type": "auto"}), "the model rejects a forced call");
    }
    let untooled = ModelRequest { tool_choice: ToolChoice::Required, ..request() };
    assert_eq!(body_of("m-1", &untooled).get("tool_choice"), None);
}

#[test]
fn a_conversation_with_calls_defines_their_tools_though_none_is_offered() {
    let call = |id: &str, name: &str| Message::with_tool_calls("", vec![ToolCall::new(id, name, "{}")]);
    let mut history = vec![Message::user("one")];
    for (id, name) in [("1", "a.tool"), ("2", "b"), ("3", "b")] {
        history.extend([call(id, name), Message::tool_result(id, "done")]);
    }
    history.extend([Message::assistant("Done."), Message::user("now")]);
    let untooled = ModelRequest { tool_choice: ToolChoice::Required, ..with_history(&[], history) };
    let body = body_of("m-1", &untooled);
    let definition = |name: &str| json!({"name": name, "description": "Not available any more.", "input_schema": {"type": "object"}});
    assert_eq!(body["tools"], json!([definition("t_afe0f0996e87"), definition("b")]));
    assert_eq!(body["tool_choice"], json!({"type": "none"}));
    // The call of a tool that was never offered, in a run without tools.
    let appended_messages = vec![call("1", "x"), Message::tool_result("1", "There is no such tool.")];
    let invented = ModelRequest { appended_messages, ..request() };
    assert_eq!(body_of("m-1", &invented)["tools"], json!([definition("x")]));
    assert_eq!(body_of("m-1", &request()).get("tools"), None);
}

#[test]
fn content_without_a_form_is_refused_only_in_the_latest_user_message() {
    let data = |mime_type: &str| MediaSource::Data { value: "QUJD".into(), mime_type: mime_type.into() };
    for (role, part, is_accepted) in [
        (Role::User, ContentPart::Image { source: data("image/webp") }, true),
        (Role::Tool, ContentPart::Image { source: data("image/png") }, true),
        (Role::Assistant, ContentPart::Image { source: data("image/png") }, false),
        (Role::User, ContentPart::Image { source: data("image/svg+xml") }, false),
        (Role::User, ContentPart::Document { source: data("application/pdf") }, true),
        (Role::User, ContentPart::Document { source: data("text/csv") }, false),
        (Role::User, ContentPart::Audio { source: data("audio/wav") }, false),
        (Role::User, ContentPart::Video { source: data("video/mp4") }, false),
    ] {
        let message = Message { content: Content::Parts(vec![part]), ..Message::text(role, "") };
        let latest = prepared(&ModelSpec::new("m-1"), &with_history(&[], vec![message.clone()]));
        let is_refused = role == Role::User && !is_accepted;
        let refused = latest.err().map(|error| error.kind());
        assert_eq!(refused, is_refused.then_some(AgentErrorKind::UnsupportedContent));
        let earlier = with_history(&[], vec![message.clone(), Message::user("And now?")]);
        let appended = ModelRequest { appended_messages: vec![message], ..request() };
        for request in [earlier, appended] {
            let body = body_of("m-1", &request).to_string();
            assert_eq!(body.contains(", not sent]"), !is_accepted, "{body}");
        }
    }
}

#[test]
fn choices_at_the_top_of_a_schema_are_left_out() {
    let schema = r#"{"properties":{"a":{"anyOf":[{"type":"string"},{"type":"null"}]}},"oneOf":[{"required":["a"]},{}]}"#;
    let nested = r#"{"type":"object","properties":{"a":{"anyOf":[{"type":"string"},{"type":"null"}]}}}"#;
    let tools = vec![tool("x", "", schema), tool("y", "", nested)];
    let body = body_of("m-1", &ModelRequest { tools: tools.into(), ..request() });
    let expected: Value = serde_json::from_str(nested).expect("JSON");
    assert_eq!(
        (&body["tools"][0]["input_schema"], &body["tools"][1]["input_schema"]),
        (&expected, &expected)
    );
}
