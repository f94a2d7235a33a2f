//! Fake reports of tool calls.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

use crate::event::{Event, ReportedToolCalls, ToolRole};

/// Reported tool calls of a run, made by the test. Clones share their reports, and the number of these is not limited.
#[derive(Debug, Clone, Default)]
pub struct FakeReportedCalls(Arc<Mutex<FakeReports>>);

#[derive(Debug, Default)]
struct FakeReports {
    events: VecDeque<Event>,
    omitted: usize,
    waker: Option<Waker>,
}

impl FakeReportedCalls {
    /// Reports the start of a call without arguments; `id` is also the name of its tool.
    pub fn start_call(&self, id: &str) {
        self.report([
            Event::ToolCallStart {
                tool_call_id: id.into(),
                tool_call_name: id.to_owned(),
                parent_message_id: None,
            },
            Event::ToolCallArgs { tool_call_id: id.into(), delta: "{}".to_owned() },
            Event::ToolCallEnd { tool_call_id: id.into() },
        ]);
    }

    /// Reports the result of a call.
    pub fn end_call(&self, id: &str, content: &str) {
        self.report([Event::ToolCallResult {
            message_id: format!("{id}-result").into(),
            tool_call_id: id.into(),
            content: content.to_owned(),
            role: ToolRole::Tool,
            metadata: None,
        }]);
    }

    /// Counts calls as omitted.
    pub fn omit_calls(&self, count: usize) {
        self.lock().omitted += count;
    }

    /// Returns true if this is the last clone, so that no stream reads the reports.
    pub fn is_last_clone(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    fn report(&self, events: impl IntoIterator<Item = Event>) {
        let mut reports = self.lock();
        reports.events.extend(events);
        if let Some(waker) = reports.waker.take() {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, FakeReports> {
        self.0.lock().expect("no test panics while it holds the lock")
    }
}

impl ReportedToolCalls for FakeReportedCalls {
    fn take(&mut self) -> VecDeque<Event> {
        std::mem::take(&mut self.lock().events)
    }

    fn register_waker(&self, waker: &Waker) -> bool {
        let mut reports = self.lock();
        reports.waker = Some(waker.clone());
        !reports.events.is_empty()
    }

    fn omitted_count(&self) -> usize {
        self.lock().omitted
    }
}
