//! Management of the tokens of one's agents.

use std::sync::Arc;

use agent_core::clock::SystemClock;
use agent_platform::records::Precondition;
use agent_platform::roles::RoleStore;
use agent_platform::token::{Grant, Token, TokenError, Tokens};
use serde_json::{Value, json};

use super::{COLLEAGUE, ManagementApp, OWNER, expect_json, open};
use crate::support::expect_problem;

const PATH: &str = "/api/agents/a1/tokens";

async fn find(bench: &ManagementApp, text: &Value) -> Result<Token, TokenError> {
    let tokens = Tokens::new(bench.stores.records.clone(), Arc::new(SystemClock));
    tokens.find(text.as_str().expect("a text")).await
}

#[tokio::test]
async fn tokens_are_shown_once_listed_and_revoked() {
    let bench = open().await;
    let widget = json!({"kind": "widget", "origins": ["https://Shop.example:443/"], "ttlMs": 3_600_000,
        "caps": {"runsPerMinute": 5, "runsPerDay": 100}, "label": "Shop"});
    let response = bench.post(OWNER, PATH, &widget).await;
    assert_eq!(response.headers()["cache-control"], "no-store");
    let widget = expect_json(response, 201).await;
    assert_eq!(
        (&widget["kind"], &widget["origins"], &widget["caps"], &widget["label"]),
        (
            &json!("widget"),
            &json!(["https://shop.example"]),
            &json!({"runsPerMinute": 5, "runsPerDay": 100}),
            &json!("Shop")
        )
    );
    assert!(widget["expiresAt"].as_str().expect("an end") > widget["createdAt"].as_str().expect("a start"));
    let mcp = json!({"kind": "mcp", "todoListId": "l1", "tools": ["readTodos"], "userId": "u2"});
    let mcp = expect_json(bench.post(OWNER, PATH, &mcp).await, 201).await;
    assert_eq!(mcp["userId"], "u1", "a token is for its maker");
    for made in [&widget, &mcp] {
        let found_token = find(&bench, &made["token"]).await.expect("it is valid");
        assert_eq!(
            (found_token.id.as_str(), &*found_token.agent_id),
            (made["id"].as_str().expect("an id"), "a1")
        );
    }
    let Grant::Mcp(grant) = find(&bench, &mcp["token"]).await.expect("it is valid").grant else {
        panic!("an MCP token")
    };
    assert_eq!((&*grant.user_id, grant.todo_list_id.as_deref()), ("u1", Some("l1")));
    assert_eq!(grant.tools, Some(vec!["readTodos".to_owned()]));

    let text = bench.get(OWNER, PATH).await.text().await.expect("a whole body");
    for made in [&widget, &mcp] {
        assert!(!text.contains(made["token"].as_str().expect("a text")), "{text}");
    }
    let listed: Value = serde_json::from_str(&text).expect("JSON");
    let without_text = |token: &Value| {
        let mut token = token.clone();
        token.as_object_mut().expect("an object").remove("token");
        token
    };
    assert_eq!(listed["tokens"], json!([without_text(&widget), without_text(&mcp)]));

    let one = format!("{PATH}/{}", widget["id"].as_str().expect("an id"));
    for _ in 0..2 {
        assert_eq!(bench.delete(OWNER, &one).await.status(), 204);
        assert!(matches!(find(&bench, &widget["token"]).await, Err(TokenError::Revoked)));
    }
    find(&bench, &mcp["token"]).await.expect("the other stays");
    let list = expect_json(bench.get(OWNER, PATH).await, 200).await;
    assert!(list["tokens"][0]["revokedAt"].is_string() && list["tokens"][1]["revokedAt"].is_null());
}

#[tokio::test]
async fn an_api_token_is_for_own_agents_and_ends_with_each_of_them() {
    let bench = open().await;
    expect_json(bench.put(OWNER, "/api/agents/a2", &json!({})).await, 201).await;
    let sent = json!({"kind": "api", "agents": ["a2"], "caps": {"runsPerMinute": 5}, "userId": "u2"});
    let created = expect_json(bench.post(OWNER, PATH, &sent).await, 201).await;
    assert_eq!((&created["userId"], &created["agents"]), (&json!("u1"), &json!(["a1", "a2"])));
    assert!(created["token"].as_str().expect("a text").starts_with("aga_"), "{created}");
    find(&bench, &created["token"]).await.expect("it is valid");
    for path in [PATH, "/api/agents/a2/tokens"] {
        let list = expect_json(bench.get(OWNER, path).await, 200).await;
        assert_eq!((&list["tokens"][0]["id"], &list["tokens"][1]), (&created["id"], &Value::Null));
    }
    let with_agents = |agents: &[&str]| json!({"kind": "api", "agents": agents});
    expect_problem(bench.post(OWNER, PATH, &with_agents(&["b1"])).await, 403, "FORBIDDEN").await;
    let unknown = bench.post(OWNER, PATH, &with_agents(&["a2", "nobody"])).await;
    assert_eq!(expect_problem(unknown, 404, "NOT_FOUND").await["detail"], "agents[1] not found");
    assert_eq!(bench.delete(OWNER, "/api/agents/a2").await.status(), 204);
    assert!(matches!(find(&bench, &created["token"]).await, Err(TokenError::Revoked)));
}

