use serde_json::json;

use super::*;

fn paths(findings: &[RoleFinding]) -> Vec<&str> {
    findings.iter().map(|finding| finding.path.as_str()).collect()
}

fn role(content: Value, children: Value) -> Value {
    json!({"id": "a", "companyId": "c", "content": content, "children": children})
}

#[test]
fn unknown_fields_are_named_by_their_path() {
    let complete_role = role(
        json!({"systemPrompt": "x", "agentConfig": {"any": {"thing": 1}}, "promptBlocks": ["a", {"name": "n", "content": "c"}],
            "council": {"purpose": "p", "members": [{"name": "n", "expertise": "e"}]}, "mcpPreset": "base",
            "agentServerUrl": "https://a.example", "agentServerApiKey": "***"}),
        json!([{"name": "AgentServer", "content": {"agentServerUrl": "https://a.example"}},
            {"name": "WorkflowConnector", "content": {"auth": {"type": "basic", "user": "u"}}},
            {"name": "EmbeddedAI", "content": {"provider": "auto", "enableThinking": true, "reasoningEffort": "low"}},
            {"name": "SubscriptionConnector", "content": null}, {"name": "Own", "content": {"free": {"form": 1}}}]),
    );
    assert_eq!(unknown_fields(&complete_role), []);
    for (role, expected) in [
        (role(json!({"systemPromt": "x"}), json!([])), "content.systemPromt"),
        (json!({"id": "a", "companyId": "c", "contnet": {}}), "contnet"),
        (
            role(json!({"promptBlocks": [{"text": "t", "titel": "x"}]}), json!([])),
            "content.promptBlocks[0].titel",
        ),
        (
            role(json!({"council": {"members": [{"name": "n", "expertize": "x"}]}}), json!([])),
            "content.council.members[0].expertize",
        ),
        (
            role(json!({}), json!([{"name": "EmbeddedAI", "content": {"modle": "m"}}])),
            "children[0].content.modle",
        ),
        (
            role(json!({}), json!([{"name": "EmbeddedAI", "content": {"agentServerUrl": "m"}}])),
            "children[0].content.agentServerUrl",
        ),
        (
            role(json!({"fallbacks": [{"agentServerUrl": "https://b.example", "model": "m"}]}), json!([])),
            "content.fallbacks[0].model",
        ),
        (
            role(json!({}), json!([{"name": "AgentServer", "content": {"retry": {"max": 1}}}])),
            "children[0].content.retry.max",
        ),
        (role(json!({}), json!([{"name": "Own", "contents": {}}])), "children[0].contents"),
        (
            role(
                json!({}),
                json!([{"name": "WorkflowConnector", "content": {"auth": {"type": "jwt", "user": "u"}}}]),
            ),
            "children[0].content.auth.user",
        ),
    ] {
        assert_eq!(paths(&unknown_fields(&role)), [expected], "{role}");
    }
}

#[test]
fn addresses_to_which_nothing_is_sent_are_named_by_their_path() {
    let children = |address: &str| {
        json!([{"name": "WorkflowConnector", "content": {"webhookUrl": address}},
            {"name": "AgentServer", "content": {"agentServerLocalUrl": address,
                "fallbacks": [{"agentServerUrl": address}]}},
            {"name": "EmbeddedAI", "content": {"baseUrl": address,
                "fallbacks": [{"provider": "openai", "model": "m", "baseUrl": address}]}}])
    };
    let found = |address: &str| {
        let role = role(json!({"agentServerUrl": address}), children(address));
        unknown_names(&serde_json::from_value(role).expect("a role"), &[])
    };
    for address in ["https://a.example", " HTTP://127.0.0.1:9/v1/?key=x#y ", "http://[::1]:9"] {
        assert_eq!(found(address), [], "{address}");
    }
    for address in ["sk-canary", "ftp://a.example", "https://u:canary@a.example", "https://a.example/\tx"] {
        let found = found(address);
        let expected = [
            "content.agentServerUrl",
            "children[0].content.webhookUrl",
            "children[1].content.agentServerLocalUrl",
            "children[1].content.fallbacks[0].agentServerUrl",
            "children[2].content.baseUrl",
            "children[2].content.fallbacks[0].baseUrl",
        ];
        assert_eq!(paths(&found), expected, "{address}");
        assert!(found.iter().all(|finding| !finding.message.contains("canary")), "{found:?}");
    }
}

