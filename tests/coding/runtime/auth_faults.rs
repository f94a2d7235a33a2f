//! Sign-in and refresh with an issuer that misbehaves: each answer is one typed result, and nothing is sent twice.

use agent_client::device_auth::DeviceAuthDialect::{self, Codex, Rfc8628};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{DIALECTS, begin, expect_ok, outcome, poll, refresh, runtime, runtime_for};
use crate::support::issuer::{
    CLIENT_ID, CODE_CHALLENGE, CODE_VERIFIER, FakeIssuer, IssuerRoute, id_token, json_answer, unsigned_jwt,
};
use crate::support::vendor::{Step, json_response};
use crate::support::{expect_problem, refused_url};

const BACKEND_FAILED: &str = "502 BACKEND_FAILED";

fn raw(text: impl Into<Vec<u8>>) -> Step {
    Step::Send(text.into())
}

/// Returns a page of a proxy in front of the issuer.
fn page(status: &str, headers: &str) -> Vec<Step> {
    let body = r#"<html>{"error":"authorization_pending"} page-canary</html>"#;
    let length = body.len();
    vec![raw(format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/html; charset=UTF-8\r\n{headers}content-length: {length}\r\n\r\n{body}"
    ))]
}

fn ok(body: &Value) -> Vec<Step> {
    json_answer("200 OK", body)
}

/// Returns the answer that starts a sign-in, with some members replaced.
fn started(dialect: DeviceAuthDialect, more: &Value) -> Value {
    let mut answer = match dialect {
        Rfc8628 => json!({"device_code": "d-canary", "user_code": "ABCD-1234", "expires_in": 600,
            "verification_uri": "https://issuer.example/device"}),
        Codex => json!({"device_auth_id": "d-canary", "user_code": "ABCD-1234"}),
    };
    for (name, value) in more.as_object().expect("an object") {
        match value.is_null() {
            true => drop(answer.as_object_mut().expect("an object").remove(name)),
            false => answer[name] = value.clone(),
        }
    }
    answer
}

#[tokio::test]
async fn an_answer_that_starts_a_sign_in_is_checked() {
    for dialect in DIALECTS {
        let issuer = FakeIssuer::start(dialect).await;
        let runtime = runtime_for(&issuer).await;
        for (interval, expected) in [
            (json!("5"), 5),
            (json!(7), 7),
            (json!(-1), 1),
            (json!("abc"), 5),
            (json!(1e9), 60),
            (json!(null), 5),
            (json!({}), 5),
        ] {
            issuer.script(IssuerRoute::Device, [ok(&started(dialect, &json!({"interval": interval})))]);
            let body = expect_ok(begin(&runtime).await).await;
            assert_eq!(body["interval"], expected, "{interval}");
        }
        let mut bad = vec![
            json!({"user_code": null}),
            json!({"user_code": "<b>ABCD</b>"}),
            json!({"user_code": "ABCD\n1234"}),
            json!({"user_code": "x".repeat(10_000)}),
            json!({"user_code": "ABC"}),
            json!({"user_code": 12345}),
            json!({"device_code": null, "device_auth_id": null}),
            json!({"device_code": "", "device_auth_id": ""}),
            json!({"device_code": "a\r\nb", "device_auth_id": "a\r\nb"}),
            json!({"device_code": "x".repeat(1025), "device_auth_id": "x".repeat(1025)}),
            json!({"device_code": "\"".repeat(1024), "device_auth_id": "\"".repeat(1024)}),
        ];
        if dialect == Rfc8628 {
            for uri in [
                json!(null),
                json!("javascript:alert(1)"),
                json!("http://issuer.example/device"),
                json!("https://user:password@issuer.example/"),
                json!("https://issuer.example/\n"),
                json!(format!("https://issuer.example/{}", "x".repeat(2048))),
                json!(7),
            ] {
                bad.push(json!({"verification_uri": uri}));
            }
        }
        for more in bad {
            issuer.script(IssuerRoute::Device, [ok(&started(dialect, &more))]);
            let problem = expect_problem(begin(&runtime).await, 502, "BACKEND_FAILED").await;
            assert!(!problem.to_string().contains("canary"), "{problem}");
        }
    }
}

