//! A workflow's answer as the events of a run.
//!
//! n8n announces everything as JSON, so the first line that is not blank decides: one of a stream's begins
//! a stream, and anything else an answer that is read whole.

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

/// The events of one answer.
///
/// Only the end of the body ends the run: a workflow may call models, and stream their text, any number of
/// times.
pub(super) struct WorkflowEvents {
    body: Option<BodyStream>,
    announced: Announced,
    form: Form,
    transcript: Transcript,
    /// Told once what was said before it has been.
    failure: Option<Failure>,
}

/// What the answer has turned out to be.
enum Form {
    /// Nothing but blank lines, which are not kept, and the beginning of the first other one, of which the
    /// first `at` bytes have no end of a line.
    Unknown { held: Vec<u8>, at: usize },
    /// A stream of lines.
    Lines(Box<LineSplitter>),
    /// One answer, so far.
    Whole(Vec<u8>),
}

impl WorkflowEvents {
    /// The events of a body that is still arriving.
    pub(super) fn new(run: RunIds, body: BodyStream, announced: Announced) -> Self {
        Self { body: Some(body), ..Self::closed(run, announced) }
    }

    /// The events of a body that is there.
    ///
    /// # Errors
    /// What is wrong with the answer, wherever in it.
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

    /// Goes on until there are events, or the answer has ended.
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

    /// Takes the next bytes in, and all that they complete.
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

    /// The body has ended.
    fn end(&mut self) -> Result<(), Failure> {
        if let Form::Unknown { held, .. } = &mut self.form {
            let held = std::mem::take(held);
            self.form = if Line::is_one(held.trim_ascii()) { lines_of(held) } else { Form::Whole(held) };
        }
        match &mut self.form {
            Form::Lines(lines) => {
                // The last line may lack its end alone.
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

/// Appends to what is held of an answer.
fn hold(held: &mut Vec<u8>, chunk: &[u8]) -> Result<(), Failure> {
    if chunk.len() > MAX_WHOLE_BYTES - held.len() {
        return Err(failure::too_large(MAX_WHOLE_BYTES));
    }
    held.extend_from_slice(chunk);
    Ok(())
}

/// The first line that is not blank, if it is whole. `at` is moved beyond what need not be searched again.
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

/// What has been said, as messages: one for each model call. What tools the workflow calls is no part of
/// its answer; the platform adds what it hears of them at its own tool server.
struct Transcript {
    run: RunIds,
    ready: VecDeque<Event>,
    /// The message that is open.
    message: Option<Id>,
    /// The model calls that were begun and not ended.
    begun: usize,
    has_text: bool,
    /// The last item, since the next one is like it.
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
