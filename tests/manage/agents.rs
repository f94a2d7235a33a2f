//! Agents: secrets, versions, lists and rejected bodies.

use agent_core::role::RoleSource as _;
use std::collections::BTreeMap;
use std::sync::Arc;

use agent_core::role::{Container, WebhookAuth};
use agent_core::secret::Secret;
use agent_platform::records::{Inventory, Precondition};
use agent_platform::roles::{RecordRoleStore, RoleStore};
use agent_platform::seal::Sealer;
use agentd::stores::Stores;
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{COLLEAGUE, OWNER, STRANGER, entity_tag, expect_json, open};
use crate::support::{expect_problem, server};

const PATH: &str = "/api/agents/a1";

#[tokio::test]
async fn secrets_are_masked_and_what_was_shown_can_be_sent_back() {
    let bench = open().await;
    let response = bench.get(OWNER, PATH).await;
    let first = entity_tag(&response);
    let mut body = expect_json(response, 200).await;
    for pointer in [
        "/content/messengerToken",
        "/content/agentServerApiKey",
        "/children/0/content/apiKey",
        "/children/1/content/auth/password",
    ] {
        assert_eq!(body.pointer(pointer), Some(&json!("***")), "{pointer}");
    }
    let response = bench.put(OWNER, PATH, &body).await;
    assert_eq!(entity_tag(&response), first, "nothing has changed");
    assert_eq!(expect_json(response, 200).await, body);

    body["content"]["messengerToken"] = "".into();
    body["content"]["agentServerUrl"] = "https://two.example".into();
    body["children"][0]["content"].as_object_mut().expect("an object").remove("apiKey");
    body["children"][1]["content"]["auth"]["password"] = "fresh-canary".into();
    let response = bench.put(OWNER, PATH, &body).await;
    assert_ne!(entity_tag(&response), first);
    let saved = expect_json(response, 200).await;
    assert_eq!(saved.pointer("/children/0/content/apiKey"), Some(&json!("***")), "absent stays");
    assert_eq!(saved.pointer("/content/messengerToken"), None, "empty is cleared");
    assert_eq!(saved.pointer("/content/agentServerApiKey"), None, "a key does not follow its address");
    let role = bench.stores.roles.role(&"c1".into(), &"a1".into()).await.expect("read").expect("there");
    let Container::EmbeddedAi(model) = &role.children[0] else { panic!("{role:?}") };
    assert_eq!(model.api_key.as_ref().map(Secret::expose), Some("role-key-canary"));
    let Container::WorkflowConnector(workflow) = &role.children[1] else { panic!("{role:?}") };
    let Some(WebhookAuth::Basic { password, .. }) = &workflow.auth else { panic!("{role:?}") };
    assert_eq!(password.as_ref().map(Secret::expose), Some("fresh-canary"));
}

