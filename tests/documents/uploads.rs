//! Uploads and what becomes of them.

use serde_json::json;

use super::{OWNER, WAIT, get, header, open, send, upload};
use crate::support::{expect_json, expect_problem, poll_until};

#[tokio::test]
async fn an_upload_is_extracted_and_read() {
    let app = open(&[]).await;
    let text = "First line\nsecond line é.";
    let put = upload(&app, OWNER, "/api/documents/n%201/content?title=My%20notes", &[], text).await;
    let tag = header(&put, "etag").to_owned();
    assert_eq!(header(&put, "location"), "/api/documents/n%201");
    let accepted = expect_json(put, 202).await;
    assert_eq!((&accepted["id"], &accepted["status"]), (&json!("n 1"), &json!("pending")));
    assert_eq!(format!("\"{}\"", accepted["version"]), tag);

    let path = "/api/documents/n%201";
    let fetch = async || expect_json(get(&app, OWNER, path).await, 200).await;
    let document = poll_until(fetch, |document| document["content"]["status"] == "ready").await;
    assert_eq!((&document["title"], &document["text"]), (&json!("My notes"), &json!(text)));
    assert_eq!((&document["ownerId"], &document["updatedBy"]), (&json!("u1"), &json!("u1")));
    let content = &document["content"];
    assert_eq!((&content["mediaType"], &content["bytes"]), (&json!("text/plain"), &json!(text.len())));
    assert_eq!(content["textBytes"], json!(text.len()));
    let sha256 = content["sha256"].as_str().expect("text");
    assert_eq!(sha256.len(), 64);
    let list = expect_json(get(&app, OWNER, "/api/documents").await, 200).await;
    assert_eq!(
        (&list["documents"][0]["status"], &list["documents"][0]["bytes"]),
        (&json!("ready"), &json!(text.len()))
    );

    let original = get(&app, OWNER, "/api/documents/n%201/content").await;
    assert_eq!(original.status(), 200);
    for (name, value) in [
        ("content-type", "text/plain"),
        ("content-length", "26"),
        ("content-disposition", "attachment; filename*=UTF-8''My%20notes"),
        ("x-content-type-options", "nosniff"),
        ("cache-control", "private, no-cache"),
        ("etag", &format!("\"{sha256}\"")),
    ] {
        assert_eq!(header(&original, name), value, "{name}");
    }
    let tag = header(&original, "etag").to_owned();
    assert_eq!(original.text().await.expect("a body"), text);
    let content_path = "/api/documents/n%201/content";
    let cached = send(&app, OWNER, ("GET", content_path), &[("if-none-match", &tag)], "").await;
    assert_eq!((cached.status().as_u16(), header(&cached, "etag")), (304, &*tag));

    for (query, start, end, part) in [
        ("", 0, 26, text),
        ("?start=6&end=10", 6, 10, "line"),
        ("?start=24&end=25", 23, 25, "é"),
        ("?start=90", 26, 26, ""),
    ] {
        let part_read = get(&app, OWNER, &format!("{path}/text{query}")).await;
        let body = expect_json(part_read, 200).await;
        let version = &document_version(&app, path).await;
        assert_eq!(
            body,
            json!({"start": start, "end": end, "bytes": 26, "version": version, "text": part}),
            "{query}"
        );
    }
    for query in ["?start=x", "?start=5&end=4", "?end=9999999", "?start=-1"] {
        let response = get(&app, OWNER, &format!("{path}/text{query}")).await;
        expect_problem(response, 400, "INVALID_REQUEST").await;
    }
}

async fn document_version(app: &crate::support::server::Server, path: &str) -> u64 {
    header(&get(app, OWNER, path).await, "etag").trim_matches('"').parse().expect("a number")
}

#[tokio::test]
async fn an_upload_with_a_wait_preference_responds_after_the_extraction() {
    let app = open(&[]).await;
    // More than one piece of the original and of the text.
    let long = "word é ".repeat(120_000);
    let path = "/api/documents/long/content";
    let response = upload(&app, OWNER, path, &WAIT, long.clone()).await;
    assert_eq!(header(&response, "preference-applied"), "wait=30");
    let document = expect_json(response, 200).await;
    assert_eq!((&document["text"], &document["content"]["status"]), (&json!(""), &json!("ready")));
    assert_eq!(get(&app, OWNER, path).await.text().await.expect("a body"), long);
    let part = get(&app, OWNER, "/api/documents/long/text?start=600002&end=600011").await;
    assert_eq!(expect_json(part, 200).await["text"], long[600_002..600_011]);

    let legacy =
        upload(&app, OWNER, "/api/documents/legacy/content", &WAIT, b"A caf\xe9 in town.".to_vec()).await;
    assert_eq!(expect_json(legacy, 200).await["text"], "A café in town.", "in Windows-1252");

    let too_long = "word ".repeat(4_010_000);
    let broken = upload(&app, OWNER, "/api/documents/broken/content", &WAIT, too_long).await;
    let problem = expect_problem(broken, 422, "EXTRACTION_FAILED").await;
    let detail = problem["detail"].as_str().expect("text");
    assert!(detail.starts_with("the document exceeds a limit"), "{detail}");
    let body = expect_json(get(&app, OWNER, "/api/documents/broken").await, 200).await;
    assert_eq!(
        (&body["content"]["status"], &body["content"]["error"]),
        (&json!("failed"), &problem["detail"])
    );
    let reindex = ("POST", "/api/documents/broken/reindex");
    expect_problem(send(&app, OWNER, reindex, &WAIT, "").await, 422, "EXTRACTION_FAILED").await;
}

