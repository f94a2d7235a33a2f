//! Preview requests that are refused, and turns that have no preview.

use std::sync::Arc;

use agent_core::clock::SystemClock;
use agent_platform::token::{Grant, NewToken, Tokens, WidgetGrant};
use reqwest::RequestBuilder;
use serde_json::{Value, json};

use super::{DEBUG, PREVIEW, json_of};
use crate::support::server::{self, INTERNAL_SECRET, session_token};
use crate::support::vendor::Vendor;
use crate::support::{expect_problem, workspace};

/// Every route that shows a prompt, and the legacy context routes.
const ROUTES: [(&str, &str); 6] = [
    ("GET", DEBUG),
    ("GET", PREVIEW),
    ("POST", PREVIEW),
    ("GET", "/api/assistants/context-status"),
    ("GET", "/api/assistants/context/refresh"),
    ("POST", "/api/assistants/context/refresh"),
];

/// A function that adds a credential to a request.
type AddCredential<'a> = Box<dyn Fn(RequestBuilder) -> RequestBuilder + 'a>;

#[tokio::test]
async fn a_session_is_needed() {
    let vendor = Vendor::start().await;
    let stores = server::stores(&workspace(&vendor.base_url(), "m")).await;
    let app = server::app_with_stores(stores.clone(), &[]).await;
    let tokens = Tokens::new(stores.records, Arc::new(SystemClock));
    let new = NewToken::new("c1", "a1", Grant::Widget(WidgetGrant::default()));
    let widget = tokens.mint(new).await.expect("minted").text.expose().to_owned();
    let bearer = session_token("u1", "c1");
    let cookie = format!("agent_session={bearer}");
    let cases: [(&str, AddCredential<'_>, u16, &str); 7] = [
        ("nothing", Box::new(|request| request), 401, "UNAUTHENTICATED"),
        ("a wrong token", Box::new(|request| request.bearer_auth("a.b.c")), 401, "UNAUTHENTICATED"),
        ("a widget", Box::new(|request| request.header("x-widget-token", &widget)), 403, "FORBIDDEN"),
        (
            "a widget twice",
            Box::new(|request| request.header("x-widget-token", &widget).header("x-widget-token", &widget)),
            400,
            "AMBIGUOUS_CREDENTIALS",
        ),
        (
            "the system",
            Box::new(|request| request.bearer_auth(INTERNAL_SECRET).header("x-proactive-trigger", "x")),
            403,
            "FORBIDDEN",
        ),
        (
            "two",
            Box::new(|request| request.bearer_auth(&bearer).header("x-widget-token", &widget)),
            400,
            "AMBIGUOUS_CREDENTIALS",
        ),
        (
            "a cookie from elsewhere",
            Box::new(|request| request.header("cookie", &cookie).header("origin", "https://evil.example")),
            403,
            "FORBIDDEN",
        ),
    ];
    for (method, path) in ROUTES {
        for (what, present, status, code) in &cases {
            let mut request = app.request(method, &format!("{path}?agentId=a1"));
            if method == "POST" {
                request = request.json(&json!({"agentId": "a1", "message": "Hello"}));
            }
            let response = present(request).send().await.expect("an answer");
            assert_eq!(response.status(), *status, "{method} {path} with {what}");
            expect_problem(response, *status, code).await;
        }
    }
    let in_body = json!({"agentId": "a1", "widgetToken": widget});
    let response = app.request("POST", PREVIEW).json(&in_body).send().await.expect("an answer");
    expect_problem(response, 401, "UNAUTHENTICATED").await;
    let refused = app.request("POST", PREVIEW).bearer_auth(&bearer).json(&in_body).send().await;
    expect_problem(refused.expect("an answer"), 400, "AMBIGUOUS_CREDENTIALS").await;
    let by_cookie = app.request("GET", &format!("{DEBUG}?agentId=a1")).header("cookie", &cookie);
    assert_eq!(json_of(by_cookie).await["executionContext"]["userId"], "u1");
    assert!(vendor.received().is_empty());
}

#[tokio::test]
async fn an_agent_is_shown_only_to_its_company() {
    let app = server::app(&workspace("http://127.0.0.1:9/v1", "m"), &[]).await;
    let ask = async |bearer: String, query: &str| {
        let request = app.request("GET", &format!("{DEBUG}?{query}")).bearer_auth(bearer);
        request.send().await.expect("an answer")
    };
    let (own_token, strange) = (session_token("u1", "c1"), session_token("u1", "c2"));
    let problem = expect_problem(ask(own_token.clone(), "agentId=nobody").await, 404, "NOT_FOUND").await;
    let hidden = expect_problem(ask(strange, "agentId=a1").await, 404, "NOT_FOUND").await;
    assert_eq!(problem["detail"], hidden["detail"]);
    for (query, status, code, detail) in [
        ("", 400, "INVALID_REQUEST", "agentId is missing"),
        ("agentId=a1&userId=u2", 403, "FORBIDDEN", "userId and companyId must be those of the credential"),
        ("agentId=a1&timezone=Europe/Atlantis", 400, "INVALID_REQUEST", "timezone is not an IANA time zone"),
        ("agentId=a1&message=a&message=b", 400, "INVALID_REQUEST", "message is in the query more than once"),
        (
            "agentId=a1&trigger=%20",
            400,
            "INVALID_REQUEST",
            "trigger must be a reason of printable ASCII characters, at most 256 of them",
        ),
    ] {
        assert_eq!(expect_problem(ask(own_token.clone(), query).await, status, code).await["detail"], detail);
    }
    // The chat's parameter of the same name is no longer than an identifier.
    let reason = format!("agentId=a1&trigger={}", "x".repeat(256));
    assert_eq!(ask(own_token, &reason).await.status(), 200);
}

#[tokio::test]
async fn a_preview_of_an_unusable_agent_fails_as_the_chat_does() {
    let workflow = json!([{"name": "WorkflowConnector", "content": {"webhookUrl": " "}}]);
    let unknown = json!([{"name": "EmbeddedAI", "content": {"provider": "openia"}}]);
    for (children, status, code) in [
        (json!([]), 422, "NO_CONNECTOR"),
        (workflow, 422, "NO_CONNECTOR"),
        (unknown, 400, "UNKNOWN_PROVIDER"),
    ] {
        let mut workspace = workspace("http://unused.example/v1", "m");
        workspace["agents"][0]["children"] = children;
        let app = server::app(&workspace, &[]).await;
        let bare = |mut problem: Value| {
            problem.as_object_mut().expect("an object").remove("requestId");
            problem
        };
        let body = json!({"agentId": "a1", "message": "Hello"});
        let chat = bare(expect_problem(app.chat(&body).await, status, code).await);
        let response = super::preview(&app, "", &body).send().await.expect("an answer");
        assert_eq!(bare(expect_problem(response, status, code).await), chat);
        assert_eq!(chat["selection"]["rules"].as_array().map(Vec::len), (status == 422).then_some(5));
    }
}

#[tokio::test]
async fn other_methods_are_refused() {
    let app = server::app(&workspace("http://127.0.0.1:9/v1", "m"), &[]).await;
    for (method, path, allow) in [
        ("POST", DEBUG, "GET, HEAD"),
        ("DELETE", PREVIEW, "GET, HEAD, POST"),
        ("GET", "/api/svcchat/private", "POST"),
        ("POST", "/api/assistants/context-status", "GET, HEAD"),
        ("PUT", "/api/assistants/context/a/b", "GET, HEAD, POST"),
    ] {
        let response = app.request(method, path).send().await.expect("an answer");
        assert_eq!(response.headers()["allow"], allow, "{method} {path}");
        expect_problem(response, 405, "METHOD_NOT_ALLOWED").await;
    }
}
