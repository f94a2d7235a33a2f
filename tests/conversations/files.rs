//! Files of users in messages: uploads, their contents in prompts and threads, and their ends.

use agent_core::ids::{CompanyId, ThreadId, UserId};
use agent_extract::fixtures::{archive, docx_parts};
use agent_platform::records::{Key, Precondition, RecordsExt};
use agent_platform::workspace::{USER_FILE_COLLECTION, UserFile, get_user_files};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use reqwest::Response;
use serde_json::{Value, json};

use super::{ConversationApp, everyone, whole_run};
use crate::support::server::{self, Server, session_token};
use crate::support::vendor::{Vendor, answer, json_response, tool_calls};
use crate::support::{expect_problem, poll_until};

/// The smallest picture: its signature and the beginning of its header.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";

async fn upload(app: &Server, bearer: &str, path: &str, media_type: &str, bytes: &[u8]) -> Response {
    let request = app.request("POST", path).bearer_auth(bearer).header("content-type", media_type);
    request.body(bytes.to_vec()).send().await.expect("the application answers")
}

impl ConversationApp {
    /// Uploads a file of user `u1` and returns its description.
    async fn upload(&self, path: &str, media_type: &str, bytes: &[u8]) -> Value {
        let response = upload(&self.app, &session_token("u1", "c1"), path, media_type, bytes).await;
        assert_eq!(response.status(), 201);
        let location = response.headers()["location"].to_str().expect("text").to_owned();
        let file: Value = response.json().await.expect("JSON");
        assert_eq!(location, format!("/api/files/{}", file["fileId"].as_str().expect("an id")));
        file
    }

    /// Returns the threads that have a file of user `u1`.
    async fn threads_with(&self, file: &Value) -> Vec<ThreadId> {
        let (company, user) = (CompanyId::from("c1"), UserId::from("u1"));
        let id = file["fileId"].as_str().expect("an id");
        let found = get_user_files(&*self.stores.records, (&company, &user), &[id]).await.expect("read");
        found.into_iter().flatten().next().expect("a file").value.threads
    }
}

fn with_file(id: &Value, text: &str) -> Value {
    let part = json!({"type": "image", "source": {"type": "file", "value": id}});
    json!([{"id": "m1", "role": "user", "content": [{"type": "text", "text": text}, part]}])
}

#[tokio::test]
async fn a_file_is_sent_with_its_message_and_with_the_thread() {
    let test = ConversationApp::start().await;
    test.vendor.on("m", [answer(&["A dot."]), answer(&["Still a dot."])]);
    let file = test.upload("/api/files?name=dot.png", "application/octet-stream", PNG).await;
    assert_eq!(
        (&file["mimeType"], &file["name"], &file["bytes"]),
        (&json!("image/png"), &json!("dot.png"), &json!(16))
    );
    let id = &file["fileId"];
    let body = json!({"threadId": "t", "messages": with_file(id, "What is it?")});
    let mut preview = body.clone();
    preview["agentId"] = json!("a1");
    let (_, shown) = test.call("POST", "/api/svcchat/previewPrompt", Some(preview)).await;
    let run = test.chat(body).await;
    let summary = run.events.iter().find(|event| event["name"] == "agent.prompt").expect("a summary");
    assert_eq!(summary["value"]["requestSha256"], shown["requestSha256"], "the preview has the file");
    let image = format!("data:image/png;base64,{}", STANDARD.encode(PNG));
    let request_body = test.vendor.received_bodies("m").pop().expect("a request");
    assert!(request_body["messages"].to_string().contains(&image), "{request_body}");

    // The thread has the reference, and the next prompt the content, in another process, too.
    let thread = test.get("/api/threads/t").await;
    let source = &thread["nodes"][0]["message"]["content"][1]["source"];
    assert_eq!(source["value"], format!("/api/files/{}", id.as_str().expect("an id")), "{thread}");
    let other = test.another_process().await;
    let next = json!({"agentId": "a1", "threadId": "t", "message": "And now?"});
    whole_run(&other, &next).await;
    let request_body = test.vendor.received_bodies("m").pop().expect("a request");
    assert!(request_body["messages"].to_string().contains(&image), "{request_body}");

    // A file that the user deletes is a note from then on.
    let path = source["value"].as_str().expect("a path");
    let served = test.app.request("GET", path).bearer_auth(session_token("u1", "c1"));
    let served = served.send().await.expect("an answer");
    let header = |name: &str| served.headers()[name].to_str().expect("text").to_owned();
    assert_eq!(header("content-type"), "image/png");
    assert_eq!(header("x-content-type-options"), "nosniff");
    assert!(header("content-disposition").starts_with("attachment;"), "a browser does not open it");
    assert_eq!(served.bytes().await.expect("a body"), PNG);
    assert_eq!(test.call("DELETE", path, None).await.0, 204);
    assert_eq!(test.call("DELETE", path, None).await.0, 404);
    test.vendor.on("m", [answer(&["Gone."])]);
    test.say("t", "And then?").await;
    let request_body = test.vendor.received_bodies("m").pop().expect("a request");
    let sent = request_body["messages"].to_string();
    assert!(sent.contains("[file, no longer stored]") && !sent.contains("base64"), "{sent}");
}

