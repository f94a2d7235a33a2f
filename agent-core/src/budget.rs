//! Token budgets: token counters, and trimming of histories that exceed the budget. Pure.
//!
//! A history is trimmed in whole units, oldest first: one user message, or one assistant message with all results of
//! its tool calls, so that no call loses its result. The history is trimmed in steps of three tenths of its available
//! tokens. If each turn trimmed only what exceeds the budget, the history would start at another message in every turn,
//! and no provider's prompt cache would hit. As the caller sends the whole history each time, the steps are counted
//! from its beginning; so the cut stays in place, without stored state, until the history grows by another step.

use std::sync::OnceLock;

use crate::message::{Content, ContentPart, MediaSource, Message, Role};

mod estimate;

pub use estimate::EstimateCounter;

/// Limit on the tokens of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenBudget {
    /// Limit on system prompt, tools, history and latest turn together.
    pub max_prompt_tokens: usize,
}

/// Counts the tokens of a text. The same text must always have the same count, since counts are cached.
pub trait TokenCounter: Send + Sync + 'static {
    /// Returns the counter's name. Counters that count differently must have different names.
    fn id(&self) -> &'static str;

    /// Returns the number of tokens in `text`. Text that looks like a control token of a model is ordinary text.
    fn count(&self, text: &str) -> usize;
}

impl std::fmt::Debug for dyn TokenCounter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.id())
    }
}

/// Cache of one text's token counts, for the first three counters that counted it. Further ones count again.
#[derive(Debug, Default)]
pub(crate) struct TokenCountCache([OnceLock<(&'static str, usize)>; 3]);

impl TokenCountCache {
    /// Returns the count by the counter named `id`; calls `count` if it is not cached.
    pub(crate) fn get(&self, id: &'static str, count: impl Fn() -> usize) -> usize {
        for slot in &self.0 {
            let (counted_by, tokens) = *slot.get_or_init(|| (id, count()));
            // The pointers are nearly always equal, which avoids the string comparison.
            if std::ptr::eq(counted_by, id) || counted_by == id {
                return tokens;
            }
        }
        count()
    }
}

/// Tokens that surround a message on the wire to the model.
const MESSAGE_OVERHEAD_TOKENS: usize = 4;
/// Tokens that surround a tool call.
const TOOL_CALL_OVERHEAD_TOKENS: usize = 8;
/// Approximate tokens of an image or another medium; providers' rules differ and depend on its size.
const ESTIMATED_MEDIA_TOKENS: usize = 1_000;
/// Approximate number of Base64 bytes of a file per token of the text within.
const FILE_BYTES_PER_TOKEN: usize = 20;

/// Returns the tokens of a message, including the tokens around it.
pub(crate) fn count_message(message: &Message, counter: &dyn TokenCounter) -> usize {
    let content = match &message.content {
        Content::Text(text) => counter.count(text),
        Content::Parts(parts) => parts.iter().map(|part| count_part(part, counter)).sum(),
    };
    let calls = message.tool_calls.iter().map(|call| {
        counter.count(&call.function.name)
            + counter.count(&call.function.arguments)
            + TOOL_CALL_OVERHEAD_TOKENS
    });
    content + calls.sum::<usize>() + MESSAGE_OVERHEAD_TOKENS
}

fn count_part(part: &ContentPart, counter: &dyn TokenCounter) -> usize {
    match part {
        ContentPart::Text { text } => counter.count(text),
        ContentPart::Document { source: MediaSource::Data { value, .. } } => {
            ESTIMATED_MEDIA_TOKENS.max(value.len() / FILE_BYTES_PER_TOKEN)
        }
        _ => ESTIMATED_MEDIA_TOKENS,
    }
}

/// Role and token count of a message of the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HistoryEntry {
    pub(crate) role: Role,
    pub(crate) tokens: usize,
}

impl HistoryEntry {
    /// Returns true if the message is an instruction, which is never removed.
    pub(crate) fn is_instruction(self) -> bool {
        matches!(self.role, Role::System | Role::Developer)
    }
}

/// Position and size of a trim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HistoryCut {
    /// Index of the first entry that is kept; all before it except instructions are removed.
    pub(crate) first_kept: usize,
    /// Number of messages removed.
    pub(crate) removed_messages: usize,
    /// Tokens removed.
    pub(crate) removed_tokens: usize,
}

/// Computes a cut that removes at least `excess` tokens from `history`, rounded up to a whole number of steps, or the
/// whole history, which may be less than `excess`. The message after the history must not be a tool result.
///
/// Some models require a user message at the start, so the cut extends to the next one if it is within half a step.
pub(crate) fn find_trim(history: &[HistoryEntry], excess: usize, step: usize) -> HistoryCut {
    let target_tokens = excess.next_multiple_of(step.max(1));
    let mut first_cut = None;
    let mut cut = HistoryCut { first_kept: history.len(), removed_messages: 0, removed_tokens: 0 };
    for (index, entry) in history.iter().enumerate() {
        if cut.removed_tokens >= target_tokens && entry.role != Role::Tool {
            let candidate = HistoryCut { first_kept: index, ..cut };
            let earliest = *first_cut.get_or_insert(candidate);
            if cut.removed_tokens > earliest.removed_tokens + step / 2 {
                return earliest;
            }
            if entry.role == Role::User {
                return candidate;
            }
        }
        if !entry.is_instruction() {
            cut.removed_messages += 1;
            cut.removed_tokens += entry.tokens;
        }
    }
    // The latest turn follows the history and usually starts with a user message.
    match first_cut {
        Some(earliest) if cut.removed_tokens > earliest.removed_tokens + step / 2 => earliest,
        _ => cut,
    }
}

/// Returns the step of the cuts: three tenths of the prompt tokens that the constant parts leave for the history.
pub(crate) fn trim_step_tokens(max_prompt_tokens: usize, constant_tokens: usize) -> usize {
    max_prompt_tokens.saturating_sub(constant_tokens) * 3 / 10
}
