//! Time as a parameter, so that tests control it.

use std::time::{Duration, Instant, SystemTime};

use futures_util::future::BoxFuture;

/// Source of time and timers.
pub trait Clock: Send + Sync + 'static {
    /// Returns the wall-clock time.
    fn now(&self) -> SystemTime;

    /// Returns monotonic time, for measuring durations.
    fn monotonic(&self) -> Instant;

    /// Sleeps for `duration`. Dropping the future cancels the sleep.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
}

/// The system clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    fn monotonic(&self) -> Instant {
        Instant::now()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(futures_timer::Delay::new(duration))
    }
}
