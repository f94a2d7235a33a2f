//! The console: its files, the sign-in by a one-time code, and the rules for requests with its cookie; the widget's files.

mod browser;
mod sites;
mod widget;

use http::header::{COOKIE, ORIGIN, SET_COOKIE};
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};

use crate::support::server::{self, INTERNAL_SECRET, Server, session_token};
use crate::support::{client, expect_problem, workspace};

const SESSION: &str = "/api/console/session";
/// Setting that switches the console on.
const ON: (&str, &str) = ("CONSOLE", "on");

async fn open() -> Server {
    server::app(&workspace("http://127.0.0.1:9/v1", "text"), &[ON]).await
}

/// Creates a link for user `u1` of company `c1` and returns its code.
async fn code(app: &Server) -> String {
    let body = json!({"userId": "u1", "companyId": "c1"});
    let request = app.request("POST", "/api/console/links").bearer_auth(INTERNAL_SECRET).json(&body);
    let response = request.send().await.expect("an answer");
    assert_eq!(response.status(), 201);
    let link: Value = response.json().await.expect("JSON");
    let url = link["url"].as_str().expect("a link");
    let prefix = format!("{}#enter=", app.url("/"));
    url.strip_prefix(&prefix).unwrap_or_else(|| panic!("{url} is not below {prefix}")).to_owned()
}

/// Returns the request that exchanges a code, as the page sends it.
fn sign_in_request(app: &Server, code: &str) -> RequestBuilder {
    app.request("POST", SESSION).header(ORIGIN, app.url("")).json(&json!({ "code": code }))
}

/// Returns the cookie of a response, without its attributes.
fn cookie(response: &Response) -> String {
    let cookie = response.headers()[SET_COOKIE].to_str().expect("text");
    cookie.split(';').next().expect("a pair").to_owned()
}

async fn sign_in(app: &Server) -> String {
    let code = code(app).await;
    let response = sign_in_request(app, &code).send().await.expect("an answer");
    assert_eq!(response.status(), 204);
    cookie(&response)
}

async fn get_session(app: &Server, cookie: &str) -> Response {
    app.request("GET", SESSION).header(COOKIE, cookie).send().await.expect("an answer")
}

#[tokio::test]
async fn a_code_signs_in_once_and_a_get_uses_nothing_up() {
    let app = open().await;
    let code = code(&app).await;
    for method in ["GET", "HEAD"] {
        for path in [format!("/?enter={code}"), format!("{SESSION}?code={code}")] {
            app.request(method, &path).send().await.expect("an answer");
        }
    }
    let first = sign_in_request(&app, &code).send().await.expect("an answer");
    assert_eq!(first.status(), 204);
    let port = app.address.port();
    let set = first.headers()[SET_COOKIE].to_str().expect("text");
    assert!(set.starts_with(&format!("agent_console_{port}=ags_")), "{set}");
    assert!(set.ends_with("; Path=/; Max-Age=604800; HttpOnly; SameSite=Strict"), "{set}");
    assert_eq!(first.headers()["cache-control"], "no-store");
    expect_problem(sign_in_request(&app, &code).send().await.expect("an answer"), 401, "UNAUTHENTICATED")
        .await;

    let session: Value = get_session(&app, &cookie(&first)).await.json().await.expect("JSON");
    assert_eq!((&session["userId"], &session["companyId"]), (&json!("u1"), &json!("c1")));
    assert_eq!(session["roles"], json!(["editor"]));
    let expiry = session["expiresAt"].as_str().expect("a time");
    assert_eq!(expiry.len(), "2026-11-30T09:00:00.000Z".len(), "{session}");
    assert!(session["version"].is_string(), "{session}");
    let features = session["features"].as_array().expect("a list");
    assert!(features.contains(&json!("threads")) && !features.contains(&json!("jobs")), "{session}");
}

#[tokio::test]
async fn one_of_two_tabs_gets_the_session() {
    let app = open().await;
    let code = code(&app).await;
    let tabs = (0..8).map(|_| sign_in_request(&app, &code).send());
    let statuses: Vec<u16> = futures_util::future::join_all(tabs)
        .await
        .into_iter()
        .map(|response| response.expect("an answer").status().as_u16())
        .collect();
    assert_eq!(statuses.iter().filter(|status| **status == 204).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 401).count(), 7, "{statuses:?}");
}

