//! Faults of the vendor, each at every place at which it can occur: before the head of the response, before the first
//! output, within a text and within a call. Each run ends once, with the code of the fault. The table is also run with
//! agents that answer by a subscription (`tests/coding/faults.rs`).

use std::sync::Mutex;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

use super::{app, of_type};
use crate::support::responses_vendor::{
    OutputItem, Reply, ResponsesVendor, arguments_delta, completed, created, item_events, text_delta,
};
use crate::support::server::Server;
use crate::support::vendor::{
    CASE_TIMEOUT, LONG_TIMEOUTS, SHORT_TIMEOUTS, Step, chunk, event, json_response, last_chunk, stream_head,
};
use crate::support::{parse_run, read_until, report, text_of};

/// Number of cases that run concurrently.
const MAX_CONCURRENT_CASES: usize = 8;

/// Place at which a fault occurs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultPosition {
    Head,
    BeforeOutput,
    InText,
    InCall,
}

const IN_STREAM: [FaultPosition; 3] =
    [FaultPosition::BeforeOutput, FaultPosition::InText, FaultPosition::InCall];
const EVERYWHERE: [FaultPosition; 4] =
    [FaultPosition::Head, FaultPosition::BeforeOutput, FaultPosition::InText, FaultPosition::InCall];

impl FaultPosition {
    /// Returns the bytes that the vendor has sent when the fault occurs.
    pub(crate) fn steps_before(self) -> Vec<Step> {
        let mut steps = vec![stream_head(), event(created())];
        match self {
            Self::Head => return Vec::new(),
            Self::BeforeOutput => {}
            Self::InText => steps.push(event(text_delta(0, "par"))),
            Self::InCall => {
                let call = OutputItem::call("c1", "readTodos", r#"{"a":1}"#);
                steps.extend(item_events(0, &call).into_iter().take(2).map(event));
            }
        }
        steps
    }
}

/// A fault with its code at a place of the stream, and before the head.
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    positions: &'static [FaultPosition],
    steps: Vec<Step>,
    /// Code in a stream; `None` for an answer that is complete all the same.
    code: Option<&'static str>,
    head_code: &'static str,
}

/// Returns a fault within a stream.
fn in_stream(name: &'static str, steps: Vec<Step>, code: &'static str) -> Fault {
    Fault { name, positions: &IN_STREAM, steps, code: Some(code), head_code: "" }
}

/// Returns a fault of an event, after which the vendor would go on.
fn of_event(name: &'static str, data: impl std::fmt::Display, code: &'static str) -> Fault {
    in_stream(name, vec![event(data), event(completed()), last_chunk()], code)
}

/// Returns a fault of the connection, which may occur everywhere.
fn of_connection(name: &'static str, step: Step, head_code: &'static str, code: &'static str) -> Fault {
    Fault { name, positions: &EVERYWHERE, steps: vec![step], code: Some(code), head_code }
}

/// Returns a response other than a stream.
fn of_head(name: &'static str, steps: Vec<Step>, head_code: &'static str) -> Fault {
    Fault { name, positions: &[FaultPosition::Head], steps, code: None, head_code }
}

fn raw(bytes: impl AsRef<[u8]>) -> Step {
    Step::Send(bytes.as_ref().to_vec())
}

fn page(status: &str, headers: &str) -> Vec<Step> {
    let head =
        format!("HTTP/1.1 {status}\r\ncontent-type: text/html\r\n{headers}content-length: 6\r\n\r\n<html>");
    vec![raw(head)]
}

fn failed(code: &str) -> Value {
    json!({"type": "response.failed", "response": {"error": {"code": code, "message": "canary"}}})
}

fn connections() -> Vec<Fault> {
    let garbage = raw([0_u8, 159, 146, 150, 13, 10, 13, 10]);
    vec![
        of_connection("reset", Step::Reset, "BACKEND_UNREACHABLE", "BACKEND_FAILED"),
        of_connection("close", Step::Close, "BACKEND_UNREACHABLE", "STREAM_TRUNCATED"),
        of_connection("silence", Step::Stall, "BACKEND_TIMEOUT", "BACKEND_TIMEOUT"),
        of_connection("garbage", garbage, "BACKEND_FAILED", "BACKEND_FAILED"),
        in_stream("end-of-body", vec![last_chunk()], "STREAM_TRUNCATED"),
        in_stream("half-an-event", vec![chunk("data: {\"type\":"), last_chunk()], "STREAM_TRUNCATED"),
        in_stream("half-a-letter", vec![chunk(b"data: \"\xf0\x9f"), last_chunk()], "STREAM_TRUNCATED"),
        in_stream(
            "comments",
            vec![Step::Drip(b"4\r\n:hi\n\r\n".to_vec(), Duration::from_millis(50))],
            "BACKEND_TIMEOUT",
        ),
        in_stream("done-marker", vec![event("[DONE]"), last_chunk()], "STREAM_TRUNCATED"),
    ]
}

