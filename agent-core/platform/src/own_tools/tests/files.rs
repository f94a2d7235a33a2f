//! Tests of stored files as parts of forms.

use agent_core::ids::UserId;
use agent_core::tool::Caller;
use jiff::Timestamp;

use super::super::file_parts::{FileError, FileReader, FileReference};
use super::super::form::MULTIPART_CONTENT_TYPE;
use super::*;
use crate::memory::MemoryRecords;
use crate::tool_files::RecordToolFiles;
use crate::workspace::NewUserFile;

fn upload_tool() -> Value {
    json!({
        "name": "upload", "description": "Uploads files.",
        "inputSchema": {"type": "object", "properties": {"title": {}, "file": {}, "more": {}}},
        "request": {"method": "POST", "url": "https://api.acme.example/v1/files", "contentType": MULTIPART_CONTENT_TYPE,
            "body": {"title": "{title}", "file": "{file}", "more": "{more}"}, "fileParts": ["file", "more"]}
    })
}

/// Records with the files of users, and a registry whose agent has the tool.
struct Uploads {
    records: Arc<MemoryRecords>,
    client: Arc<ScriptedClient>,
    registry: OwnToolRegistry,
}

impl Uploads {
    fn new() -> Self {
        let role = RoleBlock {
            id: "a".into(),
            company_id: "c".into(),
            content: content(&[upload_tool()]),
            ..RoleBlock::default()
        };
        let answers = Mutex::new([json_response(200, &json!({}))].into());
        let client = Arc::new(ScriptedClient { sent: Mutex::default(), answers });
        let records = Arc::new(MemoryRecords::default());
        let roles = Arc::new(StaticRoles::new().with_role(role));
        let tools = Arc::new(FakeTools::new());
        let registry = OwnToolRegistry::new(tools, roles, client.clone(), Arc::new(SystemClock));
        let registry = registry.with_files(Arc::new(RecordToolFiles(records.clone())));
        Self { records, client, registry }
    }

    /// Stores a file of a user and returns its id.
    async fn store(&self, user: &str, name: Option<&str>, media_type: &str, bytes: Vec<u8>) -> String {
        let file = NewUserFile::new(name.map(str::to_owned), media_type.to_owned(), bytes.into());
        let (company, user) = (CompanyId::from("c"), UserId::from(user));
        let stored = file.store(&*self.records, (&company, &user), Timestamp::UNIX_EPOCH, Timestamp::MAX);
        stored.await.map_err(|error| error.to_string()).expect("stored").id
    }

    async fn call(&self, context: &ExecutionContext, arguments: Value) -> Result<ToolOutput, ToolError> {
        self.registry.call(context, "upload", arguments, &NoProgress).await
    }

    /// Returns the requests since the last look.
    fn take_sent(&self) -> Vec<HttpToolRequest> {
        std::mem::take(&mut *self.client.sent.lock().expect("unpoisoned"))
    }

