//! Role blocks in all the shapes that operators write.

use serde_json::{Value, json};

use super::*;

fn parse(role: Value) -> Result<RoleBlock, String> {
    let text = role.to_string();
    let reader = &mut serde_json::Deserializer::from_str(&text);
    serde_path_to_error::deserialize(reader).map_err(|error| error.to_string())
}

fn container(text: &str) -> Result<Container, String> {
    let reader = &mut serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(reader).map_err(|error| error.to_string())
}

#[test]
fn every_field_of_a_role_block_is_read() {
    let role = parse(json!({
        "id": "a", "name": "Ann", "ownerId": "ada", "companyId": "c", "later": [1],
        "content": {
            "systemPrompt": "S", "agentConfig": {"tone": ["dry"]}, "personality": "P",
            "promptBlocks": ["one", {"title": "Two", "text": "two"}, {"id": "three", "content": "three"}],
            "rules": ["R"], "documentIds": ["d"], "memoryFolder": "notes",
            "council": {"purpose": "advice", "members": [{"name": "Bob", "expertise": "law"}]},
            "mcpPreset": ["readTodos"], "tools": ["readEpics"], "widgetTools": ["getDoc"],
            "enableAutoRag": true, "ragDocumentIds": ["e"], "ragPlacement": "latestTurn",
            "messengerToken": "mt", "later": {},
            "agentServerUrl": "http://h", "agentServerProvider": "openai", "agentServerModel": "m",
            "agentServerEnableThinking": true, "agentServerTools": ["getDoc"],
            "agentServerLocalUrl": "http://l", "agentServerApiKey": "sk"
        },
        "children": [
            {"name": "AgentServer", "content": {"agentServerUrl": "http://i", "agentServerApiKey": "sl"}},
            {"name": "WorkflowConnector", "content": {
                "webhookUrl": "http://w", "auth": {"type": "basic", "user": "u", "password": "p"}}},
            {"name": "EmbeddedAI", "content": {
                "provider": "local", "model": "m", "baseUrl": "http://b", "apiKey": "k"}},
            {"name": "SubscriptionConnector", "content": {"model": "coder"}}
        ]
    }))
    .expect("a role");
    assert_eq!((role.id.as_str(), role.name.as_str()), ("a", "Ann"));
    assert_eq!((role.owner_id.as_str(), role.company_id.as_str()), ("ada", "c"));
    let content = &role.content;
    assert_eq!(content.system_prompt.as_deref(), Some("S"));
    assert_eq!(content.agent_config, Some(json!({"tone": ["dry"]})));
    assert_eq!(content.personality.as_deref(), Some("P"));
    let titled = |title: &str, text: &str| PromptBlock::Titled { title: title.into(), text: text.into() };
    assert_eq!(
        content.prompt_blocks,
        [PromptBlock::Text("one".into()), titled("Two", "two"), titled("three", "three")]
    );
    assert_eq!(content.rules, ["R"]);
    assert_eq!(content.document_ids, ["d"]);
    assert_eq!(content.memory_folder.as_deref(), Some("notes"));
    let bob = CouncilMember { name: "Bob".into(), expertise: "law".into() };
    assert_eq!(content.council, Some(Council::Members { purpose: "advice".into(), members: vec![bob] }));
    assert_eq!(content.mcp_preset.as_deref(), Some(&["readTodos".to_owned()][..]));
    assert_eq!(content.tools, ["readEpics"]);
    assert_eq!(content.widget_tools, ["getDoc"]);
    assert!(content.enable_auto_rag);
    assert_eq!(content.rag_document_ids, ["e"]);
    assert!(matches!(content.rag_placement, Some(RagPlacement::LatestTurn)));
    assert_eq!(content.messenger_token.as_ref().map(Secret::expose), Some("mt"));
    let server = &content.agent_server;
    assert_eq!(server.agent_server_url.as_deref(), Some("http://h"));
    assert_eq!(server.agent_server_provider.as_deref(), Some("openai"));
    assert_eq!(server.agent_server_model.as_deref(), Some("m"));
    assert_eq!(server.agent_server_enable_thinking, Some(true));
    assert_eq!(server.agent_server_tools.as_deref(), Some(&["getDoc".to_owned()][..]));
    assert_eq!(server.agent_server_local_url.as_deref(), Some("http://l"));
    assert_eq!(server.agent_server_api_key.as_ref().map(Secret::expose), Some("sk"));
    let [
        Container::AgentServer(server),
        Container::WorkflowConnector(workflow),
        Container::EmbeddedAi(embedded),
        Container::SubscriptionConnector(subscription),
    ] = &role.children[..]
    else {
        panic!("{:?}", role.children)
    };
    assert_eq!(server.agent_server_api_key.as_ref().map(Secret::expose), Some("sl"));
    assert_eq!(workflow.webhook_url.as_deref(), Some("http://w"));
    assert!(matches!(&workflow.auth, Some(WebhookAuth::Basic { user, password })
        if user == "u" && password.as_ref().map(Secret::expose) == Some("p")));
    assert_eq!(embedded.provider.as_deref(), Some("local"));
    assert_eq!(embedded.model.as_deref(), Some("m"));
    assert_eq!(embedded.base_url.as_deref(), Some("http://b"));
    assert_eq!(embedded.api_key.as_ref().map(Secret::expose), Some("k"));
    assert_eq!(subscription.model.as_deref(), Some("coder"));
    assert!(!format!("{role:?}").contains("sk\""));
}

