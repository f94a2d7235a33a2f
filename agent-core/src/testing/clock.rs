//! A clock that a test advances manually.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, poll_fn};

use crate::clock::Clock;

/// A [`Clock`] that only [`advance`](ManualClock::advance) and [`set`](ManualClock::set) change. Clones share the time.
#[derive(Debug, Clone)]
pub struct ManualClock {
    state: Arc<Mutex<ClockState>>,
}

#[derive(Debug)]
struct ClockState {
    began: SystemTime,
    began_monotonic: Instant,
    elapsed: Duration,
    /// Wakers of pending sleeps, ordered by deadline and then by creation.
    sleepers: BTreeMap<(Duration, u64), Waker>,
    next_sleeper: u64,
    /// Wakers of tasks that wait in [`ManualClock::wait_for_sleepers`].
    watchers: Vec<Waker>,
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::at(UNIX_EPOCH + Duration::from_secs(1_767_225_600))
    }
}

impl ManualClock {
    /// Creates a clock at the beginning of the year 2026, UTC.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a clock at `now`.
    pub fn at(now: SystemTime) -> Self {
        let state = ClockState {
            began: now,
            began_monotonic: Instant::now(),
            elapsed: Duration::ZERO,
            sleepers: BTreeMap::new(),
            next_sleeper: 0,
            watchers: Vec::new(),
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Advances the time and wakes the sleeps that are due, earliest deadline first.
    pub fn advance(&self, by: Duration) {
        let mut state = self.lock();
        state.elapsed += by;
        let last_due = (state.elapsed, u64::MAX);
        let later = state.sleepers.split_off(&last_due);
        let due = std::mem::replace(&mut state.sleepers, later);
        drop(state);
        due.into_values().for_each(Waker::wake);
    }

    /// Advances the time to the deadline of the next sleep. Returns the duration, or `None` if there is no sleep.
    pub fn advance_to_next(&self) -> Option<Duration> {
        let by = {
            let state = self.lock();
            let ((deadline, _), _) = state.sleepers.first_key_value()?;
            deadline.saturating_sub(state.elapsed)
        };
        self.advance(by);
        Some(by)
    }

    /// Sets the wall-clock time, earlier or later. Affects neither sleeps nor the [monotonic](Clock::monotonic) time.
    pub fn set(&self, now: SystemTime) {
        let mut state = self.lock();
        state.began =
            now.checked_sub(state.elapsed).expect("the time that is set is after the clock's beginning");
    }

    /// Returns the number of pending sleeps.
    pub fn sleepers(&self) -> usize {
        self.lock().sleepers.len()
    }

    /// Waits until at least `count` sleeps are pending, so that a test advances the time only after that.
    pub async fn wait_for_sleepers(&self, count: usize) {
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

    fn lock(&self) -> MutexGuard<'_, ClockState> {
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

/// A sleep, pending from its first poll until it completes or is dropped.
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
        clock.wait_for_sleepers(1).await;
        assert_eq!(clock.advance_to_next(), Some(SECOND));
        subject.await.expect("it woke");
        join(clock.sleep(SECOND), async {
            clock.wait_for_sleepers(1).await;
            clock.advance(SECOND);
        })
        .await;
    }
}
