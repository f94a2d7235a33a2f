use serde_json::{Value, json};

use super::*;

fn role(content: Value, children: Value) -> RoleBlock {
    let role = json!({"id": "a", "companyId": "c", "content": content, "children": children});
    serde_json::from_value(role).expect("a role")
}

/// Returns the secrets of a role by field path.
fn secrets(role: &mut RoleBlock) -> Vec<(String, String)> {
    let there = secret_fields(role).into_iter();
    there.filter_map(|slot| Some((slot.path, slot.secret.as_ref()?.expose().to_owned()))).collect()
}

/// Asserts which secret remains of the one in `stored` after it is replaced by each of the given roles.
fn check(field: &str, stored: &RoleBlock, cases: &[(RoleBlock, Option<&str>)]) {
    for (input, expected) in cases {
        let shown = serde_json::to_value(input).expect("JSON");
        let mut merged = input.clone();
        merge_secrets(&mut merged, Some(stored.clone()));
        let expected: Vec<_> =
            expected.iter().map(|secret| (field.to_owned(), (*secret).to_owned())).collect();
        assert_eq!(secrets(&mut merged), expected, "{field} of {shown}");
        for secret in ["messengerToken", "agentServerApiKey", "apiKey"] {
            assert!(!format!("{merged:?}").contains("sk-"), "{secret} is never shown");
        }
    }
}

#[test]
fn a_new_role_has_the_secrets_that_it_is_given() {
    for (input, expected) in [
        (json!({}), None),
        (json!({"messengerToken": ""}), None),
        (json!({"messengerToken": "***"}), None),
        (json!({"messengerToken": "sk"}), Some("sk")),
        (json!({"messengerToken": "****"}), Some("****")),
        (json!({"messengerToken": " "}), Some(" ")),
    ] {
        let mut merged = role(input.clone(), json!([]));
        merge_secrets(&mut merged, None);
        assert_eq!(merged.content.messenger_token.as_ref().map(Secret::expose), expected, "{input}");
    }
}

#[test]
fn a_secret_without_an_address_stays_until_it_is_replaced_or_cleared() {
    let of = |content| role(content, json!([]));
    check(
        "content.messengerToken",
        &of(json!({"messengerToken": "sk-old", "agentServerUrl": "http://h"})),
        &[
            (of(json!({})), Some("sk-old")),
            (of(json!({"messengerToken": null})), Some("sk-old")),
            (of(json!({"messengerToken": "***", "agentServerUrl": "http://other"})), Some("sk-old")),
            (of(json!({"messengerToken": "sk-new"})), Some("sk-new")),
            (of(json!({"messengerToken": ""})), None),
        ],
    );
}

