//! Management of providers: access, versions, faults, and providers in use.

use super::*;

#[tokio::test]
async fn admins_manage_the_providers_of_their_company() {
    let test = ProviderApp::start(&[]).await;
    let (path, body) =
        ("/api/providers/own", test.provider(json!({"models": [{"model": "m", "tools": true}]})));
    for (method, path) in [("PUT", path), ("GET", path), ("DELETE", path), ("GET", "/api/providers")] {
        expect_problem(test.send(OWNER, method, path, &body).await, 403, "FORBIDDEN").await;
    }
    for id in ["openai", "Ollama", "auto", "local", "workflow", "a%20b", "-a"] {
        let response = test.send(BOSS, "PUT", &format!("/api/providers/{id}"), &body).await;
        expect_problem(response, 400, "INVALID_REQUEST").await;
    }
    let created = test.send(BOSS, "PUT", path, &body).await;
    assert_eq!(
        (created.status().as_u16(), created.headers()["location"].to_str().expect("text")),
        (201, path)
    );
    let tag = created.headers()["etag"].to_str().expect("text").to_owned();
    let shown = json!({"id": "own", "type": "openai", "baseUrl": test.vendor.base_url(), "apiKey": "***",
        "models": [{"model": "m", "tools": true}]});
    assert_eq!(created.json::<Value>().await.expect("JSON"), shown);
    assert_eq!(test.get(BOSS, path).await, shown);
    // A provider can be sent back as it was read.
    let same = test.send(BOSS, "PUT", path, &shown).await;
    assert_eq!((same.status().as_u16(), same.json::<Value>().await.expect("JSON")), (200, shown.clone()));
    let page = test.get(BOSS, "/api/providers?limit=1").await;
    assert_eq!((&page["providers"][0]["id"], page["nextCursor"].is_string()), (&json!("acme"), true));
    let second_page = format!("/api/providers?limit=1&cursor={}", page["nextCursor"].as_str().expect("text"));
    assert_eq!(test.get(BOSS, &second_page).await, json!({"providers": [shown]}));
    let request = test.app.request("DELETE", path).bearer_auth(session_token("boss", "c1"));
    let response = request.header("If-Match", tag).send().await.expect("an answer");
    expect_problem(response, 412, "PRECONDITION_FAILED").await;
    assert_eq!(test.send(BOSS, "DELETE", path, &Value::Null).await.status(), 204);
    expect_problem(test.send(BOSS, "GET", path, &Value::Null).await, 404, "NOT_FOUND").await;

    for n in 0..49 {
        put(&test.app, &format!("p{n}"), &json!({"type": "openai"})).await;
    }
    let full = test.send(BOSS, "PUT", "/api/providers/one-more", &json!({"type": "openai"})).await;
    assert_eq!(expect_problem(full, 409, "CONFLICT").await["limit"], 50);
}

#[tokio::test]
async fn one_of_concurrent_changes_with_a_version_wins() {
    let test = ProviderApp::start(&[]).await;
    let read = test.send(BOSS, "GET", "/api/providers/acme", &Value::Null).await;
    let tag = read.headers()["etag"].to_str().expect("text").to_owned();
    let writes = (0..8).map(|n| {
        let request = test.app.request("PUT", "/api/providers/acme").bearer_auth(session_token("boss", "c1"));
        let body = test.provider(json!({"apiKey": format!("raced-{n}")}));
        request.header("If-Match", &tag).json(&body).send()
    });
    let statuses: Vec<u16> = join_all(writes)
        .await
        .into_iter()
        .map(|response| response.expect("an answer").status().as_u16())
        .collect();
    let winners: Vec<usize> =
        statuses.iter().enumerate().filter(|(_, status)| **status == 200).map(|(n, _)| n).collect();
    assert_eq!(
        (winners.len(), statuses.iter().filter(|status| **status == 412).count()),
        (1, 7),
        "{statuses:?}"
    );
    assert_eq!(ask(&test.app, "a1").await.status(), 200);
    assert_eq!(keys(&test.vendor), [format!("raced-{}", winners[0])]);
}