fn contents() -> Vec<Fault> {
    let broken = "BACKEND_FAILED";
    let deep = format!("{{\"x\":{}", "[".repeat(100_000));
    let incomplete =
        |details: Value| json!({"type": "response.incomplete", "response": {"incomplete_details": details}});
    let unknown = arguments_delta(7, "{}");
    let many = (0..33).map(|index| {
        let call = OutputItem::call(format!("x{index}"), "readTodos", "{}");
        event(&item_events(index + 40, &call)[0])
    });
    vec![
        of_event("no-json", "sorry", broken),
        of_event("a-list", "[1,2]", broken),
        of_event("deep-json", &deep, broken),
        in_stream("invalid-utf8", vec![chunk(b"data: {\"type\":\"\xff\xfe\"}\n\n"), last_chunk()], broken),
        in_stream("long-line", vec![chunk(vec![b'x'; 5 << 20]), Step::Stall], broken),
        of_event("delta-of-nothing", unknown, broken),
        of_event("delta-without-text", json!({"type": "response.output_text.delta", "delta": 7}), broken),
        of_event("incomplete", incomplete(json!({"reason": "something_new"})), broken),
        in_stream("many-calls", many.collect(), "TOOL_LOOP_LIMIT"),
        of_event("error-event", json!({"type": "error", "message": "canary"}), broken),
        of_event("failed", failed("server_error"), broken),
        of_event("overloaded", failed("server_is_overloaded"), broken),
        of_event("policy", failed("cyber_policy"), broken),
        of_event("rate-limit", failed("rate_limit_exceeded"), "RATE_LIMITED"),
        of_event("usage-limit", failed("usage_limit_reached"), "RATE_LIMITED"),
        of_event("overflow", failed("context_length_exceeded"), "CONTEXT_LENGTH_EXCEEDED"),
    ]
}

fn heads() -> Vec<Fault> {
    let error = |code: &str| {
        json!({"error": {"code": code, "message": "canary", "resets_in_seconds": 90}}).to_string()
    };
    let json = |status: &str, code: &str| json_response(status, "", &error(code));
    vec![
        of_head("400", json("400 Bad Request", "unsupported_parameter"), "BACKEND_FAILED"),
        of_head("401", json("401 Unauthorized", "invalid_api_key"), "BACKEND_FAILED"),
        of_head("403-page", page("403 Forbidden", "cf-mitigated: challenge\r\n"), "BACKEND_FAILED"),
        of_head("404-usage", json("404 Not Found", "usage_limit_reached"), "RATE_LIMITED"),
        of_head("413", json("413 Payload Too Large", ""), "INVALID_REQUEST"),
        of_head("429", json_response("429 Too Many Requests", "retry-after: 17\r\n", "{}"), "RATE_LIMITED"),
        of_head("503", json("503 Service Unavailable", "slow_down"), "BACKEND_FAILED"),
        of_head("302", json_response("302 Found", "location: /v1/elsewhere\r\n", ""), "BACKEND_FAILED"),
        of_head("200-page", page("200 OK", ""), "BACKEND_FAILED"),
        of_head("200-error", json("200 OK", "rate_limit_exceeded"), "RATE_LIMITED"),
        of_head(
            "200-gzip",
            json_response("200 OK", "content-encoding: gzip\r\n", "\u{1f}\u{8b}"),
            "BACKEND_FAILED",
        ),
    ]
}

/// Returns all faults.
pub(crate) fn faults() -> Vec<Fault> {
    let faults: Vec<Fault> = connections().into_iter().chain(contents()).chain(heads()).collect();
    assert_eq!(faults.len(), 36);
    faults
}

/// A fault at a place.
pub(crate) struct FaultCase<'f> {
    /// Name of the agent, and of its model.
    pub(crate) model: String,
    pub(crate) fault: &'f Fault,
    pub(crate) position: FaultPosition,
}

impl FaultCase<'_> {
    /// Returns the code of the case; `None` for an answer that is complete all the same.
    pub(crate) fn code(&self) -> Option<&'static str> {
        if self.position == FaultPosition::Head { Some(self.fault.head_code) } else { self.fault.code }
    }

    /// Returns true if a time-out must expire before the run ends.
    pub(crate) fn waits(&self) -> bool {
        self.code() == Some("BACKEND_TIMEOUT")
    }
}

/// Returns each fault at each of its places, and sets the vendor's replies.
pub(crate) fn cases<'f>(faults: &'f [Fault], vendor: &ResponsesVendor) -> Vec<FaultCase<'f>> {
    let mut cases = Vec::new();
    for fault in faults {
        for &position in fault.positions {
            let model = format!("{}-{position:?}", fault.name);
            let steps = position.steps_before().into_iter().chain(fault.steps.clone()).collect::<Vec<_>>();
            vendor.on(&model, [Reply::steps(steps)]);
            cases.push(FaultCase { model, fault, position });
        }
    }
    cases
}

