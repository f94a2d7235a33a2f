//! Tests of the reading of an issuer's answers, and of the requests over loopback.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use agent_core::clock::{Clock, SystemClock};
use agent_core::error::AgentErrorKind;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::error::read_error_response;
use super::fields::AnswerFields;
use super::issuer_call::IssuerResponse;
use super::*;
use crate::loopback::{AfterResponse, LoopbackServer};
use crate::outbound::{OutboundClient, OutboundConfig};

use DeviceAuthDialect::{Codex, Rfc8628};
use url::Url;

const NOW: Duration = Duration::from_secs(1_800_000_000);

fn now() -> SystemTime {
    UNIX_EPOCH + NOW
}

fn fields(answer: &Value) -> AnswerFields {
    AnswerFields::parse(answer.to_string().as_bytes()).expect("an object")
}

/// Shows an error in a word: the code of OAuth with its reason, or the kind.
fn shown(error: &DeviceAuthError) -> String {
    match error {
        DeviceAuthError::Oauth(code) => {
            let reason = code.reason().map(|reason| format!(" {}", reason.as_str()));
            code.as_str().to_owned() + &reason.unwrap_or_default()
        }
        DeviceAuthError::ClientRejected => "client".to_owned(),
        DeviceAuthError::Failed(error) => match error.to_string().contains("turned away") {
            true => "turned away".to_owned(),
            false => format!("{:?}", error.kind()),
        },
    }
}

fn refusal(
    dialect: DeviceAuthDialect,
    call: IssuerCall,
    status: u16,
    is_page: bool,
    body: impl Into<Bytes>,
) -> String {
    let status = StatusCode::from_u16(status).expect("a status");
    let response = IssuerResponse { status, headers: HeaderMap::new(), body: body.into(), is_page };
    shown(&read_error_response(dialect, call, &response))
}

#[test]
fn a_known_code_takes_precedence_over_type_and_status() {
    let codes = [
        (IssuerCall::Poll, "authorization_pending", "authorization_pending"),
        (IssuerCall::Poll, "DeviceAuth_Authorization_Pending", "authorization_pending"),
        (IssuerCall::Poll, "slow_down", "slow_down"),
        (IssuerCall::Poll, "access_denied", "access_denied"),
        (IssuerCall::Poll, "authorization_declined", "access_denied"),
        (IssuerCall::Poll, "expired_token", "expired_token"),
        (IssuerCall::Poll, "invalid_grant", "expired_token"),
        (IssuerCall::Exchange, "invalid_grant", "expired_token"),
        (IssuerCall::Exchange, "access_denied", "access_denied"),
        (IssuerCall::Refresh, "invalid_grant", "invalid_grant unknown"),
        (IssuerCall::Refresh, "INVALID_GRANT", "invalid_grant unknown"),
        (IssuerCall::Refresh, "refresh_token_expired", "invalid_grant expired"),
        (IssuerCall::Refresh, "token_expired", "invalid_grant expired"),
        (IssuerCall::Refresh, "expired_token", "invalid_grant expired"),
        (IssuerCall::Refresh, "refresh_token_reused", "invalid_grant reused"),
        (IssuerCall::Refresh, "refresh_token_invalidated", "invalid_grant revoked"),
        (IssuerCall::Start, "invalid_client", "client"),
        (IssuerCall::Poll, "unauthorized_client", "client"),
        (IssuerCall::Refresh, "invalid_scope", "client"),
    ];
    for (call, code, expected) in codes {
        for body in [
            json!({"error": code}),
            json!({"error": {"code": code, "message": "no"}}),
            json!({"code": code}),
            json!({"error": "other", "code": code}),
            json!({"error": {"code": code}, "code": "other"}),
        ] {
            for status in [400, 401, 403, 404, 418, 429, 500, 503] {
                for dialect in [Rfc8628, Codex] {
                    for is_page in [false, true] {
                        let failure = refusal(dialect, call, status, is_page, body.to_string());
                        assert_eq!(failure, expected, "{call} {status} {body}");
                    }
                }
            }
        }
    }
}

