//! Limits of uploads.

use std::sync::Arc;

use agent_platform::records::{
    Collection, Inventory, InventoryWrapper, ListQuery, Page, Records, RecordsWrapper, StoreError,
};
use async_trait::async_trait;
use reqwest::Response;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::{COLLEAGUE, OWNER, STRANGER, WAIT, get, header, open, send, stores, upload};
use crate::support::server::{self, Server, session_token};
use crate::support::{expect_json, expect_problem, poll_until};

#[tokio::test]
async fn invalid_uploads_are_refused() {
    let app = open(&[("RAG_MAX_UPLOAD", "100")]).await;
    let path = "/api/documents/d/content";
    let large = upload(&app, OWNER, path, &[], "x".repeat(101)).await;
    expect_problem(large, 413, "PAYLOAD_TOO_LARGE").await;
    expect_problem(upload(&app, OWNER, path, &[], "").await, 400, "INVALID_REQUEST").await;
    let long_title = format!("{path}?title={}", "x".repeat(801));
    expect_problem(upload(&app, OWNER, &long_title, &[], "x").await, 400, "INVALID_REQUEST").await;
    let two_lines = format!("{path}?title=a%0Ab");
    expect_problem(upload(&app, OWNER, &two_lines, &[], "x").await, 400, "INVALID_REQUEST").await;
    let bad_id = "/api/documents/x%2Fy/content";
    expect_problem(upload(&app, OWNER, bad_id, &[], "x").await, 400, "INVALID_REQUEST").await;
    for content_type in ["image/png", "text", "", "text/html/x"] {
        let response = send(&app, OWNER, ("PUT", path), &[("content-type", content_type)], "x").await;
        expect_problem(response, 415, "UNSUPPORTED_MEDIA_TYPE").await;
    }
    expect_problem(send(&app, OWNER, ("PUT", path), &[], "x").await, 415, "UNSUPPORTED_MEDIA_TYPE").await;
    let packed = upload(&app, OWNER, path, &[("content-encoding", "gzip")], "x").await;
    expect_problem(packed, 415, "UNSUPPORTED_MEDIA_TYPE").await;
    expect_problem(get(&app, OWNER, "/api/documents/d").await, 404, "NOT_FOUND").await;
    let accepted = [("content-type", "Text/Markdown; charset=UTF-8"), WAIT[0]];
    let markdown = expect_json(send(&app, OWNER, ("PUT", path), &accepted, "x".repeat(100)).await, 200).await;
    assert_eq!(markdown["content"]["mediaType"], "text/markdown");
    // The encoding is that of the content.
    let accepted = [("content-type", "text/plain; charset=iso-8859-1"), WAIT[0]];
    let body = b"Der Eingang des Cafes: caf\xe9".to_vec();
    let latin = expect_json(send(&app, OWNER, ("PUT", path), &accepted, body).await, 200).await;
    assert_eq!(latin["text"], "Der Eingang des Cafes: café");
}

#[tokio::test]
async fn the_originals_of_a_company_have_a_quota() {
    let app = open(&[("MAX_UPLOADED_BYTES", "10"), ("MAX_DOCUMENTS", "2")]).await;
    let put = async |user, id: &str, text: &'static str| {
        upload(&app, user, &format!("/api/documents/{id}/content"), &WAIT, text).await
    };
    expect_json(put(OWNER, "a", "123456").await, 200).await;
    let problem = expect_problem(put(COLLEAGUE, "b", "12345").await, 409, "CONFLICT").await;
    assert_eq!(problem["limit"], 10);
    // Another company has a separate quota, and an original that is replaced does not count.
    expect_json(put(STRANGER, "a", "1234567890").await, 200).await;
    expect_json(put(OWNER, "a", "1234567890").await, 200).await;
    expect_problem(put(OWNER, "b", "1").await, 409, "CONFLICT").await;
    expect_json(put(OWNER, "a", "1").await, 200).await;
    expect_json(put(OWNER, "b", "1").await, 200).await;
    let problem = expect_problem(put(OWNER, "c", "1").await, 409, "CONFLICT").await;
    assert_eq!(problem["limit"], 2, "so many documents");
    assert_eq!(send(&app, OWNER, ("DELETE", "/api/documents/a"), &[], "").await.status(), 204);
    expect_json(put(OWNER, "c", "12345678").await, 200).await;
}

