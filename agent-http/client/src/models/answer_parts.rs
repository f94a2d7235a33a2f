//! Parts of an answer in the order in which the model made them, as the next request of the run repeats them.

use std::borrow::Cow;

use agent_core::message::{Message, ProviderItem, ToolCall};
use serde::Deserialize;

/// Types of the blocks in which Anthropic's models think. No other API has items of these types.
pub(super) const THINKING_TYPES: [&str; 2] = ["thinking", "redacted_thinking"];

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

/// Returns true if the item is thinking of one of Anthropic's models.
pub(super) fn is_thinking(item: &ProviderItem) -> bool {
    #[derive(Deserialize)]
    struct Typed<'a> {
        #[serde(rename = "type", borrow)]
        kind: Cow<'a, str>,
    }
    serde_json::from_str(item.json.get()).is_ok_and(|Typed { kind }| THINKING_TYPES.contains(&kind.as_ref()))
}