    /// Returns the message of a refused call, which sends nothing.
    async fn refusal(&self, context: &ExecutionContext, arguments: Value) -> String {
        let result = self.call(context, arguments.clone()).await;
        assert!(self.take_sent().is_empty(), "{arguments}");
        match result {
            Err(ToolError::InvalidArguments(message)) => message,
            other => panic!("{arguments}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_stored_file_is_a_part_with_its_name_and_media_type() {
    let uploads = Uploads::new();
    let binary = vec![0xff, 0, b'\r', b'\n', b'-', b'-'];
    let named = uploads.store("u", Some("C:\\tmp/a \"\u{fc}\".png"), "image/png", binary.clone()).await;
    let unnamed = uploads.store("u", None, "text/plain", b"text".to_vec()).await;
    let arguments =
        json!({"title": "t", "file": named, "more": [format!("/api/files/{unnamed}"), named.clone()]});
    let context = context("r", "u");
    uploads.call(&context, arguments.clone()).await.expect("a result");
    let sent = uploads.take_sent();
    let boundary = sent[0].content_type.strip_prefix("multipart/form-data; boundary=").expect("a boundary");
    let part = |name: &str, filename: &str, media_type: &str, content: &[u8]| {
        let head = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{filename}\"\r\n"
        );
        [head.as_bytes(), b"Content-Type: ", media_type.as_bytes(), b"\r\n\r\n", content, b"\r\n"].concat()
    };
    let expected = [
        format!("--{boundary}\r\nContent-Disposition: form-data; name=\"title\"\r\n\r\nt\r\n").into_bytes(),
        part("file", "a %22\u{fc}%22.png", "image/png", &binary),
        part("more", &unnamed, "text/plain", b"text"),
        part("more", "a %22\u{fc}%22.png", "image/png", &binary),
        format!("--{boundary}--\r\n").into_bytes(),
    ];
    assert_eq!(body_of(&sent[0]), expected.concat());
    uploads.call(&context, arguments).await.expect("a result");
    assert_eq!(uploads.take_sent()[0].content_type, sent[0].content_type, "the same call has the same body");
    // A file that is not named adds no part.
    uploads.call(&context, json!({"title": "t", "file": null, "more": []})).await.expect("a result");
    let body = String::from_utf8(body_of(&uploads.take_sent()[0])).expect("text");
    assert!(!body.contains("filename") && body.contains("title"), "{body}");
}

#[tokio::test]
async fn files_of_others_and_too_many_are_refused() {
    let uploads = Uploads::new();
    let own = uploads.store("u", None, "text/plain", b"own".to_vec()).await;
    let foreign = uploads.store("other", None, "text/plain", b"secret".to_vec()).await;
    let user = context("r", "u");
    let unknown = "is not the id of a stored file of this user; it is the fileId of POST /api/files, whose file may have expired";
    for reference in [&*foreign, "gone", "", "../x", "a b", "/api/documents/d", "https://evil.example/x"] {
        let message = uploads.refusal(&user, json!({"file": reference})).await;
        assert_eq!(message, format!("/file: {unknown}"), "{reference}");
    }
    let message = uploads.refusal(&user, json!({"file": own, "more": [own, foreign]})).await;
    assert_eq!(message, format!("/more: {unknown}"));
    for value in [json!(1), json!({"id": own}), json!([null])] {
        let message = uploads.refusal(&user, json!({"file": value})).await;
        assert_eq!(message, "/file: must be the id of a stored file, which is a text", "{value}");
    }
    let elsewhere = ExecutionContext { company_id: "d".into(), ..user.clone() };
    assert!(uploads.call(&elsewhere, json!({"file": own})).await.is_err() && uploads.take_sent().is_empty());
    let visitor = ExecutionContext { caller: Caller::Widget, ..user.clone() };
    let message = uploads.refusal(&visitor, json!({"file": own})).await;
    assert_eq!(message, "/file: names a file, but visitors have no files");
    let message = uploads.refusal(&user, json!({"more": vec![own.clone(); 17]})).await;
    assert_eq!(message, "/more: makes a request with more than 16 files");

    let large = uploads.store("u", None, "audio/mpeg", vec![7; 10 << 20]).await;
    let message = uploads.refusal(&user, json!({"file": large, "more": [large, own]})).await;
    assert_eq!(message, "/more: makes a request with more than 20 MiB of files");
    uploads.call(&user, json!({"file": large, "more": [large]})).await.expect("20 MiB are sent");
    assert_eq!(uploads.take_sent().len(), 1);
    let message = uploads.refusal(&user, json!({"file": own, "title": "x".repeat(256 << 10)})).await;
    assert!(message.contains("262,144 bytes"), "the limit of the other parts stays: {message}");
}

#[tokio::test]
async fn the_memory_for_files_of_a_company_is_bounded_until_its_calls_have_ended() {
    let uploads = Uploads::new();
    let large = uploads.store("u", None, "audio/mpeg", vec![7; 8 << 20]).await;
    let references =
        [(); 2].map(|()| FileReference { argument: "file".to_owned(), reference: large.clone() });
    let reader = FileReader::new(Arc::new(RecordToolFiles(uploads.records.clone())));
    let user = context("r", "u");
    let mut held = Vec::new();
    for _ in 0..4 {
        held.extend(reader.read(&user, &references).await.ok());
    }
    assert_eq!(held.len(), 4, "64 MiB");
    let refused = reader.read(&user, &references[..1]).await;
    assert!(matches!(refused, Err(FileError::Tool(ToolError::Unavailable(_)))));
    held.pop();
    assert!(reader.read(&user, &references).await.is_ok());
}

#[test]
fn a_role_that_sends_files_is_recognized_by_its_tools() {
    let own_tools = |value: Value| serde_json::from_value::<OwnTools>(value).expect("own tools");
    let mut without = upload_tool();
    without["request"]["fileParts"] = json!([]);
    let compiled = json!([{"id": "x", "compiled": [get_order(), upload_tool()]}]);
    for (value, expected) in [
        (json!({}), false),
        (json!({"httpTools": [get_order(), without]}), false),
        (json!({"httpTools": [get_order(), upload_tool()]}), true),
        (json!({"openApi": compiled}), true),
        (json!({"openApi": [{"id": "x", "compiled": [get_order()]}]}), false),
    ] {
        assert_eq!(sends_files(&own_tools(value.clone())), expected, "{value}");
    }
}
