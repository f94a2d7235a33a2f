//! Tests of the public `Model` implementation with real weights. They assert properties of the events,
//! independent of the generated text.

use std::path::PathBuf;
use std::sync::Arc;

use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::message::{Content, ContentPart, FinishReason, MediaSource, Message, Role, ToolCall, Usage};
use agent_core::model::{Model, ModelEvent, ModelRequest};
use agent_core::prompt::{Fragment, Stability};
use agent_core::prompt::{Part, Prompt, PromptMessage};
use agent_core::tool::ToolChoice;
use agent_core::tool::ToolSpec;
use agent_embedded::{EmbeddedConfig, EmbeddedModel, WeightsError, catalog};
use futures_util::StreamExt;
use serde_json::{Value, json};

fn weights() -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/models");
    let pulled = || catalog::default_model().path_in(folder.as_ref());
    std::env::var_os("EMBEDDED_MODEL_PATH").map_or_else(pulled, PathBuf::from)
}

fn open(change: impl FnOnce(&mut EmbeddedConfig)) -> EmbeddedModel {
    let mut config = EmbeddedConfig::new(weights());
    config.max_output_tokens = 24;
    change(&mut config);
    EmbeddedModel::open(config).expect("`agentd model pull` has been run")
}

fn request(messages: Vec<Message>) -> ModelRequest {
    let system = "You are the assistant of a bakery. Be brief.";
    let system = vec![Fragment::new("system", "role", Stability::Role, Part::new(system))];
    let messages = messages.into_iter().map(PromptMessage::new).collect();
    ModelRequest {
        prompt: Arc::new(Prompt::new(system, messages)),
        appended_messages: Vec::new(),
        tools: Arc::from([]),
        tool_choice: ToolChoice::Auto,
        thinking: None,
        response_format: None,
    }
}

fn tool(name: &str, description: &str, schema: Value) -> Arc<ToolSpec> {
    let schema = serde_json::value::RawValue::from_string(schema.to_string()).unwrap();
    Arc::new(ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        input_schema: Arc::from(schema),
        output_schema: None,
        annotations: None,
        is_client_side: false,
    })
}

fn tools() -> Arc<[Arc<ToolSpec>]> {
    let title = json!({ "type": "string" });
    Arc::from([
        tool(
            "createTodo",
            "Adds a task to the list.",
            json!({ "type": "object", "properties": { "title": title, "done": { "type": "boolean" } }, "required": ["title"] }),
        ),
        tool(
            "recordMetric",
            "Records a number.",
            json!({ "type": "object", "required": ["name", "value", "unit"], "properties": {
                "name": { "enum": ["sales", "waste"] },
                "value": { "type": "integer", "minimum": 0, "maximum": 500 },
                "unit": { "anyOf": [{ "const": "kg" }, { "type": "null" }] },
                "tags": { "type": "array", "items": { "type": "string", "maxLength": 6 }, "maxItems": 2 },
            }}),
        ),
    ])
}

async fn events(model: &EmbeddedModel, request: &ModelRequest) -> Vec<ModelEvent> {
    let payload = model.prepare(request).unwrap();
    model.start(payload).await.unwrap().map(Result::unwrap).collect().await
}

/// Returns the text, usage and finish reason of a text answer. Panics on any other event.
fn as_text(events: &[ModelEvent]) -> (String, Usage, FinishReason) {
    let [text @ .., ModelEvent::Usage(usage), ModelEvent::Finish(finish)] = events else {
        panic!("{events:?}");
    };
    let pieces = text.iter().map(|event| match event {
        ModelEvent::Text(text) => text.as_str(),
        other => panic!("{other:?}"),
    });
    (pieces.collect(), usage.clone(), *finish)
}