/// Runs all cases as user `u1`, each at the application that `app` returns for it, and panics with those that do not end with
/// the code that `expected` returns.
pub(crate) async fn check_cases<'a>(
    app: impl Fn(&FaultCase<'_>) -> &'a Server,
    cases: &[FaultCase<'_>],
    expected: impl Fn(&FaultCase<'_>) -> Option<&'static str>,
) {
    let slowest = Mutex::new(Duration::ZERO);
    let wrong: Vec<String> = stream::iter(cases)
        .map(async |case| {
            let (code, start) = (expected(case), Instant::now());
            let checked = tokio::time::timeout(CASE_TIMEOUT, check(app(case), case, code)).await;
            if !case.waits() {
                let mut slowest = slowest.lock().expect("unpoisoned");
                *slowest = slowest.max(start.elapsed());
            }
            let outcome = checked.unwrap_or_else(|_| Err("it hangs".into()));
            outcome.err().map(|what| format!("{}: {what}", case.model))
        })
        .buffer_unordered(MAX_CONCURRENT_CASES)
        .filter_map(async |wrong| wrong)
        .collect()
        .await;
    report(&format!("the slowest case without a time-out: {:?}", slowest.lock().expect("unpoisoned")));
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_at_every_position_ends_the_run_once() {
    let (faults, vendor) = (faults(), ResponsesVendor::start().await);
    let cases = cases(&faults, &vendor);
    let models: Vec<&str> = cases.iter().map(|case| case.model.as_str()).collect();
    let patient = app(&vendor, &models, json!({}), &LONG_TIMEOUTS).await;
    let impatient = app(&vendor, &models, json!({}), &SHORT_TIMEOUTS).await;
    check_cases(|case| if case.waits() { &impatient } else { &patient }, &cases, |case| case.code()).await;
    assert_eq!(vendor.complaints(), [""; 0]);
}

/// Runs one case.
async fn check(app: &Server, case: &FaultCase<'_>, code: Option<&str>) -> Result<(), String> {
    let question = json!({"agentId": case.model, "message": "hello", "todoListId": "l1"});
    let response = app.chat(&question).await;
    let status = response.status().as_u16();
    let body = response.text().await.map_err(|error| error.to_string())?;
    if body.contains("canary") {
        return Err(format!("the vendor's text is shown: {body}"));
    }
    if case.position == FaultPosition::Head {
        let problem: Value = serde_json::from_str(&body).map_err(|error| format!("{error}: {body}"))?;
        let is_right = status >= 400 && problem["code"].as_str() == code;
        return if is_right { Ok(()) } else { Err(format!("{status} {body}")) };
    }
    let events = parse_run(&body);
    let ends: Vec<&Value> =
        ["RUN_ERROR", "RUN_FINISHED"].iter().flat_map(|kind| of_type(&events, kind)).collect();
    let [end] = ends[..] else { return Err(format!("{} ends: {body}", ends.len())) };
    let expected_text = if case.position == FaultPosition::InText { "par" } else { "" };
    let is_right = end["code"].as_str() == code && text_of(&events) == expected_text;
    let ran = of_type(&events, "TOOL_CALL_RESULT").len();
    if is_right && ran == 0 { Ok(()) } else { Err(format!("{end}, {ran} calls made: {body}")) }
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_call_to_the_vendor() {
    let vendor = ResponsesVendor::start().await;
    vendor.on("m", [Reply::steps([FaultPosition::InText.steps_before(), vec![Step::Stall]].concat())]);
    let app = app(&vendor, &["m"], json!({}), &[]).await;
    let mut response = app.chat(&json!({"agentId": "m", "message": "hello", "todoListId": "l1"})).await;
    read_until(&mut response, "\"par\"").await;
    let left = Instant::now();
    drop(response);
    vendor.wait_for_disconnects(1).await;
    report(&format!("the call ended {:?} after its client had left", left.elapsed()));
}

#[tokio::test]
async fn data_after_the_end_of_an_answer_is_ignored() {
    let vendor = ResponsesVendor::start().await;
    let text = || vec![event(text_delta(0, "whole")), event(completed())];
    for (model, after) in [
        (
            "events",
            vec![event(text_delta(0, "more")), event(failed("server_error")), event("sorry"), last_chunk()],
        ),
        ("silence", vec![Step::Stall]),
        ("reset", vec![Step::Reset]),
        ("garbage", vec![raw("zz\r\n"), Step::Stall]),
    ] {
        vendor.on(model, [Reply::steps([vec![stream_head()], text(), after].concat())]);
    }
    let models = ["events", "silence", "reset", "garbage"];
    let app = app(&vendor, &models, json!({}), &[]).await;
    for model in models {
        let events = super::run(&app, model).await;
        assert_eq!(text_of(&events), "whole", "{model}: {events:?}");
        assert_eq!(of_type(&events, "RUN_FINISHED").len(), 1, "{model}: {events:?}");
    }
}
