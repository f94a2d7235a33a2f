//! What vendors do wrong, and what must come of it.

use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime};

use serde_json::json;

use crate::support::vendor::{
    Step, answer, chunk, delta, event, finish, last_chunk, plain, stream_head, tool_calls,
};

/// The time-out for an upstream's head, in the service that calls the vendor.
pub const HEADER: Duration = Duration::from_millis(1000);
/// The time-out for a run's silence, in the service that calls the vendor.
pub const IDLE: Duration = Duration::from_millis(1100);
/// The rounds that a model may take.
pub const ROUNDS: usize = 3;

/// What the client must be told.
#[derive(Debug, Clone, Copy)]
pub enum Outcome {
    /// A problem of this code in place of a stream.
    Refused(&'static str),
    /// A stream that says so much and ends in an error of this code.
    Broken { said: &'static str, code: &'static str },
    /// A whole answer of this text, after so many tool results that are errors.
    Whole { said: &'static str, failed_calls: usize },
}

/// One misbehaviour.
#[derive(Debug)]
pub struct Fault {
    /// Names the case; it is the model's name too.
    pub name: &'static str,
    /// What the vendor does at each request.
    pub script: Vec<Vec<Step>>,
    pub outcome: Outcome,
    /// The time-out that must run out first.
    pub waits: Duration,
    /// How often the vendor is to be asked.
    pub asked: usize,
    /// The seconds that the client must be told to wait, where it is refused.
    pub retry_after: Option<RangeInclusive<u64>>,
    /// Whether nobody listens at the vendor's address.
    pub absent: bool,
}

impl Fault {
    fn new(name: &'static str, script: impl Into<Vec<Step>>, outcome: Outcome) -> Self {
        let script = vec![script.into()];
        let waits = Duration::ZERO;
        Self { name, script, outcome, waits, asked: 1, retry_after: None, absent: false }
    }

    fn waits(mut self, waits: Duration) -> Self {
        self.waits = waits;
        self
    }

    fn retry_after(mut self, seconds: RangeInclusive<u64>) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// Lets the vendor answer a second request.
    fn then(mut self, script: Vec<Step>) -> Self {
        self.script.push(script);
        self.asked = 2;
        self
    }
}

fn refused(name: &'static str, script: impl Into<Vec<Step>>, code: &'static str) -> Fault {
    Fault::new(name, script, Outcome::Refused(code))
}

fn broken(name: &'static str, script: impl Into<Vec<Step>>, said: &'static str, code: &'static str) -> Fault {
    Fault::new(name, script, Outcome::Broken { said, code })
}

/// The vendor calls tools in a way that is wrong, and answers when it is told so.
fn mended(name: &'static str, script: Vec<Step>, failed_calls: usize) -> Fault {
    Fault::new(name, script, Outcome::Whole { said: "mended", failed_calls }).then(answer(&["mended"]))
}

/// Every misbehaviour.
pub fn faults() -> Vec<Fault> {
    [before_the_head(), refusals(), connections(), silences(), contents(), tools()]
        .into_iter()
        .flatten()
        .collect()
}

fn raw(bytes: impl AsRef<[u8]>) -> Step {
    Step::Send(bytes.as_ref().to_vec())
}

fn head(headers: &str) -> Step {
    raw(format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{headers}\r\n"))
}

fn text(text: &str) -> Step {
    delta(json!({"content": text}))
}

/// The beginning of an answer that says `par` and then begins another event.
fn half_a_line() -> [Step; 3] {
    [stream_head(), text("par"), chunk(r#"data: {"choices":[{"index":0,"delta":{"content":"ti"#)]
}

fn then<const N: usize>(steps: [Step; N], last: Step) -> Vec<Step> {
    steps.into_iter().chain([last]).collect()
}

fn before_the_head() -> Vec<Fault> {
    let flood = "HTTP/1.1 100 Continue\r\n\r\n";
    let mut absent = refused("connection-refused", [], "BACKEND_UNREACHABLE");
    (absent.absent, absent.asked) = (true, 0);
    vec![
        absent,
        refused("reset-before-head", [Step::Reset], "BACKEND_UNREACHABLE"),
        refused("close-before-head", [Step::Close], "BACKEND_UNREACHABLE"),
        refused("close-in-head", [raw("HTTP/1.1 200 OK\r\ncontent-ty"), Step::Close], "BACKEND_UNREACHABLE"),
        refused("stall-before-head", [Step::Stall], "BACKEND_TIMEOUT").waits(HEADER),
        refused("stall-in-head", [raw("HTTP/1.1 200 OK\r\ncontent-ty"), Step::Stall], "BACKEND_TIMEOUT")
            .waits(HEADER),
        refused(
            "endless-interim-heads",
            [Step::Drip(flood.into(), Duration::from_millis(5))],
            "BACKEND_TIMEOUT",
        )
        .waits(HEADER),
        refused("binary-garbage", [raw([0u8, 159, 146, 150, 13, 10, 13, 10]), Step::Stall], "BACKEND_FAILED"),
        refused("http-0.9", [raw("<html>hello</html>\r\n"), Step::Close], "BACKEND_FAILED"),
        refused("http-9", [raw("HTTP/9.9 200 OK\r\n\r\n"), Step::Stall], "BACKEND_FAILED"),
        refused(
            "two-lengths",
            [head("content-length: 5\r\ncontent-length: 7\r\n"), Step::Stall],
            "BACKEND_FAILED",
        ),
        refused(
            "huge-head",
            [raw("HTTP/1.1 200 OK\r\n"), raw(format!("x: {}\r\n\r\n", "y".repeat(1 << 20))), Step::Stall],
            "BACKEND_FAILED",
        ),
        refused(
            "many-headers",
            [raw("HTTP/1.1 200 OK\r\n"), raw(format!("{}\r\n", "x: y\r\n".repeat(5000))), Step::Stall],
            "BACKEND_FAILED",
        ),
    ]
}

fn refusals() -> Vec<Fault> {
    let error = r#"{"error":{"message":"no","type":"invalid_request_error"}}"#;
    let soon = httpdate(Duration::from_secs(90));
    vec![
        refused("400", plain("400 Bad Request", "", error), "BACKEND_FAILED"),
        refused("401", plain("401 Unauthorized", "", error), "BACKEND_FAILED"),
        refused("404", plain("404 Not Found", "", "gone"), "BACKEND_FAILED"),
        refused("408", plain("408 Request Timeout", "", error), "BACKEND_TIMEOUT"),
        refused("429", plain("429 Too Many Requests", "", error), "RATE_LIMITED").retry_after(1..=60),
        refused("429-seconds", plain("429 Too Many Requests", "retry-after: 17\r\n", error), "RATE_LIMITED")
            .retry_after(17..=17),
        refused(
            "429-date",
            plain("429 Too Many Requests", &format!("retry-after: {soon}\r\n"), error),
            "RATE_LIMITED",
        )
        .retry_after(60..=91),
        refused(
            "429-nonsense",
            plain("429 Too Many Requests", "retry-after: soon\r\n", error),
            "RATE_LIMITED",
        )
        .retry_after(1..=60),
        refused("500", plain("500 Internal Server Error", "", error), "BACKEND_FAILED"),
        refused("503", plain("503 Service Unavailable", "", "<html>"), "BACKEND_FAILED"),
        refused("504", plain("504 Gateway Timeout", "", ""), "BACKEND_TIMEOUT"),
        refused("302", plain("302 Found", "location: /v1/elsewhere\r\n", ""), "BACKEND_FAILED"),
        refused(
            "refusal-without-end",
            [raw("HTTP/1.1 500 No\r\ntransfer-encoding: chunked\r\n\r\n"), chunk("par"), Step::Stall],
            "BACKEND_FAILED",
        ),
        refused("error-as-json", plain("200 OK", "", error), "BACKEND_FAILED"),
        refused(
            "portal-page",
            [raw("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>")],
            "BACKEND_FAILED",
        ),
    ]
}

fn connections() -> Vec<Fault> {
    let truncated = "STREAM_TRUNCATED";
    let whole: Vec<u8> = answer(&["whole"])
        .into_iter()
        .flat_map(|step| match step {
            Step::Send(bytes) => bytes,
            other => panic!("{other:?}"),
        })
        .collect();
    let smuggled = answer(&["smuggled"]);
    vec![
        broken("reset-after-head", [stream_head(), Step::Reset], "", "BACKEND_FAILED"),
        broken("reset-in-line", then(half_a_line(), Step::Reset), "par", "BACKEND_FAILED"),
        broken("close-after-head", [stream_head(), Step::Close], "", truncated),
        broken("close-in-line", then(half_a_line(), Step::Close), "par", truncated),
        broken("end-in-line", then(half_a_line(), last_chunk()), "par", truncated),
        broken(
            "close-in-chunk",
            [stream_head(), text("par"), raw("40\r\ndata: {"), Step::Close],
            "par",
            truncated,
        ),
        broken(
            "bad-chunk-length",
            [stream_head(), text("par"), raw("zz\r\ndata: {"), Step::Stall],
            "par",
            "BACKEND_FAILED",
        ),
        broken(
            "length-too-long",
            [head("content-length: 10000\r\n"), raw("data: {}\n\n"), Step::Close],
            "",
            truncated,
        ),
        broken(
            "length-too-short",
            [head("content-length: 12\r\n"), raw("data: {}\n\ndata: {\"model\":\"x\"}\n\n"), Step::Stall],
            "",
            truncated,
        ),
        broken("no-content", [raw("HTTP/1.1 204 No Content\r\n\r\n")], "", truncated),
        // What follows an answer on its connection belongs to nobody.
        Fault::new(
            "answer-after-answer",
            std::iter::once(raw(whole)).chain(smuggled).collect::<Vec<_>>(),
            Outcome::Whole { said: "whole", failed_calls: 0 },
        ),
    ]
}

fn silences() -> Vec<Fault> {
    let timeout = "BACKEND_TIMEOUT";
    let comments = |pause| Step::Drip(b"4\r\n: x\n\r\n".to_vec(), pause);
    vec![
        broken("stall-after-head", [stream_head(), Step::Stall], "", timeout).waits(IDLE),
        broken("stall-after-text", [stream_head(), text("par"), Step::Stall], "par", timeout).waits(IDLE),
        broken("stall-in-line", then(half_a_line(), Step::Stall), "par", timeout).waits(IDLE),
        broken("comments", [stream_head(), text("par"), comments(Duration::from_millis(50))], "par", timeout)
            .waits(IDLE),
        broken("comments-in-a-flood", [stream_head(), comments(Duration::ZERO)], "", timeout).waits(IDLE),
        broken(
            "a-line-without-end",
            [stream_head(), text("par"), Step::Drip(b"1\r\nx\r\n".to_vec(), Duration::from_millis(50))],
            "par",
            timeout,
        )
        .waits(IDLE),
        broken(
            "empty-events",
            [stream_head(), Step::Drip(b"a\r\ndata: {}\n\n\r\n".to_vec(), Duration::from_millis(50))],
            "",
            timeout,
        )
        .waits(IDLE),
    ]
}

fn contents() -> Vec<Fault> {
    let (failed, truncated) = ("BACKEND_FAILED", "STREAM_TRUNCATED");
    let said = |last: Step| [stream_head(), text("par"), last, last_chunk()];
    let long = vec![b'x'; 10 << 20];
    let bad_utf8 =
        [&br#"data: {"choices":[{"index":0,"delta":{"content":"a"#[..], b"\xff\xfe\"}}]}\n\n"].concat();
    let half_a_letter = [&br#"data: {"choices":[{"index":0,"delta":{"content":"a"#[..], b"\xf0\x9f"].concat();
    vec![
        broken("half-a-letter", said(chunk(half_a_letter)), "par", truncated),
        broken("invalid-utf8", said(chunk(bad_utf8)), "par", failed),
        broken("not-sse", said(chunk("<html>\n\nsorry\n\n")), "par", truncated),
        broken("not-json", said(event("sorry")), "par", failed),
        broken("half-json", said(event(r#"{"choices":[{"#)), "par", failed),
        broken("another-shape", said(event(r#"{"choices":"none"}"#)), "par", failed),
        broken("a-list", said(event("[1,2]")), "par", failed),
        broken("deep-json", said(event(format!("{{\"x\":{}", "[".repeat(100_000)))), "par", failed),
        broken("long-line", [stream_head(), text("par"), chunk(long), Step::Stall], "par", failed),
        broken(
            "error-event",
            said(event(json!({"error": {"message": "overloaded", "code": 503}}))),
            "par",
            failed,
        ),
        broken(
            "named-error-event",
            said(chunk("event: error\ndata: {\"error\":\"overloaded\"}\n\n")),
            "par",
            failed,
        ),
        broken("no-finish", [stream_head(), text("par"), last_chunk()], "par", truncated),
        broken("done-at-once", [stream_head(), event("[DONE]"), last_chunk()], "", truncated),
        broken("nothing", [stream_head(), last_chunk()], "", truncated),
    ]
}

fn tools() -> Vec<Fault> {
    let call = |name, arguments| tool_calls(&[("c1", name, arguments)]);
    let good = || call("readTodos", "{}");
    let many: Vec<_> = (0..33).map(|i| format!("c{i}")).collect();
    let many: Vec<_> = many.iter().map(|id| (id.as_str(), "readTodos", "{}")).collect();
    let long = format!("{{\"x\":\"{}\"}}", "y".repeat(300 << 10));
    let at = |index: usize, id: &str| {
        delta(json!({"tool_calls": [{"index": index, "id": id, "type": "function",
            "function": {"name": "readTodos", "arguments": "{}"}}]}))
    };
    let calls = |calls: Vec<Step>| -> Vec<Step> {
        std::iter::once(stream_head()).chain(calls).chain(finish("tool_calls")).collect()
    };
    let limit = |name, script| broken(name, script, "", "TOOL_LOOP_LIMIT");
    let mut endless = limit("endless-rounds", good());
    endless.asked = ROUNDS;
    vec![
        mended("arguments-not-json", call("readTodos", r#"{"a":"#), 1),
        mended("arguments-a-list", call("readTodos", "[]"), 1),
        mended("unknown-tool", call("noSuchTool", "{}"), 1),
        mended("no-tool-name", call("", "{}"), 1),
        mended("call-index-gaps", calls(vec![at(2, "c1"), at(9, "c2"), at(5, "c3")]), 0),
        mended("duplicate-call-ids", calls(vec![at(0, "c1"), at(1, "c1")]), 0),
        mended("no-call-ids", calls(vec![at(0, ""), at(1, "")]), 0),
        endless,
        limit("many-calls", tool_calls(&many)),
        broken("long-arguments", call("readTodos", &long), "", "BACKEND_FAILED"),
        broken("call-cut-off", [stream_head(), at(0, "c1"), last_chunk()], "", "STREAM_TRUNCATED"),
        broken("second-round-500", good(), "", "BACKEND_FAILED").then(plain("500 No", "", "")),
        broken("second-round-429", good(), "", "RATE_LIMITED").then(plain("429 No", "", "")),
        broken("second-round-reset", good(), "", "BACKEND_UNREACHABLE").then(vec![Step::Reset]),
        broken("second-round-stall", good(), "", "BACKEND_TIMEOUT").then(vec![Step::Stall]).waits(HEADER),
    ]
}

/// A date from now, as HTTP writes it (RFC 9110).
fn httpdate(from_now: Duration) -> String {
    httpdate::fmt_http_date(SystemTime::now() + from_now)
}
