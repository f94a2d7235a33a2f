//! Allowed pages of a token: accepted request origins, and CORS access to the responses.

use agent_platform::token::WidgetGrant;
use reqwest::header::HeaderMap;
use serde_json::json;

use super::{WidgetApp, open, text};
use crate::support::expect_problem;
use crate::support::server::session_token;

const ALLOWED_ORIGIN: &str = "https://shop.example";
const OTHER_ORIGIN: &str = "https://elsewhere.example";

fn grant_for_origin() -> WidgetGrant {
    WidgetGrant { origins: vec![ALLOWED_ORIGIN.to_owned()], ..WidgetGrant::default() }
}

fn is_readable_from(headers: &HeaderMap, origin: &str) -> bool {
    assert!(!headers.contains_key("access-control-allow-credentials"));
    let varies = headers.get_all("vary").iter().any(|value| value.to_str().expect("text").contains("origin"));
    assert!(varies, "the response varies by origin: {headers:?}");
    headers.get("access-control-allow-origin").is_some_and(|allowed| allowed == origin)
}

#[tokio::test]
async fn a_page_that_the_token_names_may_ask_and_read() {
    let bench = open(|_| {}).await;
    let minted = bench.mint_widget(grant_for_origin()).await;
    let text = text(&minted);
    let query = format!("?widgetToken={text}");
    let page = ("origin", ALLOWED_ORIGIN);
    for response in [
        bench.ask("", &[page, ("x-widget-token", text)], &json!({})).await,
        bench.ask(&query, &[page], &json!({})).await,
        bench.ask("", &[page], &json!({"widgetToken": text})).await,
    ] {
        assert_eq!(response.status(), 200);
        assert!(is_readable_from(response.headers(), ALLOWED_ORIGIN));
        let exposed = response.headers()["access-control-expose-headers"].to_str().expect("text").to_owned();
        for name in ["x-request-id", "retry-after", "ratelimit", "ratelimit-policy"] {
            assert!(exposed.split(',').any(|header| header.trim() == name), "{name} in {exposed}");
        }
    }
}

#[tokio::test]
async fn a_page_that_the_token_names_may_read_what_went_wrong() {
    let bench = open(|_| {}).await;
    let minted = bench.mint_widget(grant_for_origin()).await;
    let token = ("x-widget-token", text(&minted));
    let page = ("origin", ALLOWED_ORIGIN);
    let bad = json!({"messages": 7});
    let system = json!({"messages": [{"role": "system", "content": "x"}, {"role": "user", "content": "y"}]});
    for (response, status, code) in [
        (bench.ask("", &[page, token], &bad).await, 400, "INVALID_REQUEST"),
        (bench.ask("", &[page, token], &system).await, 400, "INVALID_REQUEST"),
        (bench.ask("", &[page, token], &json!({"agentId": "a2"})).await, 403, "FORBIDDEN"),
        (bench.ask("?format=x", &[page, token], &json!({})).await, 400, "INVALID_REQUEST"),
        (bench.ask("", &[page, ("x-widget-token", "w")], &json!({})).await, 401, "UNAUTHENTICATED"),
        (bench.ask("", &[page], &json!({})).await, 401, "UNAUTHENTICATED"),
    ] {
        assert!(is_readable_from(response.headers(), ALLOWED_ORIGIN), "{code}");
        expect_problem(response, status, code).await;
    }
}

#[tokio::test]
async fn a_page_that_the_token_does_not_name_may_neither_ask_nor_read() {
    let bench = open(|_| {}).await;
    let minted = bench.mint_widget(grant_for_origin()).await;
    let text = text(&minted);
    let query = format!("?widgetToken={text}");
    let cookie = format!("agent_session={}", session_token("u1", "c1"));
    for origin in
        [OTHER_ORIGIN, "https://shop.example:444", "http://shop.example", "https://a.shop.example", "null"]
    {
        let page = ("origin", origin);
        for response in [
            bench.ask("", &[page, ("x-widget-token", text)], &json!({})).await,
            bench.ask(&query, &[page], &json!({})).await,
            bench.ask("", &[page], &json!({"widgetToken": text})).await,
            bench.ask("", &[page, ("cookie", &cookie)], &json!({"widgetToken": text})).await,
        ] {
            assert!(!is_readable_from(response.headers(), origin), "{origin}");
            expect_problem(response, 403, "FORBIDDEN").await;
        }
    }
    for (query, headers, more) in [
        ("", vec![("x-widget-token", text)], json!({})),
        (&*query, vec![], json!({})),
        ("", vec![], json!({"widgetToken": text})),
    ] {
        expect_problem(bench.ask(query, &headers, &more).await, 403, "FORBIDDEN").await;
    }
    assert!(bench.vendor.received().is_empty());
}

#[tokio::test]
async fn a_token_without_origins_is_for_any_page_and_for_none() {
    let bench = open(|_| {}).await;
    let minted = bench.mint_widget(WidgetGrant::default()).await;
    assert_eq!(bench.ask_with_token(&minted, &json!({})).await.status(), 200);
    for origin in [ALLOWED_ORIGIN, OTHER_ORIGIN, "null"] {
        let headers = [("origin", origin), ("x-widget-token", text(&minted))];
        let response = bench.ask("", &headers, &json!({})).await;
        assert!(is_readable_from(response.headers(), origin), "{origin}");
        assert_eq!(response.status(), 200);
    }
}

#[tokio::test]
async fn a_preflight_is_answered_for_any_page_and_asks_for_no_token() {
    let bench = open(|_| {}).await;
    let preflight = async |bench: &WidgetApp, origin: &str| {
        let request = bench.app.request("OPTIONS", "/api/agent/chat").header("origin", origin);
        let request = request.header("access-control-request-method", "POST");
        request.header("access-control-request-headers", "content-type,x-widget-token").send().await
    };
    for origin in [ALLOWED_ORIGIN, OTHER_ORIGIN] {
        let response = preflight(&bench, origin).await.expect("an answer");
        assert_eq!(response.status(), 200);
        assert!(is_readable_from(response.headers(), origin));
        let allowed = response.headers()["access-control-allow-headers"].to_str().expect("text").to_owned();
        assert!(allowed.split(',').any(|name| name == "x-widget-token"), "{allowed}");
    }
}
