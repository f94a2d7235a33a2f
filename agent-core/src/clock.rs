//! Time as a parameter, so that tests control it.

use std::time::{Duration, Instant, SystemTime};

use futures_util::future::BoxFuture;
use jiff::tz::TimeZone;

/// Source of time and timers.
pub trait Clock: Send + Sync + 'static {
    /// Returns the wall-clock time.
    fn now(&self) -> SystemTime;

    /// Returns monotonic time, for measuring durations. It never decreases, unlike [`now`](Self::now).
    fn monotonic(&self) -> Instant;

    /// Sleeps for `duration`, counted from this call and not from the first poll. Dropping the future cancels the sleep.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
}

/// Returns the time zone with an IANA name, in any case; `None` for unknown names and those that differ by machine.
pub fn find_time_zone(name: &str) -> Option<TimeZone> {
    let zone = TimeZone::get(name).ok().filter(|_| name.len() <= 64)?;
    let is_shared = !["localtime", "posixrules", "Factory", "Etc/Unknown"].contains(&zone.iana_name()?);
    is_shared.then_some(zone)
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
