//! State of one answer: converts the events of the Messages API to model events.

use std::collections::VecDeque;

use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::message::{FinishReason, ProviderItem};
use agent_core::model::{ModelEvent, ModelRequest};
use agent_core::payload::Payload;
use serde_json::json;

use super::wire::{BlockDelta, Event, EventKind, MessageUsage, WireBlock};
use crate::models::answer_parts::ItemMaker;
use crate::models::answer_stream::DecodeAnswer;
use crate::models::errors::{
    MAX_CALLS, malformed_response, reported_error, too_many_calls, truncated_answer, unknown_response,
};
use crate::models::names::wire_tool_name;
use crate::models::vendor_error::VendorError;

/// Limit on the arguments of a call, in bytes.
const MAX_ARGUMENT_BYTES: usize = 256 << 10;
/// Limit on the thinking of an answer, in bytes.
const MAX_THINKING_BYTES: usize = 4 << 20;

/// Events that the adapter reads.
const KNOWN_EVENTS: [&str; 7] = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
    "error",
];

/// Data of a request for reading its answer.
#[derive(Debug, Clone, Default)]
pub(super) struct RequestTraits {
    /// Names of the tools that were sent under an alias, by their alias.
    aliases: Vec<(String, String)>,
    /// True if the request switches reasoning off, so that reasoning in the answer is not emitted.
    hides_reasoning: bool,
}

impl RequestTraits {
    /// Returns the data of a request.
    pub(super) fn new(request: &ModelRequest) -> Self {
        let names = request.tools.iter().map(|tool| (wire_tool_name(&tool.name), &tool.name));
        let aliases = names.filter(|(alias, name)| alias != *name);
        Self {
            aliases: aliases.map(|(alias, name)| (alias.into_owned(), name.clone())).collect(),
            hides_reasoning: request.thinking == Some(false),
        }
    }

    /// Returns the data of the request with this payload.
    pub(super) fn of(payload: &Payload) -> Self {
        payload.attachment::<Self>().cloned().unwrap_or_default()
    }

    fn tool_name<'a>(&'a self, name: &'a str) -> &'a str {
        self.aliases.iter().find(|(alias, _)| alias == name).map_or(name, |(_, name)| name)
    }
}

/// State of one answer. Its blocks come one after the other, each with a beginning and an end.
#[derive(Default)]
pub(super) struct MessageDecoder {
    /// Events that are ready, in order.
    pub(super) ready: VecDeque<ModelEvent>,
    traits: RequestTraits,
    /// Name of the model that was asked.
    requested_model: String,
    /// Name of the model that answers.
    model: Option<String>,
    usage: MessageUsage,
    open: Option<OpenBlock>,
    /// Thinking, which precedes the end of the answer as the last of its events.
    items: Vec<ProviderItem>,
    item_bytes: usize,
    text_bytes: usize,
    calls: usize,
    reason: Option<FinishReason>,
    is_finished: bool,
}

/// The block that started last.
struct OpenBlock {
    index: Option<u64>,
    kind: BlockKind,
}

enum BlockKind {
    Text,
    Call { index: usize, argument_bytes: usize, input: String },
    Thinking { thinking: String, signature: String },
    Other,
}

impl MessageDecoder {
    pub(super) fn new(model: &str, traits: RequestTraits) -> Self {
        Self { traits, requested_model: model.to_owned(), ..Self::default() }
    }

    /// Reads a whole answer, from a server that does not stream.
    ///
    /// # Errors
    /// As [`take`](DecodeAnswer::take); `Failed` for JSON that is not an answer.
    pub(super) fn take_whole(&mut self, data: &[u8]) -> Result<(), AgentError> {
        let answer: Event<'_> = parse(data)?;
        if answer.error.is_some() {
            return Err(reported(&answer));
        }
        let blocks = answer.content.ok_or_else(unknown_response)?;
        self.model = answer.model;
        self.take_usage(answer.usage);
        for block in blocks {
            self.begin_block(None, block)?;
            self.end_block()?;
        }
        self.reason = Some(finish_reason(answer.stop_reason.as_deref().unwrap_or_default()));
        self.finish();
        Ok(())
    }

