//! Failures shared by the model adapters. None repeats text from the server.

use agent_core::error::{AgentError, AgentErrorKind};

use crate::outbound::OutboundResponse;

/// Limit on the tool calls of an answer.
pub(super) const MAX_CALLS: usize = 32;

/// An answer with more than [`MAX_CALLS`] tool calls.
pub(super) fn too_many_calls() -> AgentError {
    let message = format!("the model made more than {MAX_CALLS} tool calls in one response");
    AgentError::new(AgentErrorKind::ToolLoopLimit, message)
}

/// An error that the server reports inside a response that began successfully.
pub(super) fn reported_error() -> AgentError {
    AgentError::new(AgentErrorKind::Failed, "the model's server reported an error")
}

/// A response that cannot be parsed. Serde's message is left out because it would quote the response.
pub(super) fn malformed_response(error: &serde_json::Error) -> AgentError {
    let fault = format!("{:?} fault at line {} column {}", error.classify(), error.line(), error.column());
    AgentError::new(AgentErrorKind::Failed, "the model's server sent an invalid response").with_source(fault)
}

/// A response that ended before it was complete.
pub(super) fn truncated_answer() -> AgentError {
    AgentError::new(AgentErrorKind::Truncated, "the model's response ended before it was complete")
}

/// A complete response without content.
pub(super) fn empty_answer() -> AgentError {
    AgentError::new(AgentErrorKind::Truncated, "the model returned an empty response")
}

/// A JSON object that is neither an answer nor an error.
pub(super) fn unknown_response() -> AgentError {
    AgentError::new(
        AgentErrorKind::Failed,
        "the model's server returned a JSON object that is not a completion",
    )
}

/// An HTML page, typically from a proxy between this program and the server.
pub(super) fn web_page() -> AgentError {
    AgentError::new(AgentErrorKind::Failed, "the model's server returned an HTML page")
}

/// Refuses a compressed response, which no request allows: its bytes would pass for an answer that was cut off.
pub(super) fn check_encoding(response: &OutboundResponse) -> Result<(), AgentError> {
    match response.is_encoded() {
        true => {
            let message = "the model's server compressed its response, which no request allows";
            Err(AgentError::new(AgentErrorKind::Failed, message))
        }
        false => Ok(()),
    }
}
