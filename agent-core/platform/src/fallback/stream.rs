//! Answer of a round whose call may still be repeated.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use agent_core::error::{AgentError, AgentErrorKind};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream, StreamExt};

use super::call::{Advanced, RoundCalls};
use super::target::{AnswerEvents, CallTarget};

/// Maximum number of events that are held back until an answer has content.
const MAX_HELD_EVENTS: usize = 64;

/// Events of a round. Until the first content, a failure starts another call.
pub(super) struct FallbackStream<T: CallTarget> {
    ready: VecDeque<T::Event>,
    state: AnswerState<T>,
}

enum AnswerState<T: CallTarget> {
    /// The answer has no content yet.
    Opening {
        events: AnswerEvents<T>,
        calls: Box<RoundCalls<T>>,
        held: Vec<T::Event>,
    },
    /// Another call starts.
    Advancing(BoxFuture<'static, Advanced<T>>),
    /// The answer has content: nothing is repeated.
    Answering(AnswerEvents<T>),
    /// Every call has failed.
    Failed(AgentError),
    Over,
}

impl<T: CallTarget> FallbackStream<T> {
    pub(super) fn new(events: AnswerEvents<T>, mut calls: Box<RoundCalls<T>>) -> Self {
        let ready = calls.take_notices().into();
        Self { ready, state: AnswerState::Opening { events, calls, held: Vec::new() } }
    }

    /// Handles an event before the first content.
    fn open(
        &mut self,
        event: Option<Result<T::Event, AgentError>>,
        (events, mut calls, mut held): (AnswerEvents<T>, Box<RoundCalls<T>>, Vec<T::Event>),
    ) {
        let failure = match event {
            Some(Ok(event)) => {
                if let Some(failure) = calls.failure(&event) {
                    failure
                } else if T::is_content(&event) || held.len() >= MAX_HELD_EVENTS {
                    calls.succeed();
                    self.ready.extend(calls.take_notices());
                    self.ready.append(&mut held.into());
                    self.ready.push_back(event);
                    self.state = AnswerState::Answering(events);
                    return;
                } else {
                    held.push(event);
                    self.state = AnswerState::Opening { events, calls, held };
                    return;
                }
            }
            Some(Err(failure)) => failure,
            None => AgentError::new(AgentErrorKind::Truncated, T::TRUNCATED),
        };
        drop(events);
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
                    if let AnswerState::Opening { events, calls, held } =
                        std::mem::replace(&mut this.state, AnswerState::Over)
                    {
                        this.open(event, (events, calls, held));
                    }
                }
                AnswerState::Advancing(advance) => {
                    let (mut calls, started) = ready!(advance.poll_unpin(cx));
                    this.ready.extend(calls.take_notices());
                    this.state = match started {
                        Ok(events) => AnswerState::Opening { events, calls, held: Vec::new() },
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