#[tokio::test]
async fn a_sign_in_from_another_origin_is_refused() {
    let app = open().await;
    let (code, own_origin) = (code(&app).await, app.url(""));
    let body = json!({ "code": code });
    for (headers, status, error) in [
        (vec![], 403, "FORBIDDEN"),
        (vec![("origin", "http://evil.example")], 403, "FORBIDDEN"),
        (vec![("origin", "null")], 403, "FORBIDDEN"),
        (vec![("origin", &*own_origin), ("sec-fetch-site", "cross-site")], 403, "FORBIDDEN"),
        (vec![("origin", &*own_origin), ("sec-fetch-site", "same-site")], 403, "FORBIDDEN"),
        (vec![("origin", &*own_origin), ("host", "evil.example")], 421, "MISDIRECTED_REQUEST"),
    ] {
        let request = app.request("POST", SESSION).json(&body);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        expect_problem(request.send().await.expect("an answer"), status, error).await;
    }
    let form = app.request("POST", SESSION).header(ORIGIN, &own_origin).header("content-type", "text/plain");
    let form = form.body(body.to_string()).send().await.expect("an answer");
    expect_problem(form, 415, "UNSUPPORTED_MEDIA_TYPE").await;
    let long = json!({ "code": "x".repeat(2000) });
    let long =
        app.request("POST", SESSION).header(ORIGIN, &own_origin).json(&long).send().await.expect("an answer");
    expect_problem(long, 413, "PAYLOAD_TOO_LARGE").await;
    // Nothing of this has used the code up, and `Sec-Fetch-Site` need not be there.
    assert_eq!(sign_in_request(&app, &code).send().await.expect("an answer").status(), 204);
}

#[tokio::test]
async fn links_are_made_with_the_internal_secret() {
    let app = open().await;
    let body = json!({"userId": "u1", "companyId": "c1"});
    for (bearer, status, error) in [
        (None, 401, "UNAUTHENTICATED"),
        (Some("internal-canary-012345678X".to_owned()), 401, "UNAUTHENTICATED"),
        (Some(session_token("u1", "c1")), 401, "UNAUTHENTICATED"),
    ] {
        let request = app.request("POST", "/api/console/links").json(&body);
        let request = bearer.into_iter().fold(request, |request, bearer| request.bearer_auth(bearer));
        expect_problem(request.send().await.expect("an answer"), status, error).await;
    }
    for (body, field) in [
        (json!({"userId": "", "companyId": "c1"}), "userId"),
        (json!({"userId": "widget:x", "companyId": "c1"}), "userId"),
        (json!({"userId": "u1", "companyId": "a/b"}), "companyId"),
        (json!({"userId": "u1", "companyId": "c1", "ttlMs": 0}), "code"),
        (json!({"userId": "u1", "companyId": "c1", "ttlMs": 3_600_001}), "code"),
        (json!({"companyId": "c1"}), "userId"),
    ] {
        let request = app.request("POST", "/api/console/links").bearer_auth(INTERNAL_SECRET).json(&body);
        let problem = expect_problem(request.send().await.expect("an answer"), 400, "INVALID_REQUEST").await;
        assert!(problem["detail"].as_str().expect("a detail").contains(field), "{problem}");
    }
}

#[tokio::test]
async fn sessions_are_revoked_from_the_next_request_on() {
    let app = open().await;
    let (first, second, third) = (sign_in(&app).await, sign_in(&app).await, sign_in(&app).await);
    let delete = |query: &str, cookie: &str| {
        app.request("DELETE", &format!("{SESSION}{query}")).header(COOKIE, cookie).header(ORIGIN, app.url(""))
    };
    let response = delete("", &first).send().await.expect("an answer");
    assert_eq!(response.status(), 204);
    assert!(response.headers()[SET_COOKIE].to_str().expect("text").contains("; Max-Age=0;"));
    expect_problem(get_session(&app, &first).await, 401, "UNAUTHENTICATED").await;
    assert_eq!(get_session(&app, &second).await.status(), 200);
    expect_problem(delete("?all=maybe", &second).send().await.expect("an answer"), 400, "INVALID_REQUEST")
        .await;
    assert_eq!(delete("?all=true", &second).send().await.expect("an answer").status(), 204);
    for cookie in [&second, &third] {
        expect_problem(get_session(&app, cookie).await, 401, "UNAUTHENTICATED").await;
    }
}

