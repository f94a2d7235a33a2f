//! Sign-in of users to their own subscriptions, over HTTP.

use std::sync::Arc;

use agent_core::clock::SystemClock;
use agent_platform::coding::CodingAuthorityError;
use agent_platform::testing::{IssuerCall, IssuerStep, SignInDecision};
use agent_platform::token::{Grant, McpGrant, NewToken, Tokens, WidgetGrant};
use agent_platform::workspace::{WorkspaceFile, delete_user};
use agentd::stores::Stores;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::support::coding_runtime::{CodingRuntime, RUNTIME_SECRET};
use crate::support::server::{self, INTERNAL_SECRET, Server, session_token};
use crate::support::{expect_problem, poll_until};

const SIGN_IN: &str = "/api/coding/sign-in";
const STATE: &str = "/api/coding";

/// An application with a runtime and its issuer.
struct SignInFixture {
    runtime: CodingRuntime,
    app: Server,
    stores: Stores,
}

async fn open() -> SignInFixture {
    let runtime = CodingRuntime::start().await;
    let workspace = json!({
        "users": [{"id": "u1", "companyId": "c1"}, {"id": "u2", "companyId": "c1"}, {"id": "u1", "companyId": "c2"}],
        "agents": [{"id": "a1", "ownerId": "u1", "companyId": "c1"}]
    });
    let stores = server::stores(&workspace).await;
    let app = start(&runtime, &stores).await;
    SignInFixture { runtime, app, stores }
}

async fn start(runtime: &CodingRuntime, stores: &Stores) -> Server {
    let url = runtime.url();
    let settings = [("RUNTIME_URL", &*url), ("RUNTIME_SECRET", RUNTIME_SECRET)];
    server::app_with_stores(stores.clone(), &settings).await
}

async fn send(app: &Server, method: &str, path: &str) -> reqwest::Response {
    let request = app.request(method, path).bearer_auth(session_token("u1", "c1"));
    request.send().await.expect("an answer")
}

async fn get(app: &Server, path: &str) -> Value {
    let response = send(app, "GET", path).await;
    let text = response.text().await.expect("a whole body");
    assert!(!text.to_lowercase().contains("canary"), "{text}");
    serde_json::from_str(&text).expect("JSON")
}

/// Begins a sign-in and returns the path of its status.
async fn begin(app: &Server) -> String {
    let response = send(app, "POST", SIGN_IN).await;
    assert_eq!(response.status(), 201);
    assert_eq!(response.headers()["cache-control"], "no-store");
    let begun: Value = response.json().await.expect("JSON");
    format!("{SIGN_IN}/{}", begun["signInId"].as_str().expect("an id"))
}

