//! Answer of a round whose call may still be repeated.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use agent_core::error::{AgentError, AgentErrorKind};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream, StreamExt};

use super::call::{AdvancedRound, RoundCalls};
use super::target::{AnswerEvents, CallTarget};

/// Maximum number of events that are held back until an answer has content.
const MAX_HELD_EVENTS: usize = 64;
/// Maximum size of the events of an answer that is held back until it has ended: 4 MiB of texts and of the events in memory.
/// One that grows beyond it is released, and its call is not repeated from then on.
pub(super) const MAX_HELD_BYTES: usize = 4 << 20;

/// Events of a round. A failure before they are released starts another call: until the first content, or until the end of
/// the answer if it is delivered whole.
pub(super) struct FallbackStream<T: CallTarget> {
    ready: VecDeque<T::Event>,
    state: AnswerState<T>,
    is_held_to_end: bool,
}

/// Events of a call that are held back, since another call may replace it.
struct HeldEvents<T: CallTarget> {
    events: Vec<T::Event>,
    /// Size of the events in memory, with their texts.
    bytes: usize,
    has_content: bool,
    /// True after text or a tool call, which a complete answer has.
    has_output: bool,
    has_ended: bool,
}

impl<T: CallTarget> HeldEvents<T> {
    fn new() -> Self {
        Self { events: Vec::new(), bytes: 0, has_content: false, has_output: false, has_ended: false }
    }

    fn push(&mut self, event: T::Event) {
        self.bytes += size_of::<T::Event>() + T::content_bytes(&event);
        self.has_content |= T::is_content(&event);
        self.has_output |= T::is_output(&event);
        self.has_ended |= T::is_end(&event);
        self.events.push(event);
    }

    /// Returns true if the events must be released. From then on, no other call can replace this one.
    fn is_due(&self, is_held_to_end: bool) -> bool {
        match is_held_to_end {
            true => self.has_ended || self.bytes > MAX_HELD_BYTES,
            false => self.has_content || self.events.len() > MAX_HELD_EVENTS,
        }
    }
}

enum AnswerState<T: CallTarget> {
    /// The answer is held back.
    Opening {
        events: AnswerEvents<T>,
        calls: Box<RoundCalls<T>>,
        held_events: HeldEvents<T>,
    },
    /// Another call starts.
    Advancing(BoxFuture<'static, AdvancedRound<T>>),
    /// The answer is released: nothing is repeated.
    Answering(AnswerEvents<T>),
    /// Every call has failed.
    Failed(AgentError),
    Over,
}

impl<T: CallTarget> FallbackStream<T> {
    pub(super) fn new(events: AnswerEvents<T>, mut calls: Box<RoundCalls<T>>) -> Self {
        let ready = calls.take_notices().into();
        let state = AnswerState::Opening { events, calls, held_events: HeldEvents::new() };
        Self { ready, state, is_held_to_end: false }
    }

    /// Sets whether an answer is held back until it has ended.
    pub(super) fn hold_to_end(self, is_held_to_end: bool) -> Self {
        Self { is_held_to_end, ..self }
    }

    /// Handles an event of an answer that is held back.
    fn open(
        &mut self,
        event: Option<Result<T::Event, AgentError>>,
        (events, mut calls, mut held_events): (AnswerEvents<T>, Box<RoundCalls<T>>, HeldEvents<T>),
    ) {
        let failure = match event {
            Some(Ok(event)) => match calls.failure(&event, held_events.has_output) {
                Some(failure) => failure,
                None => {
                    held_events.push(event);
                    self.state = match held_events.is_due(self.is_held_to_end) {
                        true => {
                            calls.succeed();
                            self.ready.extend(calls.take_notices());
                            self.ready.extend(held_events.events);
                            AnswerState::Answering(events)
                        }
                        false => AnswerState::Opening { events, calls, held_events },
                    };
                    return;
                }
            },
            Some(Err(failure)) => failure,
            None => AgentError::new(AgentErrorKind::Truncated, T::TRUNCATED),
        };
        drop(events);
        self.ready.extend(held_events.events.into_iter().filter(T::is_notice));
        calls.fail(failure);
        self.ready.extend(calls.take_notices());
        self.state = AnswerState::Advancing(calls.advance().boxed());
    }
}

impl<T: CallTarget> Stream for FallbackStream<T> {
    type Item = Result<T::Event, AgentError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some(event) = this.ready.pop_front() {
                if this.ready.is_empty() {
                    // Most events bypass the queue, so free its memory.
                    this.ready = VecDeque::new();
                }
                return Poll::Ready(Some(Ok(event)));
            }
            match &mut this.state {
                AnswerState::Answering(events) => return events.poll_next_unpin(cx),
                AnswerState::Opening { events, .. } => {
                    let event = ready!(events.poll_next_unpin(cx));
                    if let AnswerState::Opening { events, calls, held_events } =
                        std::mem::replace(&mut this.state, AnswerState::Over)
                    {
                        this.open(event, (events, calls, held_events));
                    }
                }
                AnswerState::Advancing(advance) => {
                    let (mut calls, started) = ready!(advance.poll_unpin(cx));
                    this.ready.extend(calls.take_notices());
                    this.state = match started {
                        Ok(events) => AnswerState::Opening { events, calls, held_events: HeldEvents::new() },
                        Err(error) => AnswerState::Failed(error),
                    };
                }
                AnswerState::Failed(_) => {
                    if let AnswerState::Failed(error) = std::mem::replace(&mut this.state, AnswerState::Over)
                    {
                        return Poll::Ready(Some(T::last_event(error)));
                    }
                }
                AnswerState::Over => return Poll::Ready(None),
            }
        }
    }
}