#[tokio::test]
async fn an_explicit_credential_takes_precedence() {
    let app = open().await;
    let cookie = sign_in(&app).await;
    let as_other = app.request("GET", SESSION).header(COOKIE, &cookie).bearer_auth(session_token("u2", "c1"));
    let session: Value = as_other.send().await.expect("an answer").json().await.expect("JSON");
    assert_eq!(session["userId"], "u2");
    let wrong = app.request("GET", SESSION).header(COOKIE, &cookie).bearer_auth("wrong");
    expect_problem(wrong.send().await.expect("an answer"), 401, "UNAUTHENTICATED").await;
    // The console's cookie counts before the session's, and an invalid one does not stand in its way.
    let both = |console: &str| format!("{console}; agent_session={}", session_token("u2", "c1"));
    let name = cookie.split('=').next().expect("a name");
    for (cookies, user) in [(both(&cookie), "u1"), (both(&format!("{name}=ags_old")), "u2")] {
        let session: Value = get_session(&app, &cookies).await.json().await.expect("JSON");
        assert_eq!(session["userId"], user, "{cookies}");
    }
    expect_problem(get_session(&app, &format!("{cookie}; {cookie}")).await, 400, "AMBIGUOUS_CREDENTIALS")
        .await;
}

#[tokio::test]
async fn the_page_and_its_assets_are_served() {
    let app = open().await;
    let paths: Vec<String> = std::iter::once("/".to_owned()).chain(agent_console::asset_paths()).collect();
    assert!(paths.len() > 15, "{paths:?}");
    let client = client();
    for path in &paths {
        let get = || client.get(app.url(path)).header("accept-encoding", "br");
        let response = get().send().await.expect("an answer");
        assert_eq!(response.status(), 200, "{path}");
        let headers = response.headers().clone();
        assert_eq!(headers["content-security-policy"], agent_console::CONTENT_POLICY);
        let vary = headers["vary"].to_str().expect("text");
        assert!(vary.contains("accept-encoding") && vary.contains("origin"), "{vary}");
        let body = response.bytes().await.expect("a whole body");
        let head = client.head(app.url(path)).header("accept-encoding", "br").send().await;
        let head = head.expect("an answer");
        assert_eq!((head.status().as_u16(), &head.headers()["etag"]), (200, &headers["etag"]));
        assert_eq!(head.headers()["content-length"], body.len().to_string());
        let response = get().header("if-none-match", &headers["etag"]).send().await.expect("an answer");
        assert_eq!(response.status(), 304, "{path}");
    }
    for path in ["/assets/", "/assets/x/app.js", "/index.html"] {
        assert_eq!(app.request("GET", path).send().await.expect("an answer").status(), 404, "{path}");
    }
    assert_eq!(app.request("POST", "/").send().await.expect("an answer").status(), 405);
    let foreign = client.get(app.url("/")).header("host", "evil.example").send().await.expect("an answer");
    expect_problem(foreign, 421, "MISDIRECTED_REQUEST").await;
}

#[tokio::test]
async fn hosts_are_allowed_by_a_setting() {
    let settings = [ON, ("ALLOWED_HOSTS", "inside.example, other.example")];
    let app = server::app(&workspace("http://127.0.0.1:9/v1", "text"), &settings).await;
    for (host, status) in [("inside.example:8443", 200), ("other.example", 200), ("evil.example", 421)] {
        let response = app.request("GET", "/").header("host", host).send().await.expect("an answer");
        assert_eq!(response.status(), status, "{host}");
    }
}

#[tokio::test]
async fn no_console_route_exists_when_it_is_switched_off() {
    let on = open().await;
    let asset = agent_console::asset_paths().next().expect("an asset");
    let cookie = sign_in(&on).await;
    let app = server::app(&workspace("http://127.0.0.1:9/v1", "text"), &[]).await;
    for (method, path) in
        [("GET", "/"), ("GET", &asset), ("GET", SESSION), ("POST", SESSION), ("POST", "/api/console/links")]
    {
        let request = app.request(method, path).bearer_auth(INTERNAL_SECRET).json(&json!({}));
        expect_problem(request.send().await.expect("an answer"), 404, "NOT_FOUND").await;
    }
    let request = app.request("GET", "/api/agents").header(COOKIE, cookie);
    expect_problem(request.send().await.expect("an answer"), 401, "UNAUTHENTICATED").await;
}
