//! `POST /coding-chat`: the sent request, and the responses that are passed on.

use reqwest::Response;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{RUNTIME_SECRET, post, runtime};
use crate::support::server::Server;
use crate::support::vendor::{ReceivedRequest, Step, Vendor, chunk, json_response, last_chunk, stream_head};
use crate::support::{client, expect_problem, keep_alive_client, refused_url};

const PATH: &str = "/coding-chat";
const TOKEN: &str = "access-token-canary.with~every_kind-of+character/=";

async fn runtime_for(vendor: &Vendor, settings: &[(&str, &str)]) -> Server {
    let api = format!("http://{}/backend/responses", vendor.address);
    runtime(&[&[("CODING_API_URL", api.as_str())], settings].concat()).await
}

/// Returns a call whose body selects the vendor's script.
fn call(model: &str) -> Value {
    json!({"accessToken": TOKEN, "body": {"model": model, "stream": true, "store": false}})
}

async fn send_raw(runtime: &Server, body: impl Into<reqwest::Body>) -> Response {
    let request = runtime.request("POST", PATH).bearer_auth(RUNTIME_SECRET);
    request.header("content-type", "application/json").body(body).send().await.expect("an answer")
}

/// Returns the headers of a request in alphabetical order, without `Host` and `Content-Length`.
fn headers(request: &ReceivedRequest) -> Vec<String> {
    let mut lines: Vec<String> = request.head.lines().skip(1).map(str::to_owned).collect();
    lines.retain(|line| {
        !line.is_empty() && !line.starts_with("host: ") && !line.starts_with("content-length: ")
    });
    lines.sort();
    lines
}

fn expected_headers(more: &[&str]) -> Vec<String> {
    let authorization = format!("authorization: Bearer {TOKEN}");
    let agent = format!("user-agent: agentd/{}", env!("CARGO_PKG_VERSION"));
    let mut lines: Vec<String> = [
        "accept: text/event-stream",
        "accept-encoding: identity",
        &authorization,
        "content-type: application/json",
        "originator: agentd",
        &agent,
    ]
    .into_iter()
    .chain(more.iter().copied())
    .map(str::to_owned)
    .collect();
    lines.sort();
    lines
}

#[tokio::test]
async fn the_body_is_sent_byte_for_byte_and_nothing_else_of_the_caller() {
    let vendor = Vendor::start().await;
    let runtime = runtime_for(&vendor, &[]).await;
    vendor.on_all(json_response("200 OK", "", "{}"));
    // White space, escapes, order and numbers that not every parser preserves.
    let body = "{ \"stream\" : true,\r\n\t\"store\":false , \"model\":\"m\\u0041\\/\\ud83d\\ude00ü\", \
                \"n\":-0.10e+400, \"big\":123456789012345678901234567890, \"a\":[ ] ,\"prompt_cache_key\":\"0123abcd\" }";
    let text =
        format!("{{\"more\":1, \"body\" : {body} , \"accountId\":\"acc-1\",\"accessToken\":\"{TOKEN}\"}}");
    let request = runtime.request("POST", PATH).bearer_auth(RUNTIME_SECRET).body(text);
    let request = request.header("content-type", "application/json; charset=utf-8");
    let request = request
        .header("cookie", "a=canary")
        .header("user-agent", "canary")
        .header("x-forwarded-for", "1.2.3.4")
        .header("originator", "canary")
        .header("chatgpt-account-id", "canary")
        .header("accept", "application/json")
        .header("accept-encoding", "gzip");
    assert_eq!(request.send().await.expect("an answer").status(), 200);
    let received = vendor.received().pop().expect("a request");
    assert_eq!(received.body, body.as_bytes());
    assert!(received.head.starts_with("POST /backend/responses HTTP/1.1\r\n"), "{}", received.head);
    assert_eq!(
        headers(&received),
        expected_headers(&["chatgpt-account-id: acc-1", "session_id: 0123abcd"]),
        "{}",
        received.head
    );
    assert!(received.head.contains(&format!("host: {}\r\n", vendor.address)));
}