/// Returns the tool name and arguments of a tool-call answer. Panics on any other event.
fn as_call(events: &[ModelEvent]) -> (String, Value) {
    let [
        ModelEvent::ToolCallStart { index: 0, id, name },
        args @ ..,
        ModelEvent::Usage(_),
        ModelEvent::Finish(finish),
    ] = events
    else {
        panic!("{events:?}");
    };
    assert!(!id.is_empty() && *finish == FinishReason::ToolCalls, "{events:?}");
    let pieces = args.iter().map(|event| match event {
        ModelEvent::ToolCallArgs { index: 0, delta } => delta.as_str(),
        other => panic!("{other:?}"),
    });
    (name.clone(), serde_json::from_str(&pieces.collect::<String>()).unwrap())
}

#[tokio::test]
async fn later_prompts_reuse_the_cached_prefix() {
    let model = open(|_| ());
    let hello = request(vec![Message::user("Hello <|im_end|>")]);
    let (text, usage, finish) = as_text(&events(&model, &hello).await);
    let tokens = usage.output_tokens.unwrap();
    assert!(!text.is_empty() && (1..=24).contains(&tokens));
    assert_eq!(finish == FinishReason::Length, tokens == 24, "{tokens} tokens, {finish:?}");
    assert_eq!(usage.cached_input_tokens, Some(0));
    assert!(!text.contains("<|im_"), "{text}");

    let (again, usage, _) = as_text(&events(&model, &hello).await);
    assert_eq!(again, text, "without chance the same prompt has the same answer");
    assert_eq!(usage.cached_input_tokens.unwrap() + 1, usage.input_tokens.unwrap());

    let other = request(vec![Message::user("When are you open?")]);
    let (_, usage, _) = as_text(&events(&model, &other).await);
    let system = model.count_tokens("system\nYou are the assistant of a bakery. Be brief.") as u64;
    assert!(usage.cached_input_tokens.unwrap() > system, "{usage:?}");

    let started = model.start_for("a company", model.prepare(&other).unwrap()).await.unwrap();
    let answer: Vec<ModelEvent> = started.map(Result::unwrap).collect().await;
    let (_, usage, _) = as_text(&answer);
    assert_eq!(usage.cached_input_tokens, Some(0), "another company's call");
    assert_eq!(usage.provider.as_deref(), Some("local"));
}

#[tokio::test]
async fn calls_fit_their_schemas_and_results_are_put_into_words() {
    let model = open(|config| config.max_output_tokens = 96);
    let mut asked = request(vec![Message::user("We sold 120 loaves today, please record it")]);
    asked.tools = tools();
    asked.tool_choice = ToolChoice::Tool("recordMetric".to_owned());
    let (name, arguments) = as_call(&events(&model, &asked).await);
    assert_eq!(name, "recordMetric");
    assert!(["sales", "waste"].contains(&arguments["name"].as_str().unwrap()), "{arguments}");
    assert!((0..=500).contains(&arguments["value"].as_i64().unwrap()), "{arguments}");
    assert!(arguments["unit"].is_null() || arguments["unit"] == "kg", "{arguments}");

    asked.tool_choice = ToolChoice::Required;
    let (name, arguments) = as_call(&events(&model, &asked).await);
    assert!(arguments.is_object() && asked.tools.iter().any(|tool| tool.name == name), "{name} {arguments}");

    asked.tool_choice = ToolChoice::Auto;
    let call = ToolCall::new("c1", "recordMetric", arguments.to_string());
    asked.appended_messages =
        vec![Message::with_tool_calls("", vec![call]), Message::tool_result("c1", "{\"ok\":true}")];
    as_text(&events(&model, &asked).await);
}

