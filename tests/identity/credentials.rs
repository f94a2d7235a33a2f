//! Credentials of the chat endpoint: accepted credentials, and the responses to others.

use std::time::{SystemTime, UNIX_EPOCH};

use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

use crate::support::server::{self, INTERNAL_SECRET, SESSION_SECRET, Server, session_token};
use crate::support::vendor::Vendor;
use crate::support::{expect_problem, parse_run, workspace};

/// Header names and values.
type Headers<'a> = &'a [(&'a str, &'a str)];

const OTHER_SECRET: &str = "another-secret-0123456789";

/// Builds a session token by hand, so that any of its parts can be wrong.
fn token(algorithm: Algorithm, secret: &str, changes: &Value) -> String {
    // Minting a valid token installs the cryptography provider of the JWT library.
    session_token("u1", "c1");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let mut claims = json!({"sub": "u1", "companyId": "c1", "aud": "agent-app", "exp": now + 600});
    for (name, value) in changes.as_object().expect("an object") {
        match value {
            Value::Null => claims.as_object_mut().expect("an object").remove(name),
            value => claims.as_object_mut().expect("an object").insert(name.clone(), value.clone()),
        };
    }
    let key = EncodingKey::from_secret(secret.as_bytes());
    jsonwebtoken::encode(&Header::new(algorithm), &claims, &key).expect("it can be signed")
}

fn hs256(changes: &Value) -> String {
    token(Algorithm::HS256, SESSION_SECRET, changes)
}

async fn open(settings: Headers<'_>) -> (Vendor, Server) {
    let vendor = Vendor::start().await;
    let app = server::app(&workspace(&vendor.base_url(), "m"), settings).await;
    (vendor, app)
}

/// Posts to the chat endpoint with these headers; the members of `more` are added to the body.
async fn ask(app: &Server, query: &str, headers: Headers<'_>, more: &Value) -> reqwest::Response {
    let mut body = json!({"agentId": "a1", "message": "Hello"});
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    let mut request = app.request("POST", &format!("/api/agent/chat{query}")).json(&body);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.send().await.expect("an answer")
}

async fn expect_accepted(response: reqwest::Response) {
    let status = response.status();
    let body = response.text().await.expect("a whole body");
    assert_eq!(status, 200, "{body}");
    assert_eq!(parse_run(&body).last().expect("an end")["type"], "RUN_FINISHED");
}

