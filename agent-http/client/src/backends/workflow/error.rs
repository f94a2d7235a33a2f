//! Errors of a workflow, whose messages are for the person who has set it up. None repeats the engine's text: its errors
//! contain stack traces, and an answer may echo the whole request.

use agent_core::error::{AgentError, AgentErrorKind};
use http::{HeaderMap, StatusCode};

use crate::outbound::status_failure;

/// Maps an unsuccessful status.
pub(super) fn from_status(status: StatusCode, headers: &HeaderMap) -> AgentError {
    let message = match status {
        StatusCode::NOT_FOUND => {
            "no workflow is registered for the webhook (HTTP 404): the workflow must be active, and webhookUrl its production URL"
        }
        StatusCode::INTERNAL_SERVER_ERROR => "the workflow failed (HTTP 500)",
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            "the workflow's webhook rejected the connector's credentials"
        }
        _ => return status_failure(status, headers),
    };
    AgentError::new(AgentErrorKind::Failed, message)
}

/// Returns the error for a workflow that was started and does not return its output.
pub(super) fn started() -> AgentError {
    failed(
        "the workflow was started but returned no response: its trigger must respond by streaming, when the last node finishes, or with a response node",
    )
}

/// Returns the error for an answer without content.
pub(super) fn empty() -> AgentError {
    failed(
        "the workflow's response is empty: its last node must return an output or, if its trigger streams, a node must stream",
    )
}

/// Returns the error for an error that the engine reports inside a response that began successfully.
pub(super) fn reported() -> AgentError {
    failed("the workflow reported an error")
}

/// Returns the error for JSON without any of the fields that can contain an answer.
pub(super) fn no_answer() -> AgentError {
    failed("the workflow's response has none of the fields output, text, response and message")
}

/// Returns the error for an HTML page, typically from a proxy between this program and the workflow.
pub(super) fn web_page() -> AgentError {
    failed("the webhook returned an HTML page instead of the workflow's response")
}

/// Returns the error for an answer above the size limit.
pub(super) fn too_large(max_bytes: usize) -> AgentError {
    AgentError::new(
        AgentErrorKind::OutputTooLarge,
        format!("the workflow's response exceeds {max_bytes} bytes"),
    )
}

/// Returns the error for a model call that was started and not ended.
pub(super) fn cut_off() -> AgentError {
    AgentError::new(AgentErrorKind::Truncated, "the workflow's response ended before it was complete")
}

/// Returns the error for content that is not part of any known form of answer.
pub(super) fn unreadable(reason: &'static str) -> AgentError {
    failed("the workflow's response cannot be parsed").with_source(reason)
}

/// Returns the error for malformed JSON. Serde's message is left out because it would quote the answer.
pub(super) fn bad_json(error: &serde_json::Error) -> AgentError {
    let position = format!("{:?} error at line {} column {}", error.classify(), error.line(), error.column());
    failed("the workflow's response cannot be parsed").with_source(position)
}

fn failed(message: &'static str) -> AgentError {
    AgentError::new(AgentErrorKind::Failed, message)
}
