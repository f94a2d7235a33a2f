//! The event stream, which enforces the grammar for any source.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt};
use serde_json::json;
use tracing::warn;

use super::grammar::OpenItem;
use super::output::OutputMeter;
use super::{Event, EventGrammar, GrammarError, Id, OutputLimits, ReportedToolCalls, RunEnd, SourceEvent};
use crate::error::{AgentError, AgentErrorKind};
use crate::ids::{RunId, ThreadId};

/// Thread and run identifier of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunIds {
    /// The conversation.
    pub thread_id: ThreadId,
    /// The run.
    pub run_id: RunId,
}

/// Reader of an event stream; determines the events that are filtered out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Audience {
    /// A signed-in user or a service: receives all events.
    #[default]
    Trusted,
    /// A widget visitor: receives no reasoning, no tool results and no extension events.
    Visitor,
}

/// Adds extension events to a run.
pub trait EventObserver: Send {
    /// Returns an event to send before `event`, or after `RUN_STARTED`. Is called for each event in order.
    fn observe(&mut self, event: &Event) -> Option<Event>;
}

/// A value that lives as long as the run.
type Guard = Box<dyn Any + Send + Sync>;

/// The events of one run; see the [module documentation](super) for its guarantees.
pub struct EventStream {
    run: RunIds,
    source: Option<BoxStream<'static, Result<SourceEvent, AgentError>>>,
    grammar: EventGrammar,
    output: OutputMeter,
    queue: VecDeque<Event>,
    audience: Audience,
    has_hidden: bool,
    observers: Vec<Box<dyn EventObserver>>,
    /// Held as long as the source, and revoked with it.
    guard: Option<Guard>,
    /// Reported tool calls that the source's events do not contain; held as long as the source.
    calls: Option<Box<dyn ReportedToolCalls>>,
}

impl EventStream {
    /// Wraps a source of events. The stream adds `RUN_STARTED`, the end events of open items, and the terminal event.
    pub fn new(
        run: RunIds,
        source: impl Stream<Item = Result<SourceEvent, AgentError>> + Send + 'static,
    ) -> Self {
        let started = Event::RunStarted { thread_id: run.thread_id.clone(), run_id: run.run_id.clone() };
        let mut grammar = EventGrammar::default();
        grammar.accept(&started).expect("a run begins with RUN_STARTED");
        Self {
            run,
            source: Some(source.boxed()),
            grammar,
            output: OutputMeter::default(),
            queue: VecDeque::from([started]),
            audience: Audience::Trusted,
            has_hidden: false,
            observers: Vec::new(),
            guard: None,
            calls: None,
        }
    }

    /// Keeps a value alive until the run ends, such as the run's token.
    pub fn with_guard<G: Any + Send + Sync>(self, guard: G) -> Self {
        Self { guard: Some(Box::new(guard)), ..self }
    }

    /// Sets the limits on the run's output. Call it before the stream is polled.
    pub fn with_output_limits(mut self, limits: OutputLimits) -> Self {
        self.output.limits = limits;
        self
    }

    /// Accepts results of calls of an earlier run, which this one continues.
    pub fn with_awaited_results(mut self, calls: impl IntoIterator<Item = Id>) -> Self {
        self.grammar.await_results(calls);
        self
    }

    /// Inserts reported tool calls among the source's events.
    pub fn with_reported_calls(self, calls: Option<Box<dyn ReportedToolCalls>>) -> Self {
        Self { calls, ..self }
    }

