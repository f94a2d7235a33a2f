//! Clock of programs that run on tokio.

use std::time::{Duration, Instant, SystemTime};

use agent_core::clock::{Clock, SystemClock};
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;

/// The system clock, with the timers of the tokio runtime that a sleep begins on. Unlike the timers of [`SystemClock`], they need
/// no timer thread, which would be woken for each new sleep.
///
/// A sleep that begins outside a runtime is one of [`SystemClock`].
#[derive(Debug, Clone, Copy, Default)]
pub struct TokioClock;

impl Clock for TokioClock {
    fn now(&self) -> SystemTime {
        SystemClock.now()
    }

    fn monotonic(&self) -> Instant {
        SystemClock.monotonic()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        match Handle::try_current() {
            Ok(_) => Box::pin(tokio::time::sleep(duration)),
            Err(_) => SystemClock.sleep(duration),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_sleep_on_a_runtime_goes_by_its_time() {
        let begin = tokio::time::Instant::now();
        TokioClock.sleep(Duration::from_secs(3600)).await;
        assert!(begin.elapsed() >= Duration::from_secs(3600));
    }

    #[test]
    fn a_sleep_that_begins_outside_a_runtime_ends() {
        let sleep = TokioClock.sleep(Duration::from_millis(1));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(sleep);
    }
}
