//! Faults specific to workflows.

use std::time::Duration;

use serde_json::json;

use super::{Fault, IDLE, Outcome, Provider, broken, refused, said};
use crate::support::vendor::n8n::{JSON, end, head, line, one_piece, stream_head, text};
use crate::support::vendor::{Step, chunk, last_chunk};

pub(super) fn faults() -> Vec<Fault> {
    let (failed, timeout) = ("BACKEND_FAILED", "BACKEND_TIMEOUT");
    let said = |last: Step| said(Provider::Workflow, last);
    let error = || line(&json!({"type": "error", "metadata": {"nodeId": "n", "nodeName": "AI Agent"}}));
    let piece = |body: &str| vec![head(), chunk(body), last_chunk()];
    let whole =
        |name, script: Vec<Step>| Fault::new(name, script, Outcome::Whole { said: "whole", failed_calls: 0 });
    let Step::Send(keepalive) = line(&json!({"type": "keepalive"})) else { panic!("a chunk is sent") };
    let [ended, _] = end();
    vec![
        refused("started", one_piece("200 OK", JSON, "started.json"), failed),
        refused("started-as-text", one_piece("200 OK", "text/html", "started-early.txt"), failed),
        refused("inactive", one_piece("404 Not Found", JSON, "inactive.json"), failed),
        refused("failed", one_piece("500 No", JSON, "failed-with-stack.json"), failed),
        refused("an-echo", one_piece("200 OK", JSON, "echo.json"), failed),
        broken("started-in-chunks", piece(r#"{"message":"Workflow was started"}"#), "", failed),
        broken("nothing-at-all", vec![head(), last_chunk()], "", failed),
        broken("an-error-alone", vec![head(), error(), last_chunk()], "", failed),
        broken("an-error-after-text", said(error()), "par", failed),
        broken("an-error-and-silence", [stream_head(), text("par"), error(), Step::Stall], "par", failed),
        broken("calls-without-text", vec![stream_head(), ended.clone(), last_chunk()], "", failed),
        broken("a-page-in-chunks", piece("<!doctype html>"), "", failed),
        broken("half-json", piece(r#"{"output":"whole"#), "", failed),
        broken("too-large", vec![head(), chunk(vec![b'x'; 5 << 20]), Step::Stall], "", failed),
        broken("a-piece-that-stalls", vec![head(), chunk(r#"{"output":"#), Step::Stall], "", timeout)
            .waits(IDLE),
        broken(
            "a-call-that-stalls",
            [stream_head(), text("par"), ended.clone(), Step::Stall],
            "par",
            timeout,
        )
        .waits(IDLE),
        broken("keepalives-in-a-flood", [stream_head(), Step::Drip(keepalive, Duration::ZERO)], "", timeout)
            .waits(IDLE),
        whole("a-piece-in-chunks", piece(r#"{"output":"whole"}"#)),
        whole("no-calls", vec![head(), text("whole"), last_chunk()]),
        whole("one-end-too-many", vec![stream_head(), text("whole"), ended.clone(), ended, last_chunk()]),
    ]
}