    /// Returns the source, for a backend that builds its own stream from another backend's events.
    pub fn into_source(self) -> BoxStream<'static, Result<SourceEvent, AgentError>> {
        self.source.unwrap_or_else(|| futures_util::stream::empty().boxed())
    }

    /// Returns the run's identifiers.
    pub fn run(&self) -> &RunIds {
        &self.run
    }

    /// Adds an extension event right after `RUN_STARTED`. Call it before the stream is polled.
    pub fn with_custom_event(mut self, name: impl Into<String>, value: serde_json::Value) -> Self {
        self.queue.push_back(Event::Custom { name: name.into(), value });
        self
    }

    /// Filters out the events that `audience` must not see.
    pub fn for_audience(mut self, audience: Audience) -> Self {
        self.audience = audience;
        self.queue.retain(|event| audience.can_see(event));
        self
    }

    /// Returns true if the source has yielded events since the last call that the audience does not see.
    pub fn take_hidden(&mut self) -> bool {
        std::mem::take(&mut self.has_hidden)
    }

    /// Adds the events of an observer, which the stream's audience may see. Call it before the stream is polled.
    pub fn with_observer(mut self, mut observer: Box<dyn EventObserver>) -> Self {
        let RunIds { thread_id, run_id } = self.run.clone();
        self.queue.extend(observer.observe(&Event::RunStarted { thread_id, run_id }));
        self.observers.push(observer);
        self
    }

    /// Queues the events that observers send before `event`.
    fn queue_observed(&mut self, event: &Event) {
        self.queue.extend(self.observers.iter_mut().filter_map(|observer| observer.observe(event)));
    }

    /// Ends the run with an error: drops the source and queues the one `RUN_ERROR`. Does nothing if the run has ended.
    pub fn fail(&mut self, failure: AgentError) {
        if self.source.take().is_none() {
            return;
        }
        self.guard = None;
        self.close_reported_calls();
        warn!(run_id = %self.run.run_id, code = failure.kind().code(), failure = ?failure, "run failed");
        self.push(Event::RunError {
            message: failure.message().to_owned(),
            code: failure.kind().code().to_owned(),
            usage: failure.usage().to_vec(),
        });
    }

    /// Returns true if no events follow the queued ones.
    pub fn is_over(&self) -> bool {
        self.source.is_none()
    }

    /// Queues an event that is known to fit the grammar, if the audience may see it.
    fn push(&mut self, event: Event) {
        self.grammar.accept(&event).expect("the caller has checked");
        self.queue_observed(&event);
        if self.audience.can_see(&event) {
            self.queue.push_back(event);
        }
    }

    /// Queues the reported tool calls.
    fn queue_reported_calls(&mut self) {
        let Some(calls) = &mut self.calls else { return };
        let mut within_limits = Ok(());
        for event in calls.take() {
            // A source that emits the reported calls as well could violate the grammar.
            if within_limits.is_ok() && self.grammar.accept(&event).is_ok() {
                within_limits = self.output.count(&event);
                match self.audience.can_see(&event) {
                    true => self.queue.push_back(event),
                    false => self.has_hidden = true,
                }
            }
        }
        if let Err(failure) = within_limits {
            self.fail(failure);
        }
    }

    /// Queues the last reported tool calls and the number of omitted ones; later reports are discarded.
    fn close_reported_calls(&mut self) {
        self.queue_reported_calls();
        let omitted = self.calls.take().map_or(0, |calls| calls.omitted_count());
        if omitted > 0 {
            warn!(run_id = %self.run.run_id, omitted, "tool calls were omitted from a run's stream");
            let value = json!({"kind": "toolCallsLeftOut", "count": omitted});
            self.push(Event::Custom { name: "agent.debug".into(), value });
        }
    }

    /// Processes an event of the source; returns it if it can be emitted at once, else queues it.
    fn process_event(&mut self, event: Event) -> Option<Event> {
        // A source that relays another service's run repeats its start.
        if matches!(event, Event::RunStarted { .. }) {
            return None;
        }
        let failure =
            || AgentError::new(AgentErrorKind::Failed, "the backend sent an invalid sequence of events");
        if event.is_terminal() {
            self.fail(failure());
            return None;
        }
        let checked = match self.grammar.accept(&event) {
            Err(GrammarError::TooManyOpen(_)) => {
                let message = "the backend keeps too many messages and tool calls open";
                Err(AgentError::new(AgentErrorKind::OutputTooLarge, message))
            }
            Err(violation) => Err(failure().with_source(violation)),
            Ok(()) => self.output.count(&event),
        };
        if let Err(failure) = checked {
            self.fail(failure);
            return None;
        }
        self.queue_observed(&event);
        if !self.audience.can_see(&event) {
            self.has_hidden = true;
        } else if self.queue.is_empty() {
            return Some(event);
        } else {
            self.queue.push_back(event);
        }
        None
    }

    /// Ends the run, such as by [`RunEnd::cancelled`], unless it has ended: closes open items and queues the terminal event.
    pub fn finish(&mut self, end: RunEnd) {
        self.close_reported_calls();
        // The last reported calls may have exceeded a limit, which has ended the run.
        if self.source.take().is_none() {
            return;
        }
        self.guard = None;
        let event = match end {
            RunEnd::Finished { result, outcome, usage } => {
                let closing: Vec<Event> =
                    self.grammar.open_items().into_iter().rev().map(OpenItem::closing_event).collect();
                closing.into_iter().for_each(|event| self.push(event));
                let RunIds { thread_id, run_id } = self.run.clone();
                Event::RunFinished { thread_id, run_id, result, outcome, usage }
            }
            RunEnd::Failed { message, code, usage } => Event::RunError { message, code, usage },
        };
        self.push(event);
    }
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStream").field("run", &self.run).finish_non_exhaustive()
    }
}

impl Audience {
    fn can_see(self, event: &Event) -> bool {
        self == Self::Trusted
            || !matches!(
                event,
                Event::Custom { .. }
                    | Event::ToolCallResult { .. }
                    | Event::ReasoningStart { .. }
                    | Event::ReasoningMessageStart { .. }
                    | Event::ReasoningMessageContent { .. }
                    | Event::ReasoningMessageEnd { .. }
                    | Event::ReasoningEnd { .. }
            )
    }
}

impl Stream for EventStream {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                if self.queue.is_empty() {
                    // The queue is rarely used, and a run may be open for long, so free its memory.
                    self.queue = VecDeque::new();
                }
                return Poll::Ready(Some(event));
            }
            // A call's result is reported before the backend receives it, so it precedes the events that depend on it.
            self.queue_reported_calls();
            if !self.queue.is_empty() {
                continue;
            }
            let Some(source) = self.source.as_mut() else { return Poll::Ready(None) };
            match source.poll_next_unpin(cx) {
                Poll::Ready(Some(Ok(SourceEvent::Event(event)))) => {
                    if let Some(event) = self.process_event(event) {
                        return Poll::Ready(Some(event));
                    }
                }
                Poll::Ready(Some(Ok(SourceEvent::End(end)))) => self.finish(end),
                Poll::Ready(Some(Err(failure))) => self.fail(failure),
                Poll::Ready(None) => self.fail(AgentError::new(
                    AgentErrorKind::Truncated,
                    "the backend's response ended before it was complete",
                )),
                Poll::Pending
                    if self.calls.as_ref().is_some_and(|calls| calls.register_waker(cx.waker())) => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

#[cfg(test)]
mod tests;
