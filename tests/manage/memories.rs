//! Memory of agents over the management API: each user's own entries, and entries that the company shares.

use agent_core::ids::AgentId;
use agent_platform::workspace::MAX_MEMORIES_PER_FOLDER;
use agent_platform::workspace::{MemoryFolder, create_memory, list_memories};
use serde_json::{Value, json};

use super::{COLLEAGUE, ManagementApp, OWNER, STRANGER, entity_tag, expect_json, open};
use crate::support::expect_problem;

const OWN: &str = "/api/agents/a1/memories";
const SHARED: &str = "/api/agents/a1/shared-memories";
/// A user of the other company with the id of the agent's owner.
const NAMESAKE: (&str, &str) = ("u1", "c2");

fn text(text: &str) -> Value {
    json!({ "text": text })
}

async fn texts(bench: &ManagementApp, user: (&str, &str), path: &str) -> Vec<String> {
    let page = expect_json(bench.get(user, path).await, 200).await;
    let entries = page["memories"].as_array().expect("a list").iter();
    entries.map(|entry| entry["text"].as_str().expect("text").to_owned()).collect()
}

async fn preview(bench: &ManagementApp, user: (&str, &str), agent: &str) -> String {
    let path = format!("/api/svcchat/debugPrompt?agentId={agent}");
    expect_json(bench.get(user, &path).await, 200).await["finalSystemPrompt"]
        .as_str()
        .expect("text")
        .to_owned()
}

/// Sends a `PUT` that must succeed.
async fn save(bench: &ManagementApp, user: (&str, &str), path: &str, body: &Value) {
    let status = bench.put(user, path, body).await.status();
    assert!(status.is_success(), "{path}: {status}");
}

#[tokio::test]
async fn the_memories_of_a_user_belong_to_that_user() {
    let bench = open().await;
    // Another company's agent of the same id, and its user of the same id.
    let model = json!({"provider": "openai", "model": "m", "baseUrl": "https://model.example/v1", "apiKey": "fresh-canary"});
    let agent = json!({"children": [{"name": "EmbeddedAI", "content": model}]});
    save(&bench, STRANGER, "/api/agents/a1", &agent).await;
    for user in [OWNER, COLLEAGUE, NAMESAKE] {
        let memory = text(&format!("of {} in-{}", user.0, user.1));
        let response = bench.put(user, &format!("{OWN}/m"), &memory).await;
        let tag = entity_tag(&response);
        let entry = expect_json(response, 201).await;
        assert_eq!((&entry["userId"], &entry["companyId"]), (&json!(user.0), &json!(user.1)));
        let second =
            bench.send(user, "PUT", &format!("{OWN}/m"), &[("if-match", "\"1\"")], Some(&memory)).await;
        expect_problem(second, 412, "PRECONDITION_FAILED").await;
        let put_back =
            bench.send(user, "PUT", &format!("{OWN}/m"), &[("if-match", &tag)], Some(&entry)).await;
        expect_json(put_back, 200).await;
    }
    for user in [OWNER, COLLEAGUE, NAMESAKE] {
        let expected = format!("of {} in-{}", user.0, user.1);
        assert_eq!(texts(&bench, user, OWN).await, [expected.as_str()]);
        assert_eq!(
            expect_json(bench.get(user, &format!("{OWN}/m")).await, 200).await["text"],
            expected.as_str()
        );
        let preview = preview(&bench, user, "a1").await;
        assert!(preview.contains(&expected) && preview.matches("in-c").count() == 1, "{preview}");
    }
    assert_eq!(bench.delete(COLLEAGUE, &format!("{OWN}/m")).await.status(), 204);
    expect_problem(bench.get(COLLEAGUE, &format!("{OWN}/m")).await, 404, "NOT_FOUND").await;
    expect_problem(bench.delete(COLLEAGUE, &format!("{OWN}/m")).await, 404, "NOT_FOUND").await;
    assert_eq!(texts(&bench, OWNER, OWN).await, ["of u1 in-c1"]);
    assert!(!preview(&bench, COLLEAGUE, "a1").await.contains("in-c"));

    // All at once, in a folder that the agent no longer uses as well.
    save(&bench, COLLEAGUE, "/api/agents/b1", &json!({"content": {"memoryFolder": "old"}})).await;
    for (user, path) in [(OWNER, "m1"), (OWNER, "m2"), (COLLEAGUE, "m1")] {
        save(&bench, user, &format!("/api/agents/b1/memories/{path}"), &text("x")).await;
    }
    save(&bench, COLLEAGUE, "/api/agents/b1", &json!({"content": {}})).await;
    assert_eq!(bench.delete(OWNER, "/api/agents/b1/memories").await.status(), 204);
    save(&bench, COLLEAGUE, "/api/agents/b1", &json!({"content": {"memoryFolder": "old"}})).await;
    assert_eq!(texts(&bench, OWNER, "/api/agents/b1/memories").await, Vec::<String>::new());
    assert_eq!(texts(&bench, COLLEAGUE, "/api/agents/b1/memories").await, ["x"]);
}

