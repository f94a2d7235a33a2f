//! Messages for models that require, in later requests, the reasoning with which they have called tools, or the signatures of
//! their calls.

use agent_core::message::{Message, Role};
use agent_core::model::ModelRequest;
use agent_core::payload::{Payload, PayloadBuilder};
use agent_core::prompt::{Dialect, push_messages_json};
use serde_json::value::RawValue;

use crate::models::answer_parts::ItemMaker;
use crate::models::body::begin_messages;
use crate::models::optional_member::OptionalPart;

/// Name of the member with the reasoning of a message.
pub(super) const REASONING_MEMBER: &str = "reasoning_content";
/// Name of the member with the signature of a call.
pub(super) const SIGNATURE_MEMBER: &str = "extra_content";
/// Beginning of this member, up to its text.
const EXTRA_START: &str = r#","extra_content":{"google":{"thought_signature":"#;
/// Signature of a call that the model has not made in this run, with which the vendor's documentation lets it be sent.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";
/// Domain of the vendor's own API, and the part of the names of its models that have signatures.
const SIGNING_DOMAIN: &str = ".googleapis.com";
const SIGNING_MODELS: &str = "gemini";
/// Parts of the names of its older models, whose calls need no signature.
const UNSIGNED_MODELS: [&str; 2] = ["gemini-1", "gemini-2"];
/// Beginning of the member with the messages. Before it, only tool definitions could look like a message.
const MESSAGES_START: &str = r#","messages":["#;

/// A member in all messages with tool calls, whose value has one text. Servers of others, on which the vendors' models run too,
/// may refuse it.
pub(super) struct CallMember {
    name: &'static str,
    /// JSON around its text, with the quotation mark in front of it.
    start: &'static str,
    end: &'static str,
}

/// The reasoning in front of the calls.
pub(super) static SENT_REASONING: CallMember =
    CallMember { name: REASONING_MEMBER, start: r#","reasoning_content":""#, end: "" };
/// The signature of a call.
pub(super) static SENT_SIGNATURES: CallMember = CallMember {
    name: SIGNATURE_MEMBER,
    start: r#","extra_content":{"google":{"thought_signature":""#,
    end: "}}",
};

impl OptionalPart for CallMember {
    fn name(&self) -> &'static str {
        self.name
    }

    fn remove_from(&self, payload: &Payload) -> Option<Payload> {
        let bytes: &[u8] = payload.bytes();
        let mut body = Payload::builder(bytes.len());
        let (mut next, mut kept_from) = (find(bytes, MESSAGES_START)?, 0);
        while let Some(distance) = find(&bytes[next..], self.start) {
            let start = next + distance;
            let text_start = start + self.start.len();
            next = text_start + string_end(&bytes[text_start..])? + self.end.len();
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
    push_calling(request, body, |message, body| push_reasoning(message, ItemMaker::reasoning(model), body));
}

/// Appends the member `messages`, with the signatures of the calls of `model`. If `requires_signature`, the first call of a
/// message without any has the one that stands for none, as the vendor's own first call of several has the signature.
pub(super) fn push_with_signatures(
    request: &ModelRequest,
    (model, requires_signature): (&str, bool),
    body: &mut PayloadBuilder,
) {
    let maker = ItemMaker::call_signature(model);
    push_calling(request, body, |message, body| push_signatures(message, maker, requires_signature, body));
}

/// Returns true if the server at this host requires the signatures of the model's calls.
pub(super) fn requires_signatures(host: &str, model: &str) -> bool {
    let model = model.to_ascii_lowercase();
    host.ends_with(SIGNING_DOMAIN)
        && model.contains(SIGNING_MODELS)
        && !UNSIGNED_MODELS.iter().any(|older| model.contains(older))
}

/// Returns true if a call of the request has a signature that `model` has made.
pub(super) fn has_signatures(request: &ModelRequest, model: &str) -> bool {
    let maker = ItemMaker::call_signature(model);
    let history = request.prompt.messages().iter().map(|message| message.original());
    let mut items = history.chain(&request.appended_messages).flat_map(|message| &message.provider_items);
    items.any(|item| maker.matching_item(item).is_some())
}

/// Appends the member `messages`; `complete` completes each message with calls.
fn push_calling(
    request: &ModelRequest,
    body: &mut PayloadBuilder,
    complete: impl Fn(&Message, &mut PayloadBuilder),
) {
    let start = begin_messages(request, body);
    let history = request.prompt.messages().iter().map(|message| message.message());
    for message in history.chain(&request.appended_messages) {
        if body.buffer().len() > start {
            body.raw(",");
        }
        push_messages_json(std::slice::from_ref(message), Dialect::ChatCompletions, body.buffer());
        if message.role == Role::Assistant && !message.tool_calls.is_empty() {
            complete(message, body);
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

/// Adds the signatures to the calls of the message at the end of the body.
fn push_signatures(message: &Message, maker: ItemMaker<'_>, requires_signature: bool, body: &mut PayloadBuilder) {
    let signature_of = |index: usize| {
        let mut items = message.provider_items.iter().filter(|item| item.calls_before == index);
        items.find_map(|item| maker.matching_item(item)).map(RawValue::get)
    };
    let signatures: Vec<_> = (0..message.tool_calls.len()).map(signature_of).collect();
    let needs_stand_in = requires_signature && signatures.iter().all(Option::is_none);
    if !needs_stand_in && signatures.iter().all(Option::is_none) {
        return;
    }
    let calls = serde_json::to_vec(&message.tool_calls).expect("plain data serialises into memory");
    let length = body.buffer().len() - calls.len() - "}".len();
    debug_assert!(body.buffer()[length..].starts_with(&calls), "the calls end the message");
    body.buffer().truncate(length);
    for (index, (call, signature)) in message.tool_calls.iter().zip(signatures).enumerate() {
        body.raw(if index == 0 { "[" } else { "," }).json(call);
        let end = body.buffer().pop();
        debug_assert_eq!(end, Some(b'}'), "a call is an object");
        match signature {
            Some(signature) => body.raw(EXTRA_START).raw(signature).raw("}}}"),
            None if needs_stand_in && index == 0 => body.raw(EXTRA_START).json(&NO_SIGNATURE).raw("}}}"),
            None => body.raw("}"),
        };
    }
    body.raw("]}");
}