#[test]
fn unknown_tools_and_providers_are_named_by_their_path() {
    for (content, children, expected) in [
        (json!({"tools": ["readTodos", "readTodo"]}), json!([]), "content.tools[1]"),
        (json!({"mcpPreset": ["x"]}), json!([]), "content.mcpPreset[0]"),
        (json!({"widgetTools": ["x"]}), json!([]), "content.widgetTools[0]"),
        (json!({"agentServerTools": ["x"]}), json!([]), "content.agentServerTools[0]"),
        (json!({"agentServerProvider": "opneai"}), json!([]), "content.agentServerProvider"),
        (
            json!({}),
            json!([{"name": "AgentServer", "content": {"agentServerProvider": "x"}}]),
            "children[0].content.agentServerProvider",
        ),
        (
            json!({}),
            json!([{"name": "Own"}, {"name": "EmbeddedAI", "content": {"provider": "aba cus"}}]),
            "children[1].content.provider",
        ),
    ] {
        let role = serde_json::from_value(role(content, children)).expect("a role");
        assert_eq!(paths(&unknown_names(&role, &[])), [expected]);
    }
    let retry =
        json!({"maxAttempts": 11, "maxWaitMs": 60001, "firstContentMs": 99, "also": ["content", "size"]});
    let fallbacks =
        json!([{"provider": "openai"}, {"provider": "x/y", "firstContentMs": 600001}, {}, {}, {}]);
    let children = json!([{"name": "EmbeddedAI", "content": {"retry": retry, "fallbacks": fallbacks}}]);
    let repeated = serde_json::from_value(role(json!({}), children)).expect("a role");
    assert_eq!(
        paths(&unknown_names(&repeated, &[])),
        [
            "retry.maxAttempts",
            "retry.maxWaitMs",
            "retry.firstContentMs",
            "fallbacks[1].firstContentMs",
            "retry.also[1]",
            "fallbacks[1].provider",
            "fallbacks",
        ]
        .map(|name| format!("children[0].content.{name}"))
    );
    let fallbacks = json!([{}, {"parameters": {"temperature": 3}}]);
    let embedded = json!({"parameters": {"temprature": 1, "topP": 0.5}, "fallbacks": fallbacks});
    let children = json!([{"name": "EmbeddedAI", "content": embedded}]);
    let sampled = serde_json::from_value(role(json!({}), children)).expect("a role");
    assert_eq!(
        paths(&unknown_names(&sampled, &[])),
        [
            "children[0].content.parameters.temprature",
            "children[0].content.fallbacks[1].parameters.temperature"
        ]
    );
    let content = json!({"agentServerUrl": "https://a.example", "parameters": {"reasoning": "much"}});
    let children = json!([{"name": "AgentServer", "content": {"parameters": {"temprature": 1, "topK": 1}}}]);
    let servers = serde_json::from_value(role(content, children)).expect("a role");
    assert_eq!(
        paths(&unknown_names(&servers, &[])),
        ["content.parameters.reasoning", "children[0].content.parameters.temprature"]
    );
    let fallbacks = json!([{"agentServerUrl": "https://b.example", "parameters": {"seed": -1}, "firstContentMs": 99},
        {"agentServerProvider": "x", "agentServerTools": [], "retry": {}, "fallbacks": [{}]}, {}, {}, {}]);
    let server = json!({"agentServerUrl": "https://a.example", "retry": {"maxAttempts": 11, "also": ["x"]},
        "fallbacks": fallbacks, "firstContentMs": 1});
    let expected = [
        "retry.maxAttempts",
        "fallbacks[0].firstContentMs",
        "retry.also[0]",
        "firstContentMs",
        "fallbacks[1].agentServerProvider",
        "fallbacks[1].agentServerUrl",
        "fallbacks[1].agentServerTools",
        "fallbacks[1].retry",
        "fallbacks[1].fallbacks",
        "fallbacks[2].agentServerUrl",
        "fallbacks[3].agentServerUrl",
        "fallbacks[4].agentServerUrl",
        "fallbacks",
        "fallbacks[0].parameters.seed",
    ];
    let children = json!([{"name": "AgentServer", "content": server}]);
    for (at, repeated) in
        [("content", role(server, json!([]))), ("children[0].content", role(json!({}), children))]
    {
        let repeated = serde_json::from_value(repeated).expect("a role");
        assert_eq!(paths(&unknown_names(&repeated, &[])), expected.map(|name| format!("{at}.{name}")));
    }
    let fine = json!({"tools": TOOL_NAMES, "agentServerProvider": " "});
    let children = json!([{"name": "EmbeddedAI", "content": {"provider": " local ",
        "fallbacks": [{"provider": "anthropic"}]}}]);
    assert_eq!(unknown_names(&serde_json::from_value(role(fine, children)).expect("a role"), &[]), []);
    let own_tools_role: RoleBlock =
        serde_json::from_value(role(json!({"tools": ["weather"]}), json!([]))).expect("a role");
    assert_eq!(unknown_names(&own_tools_role, &["weather".to_owned()]), []);
    assert!(TOOL_NAMES.is_sorted());
}

#[test]
fn a_companys_provider_is_named_with_a_model_alone() {
    let key = json!({"provider": "acme", "model": "m", "baseUrl": "https://v.example", "apiKey": "sk"});
    let content = json!({"provider": "opneai", "baseUrl": "https://v.example",
        "fallbacks": [key, {"provider": "acme"}, {"provider": "acme", "model": "m", "apiKey": "***", "baseUrl": " "}]});
    let children = json!([{"name": "Own"}, {"name": "EmbeddedAI", "content": content}]);
    let role = serde_json::from_value(role(json!({}), children)).expect("a role");
    assert_eq!(unknown_names(&role, &[]), []);
    let findings = company_provider_faults(&role, |id| id == "acme");
    assert_eq!(
        paths(&findings),
        ["provider", "fallbacks[0].baseUrl", "fallbacks[0].apiKey", "fallbacks[1].model"]
            .map(|name| format!("children[1].content.{name}"))
    );
    assert!(
        findings[0].message.starts_with("is not a provider: expected one of anthropic, auto,"),
        "{findings:?}"
    );
}

