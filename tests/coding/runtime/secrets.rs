//! Tokens, codes and texts of upstreams are in no log, no problem and no header.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{DIALECTS, begin, expect_ok, poll, post, refresh, runtime};
use crate::support::issuer::{FakeIssuer, IssuerRoute, id_token, json_answer};
use crate::support::log::LogBuffer;
use crate::support::server::Server;
use crate::support::vendor::{Step, Vendor, chunk, json_response, last_chunk, stream_head};

const ACCESS_TOKEN: &str = "chat-access-canary-0123456789";
const ACCOUNT: &str = "chat-account-canary-0123456789";
const UPSTREAM_TEXT: &str = "upstream-text-canary-0123456789";
const GUESS: &str = "guessed-token-canary-0123456789";

/// Heads of all responses, and bodies of problems.
#[derive(Default)]
struct Transcript(String);

impl Transcript {
    async fn record(&mut self, response: reqwest::Response) {
        self.0.push_str(&format!("{} {:?}\n", response.status(), response.headers()));
        let is_problem =
            response.headers().get("content-type").is_some_and(|kind| kind == "application/problem+json");
        let body = response.bytes().await.unwrap_or_default();
        if is_problem {
            self.0.push_str(&String::from_utf8_lossy(&body));
            self.0.push('\n');
        }
    }
}

