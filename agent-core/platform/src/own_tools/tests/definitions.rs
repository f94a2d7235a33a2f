//! Tests of the definitions of tools: hints, faults with their paths, and limits.

use super::*;

#[test]
fn the_method_of_a_tool_bounds_its_hints() {
    for (method, annotations, is_destructive) in [
        ("GET", Value::Null, false),
        ("GET", json!({"destructiveHint": true}), true),
        ("POST", Value::Null, true),
        ("POST", json!({}), true),
        ("PATCH", json!({"idempotentHint": true}), true),
        ("POST", json!({"destructiveHint": false}), false),
        ("POST", json!({"readOnlyHint": true}), true),
        ("DELETE", json!({"destructiveHint": false}), true),
        ("DELETE", json!({"readOnlyHint": true, "destructiveHint": false}), true),
    ] {
        let mut tool = get_order();
        tool["request"]["method"] = method.into();
        tool["annotations"] = annotations.clone();
        let Value::Object(settings) = tool else { panic!("an object") };
        let tool = OwnTool { auth: None, settings };
        let parsed = definition::HttpTool::parse(&tool).map_err(|fault| fault.message).expect("a tool");
        let hints = parsed.spec.annotations.expect("hints");
        assert_eq!(hints.destructive_hint, is_destructive, "{method} {annotations}");
        assert!(method == "GET" || !hints.read_only_hint, "{method} {annotations}");
        assert!(hints.open_world_hint, "{method} {annotations}");
    }
}

#[test]
fn a_tool_reaches_other_systems_unless_it_says_otherwise() {
    for (annotations, is_open) in [
        (Value::Null, true),
        (json!({"readOnlyHint": true}), true),
        (json!({"openWorldHint": true}), true),
        (json!({"openWorldHint": false}), false),
    ] {
        let mut tool = get_order();
        tool["annotations"] = annotations.clone();
        let Value::Object(settings) = tool else { panic!("an object") };
        let tool = OwnTool { auth: None, settings };
        let parsed = definition::HttpTool::parse(&tool).map_err(|fault| fault.message).expect("a tool");
        assert_eq!(parsed.spec.annotations.expect("hints").open_world_hint, is_open, "{annotations}");
    }
}

