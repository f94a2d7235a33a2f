//! Vendor faults, each with the outcome that the client must see.

mod chat_completions;
mod ollama;
pub mod runtime;
mod workflow;

use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime};

use super::provider::Provider;
use crate::support::vendor::{Step, chunk, json_response, last_chunk};

/// Maximum number of model rounds in a run (`TOOL_ROUNDS`).
pub const MAX_TOOL_ROUNDS: usize = 3;

/// The outcome that the client must see.
#[derive(Debug, Clone, Copy)]
pub enum Outcome {
    /// A problem response with this code instead of a stream.
    Problem(&'static str),
    /// A stream with the text `text` that ends in an error with this code.
    StreamError { text: &'static str, code: &'static str },
    /// A complete response with the text `text`, after `failed_calls` tool results that are errors.
    Complete { text: &'static str, failed_calls: usize },
}

/// One fault of a vendor.
#[derive(Debug)]
pub struct Fault {
    /// Name of the case, also used as the model's name.
    pub name: &'static str,
    /// The vendor's response to each request in turn.
    pub script: Vec<Vec<Step>>,
    pub outcome: Outcome,
    /// True if a time-out must expire before the response ends.
    pub waits: bool,
    /// Expected number of requests to the vendor.
    pub requests: usize,
    /// Accepted range of `Retry-After`, in seconds, in a problem response.
    pub retry_after: Option<RangeInclusive<u64>>,
    /// True if no server listens at the vendor's address.
    pub absent: bool,
}

impl Fault {
    fn new(name: &'static str, script: impl Into<Vec<Step>>, outcome: Outcome) -> Self {
        let script = vec![script.into()];
        Self { name, script, outcome, waits: false, requests: 1, retry_after: None, absent: false }
    }

    fn waits(mut self) -> Self {
        self.waits = true;
        self
    }

    fn retry_after(mut self, seconds: RangeInclusive<u64>) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// Adds the vendor's response to a second request.
    fn with_last_step(mut self, script: Vec<Step>) -> Self {
        self.script.push(script);
        self.requests = 2;
        self
    }
}

fn refused(name: &'static str, script: impl Into<Vec<Step>>, code: &'static str) -> Fault {
    Fault::new(name, script, Outcome::Problem(code))
}

fn broken(name: &'static str, script: impl Into<Vec<Step>>, text: &'static str, code: &'static str) -> Fault {
    Fault::new(name, script, Outcome::StreamError { text, code })
}

/// Returns a fault in which the vendor makes invalid tool calls and answers once it receives the error results.
fn recovered_fault(provider: Provider, name: &'static str, script: Vec<Step>, failed_calls: usize) -> Fault {
    let outcome = Outcome::Complete { text: "mended", failed_calls };
    Fault::new(name, script, outcome).with_last_step(provider.answer(&["mended"]))
}

/// Returns every fault of a provider.
pub fn faults(provider: Provider) -> Vec<Fault> {
    let provider_faults = match provider {
        Provider::OpenAi => chat_completions::faults(),
        Provider::Ollama => ollama::faults(),
        Provider::Workflow => workflow::faults(),
    };
    let tools = match provider {
        Provider::Workflow => Vec::new(),
        _ => tools(provider),
    };
    let common =
        [before_the_head(), refusals(), connections(provider), silences(provider), contents(provider), tools];
    common.into_iter().flatten().chain(provider_faults).collect()
}

fn raw(bytes: impl AsRef<[u8]>) -> Step {
    Step::Send(bytes.as_ref().to_vec())
}

fn head(provider: Provider, headers: &str) -> Step {
    raw(format!("HTTP/1.1 200 OK\r\ncontent-type: {}\r\n{headers}\r\n", provider.media_type()))
}

/// Returns a response with the text `par`, then the step `last`, then the end of the body.
fn text_then(provider: Provider, last: Step) -> [Step; 4] {
    [provider.stream_head(), provider.text("par"), last, last_chunk()]
}

/// Returns the beginning of a response with the text `par` and an incomplete event.
fn text_then_partial_event(provider: Provider) -> [Step; 3] {
    [provider.stream_head(), provider.text("par"), chunk(provider.partial_event())]
}

fn then<const N: usize>(steps: [Step; N], last: Step) -> Vec<Step> {
    steps.into_iter().chain([last]).collect()
}

fn before_the_head() -> Vec<Fault> {
    let flood = "HTTP/1.1 100 Continue\r\n\r\n";
    let mut absent = refused("connection-refused", [], "BACKEND_UNREACHABLE");
    (absent.absent, absent.requests) = (true, 0);
    vec![
        absent,
        refused("reset-before-head", [Step::Reset], "BACKEND_UNREACHABLE"),
        refused("close-before-head", [Step::Close], "BACKEND_UNREACHABLE"),
        refused("close-in-head", [raw("HTTP/1.1 200 OK\r\ncontent-ty"), Step::Close], "BACKEND_UNREACHABLE"),
        refused("stall-before-head", [Step::Stall], "BACKEND_TIMEOUT").waits(),
        refused("stall-in-head", [raw("HTTP/1.1 200 OK\r\ncontent-ty"), Step::Stall], "BACKEND_TIMEOUT")
            .waits(),
        refused(
            "endless-interim-heads",
            [Step::Drip(flood.into(), Duration::from_millis(5))],
            "BACKEND_TIMEOUT",
        )
        .waits(),
        refused("binary-garbage", [raw([0u8, 159, 146, 150, 13, 10, 13, 10]), Step::Stall], "BACKEND_FAILED"),
        refused("http-0.9", [raw("<html>hello</html>\r\n"), Step::Close], "BACKEND_FAILED"),
        refused("http-9", [raw("HTTP/9.9 200 OK\r\n\r\n"), Step::Stall], "BACKEND_FAILED"),
        refused(
            "two-lengths",
            [raw("HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 7\r\n\r\n"), Step::Stall],
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
    // Later than any test reads it.
    let soon = httpdate(Duration::from_secs(3_000));
    vec![
        refused("400", json_response("400 Bad Request", "", error), "BACKEND_FAILED"),
        refused("401", json_response("401 Unauthorized", "", error), "BACKEND_FAILED"),
        refused("404", json_response("404 Not Found", "", "gone"), "BACKEND_FAILED"),
        refused("408", json_response("408 Request Timeout", "", error), "BACKEND_TIMEOUT"),
        refused("429", json_response("429 Too Many Requests", "", error), "RATE_LIMITED").retry_after(1..=60),
        refused(
            "429-seconds",
            json_response("429 Too Many Requests", "retry-after: 17\r\n", error),
            "RATE_LIMITED",
        )
        .retry_after(17..=17),
        refused(
            "429-date",
            json_response("429 Too Many Requests", &format!("retry-after: {soon}\r\n"), error),
            "RATE_LIMITED",
        )
        .retry_after(600..=3_001),
        refused(
            "429-for-ever",
            json_response("429 Too Many Requests", "retry-after: 1000000000\r\n", error),
            "RATE_LIMITED",
        )
        .retry_after(3_600..=3_600),
        refused(
            "429-negative",
            json_response("429 Too Many Requests", "retry-after: -7\r\n", error),
            "RATE_LIMITED",
        )
        .retry_after(1..=60),
        refused(
            "429-exponent",
            json_response("429 Too Many Requests", "retry-after: 1e9\r\n", error),
            "RATE_LIMITED",
        )
        .retry_after(1..=60),
        refused(
            "429-nonsense",
            json_response("429 Too Many Requests", "retry-after: soon\r\n", error),
            "RATE_LIMITED",
        )
        .retry_after(1..=60),
        refused("500", json_response("500 Internal Server Error", "", error), "BACKEND_FAILED"),
        refused("503", json_response("503 Service Unavailable", "", "<html>"), "BACKEND_FAILED"),
        refused("504", json_response("504 Gateway Timeout", "", ""), "BACKEND_TIMEOUT"),
        refused("302", json_response("302 Found", "location: /v1/elsewhere\r\n", ""), "BACKEND_FAILED"),
        refused(
            "refusal-without-end",
            [raw("HTTP/1.1 500 No\r\ntransfer-encoding: chunked\r\n\r\n"), chunk("par"), Step::Stall],
            "BACKEND_FAILED",
        ),
        refused("error-as-json", json_response("200 OK", "", error), "BACKEND_FAILED"),
        refused(
            "portal-page",
            [raw("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>")],
            "BACKEND_FAILED",
        ),
    ]
}

fn connections(provider: Provider) -> Vec<Fault> {
    let truncated = "STREAM_TRUNCATED";
    let (begun, nothing) = (|| [provider.stream_head(), provider.text("par")], provider.empty_event());
    let half = || text_then_partial_event(provider);
    let response_bytes: Vec<u8> = provider
        .answer(&["whole"])
        .into_iter()
        .flat_map(|step| match step {
            Step::Send(bytes) => bytes,
            other => panic!("{other:?}"),
        })
        .collect();
    let smuggled = provider.answer(&["smuggled"]);
    let length = format!("content-length: {}\r\n", nothing.len() + 2);
    let of_a_length = |name, script: Vec<Step>, ahead| match provider.is_buffered() {
        true => refused(name, script, ahead),
        false => broken(name, script, "", truncated),
    };
    vec![
        broken("reset-after-head", [provider.stream_head(), Step::Reset], "", "BACKEND_FAILED"),
        broken("reset-in-line", then(half(), Step::Reset), "par", "BACKEND_FAILED"),
        broken("close-after-head", [provider.stream_head(), Step::Close], "", truncated),
        broken("close-in-line", then(half(), Step::Close), "par", truncated),
        broken("end-in-line", then(half(), last_chunk()), "par", truncated),
        broken(
            "close-in-chunk",
            begun().into_iter().chain([raw("40\r\ndata: {"), Step::Close]).collect::<Vec<_>>(),
            "par",
            truncated,
        ),
        broken(
            "bad-chunk-length",
            begun().into_iter().chain([raw("zz\r\ndata: {"), Step::Stall]).collect::<Vec<_>>(),
            "par",
            "BACKEND_FAILED",
        ),
        of_a_length(
            "length-too-long",
            vec![head(provider, "content-length: 10000\r\n"), raw(nothing), Step::Close],
            truncated,
        ),
        of_a_length(
            "length-too-short",
            vec![head(provider, &length), raw(nothing.repeat(2)), Step::Stall],
            truncated,
        ),
        of_a_length("no-content", vec![raw("HTTP/1.1 204 No Content\r\n\r\n")], "BACKEND_FAILED"),
        // Bytes after the end of a response belong to no request on the connection.
        Fault::new(
            "answer-after-answer",
            std::iter::once(raw(response_bytes)).chain(smuggled).collect::<Vec<_>>(),
            Outcome::Complete { text: "whole", failed_calls: 0 },
        ),
    ]
}

fn silences(provider: Provider) -> Vec<Fault> {
    let timeout = "BACKEND_TIMEOUT";
    let (head, text) = (|| provider.stream_head(), || provider.text("par"));
    let Step::Send(nothing) = chunk(provider.empty_event()) else { panic!("a chunk is sent") };
    vec![
        broken("stall-after-head", [head(), Step::Stall], "", timeout).waits(),
        broken("stall-after-text", [head(), text(), Step::Stall], "par", timeout).waits(),
        broken("stall-in-line", then(text_then_partial_event(provider), Step::Stall), "par", timeout).waits(),
        broken(
            "a-line-without-end",
            [head(), text(), Step::Drip(b"1\r\nx\r\n".to_vec(), Duration::from_millis(50))],
            "par",
            timeout,
        )
        .waits(),
        broken("empty-events", [head(), Step::Drip(nothing, Duration::from_millis(50))], "", timeout).waits(),
    ]
}

fn contents(provider: Provider) -> Vec<Fault> {
    let (failed, truncated) = ("BACKEND_FAILED", "STREAM_TRUNCATED");
    let after_text = |last: Step| text_then(provider, last);
    let event = |data: &str| provider.event(data);
    let half = provider.partial_event().as_bytes();
    let bad_utf8 = [half, b"\xff\xfe", provider.rest_of_event().as_bytes()].concat();
    let half_a_letter = [half, b"\xf0\x9f"].concat();
    let deep = format!("{{\"x\":{}", "[".repeat(100_000));
    let long = [provider.stream_head(), provider.text("par"), chunk(vec![b'x'; 10 << 20]), Step::Stall];
    vec![
        broken("half-a-letter", after_text(chunk(half_a_letter)), "par", truncated),
        broken("invalid-utf8", after_text(chunk(bad_utf8)), "par", failed),
        broken("not-json", after_text(event("sorry")), "par", failed),
        broken("a-list", after_text(event("[1,2]")), "par", failed),
        broken("deep-json", after_text(event(&deep)), "par", failed),
        broken("long-line", long, "par", failed),
        broken(
            "error-event",
            after_text(event(r#"{"error":{"message":"overloaded","code":503}}"#)),
            "par",
            failed,
        ),
        broken("error-text-event", after_text(event(r#"{"error":"overloaded"}"#)), "par", failed),
        broken("no-finish", [provider.stream_head(), provider.text("par"), last_chunk()], "par", truncated),
        broken("nothing", [provider.stream_head(), last_chunk()], "", truncated),
    ]
}

fn tools(provider: Provider) -> Vec<Fault> {
    let call = |name, arguments| provider.tool_calls(&[("c1", name, arguments)]);
    let mended = |name, script, failed_calls| recovered_fault(provider, name, script, failed_calls);
    let good = || call("readTodos", "{}");
    let many: Vec<_> = (0..33).map(|i| format!("c{i}")).collect();
    let many: Vec<_> = many.iter().map(|id| (id.as_str(), "readTodos", "{}")).collect();
    let two = |id| provider.tool_calls(&[(id, "readTodos", "{}"), (id, "readTodos", "{}")]);
    let long = format!("{{\"x\":\"{}\"}}", "y".repeat(300 << 10));
    // A stream without its final event.
    let cut_off = good().into_iter().take(2).chain([last_chunk()]).collect::<Vec<_>>();
    let begun_call = good().into_iter().take(2).chain([Step::Reset]).collect::<Vec<_>>();
    let limit = |name, script| broken(name, script, "", "TOOL_LOOP_LIMIT");
    let mut endless = limit("endless-rounds", good());
    endless.requests = MAX_TOOL_ROUNDS;
    vec![
        mended("arguments-not-json", call("readTodos", r#"{"a":"#), 1),
        mended("arguments-a-list", call("readTodos", "[]"), 1),
        mended("unknown-tool", call("noSuchTool", "{}"), 1),
        mended("no-tool-name", call("", "{}"), 1),
        mended("duplicate-call-ids", two("c1"), 0),
        mended("no-call-ids", two(""), 0),
        endless,
        limit("many-calls", provider.tool_calls(&many)),
        broken("long-arguments", call("readTodos", &long), "", "BACKEND_FAILED"),
        broken("call-cut-off", cut_off, "", "STREAM_TRUNCATED"),
        broken("call-reset", begun_call, "", "BACKEND_FAILED"),
        broken("second-round-500", good(), "", "BACKEND_FAILED")
            .with_last_step(json_response("500 No", "", "")),
        broken("second-round-429", good(), "", "RATE_LIMITED")
            .with_last_step(json_response("429 No", "", "")),
        broken("second-round-reset", good(), "", "BACKEND_UNREACHABLE").with_last_step(vec![Step::Reset]),
        broken("second-round-stall", good(), "", "BACKEND_TIMEOUT").with_last_step(vec![Step::Stall]).waits(),
    ]
}

/// Formats the time `from_now` from now as an HTTP date (RFC 9110).
fn httpdate(from_now: Duration) -> String {
    httpdate::fmt_http_date(SystemTime::now() + from_now)
}
