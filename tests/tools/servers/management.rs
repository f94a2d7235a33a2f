//! Tool servers in roles: discovery, pinning, faults of settings, and access.

use super::*;

#[tokio::test]
async fn an_empty_cursor_ends_a_list_of_the_older_revisions_alone() {
    for revision in MCP_REVISIONS {
        let (vendor, server) = (Vendor::start().await, start_server(revision).await);
        let app = server::app(&workspace_with(&vendor, &[entry("crm", &server)]), &[]).await;
        pin(&app, "crm", &["search"]).await;
        let page = |name: &str| json!({"tools": [definition(name)], "nextCursor": ""});
        match revision {
            McpRevision::Sessions => server.on("tools/list", [result_response(&page("search"))]),
            McpRevision::Stateless => {
                server.on("tools/list", [result_response(&page("hidden")), list(&["search"])])
            }
        };
        assert_eq!(run(&app, &vendor, "crm_search", 1).await, ["search is done"], "{revision:?}");
    }
}

#[tokio::test]
async fn a_list_of_too_many_tools_is_not_read_any_further() {
    let tools: Vec<Value> = (0..=1000).map(|number| definition(&format!("t{number}"))).collect();
    for revision in MCP_REVISIONS {
        let (vendor, server) = (Vendor::start().await, start_server(revision).await);
        let app = server::app(&workspace_with(&vendor, &[entry("crm", &server)]), &[]).await;
        pin(&app, "crm", &["search"]).await;
        for page in [json!({"tools": tools}), json!({"tools": tools, "nextCursor": "again"})] {
            server.on("tools/list", [result_response(&page)]);
            let request_count = server.received().len();
            let result = run(&app, &vendor, "crm_search", 1).await.remove(0);
            assert!(result.contains("lists too many tools"), "{result}");
            let names = server.received_names().split_off(request_count);
            let lists = names.iter().filter(|name| *name == "tools/list").count();
            assert_eq!(lists, 1, "{revision:?}: {names:?}");
        }
    }
}

#[tokio::test]
async fn equal_tool_names_of_two_servers_are_distinguished() {
    let (vendor, crm, erp) = (
        Vendor::start().await,
        start_server(McpRevision::Stateless).await,
        start_server(McpRevision::Sessions).await,
    );
    crm.on("search", [text_result("from the CRM")]);
    erp.on("search", [text_result("from the ERP")]);
    let servers = [entry("crm", &crm), entry("erp", &erp)];
    let app = server::app(&workspace_with(&vendor, &servers), &[]).await;
    pin(&app, "crm", &["search"]).await;
    pin(&app, "erp", &["search"]).await;
    assert_eq!(run(&app, &vendor, "crm_search", 1).await, ["from the CRM"]);
    assert_eq!(run(&app, &vendor, "erp_search", 1).await, ["from the ERP"]);
    assert_eq!(offered(&vendor, 0), ["crm_search", "erp_search"]);
}

#[tokio::test]
async fn faults_are_refused_and_the_secret_stays_with_its_address() {
    let (vendor, server, other) = (
        Vendor::start().await,
        start_server(McpRevision::Stateless).await,
        start_server(McpRevision::Stateless).await,
    );
    let mut workspace = workspace_with(&vendor, &[entry("crm", &server)]);
    let app = server::app(&workspace, &[]).await;
    let path = "/agents/0/content/toolServers/0";
    for (field, value, expected) in [
        ("id", json!("c r m"), "content.toolServers[0].id"),
        ("url", json!("https://u:p@h.example/mcp"), "content.toolServers[0].url"),
        ("url", json!("https://h.example/mcp?key=1"), "content.toolServers[0].url"),
        ("tools", json!(["a.b", "a/b"]), "content.toolServers[0].tools[1]"),
        ("tools", json!([]), "content.toolServers[0].tools"),
        ("timeoutMs", json!(5), "content.toolServers[0].timeoutMs"),
        ("toolz", json!([]), "content.toolServers[0]"),
    ] {
        let mut faulty = workspace.clone();
        faulty.pointer_mut(path).expect("a server")[field] = value;
        let problem = expect_problem(put_agent(&app, &faulty).await, 400, "INVALID_REQUEST").await;
        assert!(problem["detail"].as_str().expect("text").starts_with(expected), "{problem}");
    }
    pin(&app, "crm", &["search"]).await;
    workspace.pointer_mut(path).expect("a server")["auth"]["secret"] = json!("***");
    assert_eq!(put_agent(&app, &workspace).await.status(), 200);
    assert_eq!(run(&app, &vendor, "crm_search", 1).await, ["search is done"]);
    // With another address, secret and pins are gone.
    workspace.pointer_mut(path).expect("a server")["url"] = json!(other.plain_url());
    assert_eq!(put_agent(&app, &workspace).await.status(), 200);
    assert_eq!(states(&app).await, [state("crm_refund", "new"), state("crm_search", "new")]);
    assert!(
        discover(&app, "crm").await["error"].as_str().expect("text").contains("credential is not configured")
    );
    assert!(other.received().is_empty());
    // A new agent does not have the pins of a deleted agent.
    workspace.pointer_mut(path).expect("a server")["url"] = json!(server.plain_url());
    workspace.pointer_mut(path).expect("a server")["auth"]["secret"] = json!(SECRET);
    assert_eq!(put_agent(&app, &workspace).await.status(), 200);
    assert_eq!(states(&app).await[1], state("crm_search", "ok"));
    let delete = app.request("DELETE", "/api/agents/a1").bearer_auth(session_token("u1", "c1"));
    assert_eq!(delete.send().await.expect("an answer").status(), 204);
    assert_eq!(put_agent(&app, &workspace).await.status(), 201);
    assert_eq!(states(&app).await[1], state("crm_search", "new"));
}