#[tokio::test]
async fn an_account_and_a_key_that_are_none_are_left_out() {
    let vendor = Vendor::start().await;
    let runtime = runtime_for(&vendor, &[("CODING_ORIGINATOR", "another name")]).await;
    vendor.on_all(json_response("200 OK", "", "{}"));
    let mut calls = vec![call("m")];
    for (name, value) in [("accountId", json!("")), ("accountId", json!(null))] {
        let mut body = call("m");
        body[name] = value;
        calls.push(body);
    }
    for key in [json!(""), json!(null), json!(7), json!("a b"), json!("a\r\nx: y"), json!("x".repeat(129))] {
        let mut body = call("m");
        body["body"]["prompt_cache_key"] = key;
        calls.push(body);
    }
    let mut expected = expected_headers(&["originator: another name"]);
    expected.retain(|line| line != "originator: agentd");
    for body in calls {
        assert_eq!(post(&runtime, PATH, &body).await.status(), 200, "{body}");
        let received = vendor.received().pop().expect("a request");
        assert_eq!(headers(&received), expected, "{body}");
        assert_eq!(received.json(), body["body"]);
    }
}

#[tokio::test]
async fn an_invalid_call_is_not_sent_and_names_the_field() {
    let vendor = Vendor::start().await;
    let runtime = runtime_for(&vendor, &[]).await;
    let with = |name: &str, value: Value| {
        let mut body = call("m");
        body[name] = value;
        body.to_string()
    };
    let inner = |name: &str, value: Value| {
        let mut body = call("m");
        body["body"][name] = value;
        body.to_string()
    };
    let without = |name: &str| {
        let mut body = call("m");
        body["body"].as_object_mut().expect("an object").remove(name);
        body.to_string()
    };
    let nested = |levels: usize| -> Value {
        serde_json::from_str(&("[".repeat(levels) + &"]".repeat(levels))).expect("JSON")
    };
    let good = r#""body":{"stream":true,"store":false}"#;
    let cases = [
        (String::new(), "the body is empty"),
        ("canary".to_owned(), "the body is not valid JSON"),
        ("null".to_owned(), "the body must be an object"),
        ("{}".to_owned(), "accessToken is missing"),
        (format!("{{{good}}}"), "accessToken is missing"),
        (json!({"accessToken": TOKEN}).to_string(), "body must be an object"),
        (with("body", json!([])), "body must be an object"),
        (with("body", json!([true, false, "canary"])), "body must be an object"),
        (with("body", json!("canary")), "body must be an object"),
        (with("body", json!(null)), "body must be an object"),
        (with("body", json!({})), "body.stream must be true"),
        (inner("stream", json!(false)), "body.stream must be true"),
        (inner("stream", json!("true")), "body.stream must be true"),
        (without("stream"), "body.stream must be true"),
        (inner("store", json!(true)), "body.store must be false"),
        (inner("store", json!(null)), "body.store must be false"),
        (inner("store", json!(0)), "body.store must be false"),
        (without("store"), "body.store must be false"),
        (with("accessToken", json!("")), "accessToken must be 1 to 16384"),
        (with("accessToken", json!("canary canary")), "accessToken must be"),
        (with("accessToken", json!("canary\r\nx: y")), "accessToken must be"),
        (with("accessToken", json!("canäry")), "accessToken must be"),
        (with("accessToken", json!("x".repeat(16_385))), "accessToken must be"),
        (with("accessToken", json!(["canary"])), "accessToken"),
        (with("accountId", json!("x".repeat(129))), "accountId must be 1 to 128"),
        (with("accountId", json!("canary\n")), "accountId must be"),
        (with("accountId", json!(7)), "accountId"),
        (inner("input", nested(63)), "the body is nested deeper than 64 levels"),
        (r#"{"accessToken":"a","accessToken":"b",BODY}"#.replace("BODY", good), "accessToken is given twice"),
        (
            r#"{"accessToken":"a","body":{"stream":true,"store":false,"stream":true}}"#.to_owned(),
            "body.stream is given twice",
        ),
        (
            r#"{"accessToken":"a","body":{"stream":true,"store":false,"\u0073tore":true}}"#.to_owned(),
            "body.store is given twice",
        ),
        (
            r#"{"accessToken":"a","body":{"stream":true,"store":false,"x":[{"a":1,"a":2}]}}"#.to_owned(),
            "body.x[0].a is given twice",
        ),
        (
            r#"{"accessToken":"a","body":{"stream":true,"store":false}} x"#.to_owned(),
            "the body is not valid JSON",
        ),
        (r#"{"accessToken":"a","body":{"stream":true,"store":false}"#.to_owned(), "the body ends"),
    ];
    for (body, expected) in cases {
        let response = send_raw(&runtime, body.clone()).await;
        assert_eq!(
            response.headers().get("cache-control").map(|value| value.as_bytes()),
            Some(&b"no-store"[..])
        );
        let problem = expect_problem(response, 400, "INVALID_REQUEST").await;
        let detail = problem["detail"].as_str().expect("a detail");
        assert!(detail.starts_with(expected), "{body:.200}: {detail}");
        assert!(!problem.to_string().contains("canary"), "{problem}");
    }
    let request = || client().post(runtime.url(PATH)).json(&call("m"));
    for request in [request(), request().bearer_auth(TOKEN)] {
        expect_problem(request.send().await.expect("an answer"), 401, "UNAUTHENTICATED").await;
    }
    let get = runtime.request("GET", PATH).bearer_auth(RUNTIME_SECRET).send().await.expect("an answer");
    expect_problem(get, 405, "METHOD_NOT_ALLOWED").await;
    expect_problem(post(&runtime, "/coding-chat/", &call("m")).await, 404, "NOT_FOUND").await;
    assert_eq!(vendor.connections(), 0, "the API was called");

    // The deepest body that is allowed is sent.
    vendor.on_all(json_response("200 OK", "", "{}"));
    assert_eq!(send_raw(&runtime, inner("input", nested(62))).await.status(), 200);
}

#[tokio::test]
async fn the_proxied_body_has_its_own_size_limit() {
    let vendor = Vendor::start().await;
    let of_size = |bytes: usize| {
        let mut body = call("m");
        body["body"]["input"] = "".into();
        let missing = bytes - body.to_string().len();
        body["body"]["input"] = "x".repeat(missing).into();
        body
    };
    let default = runtime_for(&vendor, &[("MESSENGER_API_URL", refused_url().as_str())]).await;
    let small = runtime_for(&vendor, &[("CODING_BODY_LIMIT_BYTES", "2048")]).await;
    vendor.on_all(json_response("200 OK", "", "{}"));
    for (runtime, limit) in [(&default, 16 << 20), (&small, 2048)] {
        let largest = of_size(limit);
        assert_eq!(post(runtime, PATH, &largest).await.status(), 200);
        assert_eq!(vendor.received().pop().expect("a request").json(), largest["body"]);
        let problem =
            expect_problem(post(runtime, PATH, &of_size(limit + 1)).await, 413, "PAYLOAD_TOO_LARGE").await;
        assert_eq!(problem["detail"], format!("the body exceeds {limit} bytes"));
    }
    expect_problem(post(&default, PATH, &of_size(17 << 20)).await, 413, "PAYLOAD_TOO_LARGE").await;
    // Other routes keep theirs.
    for path in ["/chat", "/messenger/call"] {
        let response = post(&default, path, &of_size((1 << 20) + 1)).await;
        expect_problem(response, 413, "PAYLOAD_TOO_LARGE").await;
    }
    assert_eq!(vendor.received().len(), 2);
}

#[tokio::test]
async fn without_an_address_the_setting_is_named() {
    let runtime = runtime(&[]).await;
    for body in [call("m"), json!({})] {
        let problem = expect_problem(post(&runtime, PATH, &body).await, 503, "NOT_CONFIGURED").await;
        assert_eq!(problem["detail"], "CODING_API_URL is not configured");
    }
}

/// The response that the caller receives.
enum ExpectedResponse {
    /// The API's status, with this content type and body, and these of its headers.
    Passed(u16, Option<&'static str>, &'static str, Vec<(&'static str, &'static str)>),
    /// A problem of the runtime.
    Problem(u16, &'static str),
}

use ExpectedResponse::{Passed, Problem};

const EVENTS: &str = "data: {\"type\":\"response.completed\"}\n\n";
const LIMIT: &str = r#"{"error":{"type":"usage_limit_reached","resets_in_seconds":60}}"#;

/// Headers of every response of the API that must not pass.
const UNSAFE_HEADERS: &str = "set-cookie: a=canary\r\ncf-ray: canary\r\nserver: canary\r\nalt-svc: canary\r\n\
     access-control-allow-origin: *\r\ncontent-security-policy: canary\r\nwww-authenticate: Basic\r\n\
     x-canary: canary\r\nx-upstream-request-id: canary\r\nopenai-organization: canary\r\n\
     cache-control: public\r\nkeep-alive: timeout=5, canary=1\r\n";

fn response(status: &str, headers: &str, body: &str) -> Vec<Step> {
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\n{UNSAFE_HEADERS}{headers}content-length: {length}\r\n\r\n{body}");
    vec![Step::Send(head.into())]
}

/// Returns the cases: name, script of the API, and expected response.
fn response_cases() -> Vec<(&'static str, Vec<Step>, ExpectedResponse)> {
    const SSE: &str = "content-type: text/event-stream; charset=utf-8\r\n";
    const JSON: &str = "content-type: application/json\r\n";
    const HTML: &str = "content-type: text/html\r\n";
    let sse = Some("text/event-stream; charset=utf-8");
    let json = Some("application/json");
    let failed = || Problem(502, "BACKEND_FAILED");
    let unreachable = || Problem(502, "BACKEND_UNREACHABLE");
    let limits = "x-codex-primary-used-percent: 12.5\r\nX-Codex-Credits: a b\r\nx-ratelimit-remaining-tokens: 7\r\n\
                  retry-after: 35\r\nopenai-model: m\r\nopenai-processing-ms: 7\r\nx-reasoning-included: true\r\n\
                  x-request-id: req_1\r\n";
    let passed = || {
        vec![
            ("x-codex-primary-used-percent", "12.5"),
            ("x-codex-credits", "a b"),
            ("x-ratelimit-remaining-tokens", "7"),
            ("retry-after", "35"),
            ("openai-model", "m"),
            ("openai-processing-ms", "7"),
            ("x-reasoning-included", "true"),
            ("x-upstream-request-id", "req_1"),
        ]
    };
    let unheard = format!("x-codex-a: {}\r\nx-codex-b: \u{fc}\r\n", "x".repeat(257));
    let mut cases = vec![
        ("good", response("200 OK", SSE, EVENTS), Passed(200, sse, EVENTS, vec![])),
        (
            "in-chunks",
            vec![stream_head(), chunk(&EVENTS[..9]), chunk(&EVENTS[9..]), last_chunk()],
            Passed(200, Some("text/event-stream"), EVENTS, vec![]),
        ),
        (
            "headers",
            response("200 OK", &format!("{SSE}{limits}"), EVENTS),
            Passed(200, sse, EVENTS, passed()),
        ),
        (
            "headers-of-error",
            response("429 No", &format!("{JSON}{limits}"), LIMIT),
            Passed(429, json, LIMIT, passed()),
        ),
        (
            "unheard-headers",
            response("200 OK", &format!("{SSE}{unheard}"), EVENTS),
            Passed(200, sse, EVENTS, vec![]),
        ),
        ("created", response("201 Created", JSON, "{}"), Passed(201, json, "{}", vec![])),
        ("json-error-200", response("200 OK", JSON, LIMIT), Passed(200, json, LIMIT, vec![])),
        ("no-type", response("200 OK", "", EVENTS), Passed(200, None, EVENTS, vec![])),
        (
            "identity",
            response("200 OK", &format!("{SSE}content-encoding: identity\r\n"), EVENTS),
            Passed(200, sse, EVENTS, vec![]),
        ),
        (
            "bad-request",
            response("400 Bad Request", JSON, r#"{"detail":"x"}"#),
            Passed(400, json, r#"{"detail":"x"}"#, vec![]),
        ),
        ("unauthorized", response("401 Unauthorized", JSON, "{}"), Passed(401, json, "{}", vec![])),
        (
            "forbidden",
            response("403 Forbidden", "content-type: application/vnd.x+json\r\n", "{}"),
            Passed(403, json, "{}", vec![]),
        ),
        ("not-found", response("404 Not Found", JSON, LIMIT), Passed(404, json, LIMIT, vec![])),
        ("server-error", response("503 No", JSON, "{"), Passed(503, json, "{", vec![])),
        // Problem details are the runtime's own.
        (
            "problem",
            response("401 Unauthorized", "content-type: application/problem+json\r\n", "{}"),
            Passed(401, json, "{}", vec![]),
        ),
        (
            "problem-200",
            response("200 OK", "content-type: application/problem+json\r\n", "{}"),
            Passed(200, json, "{}", vec![]),
        ),
        ("page", response("200 OK", HTML, "<html>canary"), failed()),
        ("page-403", response("403 Forbidden", HTML, "<html>canary"), failed()),
        (
            "challenge",
            response("403 Forbidden", &format!("{JSON}cf-mitigated: challenge\r\n"), "{}"),
            failed(),
        ),
        ("text-error", response("500 No", "content-type: text/plain\r\n", "canary"), failed()),
        ("no-type-error", response("500 No", "", "{}"), failed()),
        ("compressed", response("200 OK", &format!("{SSE}content-encoding: gzip\r\n"), "canary"), failed()),
        (
            "compressed-error",
            response("400 No", &format!("{JSON}content-encoding: br\r\n"), "canary"),
            failed(),
        ),
        (
            "redirect",
            response("307 Temporary Redirect", "location: http://127.0.0.1:1/canary\r\n", ""),
            failed(),
        ),
        ("large-error", response("400 No", JSON, &"x".repeat(65_537)), failed()),
        (
            "cut-error",
            vec![
                Step::Send(
                    "HTTP/1.1 400 No\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{".into(),
                ),
                Step::Close,
            ],
            failed(),
        ),
        ("no-http", vec![Step::Send(b"canary\r\n\r\n".to_vec()), Step::Close], failed()),
        ("reset", vec![Step::Reset], unreachable()),
        ("close", vec![Step::Close], unreachable()),
        ("stall", vec![Step::Stall], Problem(504, "BACKEND_TIMEOUT")),
    ];
    let many: String = (0..80).map(|number| format!("x-codex-{number}: {number}\r\n")).collect();
    cases.push((
        "many-headers",
        response("200 OK", &format!("{SSE}{many}"), EVENTS),
        Passed(200, sse, EVENTS, vec![("x-codex-63", "63")]),
    ));
    cases
}

#[tokio::test]
async fn a_response_passes_or_is_a_problem() {
    let vendor = Vendor::start().await;
    let runtime = runtime_for(&vendor, &[("RESPONSE_HEADER_TIMEOUT_MS", "3000")]).await;
    for (name, script, expected) in response_cases() {
        vendor.on(name, [script]);
        let request_count = vendor.received().len();
        let response = post(&runtime, PATH, &call(name)).await;
        let headers = response.headers().clone();
        assert_eq!(vendor.received().len(), request_count + 1, "{name}: it is sent once");
        assert!(!format!("{headers:?}").contains("canary"), "{name}: {headers:?}");
        assert_eq!(headers["cache-control"], "no-store", "{name}");
        for other in [
            "set-cookie",
            "server",
            "alt-svc",
            "access-control-allow-origin",
            "x-codex-a",
            "x-codex-b",
            "x-codex-64",
        ] {
            assert!(!headers.contains_key(other), "{name}: {other}");
        }
        match expected {
            Passed(status, content_type, body, passed) => {
                assert_eq!(response.status(), status, "{name}");
                let header = |name: &str| headers.get(name).map(|value| value.to_str().expect("text"));
                assert_eq!(header("content-type"), content_type, "{name}");
                assert_eq!(header("x-content-type-options"), Some("nosniff"), "{name}");
                for (header_name, value) in passed {
                    assert_eq!(header(header_name), Some(value), "{name}: {header_name}");
                }
                assert!(header("x-request-id").is_some_and(|id| id != "req_1"), "{name}");
                assert_eq!(response.text().await.expect("a whole body"), body, "{name}");
            }
            Problem(status, code) => {
                let problem = expect_problem(response, status, code).await;
                assert!(!problem.to_string().contains("canary"), "{name}: {problem}");
            }
        }
    }
    vendor.on("page", [response("403 Forbidden", "content-type: text/html\r\n", "<html>")]);
    let response = post(&runtime, PATH, &call("page")).await;
    assert_eq!(response.headers()["retry-after"], "60");
    let problem = expect_problem(response, 502, "BACKEND_FAILED").await;
    assert_eq!(problem["detail"], "the request was turned away before it reached the model");
}

#[tokio::test]
async fn a_refused_connection_is_reported_as_unreachable() {
    let api = format!("{}/", refused_url());
    let runtime = runtime(&[("CODING_API_URL", &api)]).await;
    expect_problem(post(&runtime, PATH, &call("m")).await, 502, "BACKEND_UNREACHABLE").await;
}

#[tokio::test]
async fn bytes_are_passed_on_unbuffered() {
    let vendor = Vendor::start().await;
    let runtime = runtime_for(&vendor, &[]).await;
    let (open, gate) = watch::channel(false);
    vendor.on("m", [vec![stream_head(), chunk("first"), Step::Until(gate), chunk("second"), last_chunk()]]);
    let mut response = post(&runtime, PATH, &call("m")).await;
    assert_eq!(response.headers()["x-accel-buffering"], "no");
    assert_eq!(response.chunk().await.expect("readable").as_deref(), Some(&b"first"[..]));
    open.send_replace(true);
    assert_eq!(response.chunk().await.expect("readable").as_deref(), Some(&b"second"[..]));
    assert_eq!(response.chunk().await.expect("readable"), None);
}

#[tokio::test]
async fn a_truncated_body_is_an_error_for_the_client() {
    let vendor = Vendor::start().await;
    let runtime = runtime_for(&vendor, &[("CODING_STREAM_IDLE_MS", "1000")]).await;
    for (name, end) in [("close", Step::Close), ("reset", Step::Reset), ("silence", Step::Stall)] {
        vendor.on(name, [vec![stream_head(), chunk("part"), end]]);
        let mut response = post(&runtime, PATH, &call(name)).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.chunk().await.expect("readable").as_deref(), Some(&b"part"[..]), "{name}");
        response.chunk().await.expect_err("it broke off");
    }
    vendor.wait_for_disconnects(1).await;
}

#[tokio::test]
async fn a_client_that_leaves_cancels_the_request() {
    let vendor = Vendor::start().await;
    let runtime = runtime_for(&vendor, &[]).await;
    // In the middle of the body.
    vendor.on("body", [vec![stream_head(), chunk("part"), Step::Stall]]);
    let mut response = post(&runtime, PATH, &call("body")).await;
    assert_eq!(response.chunk().await.expect("readable").as_deref(), Some(&b"part"[..]));
    drop(response);
    vendor.wait_for_disconnects(1).await;
    // Before the head.
    vendor.on("head", [vec![Step::Stall]]);
    let waiting = tokio::spawn({
        let request = runtime.request("POST", PATH).bearer_auth(RUNTIME_SECRET).json(&call("head"));
        async move { request.send().await.map(drop) }
    });
    vendor.wait_for_requests("head", 1).await;
    waiting.abort();
    vendor.wait_for_disconnects(2).await;
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let vendor = Vendor::start().await;
    let runtime = runtime_for(&vendor, &[]).await;
    vendor.on_all(vec![stream_head(), chunk(EVENTS), last_chunk()]);
    // Each connection has a worker, which has separate connections.
    let client = keep_alive_client();
    for _ in 0..3 {
        let request = client.post(runtime.url(PATH)).bearer_auth(RUNTIME_SECRET).json(&call("m"));
        let response = request.send().await.expect("an answer");
        assert_eq!(response.text().await.expect("a whole body"), EVENTS);
    }
    assert_eq!(vendor.connections(), 1);
}
