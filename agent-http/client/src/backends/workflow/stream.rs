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
use super::{AnswerFormat, answer, error};
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
    declared_format: AnswerFormat,
    form: AnswerForm,
    transcript: Transcript,
    /// Pending failure, returned after the events that precede it.
    failure: Option<AgentError>,
}

/// The detected form of the answer.
enum AnswerForm {
    /// Only blank lines so far, which are discarded, and the start of the first other line; its first `searched_bytes` bytes
    /// contain no newline.
    Unknown { buffer: Vec<u8>, searched_bytes: usize },
    /// A stream of lines.
    Lines(Box<LineSplitter>),
    /// A single answer, as received so far.
    Whole(Vec<u8>),
}

impl WorkflowEvents {
    /// Decodes a body that is still arriving.
    pub(super) fn new(body: BodyStream, declared_format: AnswerFormat) -> Self {
        let relay = body.relay();
        Self { body: Some(body), ..Self::closed(declared_format, relay) }
    }

    /// Decodes a complete body.
    ///
    /// # Errors
    /// Any error in the answer, wherever it occurs.
    pub(super) fn whole(
        body: Bytes,
        declared_format: AnswerFormat,
        relay: RelayOptions,
    ) -> Result<Self, AgentError> {
        let mut events = Self::closed(declared_format, relay);
        events.push_chunk(body)?;
        events.end()?;
        Ok(events)
    }

    fn closed(declared_format: AnswerFormat, relay: RelayOptions) -> Self {
        let form = AnswerForm::Unknown { buffer: Vec::new(), searched_bytes: 0 };
        let transcript = Transcript::new(DeltaTemplate::new(relay.delta_template));
        Self { body: None, declared_format, form, transcript, failure: None }
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
            AnswerForm::Whole(buffer) => append_bounded(buffer, &chunk)?,
            AnswerForm::Unknown { buffer, searched_bytes } => {
                append_bounded(buffer, &chunk)?;
                if let Some(line) = first_line(buffer, searched_bytes) {
                    self.form = if StreamLine::is_stream_line(line) {
                        stream_form(std::mem::take(buffer))
                    } else {
                        AnswerForm::Whole(std::mem::take(buffer))
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
        if let AnswerForm::Unknown { buffer, .. } = &mut self.form {
            let buffer = std::mem::take(buffer);
            self.form = if StreamLine::is_stream_line(buffer.trim_ascii()) {
                stream_form(buffer)
            } else {
                AnswerForm::Whole(buffer)
            };
        }
        match &mut self.form {
            AnswerForm::Lines(lines) => {
                // The last line may lack its newline, but must otherwise be complete.
                if let Some(line) = lines.last_line() {
                    let line = StreamLine::parse(line.trim_ascii()).map_err(|_| error::cut_off())?;
                    self.transcript.take(line)?;
                }
                self.transcript.finish()
            }
            AnswerForm::Whole(buffer) => {
                self.transcript.push_text(answer::extract_text(buffer, self.declared_format)?);
                self.transcript.finish()
            }
            AnswerForm::Unknown { .. } => Ok(()),
        }
    }
}

/// Appends to a buffered answer, up to its size limit.
fn append_bounded(buffer: &mut Vec<u8>, chunk: &[u8]) -> Result<(), AgentError> {
    if chunk.len() > MAX_WHOLE_BYTES - buffer.len() {
        return Err(error::too_large(MAX_WHOLE_BYTES));
    }
    buffer.extend_from_slice(chunk);
    Ok(())
}

/// Returns the first non-blank line once it is complete. Advances `searched_bytes` past the bytes that need not be searched
/// again.
fn first_line<'a>(buffer: &'a mut Vec<u8>, searched_bytes: &mut usize) -> Option<&'a [u8]> {
    if *searched_bytes == 0 {
        let blank = buffer.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        buffer.drain(..blank);
    }
    let end = memchr(b'\n', &buffer[*searched_bytes..]).map(|offset| *searched_bytes + offset);
    *searched_bytes = buffer.len();
    end.map(|end| buffer[..end].trim_ascii())
}

fn stream_form(buffer: Vec<u8>) -> AnswerForm {
    let mut lines = LineSplitter::default();
    lines.push(buffer.into());
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
/// the platform adds the calls that it sees at its own tool server.
struct Transcript {
    ready: VecDeque<SourceEvent>,
    /// The open message.
    message: Option<Id>,
    /// Number of model calls that were started and not ended.
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
                let stream_line = StreamLine::parse(line)?;
                if let StreamLine::Item(Cow::Borrowed(text)) = stream_line {
                    self.template.learn(line, text);
                }
                self.take(stream_line)
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
            StreamLine::Error => return Err(error::reported()),
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
            return Err(error::cut_off());
        }
        if !self.has_text {
            return Err(error::empty());
        }
        self.close_message();
        self.ready.push_back(RunEnd::success().into());
        Ok(())
    }
}
