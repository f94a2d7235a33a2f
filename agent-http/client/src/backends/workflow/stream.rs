//! Stream of run events decoded from a workflow's answer.
//!
//! n8n sends every answer as JSON, so the first non-blank line decides: a line of a stream starts a stream, and
//! anything else is a single answer that is read whole.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use agent_core::error::AgentError;
use agent_core::event::{AssistantRole, Event, Id, RunEnd, SourceEvent};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use memchr::memchr;

use super::line::{self, StreamLine};
use super::{AnswerFormat, answer, failure};
use crate::lines::LineSplitter;
use crate::outbound::BodyStream;
use crate::relay::{DeltaTemplate, RelayOptions};

/// Maximum size of a non-streamed answer, in bytes.
pub(super) const MAX_WHOLE_BYTES: usize = 4 << 20;

/// Stream of the run events of one answer.
///
/// Only the end of the body ends the run: a workflow may call models, and stream their text, any number of times.
pub(super) struct WorkflowEvents {
    body: Option<BodyStream>,
    announced: AnswerFormat,
    form: AnswerForm,
    transcript: Transcript,
    /// Pending failure, returned after the events that precede it.
    failure: Option<AgentError>,
}

/// The detected form of the answer.
enum AnswerForm {
    /// Only blank lines so far, which are discarded, and the start of the first other line; its first `at` bytes
    /// contain no newline.
    Unknown { held: Vec<u8>, at: usize },
    /// A stream of lines.
    Lines(Box<LineSplitter>),
    /// A single answer, as received so far.
    Whole(Vec<u8>),
}

impl WorkflowEvents {
    /// Decodes a body that is still arriving.
    pub(super) fn new(body: BodyStream, announced: AnswerFormat) -> Self {
        let relay = body.relay();
        Self { body: Some(body), ..Self::closed(announced, relay) }
    }

    /// Decodes a complete body.
    ///
    /// # Errors
    /// Any error in the answer, wherever it occurs.
    pub(super) fn whole(
        body: Bytes,
        announced: AnswerFormat,
        relay: RelayOptions,
    ) -> Result<Self, AgentError> {
        let mut events = Self::closed(announced, relay);
        events.push_chunk(body)?;
        events.end()?;
        Ok(events)
    }

    fn closed(announced: AnswerFormat, relay: RelayOptions) -> Self {
        let form = AnswerForm::Unknown { held: Vec::new(), at: 0 };
        let transcript = Transcript::new(DeltaTemplate::new(relay.delta_template));
        Self { body: None, announced, form, transcript, failure: None }
    }

    /// Reads until events are ready or the answer has ended.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), AgentError>> {
        while self.transcript.ready.is_empty() {
            let Some(body) = &mut self.body else { break };
            match ready!(body.poll_next_unpin(cx)).transpose()? {
                Some(chunk) => self.push_chunk(chunk)?,
                None => {
                    self.body = None;
                    self.end()?;
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Appends bytes, and takes all lines that they complete.
    fn push_chunk(&mut self, chunk: Bytes) -> Result<(), AgentError> {
        match &mut self.form {
            AnswerForm::Lines(lines) => lines.push(chunk),
            AnswerForm::Whole(held) => append_bounded(held, &chunk)?,
            AnswerForm::Unknown { held, at } => {
                append_bounded(held, &chunk)?;
                if let Some(line) = first_line(held, at) {
                    self.form = if StreamLine::is_stream_line(line) {
                        lines_of(std::mem::take(held))
                    } else {
                        AnswerForm::Whole(std::mem::take(held))
                    };
                }
            }
        }
        self.take_lines()
    }

    fn take_lines(&mut self) -> Result<(), AgentError> {
        let AnswerForm::Lines(lines) = &mut self.form else { return Ok(()) };
        while let Some(line) = lines.next_line()? {
            self.transcript.take_line(line)?;
        }
        Ok(())
    }

    /// Handles the end of the body.
    fn end(&mut self) -> Result<(), AgentError> {
        if let AnswerForm::Unknown { held, .. } = &mut self.form {
            let held = std::mem::take(held);
            self.form = if StreamLine::is_stream_line(held.trim_ascii()) {
                lines_of(held)
            } else {
                AnswerForm::Whole(held)
            };
        }
        match &mut self.form {
            AnswerForm::Lines(lines) => {
                // The last line may lack its newline, but must otherwise be complete.
                if let Some(line) = lines.last_line() {
                    let line = StreamLine::parse(line.trim_ascii()).map_err(|_| failure::cut_off())?;
                    self.transcript.take(line)?;
                }
                self.transcript.finish()
            }
            AnswerForm::Whole(held) => {
                self.transcript.push_text(answer::extract_text(held, self.announced)?);
                self.transcript.finish()
            }
            AnswerForm::Unknown { .. } => Ok(()),
        }
    }
}

/// Appends to a buffered answer, up to its size limit.
fn append_bounded(held: &mut Vec<u8>, chunk: &[u8]) -> Result<(), AgentError> {
    if chunk.len() > MAX_WHOLE_BYTES - held.len() {
        return Err(failure::too_large(MAX_WHOLE_BYTES));
    }
    held.extend_from_slice(chunk);
    Ok(())
}

/// Returns the first non-blank line once it is complete. Advances `at` past the bytes that need not be searched again.
fn first_line<'a>(held: &'a mut Vec<u8>, at: &mut usize) -> Option<&'a [u8]> {
    if *at == 0 {
        let blank = held.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        held.drain(..blank);
    }
    let end = memchr(b'\n', &held[*at..]).map(|place| *at + place);
    *at = held.len();
    end.map(|end| held[..end].trim_ascii())
}

fn lines_of(held: Vec<u8>) -> AnswerForm {
    let mut lines = LineSplitter::default();
    lines.push(held.into());
    AnswerForm::Lines(Box::new(lines))
}

impl Stream for WorkflowEvents {
    type Item = Result<SourceEvent, AgentError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.transcript.ready.is_empty()
            && this.failure.is_none()
            && let Err(failure) = ready!(this.poll_more(cx))
        {
            this.body = None;
            this.failure = Some(failure);
        }
        let event = this.transcript.ready.pop_front().map(Ok);
        Poll::Ready(event.or_else(|| this.failure.take().map(Err)))
    }
}

