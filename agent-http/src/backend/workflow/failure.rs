//! What goes wrong with a workflow, in words for whoever set it up. None repeats what the engine wrote: its
//! errors hold stack traces, and an answer may echo the whole request.

use agent_core::error::{Failure, FailureKind};
use http::{HeaderMap, StatusCode};

use crate::outbound::status_failure;

/// A status that is no success.
pub(super) fn refused(status: StatusCode, headers: &HeaderMap) -> Failure {
    let message = match status {
        StatusCode::NOT_FOUND => {
            "no workflow listens at the webhook's address (HTTP 404): the workflow must be active, and \
             webhookUrl its production address"
        }
        StatusCode::INTERNAL_SERVER_ERROR => "the workflow has failed (HTTP 500)",
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            "the workflow's webhook does not accept the connector's credentials"
        }
        _ => return status_failure(status, headers),
    };
    Failure::new(FailureKind::Failed, message)
}

/// The workflow was started, and whatever it says will go elsewhere.
pub(super) fn started() -> Failure {
    failed(
        "the workflow was started, and its answer does not come back: its trigger must respond by streaming, \
         when the last node finishes, or by a node that responds",
    )
}

/// An answer that says nothing.
pub(super) fn empty() -> Failure {
    failed(
        "the workflow's answer is empty: its last node must give an output, or where its trigger streams, a node \
         must stream",
    )
}

/// The engine reports an error inside an answer that began well.
pub(super) fn reported() -> Failure {
    failed("the workflow reported an error")
}

/// JSON without any of the fields that an answer is looked for in.
pub(super) fn no_answer() -> Failure {
    failed("the workflow's answer has none of the fields output, text, response and message")
}

/// A page, by something between us and the workflow.
pub(super) fn web_page() -> Failure {
    failed("a web page came in place of the workflow's answer")
}

/// More than is read of one answer.
pub(super) fn too_large(max_bytes: usize) -> Failure {
    Failure::new(FailureKind::Failed, format!("the workflow's answer is larger than {max_bytes} bytes"))
}

/// A model call that was begun and not ended.
pub(super) fn cut_off() -> Failure {
    Failure::new(FailureKind::Truncated, "the workflow's answer ended before it was complete")
}

/// Something that is no part of any answer.
pub(super) fn unreadable(what: &'static str) -> Failure {
    failed("the workflow's answer cannot be read").with_source(what)
}

/// JSON that is none. Serde's own words would quote it.
pub(super) fn bad_json(error: &serde_json::Error) -> Failure {
    let fault = format!("{:?} fault at line {} column {}", error.classify(), error.line(), error.column());
    failed("the workflow's answer cannot be read").with_source(fault)
}

fn failed(message: &'static str) -> Failure {
    Failure::new(FailureKind::Failed, message)
}