#[test]
fn a_role_needs_only_its_identifiers() {
    let role = parse(json!({"id": "a", "companyId": "c"})).expect("a role");
    assert!(role.children.is_empty() && role.content.mcp_preset.is_none());
    assert_eq!(serde_json::to_value(&role.content).expect("JSON"), json!({}));
}

#[test]
fn containers_are_read_in_any_order_and_unknown_ones_are_kept() {
    for (text, shown) in [
        (r#"{"name":"AgentServer"}"#, json!({"name": "AgentServer", "content": {}})),
        (r#"{"name":"EmbeddedAI","content":null}"#, json!({"name": "EmbeddedAI", "content": {}})),
        (r#"{"name":"EmbeddedAI","x":{},"content":{"x":1}}"#, json!({"name": "EmbeddedAI", "content": {}})),
        (
            r#"{"content":{"model":"m"},"name":"SubscriptionConnector"}"#,
            json!({"name": "SubscriptionConnector", "content": {"model": "m"}}),
        ),
        (r#"{"name":"Lamp","content":{"on":1}}"#, json!({"name": "Lamp", "content": {"on": 1}})),
        (r#"{"name":"Lamp"}"#, json!({"name": "Lamp", "content": {}})),
        (
            r#"{"name":"AgentServer","content":{"agentServerApiKey":"sk"}}"#,
            json!({"name": "AgentServer", "content": {"agentServerApiKey": "***"}}),
        ),
    ] {
        let container = container(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(serde_json::to_value(&container).expect("JSON"), shown, "{text}");
    }
}

#[test]
fn webhooks_support_four_authentication_methods() {
    for (auth, expected) in [
        (json!({"type": "none"}), "None"),
        (
            json!({"type": "basic", "user": "u", "password": "p"}),
            r#"Basic { user: "u", password: Some(***) }"#,
        ),
        (json!({"type": "header", "name": "n", "value": "v"}), r#"Header { name: "n", value: Some(***) }"#),
        (json!({"type": "jwt"}), "Jwt { secret: None }"),
        (json!({"type": "jwt", "secret": "s"}), "Jwt { secret: Some(***) }"),
    ] {
        let auth: WebhookAuth = serde_json::from_value(auth).expect("an authentication");
        assert_eq!(format!("{auth:?}"), expected);
    }
}

#[test]
fn a_preset_is_names_or_a_word() {
    let preset = |preset| {
        let role = parse(json!({"id": "a", "companyId": "c", "content": {"mcpPreset": preset}}));
        role.map(|role| role.content.mcp_preset)
    };
    assert_eq!(preset(json!(["a", "b"])), Ok(Some(vec!["a".into(), "b".into()])));
    assert_eq!(preset(json!([])), Ok(Some(vec![])));
    assert_eq!(preset(json!("none")), Ok(Some(vec![])));
    assert_eq!(preset(json!("base")), Ok(None));
    assert_eq!(preset(json!(null)), Ok(None));
    let error = preset(json!("full")).expect_err("an unknown word");
    assert!(
        error.contains(r#"content.mcpPreset: expected an array of tool names, "base" or "none""#),
        "{error}"
    );
}

#[test]
fn a_fault_names_its_field_and_shows_no_secret() {
    for (content, children, expected) in [
        (json!({"rules": ["a", 1]}), json!([]), "content.rules[1]: invalid type: integer `1`"),
        (
            json!({"agentServerEnableThinking": "yes"}),
            json!([]),
            r#"content: agentServerEnableThinking: invalid type: string "yes", expected a boolean"#,
        ),
        (json!({"agentServerApiKey": 4711}), json!([]), "content: agentServerApiKey: expected a string"),
        (json!({"messengerToken": 4711}), json!([]), "content.messengerToken: expected a string"),
        (
            json!({}),
            json!([{"name": "Lamp"}, {"name": "AgentServer", "content": {"agentServerModel": 1}}]),
            "children[1]: content.agentServerModel: invalid type: integer `1`",
        ),
        (json!({}), json!([{"content": {}}]), "children[0]: missing field `name`"),
        (json!({}), json!([{"name": 7}]), "children[0]: name: invalid type: integer `7`, expected a string"),
        (json!({}), json!(["AgentServer"]), r#"children[0]: invalid type: string "AgentServer""#),
        (json!({}), json!([["AgentServer", {}]]), "children[0]: invalid type: sequence, expected a map"),
        (
            json!({}),
            json!([{"name": "EmbeddedAI", "content": ["openai", "m"]}]),
            "children[0]: content: invalid type: sequence, expected a map",
        ),
        (
            json!({}),
            json!([{"name": "EmbeddedAI", "content": {"retry": [2, 1000]}}]),
            "children[0]: content.retry: invalid type: sequence, expected a map",
        ),
        (
            json!({}),
            json!([{"content": {"fallbacks": [{"model": "m"}, ["openai", "n"]]}, "name": "EmbeddedAI"}]),
            "children[0]: content.fallbacks[1]: invalid type: sequence, expected a map",
        ),
        (
            json!({}),
            json!([{"name": "WorkflowConnector", "content": {"auth": ["jwt", "4711"]}}]),
            "children[0]: content.auth: invalid type: sequence, expected a map",
        ),
    ] {
        let role = json!({"id": "a", "companyId": "c", "content": content, "children": children});
        let error = parse(role).expect_err(expected);
        assert!(error.starts_with(expected), "{error}");
        assert!(!error.contains("4711"), "{error}");
    }
}
