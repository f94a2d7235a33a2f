//! Rights to documents and agents by owner and company role, replaced versions, and hand-over.

use serde_json::{Value, json};

use super::{ADMIN, COLLEAGUE, OWNER, STRANGER, VIEWER, entity_tag, expect_json, open, without_index};
use crate::support::expect_problem;

fn text(text: &str) -> Value {
    json!({"title": "T", "text": text})
}

#[tokio::test]
async fn a_document_is_its_owners_and_the_admins_to_change() {
    let bench = open().await;
    let path = "/api/documents/n";
    expect_problem(bench.put(VIEWER, path, &text("x")).await, 403, "FORBIDDEN").await;
    let created = expect_json(bench.put(OWNER, path, &text("one")).await, 201).await;
    assert_eq!((&created["ownerId"], &created["updatedBy"]), (&json!("u1"), &json!("u1")));
    for user in [COLLEAGUE, VIEWER] {
        for response in [bench.put(user, path, &text("x")).await, bench.delete(user, path).await] {
            let problem = expect_problem(response, 403, "FORBIDDEN").await;
            let detail = "only the document's owner or an admin of the company is allowed to do this";
            assert_eq!(problem["detail"], detail);
        }
        assert_eq!(expect_json(bench.get(user, path).await, 200).await["text"], "one");
    }
    let changed = expect_json(bench.put(ADMIN, path, &text("two")).await, 200).await;
    assert_eq!(
        (&changed["ownerId"], &changed["updatedBy"], &changed["revision"]),
        (&json!("u1"), &json!("boss"), &json!(1))
    );
    // A document can be put back as it was read; the fields that the server sets are ignored.
    let mut forged = changed.clone();
    forged["updatedBy"] = "u2".into();
    forged["revision"] = 77.into();
    let stored = expect_json(bench.put(OWNER, path, &forged).await, 200).await;
    assert_eq!((&stored["updatedBy"], &stored["revision"]), (&json!("u1"), &json!(2)));
    forged["ownerId"] = "u2".into();
    expect_problem(bench.put(OWNER, path, &forged).await, 403, "FORBIDDEN").await;

    // A document of a workspace file without an owner is every editor's, until one becomes its owner.
    let open_path = "/api/documents/d1";
    expect_problem(bench.put(VIEWER, open_path, &text("x")).await, 403, "FORBIDDEN").await;
    let kept = expect_json(bench.put(COLLEAGUE, open_path, &text("x")).await, 200).await;
    assert_eq!(kept.get("ownerId"), None);
    let mut own_document = text("y");
    own_document["ownerId"] = "u2".into();
    assert_eq!(expect_json(bench.put(COLLEAGUE, open_path, &own_document).await, 200).await["ownerId"], "u2");
    expect_problem(bench.put(OWNER, open_path, &text("x")).await, 403, "FORBIDDEN").await;
    expect_problem(bench.delete(OWNER, open_path).await, 403, "FORBIDDEN").await;
    assert_eq!(bench.delete(ADMIN, open_path).await.status(), 204);
}

#[tokio::test]
async fn replaced_versions_are_listed_and_restored() {
    let bench = open().await;
    let path = "/api/documents/n";
    for n in 0..23 {
        let response =
            bench.put(if n % 2 == 0 { OWNER } else { ADMIN }, path, &text(&format!("text {n}"))).await;
        assert!(response.status().is_success());
    }
    let list = expect_json(bench.get(VIEWER, "/api/documents/n/versions").await, 200).await;
    let versions = list["versions"].as_array().expect("a list");
    let revisions: Vec<u64> = versions.iter().map(|v| v["revision"].as_u64().expect("a number")).collect();
    assert_eq!(revisions, (2..22).rev().collect::<Vec<_>>());
    assert_eq!((&versions[0]["updatedBy"], &versions[0]["bytes"]), (&json!("boss"), &json!(7)));
    assert!(versions[0]["updatedAt"].as_str().is_some_and(|time| time.ends_with('Z')), "{}", versions[0]);
    let one = expect_json(bench.get(COLLEAGUE, "/api/documents/n/versions/5").await, 200).await;
    assert_eq!((&one["text"], &one["updatedBy"]), (&json!("text 5"), &json!("boss")));
    for gone in ["1", "22", "x", "-1", "99999999999999999999"] {
        let path = format!("/api/documents/n/versions/{gone}");
        expect_problem(bench.get(OWNER, &path).await, 404, "NOT_FOUND").await;
        let restore = bench.post(OWNER, &format!("{path}/restore"), &json!({})).await;
        expect_problem(restore, 404, "NOT_FOUND").await;
    }
    let restore = "/api/documents/n/versions/5/restore";
    expect_problem(bench.post(COLLEAGUE, restore, &json!({})).await, 403, "FORBIDDEN").await;
    expect_problem(bench.post(STRANGER, restore, &json!({})).await, 404, "NOT_FOUND").await;
    let restored = expect_json(bench.post(OWNER, restore, &json!({})).await, 200).await;
    assert_eq!((&restored["text"], &restored["revision"]), (&json!("text 5"), &json!(23)));
    assert_eq!(without_index(expect_json(bench.get(OWNER, path).await, 200).await), restored);
    let replaced = expect_json(bench.get(OWNER, "/api/documents/n/versions/22").await, 200).await;
    assert_eq!(replaced["text"], "text 22");
    // The versions go with the document.
    assert_eq!(bench.delete(OWNER, path).await.status(), 204);
    expect_problem(bench.get(OWNER, "/api/documents/n/versions").await, 404, "NOT_FOUND").await;
    expect_json(bench.put(OWNER, path, &text("new")).await, 201).await;
    let list = expect_json(bench.get(OWNER, "/api/documents/n/versions").await, 200).await;
    assert_eq!(list["versions"], json!([]));
}

