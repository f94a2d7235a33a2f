//! Channel for tool calls that are executed outside of a run's event stream: [`ReportedToolCalls`].
//!
//! The tool server that executes a call with the run token reports its start and its end here, and the run's
//! [`EventStream`](agent_core::event::EventStream) emits the reports.
//!
//! Reporting never blocks. If the reader is too slow, whole calls are omitted, and the run reports their number.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use agent_core::event::{Event, Id, ReportedToolCalls};
use futures_util::task::AtomicWaker;

/// Limit on a run's reported calls that are in progress or not yet read.
const MAX_PENDING_REPORTED_CALLS: usize = 256;
/// Limit on the bytes of names, arguments and results that are not yet read.
const MAX_UNREAD_REPORT_BYTES: usize = 2 << 20;

/// Creates a channel for the reported tool calls of one run.
pub(crate) fn tool_call_channel() -> (ToolCallReporter, ToolCallReceiver) {
    let board = Arc::<SharedReports>::default();
    (ToolCallReporter(board.clone()), ToolCallReceiver(board))
}

#[derive(Default)]
struct SharedReports {
    waiting: Mutex<ReportQueue>,
    /// True if there are unread events; read on every event of the stream, without the lock.
    has_unread: AtomicBool,
    reader: AtomicWaker,
}

#[derive(Default)]
struct ReportQueue {
    is_closed: bool,
    events: VecDeque<Event>,
    bytes: usize,
    /// Calls that have started and whose result has not been read.
    calls: usize,
    omitted: usize,
}

impl SharedReports {
    /// Locks the state. No code panics while it holds the lock, so the state behind a poisoned lock is consistent.
    fn lock(&self) -> MutexGuard<'_, ReportQueue> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self) {
        self.has_unread.store(true, Ordering::Release);
        self.reader.wake();
    }
}

/// Sender of the reported calls of one run. Clones report to the same run.
#[derive(Debug, Clone)]
pub struct ToolCallReporter(Arc<SharedReports>);

impl ToolCallReporter {
    /// Reports the start of a call. `arguments` returns them as JSON text, and is called only if the run is active.
    pub fn start_call(&self, tool: &str, arguments: impl FnOnce() -> String) -> ToolCallGuard {
        let none = ToolCallGuard { id: Id::default(), board: None };
        if self.0.lock().is_closed {
            return none;
        }
        let delta = arguments();
        let mut waiting = self.0.lock();
        if waiting.is_closed {
            return none;
        }
        let bytes = waiting.bytes + tool.len() + delta.len();
        if waiting.calls >= MAX_PENDING_REPORTED_CALLS || bytes > MAX_UNREAD_REPORT_BYTES {
            waiting.omitted += 1;
            return none;
        }
        let tool_call_id = Id::from(agent_core::new_id());
        let id = tool_call_id.clone();
        waiting.bytes = bytes;
        waiting.calls += 1;
        waiting.events.extend([
            Event::ToolCallStart {
                tool_call_id: id.clone(),
                tool_call_name: tool.to_owned(),
                parent_message_id: None,
            },
            Event::ToolCallArgs { tool_call_id: id.clone(), delta },
            Event::ToolCallEnd { tool_call_id },
        ]);
        drop(waiting);
        self.0.notify();
        ToolCallGuard { id, board: Some(self.0.clone()) }
    }
}

/// Equal if both report to the same run.
impl PartialEq for ToolCallReporter {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ToolCallReporter {}

/// A call that has started. Dropping it without [`finish`](Self::finish) reports the call as cancelled.
#[derive(Debug)]
pub struct ToolCallGuard {
    id: Id,
    /// `None` if the call is not reported, or has ended.
    board: Option<Arc<SharedReports>>,
}

impl ToolCallGuard {
    /// Reports the result of the call: the content that the caller of the tool receives, and true if the call
    /// failed. `result` is called only if the run is active.
    pub fn finish(mut self, result: impl FnOnce() -> (String, bool)) {
        if let Some(board) = self.board.take()
            && !board.lock().is_closed
        {
            let (content, is_error) = result();
            board.end(&self.id, content, is_error);
        }
    }
}

impl Drop for ToolCallGuard {
    fn drop(&mut self) {
        if let Some(board) = self.board.take() {
            board.end(&self.id, "the call was cancelled".to_owned(), true);
        }
    }
}

impl SharedReports {
    fn end(&self, id: &Id, mut content: String, is_error: bool) {
        let mut waiting = self.lock();
        if waiting.is_closed {
            return;
        }
        if waiting.bytes + content.len() > MAX_UNREAD_REPORT_BYTES {
            if waiting.remove_unread_call(id) {
                return;
            }
            // The start of the call has been read, so its end must follow.
            content = format!("[omitted: {} bytes]", content.len());
        }
        waiting.bytes += content.len();
        waiting.events.push_back(Event::tool_call_result(id.clone(), content, is_error));
        drop(waiting);
        self.notify();
    }
}

impl fmt::Debug for SharedReports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReports").finish_non_exhaustive()
    }
}