#[test]
fn a_runtimes_key_is_for_the_runtime_and_for_the_provider_behind_it() {
    let stored = json!({"agentServerUrl": "https://Runtime.example:443/v1/", "agentServerApiKey": "sk-old",
        "agentServerProvider": "openai"});
    let mut cases = Vec::new();
    for (changes, expected) in [
        (json!({}), Some("sk-old")),
        (json!({"agentServerApiKey": "***"}), Some("sk-old")),
        (json!({"agentServerApiKey": "sk-new"}), Some("sk-new")),
        (json!({"agentServerApiKey": ""}), None),
        (json!({"agentServerModel": "m", "agentServerEnableThinking": true}), Some("sk-old")),
        // The same address in other spellings.
        (json!({"agentServerUrl": "https://runtime.example/v1"}), Some("sk-old")),
        (json!({"agentServerUrl": " HTTPS://runtime.example/v1/ "}), Some("sk-old")),
        (json!({"agentServerUrl": "https://runtime.example/x/../v1#top"}), Some("sk-old")),
        (json!({"agentServerLocalUrl": " "}), Some("sk-old")),
        (json!({"agentServerProvider": " OpenAI "}), Some("sk-old")),
        // Another address, with or without a mask for the key.
        (json!({"agentServerUrl": "http://runtime.example/v1"}), None),
        (json!({"agentServerUrl": "https://runtime.example:8443/v1"}), None),
        (json!({"agentServerUrl": "https://runtime.example/v2"}), None),
        (json!({"agentServerUrl": "https://runtime.example/v1?key=1"}), None),
        (json!({"agentServerUrl": "https://me@runtime.example/v1"}), None),
        (json!({"agentServerUrl": "https://runtime.example.evil.example/v1"}), None),
        (json!({"agentServerUrl": "https://evil.example", "agentServerApiKey": "***"}), None),
        (json!({"agentServerUrl": "https://evil.example", "agentServerApiKey": ""}), None),
        (json!({"agentServerUrl": "https://other.example", "agentServerApiKey": "sk-new"}), Some("sk-new")),
        (json!({"agentServerUrl": ""}), None),
        (json!({"agentServerUrl": null}), None),
        (json!({"agentServerUrl": "no address"}), None),
        // The runtime passes the key on, so the local URL and the provider's name are destinations too.
        (json!({"agentServerLocalUrl": "http://evil.example"}), None),
        (
            json!({"agentServerLocalUrl": "http://other.example", "agentServerApiKey": "sk-new"}),
            Some("sk-new"),
        ),
        (json!({"agentServerProvider": "anthropic"}), None),
        (json!({"agentServerProvider": null}), None),
    ] {
        let mut content = stored.clone();
        content.as_object_mut().expect("an object").remove("agentServerApiKey");
        for (name, value) in changes.as_object().expect("an object") {
            content[name] = value.clone();
        }
        cases.push((content, expected));
    }
    let of = |content: &Value| role(content.clone(), json!([]));
    let in_role: Vec<_> = cases.iter().map(|(content, expected)| (of(content), *expected)).collect();
    check("content.agentServerApiKey", &of(&stored), &in_role);

    let of = |content: &Value| role(json!({}), json!([{"name": "AgentServer", "content": content}]));
    let in_container: Vec<_> = cases.iter().map(|(content, expected)| (of(content), *expected)).collect();
    check("children.AgentServer[0].content.agentServerApiKey", &of(&stored), &in_container);
}

#[test]
fn keys_of_server_fallbacks_belong_to_position_and_address() {
    let server = |first: Value, second: Value| json!({"agentServerUrl": "https://a.example", "fallbacks": [first, second]});
    let (first, second) = (
        json!({"agentServerUrl": "https://b.example", "agentServerApiKey": "sk-b"}),
        // Roles that were stored without a check may have it.
        json!({"agentServerUrl": "https://c.example", "fallbacks": [{"agentServerApiKey": "sk-d"}]}),
    );
    let masked = json!({"agentServerUrl": "https://b.example/", "agentServerApiKey": "***"});
    let moved = json!({"agentServerUrl": "https://evil.example", "agentServerApiKey": "***"});
    for (input, expected) in [
        (server(masked, second.clone()), &["fallbacks[0]", "fallbacks[1].fallbacks[0]"][..]),
        (server(moved, second.clone()), &["fallbacks[1].fallbacks[0]"]),
        (server(json!({}), first.clone()), &["fallbacks[1]"]),
    ] {
        for (at, is_container) in [("content", false), ("children.AgentServer[0].content", true)] {
            let of = |server: Value| match is_container {
                true => role(json!({}), json!([{"name": "AgentServer", "content": server}])),
                false => role(server, json!([])),
            };
            let mut merged = of(input.clone());
            merge_secrets(&mut merged, Some(of(server(first.clone(), second.clone()))));
            let kept: Vec<_> = secrets(&mut merged).into_iter().map(|(path, _)| path).collect();
            let expected: Vec<_> =
                expected.iter().map(|key_path| format!("{at}.{key_path}.agentServerApiKey")).collect();
            assert_eq!(kept, expected);
            let shown = format!("{} {merged:?}", serde_json::to_value(&merged).expect("JSON"));
            assert!(!shown.contains("sk-"), "{shown}");
        }
    }
}

#[test]
fn a_local_address_makes_the_providers_name_indifferent() {
    let of = |content| role(content, json!([]));
    check(
        "content.agentServerApiKey",
        &of(json!({"agentServerLocalUrl": "http://l", "agentServerProvider": "openai",
            "agentServerApiKey": "sk-old"})),
        &[
            (
                of(json!({"agentServerLocalUrl": "http://l/", "agentServerProvider": "ollama"})),
                Some("sk-old"),
            ),
            (of(json!({"agentServerLocalUrl": "http://m", "agentServerProvider": "openai"})), None),
            (of(json!({"agentServerProvider": "openai"})), None),
        ],
    );
}

