//! Authorization of the management routes.

use std::sync::Arc;

use agent_core::clock::SystemClock;
use agent_platform::token::{Grant, NewToken, Tokens, WidgetGrant};
use serde_json::json;

use super::{COLLEAGUE, OWNER, STRANGER, open};
use crate::support::expect_problem;
use crate::support::server::{self, INTERNAL_SECRET, session_token};

/// Every management route.
const ROUTES: &[(&str, &str)] = &[
    ("GET", "/api/agents"),
    ("GET", "/api/agents/a1"),
    ("PUT", "/api/agents/a1"),
    ("DELETE", "/api/agents/a1"),
    ("GET", "/api/agents/a1/tokens"),
    ("POST", "/api/agents/a1/tokens"),
    ("DELETE", "/api/agents/a1/tokens/01a1fe22-a08a-7270-8968-b89e0152036e"),
    ("GET", "/api/agents/a1/memories"),
    ("DELETE", "/api/agents/a1/memories"),
    ("GET", "/api/agents/a1/memories/m"),
    ("PUT", "/api/agents/a1/memories/m"),
    ("DELETE", "/api/agents/a1/memories/m"),
    ("GET", "/api/agents/a1/shared-memories"),
    ("DELETE", "/api/agents/a1/shared-memories"),
    ("GET", "/api/agents/a1/shared-memories/m"),
    ("PUT", "/api/agents/a1/shared-memories/m"),
    ("DELETE", "/api/agents/a1/shared-memories/m"),
    ("GET", "/api/documents"),
    ("PUT", "/api/agents/a1/owner"),
    ("PUT", "/api/documents/d1/owner"),
    ("GET", "/api/documents/d1/versions"),
    ("GET", "/api/documents/d1/versions/0"),
    ("POST", "/api/documents/d1/versions/0/restore"),
    ("GET", "/api/documents/d1"),
    ("PUT", "/api/documents/d1"),
    ("DELETE", "/api/documents/d1"),
];

#[tokio::test]
async fn management_routes_need_a_session() {
    let bench = open().await;
    let tokens = Tokens::new(bench.stores.records.clone(), Arc::new(SystemClock));
    let widget = NewToken::new("c1", "a1", Grant::Widget(WidgetGrant::default()));
    let widget = tokens.mint(widget).await.expect("minted").text;
    let internal = format!("Bearer {INTERNAL_SECRET}");
    let bearer = format!("Bearer {}", session_token("u1", "c1"));
    let cookie = format!("agent_session={}", session_token("u1", "c1"));
    for (method, path) in ROUTES {
        type Case<'c> = (Vec<(&'c str, &'c str)>, u16, &'c str);
        let cases: Vec<Case<'_>> = vec![
            (vec![], 401, "UNAUTHENTICATED"),
            (vec![("authorization", "Bearer x")], 401, "UNAUTHENTICATED"),
            (vec![("x-widget-token", "agw_x")], 401, "UNAUTHENTICATED"),
            (vec![("x-widget-token", widget.expose())], 403, "FORBIDDEN"),
            (vec![("authorization", &internal), ("x-proactive-trigger", "x")], 403, "FORBIDDEN"),
            (
                vec![("authorization", &bearer), ("x-widget-token", widget.expose())],
                400,
                "AMBIGUOUS_CREDENTIALS",
            ),
        ];
        let cross_site = (vec![("cookie", &*cookie), ("origin", "https://x.example")], 403, "FORBIDDEN");
        for (headers, status, code) in cases.into_iter().chain((*method != "GET").then_some(cross_site)) {
            let mut request = bench.app.request(method, path).json(&json!({"kind": "widget"}));
            for (name, value) in headers {
                request = request.header(name, value);
            }
            expect_problem(request.send().await.expect("an answer"), status, code).await;
        }
    }
    let without = server::app_with_stores(bench.stores.clone(), &[("SESSION_SECRET", "")]).await;
    for (method, path) in ROUTES {
        let response = without.request(method, path).header("authorization", &bearer).send().await;
        let problem = expect_problem(response.expect("an answer"), 503, "NOT_CONFIGURED").await;
        assert_eq!(problem["detail"], "SESSION_SECRET is not configured");
    }
}

