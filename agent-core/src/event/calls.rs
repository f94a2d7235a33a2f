//! Tool calls that are made outside of a run's stream, on their way into it.
//!
//! A backend that calls the agent's tools back at this platform, by the run's token, may say nothing of it in its
//! answer. Whoever executes such a call reports it here as it begins and as it ends, and the run's
//! [`EventStream`](super::EventStream) takes the reports up as they come. Once the stream is over or dropped, they
//! are dropped too.
//!
//! A report never waits. What a reader is too slow for is left out, a call as a whole, and the run says how many
//! were.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use futures_util::task::AtomicWaker;

use super::{Event, Id, ResultMetadata, ToolRole};

/// How many calls of a run are under way or wait to be read, at most.
pub const MAX_REPORTED_CALLS: usize = 256;
/// How many bytes of names, arguments and results wait to be read, at most.
pub const MAX_REPORTED_BYTES: usize = 2 << 20;

/// A pair of ends: where the calls of a run are reported, and where its stream reads of them.
pub fn reported_calls() -> (CallReports, ReportedCalls) {
    let board = Arc::<Board>::default();
    (CallReports(board.clone()), ReportedCalls(board))
}

#[derive(Default)]
struct Board {
    waiting: Mutex<Waiting>,
    /// Whether there is anything to read, for those who look at every event.
    any: AtomicBool,
    reader: AtomicWaker,
}

#[derive(Default)]
struct Waiting {
    closed: bool,
    events: VecDeque<Event>,
    bytes: usize,
    /// Those that have begun and whose result has not been read.
    calls: usize,
    left_out: usize,
}

impl Board {
    /// No code panics while it holds the lock, so a poisoned one is as whole as any.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self) {
        self.any.store(true, Ordering::Release);
        self.reader.wake();
    }
}

/// Where the calls of one run are reported. Clones report to the same run.
#[derive(Clone)]
pub struct CallReports(Arc<Board>);

impl CallReports {
    /// Reports that a call begins. `arguments` gives them as JSON text, and is asked only where the run goes on.
    pub fn begin(&self, tool: &str, arguments: impl FnOnce() -> String) -> CallReport {
        let none = CallReport { id: Id::default(), board: None };
        if self.0.lock().closed {
            return none;
        }
        let delta = arguments();
        let mut waiting = self.0.lock();
        if waiting.closed {
            return none;
        }
        let bytes = waiting.bytes + tool.len() + delta.len();
        if waiting.calls >= MAX_REPORTED_CALLS || bytes > MAX_REPORTED_BYTES {
            waiting.left_out += 1;
            return none;
        }
        let tool_call_id = Id::from(crate::new_id());
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
        self.0.tell();
        CallReport { id, board: Some(self.0.clone()) }
    }
}

/// Two are the same that report to the same run.
impl PartialEq for CallReports {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for CallReports {}

impl fmt::Debug for CallReports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallReports")
    }
}

/// A call that has begun. Dropped before its end, it was given up, and is reported so.
#[derive(Debug)]
pub struct CallReport {
    id: Id,
    /// Absent where the call is not reported, and once it has ended.
    board: Option<Arc<Board>>,
}

impl CallReport {
    /// Reports what came of the call: the content that whoever called is given, and whether the call failed.
    /// `result` is asked only where the run goes on.
    pub fn end(mut self, result: impl FnOnce() -> (String, bool)) {
        if let Some(board) = self.board.take()
            && !board.lock().closed
        {
            let (content, is_error) = result();
            board.end(&self.id, content, is_error);
        }
    }
}

impl Drop for CallReport {
    fn drop(&mut self) {
        if let Some(board) = self.board.take() {
            board.end(&self.id, "the call was given up".to_owned(), true);
        }
    }
}

impl Board {
    fn end(&self, id: &Id, mut content: String, is_error: bool) {
        let mut waiting = self.lock();
        if waiting.closed {
            return;
        }
        if waiting.bytes + content.len() > MAX_REPORTED_BYTES {
            if waiting.withdraw(id) {
                return;
            }
            // The call has been read of, so that it must end.
            content = format!("[left out: {} bytes]", content.len());
        }
        waiting.bytes += content.len();
        waiting.events.push_back(Event::ToolCallResult {
            message_id: crate::new_id().into(),
            tool_call_id: id.clone(),
            content,
            role: ToolRole::Tool,
            metadata: is_error.then_some(ResultMetadata { is_error }),
        });
        drop(waiting);
        self.tell();
    }
}

impl fmt::Debug for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Board").finish_non_exhaustive()
    }
}

