//! Failures shared by the model adapters. None repeats text from the server.

use agent_core::error::{Failure, FailureKind};

/// An error that the server reports inside a response that began successfully.
pub(super) fn reported() -> Failure {
    Failure::new(FailureKind::Failed, "the model's server reported an error")
}

/// A response that cannot be parsed. Serde's message is left out because it would quote the response.
pub(super) fn unreadable(error: &serde_json::Error) -> Failure {
    let fault = format!("{:?} fault at line {} column {}", error.classify(), error.line(), error.column());
    Failure::new(FailureKind::Failed, "the model's server sent something unreadable").with_source(fault)
}

/// A response that ended before it was complete.
pub(super) fn cut_off() -> Failure {
    Failure::new(FailureKind::Truncated, "the model's answer ended before it was complete")
}

/// A complete response without content.
pub(super) fn empty() -> Failure {
    Failure::new(FailureKind::Truncated, "the model gave an empty answer")
}

/// A JSON object that is neither an answer nor an error.
pub(super) fn no_answer() -> Failure {
    Failure::new(FailureKind::Failed, "the model's server gave no answer but an object")
}

/// An HTML page, typically from a proxy between this program and the server.
pub(super) fn web_page() -> Failure {
    Failure::new(FailureKind::Failed, "the model's server answered with a web page")
}