#[tokio::test]
async fn an_agent_is_its_companys_to_read_and_its_owners_to_change() {
    let bench = open().await;
    let any = json!({});
    let widget = json!({"kind": "widget"});
    let created = super::expect_json(bench.post(OWNER, "/api/agents/a1/tokens", &widget).await, 201).await;
    let token = format!("/api/agents/a1/tokens/{}", created["id"].as_str().expect("an id"));
    type Case<'c> = (&'c str, &'c str, Option<&'c serde_json::Value>, [u16; 3]);
    // Expected statuses for the owner, a colleague and a stranger. The owner's request is sent last, because it
    // changes the object.
    let cases: Vec<Case<'_>> = vec![
        ("GET", "/api/agents/a1", None, [200, 200, 404]),
        ("PUT", "/api/agents/a1", Some(&any), [200, 403, 201]),
        // The stranger has created an agent of the same id in the other company.
        ("GET", "/api/agents/a1/tokens", None, [200, 403, 200]),
        ("POST", "/api/agents/a1/tokens", Some(&widget), [201, 403, 201]),
        ("DELETE", &token, None, [204, 403, 404]),
        ("DELETE", "/api/agents/a1", None, [204, 403, 204]),
        ("GET", "/api/agents/none", None, [404, 404, 404]),
        ("DELETE", "/api/agents/none", None, [404, 404, 404]),
        ("GET", "/api/agents/none/tokens", None, [404, 404, 404]),
        ("POST", "/api/agents/none/tokens", Some(&widget), [404, 404, 404]),
        ("PUT", "/api/documents/d1", Some(&any), [200, 200, 201]),
        ("GET", "/api/documents/d2", None, [404, 404, 200]),
        ("DELETE", "/api/documents/d2", None, [404, 404, 204]),
        ("GET", "/api/documents/none", None, [404, 404, 404]),
        ("DELETE", "/api/documents/none", None, [404, 404, 404]),
    ];
    for (method, path, body, statuses) in cases {
        for (user, status) in [STRANGER, COLLEAGUE, OWNER].into_iter().zip(statuses.into_iter().rev()) {
            let response = bench.send(user, method, path, &[], body).await;
            let actual_status = response.status();
            let text = response.text().await.expect("a whole body");
            assert_eq!(actual_status, status, "{method} {path} {user:?}: {text}");
        }
    }
}

#[tokio::test]
async fn a_body_cannot_name_another_owner_company_or_id() {
    let bench = open().await;
    for (path, body, status, code, detail) in [
        ("/api/agents/n", json!({"ownerId": "u2"}), 403, "FORBIDDEN", "ownerId must be the caller's own"),
        ("/api/agents/n", json!({"companyId": "c2"}), 403, "FORBIDDEN", "companyId must be the caller's own"),
        ("/api/agents/n", json!({"id": "a1"}), 400, "INVALID_REQUEST", "id must equal the id in the path"),
        ("/api/agents/a1", json!({"ownerId": "u2"}), 403, "FORBIDDEN", "ownerId must be the caller's own"),
        ("/api/agents/n", json!({"ownerId": 7}), 400, "INVALID_REQUEST", "ownerId must be a string"),
        (
            "/api/documents/n",
            json!({"companyId": "c2"}),
            403,
            "FORBIDDEN",
            "companyId must be the caller's own",
        ),
        ("/api/documents/n", json!({"id": "d1"}), 400, "INVALID_REQUEST", "id must equal the id in the path"),
    ] {
        let problem = expect_problem(bench.put(OWNER, path, &body).await, status, code).await;
        assert_eq!(problem["detail"], detail, "{path} {body}");
    }
    expect_problem(bench.get(OWNER, "/api/agents/n").await, 404, "NOT_FOUND").await;
    let role = json!({"id": "n", "companyId": "c1", "ownerId": "u1"});
    assert_eq!(
        super::expect_json(bench.put(OWNER, "/api/agents/n", &role).await, 201).await["ownerId"],
        "u1"
    );
    let silent = json!({"id": null, "companyId": null});
    assert_eq!(
        super::expect_json(bench.put(COLLEAGUE, "/api/agents/m", &silent).await, 201).await["ownerId"],
        "u2"
    );
    // The agent is visible within its owner's company only.
    super::expect_json(bench.get(OWNER, "/api/agents/m").await, 200).await;
    expect_problem(bench.get(STRANGER, "/api/agents/m").await, 404, "NOT_FOUND").await;
}

/// A browser's cache would ask with the tag of one user's object for that of another: two companies may have agents of one id
/// and version.
#[tokio::test]
async fn browsers_do_not_store_objects_with_versions() {
    let bench = open().await;
    let agent = json!({"name": "Other"});
    for (method, path, body) in [
        ("GET", "/api/agents/a1", None),
        ("PUT", "/api/agents/n1", Some(&agent)),
        ("GET", "/api/documents/d1", None),
    ] {
        let response = bench.send(OWNER, method, path, &[], body).await;
        assert!(response.status().is_success() && response.headers().contains_key("etag"), "{method} {path}");
        assert_eq!(response.headers()["cache-control"], "private, no-store", "{method} {path}");
    }
}