#[tokio::test]
async fn files_are_refused_to_others_and_by_their_content() {
    let test = ConversationApp::start().await;
    let file = test.upload("/api/files", "image/png", PNG).await;
    let id = &file["fileId"];
    let path = format!("/api/files/{}", id.as_str().expect("an id"));
    for (user, company) in [("u2", "c1"), ("u1", "c2")] {
        let bearer = session_token(user, company);
        for method in ["GET", "DELETE"] {
            let response = test.app.request(method, &path).bearer_auth(&bearer).send().await;
            expect_problem(response.expect("an answer"), 404, "NOT_FOUND").await;
        }
        let response = test.app.request("GET", "/api/files").bearer_auth(&bearer).send().await;
        let body: Value = response.expect("an answer").json().await.expect("JSON");
        assert_eq!(body["files"], json!([]));
    }
    let other = json!({"agentId": "a1", "messages": with_file(id, "Look")});
    let response = test.app.chat_as(&session_token("u2", "c1"), "", &other).await;
    expect_problem(response, 400, "INVALID_REQUEST").await;
    for wrong in ["", "a/b", "../x", "a b", "http://169.254.169.254/"] {
        let body = json!({"agentId": "a1", "messages": with_file(&json!(wrong), "Look")});
        expect_problem(test.app.chat(&body).await, 400, "INVALID_REQUEST").await;
    }
    assert!(test.vendor.received().is_empty(), "nothing was sent");

    let bearer = session_token("u1", "c1");
    let script = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>";
    let cases: [(&str, &[u8]); 4] = [
        ("image/svg+xml", script),
        ("image/png", script),
        ("image/png", b"MZ\x90\0program"),
        ("application/octet-stream", b"\x7fELF\x02\x01\x01\0\xff\xfe"),
    ];
    for (media_type, bytes) in cases {
        let response = upload(&test.app, &bearer, "/api/files", media_type, bytes).await;
        expect_problem(response, 415, "UNSUPPORTED_MEDIA_TYPE").await;
    }
    let form =
        b"--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\r\nhello\r\n--x--\r\n";
    for path in ["/api/files", "/api/documents/form/content"] {
        let method = if path == "/api/files" { "POST" } else { "PUT" };
        let request = test.app.request(method, path).bearer_auth(&bearer);
        let request = request.header("content-type", "multipart/form-data; boundary=x").body(form.to_vec());
        let response = request.send().await.expect("an answer");
        expect_problem(response, 415, "UNSUPPORTED_MEDIA_TYPE").await;
    }
    expect_problem(upload(&test.app, &bearer, "/api/files", "image/png", b"").await, 400, "INVALID_REQUEST")
        .await;
    let named = upload(&test.app, &bearer, "/api/files?name=a%0Ab", "image/png", PNG).await;
    expect_problem(named, 400, "INVALID_REQUEST").await;
    let unsigned = test.app.request("POST", "/api/files").body(PNG).send().await.expect("an answer");
    assert_eq!(unsigned.status(), 401);
}

/// A Word document whose text is this many bytes of spaces, which compress to a thousandth.
fn docx_bomb(bytes: usize) -> Vec<u8> {
    let mut parts = docx_parts();
    parts.retain(|(name, _)| name != "word/document.xml");
    parts.push(("word/document.xml".to_owned(), vec![b' '; bytes]));
    archive(&parts)
}