#[tokio::test]
async fn unknown_names_are_refused_and_settings_without_effect_cause_warnings() {
    let bench = open().await;
    let path = "/api/agents/slip";
    for (body, field) in [
        (json!({"nmae": "x"}), "nmae "),
        (json!({"content": {"systemPromt": "x"}}), "content.systemPromt "),
        (json!({"content": {"tools": ["readTodos", "readTodo"]}}), "content.tools[1] "),
        (json!({"content": {"mcpPreset": ["all"]}}), "content.mcpPreset[0] "),
        (json!({"content": {"mcpPreset": "all"}}), "content.mcpPreset "),
        (json!({"content": {"documentIds": ["gone"]}}), "content.documentIds[0] "),
        (json!({"content": {"ragDocumentIds": ["gone"]}}), "content.ragDocumentIds[0] "),
        (json!({"content": {"agentServerProvider": "opneai"}}), "content.agentServerProvider "),
        (
            json!({"children": [{"name": "EmbeddedAI", "content": {"provider": "x"}}]}),
            "children[0].content.provider ",
        ),
        (
            json!({"children": [{"name": "EmbeddedAI", "content": {"modle": "x"}}]}),
            "children[0].content.modle ",
        ),
    ] {
        let problem = expect_problem(bench.put(OWNER, path, &body).await, 400, "INVALID_REQUEST").await;
        let detail = problem["detail"].as_str().expect("a detail");
        assert!(detail.starts_with(field), "{body}: {detail}");
    }
    let body = json!({"content": {"enableAutoRag": true, "widgetTools": ["recall"]}, "children": [{"name": "Embeded"}]});
    let saved = expect_json(bench.put(OWNER, path, &body).await, 201).await;
    let warned = |saved: &Value| -> Vec<String> {
        let warnings = saved["warnings"].as_array().expect("a list");
        warnings.iter().map(|warning| warning["path"].as_str().expect("a path").to_owned()).collect()
    };
    assert_eq!(warned(&saved), ["content.widgetTools[0]", "content.enableAutoRag", "children[0].name"]);
    assert!(saved["warnings"][1]["message"].is_string());
    assert_eq!(expect_json(bench.get(OWNER, path).await, 200).await.get("warnings"), None);
    let second = expect_json(bench.put(OWNER, path, &saved).await, 200).await;
    assert_eq!(second, saved, "a returned role can be sent back");
}

#[tokio::test]
async fn versions_guard_against_lost_updates() {
    let bench = open().await;
    let current = entity_tag(&bench.get(OWNER, PATH).await);
    let name = |name: &str| json!({"name": name});
    let put = async |path: &str, condition: (&str, &str), name: &Value| {
        bench.send(OWNER, "PUT", path, &[condition], Some(name)).await
    };
    for (path, condition) in [
        (PATH, ("if-match", "\"1000000\"")),
        (PATH, ("if-match", "W/\"1\"")),
        (PATH, ("if-none-match", "*")),
        ("/api/agents/new", ("if-match", "*")),
        ("/api/agents/new", ("if-match", &*current)),
    ] {
        expect_problem(put(path, condition, &name("x")).await, 412, "PRECONDITION_FAILED").await;
    }
    let response = bench.send(OWNER, "GET", PATH, &[("if-none-match", &current)], None).await;
    assert_eq!((response.status().as_u16(), entity_tag(&response)), (304, current.clone()));
    let response = put(PATH, ("if-match", &current), &name("next")).await;
    let next = entity_tag(&response);
    assert_eq!(expect_json(response, 200).await["name"], "next");
    expect_problem(put(PATH, ("if-match", &current), &name("late")).await, 412, "PRECONDITION_FAILED").await;
    let response = put("/api/agents/new", ("if-none-match", "*"), &name("new")).await;
    assert_eq!(response.headers()["location"], "/api/agents/new");
    expect_json(response, 201).await;
    let delete =
        async |condition: &str| bench.send(OWNER, "DELETE", PATH, &[("if-match", condition)], None).await;
    expect_problem(delete(&current).await, 412, "PRECONDITION_FAILED").await;
    assert_eq!(delete(&next).await.status(), 204);
    expect_problem(delete(&next).await, 404, "NOT_FOUND").await;
}

#[tokio::test]
async fn of_concurrent_writes_of_a_version_one_succeeds() {
    let bench = open().await;
    let current = entity_tag(&bench.get(OWNER, PATH).await);
    let condition = [("if-match", &*current)];
    let bodies: Vec<Value> = (0..8).map(|n| json!({"name": format!("writer {n}")})).collect();
    let race = bodies.iter().map(|body| bench.send(OWNER, "PUT", PATH, &condition, Some(body)));
    let mut statuses: Vec<u16> = join_all(race).await.iter().map(|r| r.status().as_u16()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 412, 412, 412, 412, 412, 412, 412]);
    // Without a precondition, every write succeeds.
    let race = bodies.iter().map(|body| bench.put(OWNER, PATH, body));
    assert!(join_all(race).await.iter().all(|response| response.status() == 200));
    // Of concurrent creations of one agent in a company, one succeeds; the other is 403 (another owner). Another
    // company's agent of the same id is independent of them.
    let race = [OWNER, COLLEAGUE, STRANGER].map(|user| bench.put(user, "/api/agents/new", &bodies[0]));
    let mut statuses: Vec<u16> = join_all(race).await.iter().map(|r| r.status().as_u16()).collect();
    assert_eq!(statuses.pop(), Some(201), "the stranger's");
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 403]);
}

