//! Token budgets: counters, and what to cut from a history that is too long. Pure.
//!
//! A history is cut in whole units, oldest first: a message of the person, or one of the model with all
//! results of its calls, so that no call loses its result. The cut goes further than it must, in steps of
//! three tenths of what the history may have: were only as much cut as each turn needs, the history would
//! begin elsewhere in every turn and no provider's prompt cache would hold. As the caller sends the
//! whole history each time, the steps are counted from its beginning; so the cut stays where it is, without
//! anything being remembered, until the history has grown by another step.

use std::sync::OnceLock;

use crate::message::{Content, ContentPart, MediaSource, Message, Role};

mod estimate;

#[cfg(feature = "bpe")]
mod bpe;

#[cfg(feature = "bpe")]
pub use bpe::BpeCounter;
pub use estimate::EstimateCounter;

/// How many tokens a prompt may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenBudget {
    /// System prompt, tools, history and latest turn together.
    pub max_prompt_tokens: usize,
}

/// Counts the tokens of a text. The same text must always give the same count, for counts are kept.
pub trait TokenCounter: Send + Sync + 'static {
    /// The counter's name. Two counters that count differently have different names.
    fn id(&self) -> &'static str;

    /// The tokens in `text`. What looks like a model's control token is ordinary text.
    fn count(&self, text: &str) -> usize;
}

/// The counts of one text by the counters that were asked first. Three are remembered: a process
/// that counts for more kinds of models than that counts anew for the rest.
#[derive(Debug, Default)]
pub(crate) struct TokenCounts([OnceLock<(&'static str, usize)>; 3]);

impl TokenCounts {
    /// The count by the counter named `id`, which `count` makes if it is not there.
    pub(crate) fn get(&self, id: &'static str, count: impl Fn() -> usize) -> usize {
        for slot in &self.0 {
            let (counted_by, tokens) = *slot.get_or_init(|| (id, count()));
            // Nearly always the very same name, which need not be compared letter by letter.
            if std::ptr::eq(counted_by, id) || counted_by == id {
                return tokens;
            }
        }
        count()
    }
}

/// What surrounds a message on the wire to the model, in tokens.
const MESSAGE_TOKENS: usize = 4;
/// What surrounds a tool call, in tokens.
const CALL_TOKENS: usize = 8;
/// What a picture or another medium costs, roughly; vendors' rules differ and depend on its size.
const MEDIA_TOKENS: usize = 1_000;
/// How many bytes of a file's base64 make a token of the text within, roughly.
const FILE_BYTES_PER_TOKEN: usize = 20;

/// The tokens of a message, what surrounds it included.
pub(crate) fn count_message(message: &Message, counter: &dyn TokenCounter) -> usize {
    let content = match &message.content {
        Content::Text(text) => counter.count(text),
        Content::Parts(parts) => parts.iter().map(|part| count_part(part, counter)).sum(),
    };
    let calls = message.tool_calls.iter().map(|call| {
        counter.count(&call.function.name) + counter.count(&call.function.arguments) + CALL_TOKENS
    });
    content + calls.sum::<usize>() + MESSAGE_TOKENS
}

fn count_part(part: &ContentPart, counter: &dyn TokenCounter) -> usize {
    match part {
        ContentPart::Text { text } => counter.count(text),
        ContentPart::Document { source: MediaSource::Data { value, .. } } => {
            MEDIA_TOKENS.max(value.len() / FILE_BYTES_PER_TOKEN)
        }
        _ => MEDIA_TOKENS,
    }
}

/// A message of the history as the budget sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) role: Role,
    pub(crate) tokens: usize,
}

impl Entry {
    /// Instructions are never cut.
    pub(crate) fn stays(self) -> bool {
        matches!(self.role, Role::System | Role::Developer)
    }
}

/// What a cut takes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    /// The entries before this one go, instructions excepted.
    pub(crate) before: usize,
    /// How many go.
    pub(crate) messages: usize,
    /// What they cost.
    pub(crate) tokens: usize,
}

/// Cuts at least `excess` tokens from `history`, rounded up to a whole number of steps; or as much of it
/// as there is, which may be less than `excess`. What follows the history must not be a tool's result.
///
/// Some models want a conversation to begin with the person. So the cut goes on to the person's next
/// message, if that is within half a step.
pub(crate) fn cut(history: &[Entry], excess: usize, step: usize) -> Cut {
    let goal = excess.next_multiple_of(step.max(1));
    let end = Cut { before: history.len(), messages: 0, tokens: 0 };
    let mut at_unit = None;
    let mut cut = end;
    for (before, entry) in history.iter().enumerate() {
        if cut.tokens >= goal && entry.role != Role::Tool {
            let here = Cut { before, ..cut };
            let unit = *at_unit.get_or_insert(here);
            if cut.tokens > unit.tokens + step / 2 {
                return unit;
            }
            if entry.role == Role::User {
                return here;
            }
        }
        if !entry.stays() {
            cut.messages += 1;
            cut.tokens += entry.tokens;
        }
    }
    // Behind the history stands the latest turn, which begins with the person as a rule.
    match at_unit {
        Some(unit) if cut.tokens > unit.tokens + step / 2 => unit,
        _ => cut,
    }
}

/// The step of a history's cuts: three tenths of what is left for it by what never changes.
pub(crate) fn step(max_prompt_tokens: usize, constant_tokens: usize) -> usize {
    max_prompt_tokens.saturating_sub(constant_tokens) * 3 / 10
}
