//! Messages for models and servers with rules of their own: the reasoning of a model's tool calls, or the signatures
//! of its calls, in later requests; the form of the calls' ids; and the order of messages.

use std::borrow::Cow;

use agent_core::message::{Message, Role};
use agent_core::model::ModelRequest;
use agent_core::payload::PayloadBuilder;
use agent_core::prompt::{Dialect, push_messages_json};
use serde_json::value::RawValue;

use crate::models::answer_parts::ItemMaker;
use crate::models::body::{begin_messages, push_messages};
use crate::models::names::{alphanumeric_call_id, short_call_id};
use crate::models::spec::ModelSpec;

/// Name of the member with the reasoning of a message.
pub(super) const REASONING_MEMBER: &str = "reasoning_content";
/// Name of the member with the signature of a call.
pub(super) const SIGNATURE_MEMBER: &str = "extra_content";
/// Value of this member for a call that the model has not made in this run, with which the vendor's documentation lets it be sent.
const NO_SIGNATURE: &str = r#"{"google":{"thought_signature":"skip_thought_signature_validator"}}"#;
/// Domain of the vendor's own API, and the part of the names of its models that have signatures.
const SIGNING_DOMAIN: &str = ".googleapis.com";
const SIGNING_MODELS: &str = "gemini";
/// Parts of the names of its older models, whose calls need no signature.
const UNSIGNED_MODELS: [&str; 2] = ["gemini-1", "gemini-2"];
/// Answer between the result of a call and the next message of the user, for models that require one.
const BRIDGE: &str = r#"{"role":"assistant","content":"OK"}"#;

/// Rules about the messages of a request.
pub(super) struct MessageRules<'m> {
    model: &'m str,
    /// Messages with calls have the reasoning in front of them.
    has_reasoning: bool,
    /// Calls have the signatures that the model has made for them.
    has_signatures: bool,
    /// A message with calls needs a signature, also where the model has not made it.
    requires_signatures: bool,
    /// Ids of calls have nine letters and digits, and a message of the user does not follow the result of a call.
    is_mistral: bool,
}

impl<'m> MessageRules<'m> {
    /// Returns the rules of a model at the server of this host.
    pub(super) fn new(model: &'m ModelSpec, host: &str) -> Self {
        let name = model.name.to_ascii_lowercase();
        let is_unsigned = UNSIGNED_MODELS.iter().any(|older| name.contains(older));
        let has_signatures = !model.refuses(SIGNATURE_MEMBER);
        Self {
            model: &model.name,
            has_reasoning: model.echoes_reasoning() && !model.refuses(REASONING_MEMBER),
            has_signatures,
            requires_signatures: has_signatures
                && host.ends_with(SIGNING_DOMAIN)
                && name.contains(SIGNING_MODELS)
                && !is_unsigned,
            is_mistral: model.is_mistral(),
        }
    }

    /// Appends the member `messages`.
    pub(super) fn push(&self, request: &ModelRequest, body: &mut PayloadBuilder) {
        if !self.apply_to(request) {
            return push_messages(request, Dialect::ChatCompletions, body);
        }
        let start = begin_messages(request, body);
        let mut last_role = None;
        let history = request.prompt.messages().iter().map(|message| message.message());
        for message in history.chain(&request.appended_messages) {
            if self.needs_bridge(last_role, message) {
                body.raw(",").raw(BRIDGE);
            }
            last_role = Some(message.role);
            if body.buffer().len() > start {
                body.raw(",");
            }
            let sent = self.with_call_ids(message);
            let message = &*sent;
            push_messages_json(std::slice::from_ref(message), Dialect::ChatCompletions, body.buffer());
            if message.role == Role::Assistant && !message.tool_calls.is_empty() {
                self.complete(message, body);
            }
        }
        body.raw("]");
    }