impl ReportQueue {
    /// Removes the events of a call if none of them has been read; returns true if it did.
    fn remove_unread_call(&mut self, id: &Id) -> bool {
        let before = self.events.len();
        let mut freed = 0;
        self.events.retain(|event| {
            let withdrawn = call_of(event) == Some(id);
            freed += if withdrawn { bytes_of(event) } else { 0 };
            !withdrawn
        });
        if self.events.len() == before {
            return false;
        }
        self.bytes -= freed;
        self.calls -= 1;
        self.omitted += 1;
        true
    }
}

fn call_of(event: &Event) -> Option<&Id> {
    match event {
        Event::ToolCallStart { tool_call_id, .. }
        | Event::ToolCallArgs { tool_call_id, .. }
        | Event::ToolCallEnd { tool_call_id }
        | Event::ToolCallResult { tool_call_id, .. } => Some(tool_call_id),
        _ => None,
    }
}

fn bytes_of(event: &Event) -> usize {
    match event {
        Event::ToolCallStart { tool_call_name, .. } => tool_call_name.len(),
        Event::ToolCallArgs { delta, .. } => delta.len(),
        Event::ToolCallResult { content, .. } => content.len(),
        _ => 0,
    }
}

/// Receiver of the reported calls of one run. After it is dropped, reports are discarded.
#[derive(Debug)]
pub(crate) struct ToolCallReceiver(Arc<SharedReports>);

impl ReportedToolCalls for ToolCallReceiver {
    fn take(&mut self) -> VecDeque<Event> {
        if !self.0.has_unread.swap(false, Ordering::AcqRel) {
            return VecDeque::new();
        }
        let mut waiting = self.0.lock();
        let read = |event: &&Event| matches!(event, Event::ToolCallResult { .. });
        waiting.calls -= waiting.events.iter().filter(read).count();
        waiting.bytes = 0;
        std::mem::take(&mut waiting.events)
    }

    fn register_waker(&self, waker: &Waker) -> bool {
        self.0.reader.register(waker);
        self.0.has_unread.load(Ordering::Acquire)
    }

    fn omitted_count(&self) -> usize {
        self.0.lock().omitted
    }
}

impl Drop for ToolCallReceiver {
    fn drop(&mut self) {
        let mut waiting = self.0.lock();
        *waiting = ReportQueue { is_closed: true, ..ReportQueue::default() };
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Wake};

    use agent_core::error::AgentError;
    use agent_core::event::{EventGrammar, EventStream, RunIds, SourceEvent};
    use futures_util::{FutureExt, Stream, StreamExt, stream};
    use serde_json::json;

    use super::*;

    /// A waker that records that it was woken.
    #[derive(Default)]
    struct WakeFlag(AtomicBool);

