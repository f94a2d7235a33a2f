//! Coalescing notification: wakes all waiting tasks once, however often it was raised.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use futures_util::stream::{BoxStream, StreamExt, poll_fn};

/// Broadcast notification from a store to the tasks that wait for its jobs. Clones share one signal.
#[derive(Debug, Clone, Default)]
pub struct WakeSignal(Arc<Mutex<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    /// Number of notifications so far.
    given: u64,
    wakers: Vec<Waker>,
}

impl WakeSignal {
    /// Notifies all subscribers.
    pub fn give(&self) {
        let wakers = {
            let mut waiting = self.lock();
            waiting.given += 1;
            std::mem::take(&mut waiting.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Subscribes to notifications sent from this call on. Several notifications between two polls yield one item.
    pub fn given(&self) -> BoxStream<'static, ()> {
        let signal = self.clone();
        let mut seen = self.lock().given;
        poll_fn(move |cx| {
            let mut waiting = signal.lock();
            if waiting.given != seen {
                seen = waiting.given;
                return Poll::Ready(Some(()));
            }
            if !waiting.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
                waiting.wakers.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .boxed()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // The state is consistent between any two statements, so a poisoned lock is usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn everybody_who_waits_is_told_once() {
        let signal = WakeSignal::default();
        signal.give();
        let mut waiting = [signal.given(), signal.given()];
        for stream in &mut waiting {
            assert_eq!(stream.next().now_or_never(), None, "what was before does not count");
        }
        signal.give();
        signal.give();
        for stream in &mut waiting {
            assert_eq!(stream.next().now_or_never(), Some(Some(())));
            assert_eq!(stream.next().now_or_never(), None);
        }
    }
}
