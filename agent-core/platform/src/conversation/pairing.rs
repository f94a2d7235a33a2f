//! Pairing of tool calls with their results, as models require it of a conversation.

use std::collections::HashSet;
use std::sync::Arc;

use agent_core::message::{Message, Role};

/// Approximate size of a call's id beyond its text, in bytes.
const CALL_ID_BYTES: usize = 64;

/// Returns true if each call is followed by its result, there are no other results, no id of a call is used twice, and no message
/// is empty.
pub(crate) fn is_paired(messages: &[Arc<Message>]) -> bool {
    PairedPrefix::default().extend(messages, 0)
}

/// The beginning of a growing conversation that is known to be [paired](is_paired), so that only later messages are checked.
#[derive(Debug, Default)]
pub(super) struct PairedPrefix {
    /// Number of messages.
    len: usize,
    /// Number of messages up to the last result.
    results_end: usize,
    /// Ids of their calls.
    call_ids: HashSet<String>,
    /// Approximate size of the ids, in bytes.
    bytes: usize,
}

impl PairedPrefix {
    /// Returns true if a conversation is paired, whose beginning is unchanged. The first `stable_len` messages are those that it still
    /// has at the next call; they become part of the prefix as far as they are paired.
    pub(super) fn extend(&mut self, messages: &[Arc<Message>], stable_len: usize) -> bool {
        while self.len < stable_len {
            let mut own_ids = HashSet::new();
            let round = count_round(&messages[self.len..stable_len], |id| {
                !self.call_ids.contains(id) && own_ids.insert(id)
            });
            let Some(count) = round else { break };
            self.len += count;
            if count > 1 {
                self.results_end = self.len;
            }
            self.bytes += own_ids.iter().map(|id| id.len() + CALL_ID_BYTES).sum::<usize>();
            self.call_ids.extend(own_ids.into_iter().map(str::to_owned));
        }
        let (mut rest, mut rest_ids) = (&messages[self.len..], HashSet::new());
        while !rest.is_empty() {
            match count_round(rest, |id| !self.call_ids.contains(id) && rest_ids.insert(id)) {
                Some(count) => rest = &rest[count..],
                None => return false,
            }
        }
        true
    }

    /// Records that the conversation has the first `count` messages only.
    pub(super) fn truncate(&mut self, count: usize) {
        if count < self.results_end {
            *self = Self::default();
        }
        self.len = self.len.min(count);
    }

    /// Returns the approximate size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Returns the number of messages of the first round, which are a message and the results of its calls; `None` if they are not
/// paired. `is_new` returns false for an id that another call has.
fn count_round<'m>(messages: &'m [Arc<Message>], mut is_new: impl FnMut(&'m str) -> bool) -> Option<usize> {
    let (message, results) = messages.split_first()?;
    let calls = &message.tool_calls;
    let has_place = match message.role {
        Role::Tool => false,
        Role::Assistant => true,
        _ => calls.is_empty(),
    };
    let is_empty = calls.is_empty() && message.content.is_empty();
    if !has_place || is_empty || message.tool_call_id.is_some() {
        return None;
    }
    for (at, call) in calls.iter().enumerate() {
        let is_result = |result: &Arc<Message>| {
            result.role == Role::Tool && result.tool_call_id.as_ref() == Some(&call.id)
        };
        if !is_new(&call.id) || !results.get(at).is_some_and(is_result) {
            return None;
        }
    }
    Some(1 + calls.len())
}

#[cfg(test)]
mod tests {
    use agent_core::message::ToolCall;

    use super::*;

    fn call(id: &str) -> Message {
        Message::with_tool_calls("", vec![ToolCall::new(id, "look", "{}")])
    }

    #[test]
    fn a_growing_conversation_is_judged_as_a_whole() {
        let pieces = [
            vec![Message::user("u")],
            vec![Message::assistant("a")],
            vec![call("1"), Message::tool_result("1", "r")],
            vec![call("2"), Message::tool_result("2", "r")],
            // Not paired: a call without a result, a result alone, an empty message.
            vec![call("3")],
            vec![Message::tool_result("4", "r")],
            vec![Message::user("")],
        ];
        // All conversations of four pieces, some of which have an id twice. The prefix is what the conversation before had
        // without its last piece.
        for number in 0..pieces.len().pow(4) {
            let (mut prefix, mut messages, mut kept) = (PairedPrefix::default(), Vec::new(), 0);
            for place in 0..4 {
                prefix.truncate(kept);
                let piece = &pieces[number / pieces.len().pow(place) % pieces.len()];
                let before = messages.len();
                messages.extend(piece.iter().cloned().map(Arc::new));
                assert_eq!(prefix.extend(&messages, before), is_paired(&messages), "{number}");
                kept = before;
            }
            // Another branch.
            messages.truncate(1);
            prefix.truncate(messages.len());
            messages.push(Arc::new(call("1")));
            assert_eq!(prefix.extend(&messages, 1), is_paired(&messages), "{number}");
        }
    }
}