#[tokio::test]
async fn the_company_has_its_agents_page_by_page() {
    let bench = open().await;
    for n in 0..23 {
        expect_json(bench.put(OWNER, &format!("/api/agents/n{n:02}"), &json!({})).await, 201).await;
    }
    for (limit, sizes) in [("", vec![25]), ("limit=11&", vec![11, 11, 3]), ("limit=25&", vec![25])] {
        let (mut page_sizes, mut ids, mut cursor) = (Vec::new(), Vec::new(), String::new());
        loop {
            let page =
                expect_json(bench.get(OWNER, &format!("/api/agents?{limit}{cursor}")).await, 200).await;
            let agents = page["agents"].as_array().expect("a list");
            page_sizes.push(agents.len());
            ids.extend(agents.iter().map(|agent| agent["id"].as_str().expect("an id").to_owned()));
            let Some(next) = page["nextCursor"].as_str() else { break };
            cursor = format!("cursor={next}");
        }
        assert_eq!(page_sizes, sizes);
        assert!(ids.is_sorted() && ids.len() == 25 && !ids.contains(&"z1".to_owned()), "{ids:?}");
    }
    let theirs = expect_json(bench.get(STRANGER, "/api/agents").await, 200).await;
    assert_eq!(theirs["agents"].as_array().expect("a list").len(), 1);
    for (query, detail) in [
        ("limit=0", "limit must be a whole number from 1 to 200"),
        ("limit=201", "limit must be a whole number from 1 to 200"),
        ("limit=x", "limit must be a whole number from 1 to 200"),
        ("limit=1&limit=2", "limit occurs more than once in the query"),
        ("cursor=x", "the cursor is invalid"),
    ] {
        for path in ["/api/agents", "/api/documents", "/api/agents/a1/tokens"] {
            let response = bench.get(OWNER, &format!("{path}?{query}")).await;
            assert_eq!(
                expect_problem(response, 400, "INVALID_REQUEST").await["detail"],
                detail,
                "{path}?{query}"
            );
        }
    }
}

#[tokio::test]
async fn a_large_agent_ends_its_page() {
    let bench = open().await;
    let prompt = "x".repeat(900 * 1024);
    for n in 0..12 {
        let large = json!({"content": {"systemPrompt": prompt}});
        expect_json(bench.put(OWNER, &format!("/api/agents/n{n:02}"), &large).await, 201).await;
    }
    let page = expect_json(bench.get(OWNER, "/api/agents").await, 200).await;
    assert_eq!(page["agents"].as_array().expect("a list").len(), 10);
    let cursor = page["nextCursor"].as_str().expect("there are more");
    let page = expect_json(bench.get(OWNER, &format!("/api/agents?cursor={cursor}")).await, 200).await;
    assert_eq!(page["agents"].as_array().expect("a list").len(), 4);
    assert_eq!(page["nextCursor"], Value::Null);
}