#[tokio::test]
async fn hostile_providers_are_refused() {
    let test = ProviderApp::start(&[("OUTBOUND_ALLOW", "127.0.0.0/8")]).await;
    for (changes, field) in [
        (json!({"baseUrl": "http://169.254.169.254/canary"}), "baseUrl"),
        (json!({"baseUrl": "http://[::ffff:169.254.169.254]/canary"}), "baseUrl"),
        (json!({"baseUrl": "http://10.0.0.1/canary"}), "baseUrl"),
        (json!({"baseUrl": "http://2852039166/canary"}), "baseUrl"),
        (json!({"baseUrl": "file:///etc/canary"}), "baseUrl"),
        (json!({"baseUrl": "https://canary:canary@v.example/v1"}), "baseUrl"),
        (json!({"baseUrl": "https://v.example/canary\r\nx-y: z"}), "baseUrl"),
        (json!({"apiKey": "canary\r\nx-y: z"}), "apiKey"),
        (json!({"apiKey": "canary".repeat(2_000)}), "apiKey"),
        (json!({"type": "canary"}), "type"),
        (json!({"type": "local"}), "type"),
        (json!({"canary": true}), "canary"),
        (
            json!({"models": [{"model": "m", "prices": {"input": "1e400", "output": "1"}}]}),
            "models[0].prices.input",
        ),
        (
            json!({"models": [{"model": "m", "prices": {"input": "1", "output": "-1"}}]}),
            "models[0].prices.output",
        ),
    ] {
        let response = test.send(BOSS, "PUT", "/api/providers/acme", &test.provider(changes.clone())).await;
        let problem = expect_problem(response, 400, "INVALID_REQUEST").await.to_string();
        assert!(problem.contains(field), "{changes}: {problem}");
        assert!(field == "canary" || !problem.contains("canary"), "{changes}: {problem}");
    }
    // The address of a name is checked when it is called.
    let (allowed, url) = (test.provider(json!({})), "http://localhost.example.invalid/v1");
    put(&test.app, "acme", &test.provider(json!({"baseUrl": url, "apiKey": "k2"}))).await;
    let unreachable = ask(&test.app, "a1").await;
    assert!(unreachable.status().is_server_error(), "{}", unreachable.status());
    put(&test.app, "acme", &allowed).await;
    assert_eq!(ask(&test.app, "a1").await.status(), 200);
    assert_eq!(keys(&test.vendor), ["k1"]);
}

#[tokio::test]
async fn a_provider_in_use_is_not_deleted() {
    let test = ProviderApp::start(&[]).await;
    let path = "/api/providers/acme";
    let problem = expect_problem(test.send(BOSS, "DELETE", path, &Value::Null).await, 409, "CONFLICT").await;
    assert_eq!(problem["agents"], json!(["a1"]));
    let fallback = json!({"provider": "openai", "baseUrl": test.vendor.base_url(), "apiKey": "own",
        "fallbacks": [named()]});
    assert_eq!(test.save_agent(&fallback).await.status(), 200);
    let problem = expect_problem(test.send(BOSS, "DELETE", path, &Value::Null).await, 409, "CONFLICT").await;
    assert_eq!(problem["agents"], json!(["a1"]));
    assert_eq!(test.save_agent(&json!({"provider": "openai"})).await.status(), 200);
    assert_eq!(test.send(BOSS, "DELETE", path, &Value::Null).await.status(), 204);
}

