//! Faults specific to workflows.

use std::time::Duration;

use serde_json::json;

use super::{Fault, Outcome, Provider, broken, refused, text_then};
use crate::support::vendor::n8n::{
    JSON_CONTENT_TYPE, end, fixture_response, head, json_line, stream_head, text,
};
use crate::support::vendor::{Step, chunk, last_chunk};

pub(super) fn faults() -> Vec<Fault> {
    let (failed, timeout) = ("BACKEND_FAILED", "BACKEND_TIMEOUT");
    let after_text = |last: Step| text_then(Provider::Workflow, last);
    let error = || json_line(&json!({"type": "error", "metadata": {"nodeId": "n", "nodeName": "AI Agent"}}));
    let piece = |body: &str| vec![head(), chunk(body), last_chunk()];
    let unstreamed = |name, script: Vec<Step>| {
        Fault::new(name, script, Outcome::Complete { text: "whole", failed_calls: 0 })
    };
    let Step::Send(keepalive) = json_line(&json!({"type": "keepalive"})) else { panic!("a chunk is sent") };
    let [ended, _] = end();
    vec![
        refused("started", fixture_response("200 OK", JSON_CONTENT_TYPE, "started.json"), failed),
        refused("started-as-text", fixture_response("200 OK", "text/html", "started-early.txt"), failed),
        refused("inactive", fixture_response("404 Not Found", JSON_CONTENT_TYPE, "inactive.json"), failed),
        refused("failed", fixture_response("500 No", JSON_CONTENT_TYPE, "failed-with-stack.json"), failed),
        refused("an-echo", fixture_response("200 OK", JSON_CONTENT_TYPE, "echo.json"), failed),
        broken("started-in-chunks", piece(r#"{"message":"Workflow was started"}"#), "", failed),
        broken("nothing-at-all", vec![head(), last_chunk()], "", failed),
        broken("an-error-alone", vec![head(), error(), last_chunk()], "", failed),
        broken("an-error-after-text", after_text(error()), "par", failed),
        broken("an-error-and-silence", [stream_head(), text("par"), error(), Step::Stall], "par", failed),
        broken("calls-without-text", vec![stream_head(), ended.clone(), last_chunk()], "", failed),
        broken("a-page-in-chunks", piece("<!doctype html>"), "", failed),
        broken("half-json", piece(r#"{"output":"whole"#), "", failed),
        broken("too-large", vec![head(), chunk(vec![b'x'; 5 << 20]), Step::Stall], "", "OUTPUT_TOO_LARGE"),
        broken("a-piece-that-stalls", vec![head(), chunk(r#"{"output":"#), Step::Stall], "", timeout).waits(),
        broken(
            "a-call-that-stalls",
            [stream_head(), text("par"), ended.clone(), Step::Stall],
            "par",
            timeout,
        )
        .waits(),
        broken("keepalives-in-a-flood", [stream_head(), Step::Drip(keepalive, Duration::ZERO)], "", timeout)
            .waits(),
        unstreamed("a-piece-in-chunks", piece(r#"{"output":"whole"}"#)),
        unstreamed("no-calls", vec![head(), text("whole"), last_chunk()]),
        unstreamed(
            "one-end-too-many",
            vec![stream_head(), text("whole"), ended.clone(), ended, last_chunk()],
        ),
    ]
}