/// Collects the answer as events, one message per model call. Tool calls of the workflow are not part of its answer;
/// the platform adds those that it sees at its own tool server.
struct Transcript {
    ready: VecDeque<SourceEvent>,
    /// The open message.
    message: Option<Id>,
    /// Number of model calls that were begun and not ended.
    open_model_calls: usize,
    has_text: bool,
    /// Template of the last item, which the next one usually matches.
    template: DeltaTemplate,
}

impl Transcript {
    fn new(template: DeltaTemplate) -> Self {
        let (ready, message) = (VecDeque::new(), None);
        Self { ready, message, open_model_calls: 0, has_text: false, template }
    }

    fn take_line(&mut self, line: &[u8]) -> Result<(), AgentError> {
        match line.trim_ascii() {
            [] => Ok(()),
            line => {
                if let Some(text) = self.template.match_chunk(line) {
                    self.push_text(line::unwrap_output(text.into()).into_owned());
                    return Ok(());
                }
                let said = StreamLine::parse(line)?;
                if let StreamLine::Item(Cow::Borrowed(text)) = said {
                    self.template.learn(line, text);
                }
                self.take(said)
            }
        }
    }

    fn take(&mut self, line: StreamLine<'_>) -> Result<(), AgentError> {
        match line {
            StreamLine::Begin => {
                self.close_message();
                self.open_model_calls += 1;
            }
            StreamLine::Item(text) => self.push_text(text.into_owned()),
            StreamLine::End => {
                self.close_message();
                self.open_model_calls = self.open_model_calls.saturating_sub(1);
            }
            StreamLine::Error => return Err(failure::reported()),
            StreamLine::Other => {}
        }
        Ok(())
    }

    fn push_text(&mut self, delta: String) {
        if delta.is_empty() {
            return;
        }
        self.has_text = true;
        let message_id = self.message.get_or_insert_with(|| {
            let message_id = Id::from(agent_core::new_id());
            let role = AssistantRole::Assistant;
            self.ready.push_back(Event::TextMessageStart { message_id: message_id.clone(), role }.into());
            message_id
        });
        let message_id = message_id.clone();
        self.ready.push_back(Event::TextMessageContent { message_id, delta }.into());
    }

    fn close_message(&mut self) {
        if let Some(message_id) = self.message.take() {
            self.ready.push_back(Event::TextMessageEnd { message_id }.into());
        }
    }

    fn finish(&mut self) -> Result<(), AgentError> {
        if self.open_model_calls > 0 {
            return Err(failure::cut_off());
        }
        if !self.has_text {
            return Err(failure::empty());
        }
        self.close_message();
        self.ready.push_back(RunEnd::success().into());
        Ok(())
    }
}