/// Begins an upload of ten bytes, and sends the first of them once the server reads the body.
async fn begin_upload(app: &Server, user: (&str, &str), id: &str) -> TcpStream {
    let mut stream = TcpStream::connect(app.address).await.expect("the server listens");
    let head = format!(
        "PUT /api/documents/{id}/content HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\nContent-Type: \
         text/plain\r\nContent-Length: 10\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n",
        session_token(user.0, user.1)
    );
    stream.write_all(head.as_bytes()).await.expect("it reads");
    let mut interim = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
    stream.read_exact(&mut interim).await.expect("the server answers");
    assert_eq!(interim, *b"HTTP/1.1 100 Continue\r\n\r\n", "{}", String::from_utf8_lossy(&interim));
    stream.write_all(b"x").await.expect("it reads");
    stream
}

#[tokio::test]
async fn the_concurrent_uploads_of_a_company_are_limited() {
    let app = open(&[]).await;
    let begun = [begin_upload(&app, OWNER, "1").await, begin_upload(&app, COLLEAGUE, "2").await];
    let response = upload(&app, OWNER, "/api/documents/3/content", &[], "x").await;
    assert!(response.headers().contains_key("retry-after"));
    expect_problem(response, 429, "RATE_LIMITED").await;
    let theirs = upload(&app, STRANGER, "/api/documents/3/content", &WAIT, "x").await;
    expect_json(theirs, 200).await;
    // An upload that was started can be completed, and makes room.
    for mut stream in begun {
        stream.write_all(b"xxxxxxxxx").await.expect("it reads");
        let answer = crate::support::read_until_closed(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");
    }
    let last = upload(&app, OWNER, "/api/documents/4/content", &WAIT, "x").await;
    assert_eq!(expect_json(last, 200).await["text"], json!("x"));
}

/// A store in which no process finds the tasks of extractions, so that none begins.
struct HiddenTasks(Arc<dyn Inventory>);

#[async_trait]
impl RecordsWrapper for HiddenTasks {
    fn inner(&self) -> &dyn Records {
        &*self.0
    }

    async fn list(&self, collection: &Collection, list: &ListQuery) -> Result<Page, StoreError> {
        match collection.path().starts_with("documentIngestions/") {
            true => Ok(Page { records: Vec::new(), next_cursor: None }),
            false => self.0.list(collection, list).await,
        }
    }
}

impl InventoryWrapper for HiddenTasks {
    fn inventory(&self) -> &dyn Inventory {
        &*self.0
    }
}

/// An application that extracts no text, and uploads whose responses wait for it.
struct WaitingUploads {
    app: Server,
    responses: JoinSet<Response>,
}

impl WaitingUploads {
    async fn start(connections: &str) -> Self {
        let mut stores = stores().await;
        stores.records = Arc::new(HiddenTasks(stores.records.clone()));
        let app = server::app_with_stores(stores, &[("MAX_CONNECTIONS", connections)]).await;
        Self { app, responses: JoinSet::new() }
    }

    /// Begins an upload, and waits until the document is stored.
    async fn begin(&mut self, id: usize) {
        let path = format!("/api/documents/d{id}");
        let request = self.app.request("PUT", &format!("{path}/content")).header("prefer", "wait=60");
        let request =
            request.bearer_auth(session_token(OWNER.0, OWNER.1)).header("content-type", "text/plain");
        let response = request.body("x").send();
        self.responses.spawn(async move { response.await.expect("an answer") });
        poll_until(async || get(&self.app, OWNER, &path).await.status().as_u16(), |status| *status == 200)
            .await;
    }
}

#[tokio::test]
async fn uploads_that_wait_for_extractions_leave_a_company_its_other_requests() {
    // A quarter of the connections is fewer than the uploads that wait.
    let mut uploads = WaitingUploads::start("16").await;
    for id in 0..6 {
        uploads.begin(id).await;
    }
    let note = json!({"title": "Note", "text": "x"}).to_string();
    let headers = [("content-type", "application/json")];
    let created = send(&uploads.app, OWNER, ("PUT", "/api/documents/note"), &headers, note).await;
    expect_json(created, 201).await;
    uploads.responses.abort_all();
}

#[tokio::test]
async fn few_responses_of_a_company_wait_for_extractions() {
    let mut uploads = WaitingUploads::start("200").await;
    for id in 0..33 {
        uploads.begin(id).await;
    }
    let last = uploads.responses.join_next().await.expect("one").expect("an answer");
    assert!(!last.headers().contains_key("preference-applied"), "it does not wait");
    assert_eq!(expect_json(last, 202).await["id"], "d32");
    let theirs =
        upload(&uploads.app, STRANGER, "/api/documents/d/content", &[("prefer", "wait=1")], "x").await;
    assert_eq!(header(&theirs, "preference-applied"), "wait=1");
    expect_json(theirs, 202).await;
    uploads.responses.abort_all();
}