#[tokio::test]
async fn a_compressed_body_counts_with_its_compressed_size() {
    let settings = [("FILE_LIMIT_BYTES", "200000"), ("MAX_UPLOADED_BYTES", "300000")];
    let test = ConversationApp::start_with(&settings).await;
    let bearer = session_token("u1", "c1");
    let bomb = docx_bomb(16 << 20);
    assert!(bomb.len() < 100_000, "{} bytes", bomb.len());
    let word = "application/vnd.openxmlformats-officedocument.wordprocessingml.document";
    for declared in [word, "application/zip", "application/octet-stream"] {
        let stored = upload(&test.app, &bearer, "/api/files", declared, &bomb).await;
        assert_eq!(stored.status(), 201, "{declared}");
        let file: Value = stored.json().await.expect("JSON");
        assert_eq!((&file["mimeType"], &file["bytes"]), (&json!(word), &json!(bomb.len())), "{declared}");
        let path = format!("/api/files/{}", file["fileId"].as_str().expect("an id"));
        let request = test.app.request("GET", &path).bearer_auth(&bearer).header("accept-encoding", "gzip");
        let response = request.send().await.expect("an answer");
        assert_eq!(response.headers()["content-length"], bomb.len().to_string());
        assert_eq!(response.bytes().await.expect("a whole body"), bomb, "it is given as it is");
        // A message does not inflate it: the model has no part for it, or the compressed bytes.
        let body =
            json!({"agentId": "a1", "messages": with_file(&file["fileId"], "Read it"), "store": false});
        let response = test.app.chat(&body).await;
        assert!(response.bytes().await.expect("a whole body").len() < 100_000);
        let sent = test.vendor.received().into_iter().map(|request| request.body.len()).max();
        assert!(sent.unwrap_or_default() < 2 * bomb.len(), "{sent:?} bytes for {}", bomb.len());
        let deleted = test.app.request("DELETE", &path).bearer_auth(&bearer).send().await;
        assert_eq!(deleted.expect("an answer").status(), 204);
    }
    // A truncated document is accepted, but not content declared as a picture or compressed in transit.
    let damaged = upload(&test.app, &bearer, "/api/files", word, &bomb[..1_000]).await;
    assert_eq!(damaged.status(), 201);
    let file: Value = damaged.json().await.expect("JSON");
    assert_eq!(file["mimeType"], word);
    let path = format!("/api/files/{}", file["fileId"].as_str().expect("an id"));
    let deleted = test.app.request("DELETE", &path).bearer_auth(&bearer).send().await;
    assert_eq!(deleted.expect("an answer").status(), 204);
    for (declared, bytes) in [("image/png", bomb.clone()), ("application/zip", bomb[..1_000].to_vec())] {
        let response = upload(&test.app, &bearer, "/api/files", declared, &bytes).await;
        expect_problem(response, 415, "UNSUPPORTED_MEDIA_TYPE").await;
    }
    let request = test.app.request("POST", "/api/files").bearer_auth(&bearer).header("content-type", word);
    let encoded = request.header("content-encoding", "gzip").body(bomb).send().await.expect("an answer");
    expect_problem(encoded, 415, "UNSUPPORTED_MEDIA_TYPE").await;
    assert_eq!(test.get("/api/files").await["files"], json!([]));
}

#[tokio::test]
async fn files_have_limits() {
    let settings = [("FILE_LIMIT_BYTES", "100"), ("MAX_UPLOADED_BYTES", "150")];
    let test = ConversationApp::start_with(&settings).await;
    let bearer = session_token("u1", "c1");
    let post =
        async |bytes: usize| upload(&test.app, &bearer, "/api/files", "text/plain", &vec![b'x'; bytes]).await;
    expect_problem(post(101).await, 413, "PAYLOAD_TOO_LARGE").await;
    let first: Value = post(100).await.json().await.expect("JSON");
    assert_eq!(first["mimeType"], "text/plain");
    let problem = expect_problem(post(51).await, 409, "CONFLICT").await;
    assert_eq!(problem["limit"], 150);
    assert_eq!(post(50).await.status(), 201);
    let list = test.get("/api/files").await;
    assert_eq!(list["files"].as_array().map(Vec::len), Some(2), "{list}");
    assert_eq!(list["files"][0], first);
}

