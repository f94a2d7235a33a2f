//! Fair distribution of the permits for a pool's connections, or for the writes of an owner, to those that wait for them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::error::{PostgresError, PostgresErrorKind};
use crate::round_robin::{Cancellable, RoundRobin};

/// Maximum number of operations of one company that wait for a connection.
const MAX_WAITING_PER_COMPANY: usize = 1024;

/// Permits for the connections of a pool. Waiting companies are granted permits round-robin, and no company holds more than its
/// share, so that a company with many operations delays another company by at most one operation.
pub(super) struct FairQueue {
    state: Arc<Mutex<QueueState>>,
}

struct QueueState {
    free: usize,
    waiting: RoundRobin<oneshot::Sender<Permit>>,
}

/// A permit to use one connection, returned when dropped.
pub(super) struct Permit {
    state: Arc<Mutex<QueueState>>,
    company: Arc<str>,
}

impl Cancellable for oneshot::Sender<Permit> {
    fn is_caller_waiting(&self) -> bool {
        !self.is_closed()
    }
}

impl FairQueue {
    /// Creates a queue of `permits` permits; one company gets at most three quarters.
    pub(super) fn new(permits: usize) -> Self {
        Self::with_share(permits, permits * 3 / 4)
    }

    /// Creates a queue of `permits` permits; one company gets at most `share`. There is at least one of each.
    pub(super) fn with_share(permits: usize, share: usize) -> Self {
        let state =
            QueueState { free: permits.max(1), waiting: RoundRobin::new(share, MAX_WAITING_PER_COMPANY) };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Returns true if a company holds permits or waits for one.
    pub(super) fn is_used_by(&self, company: &str) -> bool {
        lock(&self.state).waiting.is_used_by(company)
    }

    /// Waits for a permit for at most `limit`.
    pub(super) async fn acquire(&self, company: &str, limit: Duration) -> Result<Permit, PostgresError> {
        let busy = || PostgresError::from_kind(PostgresErrorKind::Busy);
        let granted = {
            let mut state = lock(&self.state);
            if state.free > 0
                && let Some(company) = state.waiting.start(company)
            {
                state.free -= 1;
                return Ok(Permit { state: self.state.clone(), company });
            }
            let (grant, granted) = oneshot::channel();
            if !state.waiting.push(company, grant) {
                return Err(busy());
            }
            granted
        };
        match timeout(limit, granted).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(busy()),
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        state.free += 1;
        state.waiting.finish(&self.company);
        let grants = state.grants(&self.state);
        drop(state);
        for (waiting, permit) in grants {
            // Fails if the caller was cancelled, which drops the permit, and that grants it to the next one.
            let _ = waiting.send(permit);
        }
    }
}

impl QueueState {
    /// Takes the waiting operations that can be granted a permit, round-robin by company.
    fn grants(&mut self, shared: &Arc<Mutex<Self>>) -> Vec<(oneshot::Sender<Permit>, Permit)> {
        let mut grants = Vec::new();
        while self.free > 0
            && let Some((company, waiting)) = self.waiting.take_next()
        {
            self.free -= 1;
            grants.push((waiting, Permit { state: shared.clone(), company }));
        }
        grants
    }
}

/// Locks the state. No code panics while it holds the lock.
fn lock(state: &Mutex<QueueState>) -> MutexGuard<'_, QueueState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    async fn acquire(queue: &FairQueue, company: &str) -> Permit {
        queue.acquire(company, LIMIT).await.expect("a permit")
    }

    #[tokio::test(start_paused = true)]
    async fn companies_alternate_and_none_holds_all_permits() {
        let queue = FairQueue::new(4);
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(acquire(&queue, "large").await);
        }
        let mut waiting: Vec<_> = (0..5).map(|_| Box::pin(acquire(&queue, "large"))).collect();
        for future in &mut waiting {
            assert!(future.now_or_never().is_none(), "the company has its share");
        }
        let other = acquire(&queue, "small").await;
        let mut second = Box::pin(acquire(&queue, "small"));
        assert!((&mut second).now_or_never().is_none(), "all permits are taken");
        drop(held.pop());
        let granted = [(&mut waiting[0]).now_or_never().is_some(), (&mut second).now_or_never().is_some()];
        assert_eq!(granted, [false, true], "a company that had its share is behind the others");
        drop(held.pop());
        assert!((&mut waiting[0]).now_or_never().is_some(), "companies alternate");
        drop((held, other, waiting, second));
        for _ in 0..3 {
            std::mem::forget(acquire(&queue, "large").await);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn writes_of_one_owner_are_serialized_beside_others() {
        let queue = FairQueue::with_share(usize::MAX, 1);
        let (first, other) = (acquire(&queue, "ada").await, acquire(&queue, "bob").await);
        let mut waiting = [0, 1].map(|_| Box::pin(acquire(&queue, "ada")));
        let mut done = || waiting.each_mut().map(|permit| permit.now_or_never());
        assert!(done().iter().all(Option::is_none));
        drop(other);
        assert!(!queue.is_used_by("bob") && queue.is_used_by("ada"));
        drop(first);
        let [second, third] = done();
        assert!(second.is_some() && third.is_none(), "first in, first out");
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_wait_takes_no_permit() {
        let queue = FairQueue::new(1);
        let held = acquire(&queue, "a").await;
        let mut cancelled = Box::pin(acquire(&queue, "b"));
        assert!((&mut cancelled).now_or_never().is_none());
        drop(cancelled);
        let mut next = Box::pin(acquire(&queue, "c"));
        assert!((&mut next).now_or_never().is_none());
        drop(held);
        drop(next.now_or_never().expect("the permit goes to the caller that still waits"));
        drop(acquire(&queue, "a").await);
        assert!(lock(&queue.state).waiting.is_empty(), "idle companies are forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn waits_and_queues_are_bounded() {
        let queue = Arc::new(FairQueue::new(1));
        let _held = acquire(&queue, "a").await;
        let mut waiting = Vec::new();
        for _ in 0..MAX_WAITING_PER_COMPANY {
            let mut wait = Box::pin(queue.acquire("a", LIMIT));
            assert!((&mut wait).now_or_never().is_none());
            waiting.push(wait);
        }
        let full = queue.acquire("a", LIMIT).now_or_never().expect("it is refused at once");
        assert_eq!(full.err().map(|error| error.kind()), Some(PostgresErrorKind::Busy));
        let other = queue.acquire("b", LIMIT).await;
        assert_eq!(other.err().map(|error| error.kind()), Some(PostgresErrorKind::Busy), "after the limit");
    }
}
