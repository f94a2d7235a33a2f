//! Published OpenAPI documents, from an npm package, as tools: the share of their operations that is usable, and calls of
//! each operation of an API.

use std::fs;
use std::path::{Path, PathBuf};

use agent_core::role::OwnTools;
use agent_platform::own_tools::{ToolSettingsError, compile_open_api, faults};
use serde_json::{Value, json};

use super::http::put_agent;
use crate::support::log::LogBuffer;
use crate::support::packages::npm_folder;
use crate::support::server::{self, session_token};
use crate::support::vendor::{ReceivedRequest, Step, Vendor, answer, json_response, tool_calls};
use crate::support::{poll_until, report, workspace};

const SERVER: &str = "https://api.acme.example/v1";
/// Published documents, each with the number of its operations whose body, if they have one, is JSON.
const DOCUMENTS: [(&str, usize); 6] = [
    ("3.0/json/petstore.json", 18),
    ("3.1/json/petstore.json", 18),
    ("3.0/json/readme-legacy.json", 34),
    ("3.0/json/star-trek.json", 80),
    ("3.0/json/uspto.json", 2),
    ("3.1/json/readme.json", 50),
];
/// Least share of these operations that is usable, in percent.
const MIN_USABLE_PERCENT: usize = 95;
/// The smallest picture: its signature and the beginning of its header.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

/// An operation of a document whose body, if it has one, is JSON.
struct JsonOperation<'d> {
    method: &'d str,
    path: &'d str,
    /// Its `operationId`, or method and path.
    key: String,
    fields: &'d Value,
    /// Parameters of all operations of the path.
    shared_parameters: &'d Value,
}

/// Returns the path of a document of the package.
fn example(name: &str) -> PathBuf {
    npm_folder("conformance").join("node_modules/@readme/oas-examples").join(name)
}

fn read(file: &Path) -> Value {
    let text = fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    serde_json::from_slice(&text).expect("JSON")
}

/// Follows local references.
fn resolve<'d>(document: &'d Value, value: &'d Value) -> &'d Value {
    match value["$ref"].as_str() {
        Some(reference) => {
            let target = document.pointer(reference.trim_start_matches('#'));
            resolve(document, target.unwrap_or_else(|| panic!("no {reference}")))
        }
        None => value,
    }
}

fn is_json(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    essence == "application/json" || essence.ends_with("+json")
}

/// Returns the operations whose body, if they have one, is JSON, and the number of the others.
fn json_operations(document: &Value) -> (Vec<JsonOperation<'_>>, usize) {
    let (mut operations, mut others) = (Vec::new(), 0);
    for (path, item) in document["paths"].as_object().expect("paths") {
        let item = resolve(document, item);
        for method in METHODS {
            let Some(fields) = item.get(method) else { continue };
            let body = resolve(document, &fields["requestBody"]);
            let mut media_types = body["content"].as_object().into_iter().flatten();
            let has_json = body.is_null() || media_types.any(|(media_type, _)| is_json(media_type));
            if !has_json {
                others += 1;
                continue;
            }
            let id = fields["operationId"].as_str().map(str::to_owned);
            let key = id.unwrap_or_else(|| format!("{} {path}", method.to_uppercase()));
            operations.push(JsonOperation {
                method,
                path,
                key,
                fields,
                shared_parameters: &item["parameters"],
            });
        }
    }
    (operations, others)
}

/// Compiles an operation as a role is saved that names it alone, and checks the tool; returns the number of parameters
/// that the tool does not have.
///
/// # Errors
/// Reason why the operation is not usable.
fn compile(document: &Value, operation: &JsonOperation<'_>) -> Result<usize, String> {
    let describe = |ToolSettingsError { path, message }: ToolSettingsError| format!("{path} {message}");
    let entry = json!({"id": "api", "server": SERVER, "operations": [operation.key]});
    let Value::Object(mut entry) = entry else { panic!("not an object") };
    compile_open_api(&mut entry, document).map_err(describe)?;
    if let Some(skipped) = entry.get("skipped") {
        return Err(skipped[0]["reason"].to_string());
    }
    let own_tools: OwnTools = serde_json::from_value(json!({"openApi": [entry]})).expect("own tools");
    match faults(&own_tools, |_| false).into_iter().next() {
        Some(fault) => Err(describe(fault)),
        None => check_request(document, operation, &own_tools.open_api[0].settings["compiled"][0]["request"]),
    }
}