#[tokio::test]
async fn an_owner_cannot_revoke_a_token_of_anothers_agent_by_way_of_the_own() {
    let bench = open().await;
    let theirs =
        expect_json(bench.post(COLLEAGUE, "/api/agents/b1/tokens", &json!({"kind": "mcp"})).await, 201).await;
    let id = theirs["id"].as_str().expect("an id");
    for id in [id, &id[..8], &id.to_uppercase(), "none", "%00"] {
        expect_problem(bench.delete(OWNER, &format!("{PATH}/{id}")).await, 404, "NOT_FOUND").await;
    }
    find(&bench, &theirs["token"]).await.expect("it is valid");
}

#[tokio::test]
async fn tokens_end_with_their_agent() {
    let bench = open().await;
    let created = expect_json(bench.post(OWNER, PATH, &json!({"kind": "widget"})).await, 201).await;
    assert_eq!(bench.delete(OWNER, "/api/agents/a1").await.status(), 204);
    assert!(matches!(find(&bench, &created["token"]).await, Err(TokenError::Revoked)));
    // A new agent with the same id has no tokens, even with another owner, and even if the earlier agent was deleted
    // without revoking them.
    expect_json(bench.put(COLLEAGUE, "/api/agents/a1", &json!({})).await, 201).await;
    let created = expect_json(bench.post(COLLEAGUE, PATH, &json!({"kind": "mcp"})).await, 201).await;
    bench.stores.roles.delete_role(&"c1".into(), &"a1".into(), Precondition::Any).await.expect("deleted");
    find(&bench, &created["token"]).await.expect("it is there still");
    expect_json(bench.put(OWNER, "/api/agents/a1", &json!({})).await, 201).await;
    assert!(matches!(find(&bench, &created["token"]).await, Err(TokenError::Revoked)));
}

#[tokio::test]
async fn a_bad_body_names_the_field() {
    let bench = open().await;
    for (sent, detail) in [
        (json!({}), "the body is missing the field `kind`"),
        (json!({"kind": "x"}), "kind must be one of `widget`, `mcp`, `api`"),
        (json!({"kind": "widget", "ttlMs": 0}), "ttlMs must be a positive integer"),
        (json!({"kind": "widget", "ttlMs": u64::MAX}), "ttlMs exceeds the maximum lifetime"),
        (
            json!({"kind": "widget", "origins": ["https://a.example", "https://a.example/page"]}),
            "origins[1] must be an origin, such as https://shop.example or http://localhost:5173",
        ),
        (json!({"kind": "widget", "origins": "https://a.example"}), "origins must be an array"),
        (
            json!({"kind": "widget", "caps": {"runsPerMinute": 0}}),
            "caps.runsPerMinute must be a positive integer",
        ),
        (json!({"kind": "widget", "caps": [20]}), "caps must be an object"),
        (json!({"kind": "widget", "tools": []}), "tools does not apply to tokens of this kind"),
        (json!({"kind": "widget", "todoListId": "l"}), "todoListId does not apply to tokens of this kind"),
        (json!({"kind": "mcp", "origins": []}), "origins does not apply to tokens of this kind"),
        (json!({"kind": "mcp", "agents": []}), "agents does not apply to tokens of this kind"),
        (json!({"kind": "mcp", "caps": {"runsPerMinute": 1}}), "caps does not apply to tokens of this kind"),
        (json!({"kind": "api", "tools": []}), "tools does not apply to tokens of this kind"),
        (json!({"kind": "api", "agents": ["a1"]}), "agents names an agent twice"),
        (json!({"kind": "api", "agents": vec!["a1"; 50]}), "agents has more than 50 elements"),
        (json!({"kind": "mcp", "label": "x".repeat(201)}), "label has more than 200 bytes"),
        (json!({"kind": "mcp", "tools": vec!["readTodos"; 501]}), "tools has more than 500 elements"),
        (
            json!({"kind": "mcp", "tools": ["readTodos", "readToodos"]}),
            "tools[1] names no tool that this agent may use",
        ),
        // A preset does not include it.
        (json!({"kind": "mcp", "tools": ["readEpics"]}), "tools[0] names no tool that this agent may use"),
        (json!({"kind": "mcp", "todoListId": "a\u{0}"}), "todoListId has a control or invisible character"),
    ] {
        let problem = expect_problem(bench.post(OWNER, PATH, &sent).await, 400, "INVALID_REQUEST").await;
        assert_eq!(problem["detail"], detail, "{sent}");
    }
    let list = expect_json(bench.get(OWNER, PATH).await, 200).await;
    assert_eq!(list, json!({"tokens": []}));
}
