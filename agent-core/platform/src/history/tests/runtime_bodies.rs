//! Bodies of the runtime API.

use super::*;

fn runtime(body: &Value) -> Result<RuntimeRequest, FieldError> {
    let body = body.to_string();
    RuntimeRequest::read(&JsonBody::parse(body.as_bytes(), 64)?)
}

#[test]
fn a_runtime_body_is_parsed_without_showing_secrets() {
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
fn faults_of_runtime_bodies_name_the_field() {
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