    /// Returns true if the messages differ from the form that all servers accept, which the prompt has already encoded.
    fn apply_to(&self, request: &ModelRequest) -> bool {
        let mut last_role = None;
        // Contexts of messages are not merged for this.
        let history = request.prompt.messages().iter().map(|message| message.original());
        history.chain(&request.appended_messages).any(|message| {
            let needs_bridge = self.needs_bridge(last_role, message);
            last_role = Some(message.role);
            let is_calling = message.role == Role::Assistant && !message.tool_calls.is_empty();
            needs_bridge
                || is_calling && (self.has_reasoning || self.needs_signatures(message))
                || matches!(self.with_call_ids(message), Cow::Owned(_))
        })
    }

    fn needs_bridge(&self, last_role: Option<Role>, message: &Message) -> bool {
        self.is_mistral && last_role == Some(Role::Tool) && message.role == Role::User
    }

    fn needs_signatures(&self, message: &Message) -> bool {
        let maker = ItemMaker::call_signature(self.model);
        let is_signed = || message.provider_items.iter().any(|item| maker.matching_item(item).is_some());
        self.has_signatures && (self.requires_signatures || is_signed())
    }

    /// Returns the id of a call as it is sent.
    fn call_id<'i>(&self, id: &'i str) -> Cow<'i, str> {
        if self.is_mistral { alphanumeric_call_id(id) } else { short_call_id(id) }
    }

    /// Returns the message with the ids of calls as they are sent; owned if ids were replaced.
    fn with_call_ids<'a>(&self, message: &'a Message) -> Cow<'a, Message> {
        let calls = message.tool_calls.iter().map(|call| call.id.as_str());
        let differs = |id: &str| matches!(self.call_id(id), Cow::Owned(_));
        if !calls.chain(message.tool_call_id.as_deref()).any(differs) {
            return Cow::Borrowed(message);
        }
        let mut message = message.clone();
        for call in &mut message.tool_calls {
            call.id = self.call_id(&call.id).into_owned();
        }
        message.tool_call_id = message.tool_call_id.map(|id| self.call_id(&id).into_owned());
        Cow::Owned(message)
    }

    /// Adds the members that the model requires of its calls to the message at the end of the body.
    fn complete(&self, message: &Message, body: &mut PayloadBuilder) {
        if self.has_reasoning {
            push_reasoning(message, ItemMaker::reasoning(self.model), body);
        } else if self.needs_signatures(message) {
            push_signatures(message, ItemMaker::call_signature(self.model), body);
        }
    }
}

/// Adds the reasoning to the message at the end of the body. If it is not known, as for calls of former turns and of other
/// models, it is a text that names the tools: an empty one is refused.
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

/// Adds the signatures to the calls of the message at the end of the body. If there is none, as for calls of former turns and of
/// other models, the first call has the one that stands for none: the vendor signs the first of several calls.
fn push_signatures(message: &Message, maker: ItemMaker<'_>, body: &mut PayloadBuilder) {
    let signature_of = |index: usize| {
        let mut items = message.provider_items.iter().filter(|item| item.calls_before == index);
        items.find_map(|item| maker.matching_item(item)).map(RawValue::get)
    };
    let signatures: Vec<_> = (0..message.tool_calls.len()).map(signature_of).collect();
    let is_signed = signatures.iter().any(Option::is_some);
    let calls = serde_json::to_vec(&message.tool_calls).expect("plain data serialises into memory");
    let length = body.buffer().len() - calls.len() - "}".len();
    debug_assert!(body.buffer()[length..].starts_with(&calls), "the calls end the message");
    body.buffer().truncate(length);
    for (index, (call, signature)) in message.tool_calls.iter().zip(signatures).enumerate() {
        body.raw(if index == 0 { "[" } else { "," }).json(call);
        let end = body.buffer().pop();
        debug_assert_eq!(end, Some(b'}'), "a call is an object");
        if let Some(signature) = signature.or((!is_signed && index == 0).then_some(NO_SIGNATURE)) {
            body.raw(r#","extra_content":"#).raw(signature);
        }
        body.raw("}");
    }
    body.raw("]}");
}
