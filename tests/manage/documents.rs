//! Documents: versions, limits, and lists without texts.

use agent_platform::workspace::{MAX_DOCUMENT_BYTES, MAX_TITLE_BYTES};
use serde_json::{Value, json};

use super::{COLLEAGUE, OWNER, STRANGER, entity_tag, expect_json, open, without_index};
use crate::support::{exchange, expect_problem, server::session_token};

#[tokio::test]
async fn a_document_is_made_read_changed_and_deleted() {
    let bench = open().await;
    let path = "/api/documents/n%201";
    let text = json!({"title": "New", "text": "One."});
    let response = bench.send(OWNER, "PUT", path, &[("if-none-match", "*")], Some(&text)).await;
    assert_eq!(response.headers()["location"], path);
    let first = entity_tag(&response);
    let saved = expect_json(response, 201).await;
    assert_eq!(
        saved,
        json!({"id": "n 1", "companyId": "c1", "ownerId": "u1", "title": "New", "text": "One.", "updatedBy": "u1"})
    );
    let response = bench.get(COLLEAGUE, path).await;
    assert_eq!(entity_tag(&response), first);
    assert_eq!(without_index(expect_json(response, 200).await), saved);

    let longer = json!({"title": "New", "text": "One. Two."});
    let condition = [("if-match", &*first)];
    let response = bench.send(OWNER, "PUT", path, &condition, Some(&longer)).await;
    let second = entity_tag(&response);
    assert_eq!(expect_json(response, 200).await["text"], "One. Two.");
    for method in ["PUT", "DELETE"] {
        let response = bench.send(OWNER, method, path, &condition, Some(&text)).await;
        expect_problem(response, 412, "PRECONDITION_FAILED").await;
    }
    let response = bench.send(OWNER, "GET", path, &[("if-none-match", &second)], None).await;
    assert_eq!(response.status(), 304);

    let heads = expect_json(bench.get(OWNER, "/api/documents").await, 200).await;
    let version: u64 = second.trim_matches('"').parse().expect("a number");
    let expected = json!({"id": "n 1", "title": "New", "bytes": 9, "version": version});
    assert_eq!(heads["documents"][1], expected);
    assert_eq!(heads["documents"].as_array().expect("a list").len(), 2);
    let theirs = expect_json(bench.get(STRANGER, "/api/documents").await, 200).await;
    assert_eq!(theirs["documents"][0]["id"], "d2");

    assert_eq!(bench.send(OWNER, "DELETE", path, &[("if-match", &second)], None).await.status(), 204);
    expect_problem(bench.delete(OWNER, path).await, 404, "NOT_FOUND").await;
}

#[tokio::test]
async fn documents_are_bounded_and_bad_ones_name_the_field() {
    let bench = open().await;
    let path = "/api/documents/n";
    let cases: Vec<(Value, String)> = vec![
        (json!({"text": 5}), "text must be a string".to_owned()),
        (
            json!({"text": "x".repeat(MAX_DOCUMENT_BYTES + 1)}),
            format!("text has {} bytes; the limit is {MAX_DOCUMENT_BYTES}", MAX_DOCUMENT_BYTES + 1),
        ),
        (
            json!({"title": "x".repeat(MAX_TITLE_BYTES + 1)}),
            format!("title has {} bytes; the limit is {MAX_TITLE_BYTES}", MAX_TITLE_BYTES + 1),
        ),
        (json!("text"), "the body must be an object".to_owned()),
    ];
    for (sent, detail) in cases {
        let problem = expect_problem(bench.put(OWNER, path, &sent).await, 400, "INVALID_REQUEST").await;
        assert_eq!(problem["detail"], detail);
    }
    let long = format!("/api/documents/{}", "x".repeat(129));
    expect_problem(bench.put(OWNER, &long, &json!({})).await, 400, "INVALID_REQUEST").await;
    expect_problem(bench.get(OWNER, &format!("{long}{long}")).await, 404, "NOT_FOUND").await;
    expect_json(bench.put(OWNER, path, &json!({"text": "x".repeat(MAX_DOCUMENT_BYTES)})).await, 201).await;
}

#[tokio::test]
async fn new_items_need_a_valid_identifier() {
    let bench = open().await;
    let document = json!({"title": "New", "text": "One."});
    let agent = json!({"name": "New"});
    // Sent as they are, since the client would resolve them.
    for id in [".", "%2e%2e"] {
        let request = format!(
            "PUT /api/documents/{id} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\nContent-Type: \
             application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{document}",
            session_token(OWNER.0, OWNER.1),
            document.to_string().len()
        );
        let answer = exchange(bench.app.address, request).await;
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("\"id "), "{id}: {answer}");
    }
    for id in ["%20", "x%2Fy", "a%C2%A0b", "a%E2%80%8Bb", "e%CC%81", "%20a"] {
        for (path, body) in [("/api/documents", &document), ("/api/agents", &agent)] {
            let path = format!("{path}/{id}");
            let response = bench.send(OWNER, "PUT", &path, &[], Some(body)).await;
            let problem = expect_problem(response, 400, "INVALID_REQUEST").await;
            assert!(
                problem["detail"].as_str().is_some_and(|text| text.starts_with("id ")),
                "{path}: {problem}"
            );
        }
    }
}