#[tokio::test]
async fn the_other_spelling_and_the_time_of_expiry_are_read() {
    let issuer = FakeIssuer::start(Codex).await;
    let runtime = runtime_for(&issuer).await;
    let more = json!({"user_code": null, "usercode": "WXYZ-9999", "expires_at": "2999-01-01T00:00:00Z"});
    issuer.script(IssuerRoute::Device, [ok(&started(Codex, &more))]);
    let body = expect_ok(begin(&runtime).await).await;
    assert_eq!((&body["user_code"], &body["expires_in"]), (&json!("WXYZ-9999"), &json!(1800)));
    // An address that is not a page's address is left out.
    let issuer = FakeIssuer::start(Rfc8628).await;
    let runtime = runtime_for(&issuer).await;
    let more = json!({"verification_uri_complete": "javascript:alert(1)", "expires_in": "120"});
    issuer.script(IssuerRoute::Device, [ok(&started(Rfc8628, &more))]);
    let body = expect_ok(begin(&runtime).await).await;
    assert_eq!(body["expires_in"], 120);
    assert!(body.get("verification_uri_complete").is_none());
}

#[tokio::test]
async fn unsafe_sign_in_urls_are_refused() {
    let issuer = FakeIssuer::start(Codex).await;
    let settings = issuer.settings();
    for (page, expected) in [
        ("http://issuer.example/device", BACKEND_FAILED),
        ("https://issuer.example/device", "200"),
        ("http://localhost:1/device", "200"),
    ] {
        let mut settings: Vec<_> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
        settings.push(("CODING_VERIFICATION_URL", page));
        assert_eq!(outcome(begin(&runtime(&settings).await).await).await, expected, "{page}");
    }
    assert_eq!(issuer.calls(IssuerRoute::Device), 2, "no code is asked for in vain");
}

/// Returns answers to any request with the outcome that they have everywhere.
fn faults() -> Vec<(&'static str, Vec<Step>, &'static str)> {
    vec![
        ("page", page("200 OK", ""), BACKEND_FAILED),
        ("page-403", page("403 Forbidden", "cf-mitigated: challenge\r\n"), BACKEND_FAILED),
        ("challenge", json_response("403 Forbidden", "cf-mitigated: challenge\r\n", ""), BACKEND_FAILED),
        ("page-503", page("503 Service Unavailable", ""), BACKEND_FAILED),
        (
            "redirect",
            json_response("302 Found", "location: http://127.0.0.1:1/canary\r\n", ""),
            BACKEND_FAILED,
        ),
        ("compressed", json_response("200 OK", "content-encoding: gzip\r\n", "canary"), BACKEND_FAILED),
        ("500", json_answer("500 Internal Server Error", &json!({"message": "canary"})), BACKEND_FAILED),
        ("429", json_response("429 Too Many Requests", "retry-after: 9\r\n", ""), "429 RATE_LIMITED"),
        ("504", json_answer("504 Gateway Timeout", &json!({})), "504 BACKEND_TIMEOUT"),
        ("empty", json_response("200 OK", "", ""), BACKEND_FAILED),
        ("list", json_response("200 OK", "", "[]"), BACKEND_FAILED),
        ("nonsense", json_response("200 OK", "", "canary"), BACKEND_FAILED),
        ("nothing-of-use", ok(&json!({"message": "canary"})), BACKEND_FAILED),
        ("large", ok(&json!({"access_token": "x".repeat(70_000)})), BACKEND_FAILED),
        (
            "claims-of-1-mb",
            ok(&json!({"access_token": "a", "id_token": id_token(&"x".repeat(1 << 20), "p")})),
            BACKEND_FAILED,
        ),
        (
            "client",
            json_answer("401 Unauthorized", &json!({"error": "invalid_client"})),
            "503 NOT_CONFIGURED",
        ),
        ("scope", json_answer("400 Bad Request", &json!({"error": "invalid_scope"})), "503 NOT_CONFIGURED"),
        ("not-http", vec![raw("canary\r\n\r\n"), Step::Close], BACKEND_FAILED),
        ("reset", vec![Step::Reset], "502 BACKEND_UNREACHABLE"),
        ("close", vec![Step::Close], "502 BACKEND_UNREACHABLE"),
    ]
}

