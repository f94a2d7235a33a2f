//! `POST /messenger/call`: requests and responses that are passed through between the caller and a messenger's bot
//! API, and those that are not.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::server::{self, Server};
use crate::support::vendor::{Step, Vendor, chunk, json_response, last_chunk};
use crate::support::{client, expect_problem, refused_url};

const SECRET: &str = "runtime-canary-0123456789";
/// Time-out in milliseconds for the upstream's response head, and again for its body.
const RESPONSE_TIMEOUT_MS: &str = "2500";
const SENT: &str = r#"{"ok":true,"result":{"message_id":7}}"#;
const CALL: &str = "/messenger/call";

async fn runtime(api: &str) -> Server {
    server::runtime(&[
        ("MESSENGER_API_URL", api),
        ("RUNTIME_SECRET", SECRET),
        ("RESPONSE_HEADER_TIMEOUT_MS", RESPONSE_TIMEOUT_MS),
        ("OUTBOUND_ALLOW", ""),
    ])
    .await
}

async fn call(runtime: &Server, body: &Value) -> reqwest::Response {
    let request = runtime.request("POST", CALL).bearer_auth(SECRET).json(body);
    request.send().await.expect("an answer")
}

/// The response that the caller receives.
enum ExpectedResponse {
    /// The upstream's response: status, content type, body and `Retry-After`.
    PassedThrough(u16, Option<&'static str>, Vec<u8>, Option<&'static str>),
    /// A problem response: status and code.
    Problem(u16, &'static str),
}

use ExpectedResponse::{PassedThrough, Problem};

fn json_of(status: u16, body: &str) -> ExpectedResponse {
    PassedThrough(status, Some("application/json"), body.into(), None)
}

fn raw(text: &str) -> Step {
    Step::Send(text.into())
}

/// Returns an upstream response with headers that must not be passed on.
fn response_with_unsafe_headers(status: &str, content_type: &str, body: &str) -> Vec<Step> {
    let length = body.len();
    vec![raw(&format!(
        "HTTP/1.1 {status}\r\n{content_type}set-cookie: a=canary\r\nx-canary: canary\r\nretry-after: 99\r\n\
         access-control-allow-origin: *\r\nwww-authenticate: Basic\r\ncache-control: public\r\n\
         content-length: {length}\r\n\r\n{body}"
    ))]
}

/// Returns the cases: name, script of the upstream, and expected response.
fn call_cases() -> Vec<(&'static str, Vec<Step>, ExpectedResponse)> {
    let chunked =
        || raw("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n");
    let refusal = |parameters: &str| {
        format!(
            r#"{{"ok":false,"error_code":429,"description":"Too Many Requests","parameters":{parameters}}}"#
        )
    };
    let patient = refusal(r#"{"retry_after":35}"#);
    let not_found = r#"{"ok":false,"error_code":400,"description":"Bad Request: chat not found"}"#;
    let (unreachable, failed, too_large, timeout, truncated) = (
        || Problem(502, "BACKEND_UNREACHABLE"),
        || Problem(502, "BACKEND_FAILED"),
        || Problem(502, "OUTPUT_TOO_LARGE"),
        || Problem(504, "BACKEND_TIMEOUT"),
        || Problem(502, "STREAM_TRUNCATED"),
    );
    let redirect = |status| json_response(status, "location: http://127.0.0.1:1/canary\r\n", "canary");
    let nonsense = refusal(r#"{"retry_after":"soon"}"#);
    let failed_patiently = refusal(r#"{"retry_after":5}"#);
    let mut rows = vec![
        ("good", json_response("200 OK", "", SENT), json_of(200, SENT)),
        (
            "good-in-chunks",
            vec![chunked(), chunk(&SENT[..9]), chunk(&SENT[9..]), last_chunk()],
            json_of(200, SENT),
        ),
        (
            "other-headers",
            response_with_unsafe_headers("200 OK", "content-type: text/plain\r\n", "hi"),
            PassedThrough(200, Some("text/plain"), "hi".into(), None),
        ),
        (
            "no-type",
            response_with_unsafe_headers("200 OK", "", "hi"),
            PassedThrough(200, None, "hi".into(), None),
        ),
        (
            "no-content",
            vec![raw("HTTP/1.1 204 No Content\r\n\r\n")],
            PassedThrough(204, None, Vec::new(), None),
        ),
        ("identity", json_response("200 OK", "content-encoding: identity\r\n", SENT), json_of(200, SENT)),
        ("error", json_response("400 Bad Request", "", not_found), json_of(400, not_found)),
        (
            "unauthorized",
            json_response("401 Unauthorized", "www-authenticate: Basic\r\n", not_found),
            json_of(401, not_found),
        ),
        (
            "page",
            response_with_unsafe_headers("404 Not Found", "content-type: text/html\r\n", "<html>no"),
            PassedThrough(404, Some("text/html"), "<html>no".into(), None),
        ),
        ("server-error", json_response("500 Internal Server Error", "", "{"), json_of(500, "{")),
        (
            "bad-gateway",
            response_with_unsafe_headers("502 Bad Gateway", "content-type: text/html\r\n", ""),
            PassedThrough(502, Some("text/html"), Vec::new(), None),
        ),
        ("strange-status", json_response("799 Strange", "", "{}"), json_of(799, "{}")),
        (
            "garbage-in-json",
            json_response("200 OK", "", "\u{0}\u{1}not json"),
            json_of(200, "\u{0}\u{1}not json"),
        ),
        (
            "patience",
            json_response("429 Too Many Requests", "", &patient),
            PassedThrough(429, Some("application/json"), patient.clone().into(), Some("35")),
        ),
        (
            "patience-of-no-number",
            json_response("429 Too Many Requests", "", &nonsense),
            json_of(429, &nonsense),
        ),
        (
            "patience-in-the-head",
            response_with_unsafe_headers("429 Too Many Requests", "content-type: application/json\r\n", "{}"),
            json_of(429, "{}"),
        ),
        (
            "patience-of-another",
            json_response("503 Service Unavailable", "", &failed_patiently),
            PassedThrough(503, Some("application/json"), failed_patiently.clone().into(), Some("5")),
        ),
        ("reset-before-head", vec![Step::Reset], unreachable()),
        ("close-before-head", vec![Step::Close], unreachable()),
        ("close-in-head", vec![raw("HTTP/1.1 200 OK\r\ncontent-ty"), Step::Close], unreachable()),
        ("reset-after-head", vec![chunked(), Step::Reset], failed()),
        ("reset-in-body", vec![chunked(), chunk("{"), Step::Reset], failed()),
        ("close-in-body", vec![chunked(), chunk("{"), Step::Close], truncated()),
        (
            "length-too-long",
            vec![raw("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{}"), Step::Close],
            truncated(),
        ),
        ("stall-before-head", vec![Step::Stall], timeout()),
        ("stall-in-head", vec![raw("HTTP/1.1 200 OK\r\ncontent-ty"), Step::Stall], timeout()),
        ("stall-after-head", vec![chunked(), Step::Stall], timeout()),
        ("stall-in-body", vec![chunked(), chunk("{"), Step::Stall], timeout()),
        ("drip", vec![chunked(), Step::Drip(b"1\r\nx\r\n".to_vec(), Duration::from_millis(20))], timeout()),
        ("no-http", vec![raw("canary\r\n\r\n"), Step::Close], failed()),
        ("binary", vec![Step::Send(vec![0, 159, 146, 150, 13, 10, 13, 10]), Step::Stall], failed()),
        (
            "two-lengths",
            vec![raw("HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 7\r\n\r\n"), Step::Stall],
            failed(),
        ),
        (
            "huge-head",
            vec![
                raw("HTTP/1.1 200 OK\r\n"),
                raw(&format!("x: {}\r\n\r\n", "y".repeat(1 << 20))),
                Step::Stall,
            ],
            failed(),
        ),
        ("bad-chunk-length", vec![chunked(), raw("zz\r\n{"), Step::Stall], failed()),
        (
            "huge-by-length",
            vec![raw("HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n"), Step::Stall],
            too_large(),
        ),
        ("huge-by-chunks", vec![chunked(), chunk(vec![b'x'; 5 << 20]), Step::Stall], too_large()),
        ("compressed", json_response("200 OK", "content-encoding: gzip\r\n", "canary"), failed()),
        (
            "switching",
            vec![
                raw("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n"),
                Step::Stall,
            ],
            failed(),
        ),
    ];
    for (name, status) in [
        ("redirect-300", "300 Multiple Choices"),
        ("redirect-301", "301 Moved Permanently"),
        ("redirect-302", "302 Found"),
        ("redirect-303", "303 See Other"),
        ("not-modified", "304 Not Modified"),
        ("redirect-307", "307 Temporary Redirect"),
        ("redirect-308", "308 Permanent Redirect"),
    ] {
        rows.push((name, redirect(status), failed()));
    }
    rows
}

/// Returns the bot token of a case, from which the upstream selects the case's script.
fn token(name: &str) -> String {
    format!("1:token-canary_{name}")
}

#[tokio::test]
async fn every_response_of_the_api_is_passed_on_or_becomes_a_problem() {
    let vendor = Vendor::start().await;
    let runtime = runtime(&format!("http://{}/api/", vendor.address)).await;
    // Parameters are forwarded byte for byte: whitespace, order and large numbers are kept.
    let params = r#"{ "text":"hi", "chat_id":-100123456789012345678901234567890 }"#;
    for (name, script, gets) in call_cases() {
        let path = format!("/api/bot{}/sendMessage", token(name));
        vendor.on(&path, [script]);
        let request_count = vendor.received().len();
        let body =
            format!(r#"{{"token":"{}","method":"sendMessage","params":{params},"more":1}}"#, token(name));
        let request =
            runtime.request("POST", CALL).bearer_auth(SECRET).header("content-type", "application/json");
        let response = request.body(body).send().await.expect("an answer");
        let headers = response.headers().clone();
        let header = |name: &str| headers.get(name).map(|value| value.to_str().expect("text").to_owned());
        assert!(!format!("{headers:?}").contains("canary"), "{name}: {headers:?}");
        match gets {
            PassedThrough(status, content_type, body, retry_after) => {
                assert_eq!(response.status(), status, "{name}");
                assert_eq!(header("content-type").as_deref(), content_type, "{name}");
                assert_eq!(header("retry-after").as_deref(), retry_after, "{name}");
                assert_eq!(header("cache-control").as_deref(), Some("no-store"), "{name}");
                assert_eq!(header("x-content-type-options").as_deref(), Some("nosniff"), "{name}");
                for other in
                    ["www-authenticate", "access-control-allow-origin", "content-encoding", "set-cookie"]
                {
                    assert_eq!(header(other), None, "{name}");
                }
                assert!(header("x-request-id").is_some(), "{name}");
                assert_eq!(response.bytes().await.expect("a whole body"), body, "{name}");
            }
            Problem(status, code) => {
                let problem = expect_problem(response, status, code).await;
                assert!(!problem.to_string().contains("canary"), "{name}: {problem}");
            }
        }
        let received = vendor.received().split_off(request_count);
        assert_eq!(received.len(), 1, "{name}: a call is made once");
        assert_eq!(received[0].path(), path);
        assert_eq!(received[0].body, params.as_bytes(), "{name}");
        let head = received[0].head.to_ascii_lowercase();
        assert!(head.starts_with("post ") && head.contains("content-type: application/json"), "{head}");
        assert!(!head.contains("authorization") && !head.contains(SECRET), "{head}");
    }
}

#[tokio::test]
async fn an_unreachable_api_is_a_problem() {
    let runtime = runtime(&refused_url()).await;
    let response = call(&runtime, &json!({"token": token("x"), "method": "getMe"})).await;
    let problem = expect_problem(response, 502, "BACKEND_UNREACHABLE").await;
    assert!(!problem.to_string().contains("canary"), "{problem}");
}

#[tokio::test]
async fn invalid_calls_are_not_sent() {
    let vendor = Vendor::start().await;
    let runtime = runtime(&format!("http://{}", vendor.address)).await;
    let good = json!({"token": token("x"), "method": "getMe"});
    let with = |name: &str, value: Value| {
        let mut body = good.clone();
        body[name] = value;
        body.to_string()
    };
    let without = |name: &str| {
        let mut body = good.clone();
        body.as_object_mut().expect("an object").remove(name);
        body.to_string()
    };
    let deep = format!("{}{}", "[".repeat(64), "]".repeat(64));
    let mut bad = vec![
        String::new(),
        "canary".to_owned(),
        "[]".to_owned(),
        "null".to_owned(),
        good.to_string()[1..].to_owned(),
        good.to_string().replace('}', ""),
        format!("{good}{good}"),
        r#"{"token":"1:canary","token":"2:canary","method":"getMe"}"#.to_owned(),
        without("token"),
        without("method"),
        with("method", json!(["getMe"])),
        with("params", json!({ "x": serde_json::from_str::<Value>(&deep).expect("JSON") })),
    ];
    for token in [
        "",
        ".",
        "..",
        "1:canary/x",
        "1:canary/../x",
        "../canary",
        "1:canary\\x",
        "1:canary?x=1",
        "1:canary#x",
        "1:canary%2f",
        "1:canary%",
        "1:canary\n",
        "1:canary\r\nx: y",
        "1:canary\0",
        "1:canary x",
        " 1:canary",
        "1:canaryü",
        "1:canary@host",
        "1:canary;x",
        "1:canary.",
    ] {
        bad.push(with("token", token.into()));
    }
    bad.extend(
        [json!(1), json!(null), json!(["1:canary"]), json!("x".repeat(129))]
            .map(|token| with("token", token)),
    );
    for method in [
        "",
        "ab",
        "send_message",
        "sendMessage2",
        "getMe/",
        "/getMe",
        "../getMe",
        "getMe?x",
        "getMe#x",
        "getMe%20",
        "getMe\n",
        "getMé",
    ] {
        bad.push(with("method", method.into()));
    }
    bad.push(with("method", "m".repeat(65).into()));
    bad.extend([json!([]), json!("{}"), json!(1), json!(true)].map(|params| with("params", params)));
    for body in &bad {
        let request =
            runtime.request("POST", CALL).bearer_auth(SECRET).header("content-type", "application/json");
        let response = request.body(body.clone()).send().await.expect("an answer");
        assert_eq!(response.status(), 400, "{body}");
        let problem = expect_problem(response, 400, "INVALID_REQUEST").await;
        assert!(!problem.to_string().contains("canary"), "{body}: {problem}");
    }
    let large = with("params", json!({"text": "x".repeat(1 << 20)}));
    let post =
        || runtime.request("POST", CALL).header("content-type", "application/json").body(good.to_string());
    for (request, status, code) in [
        (post(), 401, "UNAUTHENTICATED"),
        (post().bearer_auth(&SECRET[1..]), 401, "UNAUTHENTICATED"),
        (post().bearer_auth(token("x")), 401, "UNAUTHENTICATED"),
        (post().bearer_auth(SECRET).body(large), 413, "PAYLOAD_TOO_LARGE"),
        (post().bearer_auth(SECRET).header("content-encoding", "gzip"), 415, "UNSUPPORTED_MEDIA_TYPE"),
        (
            runtime.request("POST", CALL).bearer_auth(SECRET).body(good.to_string()),
            415,
            "UNSUPPORTED_MEDIA_TYPE",
        ),
        (runtime.request("GET", CALL).bearer_auth(SECRET), 405, "METHOD_NOT_ALLOWED"),
        (runtime.request("POST", "/messenger/call/").bearer_auth(SECRET).json(&good), 404, "NOT_FOUND"),
        (runtime.request("POST", "/messenger").bearer_auth(SECRET).json(&good), 404, "NOT_FOUND"),
    ] {
        expect_problem(request.send().await.expect("an answer"), status, code).await;
    }
    assert_eq!(vendor.connections(), 0, "no server was called");

    // A valid call is sent, with an empty object in place of missing parameters.
    for body in [good.to_string(), with("params", Value::Null), with("params", json!({}))] {
        vendor.on(&format!("/bot{}/getMe", token("x")), [json_response("200 OK", "", SENT)]);
        let request =
            runtime.request("POST", CALL).bearer_auth(SECRET).header("content-type", "application/json");
        assert_eq!(request.body(body).send().await.expect("an answer").status(), 200);
        assert_eq!(vendor.received().last().expect("a call").body, b"{}");
    }
}

#[tokio::test]
async fn a_runtime_without_an_api_names_the_missing_setting_and_is_healthy() {
    let runtime = server::runtime(&[]).await;
    for body in [json!({"token": token("x"), "method": "getMe"}), json!({})] {
        let response = client().post(runtime.url(CALL)).json(&body).send().await.expect("an answer");
        let problem = expect_problem(response, 503, "NOT_CONFIGURED").await;
        assert_eq!(problem["detail"], "MESSENGER_API_URL is not configured");
    }
    for path in ["/livez", "/readyz", "/health"] {
        let response = runtime.request("GET", path).send().await.expect("an answer");
        assert_eq!(response.status(), 200);
        assert_eq!(response.json::<Value>().await.expect("JSON")["status"], "ok");
    }
}
