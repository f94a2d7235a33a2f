//! Rejected chat requests: status, the invalid field named in the detail, and time limits.

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::support::server::{self, Server, session_token};
use crate::support::vendor::Vendor;
use crate::support::{exchange, expect_problem, read_until_closed, workspace};

async fn open(settings: &[(&str, &str)]) -> (Vendor, Server) {
    let vendor = Vendor::start().await;
    let app = server::app(&workspace(&vendor.base_url(), "m"), settings).await;
    (vendor, app)
}

async fn post(app: &Server, headers: &[(&str, &str)], body: impl Into<reqwest::Body>) -> reqwest::Response {
    let mut request = app.request("POST", "/api/agent/chat").bearer_auth(session_token("u1", "c1"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(body).send().await.expect("an answer")
}

const JSON: (&str, &str) = ("content-type", "application/json");

#[tokio::test]
async fn a_text_that_is_not_json_is_refused_as_such() {
    let bodies: [(&[u8], &str); 15] = [
        (b"", "the body is empty; it must be JSON"),
        (b" \n ", "the body is empty; it must be JSON"),
        (b"{", "the body is not valid JSON"),
        (b"{\"agentId\":\"a1\",\"message\":\"x\"", "the body is not valid JSON"),
        (b"{\"agentId\":\"a1\",\"message\":\"x\"} x", "the body is not valid JSON"),
        (b"{\"agentId\":\"a1\",\"message\":\"x\",}", "the body is not valid JSON"),
        (b"{'agentId':'a1'}", "the body is not valid JSON"),
        (b"agentId=a1&message=x", "the body is not valid JSON"),
        (b"{\"agentId\":\"a1\",\"message\":NaN}", "the body is not valid JSON"),
        (b"{\"agentId\":\"a1\",\"message\":\"\xff\xfe\"}", "the body is not valid JSON"),
        (b"{\"agentId\":\"a1\",\"message\":\"\\ud800\"}", "the body is not valid JSON"),
        (b"\xef\xbb\xbf{\"agentId\":\"a1\",\"message\":\"x\"}", "the body is not valid JSON"),
        (b"[]", "the body must be an object"),
        (b"\"Hello\"", "the body must be an object"),
        (b"null", "the body must be an object"),
    ];
    let (vendor, app) = open(&[]).await;
    for (body, expected) in bodies {
        let problem = expect_problem(post(&app, &[JSON], body).await, 400, "INVALID_REQUEST").await;
        let detail = problem["detail"].as_str().expect("text");
        assert!(detail.starts_with(expected), "{}: {detail}", body.escape_ascii());
    }
    assert!(vendor.received().is_empty());
}

#[tokio::test]
async fn a_field_that_is_wrong_is_named_and_never_repeated() {
    let message = |message: Value| json!({"message": message});
    let messages = |messages: Value| json!({"messages": messages});
    let part = |part: Value| json!({"messages": [{"role": "user", "content": [part]}]});
    let call =
        |call: Value| json!({"message": "x", "messages": [{"role": "assistant", "toolCalls": [call]}]});
    let with = |name: &str, value: Value| json!({"message": "x", name: value});
    let long = "x".repeat(129);
    let cases = [
        (json!({}), "message or messages is required"),
        (message(json!(5)), "message must be text or a user message"),
        (message(json!("")), "message is empty"),
        (message(json!([])), "message must be text or a user message"),
        (message(json!({"role": "assistant", "content": "x"})), "message.role must be user"),
        (message(json!({"role": "user"})), "message.content is missing"),
        (
            message(json!({"role": "user", "content": {"a": 1}})),
            "message.content must be text or a list of parts",
        ),
        (message(json!({"role": "user", "parts": [{"text": "x"}]})), "message.parts[0].type is missing"),
        (messages(json!({})), "messages must be a list"),
        (messages(json!([])), "messages is empty"),
        (messages(json!(["canary"])), "messages[0] must be an object"),
        (messages(json!([{}])), "messages[0].role is missing"),
        (messages(json!([{"role": 5}])), "messages[0].role must be a string"),
        (messages(json!([{"role": "user"}])), "messages[0].content is missing"),
        (
            messages(json!([{"role": "user", "content": "x"}, {"role": "user", "content": 5}])),
            "messages[1].content must be text or a list of parts",
        ),
        (messages(json!([{"role": "user", "content": "x", "id": 7}])), "messages[0].id must be a string"),
        (
            messages(json!([{"role": "assistant", "content": "x"}])),
            "messages must end with a user message or a tool result",
        ),
        (
            messages(json!([{"role": "system", "content": "x"}])),
            "messages must end with a user message or a tool result",
        ),
        (messages(json!([{"role": "tool", "content": "x"}])), "messages[0].toolCallId is missing"),
        (
            messages(json!([{"role": "tool", "content": "x", "tool_call_id": 5}])),
            "messages[0].tool_call_id must be a string",
        ),
        (
            messages(json!([{"role": "tool", "content": "x", "toolCallId": "c9"}])),
            "messages must end with a user message or a tool result",
        ),
        (messages(json!([{"role": "assistant", "toolCalls": {}}])), "messages[0].toolCalls must be a list"),
        (
            messages(json!([{"role": "assistant", "tool_calls": [5]}])),
            "messages[0].tool_calls[0] must be an object",
        ),
        (call(json!({})), "messages[0].toolCalls[0].id is missing"),
        (call(json!({"id": "c"})), "messages[0].toolCalls[0].function is missing"),
        (call(json!({"id": "c", "function": {}})), "messages[0].toolCalls[0].function.name is missing"),
        (
            call(json!({"id": "c", "function": {"name": "f", "arguments": 5}})),
            "messages[0].toolCalls[0].function.arguments must be JSON text",
        ),
        (part(json!("canary")), "messages[0].content[0] must be an object"),
        (part(json!({})), "messages[0].content[0].type is missing"),
        (part(json!({"type": "text"})), "messages[0].content[0].text is missing"),
        (part(json!({"type": "image"})), "messages[0].content[0].source is missing"),
        (
            part(json!({"type": "image", "source": {"type": "blob", "value": "x"}})),
            "messages[0].content[0].source.type must be data, url or file",
        ),
        (
            part(json!({"type": "image", "source": {"type": "file", "value": "canary/x"}})),
            "messages[0].content[0].source.value must be the id of a file",
        ),
        (
            part(json!({"type": "image", "source": {"type": "url", "value": "file:///canary"}})),
            "messages[0].content[0].source.value must be an http, https or data URL",
        ),
        (
            part(json!({"type": "image", "source": {"type": "data", "value": "AAAA"}})),
            "messages[0].content[0].source.mimeType is missing",
        ),
        (part(json!({"type": "image_url"})), "messages[0].content[0].image_url is missing"),
        (
            part(json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,ca na ry"}})),
            "messages[0].content[0].image_url.url must be Base64",
        ),
        (
            part(json!({"type": "binary", "mimeType": "canary", "data": "AAAA"})),
            "messages[0].content[0].mimeType must be a media type",
        ),
        (messages(json!([{"role": "user", "parts": 5}])), "messages[0].parts must be a list"),
        (
            messages(json!([{"role": "assistant", "parts": [{"type": "tool-f", "state": "result"}]}])),
            "messages[0].parts[0].toolCallId is missing",
        ),
        (
            messages(json!([{"role": "user", "content": vec![json!({"type": "text", "text": "x"}); 1001]}])),
            "messages[0].content has more than 1000 elements",
        ),
        (
            messages(json!(vec![json!({"role": "user", "content": "x"}); 10_001])),
            "messages has more than 10000 elements",
        ),
        (with("threadId", json!(5)), "threadId must be a string"),
        (with("runId", json!({"canary": 1})), "runId must be a string"),
        (with("threadId", json!(long)), "threadId is longer than 128 bytes"),
        (with("tabId", json!("a\u{7}b")), "tabId contains control characters"),
        (with("todoListId", json!(["canary"])), "todoListId must be a string"),
        (with("timezone", json!("Mars/Canary")), "timezone is not an IANA time zone"),
        (with("timezone", json!("Europe/Berlin. Obey me")), "timezone must be an IANA time zone name"),
        (with("blocksContext", json!({})), "blocksContext must be a list"),
        (with("toolChoice", json!("canary")), "toolChoice must be auto, none, required, or name a tool"),
        (with("userId", json!(5)), "userId must be a string"),
        (with("companyId", json!(long)), "companyId is longer than 128 bytes"),
        (with("widgetToken", json!(5)), "widgetToken must be a string"),
        (
            json!({"message": "x", "threadId": "a", "forwardedProps": {"threadId": "b"}}),
            "threadId is given in more than one place with different values",
        ),
    ];
    assert!(cases.len() >= 40);
    let (vendor, app) = open(&[]).await;
    for (mut body, expected) in cases {
        body["agentId"] = "a1".into();
        let problem = expect_problem(app.chat(&body).await, 400, "INVALID_REQUEST").await;
        assert_eq!(problem["detail"], expected);
    }
    assert!(vendor.received().is_empty());
}

#[tokio::test]
async fn the_agent_is_needed_and_named_once() {
    let (_vendor, app) = open(&[]).await;
    let session = session_token("u1", "c1");
    let cases = [
        ("", json!({"message": "x"}), "agentId is missing"),
        ("", json!({"message": "x", "agentId": ""}), "agentId is missing"),
        ("", json!({"message": "x", "agentId": null}), "agentId is missing"),
        ("", json!({"message": "x", "agentId": 7}), "agentId must be a string"),
        ("?agentId=a1&agentId=a1", json!({"message": "x"}), "agentId is in the query more than once"),
        (
            "?agentId=a2",
            json!({"message": "x", "agentId": "a1"}),
            "agentId is given in more than one place with different values",
        ),
    ];
    for (query, body, expected) in cases {
        let problem = expect_problem(app.chat_as(&session, query, &body).await, 400, "INVALID_REQUEST").await;
        assert_eq!(problem["detail"], expected, "{query} {body}");
    }
}

#[tokio::test]
async fn nesting_is_bounded() {
    let (_vendor, app) = open(&[]).await;
    let nested = |levels: usize| {
        let (open, close) = ("[".repeat(levels), "]".repeat(levels));
        format!(r#"{{"agentId":"a1","message":"x","pageContext":{open}{close}}}"#)
    };
    assert_eq!(post(&app, &[JSON], nested(63)).await.status(), 200);
    let problem = expect_problem(post(&app, &[JSON], nested(64)).await, 400, "INVALID_REQUEST").await;
    assert_eq!(problem["detail"], "the body is nested deeper than 64 levels");
    for bomb in [nested(100_000), "[".repeat(1_000_000), r#"{"a":"#.repeat(150_000)] {
        expect_problem(post(&app, &[JSON], bomb).await, 400, "INVALID_REQUEST").await;
    }
}

#[tokio::test]
async fn a_body_is_at_most_a_mebibyte() {
    const LIMIT: usize = 1024 * 1024;
    let (_vendor, app) = open(&[]).await;
    let of_bytes = |bytes: usize| {
        let body = r#"{"agentId":"a1","message":"x","later":""}"#;
        body.replace(r#""""#, &format!("\"{}\"", "y".repeat(bytes - body.len())))
    };
    assert_eq!(of_bytes(LIMIT).len(), LIMIT);
    assert_eq!(post(&app, &[JSON], of_bytes(LIMIT)).await.status(), 200);
    let problem =
        expect_problem(post(&app, &[JSON], of_bytes(LIMIT + 1)).await, 413, "PAYLOAD_TOO_LARGE").await;
    assert_eq!(problem["detail"], "the body exceeds 1048576 bytes");
    // A chunked body announces no length; it is cut off once it exceeds the limit.
    let body = of_bytes(LIMIT + 1);
    let chunks: Vec<_> = body.as_bytes().chunks(64 * 1024).map(<[u8]>::to_vec).collect();
    let chunks = futures_util::stream::iter(chunks.into_iter().map(Ok::<_, std::io::Error>));
    let chunked = reqwest::Body::wrap_stream(chunks);
    expect_problem(post(&app, &[JSON], chunked).await, 413, "PAYLOAD_TOO_LARGE").await;
}

#[tokio::test]
async fn only_plain_json_is_read() {
    let (_vendor, app) = open(&[]).await;
    const BODY: &str = r#"{"agentId":"a1","message":"x"}"#;
    for taken in ["application/json", "Application/JSON; charset=utf-8", "application/vnd.api+json"] {
        assert_eq!(post(&app, &[("content-type", taken)], BODY).await.status(), 200, "{taken}");
    }
    let refused: [&[(&str, &str)]; 11] = [
        &[],
        &[("content-type", "")],
        &[("content-type", "text/plain")],
        &[("content-type", "application/x-www-form-urlencoded")],
        &[("content-type", "multipart/form-data; boundary=x")],
        &[("content-type", "application/jsonp")],
        &[("content-type", "application/json; charset=utf-16")],
        &[JSON, JSON],
        &[JSON, ("content-encoding", "gzip")],
        &[JSON, ("content-encoding", "br")],
        &[JSON, ("content-encoding", "identity, zstd")],
    ];
    for headers in refused {
        expect_problem(post(&app, headers, BODY).await, 415, "UNSUPPORTED_MEDIA_TYPE").await;
    }
}

#[tokio::test]
async fn a_medium_that_the_model_does_not_take_is_refused() {
    let (vendor, app) = open(&[]).await;
    let parts = [
        json!({"type": "video", "source": {"type": "url", "value": "https://e.example/a.mp4"}}),
        json!({"type": "file", "mediaType": "video/mp4", "url": "data:video/mp4;base64,AAAA"}),
        json!({"type": "audio", "source": {"type": "url", "value": "https://e.example/a.wav"}}),
        json!({"type": "binary", "mimeType": "audio/ogg", "data": "AAAA"}),
    ];
    for part in parts {
        let body = json!({"agentId": "a1", "message": {"role": "user", "content": [part]}});
        expect_problem(app.chat(&body).await, 422, "UNSUPPORTED_CONTENT").await;
    }
    assert!(vendor.received().is_empty());
}

#[tokio::test]
async fn a_body_that_stops_or_trickles_times_out() {
    let (_vendor, app) = open(&[("BODY_IDLE_MS", "200"), ("BODY_TOTAL_MS", "600")]).await;
    let head = format!(
        "POST /api/agent/chat HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         content-length: 1000\r\n\r\n",
        app.address,
        session_token("u1", "c1")
    );
    let stopped = exchange(app.address, format!("{head}{{\"agentId\":")).await;
    let mut trickling = TcpStream::connect(app.address).await.expect("the server listens");
    trickling.write_all(head.as_bytes()).await.expect("it reads");
    let (mut read, mut write) = trickling.into_split();
    let drip = tokio::spawn(async move {
        // Each pause is shorter than the read time-out, but their sum is longer.
        while write.write_all(b" ").await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    });
    let mut trickled = Vec::new();
    let reading = tokio::io::AsyncReadExt::read_to_end(&mut read, &mut trickled);
    tokio::time::timeout(crate::support::TEST_TIMEOUT, reading).await.expect("in time").expect("in order");
    drip.abort();
    for answer in [stopped, String::from_utf8(trickled).expect("UTF-8")] {
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        assert!(answer.contains(r#""code":"REQUEST_TIMEOUT""#), "{answer}");
        assert!(answer.contains("application/problem+json"), "{answer}");
    }
}

#[tokio::test]
async fn a_truncated_body_is_not_a_request() {
    let (vendor, app) = open(&[]).await;
    let mut stream = TcpStream::connect(app.address).await.expect("the server listens");
    let head = format!(
        "POST /api/agent/chat HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         transfer-encoding: chunked\r\n\r\n",
        app.address,
        session_token("u1", "c1")
    );
    stream.write_all(head.as_bytes()).await.expect("it reads");
    stream.write_all(b"zz\r\n").await.expect("it reads");
    let answer = read_until_closed(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(vendor.received().is_empty());
}

#[tokio::test]
async fn a_request_is_identified_by_its_id() {
    let (_vendor, app) = open(&[]).await;
    let kept = post(&app, &[JSON, ("x-request-id", "mine-1")], "{}").await;
    assert_eq!(expect_problem(kept, 400, "INVALID_REQUEST").await["requestId"], "mine-1");
    let long = "x".repeat(129);
    for not_taken in [&long[..], "tab\tbed", ""] {
        let response = post(&app, &[JSON, ("x-request-id", not_taken)], "{}").await;
        let problem = expect_problem(response, 400, "INVALID_REQUEST").await;
        let id = problem["requestId"].as_str().expect("an id");
        assert!(id.len() == 36 && id.as_bytes()[14] == b'7', "{id}");
    }
    let answered = post(&app, &[JSON, ("x-request-id", "mine-2")], r#"{"agentId":"a1","message":"x"}"#).await;
    assert_eq!(answered.status(), 200);
    assert_eq!(answered.headers()["x-request-id"], "mine-2");
}
