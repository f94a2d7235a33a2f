mod arguments;
mod credentials;
mod definitions;
mod files;
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

/// Returns the body of a request that has one.
fn body_of(request: &HttpToolRequest) -> Vec<u8> {
    request.body.as_ref().expect("a body").concat()
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
    let context = context("r", "u");
    call_with(tool, (arguments, &context), answers).await
}

/// Calls a tool of a role in a context; returns the result and the requests sent.
async fn call_with(
    tool: Value,
    (arguments, context): (Value, &ExecutionContext),
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
    let listed = tools.list(context).await.expect("a list");
    assert!(listed.iter().any(|spec| spec.name == name), "it is offered");
    let result = tools.call(context, &name, arguments, &NoProgress).await;
    let sent = client.sent.lock().expect("unpoisoned").clone();
    (result, sent)
}

#[tokio::test]
async fn a_previewed_role_is_only_for_its_own_run() {
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
async fn numbers_keep_their_digits() {
    const ID: &str = "123456789012345678901234";
    let order = json!({
        "name": "putOrder", "description": "Changes an order.",
        "inputSchema": {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}, "price": {"type": "number"}}},
        "request": {"method": "PUT", "url": "https://api.acme.example/orders/{id}", "query": {"price": "{price}"},
            "headers": {"X-Id": "{id}"}, "body": {"id": "{id}", "price": "{price}", "note": "order {id}"}}
    });
    let text = format!(r#"{{"id": {ID}, "price": 19.90}}"#);
    let arguments: Value = serde_json::from_str(&text).expect("JSON");
    let body = format!(r#"{{"id":{ID},"total":0.12345678901234567890,"items":[{ID}]}}"#);
    let answer = |status| {
        let (media_type, body) = ("application/json".to_owned(), body.clone().into_bytes());
        Ok(HttpToolResponse { status, has_retry_after: false, media_type, body })
    };
    let context = ExecutionContext { arguments_text: Some(text.into()), ..context("r", "u") };
    let (result, sent) = call_with(order.clone(), (arguments.clone(), &context), vec![answer(200)]).await;
    let result = result.expect("a result");
    assert_eq!(result.text, body);
    assert_eq!(result.structured, serde_json::from_str(&body).ok(), "as any reader has them");
    let url = format!("https://api.acme.example/orders/{ID}?price=19.90");
    assert_eq!(sent[0].url.as_str(), url);
    let header = sent[0].headers.iter().find(|(name, _)| name == "X-Id").expect("a header");
    assert_eq!(header.1.expose(), ID);
    let expected = format!(r#"{{"id":{ID},"price":19.90,"note":"order {ID}"}}"#);
    assert_eq!(String::from_utf8(body_of(&sent[0])).expect("text"), expected);
    let (result, _) = call_with(order.clone(), (arguments.clone(), &context), vec![answer(422)]).await;
    assert!(result.expect("a result").text.ends_with(&body));
    let mut picking = order;
    picking["result"] = json!({"pick": "/id"});
    let (result, _) = call_with(picking, (arguments, &context), vec![answer(200)]).await;
    assert_eq!(result.expect("a result").text, ID);
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
    assert_eq!(body_of(&sent[0]), br#"{"note":"x"}"#);
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
