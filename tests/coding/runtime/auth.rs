//! Sign-in, refresh and revocation with an issuer that behaves.

use std::time::{SystemTime, UNIX_EPOCH};

use agent_client::device_auth::DeviceAuthDialect;
use agent_core::secret::Secret;
use agent_platform::seal::Sealer;
use serde_json::{Value, json};

use super::{
    DIALECTS, RUNTIME_SECRET, begin, expect_oauth_error, expect_ok, outcome, poll, post, refresh, runtime,
    runtime_for,
};
use crate::support::issuer::{FakeIssuer, IssuerRoute, RefreshState, json_answer};
use crate::support::server::{self, Server};
use crate::support::{client, expect_problem};

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_else(|| panic!("no {name} in {value}"))
}

fn names(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

/// Signs in and returns the handle and the tokens.
async fn sign_in(runtime: &Server, issuer: &FakeIssuer) -> (String, Value) {
    let started = expect_ok(begin(runtime).await).await;
    issuer.approve(text(&started, "user_code"));
    let handle = text(&started, "device_code").to_owned();
    let tokens = expect_ok(poll(runtime, &handle).await).await;
    (handle, tokens)
}

#[tokio::test]
async fn a_person_signs_in_in_either_dialect() {
    for dialect in DIALECTS {
        let issuer = FakeIssuer::start(dialect).await;
        let runtime = runtime_for(&issuer).await;
        let started = expect_ok(begin(&runtime).await).await;
        let (handle, user_code) = (text(&started, "device_code"), text(&started, "user_code"));
        assert!(handle.starts_with("agd_v1.") && handle.len() <= 2048, "{handle}");
        assert!(!handle.contains("canary"), "{handle}");
        assert_eq!(user_code, "CODE-0001");
        assert_eq!(started["interval"], 5);
        let lifetime = match dialect {
            DeviceAuthDialect::Rfc8628 => {
                assert_eq!(started["verification_uri"], "https://issuer.example/device");
                let complete = "https://issuer.example/device?code=CODE-0001";
                assert_eq!(started["verification_uri_complete"], complete);
                600
            }
            DeviceAuthDialect::Codex => {
                assert_eq!(started["verification_uri"], format!("{}/codex/device", issuer.url()));
                assert!(started.get("verification_uri_complete").is_none());
                900
            }
        };
        assert_eq!(started["expires_in"], lifetime);

        for _ in 0..2 {
            assert_eq!(expect_oauth_error(poll(&runtime, handle).await, "authorization_pending").await, None);
        }
        issuer.approve(user_code);
        let tokens = expect_ok(poll(&runtime, handle).await).await;
        let mut expected = vec!["access_token", "token_type", "expires_in", "refresh_token", "scope"];
        if dialect == DeviceAuthDialect::Codex {
            expected.extend(["account_id", "plan"]);
            assert_eq!((text(&tokens, "account_id"), text(&tokens, "plan")), ("account-canary-1", "plus"));
        }
        assert_eq!(names(&tokens), expected, "no id token");
        assert_eq!((text(&tokens, "token_type"), &tokens["expires_in"]), ("Bearer", &json!(864_000)));
        // The issuer gives the tokens of a code once.
        expect_oauth_error(poll(&runtime, handle).await, "expired_token").await;

        let first = text(&tokens, "refresh_token");
        let refreshed = expect_ok(refresh(&runtime, first).await).await;
        assert_eq!(names(&refreshed), expected);
        let second = text(&refreshed, "refresh_token");
        assert_ne!(first, second);
        let reason = expect_oauth_error(refresh(&runtime, first).await, "invalid_grant").await;
        assert_eq!(reason.as_deref(), Some("reused"));
        for (state, expected) in [(RefreshState::Expired, "expired"), (RefreshState::Revoked, "revoked")] {
            issuer.set_refresh_token(second, state);
            let reason = expect_oauth_error(refresh(&runtime, second).await, "invalid_grant").await;
            assert_eq!(reason.as_deref(), Some(expected));
        }
        let reason = expect_oauth_error(refresh(&runtime, "never-issued").await, "invalid_grant").await;
        assert_eq!(reason.as_deref(), Some("unknown"));

        let revocation = json!({"token": second, "token_type_hint": "refresh_token"});
        let revoked = expect_ok(post(&runtime, "/coding-auth/revoke", &revocation).await).await;
        assert_eq!(revoked, json!({"revoked": true}));
        assert_eq!(issuer.revoked(), [second]);
        assert_eq!(issuer.refresh_token(second), Some(RefreshState::Revoked));
        assert_eq!(issuer.complaints(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_sign_in_that_is_refused_or_has_expired_is_over() {
    for dialect in DIALECTS {
        let issuer = FakeIssuer::start(dialect).await;
        let runtime = runtime_for(&issuer).await;
        for expected in ["access_denied", "expired_token"] {
            let started = expect_ok(begin(&runtime).await).await;
            let user_code = text(&started, "user_code");
            if expected == "access_denied" {
                issuer.deny(user_code);
            } else {
                issuer.expire(user_code);
            }
            expect_oauth_error(poll(&runtime, text(&started, "device_code")).await, expected).await;
        }
        assert_eq!(issuer.calls(IssuerRoute::Exchange), 0);
        assert_eq!(issuer.complaints(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn an_issuer_slows_polls_down() {
    let issuer = FakeIssuer::start(DeviceAuthDialect::Rfc8628).await;
    issuer.set_interval(60, true);
    let runtime = runtime_for(&issuer).await;
    let started = expect_ok(begin(&runtime).await).await;
    assert_eq!(started["interval"], 60);
    let handle = text(&started, "device_code");
    expect_oauth_error(poll(&runtime, handle).await, "authorization_pending").await;
    expect_oauth_error(poll(&runtime, handle).await, "slow_down").await;
    assert_eq!(issuer.early_polls(), 1);
}

#[tokio::test]
async fn the_scope_of_a_request_precedes_the_operators() {
    let issuer = FakeIssuer::start(DeviceAuthDialect::Rfc8628).await;
    let settings = issuer.settings();
    let mut settings: Vec<_> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let plain = runtime(&settings).await;
    settings.push(("CODING_SCOPE", "of the-operator"));
    let scoped = runtime(&settings).await;
    let cases = [
        (&plain, json!({}), None),
        (&plain, json!({"scope": null}), None),
        (&plain, json!({"scope": ""}), None),
        (&plain, json!({"scope": "openid a:b"}), Some("openid a:b")),
        (&scoped, json!({}), Some("of the-operator")),
        (&scoped, json!({"scope": "openid"}), Some("openid")),
    ];
    for (runtime, body, expected) in cases {
        expect_ok(post(runtime, "/coding-auth/device", &body).await).await;
        let sent = issuer.requests(IssuerRoute::Device).pop().expect("a request");
        assert_eq!(sent.members.get("scope").map(String::as_str), expected, "{body}");
    }
    assert_eq!(issuer.complaints(), Vec::<String>::new());
}

/// Returns a handle as the runtime would make it, for an issuer at `origin`.
fn forge(origin: &str, dialect: &str, content: &Value) -> String {
    let sealer = Sealer::new(&Secret::new(RUNTIME_SECRET), None);
    let text = Secret::new(content.to_string());
    format!("agd_{}", sealer.seal(&["coding", "device", origin, dialect], &text).expect("sealed"))
}

#[tokio::test]
async fn a_handle_that_is_not_good_is_expired_without_a_call() {
    let issuer = FakeIssuer::start(DeviceAuthDialect::Rfc8628).await;
    let runtime = runtime_for(&issuer).await;
    let started = expect_ok(begin(&runtime).await).await;
    let handle = text(&started, "device_code");
    let origin = format!("http://{}", issuer.address);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
    let content = |expiry: u64| json!({"d": "device-code-canary-1", "u": "CODE-0001", "n": 5, "x": expiry});

    // A handle that was made outside is valid, so that the handles below are refused for their own faults.
    let good = forge(&origin, "rfc8628", &content(now + 60));
    expect_oauth_error(poll(&runtime, &good).await, "authorization_pending").await;
    let calls = issuer.all_calls();
    let mut flipped = handle.as_bytes().to_vec();
    let middle = flipped.len() - 20;
    flipped[middle] = if flipped[middle] == b'A' { b'B' } else { b'A' };
    let bad = [
        String::new(),
        "x".to_owned(),
        "\0".to_owned(),
        format!("{handle}\0"),
        handle.trim_start_matches("agd_").to_owned(),
        handle[..handle.len() - 1].to_owned(),
        String::from_utf8(flipped).expect("text"),
        "x".repeat(10_000),
        "device-code-canary-1".to_owned(),
        forge(&origin, "rfc8628", &content(now - 1)),
        forge(&origin, "rfc8628", &content(0)),
        forge(&origin, "rfc8628", &content(u64::MAX)),
        forge(&origin, "codex", &content(now + 60)),
        forge("https://other.example", "rfc8628", &content(now + 60)),
        forge(&origin, "rfc8628", &json!({"i": "device-code-canary-1", "u": "C", "n": 5, "x": now + 60})),
        forge(&origin, "rfc8628", &json!({})),
        forge(&origin, "rfc8628", &json!("text")),
    ];
    for handle in bad {
        expect_oauth_error(poll(&runtime, &handle).await, "expired_token").await;
    }
    let long = poll(&runtime, &"x".repeat(1 << 20)).await;
    expect_problem(long, 413, "PAYLOAD_TOO_LARGE").await;

    // A runtime with another secret, another dialect or another issuer does not take it.
    let settings = issuer.settings();
    let other = FakeIssuer::start(DeviceAuthDialect::Rfc8628).await;
    for (changed, value) in [
        ("RUNTIME_SECRET", "another-secret-0123456789"),
        ("CODING_AUTH_DIALECT", "codex"),
        ("CODING_AUTH_URL", other.url().as_str()),
    ] {
        let mut env = vec![("RUNTIME_SECRET", RUNTIME_SECRET)];
        env.extend(settings.iter().map(|(name, value)| (*name, value.as_str())));
        env.push((changed, value));
        let secret = if changed == "RUNTIME_SECRET" { value } else { RUNTIME_SECRET };
        let elsewhere = server::runtime(&env).await;
        let request = elsewhere.request("POST", "/coding-auth/token").bearer_auth(secret);
        let response = request.json(&json!({"device_code": good})).send().await.expect("an answer");
        expect_oauth_error(response, "expired_token").await;
    }
    assert_eq!(issuer.all_calls(), calls, "the issuer was asked");
    assert_eq!(other.all_calls(), 0);
    // Another runtime with the same secret takes it.
    let twin = runtime_for(&issuer).await;
    expect_oauth_error(poll(&twin, handle).await, "authorization_pending").await;
}

#[tokio::test]
async fn a_runtime_without_a_secret_has_its_own_handles() {
    let issuer = FakeIssuer::start(DeviceAuthDialect::Codex).await;
    let settings = issuer.settings();
    let settings: Vec<_> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let [first_runtime, other] = [server::runtime(&settings).await, server::runtime(&settings).await];
    let started = expect_ok(begin(&first_runtime).await).await;
    let handle = text(&started, "device_code");
    expect_oauth_error(poll(&first_runtime, handle).await, "authorization_pending").await;
    expect_oauth_error(poll(&other, handle).await, "expired_token").await;
}

#[tokio::test]
async fn the_missing_setting_is_named() {
    let all = [
        ("CODING_AUTH_URL", "http://127.0.0.1:1"),
        ("CODING_AUTH_DIALECT", "rfc8628"),
        ("CODING_CLIENT_ID", "c"),
    ];
    for missing in 0..all.len() {
        let settings: Vec<_> = all
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != missing)
            .map(|(_, setting)| *setting)
            .collect();
        let runtime = runtime(&settings).await;
        for route in ["device", "token", "refresh", "revoke"] {
            let response = post(&runtime, &format!("/coding-auth/{route}"), &json!({})).await;
            assert_eq!(response.headers()["cache-control"], "no-store");
            let problem = expect_problem(response, 503, "NOT_CONFIGURED").await;
            assert_eq!(problem["detail"], format!("{} is not configured", all[missing].0));
        }
    }
}

#[tokio::test]
async fn invalid_requests_are_not_sent() {
    let issuer = FakeIssuer::start(DeviceAuthDialect::Codex).await;
    let runtime = runtime_for(&issuer).await;
    let long = "x".repeat(16 * 1024 - 50);
    let bad = [
        ("device", json!([])),
        ("device", json!("x")),
        ("device", json!({"scope": ["canary"]})),
        ("device", json!({"scope": "canary\n"})),
        ("device", json!({"scope": " canary"})),
        ("device", json!({"scope": "\"canary\""})),
        ("device", json!({"scope": "canäry"})),
        ("device", json!({"scope": "x".repeat(1025)})),
        ("token", json!({})),
        ("token", json!({"device_code": 7})),
        ("token", json!({"device_code": null})),
        ("refresh", json!({})),
        ("refresh", json!({"refresh_token": ""})),
        ("refresh", json!({"refresh_token": "canary\r\n"})),
        ("refresh", json!({"refresh_token": "a canary"})),
        ("refresh", json!({"refresh_token": ["canary"]})),
        ("revoke", json!({"token": ""})),
        ("revoke", json!({"token_type_hint": "refresh_token"})),
        ("revoke", json!({"token": "canary", "token_type_hint": "id_token"})),
        ("revoke", json!({"token": "canary", "token_type_hint": 1})),
    ];
    for (route, body) in bad {
        let response = post(&runtime, &format!("/coding-auth/{route}"), &body).await;
        assert_eq!(response.status(), 400, "{route} {body}");
        let problem = expect_problem(response, 400, "INVALID_REQUEST").await;
        assert!(!problem.to_string().contains("canary"), "{body}: {problem}");
    }
    let twice = runtime.request("POST", "/coding-auth/refresh").bearer_auth(RUNTIME_SECRET);
    let twice = twice.header("content-type", "application/json");
    let twice = twice.body(r#"{"refresh_token":"a","refresh_token":"b"}"#).send().await.expect("an answer");
    assert_eq!(expect_problem(twice, 400, "INVALID_REQUEST").await["detail"], "refresh_token is given twice");
    for route in ["device", "token", "refresh", "revoke"] {
        let path = format!("/coding-auth/{route}");
        let large = json!({"device_code": "x".repeat(17 << 10), "refresh_token": "x"});
        expect_problem(post(&runtime, &path, &large).await, 413, "PAYLOAD_TOO_LARGE").await;
        let request = || client().post(runtime.url(&path)).json(&json!({}));
        for request in [request(), request().bearer_auth("another-secret-0123456789")] {
            expect_problem(request.send().await.expect("an answer"), 401, "UNAUTHENTICATED").await;
        }
        let get = runtime.request("GET", &path).bearer_auth(RUNTIME_SECRET).send().await.expect("an answer");
        expect_problem(get, 405, "METHOD_NOT_ALLOWED").await;
        let plain = runtime.request("POST", &path).bearer_auth(RUNTIME_SECRET).body("{}");
        expect_problem(plain.send().await.expect("an answer"), 415, "UNSUPPORTED_MEDIA_TYPE").await;
    }
    for path in ["/coding-auth", "/coding-auth/", "/coding-auth/x", "/coding-auth/device/"] {
        expect_problem(post(&runtime, path, &json!({})).await, 404, "NOT_FOUND").await;
    }
    assert_eq!(issuer.all_calls(), 0, "the issuer was called");
    // A token of nearly the whole body's size is sent.
    assert_eq!(outcome(refresh(&runtime, &long).await).await, "invalid_grant unknown");
    assert_eq!(issuer.requests(IssuerRoute::Refresh)[0].members["refresh_token"], long);
}

#[tokio::test]
async fn a_token_is_revoked_where_the_issuer_can() {
    let issuer = FakeIssuer::start(DeviceAuthDialect::Rfc8628).await;
    let settings = issuer.settings();
    let without: Vec<_> = settings
        .iter()
        .filter(|(name, _)| *name != "CODING_REVOKE_URL")
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let body = json!({"token": "t"});
    let response_body = expect_ok(post(&runtime(&without).await, "/coding-auth/revoke", &body).await).await;
    assert_eq!((response_body, issuer.all_calls()), (json!({"revoked": false}), 0));
    let runtime = runtime_for(&issuer).await;
    for status in ["400 Bad Request", "401 Unauthorized", "503 Service Unavailable"] {
        let refused = json_answer(status, &json!({"error": "invalid_grant"}));
        issuer.script(IssuerRoute::Revoke, [refused]);
        let body = expect_ok(post(&runtime, "/coding-auth/revoke", &body).await).await;
        assert_eq!(body, json!({"revoked": false}));
    }
    let body = expect_ok(post(&runtime, "/coding-auth/revoke", &body).await).await;
    assert_eq!(body, json!({"revoked": true}));
    assert_eq!(issuer.revoked(), ["t"]);
}

#[tokio::test]
async fn two_issuers_are_two_sign_ins() {
    let [first, second] = [
        FakeIssuer::start(DeviceAuthDialect::Codex).await,
        FakeIssuer::start(DeviceAuthDialect::Codex).await,
    ];
    second.set_account("account-canary-2");
    let (one, two) = (runtime_for(&first).await, runtime_for(&second).await);
    let ((handle, tokens), (_, others)) = (sign_in(&one, &first).await, sign_in(&two, &second).await);
    assert_eq!(text(&tokens, "account_id"), "account-canary-1");
    assert_eq!(text(&others, "account_id"), "account-canary-2");
    let calls = second.all_calls();
    expect_oauth_error(poll(&two, &handle).await, "expired_token").await;
    assert_eq!(second.all_calls(), calls);
    assert_eq!(first.complaints().len() + second.complaints().len(), 0);
}