#[test]
fn faults_of_definitions_have_their_path() {
    let fault_paths = |tools: &[Value]| {
        let fault_paths = faults(&content(tools).own_tools, |name| name == "readTodos");
        fault_paths.into_iter().map(|fault| fault.path).collect::<Vec<_>>()
    };
    assert!(fault_paths(&[get_order()]).is_empty());
    let url = |url: &str| ("/request/url", json!(url), "request.url");
    let cases = [
        ("/name", json!("a b"), "name"),
        ("/name", json!("x".repeat(65)), "name"),
        ("/name", json!("readTodos"), "name"),
        ("/description", json!(" "), "description"),
        ("/description", json!("x".repeat(1 << 20)), "description"),
        ("/inputSchema", json!({"type": "array"}), "inputSchema"),
        ("/inputSchema/properties/lang/type", json!("text"), "inputSchema"),
        ("/inputSchema/properties/lang", json!({"$ref": "https://evil.example/schema"}), "inputSchema"),
        ("/inputSchema/properties/lang", json!({"pattern": "(?=x)"}), "inputSchema"),
        ("/inputSchema/required", json!([]), "request.url"),
        ("/request/method", json!("CONNECT"), "request.method"),
        ("/request/query/lang", json!("{other}"), "request.query.lang"),
        ("/request/query/lang", json!({}), "request.query.lang"),
        ("/request/query/lang", json!({"list": "{tags}", "separator": "&"}), "request.query.lang"),
        ("/request/query/lang", json!({"list": "{other}", "separator": ","}), "request.query.lang"),
        ("/request/query/lang", json!({"list": "x{tags}", "separator": ","}), "request.query.lang"),
        ("/request/body", json!({"a": 1}), "request.body"),
        url("ftp://a.example/"),
        url("https://{orderId}.example/"),
        url("https://a.example:{orderId}/"),
        url("{orderId}://a.example/"),
        url("https://user@a.example/{orderId}"),
        url("https://a.example/{orderId}?x=1"),
        url("https://a.example/{orderId}#x"),
        url("https://a.example/../{orderId}"),
        url("https://a.example/a b/{orderId}"),
        url("https://a.example\\{orderId}"),
        url("https:///{orderId}"),
    ];
    for (pointer, value, path) in cases {
        let mut tool = get_order();
        match tool.pointer_mut(pointer) {
            Some(member) => *member = value.clone(),
            None => tool["request"]["body"] = value.clone(),
        }
        assert_eq!(
            fault_paths(&[
                json!({"name": "b", "description": "x", "request":
            {"method": "GET", "url": "https://b.example"}}),
                tool
            ]),
            [format!("httpTools[1].{path}")],
            "{value}"
        );
    }
    for (name, path) in [
        ("Host", "Host"),
        ("authorization", "authorization"),
        ("Content-Length", "Content-Length"),
        ("X-{lang}", "X-{lang}"),
        ("a b", "a b"),
    ] {
        let mut tool = get_order();
        tool["request"]["headers"] = json!({name: "x"});
        assert_eq!(fault_paths(&[tool]), [format!("httpTools[0].request.headers.{path}")]);
    }
    for (content_type, is_valid) in [
        ("application/json", true),
        ("application/json; charset=utf-8", true),
        ("application/vnd.acme.v2+json", true),
        ("application/x-www-form-urlencoded", true),
        ("application/xml", false),
        ("application/json-seq", false),
        ("application/*+json", false),
        ("application/json;\r\nX-Evil: 1", false),
        ("", false),
    ] {
        let mut tool = get_order();
        tool["request"]["method"] = json!("PATCH");
        (tool["request"]["body"], tool["request"]["contentType"]) = (json!({}), json!(content_type));
        let expected: &[&str] = if is_valid { &[] } else { &["httpTools[0].request.contentType"] };
        assert_eq!(fault_paths(std::slice::from_ref(&tool)), expected, "{content_type:?}");
        tool["request"].as_object_mut().expect("an object").remove("body");
        assert_eq!(fault_paths(&[tool]), ["httpTools[0].request.contentType"], "without a body");
    }
    for (body, expected) in [
        (json!([1]), Some("")),
        (json!("a={lang}"), Some("")),
        (json!({"a": {"b": 1}}), Some(".a")),
        (json!({"a": 1, "b": [{"c": 1}]}), Some(".b")),
        (json!({"b": ["x", [1]]}), Some(".b")),
        (json!({"b": [null]}), Some(".b")),
        (json!({"a": null, "b": [1, true, "{lang}"], "c": "x{lang}"}), None),
        (json!("{tags}"), None),
    ] {
        let mut tool = get_order();
        tool["request"]["method"] = json!("POST");
        tool["request"]["contentType"] = json!("application/x-www-form-urlencoded");
        tool["request"]["body"] = body.clone();
        let expected: Vec<_> =
            expected.into_iter().map(|path| format!("httpTools[0].request.body{path}")).collect();
        assert_eq!(fault_paths(&[tool]), expected, "{body}");
    }
    for (content_type, body, part_types, expected) in [
        (
            "multipart/form-data",
            json!({"a": {"b": [1]}, "c": [[1], "{lang}"]}),
            json!({"a": "text/csv"}),
            None,
        ),
        ("Multipart/Form-Data", json!("{lang}"), json!({"a": "application/vnd.acme+json"}), None),
        ("multipart/form-data; boundary=x", json!({}), json!({}), Some("contentType")),
        ("multipart/form-data", json!({"a": [null]}), json!({}), Some("body.a")),
        ("multipart/form-data", json!({}), json!({"a": "image/png"}), Some("partTypes.a")),
        ("multipart/form-data", json!({}), json!({"a": "text/csv\r\nX-Evil: 1"}), Some("partTypes.a")),
        ("application/json", json!({}), json!({"a": "text/csv"}), Some("partTypes")),
    ] {
        let mut tool = get_order();
        tool["request"] = json!({"method": "POST", "url": "https://api.acme.example/{orderId}", "body": body,
            "contentType": content_type, "partTypes": part_types});
        let expected: Vec<_> =
            expected.into_iter().map(|path| format!("httpTools[0].request.{path}")).collect();
        assert_eq!(fault_paths(&[tool]), expected, "{content_type} {body} {part_types}");
    }
    for (content_type, body, file_parts, expected) in [
        ("multipart/form-data", json!({"a": "{lang}", "b": ["{tags}"]}), json!(["a", "b"]), None),
        ("multipart/form-data", json!("{lang}"), json!(["any"]), None),
        ("multipart/form-data", json!({"a": "{lang}"}), json!(["b"]), Some("fileParts[0]")),
        ("multipart/form-data", json!({"a": 1, "t": "{lang}"}), json!(["a", "t"]), Some("fileParts[1]")),
        ("multipart/form-data", json!({}), json!("a"), Some("fileParts")),
        ("application/json", json!({"a": 1}), json!(["a"]), Some("fileParts")),
    ] {
        let mut tool = get_order();
        tool["request"] = json!({"method": "POST", "url": "https://api.acme.example/{orderId}", "body": body,
            "contentType": content_type, "fileParts": file_parts});
        if content_type.starts_with("multipart") {
            tool["request"]["partTypes"] = json!({"t": "text/csv"});
        }
        let expected: Vec<_> =
            expected.into_iter().map(|path| format!("httpTools[0].request.{path}")).collect();
        assert_eq!(fault_paths(&[tool]), expected, "{content_type} {body} {file_parts}");
    }
    let with = |field: &str, value: Value| {
        let mut tool = get_order();
        tool[field] = value;
        fault_paths(&[tool])
    };
    assert_eq!(with("timeoutMs", json!(1)), ["httpTools[0].timeoutMs"]);
    assert_eq!(with("timeouMs", json!(1)), ["httpTools[0].timeouMs"]);
    assert_eq!(with("result", json!({"maxBytes": 1 << 20})), ["httpTools[0].result.maxBytes"]);
    assert_eq!(with("result", json!({"pick": "data"})), ["httpTools[0].result.pick"]);
    assert_eq!(with("result", json!({"errors": {"200": "x"}})), ["httpTools[0].result.errors.200"]);
    assert_eq!(with("identity", json!("signed")), ["httpTools[0].auth.secret"]);
    assert_eq!(with("auth", json!({"type": "header", "name": "Host"})), ["httpTools[0].auth.name"]);
    assert_eq!(with("auth", json!({"type": "basic", "user": "a:b"})), ["httpTools[0].auth.user"]);
    assert_eq!(with("auth", json!({"type": "oauth"})).len(), 1);
    for (auth, path) in [
        (json!({"type": "query", "name": "lang"}), Some("request.query.lang")),
        (json!({"type": "query", "name": ""}), Some("auth.name")),
        (json!({"type": "query", "name": "a\nb"}), Some("auth.name")),
        (json!({"type": "query", "name": "x".repeat(65)}), Some("auth.name")),
        (json!({"type": "query", "name": "filter[key]"}), None),
        (json!({"type": "cookie", "name": "a=b"}), Some("auth.name")),
        (json!({"type": "cookie", "name": "a; b"}), Some("auth.name")),
        (json!({"type": "cookie", "name": "te"}), None),
    ] {
        let expected: Vec<_> = path.into_iter().map(|path| format!("httpTools[0].{path}")).collect();
        assert_eq!(with("auth", auth.clone()), expected, "{auth}");
    }
    for (auth, is_valid) in [
        (json!({"type": "bearer", "secret": "sk-1"}), true),
        (json!({"type": "bearer", "secret": "***"}), true),
        (json!({"type": "bearer", "secret": ""}), true),
        (json!({"type": "bearer", "secret": "sk-1\n"}), false),
        (json!({"type": "header", "name": "X-Key", "secret": "sk-\u{fc}"}), false),
        (json!({"type": "basic", "user": "ada", "secret": "sk-\u{fc}"}), true),
        (json!({"type": "basic", "user": "ada", "secret": "sk-1\r"}), false),
        (json!({"type": "query", "name": "key", "secret": "sk-1\n"}), true),
        (json!({"type": "cookie", "name": "sid", "secret": "sk-1;"}), false),
    ] {
        let expected: &[&str] = if is_valid { &[] } else { &["httpTools[0].auth.secret"] };
        assert_eq!(with("auth", auth.clone()), expected, "{auth}");
    }
    for (field, value, expected) in [
        ("timeoutMs", json!("sk-1"), "httpTools[0].timeoutMs must be a non-negative integer"),
        ("identity", json!("sk-1"), "httpTools[0].identity must be `none` or `signed`"),
        ("identity", json!(7), "httpTools[0].identity must be a string"),
        ("request", json!("sk-1"), "httpTools[0].request must be an object"),
        (
            "request",
            json!(["GET", "https://api.acme.example/{orderId}", {}]),
            "httpTools[0].request must be an object",
        ),
        (
            "request",
            json!({"method": "GET", "url": "https://api.acme.example/{orderId}", "query": {"tag": ["{tags}", ","]}}),
            "httpTools[0].request.query.tag must be a text, a number, a boolean, or a list with its separator",
        ),
        (
            "inputSchema",
            json!({"type": "object", "properties": {"a": {"type": "object", "required": "sk-1"}}}),
            "httpTools[0].inputSchema is not a valid JSON Schema at /properties/a/required: value is not of type \"array\"",
        ),
        (
            "auth",
            json!({"type": "sk-1"}),
            "httpTools[0].auth.type must be one of `none`, `bearer`, `basic`, `header`, `query`, `cookie`",
        ),
    ] {
        let mut tool = get_order();
        tool[field] = value;
        let found = faults(&content(&[tool]).own_tools, |_| false);
        let texts: Vec<_> = found.iter().map(|fault| format!("{} {}", fault.path, fault.message)).collect();
        assert_eq!(texts, [expected], "no value is repeated");
    }
}

