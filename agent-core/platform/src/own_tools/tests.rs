mod servers;

use std::collections::VecDeque;
use std::sync::Mutex;

use agent_core::clock::SystemClock;
use agent_core::role::{RoleBlock, RoleContent, StaticRoles};
use agent_core::testing::FakeTools;
use agent_core::tool::{ExecutionContext, NoProgress, ToolError, ToolOutput, ToolRegistry};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::trace::parse_trace;

/// A client that records its requests and returns scripted responses; the last one is repeated.
struct ScriptedClient {
    sent: Mutex<Vec<HttpToolRequest>>,
    answers: Mutex<VecDeque<Result<HttpToolResponse, HttpToolError>>>,
}

#[async_trait]
impl HttpToolClient for ScriptedClient {
    async fn send(&self, request: &HttpToolRequest) -> Result<HttpToolResponse, HttpToolError> {
        self.sent.lock().expect("unpoisoned").push(request.clone());
        let mut answers = self.answers.lock().expect("unpoisoned");
        if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() }.expect("an answer")
    }
}

fn json_response(status: u16, body: &Value) -> Result<HttpToolResponse, HttpToolError> {
    let body = body.to_string().into_bytes();
    let media_type = "application/json".to_owned();
    Ok(HttpToolResponse { status, has_retry_after: false, media_type, body })
}

fn lost(was_sent: bool) -> Result<HttpToolResponse, HttpToolError> {
    let message = "the upstream service is unreachable".to_owned();
    Err(HttpToolError { message, was_sent, is_transient: true })
}

fn get_order() -> Value {
    json!({
        "name": "getOrder", "description": "Returns an order.",
        "inputSchema": {"type": "object", "required": ["orderId"], "properties":
            {"orderId": {"type": "string"}, "lang": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}}},
        "request": {"method": "GET", "url": "https://api.acme.example/v1/orders/{orderId}",
            "query": {"lang": "{lang}", "tag": "{tags}", "full": true}, "headers": {"X-Lang": "l-{lang}"}}
    })
}

fn content(tools: &[Value]) -> RoleContent {
    serde_json::from_value(json!({"httpTools": tools})).expect("a content")
}

fn context(run: &str, user: &str) -> ExecutionContext {
    ExecutionContext {
        company_id: "c".into(),
        agent_id: "a".into(),
        user_id: user.into(),
        run_id: run.into(),
        idempotency_key: Some(format!("{run}/1/0")),
        ..ExecutionContext::default()
    }
}

/// Calls a tool of a role; returns the result and the requests sent.
async fn call(
    tool: Value,
    arguments: Value,
    answers: Vec<Result<HttpToolResponse, HttpToolError>>,
) -> (Result<ToolOutput, ToolError>, Vec<HttpToolRequest>) {
    let name = tool["name"].as_str().expect("a name").to_owned();
    let role = RoleBlock {
        id: "a".into(),
        company_id: "c".into(),
        content: content(&[tool]),
        ..RoleBlock::default()
    };
    let client = Arc::new(ScriptedClient { sent: Mutex::default(), answers: Mutex::new(answers.into()) });
    let roles = Arc::new(StaticRoles::new().with_role(role));
    let tools = OwnToolRegistry::new(
        Arc::new(FakeTools::new().answers("b", "other")),
        roles,
        client.clone(),
        Arc::new(SystemClock),
    );
    let listed = tools.list(&context("r", "u")).await.expect("a list");
    assert!(listed.iter().any(|spec| spec.name == name), "it is offered");
    let result = tools.call(&context("r", "u"), &name, arguments, &NoProgress).await;
    let sent = client.sent.lock().expect("unpoisoned").clone();
    (result, sent)
}

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

