//! Pauses between attempts at an operation that fails for a while, such as a write to a store that is unavailable.

use std::time::Duration;

use agent_core::clock::Clock;

/// Sequence of pauses, each twice as long as the one before, up to a maximum.
#[derive(Debug, Clone)]
pub struct Backoff {
    next_pause: Duration,
    max_pause: Duration,
}

impl Backoff {
    /// Creates a sequence that starts with `first_pause`. No pause is longer than `max_pause`.
    pub const fn new(first_pause: Duration, max_pause: Duration) -> Self {
        Self { next_pause: first_pause, max_pause }
    }

    /// Returns the next pause of the sequence.
    pub fn next_pause(&mut self) -> Duration {
        let pause = self.next_pause.min(self.max_pause);
        self.next_pause = pause.saturating_mul(2);
        pause
    }

    /// Sleeps for the next pause of the sequence.
    pub async fn sleep(&mut self, clock: &dyn Clock) {
        clock.sleep(self.next_pause()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_maximum() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(500));
        let pauses: Vec<u128> = (0..5).map(|_| backoff.next_pause().as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 500, 500]);
    }

    #[test]
    fn no_pause_is_longer_than_the_maximum() {
        let mut backoff = Backoff::new(Duration::from_secs(9), Duration::from_secs(5));
        assert_eq!([backoff.next_pause(), backoff.next_pause()], [Duration::from_secs(5); 2]);
        let mut unlimited = Backoff::new(Duration::MAX, Duration::MAX);
        assert_eq!([unlimited.next_pause(), unlimited.next_pause()], [Duration::MAX; 2]);
    }
}
