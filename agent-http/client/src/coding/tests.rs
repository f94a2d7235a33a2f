use crate::loopback::{AfterResponse, LoopbackServer, chunked_response, outbound_client};

use super::*;

const SECRET: &str = "runtime-canary";
const JSON: &str = "application/json";

/// Returns a time that no call reaches.
fn later() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// Starts a runtime that always answers with `body`.
async fn runtime(status: &str, kind: &str, body: &str) -> (LoopbackServer, RuntimeCodingAuthority) {
    let answer = chunked_response(status, kind, body.as_bytes(), 4096, true);
    serve(answer).await
}

async fn serve(answer: Vec<u8>) -> (LoopbackServer, RuntimeCodingAuthority) {
    let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
    let authority = RuntimeCodingAuthority {
        outbound: outbound_client(""),
        runtime: server.url.join("/base/").expect("a URL"),
        secret: Some(Secret::new(SECRET)),
    };
    (server, authority)
}

fn secret(text: &str) -> Secret {
    Secret::new(text)
}

#[tokio::test]
async fn each_call_sends_the_parameters_of_its_rfc_with_the_secret() {
    let body = r#"{"device_code":"agd_v1.k.x","user_code":"ABCD-EFGH","verification_uri":"https://issuer.example/device",
        "verification_uri_complete":"https://issuer.example/device?c=ABCD-EFGH","expires_in":900,"interval":7,
        "access_token":"at","token_type":"Bearer","refresh_token":"rt","account_id":"acct-1","plan":"plus","scope":"s",
        "revoked":true}"#;
    let (server, authority) = runtime("200 OK", JSON, body).await;
    let code = authority.request_device_code().await.expect("begun");
    assert_eq!((code.device_code.expose(), code.user_code.expose()), ("agd_v1.k.x", "ABCD-EFGH"));
    assert_eq!(code.verification_uri, "https://issuer.example/device");
    assert_eq!((code.expires_in, code.interval), (Duration::from_secs(900), Duration::from_secs(7)));
    for tokens in [
        authority.request_tokens(&secret("agd_v1.k.x")).await.expect("tokens"),
        authority.refresh(&secret("rt-0"), later()).await.expect("tokens"),
    ] {
        assert_eq!(tokens.access_token.expose(), "at");
        assert_eq!(tokens.refresh_token, Some(secret("rt")));
        assert_eq!(tokens.account_id, Some(secret("acct-1")));
        assert_eq!((tokens.plan.as_deref(), tokens.expires_in), (Some("plus"), Duration::from_secs(900)));
        assert!(!format!("{tokens:?}").contains("acct"), "nothing of it is shown");
    }
    assert!(authority.revoke(&secret("rt"), TokenHint::RefreshToken).await.expect("answered"));
    let sent = server.requests();
    let expected = [
        ("device", "{}"),
        ("token", r#"{"device_code":"agd_v1.k.x"}"#),
        ("refresh", r#"{"refresh_token":"rt-0"}"#),
        ("revoke", r#"{"token":"rt","token_type_hint":"refresh_token"}"#),
    ];
    assert_eq!(sent.len(), expected.len());
    for (request, (route, body)) in sent.iter().zip(expected) {
        let line = format!("POST /base/coding-auth/{route} HTTP/1.1\r\n");
        assert!(request.starts_with(&line) && request.ends_with(body), "{request}");
        assert!(request.contains(&format!("authorization: Bearer {SECRET}\r\n")), "{request}");
    }
}

/// Returns the error of a refresh that the runtime answers so.
async fn refresh_error(status: &str, kind: &str, body: &str) -> CodingAuthorityError {
    let (_server, authority) = runtime(status, kind, body).await;
    authority.refresh(&secret("rt-canary"), later()).await.expect_err("refused")
}

#[tokio::test]
async fn problems_become_typed_errors() {
    let oauth = |error: &str, more: &str| {
        format!(r#"{{"code":"OAUTH_ERROR","error":"{error}","detail":"x"{more},"status":400}}"#)
    };
    let problem = |code: &str, detail: &str| format!(r#"{{"code":"{code}","detail":"{detail}"}}"#);
    for (status, body, expected) in [
        ("400 Bad Request", oauth("authorization_pending", ""), "authorization_pending"),
        ("400 Bad Request", oauth("slow_down", ""), "slow_down"),
        ("400 Bad Request", oauth("access_denied", ""), "access_denied"),
        ("400 Bad Request", oauth("expired_token", ""), "expired_token"),
        ("400 Bad Request", oauth("invalid_grant", r#","reason":"reused""#), "invalid_grant (reused)"),
        ("400 Bad Request", oauth("invalid_grant", r#","reason":"expired""#), "invalid_grant (expired)"),
        ("400 Bad Request", oauth("invalid_grant", r#","reason":"revoked""#), "invalid_grant (revoked)"),
        ("400 Bad Request", oauth("invalid_grant", r#","reason":"else""#), "invalid_grant (unknown)"),
        ("400 Bad Request", oauth("invalid_grant", ""), "invalid_grant (unknown)"),
        ("400 Bad Request", oauth("something_new", ""), "refused"),
        (
            "503 Service Unavailable",
            problem("NOT_CONFIGURED", "CODING_CLIENT_ID is not configured"),
            "CODING_CLIENT_ID is not configured",
        ),
        ("503 Service Unavailable", problem("NOT_CONFIGURED", "canary"), "CODING_AUTH_URL is not configured"),
        ("429 Too Many Requests", problem("RATE_LIMITED", "x"), "the issuer limits the rate"),
        ("401 Unauthorized", problem("UNAUTHENTICATED", "x"), "refused"),
        ("404 Not Found", problem("NOT_FOUND", "x"), "refused"),
        ("502 Bad Gateway", problem("BACKEND_UNREACHABLE", "x"), "no answer"),
        ("504 Gateway Timeout", problem("BACKEND_TIMEOUT", "x"), "no answer"),
        ("502 Bad Gateway", problem("BACKEND_FAILED", "turned away"), "no answer"),
        ("503 Service Unavailable", problem("SERVER_SHUTTING_DOWN", "x"), "no answer"),
        ("500 Internal Server Error", problem("INTERNAL", "x"), "no answer"),
        ("400 Bad Request", "canary".to_owned(), "refused"),
        ("502 Bad Gateway", "canary".to_owned(), "no answer"),
    ] {
        let error = refresh_error(status, PROBLEM_JSON, &body).await;
        assert_eq!(error.to_string(), expected, "{body}");
        let shown = format!("{error:?} {:?}", error.to_agent_error());
        assert!(!shown.contains("canary"), "{shown}");
    }
    let blocked =
        refresh_error("502 Bad Gateway", PROBLEM_JSON, &problem("BACKEND_FAILED", "turned away")).await;
    assert_eq!(blocked.to_agent_error().message(), "turned away");
}

#[tokio::test]
async fn invalid_runtime_responses_are_errors() {
    for (status, kind, body) in [
        ("200 OK", JSON, "{}"),
        ("200 OK", JSON, r#"{"access_token":"","expires_in":1}"#),
        ("200 OK", JSON, r#"{"access_token":"canary\n","expires_in":1}"#),
        ("200 OK", JSON, r#"{"access_token":"at","expires_in":-1}"#),
        ("200 OK", JSON, r#"{"access_token":"at","expires_in":1,"account_id":"canary\r\nx: y"}"#),
        ("200 OK", JSON, r#"{"access_token":7,"expires_in":1}"#),
        ("200 OK", JSON, "canary"),
        ("200 OK", "text/html", "<html>canary"),
        ("502 Bad Gateway", "text/html", "<html>canary"),
        ("200 OK", PROBLEM_JSON, r#"{"code":"BACKEND_FAILED"}"#),
    ] {
        let error = refresh_error(status, kind, body).await;
        assert!(matches!(error, CodingAuthorityError::Unanswered(_)), "{body}: {error:?}");
        assert!(!format!("{error:?}").contains("canary"), "{body}: {error:?}");
    }
    let long = format!(r#"{{"access_token":"{}","expires_in":1}}"#, "x".repeat(MAX_TOKEN_BYTES + 1));
    assert!(matches!(refresh_error("200 OK", JSON, &long).await, CodingAuthorityError::Unanswered(_)));
    let cut = chunked_response("200 OK", JSON, br#"{"access_token":"at""#, 8, false);
    let (_server, authority) = serve(cut).await;
    let error = authority.refresh(&secret("rt"), later()).await.expect_err("cut");
    assert!(matches!(error, CodingAuthorityError::Unanswered(_)), "{error:?}");
}

#[tokio::test]
async fn a_refused_connection_counts_as_not_sent() {
    let (server, authority) = runtime("200 OK", JSON, "{}").await;
    drop(server);
    // The port is closed once the server's task has ended.
    let error = loop {
        match authority.refresh(&secret("rt"), later()).await.expect_err("nothing listens") {
            CodingAuthorityError::Unanswered(_) => tokio::task::yield_now().await,
            error => break error,
        }
    };
    assert!(matches!(error, CodingAuthorityError::NotSent(_)), "{error:?}");
    assert_eq!(error.to_agent_error().kind(), AgentErrorKind::Unreachable);
}

#[tokio::test]
async fn a_token_is_not_sent_after_its_time() {
    let (_server, authority) = runtime("200 OK", JSON, r#"{"access_token":"at","expires_in":1}"#).await;
    let error = authority.refresh(&secret("rt"), Instant::now()).await.expect_err("it is too late");
    assert!(matches!(error, CodingAuthorityError::NotSent(_)), "{error:?}");
    authority.refresh(&secret("rt"), later()).await.expect("tokens");
}

#[tokio::test]
async fn a_code_that_a_user_must_not_be_shown_is_refused() {
    let answer = |user_code: &str, uri: &str| {
        json!({"device_code": "d", "user_code": user_code, "verification_uri": uri, "expires_in": 900})
            .to_string()
    };
    let (good, long) = ("https://issuer.example/device", "A".repeat(33));
    let (_server, authority) = runtime("200 OK", JSON, &answer("ABCD", "http://127.0.0.1:9/device")).await;
    let code = authority.request_device_code().await.expect("an issuer on this machine");
    assert_eq!(code.interval, Duration::from_secs(5));
    for (user_code, uri) in [
        ("ABC", good),
        (&long, good),
        ("<b>AB</b>", good),
        ("AB\nCD", good),
        ("ABCD", "javascript:alert(1)"),
        ("ABCD", "http://issuer.example/device"),
        ("ABCD", "https://user:password@issuer.example/device"),
        ("ABCD", "https://issuer.example/a b"),
        ("ABCD", "device"),
    ] {
        let (_server, authority) = runtime("200 OK", JSON, &answer(user_code, uri)).await;
        let error = authority.request_device_code().await.expect_err("refused");
        assert!(matches!(error, CodingAuthorityError::Refused(_)), "{user_code} {uri}");
    }
}