#[tokio::test]
async fn valid_credentials_are_accepted() {
    let (_vendor, app) = open(&[]).await;
    let bearer = format!("Bearer {}", session_token("u1", "c1"));
    let lower = format!("bearer {}", session_token("u1", "c1"));
    let broken = "agent_session=broken";
    let cookie = format!("theme=dark; agent_session={}; lang=en", session_token("u1", "c1"));
    let own_origin = format!("http://{}", app.address);
    let internal = format!("Bearer {INTERNAL_SECRET}");
    let for_whom = json!({"userId": "u1", "companyId": "c1"});
    let cases: [(Headers<'_>, Value); 8] = [
        (&[("authorization", &bearer)], json!({})),
        (&[("authorization", &lower)], json!({})),
        (&[("authorization", &bearer)], for_whom.clone()),
        (&[("cookie", &cookie), ("origin", &own_origin)], json!({})),
        // An explicit credential takes precedence over the cookie, valid or not.
        (&[("authorization", &bearer), ("cookie", broken)], json!({})),
        (&[("authorization", &bearer), ("origin", "https://elsewhere.example")], json!({})),
        (&[("authorization", &internal), ("x-proactive-trigger", "daily digest")], for_whom.clone()),
        (&[("authorization", &internal), ("x-proactive-trigger", "x"), ("cookie", broken)], for_whom),
    ];
    for (headers, more) in cases {
        expect_accepted(ask(&app, "", headers, &more).await).await;
    }
}

#[tokio::test]
async fn a_cookie_counts_only_on_the_services_pages() {
    let (vendor, app) = open(&[]).await;
    let cookie = format!("agent_session={}", session_token("u1", "c1"));
    let other_port = format!("http://{}:1", app.address.ip());
    for origin in ["https://elsewhere.example", "null", "", &other_port] {
        let headers = [("cookie", cookie.as_str()), ("origin", origin)];
        expect_problem(ask(&app, "", &headers, &json!({})).await, 403, "FORBIDDEN").await;
    }
    expect_problem(ask(&app, "", &[("cookie", &cookie)], &json!({})).await, 403, "FORBIDDEN").await;
    assert!(vendor.received().is_empty());

    let (_vendor, app) = open(&[("PUBLIC_URL", "https://app.example/base")]).await;
    expect_accepted(
        ask(&app, "", &[("cookie", &cookie), ("origin", "https://app.example")], &json!({})).await,
    )
    .await;
    let own_origin = format!("http://{}", app.address);
    let headers = [("cookie", cookie.as_str()), ("origin", &own_origin)];
    expect_problem(ask(&app, "", &headers, &json!({})).await, 403, "FORBIDDEN").await;
}

#[tokio::test]
async fn invalid_credentials_are_refused_equally() {
    let (vendor, app) = open(&[]).await;
    let own_origin = format!("http://{}", app.address);
    let good = hs256(&json!({}));
    let claims = good.split('.').nth(1).expect("claims");
    // The header decodes to `{"alg":"none"}`.
    let unsigned = format!("eyJhbGciOiJub25lIn0.{claims}.");
    let stripped = good.rsplit_once('.').expect("a signature").0.to_owned() + ".";
    let tokens = [
        String::new(),
        "token".to_owned(),
        "..".to_owned(),
        unsigned,
        stripped,
        format!("{good}x"),
        token(Algorithm::HS256, OTHER_SECRET, &json!({})),
        token(Algorithm::HS256, INTERNAL_SECRET, &json!({})),
        hs256(&json!({"exp": 1_600_000_000})),
        hs256(&json!({"exp": null})),
        hs256(&json!({"nbf": 32_503_680_000_u64})),
        hs256(&json!({"aud": "another-app"})),
        hs256(&json!({"aud": null})),
        hs256(&json!({"sub": null})),
        hs256(&json!({"sub": ""})),
        hs256(&json!({"sub": "widget:1"})),
        hs256(&json!({"companyId": null})),
        hs256(&json!({"companyId": " "})),
        "x".repeat(10_000),
    ];
    let mut details = std::collections::BTreeSet::new();
    let mut refused = async |headers: Headers<'_>| {
        let response = ask(&app, "", headers, &json!({})).await;
        assert_eq!(response.headers()["www-authenticate"], "Bearer", "{headers:?}");
        let problem = expect_problem(response, 401, "UNAUTHENTICATED").await;
        details.insert(problem["detail"].to_string());
    };
    refused(&[]).await;
    for token in &tokens {
        refused(&[("authorization", &format!("Bearer {token}"))]).await;
        refused(&[("cookie", &format!("agent_session={token}")), ("origin", &own_origin)]).await;
    }
    refused(&[("authorization", &format!("Basic {good}"))]).await;
    refused(&[("authorization", &good)]).await;
    refused(&[("authorization", &format!("Bearer {INTERNAL_SECRET}"))]).await;
    refused(&[("cookie", "agent_sessions=x")]).await;
    refused(&[("x-proactive-trigger", "x")]).await;
    refused(&[("x-proactive-trigger", "x"), ("authorization", "Bearer wrong")]).await;
    refused(&[("x-proactive-trigger", "x"), ("authorization", &format!("Bearer {good}"))]).await;
    refused(&[("x-proactive-trigger", "x"), ("authorization", &format!("Bearer {SESSION_SECRET}"))]).await;
    refused(&[("x-widget-token", "x")]).await;
    assert_eq!(details.len(), 1, "no response says what was wrong: {details:?}");
    let parameter = ask(&app, "?widgetToken=x", &[], &json!({})).await;
    expect_problem(parameter, 401, "UNAUTHENTICATED").await;
    let field = ask(&app, "", &[], &json!({"widgetToken": "x"})).await;
    expect_problem(field, 401, "UNAUTHENTICATED").await;
    assert!(vendor.received().is_empty());
}

