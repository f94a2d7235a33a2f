//! Messages for models that require, in later requests, the reasoning with which they have called tools.

use agent_core::message::{Message, Role};
use agent_core::model::ModelRequest;
use agent_core::payload::PayloadBuilder;
use agent_core::prompt::{Dialect, push_messages_json};

use crate::models::answer_parts::ItemMaker;
use crate::models::body::begin_messages;

/// Appends the member `messages`. Each message with calls has the reasoning of `model` before them; if that is not known, as
/// for calls of former turns and of other models, it has a text that names the tools: an empty one is refused.
pub(super) fn push_with_reasoning(request: &ModelRequest, model: &str, body: &mut PayloadBuilder) {
    let start = begin_messages(request, body);
    let history = request.prompt.messages().iter().map(|message| message.message());
    for message in history.chain(&request.appended_messages) {
        if body.buffer().len() > start {
            body.raw(",");
        }
        push_messages_json(std::slice::from_ref(message), Dialect::ChatCompletions, body.buffer());
        if message.role == Role::Assistant && !message.tool_calls.is_empty() {
            push_reasoning(message, ItemMaker::reasoning(model), body);
        }
    }
    body.raw("]");
}

/// Adds the reasoning to the message at the end of the body.
fn push_reasoning(message: &Message, maker: ItemMaker<'_>, body: &mut PayloadBuilder) {
    let end = body.buffer().pop();
    debug_assert_eq!(end, Some(b'}'), "a message is an object");
    body.raw(r#","reasoning_content":"#);
    match message.provider_items.iter().find_map(|item| maker.matching_item(item)) {
        Some(reasoning) => body.raw(reasoning.get()),
        None => {
            let names: Vec<&str> =
                message.tool_calls.iter().map(|call| call.function.name.as_str()).collect();
            body.json(&format!("I call {}.", names.join(", ")))
        }
    };
    body.raw("}");
}
