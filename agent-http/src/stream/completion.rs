//! Encoder of AG-UI events as chunks of a chat completion in OpenAI's API, and the completion of a collected run.
//!
//! A run is one choice. The texts of its messages are one text, separated by empty lines. The client receives only the
//! tool calls that it has to execute, at the end of the run, when it is known that they wait for the client. The format
//! does not contain the agent's own calls and the reasoning.

use std::time::{SystemTime, UNIX_EPOCH};

use agent_core::event::{Event, Id, RunOutcome, RunResult};
use agent_core::ids::AgentId;
use agent_core::message::{FinishReason, Usage};
use serde::Serialize;

use super::CollectedRun;
use super::json::{write_frame, write_json};
use crate::error::{Code, HttpError, OpenAiError};

/// Maximum size in bytes of the arguments of calls that are kept until the end of the run.
const MAX_ARGUMENT_BYTES: usize = 1024 * 1024;

/// Text that replaces the results of calls that wait for a person.
const WAITING_NOTICE: &str = "A tool call of this answer waits for a person's approval.";

/// Message of a run that was cancelled by another request.
const CANCELLED_MESSAGE: &str = "the run was cancelled";

/// Properties of the chat completion of a run.
#[derive(Debug, Clone)]
pub(crate) struct ChatCompletion {
    /// Identifier of the completion.
    pub(crate) id: String,
    /// Creation time.
    pub(crate) created: SystemTime,
    /// The agent, which the API calls a model.
    pub(crate) model: AgentId,
    /// True if a stream ends with the usage.
    pub(crate) includes_usage: bool,
    /// Names of the client's tools.
    pub(crate) client_tools: Vec<String>,
    /// False for a client that takes one call at a time. Further ones are not sent: the model makes them again after the
    /// result of the first.
    pub(crate) calls_in_parallel: bool,
}

/// Encoder state between events.
#[derive(Debug)]
pub(super) struct CompletionEncoder {
    completion: ChatCompletion,
    /// Message to which the last text belongs.
    message_id: Option<Id>,
    /// Calls of the client's tools that have no result.
    calls: Vec<PendingCall>,
    /// Size of the arguments of `calls`, in bytes.
    argument_bytes: usize,
    /// True once the stream has its last event.
    is_over: bool,
}

#[derive(Debug)]
struct PendingCall {
    id: Id,
    name: String,
    arguments: String,
}

/// Object of the API: a completion, or a chunk of one.
#[derive(Debug, Serialize)]
struct CompletionObject<'a, C> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a AgentId,
    choices: &'a [C],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<CompletionUsage>,
}

#[derive(Debug, Serialize)]
struct ChunkChoice<'a> {
    index: u32,
    delta: Delta<'a>,
    logprobs: (),
    finish_reason: Option<&'static str>,
}

#[derive(Debug, Default, Serialize)]
struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<CallObject<'a>>,
}

#[derive(Debug, Serialize)]
struct Choice<'a> {
    index: u32,
    message: AssistantMessage<'a>,
    logprobs: (),
    finish_reason: &'static str,
}

#[derive(Debug, Serialize)]
struct AssistantMessage<'a> {
    role: &'static str,
    content: Option<&'a str>,
    refusal: (),
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<CallObject<'a>>,
}

#[derive(Debug, Serialize)]
struct CallObject<'a> {
    /// Index among the calls; only in chunks.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<usize>,
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    function: FunctionObject<'a>,
}

