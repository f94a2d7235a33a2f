use agent_core::context::LayerError;
use agent_core::error::AgentError;
use agent_core::turn::TurnError;
use agent_platform::coding::CodingTokenError;
use agent_platform::records::StoreError;
use http_body_util::BodyExt;
use serde_json::json;

use super::*;

fn id() -> RequestId {
    RequestId::from_headers(&HeaderMap::from_iter([(RequestId::HEADER, HeaderValue::from_static("req-1"))]))
}

async fn problem(error: HttpError) -> (HeaderMap, Value) {
    let (head, body) = error.into_response(&id()).into_parts();
    let body = body.collect().await.expect("a full body does not fail").to_bytes();
    (head.headers, serde_json::from_slice(&body).expect("JSON"))
}

#[test]
fn every_code_has_a_distinct_error() {
    let mut words: Vec<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
    words.sort_unstable();
    words.dedup();
    assert_eq!(words.len(), Code::ALL.len());
    for code in Code::ALL {
        assert!(code.status().is_client_error() || code.status().is_server_error(), "{code}");
        assert!(code.as_str().bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_'), "{code}");
        assert_ne!(code.title(), "Error", "{code}");
    }
}

/// Returns the rows of the documentation's table of codes, each with its status and its code.
fn documented_codes() -> Vec<(u16, &'static str)> {
    let documentation = include_str!("../../../docs/http-api.md");
    let (_, rows) = documentation.split_once("\n| status | `code` | cause |\n").expect("the table of codes");
    let rows = rows.lines().skip(1).map_while(|row| row.strip_prefix("| "));
    let cells = rows.map(|row| {
        let (status, rest) = row.split_once(" | `").expect("a status");
        (status, rest.split_once("` |").expect("a code").0)
    });
    // A code without a status is never one of a response.
    cells.filter_map(|(status, code)| Some((status.parse().ok()?, code))).collect()
}

#[test]
fn the_documentation_has_each_code_with_its_status() {
    let mut documented = documented_codes();
    let mut codes: Vec<_> = Code::ALL.iter().map(|code| (code.status().as_u16(), code.as_str())).collect();
    documented.sort_unstable();
    codes.sort_unstable();
    assert_eq!(documented, codes);
}

#[tokio::test]
async fn a_problem_has_the_members_of_the_standard_and_ours() {
    let (headers, body) = problem(
        HttpError::new(Code::NoConnector, "no rule matches")
            .with_member("selection", json!([1, 2]))
            .with_member("status", json!(200)),
    )
    .await;
    assert_eq!(headers[CONTENT_TYPE], PROBLEM_JSON);
    assert_eq!(headers[RequestId::HEADER], "req-1");
    assert_eq!(
        body,
        json!({
            "type": "about:blank", "title": "Unprocessable Entity", "status": 422, "detail": "no rule matches",
            "code": "NO_CONNECTOR", "requestId": "req-1", "selection": [1, 2],
        })
    );
}

#[tokio::test]
async fn the_internal_cause_is_not_in_the_response() {
    let (headers, body) = problem(HttpError::internal(std::io::Error::other("db at 10.0.0.7"))).await;
    assert!(!format!("{headers:?}{body}").contains("10.0.0.7"));
}

#[tokio::test]
async fn a_policy_of_our_own_is_named_in_the_problem() {
    let policy = RatePolicy { name: "minute".into(), quota: 20, window: Some(Duration::from_secs(60)) };
    let (_, body) = problem(HttpError::with_limit(policy, Duration::from_secs(1))).await;
    assert_eq!(
        (&body["type"], &body["violated-policies"]),
        (&json!(policy::QUOTA_EXCEEDED), &json!(["minute"]))
    );
    let (_, body) = problem(HttpError::rate_limited(None)).await;
    assert_eq!((&body["type"], &body["violated-policies"]), (&json!("about:blank"), &Value::Null));
}

#[tokio::test]
async fn headers_follow_the_code() {
    let cases: Vec<(HttpError, &[(&str, &str)])> = vec![
        (HttpError::method_not_allowed(vec![Method::GET, Method::POST]), &[("allow", "GET, POST")]),
        (HttpError::method_not_allowed(vec![]), &[("allow", "")]),
        (HttpError::unauthenticated("a session is required"), &[("www-authenticate", "Bearer")]),
        (HttpError::invalid_token("x"), &[("www-authenticate", "Bearer error=\"invalid_token\"")]),
        (
            HttpError::rate_limited(Some(Duration::from_millis(2500))),
            &[("retry-after", "3"), ("ratelimit", "\"default\";r=0;t=3")],
        ),
        (HttpError::rate_limited(None), &[("retry-after", "5"), ("ratelimit", "\"default\";r=0;t=5")]),
        (
            HttpError::with_limit(
                RatePolicy { name: "minute".into(), quota: 20, window: Some(Duration::from_secs(60)) },
                Duration::from_millis(2100),
            ),
            &[
                ("retry-after", "3"),
                ("ratelimit", "\"minute\";r=0;t=3"),
                ("ratelimit-policy", "\"minute\";q=20;w=60"),
            ],
        ),
        (
            HttpError::with_limit(
                RatePolicy { name: "company-concurrent".into(), quota: 64, window: None },
                Duration::from_secs(5),
            ),
            &[("ratelimit-policy", "\"company-concurrent\";q=64;qu=\"concurrent-requests\"")],
        ),
        (
            HttpError::conflict("in progress").with_retry_after(Duration::from_secs(1)),
            &[("retry-after", "1")],
        ),
        (HttpError::not_configured("X").prevent_caching(), &[("cache-control", "no-store")]),
    ];
    for (error, expected) in cases {
        let name = error.to_string();
        let (headers, _) = problem(error).await;
        for (header, value) in expected {
            assert_eq!(headers.get(*header).map(HeaderValue::as_bytes), Some(value.as_bytes()), "{name}");
        }
    }
}

#[tokio::test]
async fn a_failed_run_keeps_its_kind_and_message() {
    use agent_core::error::AgentErrorKind::*;
    let cases = [
        (Unreachable, 502),
        (Failed, 502),
        (Timeout, 504),
        (RateLimited, 429),
        (Truncated, 502),
        (ToolLoopLimit, 502),
        (OutputTooLarge, 502),
        (OutputInvalid, 502),
        (ContextExceeded, 502),
        (Blocked, 403),
        (UnsupportedContent, 422),
        (BudgetExceeded, 402),
        (PriceUnknown, 422),
        (NotConfigured, 503),
        (ProviderNotImplemented, 501),
        (UnknownProvider, 400),
        (InvalidRequest, 400),
        (Internal, 500),
    ];
    for (kind, status) in cases {
        let failure = AgentError::new(kind, "in public").with_source("in private");
        let (headers, body) = problem(failure.with_retry_after(Duration::from_secs(7)).into()).await;
        assert_eq!(body["status"], status);
        assert_eq!(body["code"], kind.code());
        assert_eq!(body["detail"], "in public");
        assert_eq!(headers[RETRY_AFTER], "7");
        assert!(!body.to_string().contains("private"));
    }
}

#[tokio::test]
async fn a_store_without_its_setting_names_it_and_other_errors_are_internal() {
    for (error, status, detail) in [
        (StoreError::NotConfigured("DATA_SECRET"), 503, Some("DATA_SECRET is not set")),
        (StoreError::unavailable("db at 10.0.0.7"), 503, None),
    ] {
        let (_, body) = problem(TurnError::from(error).into()).await;
        assert_eq!(body["status"], status);
        assert!(detail.is_none_or(|detail| body["detail"] == detail), "{body}");
        assert!(!body.to_string().contains("10.0.0.7"));
    }
    let unavailable = || StoreError::unavailable("db at 10.0.0.7");
    let errors = [
        HttpError::from(TurnError::from(LayerError::from(unavailable()))),
        TurnError::Tools(unavailable().into()).into(),
        AgentError::from(CodingTokenError::from(unavailable())).into(),
        HttpError::from_tool_list(unavailable().into()),
    ];
    for error in errors {
        let (headers, body) = problem(error).await;
        assert_eq!((&body["status"], &body["code"]), (&json!(503), &json!("STORE_UNAVAILABLE")), "{body}");
        assert_eq!(headers[RETRY_AFTER], "2");
        assert!(!body.to_string().contains("10.0.0.7"));
    }
}

#[test]
fn all_causes_are_displayed() {
    let error = HttpError::not_found().with_source(std::io::Error::other("inner"));
    let outer = HttpError::internal(error);
    assert_eq!(ErrorChain(outer.source().expect("a cause")).to_string(), "NOT_FOUND: not found: inner");
}

#[test]
fn an_error_is_at_most_64_bytes() {
    assert!(size_of::<HttpError>() <= 64);
}
