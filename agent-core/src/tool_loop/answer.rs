//! Conversion of one model answer from deltas to events, and its text and tool calls for the next round.

use std::collections::{HashSet, VecDeque};

use serde_json::Value;

use super::LoopLimits;
use crate::error::{AgentError, AgentErrorKind};
use crate::event::{AssistantRole, Event, Id, ReasoningRole, RunResult};
use crate::message::{FinishReason, Message, ProviderItem, ToolCall, Usage};
use crate::model::ModelEvent;

/// Initial capacity for an answer's text, in bytes.
const INITIAL_TEXT_CAPACITY: usize = 256;
/// Limit on the provider's items of all answers of a run, in bytes: each round sends them again.
const MAX_RUN_ITEM_BYTES: usize = 4 << 20;

/// Assembles an answer from deltas, and emits the start and end events of its messages and calls.
#[derive(Default)]
pub(super) struct AnswerAssembler {
    /// Identifier of the assistant message; calls name it as their parent even if it has no text.
    message_id: Id,
    /// True if text or a call has used `message_id`. Later text starts a message with a new identifier, since a
    /// closed message cannot be reopened, and clients treat a second start as a second message.
    is_message_id_used: bool,
    text_id: Option<Id>,
    reasoning_id: Option<Id>,
    /// Text of the answer. It is needed only if there are calls, but precedes them.
    text: String,
    calls: Vec<PendingCall>,
    provider_items: Vec<ProviderItem>,
    /// Bytes of the provider's items in the run so far.
    provider_item_bytes: usize,
    /// Boxed because it is set only at the end of the answer.
    usage: Option<Box<Usage>>,
    object: Option<Value>,
}

struct PendingCall {
    index: usize,
    id: Id,
    name: String,
    arguments: String,
}

/// Result and usage of a complete answer.
pub(super) struct FinishedAnswer {
    pub result: RunResult,
    pub usage: Usage,
    /// User message that asks for another answer.
    pub correction: Option<String>,
}

impl AnswerAssembler {
    /// Creates an assembler for the answer after `earlier` messages of the run.
    pub(super) fn new(earlier: &[Message]) -> Self {
        let items = earlier.iter().flat_map(|message| &message.provider_items);
        Self {
            message_id: crate::new_id().into(),
            provider_item_bytes: items.map(|item| item.json.get().len()).sum(),
            ..Self::default()
        }
    }

    /// Returns the event of a delta that continues an open message; returns any other delta for [`process`](Self::process).
    #[expect(clippy::result_large_err, reason = "a box would cost an allocation for most deltas")]
    pub(super) fn continue_open(&mut self, event: ModelEvent) -> Result<Event, ModelEvent> {
        match (event, &self.text_id, &self.reasoning_id) {
            (ModelEvent::Text(delta), Some(id), _) if !delta.is_empty() => {
                self.text.push_str(&delta);
                Ok(Event::TextMessageContent { message_id: id.clone(), delta })
            }
            (ModelEvent::Reasoning(delta), _, Some(id)) if !delta.is_empty() => {
                Ok(Event::ReasoningMessageContent { message_id: id.clone(), delta })
            }
            (event, ..) => Err(event),
        }
    }

    /// Processes a delta that [`Self::continue_open`] has returned; returns `Some` when the answer is complete.
    pub(super) fn process(
        &mut self,
        event: ModelEvent,
        out: &mut VecDeque<Event>,
        used_ids: &mut HashSet<Id>,
        limits: &LoopLimits,
    ) -> Result<Option<FinishedAnswer>, AgentError> {
        match event {
            ModelEvent::Text(delta) | ModelEvent::Reasoning(delta) if delta.is_empty() => {}
            ModelEvent::Text(_) => {
                self.open_text(out);
                out.extend(self.continue_open(event).ok());
            }
            ModelEvent::Reasoning(_) => {
                self.open_reasoning(out);
                out.extend(self.continue_open(event).ok());
            }
            ModelEvent::ToolCallStart { index, id, name } => {
                self.close_messages(out);
                self.start_call(index, id, name, out, used_ids, limits)?;
            }
            ModelEvent::ToolCallArgs { index, delta } => self.take_arguments(index, delta, out, limits)?,
            ModelEvent::ProviderItem(item) => self.take_provider_item(item)?,
            ModelEvent::Usage(usage) => self.usage = Some(usage.into()),
            ModelEvent::Notice(notice) => {
                out.push_back(Event::Custom { name: "agent.debug".into(), value: Value::Object(notice) })
            }
            ModelEvent::Draft(delta) => self.text.push_str(&delta),
            ModelEvent::Object(object) => self.object = Some(object),
            ModelEvent::Rejected(correction) => {
                return Ok(Some(self.finish(FinishReason::Stop, Some(correction), out)));
            }
            ModelEvent::Finish(reason) => return Ok(Some(self.finish(reason, None, out))),
        }
        Ok(None)
    }