#[tokio::test]
async fn a_user_signs_in_and_out() {
    let fixture = open().await;
    assert_eq!(get(&fixture.app, STATE).await, json!({"signedIn": false, "state": "signInRequired"}));
    let response = send(&fixture.app, "POST", SIGN_IN).await;
    assert_eq!(response.status(), 201);
    let begun: Value = response.json().await.expect("JSON");
    assert_eq!(begun["userCode"], "CANARY-0001");
    assert_eq!(begun["verificationUri"], "https://issuer.example/device");
    assert_eq!((&begun["expiresIn"], &begun["interval"]), (&json!(900), &json!(1)));
    assert!(begun["notice"].as_str().expect("a notice").starts_with("Enter this code only if you asked"));
    assert!(begun.get("verificationUriComplete").is_none() && begun.get("deviceCode").is_none());
    let second = send(&fixture.app, "POST", SIGN_IN).await;
    assert_eq!(second.status(), 200);
    let second: Value = second.json().await.expect("JSON");
    assert_eq!(second["signInId"], begun["signInId"]);

    let path = format!("{SIGN_IN}/{}", begun["signInId"].as_str().expect("an id"));
    assert_eq!(get(&fixture.app, &path).await["status"], "pending");
    fixture.runtime.issuer.decide(SignInDecision::Approved);
    poll_until(async || get(&fixture.app, &path).await, |view| view["status"] == "complete").await;
    let state = get(&fixture.app, STATE).await;
    assert_eq!((&state["signedIn"], &state["state"]), (&json!(true), &json!("ok")));
    assert_eq!((&state["plan"], &state["account"]), (&json!("plus"), &json!("…1234")));

    let file = WorkspaceFile::export(&*fixture.stores.records, None).await.expect("exported");
    let exported = file.to_text().expect("text");
    assert!(!exported.contains("coding") && !exported.to_lowercase().contains("canary"), "{exported}");

    assert_eq!(send(&fixture.app, "DELETE", SIGN_IN).await.status(), 204);
    assert_eq!(fixture.runtime.issuer.revoked(), ["refresh-canary-2"]);
    assert_eq!(send(&fixture.app, "DELETE", SIGN_IN).await.status(), 204);
    assert_eq!(get(&fixture.app, STATE).await, json!({"signedIn": false, "state": "signInRequired"}));
    assert_eq!(fixture.runtime.issuer.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn ten_concurrent_sign_ins_are_one_and_an_hour_has_ten() {
    let fixture = open().await;
    let responses = join_all((0..10).map(|_| send(&fixture.app, "POST", SIGN_IN))).await;
    let created = responses.iter().filter(|response| response.status() == 201).count();
    assert_eq!((created, fixture.runtime.issuer.calls(IssuerCall::Device)), (1, 1));
    for left in (0..10).rev() {
        let response = send(&fixture.app, "POST", SIGN_IN).await;
        let begun: Value = response.json().await.expect("JSON");
        let path = format!("{SIGN_IN}/{}", begun["signInId"].as_str().expect("an id"));
        assert_eq!(send(&fixture.app, "DELETE", &path).await.status(), 204, "{left} are left");
        expect_problem(send(&fixture.app, "GET", &path).await, 404, "NOT_FOUND").await;
    }
    let response = send(&fixture.app, "POST", SIGN_IN).await;
    assert!(response.headers().contains_key("retry-after"));
    assert_eq!(response.headers()["ratelimit-policy"], "\"hour\";q=10;w=3600");
    expect_problem(response, 429, "RATE_LIMITED").await;
}

#[tokio::test]
async fn a_sign_in_that_ends_during_its_approval_gets_no_tokens() {
    for is_erased in [false, true] {
        let fixture = open().await;
        let issuer = &fixture.runtime.issuer;
        issuer.decide(SignInDecision::Approved);
        let (release, released) = oneshot::channel::<()>();
        issuer
            .script(IssuerCall::Token, IssuerStep::HoldAnswer(Box::pin(async move { drop(released.await) })));
        let path = begin(&fixture.app).await;
        issuer.wait_for_calls(IssuerCall::Token, 1).await;
        if is_erased {
            let erased =
                delete_user(&*fixture.stores.records, &"c1".into(), &"u1".into()).await.expect("deleted");
            assert_eq!(erased.subscriptions, 1);
        } else {
            assert_eq!(send(&fixture.app, "DELETE", &path).await.status(), 204);
        }
        release.send(()).expect("it is held");
        issuer.wait_for_calls(IssuerCall::Revoke, 1).await;
        expect_problem(send(&fixture.app, "GET", &path).await, 404, "NOT_FOUND").await;
        assert_eq!(get(&fixture.app, STATE).await["signedIn"], false);
    }
}

#[tokio::test]
async fn another_process_continues_a_sign_in() {
    let SignInFixture { runtime, app, stores } = open().await;
    let path = begin(&app).await;
    app.stop();
    app.stopped().await;
    runtime.issuer.decide(SignInDecision::Approved);
    let app = start(&runtime, &stores).await;
    poll_until(async || get(&app, &path).await, |view| view["status"] == "complete").await;
    assert_eq!(runtime.issuer.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn a_process_that_stops_waits_for_the_issuers_answer() {
    let SignInFixture { runtime, app, stores } = open().await;
    runtime.issuer.decide(SignInDecision::Approved);
    let (release, released) = oneshot::channel::<()>();
    let hold = Box::pin(async move { drop(released.await) });
    runtime.issuer.script(IssuerCall::Token, IssuerStep::HoldAnswer(hold));
    let path = begin(&app).await;
    runtime.issuer.wait_for_calls(IssuerCall::Token, 1).await;
    app.stop();
    let stopping = tokio::spawn(app.stopped());
    release.send(()).expect("it is held");
    stopping.await.expect("it stops");
    let app = start(&runtime, &stores).await;
    assert_eq!(get(&app, &path).await["status"], "complete");
    assert_eq!(runtime.issuer.calls(IssuerCall::Token), 1);
}

#[tokio::test]
async fn missing_settings_are_named_before_a_sign_in_starts() {
    let fixture = open().await;
    let without = server::app_with_stores(fixture.stores.clone(), &[]).await;
    for (method, path) in
        [("POST", SIGN_IN), ("DELETE", SIGN_IN), ("GET", STATE), ("GET", "/api/coding/sign-in/x")]
    {
        let problem = expect_problem(send(&without, method, path).await, 503, "NOT_CONFIGURED").await;
        assert_eq!(problem["detail"], "RUNTIME_URL is not configured");
    }
    let setting = CodingAuthorityError::NotConfigured("CODING_CLIENT_ID".to_owned());
    fixture.runtime.issuer.script(IssuerCall::Device, IssuerStep::Fail(setting));
    let problem = expect_problem(send(&fixture.app, "POST", SIGN_IN).await, 503, "NOT_CONFIGURED").await;
    assert_eq!(problem["detail"], "CODING_CLIENT_ID is not configured");
    let limited = CodingAuthorityError::RateLimited(None);
    fixture.runtime.issuer.script(IssuerCall::Device, IssuerStep::Fail(limited));
    expect_problem(send(&fixture.app, "POST", SIGN_IN).await, 429, "RATE_LIMITED").await;
    fixture.runtime.issuer.script(IssuerCall::Device, IssuerStep::Fail(CodingAuthorityError::Denied));
    expect_problem(send(&fixture.app, "POST", SIGN_IN).await, 502, "BACKEND_FAILED").await;
}

/// Sends every request with every credential, at ids of several users; none but the owner learns anything.
#[tokio::test]
async fn only_its_user_uses_a_sign_in() {
    let fixture = open().await;
    let tokens = Tokens::new(fixture.stores.records.clone(), Arc::new(SystemClock));
    let mint = async |grant| tokens.mint(NewToken::new("c1", "a1", grant)).await.expect("minted").text;
    let widget = mint(Grant::Widget(WidgetGrant::default())).await;
    let mcp = mint(Grant::Mcp(McpGrant { user_id: "u1".into(), ..McpGrant::default() })).await;
    let own_sign_in = begin(&fixture.app).await;
    let bearer = |text: &str| vec![("authorization", format!("Bearer {text}"))];
    let session = |user: &str, company: &str| bearer(&session_token(user, company));
    let proactive = [bearer(INTERNAL_SECRET), vec![("x-proactive-trigger", "x".to_owned())]].concat();
    let cross_site = vec![
        ("cookie", format!("agent_session={}", session_token("u1", "c1"))),
        ("origin", "https://x.example".to_owned()),
    ];
    let both = [session("u1", "c1"), vec![("x-widget-token", widget.expose().to_owned())]].concat();
    /// Headers of a request, and the statuses that its response may have.
    type Credential = (Vec<(&'static str, String)>, &'static [u16]);
    let credentials: Vec<Credential> = vec![
        (vec![], &[401]),
        (bearer("x"), &[401]),
        (bearer(mcp.expose()), &[401, 403]),
        (bearer(RUNTIME_SECRET), &[401]),
        (bearer(INTERNAL_SECRET), &[401, 403]),
        (vec![("x-widget-token", widget.expose().to_owned())], &[403]),
        (vec![("x-widget-token", "agw_x".to_owned())], &[401]),
        (proactive, &[400, 403]),
        (both, &[400]),
        (cross_site, &[403]),
        (session("u2", "c1"), &[404]),
        (session("u1", "c2"), &[404]),
        (session("u2", "c2"), &[404]),
    ];
    let id = own_sign_in.rsplit('/').next().expect("an id");
    let ids =
        [id, "x", "u1", "..%2Fu1", "%2A", "codingTokens", &id.to_uppercase(), &format!("{id}x"), "01a1", "-"];
    let of_ids =
        ids.iter().flat_map(|id| ["GET", "DELETE", "HEAD"].map(|method| (method, format!("{SIGN_IN}/{id}"))));
    let of_ids: Vec<(&str, String)> = of_ids.collect();
    // Routes that return only the caller's data, so that a session of another user gets that user's data.
    let own_routes = [("POST", SIGN_IN), ("DELETE", SIGN_IN), ("GET", STATE), ("HEAD", STATE)];
    let own_routes = own_routes.map(|(method, path)| (method, path.to_owned()));
    let mut cells = 0;
    for (headers, statuses) in &credentials {
        let is_user = *statuses == [404];
        for (method, path) in of_ids.iter().chain(own_routes.iter().filter(|_| !is_user)) {
            let mut request = fixture.app.request(method, path);
            for (name, value) in headers {
                request = request.header(*name, value);
            }
            let response = request.send().await.expect("an answer");
            let status = response.status().as_u16();
            let text = response.text().await.expect("a whole body").to_lowercase();
            assert!(statuses.contains(&status), "{method} {path} {headers:?}: {status} {text}");
            assert!(
                !text.contains("canary") && !text.contains("pending"),
                "{method} {path} {headers:?}: {text}"
            );
            cells += 1;
        }
    }
    assert!(cells >= 300, "{cells}");
    for (user, company) in [("u2", "c1"), ("u1", "c2"), ("u2", "c2")] {
        let bearer = session_token(user, company);
        let state = fixture.app.request("GET", STATE).bearer_auth(&bearer).send().await.expect("an answer");
        let state: Value = state.json().await.expect("JSON");
        assert_eq!(state, json!({"signedIn": false, "state": "signInRequired"}), "{user} of {company}");
        let response =
            fixture.app.request("DELETE", SIGN_IN).bearer_auth(&bearer).send().await.expect("an answer");
        assert_eq!(response.status(), 204);
    }
    assert_eq!(fixture.runtime.issuer.calls(IssuerCall::Device), 1, "no other user has begun a sign-in");
    assert_eq!(get(&fixture.app, &own_sign_in).await["status"], "pending", "the user's sign-in is unchanged");
}
