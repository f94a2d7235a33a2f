//! Parts of an answer in the order in which the model made them, as the next request of the run repeats them.

use std::borrow::Cow;

use agent_core::message::{Message, ProviderItem, ToolCall};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

/// Type of the items in which the thinking of Anthropic's models is kept. No other API has items of this type.
const THINKING_TYPE: &str = "anthropic_thinking";
/// Types of the items that an earlier version kept: blocks without the name of their model, which are not sent any more.
const NAMELESS_THINKING_TYPES: [&str; 2] = ["thinking", "redacted_thinking"];

/// Part of an answer.
pub(super) enum AnswerPart<'a> {
    /// Text between two items; it may be empty.
    Text(&'a str),
    /// Calls between two items; there may be none.
    Calls(&'a [ToolCall]),
    /// An item in the provider's own format.
    Item(&'a ProviderItem),
}

/// Splits an answer, whose text is `text`, at its items. Items for which `is_own` is false are left out: another
/// provider made them, which answered an earlier round of the run.
pub(super) fn answer_parts<'a>(
    message: &'a Message,
    text: &'a str,
    is_own: impl Fn(&ProviderItem) -> bool,
) -> Vec<AnswerPart<'a>> {
    let calls = &message.tool_calls[..];
    let (mut text_end, mut call_end) = (0, 0);
    let mut parts = Vec::new();
    for item in message.provider_items.iter().filter(|item| is_own(item)) {
        let (text_start, call_start) = (text_end, call_end);
        text_end = text.floor_char_boundary(item.text_before).max(text_start);
        call_end = item.calls_before.clamp(call_start, calls.len());
        parts.push(AnswerPart::Text(&text[text_start..text_end]));
        parts.push(AnswerPart::Calls(&calls[call_start..call_end]));
        parts.push(AnswerPart::Item(item));
    }
    parts.push(AnswerPart::Text(&text[text_end..]));
    parts.push(AnswerPart::Calls(&calls[call_end..]));
    parts
}

/// Item with a block of thinking. Its signature is valid for the model that made it alone: the API rejects it in a request to
/// another one.
#[derive(Serialize, Deserialize)]
struct ThinkingItem<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    model: Cow<'a, str>,
    #[serde(borrow)]
    block: &'a RawValue,
}

/// Returns the item of a block of thinking that `model` has made.
pub(super) fn thinking_item(model: &str, block: &impl Serialize) -> Box<RawValue> {
    let block = to_raw_value(block).expect("plain data serialises into memory");
    let item = ThinkingItem { kind: THINKING_TYPE.into(), model: model.into(), block: &block };
    to_raw_value(&item).expect("plain data serialises into memory")
}

fn read_thinking(item: &ProviderItem) -> Option<ThinkingItem<'_>> {
    let read: ThinkingItem<'_> = serde_json::from_str(item.json.get()).ok()?;
    (read.kind == THINKING_TYPE).then_some(read)
}

/// Returns true if the item is thinking of one of Anthropic's models.
pub(super) fn is_thinking(item: &ProviderItem) -> bool {
    #[derive(Deserialize)]
    struct Typed<'a> {
        #[serde(rename = "type", borrow)]
        kind: Cow<'a, str>,
    }
    let is_type = |kind: &str| kind == THINKING_TYPE || NAMELESS_THINKING_TYPES.contains(&kind);
    serde_json::from_str(item.json.get()).is_ok_and(|Typed { kind }| is_type(&kind))
}

/// Returns the item's block, if it is thinking that `model` has made.
pub(super) fn thinking_block<'a>(item: &'a ProviderItem, model: &str) -> Option<&'a RawValue> {
    read_thinking(item).filter(|read| read.model == model).map(|read| read.block)
}
