//! Faults specific to Chat Completions servers.

use std::time::Duration;

use serde_json::json;

use super::{Fault, Provider, broken, recovered_fault, refused, text_then};
use crate::support::vendor::{Step, chunk, delta, event, finish, json_response, last_chunk, stream_head};

pub(super) fn faults() -> Vec<Fault> {
    let (failed, truncated) = ("BACKEND_FAILED", "STREAM_TRUNCATED");
    let after_text = |last: Step| text_then(Provider::OpenAi, last);
    let text = || delta(json!({"content": "par"}));
    let comments = |pause| Step::Drip(b"4\r\n: x\n\r\n".to_vec(), pause);
    let at = |index: usize| {
        delta(json!({"tool_calls": [{"index": index, "id": format!("c{index}"), "type": "function",
            "function": {"name": "readTodos", "arguments": "{}"}}]}))
    };
    let gaps = [stream_head(), at(2), at(9), at(5)].into_iter().chain(finish("tool_calls")).collect();
    let unpaid = r#"{"error":{"type":"insufficient_quota","code":"insufficient_quota"}}"#;
    vec![
        refused("quota-spent", json_response("429 Too Many Requests", "", unpaid), "ACCOUNT_REFUSED"),
        refused("unpaid", json_response("402 Payment Required", "", "{}"), "ACCOUNT_REFUSED"),
        broken(
            "comments",
            [stream_head(), text(), comments(Duration::from_millis(50))],
            "par",
            "BACKEND_TIMEOUT",
        )
        .waits(),
        broken("comments-in-a-flood", [stream_head(), comments(Duration::ZERO)], "", "BACKEND_TIMEOUT")
            .waits(),
        broken("not-sse", after_text(chunk("<html>\n\nsorry\n\n")), "par", truncated),
        broken("half-json", after_text(event(r#"{"choices":[{"#)), "par", failed),
        broken("another-shape", after_text(event(r#"{"choices":"none"}"#)), "par", failed),
        broken(
            "named-error-event",
            after_text(chunk("event: error\ndata: {\"error\":\"overloaded\"}\n\n")),
            "par",
            failed,
        ),
        broken("done-at-once", [stream_head(), event("[DONE]"), last_chunk()], "", truncated),
        recovered_fault(Provider::OpenAi, "call-index-gaps", gaps, 0),
    ]
}
