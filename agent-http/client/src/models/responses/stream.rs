//! Stream of model events from the body of a response.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use agent_core::error::AgentError;
use agent_core::model::ModelEvent;
use futures_util::{Stream, StreamExt};

use super::answer::AnswerReader;
use crate::lines::SseDecoder;
use crate::models::failure::truncated_answer;
use crate::models::spec::ModelSpec;
use crate::outbound::BodyStream;

/// Limit on a line and on the data of an event, in bytes: the last event repeats the whole answer.
const MAX_LINE_BYTES: usize = 4 << 20;

/// A stream of model events decoded from a response body. Anything after the event that ends the answer is ignored.
pub(super) struct ResponsesStream {
    body: BodyStream,
    decoder: SseDecoder,
    answer: AnswerReader,
    /// Pending failure, returned after the events that precede it.
    failure: Option<AgentError>,
    model: Arc<ModelSpec>,
    prompt_tokens: Option<usize>,
}

impl ResponsesStream {
    /// Creates the stream. The context window of `model` is learnt if the server rejects a prompt of `prompt_tokens`.
    pub(super) fn new(
        body: BodyStream,
        answer: AnswerReader,
        model: Arc<ModelSpec>,
        prompt_tokens: Option<usize>,
    ) -> Self {
        let decoder = SseDecoder::new(MAX_LINE_BYTES);
        Self { body, decoder, answer, failure: None, model, prompt_tokens }
    }

    /// Reads until events are ready or the answer has ended.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), AgentError>> {
        while self.answer.ready.is_empty() && !self.answer.is_finished {
            if let Some(event) = self.decoder.next_event()? {
                if event.data.trim_ascii() != b"[DONE]" {
                    self.answer.take(event.data)?;
                }
                continue;
            }
            match ready!(self.body.poll_next_unpin(cx)).transpose()? {
                Some(chunk) => self.decoder.push(chunk),
                None => return Poll::Ready(Err(truncated_answer())),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Stream for ResponsesStream {
    type Item = Result<ModelEvent, AgentError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some(event) = this.answer.next() {
                return Poll::Ready(Some(Ok(event)));
            }
            if let Some(failure) = this.failure.take() {
                return Poll::Ready(Some(Err(failure)));
            }
            if this.answer.is_finished {
                return Poll::Ready(None);
            }
            if let Err(failure) = ready!(this.poll_more(cx)) {
                this.model.learn(&failure, this.prompt_tokens);
                this.answer.is_finished = true;
                this.failure = Some(failure);
            }
        }
    }
}
