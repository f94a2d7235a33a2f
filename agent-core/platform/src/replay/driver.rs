//! Executor of a replayed turn, whose inputs and answers are all in memory, so that it never waits for I/O.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use agent_core::event::{Event, EventStream, RunEnd};
use futures_util::Stream;

/// Maximum number of events of a replay.
const MAX_REPLAYED_EVENTS: usize = 2_000_000;

/// Waker that records that it was woken.
#[derive(Default)]
struct WakeFlag(AtomicBool);

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Polls until the result is ready; `None` once nothing will wake the task.
fn poll_ready<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Option<T> {
    let flag = Arc::new(WakeFlag::default());
    let waker = Waker::from(flag.clone());
    let mut context = Context::from_waker(&waker);
    loop {
        match poll(&mut context) {
            Poll::Ready(value) => return Some(value),
            Poll::Pending if flag.0.swap(false, Ordering::Relaxed) => {}
            Poll::Pending => return None,
        }
    }
}

/// Completes a future; `None` if it waits for the outside.
pub(super) fn complete<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_ready(|cx| future.as_mut().poll(cx))
}

/// Reads a run to its end. It is ended as the recorded run was after `cut` events of the turn, and where it waits for the
/// outside; returns true with its events if the record has no end either.
pub(super) fn read_to_end(
    mut events: EventStream,
    mut end: Option<RunEnd>,
    cut: Option<usize>,
) -> (Vec<Event>, bool) {
    let (mut seen, mut count) = (Vec::new(), 0);
    while seen.len() < MAX_REPLAYED_EVENTS {
        if cut == Some(count)
            && let Some(end) = end.take()
        {
            events.finish(end);
        }
        match poll_ready(|cx| Pin::new(&mut events).poll_next(cx)) {
            Some(Some(event)) => {
                count += usize::from(is_of_turn(&&event));
                seen.push(event);
            }
            Some(None) => return (seen, false),
            None => match end.take() {
                Some(end) => events.finish(end),
                None => return (seen, true),
            },
        }
    }
    (seen, true)
}

/// Returns true for an event that the turn makes, and not the platform around it.
pub(super) fn is_of_turn(event: &&Event) -> bool {
    match event {
        Event::Custom { name, .. } => name == "agent.prompt" || name == "agent.debug",
        _ => true,
    }
}