#[tokio::test]
async fn two_explicit_credentials_are_refused() {
    let (vendor, app) = open(&[]).await;
    let bearer = format!("Bearer {}", session_token("u1", "c1"));
    let internal = format!("Bearer {INTERNAL_SECRET}");
    let cases: [(&str, Headers<'_>, Value); 8] = [
        ("", &[("authorization", &bearer), ("authorization", &bearer)], json!({})),
        ("", &[("authorization", &bearer), ("x-widget-token", "w")], json!({})),
        ("?widgetToken=w", &[("authorization", &bearer)], json!({})),
        ("", &[("authorization", &bearer)], json!({"widgetToken": "w"})),
        ("?widgetToken=w", &[("x-widget-token", "w")], json!({})),
        ("?widgetToken=w&widgetToken=w", &[], json!({})),
        (
            "",
            &[("authorization", &internal), ("x-proactive-trigger", "x"), ("x-widget-token", "w")],
            json!({}),
        ),
        ("", &[("x-widget-token", "w"), ("x-widget-token", "v")], json!({})),
    ];
    for (query, headers, more) in cases {
        expect_problem(ask(&app, query, headers, &more).await, 400, "AMBIGUOUS_CREDENTIALS").await;
    }
    assert!(vendor.received().is_empty());
}

#[tokio::test]
async fn a_proactive_call_must_name_its_user() {
    let (vendor, app) = open(&[]).await;
    let internal = format!("Bearer {INTERNAL_SECRET}");
    let headers = [("authorization", internal.as_str()), ("x-proactive-trigger", "plan-canary")];
    for (more, missing) in [
        (json!({}), "userId is missing"),
        (json!({"companyId": "c1"}), "userId is missing"),
        (json!({"userId": "u1"}), "companyId is missing"),
        (json!({"userId": "u1", "companyId": ""}), "companyId is missing"),
    ] {
        let problem = expect_problem(ask(&app, "", &headers, &more).await, 400, "INVALID_REQUEST").await;
        assert_eq!(problem["detail"], missing);
    }
    let more = json!({"userId": "u1", "companyId": "c2"});
    expect_problem(ask(&app, "", &headers, &more).await, 404, "NOT_FOUND").await;
    let longest = "x".repeat(257);
    for reason in ["", " ", &longest] {
        let headers = [headers[0], ("x-proactive-trigger", reason)];
        let more = json!({"userId": "u1", "companyId": "c1"});
        expect_problem(ask(&app, "", &headers, &more).await, 400, "INVALID_REQUEST").await;
    }
    assert!(vendor.received().is_empty());
    let more = json!({"userId": "u1", "companyId": "c1"});
    expect_accepted(ask(&app, "", &headers, &more).await).await;
    let request_body = vendor.received_bodies("m").pop().expect("the vendor was asked");
    assert!(request_body["messages"].to_string().contains("plan-canary"), "{request_body}");
}

#[tokio::test]
async fn a_parameter_that_disagrees_with_the_credential_is_forbidden() {
    let (vendor, app) = open(&[]).await;
    let bearer = format!("Bearer {}", session_token("u1", "c1"));
    let headers = [("authorization", bearer.as_str())];
    for (query, more) in [
        ("", json!({"userId": "u2"})),
        ("", json!({"companyId": "c2"})),
        ("", json!({"userId": "u1", "companyId": "c2"})),
        ("?userId=u2", json!({})),
        ("?companyId=c2", json!({})),
        ("", json!({"forwardedProps": {"userId": "u2"}})),
    ] {
        expect_problem(ask(&app, query, &headers, &more).await, 403, "FORBIDDEN").await;
    }
    assert!(vendor.received().is_empty());
}

#[tokio::test]
async fn a_missing_secret_is_named_in_the_problem() {
    let bearer = format!("Bearer {}", session_token("u1", "c1"));
    let cookie = format!("agent_session={}", session_token("u1", "c1"));
    let (_vendor, app) = open(&[("SESSION_SECRET", ""), ("INTERNAL_SECRET", "")]).await;
    let own_origin = format!("http://{}", app.address);
    let cases: [(Headers<'_>, &str); 3] = [
        (&[("authorization", &bearer)], "SESSION_SECRET is not configured"),
        (&[("cookie", &cookie), ("origin", &own_origin)], "SESSION_SECRET is not configured"),
        (&[("authorization", &bearer), ("x-proactive-trigger", "x")], "INTERNAL_SECRET is not configured"),
    ];
    for (headers, detail) in cases {
        let problem = expect_problem(ask(&app, "", headers, &json!({})).await, 503, "NOT_CONFIGURED").await;
        assert_eq!(problem["detail"], detail);
    }
    expect_problem(ask(&app, "", &[], &json!({})).await, 401, "UNAUTHENTICATED").await;
}