#[test]
fn unknown_error_codes_are_classified_by_type_then_by_status() {
    use IssuerCall::{Exchange, Poll, Refresh, Start};
    let page = "<html>authorization_pending</html>";
    let cases: &[(DeviceAuthDialect, IssuerCall, u16, bool, &str, &str)] = &[
        // A page is not an answer of the issuer, whatever the status.
        (Codex, Poll, 403, true, page, "turned away"),
        (Codex, Poll, 404, true, "", "turned away"),
        (Codex, Refresh, 401, true, page, "turned away"),
        (Rfc8628, Poll, 403, true, page, "turned away"),
        (Rfc8628, Refresh, 503, true, page, "turned away"),
        (Codex, Poll, 429, true, page, "turned away"),
        // Neither is a text.
        (Codex, Poll, 403, false, "error code: 1020", "turned away"),
        (Codex, Refresh, 401, false, "no", "turned away"),
        // The codex dialect has statuses in place of codes.
        (Codex, Poll, 403, false, "", "authorization_pending"),
        (Codex, Poll, 404, false, "", "authorization_pending"),
        (Codex, Poll, 403, false, r#"{"detail":"wait"}"#, "authorization_pending"),
        (Codex, Poll, 404, false, r#"{"error":{"message":"wait"}}"#, "authorization_pending"),
        (Codex, Poll, 403, false, r#"{"error":{"code":null}}"#, "authorization_pending"),
        (Codex, Poll, 403, false, r#"{"error":{"code":""}}"#, "authorization_pending"),
        (Codex, Poll, 403, false, r#"{"error":{"code":"another"}}"#, "Failed"),
        (Codex, Poll, 404, false, r#"{"error":"another"}"#, "Failed"),
        (Codex, Poll, 400, false, r#"{"error":"another"}"#, "access_denied"),
        (Codex, Poll, 410, false, "", "access_denied"),
        (Codex, Poll, 429, false, "", "RateLimited"),
        (Codex, Poll, 408, false, "", "Timeout"),
        (Codex, Poll, 500, false, r#"{"detail":"wait"}"#, "Failed"),
        (Codex, Poll, 504, false, "", "Timeout"),
        (Codex, Refresh, 401, false, r#"{"error":{"code":"another"}}"#, "invalid_grant unknown"),
        (Codex, Refresh, 401, false, "", "invalid_grant unknown"),
        (Codex, Refresh, 400, false, r#"{"error":"another"}"#, "Failed"),
        (Codex, Refresh, 403, false, "", "Failed"),
        (Codex, Refresh, 429, false, "", "RateLimited"),
        (Codex, Refresh, 500, false, "", "Failed"),
        (Codex, Exchange, 400, false, "", "Failed"),
        (Codex, Exchange, 403, false, "", "Failed"),
        // Those of RFC 8628 say nothing by themselves.
        (Rfc8628, Poll, 403, false, "", "Failed"),
        (Rfc8628, Poll, 404, false, "", "Failed"),
        (Rfc8628, Poll, 400, false, r#"{"error":"another"}"#, "Failed"),
        (Rfc8628, Refresh, 401, false, "", "Failed"),
        (Rfc8628, Refresh, 429, false, "", "RateLimited"),
        // Codes have a meaning in their place only.
        (Rfc8628, Refresh, 400, false, r#"{"error":"authorization_pending"}"#, "Failed"),
        (Rfc8628, Start, 400, false, r#"{"error":"invalid_grant"}"#, "Failed"),
        (Codex, Start, 404, false, "", "Failed"),
        (Codex, Start, 404, true, page, "turned away"),
        (Codex, Start, 403, false, "", "Failed"),
    ];
    for (dialect, call, status, is_page, body, expected) in cases {
        let failure = refusal(*dialect, *call, *status, *is_page, *body);
        assert_eq!(failure, *expected, "{dialect:?} {call} {status} {body}");
    }
    let absent = IssuerResponse {
        status: StatusCode::NOT_FOUND,
        headers: HeaderMap::new(),
        body: "404 page not found".into(),
        is_page: false,
    };
    let failure = read_error_response(Rfc8628, Start, &absent).to_string();
    assert!(failure.starts_with("the issuer has no device sign-in"), "{failure}");
}

#[test]
fn intervals_and_lifetimes_are_bounded() {
    for (interval, expected) in [
        (json!("5"), 5),
        (json!(5), 5),
        (json!(1.5), 2),
        (json!(-1), 1),
        (json!(0), 1),
        (json!("abc"), 5),
        (json!("NaN"), 5),
        (json!("inf"), 5),
        (json!(null), 5),
        (json!([7]), 5),
        (json!(1e9), 60),
        (json!("1e9"), 60),
        (json!(61), 60),
    ] {
        assert_eq!(fields(&json!({"interval": interval})).interval().as_secs(), expected, "{interval}");
    }
    assert_eq!(fields(&json!({})).interval().as_secs(), 5);
    let at = |seconds: i64| {
        jiff::Timestamp::from_second(NOW.as_secs() as i64 + seconds).expect("a time").to_string()
    };
    for (answer, expected) in [
        (json!({}), 900),
        (json!({"expires_in": 600}), 600),
        (json!({"expires_in": "600"}), 600),
        (json!({"expires_in": 1e9}), 1800),
        (json!({"expires_in": 0}), 900),
        (json!({"expires_in": -5}), 900),
        (json!({"expires_in": "soon"}), 900),
        (json!({"expires_at": at(300)}), 300),
        (json!({"expires_at": at(99_999)}), 1800),
        (json!({"expires_at": at(-300)}), 900),
        (json!({"expires_at": "2027-01-15T10:00:00+02:00"}), 900),
        (json!({"expires_at": "tomorrow"}), 900),
        (json!({"expires_at": 300}), 900),
        (json!({"expires_in": 60, "expires_at": at(300)}), 60),
    ] {
        assert_eq!(fields(&answer).code_lifetime(now()).as_secs(), expected, "{answer}");
    }
}

#[test]
fn a_code_and_a_page_are_fit_for_a_person() {
    let user_code = |code: &str| fields(&json!({"user_code": code})).user_code("user_code").is_some();
    for code in ["ABCD-EFGH", "1234", &"x".repeat(32)] {
        assert!(user_code(code), "{code}");
    }
    for code in
        ["", "ABC", &"x".repeat(33), "ABCD EFGH", "ABCD\nEFGH", "<b>ABCD</b>", "ABCD-ÄÖ", &"x".repeat(10_000)]
    {
        assert!(!user_code(code), "{code:.40}");
    }
    assert!(fields(&json!({"user_code": 12_345})).user_code("user_code").is_none());
    for (url, expected) in [
        ("https://issuer.example/device", Some("https://issuer.example/device")),
        ("HTTPS://Issuer.example", Some("https://issuer.example/")),
        ("http://127.0.0.1:8080/x", Some("http://127.0.0.1:8080/x")),
        ("http://localhost/x?a=b", Some("http://localhost/x?a=b")),
        ("http://[::1]/", Some("http://[::1]/")),
        ("http://issuer.example/", None),
        ("http://10.0.0.1/", None),
        ("http://localhost.example/", None),
        ("javascript:alert(1)", None),
        ("data:text/html,x", None),
        ("https://user@issuer.example/", None),
        ("https://:password@issuer.example/", None),
        ("https://issuer.example/\n", None),
        ("https://issuer.example/a b", None),
        ("https://issuer.example/ü", None),
        ("//issuer.example/", None),
        ("", None),
        (&format!("https://issuer.example/{}", "x".repeat(2048)), None),
    ] {
        let page_url = fields(&json!({"verification_uri": url})).page_url("verification_uri");
        assert_eq!(page_url.as_deref(), expected, "{url:.60}");
    }
}

/// Returns a JSON Web Token with an empty signature.
fn jwt(claims: &Value) -> String {
    let encode = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.", encode(&json!({"alg": "none"})), encode(claims))
}

fn account(id: &str, plan: &str) -> Value {
    json!({"https://api.openai.com/auth": {"chatgpt_account_id": id, "chatgpt_plan_type": plan}})
}

#[test]
fn tokens_are_checked() {
    let tokens = |answer: Value| fields(&answer).tokens(Codex, now());
    let complete_tokens = tokens(json!({
        "access_token": "a", "token_type": "bearer", "expires_in": "60", "refresh_token": "r", "scope": "x y",
        "id_token": jwt(&account("acc-1", "plus")),
    }))
    .expect("tokens");
    assert_eq!((complete_tokens.access_token.expose(), complete_tokens.expires_in.as_secs()), ("a", 60));
    assert_eq!(complete_tokens.refresh_token.as_ref().map(Secret::expose), Some("r"));
    assert_eq!(complete_tokens.account_id.as_ref().map(Secret::expose), Some("acc-1"));
    assert_eq!(
        (complete_tokens.plan.as_deref(), complete_tokens.scope.as_deref()),
        (Some("plus"), Some("x y"))
    );
    let least = tokens(json!({"access_token": "a"})).expect("tokens");
    assert!(least.refresh_token.is_none() && least.account_id.is_none() && least.plan.is_none());
    assert_eq!(least.expires_in.as_secs(), 3600);
    let other = fields(&json!({"access_token": "a", "id_token": jwt(&account("acc-1", "plus"))}));
    assert!(other.tokens(Rfc8628, now()).expect("tokens").account_id.is_none(), "the dialect names none");
    for bad in [
        json!({}),
        json!({"access_token": ""}),
        json!({"access_token": null}),
        json!({"access_token": 1}),
        json!({"access_token": "a\r\nb"}),
        json!({"access_token": "a b"}),
        json!({"access_token": "ä"}),
        json!({"access_token": "x".repeat(MAX_TOKEN_BYTES + 1)}),
        json!({"access_token": "a", "token_type": "mac"}),
        json!({"access_token": "a", "token_type": 1}),
        json!({"access_token": "a", "refresh_token": ""}),
        json!({"access_token": "a", "refresh_token": 1}),
        json!({"access_token": "a", "refresh_token": "r\0"}),
    ] {
        assert!(tokens(bad.clone()).is_none(), "{bad:.80}");
    }
}

#[test]
fn claims_are_read_without_their_signature_and_only_if_they_are_sound() {
    let with = |id_token: Value, access_token: &str| {
        let answer = json!({"access_token": access_token, "id_token": id_token});
        let tokens = fields(&answer).tokens(Codex, now()).expect("tokens");
        (tokens.account_id.map(|id| id.expose().to_owned()), tokens.plan, tokens.expires_in.as_secs())
    };
    let two_parts = jwt(&account("acc-1", "plus")).trim_end_matches('.').to_owned();
    for id_token in [
        json!(two_parts),
        json!("a.b.c.d"),
        json!("..."),
        json!("a.!!!.c"),
        json!(jwt(&json!("text"))),
        json!(jwt(&json!({"https://api.openai.com/auth": "text"}))),
        json!(jwt(&json!({"https://api.openai.com/auth": {"chatgpt_account_id": 7}}))),
        json!(jwt(&account("acc\r\nx: y", "<b>"))),
        json!(jwt(&account("", ""))),
        json!(jwt(&account(&"x".repeat(129), &"x".repeat(65)))),
        json!(format!("a.{}.c", BASE64_URL_SAFE_NO_PAD.encode("[".repeat(10_000)))),
        json!(7),
        json!(null),
    ] {
        assert_eq!(with(id_token.clone(), "opaque"), (None, None, 3600), "{id_token:.80}");
    }
    // The access token's claims are the second choice.
    let access = |exp: Value| {
        let mut claims = account("acc-2", "pro");
        claims["exp"] = exp;
        jwt(&claims)
    };
    let later = NOW.as_secs() + 500;
    let second = |seconds| (Some("acc-2".to_owned()), Some("pro".to_owned()), seconds);
    assert_eq!(with(json!(null), &access(json!(later))), second(500));
    for exp in [json!(NOW.as_secs() - 5), json!(-1), json!("soon"), json!(null)] {
        assert_eq!(with(json!(null), &access(exp)), second(3600));
    }
    assert_eq!(with(json!(null), &access(json!(1e300))), second(3600));
    assert_eq!(
        with(json!(jwt(&account("acc-1", "plus"))), &access(json!(later))).0.as_deref(),
        Some("acc-1")
    );
}

fn client(dialect: DeviceAuthDialect, issuer: &Url) -> DeviceAuthClient {
    let outbound = OutboundClient::new(OutboundConfig::default()).expect("a client");
    let config = IssuerConfig {
        issuer: issuer.clone(),
        dialect,
        client_id: "client 1".to_owned(),
        device_url: None,
        token_url: None,
        exchange_url: None,
        revoke_url: None,
        verification_url: None,
        scope: Some("openid".to_owned()),
    };
    DeviceAuthClient::new(outbound, Arc::new(SystemClock), config)
}

fn response(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
}

#[tokio::test]
async fn a_request_is_a_form_or_json_below_the_issuers_address() {
    let refused = response("400 Bad Request", "", r#"{"error":"access_denied"}"#);
    let cases: [(DeviceAuthDialect, &str, &str, &str); 2] = [
        (
            Rfc8628,
            "POST /v1/token HTTP/1.1",
            "content-type: application/x-www-form-urlencoded",
            "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Adevice_code&device_code=d%261&client_id=client+1",
        ),
        (
            Codex,
            "POST /v1/api/accounts/deviceauth/token HTTP/1.1",
            "content-type: application/json",
            r#"{"device_auth_id":"d&1","user_code":"ABCD"}"#,
        ),
    ];
    for (dialect, line, content_type, body) in cases {
        let server = LoopbackServer::respond_with(refused.clone(), AfterResponse::Close).await;
        let outcome = client(dialect, &server.url).poll(&Secret::new("d&1"), &Secret::new("ABCD")).await;
        assert_eq!(shown(&outcome.expect_err("refused")), "access_denied");
        let requests = server.requests();
        assert_eq!(requests.len(), 1, "it is sent once");
        let (head, sent) = requests[0].split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with(line), "{head}");
        assert!(head.contains(content_type) && head.contains("accept-encoding: identity"), "{head}");
        assert!(!head.contains("authorization"), "{head}");
        assert_eq!(sent, body);
    }
}

#[tokio::test]
async fn faults_of_the_transport_are_typed() {
    let tokens = r#"{"access_token":"a"}"#;
    let cases = [
        (response("200 OK", "", tokens), "ok"),
        (response("302 Found", "location: http://127.0.0.1:1/\r\n", tokens), "Failed"),
        (response("200 OK", "content-encoding: gzip\r\n", tokens), "Failed"),
        (response("200 OK", "content-encoding: identity\r\n", tokens), "ok"),
        (response("200 OK", "content-type: text/html\r\n", "<html>"), "turned away"),
        (response("200 OK", "content-type: text/html\r\n", tokens), "ok"),
        (response("200 OK", "", "<html>"), "Failed"),
        (response("200 OK", "", "{}"), "Failed"),
        (response("200 OK", "", "[]"), "Failed"),
        (response("200 OK", "", r#"{"error":"invalid_grant"}"#), "invalid_grant unknown"),
        (response("403 Forbidden", "cf-mitigated: challenge\r\n", ""), "turned away"),
        (response("200 OK", "", &format!("{tokens}{}", " ".repeat(70_000))), "Failed"),
        (format!("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{tokens}"), "Failed"),
        ("canary".to_owned(), "Failed"),
        (String::new(), "Unreachable"),
    ];
    for (answer, expected) in cases {
        let server = LoopbackServer::respond_with(answer.clone(), AfterResponse::Close).await;
        let refreshed = client(Rfc8628, &server.url).refresh(&Secret::new("r")).await;
        let description = refreshed.map_or_else(|error| shown(&error), |_| "ok".to_owned());
        assert_eq!(description, expected, "{answer:.120}");
        assert_eq!(server.requests().len(), 1, "it is sent once");
    }
}

#[tokio::test]
async fn an_issuer_asks_for_patience() {
    let answer = response("429 Too Many Requests", "retry-after: 17\r\n", "");
    let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
    let slow_down = client(Codex, &server.url).refresh(&Secret::new("r")).await.expect_err("refused");
    let DeviceAuthError::Failed(error) = slow_down else { panic!("{slow_down}") };
    assert_eq!(
        (error.kind(), error.retry_after()),
        (AgentErrorKind::RateLimited, Some(Duration::from_secs(17)))
    );
}

/// Clock that advances the runtime's time by 11 seconds at the end of the first request: more than a response head may
/// take, and less than an operation.
#[derive(Default)]
struct SlowFirstRequest {
    /// Number of readings. A request has two: one before it is sent, one after its response.
    readings: AtomicUsize,
}

impl Clock for SlowFirstRequest {
    fn now(&self) -> SystemTime {
        SystemClock.now()
    }

    fn monotonic(&self) -> Instant {
        if self.readings.fetch_add(1, Ordering::SeqCst) == 1 {
            tokio::time::pause();
            // The first poll advances the time.
            let _ = tokio::time::advance(Duration::from_secs(11)).now_or_never();
            tokio::time::resume();
        }
        SystemClock.monotonic()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        SystemClock.sleep(duration)
    }
}

#[tokio::test]
async fn a_poll_and_the_exchange_of_its_code_have_one_deadline() {
    let verifier = "v".repeat(43);
    let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(&verifier));
    let pair = json!({"authorization_code": "c", "code_verifier": verifier, "code_challenge": challenge});
    let code = response("200 OK", "connection: close\r\n", &pair.to_string());
    let answer = move |request: &str| match request.starts_with("POST /v1/oauth/token ") {
        true => Vec::new(),
        false => code.clone().into_bytes(),
    };
    let server = LoopbackServer::respond_by(answer, AfterResponse::Hold).await;
    let clock = Arc::new(SlowFirstRequest::default());
    let client = DeviceAuthClient { clock, ..client(Codex, &server.url) };
    let polling =
        tokio::spawn(async move { client.poll(&Secret::new("d"), &Secret::new("ABCD")).await.map(drop) });
    while server.requests().len() < 2 {
        assert!(!polling.is_finished(), "the code is exchanged");
        tokio::task::yield_now().await;
    }
    // Nothing else arrives, so the runtime advances its time to the timer that ends first: that of the operation, and
    // not the one of the head of the second response.
    tokio::time::pause();
    let error = polling.await.expect("the poll ends").expect_err("there are no tokens");
    assert_eq!(error.to_string(), "the issuer did not respond in time");
}

#[tokio::test]
async fn a_token_is_revoked_where_the_issuer_can() {
    let server = LoopbackServer::respond_with(response("200 OK", "", ""), AfterResponse::Close).await;
    let token = Secret::new("t");
    let without = client(Rfc8628, &server.url).revoke(&token, None).await.expect("no request");
    assert!(!without && server.requests().is_empty());
    let hint = Some(TokenHint::RefreshToken);
    assert!(client(Codex, &server.url).revoke(&token, hint).await.expect("an answer"));
    let body = r#"{"token":"t","token_type_hint":"refresh_token","client_id":"client 1"}"#;
    assert!(server.requests()[0].ends_with(body), "{:?}", server.requests());
    let refusing = LoopbackServer::respond_with(response("503 No", "", ""), AfterResponse::Close).await;
    assert!(!client(Codex, &refusing.url).revoke(&token, hint).await.expect("an answer"));
}

#[test]
fn no_secret_is_shown() {
    let tokens = fields(&json!({"access_token": "canary-1", "refresh_token": "canary-2",
        "id_token": jwt(&account("canary-3", "plus"))}))
    .tokens(Codex, now())
    .expect("tokens");
    assert!(!format!("{tokens:?}").contains("canary"));
    let headers = HeaderMap::from_iter([(header::RETRY_AFTER, HeaderValue::from_static("canary"))]);
    let body = Bytes::from(r#"{"error":{"code":"canary","message":"canary"}}"#);
    let response = IssuerResponse { status: StatusCode::BAD_REQUEST, headers, body, is_page: false };
    for call in [IssuerCall::Start, IssuerCall::Poll, IssuerCall::Refresh] {
        let error = read_error_response(Codex, call, &response);
        assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
    }
}