#[tokio::test]
async fn the_same_original_is_extracted_again_only_on_request() {
    let app = open(&[]).await;
    let (path, document_path) = ("/api/documents/d/content", "/api/documents/d");
    expect_json(upload(&app, OWNER, path, &WAIT, "one").await, 200).await;
    let version = document_version(&app, document_path).await;
    expect_json(upload(&app, OWNER, path, &[], "one").await, 200).await;
    assert_eq!(document_version(&app, document_path).await, version, "nothing is written");
    let renamed = upload(&app, OWNER, "/api/documents/d/content?title=New", &[], "one").await;
    assert_eq!(expect_json(renamed, 200).await["title"], "New");

    let reindex = send(&app, OWNER, ("POST", "/api/documents/d/reindex"), &[], "").await;
    assert_eq!(expect_json(reindex, 202).await["status"], "pending");
    let fetch = async || expect_json(get(&app, OWNER, document_path).await, 200).await;
    let document = poll_until(fetch, |document| document["content"]["status"] == "ready").await;
    assert_eq!(document["text"], "one");

    // A client that repeats its upload does not begin the extraction again.
    let generation = async || {
        let long = upload(&app, OWNER, "/api/documents/long/content", &[], "word ".repeat(400_000)).await;
        assert!(matches!(long.status().as_u16(), 200 | 202), "{}", long.status());
        let document = expect_json(get(&app, OWNER, "/api/documents/long").await, 200).await;
        document["content"]["generation"].as_str().expect("an upload").to_owned()
    };
    assert_eq!(generation().await, generation().await);
}

#[tokio::test]
async fn a_document_that_is_written_replaces_an_upload() {
    let app = open(&[]).await;
    let path = "/api/documents/d";
    let mut document =
        expect_json(upload(&app, OWNER, "/api/documents/d/content", &WAIT, "one").await, 200).await;
    let json_body = [("content-type", "application/json")];
    // The object as the client read it, with another title.
    document["title"] = "Renamed".into();
    let renamed = send(&app, OWNER, ("PUT", path), &json_body, document.to_string()).await;
    let renamed = expect_json(renamed, 200).await;
    assert_eq!((&renamed["title"], &renamed["content"]), (&json!("Renamed"), &document["content"]));
    assert_eq!(get(&app, OWNER, "/api/documents/d/content").await.status(), 200);

    let written = json!({"title": "Written", "text": "two"}).to_string();
    let written = expect_json(send(&app, OWNER, ("PUT", path), &json_body, written).await, 200).await;
    assert_eq!((&written["text"], &written["content"]), (&json!("two"), &json!(null)));
    expect_problem(get(&app, OWNER, "/api/documents/d/content").await, 404, "NOT_FOUND").await;
    expect_problem(send(&app, OWNER, ("POST", "/api/documents/d/reindex"), &[], "").await, 409, "CONFLICT")
        .await;
    // Its text can still be read in parts, and an upload takes its place again.
    assert_eq!(expect_json(get(&app, OWNER, "/api/documents/d/text?start=1").await, 200).await["text"], "wo");
    let uploaded =
        expect_json(upload(&app, OWNER, "/api/documents/d/content", &WAIT, "three").await, 200).await;
    assert_eq!((&uploaded["text"], &uploaded["title"]), (&json!("three"), &json!("Written")));
    let versions = expect_json(get(&app, OWNER, "/api/documents/d/versions").await, 200).await;
    assert_eq!(versions["versions"][0]["bytes"], 3, "the text that was replaced is a version");
}

#[tokio::test]
async fn conditions_hold_for_uploads() {
    let app = open(&[]).await;
    let path = "/api/documents/d/content";
    let stale = upload(&app, OWNER, path, &[("if-match", "\"1\"")], "one").await;
    expect_problem(stale, 412, "PRECONDITION_FAILED").await;
    expect_json(upload(&app, OWNER, path, &[("if-none-match", "*"), WAIT[0]], "one").await, 200).await;
    let second = upload(&app, OWNER, path, &[("if-none-match", "*")], "two").await;
    expect_problem(second, 412, "PRECONDITION_FAILED").await;
    let found = get(&app, OWNER, "/api/documents/d").await;
    assert_eq!(
        header(&found, "cache-control"),
        "private, no-store",
        "the state of the index has no entity tag"
    );
    let tag = header(&found, "etag").to_owned();
    for (tag, status) in [("\"1\"", 412), (&*tag, 202), (&*tag, 412)] {
        let response = upload(&app, OWNER, path, &[("if-match", tag)], "two").await;
        assert_eq!(response.status(), status, "{tag}");
    }
    let reindex = ("POST", "/api/documents/d/reindex");
    let stale = send(&app, OWNER, reindex, &[("if-match", &tag)], "").await;
    expect_problem(stale, 412, "PRECONDITION_FAILED").await;
}
