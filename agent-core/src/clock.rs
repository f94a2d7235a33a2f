//! Time as a parameter, so that tests own it.

use std::time::{Duration, Instant, SystemTime};

use futures_util::future::BoxFuture;

/// Tells the time and waits.
pub trait Clock: Send + Sync + 'static {
    /// Wall-clock time.
    fn now(&self) -> SystemTime;

    /// A clock that only goes forward, for durations.
    fn monotonic(&self) -> Instant;

    /// Waits for `duration`. Dropping the future ends the wait.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
}

/// The machine's clock.
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