    fn take_usage(&mut self, usage: Option<MessageUsage>) {
        if let Some(usage) = usage {
            self.usage = self.usage.with(usage);
            self.ready.push_back(ModelEvent::Usage(self.usage.into_usage(self.model.clone())));
        }
    }

    fn begin_block(&mut self, index: Option<u64>, block: WireBlock) -> Result<(), AgentError> {
        self.end_block()?;
        let kind = match &*block.kind {
            "text" => {
                self.push_text(block.text.unwrap_or_default());
                BlockKind::Text
            }
            "tool_use" => self.begin_call(block)?,
            "thinking" => {
                let thinking = block.thinking.unwrap_or_default();
                self.count_thinking(thinking.len())?;
                self.push_reasoning(&thinking);
                BlockKind::Thinking { thinking, signature: block.signature.unwrap_or_default() }
            }
            "redacted_thinking" => {
                let data = block.data.unwrap_or_default();
                self.count_thinking(data.len())?;
                self.push_provider_item(&json!({"type": "redacted_thinking", "data": data}));
                BlockKind::Other
            }
            // Blocks of tools that the server runs itself, which no request asks for.
            _ => BlockKind::Other,
        };
        self.open = Some(OpenBlock { index, kind });
        Ok(())
    }

    fn begin_call(&mut self, block: WireBlock) -> Result<BlockKind, AgentError> {
        if self.calls == MAX_CALLS {
            return Err(too_many_calls());
        }
        let index = self.calls;
        self.calls += 1;
        let id = block.id.filter(|id| !id.is_empty());
        let id = id.unwrap_or_else(|| format!("call_{}", agent_core::new_id()));
        let name = self.traits.tool_name(&block.name.unwrap_or_default()).to_owned();
        self.ready.push_back(ModelEvent::ToolCallStart { index, id, name });
        // Some servers send the arguments here, and no deltas.
        let input = block.input.map_or_else(String::new, |input| input.get().to_owned());
        Ok(BlockKind::Call { index, argument_bytes: 0, input })
    }

    fn take_delta(&mut self, index: Option<u64>, delta: BlockDelta) -> Result<(), AgentError> {
        let open = self.open.as_mut().filter(|open| open.index == index).ok_or_else(inconsistent)?;
        match &mut open.kind {
            BlockKind::Text => self.push_text(delta.text.unwrap_or_default()),
            BlockKind::Call { index, argument_bytes, .. } => {
                let delta = delta.partial_json.unwrap_or_default();
                *argument_bytes += delta.len();
                if *argument_bytes > MAX_ARGUMENT_BYTES {
                    return Err(arguments_too_large());
                }
                if !delta.is_empty() {
                    self.ready.push_back(ModelEvent::ToolCallArgs { index: *index, delta });
                }
            }
            BlockKind::Thinking { thinking, signature } => {
                let text = delta.thinking.unwrap_or_default();
                thinking.push_str(&text);
                signature.push_str(delta.signature.as_deref().unwrap_or_default());
                self.count_thinking(text.len() + delta.signature.map_or(0, |part| part.len()))?;
                self.push_reasoning(&text);
            }
            BlockKind::Other => {}
        }
        Ok(())
    }

    fn end_block(&mut self) -> Result<(), AgentError> {
        match self.open.take().map(|open| open.kind) {
            Some(BlockKind::Call { index, argument_bytes: 0, input }) if input.starts_with('{') => {
                if input.len() > MAX_ARGUMENT_BYTES {
                    return Err(arguments_too_large());
                }
                self.ready.push_back(ModelEvent::ToolCallArgs { index, delta: input });
            }
            Some(BlockKind::Thinking { thinking, signature }) => {
                self.push_provider_item(
                    &json!({"type": "thinking", "thinking": thinking, "signature": signature}),
                );
            }
            _ => {}
        }
        Ok(())
    }

    fn push_text(&mut self, text: String) {
        self.text_bytes += text.len();
        if !text.is_empty() {
            self.ready.push_back(ModelEvent::Text(text));
        }
    }

    fn push_reasoning(&mut self, text: &str) {
        if !text.is_empty() && !self.traits.hides_reasoning {
            self.ready.push_back(ModelEvent::Reasoning(text.to_owned()));
        }
    }