/// Returns answers of an issuer that repeat its texts in every position.
fn leaking_answers() -> Vec<Vec<Step>> {
    let error = json!({"error": {"code": UPSTREAM_TEXT, "message": UPSTREAM_TEXT}, "error_description": UPSTREAM_TEXT});
    let headers = format!(
        "x-request-id: {UPSTREAM_TEXT} x\r\nset-cookie: a={UPSTREAM_TEXT}\r\nretry-after: {UPSTREAM_TEXT}\r\n\
         location: http://127.0.0.1:1/{UPSTREAM_TEXT}\r\n"
    );
    let with = |status: &str| json_response(status, &headers, &error.to_string());
    vec![
        with("200 OK"),
        with("302 Found"),
        with("400 Bad Request"),
        with("401 Unauthorized"),
        with("403 Forbidden"),
        with("404 Not Found"),
        with("429 Too Many Requests"),
        with(&format!("500 {UPSTREAM_TEXT}")),
        json_response("200 OK", &headers, UPSTREAM_TEXT),
        json_response("200 OK", &headers, &format!(r#"{{"access_token":"{UPSTREAM_TEXT}""#)),
        json_response("200 OK", &headers, &json!({"access_token": format!("{UPSTREAM_TEXT}\n")}).to_string()),
        json_answer(
            "400 Bad Request",
            &json!({"error": "invalid_grant", "error_description": UPSTREAM_TEXT}),
        ),
        vec![Step::Send(format!("HTTP/1.1 200 OK\r\n{UPSTREAM_TEXT}\r\n\r\n").into()), Step::Close],
        vec![Step::Send(UPSTREAM_TEXT.into()), Step::Close],
    ]
}

/// Runs a sign-in with faults in every step, and returns all secrets that occurred.
async fn sign_in(issuer: &FakeIssuer, runtime: &Server, transcript: &mut Transcript) -> BTreeSet<String> {
    let started = expect_ok(begin(runtime).await).await;
    let handle = started["device_code"].as_str().expect("a handle").to_owned();
    let user_code = started["user_code"].as_str().expect("a code").to_owned();
    for answer in leaking_answers() {
        for route in [IssuerRoute::Device, IssuerRoute::Poll, IssuerRoute::Refresh, IssuerRoute::Revoke] {
            issuer.script(route, [answer.clone()]);
        }
        transcript.record(begin(runtime).await).await;
        transcript.record(poll(runtime, &handle).await).await;
        transcript.record(refresh(runtime, GUESS).await).await;
        transcript.record(post(runtime, "/coding-auth/revoke", &json!({"token": GUESS})).await).await;
    }
    transcript.record(poll(runtime, &handle).await).await;
    transcript.record(poll(runtime, &format!("{handle}A")).await).await;
    issuer.approve(&user_code);
    let tokens = expect_ok(poll(runtime, &handle).await).await;
    let refresh_token = tokens["refresh_token"].as_str().expect("a token").to_owned();
    transcript.record(refresh(runtime, &refresh_token).await).await;
    transcript.record(refresh(runtime, &refresh_token).await).await;
    transcript.record(post(runtime, "/coding-auth/revoke", &json!({"token": refresh_token})).await).await;
    for bad in [json!({"refresh_token": format!("{GUESS} ")}), json!({"refresh_token": [GUESS]})] {
        transcript.record(post(runtime, "/coding-auth/refresh", &bad).await).await;
    }
    // The second half of a handle is its secret part.
    let mut secrets = BTreeSet::from([handle[handle.len() / 2..].to_owned(), user_code, refresh_token]);
    let texts = [&tokens["access_token"], &tokens["account_id"]];
    secrets.extend(texts.into_iter().filter_map(Value::as_str).map(str::to_owned));
    let members = [IssuerRoute::Poll, IssuerRoute::Exchange, IssuerRoute::Refresh]
        .into_iter()
        .flat_map(|route| issuer.requests(route))
        .flat_map(|request| request.members);
    let is_secret = |name: &str| !["grant_type", "client_id", "redirect_uri"].contains(&name);
    secrets.extend(members.filter(|(name, _)| is_secret(name)).map(|(_, value)| value));
    secrets
}

/// Sends chats that succeed and fail.
async fn chat(vendor: &Vendor, runtime: &Server, transcript: &mut Transcript) {
    let headers = format!(
        "set-cookie: a={UPSTREAM_TEXT}\r\nx-request-id: {UPSTREAM_TEXT}\u{fc}\r\ncf-ray: {UPSTREAM_TEXT}\r\n"
    );
    let page = format!("<html>{UPSTREAM_TEXT}");
    let scripts = [
        vec![stream_head(), chunk(UPSTREAM_TEXT), last_chunk()],
        vec![stream_head(), chunk(UPSTREAM_TEXT), Step::Close],
        vec![stream_head(), Step::Send(format!("{UPSTREAM_TEXT}\r\n").into()), Step::Close],
        json_response("401 Unauthorized", &headers, &json!({"detail": UPSTREAM_TEXT}).to_string()),
        json_response("302 Found", &format!("location: /{UPSTREAM_TEXT}\r\n"), UPSTREAM_TEXT),
        vec![
            Step::Send(format!("HTTP/1.1 403 No\r\ncontent-type: text/html\r\n\r\n{page}").into()),
            Step::Close,
        ],
        vec![Step::Send(UPSTREAM_TEXT.into()), Step::Close],
    ];
    for script in scripts {
        vendor.on_all(script);
        let call = json!({"accessToken": ACCESS_TOKEN, "accountId": ACCOUNT,
            "body": {"stream": true, "store": false, "prompt_cache_key": "key-canary-0123456789"}});
        transcript.record(post(runtime, "/coding-chat", &call).await).await;
    }
    for bad in [
        json!({"accessToken": format!("{ACCESS_TOKEN}\n"), "body": {"stream": true, "store": false}}),
        json!({"accessToken": [ACCESS_TOKEN], "accountId": ACCOUNT}),
        json!({"accessToken": ACCESS_TOKEN, "accountId": format!("{ACCOUNT}\n"), "body": {"stream": true, "store": false}}),
        json!({"accessToken": ACCESS_TOKEN, "body": {"stream": ACCESS_TOKEN}}),
    ] {
        transcript.record(post(runtime, "/coding-chat", &bad).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_in_the_log_a_problem_or_a_header() {
    let log = LogBuffer::install();
    let vendor = Vendor::start().await;
    let api = format!("http://{}/responses", vendor.address);
    let mut transcript = Transcript::default();
    let mut secrets: BTreeSet<String> = [ACCESS_TOKEN, ACCOUNT, UPSTREAM_TEXT, GUESS]
        .map(str::to_owned)
        .into_iter()
        .chain([super::RUNTIME_SECRET.to_owned(), "key-canary-0123456789".to_owned()])
        .chain([id_token("account-canary-1", "plus"), "email-canary".to_owned(), "name-canary".to_owned()])
        .collect();
    for dialect in DIALECTS {
        let issuer = FakeIssuer::start(dialect).await;
        let settings = issuer.settings();
        let mut settings: Vec<_> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
        settings.push(("CODING_API_URL", &api));
        let runtime = runtime(&settings).await;
        secrets.extend(sign_in(&issuer, &runtime, &mut transcript).await);
        chat(&vendor, &runtime, &mut transcript).await;
    }
    assert!(secrets.len() > 12, "{secrets:?}");
    let log = log.text();
    for known in [
        "the issuer was called",
        "the issuer refused the request",
        "the issuer granted the request",
        "answered",
        "request failed",
    ] {
        assert!(log.contains(known), "{known:?} is not in the log");
    }
    for known in ["OAUTH_ERROR", "BACKEND_FAILED", "INVALID_REQUEST", "200 OK", "401 Unauthorized"] {
        assert!(transcript.0.contains(known), "{known:?} is in no response");
    }
    assert!(vendor.received()[0].head.contains(ACCESS_TOKEN), "the secrets were in use");
    for secret in &secrets {
        for (source, text) in [("the log", &log), ("a response", &transcript.0)] {
            let line = text.lines().find(|line| line.contains(secret));
            assert!(line.is_none(), "{secret} is in {source}: {}", line.unwrap_or_default());
        }
    }
}
