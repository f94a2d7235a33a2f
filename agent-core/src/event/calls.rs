//! Tool calls that are executed outside of a run's event stream, and their way into it.

use std::collections::VecDeque;
use std::task::Waker;

use super::Event;

/// Receiver of the tool calls of one run that are reported to its [`EventStream`](super::EventStream).
///
/// A remote backend that calls the agent's tools on this platform, with the run token, may not include these calls in
/// its own events. The tool server that executes such a call reports it, and the stream emits the reports among the
/// backend's events. The stream drops the receiver when the run ends; later reports are discarded.
pub trait ReportedToolCalls: Send + 'static {
    /// Takes the events reported since the last call, in order. The stream calls it before each event of the backend,
    /// so without reports it must cost no more than an atomic operation.
    fn take(&mut self) -> VecDeque<Event>;

    /// Registers the waker for the next report, in place of an earlier one; returns true if events are unread already.
    fn register_waker(&self, waker: &Waker) -> bool;

    /// Returns the number of calls that were not emitted as events because the stream was read too slowly.
    fn omitted_count(&self) -> usize;
}