impl Waiting {
    /// Takes a call back that nobody has read of, and says whether there was one.
    fn withdraw(&mut self, id: &Id) -> bool {
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
        self.left_out += 1;
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

/// Where a run's stream reads of its calls. Dropped, nothing is reported any more.
#[derive(Debug)]
pub struct ReportedCalls(Arc<Board>);

impl ReportedCalls {
    /// What has been reported since the last time, in order.
    pub(super) fn take(&self) -> VecDeque<Event> {
        if !self.0.any.swap(false, Ordering::AcqRel) {
            return VecDeque::new();
        }
        let mut waiting = self.0.lock();
        let read = |event: &&Event| matches!(event, Event::ToolCallResult { .. });
        waiting.calls -= waiting.events.iter().filter(read).count();
        waiting.bytes = 0;
        std::mem::take(&mut waiting.events)
    }

    /// Wakes the reader at the next report; says whether there is one already.
    pub(super) fn wait(&self, waker: &Waker) -> bool {
        self.0.reader.register(waker);
        self.0.any.load(Ordering::Acquire)
    }

    /// How many calls were left out.
    pub(super) fn left_out(&self) -> usize {
        self.0.lock().left_out
    }
}

impl Drop for ReportedCalls {
    fn drop(&mut self) {
        let mut waiting = self.0.lock();
        *waiting = Waiting { closed: true, ..Waiting::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(events: impl IntoIterator<Item = Event>) -> Vec<&'static str> {
        events.into_iter().map(|event| event.name()).collect()
    }

    fn says(content: &str) -> (String, bool) {
        (content.to_owned(), false)
    }

    const BEGUN: [&str; 3] = ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"];

    #[test]
    fn calls_are_read_in_the_order_of_their_reports() {
        let (reports, calls) = reported_calls();
        assert!(calls.take().is_empty() && !calls.wait(Waker::noop()));
        let one = reports.begin("one", || "{}".to_owned());
        let two = reports.clone().begin("two", || "{}".to_owned());
        two.end(|| says("2"));
        assert!(calls.wait(Waker::noop()));
        let read = names(calls.take());
        assert_eq!(
            (&read[..3], &read[3..6], &read[6..]),
            (&BEGUN[..], &BEGUN[..], &["TOOL_CALL_RESULT"][..])
        );
        drop(one);
        let read = calls.take();
        let Some(Event::ToolCallResult { content, metadata, .. }) = read.front() else { panic!("{read:?}") };
        assert_eq!((content.as_str(), metadata.is_some()), ("the call was given up", true));
        assert!(calls.take().is_empty());
    }

    #[test]
    fn what_is_not_read_is_bounded_and_counted_by_whole_calls() {
        let (reports, calls) = reported_calls();
        let begun: Vec<_> =
            (0..MAX_REPORTED_CALLS + 3).map(|_| reports.begin("t", || "{}".to_owned())).collect();
        assert_eq!((calls.take().len(), calls.left_out()), (3 * MAX_REPORTED_CALLS, 3));
        begun.into_iter().for_each(|call| call.end(|| says("r")));
        assert_eq!((calls.take().len(), calls.left_out()), (MAX_REPORTED_CALLS, 3));
        reports.begin("t", || "{}".to_owned()).end(|| says("r"));
        assert_eq!(names(calls.take())[3..], ["TOOL_CALL_RESULT"]);
    }

    #[test]
    fn so_are_bytes() {
        let long = || "x".repeat(MAX_REPORTED_BYTES);
        let (reports, calls) = reported_calls();
        reports.begin("t", long).end(|| says("r"));
        assert_eq!((calls.take().len(), calls.left_out()), (0, 1), "its arguments are too long");
        let (other, unread) = (reports.begin("t", String::new), reports.begin("t", String::new));
        unread.end(|| (long(), false));
        assert_eq!((names(calls.take()), calls.left_out()), (BEGUN.to_vec(), 2), "nobody knows of it yet");
        other.end(|| (format!("{}x", long()), false));
        let read = calls.take();
        let Some(Event::ToolCallResult { content, .. }) = read.front() else { panic!("{read:?}") };
        assert_eq!(*content, format!("[left out: {} bytes]", MAX_REPORTED_BYTES + 1));
        assert_eq!(calls.left_out(), 2);
    }

    #[test]
    fn nothing_is_reported_to_a_run_that_is_over() {
        let (reports, calls) = reported_calls();
        let call = reports.begin("t", || "{}".to_owned());
        drop(calls);
        call.end(|| panic!("nobody asks"));
        reports.begin("t", || panic!("nobody asks")).end(|| panic!("nobody asks"));
    }
}
