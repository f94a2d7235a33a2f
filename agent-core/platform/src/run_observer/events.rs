//! Observers of a run's events, which record the times of its steps, the results of its calls and the attempts at them.

use std::sync::Arc;

use agent_core::event::{Audience, Event, EventObserver};

use super::RunObserver;
use super::inputs::RecordedResult;
use super::timer::TimerState;
use crate::conversation::{CallTiming, MAX_TIMED_CALLS, RunTiming};

/// Observer that times a run's events. Between two other events, deltas cost it one comparison each.
struct EventTimer {
    observer: Arc<RunObserver>,
    /// True once the open round has content.
    has_content: bool,
}

impl EventTimer {
    fn new(observer: Arc<RunObserver>) -> Self {
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
            Event::Custom { name, value } if name == "agent.debug" => self.observer.record_attempt(value),
            _ => self.observer.record_result(event),
        }
        None
    }
}

/// Observer that records the results of tool calls alone.
struct ResultTimer {
    observer: Arc<RunObserver>,
}

impl ResultTimer {
    fn new(observer: Arc<RunObserver>) -> Self {
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
    /// Returns an observer of the run's events.
    pub fn event_observer(self: &Arc<Self>) -> Box<dyn EventObserver> {
        Box::new(EventTimer::new(self.clone()))
    }

    /// Returns an observer of the results of tool calls alone, for events that are a part of the run's and are filtered
    /// before they reach its [`event_observer`](Self::event_observer).
    pub fn result_observer(self: &Arc<Self>) -> Box<dyn EventObserver> {
        Box::new(ResultTimer::new(self.clone()))
    }

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