#[tokio::test]
async fn faults_are_typed_and_nothing_is_sent_twice() {
    for dialect in DIALECTS {
        let issuer = FakeIssuer::start(dialect).await;
        let runtime = runtime_for(&issuer).await;
        let started = expect_ok(begin(&runtime).await).await;
        let handle = started["device_code"].as_str().expect("a handle");
        for (name, script, expected) in faults() {
            for route in [IssuerRoute::Device, IssuerRoute::Poll, IssuerRoute::Refresh] {
                issuer.script(route, [script.clone()]);
                let before = issuer.all_calls();
                let response = match route {
                    IssuerRoute::Device => begin(&runtime).await,
                    IssuerRoute::Poll => poll(&runtime, handle).await,
                    _ => refresh(&runtime, "refresh-canary").await,
                };
                assert!(!format!("{:?}", response.headers()).contains("canary"), "{name} {route:?}");
                if expected.starts_with("429") {
                    assert_eq!(response.headers()["retry-after"], "9");
                }
                assert_eq!(outcome(response).await, expected, "{name} {route:?} {dialect:?}");
                assert_eq!(issuer.all_calls(), before + 1, "{name} {route:?}");
            }
        }
        issuer.script(IssuerRoute::Device, [json_answer("404 Not Found", &json!({}))]);
        let problem = expect_problem(begin(&runtime).await, 502, "BACKEND_FAILED").await;
        assert!(
            problem["detail"].as_str().is_some_and(|detail| detail.contains("no device sign-in")),
            "{problem}"
        );
        issuer.script(IssuerRoute::Poll, [page("403 Forbidden", "")]);
        let problem = expect_problem(poll(&runtime, handle).await, 502, "BACKEND_FAILED").await;
        assert_eq!(problem["detail"], "the request was turned away before it reached the issuer");
        assert_eq!(issuer.complaints(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_poll_is_read_by_its_code_before_its_status() {
    let cases: &[(DeviceAuthDialect, Vec<Step>, &str)] = &[
        (Codex, json_answer("403 Forbidden", &json!({"error": "access_denied"})), "access_denied"),
        (Codex, json_answer("404 Not Found", &json!({"code": "authorization_declined"})), "access_denied"),
        (Codex, json_response("404 Not Found", "", ""), "authorization_pending"),
        (Codex, json_response("403 Forbidden", "", ""), "authorization_pending"),
        (Codex, json_answer("403 Forbidden", &json!({"detail": "x"})), "authorization_pending"),
        (Codex, json_answer("403 Forbidden", &json!({"error": {"code": "x"}})), BACKEND_FAILED),
        (Codex, json_answer("410 Gone", &json!({})), "access_denied"),
        (Codex, json_answer("429 Too Many Requests", &json!({"error": "slow_down"})), "slow_down"),
        (
            Codex,
            json_answer("400 Bad Request", &json!({"error": {"code": "expired_token"}})),
            "expired_token",
        ),
        (Rfc8628, json_answer("200 OK", &json!({"error": "authorization_pending"})), "authorization_pending"),
        (Rfc8628, json_answer("403 Forbidden", &json!({"error": "access_denied"})), "access_denied"),
        (Rfc8628, json_response("403 Forbidden", "", ""), BACKEND_FAILED),
        (Rfc8628, json_answer("400 Bad Request", &json!({"error": "invalid_grant"})), "expired_token"),
        (Rfc8628, json_answer("400 Bad Request", &json!({"error": "invalid_request"})), BACKEND_FAILED),
    ];
    for (dialect, script, expected) in cases {
        let issuer = FakeIssuer::start(*dialect).await;
        let runtime = runtime_for(&issuer).await;
        let started = expect_ok(begin(&runtime).await).await;
        issuer.script(IssuerRoute::Poll, [script.clone()]);
        let response = poll(&runtime, started["device_code"].as_str().expect("a handle")).await;
        assert_eq!(outcome(response).await, *expected, "{dialect:?} {script:?}");
    }
}

#[tokio::test]
async fn a_code_is_exchanged_with_its_own_verifier_only() {
    let issuer = FakeIssuer::start(Codex).await;
    let runtime = runtime_for(&issuer).await;
    let started = expect_ok(begin(&runtime).await).await;
    let handle = started["device_code"].as_str().expect("a handle");
    let pair = |code: Value, verifier: Value, challenge: Value| {
        ok(&json!({"authorization_code": code, "code_verifier": verifier, "code_challenge": challenge}))
    };
    let (code, verifier, challenge) = (json!("c-canary"), json!(CODE_VERIFIER), json!(CODE_CHALLENGE));
    for script in [
        pair(code.clone(), verifier.clone(), json!(CODE_VERIFIER)),
        pair(code.clone(), json!("another-verifier-of-at-least-43-characters-1"), challenge.clone()),
        pair(code.clone(), verifier.clone(), json!(null)),
        pair(code.clone(), json!(null), challenge.clone()),
        pair(json!(""), verifier.clone(), challenge.clone()),
        pair(json!("c\r\n"), verifier.clone(), challenge.clone()),
        pair(json!("x".repeat(5000)), verifier.clone(), challenge.clone()),
    ] {
        issuer.script(IssuerRoute::Poll, [script]);
        assert_eq!(outcome(poll(&runtime, handle).await).await, BACKEND_FAILED);
    }
    assert_eq!(issuer.calls(IssuerRoute::Exchange), 0, "a code was exchanged");
    issuer.script(IssuerRoute::Poll, [pair(code, verifier, challenge)]);
    issuer.script(IssuerRoute::Exchange, [ok(&json!({"access_token": "a"}))]);
    assert_eq!(outcome(poll(&runtime, handle).await).await, "200");
    let exchange = issuer.requests(IssuerRoute::Exchange).pop().expect("an exchange").members;
    let expected = [
        ("client_id", CLIENT_ID.to_owned()),
        ("code", "c-canary".to_owned()),
        ("code_verifier", CODE_VERIFIER.to_owned()),
        ("grant_type", "authorization_code".to_owned()),
        ("redirect_uri", format!("{}/deviceauth/callback", issuer.url())),
    ];
    assert!(exchange.iter().map(|(name, value)| (name.as_str(), value.clone())).eq(expected), "{exchange:?}");
}

#[tokio::test]
async fn tokens_are_read_as_far_as_they_are_sound() {
    let issuer = FakeIssuer::start(Codex).await;
    let runtime = runtime_for(&issuer).await;
    let of_account = |id: &str| {
        unsigned_jwt(
            &json!({"https://api.openai.com/auth": {"chatgpt_account_id": id}, "exp": 4_102_444_800_u64}),
        )
    };
    let two_parts = of_account("acc").rsplit_once('.').expect("three parts").0.to_owned();
    let least = json!({"access_token": "a", "token_type": "Bearer", "expires_in": 3600});
    let with = |name: &str, value: &str| {
        let mut tokens = least.clone();
        tokens[name] = value.into();
        tokens
    };
    let cases = [
        (json!({"access_token": "a"}), least.clone()),
        (json!({"access_token": "a", "refresh_token": null, "expires_in": "soon"}), least.clone()),
        (json!({"access_token": "a", "id_token": of_account("acc")}), with("account_id", "acc")),
        (json!({"access_token": "a", "id_token": two_parts}), least.clone()),
        (json!({"access_token": "a", "id_token": of_account("acc\r\nx: y")}), least.clone()),
        (json!({"access_token": "a", "id_token": "x.y.z"}), least.clone()),
        (json!({"access_token": "a", "scope": "x\ny"}), least.clone()),
        (json!({"access_token": "a", "scope": "x y"}), with("scope", "x y")),
        (
            json!({"access_token": "a", "expires_in": 1e18}),
            json!({
            "access_token": "a", "token_type": "Bearer", "expires_in": 31_536_000}),
        ),
    ];
    for (answer, expected) in cases {
        issuer.script(IssuerRoute::Refresh, [ok(&answer)]);
        assert_eq!(expect_ok(refresh(&runtime, "r").await).await, expected, "{answer}");
    }
    let access = of_account("acc-2");
    issuer.script(IssuerRoute::Refresh, [ok(&json!({"access_token": access}))]);
    let body = expect_ok(refresh(&runtime, "r").await).await;
    assert_eq!(body["account_id"], "acc-2");
    assert!(body["expires_in"].as_u64().is_some_and(|seconds| seconds > 3600), "{body}");
    for bad in [
        json!({}),
        json!({"access_token": ""}),
        json!({"access_token": "a\r\nb"}),
        json!({"access_token": "a", "token_type": "mac"}),
        json!({"access_token": "a", "refresh_token": "r\n"}),
        json!({"access_token": "x".repeat(16_385)}),
    ] {
        issuer.script(IssuerRoute::Refresh, [ok(&bad)]);
        assert_eq!(outcome(refresh(&runtime, "r").await).await, BACKEND_FAILED, "{bad:.80}");
    }
}

#[tokio::test]
async fn an_invalid_refresh_token_has_its_reason_from_any_field() {
    let words = [
        ("invalid_grant", "invalid_grant unknown"),
        ("refresh_token_expired", "invalid_grant expired"),
        ("token_expired", "invalid_grant expired"),
        ("refresh_token_reused", "invalid_grant reused"),
        ("refresh_token_invalidated", "invalid_grant revoked"),
    ];
    for dialect in DIALECTS {
        let issuer = FakeIssuer::start(dialect).await;
        let runtime = runtime_for(&issuer).await;
        for (word, expected) in words {
            for body in [
                json!({"error": word, "error_description": "canary"}),
                json!({"error": {"code": word, "message": "canary"}}),
                json!({"code": word}),
            ] {
                for status in ["400 Bad Request", "401 Unauthorized"] {
                    issuer.script(IssuerRoute::Refresh, [json_answer(status, &body)]);
                    let response = refresh(&runtime, "r").await;
                    assert_eq!(outcome(response).await, expected, "{dialect:?} {status} {body}");
                }
            }
        }
        // Of other refusals, only the codex dialect's 401 says that the token is dead.
        let other = json_answer("401 Unauthorized", &json!({"error": {"code": "canary"}}));
        issuer.script(IssuerRoute::Refresh, [other]);
        let expected = if dialect == Codex { "invalid_grant unknown" } else { BACKEND_FAILED };
        assert_eq!(outcome(refresh(&runtime, "r").await).await, expected);
        issuer
            .script(IssuerRoute::Refresh, [json_answer("403 Forbidden", &json!({"error": "access_denied"}))]);
        assert_eq!(outcome(refresh(&runtime, "r").await).await, BACKEND_FAILED);
    }
}

#[tokio::test]
async fn a_truncated_response_is_an_error() {
    let issuer = FakeIssuer::start(Rfc8628).await;
    let runtime = runtime_for(&issuer).await;
    let [Step::Send(response_bytes)] = &ok(&json!({"access_token": "a", "refresh_token": "r"}))[..] else {
        panic!("one write")
    };
    let head = response_bytes.windows(4).position(|window| window == b"\r\n\r\n").expect("a head") + 4;
    for end in 0..response_bytes.len() {
        issuer.script(IssuerRoute::Refresh, [vec![raw(&response_bytes[..end]), Step::Close]]);
        let expected = if end < head { "502 BACKEND_UNREACHABLE" } else { BACKEND_FAILED };
        assert_eq!(outcome(refresh(&runtime, "r").await).await, expected, "cut at {end}");
    }
    assert_eq!(issuer.calls(IssuerRoute::Refresh), response_bytes.len(), "it is sent once");
    issuer.script(IssuerRoute::Refresh, [vec![raw(&response_bytes[..])]]);
    assert_eq!(outcome(refresh(&runtime, "r").await).await, "200");
}

#[tokio::test]
async fn an_issuer_that_does_not_answer_is_a_timeout() {
    let issuer = FakeIssuer::start(Codex).await;
    let runtime = runtime_for(&issuer).await;
    let begun = expect_ok(begin(&runtime).await).await;
    let handle = begun["device_code"].as_str().expect("a handle");
    let pair =
        json!({"authorization_code": "c", "code_verifier": CODE_VERIFIER, "code_challenge": CODE_CHALLENGE});
    let pair = pair.to_string();
    let head = |length: usize| {
        raw(format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"))
    };
    let gate = watch::Sender::new(false);
    issuer.script(IssuerRoute::Device, [vec![Step::Stall]]);
    issuer.script(IssuerRoute::Refresh, [vec![head(99), Step::Stall]]);
    issuer.script(IssuerRoute::Poll, [vec![head(pair.len()), Step::Until(gate.subscribe()), raw(pair)]]);
    issuer.script(IssuerRoute::Exchange, [vec![head(99), Step::Stall]]);
    let starting = async {
        assert_eq!(outcome(begin(&runtime).await).await, "504 BACKEND_TIMEOUT");
        // The poll is answered when half of its time is over. The exchange of its code is never answered.
        gate.send_replace(true);
        issuer.wait_for_calls(IssuerRoute::Exchange, 1).await;
    };
    let polling = async { outcome(poll(&runtime, handle).await).await };
    let refreshing = async { outcome(refresh(&runtime, "r").await).await };
    let ((), polled, refreshed) = tokio::join!(starting, polling, refreshing);
    assert_eq!((polled.as_str(), refreshed.as_str()), ("504 BACKEND_TIMEOUT", "504 BACKEND_TIMEOUT"));
    assert_eq!(issuer.all_calls(), 5, "nothing is sent twice");
}

#[tokio::test]
async fn a_refused_connection_to_the_issuer_is_reported_as_unreachable() {
    let address = refused_url();
    for dialect in ["rfc8628", "codex"] {
        let settings = [
            ("CODING_AUTH_URL", address.as_str()),
            ("CODING_AUTH_DIALECT", dialect),
            ("CODING_CLIENT_ID", "c"),
            ("CODING_REVOKE_URL", address.as_str()),
        ];
        let runtime = runtime(&settings).await;
        let revoked = super::post(&runtime, "/coding-auth/revoke", &json!({"token": "t"})).await;
        for response in [begin(&runtime).await, refresh(&runtime, "r").await, revoked] {
            assert_eq!(outcome(response).await, "502 BACKEND_UNREACHABLE");
        }
    }
}