#[test]
fn settings_without_effect_are_warned_of() {
    for (content, children, expected) in [
        (json!({"enableAutoRag": true}), json!([]), &["content.enableAutoRag"][..]),
        (json!({"enableAutoRag": true, "ragDocumentIds": ["d"]}), json!([]), &[]),
        (json!({"ragPlacement": "latestTurn"}), json!([]), &["content.ragPlacement"]),
        (
            json!({"widgetTools": ["getDoc", "recall", "readEpics"]}),
            json!([]),
            &["content.widgetTools[1]", "content.widgetTools[2]"],
        ),
        (json!({"mcpPreset": ["readEpics"]}), json!([]), &["content.mcpPreset[0]"]),
        (json!({"tools": ["sendMessengerMessage"]}), json!([]), &["content.messengerToken"]),
        (json!({"tools": ["sendMessengerMessage"], "messengerToken": "***"}), json!([]), &[]),
        (json!({"agentServerTools": ["getDoc", "recall"]}), json!([]), &["content.agentServerTools[1]"]),
        (json!({"agentServerModel": "m"}), json!([]), &["content.agentServerModel"]),
        (json!({"agentServerModel": "m", "agentServerUrl": "https://a.example"}), json!([]), &[]),
        (json!({"parameters": {"topP": 0.5}}), json!([]), &["content.parameters"]),
        (json!({"retry": {}, "fallbacks": [{}]}), json!([]), &["content.retry", "content.fallbacks"]),
        (
            json!({"agentServerUrl": "https://a.example", "fallbacks": [{"agentServerUrl": "https://b.example",
                "agentServerProvider": "openai", "agentServerModel": "gpt-5", "parameters": {"topP": 0.5}}]}),
            json!([]),
            &["content.fallbacks[0].parameters.topP"],
        ),
        (
            json!({"agentServerUrl": "https://a.example", "agentServerProvider": "openai",
                "agentServerModel": "gpt-4o", "parameters": {"topP": 0.5, "reasoning": "low"}}),
            json!([{"name": "AgentServer", "content": {"agentServerUrl": "https://a.example",
                "agentServerProvider": "ollama", "parameters": {"topK": 2}}},
                {"name": "AgentServer", "content": {"agentServerUrl": "https://a.example",
                "agentServerProvider": "openai", "parameters": {"topK": 2}}}]),
            &["content.parameters.reasoning", "children[1].content.parameters.topK"],
        ),
        (
            json!({}),
            json!([{"name": "AgentServer"}, {"name": "WorkflowConnector"}, {"name": "Workflow"},
                {"name": "EmbeddedAI", "content": {"provider": "local", "enableThinking": true}},
                {"name": "SubscriptionConnector", "content": {"model": " "}},
                {"name": "SubscriptionConnector", "content": {"model": "m"}}]),
            &[
                "children[0].content.agentServerUrl",
                "children[1].content.webhookUrl",
                "children[2].name",
                "children[3].content.enableThinking",
                "children[4].content.model",
            ],
        ),
        (
            json!({}),
            json!([{"name": "EmbeddedAI", "content": {"provider": "openai", "model": "gpt-5",
                "parameters": {"temperature": 1, "maxOutputTokens": 9},
                "fallbacks": [{"provider": "ollama", "parameters": {"topK": 2}},
                    {"provider": "local", "parameters": {"seed": 2}}]}}]),
            &[
                "children[0].content.parameters.temperature",
                "children[0].content.fallbacks[1].parameters.seed",
            ],
        ),
    ] {
        let role = serde_json::from_value(role(content, children)).expect("a role");
        let found = warnings(&role);
        let settings = paths(&found).into_iter().filter(|path| *path != "children");
        assert_eq!(settings.collect::<Vec<_>>(), expected);
    }
}

#[test]
fn an_agent_without_a_backend_is_warned_of() {
    for (content, children, expected) in [
        (json!({}), json!([]), &["children"][..]),
        (
            json!({}),
            json!([{"name": "WorkflowConnector", "content": {"webhookUrl": " "}}]),
            &["children[0].content.webhookUrl", "children"],
        ),
        (json!({}), json!([{"name": "Custom"}]), &["children[0].name"]),
        (json!({}), json!([{"name": "EmbeddedAI"}]), &[]),
        (json!({"agentServerUrl": "https://a.example"}), json!([]), &[]),
    ] {
        let role = serde_json::from_value(role(content, children)).expect("a role");
        assert_eq!(paths(&warnings(&role)), expected);
    }
}
