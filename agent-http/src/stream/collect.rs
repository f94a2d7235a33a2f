//! Collecting a run into one JSON object, for clients that do not read streams.

use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::event::{Event, Id, Interrupt, RunOutcome, RunResult};
use agent_core::ids::{RunId, ThreadId};
use agent_core::message::{FinishReason, ToolCall, Usage};
use futures_util::{Stream, StreamExt};
use serde::Serialize;
use serde_json::Value;

/// Result of a complete run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub(crate) struct CollectedRun {
    /// Thread id of the conversation.
    pub thread_id: ThreadId,
    /// Run id.
    pub run_id: RunId,
    /// Text of the assistant's messages, in order, separated by an empty line.
    pub output: String,
    /// Tool calls, in order.
    pub tool_calls: Vec<CollectedToolCall>,
    /// Token usage, one entry per model.
    pub usage: Vec<Usage>,
    /// `stop`, `length`, `tool_calls`, `content_filter`, or `cancelled`.
    pub finish_reason: &'static str,
    /// The answer as a value, if a JSON format was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<Value>,
    /// Decisions that the run asks for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interrupts: Vec<Interrupt>,
    /// Calls that the client has to execute.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pending_tool_call_ids: Vec<Id>,
}

/// Tool call with its result: an AG-UI tool call with two additional members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub(crate) struct CollectedToolCall {
    /// The tool call.
    #[serde(flatten)]
    pub call: ToolCall,
    /// Result that the model received; omitted if the caller must not see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// True if the call failed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

impl CollectedRun {
    /// Serializes the object as JSON.
    pub(super) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers serialise")
    }
}

/// Collects a run to its end. `max_bytes` bounds text, arguments and results together.
pub(crate) async fn collect(
    mut events: impl Stream<Item = Event> + Unpin,
    max_bytes: usize,
) -> Result<CollectedRun, AgentError> {
    let mut collector = Collector { remaining: max_bytes, ..Collector::default() };
    while let Some(event) = events.next().await {
        if collector.add_event(event)? {
            return Ok(collector.collected);
        }
    }
    Err(AgentError::new(AgentErrorKind::Internal, "the run ended without a terminal event"))
}

#[derive(Default)]
struct Collector {
    collected: CollectedRun,
    /// Message to which the last text in `output` belongs.
    message_id: Option<Id>,
    remaining: usize,
}

impl Collector {
    /// Adds an event; returns `true` if the run is complete.
    fn add_event(&mut self, event: Event) -> Result<bool, AgentError> {
        match event {
            Event::TextMessageContent { message_id, delta } => self.add_text(message_id, &delta)?,
            Event::ToolCallStart { tool_call_id, tool_call_name, .. } => {
                self.take_budget(tool_call_id.len() + tool_call_name.len())?;
                let call = ToolCall::new(&*tool_call_id, tool_call_name, "");
                self.collected.tool_calls.push(CollectedToolCall { call, result: None, is_error: false });
            }
            Event::ToolCallArgs { tool_call_id, delta } => {
                self.take_budget(delta.len())?;
                if let Some(call) = self.latest_call_mut(&tool_call_id) {
                    call.call.function.arguments.push_str(&delta);
                }
            }
            Event::ToolCallResult { tool_call_id, content, metadata, .. } => {
                self.take_budget(content.len())?;
                if let Some(call) = self.latest_call_mut(&tool_call_id) {
                    call.result = Some(content);
                    call.is_error = metadata.is_some_and(|metadata| metadata.is_error);
                }
            }
            Event::RunFinished { thread_id, run_id, result, outcome, usage } => {
                self.collected.thread_id = thread_id;
                self.collected.run_id = run_id;
                self.collected.usage = usage;
                self.collected.finish_reason = finish_reason(result.as_ref(), outcome.as_ref());
                self.collected.object = result.and_then(|result| result.object);
                match outcome {
                    Some(RunOutcome::Success { pending_tool_call_ids }) => {
                        self.collected.pending_tool_call_ids = pending_tool_call_ids;
                    }
                    Some(RunOutcome::Interrupt { interrupts, pending_tool_call_ids }) => {
                        self.collected.interrupts = interrupts;
                        self.collected.pending_tool_call_ids = pending_tool_call_ids;
                    }
                    _ => {}
                }
                return Ok(true);
            }
            Event::RunError { message, code, .. } => {
                let kind = AgentErrorKind::from_code(&code).unwrap_or(AgentErrorKind::Failed);
                return Err(AgentError::new(kind, message));
            }
            _ => {}
        }
        Ok(false)
    }

    fn add_text(&mut self, message_id: Id, delta: &str) -> Result<(), AgentError> {
        self.take_budget(delta.len())?;
        let output = &mut self.collected.output;
        if !output.is_empty() && self.message_id.as_ref() != Some(&message_id) {
            output.push_str("\n\n");
        }
        output.push_str(delta);
        self.message_id = Some(message_id);
        Ok(())
    }

    /// Returns the latest call with this id, because a provider may reuse ids in each round.
    fn latest_call_mut(&mut self, id: &str) -> Option<&mut CollectedToolCall> {
        self.collected.tool_calls.iter_mut().rev().find(|call| call.call.id == id)
    }

    fn take_budget(&mut self, bytes: usize) -> Result<(), AgentError> {
        self.remaining = self.remaining.checked_sub(bytes).ok_or_else(|| {
            AgentError::new(
                AgentErrorKind::OutputTooLarge,
                "the response is too long for the format json; request a stream",
            )
        })?;
        Ok(())
    }
}

fn finish_reason(result: Option<&RunResult>, outcome: Option<&RunOutcome>) -> &'static str {
    match (outcome, result.map(|result| result.finish_reason)) {
        (Some(RunOutcome::Cancelled), _) => "cancelled",
        (_, None | Some(FinishReason::Stop)) => "stop",
        (_, Some(FinishReason::Length)) => "length",
        (_, Some(FinishReason::ToolCalls)) => "tool_calls",
        (_, Some(FinishReason::ContentFilter)) => "content_filter",
    }
}
