//! Tool server faults, each with the result that the model receives.

use std::time::Duration;

use crate::support::tool_server::REQUEST_ID_PLACEHOLDER;
use crate::support::vendor::{Step, chunk, event, json_response, stream_head};

/// Returns a streamed response to a call.
pub(super) fn streamed(steps: impl IntoIterator<Item = Step>) -> Vec<Step> {
    std::iter::once(stream_head()).chain(steps).collect()
}

/// Returns the faults in response to a tool call: name, script, and result for the model.
pub(super) fn faults() -> Vec<(&'static str, Vec<Step>, &'static str)> {
    let failed = |what: &str| -> &'static str { format!("the tool server failed: {what}").leak() };
    let json = |body: String| json_response("200 OK", "", &body);
    let body =
        |members: &str| json(format!(r#"{{"jsonrpc":"2.0","id":{REQUEST_ID_PLACEHOLDER},{members}}}"#));
    let good = format!(r#"{{"jsonrpc":"2.0","id":{REQUEST_ID_PLACEHOLDER},"result":{{"content":[]}}}}"#);
    let wrong = r#"{"jsonrpc":"2.0","id":4711,"result":{"content":[]}}"#;
    let raw = |head: &str| Step::Send(head.as_bytes().to_vec());
    let big = "x".repeat(1 << 20);
    let comment = chunk(format!(": {}\n", &big[..1 << 16]));
    vec![
        ("garbage", json("nonsense".into()), failed("the response is not a JSON-RPC message")),
        ("empty", json(String::new()), failed("the response is not a JSON-RPC message")),
        ("a-list", json(format!("[{good}]")), failed("the response is not a JSON-RPC message")),
        (
            "html",
            vec![raw("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\nhi")],
            failed("the response is neither JSON nor an event stream"),
        ),
        ("wrong-id", json(wrong.into()), failed("the response is for another request")),
        (
            "no-id",
            json(r#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"What?"}}"#.into()),
            "the tool server rejected the request: What? (-32600)",
        ),
        (
            "error",
            body(r#""error":{"code":-32602,"message":"Unknown tool"}"#),
            "the tool server rejected the request: Unknown tool (-32602)",
        ),
        (
            "error-400",
            json_response(
                "400 Bad Request",
                "",
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Bad"}}"#,
            ),
            "the tool server rejected the request: Bad (-32600)",
        ),
        ("other-result", body(r#""result":{"tools":[]}"#), "the tool server's response is not a tool result"),
        ("no-result", body(r#""result":{}"#), "the tool server's response is not a tool result"),
        (
            "bad-content",
            body(r#""result":{"content":"text"}"#),
            "the tool server's response is not a tool result",
        ),
        (
            "asks-back",
            body(r#""result":{"resultType":"input_required","inputRequests":{},"requestState":"s"}"#),
            "the tool requests input, which is not supported",
        ),
        (
            "accepted",
            json_response("202 Accepted", "", ""),
            failed("the call was accepted without a response"),
        ),
        (
            "500",
            json_response("500 Internal Server Error", "", "oops"),
            failed("the upstream service failed (HTTP 500)"),
        ),
        (
            "401",
            json_response("401 Unauthorized", "www-authenticate: Bearer\r\n", "{}"),
            failed("the upstream service rejected the credentials (HTTP 401)"),
        ),
        (
            "429",
            json_response("429 Too Many Requests", "retry-after: 9\r\n", "{}"),
            failed("the upstream service is rate limiting requests (HTTP 429)"),
        ),
        (
            "302",
            json_response("302 Found", "location: http://127.0.0.1:1/\r\n", ""),
            failed("the upstream service returned a redirect, which is not followed (HTTP 302)"),
        ),
        (
            "closed",
            vec![Step::Close],
            failed("the upstream service closed the connection without a response"),
        ),
        ("reset", vec![Step::Reset], failed("the upstream service closed the connection without a response")),
        (
            "no-http",
            vec![raw("nonsense\r\n\r\n"), Step::Close],
            failed("the upstream service sent an invalid HTTP response"),
        ),
        (
            "cut-off",
            vec![
                raw("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{"),
                Step::Close,
            ],
            failed("the upstream response ended before it was complete"),
        ),
        (
            "announced-too-large",
            vec![
                raw("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 5000000\r\n\r\n"),
                Step::Stall,
            ],
            failed("the response exceeds 4194304 bytes"),
        ),
        (
            "too-large",
            {
                let head =
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
                std::iter::once(raw(head))
                    .chain(std::iter::repeat_n(chunk(&big), 5))
                    .chain([Step::Stall])
                    .collect()
            },
            failed("the response exceeds 4194304 bytes"),
        ),
        (
            "events-end",
            streamed([
                event(
                    r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}"#,
                ),
                Step::Send(b"0\r\n\r\n".to_vec()),
            ]),
            failed("the response ended before the result"),
        ),
        (
            "events-cut-off",
            streamed([event(""), Step::Close]),
            failed("the upstream response ended before it was complete"),
        ),
        (
            "events-garbage",
            streamed([event("nonsense"), Step::Send(b"0\r\n\r\n".to_vec())]),
            failed("the response ended before the result"),
        ),
        (
            "events-wrong-id",
            streamed([event(wrong), Step::Stall]),
            "the tool server did not respond to the call",
        ),
        (
            "events-too-large",
            streamed(
                [chunk("data: ")].into_iter().chain(std::iter::repeat_n(chunk(&big), 5)).chain([Step::Stall]),
            ),
            failed("a line of the response exceeds 4194304 bytes"),
        ),
        (
            "events-endless",
            streamed([Step::Drip(
                match comment {
                    Step::Send(bytes) => bytes,
                    _ => Vec::new(),
                },
                Duration::ZERO,
            )]),
            failed("the response exceeds 16777216 bytes"),
        ),
        ("silent", vec![Step::Stall], "the tool call timed out after 3000 ms"),
        ("silent-events", streamed([Step::Stall]), "the tool call timed out after 3000 ms"),
    ]
}

/// Responses by method or tool name.
pub(super) type ResponsesByName = Vec<(&'static str, Vec<Step>)>;

/// Returns the faults before a tool is called: name, scripts, and result for the model.
pub(super) fn handshake_faults() -> Vec<(&'static str, ResponsesByName, &'static str)> {
    let garbage = || json_response("200 OK", "", "nonsense");
    let error = || {
        json_response(
            "200 OK",
            "",
            &format!(
                r#"{{"jsonrpc":"2.0","id":{REQUEST_ID_PLACEHOLDER},"error":{{"code":-32603,"message":"Out"}}}}"#
            ),
        )
    };
    let gone = || json_response("404 Not Found", "", "");
    vec![
        (
            "garbage",
            vec![("server/discover", garbage())],
            "the tool server failed: the response is not a JSON-RPC message",
        ),
        (
            "401",
            vec![("server/discover", json_response("401 Unauthorized", "", "{}"))],
            "the tool server failed: the upstream service rejected the credentials (HTTP 401)",
        ),
        (
            "403",
            vec![("server/discover", json_response("403 Forbidden", "", "{}"))],
            "the tool server failed: the upstream service rejected the credentials (HTTP 403)",
        ),
        (
            "nothing-there",
            vec![("server/discover", gone()), ("initialize", gone())],
            "the tool server failed: the upstream service rejected the request (HTTP 404)",
        ),
        (
            "refused",
            vec![("server/discover", error()), ("initialize", error())],
            "the tool server rejected the request: Out (-32603)",
        ),
        (
            "later-garbage",
            vec![("initialize", garbage())],
            "the tool server failed: the response is not a JSON-RPC message",
        ),
        (
            "later-500",
            vec![("notifications/initialized", json_response("500 Internal Server Error", "", ""))],
            "the tool server failed: the upstream service failed (HTTP 500)",
        ),
        (
            "reset",
            vec![("server/discover", vec![Step::Reset])],
            "the tool server failed: the upstream service closed the connection without a response",
        ),
    ]
}