#[derive(Debug, Serialize)]
struct FunctionObject<'a> {
    name: &'a str,
    arguments: &'a str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct CompletionUsage {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
    prompt_tokens_details: PromptDetails,
    completion_tokens_details: AnswerDetails,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct PromptDetails {
    cached_tokens: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct AnswerDetails {
    reasoning_tokens: u64,
}

impl ChatCompletion {
    /// Serializes the completion of a whole run.
    ///
    /// # Errors
    /// 409 for a run that was cancelled.
    pub(crate) fn to_json(&self, run: &CollectedRun) -> Result<Vec<u8>, HttpError> {
        if run.finish_reason == "cancelled" {
            return Err(HttpError::conflict(CANCELLED_MESSAGE));
        }
        let calls = run.tool_calls.iter().map(|call| &call.call);
        let pending = calls.filter(|call| run.pending_tool_call_ids.iter().any(|id| **id == *call.id));
        let tool_calls: Vec<_> = pending
            .take(self.max_calls())
            .map(|call| CallObject::new(None, &call.id, &call.function.name, &call.function.arguments))
            .collect();
        let mut content = run.output.clone();
        if !run.interrupts.is_empty() {
            content.push_str(separator(!content.is_empty()));
            content.push_str(WAITING_NOTICE);
        }
        let finish_reason = match run.finish_reason {
            _ if !tool_calls.is_empty() => "tool_calls",
            "tool_calls" => "stop",
            other => other,
        };
        let content = Some(content.as_str()).filter(|text| !text.is_empty() || tool_calls.is_empty());
        let message = AssistantMessage { role: "assistant", content, refusal: (), tool_calls };
        let choice = Choice { index: 0, message, logprobs: (), finish_reason };
        let mut out = Vec::new();
        let usage = CompletionUsage::of(&run.usage);
        write_json(&mut out, &self.object("chat.completion", &[choice], usage));
        Ok(out)
    }

    /// Returns the maximum number of calls that are sent.
    fn max_calls(&self) -> usize {
        if self.calls_in_parallel { usize::MAX } else { 1 }
    }

    fn object<'a, C>(
        &'a self,
        object: &'static str,
        choices: &'a [C],
        usage: Option<CompletionUsage>,
    ) -> CompletionObject<'a, C> {
        let created = self.created.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        CompletionObject { id: &self.id, object, created, model: &self.model, choices, usage }
    }
}

impl CompletionEncoder {
    pub(super) fn new(completion: ChatCompletion) -> Self {
        Self { completion, message_id: None, calls: Vec::new(), argument_bytes: 0, is_over: false }
    }

    /// Appends the chunks of an event.
    pub(super) fn encode(&mut self, event: &Event, out: &mut Vec<u8>) {
        if self.is_over {
            return;
        }
        match event {
            Event::RunStarted { .. } => {
                let delta = Delta { role: Some("assistant"), content: Some(""), ..Delta::default() };
                self.write_chunk(delta, None, out);
            }
            Event::TextMessageContent { message_id, delta } => self.write_text(message_id, delta, out),
            Event::ToolCallStart { tool_call_id, tool_call_name, .. }
                if self.completion.client_tools.contains(tool_call_name) =>
            {
                let (id, name) = (tool_call_id.clone(), tool_call_name.clone());
                self.calls.push(PendingCall { id, name, arguments: String::new() });
            }
            Event::ToolCallArgs { tool_call_id, delta } => self.add_arguments(tool_call_id, delta, out),
            Event::ToolCallResult { tool_call_id, .. } => {
                self.calls.retain(|call| call.id != *tool_call_id);
                self.argument_bytes = self.calls.iter().map(|call| call.arguments.len()).sum();
            }
            Event::RunFinished { result, outcome, usage, .. } => {
                self.finish(result.as_ref(), outcome.as_ref(), usage, out);
            }
            Event::RunError { message, code, .. } => {
                self.fail(Code::from_wire(code).unwrap_or(Code::Internal), message, out);
            }
            // Not part of the format: reasoning, steps, the agent's own calls, extensions.
            _ => {}
        }
    }

    fn write_text(&mut self, message_id: &Id, text: &str, out: &mut Vec<u8>) {
        let is_next = self.message_id.as_ref().is_some_and(|latest| latest != message_id);
        if self.message_id.as_ref() != Some(message_id) {
            self.message_id = Some(message_id.clone());
        }
        if is_next {
            self.write_chunk(Delta { content: Some(separator(true)), ..Delta::default() }, None, out);
        }
        self.write_chunk(Delta { content: Some(text), ..Delta::default() }, None, out);
    }

    fn add_arguments(&mut self, id: &Id, delta: &str, out: &mut Vec<u8>) {
        let Some(call) = self.calls.iter_mut().rev().find(|call| call.id == *id) else { return };
        self.argument_bytes += delta.len();
        if self.argument_bytes > MAX_ARGUMENT_BYTES {
            self.fail(Code::OutputTooLarge, "the arguments of the tool calls exceed the size limit", out);
        } else {
            call.arguments.push_str(delta);
        }
    }