#[tokio::test]
async fn a_document_that_agents_name_is_deleted_only_if_forced() {
    let bench = open().await;
    let path = "/api/documents/n";
    expect_json(bench.put(OWNER, path, &text("x")).await, 201).await;
    let naming = |field: &str| json!({"content": {field: ["n"]}});
    expect_json(bench.put(OWNER, "/api/agents/reader", &naming("documentIds")).await, 201).await;
    expect_json(bench.put(COLLEAGUE, "/api/agents/searcher", &naming("ragDocumentIds")).await, 201).await;
    // Another company's agent with a document of the same id.
    expect_json(bench.put(STRANGER, path, &text("x")).await, 201).await;
    expect_json(bench.put(STRANGER, "/api/agents/stranger", &naming("documentIds")).await, 201).await;
    let problem = expect_problem(bench.delete(OWNER, path).await, 409, "CONFLICT").await;
    assert_eq!(problem["agentIds"], json!(["reader", "searcher"]));
    expect_problem(bench.delete(OWNER, &format!("{path}?force=yes")).await, 400, "INVALID_REQUEST").await;
    expect_problem(bench.delete(COLLEAGUE, &format!("{path}?force=true")).await, 403, "FORBIDDEN").await;
    expect_json(bench.get(OWNER, path).await, 200).await;
    let stale = [("if-match", "\"0\"")];
    let stale = bench.send(OWNER, "DELETE", &format!("{path}?force=true"), &stale, None).await;
    expect_problem(stale, 412, "PRECONDITION_FAILED").await;
    assert_eq!(bench.delete(OWNER, &format!("{path}?force=true")).await.status(), 204);
    expect_problem(bench.delete(OWNER, path).await, 404, "NOT_FOUND").await;
}

#[tokio::test]
async fn an_admin_changes_agents_and_hands_them_over() {
    let bench = open().await;
    let path = "/api/agents/a1";
    let mut role = expect_json(bench.get(ADMIN, path).await, 200).await;
    role["name"] = "Renamed".into();
    for user in [COLLEAGUE, VIEWER] {
        expect_problem(bench.put(user, path, &role).await, 403, "FORBIDDEN").await;
        expect_problem(bench.get(user, "/api/agents/a1/tokens").await, 403, "FORBIDDEN").await;
    }
    expect_problem(bench.put(VIEWER, "/api/agents/new", &json!({})).await, 403, "FORBIDDEN").await;
    let response = bench.put(ADMIN, path, &role).await;
    let tag = entity_tag(&response);
    let stored = expect_json(response, 200).await;
    assert_eq!((&stored["name"], &stored["ownerId"]), (&json!("Renamed"), &json!("u1")));
    expect_json(bench.get(ADMIN, "/api/agents/a1/tokens").await, 200).await;

    let owner = "/api/agents/a1/owner";
    let to = |id: &str| json!({ "ownerId": id });
    for user in [OWNER, COLLEAGUE, VIEWER] {
        expect_problem(bench.put(user, owner, &to("u2")).await, 403, "FORBIDDEN").await;
    }
    for user in [STRANGER, ("boss", "c2")] {
        expect_problem(bench.put(user, owner, &to("u2")).await, 404, "NOT_FOUND").await;
    }
    for body in [json!({}), json!({"ownerId": 7}), to(""), to("a/b")] {
        expect_problem(bench.put(ADMIN, owner, &body).await, 400, "INVALID_REQUEST").await;
    }
    let handed = expect_json(bench.put(ADMIN, owner, &to("u2")).await, 200).await;
    assert_eq!((&handed["ownerId"], &handed["name"]), (&json!("u2"), &json!("Renamed")));
    // The secrets came along, and the version has changed.
    assert_eq!(handed["content"]["messengerToken"], "***");
    let stale = bench.send(COLLEAGUE, "PUT", path, &[("if-match", &tag)], Some(&handed)).await;
    expect_problem(stale, 412, "PRECONDITION_FAILED").await;
    expect_problem(bench.put(OWNER, path, &json!({})).await, 403, "FORBIDDEN").await;
    assert_eq!(expect_json(bench.put(COLLEAGUE, path, &handed).await, 200).await["ownerId"], "u2");

    expect_json(bench.put(OWNER, "/api/documents/n", &text("x")).await, 201).await;
    expect_problem(bench.put(OWNER, "/api/documents/n/owner", &to("u2")).await, 403, "FORBIDDEN").await;
    expect_json(bench.put(ADMIN, "/api/documents/n/owner", &to("u2")).await, 200).await;
    expect_problem(bench.put(OWNER, "/api/documents/n", &text("y")).await, 403, "FORBIDDEN").await;
    expect_json(bench.put(COLLEAGUE, "/api/documents/n", &text("y")).await, 200).await;
}
