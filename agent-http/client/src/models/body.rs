//! Request-body helpers shared by the model adapters.

use std::time::Duration;

use agent_core::model::ModelRequest;
use agent_core::payload::{PayloadBuilder, PromptSection};
use agent_core::prompt::{Dialect, push_messages_json};
use serde_json::value::RawValue;

/// Limits of a non-streamed response: size and read time.
pub(super) const MAX_RESPONSE_BYTES: usize = 4 << 20;
pub(super) const RESPONSE_BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// Extra buffer capacity for a request body beside its cached parts, in bytes.
pub(super) const BODY_HEADROOM: usize = 1024;

/// Appends the member `messages`: system prompt, history, and the messages appended during the run.
pub(super) fn push_messages(request: &ModelRequest, dialect: Dialect, body: &mut PayloadBuilder) {
    let prompt = &request.prompt;
    let start = begin_messages(request, body);
    if !prompt.messages().is_empty() {
        if body.buffer().len() > start {
            body.raw(",");
        }
        prompt.push_messages_json(dialect, body.buffer());
    }
    if !request.appended_messages.is_empty() {
        if body.buffer().len() > start {
            body.raw(",");
        }
        push_messages_json(&request.appended_messages, dialect, body.buffer());
    }
    body.raw("]");
}

/// Begins the member `messages` with the system prompt. Returns the length of the body before the first message.
pub(super) fn begin_messages(request: &ModelRequest, body: &mut PayloadBuilder) -> usize {
    body.raw(r#","messages":["#);
    let start = body.buffer().len();
    if !request.prompt.system_is_empty() {
        body.section(PromptSection::System).raw(r#"{"role":"system","content":"#);
        request.prompt.push_system_json(body.buffer());
        body.raw("}");
    }
    start
}

/// Returns the arguments of a call as a JSON object, for APIs that reject anything else. Arguments that are not an object become
/// `{}`; the call's result reports the error to the model.
pub(super) fn arguments_object(arguments: &str) -> &RawValue {
    let value = serde_json::from_str::<&RawValue>(arguments);
    let object = value.ok().filter(|value| value.get().starts_with('{'));
    object.unwrap_or_else(|| serde_json::from_str("{}").expect("a constant of JSON"))
}