    fn count_thinking(&mut self, bytes: usize) -> Result<(), AgentError> {
        self.item_bytes += bytes;
        if self.item_bytes > MAX_THINKING_BYTES {
            let message = "the model's thinking exceeds the size limit";
            return Err(AgentError::new(AgentErrorKind::OutputTooLarge, message));
        }
        Ok(())
    }

    /// Keeps a block that the next request of the run repeats.
    fn push_provider_item(&mut self, block: &serde_json::Value) {
        let json = ItemMaker::thinking(&self.requested_model).keep(block).into();
        self.items.push(ProviderItem { json, text_before: self.text_bytes, calls_before: self.calls });
    }

    /// Ends the answer.
    fn finish(&mut self) {
        self.ready.extend(self.items.drain(..).map(ModelEvent::ProviderItem));
        let reason = match self.reason {
            Some(FinishReason::Stop) | None if self.calls > 0 => FinishReason::ToolCalls,
            reason => reason.unwrap_or(FinishReason::Stop),
        };
        self.ready.push_back(ModelEvent::Finish(reason));
        self.is_finished = true;
    }
}

impl DecodeAnswer for MessageDecoder {
    fn ready(&mut self) -> &mut VecDeque<ModelEvent> {
        &mut self.ready
    }

    fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// # Errors
    /// The error that the event reports; `Failed` for data that is not an event or contradicts earlier events;
    /// `OutputTooLarge` and `ToolLoopLimit` beyond the limits; `Truncated` for an end without a reason.
    fn take(&mut self, data: &[u8]) -> Result<(), AgentError> {
        let event: Event<'_> = parse(data)?;
        match event.kind.as_deref() {
            Some("message_start") => {
                let message = event.message.unwrap_or_default();
                self.model = message.model;
                self.take_usage(message.usage.map(MessageUsage::of_prompt));
                Ok(())
            }
            Some("content_block_start") => {
                self.begin_block(event.index, event.content_block.ok_or_else(inconsistent)?)
            }
            Some("content_block_delta") => {
                self.take_delta(event.index, event.delta.ok_or_else(inconsistent)?)
            }
            Some("content_block_stop") => self.end_block(),
            Some("message_delta") => {
                let reason = event.delta.and_then(|delta| delta.stop_reason);
                self.reason = reason.as_deref().map(finish_reason).or(self.reason);
                self.take_usage(event.usage);
                Ok(())
            }
            Some("message_stop") => self.end(),
            Some("error") => Err(reported(&event)),
            None if event.error.is_some() => Err(reported(&event)),
            _ => Ok(()),
        }
    }

    fn end(&mut self) -> Result<(), AgentError> {
        if self.reason.is_none() || self.open.is_some() {
            return Err(truncated_answer());
        }
        self.finish();
        Ok(())
    }
}

fn parse<'a>(data: &'a [u8]) -> Result<Event<'a>, AgentError> {
    serde_json::from_slice(data).or_else(|error| match serde_json::from_slice(data) {
        // An event that the adapter does not know may have members of other types.
        Ok(EventKind { kind }) if !KNOWN_EVENTS.contains(&kind.as_str()) => Ok(Event::default()),
        _ => Err(malformed_response(&error)),
    })
}

/// Classifies an error that the server reports within the answer.
fn reported(event: &Event<'_>) -> AgentError {
    let error = event.error.map(VendorError::from_error).unwrap_or_default();
    error.into_error(reported_error())
}

/// Maps the reason for the end of an answer. One that is not known has no meaning for the run.
fn finish_reason(reason: &str) -> FinishReason {
    match reason {
        "tool_use" => FinishReason::ToolCalls,
        // The server pauses a long answer with server-side tools, which no request enables: the answer is not complete.
        "max_tokens" | "model_context_window_exceeded" | "pause_turn" => FinishReason::Length,
        "refusal" => FinishReason::ContentFilter,
        _ => FinishReason::Stop,
    }
}

fn arguments_too_large() -> AgentError {
    AgentError::new(AgentErrorKind::Failed, "the model's tool call arguments exceed the size limit")
}

/// An event that contradicts earlier ones.
fn inconsistent() -> AgentError {
    AgentError::new(AgentErrorKind::Failed, "the model's server sent events that contradict each other")
}