#[test]
fn a_models_key_is_for_the_models_address() {
    let of = |content| role(json!({}), json!([{"name": "EmbeddedAI", "content": content}]));
    let field = "children.EmbeddedAI[0].content.apiKey";
    check(
        field,
        &of(json!({"baseUrl": "https://api.example/v1", "apiKey": "sk-old"})),
        &[
            (of(json!({"baseUrl": "https://api.example/v1/", "model": "m"})), Some("sk-old")),
            (of(json!({"baseUrl": "https://api.example/v1", "provider": "ollama"})), Some("sk-old")),
            (of(json!({"baseUrl": "https://evil.example/v1", "apiKey": "***"})), None),
            (of(json!({"apiKey": "***"})), None),
            (of(json!({"baseUrl": "https://new.example/v1", "apiKey": "sk-new"})), Some("sk-new")),
            (role(json!({}), json!([])), None),
            (role(json!({}), json!([{"name": "AgentServer"}])), None),
            (role(json!({"agentServerApiKey": "***"}), json!([])), None),
        ],
    );
    check(
        field,
        &of(json!({"provider": "auto", "apiKey": "sk-old"})),
        &[
            (of(json!({"apiKey": "***"})), Some("sk-old")),
            (of(json!({"provider": "Auto"})), Some("sk-old")),
            (of(json!({"provider": "openai"})), None),
            (of(json!({"baseUrl": "https://evil.example"})), None),
        ],
    );
}

#[test]
fn a_fallbacks_key_is_for_its_own_address() {
    let of = |fallbacks: Value| {
        role(json!({}), json!([{"name": "EmbeddedAI", "content": {"fallbacks": fallbacks}}]))
    };
    let stored = |url: &str| of(json!([{"model": "m"}, {"baseUrl": url, "apiKey": "sk-old"}]));
    check(
        "children.EmbeddedAI[0].content.fallbacks[1].apiKey",
        &stored("https://api.example/v1"),
        &[
            (of(json!([{}, {"baseUrl": "https://api.example/v1/", "apiKey": "***"}])), Some("sk-old")),
            (of(json!([{}, {"baseUrl": "https://api.example/v1"}])), Some("sk-old")),
            (of(json!([{}, {"baseUrl": "https://evil.example/v1", "apiKey": "***"}])), None),
            (of(json!([{}, {"apiKey": "***"}])), None),
            (of(json!([{"baseUrl": "https://api.example/v1", "apiKey": "***"}])), None),
            (of(json!([{}, {"baseUrl": "https://new.example", "apiKey": "sk-new"}])), Some("sk-new")),
        ],
    );
}

#[test]
fn a_webhooks_secret_is_for_its_address_and_its_way_to_be_known() {
    let of = |url: &str, auth: Value| {
        let content = json!({"webhookUrl": url, "auth": auth});
        role(json!({}), json!([{"name": "WorkflowConnector", "content": content}]))
    };
    let field = "children.WorkflowConnector[0].content.auth.password";
    check(
        field,
        &of("https://w.example/hook", json!({"type": "basic", "user": "u", "password": "sk-old"})),
        &[
            (of("https://w.example/hook/", json!({"type": "basic", "user": "u"})), Some("sk-old")),
            (
                of("https://w.example/hook", json!({"type": "basic", "user": "v", "password": "***"})),
                Some("sk-old"),
            ),
            (of("https://w.example/hook", json!({"type": "basic", "user": "u", "password": ""})), None),
            (of("https://w.example/other", json!({"type": "basic", "user": "u", "password": "***"})), None),
            (of("", json!({"type": "basic", "user": "u"})), None),
            (of("https://w.example/hook", json!({"type": "none"})), None),
            (of("https://w.example/hook", json!(null)), None),
            (of("https://w.example/hook", json!({"type": "jwt", "secret": "***"})), None),
            (of("https://w.example/hook", json!({"type": "header", "name": "n"})), None),
        ],
    );
    for (name, auth) in
        [("value", json!({"type": "header", "name": "n"})), ("secret", json!({"type": "jwt"}))]
    {
        let field = format!("children.WorkflowConnector[0].content.auth.{name}");
        let mut stored = auth.clone();
        stored[name] = json!("sk-old");
        let cases = [
            (of("https://w.example", auth.clone()), Some("sk-old")),
            (of("https://evil.example", auth.clone()), None),
        ];
        check(&field, &of("https://w.example/", stored), &cases);
    }
}