/// Checks that a request is the operation's; returns the number of query parameters that it does not have.
fn check_request(document: &Value, operation: &JsonOperation<'_>, request: &Value) -> Result<usize, String> {
    let url = request["url"].as_str().unwrap_or_default();
    let segments: Vec<&str> = url.strip_prefix(SERVER).unwrap_or_default().split('/').collect();
    let expected: Vec<&str> = operation.path.split('/').collect();
    let is_same = |(segment, expected): (&&str, &&str)| {
        segment == expected || (segment.contains('{') && expected.contains('{'))
    };
    let is_path = segments.len() == expected.len() && segments.iter().zip(&expected).all(is_same);
    if !is_path || request["method"] != operation.method.to_uppercase() {
        return Err(format!("is the request {request}"));
    }
    if request["body"].is_null() != operation.fields["requestBody"].is_null() {
        return Err(format!("has no body, or another: {request}"));
    }
    let lists = [operation.shared_parameters, &operation.fields["parameters"]];
    let parameters = lists.into_iter().filter_map(Value::as_array).flatten();
    let query = parameters
        .map(|parameter| resolve(document, parameter))
        .filter(|parameter| parameter["in"] == "query");
    let is_left_out = |parameter: &&Value| {
        let name = parameter["name"].as_str().unwrap_or_default();
        request["query"][name].is_null()
    };
    Ok(query.filter(is_left_out).count())
}

/// Compiles each operation of a document alone, reports the figures, and requires the least share; returns the number of
/// operations whose body, if they have one, is JSON.
fn measure(file: &Path) -> usize {
    let document = read(file);
    let (operations, others) = json_operations(&document);
    let (mut left_out, mut unusable) = (0, Vec::new());
    for operation in &operations {
        match compile(&document, operation) {
            Ok(parameters) => left_out += parameters,
            Err(reason) => unusable.push(format!("{}: {reason}", operation.key)),
        }
    }
    let (count, usable) = (operations.len(), operations.len() - unusable.len());
    let (name, version) = (file.display(), &document["openapi"]);
    report(&format!(
        "{name} ({version}): {usable} of {count} operations with JSON are usable, {left_out} query parameters are left \
         out; {others} operations have other bodies"
    ));
    unusable.iter().for_each(|reason| report(reason));
    assert!(usable * 100 >= count * MIN_USABLE_PERCENT, "{name}: of {count}: {unusable:#?}");
    count
}

#[test]
fn operations_of_published_documents_are_usable() {
    for (name, expected) in DOCUMENTS {
        assert_eq!(measure(&example(name)), expected, "{name}");
    }
    if let Some(file) = std::env::var_os("OPENAPI_DOCUMENT") {
        measure(Path::new(&file));
    }
}

/// Returns a value of the schema with all properties.
fn sample(root: &Value, schema: &Value) -> Value {
    let schema = resolve(root, schema);
    if let Some(value) = schema["enum"].get(0) {
        return value.clone();
    }
    match schema["type"].as_str() {
        Some("integer" | "number") => json!(2),
        Some("boolean") => json!(true),
        Some("array") => json!([sample(root, &schema["items"])]),
        Some("object") => {
            let properties = schema["properties"].as_object().into_iter().flatten();
            Value::Object(properties.map(|(name, schema)| (name.clone(), sample(root, schema))).collect())
        }
        _ => json!("x"),
    }
}

