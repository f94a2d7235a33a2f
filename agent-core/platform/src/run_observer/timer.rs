//! Times of a run's steps, made at its events.

use std::sync::Arc;

use agent_core::event::{Audience, Event, EventObserver};

use super::{RecordedResult, RunObserver};
use crate::conversation::{CallTiming, MAX_TIMED_CALLS, MAX_TIMED_ROUNDS, RoundTiming, RunTiming};

/// Observer that times a run's events. Between two other events, deltas cost it one comparison each.
pub(super) struct EventTimer {
    observer: Arc<RunObserver>,
    /// True once the open round has content.
    has_content: bool,
}

impl EventTimer {
    pub(super) fn new(observer: Arc<RunObserver>) -> Self {
        Self { observer, has_content: false }
    }

    fn time(&self, record: impl FnOnce(&mut TimerState, &mut RunTiming, u64)) {
        let now = self.observer.elapsed_ms();
        let mut state = self.observer.state();
        let state = &mut *state;
        record(&mut state.timer, &mut state.timing, now);
    }

    fn content(&mut self) {
        if !std::mem::replace(&mut self.has_content, true) {
            self.time(TimerState::content);
        }
    }
}

impl EventObserver for EventTimer {
    fn observe(&mut self, event: &Event) -> Option<Event> {
        match event {
            Event::TextMessageContent { .. } | Event::ReasoningMessageContent { .. } => self.content(),
            Event::StepStarted { .. } => {
                self.has_content = false;
                self.time(TimerState::begin_round);
            }
            Event::StepFinished { .. } => self.time(TimerState::end_step),
            Event::ToolCallStart { tool_call_id, tool_call_name, .. } => {
                self.content();
                self.time(|_, timing, now| {
                    if timing.tools.len() < MAX_TIMED_CALLS {
                        let (call_id, name) = (tool_call_id.to_string(), tool_call_name.clone());
                        let call = CallTiming { call_id, name, started_ms: now, ..CallTiming::default() };
                        timing.tools.push(call);
                    }
                });
            }
            Event::ToolCallEnd { tool_call_id } => self.time(|timer, timing, now| {
                timer.end_answer(timing, now);
                if let Some(call) = call_mut(timing, tool_call_id) {
                    call.started_ms = now;
                }
            }),
            _ => self.observer.record_result(event),
        }
        None
    }
}

/// Observer that records the results of tool calls alone.
pub(super) struct ResultTimer {
    observer: Arc<RunObserver>,
}

impl ResultTimer {
    pub(super) fn new(observer: Arc<RunObserver>) -> Self {
        Self { observer }
    }
}

impl EventObserver for ResultTimer {
    fn observe(&mut self, event: &Event) -> Option<Event> {
        self.observer.record_result(event);
        None
    }
}

impl RunObserver {
    /// Records the end of a call. The result of a visitor's call is kept besides, with the inputs and until it is taken: the
    /// events that the visitor sees do not have it.
    fn record_result(&self, event: &Event) {
        let Event::ToolCallResult { tool_call_id, content, metadata, .. } = event else { return };
        let is_error = metadata.is_some_and(|metadata| metadata.is_error);
        let now = self.elapsed_ms();
        let mut state = self.state();
        if let Some(call) = call_mut(&mut state.timing, tool_call_id) {
            (call.ended_ms, call.is_error) = (Some(now), is_error);
        }
        if self.is_visitors {
            state.hidden_results.push(event.clone());
        }
        let is_hidden = state.inputs.as_ref().is_some_and(|inputs| inputs.audience() == Audience::Visitor);
        if is_hidden && state.results.len() < MAX_TIMED_CALLS {
            let (call_id, content) = (tool_call_id.to_string(), content.clone());
            state.results.push(RecordedResult { call_id, content, is_error });
        }
    }
}

fn call_mut<'t>(timing: &'t mut RunTiming, id: &str) -> Option<&'t mut CallTiming> {
    timing.tools.iter_mut().rev().find(|call| call.call_id == id)
}

/// Place in the course of a run.
#[derive(Default)]
pub(super) struct TimerState {
    /// Time at which the latest request to the model was sent.
    request_ms: u64,
    is_round_open: bool,
}

impl TimerState {
    /// Records that a request is sent.
    pub(super) fn request_at(&mut self, now: u64) {
        self.request_ms = now;
    }

    fn begin_round(&mut self, timing: &mut RunTiming, _: u64) {
        self.is_round_open = timing.rounds.len() < MAX_TIMED_ROUNDS;
        if self.is_round_open {
            timing.rounds.push(RoundTiming { started_ms: self.request_ms, ..RoundTiming::default() });
        }
    }

    fn content(&mut self, timing: &mut RunTiming, now: u64) {
        timing.first_content_ms.get_or_insert(now);
        if let Some(round) = timing.rounds.last_mut().filter(|_| self.is_round_open) {
            round.first_content_ms.get_or_insert(now);
        }
    }

    /// Ends the answer of the open round; its tool calls may follow.
    fn end_answer(&mut self, timing: &mut RunTiming, now: u64) {
        if let Some(round) = timing.rounds.last_mut().filter(|_| self.is_round_open) {
            round.ended_ms.get_or_insert(now);
        }
    }

    /// Ends the open round, after which the next request is sent.
    fn end_step(&mut self, timing: &mut RunTiming, now: u64) {
        self.end_answer(timing, now);
        self.is_round_open = false;
        self.request_ms = now;
    }
}
