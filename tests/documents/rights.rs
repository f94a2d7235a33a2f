//! Rights to uploads.

use super::{ADMIN, COLLEAGUE, OWNER, STRANGER, VIEWER, WAIT, get, open, send, upload};
use crate::support::{expect_json, expect_problem};

#[tokio::test]
async fn an_upload_is_changed_by_its_owner_and_read_by_the_company() {
    let app = open(&[]).await;
    let (path, reindex) = ("/api/documents/d/content", ("POST", "/api/documents/d/reindex"));
    expect_problem(upload(&app, VIEWER, path, &[], "one").await, 403, "FORBIDDEN").await;
    expect_json(upload(&app, OWNER, path, &WAIT, "ours-canary").await, 200).await;
    for user in [COLLEAGUE, VIEWER] {
        expect_problem(upload(&app, user, path, &[], "two").await, 403, "FORBIDDEN").await;
        expect_problem(send(&app, user, reindex, &[], "").await, 403, "FORBIDDEN").await;
        assert_eq!(get(&app, user, path).await.text().await.expect("a body"), "ours-canary");
        let part = expect_json(get(&app, user, "/api/documents/d/text").await, 200).await;
        assert_eq!(part["text"], "ours-canary");
    }
    expect_json(send(&app, ADMIN, reindex, &WAIT, "").await, 200).await;
    expect_json(upload(&app, ADMIN, path, &WAIT, "two").await, 200).await;
    let document = expect_json(get(&app, OWNER, "/api/documents/d").await, 200).await;
    assert_eq!((&document["ownerId"], &document["updatedBy"]), (&"u1".into(), &"boss".into()));
}

#[tokio::test]
async fn another_company_has_another_document_of_the_same_id() {
    let app = open(&[]).await;
    let path = "/api/documents/d/content";
    expect_json(upload(&app, OWNER, path, &WAIT, "ours-canary").await, 200).await;
    for read in [path, "/api/documents/d/text", "/api/documents/d"] {
        expect_problem(get(&app, STRANGER, read).await, 404, "NOT_FOUND").await;
    }
    let reindex = ("POST", "/api/documents/d/reindex");
    expect_problem(send(&app, STRANGER, reindex, &[], "").await, 404, "NOT_FOUND").await;
    expect_json(upload(&app, STRANGER, path, &WAIT, "theirs").await, 200).await;
    assert_eq!(get(&app, OWNER, path).await.text().await.expect("a body"), "ours-canary");
    assert_eq!(get(&app, STRANGER, path).await.text().await.expect("a body"), "theirs");
    assert_eq!(send(&app, STRANGER, ("DELETE", "/api/documents/d"), &[], "").await.status(), 204);
    assert_eq!(get(&app, OWNER, path).await.text().await.expect("a body"), "ours-canary");
}

#[tokio::test]
async fn uploads_need_a_session() {
    let app = open(&[]).await;
    for (method, path) in [
        ("PUT", "/api/documents/d/content"),
        ("GET", "/api/documents/d/content"),
        ("GET", "/api/documents/d/text"),
        ("POST", "/api/documents/d/reindex"),
    ] {
        let anonymous = app.request(method, path).header("content-type", "text/plain").body("x");
        expect_problem(anonymous.send().await.expect("an answer"), 401, "UNAUTHENTICATED").await;
        let widget =
            app.request(method, path).bearer_auth("agw_unknown").header("content-type", "text/plain");
        let response = widget.body("x").send().await.expect("an answer");
        expect_problem(response, 401, "UNAUTHENTICATED").await;
    }
}