    fn finish(
        &mut self,
        finish_reason: FinishReason,
        correction: Option<String>,
        out: &mut VecDeque<Event>,
    ) -> FinishedAnswer {
        self.close_messages(out);
        out.extend(self.calls.iter().map(|call| Event::ToolCallEnd { tool_call_id: call.id.clone() }));
        let usage = self.take_usage();
        FinishedAnswer { result: RunResult { finish_reason, object: self.object.take() }, usage, correction }
    }

    /// Returns the usage that the provider has reported so far.
    pub(super) fn take_usage(&mut self) -> Usage {
        self.usage.take().map(|usage| *usage).unwrap_or_default()
    }

    /// Returns the answer as a message, with its calls in the order of their start.
    pub(super) fn into_message(self) -> Message {
        let calls = self.calls.into_iter().map(|call| ToolCall::new(&*call.id, call.name, call.arguments));
        let message = Message::with_tool_calls(self.text, calls.collect());
        Message { provider_items: self.provider_items, ..message }
    }

    fn take_provider_item(&mut self, item: ProviderItem) -> Result<(), AgentError> {
        self.provider_item_bytes += item.json.get().len();
        if self.provider_item_bytes > MAX_RUN_ITEM_BYTES {
            let message = "the provider's items in the run exceed the size limit";
            return Err(AgentError::new(AgentErrorKind::OutputTooLarge, message));
        }
        self.provider_items.push(item);
        Ok(())
    }

    fn open_text(&mut self, out: &mut VecDeque<Event>) {
        self.close_reasoning(out);
        let is_used = std::mem::replace(&mut self.is_message_id_used, true);
        let message_id = if is_used { Id::from(crate::new_id()) } else { self.message_id.clone() };
        self.text_id = Some(message_id.clone());
        self.text.reserve(INITIAL_TEXT_CAPACITY);
        out.push_back(Event::TextMessageStart { message_id, role: AssistantRole::Assistant });
    }

    fn open_reasoning(&mut self, out: &mut VecDeque<Event>) {
        self.close_text(out);
        let message_id = Id::from(crate::new_id());
        self.reasoning_id = Some(message_id.clone());
        out.push_back(Event::ReasoningStart { message_id: message_id.clone() });
        out.push_back(Event::ReasoningMessageStart { message_id, role: ReasoningRole::Reasoning });
    }

    fn start_call(
        &mut self,
        index: usize,
        id: String,
        name: String,
        out: &mut VecDeque<Event>,
        used_ids: &mut HashSet<Id>,
        limits: &LoopLimits,
    ) -> Result<(), AgentError> {
        if self.calls.iter().any(|call| call.index == index) {
            return Err(failed("the model started the same tool call twice"));
        }
        if self.calls.len() >= limits.max_calls_per_round {
            let limit = limits.max_calls_per_round;
            let message = format!("the model made more than {limit} tool calls in one response");
            return Err(AgentError::new(AgentErrorKind::ToolLoopLimit, message));
        }
        let is_taken = id.is_empty() || used_ids.contains(&*id);
        let id = Id::from(if is_taken { format!("call_{}", crate::new_id()) } else { id });
        used_ids.insert(id.clone());
        self.is_message_id_used = true;
        out.push_back(Event::ToolCallStart {
            tool_call_id: id.clone(),
            tool_call_name: name.clone(),
            parent_message_id: Some(self.message_id.clone()),
        });
        self.calls.push(PendingCall { index, id, name, arguments: String::new() });
        Ok(())
    }

    fn take_arguments(
        &mut self,
        index: usize,
        delta: String,
        out: &mut VecDeque<Event>,
        limits: &LoopLimits,
    ) -> Result<(), AgentError> {
        if delta.is_empty() {
            return Ok(());
        }
        let call = self.calls.iter_mut().find(|call| call.index == index);
        let message = "the model sent arguments of a tool call that it had not started";
        let call = call.ok_or_else(|| failed(message))?;
        if call.arguments.len() + delta.len() > limits.max_argument_bytes {
            return Err(failed("the model's tool call arguments exceed the size limit"));
        }
        call.arguments.push_str(&delta);
        out.push_back(Event::ToolCallArgs { tool_call_id: call.id.clone(), delta });
        Ok(())
    }

    fn close_messages(&mut self, out: &mut VecDeque<Event>) {
        self.close_reasoning(out);
        self.close_text(out);
    }

    fn close_reasoning(&mut self, out: &mut VecDeque<Event>) {
        if let Some(message_id) = self.reasoning_id.take() {
            out.push_back(Event::ReasoningMessageEnd { message_id: message_id.clone() });
            out.push_back(Event::ReasoningEnd { message_id });
        }
    }

    fn close_text(&mut self, out: &mut VecDeque<Event>) {
        if let Some(message_id) = self.text_id.take() {
            out.push_back(Event::TextMessageEnd { message_id });
        }
    }
}

fn failed(message: &'static str) -> AgentError {
    AgentError::new(AgentErrorKind::Failed, message)
}