#[tokio::test]
async fn a_previewed_role_is_that_of_its_own_run_alone() {
    let role = |company: &str, tools: &[Value]| RoleBlock {
        id: "a".into(),
        company_id: company.into(),
        content: content(tools),
        ..RoleBlock::default()
    };
    let tools = OwnToolRegistry::new(
        Arc::new(FakeTools::new()),
        Arc::new(StaticRoles::new().with_role(role("c", &[])).with_role(role("d", &[]))),
        Arc::new(ScriptedClient { sent: Mutex::default(), answers: Mutex::default() }),
        Arc::new(SystemClock),
    );
    let offers = async |context: ExecutionContext| {
        let listed = tools.list(&context).await.expect("a list");
        listed.iter().any(|spec| spec.name == "getOrder")
    };
    let preview = |company: &str, user: &str| {
        tools.preview_role(user.into(), "1".into(), Arc::new(role(company, &[get_order()])))
    };
    let first = preview("c", "ada");
    assert!(offers(context("1", "ada")).await);
    let others = [
        context("2", "ada"),
        context("1", "bob"),
        ExecutionContext { agent_id: "b".into(), ..context("1", "ada") },
        ExecutionContext { company_id: "d".into(), ..context("1", "ada") },
    ];
    for other in others {
        assert!(!offers(other.clone()).await, "{other:?}");
    }
    let (second, elsewhere) = (preview("c", "ada"), preview("d", "ada"));
    drop(first);
    assert!(offers(context("1", "ada")).await, "the later preview is still made");
    drop((second, elsewhere));
    assert!(!offers(context("1", "ada")).await);
}

