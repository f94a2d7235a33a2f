//! A conversation of a body, and its repair.

use std::collections::HashSet;
use std::sync::Arc;

use agent_core::message::{Message, Role};

use super::FieldError;
use super::json;
use super::limits::MAX_MESSAGES;
use super::message;
use super::repair::repair;

/// A conversation in the platform's own format.
pub(super) struct Conversation {
    pub(super) messages: Vec<Message>,
    /// Path of the first `system` or `developer` message.
    first_instruction_path: Option<String>,
    /// Path of the last message, instructions aside, if it is a user message without content, which is left out.
    empty_last_path: Option<String>,
}

/// A repaired conversation.
pub(super) struct RepairedConversation {
    pub(super) messages: Vec<Arc<Message>>,
    /// Path of the first `system` or `developer` message.
    pub(super) first_instruction_path: Option<String>,
    /// Results of calls that the conversation does not have.
    pub(super) results: Vec<Message>,
    /// True if the conversation ends with one of these results, instructions aside.
    pub(super) ends_with_results: bool,
}

impl Conversation {
    /// Reads `messages`. One element may result in several messages or none.
    pub(super) fn read(list: &[json::Value<'_>]) -> Result<Self, FieldError> {
        let messages = Vec::with_capacity(list.len() + 1);
        let mut conversation = Self { messages, first_instruction_path: None, empty_last_path: None };
        for (index, value) in list.iter().enumerate() {
            let before = conversation.messages.len();
            let role = message::read(value, &mut conversation.messages)
                .map_err(|fault| fault.with_index(index).with_parent_path("messages"))?;
            match role {
                Some(Role::System | Role::Developer) => {
                    conversation
                        .first_instruction_path
                        .get_or_insert_with(|| format!("messages[{index}].role"));
                }
                Some(role) => {
                    let is_empty = role == Role::User && conversation.messages.len() == before;
                    conversation.empty_last_path = is_empty.then(|| format!("messages[{index}]"));
                }
                None => {}
            }
        }
        Ok(conversation)
    }

    /// Repairs the conversation. `to_answer` requires that it ends with a user message or a tool result.
    pub(super) fn finish(self, to_answer: bool) -> Result<RepairedConversation, FieldError> {
        let Self { messages, first_instruction_path, empty_last_path } = self;
        if messages.len() > MAX_MESSAGES {
            return Err(FieldError::new("messages", format!("has more than {MAX_MESSAGES} elements")));
        }
        // Checked before and after the repair: the repair adds a result to a call without one, which needs no answer, and removes
        // a result whose call is missing.
        let messages: Vec<_> = messages.into_iter().map(Arc::new).collect();
        let called_for = expects_answer(&messages);
        let results = results_without_calls(&messages);
        let last = last_spoken(&messages).and_then(|last| last.tool_call_id.as_deref());
        let is_last = |result: &Message| result.tool_call_id.as_deref() == last;
        let ends_with_results = last.is_some() && results.iter().any(is_last);
        let messages = repair(messages);
        if to_answer && !(called_for && expects_answer(&messages)) {
            return Err(match empty_last_path {
                Some(path) => FieldError::new(path, "is empty"),
                None => FieldError::new("messages", "must end with a user message or a tool result"),
            });
        }
        Ok(RepairedConversation { messages, first_instruction_path, results, ends_with_results })
    }
}

/// Returns the results of calls that an earlier request has had, which a repair removes.
fn results_without_calls(messages: &[Arc<Message>]) -> Vec<Message> {
    let calls: HashSet<&str> =
        messages.iter().flat_map(|message| &message.tool_calls).map(|call| call.id.as_str()).collect();
    let has_no_call = |message: &&Arc<Message>| {
        message.role == Role::Tool
            && message.tool_call_id.as_deref().is_some_and(|call| !calls.contains(call))
    };
    messages.iter().filter(has_no_call).map(|message| Message::clone(message)).collect()
}

/// Returns true if the last message, instructions aside, is a user message or a tool result.
pub fn expects_answer(messages: &[Arc<Message>]) -> bool {
    matches!(last_spoken(messages).map(|last| last.role), Some(Role::User | Role::Tool))
}

/// Returns the last message that is not an instruction.
fn last_spoken(messages: &[Arc<Message>]) -> Option<&Arc<Message>> {
    messages.iter().rev().find(|message| !matches!(message.role, Role::System | Role::Developer))
}
