//! Coalescing notification: wakes all waiting tasks once, however often it was raised.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use futures_util::stream::{BoxStream, StreamExt, poll_fn};

/// Broadcast notification from a store to the tasks that wait for its jobs. Clones share one signal.
#[derive(Debug, Clone, Default)]
pub struct WakeSignal(Arc<Mutex<SignalState>>);

#[derive(Debug, Default)]
struct SignalState {
    /// Number of notifications so far.
    sequence: u64,
    wakers: Vec<Waker>,
}

impl WakeSignal {
    /// Notifies all subscribers.
    pub fn notify(&self) {
        let wakers = {
            let mut state = self.lock();
            state.sequence += 1;
            std::mem::take(&mut state.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Subscribes to notifications sent from this call on. Several notifications between two polls yield one item.
    pub fn subscribe(&self) -> BoxStream<'static, ()> {
        let signal = self.clone();
        let mut last_sequence = self.lock().sequence;
        poll_fn(move |cx| {
            let mut state = signal.lock();
            if state.sequence != last_sequence {
                last_sequence = state.sequence;
                return Poll::Ready(Some(()));
            }
            if !state.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
                state.wakers.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .boxed()
    }

    fn lock(&self) -> MutexGuard<'_, SignalState> {
        // The state is consistent between any two statements, so a poisoned lock is usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn each_subscriber_is_notified_once() {
        let signal = WakeSignal::default();
        signal.notify();
        let mut waiting = [signal.subscribe(), signal.subscribe()];
        for stream in &mut waiting {
            assert_eq!(stream.next().now_or_never(), None, "earlier notifications do not count");
        }
        signal.notify();
        signal.notify();
        for stream in &mut waiting {
            assert_eq!(stream.next().now_or_never(), Some(Some(())));
            assert_eq!(stream.next().now_or_never(), None);
        }
    }
}