#[tokio::test]
async fn arguments_fill_the_placeholders() {
    let arguments = json!({"orderId": "ä 1?#&%", "lang": "de&x=1", "tags": ["a b", "c"]});
    let (output, sent) = call(get_order(), arguments, vec![json_response(200, &json!({"id": 1}))]).await;
    let output = output.expect("a result");
    assert_eq!((output.text.as_str(), output.structured), (r#"{"id":1}"#, Some(json!({"id": 1}))));
    let expected =
        "https://api.acme.example/v1/orders/%C3%A4%201%3F%23%26%25?full=true&lang=de%26x%3D1&tag=a+b&tag=c";
    assert_eq!(sent[0].url.as_str(), expected);
    let header = |name: &str| {
        sent[0]
            .headers
            .iter()
            .find(|(header_name, _)| header_name == name)
            .map(|(_, value)| value.expose().to_owned())
    };
    assert_eq!(header("X-Lang").as_deref(), Some("l-de&x=1"));
    assert!(header("Idempotency-Key").is_some_and(|key| key.len() == 32));
    assert!(header("traceparent").is_some_and(|trace| parse_trace(&trace, None).is_some()));
    assert_eq!(header("Authorization"), None);

    let (_, sent) = call(get_order(), json!({"orderId": "7"}), vec![json_response(200, &json!({}))]).await;
    assert_eq!(sent[0].url.as_str(), "https://api.acme.example/v1/orders/7?full=true");
    assert!(sent[0].headers.iter().all(|(name, _)| name != "X-Lang"), "its argument is not given");
}

#[tokio::test]
async fn choices_at_the_top_of_a_schema_are_not_offered_and_are_checked() {
    let mut tool = get_order();
    tool["inputSchema"]["oneOf"] = json!([{"required": ["lang"]}, {"required": ["tags"]}]);
    let owned: OwnTool = serde_json::from_value(tool.clone()).expect("a tool");
    let Ok(parsed) = HttpTool::parse(&owned) else { panic!("a tool") };
    let offered: Value = serde_json::from_str(parsed.spec.input_schema.get()).expect("JSON");
    assert_eq!(offered, get_order()["inputSchema"], "vendors refuse the request otherwise");
    let (result, sent) = call(tool.clone(), json!({"orderId": "1"}), vec![]).await;
    assert!(matches!(result, Err(ToolError::InvalidArguments(_))) && sent.is_empty());
    let arguments = json!({"orderId": "1", "lang": "de"});
    let (result, _) = call(tool, arguments, vec![json_response(200, &json!({}))]).await;
    assert!(result.is_ok());
}

#[tokio::test]
async fn a_form_has_the_members_of_its_body() {
    let with_body = |body: Value| {
        let mut tool = get_order();
        tool["inputSchema"]["required"] = json!([]);
        tool["request"] = json!({"method": "POST", "url": "https://api.acme.example/v1/orders", "body": body,
            "contentType": "application/x-www-form-urlencoded"});
        tool
    };
    let good = || vec![json_response(200, &json!({}))];
    let body =
        json!({"note": "{lang}", "tag": "{tags}", "id": "{orderId}", "n": 1, "paid": true, "no": null});
    let arguments = json!({"lang": "a&b=\u{fc}", "tags": ["x", "y z"]});
    let (_, sent) = call(with_body(body), arguments.clone(), good()).await;
    let body = sent[0].body.as_deref().expect("a body");
    assert!(
        body.windows(20).any(|text| text == b"note=a%26b%3D%C3%BC&"),
        "{}",
        String::from_utf8_lossy(body)
    );
    let mut fields: Vec<_> = url::form_urlencoded::parse(body).into_owned().collect();
    fields.sort();
    let expected = [("n", "1"), ("note", "a&b=\u{fc}"), ("paid", "true"), ("tag", "x"), ("tag", "y z")];
    assert_eq!(fields, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!(sent[0].content_type, "application/x-www-form-urlencoded");
    for (body, argument) in [(json!("{lang}"), "/lang"), (json!({"label": ["{tags}"]}), "/tags")] {
        let (result, sent) = call(with_body(body.clone()), arguments.clone(), good()).await;
        assert!(sent.is_empty(), "{body}");
        let Err(ToolError::InvalidArguments(message)) = result else { panic!("{body} is sent") };
        assert!(message.starts_with(argument), "{message}");
    }
    let mut tool = with_body(json!("{lang}"));
    tool["inputSchema"]["properties"]["lang"] = json!({});
    let (result, _) = call(tool, json!({"lang": {"a": {"b": 1}}}), good()).await;
    let Err(ToolError::InvalidArguments(message)) = result else { panic!("it is sent") };
    assert!(message.starts_with("/lang/a: "), "{message}");
}

#[tokio::test]
async fn a_list_is_joined_where_one_value_holds_it() {
    let mut tool = get_order();
    (tool["inputSchema"]["properties"]["orderId"], tool["inputSchema"]["properties"]["lang"]) =
        (json!({}), json!({}));
    tool["request"]["query"] = json!({"tag": {"list": "{tags}", "separator": ","}});
    let arguments = json!({"orderId": ["1", "a,b"], "lang": ["de", "en"], "tags": ["x", "y z"]});
    let (_, sent) = call(tool.clone(), arguments, vec![json_response(200, &json!({}))]).await;
    assert_eq!(sent[0].url.as_str(), "https://api.acme.example/v1/orders/1,a%2Cb?tag=x%2Cy+z");
    let header = sent[0].headers.iter().find(|(name, _)| name == "X-Lang").expect("a header");
    assert_eq!(header.1.expose(), "l-de,en");
    let arguments = json!({"orderId": 1, "tags": []});
    let (_, sent) = call(tool.clone(), arguments, vec![json_response(200, &json!({}))]).await;
    assert_eq!(sent[0].url.as_str(), "https://api.acme.example/v1/orders/1");
    for arguments in [
        json!({"orderId": []}),
        json!({"orderId": ["1", ""]}),
        json!({"orderId": ["1", ".."]}),
        json!({"orderId": ["a/b"]}),
        json!({"orderId": [["1"]]}),
        json!({"orderId": vec!["1"; 1001]}),
        json!({"orderId": "1", "tags": ["a,b"]}),
        json!({"orderId": "1", "lang": ["a,b"]}),
        json!({"orderId": "1", "lang": ["a\r\nX: 1"]}),
        json!({"orderId": "1", "lang": vec!["x".repeat(100); 50]}),
        json!({"orderId": "1", "tags": vec!["x".repeat(100); 100]}),
    ] {
        let (result, sent) = call(tool.clone(), arguments.clone(), vec![]).await;
        assert!(matches!(result, Err(ToolError::InvalidArguments(_))) && sent.is_empty(), "{arguments}");
    }
}

#[tokio::test]
async fn an_argument_cannot_leave_its_place() {
    let long = "x".repeat(10 << 20);
    for order in [
        "",
        ".",
        "..",
        "../admin",
        "a/b",
        "a\\b",
        "%2e%2e",
        "%252e%252E",
        "%2fadmin",
        "a%5cb",
        "a\r\nb",
        "a\0",
        &long,
    ] {
        let (result, sent) = call(get_order(), json!({"orderId": order}), vec![]).await;
        let error = result.expect_err("an error").to_string();
        assert!(error.starts_with("invalid arguments: /orderId: "), "{error}");
        assert!(sent.is_empty() && error.len() < 200);
    }
    for arguments in [json!({}), json!({"orderId": 1}), json!({"orderId": "1", "lang": "a\r\nX-Other: 1"})] {
        let (result, sent) = call(get_order(), arguments.clone(), vec![]).await;
        assert!(matches!(result, Err(ToolError::InvalidArguments(_))) && sent.is_empty(), "{arguments}");
    }
    // A value that is harmless alone.
    let mut tool = get_order();
    tool["request"]["url"] = json!("https://api.acme.example/v1/{orderId}{lang}/x");
    tool["inputSchema"]["required"] = json!(["orderId", "lang"]);
    for (first, second) in [("%2", "e%2e"), ("%2e%", "2e")] {
        let arguments = json!({"orderId": first, "lang": second});
        let (result, sent) = call(tool.clone(), arguments, vec![json_response(200, &json!({}))]).await;
        match result {
            Err(error) => assert!(sent.is_empty(), "{error}"),
            Ok(_) => assert!(sent[0].url.path().starts_with("/v1/%252"), "{}", sent[0].url),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn no_argument_reaches_another_host_or_path(
        order in "(\\PC|[./\\\\%@:?#&;{}\\r\\n]|%2e|%2F|\\.\\.|evil\\.example){0,12}",
        lang in "(\\PC|[./%@:?#&\\r\\n]){0,8}",
    ) {
        let tool: OwnTool = serde_json::from_value(get_order()).expect("a tool");
        let Ok(tool) = HttpTool::parse(&tool) else { panic!("a tool") };
        let Value::Object(arguments) = json!({"orderId": order, "lang": lang}) else { unreachable!() };
        if let Ok(filled) = tool.request.fill(&arguments) {
            let url = filled.url;
            prop_assert_eq!(url.origin().ascii_serialization(), "https://api.acme.example");
            prop_assert!(url.username().is_empty() && url.password().is_none() && url.fragment().is_none());
            let segments: Vec<_> = url.path_segments().expect("a path").collect();
            prop_assert_eq!(segments.len(), 3);
            prop_assert_eq!(&segments[..2], &["v1", "orders"]);
            let names: Vec<_> = url.query_pairs().map(|(name, _)| name.into_owned()).collect();
            prop_assert_eq!(names, ["full", "lang"]);
            prop_assert!(filled.headers.iter().all(|(_, value)| !value.contains(['\r', '\n'])));
        }
    }
}

#[tokio::test]
async fn results_are_picked_bounded_and_explained() {
    let with = |result: Value| {
        let mut tool = get_order();
        tool["result"] = result;
        tool
    };
    let body = json!({"data": {"items": ["a", "b"]}});
    let settings =
        json!({"pick": "/data/items", "errors": {"404": "There is no such order."}, "maxBytes": 256});
    let order = json!({"orderId": "1"});
    let (output, _) = call(with(settings.clone()), order.clone(), vec![json_response(200, &body)]).await;
    assert_eq!(output.expect("a result").text, r#"["a","b"]"#);
    for (answer, expected, is_error) in [
        (json_response(404, &json!({})), "There is no such order.", true),
        (json_response(200, &json!({"x": 1})), "the service's answer has no /data/items", true),
        (
            json_response(500, &json!({"why": "disk"})),
            r#"the service answered with HTTP status 500: {"why":"disk"}"#,
            true,
        ),
    ] {
        let (output, _) = call(with(settings.clone()), order.clone(), vec![answer]).await;
        let output = output.expect("a result");
        assert_eq!((output.text.as_str(), output.is_error), (expected, is_error));
    }
    let long = json!({"data": {"items": "é".repeat(500)}});
    let (output, _) = call(with(settings), order.clone(), vec![json_response(200, &long)]).await;
    let output = output.expect("a result");
    assert!(output.text.ends_with("[truncated: 1000 bytes in total]") && output.text.len() < 300);
    let media_type = "image/png".to_owned();
    let binary = HttpToolResponse { status: 200, has_retry_after: false, media_type, body: vec![0xff; 9] };
    let (output, _) = call(get_order(), order, vec![Ok(binary)]).await;
    assert_eq!(output.expect("a result").text, "[image/png, 9 bytes, omitted]");
}

#[tokio::test]
async fn a_secret_is_sent_and_is_masked_in_the_result() {
    const SECRET: &str = "tool \"secret\" 0123456789";
    let cases = [
        (json!({"type": "bearer", "secret": SECRET}), "Authorization", format!("Bearer {SECRET}")),
        (json!({"type": "header", "name": "X-Key", "secret": SECRET}), "X-Key", SECRET.to_owned()),
        (
            json!({"type": "basic", "user": "ada", "secret": "p4ssw0rd"}),
            "Authorization",
            "Basic YWRhOnA0c3N3MHJk".to_owned(),
        ),
    ];
    for (auth, name, value) in cases {
        let mut tool = get_order();
        (tool["auth"], tool["identity"]) = (auth.clone(), json!("signed"));
        let echo = json!({"said": value, "deep": [{auth["secret"].as_str().expect("text"): 1}]});
        for status in [200, 500] {
            let answers = vec![json_response(status, &echo)];
            let (output, sent) = call(tool.clone(), json!({"orderId": "1"}), answers).await;
            let output = output.expect("a result");
            let shown = format!("{output:?} {:?}", sent[0]);
            for secret in [SECRET, "tool \\\"secret", "p4ssw0rd", "YWRhOnA0c3N3MHJk"] {
                assert!(!shown.contains(secret), "{shown}");
            }
            assert!(output.text.contains("***"), "{output:?}");
            let header =
                sent[0].headers.iter().find(|(header_name, _)| header_name == name).expect("the credential");
            assert_eq!(header.1.expose(), value);
            let identity = sent[0].headers.iter().find(|(header_name, _)| header_name == "X-Agent-Identity");
            let key = auth["secret"].as_str().expect("text");
            check_identity(identity.expect("an identity").1.expose(), key);
        }
    }
    // Without its secret, nothing is sent.
    let mut tool = get_order();
    tool["auth"] = json!({"type": "bearer"});
    let (output, sent) = call(tool, json!({"orderId": "1"}), vec![]).await;
    assert!(matches!(output, Err(ToolError::Unavailable(_))) && sent.is_empty());
}

#[tokio::test]
async fn a_secret_in_the_query_is_no_part_of_the_shown_address() {
    const SECRET: &str = "key/with space&0123456789";
    let mut tool = get_order();
    tool["auth"] = json!({"type": "query", "name": "api key", "secret": SECRET});
    let encoded = "key%2Fwith+space%260123456789";
    let echo =
        json!({"said": [SECRET, format!("/v1/orders/1?api+key={encoded}"), encoded.replace('+', "%20")]});
    for status in [200, 500] {
        let arguments = json!({"orderId": "1", "lang": "de"});
        let (output, sent) = call(tool.clone(), arguments, vec![json_response(status, &echo)]).await;
        let output = output.expect("a result");
        assert_eq!(sent[0].url.as_str(), "https://api.acme.example/v1/orders/1?full=true&lang=de");
        let (name, secret) = sent[0].secret_query.as_ref().expect("a parameter");
        assert_eq!((name.as_str(), secret.expose()), ("api key", SECRET));
        let shown = format!("{output:?} {:?}", sent[0]);
        assert!(!shown.contains("0123456789"), "{shown}");
        assert_eq!(output.text.matches("***").count(), 3, "{output:?}");
    }
    tool["auth"]["secret"] = json!("");
    let (output, sent) = call(tool, json!({"orderId": "1"}), vec![]).await;
    assert!(matches!(output, Err(ToolError::Unavailable(_))) && sent.is_empty());
}

#[tokio::test]
async fn a_secret_is_sent_as_a_cookie_and_adds_no_other() {
    let mut tool = get_order();
    tool["auth"] = json!({"type": "cookie", "name": "sid", "secret": "cookie-canary="});
    let echo = json!({"said": "sid=cookie-canary="});
    let answers = vec![json_response(200, &echo)];
    let (output, sent) = call(tool.clone(), json!({"orderId": "1"}), answers).await;
    let cookies: Vec<_> = sent[0].headers.iter().filter(|(name, _)| name == "Cookie").collect();
    assert_eq!((cookies.len(), cookies[0].1.expose()), (1, "sid=cookie-canary="));
    assert_eq!(output.expect("a result").text, r#"{"said":"sid=***"}"#);
    for secret in ["a;admin=1", "a b", "a,b", "\"a\"", "a\\b", "a\r\nX-Evil: 1", "\u{fc}"] {
        tool["auth"]["secret"] = json!(secret);
        let (output, sent) = call(tool.clone(), json!({"orderId": "1"}), vec![]).await;
        assert!(matches!(output, Err(ToolError::Unavailable(_))) && sent.is_empty(), "{secret}");
    }
}

fn check_identity(token: &str, key: &str) {
    crate::jwt::install_provider();
    let mut validation = jsonwebtoken::Validation::new(jsonwebtoken::Algorithm::HS256);
    validation.set_audience(&["getOrder"]);
    let key = jsonwebtoken::DecodingKey::from_secret(key.as_bytes());
    let claims = jsonwebtoken::decode::<Value>(token, &key, &validation).expect("a valid token").claims;
    let of = |name: &str| claims[name].as_str().unwrap_or_default().to_owned();
    assert_eq!(
        [of("sub"), of("companyId"), of("agentId"), of("runId"), of("caller")],
        ["u", "c", "a", "r", "session"]
    );
    assert_eq!(claims["exp"].as_u64(), claims["iat"].as_u64().map(|iat| iat + 60));
}

#[tokio::test]
async fn a_call_is_repeated_once_and_only_where_that_is_harmless() {
    let post = || {
        let mut tool = get_order();
        tool["request"]["method"] = json!("POST");
        tool["request"]["body"] = json!({"note": "{lang}"});
        tool
    };
    let order = || json!({"orderId": "1", "lang": "x"});
    let good = || json_response(200, &json!({}));
    let hinted = || {
        let mut tool = post();
        tool["annotations"] = json!({"idempotentHint": true});
        tool
    };
    for (tool, first, count) in [
        (get_order(), lost(true), 2),
        (post(), lost(false), 2),
        (hinted(), lost(true), 2),
        (get_order(), json_response(503, &json!({})), 1),
    ] {
        let (_, sent) = call(tool, order(), vec![first, good()]).await;
        assert_eq!(sent.len(), count);
        let key = |request: &HttpToolRequest| {
            request.headers.iter().map(|(_, v)| v.expose().to_owned()).collect::<Vec<_>>()
        };
        assert!(sent.iter().all(|request| key(request) == key(&sent[0])), "the key is the same");
    }
    let (result, sent) = call(post(), order(), vec![lost(true)]).await;
    assert!(matches!(result, Err(ToolError::OutcomeUnknown(_))) && sent.len() == 1);
    assert_eq!(sent[0].body.as_deref(), Some(&br#"{"note":"x"}"#[..]));
    assert_eq!(sent[0].content_type, "application/json");
    let (result, sent) = call(get_order(), order(), vec![lost(true)]).await;
    assert!(matches!(result, Err(ToolError::Unavailable(_))) && sent.len() == 2);
}

#[tokio::test]
async fn a_previewed_role_is_that_of_one_users_run() {
    let role = |company: &str, tool: &str| {
        let mut definition = get_order();
        definition["name"] = json!(tool);
        let content = content(&[definition]);
        Arc::new(RoleBlock { id: "a".into(), company_id: company.into(), content, ..RoleBlock::default() })
    };
    let http = ScriptedClient { sent: Mutex::default(), answers: Mutex::default() };
    let stored = StaticRoles::new().with_role(RoleBlock::clone(&role("c", "stored")));
    let tools = Arc::new(FakeTools::new());
    let registry = OwnToolRegistry::new(tools, Arc::new(stored), Arc::new(http), Arc::new(SystemClock));
    let names = async |company: &str, user: &str| -> Vec<String> {
        let context = ExecutionContext { company_id: company.into(), ..context("r", user) };
        let listed = registry.list(&context).await.expect("a list");
        listed.iter().map(|spec| spec.name.clone()).collect()
    };
    let previewed = registry.preview_role("u".into(), "r".into(), role("c", "previewed"));
    let of_another = registry.preview_role("u".into(), "r".into(), role("other", "ofAnother"));
    assert_eq!(
        (names("c", "u").await, names("other", "u").await),
        (vec!["previewed".into()], vec!["ofAnother".into()])
    );
    assert_eq!(names("c", "colleague").await, ["stored"], "a run with the same id");
    drop(of_another);
    assert_eq!((names("c", "u").await, names("other", "u").await), (vec!["previewed".into()], vec![]));
    drop(previewed);
    assert_eq!(names("c", "u").await, ["stored"]);
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
    for (field, value, expected) in [
        ("timeoutMs", json!("sk-1"), "httpTools[0].timeoutMs must be a non-negative integer"),
        ("identity", json!("sk-1"), "httpTools[0].identity must be `none` or `signed`"),
        ("identity", json!(7), "httpTools[0].identity must be a string"),
        ("request", json!("sk-1"), "httpTools[0].request must be an object"),
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
