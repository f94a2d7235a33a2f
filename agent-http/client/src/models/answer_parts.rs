//! Parts of an answer in the order in which the model made them, as the next request of the run repeats them.

use std::borrow::Cow;

use agent_core::message::{Message, ProviderItem, ToolCall};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

/// Type of the items in which the thinking of Anthropic's models is kept.
const THINKING_TYPE: &str = "anthropic_thinking";
/// Type of the items in which the reasoning of Chat Completions servers is kept.
const REASONING_TYPE: &str = "chat_reasoning";
/// Type of the items in which the signatures of Google's calls are kept.
const SIGNATURE_TYPE: &str = "chat_call_signature";
/// Type of the items in which items of the Responses API are kept.
const RESPONSES_TYPE: &str = "responses_item";

/// Part of an answer.
pub(super) enum AnswerPart<'a> {
    /// Text between two items; it may be empty.
    Text(&'a str),
    /// Calls between two items; there may be none.
    Calls(&'a [ToolCall]),
    /// An item in the provider's own format.
    Item(&'a RawValue),
}

/// Splits an answer, whose text is `text`, at the items of `maker`. Items of other makers, which answered an earlier round of the
/// run, are left out.
pub(super) fn answer_parts<'a>(
    message: &'a Message,
    text: &'a str,
    maker: ItemMaker<'_>,
) -> Vec<AnswerPart<'a>> {
    let calls = &message.tool_calls[..];
    let (mut text_end, mut call_end) = (0, 0);
    let mut parts = Vec::new();
    for item in &message.provider_items {
        let Some(json) = maker.matching_item(item) else { continue };
        let (text_start, call_start) = (text_end, call_end);
        text_end = text.floor_char_boundary(item.text_before).max(text_start);
        call_end = item.calls_before.clamp(call_start, calls.len());
        parts.push(AnswerPart::Text(&text[text_start..text_end]));
        parts.push(AnswerPart::Calls(&calls[call_start..call_end]));
        parts.push(AnswerPart::Item(json));
    }
    parts.push(AnswerPart::Text(&text[text_end..]));
    parts.push(AnswerPart::Calls(&calls[call_end..]));
    parts
}

/// Returns the arguments of an answered call, or a fragment of them, as JSON text; empty if there are none. Chat Completions
/// sends a string that contains the JSON, and Ollama the JSON itself; compatible servers of each do the other.
pub(super) fn arguments_text(arguments: Option<&RawValue>) -> String {
    let json = arguments.map_or("", RawValue::get);
    match serde_json::from_str(json) {
        Ok(text) => text,
        Err(_) if json == "null" => String::new(),
        Err(_) => json.to_owned(),
    }
}

/// Maker of items in a provider's own format, such as signed thinking and encrypted reasoning. An API rejects a request with
/// an item that another maker has made.
#[derive(Debug, Clone, Copy)]
pub(super) struct ItemMaker<'a> {
    /// Type of the kept items, which differs between the APIs.
    item_type: &'static str,
    /// Name that distinguishes the makers of one API.
    name: &'a str,
}

impl<'a> ItemMaker<'a> {
    /// Returns one of Anthropic's models. Every server accepts the signature of its thinking, but no other model does.
    pub(super) fn thinking(model: &'a str) -> Self {
        Self { item_type: THINKING_TYPE, name: model }
    }

    /// Returns a model of a Chat Completions server, whose reasoning is plain text.
    pub(super) fn reasoning(model: &'a str) -> Self {
        Self { item_type: REASONING_TYPE, name: model }
    }

    /// Returns a model of a Chat Completions server that signs its tool calls.
    pub(super) fn call_signature(model: &'a str) -> Self {
        Self { item_type: SIGNATURE_TYPE, name: model }
    }

    /// Returns the maker with this name among the makers of the Responses API.
    pub(super) fn responses(name: &'a str) -> Self {
        Self { item_type: RESPONSES_TYPE, name }
    }

    /// Returns an item in the form in which it is kept: with the name of its maker.
    pub(super) fn keep(self, item: &(impl Serialize + ?Sized)) -> Box<RawValue> {
        let item = to_raw_value(item).expect("plain data serialises into memory");
        let stored_item = KeptItem { kind: self.item_type.into(), maker: self.name.into(), item: &item };
        to_raw_value(&stored_item).expect("plain data serialises into memory")
    }

    /// Returns the item as its API takes it, if this maker has made it.
    pub(super) fn matching_item(self, item: &ProviderItem) -> Option<&RawValue> {
        let stored_item: KeptItem<'_> = serde_json::from_str(item.json.get()).ok()?;
        (stored_item.kind == self.item_type && stored_item.maker == self.name).then_some(stored_item.item)
    }
}

/// Item of an answer, as it is kept for the next rounds of the run.
#[derive(Serialize, Deserialize)]
struct KeptItem<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    maker: Cow<'a, str>,
    #[serde(borrow)]
    item: &'a RawValue,
}