#[test]
fn containers_are_matched_by_name_and_position() {
    let embedded = |url: &str, key: Option<&str>| {
        let mut content = json!({ "baseUrl": url });
        content.as_object_mut().expect("an object").extend(key.map(|key| ("apiKey".to_owned(), key.into())));
        json!({"name": "EmbeddedAI", "content": content})
    };
    let other = || json!({"name": "Lamp", "content": {"apiKey": "sk-lamp"}});
    let server = || json!({"name": "AgentServer", "content": {}});
    let stored = role(
        json!({}),
        json!([server(), embedded("http://one", Some("sk-1")), embedded("http://two", Some("sk-2"))]),
    );
    let key = |nth: usize, key: &str| (format!("children.EmbeddedAI[{nth}].content.apiKey"), key.to_owned());
    for (children, expected) in [
        (
            json!([embedded("http://one", None), embedded("http://two", None)]),
            vec![key(0, "sk-1"), key(1, "sk-2")],
        ),
        (
            json!([other(), embedded("http://one", None), server(), embedded("http://two", Some("***"))]),
            vec![key(0, "sk-1"), key(1, "sk-2")],
        ),
        // A container that moves to another's index does not get the other's key.
        (json!([embedded("http://two", None)]), vec![]),
        (json!([embedded("http://two", None), embedded("http://one", None)]), vec![]),
        (json!([embedded("http://new", None), embedded("http://two", None)]), vec![key(1, "sk-2")]),
        (
            json!([embedded("http://one", None), embedded("http://two", None), embedded("http://two", None)]),
            vec![key(0, "sk-1"), key(1, "sk-2")],
        ),
    ] {
        let mut merged = role(json!({}), children.clone());
        merge_secrets(&mut merged, Some(stored.clone()));
        assert_eq!(secrets(&mut merged), expected, "{children}");
    }
}

#[test]
fn masks_of_a_masked_role_keep_the_secrets() {
    let of = |key: &str| role(json!({"messengerToken": key, "agentServerApiKey": key}), json!([]));
    let mut merged = role(json!({"agentServerApiKey": "sk"}), json!([]));
    merge_secrets(&mut merged, Some(of("***")));
    assert_eq!(merged.content.messenger_token, Some(Secret::mask()));
    assert_eq!(merged.content.agent_server.agent_server_api_key, Some(Secret::new("sk")));
}

#[test]
fn the_secret_of_a_tool_stays_with_its_name_and_its_address() {
    let tool = |name: &str, url: &str, auth: Value| json!({"name": name, "auth": auth, "request": {"method": "GET", "url": url}});
    let of = |tools: &[Value]| role(json!({"httpTools": tools}), json!([]));
    let (url, bearer) = ("https://api.example/orders/{id}", json!({"type": "bearer"}));
    let with = |secret: &str| json!({"type": "bearer", "secret": secret});
    let other = tool("b", "https://b.example/", json!({"type": "none"}));
    check(
        "content.httpTools[a].auth.secret",
        &of(&[tool("a", url, with("sk-old"))]),
        &[
            (of(&[tool("a", url, bearer.clone())]), Some("sk-old")),
            (of(&[other.clone(), tool("a", url, with("***"))]), Some("sk-old")),
            (
                of(&[tool("a", "https://api.example/orders/{id}/lines/{line}", bearer.clone())]),
                Some("sk-old"),
            ),
            (of(&[tool("a", url, with("sk-new"))]), Some("sk-new")),
            (of(&[tool("a", url, with(""))]), None),
            (of(&[tool("a", "https://evil.example/orders/{id}", bearer.clone())]), None),
            (of(&[tool("a", "http://api.example/orders/{id}", with("***"))]), None),
            (of(&[tool("a", "https://api.example/{id}", bearer.clone())]), None),
            (of(&[tool("a", url, json!({"type": "header", "name": "X-Key"}))]), None),
            (of(&[tool("a", url, json!({"type": "query", "name": "key", "secret": "***"}))]), None),
            (of(&[tool("c", url, bearer)]), None),
            (of(&[tool("a", url, Value::Null)]), None),
        ],
    );
}