#[tokio::test]
async fn a_bad_body_names_the_field() {
    let bench = open().await;
    let long = format!("/api/agents/{}", "x".repeat(129));
    for (path, sent, detail) in [
        (PATH, json!({"content": {"rules": "role-key-canary"}}), "content.rules must be an array"),
        (PATH, json!({"content": {"agentServerModel": 5}}), "content.agentServerModel must be a string"),
        (
            PATH,
            json!({"children": [{"name": "EmbeddedAI", "content": {"apiKey": 5}}]}),
            "children[0].content.apiKey is not a valid value",
        ),
        (PATH, json!({"children": [{}]}), "children[0] is missing the field `name`"),
        (PATH, json!({"content": {"documentIds": ["d1", ""]}}), "content.documentIds[1] is empty"),
        (PATH, json!([]), "the body must be an object"),
        (&long, json!({}), "id has 129 bytes; the limit is 128"),
        ("/api/agents/a%00b", json!({}), "id has a control or invisible character"),
    ] {
        let problem = expect_problem(bench.put(OWNER, path, &sent).await, 400, "INVALID_REQUEST").await;
        assert_eq!(problem["detail"], detail, "{sent}");
    }
    for (content_type, sent, status, code) in [
        ("application/json", "{", 400, "INVALID_REQUEST"),
        ("text/plain", "{}", 415, "UNSUPPORTED_MEDIA_TYPE"),
        ("application/json", &"[".repeat(100), 400, "INVALID_REQUEST"),
        ("application/json", &" ".repeat(2 << 20), 413, "PAYLOAD_TOO_LARGE"),
    ] {
        for path in [PATH, "/api/documents/d1"] {
            let request = bench.app.request("PUT", path).bearer_auth(server::session_token("u1", "c1"));
            let sent = request.header("content-type", content_type).body(sent.to_owned()).send().await;
            expect_problem(sent.expect("an answer"), status, code).await;
        }
    }
}

#[tokio::test]
async fn a_secret_without_the_key_to_seal_it_is_refused_by_that_settings_name() {
    let bench = open().await;
    let records: Arc<dyn Inventory> = bench.stores.records.clone();
    let roles = Arc::new(RecordRoleStore::new(records.clone(), Sealer::without_key()));
    let stores = Stores { roles, records, ..bench.stores.clone() };
    let app = server::app_with_stores(stores, &[]).await;
    let bench = super::ManagementApp { app, stores: bench.stores };
    let with = json!({"content": {"messengerToken": "fresh-canary"}});
    let problem =
        expect_problem(bench.put(OWNER, "/api/agents/new", &with).await, 503, "NOT_CONFIGURED").await;
    assert_eq!(problem["detail"], "DATA_SECRET is not set");
    expect_json(bench.put(OWNER, "/api/agents/new", &json!({})).await, 201).await;
}

#[tokio::test]
async fn an_agent_without_an_owner_is_changed_by_no_user() {
    let bench = open().await;
    let role = serde_json::from_value(json!({"id": "free", "companyId": "c1"})).expect("a role");
    bench.stores.roles.put_role(role, Precondition::Absent).await.expect("saved");
    expect_problem(bench.put(OWNER, "/api/agents/free", &json!({})).await, 403, "FORBIDDEN").await;
    expect_problem(bench.delete(OWNER, "/api/agents/free").await, 403, "FORBIDDEN").await;
}

#[tokio::test]
async fn a_saved_agent_is_used_at_once() {
    let bench = open().await;
    let agents: BTreeMap<&str, Value> = BTreeMap::from([
        ("plain", json!({"children": []})),
        ("unknown", json!({"children": [{"name": "Later", "content": {"x": 1}}]})),
    ]);
    for (id, sent) in agents {
        let path = format!("/api/agents/{id}");
        let mut saved = expect_json(bench.put(OWNER, &path, &sent).await, 201).await;
        let warnings = saved.as_object_mut().expect("an object").remove("warnings");
        let warned = warnings.as_ref().map(|warnings| &warnings[0]["path"]);
        let expected = if id == "unknown" { "children[0].name" } else { "children" };
        assert_eq!(warned, Some(&json!(expected)), "{warnings:?}");
        assert_eq!(expect_json(bench.get(COLLEAGUE, &path).await, 200).await, saved);
        let chat = bench.app.chat(&json!({"agentId": id, "message": "Hello"})).await;
        expect_problem(chat, 422, "NO_CONNECTOR").await;
        assert_eq!(bench.delete(OWNER, &path).await.status(), 204);
        let chat = bench.app.chat(&json!({"agentId": id, "message": "Hello"})).await;
        expect_problem(chat, 404, "NOT_FOUND").await;
    }
}
