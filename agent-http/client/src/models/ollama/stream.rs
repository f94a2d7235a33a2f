//! Decoder of Ollama's NDJSON responses.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use agent_core::error::AgentError;
use agent_core::message::FinishReason;
use agent_core::model::ModelEvent;
use agent_platform::model_notice::ModelNotice;
use futures_util::{Stream, StreamExt};
use tracing::warn;

use super::window;
use super::wire::{Call, ChatLine, ResponseMessage};
use crate::lines::LineSplitter;
use crate::models::answer_parts::arguments_text;
use crate::models::errors::{
    empty_answer, malformed_response, reported_error, truncated_answer, unknown_response,
};
use crate::models::vendor_error::VendorError;
use crate::outbound::{BodyStream, OutboundResponse};

/// Estimated prompt size and requested window, for detecting truncation.
#[derive(Debug, Clone, Copy)]
pub(super) struct PromptEstimate {
    /// Estimated prompt tokens; `None` if the prompt cannot be compared.
    pub tokens: Option<usize>,
    /// The requested context window, in tokens.
    pub num_ctx: usize,
}

/// A stream of model events decoded from a response body.
///
/// The answer is complete when a line has `done` set. Anything after that line is ignored.
pub(super) struct ChatStream {
    body: BodyStream,
    lines: LineSplitter,
    answer: AnswerDecoder,
    /// Pending failure, returned after the events that precede it.
    failure: Option<AgentError>,
    is_finished: bool,
}

impl ChatStream {
    pub(super) fn new(response: OutboundResponse, expected: PromptEstimate) -> Self {
        Self {
            body: response.into_stream(),
            lines: LineSplitter::default(),
            answer: AnswerDecoder::new(expected),
            failure: None,
            is_finished: false,
        }
    }

    /// Reads until events are ready or the answer has ended.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), AgentError>> {
        while self.answer.ready.is_empty() && !self.is_finished {
            if let Some(line) = self.lines.next_line()? {
                self.answer.take_line(line)?;
                self.is_finished = self.answer.done;
                continue;
            }
            match ready!(self.body.poll_next_unpin(cx)).transpose()? {
                Some(chunk) => self.lines.push(chunk),
                None => {
                    self.is_finished = true;
                    self.take_rest()?;
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Handles the end of the body: the last line may lack its newline, and a line that was cut within is ignored.
    fn take_rest(&mut self) -> Result<(), AgentError> {
        if let Some(line) = self.lines.last_line()
            && let Ok(line) = serde_json::from_slice(line)
        {
            self.answer.take(line)?;
        }
        if self.answer.done { Ok(()) } else { Err(truncated_answer()) }
    }
}

impl Stream for ChatStream {
    type Item = Result<ModelEvent, AgentError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.answer.ready.is_empty()
            && !this.is_finished
            && let Err(failure) = ready!(this.poll_more(cx))
        {
            this.is_finished = true;
            this.failure = Some(failure);
        }
        let event = this.answer.ready.pop_front().map(Ok);
        Poll::Ready(event.or_else(|| this.failure.take().map(Err)))
    }
}

/// Decodes the events of a non-streamed response, which may consist of several lines.
///
/// # Errors
/// `Failed` for a reported error and for a body that is not an answer; `Truncated` for an answer that is not done.
pub(super) fn decode_response(
    body: &[u8],
    expected: PromptEstimate,
) -> Result<VecDeque<ModelEvent>, AgentError> {
    let mut answer = AnswerDecoder::new(expected);
    let mut lines = serde_json::Deserializer::from_slice(body).into_iter::<ChatLine<'_>>();
    while !answer.done {
        let line = lines
            .next()
            .ok_or_else(|| if answer.has_begun { truncated_answer() } else { unknown_response() })?;
        answer.take(line.map_err(|error| malformed_response(&error))?)?;
    }
    Ok(answer.ready)
}

/// Decoding state of one answer.
struct AnswerDecoder {
    ready: VecDeque<ModelEvent>,
    expected: PromptEstimate,
    calls: usize,
    has_begun: bool,
    done: bool,
}

impl AnswerDecoder {
    fn new(expected: PromptEstimate) -> Self {
        Self { ready: VecDeque::new(), expected, calls: 0, has_begun: false, done: false }
    }

    fn take_line(&mut self, line: &[u8]) -> Result<(), AgentError> {
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        self.take(serde_json::from_slice(line).map_err(|error| malformed_response(&error))?)
    }

    fn take(&mut self, mut line: ChatLine<'_>) -> Result<(), AgentError> {
        if let Some(error) = line.error {
            return Err(VendorError::from_error(error).into_error(reported_error()));
        }
        if let Some(message) = line.message.take() {
            self.has_begun = true;
            self.take_message(message);
        }
        if line.done == Some(true) { self.finish(&line) } else { Ok(()) }
    }

    fn take_message(&mut self, message: ResponseMessage<'_>) {
        let non_empty = |text: Option<String>| text.filter(|text| !text.is_empty());
        let reasoning = [message.thinking, message.reasoning].into_iter().flatten();
        let reasoning = reasoning.map(|reasoning| reasoning.0).find(|text| !text.is_empty());
        self.ready.extend(reasoning.map(ModelEvent::Reasoning));
        self.ready.extend(non_empty(message.content).map(ModelEvent::Text));
        for call in message.tool_calls.unwrap_or_default() {
            self.take_call(call);
        }
    }

    /// Takes a tool call, which always comes whole. Older servers give it no identifier.
    fn take_call(&mut self, call: Call<'_>) {
        let index = self.calls;
        self.calls += 1;
        let function = call.function.unwrap_or_default();
        let delta = arguments_text(function.arguments);
        let id = call.id.filter(|id| !id.is_empty());
        let id = id.unwrap_or_else(|| format!("call_{}", agent_core::new_id()));
        let name = function.name.unwrap_or_default();
        self.ready.push_back(ModelEvent::ToolCallStart { index, id, name });
        if !delta.is_empty() {
            self.ready.push_back(ModelEvent::ToolCallArgs { index, delta });
        }
    }

    fn finish(&mut self, line: &ChatLine<'_>) -> Result<(), AgentError> {
        let reason = match line.done_reason.as_deref() {
            Some("length") => FinishReason::Length,
            // The request was empty: the server has only loaded the model into memory, or unloaded it.
            Some("load" | "unload") => return Err(empty_answer()),
            _ if self.calls > 0 => FinishReason::ToolCalls,
            _ => FinishReason::Stop,
        };
        self.done = true;
        self.ready.extend(line.usage().map(ModelEvent::Usage));
        self.ready.extend(self.notice(line).map(ModelEvent::from));
        self.ready.push_back(ModelEvent::Finish(reason));
        Ok(())
    }

    fn notice(&self, line: &ChatLine<'_>) -> Option<ModelNotice> {
        let (estimated, num_ctx) = (self.expected.tokens? as u64, self.expected.num_ctx as u64);
        let read = line.prompt_eval_count?;
        let notice = window::truncation_notice(estimated, read, num_ctx)?;
        warn!(estimated, read, num_ctx, "Ollama truncated a prompt that exceeds its context window");
        Some(notice)
    }
}