#[tokio::test]
async fn only_the_owner_inspects_pins_and_tries_tools() {
    let (vendor, server) = (Vendor::start().await, start_server(McpRevision::Stateless).await);
    let app = server::app(&workspace_with(&vendor, &[entry("crm", &server)]), &[]).await;
    pin(&app, "crm", &["search"]).await;
    let tried = post(&app, "/crm_search/test", &json!({"arguments": {"q": "x"}})).await;
    assert_eq!(
        tried.json::<Value>().await.expect("JSON"),
        json!({"text": "search is done", "isError": false})
    );
    let tried = post(&app, "/crm_search/test", &json!({"arguments": {"q": 1}})).await;
    let tried: Value = tried.json().await.expect("JSON");
    assert!(tried["isError"] == true && tried["text"].as_str().expect("text").contains("invalid arguments"));
    let audit = poll_until(
        async || get(&app, "/api/agent/tools/audit?agentId=a1").await,
        |page| page["calls"].as_array().is_some_and(|calls| calls.len() == 2),
    );
    audit.await;
    for name in ["readTodos", "crm_hidden"] {
        let tried = post(&app, &format!("/{name}/test"), &json!({})).await;
        expect_problem(tried, 404, "NOT_FOUND").await;
    }
    let unknown = post(&app, "/discover", &json!({"serverId": "erp"})).await;
    let problem = expect_problem(unknown, 400, "INVALID_REQUEST").await;
    assert!(problem["detail"].as_str().expect("text").ends_with("which has crm"), "{problem}");
    for (name, status, code, detail) in [
        ("search", 409, "CONFLICT", "search"),
        ("hidden", 400, "INVALID_REQUEST", "is not a tool that the role names: search"),
    ] {
        let body = json!({"serverId": "crm", "fingerprints": {(name): "0".repeat(64)}});
        let problem = expect_problem(post(&app, "/pin", &body).await, status, code).await;
        assert!(problem["detail"].as_str().expect("text").contains(detail), "{problem}");
    }
    // A definition that no model should read.
    let mut huge = definition("search");
    huge["description"] = json!("x".repeat(1 << 20));
    server.on("tools/list", [result_response(&json!({"tools": [huge]}))]);
    let discovery = discover(&app, "crm").await;
    let search = &discovery["tools"][1];
    assert!(search["definition"].is_null() && search["fault"].as_str().expect("text").contains("the limit"));
    let body = json!({"serverId": "crm", "fingerprints": {"search": search["fingerprint"]}});
    expect_problem(post(&app, "/pin", &body).await, 400, "INVALID_REQUEST").await;

    let request_count = server.received().len();
    for (method, path) in [("GET", ""), ("POST", "/discover"), ("POST", "/pin"), ("POST", "/crm_search/test")]
    {
        let request = app.request(method, &format!("/api/agents/a1/tools{path}"));
        let request = request.bearer_auth(session_token("u2", "c1")).json(&json!({"serverId": "crm"}));
        expect_problem(request.send().await.expect("an answer"), 403, "FORBIDDEN").await;
        let request = app.request(method, &format!("/api/agents/a1/tools{path}"));
        let request = request.bearer_auth(session_token("u1", "c2")).json(&json!({"serverId": "crm"}));
        expect_problem(request.send().await.expect("an answer"), 404, "NOT_FOUND").await;
    }
    assert_eq!(server.received().len(), request_count);
}

#[tokio::test]
async fn the_preview_of_an_unsaved_role_has_its_own_tools() {
    let (vendor, server) = (Vendor::start().await, start_server(McpRevision::Stateless).await);
    let mut workspace = workspace_with(&vendor, &[entry("crm", &server)]);
    let app = server::app(&workspace, &[]).await;
    pin(&app, "crm", &["search", "refund"]).await;
    let content = &mut workspace["agents"][0]["content"];
    content["toolServers"][0]["tools"] = json!(["search"]);
    content["httpTools"] = json!([{"name": "getOrder", "description": "Returns an order.",
        "request": {"method": "GET", "url": "https://api.acme.example/orders"}}]);
    let body = json!({"role": workspace["agents"][0], "message": "hi"});
    let request = app.request("POST", "/api/agents/a1/preview").bearer_auth(session_token("u1", "c1"));
    let preview: Value = request.json(&body).send().await.expect("an answer").json().await.expect("JSON");
    let names = |tools: &Value| -> Vec<String> {
        let tools = tools.as_array().expect("tools").iter();
        tools.map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(names(&preview["tools"]), ["crm_search", "getOrder"], "{preview}");
    let stored = get(&app, "/api/agents/a1/tools").await;
    assert_eq!(names(&stored["tools"]), ["crm_refund", "crm_search"]);
}
