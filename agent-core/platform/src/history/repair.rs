//! Repair of tool calls and results, so that models accept a conversation.
//!
//! Histories break: a tab was closed while a tool ran, a client lost or duplicated a message, or numbered its tool
//! calls from zero in every turn. Models reject such a history as a whole, so it is repaired before it is sent. A call
//! without a result keeps its position and receives [`MISSING_TOOL_RESULT`]. The model then knows that the tool may have
//! acted; it would repeat a call that was removed. The messages before the call do not change, which keeps the provider's
//! prompt cache valid.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use serde::de::IgnoredAny;

use super::MAX_ID_BYTES;
use crate::conversation::is_paired;
use agent_core::message::{Content, Message, Role, ToolCall};

/// Result inserted for a tool call that has none.
pub(crate) const MISSING_TOOL_RESULT: &str = "no result: the tool call was interrupted";

/// Pairs every tool call with exactly one result, directly after the calling message, in the order of the calls.
///
/// - A call without a result receives an error text as result; it is removed if its arguments are not valid JSON, as it
///   was never executed.
/// - A result at another position is moved; one without a call, or whose call has a result already, is removed.
/// - A repeated call id is changed in the call and its result: `call_1` becomes `call_1-2`.
/// - Messages without content and calls are removed, except results.
///
/// The list of a valid conversation stays shared, and otherwise the messages that need no change.
pub fn repair_shared(messages: Arc<Vec<Arc<Message>>>) -> Arc<Vec<Arc<Message>>> {
    match is_paired(&messages) {
        true => messages,
        false => Arc::new(repair(Arc::unwrap_or_clone(messages))),
    }
}

/// Repairs a list as [`repair_shared`] does. A valid conversation is returned unchanged.
pub(super) fn repair(messages: Vec<Arc<Message>>) -> Vec<Arc<Message>> {
    let results = match_results(&messages);
    let mut results = results.into_iter();
    let mut ids = UniqueIds::default();
    let mut remaining: Vec<Option<Arc<Message>>> = messages.into_iter().map(Some).collect();
    let mut repaired = Vec::with_capacity(remaining.len());
    for index in 0..remaining.len() {
        // Results are taken from their positions by their calls.
        let Some(mut message) = remaining[index].take_if(|message| message.role != Role::Tool) else {
            continue;
        };
        if message.tool_call_id.is_some() {
            Arc::make_mut(&mut message).tool_call_id = None;
        }
        let position = repaired.len();
        let mut answered_calls = Vec::new();
        if message.role == Role::Assistant {
            for (at, call) in message.tool_calls.iter().enumerate() {
                let result = results.next().flatten().and_then(|at| remaining[at].take());
                let Some(mut result) = result.or_else(|| no_result(call).map(Arc::new)) else { continue };
                let id = ids.unique(call.id.clone());
                if result.tool_call_id.as_ref() != Some(&id) {
                    Arc::make_mut(&mut result).tool_call_id = Some(id.clone());
                }
                answered_calls.push((at, id));
                repaired.push(result);
            }
        }
        keep_calls(&mut message, answered_calls);
        if !message.tool_calls.is_empty() || !message.content.is_empty() {
            repaired.insert(position, message);
        }
    }
    repaired
}

/// Removes the calls of a message except those at these indices, and gives these the ids.
fn keep_calls(message: &mut Arc<Message>, kept_calls: Vec<(usize, String)>) {
    let ids = message.tool_calls.iter().map(|call| &call.id);
    if kept_calls.iter().map(|(_, id)| id).eq(ids) {
        return;
    }
    let message = Arc::make_mut(message);
    let mut calls: Vec<_> = std::mem::take(&mut message.tool_calls).into_iter().map(Some).collect();
    let kept_calls = kept_calls.into_iter().filter_map(|(at, id)| Some(ToolCall { id, ..calls[at].take()? }));
    message.tool_calls = kept_calls.collect();
}

/// Returns true if [`repair_shared`] has added the message for a call without a result.
pub fn is_missing_result(message: &Message) -> bool {
    message.role == Role::Tool
        && message.id.is_none()
        && matches!(&message.content, Content::Text(text) if text == MISSING_TOOL_RESULT)
}

fn no_result(call: &ToolCall) -> Option<Message> {
    let is_complete = serde_json::from_str::<IgnoredAny>(&call.function.arguments).is_ok();
    is_complete.then(|| Message::tool_result(&call.id, MISSING_TOOL_RESULT))
}

/// Returns the index of the result message for each tool call of the assistant messages, in order.
///
/// Ids may repeat in later turns, so a result belongs to the latest preceding message with a call of its id, and among
/// several such calls in that message to the first without a result. Only a result without such a preceding call is
/// matched with a later one.
fn match_results(messages: &[Arc<Message>]) -> Vec<Option<usize>> {
    struct Latest {
        message: usize,
        open: VecDeque<usize>,
    }
    let mut ids: Vec<&str> = Vec::new();
    let mut results: Vec<Option<usize>> = Vec::new();
    let mut latest: HashMap<&str, Latest> = HashMap::new();
    let mut early: HashMap<&str, usize> = HashMap::new();
    for (index, message) in messages.iter().enumerate() {
        match (message.role, &message.tool_call_id) {
            (Role::Assistant, _) => {
                for call in &message.tool_calls {
                    let calls = latest
                        .entry(&call.id)
                        .or_insert_with(|| Latest { message: index, open: VecDeque::new() });
                    if calls.message != index {
                        *calls = Latest { message: index, open: VecDeque::new() };
                    }
                    calls.open.push_back(results.len());
                    ids.push(&call.id);
                    results.push(None);
                }
            }
            (Role::Tool, Some(id)) => match latest.get_mut(id.as_str()) {
                Some(calls) => {
                    if let Some(call) = calls.open.pop_front() {
                        results[call] = Some(index);
                    }
                }
                None => {
                    early.entry(id).or_insert(index);
                }
            },
            _ => {}
        }
    }
    for (id, result) in ids.iter().zip(&mut results) {
        if result.is_none() {
            *result = early.remove(id);
        }
    }
    results
}

/// Generator of unique ids. An id depends only on earlier ones, so that the start of a growing history is stable.
#[derive(Default)]
struct UniqueIds {
    used: HashSet<String>,
    repeats: HashMap<String, usize>,
}

impl UniqueIds {
    fn unique(&mut self, id: String) -> String {
        if self.used.insert(id.clone()) {
            return id;
        }
        let stem = truncate_at_char_boundary(&id, MAX_ID_BYTES - "-1234567".len());
        let repeats = self.repeats.entry(stem.to_owned()).or_insert(1);
        loop {
            *repeats += 1;
            let id = format!("{stem}-{repeats}");
            if self.used.insert(id.clone()) {
                return id;
            }
        }
    }
}

fn truncate_at_char_boundary(text: &str, limit: usize) -> &str {
    let end = (0..=limit.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}
