//! Stream of model events from a body of server-sent events, for adapters whose events have no fast path.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use agent_core::error::AgentError;
use agent_core::model::ModelEvent;
use futures_util::{Stream, StreamExt};

use super::errors::truncated_answer;
use super::spec::ModelSpec;
use crate::lines::SseDecoder;
use crate::outbound::BodyStream;

/// Limit on a line and on the data of an event, in bytes: the last event may repeat the whole answer.
const MAX_LINE_BYTES: usize = 4 << 20;

/// State machine that decodes the events of one answer of a vendor's API.
pub(super) trait DecodeAnswer {
    /// Returns the model events that are ready, in order.
    fn ready(&mut self) -> &mut VecDeque<ModelEvent>;

    /// Returns true after the event that ends the answer.
    fn is_finished(&self) -> bool;

    /// Reads the data of one event.
    ///
    /// # Errors
    /// The error that the event reports; errors of data that the adapter does not accept.
    fn take(&mut self, data: &[u8]) -> Result<(), AgentError>;

    /// Reads the end of the body, before the event that ends the answer.
    ///
    /// # Errors
    /// `Truncated` if the answer is not complete.
    fn end(&mut self) -> Result<(), AgentError> {
        Err(truncated_answer())
    }
}

/// A stream of model events decoded from a response body. Anything after the event that ends the answer is ignored.
pub(super) struct AnswerStream<D> {
    body: BodyStream,
    lines: SseDecoder,
    answer: D,
    /// Pending failure, returned after the events that precede it.
    failure: Option<AgentError>,
    has_failed: bool,
    model: Arc<ModelSpec>,
    prompt_tokens: Option<usize>,
}

impl<D: DecodeAnswer> AnswerStream<D> {
    /// Creates the stream. The context window of `model` is learned if the server rejects a prompt of `prompt_tokens`.
    pub(super) fn new(
        body: BodyStream,
        answer: D,
        model: Arc<ModelSpec>,
        prompt_tokens: Option<usize>,
    ) -> Self {
        let lines = SseDecoder::new(MAX_LINE_BYTES);
        Self { body, lines, answer, failure: None, has_failed: false, model, prompt_tokens }
    }

    /// Takes the next ready event. Frees the queue when it is empty, since most answers queue little.
    fn next_ready(&mut self) -> Option<ModelEvent> {
        let ready = self.answer.ready();
        let event = ready.pop_front()?;
        if ready.is_empty() {
            *ready = VecDeque::new();
        }
        Some(event)
    }

    /// Reads until events are ready or the answer has ended.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), AgentError>> {
        while self.answer.ready().is_empty() && !self.answer.is_finished() {
            if let Some(event) = self.lines.next_event()? {
                if event.data.trim_ascii() != b"[DONE]" {
                    self.answer.take(event.data)?;
                }
                continue;
            }
            match ready!(self.body.poll_next_unpin(cx)).transpose()? {
                Some(chunk) => self.lines.push(chunk),
                None => self.answer.end()?,
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<D: DecodeAnswer + Unpin> Stream for AnswerStream<D> {
    type Item = Result<ModelEvent, AgentError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some(event) = this.next_ready() {
                return Poll::Ready(Some(Ok(event)));
            }
            if let Some(failure) = this.failure.take() {
                return Poll::Ready(Some(Err(failure)));
            }
            if this.has_failed || this.answer.is_finished() {
                return Poll::Ready(None);
            }
            if let Err(failure) = ready!(this.poll_more(cx)) {
                this.model.learn(&failure, this.prompt_tokens);
                this.has_failed = true;
                this.failure = Some(failure);
            }
        }
    }
}
