//! A clock that goes on only when it is told to.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, poll_fn};

use crate::clock::Clock;

/// A [`Clock`] that stands still until [`advance`](ManualClock::advance). Clones share the time.
#[derive(Debug, Clone)]
pub struct ManualClock {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    began: SystemTime,
    began_monotonic: Instant,
    elapsed: Duration,
    /// Who sleeps, by the time at which they wake and the order in which they fell asleep.
    sleepers: BTreeMap<(Duration, u64), Waker>,
    next_sleeper: u64,
    /// Who waits for others to fall asleep.
    watchers: Vec<Waker>,
}

impl Default for ManualClock {
    /// A clock that shows the first moment of the year 2026.
    fn default() -> Self {
        Self::at(UNIX_EPOCH + Duration::from_secs(1_767_225_600))
    }
}

impl ManualClock {
    /// A clock that shows the first moment of the year 2026.
    pub fn new() -> Self {
        Self::default()
    }

    /// A clock that shows `now`.
    pub fn at(now: SystemTime) -> Self {
        let state = State {
            began: now,
            began_monotonic: Instant::now(),
            elapsed: Duration::ZERO,
            sleepers: BTreeMap::new(),
            next_sleeper: 0,
            watchers: Vec::new(),
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Moves the time forward and wakes whom it concerns, the earliest first.
    pub fn advance(&self, by: Duration) {
        let mut state = self.lock();
        state.elapsed += by;
        let last_due = (state.elapsed, u64::MAX);
        let later = state.sleepers.split_off(&last_due);
        let due = std::mem::replace(&mut state.sleepers, later);
        drop(state);
        due.into_values().for_each(Waker::wake);
    }

    /// Moves the time forward to when the next sleeper wakes; says by how much, or that nobody sleeps.
    pub fn advance_to_next(&self) -> Option<Duration> {
        let by = {
            let state = self.lock();
            let ((deadline, _), _) = state.sleepers.first_key_value()?;
            deadline.saturating_sub(state.elapsed)
        };
        self.advance(by);
        Some(by)
    }

    /// Shows another time from now on, earlier or later, as a clock does that somebody sets. Neither those who sleep
    /// nor the [monotonic](Clock::monotonic) time notice.
    pub fn set(&self, now: SystemTime) {
        let mut state = self.lock();
        state.began =
            now.checked_sub(state.elapsed).expect("the time that is set is after the clock's beginning");
    }

    /// How many sleep now.
    pub fn sleepers(&self) -> usize {
        self.lock().sleepers.len()
    }

    /// Waits until at least `count` sleep, so that a test advances the time only when its subject has
    /// come to the point.
    pub async fn until_sleeping(&self, count: usize) {
        poll_fn(|cx| {
            let mut state = self.lock();
            if state.sleepers.len() >= count {
                return Poll::Ready(());
            }
            state.watchers.push(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> SystemTime {
        let state = self.lock();
        state.began + state.elapsed
    }

    fn monotonic(&self) -> Instant {
        let state = self.lock();
        state.began_monotonic + state.elapsed
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let mut state = self.lock();
        let deadline = state.elapsed.saturating_add(duration);
        let number = state.next_sleeper;
        state.next_sleeper += 1;
        drop(state);
        Sleep { clock: self.clone(), key: (deadline, number) }.boxed()
    }
}

/// Counts as asleep from its first poll until it is done or dropped.
struct Sleep {
    clock: ManualClock,
    key: (Duration, u64),
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.clock.lock();
        if state.elapsed >= self.key.0 {
            state.sleepers.remove(&self.key);
            return Poll::Ready(());
        }
        state.sleepers.insert(self.key, cx.waker().clone());
        let watchers = std::mem::take(&mut state.watchers);
        drop(state);
        watchers.into_iter().for_each(Waker::wake);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.clock.lock().sleepers.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn sleepers_wake_when_their_time_has_come_and_not_before() {
        let clock = ManualClock::new();
        let began = (clock.now(), clock.monotonic());
        let (mut short, mut long) = (clock.sleep(SECOND), clock.sleep(2 * SECOND));
        assert_eq!(clock.sleepers(), 0);
        assert!((&mut short).now_or_never().is_none() && (&mut long).now_or_never().is_none());
        assert_eq!(clock.sleepers(), 2);
        clock.advance(SECOND);
        assert!((&mut short).now_or_never().is_some());
        assert!((&mut long).now_or_never().is_none());
        drop(long);
        assert_eq!((clock.sleepers(), clock.advance_to_next()), (0, None));
        assert_eq!((clock.now(), clock.monotonic()), (began.0 + SECOND, began.1 + SECOND));
    }

    #[tokio::test]
    async fn a_test_waits_until_its_subject_sleeps() {
        let clock = ManualClock::new();
        let subject = tokio::spawn(clock.sleep(SECOND));
        clock.until_sleeping(1).await;
        assert_eq!(clock.advance_to_next(), Some(SECOND));
        subject.await.expect("it woke");
        join(clock.sleep(SECOND), async {
            clock.until_sleeping(1).await;
            clock.advance(SECOND);
        })
        .await;
    }
}
