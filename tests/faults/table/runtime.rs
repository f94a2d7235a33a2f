//! Faults of a runtime whose agent has a fallback at another one.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Fault, Outcome, before_the_head, broken, refused};
use crate::support::vendor::{Step, chunk, json_response, last_chunk};

fn head() -> Step {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n";
    Step::Send(head.into())
}

fn line(event: Value) -> Step {
    chunk(format!("{event}\n"))
}

/// Returns the first events of a run of this platform's runtime.
fn beginning() -> Vec<Step> {
    let notice =
        json!({"kind": "parametersIgnored", "provider": "openai", "model": "m", "parameters": ["topK"]});
    vec![
        head(),
        line(json!({"type": "RUN_STARTED", "threadId": "t", "runId": "r"})),
        line(json!({"type": "STEP_STARTED", "stepName": "round-1"})),
        line(json!({"type": "CUSTOM", "name": "agent.debug", "value": notice})),
    ]
}

fn text(delta: &str) -> Vec<Step> {
    vec![
        line(json!({"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"})),
        line(json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": delta})),
    ]
}

/// Returns a whole run with the text `hello world`.
pub fn answer() -> Vec<Step> {
    let usage = json!([{"provider": "openai", "model": "m", "inputTokens": 11, "outputTokens": 7}]);
    let end = line(json!({"type": "RUN_FINISHED", "threadId": "t", "runId": "r", "usage": usage}));
    [beginning(), text("hello world"), vec![end, last_chunk()]].concat()
}

/// Returns a runtime's problem response.
pub fn problem(status: &str, code: &str) -> Vec<Step> {
    json_response(status, "", &json!({"title": "x", "code": code}).to_string())
}

fn run_error(code: &str) -> Step {
    line(json!({"type": "RUN_ERROR", "message": "it failed", "code": code}))
}

/// Returns the faults before the first event of a run, which the fallback answers, and the others with their errors.
pub fn faults() -> Vec<Fault> {
    let answered = before_the_head().into_iter().chain(refused_calls()).chain(runs_without_events());
    let answered = answered
        .map(|fault| Fault { outcome: Outcome::Complete { text: "hello world", failed_calls: 0 }, ..fault });
    answered.chain(final_faults()).collect()
}

fn refused_calls() -> Vec<Fault> {
    let failed = "BACKEND_FAILED";
    vec![
        refused("503", json_response("503 Service Unavailable", "", "<html>"), failed),
        refused("429", json_response("429 Too Many Requests", "retry-after: 90\r\n", "{}"), failed),
        refused("401", problem("401 Unauthorized", "UNAUTHENTICATED"), failed),
        refused("302", json_response("302 Found", "location: /elsewhere\r\n", ""), failed),
        refused("shutting-down", problem("503 Service Unavailable", "SERVER_SHUTTING_DOWN"), failed),
        refused("internal", problem("500 Internal Server Error", "INTERNAL"), failed),
        refused("unknown-provider", problem("400 Bad Request", "UNKNOWN_PROVIDER"), failed),
        refused("no-provider", problem("501 Not Implemented", "PROVIDER_NOT_IMPLEMENTED"), failed),
        refused("model-away", problem("502 Bad Gateway", "BACKEND_UNREACHABLE"), failed),
    ]
}

fn runs_without_events() -> Vec<Fault> {
    let fault = |name, script: Vec<Step>| broken(name, script, "", "");
    let then = |last: Step| [beginning(), vec![last]].concat();
    let keep_alive = Step::Drip(b"1\r\n\n\r\n".into(), Duration::from_millis(5));
    vec![
        // After the head.
        fault("reset-after-head", vec![head(), Step::Reset]),
        fault("close-after-head", vec![head(), Step::Close]),
        fault("stall-after-head", vec![head(), Step::Stall]).waits(),
        fault("nothing", vec![head(), last_chunk()]),
        fault("a-page", vec![head(), chunk("<html>\n"), last_chunk()]),
        fault("error-alone", vec![head(), run_error("BACKEND_TIMEOUT"), last_chunk()]),
        fault("unknown-error-alone", vec![head(), run_error("THEIRS"), last_chunk()]),
        // After keep-alives, and after what every run begins with.
        fault("keep-alives", vec![head(), keep_alive]).waits(),
        fault("reset-after-keep-alives", vec![head(), chunk("\n"), chunk(" \n"), Step::Reset]),
        fault("reset-after-beginning", then(Step::Reset)),
        fault("stall-after-beginning", then(Step::Stall)).waits(),
        fault("error-after-beginning", then(run_error("BACKEND_FAILED"))),
    ]
}

fn final_faults() -> Vec<Fault> {
    let (failed, truncated) = ("BACKEND_FAILED", "STREAM_TRUNCATED");
    let after_text = |last: Step| [beginning(), text("par"), vec![last]].concat();
    let tool = json!({"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "createTodo"});
    let step = json!({"type": "STEP_STARTED", "stepName": "search"});
    vec![
        refused("400", problem("400 Bad Request", "SOMETHING_NEW"), failed),
        refused("pictures", problem("422 Unprocessable", "UNSUPPORTED_CONTENT"), "UNSUPPORTED_CONTENT"),
        broken("loop-limit", vec![head(), run_error("TOOL_LOOP_LIMIT"), last_chunk()], "", "TOOL_LOOP_LIMIT"),
        // After the first event.
        broken("reset-after-text", after_text(Step::Reset), "par", failed),
        broken("close-after-text", after_text(Step::Close), "par", truncated),
        broken("error-after-text", after_text(run_error("BACKEND_TIMEOUT")), "par", "BACKEND_TIMEOUT"),
        broken("reset-after-tool", vec![head(), line(tool), Step::Reset], "", failed),
        broken("reset-after-step", vec![head(), line(step), Step::Reset], "", failed),
    ]
}
