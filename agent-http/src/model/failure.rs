//! What goes wrong with a model's server, in the words of all adapters. None repeats what the server wrote.

use agent_core::error::{Failure, FailureKind};

/// A failure that the server reports inside an answer that began well.
pub(super) fn reported() -> Failure {
    Failure::new(FailureKind::Failed, "the model's server reported an error")
}

/// Something that is no part of any answer. Serde's own words would quote it.
pub(super) fn unreadable(error: &serde_json::Error) -> Failure {
    let fault = format!("{:?} fault at line {} column {}", error.classify(), error.line(), error.column());
    Failure::new(FailureKind::Failed, "the model's server sent something unreadable").with_source(fault)
}

/// An answer that was begun and not ended.
pub(super) fn cut_off() -> Failure {
    Failure::new(FailureKind::Truncated, "the model's answer ended before it was complete")
}

/// An answer that was ended and says nothing.
pub(super) fn empty() -> Failure {
    Failure::new(FailureKind::Truncated, "the model gave an empty answer")
}

/// An object that is neither an answer nor an error.
pub(super) fn no_answer() -> Failure {
    Failure::new(FailureKind::Failed, "the model's server gave no answer but an object")
}

/// A page, by something between us and the server.
pub(super) fn web_page() -> Failure {
    Failure::new(FailureKind::Failed, "the model's server answered with a web page")
}
