//! Messages for models that require, in later requests, the reasoning with which they have called tools.

use agent_core::message::{Message, Role};
use agent_core::model::ModelRequest;
use agent_core::payload::{Payload, PayloadBuilder};
use agent_core::prompt::{Dialect, push_messages_json};

use crate::models::answer_parts::ItemMaker;
use crate::models::body::begin_messages;
use crate::models::optional_member::OptionalPart;

/// Name of the member with the reasoning of a message.
pub(super) const REASONING_MEMBER: &str = "reasoning_content";
/// Beginning of this member with its text.
const REASONING_START: &str = r#","reasoning_content":""#;
/// Beginning of the member with the messages. Before it, only tool definitions could look like a message.
const MESSAGES_START: &str = r#","messages":["#;

/// The reasoning in all messages with tool calls. Servers of others, on which the vendors' models run too, may refuse it.
pub(super) struct SentReasoning;

impl OptionalPart for SentReasoning {
    fn name(&self) -> &'static str {
        REASONING_MEMBER
    }

    fn remove_from(&self, payload: &Payload) -> Option<Payload> {
        let bytes: &[u8] = payload.bytes();
        let mut body = Payload::builder(bytes.len());
        let (mut next, mut kept_from) = (find(bytes, MESSAGES_START)?, 0);
        while let Some(distance) = find(&bytes[next..], REASONING_START) {
            let start = next + distance;
            let text_start = start + REASONING_START.len();
            next = text_start + string_end(&bytes[text_start..])?;
            body.buffer().extend_from_slice(&bytes[kept_from..start]);
            kept_from = next;
        }
        if kept_from == 0 {
            return None;
        }
        body.buffer().extend_from_slice(&bytes[kept_from..]);
        Some(body.finish())
    }
}

fn find(bytes: &[u8], part: &str) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part.as_bytes())
}

/// Returns the length of a JSON string after its first quotation mark; `None` if it has no end.
fn string_end(text: &[u8]) -> Option<usize> {
    let mut is_escaped = false;
    let end = text.iter().position(|byte| {
        let is_end = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        is_end
    });
    end.map(|end| end + 1)
}

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