#[tokio::test]
async fn each_operation_of_the_petstore_is_called() {
    let (vendor, service) = (Vendor::start().await, Vendor::start().await);
    service.on_all(json_response("200 OK", "", r#"{"done":true}"#));
    let mut workspace = workspace(&vendor.base_url(), "m");
    let app = server::app(&workspace, &[]).await;
    let documents = ["3.0", "3.1"].map(|revision| read(&example(&format!("{revision}/json/petstore.json"))));
    let entries = ["pets-30", "pets-31"].into_iter().zip(&documents).map(|(id, document)| {
        let operations = json_operations(document).0.into_iter().map(|operation| operation.key);
        json!({"id": id, "document": document, "server": format!("http://{}/v2", service.address),
            "operations": operations.collect::<Vec<_>>()})
    });
    workspace["agents"][0]["content"]["openApi"] = entries.collect();
    let saved = put_agent(&app, &workspace).await;
    assert_eq!(saved.status(), 200);
    let saved: Value = saved.json().await.expect("JSON");
    for (document, entry) in documents.iter().zip(saved["content"]["openApi"].as_array().expect("entries")) {
        let (operations, _) = json_operations(document);
        let compiled = entry["compiled"].as_array().expect("tools");
        assert_eq!((compiled.len(), &entry["skipped"]), (operations.len(), &Value::Null));
        for (operation, tool) in operations.iter().zip(compiled) {
            let arguments = sample(&tool["inputSchema"], &tool["inputSchema"]);
            let (name, count) = (tool["name"].as_str().expect("a name"), service.received().len());
            let call = app.request("POST", &format!("/api/agents/a1/tools/{name}/test"));
            let call = call.bearer_auth(session_token("u1", "c1")).json(&json!({"arguments": arguments}));
            let result: Value = call.send().await.expect("an answer").json().await.expect("JSON");
            assert_eq!(result["isError"], false, "{name}: {result}");

            let received = service.received();
            assert_eq!(received.len(), count + 1, "{name}");
            let request = &received[count];
            let mut expected = format!("/v2{}", operation.path);
            for (argument, value) in arguments.as_object().expect("arguments") {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                expected = expected.replace(&format!("{{{argument}}}"), &text);
            }
            let (path, query) = request.path().split_once('?').unwrap_or((request.path(), ""));
            assert_eq!(path, expected, "{name}");
            let method = request.head.split(' ').next();
            assert_eq!(method, Some(operation.method.to_uppercase().as_str()), "{name}");
            let queried = tool["request"]["query"].as_object().into_iter().flatten();
            for (parameter, _) in queried {
                assert!(query.contains(&format!("{parameter}=")), "{name}: {query}");
            }
            if !arguments["body"].is_null() {
                assert_eq!(request.json(), arguments["body"], "{name}");
            }
        }
    }
}

#[tokio::test]
async fn bodies_have_the_media_type_of_the_document() {
    const MEDIA_TYPE: &str = "application/merge-patch+json; charset=utf-8";
    let (vendor, service) = (Vendor::start().await, Vendor::start().await);
    let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/vnd.acme+json\r\ncontent-length: 13\r\n\r\n{\"done\":true}";
    service.on_all(vec![Step::Send(answer.into())]);
    let mut workspace = workspace(&vendor.base_url(), "m");
    let app = server::app(&workspace, &[]).await;
    let content = |media_type: &str| json!({media_type: {"schema": {"type": "object"}}});
    let document = json!({"openapi": "3.1.0", "paths": {
        "/pet": {"patch": {"operationId": "changePet",
            "requestBody": {"required": true, "content": content(MEDIA_TYPE)}}},
        "/image": {"post": {"operationId": "upload",
            "requestBody": {"required": true, "content": content("image/png")}}}}});
    workspace["agents"][0]["content"]["openApi"] = json!([{"id": "pets", "document": document,
        "server": format!("http://{}", service.address), "operations": ["changePet", "upload"]}]);
    assert_eq!(put_agent(&app, &workspace).await.status(), 200);

    let list = app.request("GET", "/api/agents/a1/tools").bearer_auth(session_token("u1", "c1"));
    let list: Value = list.send().await.expect("an answer").json().await.expect("JSON");
    let reason = "has a body that is neither JSON nor a form";
    assert_eq!(list["skipped"], json!([{"openApiId": "pets", "operation": "upload", "reason": reason}]));
    let tools = list["tools"].as_array().expect("tools");
    let own_tools: Vec<_> = tools.iter().filter(|tool| tool["source"] == "openApi").collect();
    assert_eq!((own_tools.len(), &own_tools[0]["name"]), (1, &json!("pets_changePet")));

    let call = app.request("POST", "/api/agents/a1/tools/pets_changePet/test");
    let body = json!({"name": "Rex", "owner": null});
    let call = call.bearer_auth(session_token("u1", "c1")).json(&json!({"arguments": {"body": body}}));
    let result: Value = call.send().await.expect("an answer").json().await.expect("JSON");
    assert_eq!((&result["isError"], &result["structured"]), (&json!(false), &json!({"done": true})));
    let received = service.received();
    let request = &received[0];
    let header = |name: &str| {
        let headers = request.head.lines().filter_map(|line| line.split_once(": "));
        let values = headers.filter(|(header, _)| header.eq_ignore_ascii_case(name)).map(|(_, value)| value);
        values.collect::<Vec<_>>()
    };
    assert_eq!(header("accept"), ["application/json, application/*;q=0.8, text/*;q=0.5"]);
    assert_eq!(header("content-type"), [MEDIA_TYPE]);
    assert_eq!(request.json(), body, "a null, by which a merge patch removes a member, is sent");
}

#[tokio::test]
async fn keys_in_the_query_and_in_cookies_are_sent_and_shown_nowhere() {
    const KEY: &str = "query-canary/0123456789";
    const ENCODED_KEY: &str = "query-canary%2F0123456789";
    const COOKIE: &str = "cookie-canary-0123456789";
    let is_clear = |text: &str| text.contains("query-canary") || text.contains("cookie-canary");
    let log = LogBuffer::install();
    let (vendor, service, other) = (Vendor::start().await, Vendor::start().await, Vendor::start().await);
    let echo = json!({"asked": format!("/v1/orders/7?api_key={ENCODED_KEY}"), "key": KEY});
    let key_path = format!("/v1/orders/7?api_key={ENCODED_KEY}");
    service.on(&key_path, [json_response("403 Forbidden", "", &echo.to_string())]);
    let echo = json!({"cookie": format!("sid={COOKIE}")});
    service.on_all(json_response("403 Forbidden", "", &echo.to_string()));
    let scheme = |location: &str, name: &str| json!({"type": "apiKey", "in": location, "name": name});
    let document = json!({"openapi": "3.1.0", "security": [{"key": []}],
        "components": {"securitySchemes": {"key": scheme("query", "api_key"), "session": scheme("cookie", "sid")}},
        "paths": {"/orders/{orderId}": {"get": {"operationId": "getOrder", "parameters": [
            {"name": "orderId", "in": "path", "required": true, "schema": {"type": "string"}},
            {"name": "api_key", "in": "query", "required": true, "schema": {"type": "string"}}]}}}});
    let mut workspace = workspace(&vendor.base_url(), "m");
    let app = server::app(&json!({"users": workspace["users"]}), &[]).await;
    let entry = |id: &str, auth: Value| {
        json!({"id": id, "document": document, "server": format!("http://{}/v1", service.address),
            "operations": ["getOrder"], "auth": auth})
    };
    workspace["agents"][0]["content"]["mcpPreset"] = json!("none");
    workspace["agents"][0]["content"]["openApi"] = json!([
        entry("key", json!({"type": "query", "name": "api_key", "secret": KEY})),
        entry("cookie", json!({"type": "cookie", "name": "sid", "secret": COOKIE})),
    ]);
    let saved = put_agent(&app, &workspace).await;
    assert_eq!(saved.status(), 201);
    let saved = saved.text().await.expect("a body");
    assert!(!is_clear(&saved) && saved.matches(r#""secret":"***""#).count() == 2, "{saved}");

    let calls = [
        ("c1", "key_getOrder", r#"{"orderId":"7"}"#),
        ("c2", "cookie_getOrder", r#"{"orderId":"8","api_key":"chosen"}"#),
    ];
    let run = async || {
        vendor.on("m", [tool_calls(&calls), answer(&["Done."])]);
        let response = app.chat(&json!({"agentId": "a1", "message": "Where?"})).await;
        response.text().await.expect("a body")
    };
    let body = run().await;
    assert!(body.contains("Done.") && body.contains("403") && !is_clear(&body), "{body}");
    let heads: Vec<_> = service.received().into_iter().map(|request| request.head).collect();
    assert_eq!(heads.len(), 2);
    let has = |text: &str| heads.iter().any(|head| head.contains(text));
    assert!(has(&format!("GET {key_path} HTTP/1.1\r\n")), "{heads:?}");
    assert!(has("GET /v1/orders/8?api_key=chosen HTTP/1.1\r\n"), "{heads:?}");
    let cookie = format!("cookie: sid={COOKIE}");
    assert!(heads.iter().any(|head| head.to_ascii_lowercase().contains(&cookie)), "{heads:?}");
    let offered = vendor.received_bodies("m")[0]["tools"].to_string();
    assert_eq!(
        offered.matches("api_key").count(),
        2,
        "a property of the one tool alone, and required: {offered}"
    );

    let get = async |path: &str| {
        let request = app.request("GET", path).bearer_auth(session_token("u1", "c1"));
        request.send().await.expect("an answer").text().await.expect("a body")
    };
    let audit = poll_until(
        async || get("/api/agent/tools/audit?agentId=a1").await,
        |page| page.contains("key_getOrder"),
    );
    let mut shown = vec![audit.await, get("/api/agents/a1").await, get("/api/agents/a1/tools").await];
    let preview = app.request("POST", "/api/svcchat/previewPrompt").bearer_auth(session_token("u1", "c1"));
    let preview = preview.json(&json!({"agentId": "a1", "message": "hi"})).send().await.expect("an answer");
    shown.push(preview.text().await.expect("a body"));
    for text in shown {
        assert!(text.contains("getOrder") && !is_clear(&text), "{text}");
    }

    // With another server, the secrets are gone.
    let moved = workspace.to_string().replace(&service.address.to_string(), &other.address.to_string());
    let moved = moved.replace(KEY, "***").replace(COOKIE, "***");
    let moved: Value = serde_json::from_str(&moved).expect("JSON");
    assert_eq!(put_agent(&app, &moved).await.status(), 200);
    let body = run().await;
    assert!(body.contains("credential is not configured"), "{body}");
    assert_eq!(other.connections(), 0);
    let log = log.text();
    assert!(log.contains("answered"), "{log}");
    assert_eq!(log.lines().find(|line| is_clear(line)), None, "the log has a secret");
}

/// Returns the parts of a form (RFC 7578): the name, the media type and the value of each.
fn parts(request: &ReceivedRequest) -> Vec<(String, Option<String>, String)> {
    let field = |head: &str, name: &str| {
        let mut fields = head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    };
    let content_type = field(&request.head, "content-type").expect("a media type");
    let boundary = content_type.strip_prefix("multipart/form-data; boundary=").expect("a boundary");
    let is_boundary_char = |c: char| c.is_ascii_alphanumeric() || c == '-';
    assert!((1..=70).contains(&boundary.len()) && boundary.chars().all(is_boundary_char), "{boundary}");
    let body = String::from_utf8_lossy(&request.body);
    let body = body.strip_prefix(&format!("--{boundary}\r\n")).expect("a first part");
    let body = body.strip_suffix(&format!("\r\n--{boundary}--\r\n")).expect("an end");
    let part = |part: &str| {
        let (head, value) = part.split_once("\r\n\r\n").expect("a head");
        let disposition = field(head, "content-disposition").expect("a disposition");
        let name = disposition.strip_prefix("form-data; name=\"").expect("a name").strip_suffix('"');
        (name.expect("a name").to_owned(), field(head, "content-type"), value.to_owned())
    };
    body.split(&format!("\r\n--{boundary}\r\n")).map(part).collect()
}

#[tokio::test]
async fn forms_with_parts_are_sent_with_a_stored_file() {
    let (vendor, service) = (Vendor::start().await, Vendor::start().await);
    service.on_all(json_response("200 OK", "", r#"{"done":true}"#));
    let mut workspace = workspace(&vendor.base_url(), "m");
    let app = server::app(&workspace, &[]).await;
    let entries = [
        ("v30", "3.0.3", json!({"type": "string", "format": "binary"})),
        ("v31", "3.1.0", json!({"type": "string", "contentMediaType": "image/png"})),
    ]
    .map(|(id, revision, image)| {
        let schema = json!({"type": "object", "required": ["title", "meta"], "properties": {
            "title": {"type": "string"}, "meta": {"type": "object"}, "count": {"type": "integer"},
            "labels": {"type": "array", "items": {"type": "string"}}, "csv": {"type": "string"}, "image": image}});
        let content = json!({"multipart/form-data": {"schema": schema,
            "encoding": {"csv": {"contentType": "text/csv"}, "image": {"contentType": "image/png, image/jpeg"}}}});
        let document = json!({"openapi": revision, "paths": {"/photos": {"post": {"operationId": "addPhoto",
            "requestBody": {"required": true, "content": content}}}}});
        json!({"id": id, "document": document, "server": format!("http://{}", service.address),
            "operations": ["addPhoto"]})
    });
    workspace["agents"][0]["content"]["openApi"] = json!(entries);
    assert_eq!(put_agent(&app, &workspace).await.status(), 200);

    let list = app.request("GET", "/api/agents/a1/tools").bearer_auth(session_token("u1", "c1"));
    let list: Value = list.send().await.expect("an answer").json().await.expect("JSON");
    assert_eq!((&list["skipped"], &list["incomplete"]), (&json!([]), &json!([])));
    let upload = app.request("POST", "/api/files?name=dot.png").bearer_auth(session_token("u1", "c1"));
    let upload = upload.header("content-type", "image/png").body(PNG).send().await.expect("an answer");
    let file: Value = upload.json().await.expect("a file");
    let title = "A \"photo\"\r\n--agentd-0\r\nContent-Disposition: form-data; name=\"admin\"\r\n\r\n1";
    let form = json!({"title": title, "meta": {"tags": ["\u{fc}", null]}, "count": 3, "labels": ["x", "y z"],
        "csv": "a,b\r\n", "image": file["fileId"]});
    for (index, id) in ["v30", "v31"].into_iter().enumerate() {
        let call = app.request("POST", &format!("/api/agents/a1/tools/{id}_addPhoto/test"));
        let call = call.bearer_auth(session_token("u1", "c1")).json(&json!({"arguments": {"body": form}}));
        let result: Value = call.send().await.expect("an answer").json().await.expect("JSON");
        assert_eq!((&result["isError"], &result["structured"]), (&json!(false), &json!({"done": true})));
        let request = &service.received()[index];
        let image = String::from_utf8_lossy(PNG);
        let expected = [
            ("title", None, title),
            ("meta", Some("application/json"), "{\"tags\":[\"\u{fc}\",null]}"),
            ("count", None, "3"),
            ("labels", None, "x"),
            ("labels", None, "y z"),
            ("csv", Some("text/csv"), "a,b\r\n"),
            ("image\"; filename=\"dot.png", Some("image/png"), &*image),
        ];
        let expected = expected.map(|(name, media_type, value)| {
            (name.to_owned(), media_type.map(str::to_owned), value.to_owned())
        });
        assert_eq!(parts(request), expected, "{id}");
    }
}
