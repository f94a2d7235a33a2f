//! Making a conversation one that models take.
//!
//! Histories break: a tab was closed while a tool ran, a client lost a message or sent one twice, ids were
//! counted from zero in every turn. Models refuse such a history as a whole, so it is mended before it is
//! sent. A call whose result is lost keeps its place and is given [`NO_RESULT`] as its result: the model
//! then knows that the tool may have acted, where a call that vanished would be made again; and what stands
//! before it stays the same, which keeps the provider's prompt cache.

use std::collections::{HashMap, HashSet, VecDeque};

use serde::de::IgnoredAny;

use super::MAX_ID_BYTES;
use crate::message::{Message, Role, ToolCall};

/// The result of a call whose own is lost.
pub const NO_RESULT: &str = "no result: the call was interrupted";

/// Gives every tool call exactly one result, right behind the message that calls, in the order of the calls.
///
/// - A call without a result is given [`NO_RESULT`]; one whose arguments are not even whole JSON was never
///   made, and is left out.
/// - A result that stands elsewhere is moved; one whose call is missing or has a result already is left out.
/// - A call's id that was used before is changed, with its result's: `call_1` becomes `call_1-2`.
/// - Messages that say nothing are left out, results aside.
///
/// What is whole already comes back as it was.
pub fn repair(messages: Vec<Message>) -> Vec<Message> {
    let results = pair(&messages);
    let mut results = results.into_iter();
    let mut ids = UniqueIds::default();
    let mut given: Vec<Option<Message>> = messages.into_iter().map(Some).collect();
    let mut repaired = Vec::with_capacity(given.len());
    for index in 0..given.len() {
        // Results are taken from their places by the calls that they answer.
        let Some(mut message) = given[index].take_if(|message| message.role != Role::Tool) else { continue };
        message.tool_call_id = None;
        let calls = std::mem::take(&mut message.tool_calls);
        let place = repaired.len();
        if message.role == Role::Assistant {
            for mut call in calls {
                let result = results.next().flatten().and_then(|at| given[at].take());
                let Some(mut result) = result.or_else(|| no_result(&call)) else { continue };
                call.id = ids.unique(call.id);
                result.tool_call_id = Some(call.id.clone());
                message.tool_calls.push(call);
                repaired.push(result);
            }
        }
        if !message.tool_calls.is_empty() || !message.content.is_empty() {
            repaired.insert(place, message);
        }
    }
    repaired
}

fn no_result(call: &ToolCall) -> Option<Message> {
    let whole = serde_json::from_str::<IgnoredAny>(&call.function.arguments).is_ok();
    whole.then(|| Message::tool_result(&call.id, NO_RESULT))
}

/// For each call of the assistant's, in order, the place of the message that answers it.
///
/// Ids may come again in later turns, so a result answers the latest call of its id that was made before it,
/// and of several in that one message the first that is open. Only a result with no such call before it
/// waits for one to come.
fn pair(messages: &[Message]) -> Vec<Option<usize>> {
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

/// Keeps ids apart. An id depends on those before it alone, so that a growing history keeps its beginning.
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
        let stem = shortened(&id, MAX_ID_BYTES - "-1234567".len());
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

fn shortened(text: &str, limit: usize) -> &str {
    let end = (0..=limit.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}