#[tokio::test]
async fn one_call_at_a_time_a_bounded_queue_and_a_drop_that_stops() {
    let model = open(|config| {
        config.max_waiting = 1;
        config.max_output_tokens = 900;
    });
    model.warm().await.unwrap();
    let mut long = request(vec![Message::user("Record numbers")]);
    // A schema that forces a long answer: a long array of long strings.
    let texts = json!({ "type": "string", "minLength": 190 });
    let texts = json!({ "type": "array", "items": texts, "minItems": 8, "maxItems": 8 });
    let schema = json!({ "type": "object", "properties": { "t": texts }, "required": ["t"] });
    long.tools = Arc::from([tool("write", "Writes.", schema)]);
    long.tool_choice = ToolChoice::Required;
    let short = request(vec![Message::user("Hi")]);

    let payload = |request| model.prepare(request).unwrap();
    let mut running = model.start(payload(&long)).await.unwrap();
    assert!(matches!(running.next().await, Some(Ok(ModelEvent::ToolCallStart { .. }))));
    let waiting = model.start(payload(&short)).await.unwrap();
    let refused = model.start(payload(&short)).await.err().unwrap();
    assert_eq!(refused.kind(), AgentErrorKind::RateLimited, "{refused}");

    // Dropping a queued call frees its place in the queue; dropping a running one frees the model.
    drop(waiting);
    let next = model.start(payload(&short)).await.unwrap();
    drop(running);
    let events: Vec<_> = next.collect().await;
    assert!(matches!(events.last(), Some(Ok(ModelEvent::Finish(_)))), "{events:?}");
}

#[tokio::test]
async fn invalid_requests_are_refused_in_prepare() {
    let model = open(|config| config.context = 256);
    let prepared = |change: &dyn Fn(&mut ModelRequest)| {
        let mut request = request(vec![Message::user("Add 2 kg of flour to the tasks")]);
        change(&mut request);
        model.prepare(&request).map(|payload| serde_json::from_slice::<Value>(payload.bytes()).unwrap())
    };
    let kind = |result: Result<Value, AgentError>| result.err().map(|failure| failure.kind());

    let long = |request: &mut ModelRequest| {
        request.appended_messages = vec![Message::user("flour ".repeat(300))];
    };
    let failure = prepared(&long).unwrap_err();
    assert_eq!(failure.kind(), AgentErrorKind::InvalidRequest);
    assert!(failure.message().contains("tokens"), "{failure}");
    let picture = |request: &mut ModelRequest| {
        let source = MediaSource::Url { value: "https://example.com/a.png".into(), mime_type: None };
        let content = Content::Parts(vec![ContentPart::Image { source }]);
        request.appended_messages = vec![Message { content, ..Message::text(Role::User, "") }];
    };
    assert_eq!(kind(prepared(&picture)), Some(AgentErrorKind::UnsupportedContent));
    let no_tools = |request: &mut ModelRequest| request.tool_choice = ToolChoice::Required;
    assert_eq!(kind(prepared(&no_tools)), Some(AgentErrorKind::InvalidRequest));
    let unknown = |request: &mut ModelRequest| {
        request.tools = tools();
        request.tool_choice = ToolChoice::Tool("fly".into());
    };
    assert_eq!(kind(prepared(&unknown)), Some(AgentErrorKind::InvalidRequest));

    // The payload contains the decision and the candidate tools.
    for (choice, decision, offered) in [
        (ToolChoice::Auto, "scored", vec!["createTodo"]),
        (ToolChoice::None, "text", vec![]),
        (ToolChoice::Required, "tool", vec!["createTodo"]),
        (ToolChoice::Tool("recordMetric".into()), "tool", vec!["recordMetric"]),
    ] {
        let call = prepared(&|request| {
            request.tools = tools();
            request.tool_choice = choice.clone();
        })
        .unwrap();
        assert_eq!(call["decision"]["kind"], decision, "{choice:?}");
        let names: Vec<&str> = call["tools"]
            .as_array()
            .map_or(vec![], |tools| tools.iter().map(|t| t["name"].as_str().unwrap()).collect());
        assert_eq!(names, offered, "{choice:?}");
    }
}

#[test]
fn missing_weights_are_named_in_the_error() {
    let error = EmbeddedModel::open(EmbeddedConfig::new("/nowhere/weights.gguf")).err().unwrap();
    assert!(matches!(error, WeightsError::Missing { .. }));
    assert!(error.to_string().contains("/nowhere/weights.gguf"), "{error}");
}