#[tokio::test]
async fn a_file_becomes_a_document() {
    let test = ConversationApp::start().await;
    let file = test.upload("/api/files", "text/markdown", b"# Terms\nPay in 30 days.").await;
    let path = format!(
        "/api/documents/terms/content?title=Terms&fileId={}",
        file["fileId"].as_str().expect("an id")
    );
    let put = test.app.request("PUT", &path).bearer_auth(session_token("u1", "c1"));
    let stored = put.header("prefer", "wait=30").send().await.expect("an answer");
    let stored: Value = stored.json().await.expect("JSON");
    assert_eq!(
        (&stored["title"], &stored["content"]["sha256"]),
        (&json!("Terms"), &file["sha256"]),
        "{stored}"
    );
    assert_eq!(stored["text"], "# Terms\nPay in 30 days.");
    let request = test.app.request("PUT", "/api/documents/other/content?fileId=gone");
    let response = request.bearer_auth(session_token("u1", "c1")).send().await.expect("an answer");
    expect_problem(response, 400, "INVALID_REQUEST").await;
}

#[tokio::test]
async fn a_copied_thread_has_the_files_of_its_messages() {
    let test = ConversationApp::start().await;
    test.vendor.on("m", [answer(&["Seen."])]);
    let file = test.upload("/api/files", "text/plain", b"held").await;
    test.chat(json!({"threadId": "t", "messages": with_file(&file["fileId"], "Look")})).await;
    assert_eq!(test.call("POST", "/api/threads/t/fork", Some(json!({"id": "copy"}))).await.0, 201);
    let threads = test.threads_with(&file).await;
    assert_eq!(threads, ["t", "copy"].map(ThreadId::from), "it stays as long as either of them");
}

#[tokio::test]
async fn a_thread_has_the_files_of_messages_without_a_run() {
    let test = ConversationApp::start().await;
    let file = test.upload("/api/files", "text/plain", b"held").await;
    let mut messages = with_file(&file["fileId"], "Look");
    // More files than a prompt has, which are gone.
    let gone =
        (0..64).map(|n| json!({"type": "image", "source": {"type": "file", "value": format!("gone-{n}")}}));
    let later = json!({"id": "m2", "role": "user", "content": gone.collect::<Vec<_>>()});
    messages.as_array_mut().expect("messages").push(later);
    let create = json!({"id": "imported", "agentId": "a1", "messages": messages});
    assert_eq!(test.call("POST", "/api/threads", Some(create)).await.0, 201);
    let create = json!({"id": "appended", "agentId": "a1"});
    assert_eq!(test.call("POST", "/api/threads", Some(create)).await.0, 201);
    let append = json!({"messages": messages});
    assert_eq!(test.call("POST", "/api/threads/appended/messages", Some(append)).await.0, 201);
    assert_eq!(test.threads_with(&file).await, ["imported", "appended"].map(ThreadId::from));
}

#[tokio::test]
async fn expired_files_are_deleted_unless_a_thread_has_them() {
    let test = ConversationApp::start().await;
    test.vendor.on("m", [answer(&["Seen."])]);
    let (company, user) = (CompanyId::from("c1"), UserId::from("u1"));
    let free = test.upload("/api/files", "text/plain", b"free").await;
    let held = test.upload("/api/files", "text/plain", b"held").await;
    test.chat(json!({"threadId": "t", "messages": with_file(&held["fileId"], "Look")})).await;
    let records = &*test.stores.records;
    let ids = [&free, &held].map(|file| file["fileId"].as_str().expect("an id"));
    for file in get_user_files(records, (&company, &user), &ids).await.expect("read") {
        let file = file.expect("a file");
        let key = Key::new("c1", USER_FILE_COLLECTION, file.id).expect("a key");
        let ended = UserFile { expires_at: Timestamp::now(), ..file.value };
        records.put_as(&key, &ended, Precondition::Version(file.version)).await.expect("written");
    }
    // Another process begins with its maintenance.
    let _other = test.another_process().await;
    let count = async || test.get("/api/files").await["files"].as_array().map_or(0, Vec::len);
    poll_until(count, |count| *count == 1).await;
    assert_eq!(test.get("/api/files").await["files"][0]["fileId"], held["fileId"], "the thread has it");
    assert_eq!(test.call("DELETE", "/api/threads/t", None).await.0, 204);
    let _third = test.another_process().await;
    poll_until(count, |count| *count == 0).await;
}

