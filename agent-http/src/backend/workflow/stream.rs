//! Stream of run events decoded from a workflow's answer.
//!
//! n8n sends every answer as JSON, so the first non-blank line decides: a line of a stream starts a stream, and
//! anything else is a single answer that is read whole.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use agent_core::error::Failure;
use agent_core::event::{AssistantRole, Event, Id, RunIds};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use memchr::memchr;

use super::line::{self, Line};
use super::{Announced, MAX_WHOLE_BYTES, answer, failure};
use crate::lines::LineSplitter;
use crate::outbound::BodyStream;
use crate::template::Template;

/// Stream of the run events of one answer.
///
/// Only the end of the body ends the run: a workflow may call models, and stream their text, any number of times.
pub(super) struct WorkflowEvents {
    body: Option<BodyStream>,
    announced: Announced,
    form: Form,
    transcript: Transcript,
    /// Pending failure, returned after the events that precede it.
    failure: Option<Failure>,
}

/// The detected form of the answer.
enum Form {
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
    pub(super) fn new(run: RunIds, body: BodyStream, announced: Announced) -> Self {
        Self { body: Some(body), ..Self::closed(run, announced) }
    }

    /// Decodes a complete body.
    ///
    /// # Errors
    /// Any error in the answer, wherever it occurs.
    pub(super) fn whole(run: RunIds, body: Bytes, announced: Announced) -> Result<Self, Failure> {
        let mut events = Self::closed(run, announced);
        events.receive(body)?;
        events.end()?;
        Ok(events)
    }

    fn closed(run: RunIds, announced: Announced) -> Self {
        let form = Form::Unknown { held: Vec::new(), at: 0 };
        Self { body: None, announced, form, transcript: Transcript::new(run), failure: None }
    }

    /// Reads until events are ready or the answer has ended.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        while self.transcript.ready.is_empty() {
            let Some(body) = &mut self.body else { break };
            match ready!(body.poll_next_unpin(cx)).transpose()? {
                Some(chunk) => self.receive(chunk)?,
                None => {
                    self.body = None;
                    self.end()?;
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Appends bytes, and takes all lines that they complete.
    fn receive(&mut self, chunk: Bytes) -> Result<(), Failure> {
        match &mut self.form {
            Form::Lines(lines) => lines.push(chunk),
            Form::Whole(held) => hold(held, &chunk)?,
            Form::Unknown { held, at } => {
                hold(held, &chunk)?;
                if let Some(line) = first_line(held, at) {
                    self.form = if Line::is_one(line) {
                        lines_of(std::mem::take(held))
                    } else {
                        Form::Whole(std::mem::take(held))
                    };
                }
            }
        }
        self.take_lines()
    }

    fn take_lines(&mut self) -> Result<(), Failure> {
        let Form::Lines(lines) = &mut self.form else { return Ok(()) };
        while let Some(line) = lines.next_line()? {
            self.transcript.take_line(line)?;
        }
        Ok(())
    }

    /// Handles the end of the body.
    fn end(&mut self) -> Result<(), Failure> {
        if let Form::Unknown { held, .. } = &mut self.form {
            let held = std::mem::take(held);
            self.form = if Line::is_one(held.trim_ascii()) { lines_of(held) } else { Form::Whole(held) };
        }
        match &mut self.form {
            Form::Lines(lines) => {
                // The last line may lack its newline, but must otherwise be complete.
                if let Some(line) = lines.last_line() {
                    let line = Line::parse(line.trim_ascii()).map_err(|_| failure::cut_off())?;
                    self.transcript.take(line)?;
                }
                self.transcript.finish()
            }
            Form::Whole(held) => {
                self.transcript.say(answer::text(held, self.announced)?);
                self.transcript.finish()
            }
            Form::Unknown { .. } => Ok(()),
        }
    }
}

/// Appends to a buffered answer, up to its size limit.
fn hold(held: &mut Vec<u8>, chunk: &[u8]) -> Result<(), Failure> {
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

fn lines_of(held: Vec<u8>) -> Form {
    let mut lines = LineSplitter::default();
    lines.push(held.into());
    Form::Lines(Box::new(lines))
}

impl Stream for WorkflowEvents {
    type Item = Result<Event, Failure>;

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
    run: RunIds,
    ready: VecDeque<Event>,
    /// The open message.
    message: Option<Id>,
    /// Number of model calls that were begun and not ended.
    begun: usize,
    has_text: bool,
    /// Template of the last item, which the next one usually matches.
    template: Template,
}

impl Transcript {
    fn new(run: RunIds) -> Self {
        Self {
            run,
            ready: VecDeque::with_capacity(1),
            message: None,
            begun: 0,
            has_text: false,
            template: Template::default(),
        }
    }

    fn take_line(&mut self, line: &[u8]) -> Result<(), Failure> {
        match line.trim_ascii() {
            [] => Ok(()),
            line => {
                if let Some(text) = self.template.read(line) {
                    self.say(line::of_people(text.into()).into_owned());
                    return Ok(());
                }
                let said = Line::parse(line)?;
                if let Line::Item(Cow::Borrowed(text)) = said {
                    self.template.learn(line, text);
                }
                self.take(said)
            }
        }
    }

    fn take(&mut self, line: Line<'_>) -> Result<(), Failure> {
        match line {
            Line::Begin => {
                self.close();
                self.begun += 1;
            }
            Line::Item(text) => self.say(text.into_owned()),
            Line::End => {
                self.close();
                self.begun = self.begun.saturating_sub(1);
            }
            Line::Error => return Err(failure::reported()),
            Line::Other => {}
        }
        Ok(())
    }

    fn say(&mut self, delta: String) {
        if delta.is_empty() {
            return;
        }
        self.has_text = true;
        let message_id = self.message.get_or_insert_with(|| {
            let message_id = Id::from(agent_core::new_id());
            let role = AssistantRole::Assistant;
            self.ready.push_back(Event::TextMessageStart { message_id: message_id.clone(), role });
            message_id
        });
        let message_id = message_id.clone();
        self.ready.push_back(Event::TextMessageContent { message_id, delta });
    }

    fn close(&mut self) {
        if let Some(message_id) = self.message.take() {
            self.ready.push_back(Event::TextMessageEnd { message_id });
        }
    }

    fn finish(&mut self) -> Result<(), Failure> {
        if self.begun > 0 {
            return Err(failure::cut_off());
        }
        if !self.has_text {
            return Err(failure::empty());
        }
        self.close();
        let RunIds { thread_id, run_id } = self.run.clone();
        self.ready.push_back(Event::RunFinished {
            thread_id,
            run_id,
            result: None,
            outcome: None,
            usage: Vec::new(),
        });
        Ok(())
    }
}