/// The examples have every field, and the message of a misspelt one lists the same fields.
#[test]
fn an_unknown_field_is_answered_with_all_fields_of_its_object() {
    let http = json!({"name": "a", "description": "d", "inputSchema": {"type": "object"}, "annotations": {}, "identity": "none",
        "timeoutMs": 1000, "request": {"method": "GET", "url": "https://h.example"}, "result": {}, "auth": {"type": "none"}});
    let mut open_api = json!({"id": "s", "documentId": "d", "server": "https://h.example", "operations": ["a"], "identity": "none",
        "skipped": [{"operation": "a", "reason": "r"}], "compiled": [], "auth": {"type": "none"}, "document": {}});
    let server = json!({"id": "s", "url": "https://h.example", "identity": "none", "tools": ["a"], "timeoutMs": 1000,
        "maxResultBytes": 1000, "auth": {"type": "none"}});
    let found = |group: &str, tool: &Value| {
        let content: RoleContent = serde_json::from_value(json!({group: [tool]})).expect("a role");
        faults(&content.own_tools, |_| false)
    };
    let check = |group: &str, at: &str, full: &Value, with: &dyn Fn(&Value) -> Value| {
        let mut wrong = full.clone();
        // It is replaced before the role is checked.
        wrong.as_object_mut().expect("an object").remove("document");
        wrong["secrte"] = json!("sk-1");
        let found = found(group, &with(&wrong));
        let [ToolSettingsError { path, message }] = &found[..] else { panic!("{group} {at}: {found:?}") };
        assert_eq!(*path, format!("{group}[0].{at}secrte"));
        assert!(message.starts_with("is not a known field; expected "), "{message}");
        let mut listed: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
        let mut fields: Vec<&String> = full.as_object().expect("an object").keys().collect();
        listed.sort_unstable();
        fields.sort_unstable();
        assert_eq!(listed, fields, "{group} {at}");
    };
    let whole = |tool: &Value| tool.clone();
    check("httpTools", "", &http, &whole);
    check("openApi", "", &open_api, &whole);
    check("toolServers", "", &server, &whole);
    open_api.as_object_mut().expect("an object").remove("document");
    for (group, tool) in [("httpTools", &http), ("openApi", &open_api), ("toolServers", &server)] {
        assert!(found(group, tool).is_empty(), "{group}");
        for auth in [
            json!({"type": "none", "secret": "s"}),
            json!({"type": "bearer", "secret": "s"}),
            json!({"type": "basic", "user": "u", "secret": "s"}),
            json!({"type": "header", "name": "X-Key", "secret": "s"}),
            json!({"type": "query", "name": "key", "secret": "s"}),
            json!({"type": "cookie", "name": "sid", "secret": "s"}),
        ] {
            let with_auth = |auth: &Value| {
                let mut tool = tool.clone();
                tool["auth"] = auth.clone();
                tool
            };
            check(group, "auth.", &auth, &with_auth);
        }
    }
    let mut nested = http;
    nested["request"]["metod"] = json!("GET");
    let found = found("httpTools", &nested);
    assert!(found[0].path == "httpTools[0].request.metod" && !found[0].message.contains("auth"), "{found:?}");
}

#[test]
fn the_number_and_the_size_of_the_tools_are_limited() {
    let tool = |index: usize, description: String| {
        let mut tool = get_order();
        (tool["name"], tool["description"]) = (json!(format!("t{index}")), json!(description));
        tool
    };
    let count = |tools: &[Value]| faults(&content(tools).own_tools, |_| false).len();
    let many: Vec<_> = (0..=MAX_OWN_TOOLS).map(|index| tool(index, "x".to_owned())).collect();
    assert_eq!((count(&many[1..]), count(&many)), (0, 1));
    let large: Vec<_> = (0..9).map(|index| tool(index, "x".repeat(4000))).collect();
    assert_eq!((count(&large[2..]), count(&large)), (0, 1));
    // Tools beyond the limits are not compiled: the fault of the last one is not found.
    for tools in [&many[..], &large[..]] {
        let invalid =
            json!({"name": "invalid", "description": "x", "inputSchema": {"type": "object", "required": 1}});
        assert_eq!(count(&[tools, &[invalid]].concat()), 1);
    }
    assert_eq!(count(&[tool(0, "x".to_owned()), tool(0, "y".to_owned())]), 1, "one name twice");
}