    fn finish(
        &mut self,
        result: Option<&RunResult>,
        outcome: Option<&RunOutcome>,
        usage: &[Usage],
        out: &mut Vec<u8>,
    ) {
        let (pending, is_waiting): (&[Id], bool) = match outcome {
            Some(RunOutcome::Cancelled) => return self.fail(Code::Conflict, CANCELLED_MESSAGE, out),
            Some(RunOutcome::Success { pending_tool_call_ids }) => (pending_tool_call_ids, false),
            Some(RunOutcome::Interrupt { pending_tool_call_ids, interrupts }) => {
                (pending_tool_call_ids, !interrupts.is_empty())
            }
            _ => (&[], false),
        };
        if is_waiting {
            let notice = [separator(self.message_id.is_some()), WAITING_NOTICE].concat();
            self.write_chunk(Delta { content: Some(&notice), ..Delta::default() }, None, out);
        }
        let calls = std::mem::take(&mut self.calls);
        let waiting = calls.iter().filter(|call| pending.contains(&call.id));
        let sent = waiting.take(self.completion.max_calls());
        let mut has_calls = false;
        for (index, PendingCall { id, name, arguments }) in sent.enumerate() {
            has_calls = true;
            let tool_calls = vec![CallObject::new(Some(index), id, name, arguments)];
            self.write_chunk(Delta { tool_calls, ..Delta::default() }, None, out);
        }
        let reason = match result.map(|result| result.finish_reason) {
            _ if has_calls => "tool_calls",
            None | Some(FinishReason::Stop | FinishReason::ToolCalls) => "stop",
            Some(FinishReason::Length) => "length",
            Some(FinishReason::ContentFilter) => "content_filter",
        };
        self.write_chunk(Delta::default(), Some(reason), out);
        let usage = CompletionUsage::of(usage).filter(|_| self.completion.includes_usage);
        if usage.is_some() {
            write_frame(out, &self.completion.object::<ChunkChoice<'_>>("chat.completion.chunk", &[], usage));
        }
        self.is_over = true;
    }

    /// Appends an error, after which no other event is written.
    fn fail(&mut self, code: Code, message: &str, out: &mut Vec<u8>) {
        write_frame(out, &OpenAiError::new(code, message, None));
        self.is_over = true;
        self.calls = Vec::new();
    }

    fn write_chunk(&self, delta: Delta<'_>, finish_reason: Option<&'static str>, out: &mut Vec<u8>) {
        let choice = ChunkChoice { index: 0, delta, logprobs: (), finish_reason };
        write_frame(out, &self.completion.object("chat.completion.chunk", &[choice], None));
    }
}

impl<'a> CallObject<'a> {
    fn new(index: Option<usize>, id: &'a str, name: &'a str, arguments: &'a str) -> Self {
        // Tools without parameters are often called with empty arguments.
        let arguments = if arguments.trim_ascii().is_empty() { "{}" } else { arguments };
        Self { index, id, kind: "function", function: FunctionObject { name, arguments } }
    }
}

impl CompletionUsage {
    /// Sums up the usage of a run's models; `None` if no model has reported any.
    fn of(usage: &[Usage]) -> Option<Self> {
        let sum =
            |field: fn(&Usage) -> Option<u64>| usage.iter().filter_map(field).fold(0, u64::saturating_add);
        let is_known = usage.iter().any(|usage| usage.input_tokens.or(usage.output_tokens).is_some());
        let prompt_tokens = sum(|usage| usage.input_tokens);
        let completion_tokens = sum(|usage| usage.output_tokens);
        is_known.then(|| Self {
            prompt_tokens,
            completion_tokens,
            total_tokens: prompt_tokens.saturating_add(completion_tokens),
            prompt_tokens_details: PromptDetails { cached_tokens: sum(|usage| usage.cached_input_tokens) },
            completion_tokens_details: AnswerDetails {
                reasoning_tokens: sum(|usage| usage.reasoning_tokens),
            },
        })
    }
}

/// Returns the text between two messages.
fn separator(is_needed: bool) -> &'static str {
    if is_needed { "\n\n" } else { "" }
}

#[cfg(test)]
mod tests;
