//! What the bodies of all adapters have in common, and the heads of what comes back.

use std::time::Duration;

use agent_core::message::Content;
use agent_core::model::ModelRequest;
use agent_core::payload::{PayloadBuilder, Section};
use agent_core::prompt::{Dialect, push_messages_json};
use http::HeaderMap;
use http::header::CONTENT_TYPE;

/// The longest answer that comes in one piece, and the longest wait for its body.
pub(super) const MAX_WHOLE_BYTES: usize = 4 << 20;
pub(super) const WHOLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Room for what a body has beside its cached pieces.
pub(super) const BODY_HEADROOM: usize = 1024;

/// Appends the member `messages`: system prompt, history, and what the run has said since.
pub(super) fn push_messages(request: &ModelRequest, dialect: Dialect, body: &mut PayloadBuilder) {
    let prompt = &request.prompt;
    body.raw(r#","messages":["#);
    let start = body.buffer().len();
    if !prompt.system_is_empty() {
        body.section(Section::System).raw(r#"{"role":"system","content":"#);
        prompt.push_system_json(body.buffer());
        body.raw("}");
    }
    if !prompt.messages().is_empty() {
        if body.buffer().len() > start {
            body.raw(",");
        }
        prompt.push_messages_json(dialect, body.buffer());
    }
    if !request.appended.is_empty() {
        if body.buffer().len() > start {
            body.raw(",");
        }
        push_messages_json(&request.appended, dialect, body.buffer());
    }
    body.raw("]");
}

/// Whether the dialect has words for all that the prompt holds. A note in place of a medium would have
/// the model answer as though it had seen or heard what it did not.
pub(super) fn is_spelt(request: &ModelRequest, dialect: Dialect) -> bool {
    request.prompt.messages().iter().all(|message| match &message.original().content {
        Content::Text(_) => true,
        Content::Parts(parts) => parts.iter().all(|part| dialect.takes(part)),
    })
}

/// What a head announces, in small letters and without parameters.
pub(super) fn media_type(headers: &HeaderMap) -> String {
    let named = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    named.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}