#[tokio::test]
async fn shared_entries_are_changed_by_the_owner_and_shown_if_shared() {
    let bench = open().await;
    let entry = format!("{SHARED}/m");
    expect_problem(bench.put(COLLEAGUE, &entry, &text("x")).await, 403, "FORBIDDEN").await;
    expect_problem(bench.put(STRANGER, &entry, &text("x")).await, 404, "NOT_FOUND").await;
    let created = expect_json(bench.put(OWNER, &entry, &text("sells tea")).await, 201).await;
    assert_eq!(created.get("userId"), None);
    save(&bench, COLLEAGUE, &format!("{OWN}/m"), &text("the colleague's")).await;
    // The role does not share its memory: only the owner sees its remaining entries.
    assert_eq!(texts(&bench, OWNER, SHARED).await, ["sells tea"]);
    expect_problem(bench.get(COLLEAGUE, SHARED).await, 403, "FORBIDDEN").await;
    expect_problem(bench.get(COLLEAGUE, &entry).await, 403, "FORBIDDEN").await;
    for user in [OWNER, COLLEAGUE] {
        assert!(!preview(&bench, user, "a1").await.contains("sells tea"));
    }

    let mut role = expect_json(bench.get(OWNER, "/api/agents/a1").await, 200).await;
    role["content"]["memoryScope"] = "company".into();
    expect_json(bench.put(OWNER, "/api/agents/a1", &role).await, 200).await;
    for user in [OWNER, COLLEAGUE] {
        let preview = preview(&bench, user, "a1").await;
        assert!(preview.contains("sells tea") && !preview.contains("the colleague's"), "{preview}");
        assert_eq!(texts(&bench, user, SHARED).await, ["sells tea"]);
    }
    expect_problem(bench.get(STRANGER, SHARED).await, 404, "NOT_FOUND").await;
    for path in [SHARED, &entry] {
        expect_problem(bench.delete(COLLEAGUE, path).await, 403, "FORBIDDEN").await;
    }
    assert_eq!(bench.delete(OWNER, &entry).await.status(), 204);
    expect_json(bench.put(OWNER, &entry, &text("again")).await, 201).await;
    assert_eq!(bench.delete(OWNER, SHARED).await.status(), 204);
    assert_eq!(texts(&bench, COLLEAGUE, SHARED).await, Vec::<String>::new());
    assert_eq!(texts(&bench, COLLEAGUE, OWN).await, ["the colleague's"]);
}

#[tokio::test]
async fn invalid_memories_are_refused() {
    let bench = open().await;
    let one = format!("{OWN}/m");
    let long = "x".repeat(4_097);
    for (body, detail) in [
        (json!({}), "text is missing"),
        (json!({"text": 7}), "text must be a string"),
        (json!({"text": " "}), "text is blank"),
        (json!({"text": long}), "text has 4097 bytes; the limit is 4096"),
        (json!({"text": "x", "id": "n"}), "id must equal the id in the path"),
        (json!({"text": "x", "agentId": "b1"}), "agentId must equal the id in the path"),
    ] {
        let problem = expect_problem(bench.put(OWNER, &one, &body).await, 400, "INVALID_REQUEST").await;
        assert_eq!(problem["detail"], detail);
    }
    for (name, value) in [("userId", "u2"), ("companyId", "c2")] {
        let body = json!({"text": "x", name: value});
        expect_problem(bench.put(OWNER, &one, &body).await, 403, "FORBIDDEN").await;
    }
    let body = json!({"text": "x", "userId": "u1"});
    expect_problem(bench.put(OWNER, &format!("{SHARED}/m"), &body).await, 400, "INVALID_REQUEST").await;
    expect_problem(bench.put(OWNER, "/api/agents/none/memories/m", &text("x")).await, 404, "NOT_FOUND").await;

    let folder = MemoryFolder::of_user(&role(&bench).await, &"u1".into());
    for _ in 0..MAX_MEMORIES_PER_FOLDER {
        create_memory(&*bench.stores.records, &folder, "x").await.expect("remembered");
    }
    let full = expect_problem(bench.put(OWNER, &one, &text("x")).await, 409, "CONFLICT").await;
    assert_eq!(full["detail"], "the memory folder is full: it has 1000 entries");
    assert_eq!(full["limit"], 1_000);
    expect_json(bench.put(COLLEAGUE, &one, &text("x")).await, 201).await;
}

async fn role(bench: &ManagementApp) -> agent_core::role::RoleBlock {
    use agent_platform::roles::RoleStore as _;
    let stored_role = bench.stores.roles.masked_role(&"c1".into(), &AgentId::from("a1")).await;
    stored_role.expect("read").expect("there").value
}

#[tokio::test]
async fn memories_are_deleted_with_their_agent() {
    let bench = open().await;
    let folder = MemoryFolder::of_user(&role(&bench).await, &"u2".into());
    for user in [OWNER, COLLEAGUE] {
        expect_json(bench.put(user, &format!("{OWN}/m"), &text("x")).await, 201).await;
        expect_json(bench.put(user, "/api/agents/b1/memories/m", &text("x")).await, 201).await;
    }
    expect_json(bench.put(OWNER, &format!("{SHARED}/m"), &text("x")).await, 201).await;
    assert_eq!(bench.delete(OWNER, "/api/agents/a1").await.status(), 204);
    assert_eq!(list_memories(&*bench.stores.records, &folder, 10).await.expect("read"), []);
    // An entry that a run adds after the deletion does not come back with an agent of the same id.
    create_memory(&*bench.stores.records, &folder, "late").await.expect("remembered");
    expect_json(bench.put(COLLEAGUE, "/api/agents/a1", &json!({})).await, 201).await;
    for (user, path, count) in [
        (OWNER, OWN, 0),
        (COLLEAGUE, OWN, 0),
        (COLLEAGUE, SHARED, 0),
        (OWNER, "/api/agents/b1/memories", 1),
        (COLLEAGUE, "/api/agents/b1/memories", 1),
    ] {
        assert_eq!(texts(&bench, user, path).await.len(), count, "{user:?} {path}");
    }
}
