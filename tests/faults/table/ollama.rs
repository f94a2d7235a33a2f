//! Faults specific to Ollama.

use std::time::Duration;

use serde_json::json;

use super::{Fault, Outcome, Provider, broken, raw, recovered_fault, refused, text_then};
use crate::support::vendor::ollama::{answer, done, json_line, stream_head, text, tool_calls};
use crate::support::vendor::{Step, chunk, json_response, last_chunk};

pub(super) fn faults() -> Vec<Fault> {
    let failed = "BACKEND_FAILED";
    let after_text = |last: Step| text_then(Provider::Ollama, last);
    let blank = |pause| Step::Drip(b"1\r\n\n\r\n".to_vec(), pause);
    let unstreamed = |name, script: Vec<Step>| {
        Fault::new(name, script, Outcome::Complete { text: "whole", failed_calls: 0 })
    };
    let ended = [stream_head(), text("whole")].into_iter().chain(done("stop", 11));
    let with_more = |more: Step| -> Vec<Step> {
        let mut steps: Vec<Step> = ended.clone().collect();
        steps.insert(3, more);
        steps
    };
    let without_an_end = done("stop", 11).into_iter().take(1);
    let takes_no_tools = r#"{"error":"registry.ollama.ai/library/m:latest does not support tools"}"#;
    vec![
        refused("takes-no-tools", json_response("400 Bad Request", "", takes_no_tools), failed),
        refused(
            "a-refusal-whose-words-do-not-come",
            [raw("HTTP/1.1 400 No\r\ntransfer-encoding: chunked\r\n\r\n"), chunk("par"), Step::Stall],
            failed,
        ),
        broken(
            "blank-lines",
            [stream_head(), text("par"), blank(Duration::from_millis(50))],
            "par",
            "BACKEND_TIMEOUT",
        )
        .waits(),
        broken("blank-lines-in-a-flood", [stream_head(), blank(Duration::ZERO)], "", "BACKEND_TIMEOUT")
            .waits(),
        broken("not-lines", after_text(chunk("<html>\n\nsorry\n\n")), "par", failed),
        broken("half-json", after_text(chunk("{\"message\":{\n")), "par", failed),
        broken("another-shape", after_text(json_line(&json!({"message": "none"}))), "par", failed),
        broken("events", after_text(chunk("data: {\"done\":true}\n\n")), "par", failed),
        broken(
            "an-error-that-is-done",
            after_text(json_line(&json!({"error": "no", "done": true}))),
            "par",
            failed,
        ),
        broken(
            "loaded-and-no-more",
            [stream_head()].into_iter().chain(done("load", 0)).collect::<Vec<_>>(),
            "",
            "STREAM_TRUNCATED",
        ),
        // The answer is complete with its `done` line, whatever follows.
        unstreamed("text-after-the-end", with_more(text("never"))),
        unstreamed("an-error-after-the-end", with_more(json_line(&json!({"error": "late"})))),
        unstreamed("garbage-after-the-end", with_more(chunk("sorry"))),
        unstreamed(
            "no-end-of-the-body",
            [stream_head(), text("whole")].into_iter().chain(without_an_end).chain([Step::Stall]).collect(),
        ),
        recovered_fault(Provider::Ollama, "arguments-null", tool_calls(&[("", "readTodos", "null")]), 0),
        recovered_fault(Provider::Ollama, "arguments-a-number", tool_calls(&[("", "readTodos", "7")]), 1),
        recovered_fault(Provider::Ollama, "arguments-as-text", tool_calls(&[("", "readTodos", "\"{}\"")]), 0),
        {
            let mut answer = answer(&["whole"]);
            answer.truncate(2);
            answer.push(chunk(r#"{"done":true}"#));
            answer.push(last_chunk());
            unstreamed("no-end-of-the-last-line", answer)
        },
    ]
}