    impl Wake for WakeFlag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    fn names(events: impl IntoIterator<Item = Event>) -> Vec<&'static str> {
        events.into_iter().map(|event| event.name()).collect()
    }

    fn says(content: &str) -> (String, bool) {
        (content.to_owned(), false)
    }

    const BEGUN: [&str; 3] = ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"];

    #[test]
    fn calls_are_read_in_the_order_of_their_reports() {
        let (reports, mut calls) = tool_call_channel();
        assert!(calls.take().is_empty() && !calls.register_waker(Waker::noop()));
        let one = reports.start_call("one", || "{}".to_owned());
        let two = reports.clone().start_call("two", || "{}".to_owned());
        two.finish(|| says("2"));
        assert!(calls.register_waker(Waker::noop()));
        let read = names(calls.take());
        assert_eq!(
            (&read[..3], &read[3..6], &read[6..]),
            (&BEGUN[..], &BEGUN[..], &["TOOL_CALL_RESULT"][..])
        );
        drop(one);
        let read = calls.take();
        let Some(Event::ToolCallResult { content, metadata, .. }) = read.front() else { panic!("{read:?}") };
        assert_eq!((content.as_str(), metadata.is_some()), ("the call was cancelled", true));
        assert!(calls.take().is_empty());
    }

    #[test]
    fn unread_reports_are_bounded_and_omitted_calls_counted() {
        let (reports, mut calls) = tool_call_channel();
        let begun: Vec<_> = (0..MAX_PENDING_REPORTED_CALLS + 3)
            .map(|_| reports.start_call("t", || "{}".to_owned()))
            .collect();
        assert_eq!((calls.take().len(), calls.omitted_count()), (3 * MAX_PENDING_REPORTED_CALLS, 3));
        begun.into_iter().for_each(|call| call.finish(|| says("r")));
        assert_eq!((calls.take().len(), calls.omitted_count()), (MAX_PENDING_REPORTED_CALLS, 3));
        reports.start_call("t", || "{}".to_owned()).finish(|| says("r"));
        assert_eq!(names(calls.take())[3..], ["TOOL_CALL_RESULT"]);
    }

    #[test]
    fn unread_report_bytes_are_bounded() {
        let long = || "x".repeat(MAX_UNREAD_REPORT_BYTES);
        let (reports, mut calls) = tool_call_channel();
        reports.start_call("t", long).finish(|| says("r"));
        assert_eq!((calls.take().len(), calls.omitted_count()), (0, 1), "its arguments are too long");
        let (other, unread) = (reports.start_call("t", String::new), reports.start_call("t", String::new));
        unread.finish(|| (long(), false));
        assert_eq!(
            (names(calls.take()), calls.omitted_count()),
            (BEGUN.to_vec(), 2),
            "no event of the call was sent yet"
        );
        other.finish(|| (format!("{}x", long()), false));
        let read = calls.take();
        let Some(Event::ToolCallResult { content, .. }) = read.front() else { panic!("{read:?}") };
        assert_eq!(*content, format!("[omitted: {} bytes]", MAX_UNREAD_REPORT_BYTES + 1));
        assert_eq!(calls.omitted_count(), 2);
    }

    #[test]
    fn calls_of_an_ended_run_are_not_reported() {
        let (reports, calls) = tool_call_channel();
        let call = reports.start_call("t", || "{}".to_owned());
        drop(calls);
        call.finish(|| panic!("nobody asks"));
        reports.start_call("t", || panic!("nobody asks")).finish(|| panic!("nobody asks"));
    }

    fn run(
        source: impl Stream<Item = Result<SourceEvent, AgentError>> + Send + 'static,
        calls: ToolCallReceiver,
    ) -> EventStream {
        let ids = RunIds { thread_id: "t".into(), run_id: "r".into() };
        EventStream::new(ids, source).with_reported_calls(Some(Box::new(calls)))
    }

    #[test]
    fn a_report_wakes_the_stream_of_the_run() {
        let (reports, calls) = tool_call_channel();
        let mut events = run(stream::pending(), calls);
        let woken = Arc::new(WakeFlag::default());
        let waker = Waker::from(woken.clone());
        let mut poll_name = || match events.poll_next_unpin(&mut Context::from_waker(&waker)) {
            Poll::Ready(event) => Some(event.expect("the run is not over").name()),
            Poll::Pending => None,
        };
        assert_eq!((poll_name(), poll_name()), (Some("RUN_STARTED"), None));
        assert!(!woken.0.load(Ordering::Relaxed));
        let call = reports.start_call("t", || "{}".to_owned());
        assert!(woken.0.swap(false, Ordering::Relaxed));
        assert_eq!([(); 4].map(|()| poll_name()), [Some(BEGUN[0]), Some(BEGUN[1]), Some(BEGUN[2]), None]);
        call.finish(|| says("r"));
        assert!(woken.0.load(Ordering::Relaxed));
        assert_eq!((poll_name(), poll_name()), (Some("TOOL_CALL_RESULT"), None));
    }

    #[test]
    fn a_run_reports_the_number_of_omitted_calls() {
        let (reports, calls) = tool_call_channel();
        let held: Vec<_> = (0..MAX_PENDING_REPORTED_CALLS + 2)
            .map(|_| reports.start_call("t", || "{}".to_owned()))
            .collect();
        let events = run(stream::empty(), calls).collect::<Vec<_>>().now_or_never().expect("it is ready");
        assert_eq!(held.len(), MAX_PENDING_REPORTED_CALLS + 2);
        assert_eq!(events.len(), 1 + 3 * MAX_PENDING_REPORTED_CALLS + 2);
        let value = json!({"kind": "toolCallsLeftOut", "count": 2});
        assert_eq!(events[events.len() - 2], Event::Custom { name: "agent.debug".into(), value });
        EventGrammar::check(&events).expect("the events follow the grammar");
    }

    #[test]
    fn the_end_of_a_stream_ends_the_reports() {
        let (reports, calls) = tool_call_channel();
        let mut events = run(stream::empty(), calls);
        let call = reports.start_call("t", || "{}".to_owned());
        let read = names(events.by_ref().collect::<Vec<_>>().now_or_never().expect("it is ready"));
        assert_eq!(read, [&["RUN_STARTED"], &BEGUN[..], &["RUN_ERROR"]].concat());
        call.finish(|| panic!("the run has ended"));
        reports.start_call("t", || panic!("the run has ended"));
        assert!(events.next().now_or_never().is_some_and(|event| event.is_none()));
    }

    #[test]
    fn dropping_a_stream_ends_the_reports() {
        let (reports, calls) = tool_call_channel();
        let events = run(stream::pending(), calls);
        let call = reports.start_call("t", || "{}".to_owned());
        drop(events);
        call.finish(|| panic!("nobody reads"));
    }
}