#[tokio::test]
async fn a_tool_sends_the_file_that_the_model_names_once_it_is_approved() {
    let (vendor, service) = (Vendor::start().await, Vendor::start().await);
    service.on_all(json_response("200 OK", "", r#"{"stored":true}"#));
    let mut all = everyone(&vendor.base_url());
    let content = &mut all["agents"][0]["content"];
    content["httpTools"] = json!([{"name": "sendPhoto", "description": "Sends a photo.",
        "inputSchema": {"type": "object", "required": ["photo"], "properties": {"photo": {"type": "string"}}},
        "request": {"method": "POST", "url": format!("http://{}/photos", service.address),
            "contentType": "multipart/form-data", "body": {"photo": "{photo}"}, "fileParts": ["photo"]}}]);
    content["approvals"] = json!([{"tools": ["sendPhoto"]}]);
    let stores = server::stores(&all).await;
    let app = server::app_with_stores(stores.clone(), &[]).await;
    let test = ConversationApp { vendor, app, stores };
    let file = test.upload("/api/files?name=dot.png", "image/png", PNG).await;
    let id = file["fileId"].as_str().expect("an id");
    let call = |id: &str| tool_calls(&[("c1", "sendPhoto", &json!({"photo": id}).to_string())]);

    // The model reads the file's id in front of the file, as the preview does.
    test.vendor.on("m", [call(id)]);
    let body = json!({"threadId": "t", "messages": with_file(&json!(id), "Send it.")});
    let mut preview = body.clone();
    preview["agentId"] = json!("a1");
    let (_, shown) = test.call("POST", "/api/svcchat/previewPrompt", Some(preview)).await;
    let turn = test.chat(body).await;
    let interrupt = &turn.last()["outcome"]["interrupts"][0];
    assert!(!interrupt["id"].is_null() && service.connections() == 0, "{:?}", turn.events);
    let summary = turn.custom("agent.prompt").expect("a summary");
    assert_eq!(summary["requestSha256"], shown["requestSha256"]);
    let request_body = test.vendor.received_bodies("m").pop().expect("a request");
    let label = format!("[file \"dot.png\" of type image/png, id {id}]");
    let parts = request_body["messages"].as_array().expect("messages").iter().rev();
    let parts =
        parts.clone().find(|message| message["role"] == "user").expect("a message")["content"].clone();
    let at = parts.as_array().expect("parts").iter().position(|part| part["text"] == label);
    assert_eq!(parts[at.expect("a label") + 1]["type"], "image_url", "{parts}");

    test.vendor.on("m", [answer(&["Sent."])]);
    test.resume("t", interrupt, json!({"approved": true})).await;
    let received = service.received();
    assert_eq!(received.len(), 1);
    let head = b"Content-Disposition: form-data; name=\"photo\"; filename=\"dot.png\"\r\nContent-Type: image/png\r\n\r\n";
    let expected = [&head[..], PNG, b"\r\n--"].concat();
    assert!(received[0].body.windows(expected.len()).any(|part| part == expected), "{:?}", received[0].body);
    let audit = poll_until(
        async || test.get("/api/agent/tools/audit?agentId=a1").await,
        |page| page["calls"].as_array().is_some_and(|calls| !calls.is_empty()),
    );
    assert_eq!(audit.await["calls"][0]["tool"], "sendPhoto");

    // An unknown file is refused before the service is called, with a message that the model reads.
    test.vendor.on("m", [call("01a2"), answer(&["Sorry."])]);
    let turn = test.say("t", "Send the other one.").await;
    test.resume("t", &turn.last()["outcome"]["interrupts"][0], json!({"approved": true})).await;
    let request_body = test.vendor.received_bodies("m").pop().expect("a request")["messages"].to_string();
    assert!(request_body.contains("/photo: is not the id of a stored file of this user"), "{request_body}");
    assert_eq!(service.received().len(), 1);
}