#[tokio::test]
async fn another_company_cannot_name_read_or_see_it() {
    let mut all = with_container(&named());
    let mut other = all["agents"][0].clone();
    other["companyId"] = "c2".into();
    other["ownerId"] = "boss".into();
    all["agents"].as_array_mut().expect("a list").push(other.clone());
    let test = ProviderApp::start_with(&all, &[]).await;
    let models = json!([{"model": "own-model", "contextWindow": 4_096}]);
    put(&test.app, "acme", &test.provider(json!({"models": models}))).await;
    let stranger = ("boss", "c2");
    for (method, body) in [("GET", Value::Null), ("DELETE", Value::Null)] {
        expect_problem(test.send(stranger, method, "/api/providers/acme", &body).await, 404, "NOT_FOUND")
            .await;
    }
    assert_eq!(test.get(stranger, "/api/providers").await, json!({"providers": []}));
    assert_eq!(test.get(stranger, "/api/models?provider=acme").await["models"], json!([]));
    let list = test.get(OWNER, "/api/models?provider=acme").await;
    let expected =
        json!([{"provider": "acme", "providerType": "openai", "model": "own-model", "contextWindow": 4_096}]);
    assert_eq!(list["models"], expected);
    let response = test.send(stranger, "PUT", "/api/agents/a1", &other).await;
    let problem = expect_problem(response, 400, "INVALID_REQUEST").await;
    assert!(problem.to_string().contains("children[0].content.provider"), "{problem}");
    // An agent that was stored with the name has no model, and says which name is unknown.
    let body = json!({"agentId": "a1", "message": "Hello", "store": false});
    let response = test.app.chat_as(&session_token("boss", "c2"), "", &body).await;
    let problem = expect_problem(response, 400, "UNKNOWN_PROVIDER").await;
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("\"acme\"")), "{problem}");
    assert!(keys(&test.vendor).is_empty());
    // Its own of the same name is another.
    let own_vendor = Vendor::start().await;
    own_vendor.on_all(answer(&["Hi."]));
    let provider = json!({"type": "openai", "baseUrl": own_vendor.base_url(), "apiKey": "of-c2"});
    assert_eq!(test.send(stranger, "PUT", "/api/providers/acme", &provider).await.status(), 201);
    assert_eq!(test.app.chat_as(&session_token("boss", "c2"), "", &body).await.status(), 200);
    assert_eq!(ask(&test.app, "a1").await.status(), 200);
    assert_eq!((keys(&own_vendor), keys(&test.vendor)), (vec!["of-c2".to_owned()], vec!["k1".to_owned()]));
}

#[tokio::test]
async fn visitors_and_tokens_have_no_access() {
    let test = ProviderApp::start(&[]).await;
    let tokens = Tokens::new(test.stores.records.clone(), Arc::new(SystemClock));
    let widget = tokens.mint(NewToken::new("c1", "a1", Grant::Widget(WidgetGrant::default()))).await;
    let widget = widget.expect("minted").text.expose().to_owned();
    for (method, path) in [
        ("GET", "/api/providers"),
        ("GET", "/api/providers/acme"),
        ("PUT", "/api/providers/acme"),
        ("DELETE", "/api/providers/acme"),
        ("GET", "/api/models"),
    ] {
        let bare = test.app.request(method, path).send().await.expect("an answer");
        assert!(matches!(bare.status().as_u16(), 401 | 403), "{method} {path}: {}", bare.status());
        let headed = test.app.request(method, path).header("x-widget-token", &widget);
        let borne = test.app.request(method, path).bearer_auth(&widget);
        for request in [headed, borne] {
            let response = request.json(&test.provider(json!({}))).send().await.expect("an answer");
            assert!(
                matches!(response.status().as_u16(), 401 | 403),
                "{method} {path}: {}",
                response.status()
            );
        }
    }
    // A visitor gets an answer without any data of the provider.
    let chat = async || {
        let request = test.app.request("POST", "/api/agent/chat").header("x-widget-token", &widget);
        let response = request.json(&json!({"message": "Hello"})).send().await.expect("an answer");
        (response.status().as_u16(), response.text().await.expect("a body"))
    };
    let (status, text) = chat().await;
    assert!(status == 200 && !text.contains("acme"), "{status} {text}");
}
